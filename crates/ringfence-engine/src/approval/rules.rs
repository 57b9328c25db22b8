//! What has been approved of the network: rules with an end, by namespace, by session, and for one run. Egress leases
//! follow their changes.

use super::{
    Ask, Subject,
    words::{Decision, Scope},
};
use crate::sync::lock;
use ringfence_egress::Rule;
use ringfence_types::{Namespace, SessionId};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Rules that one namespace has by approval, its sessions' with them.
pub(super) const RULES_MAX: usize = 64;
const ALL_MAX: usize = 4096;
/// How long one that is for the next run waits for that run.
const ONCE: Duration = Duration::from_secs(15 * 60);

/// One rule that somebody has approved.
#[derive(Clone, Debug)]
struct Approved {
    rule: Rule,
    namespace: Namespace,
    owner: RuleOwner,
    /// None: as long as its owner.
    until: Option<Instant>,
    decision: Decision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RuleOwner {
    /// The next run of the namespace, or the next call of the session.
    Next(Option<SessionId>),
    Session(SessionId),
    Namespace,
}

/// The rules of a server that are there by approval.
#[derive(Debug)]
pub(crate) struct ApprovedRules {
    all: Mutex<Vec<Approved>>,
    changes: watch::Sender<u64>,
}

impl Default for ApprovedRules {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl ApprovedRules {
    /// What the runs of a namespace may reach by approval, or the calls of one of its sessions. For one run alone there
    /// may be more: see [`ApprovedRules::take_once`].
    pub(crate) fn rules_for(&self, namespace: &Namespace, session: Option<&SessionId>) -> Vec<Rule> {
        let now = Instant::now();
        let is_theirs = |approved: &&Approved| {
            approved.namespace == *namespace
                && approved.is_valid(now)
                && match &approved.owner {
                    RuleOwner::Namespace => true,
                    RuleOwner::Session(id) => Some(id) == session,
                    RuleOwner::Next(_) => false,
                }
        };
        lock(&self.all)
            .iter()
            .filter(is_theirs)
            .map(|approved| approved.rule.clone())
            .collect()
    }

    /// What was approved for one run: the caller takes it, and no other has it any more.
    pub(crate) fn take_once(&self, namespace: &Namespace, session: Option<&SessionId>) -> Vec<Rule> {
        let now = Instant::now();
        let mut taken = Vec::new();
        lock(&self.all).retain(|approved| {
            let is_theirs = approved.namespace == *namespace
                && matches!(&approved.owner, RuleOwner::Next(of) if of.as_ref() == session);
            if is_theirs && approved.is_valid(now) {
                taken.push(approved.rule.clone());
            }
            !is_theirs
        });
        taken
    }

    /// Tells that something was approved, has ended or was taken away. What was approved for the next run is told, too.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What a session had by approval ends with it.
    pub(crate) fn forget_session(&self, session: &SessionId) {
        let is_its = |owner: &RuleOwner| match owner {
            RuleOwner::Session(id) | RuleOwner::Next(Some(id)) => id == session,
            RuleOwner::Next(None) | RuleOwner::Namespace => false,
        };
        self.remove(|approved| is_its(&approved.owner));
    }

    /// The decision by which an ask has been approved already.
    pub(super) fn standing(&self, ask: &Ask, rule: &Rule) -> Option<Decision> {
        let now = Instant::now();
        let all = lock(&self.all);
        let stands = all.iter().find(|approved| {
            approved.namespace == ask.namespace
                && approved.is_valid(now)
                && rule.is_within(&approved.rule)
                && match &approved.owner {
                    RuleOwner::Namespace => true,
                    RuleOwner::Session(id) => Some(id) == ask.session.as_ref(),
                    // The run that waits is not the next.
                    RuleOwner::Next(of) => *of == ask.session && ask.execution.is_none(),
                }
        });
        stands.map(|approved| approved.decision.clone())
    }

    /// Is there room for one more of this namespace.
    pub(super) fn has_room(&self, namespace: &Namespace) -> bool {
        let now = Instant::now();
        let mut all = lock(&self.all);
        all.retain(|approved| approved.is_valid(now));
        let of_it = all.iter().filter(|approved| approved.namespace == *namespace);
        of_it.count() < RULES_MAX && all.len() < ALL_MAX
    }

    /// False: there is no room.
    pub(super) fn add(self: &Arc<Self>, ask: &Ask, scope: Scope, decision: &Decision) -> bool {
        let Subject::Egress(rule) = &ask.subject else {
            return false;
        };
        let owner = match (scope, &ask.session) {
            (Scope::Once, session) => RuleOwner::Next(session.clone()),
            (Scope::Session, Some(session)) => RuleOwner::Session(session.clone()),
            // It is refused before it comes here.
            (Scope::Session, None) => return false,
            (Scope::Namespace, _) => RuleOwner::Namespace,
        };
        if !self.has_room(&ask.namespace) {
            return false;
        }
        let lasts = match scope {
            Scope::Once => Some(ONCE),
            Scope::Session => None,
            Scope::Namespace => decision.expires_unix_ms.map(|end| {
                let now = crate::events::now_ms();
                Duration::from_millis(end.saturating_sub(now))
            }),
        };
        let until = lasts.map(|lasts| Instant::now() + lasts);
        lock(&self.all).push(Approved {
            rule: rule.clone(),
            namespace: ask.namespace.clone(),
            owner,
            until,
            decision: decision.clone(),
        });
        self.tell();
        if let Some(until) = until {
            let rules = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep_until(until).await;
                if let Some(rules) = rules.upgrade() {
                    let now = Instant::now();
                    rules.remove(|approved| !approved.is_valid(now));
                }
            });
        }
        true
    }

    fn remove(&self, is_meant: impl Fn(&Approved) -> bool) {
        let mut all = lock(&self.all);
        let before = all.len();
        all.retain(|approved| !is_meant(approved));
        let has_changed = all.len() != before;
        drop(all);
        if has_changed {
            self.tell();
        }
    }

    fn tell(&self) {
        self.changes.send_modify(|number| *number += 1);
    }
}

impl Approved {
    fn is_valid(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}
