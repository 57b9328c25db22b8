//! Requests and decisions as audit notes and as event facts.

use super::{
    Ask, Subject,
    state::Question,
    words::{Decision, Verdict},
};
use crate::{caller::Caller, events::ApprovalFacts, record::Note};
use ringfence_store::audit::{Action, Outcome};
use serde_json::{Value, json};

impl ApprovalFacts {
    pub(super) fn of(ask: &Ask, id: &str) -> Self {
        Self {
            request_id: id.to_owned(),
            kind: ask.subject.kind(),
            what: ask.subject.recorded(),
            session_id: ask.session.as_ref().map(ToString::to_string),
            ..Self::default()
        }
    }
}

/// Returns the details common to all records of a request.
pub(super) fn facts(question: &Question) -> Value {
    let ask = &question.ask;
    let mut facts = json!({
        "request": question.request.id,
        "digest": question.digest,
        "kind": ask.subject.kind(),
        "what": ask.subject.recorded(),
    });
    if let Subject::Command(command) = &ask.subject {
        facts["program"] = json!(command.program);
        facts["directory"] = json!(command.directory);
    }
    if let Some(session) = &ask.session {
        facts["session"] = json!(session.as_str());
    }
    facts
}

pub(super) fn decided_note<'a>(question: &'a Question, decision: &Decision, by: &'a Caller) -> Note<'a> {
    let (ask, mut details) = (&question.ask, facts(question));
    let outcome = match decision.verdict {
        Verdict::Approved(scope) => {
            details["scope"] = json!(scope);
            if let Some(expires) = decision.expires_unix_ms {
                details["expires_unix_ms"] = json!(expires);
            }
            Outcome::Ok
        }
        Verdict::Denied(why) => {
            details["why"] = json!(why.as_str());
            Outcome::Denied
        }
    };
    let note = Note::of(by, &ask.namespace, Action::ApprovalDecided, details);
    note.ended(outcome).of_execution(ask.execution.as_deref())
}
