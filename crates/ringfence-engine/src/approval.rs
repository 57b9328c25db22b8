//! Asking a person. What a program or a model may not have by itself is asked for here, shown exactly as it is, and
//! decided through a channel that neither of them has: the client's own dialogue, the operator's command, the callback
//! of the program that embeds us. Everything that is not a yes in time is a no.

mod notes;
mod queue;
mod rules;
mod shown;
mod state;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use queue::Approvals;
pub use queue::{ApprovalWatch, Waiting};
pub use words::{Answer, ApprovalRequest, Decision, DeniedBy, Scope, ScopeChoice, Verdict};

use crate::{caller::Caller, settings::ApprovalSettings};
use ringfence_egress::Rule;
use ringfence_types::{Namespace, RequestError, SessionId};
use rules::ApprovedRules;
use std::{sync::Arc, time::Duration};

/// The longest reason, in characters. One that is longer is refused: what is shown is complete.
pub const REASON_CHARS_MAX: usize = 500;

/// The kind of every request, as it stands on record.
const KIND: &str = "egress";

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The host to reach.
    pub(crate) rule: Rule,
    pub(crate) namespace: Namespace,
    /// Where it is for one session alone.
    pub(crate) session: Option<SessionId>,
    /// Where a run that is under way waits for the answer.
    pub(crate) execution: Option<String>,
    pub(crate) caller: Caller,
    pub(crate) reason: String,
    /// Where a program waits that does not wait for long; else as long as the settings say.
    pub(crate) patience: Option<Duration>,
}

impl Ask {
    fn check(&self) -> Result<(), RequestError> {
        if self.reason.chars().count() <= REASON_CHARS_MAX {
            return Ok(());
        }
        Err(RequestError::invalid(
            format!("the reason has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: say it shortly.",
        ))
    }

    /// How long it waits for an answer.
    fn timeout(&self, settings: &ApprovalSettings) -> Duration {
        self.patience
            .map_or(settings.timeout, |patience| patience.min(settings.timeout))
    }

    /// Asks that have the same key are one: the second waits for the answer to the first.
    fn key(&self) -> Key {
        Key {
            rule: self.rule.clone(),
            namespace: self.namespace.clone(),
            session: self.session.clone(),
            execution: self.execution.clone(),
        }
    }

    /// What it may be approved for.
    fn scopes(&self) -> Vec<Scope> {
        let session = self.session.is_some().then_some(Scope::Session);
        [Some(Scope::Once), session, Some(Scope::Namespace)]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// What makes two asks the same. The reason does not count: other words do not make another question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    rule: Rule,
    namespace: Namespace,
    session: Option<SessionId>,
    execution: Option<String>,
}

/// The one place where a decision takes effect. False: there is no room for it, so it has none.
fn apply(rules: &Arc<ApprovedRules>, ask: &Ask, decision: &Decision) -> bool {
    let Verdict::Approved(scope) = decision.verdict else {
        return true;
    };
    // The run that waits for the answer goes on by it; nothing is left for another.
    let is_its_own = scope == Scope::Once && ask.execution.is_some();
    is_its_own || rules.add(ask, scope, decision)
}
