//! Sessions: made, listed, interrupted, ended, and given values.

use super::Engine;
use crate::{
    caller::Caller,
    error::Result,
    execution::create_session,
    record::{Note, outcome_of},
    session::{BridgeTarget, Bridged, BridgedValue, END_PATIENCE, carry},
};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{
    ErrorCode, Language, Limits, Namespace, RequestError, Session as SessionFacts, SessionEnd, SessionId,
    SessionRequest,
};
use serde_json::{Value, json};

impl Engine {
    pub async fn sessions(&self, caller: &Caller, namespace: &Namespace) -> Result<Vec<SessionFacts>> {
        self.note_call(caller, namespace, "list_sessions").await?;
        Ok(self.services().sessions.list(Some(namespace)))
    }

    /// The language of a session, for a call that names none.
    pub fn language_of(&self, namespace: &Namespace, id: &SessionId) -> Result<Language> {
        Ok(self.services().sessions.find(namespace, id)?.language)
    }

    /// The limits that a session was made with.
    pub fn limits_of_session(&self, namespace: &Namespace, id: &SessionId) -> Result<Limits> {
        Ok(self.services().sessions.find(namespace, id)?.limits.clone())
    }

    /// The sessions of all namespaces. For the operator alone.
    pub async fn all_sessions(&self, caller: &Caller) -> Result<Vec<SessionFacts>> {
        self.note_call(caller, "", "list_sessions").await?;
        Ok(self.services().sessions.list(None))
    }

    /// Whose session it is, and what it speaks. For the operator alone.
    pub fn whose(&self, id: &SessionId) -> Result<(Namespace, Language)> {
        self.services().sessions.whose(id)
    }

    /// Interrupts the call that runs in a session; false: none does.
    pub async fn interrupt_session(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        id: &SessionId,
    ) -> Result<bool> {
        let session = self.services().sessions.find(namespace, id);
        let interrupted = session.map(|session| session.interrupt());
        let details = json!({"tool": "interrupt_session", "session": id.as_str()});
        self.note_session(caller, namespace, details, &interrupted)
            .await?;
        interrupted
    }

    /// Ends a session, and waits until nothing of it is left; false: it had ended before.
    pub async fn terminate_session(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        id: &SessionId,
    ) -> Result<bool> {
        let ended = self.end_session(namespace, id).await;
        let details = json!({"tool": "terminate_session", "session": id.as_str()});
        self.note_session(caller, namespace, details, &ended).await?;
        ended
    }

    async fn end_session(&self, namespace: &Namespace, id: &SessionId) -> Result<bool> {
        let session = match self.services().sessions.find(namespace, id) {
            Ok(session) => session,
            Err(error) if error.code == ErrorCode::SessionEnded => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut gone = session.gone.subscribe();
        session.stop(SessionEnd::Terminated);
        match tokio::time::timeout(END_PATIENCE, gone.wait_for(Option::is_some)).await {
            Ok(_) => Ok(true),
            Err(_) => Err(RequestError::fault(
                format!("the session {id} is being ended, and is not gone yet."),
                "Look with `list_sessions`; the server's log says more.",
            )),
        }
    }

    /// What was done with which session, and how it went.
    async fn note_session(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        mut details: Value,
        done: &Result<bool>,
    ) -> Result<()> {
        match done {
            Ok(done) => details["done"] = json!(done),
            Err(error) => details["code"] = json!(error.code.as_str()),
        }
        let note = Note::of(caller, namespace, Action::ToolCalled, details);
        self.note(note.ended(outcome_of(done))).await
    }

    /// Makes a session. It is on record before it is made, and with what became of it. Who hangs up meanwhile leaves
    /// none behind.
    pub async fn create_session(&self, caller: &Caller, asked: SessionRequest) -> Result<SessionFacts> {
        create_session(self.services(), caller, asked).await
    }

    pub async fn bridge(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        value: BridgedValue,
        mut to: BridgeTarget<'_>,
    ) -> Result<Bridged> {
        let services = self.services();
        let (_, caps) = self.limits_of(namespace);
        to.timeout_ms = Some(to.timeout_ms.unwrap_or(u64::MAX).min(caps.timeout_ms));
        let note = async |outcome, details| {
            let note = Note::of(caller, namespace, Action::SessionBridged, details);
            self.note(note.ended(outcome)).await
        };
        let from = match &value {
            BridgedValue::Value(_) => Value::Null,
            BridgedValue::Variable { session, .. } => json!(session.as_str()),
        };
        note(Outcome::Pending, json!({"from": from, "to": to.session.as_str()})).await?;
        let moved = carry(&services.sessions, namespace, &value, to.clone()).await;
        let (outcome, mut details) = match &moved {
            Ok(bridged) => (
                Outcome::Ok,
                json!({"name": bridged.name.as_str(), "bytes": bridged.bytes}),
            ),
            Err(error) => (Outcome::Failed, json!({"code": error.code.as_str()})),
        };
        details["from"] = from;
        details["to"] = json!(to.session.as_str());
        note(outcome, details).await?;
        moved
    }
}
