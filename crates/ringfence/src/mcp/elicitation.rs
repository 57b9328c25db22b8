//! Elicitation: requests of a running program are shown to the user of the client whose call runs it. This works in the
//! handshake revisions, where the server may ask during a call. In revision 2026-07-28 a question is a result, which
//! ends the call; there the operator is asked. The first answer counts, from any channel.

use crate::embed;
use ringfence_engine::{Answer, ApprovalRequest, ApprovalWatch, Caller, Engine, Scope, ScopeChoice};
use rmcp::{
    Peer, RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        EnumSchema, GetExtensions as _, PrimitiveSchemaDefinition, ProtocolVersion, RequestId, ServerRequest,
    },
    service::{OriginatingRequestId, PeerRequestOptions, RequestContext, ServiceError},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

const DECISION: &str = "decision";
const DENY: &str = "deny";
/// Time limit for withdrawing the dialogues of a call before its result is sent.
const WITHDRAWAL_LIMIT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialogue {
    /// In the handshake revisions: a request of the server.
    Request,
    /// In revision 2026-07-28: a result that requires input.
    Result,
    None,
}

impl Dialogue {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let capabilities = context
            .client_capabilities()
            .filter(|_| super::service::may_approve(context));
        let Some(dialogue) = capabilities.and_then(|capabilities| capabilities.elicitation) else {
            return Self::None;
        };
        // A client that declares neither mode supports forms.
        if dialogue.form.is_none() && dialogue.url.is_some() {
            return Self::None;
        }
        match context.protocol_version() {
            Some(version) if version >= ProtocolVersion::V_2026_07_28 => Self::Result,
            _ => Self::Request,
        }
    }
}

#[derive(Clone)]
pub(super) struct Elicitor {
    engine: Engine,
    caller: Caller,
    peer: Peer<RoleServer>,
    /// The call that causes the question: over HTTP, the stream of its answer carries the question, too.
    call: RequestId,
}

impl Elicitor {
    pub(super) fn new(engine: &Engine, caller: &Caller, context: &RequestContext<RoleServer>) -> Self {
        Self {
            engine: engine.clone(),
            caller: caller.clone(),
            peer: context.peer.clone(),
            call: context.id.clone(),
        }
    }

    pub(super) fn form(&self, request: &ApprovalRequest) -> ElicitRequest {
        ElicitRequest::new(form(request, self.engine.approval_lasts_max().as_secs() / 60))
    }

    /// Shows a request to the user and decides it by the answer, unless `over` completes first. If the client cannot
    /// ask, though it declared that it could, or is gone, nothing is decided: others may answer, until the time limit.
    pub(super) async fn ask(&self, request: &ApprovalRequest, over: impl Future) {
        let mut question = ServerRequest::ElicitRequest(self.form(request));
        question
            .extensions_mut()
            .insert(OriginatingRequestId(self.call.clone()));
        let options = PeerRequestOptions::no_options();
        let Ok(mut handle) = self.peer.send_cancellable_request(question, options).await else {
            return;
        };
        let answered = tokio::select! {
            _ = over => {
                let why = Some("it was decided elsewhere, or is no longer wanted".to_owned());
                if let Err(error) = handle.cancel(why).await {
                    tracing::debug!(%error, "a dialogue could not be withdrawn");
                }
                return;
            }
            answered = &mut handle.rx => answered,
        };
        // The library drops the channel when the client is gone.
        if let Some(answer) = reply_of(answered.unwrap_or(Err(ServiceError::TransportClosed)), request) {
            self.decide(request, answer).await;
        }
    }

    /// Passes the user's answer to the engine. The first answer counts, and every waiting call gets it.
    pub(super) async fn decide(&self, request: &ApprovalRequest, answer: Answer) {
        let by = Caller::new(&format!("a person, asked by {}", self.caller.as_str()));
        embed::decide(&self.engine, &by, request, answer).await;
    }
}

/// The dialogues of one call. After a drop no more are opened.
pub(super) struct Dialogues {
    over: DropGuard,
    task: JoinHandle<()>,
}

impl Dialogues {
    /// Returns `None` if this client's user cannot be asked while the call runs.
    pub(super) fn begin(
        engine: &Engine,
        caller: &Caller,
        execution: &str,
        context: &RequestContext<RoleServer>,
    ) -> Option<Self> {
        if Dialogue::of(context) != Dialogue::Request {
            return None;
        }
        let over = CancellationToken::new();
        let elicitor = Elicitor::new(engine, caller, context);
        Some(Self {
            task: tokio::spawn(ask_user(elicitor, execution.to_owned(), over.clone())),
            over: over.drop_guard(),
        })
    }

    /// Ends the dialogues of a call that has ended. The task goes on until every dialogue is withdrawn, or the client
    /// is gone: a dialogue that stays open would be answered in vain.
    pub(super) async fn end(self) {
        drop(self.over);
        if tokio::time::timeout(WITHDRAWAL_LIMIT, self.task).await.is_err() {
            tracing::debug!("the dialogues of a call are withdrawn after its result");
        }
    }
}

async fn ask_user(elicitor: Elicitor, execution: String, over: CancellationToken) {
    let mut watch = elicitor.engine.watch_approvals();
    let (mut known, mut dialogues) = (BTreeSet::new(), JoinSet::new());
    loop {
        for request in watch.pending() {
            let is_own = request.execution_id.as_ref() == Some(&execution);
            if is_own && known.insert(request.id.clone()) {
                let elicitor = elicitor.clone();
                dialogues.spawn(async move {
                    let gone = gone(elicitor.engine.watch_approvals(), &request.id);
                    elicitor.ask(&request, gone).await;
                });
            }
        }
        tokio::select! {
            more = watch.changed() => if !more { break },
            Some(_) = dialogues.join_next() => {}
            () = over.cancelled() => break,
        }
    }
    // The run's requests end with it, and so do their dialogues.
    while dialogues.join_next().await.is_some() {}
}

async fn gone(mut watch: ApprovalWatch, id: &str) {
    while watch.pending().iter().any(|request| request.id == id) {
        if !watch.changed().await {
            return;
        }
    }
}

/// Builds a form: the request as it is shown everywhere, and a choice that begins with `deny`.
fn form(request: &ApprovalRequest, minutes: u64) -> ElicitRequestParams {
    let words = [DENY]
        .into_iter()
        .chain(request.scopes.iter().map(|scope| scope.as_str()));
    let run = if request.execution_id.is_some() {
        "this"
    } else {
        "the next"
    };
    let mut about = format!("deny: no; once: for {run} run");
    if request.scopes.contains(&Scope::Session) {
        about += "; session: until the session ends";
    }
    about += &format!("; namespace: for every run in it, {minutes} minutes long");
    let choice = EnumSchema::builder(words.map(str::to_owned).collect())
        .title("Decision")
        .description(about)
        .untitled()
        .build();
    let properties = BTreeMap::from([(DECISION.to_owned(), PrimitiveSchemaDefinition::Enum(choice))]);
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: request.lines.join("\n"),
        requested_schema: ElicitationSchema::new(properties).with_required(vec![DECISION.to_owned()]),
    }
}

/// Returns the answer in a client's reply. None: the client has not asked its user, or is gone.
fn reply_of(reply: Result<ClientResult, ServiceError>, request: &ApprovalRequest) -> Option<Answer> {
    match reply {
        Ok(ClientResult::ElicitResult(result)) => Some(answer_of(&result, request)),
        Ok(_) | Err(ServiceError::UnexpectedResponse) => Some(Answer::Deny),
        Err(_) => None,
    }
}

/// Returns the user's answer. Anything but a clear approval is a denial.
pub(super) fn answer_of(result: &ElicitResult, request: &ApprovalRequest) -> Answer {
    let word = match (&result.action, &result.content) {
        (ElicitationAction::Accept, Some(content)) => content.get(DECISION).and_then(Value::as_str),
        _ => None,
    };
    let scope = word.and_then(|word| word.parse::<Scope>().ok());
    match scope.filter(|scope| request.scopes.contains(scope)) {
        Some(Scope::Once) => Answer::Approve(ScopeChoice::Once),
        Some(Scope::Session) => Answer::Approve(ScopeChoice::Session),
        Some(Scope::Namespace) => Answer::Approve(ScopeChoice::Namespace(None)),
        None => Answer::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::ErrorData;
    use serde_json::json;

    fn request() -> ApprovalRequest {
        ApprovalRequest {
            id: "0a1b2c3d".to_owned(),
            kind: "egress".to_owned(),
            what: "example.com".to_owned(),
            namespace: "default".to_owned(),
            session_id: None,
            execution_id: None,
            caller: "test".to_owned(),
            reason: String::new(),
            scopes: vec![Scope::Once, Scope::Namespace],
            since_unix_ms: 0,
            expires_unix_ms: 1,
            lines: vec!["first".to_owned(), "second".to_owned()],
        }
    }

    #[test]
    fn form_shows_the_request_and_its_scopes() {
        let form = serde_json::to_value(form(&request(), 60)).unwrap();
        assert_eq!(form["message"], "first\nsecond");
        let choice = &form["requestedSchema"]["properties"]["decision"];
        assert_eq!(choice["enum"], json!(["deny", "once", "namespace"]), "{form}");
        assert_eq!(choice["type"], "string");
        assert_eq!(form["requestedSchema"]["required"], json!(["decision"]));
    }

    #[test]
    fn anything_but_a_clear_approval_is_a_denial() {
        let check = |result: Value, expect: Answer| {
            let result: ElicitResult = serde_json::from_value(result).unwrap();
            assert_eq!(answer_of(&result, &request()), expect, "{result:?}");
        };
        let yes = Answer::Approve(ScopeChoice::Once);
        check(json!({"action": "accept", "content": {"decision": "once"}}), yes);
        for no in [
            json!({"action": "decline"}),
            json!({"action": "cancel", "content": {"decision": "once"}}),
            json!({"action": "decline", "content": {"decision": "once"}}),
            json!({"action": "accept"}),
            json!({"action": "accept", "content": {}}),
            json!({"action": "accept", "content": {"decision": "deny"}}),
            json!({"action": "accept", "content": {"decision": "session"}}),
            json!({"action": "accept", "content": {"decision": true}}),
            json!({"action": "accept", "content": {"decision": "ONCE"}}),
            json!({"action": "accept", "content": "once"}),
        ] {
            check(no, Answer::Deny);
        }
    }

    /// claim: [APR-3]
    #[test]
    fn client_that_is_gone_or_cannot_ask_decides_nothing() {
        let reply = |reply| reply_of(reply, &request());
        assert_eq!(reply(Err(ServiceError::TransportClosed)), None);
        let cannot = ErrorData::invalid_request("no dialogue", None);
        assert_eq!(reply(Err(ServiceError::McpError(cannot))), None);
        assert_eq!(reply(Err(ServiceError::UnexpectedResponse)), Some(Answer::Deny));
        assert_eq!(reply(Ok(ClientResult::empty(()))), Some(Answer::Deny));
    }
}
