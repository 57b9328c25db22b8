//! Sessions: created, listed, interrupted, ended, and given values.

use super::{Engine, NamespaceAccess};
use crate::{
    caller::Caller,
    error::Result,
    execution::create_session,
    policy::check_session,
    record::outcome_of,
    session::{BridgeTarget, Bridged, BridgedValue, END_TIMEOUT, carry},
};
use ringfence_store::audit::Action;
use ringfence_types::{
    EnvName, ErrorCode, Language, Namespace, RequestError, Session as SessionFacts, SessionEnd, SessionId,
    SessionRequest,
};
use serde_json::json;

impl Engine {
    pub fn language_of(&self, namespace: &Namespace, id: &SessionId) -> Result<Language> {
        Ok(self.services.sessions.find(namespace, id)?.language)
    }

    /// Lists the sessions of all namespaces. For the operator alone.
    pub async fn all_sessions(&self, caller: &Caller) -> Result<Vec<SessionFacts>> {
        self.note_call(caller, "", "list_sessions").await?;
        Ok(self.services.sessions.list(None))
    }

    /// Returns the namespace and the language of a session. For the operator alone.
    pub fn owner_of_session(&self, id: &SessionId) -> Result<(Namespace, Language)> {
        self.services.sessions.owner_of(id)
    }

    /// Makes a session, recorded before and after. If the caller disconnects meanwhile, no session remains.
    pub async fn create_session(&self, caller: &Caller, request: SessionRequest) -> Result<SessionFacts> {
        create_session(&self.services, caller, request).await
    }
}

impl NamespaceAccess<'_> {
    pub async fn sessions(self) -> Result<Vec<SessionFacts>> {
        self.called("list_sessions").await?;
        Ok(self.services.sessions.list(Some(self.namespace)))
    }

    /// Interrupts the running call of a session. False: no call runs.
    pub async fn interrupt_session(self, id: &SessionId) -> Result<bool> {
        let session = self.services.sessions.find(self.namespace, id);
        let interrupted = session.map(|session| session.interrupt());
        self.note_session("interrupt_session", id, interrupted).await
    }

    /// Ends a session, and waits until its remains are removed. False: it had ended before.
    pub async fn terminate_session(self, id: &SessionId) -> Result<bool> {
        let ended = self.end_session(id).await;
        self.note_session("terminate_session", id, ended).await
    }

    async fn end_session(&self, id: &SessionId) -> Result<bool> {
        let session = match self.services.sessions.find(self.namespace, id) {
            Ok(session) => session,
            Err(error) if error.code == ErrorCode::SessionEnded => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut gone = session.gone.subscribe();
        session.stop(SessionEnd::Terminated);
        match tokio::time::timeout(END_TIMEOUT, gone.wait_for(Option::is_some)).await {
            Ok(_) => Ok(true),
            Err(_) => Err(RequestError::fault(
                format!("the session {id} is being ended, and is not gone yet."),
                "Look with `list_sessions`; the server's log says more.",
            )),
        }
    }

    async fn note_session(&self, tool: &str, id: &SessionId, done: Result<bool>) -> Result<bool> {
        let mut details = json!({"tool": tool, "session": id.as_str()});
        match &done {
            Ok(done) => details["done"] = json!(done),
            Err(error) => details["code"] = json!(error.code.as_str()),
        }
        self.read(Action::ToolCalled, details, done).await
    }

    /// Passes a value to a session as a variable named `name`, otherwise named as in the source session.
    pub async fn bridge(
        self,
        value: BridgedValue,
        session: &SessionId,
        name: Option<EnvName>,
    ) -> Result<Bridged> {
        let (_, caps) = self.services.policy.limits_of(self.namespace);
        let own = self.caller.caps();
        let to = BridgeTarget {
            session,
            secrets: &self.services.secrets,
            name,
            timeout_ms: own.map_or(caps.timeout_ms, |own| own.timeout_ms.min(caps.timeout_ms)),
        };
        let from = match &value {
            BridgedValue::Value(_) => None,
            BridgedValue::Variable { session, .. } => Some(session),
        };
        let details = json!({"from": from.map(SessionId::as_str), "to": session.as_str()});
        let mut note = self.note(Action::SessionBridged, details);
        self.services.record.note(note.clone()).await?;
        let sessions = &self.services.sessions;
        let check = |id| check_session(&sessions.find(self.namespace, id)?.limits, own);
        let moved = match from.into_iter().chain([session]).try_for_each(check) {
            Ok(()) => carry(sessions, self.namespace, &value, to).await,
            Err(error) => Err(error),
        };
        match &moved {
            Ok(bridged) => {
                note.details["name"] = json!(bridged.name.as_str());
                note.details["bytes"] = json!(bridged.bytes);
            }
            Err(error) => note.details["code"] = json!(error.code.as_str()),
        }
        self.services.record.note(note.ended(outcome_of(&moved))).await?;
        moved
    }
}
