//! Approval of connections that no rule allows. The decision is made elsewhere: a connection is held until there is
//! one, and continues only if the rules allow it then.

use crate::{Destination, HostName, dialer::Dialer};
use std::{pin::Pin, sync::Arc};
use tokio::sync::Semaphore;

/// Maximum connections of one sandbox that are held; never more than half of its maximum connections, rounded up.
const HELD_MAX: usize = 16;
/// Names without public addresses (RFC 6761, 6762, 7686, 8375, ICANN's for private use): approval changes nothing.
const NOT_PUBLIC: [&str; 8] = [
    "internal",
    "local",
    "localdomain",
    "lan",
    "home.arpa",
    "onion",
    "invalid",
    // A service of a cloud that hands out credentials, under a name that looks like any other.
    "metadata.goog",
];

pub trait ApprovalHook: Send + Sync {
    /// True if it can ask now. Must not block.
    fn is_available(&self) -> bool;

    /// Returns a hint about a connection that no rule allows, in place of that of the rules. Must not block.
    fn hint(&self, _to: &Destination) -> Option<String> {
        None
    }

    /// Asks, and completes with the decision. After an approval the rules allow the connection.
    fn ask(&self, to: Destination) -> ApprovalFuture;
}

pub type ApprovalFuture = Pin<Box<dyn Future<Output = Result<(), NotApproved>> + Send>>;

/// Reason why a connection was not approved; follows the description of the refusal, after a semicolon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotApproved(pub String);

/// Handling of connections to a name that no rule allows. The name gets an address in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    Refused,
    Asked,
}

pub(crate) struct Approver {
    pub(crate) hook: Arc<dyn ApprovalHook>,
    pub(crate) held: Semaphore,
}

impl Approver {
    pub(crate) fn new(hook: Arc<dyn ApprovalHook>, connections_max: usize) -> Self {
        Self {
            hook,
            held: Semaphore::new(HELD_MAX.min(connections_max.div_ceil(2))),
        }
    }
}

/// True if a name may have an address that can be dialled.
pub(crate) fn can_be_reached(dialer: &Dialer, name: &HostName) -> bool {
    if dialer.names_private(name) {
        return true;
    }
    let is_below = |ending: &&str| {
        let rest = name.as_str().strip_suffix(*ending);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.is_local() && name.labels().count() > 1 && !NOT_PUBLIC.iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DialerSettings, Limits};
    use std::time::Duration;

    #[test]
    fn unreachable_names_are_not_asked_about() {
        let time = Duration::from_secs(1);
        let dialer = Dialer::new(DialerSettings {
            resolvers: vec!["127.0.0.1:53".parse().unwrap()],
            private: vec!["db.internal:5432".parse().unwrap()],
            limits: Limits {
                connections: 1,
                connections_per_namespace: 1,
                bytes_out: 1,
                bytes_in: 1,
                connection_time: time,
                idle: time,
                connect: time,
                hello: time,
            },
        })
        .unwrap();
        let check = |name: &str, expect: bool| {
            assert_eq!(can_be_reached(&dialer, &name.parse().unwrap()), expect, "{name}");
        };
        check("example.com", true);
        check("internal.example.com", true);
        check("notinternal.test", true);
        check("db.internal", true);
        for name in [
            "metadata.google.internal",
            "instance-data.ec2.internal",
            "metadata",
            "metadata.goog",
            "x.metadata.goog",
            "printer.local",
            "router.lan",
            "nas.home.arpa",
            "localhost",
            "x.localhost",
            "host.docker.internal",
            "abc.onion",
        ] {
            check(name, false);
        }
    }
}
