//! What has been approved of the host: commands with an end, of one namespace and one principal, for one run or a time.

use super::{
    Ask, CommandSubject, Subject,
    words::{Decision, Scope},
};
use crate::{events::now_ms, sync::lock};
use ringfence_types::Namespace;
use std::{sync::Mutex, time::Duration};
use tokio::time::Instant;

/// Commands that one namespace has by approval, and all have.
const COMMANDS_MAX: usize = 64;
const ALL_MAX: usize = 1024;
/// How long one that is for a single run waits for it.
const ONCE: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
struct ApprovedCommand {
    namespace: Namespace,
    command: CommandSubject,
    scope: Scope,
    until: Instant,
    decision: Decision,
}

/// The commands of a server that may be run by approval.
#[derive(Debug, Default)]
pub(crate) struct ApprovedCommands(Mutex<Vec<ApprovedCommand>>);

impl ApprovedCommands {
    pub(super) fn standing(&self, ask: &Ask) -> Option<Decision> {
        let Subject::Command(command) = &ask.subject else {
            return None;
        };
        let mut all = lock(&self.0);
        prune(&mut all);
        let stands = all
            .iter()
            .find(|one| one.namespace == ask.namespace && one.command == **command);
        stands.map(|one| one.decision.clone())
    }

    pub(super) fn has_room(&self, namespace: &Namespace) -> bool {
        let mut all = lock(&self.0);
        prune(&mut all);
        let of_it = all.iter().filter(|one| one.namespace == *namespace);
        of_it.count() < COMMANDS_MAX && all.len() < ALL_MAX
    }

    /// False: there is no room.
    pub(super) fn add(&self, namespace: &Namespace, command: &CommandSubject, decision: &Decision) -> bool {
        let (Some(scope), true) = (decision.scope(), self.has_room(namespace)) else {
            return false;
        };
        let lasts = match (scope, decision.expires_unix_ms) {
            (Scope::Namespace, Some(end)) => Duration::from_millis(end.saturating_sub(now_ms())),
            _ => ONCE,
        };
        lock(&self.0).push(ApprovedCommand {
            namespace: namespace.clone(),
            command: command.clone(),
            scope,
            until: Instant::now() + lasts,
            decision: decision.clone(),
        });
        true
    }

    /// The decision that lets this command run now. One that was for a single run is used up.
    pub(crate) fn take(&self, namespace: &Namespace, command: &CommandSubject) -> Option<Decision> {
        let mut all = lock(&self.0);
        prune(&mut all);
        let at = all
            .iter()
            .position(|one| one.namespace == *namespace && one.command == *command)?;
        match all[at].scope {
            Scope::Namespace => Some(all[at].decision.clone()),
            Scope::Once | Scope::Session => Some(all.remove(at).decision),
        }
    }

    /// What a namespace's principal may run by approval, with the end of each in milliseconds from now.
    pub(crate) fn list(&self, namespace: &Namespace, principal: &str) -> Vec<(CommandSubject, Scope, u64)> {
        let mut all = lock(&self.0);
        prune(&mut all);
        let now = Instant::now();
        let theirs = all
            .iter()
            .filter(|one| one.namespace == *namespace && one.command.principal == principal);
        let left = |until: Instant| u64::try_from(until.duration_since(now).as_millis()).unwrap_or(u64::MAX);
        theirs
            .map(|one| (one.command.clone(), one.scope, left(one.until)))
            .collect()
    }
}

fn prune(all: &mut Vec<ApprovedCommand>) {
    let now = Instant::now();
    all.retain(|one| now < one.until);
}
