//! What a program asks for while it runs, put to the user of the client whose call runs it: in the handshake revisions,
//! where the server may ask while a call is on its way. In revision 2026-07-28 a question is a result, which ends the
//! call; there the operator is asked. The first answer counts, from whichever channel.

use crate::embed;
use ringfence_engine::{Answer as Said, ApprovalRequest, ApprovalWatch, Caller, Engine, Scope, ScopeChoice};
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
/// How long the result of a call waits for its dialogues to be taken back; after that it goes ahead of them.
const TAKING_BACK: Duration = Duration::from_millis(500);

/// What the client's user can be asked through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialogue {
    /// In the handshake revisions: a request of ours.
    Request,
    /// In revision 2026-07-28: a result that wants input.
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
        // One that says nothing of its forms has them.
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
    /// The call that asks: over HTTP its answer's stream carries the question, too.
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

    /// Puts a request to the user and decides it by the answer, unless `over` comes first. A client that cannot ask,
    /// though it said that it could, decides nothing: others may answer.
    pub(super) async fn ask(&self, request: &ApprovalRequest, over: impl Future) {
        let mut asked = ServerRequest::ElicitRequest(self.form(request));
        asked
            .extensions_mut()
            .insert(OriginatingRequestId(self.call.clone()));
        let options = PeerRequestOptions::no_options();
        let Ok(mut handle) = self.peer.send_cancellable_request(asked, options).await else {
            return;
        };
        let answered = tokio::select! {
            _ = over => {
                let why = Some("it was decided elsewhere, or is wanted no more".to_owned());
                if let Err(error) = handle.cancel(why).await {
                    tracing::debug!(%error, "a dialogue could not be taken back");
                }
                return;
            }
            answered = &mut handle.rx => answered,
        };
        let answer = match answered {
            Ok(Ok(ClientResult::ElicitResult(said))) => understood(&said, request),
            Ok(Err(ServiceError::McpError(_))) => return,
            _ => Said::Deny,
        };
        self.decide(request, answer).await;
    }

    /// Carries the user's word to the engine. The first answer counts, and every waiting call gets it.
    pub(super) async fn decide(&self, request: &ApprovalRequest, answer: Said) {
        let by = Caller::new(&format!("a person, asked by {}", self.caller.as_str()));
        embed::decide(&self.engine, &by, request, answer).await;
    }
}

/// The dialogues of one call. Dropped, no more are opened.
pub(super) struct Dialogues {
    over: DropGuard,
    attending: JoinHandle<()>,
}

impl Dialogues {
    /// None: this client's user cannot be asked while the call runs.
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
            attending: tokio::spawn(attend(elicitor, execution.to_owned(), over.clone())),
            over: over.drop_guard(),
        })
    }

    /// The call has ended, and what it asked is asked no more. Its task goes on until every dialogue is taken back, or
    /// the client is gone: a dialogue that stays open would be answered in vain.
    pub(super) async fn end(self) {
        drop(self.over);
        if tokio::time::timeout(TAKING_BACK, self.attending).await.is_err() {
            tracing::debug!("the dialogues of a call are taken back after its result");
        }
    }
}

/// Asks what the execution asks for, until it is over.
async fn attend(elicitor: Elicitor, execution: String, over: CancellationToken) {
    let mut watch = elicitor.engine.watch_approvals();
    let (mut known, mut asking) = (BTreeSet::new(), JoinSet::new());
    loop {
        for request in watch.pending() {
            let is_ours = request.execution_id.as_ref() == Some(&execution);
            if is_ours && known.insert(request.id.clone()) {
                let elicitor = elicitor.clone();
                asking.spawn(async move {
                    let gone = gone(elicitor.engine.watch_approvals(), &request.id);
                    elicitor.ask(&request, gone).await;
                });
            }
        }
        tokio::select! {
            more = watch.changed() => if !more { break },
            Some(_) = asking.join_next() => {}
            () = over.cancelled() => break,
        }
    }
    // The run's questions end with it, and their dialogues see that.
    while asking.join_next().await.is_some() {}
}

async fn gone(mut watch: ApprovalWatch, id: &str) {
    while watch.pending().iter().any(|request| request.id == id) {
        if !watch.changed().await {
            return;
        }
    }
}

/// The request as it is shown everywhere, and a choice whose first word is no.
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

/// Whatever is not clearly a yes is a no.
pub(super) fn understood(said: &ElicitResult, request: &ApprovalRequest) -> Said {
    let word = match (&said.action, &said.content) {
        (ElicitationAction::Accept, Some(content)) => content.get(DECISION).and_then(Value::as_str),
        _ => None,
    };
    let scope = word.and_then(|word| word.parse::<Scope>().ok());
    match scope.filter(|scope| request.scopes.contains(scope)) {
        Some(Scope::Once) => Said::Approve(ScopeChoice::Once),
        Some(Scope::Session) => Said::Approve(ScopeChoice::Session),
        Some(Scope::Namespace) => Said::Approve(ScopeChoice::Namespace(None)),
        None => Said::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn the_form_says_what_is_shown_and_offers_what_can_be_chosen() {
        let form = serde_json::to_value(form(&request(), 60)).unwrap();
        assert_eq!(form["message"], "first\nsecond");
        let choice = &form["requestedSchema"]["properties"]["decision"];
        assert_eq!(choice["enum"], json!(["deny", "once", "namespace"]), "{form}");
        assert_eq!(choice["type"], "string");
        assert_eq!(form["requestedSchema"]["required"], json!(["decision"]));
    }

    #[test]
    fn whatever_is_not_clearly_a_yes_is_a_no() {
        let check = |said: Value, expect: Said| {
            let said: ElicitResult = serde_json::from_value(said).unwrap();
            assert_eq!(understood(&said, &request()), expect, "{said:?}");
        };
        let yes = Said::Approve(ScopeChoice::Once);
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
            check(no, Said::Deny);
        }
    }
}
