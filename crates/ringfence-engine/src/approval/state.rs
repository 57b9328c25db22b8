//! The requests that lie on the queue, and what keeps them from becoming many.

use super::{
    Ask,
    words::{ApprovalRequest, Decision, DeniedBy, Verdict},
};
use crate::error::{busy, stopping};
use ringfence_egress::Rule;
use ringfence_types::{ErrorCode, Namespace, RequestError};
use std::{
    collections::{HashMap, VecDeque},
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
/// For so long the same is not asked again that was denied.
const LATELY: Duration = Duration::from_secs(60);
/// Denials and decisions that are remembered.
const REMEMBERED_MAX: usize = 256;

#[derive(Default)]
pub(super) struct State {
    pub(super) pending: HashMap<String, Pending>,
    /// When new requests came in the last minute.
    pub(super) asked: VecDeque<(Instant, Namespace)>,
    /// What was denied, and when; the latest last.
    pub(super) denied: VecDeque<(Instant, Namespace, Rule)>,
    /// What became of requests that lie here no more.
    pub(super) decided: VecDeque<(String, Decision)>,
    pub(super) is_closed: bool,
}

/// A request that is not decided yet.
pub(super) struct Pending {
    pub(super) request: ApprovalRequest,
    pub(super) digest: String,
    pub(super) ask: Ask,
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
        while self.denied.front().is_some_and(|(at, ..)| now >= *at + LATELY) {
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
            .filter(|one| one.ask.namespace == *namespace);
        if pending_of_it.count() >= PENDING_MAX || self.pending.len() >= ALL_PENDING_MAX {
            return full(
                format!(
                    "{PENDING_MAX} requests of a namespace wait for an answer, or {ALL_PENDING_MAX} of all."
                ),
                None,
            );
        }
        if of_it().count() >= PER_MINUTE {
            let since = of_it().next().map(|(at, _)| *at);
            return full(
                format!("a person was asked {PER_MINUTE} times in a minute."),
                since,
            );
        }
        if self.asked.len() >= ALL_PER_MINUTE {
            let since = self.asked.front().map(|(at, _)| *at);
            return full(
                format!("a person was asked {ALL_PER_MINUTE} times in a minute."),
                since,
            );
        }
        None
    }

    pub(super) fn new_id(&self) -> String {
        loop {
            let random = uuid::Uuid::now_v7().as_u128();
            // The lower half of it is random.
            let id = format!("{:08x}", random & 0xffff_ffff);
            let is_known =
                self.pending.contains_key(&id) || self.decided.iter().any(|(known, _)| *known == id);
            if !is_known {
                return id;
            }
        }
    }

    pub(super) fn remember(&mut self, id: &str, pending: &Pending, decision: &Decision) {
        let Ask { rule, namespace, .. } = &pending.ask;
        match decision.verdict {
            Verdict::Denied(DeniedBy::Human | DeniedBy::Timeout) => {
                self.denied
                    .push_back((Instant::now(), namespace.clone(), rule.clone()));
            }
            Verdict::Denied(_) => {}
            Verdict::Approved(_) => self
                .denied
                .retain(|(_, of, what)| of != namespace || what != rule),
        }
        self.decided.push_back((id.to_owned(), decision.clone()));
        while self.denied.len() > REMEMBERED_MAX {
            self.denied.pop_front();
        }
        while self.decided.len() > REMEMBERED_MAX {
            self.decided.pop_front();
        }
    }
}

/// Why a request cannot be answered.
pub(super) fn not_open(id: &str, decided: Option<&Decision>, state: &State) -> RequestError {
    let conflict = |what: String| {
        RequestError::new(
            ErrorCode::Conflict,
            what,
            "`ringfence approvals list` has those that wait.",
        )
    };
    let id: String = id.chars().take(16).filter(char::is_ascii_alphanumeric).collect();
    match decided {
        Some(decision) => {
            let how = if decision.is_approved() {
                "approved"
            } else {
                "denied"
            };
            conflict(format!(
                "the request {id} is decided already: {how} by {}.",
                decision.decided_by
            ))
        }
        None if state
            .pending
            .get(&id)
            .is_some_and(|one| one.stage == Stage::Answered) =>
        {
            conflict(format!("the request {id} is decided already."))
        }
        None => RequestError::new(
            ErrorCode::NotFound,
            "there is no such request.",
            "`ringfence approvals list` has those that wait.",
        ),
    }
}
