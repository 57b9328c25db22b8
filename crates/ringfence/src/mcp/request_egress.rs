//! `request_egress`: a person is asked whether programs may reach a host. The question goes to the client's dialogue,
//! where it has one, and to the operator's commands at the same time; the first answer counts. The model's part ends
//! with the question: the answer comes in a message of the client's own, beside the arguments or apart from them, and
//! never in them.

use super::{Answer, call::Call, progress::Reporter};
use crate::{
    api::{self, Operation as _, invalid},
    render,
};
use ringfence_engine::{
    Answer as Said, ApprovalRequest, Caller, Decision, EgressWish, Engine, REASON_CHARS_MAX, Scope,
    ScopeWish, Waiting, egress_rule,
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use rmcp::{
    Peer, RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        EnumSchema, InputRequest, InputRequiredResult, PrimitiveSchemaDefinition, ProtocolVersion,
        ServerRequest,
    },
    service::{PeerRequestOptions, RequestContext, RequestHandle, ServiceError},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, future::pending, time::Duration};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// The only question of a result that wants input, and the only field of its form.
const APPROVAL: &str = "approval";
const DECISION: &str = "decision";
const DENY: &str = "deny";
/// How often a caller is told that it still waits: clients give up on calls that say nothing.
const REMIND: Duration = Duration::from_secs(10);
/// The longest that a call waits: clients give up after 60 seconds.
const WAIT_SECONDS_MAX: u64 = 50;

pub(super) enum Reply {
    Answer(Answer),
    /// The client is to ask its user, and to call again with what they said.
    Ask(Box<InputRequiredResult>),
}

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
        let capabilities = context.client_capabilities();
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

struct EgressCall<'a> {
    call: &'a Call<'a>,
    /// As it was written.
    domain: String,
    /// How long this call waits for the answer. The question waits longer.
    patience: Duration,
}

impl Call<'_> {
    pub(super) async fn request_egress(
        &self,
        given: api::RequestEgress,
        namespace: Namespace,
    ) -> Result<Reply, RequestError> {
        let patience = patience(given.wait_seconds.as_ref().map(|seconds| seconds.0))?;
        let wish = wish(given, namespace)?;
        let asking = EgressCall {
            call: self,
            domain: wish.domain.clone(),
            patience,
        };
        let (bound, pledges) = (bound(&wish, self.caller()), &self.server.pledges);
        if let Some(sealed) = &self.request.request_state {
            let said = self.request.input_responses.as_ref();
            let said = said.and_then(|said| said.get(APPROVAL)).cloned();
            return asking.resume(pledges.redeem(sealed, &bound)?, said).await;
        }
        let asked = self.unrecorded().request_egress(self.caller(), wish).await;
        match &asked {
            Err(error) if !NOTED.contains(&error.code) => {}
            _ => self.mark_noted(),
        }
        asking.put(asked?, &bound).await
    }
}

/// Refusals that the engine has put on record itself.
const NOTED: [ErrorCode; 3] = [ErrorCode::Busy, ErrorCode::Cancelled, ErrorCode::AuditUnavailable];

fn patience(seconds: Option<u64>) -> Result<Duration, RequestError> {
    match seconds.unwrap_or(WAIT_SECONDS_MAX) {
        seconds @ 0..=WAIT_SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        seconds => Err(invalid(
            format!("wait_seconds = {seconds} is more than {WAIT_SECONDS_MAX}."),
            "Leave it out: what is pending then is told by the same call later.",
        )),
    }
}

fn wish(given: api::RequestEgress, namespace: Namespace) -> Result<EgressWish, RequestError> {
    egress_rule(&given.domain)?;
    let reason = given.reason.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(invalid(
            format!("`reason` has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: say it shortly.",
        ));
    }
    Ok(EgressWish {
        namespace,
        session: given.session_id,
        domain: given.domain,
        reason,
    })
}

/// What a sealed state is good for: the same question of the same caller, and nothing else.
fn bound(wish: &EgressWish, caller: &Caller) -> Vec<u8> {
    let EgressWish {
        namespace,
        session,
        domain,
        reason,
    } = wish;
    let session = session.as_ref().map(|session| session.as_str());
    let words = (
        api::RequestEgress::NAME,
        namespace.as_str(),
        session,
        domain,
        reason,
        caller.as_str(),
    );
    serde_json::to_vec(&words).unwrap_or_default()
}

impl EgressCall<'_> {
    async fn put(&self, waiting: Waiting, bound: &[u8]) -> Result<Reply, RequestError> {
        // A second request for the same waits for the answer to the first.
        let dialogue = match waiting.request() {
            Some(request) if waiting.is_first() => Some((request.clone(), Dialogue::of(self.call.context))),
            _ => None,
        };
        let through = match dialogue {
            Some((request, Dialogue::Result)) => {
                let state = self.call.server.pledges.give(waiting, bound)?;
                let asked = InputRequest::Elicitation(elicitation(self.form(&request)));
                let asked = BTreeMap::from([(APPROVAL.to_owned(), asked)]);
                return Ok(Reply::Ask(Box::new(InputRequiredResult::new(
                    Some(asked),
                    Some(state),
                ))));
            }
            Some((request, Dialogue::Request)) => Some(request),
            Some((_, Dialogue::None)) | None => None,
        };
        self.wait(waiting, through).await
    }

    /// Until somebody has answered, and no longer than the caller has patience.
    async fn wait(&self, waiting: Waiting, through: Option<ApprovalRequest>) -> Result<Reply, RequestError> {
        let (id, is_first) = (
            waiting.request().map(|request| request.id.clone()),
            waiting.is_first(),
        );
        let over = self.call.server.gone.child_token();
        let question = Question {
            engine: self.call.engine().clone(),
            caller: self.call.caller().clone(),
            peer: self.call.context.peer.clone(),
            waiting,
            over: over.clone(),
        };
        let mut answered = tokio::spawn(question.answered(through));
        tokio::select! {
            decision = &mut answered => if let Ok(Some(decision)) = decision {
                return Ok(self.told(&decision));
            },
            () = self.call.hung_up() => {
                over.cancel();
                drop(answered.await);
            }
            () = sleep(self.patience) => {
                // The first question stays open, so that there is one for each request.
                if !is_first {
                    over.cancel();
                }
                return Ok(self.pending(id.as_deref().unwrap_or_default()));
            }
            never = remind(id.clone(), Reporter::for_call(self.call.context)) => match never {},
        }
        Err(RequestError::new(
            ErrorCode::Cancelled,
            "the call was cancelled before anybody had answered.",
            "Ask again when it is wanted.",
        ))
    }

    /// The client has asked its user, and comes back.
    async fn resume(&self, mut waiting: Waiting, said: Option<Value>) -> Result<Reply, RequestError> {
        if let (None, Some(request)) = (waiting.decision(), waiting.request().cloned()) {
            let said = said.and_then(|said| serde_json::from_value::<ElicitResult>(said).ok());
            let answer = said.map_or(Said::Deny, |said| understood(&said, &request));
            self.decide(&request, answer).await;
        }
        Ok(self.told(&waiting.decided().await))
    }

    async fn decide(&self, request: &ApprovalRequest, answer: Said) {
        decide(self.call.engine(), self.call.caller(), request, answer).await;
    }

    fn form(&self, request: &ApprovalRequest) -> ElicitRequestParams {
        let minutes = self.call.engine().approval_lasts_max().as_secs() / 60;
        form(request, minutes)
    }

    fn pending(&self, id: &str) -> Reply {
        let text = format!(
            "{}: pending: not answered yet\nnext: call request_egress again with the same arguments, which tells \
             the answer or waits on; the operator can answer with `ringfence approvals approve {id}`\n",
            self.domain
        );
        let facts = json!({"success": true, "domain": self.domain, "approved": false, "pending": true});
        Reply::Answer(Answer::plain(text, facts))
    }

    fn told(&self, decision: &Decision) -> Reply {
        let mut facts = render::decision_facts(decision);
        facts["success"] = json!(true);
        facts["pending"] = json!(false);
        facts["domain"] = json!(self.domain);
        let hint = if decision.is_approved() {
            ""
        } else {
            "Do without it; asking the same again within a minute is answered the same.\n"
        };
        let text = format!("{}: {}\n{hint}", self.domain, render::decision_words(decision));
        Reply::Answer(Answer::plain(text, facts))
    }
}

/// What a person is asked, in the client's dialogue where it has one. It waits until it is answered, also when the call
/// that asked does so no more.
struct Question {
    engine: Engine,
    caller: Caller,
    peer: Peer<RoleServer>,
    waiting: Waiting,
    over: CancellationToken,
}

impl Question {
    /// None: the call has ended.
    async fn answered(mut self, through: Option<ApprovalRequest>) -> Option<Decision> {
        match through {
            Some(request) => self.ask(&request).await,
            None => self.decided().await,
        }
    }

    /// Asks the client's user, while others may answer, too.
    async fn ask(&mut self, request: &ApprovalRequest) -> Option<Decision> {
        let minutes = self.engine.approval_lasts_max().as_secs() / 60;
        let asked = ServerRequest::ElicitRequest(elicitation(form(request, minutes)));
        let options = PeerRequestOptions::no_options();
        let Ok(mut handle) = self.peer.send_cancellable_request(asked, options).await else {
            return self.decided().await;
        };
        let answered = tokio::select! {
            decision = self.decided() => {
                take_back(handle).await;
                return decision;
            }
            answered = &mut handle.rx => answered,
        };
        let answer = match answered {
            Ok(Ok(ClientResult::ElicitResult(said))) => understood(&said, request),
            // It cannot ask, though it said that it could; others may answer.
            Ok(Err(ServiceError::McpError(_))) => return self.decided().await,
            _ => Said::Deny,
        };
        decide(&self.engine, &self.caller, request, answer).await;
        Some(self.waiting.decided().await)
    }

    async fn decided(&mut self) -> Option<Decision> {
        tokio::select! {
            decision = self.waiting.decided() => Some(decision),
            () = self.over.cancelled() => None,
        }
    }
}

/// Carries the user's word to the engine. The first answer counts, and every waiting call gets it.
pub(super) async fn decide(engine: &Engine, caller: &Caller, request: &ApprovalRequest, answer: Said) {
    let by = Caller::new(&format!("a person, asked by {}", caller.as_str()));
    let digest = request.digest();
    let decide = async |answer| engine.decide_approval(&by, &request.id, &digest, answer).await;
    match decide(answer).await {
        Err(error) if error.code == ErrorCode::InvalidArgument || error.code == ErrorCode::PolicyDenied => {
            tracing::warn!(%error, "an approval was not possible, and is a denial");
            drop(decide(Said::Deny).await);
        }
        Err(error) => tracing::debug!(%error, "an answer came too late, or was not kept"),
        Ok(_) => {}
    }
}

/// Tells a caller who wants to know that somebody has yet to answer.
async fn remind(id: Option<String>, reporter: Option<Reporter>) -> Infallible {
    let (Some(id), Some(reporter)) = (id, reporter) else {
        return pending().await;
    };
    let mut ticks = interval(REMIND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0;
    loop {
        ticks.tick().await;
        number += 1;
        let text =
            format!("a person is asked; the operator can answer with `ringfence approvals approve {id}`\n");
        reporter.send(number, text).await;
    }
}

pub(super) async fn take_back(handle: RequestHandle<RoleServer>) {
    let why = Some("it was decided elsewhere, or is wanted no more".to_owned());
    if let Err(error) = handle.cancel(why).await {
        tracing::debug!(%error, "a dialogue could not be taken back");
    }
}

pub(super) fn elicitation(params: ElicitRequestParams) -> ElicitRequest {
    ElicitRequest::new(params)
}

/// The request as it is shown everywhere, and a choice whose first word is no.
pub(super) fn form(request: &ApprovalRequest, minutes: u64) -> ElicitRequestParams {
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
        Some(Scope::Once) => Said::Approve(ScopeWish::Once),
        Some(Scope::Session) => Said::Approve(ScopeWish::Session),
        Some(Scope::Namespace) => Said::Approve(ScopeWish::Namespace(None)),
        None => Said::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let yes = Said::Approve(ScopeWish::Once);
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
