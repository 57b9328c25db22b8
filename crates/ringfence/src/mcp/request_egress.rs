//! `request_egress`: a person is asked whether programs may reach a host. The question goes to the client's dialogue, where it
//! has one, and to the operator's commands at the same time; the first answer counts. The model's part ends with the question:
//! the answer comes in a message of the client's own, beside the arguments or apart from them, and never in them.

use super::{
    Answer, Server,
    arguments::{Arguments, NAMESPACE, Name, invalid},
    on_record,
    pledges::Pledges,
    progress::Reporter,
    sessions::session_id,
    tools,
};
use crate::shown;
use ringfence_engine::{
    Answer as Said, ApprovalRequest, Caller, Decision, EgressWish, Engine, REASON_CHARS_MAX, Scope,
    ScopeWish, Waiting, egress_rule,
};
use ringfence_types::{ErrorCode, RequestError};
use rmcp::{
    RoleServer,
    model::{
        CallToolRequestParams, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult,
        ElicitationAction, ElicitationSchema, EnumSchema, InputRequest, InputRequiredResult,
        PrimitiveSchemaDefinition, ProtocolVersion, ServerRequest,
    },
    service::{PeerRequestOptions, RequestContext, RequestHandle, ServiceError},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, future::pending, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

pub(super) const DOMAIN: Name = ("domain", &["host"]);
pub(super) const REASON: Name = ("reason", &["justification"]);
pub(super) const SESSION: Name = ("session_id", &[]);

/// The only question of a result that wants input, and the only field of its form.
const APPROVAL: &str = "approval";
const DECISION: &str = "decision";
const DENY: &str = "deny";
/// How often a caller is told that it still waits: clients give up on calls that say nothing.
const REMIND: Duration = Duration::from_secs(10);

/// What a call comes to.
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

/// One call on its way.
struct Call<'a> {
    server: &'a Server,
    engine: &'a Engine,
    caller: &'a Caller,
    context: &'a RequestContext<RoleServer>,
    /// As it was written.
    domain: String,
}

pub(super) async fn call(
    server: &Server,
    engine: &Engine,
    caller: &Caller,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Reply, RequestError> {
    let noted = async |error| on_record(engine, caller, tools::REQUEST_EGRESS, error).await;
    let wish = match parse(server, request.arguments.unwrap_or_default()) {
        Ok(wish) => wish,
        Err(error) => return Err(noted(error).await),
    };
    let call = Call {
        server,
        engine,
        caller,
        context,
        domain: wish.domain.clone(),
    };
    let bound = bound(&wish, caller);
    if let Some(sealed) = &request.request_state {
        let said = request.input_responses.and_then(|mut said| said.remove(APPROVAL));
        return match server.pledges.redeem(sealed, &bound) {
            Ok(waiting) => call.resume(waiting, said).await,
            Err(error) => Err(noted(error).await),
        };
    }
    match engine.request_egress(caller, wish).await {
        Ok(waiting) => call.put(waiting, &server.pledges, &bound).await,
        // The engine has put the others on record.
        Err(error)
            if [ErrorCode::Busy, ErrorCode::Cancelled, ErrorCode::AuditUnavailable].contains(&error.code) =>
        {
            Err(error)
        }
        Err(error) => Err(noted(error).await),
    }
}

fn parse(server: &Server, arguments: super::observe::Object) -> Result<EgressWish, RequestError> {
    let mut arguments = Arguments::open(arguments, "", &[DOMAIN, REASON, SESSION, NAMESPACE])?;
    let domain = arguments.text(DOMAIN)?.ok_or_else(|| {
        invalid(
            "`domain` is missing.".to_owned(),
            "Name a host, as `example.com` or `example.com:8443`.",
        )
    })?;
    egress_rule(&domain)?;
    let reason = arguments.text(REASON)?.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(invalid(
            format!("`reason` has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: say it shortly.",
        ));
    }
    Ok(EgressWish {
        namespace: arguments.namespace(server.offer.namespaces)?,
        session: session_id(&mut arguments, SESSION)?,
        domain,
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
        tools::REQUEST_EGRESS,
        namespace.as_str(),
        session,
        domain,
        reason,
        caller.as_str(),
    );
    serde_json::to_vec(&words).unwrap_or_default()
}

impl Call<'_> {
    /// Sees that somebody is asked.
    async fn put(
        &self,
        mut waiting: Waiting,
        pledges: &Pledges,
        bound: &[u8],
    ) -> Result<Reply, RequestError> {
        // Whoever asks the same a second time waits for the answer to the first.
        let dialogue = match waiting.request() {
            Some(request) if waiting.is_first() => Some((request.clone(), Dialogue::of(self.context))),
            _ => None,
        };
        let decision = match dialogue {
            Some((request, Dialogue::Result)) => {
                let state = pledges.give(waiting, bound)?;
                let asked = InputRequest::Elicitation(elicitation(self.form(&request)));
                let asked = BTreeMap::from([(APPROVAL.to_owned(), asked)]);
                return Ok(Reply::Ask(Box::new(InputRequiredResult::new(
                    Some(asked),
                    Some(state),
                ))));
            }
            Some((request, Dialogue::Request)) => self.ask(&request, &mut waiting).await?,
            Some((_, Dialogue::None)) | None => self.wait(&mut waiting).await?,
        };
        Ok(self.told(&decision))
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

    /// Asks the client's user, while others may answer, too.
    async fn ask(&self, request: &ApprovalRequest, waiting: &mut Waiting) -> Result<Decision, RequestError> {
        let asked = ServerRequest::ElicitRequest(elicitation(self.form(request)));
        let options = PeerRequestOptions::no_options();
        let sent = self.context.peer.send_cancellable_request(asked, options).await;
        let Ok(mut handle) = sent else {
            return self.wait(waiting).await;
        };
        let answered = tokio::select! {
            decision = self.wait(waiting) => {
                take_back(handle).await;
                return decision;
            }
            answered = &mut handle.rx => answered,
        };
        let answer = match answered {
            Ok(Ok(ClientResult::ElicitResult(said))) => understood(&said, request),
            // It cannot ask, though it said that it could; others may answer.
            Ok(Err(ServiceError::McpError(_))) => return self.wait(waiting).await,
            _ => Said::Deny,
        };
        self.decide(request, answer).await;
        Ok(waiting.decided().await)
    }

    async fn decide(&self, request: &ApprovalRequest, answer: Said) {
        decide(self.engine, self.caller, request, answer).await;
    }

    /// Until somebody has answered, and no longer than somebody wants to know.
    async fn wait(&self, waiting: &mut Waiting) -> Result<Decision, RequestError> {
        let id = waiting.request().map(|request| request.id.clone());
        tokio::select! {
            decision = waiting.decided() => Ok(decision),
            () = self.server.hung_up(self.context) => Err(RequestError::new(
                ErrorCode::Cancelled,
                "the call was cancelled before anybody had answered.",
                "Ask again when it is wanted.",
            )),
            never = remind(id, Reporter::for_call(self.context)) => match never {},
        }
    }

    fn form(&self, request: &ApprovalRequest) -> ElicitRequestParams {
        let minutes = self.engine.approval_lasts_max().as_secs() / 60;
        form(request, minutes)
    }

    fn told(&self, decision: &Decision) -> Reply {
        let mut facts = shown::decision_facts(decision);
        facts["success"] = json!(true);
        facts["domain"] = json!(self.domain);
        let hint = if decision.is_approved() {
            ""
        } else {
            "Do without it; asking the same again within a minute is answered the same.\n"
        };
        let text = format!("{}: {}\n{hint}", self.domain, shown::decision_words(decision));
        Reply::Answer(Answer::plain(text, facts))
    }
}

/// Carries the user's word to the engine. What came first counts, and whoever waits is told of it.
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
