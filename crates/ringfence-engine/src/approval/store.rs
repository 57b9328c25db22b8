//! Approved hosts and commands, each for one run, a session or a namespace. Egress leases follow its changes.

use super::{
    Ask, CommandSubject, Subject,
    state::End,
    words::{Decision, Scope, Verdict},
};
use crate::{events::now_ms, sync::lock};
use ringfence_egress::Rule;
use ringfence_types::{Namespace, SessionId};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tokio::sync::watch;

/// Maximum approved hosts of one namespace, including its sessions'; and as many commands.
pub(super) const APPROVED_MAX: usize = 64;
/// The same maxima for all namespaces.
const ALL_RULES_MAX: usize = 4096;
const ALL_COMMANDS_MAX: usize = 1024;
/// Expiry of an approval for the next run.
const ONCE_MS: u64 = 15 * 60 * 1000;

#[derive(Debug)]
struct Approved {
    subject: Subject,
    namespace: Namespace,
    owner: Owner,
    /// None: it ends with its owner.
    end: Option<End>,
    decision: Decision,
    /// While it exists, a run that has not started has taken the approval.
    taken: Weak<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// The next run of the namespace, or the next call of the session.
    Next(Option<SessionId>),
    Session(SessionId),
    Namespace,
}

#[derive(Debug)]
pub(crate) struct ApprovalStore {
    all: Mutex<Vec<Approved>>,
    changes: watch::Sender<u64>,
}

impl ApprovalStore {
    pub(super) fn new() -> Self {
        Self {
            all: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Removes expired approvals, and returns the others.
    fn valid(&self) -> MutexGuard<'_, Vec<Approved>> {
        let mut all = lock(&self.all);
        all.retain(|one| one.end.is_none_or(|end| !end.left().is_zero()));
        all
    }

    /// Returns the rules approved for a namespace or a session, without those for one run ([`Self::take_once`]).
    pub(crate) fn rules_for(&self, namespace: &Namespace, session: Option<&SessionId>) -> Vec<Rule> {
        let applies = |one: &&Approved| {
            one.namespace == *namespace
                && match &one.owner {
                    Owner::Namespace => true,
                    Owner::Session(id) => Some(id) == session,
                    Owner::Next(_) => false,
                }
        };
        let all = self.valid();
        let applicable = all.iter().filter(applies);
        applicable.filter_map(Approved::rule).cloned().collect()
    }

    /// Takes the hosts approved for the next run only.
    pub(crate) fn take_once(
        self: &Arc<Self>,
        namespace: &Namespace,
        session: Option<&SessionId>,
    ) -> TakenOnce {
        let owner = Owner::Next(session.cloned());
        let token = Arc::new(());
        let mut all = self.valid();
        let applicable = all
            .iter_mut()
            .filter(|one| one.namespace == *namespace && one.owner == owner && !one.is_taken());
        let take = |one: &mut Approved| {
            let rule = one.rule()?.clone();
            one.taken = Arc::downgrade(&token);
            Some(rule)
        };
        TakenOnce {
            rules: applicable.filter_map(take).collect(),
            token,
            store: self.clone(),
        }
    }

    /// Returns the decision that allows this command now. An approval for a single run is used up. If none fits,
    /// approvals of the same words, directory and principal are removed: something else, such as a file, has changed.
    pub(crate) fn take_command(&self, namespace: &Namespace, command: &CommandSubject) -> Option<Decision> {
        let mut all = self.valid();
        let matches = |one: &Approved| one.namespace == *namespace && one.command() == Some(command);
        let Some(at) = all.iter().position(matches) else {
            let key =
                |one: &CommandSubject| (one.words.clone(), one.directory.clone(), one.principal.clone());
            let differs = |given: &CommandSubject| key(given) != key(command);
            all.retain(|one| one.namespace != *namespace || one.command().is_none_or(differs));
            return None;
        };
        match all[at].owner {
            Owner::Namespace => Some(all[at].decision.clone()),
            Owner::Next(_) | Owner::Session(_) => Some(all.remove(at).decision),
        }
    }

    /// Lists the commands approved for a principal of a namespace, each with the milliseconds until it expires.
    pub(crate) fn commands_of(
        &self,
        namespace: &Namespace,
        principal: &str,
    ) -> Vec<(CommandSubject, Scope, u64)> {
        let all = self.valid();
        let own = all.iter().filter(|one| one.namespace == *namespace);
        own.filter_map(|one| {
            let command = one.command().filter(|command| command.principal == principal)?;
            let left = one.end?.left().as_millis();
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            Some((command.clone(), one.decision.scope()?, left))
        })
        .collect()
    }

    /// Subscribes to changes: approvals (also for the next run) added, expired, or removed with their session.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn forget_session(&self, session: &SessionId) {
        let is_owned = |owner: &Owner| match owner {
            Owner::Session(id) | Owner::Next(Some(id)) => id == session,
            Owner::Next(None) | Owner::Namespace => false,
        };
        self.valid().retain(|one| !is_owned(&one.owner));
        self.notify();
    }

    /// Returns the decision that already approves a request, if any.
    pub(super) fn find_decision(&self, ask: &Ask) -> Option<Decision> {
        let all = self.valid();
        let found = all.iter().find(|one| {
            one.namespace == ask.namespace
                && match (&one.subject, &ask.subject) {
                    (Subject::Egress(given), Subject::Egress(rule)) => rule.is_within(given),
                    (given, requested) => given == requested,
                }
                && match &one.owner {
                    Owner::Namespace => true,
                    Owner::Session(id) => Some(id) == ask.session.as_ref(),
                    // A waiting run is not the next run.
                    Owner::Next(of) => *of == ask.session && ask.execution.is_none() && !one.is_taken(),
                }
        });
        found.map(|one| one.decision.clone())
    }

    /// Returns true if the limits allow another approval of this kind.
    pub(super) fn has_room(&self, ask: &Ask) -> bool {
        let all_max = match ask.subject {
            Subject::Egress(_) => ALL_RULES_MAX,
            Subject::Command(_) => ALL_COMMANDS_MAX,
        };
        let all = self.valid();
        let alike = || all.iter().filter(|one| one.subject.kind() == ask.subject.kind());
        let own = alike().filter(|one| one.namespace == ask.namespace);
        own.count() < APPROVED_MAX && alike().count() < all_max
    }

    /// Applies a decision; nothing else does. False: a limit is reached, or there is no session for it.
    pub(super) fn apply(self: &Arc<Self>, ask: &Ask, decision: &Decision) -> bool {
        let owner = match (decision.verdict, &ask.session) {
            (Verdict::Denied(_), _) => return true,
            // The waiting run uses the approval itself; nothing is left for another.
            (Verdict::Approved(Scope::Once), _) if ask.execution.is_some() => return true,
            (Verdict::Approved(Scope::Once), session) => Owner::Next(session.clone()),
            (Verdict::Approved(Scope::Session), Some(session)) => Owner::Session(session.clone()),
            // Refused before, by `Ask::scopes`.
            (Verdict::Approved(Scope::Session), None) => return false,
            (Verdict::Approved(Scope::Namespace), _) => Owner::Namespace,
        };
        if !self.has_room(ask) {
            return false;
        }
        let end_unix_ms = match owner {
            Owner::Next(_) => Some(now_ms().saturating_add(ONCE_MS)),
            Owner::Session(_) => None,
            Owner::Namespace => decision.expires_unix_ms,
        };
        let end = end_unix_ms.map(End::at);
        lock(&self.all).push(Approved {
            subject: ask.subject.clone(),
            namespace: ask.namespace.clone(),
            owner,
            end,
            decision: decision.clone(),
            taken: Weak::new(),
        });
        self.notify();
        if let Some(end) = end {
            let store = Arc::downgrade(self);
            tokio::spawn(async move {
                end.reached().await;
                if let Some(store) = store.upgrade() {
                    drop(store.valid());
                    store.notify();
                }
            });
        }
        true
    }

    fn notify(&self) {
        self.changes.send_modify(|number| *number += 1);
    }
}

/// Approvals for the next run, for a run that has not started. If it never does, another run can take them.
#[derive(Debug)]
pub(crate) struct TakenOnce {
    rules: Vec<Rule>,
    token: Arc<()>,
    store: Arc<ApprovalStore>,
}

impl TakenOnce {
    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.rules.clone()
    }

    /// Removes the approvals: the run starts.
    pub(crate) fn use_up(&self) {
        let token = Arc::downgrade(&self.token);
        self.store.valid().retain(|one| !one.taken.ptr_eq(&token));
    }
}

impl Approved {
    fn is_taken(&self) -> bool {
        self.taken.strong_count() > 0
    }

    fn rule(&self) -> Option<&Rule> {
        match &self.subject {
            Subject::Egress(rule) => Some(rule),
            Subject::Command(_) => None,
        }
    }

    fn command(&self) -> Option<&CommandSubject> {
        match &self.subject {
            Subject::Egress(_) => None,
            Subject::Command(command) => Some(command),
        }
    }
}
