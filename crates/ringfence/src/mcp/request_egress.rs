//! `request_egress`: a person is asked whether programs may reach a host. The question goes to the client's dialogue,
//! where it has one, and to the operator's commands at the same time; the first answer counts. The model's part ends
//! with the question: the answer comes in a message of the client's own, beside the arguments or apart from them, and
//! never in them.

use super::{
    Answer,
    call::Call,
    elicitation::{Dialogue, Elicitor, understood},
    progress::Reporter,
};
use crate::{
    api::{self, Operation as _, invalid},
    render,
};
use ringfence_engine::{
    Answer as Said, ApprovalRequest, Decision, HostRequest, REASON_CHARS_MAX, Waiting, egress_rule,
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use rmcp::model::{CallToolResponse, ElicitResult, InputRequest, InputRequiredResult};
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, future::pending, time::Duration};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The only question of a result that wants input.
const APPROVAL: &str = "approval";
/// How often a caller is told that it still waits: clients give up on calls that say nothing.
const REMIND: Duration = Duration::from_secs(10);
/// The longest that a call waits: clients give up after 60 seconds.
const WAIT_SECONDS_MAX: u64 = 50;

pub(super) struct ApprovalCall<'a> {
    pub(super) call: &'a Call<'a>,
    /// What is asked for, and the field that says so.
    pub(super) what: String,
    pub(super) field: &'static str,
    /// How long this call waits for the answer. The question waits longer.
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
        let wish = HostRequest {
            namespace,
            session: given.session_id,
            domain: given.domain,
            reason: reason_of(given.reason)?,
        };
        let asking = ApprovalCall {
            call: self,
            what: wish.domain.clone(),
            field: "domain",
            patience,
        };
        // What a sealed state is good for: the same question of the same caller, and nothing else.
        let words = (
            api::RequestEgress::NAME,
            wish.namespace.as_str(),
            wish.session.as_ref().map(|session| session.as_str()),
            &wish.domain,
            &wish.reason,
            self.caller().as_str(),
        );
        let bound = serde_json::to_vec(&words).unwrap_or_default();
        let asked = self.unrecorded().request_egress(self.caller(), wish);
        asking.answer(&bound, asked).await
    }
}

/// Refusals that the engine has put on record itself.
const NOTED: [ErrorCode; 3] = [ErrorCode::Busy, ErrorCode::Cancelled, ErrorCode::AuditUnavailable];

pub(super) fn patience(seconds: Option<u64>) -> Result<Duration, RequestError> {
    match seconds.unwrap_or(WAIT_SECONDS_MAX) {
        seconds @ 0..=WAIT_SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        seconds => Err(invalid(
            format!("wait_seconds = {seconds} is more than {WAIT_SECONDS_MAX}."),
            "Leave it out: what is pending then is told by the same call later.",
        )),
    }
}

/// Why it is asked for; a person reads it.
pub(super) fn reason_of(given: Option<String>) -> Result<String, RequestError> {
    let reason = given.unwrap_or_default();
    if reason.chars().count() > REASON_CHARS_MAX {
        return Err(invalid(
            format!("`reason` has more than {REASON_CHARS_MAX} characters."),
            "A person reads it before the answer: say it shortly.",
        ));
    }
    Ok(reason)
}

impl ApprovalCall<'_> {
    /// What the client has brought back, if this call is its return; else what comes of asking.
    pub(super) async fn answer(
        &self,
        bound: &[u8],
        asked: impl Future<Output = Result<Waiting, RequestError>>,
    ) -> Result<CallToolResponse, RequestError> {
        let request = self.call.request;
        if let Some(sealed) = &request.request_state {
            let said = request.input_responses.as_ref();
            let said = said.and_then(|said| said.get(APPROVAL)).cloned();
            let waiting = self.call.server.shared.pledges.redeem(sealed, bound)?;
            return self.resume(waiting, said).await;
        }
        let asked = asked.await;
        match &asked {
            Err(error) if !NOTED.contains(&error.code) => {}
            _ => self.call.mark_noted(),
        }
        self.put(asked?, bound).await
    }

    async fn put(&self, waiting: Waiting, bound: &[u8]) -> Result<CallToolResponse, RequestError> {
        // A second request for the same waits for the answer to the first.
        let first = waiting.request().filter(|_| waiting.is_first()).cloned();
        let through = match (first, Dialogue::of(self.call.context)) {
            (Some(request), Dialogue::Result) => {
                let state = self.call.server.shared.pledges.give(waiting, bound)?;
                let asked = InputRequest::Elicitation(self.elicitor().form(&request));
                let asked = BTreeMap::from([(APPROVAL.to_owned(), asked)]);
                return Ok(InputRequiredResult::new(Some(asked), Some(state)).into());
            }
            (Some(request), Dialogue::Request) => Some(request),
            (_, Dialogue::None) | (None, _) => None,
        };
        self.wait(waiting, through).await
    }

    /// Until somebody has answered, and no longer than the caller has patience.
    async fn wait(
        &self,
        waiting: Waiting,
        through: Option<ApprovalRequest>,
    ) -> Result<CallToolResponse, RequestError> {
        let (id, is_first) = (
            waiting.request().map(|request| request.id.clone()),
            waiting.is_first(),
        );
        let over = self.call.server.gone.child_token();
        // The question waits until it is answered, also when the call that asked does so no more.
        let (elicitor, mut waiting, ended) = (self.elicitor(), waiting, over.clone());
        let mut answered = tokio::spawn(async move {
            if let Some(request) = through {
                let elsewhere = ended.run_until_cancelled(waiting.decided());
                elicitor.ask(&request, elsewhere).await;
            }
            ended.run_until_cancelled(waiting.decided()).await
        });
        tokio::select! {
            decision = &mut answered => if let Ok(Some(decision)) = decision {
                return Ok(self.told(&decision));
            },
            _ = self.call.hung_up() => {
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
        said: Option<Value>,
    ) -> Result<CallToolResponse, RequestError> {
        if let (None, Some(request)) = (waiting.decision(), waiting.request().cloned()) {
            let said = said.and_then(|said| serde_json::from_value::<ElicitResult>(said).ok());
            let answer = said.map_or(Said::Deny, |said| understood(&said, &request));
            self.elicitor().decide(&request, answer).await;
        }
        Ok(self.told(&waiting.decided().await))
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

    fn told(&self, decision: &Decision) -> CallToolResponse {
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

/// Tells a caller who wants to know that somebody has yet to answer.
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
