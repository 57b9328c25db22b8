//! Pending requests until their decision. Each is decided once: by the first answer, by its timeout, or because its
//! requester is gone. An approval is recorded before it takes effect; a denial takes effect in any case.

use super::{
    Ask, Subject,
    notes::{decided_note, facts},
    shown,
    state::{End, Pending, Question, Stage, State, WAITING_MAX, not_open},
    store::ApprovalStore,
    words::{Answer, ApprovalRequest, Decision, DeniedBy, Scope, ScopeChoice, Verdict},
};
use crate::{
    caller::{Caller, ENGINE_CALLER},
    error::Result,
    events::{ApprovalFacts, Bus, EventKind, now_ms},
    log_redactor::LogRedactor,
    policy::Approved,
    record::{Note, Record},
    settings::ApprovalSettings,
    sync::lock,
};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{ErrorCode, Namespace, RequestError, SessionId};
use serde_json::{Value, json};
use std::{
    fmt,
    sync::{Arc, Mutex},
};
use tokio::{sync::watch, time::Instant};

pub(crate) struct Approvals {
    pub(crate) settings: ApprovalSettings,
    bus: Bus,
    record: Record,
    redactor: LogRedactor,
    pub(crate) store: Arc<ApprovalStore>,
    state: Mutex<State>,
    /// A counter that grows when a request opens or ends.
    changes: watch::Sender<u64>,
}

pub(super) enum Enqueued {
    New(Waiting, Arc<Question>),
    Joined(Waiting, Arc<Question>),
    Decided(Decision),
    Refused(RequestError),
}

impl Approvals {
    pub(crate) fn new(settings: ApprovalSettings, bus: Bus, record: Record, redactor: LogRedactor) -> Self {
        Self {
            settings,
            bus,
            record,
            redactor,
            store: Arc::new(ApprovalStore::new()),
            state: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    pub(crate) fn watch(self: &Arc<Self>) -> ApprovalWatch {
        let mut changes = self.changes.subscribe();
        changes.mark_changed();
        ApprovalWatch {
            changes,
            approvals: self.clone(),
        }
    }

    /// Returns the rules approved for a namespace and a session, without those for a single run.
    pub(crate) fn approved(&self, namespace: &Namespace, session: Option<&SessionId>) -> Approved {
        let of_namespace = self.store.rules_for(namespace, None);
        let own = self.store.rules_for(namespace, session);
        Approved {
            own: own
                .into_iter()
                .filter(|rule| !of_namespace.contains(rule))
                .collect(),
            of_namespace,
            once: Vec::new(),
        }
    }

    /// Opens a request; one already approved or recently denied is decided at once, one over the limits is refused.
    pub(crate) async fn ask(self: &Arc<Self>, ask: Ask) -> Result<Waiting> {
        ask.check()?;
        match self.enqueue(&ask) {
            Enqueued::New(waiting, question) => {
                // It opens only after it is recorded. If this future is dropped meanwhile, another caller that waits
                // opens it, or it is withdrawn.
                self.note_request(&ask, Outcome::Pending, self.request_details(&question))
                    .await?;
                Ok(self.open(waiting, &question))
            }
            Enqueued::Joined(waiting, question) => {
                let id = &question.request.id;
                let mut details = match self.is_left(id).await {
                    true => self.request_details(&question),
                    false => json!({}),
                };
                details["joined"] = json!(id);
                self.note_request(&ask, Outcome::Pending, details).await?;
                Ok(self.open(waiting, &question))
            }
            Enqueued::Decided(decision) => self.record_decided(&ask, decision).await,
            Enqueued::Refused(error) => {
                let details = json!({"code": error.code.as_str()});
                self.note_request(&ask, Outcome::Denied, details).await?;
                Err(error)
            }
        }
    }

    /// Waits until a request is open or decided, or its first caller is lost before: then returns true.
    async fn is_left(&self, id: &str) -> bool {
        let is_new = |one: &&Pending| one.stage == Stage::New;
        let waits = |_: &u64| {
            let state = lock(&self.state);
            state
                .pending
                .get(id)
                .filter(is_new)
                .is_some_and(|one| one.has_first)
        };
        drop(self.changes.subscribe().wait_for(|number| !waits(number)).await);
        lock(&self.state).pending.get(id).filter(is_new).is_some()
    }

    /// Records a request that needs no person because it is already decided.
    pub(crate) async fn record_decided(&self, ask: &Ask, decision: Decision) -> Result<Waiting> {
        let (outcome, details) = match decision.verdict {
            Verdict::Approved(scope) => (Outcome::Ok, json!({"standing": scope})),
            Verdict::Denied(why) => (Outcome::Denied, json!({"why": why.as_str()})),
        };
        self.note_request(ask, outcome, details).await?;
        Ok(Waiting::already_decided(decision))
    }

    /// Decides a request. `digest` identifies the request as it was shown.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: &str,
        digest: &str,
        answer: Answer,
        by: &Caller,
    ) -> Result<Decision> {
        let (question, decision) = self.take(id, digest, answer, by)?;
        // The answer counts even if its client disconnects.
        let (approvals, by) = (self.clone(), by.clone());
        let concluded = tokio::spawn(async move { approvals.conclude(&question, decision, &by).await }).await;
        concluded.unwrap_or_else(|_| {
            Err(RequestError::fault(
                "the decision was not carried out: its task died.",
                "Report this.",
            ))
        })
    }

    /// Removes the approvals of an ended session, and withdraws its pending requests.
    pub(crate) fn forget_session(&self, session: &SessionId) {
        self.store.forget_session(session);
        self.withdraw(|pending| pending.question.ask.session.as_ref() == Some(session));
    }

    /// Withdraws all requests, and refuses new ones.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.withdraw(|_| true);
        self.announce();
    }

    fn announce(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    pub(crate) fn pending(&self) -> Vec<ApprovalRequest> {
        let state = lock(&self.state);
        let open = state.pending.values().filter(|one| one.stage != Stage::New);
        let mut requests: Vec<ApprovalRequest> = open.map(|one| one.question.request.clone()).collect();
        requests.sort_by(|a, b| (a.since_unix_ms, &a.id).cmp(&(b.since_unix_ms, &b.id)));
        requests
    }

    pub(super) fn decision(&self, id: &str) -> Option<Decision> {
        lock(&self.state).decision(id).cloned()
    }

    pub(super) fn enqueue(self: &Arc<Self>, ask: &Ask) -> Enqueued {
        if let Some(decision) = self.store.find_decision(ask) {
            return Enqueued::Decided(decision);
        }
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.prune(now);
        let mut pending = state.pending.values_mut();
        if let Some(pending) = pending.find(|one| one.question.ask.is_same_as(ask)) {
            if pending.waiting >= WAITING_MAX {
                let what = format!("{WAITING_MAX} callers already wait for the answer to this request.");
                return Enqueued::Refused(RequestError::new(ErrorCode::Busy, what, "Wait for that answer."));
            }
            pending.waiting += 1;
            return Enqueued::Joined(self.waiting(pending), pending.question.clone());
        }
        if state.denied.iter().any(|denied| denied.answers(ask)) {
            return Enqueued::Decided(Decision::denied(DeniedBy::Lately));
        }
        if let Some(refusal) = state.refusal(&ask.namespace, now) {
            return Enqueued::Refused(refusal);
        }
        let request = self.request(ask, state.new_id());
        let id = request.id.clone();
        let question = Arc::new(Question {
            digest: request.digest(),
            request,
            ask: ask.clone(),
        });
        let pending = Pending {
            question: question.clone(),
            stage: Stage::New,
            waiting: 1,
            has_first: true,
            decision: watch::Sender::new(None),
        };
        let waiting = self.waiting(&pending);
        state.recent.push_back((now, ask.namespace.clone()));
        state.pending.insert(id, pending);
        Enqueued::New(waiting, question)
    }

    fn waiting(self: &Arc<Self>, pending: &Pending) -> Waiting {
        Waiting {
            decision: pending.decision.subscribe(),
            request: Some(pending.question.request.clone()),
            is_first: false,
            _waiter: Some(Waiter {
                approvals: self.clone(),
                id: pending.question.request.id.clone(),
                is_first: pending.waiting == 1,
            }),
        }
    }

    fn request(&self, ask: &Ask, id: String) -> ApprovalRequest {
        let since_unix_ms = now_ms();
        let timeout = ask.timeout(&self.settings);
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        ApprovalRequest {
            id,
            kind: ask.subject.kind().to_owned(),
            what: ask.subject.to_string(),
            namespace: ask.namespace.to_string(),
            session_id: ask.session.as_ref().map(ToString::to_string),
            execution_id: ask.execution.clone(),
            caller: ask.caller.as_str().to_owned(),
            reason: ask.reason.clone(),
            scopes: ask.scopes(),
            since_unix_ms,
            expires_unix_ms: since_unix_ms.saturating_add(timeout_ms),
            lines: shown::lines(ask, timeout),
        }
    }

    /// Opens a request for answers and starts its timeout, unless it is open already or withdrawn.
    pub(super) fn open(self: &Arc<Self>, waiting: Waiting, question: &Question) -> Waiting {
        let (id, ask) = (question.request.id.clone(), &question.ask);
        let mut decision = {
            let mut state = lock(&self.state);
            let pending = state.pending.get_mut(&id);
            let Some(pending) = pending.filter(|one| one.stage == Stage::New) else {
                return waiting;
            };
            pending.stage = Stage::Open;
            let facts = ApprovalFacts::of(ask, &id);
            let requested = match ask.subject {
                Subject::Egress(_) => EventKind::EgressRequested,
                Subject::Command(_) => EventKind::HostRequested,
            };
            self.publish(ask, EventKind::ApprovalRequested(facts.clone()));
            self.publish(ask, requested(facts));
            pending.decision.subscribe()
        };
        self.announce();
        let (approvals, ends) = (Arc::downgrade(self), End::at(question.request.expires_unix_ms));
        tokio::spawn(async move {
            tokio::select! {
                // Decided, or the server is gone.
                _ = decision.wait_for(Option::is_some) => return,
                () = ends.reached() => {}
            }
            if let Some(approvals) = approvals.upgrade() {
                approvals.expire(id).await;
            }
        });
        Waiting {
            is_first: true,
            ..waiting
        }
    }

    async fn expire(self: Arc<Self>, id: String) {
        let question = lock(&self.state).take_open(&id);
        if let Some(question) = question {
            let denied = Decision::denied(DeniedBy::Timeout);
            // Denied even if that could not be recorded; the error is logged.
            drop(self.conclude(&question, denied, &ENGINE_CALLER).await);
        }
    }

    /// Takes an open request for its first answer. An answer that does not fit leaves it open.
    fn take(
        self: &Arc<Self>,
        id: &str,
        digest: &str,
        answer: Answer,
        by: &Caller,
    ) -> Result<(Arc<Question>, Decision)> {
        let mut state = lock(&self.state);
        let Some(pending) = state.pending.get(id).filter(|one| one.stage == Stage::Open) else {
            return Err(not_open(id, &state));
        };
        // The timer is late after the machine has slept.
        if now_ms() >= pending.question.request.expires_unix_ms {
            tokio::spawn(self.clone().expire(id.to_owned()));
            return Err(not_open(id, &state));
        }
        if pending.question.digest != digest {
            return Err(RequestError::denied(
                format!("the digest does not match the request {id}."),
                "Look at the request again, and answer what you see.",
            ));
        }
        let decision = self.decision_of(answer, &pending.question.ask, by)?;
        let question = state.take_open(id).ok_or_else(|| not_open(id, &state))?;
        Ok((question, decision))
    }

    fn decision_of(&self, answer: Answer, ask: &Ask, by: &Caller) -> Result<Decision> {
        let Answer::Approve(choice) = answer else {
            return Ok(Decision::new(Verdict::Denied(DeniedBy::Human), by.as_str()));
        };
        let scope = choice.scope();
        if !ask.scopes().contains(&scope) {
            let scopes: Vec<&str> = ask.scopes().into_iter().map(Scope::as_str).collect();
            return Err(RequestError::invalid(
                format!("it cannot be approved for the {scope}."),
                format!("It may be for: {}.", scopes.join(", ")),
            ));
        }
        let longest = self.settings.namespace_max;
        let duration = match choice {
            ScopeChoice::Once | ScopeChoice::Session => None,
            ScopeChoice::Namespace(None) => Some(longest),
            ScopeChoice::Namespace(Some(time)) if !time.is_zero() && time <= longest => Some(time),
            ScopeChoice::Namespace(Some(_)) => {
                return Err(RequestError::invalid(
                    format!("an approval lasts from 1 s to {} min.", longest.as_secs() / 60),
                    "Name a shorter time, or have the operator raise approvals.max_namespace_minutes.",
                ));
            }
        };
        if !self.store.has_room(ask) {
            return Err(RequestError::denied(
                "the maximum number of approvals is reached.",
                "Put what it needs for good into the configuration.",
            ));
        }
        let duration = duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        Ok(Decision {
            expires_unix_ms: duration.map(|duration| now_ms().saturating_add(duration)),
            ..Decision::new(Verdict::Approved(scope), by.as_str())
        })
    }

    /// Records a decision, applies it, and sends it to the waiters.
    async fn conclude(&self, question: &Question, decision: Decision, by: &Caller) -> Result<Decision> {
        let recorded = self.record.note(decided_note(question, &decision, by)).await;
        let (decision, answer) = match recorded {
            Ok(_) if self.store.apply(&question.ask, &decision) => (decision.clone(), Ok(decision)),
            Ok(_) => {
                let denied = Decision::denied(DeniedBy::Limit);
                let again = self.record.note(decided_note(question, &denied, by)).await;
                (denied.clone(), again.map(|_| denied))
            }
            Err(error) if decision.is_approved() => (Decision::denied(DeniedBy::Limit), Err(error)),
            Err(error) => (decision, Err(error)),
        };
        self.settle(question, &decision);
        answer
    }

    fn settle(&self, question: &Question, decision: &Decision) {
        {
            let mut state = lock(&self.state);
            let Some(pending) = state.pending.remove(&question.request.id) else {
                return;
            };
            state.remember(question, decision);
            if pending.stage != Stage::New {
                self.publish_decision(question, decision);
            }
            pending.decision.send_replace(Some(decision.clone()));
        }
        self.announce();
    }

    /// Removes a waiter; after the last, an unanswered request is withdrawn.
    fn leave(&self, waiter: &Waiter) {
        let id = &waiter.id;
        let is_last = {
            let mut state = lock(&self.state);
            let Some(pending) = state.pending.get_mut(id) else {
                return;
            };
            pending.waiting -= 1;
            pending.has_first &= !waiter.is_first;
            // An answer that is being recorded counts.
            pending.waiting == 0 && pending.stage != Stage::Answered
        };
        if is_last {
            self.withdraw(|pending| pending.question.request.id == *id && pending.waiting == 0);
        } else if waiter.is_first {
            self.announce();
        }
    }

    /// Denies the matching requests that have no answer yet, without waiting until that is recorded.
    fn withdraw(&self, matches: impl Fn(&Pending) -> bool) {
        let withdrawn: Vec<Arc<Question>> = {
            let mut state = lock(&self.state);
            let pending = state.pending.values_mut();
            pending
                .filter(|pending| pending.stage != Stage::Answered && matches(pending))
                .map(|pending| {
                    if pending.stage == Stage::Open {
                        pending.stage = Stage::Answered;
                    }
                    pending.question.clone()
                })
                .collect()
        };
        let denied = Decision::denied(DeniedBy::Gone);
        for question in withdrawn {
            let note = decided_note(&question, &denied, &ENGINE_CALLER);
            self.record.note_unwaited(note);
            self.settle(&question, &denied);
        }
    }

    fn request_details(&self, question: &Question) -> Value {
        let mut details = facts(question);
        details["expires_unix_ms"] = json!(question.request.expires_unix_ms);
        if !question.ask.reason.is_empty() {
            details["reason"] = json!(self.redactor.text(&question.ask.reason));
        }
        details
    }

    async fn note_request(&self, ask: &Ask, outcome: Outcome, mut details: Value) -> Result<()> {
        details["kind"] = json!(ask.subject.kind());
        details["what"] = json!(ask.subject.recorded());
        let note = Note::of(&ask.caller, &ask.namespace, Action::ApprovalRequested, details);
        let note = note.ended(outcome).of_execution(ask.execution.as_deref());
        self.record.note(note).await.map(drop)
    }

    fn publish(&self, ask: &Ask, kind: EventKind) {
        let execution = ask.execution.as_deref();
        self.bus.publish(&ask.namespace, execution, kind);
    }

    fn publish_decision(&self, question: &Question, decision: &Decision) {
        let ask = &question.ask;
        let facts = ApprovalFacts {
            decided_by: Some(decision.decided_by.clone()),
            approved: Some(decision.is_approved()),
            scope: decision.scope().map(Scope::as_str),
            ..ApprovalFacts::of(ask, &question.request.id)
        };
        let decided = match (&ask.subject, decision.is_approved()) {
            (Subject::Egress(_), true) => EventKind::EgressApproved,
            (Subject::Egress(_), false) => EventKind::EgressDenied,
            (Subject::Command(_), true) => EventKind::HostApproved,
            (Subject::Command(_), false) => EventKind::HostDenied,
        };
        self.publish(ask, EventKind::ApprovalDecided(facts.clone()));
        self.publish(ask, decided(facts));
    }
}

/// A waiter for a decision. When the last waiter of a request is dropped, the request is denied.
pub struct Waiting {
    decision: watch::Receiver<Option<Decision>>,
    request: Option<ApprovalRequest>,
    is_first: bool,
    /// None: it was decided without being asked.
    _waiter: Option<Waiter>,
}

struct Waiter {
    approvals: Arc<Approvals>,
    id: String,
    /// It made the request.
    is_first: bool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.approvals.leave(self);
    }
}

impl Waiting {
    fn already_decided(decision: Decision) -> Self {
        Self {
            decision: watch::channel(Some(decision)).1,
            request: None,
            is_first: false,
            _waiter: None,
        }
    }

    /// Returns the request; none: it was already decided.
    pub fn request(&self) -> Option<&ApprovalRequest> {
        self.request.as_ref()
    }

    /// Returns true for one waiter of a request, the one that opened it: its owner has to have a person asked.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    pub fn decision(&self) -> Option<Decision> {
        self.decision.borrow().clone()
    }

    pub async fn decided(&mut self) -> Decision {
        match self.decision.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(decision)) => decision.clone(),
            _ => Decision::denied(DeniedBy::Gone),
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// A subscription to the pending requests. No change is missed: a late [`ApprovalWatch::changed`] returns at once.
pub struct ApprovalWatch {
    changes: watch::Receiver<u64>,
    approvals: Arc<Approvals>,
}

impl ApprovalWatch {
    pub fn pending(&mut self) -> Vec<ApprovalRequest> {
        self.changes.mark_unchanged();
        self.approvals.pending()
    }

    /// Returns the decision of a request that is no longer pending; none: it is not remembered.
    pub fn decision(&self, id: &str) -> Option<Decision> {
        self.approvals.decision(id)
    }

    /// Waits for a change. False: there will be no more.
    pub async fn changed(&mut self) -> bool {
        !lock(&self.approvals.state).is_closed && self.changes.changed().await.is_ok()
    }
}
