//! What has been approved: hosts and commands, each with an end, for one run, a session or a namespace. Egress leases
//! follow its changes.

use super::{
    Ask, CommandSubject, Subject,
    words::{Decision, Scope, Verdict},
};
use crate::{events::now_ms, sync::lock};
use ringfence_egress::Rule;
use ringfence_types::{Namespace, SessionId};
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Hosts that one namespace has by approval, its sessions' with them; and commands as many.
pub(super) const APPROVED_MAX: usize = 64;
/// Those of all namespaces.
const ALL_RULES_MAX: usize = 4096;
const ALL_COMMANDS_MAX: usize = 1024;
/// How long one that is for the next run waits for that run.
const ONCE: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
struct Approved {
    subject: Subject,
    namespace: Namespace,
    owner: Owner,
    /// None: as long as its owner.
    until: Option<Instant>,
    decision: Decision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// The next run of the namespace, or the next call of the session.
    Next(Option<SessionId>),
    Session(SessionId),
    Namespace,
}

/// What a server's programs and callers have by approval.
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

    /// All whose time is not up.
    fn valid(&self) -> MutexGuard<'_, Vec<Approved>> {
        let now = Instant::now();
        let mut all = lock(&self.all);
        all.retain(|one| one.until.is_none_or(|until| now < until));
        all
    }

    /// What the runs of a namespace may reach by approval, or the calls of one of its sessions. For one run alone there
    /// may be more: see [`ApprovalStore::take_once`].
    pub(crate) fn rules_for(&self, namespace: &Namespace, session: Option<&SessionId>) -> Vec<Rule> {
        let is_theirs = |one: &&Approved| {
            one.namespace == *namespace
                && match &one.owner {
                    Owner::Namespace => true,
                    Owner::Session(id) => Some(id) == session,
                    Owner::Next(_) => false,
                }
        };
        let all = self.valid();
        let theirs = all.iter().filter(is_theirs);
        theirs.filter_map(Approved::rule).cloned().collect()
    }

    /// What was approved for one run: the caller takes it, and no other has it any more.
    pub(crate) fn take_once(&self, namespace: &Namespace, session: Option<&SessionId>) -> Vec<Rule> {
        let mut taken = Vec::new();
        self.valid().retain(|one| {
            let is_theirs = one.namespace == *namespace
                && matches!(&one.owner, Owner::Next(of) if of.as_ref() == session);
            let rule = one.rule().filter(|_| is_theirs);
            taken.extend(rule.cloned());
            rule.is_none()
        });
        taken
    }

    /// The decision that lets this command run now. One that was for a single run is used up, and so is one for the
    /// same command with files that held something else.
    pub(crate) fn take_command(&self, namespace: &Namespace, command: &CommandSubject) -> Option<Decision> {
        let mut all = self.valid();
        let is_it = |one: &Approved| one.namespace == *namespace && one.command() == Some(command);
        let Some(at) = all.iter().position(is_it) else {
            let says =
                |one: &CommandSubject| (one.words.clone(), one.directory.clone(), one.principal.clone());
            let differs = |given: &CommandSubject| says(given) != says(command);
            all.retain(|one| one.namespace != *namespace || one.command().is_none_or(differs));
            return None;
        };
        match all[at].owner {
            Owner::Namespace => Some(all[at].decision.clone()),
            Owner::Next(_) | Owner::Session(_) => Some(all.remove(at).decision),
        }
    }

    /// What a namespace's principal may run by approval, with the end of each in milliseconds from now.
    pub(crate) fn commands_of(
        &self,
        namespace: &Namespace,
        principal: &str,
    ) -> Vec<(CommandSubject, Scope, u64)> {
        let now = Instant::now();
        let all = self.valid();
        let theirs = all.iter().filter(|one| one.namespace == *namespace);
        theirs
            .filter_map(|one| {
                let command = one.command().filter(|command| command.principal == principal)?;
                let left = one.until?.duration_since(now).as_millis();
                let left = u64::try_from(left).unwrap_or(u64::MAX);
                Some((command.clone(), one.decision.scope()?, left))
            })
            .collect()
    }

    /// Tells that something was approved, has ended or was taken away. What was approved for the next run is told, too.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What a session had by approval ends with it.
    pub(super) fn forget_session(&self, session: &SessionId) {
        let is_its = |owner: &Owner| match owner {
            Owner::Session(id) | Owner::Next(Some(id)) => id == session,
            Owner::Next(None) | Owner::Namespace => false,
        };
        self.valid().retain(|one| !is_its(&one.owner));
        self.tell();
    }

    /// The decision by which an ask has been approved already.
    pub(super) fn standing(&self, ask: &Ask) -> Option<Decision> {
        let all = self.valid();
        let stands = all.iter().find(|one| {
            one.namespace == ask.namespace
                && match (&one.subject, &ask.subject) {
                    (Subject::Egress(given), Subject::Egress(rule)) => rule.is_within(given),
                    (given, asked) => given == asked,
                }
                && match &one.owner {
                    Owner::Namespace => true,
                    Owner::Session(id) => Some(id) == ask.session.as_ref(),
                    // The run that waits is not the next.
                    Owner::Next(of) => *of == ask.session && ask.execution.is_none(),
                }
        });
        stands.map(|one| one.decision.clone())
    }

    /// Is there room for one more of its kind.
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

    /// The one place where a decision takes effect. False: there is no room for it, so it has none.
    pub(super) fn apply(self: &Arc<Self>, ask: &Ask, decision: &Decision) -> bool {
        let owner = match (decision.verdict, &ask.session) {
            (Verdict::Denied(_), _) => return true,
            // The run that waits for the answer goes on by it; nothing is left for another.
            (Verdict::Approved(Scope::Once), _) if ask.execution.is_some() => return true,
            (Verdict::Approved(Scope::Once), session) => Owner::Next(session.clone()),
            (Verdict::Approved(Scope::Session), Some(session)) => Owner::Session(session.clone()),
            // It is refused before it comes here.
            (Verdict::Approved(Scope::Session), None) => return false,
            (Verdict::Approved(Scope::Namespace), _) => Owner::Namespace,
        };
        if !self.has_room(ask) {
            return false;
        }
        let lasts = match owner {
            Owner::Next(_) => Some(ONCE),
            Owner::Session(_) => None,
            Owner::Namespace => decision
                .expires_unix_ms
                .map(|end| Duration::from_millis(end.saturating_sub(now_ms()))),
        };
        let until = lasts.map(|lasts| Instant::now() + lasts);
        lock(&self.all).push(Approved {
            subject: ask.subject.clone(),
            namespace: ask.namespace.clone(),
            owner,
            until,
            decision: decision.clone(),
        });
        self.tell();
        if let Some(until) = until {
            let store = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep_until(until).await;
                if let Some(store) = store.upgrade() {
                    drop(store.valid());
                    store.tell();
                }
            });
        }
        true
    }

    fn tell(&self) {
        self.changes.send_modify(|number| *number += 1);
    }
}

impl Approved {
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
