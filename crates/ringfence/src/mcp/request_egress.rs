//! `request_egress`: asks a person for approval to reach a host. The request goes to the client's dialogue, if it has
//! one, and to the operator's commands at the same time; the first answer counts. The model can only ask: the answer
//! comes in a message of the client itself, beside the arguments or apart from them, and never in them.

use super::{
    Answer,
    call::Call,
    elicitation::{Dialogue, Elicitor, answer_of},
    progress::Reporter,
};
use crate::{
    api::{self, Operation as _, invalid},
    render,
};
use ringfence_engine::{
    Answer as ApprovalAnswer, ApprovalRequest, Decision, HostRequest, REASON_CHARS_MAX, Waiting, egress_rule,
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use rmcp::model::{CallToolResponse, ElicitResult, InputRequest, InputRequiredResult};
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, future::pending, time::Duration};
use tokio::time::{MissedTickBehavior, interval, sleep};

const APPROVAL: &str = "approval";
/// Interval of reminders that the call still waits: clients give up on silent calls.
const REMIND: Duration = Duration::from_secs(10);
/// Maximum time that a call waits: clients give up after 60 seconds.
const WAIT_SECONDS_MAX: u64 = 50;

pub(super) struct ApprovalCall<'a> {
    pub(super) call: &'a Call<'a>,
    /// The requested host or command; `field` is its name in the answer.
    pub(super) what: String,
    pub(super) field: &'static str,
    /// How long this call waits for the answer. The request stays open longer.
    pub(super) patience: Duration,
}

impl Call<'_> {
    pub(super) async fn request_egress(
        &self,
        given: api::RequestEgress,
        namespace: Namespace,
    ) -> Result<CallToolResponse, RequestError> {
        let patience = patience(given.wait_seconds.as_ref().map(|seconds| seconds.0))?;
        egress_rule(&given.domain)?;
        let request = HostRequest {
            namespace,
            session: given.session_id,
            domain: given.domain,
            reason: reason_of(given.reason)?,
        };
        let approval_call = ApprovalCall {
            call: self,
            what: request.domain.clone(),
            field: "domain",
            patience,
        };
        // A request state is valid only for these: the same request of the same caller.
        let words = (
            api::RequestEgress::NAME,
            request.namespace.as_str(),
            request.session.as_ref().map(|session| session.as_str()),
            &request.domain,
            &request.reason,
            self.caller().as_str(),
        );
        let bound = serde_json::to_vec(&words).unwrap_or_default();
        let requested = self.unrecorded().request_egress(self.caller(), request);
        approval_call.answer(&bound, requested).await
    }
}

/// Refusals that the engine records itself.
const RECORDED: [ErrorCode; 3] = [ErrorCode::Busy, ErrorCode::Cancelled, ErrorCode::AuditUnavailable];

pub(super) fn patience(seconds: Option<u64>) -> Result<Duration, RequestError> {
    match seconds.unwrap_or(WAIT_SECONDS_MAX) {
        seconds @ 0..=WAIT_SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        seconds => Err(invalid(
            format!("wait_seconds = {seconds} is more than {WAIT_SECONDS_MAX}."),
            "Leave it out, and repeat the call while the answer is pending.",
        )),
    }
}

pub(super) fn reason_of(given: Option<String>) -> Result<String, RequestError> {
    let reason = given.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(invalid(
            format!("`reason` has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: keep it short.",
        ));
    }
    Ok(reason)
}

impl ApprovalCall<'_> {
    /// Takes the client's answer, if this call brings it back; else makes the request.
    pub(super) async fn answer(
        &self,
        bound: &[u8],
        requested: impl Future<Output = Result<Waiting, RequestError>>,
    ) -> Result<CallToolResponse, RequestError> {
        let request = self.call.request;
        if let Some(state) = &request.request_state {
            let responses = request.input_responses.as_ref();
            let response = responses.and_then(|responses| responses.get(APPROVAL)).cloned();
            let waiting = self.call.server.shared.request_states.redeem(state, bound)?;
            return self.resume(waiting, response).await;
        }
        let requested = requested.await;
        match &requested {
            Err(error) if !RECORDED.contains(&error.code) => {}
            _ => self.call.mark_noted(),
        }
        self.ask(requested?, bound).await
    }

    async fn ask(&self, waiting: Waiting, bound: &[u8]) -> Result<CallToolResponse, RequestError> {
        // A second request for the same waits for the answer to the first.
        let first = waiting.request().filter(|_| waiting.is_first()).cloned();
        let dialogue = match (first, Dialogue::of(self.call.context)) {
            (Some(request), Dialogue::Result) => {
                let state = self.call.server.shared.request_states.issue(waiting, bound)?;
                let question = InputRequest::Elicitation(self.elicitor().form(&request));
                let questions = BTreeMap::from([(APPROVAL.to_owned(), question)]);
                return Ok(InputRequiredResult::new(Some(questions), Some(state)).into());
            }
            (Some(request), Dialogue::Request) => Some(request),
            (_, Dialogue::None) | (None, _) => None,
        };
        self.wait(waiting, dialogue).await
    }

    /// Waits for the decision, at most for `patience`. `dialogue`: the request to show to the client's user.
    async fn wait(
        &self,
        waiting: Waiting,
        dialogue: Option<ApprovalRequest>,
    ) -> Result<CallToolResponse, RequestError> {
        let (id, is_first) = (
            waiting.request().map(|request| request.id.clone()),
            waiting.is_first(),
        );
        // The request waits until it is answered, even if the call that made it no longer does. Over HTTP the server of
        // this call may end with it.
        let over = self.call.server.shared.gone.child_token();
        let (elicitor, mut waiting, ended) = (self.elicitor(), waiting, over.clone());
        let mut deciding = tokio::spawn(async move {
            if let Some(request) = dialogue {
                let elsewhere = ended.run_until_cancelled(waiting.decided());
                elicitor.ask(&request, elsewhere).await;
            }
            ended.run_until_cancelled(waiting.decided()).await
        });
        tokio::select! {
            decision = &mut deciding => if let Ok(Some(decision)) = decision {
                return Ok(self.decided(&decision));
            },
            _ = self.call.hung_up() => {
                over.cancel();
                drop(deciding.await);
            }
            () = sleep(self.patience) => {
                // The first question stays open, so that there is one dialogue for each request.
                if !is_first {
                    over.cancel();
                }
                return Ok(self.pending(id.as_deref().unwrap_or_default()));
            }
            never = remind(id.clone(), self.call.reporter.as_ref()) => match never {},
        }
        Err(RequestError::new(
            ErrorCode::Cancelled,
            "the call was cancelled before anybody had answered.",
            "Ask again when it is wanted.",
        ))
    }

    async fn resume(
        &self,
        mut waiting: Waiting,
        response: Option<Value>,
    ) -> Result<CallToolResponse, RequestError> {
        if let (None, Some(request)) = (waiting.decision(), waiting.request().cloned()) {
            let result = response.and_then(|response| serde_json::from_value::<ElicitResult>(response).ok());
            let answer = result.map_or(ApprovalAnswer::Deny, |result| answer_of(&result, &request));
            self.elicitor().decide(&request, answer).await;
        }
        Ok(self.decided(&waiting.decided().await))
    }

    fn elicitor(&self) -> Elicitor {
        Elicitor::new(self.call.engine(), self.call.caller(), self.call.context)
    }

    fn pending(&self, id: &str) -> CallToolResponse {
        let text = format!(
            "{}: pending: not answered yet\nnext: call {} again with the same arguments, which tells \
             the answer or waits on; the operator can answer with `ringfence approvals approve {id}`\n",
            self.what, self.call.tool
        );
        let mut facts = json!({"success": true, "approved": false, "pending": true});
        facts[self.field] = json!(self.what);
        Answer::plain(text, facts).into()
    }

    fn decided(&self, decision: &Decision) -> CallToolResponse {
        let mut facts = render::decision_facts(decision);
        facts["success"] = json!(true);
        facts["pending"] = json!(false);
        facts[self.field] = json!(self.what);
        let hint = if decision.is_approved() {
            ""
        } else {
            "Do without it; asking the same again within a minute is answered the same.\n"
        };
        let text = format!("{}: {}\n{hint}", self.what, render::decision_words(decision));
        Answer::plain(text, facts).into()
    }
}

async fn remind(id: Option<String>, reporter: Option<&Reporter>) -> Infallible {
    let (Some(id), Some(reporter)) = (id, reporter) else {
        return pending().await;
    };
    let mut ticks = interval(REMIND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let text =
            format!("a person is asked; the operator can answer with `ringfence approvals approve {id}`\n");
        reporter.send(text).await;
    }
}
