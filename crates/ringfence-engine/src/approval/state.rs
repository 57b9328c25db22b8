//! The requests that lie on the queue, and what keeps them from becoming many.

use super::{
    Ask, Subject,
    words::{ApprovalRequest, Decision, DeniedBy, Verdict},
};
use crate::error::{busy, stopping};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Requests that lie here at once, of one namespace and of all.
const PENDING_MAX: usize = 8;
const ALL_PENDING_MAX: usize = 64;
/// New requests of one namespace and of all in a minute: a person who is asked without end says yes in the end.
const PER_MINUTE: usize = 10;
const ALL_PER_MINUTE: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// Who may wait for the answer to one request.
pub(super) const WAITING_MAX: usize = 64;
/// How long a denied request is not asked again.
const LATELY: Duration = Duration::from_secs(60);
const REMEMBERED_MAX: usize = 256;

#[derive(Default)]
pub(super) struct State {
    pub(super) pending: HashMap<String, Pending>,
    /// When new requests came in the last minute.
    pub(super) asked: VecDeque<(Instant, Namespace)>,
    /// What was denied; the latest last.
    pub(super) denied: VecDeque<Denied>,
    /// What became of requests that lie here no more.
    pub(super) decided: VecDeque<(String, Decision)>,
    pub(super) is_closed: bool,
}

/// What is not asked again for a while.
pub(super) struct Denied {
    at: Instant,
    namespace: Namespace,
    subject: Subject,
    /// A connection waited for it, too short a time for anyone to answer.
    is_lapse: bool,
}

impl Denied {
    /// A model asks, and waits longer, where only a connection has waited in vain.
    pub(super) fn answers(&self, ask: &Ask) -> bool {
        self.namespace == ask.namespace
            && self.subject == ask.subject
            && (ask.patience.is_some() || !self.is_lapse)
    }
}

/// A request as it is shown, and what it asks for.
pub(super) struct Question {
    pub(super) request: ApprovalRequest,
    pub(super) digest: String,
    pub(super) ask: Ask,
}

pub(super) struct Pending {
    pub(super) question: Arc<Question>,
    pub(super) stage: Stage,
    pub(super) waiting: usize,
    pub(super) told: watch::Sender<Option<Decision>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not on record yet, and not shown.
    New,
    Open,
    /// Somebody has answered, and the answer is put on record.
    Answered,
}

impl State {
    /// Forgets what is too old to count.
    pub(super) fn prune(&mut self, now: Instant) {
        while self.asked.front().is_some_and(|(at, _)| now >= *at + MINUTE) {
            self.asked.pop_front();
        }
        while self
            .denied
            .front()
            .is_some_and(|denied| now >= denied.at + LATELY)
        {
            self.denied.pop_front();
        }
    }

    /// Why one more of this namespace cannot be asked.
    pub(super) fn refusal(&self, namespace: &Namespace, now: Instant) -> Option<RequestError> {
        if self.is_closed {
            return Some(stopping());
        }
        let of_it = || self.asked.iter().filter(|(_, of)| of == namespace);
        let full = |what: String, since: Option<Instant>| {
            let left = since.map_or(MINUTE, |since| (since + MINUTE).duration_since(now));
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let hint = "Work with what is allowed; a person cannot be asked more than that.";
            Some(busy(what, hint, left))
        };
        let pending_of_it = self
            .pending
            .values()
            .filter(|one| one.question.ask.namespace == *namespace);
        if pending_of_it.count() >= PENDING_MAX || self.pending.len() >= ALL_PENDING_MAX {
            let what = format!(
                "{PENDING_MAX} requests of a namespace wait for an answer, or {ALL_PENDING_MAX} of all."
            );
            return full(what, None);
        }
        let often = |times: usize, first: Option<&(Instant, Namespace)>| {
            let what = format!("a person was asked {times} times in a minute.");
            full(what, first.map(|(at, _)| *at))
        };
        if of_it().count() >= PER_MINUTE {
            return often(PER_MINUTE, of_it().next());
        }
        if self.asked.len() >= ALL_PER_MINUTE {
            return often(ALL_PER_MINUTE, self.asked.front());
        }
        None
    }

    /// The request that somebody answers now.
    pub(super) fn take_open(&mut self, id: &str) -> Option<Arc<Question>> {
        let pending = self.pending.get_mut(id).filter(|one| one.stage == Stage::Open)?;
        pending.stage = Stage::Answered;
        Some(pending.question.clone())
    }

    /// What became of a request, if that is remembered.
    pub(super) fn decision(&self, id: &str) -> Option<&Decision> {
        let found = self.decided.iter().rfind(|(known, _)| known == id);
        found.map(|(_, decision)| decision)
    }

    pub(super) fn new_id(&self) -> String {
        loop {
            let random = uuid::Uuid::now_v7().as_u128();
            // The lower half of it is random.
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
    let is_answered = |pending: &Pending| pending.stage == Stage::Answered;
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
        (None, Some(pending)) if is_answered(pending) => (
            ErrorCode::Conflict,
            format!("the request {id} is decided already."),
        ),
        _ => (ErrorCode::NotFound, "there is no such request.".to_owned()),
    };
    RequestError::new(code, what, "`ringfence approvals list` has those that wait.")
}
