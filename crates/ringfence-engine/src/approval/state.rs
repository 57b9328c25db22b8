//! The state of pending requests, and the limits on their number.

use super::{
    Ask, Subject,
    words::{ApprovalRequest, Decision, DeniedBy, Verdict},
};
use crate::{
    error::{busy, stopping},
    events::now_ms,
};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Maximum pending requests of one namespace, and of all.
const PENDING_MAX: usize = 8;
const ALL_PENDING_MAX: usize = 64;
/// Maximum new requests per minute, of one namespace and of all: a person who is asked endlessly says yes in the end.
const PER_MINUTE: usize = 10;
const ALL_PER_MINUTE: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum waiters for the answer to one request.
pub(super) const WAITING_MAX: usize = 64;
/// Period in which a denied request is not asked again.
const DENIAL_REMEMBERED: Duration = Duration::from_secs(60);
const REMEMBERED_MAX: usize = 256;
/// Longest time until an end is noticed that came while the machine slept.
const LOOK: Duration = Duration::from_secs(5);

/// An end by two clocks: the first stands still while the machine sleeps, the other (Unix time) can be set back.
#[derive(Clone, Copy, Debug)]
pub(super) struct End(pub(super) Instant, pub(super) u64);

impl End {
    pub(super) fn at(unix_ms: u64) -> Self {
        let left = Duration::from_millis(unix_ms.saturating_sub(now_ms()));
        Self(Instant::now() + left, unix_ms)
    }

    pub(super) fn left(self) -> Duration {
        let left = self.0.saturating_duration_since(Instant::now());
        left.min(Duration::from_millis(self.1.saturating_sub(now_ms())))
    }

    pub(super) async fn reached(self) {
        while !self.left().is_zero() {
            sleep(self.left().min(LOOK)).await;
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) pending: HashMap<String, Pending>,
    /// The new requests of the last minute, oldest first.
    pub(super) recent: VecDeque<(Instant, Namespace)>,
    /// Recent denials, the latest last.
    pub(super) denied: VecDeque<Denied>,
    /// Decisions of requests that are no longer pending.
    pub(super) decided: VecDeque<(String, Decision)>,
    pub(super) is_closed: bool,
}

pub(super) struct Denied {
    at: Instant,
    namespace: Namespace,
    subject: Subject,
    /// It timed out while a connection waited, which is too short for a person to answer.
    is_lapse: bool,
}

impl Denied {
    /// Returns true if this denial answers the request. After the timeout of a connection, a model may still ask.
    pub(super) fn answers(&self, ask: &Ask) -> bool {
        self.namespace == ask.namespace
            && self.subject == ask.subject
            && (ask.patience.is_some() || !self.is_lapse)
    }
}

pub(super) struct Question {
    pub(super) request: ApprovalRequest,
    pub(super) digest: String,
    pub(super) ask: Ask,
}

pub(super) struct Pending {
    pub(super) question: Arc<Question>,
    pub(super) stage: Stage,
    pub(super) waiting: usize,
    /// Its first caller, who opens it, still waits.
    pub(super) has_first: bool,
    pub(super) decision: watch::Sender<Option<Decision>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not yet recorded, and not shown.
    New,
    Open,
    /// Answered; the answer is being recorded.
    Answered,
}

impl State {
    pub(super) fn prune(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| now >= *at + MINUTE) {
            self.recent.pop_front();
        }
        while self
            .denied
            .front()
            .is_some_and(|denied| now >= denied.at + DENIAL_REMEMBERED)
        {
            self.denied.pop_front();
        }
    }

    /// Returns the reason why a further request of this namespace cannot be asked.
    pub(super) fn refusal(&self, namespace: &Namespace, now: Instant) -> Option<RequestError> {
        if self.is_closed {
            return Some(stopping());
        }
        let own = || self.recent.iter().filter(|(_, of)| of == namespace);
        let full = |what: String, since: Option<Instant>| {
            let left = since.map_or(MINUTE, |since| (since + MINUTE).duration_since(now));
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let hint = "Work with what is allowed; a person cannot be asked more than that.";
            Some(busy(what, hint, left))
        };
        let own_pending = self
            .pending
            .values()
            .filter(|one| one.question.ask.namespace == *namespace);
        if own_pending.count() >= PENDING_MAX || self.pending.len() >= ALL_PENDING_MAX {
            let what = format!(
                "{PENDING_MAX} requests of a namespace wait for an answer, or {ALL_PENDING_MAX} of all."
            );
            return full(what, None);
        }
        let often = |times: usize, first: Option<&(Instant, Namespace)>| {
            let what = format!("a person was asked {times} times in a minute.");
            full(what, first.map(|(at, _)| *at))
        };
        if own().count() >= PER_MINUTE {
            return often(PER_MINUTE, own().next());
        }
        if self.recent.len() >= ALL_PER_MINUTE {
            return often(ALL_PER_MINUTE, self.recent.front());
        }
        None
    }

    pub(super) fn take_open(&mut self, id: &str) -> Option<Arc<Question>> {
        let pending = self.pending.get_mut(id).filter(|one| one.stage == Stage::Open)?;
        pending.stage = Stage::Answered;
        Some(pending.question.clone())
    }

    pub(super) fn decision(&self, id: &str) -> Option<&Decision> {
        let found = self.decided.iter().rfind(|(known, _)| known == id);
        found.map(|(_, decision)| decision)
    }

    pub(super) fn new_id(&self) -> String {
        loop {
            let random = uuid::Uuid::now_v7().as_u128();
            // The lower half of a UUIDv7 is random.
            let id = format!("{:08x}", random & 0xffff_ffff);
            if !self.pending.contains_key(&id) && self.decision(&id).is_none() {
                return id;
            }
        }
    }

    pub(super) fn remember(&mut self, question: &Question, decision: &Decision) {
        let Ask {
            subject,
            namespace,
            patience,
            ..
        } = &question.ask;
        match decision.verdict {
            Verdict::Denied(why @ (DeniedBy::Human | DeniedBy::Timeout)) => self.denied.push_back(Denied {
                at: Instant::now(),
                namespace: namespace.clone(),
                subject: subject.clone(),
                is_lapse: why == DeniedBy::Timeout && patience.is_some(),
            }),
            Verdict::Denied(_) => {}
            Verdict::Approved(_) => self
                .denied
                .retain(|denied| denied.namespace != *namespace || denied.subject != *subject),
        }
        self.decided
            .push_back((question.request.id.clone(), decision.clone()));
        while self.denied.len() > REMEMBERED_MAX {
            self.denied.pop_front();
        }
        while self.decided.len() > REMEMBERED_MAX {
            self.decided.pop_front();
        }
    }
}

pub(super) fn not_open(id: &str, state: &State) -> RequestError {
    let is_over = |pending: &Pending| pending.stage != Stage::New;
    let (code, what) = match (state.decision(id), state.pending.get(id)) {
        (Some(decision), _) => {
            let how = if decision.is_approved() {
                "approved"
            } else {
                "denied"
            };
            let by = &decision.decided_by;
            (
                ErrorCode::Conflict,
                format!("the request {id} is decided already: {how} by {by}."),
            )
        }
        (None, Some(pending)) if is_over(pending) => (
            ErrorCode::Conflict,
            format!("the request {id} is decided already, or its time was up."),
        ),
        _ => (ErrorCode::NotFound, "there is no such request.".to_owned()),
    };
    RequestError::new(code, what, "`ringfence approvals list` has those that wait.")
}
