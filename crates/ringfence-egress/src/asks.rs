//! Connections that no rule allows, and about which somebody may be asked. Who that is, and how it is decided, is not known
//! here: a connection is held until there is an answer, and goes on only if the rules allow it then.

use crate::{Destination, Host, HostName, RefusalRule, border::Border, outside::Outside};
use std::{fmt, pin::Pin, sync::Arc};
use tokio::sync::Semaphore;

/// Of one sandbox's connections so many are held at once, and never more than half of those that it may have.
const HELD_MAX: usize = 16;
/// Below these nothing is the Internet's (RFC 6761, 6762, 7686, 8375, and what ICANN keeps for networks of one's own), so an
/// answer would change nothing: what they lead to is refused after it was resolved.
const NOT_PUBLIC: [&str; 7] = [
    "internal",
    "local",
    "localdomain",
    "lan",
    "home.arpa",
    "onion",
    "invalid",
];
/// Services of a cloud that hand out credentials, under names that look like any other.
const METADATA: [&str; 1] = ["metadata.goog"];

/// Whoever can be asked whether a connection may be made that no rule allows.
pub trait Asks: Send + Sync {
    /// Whether anybody can be asked now; then a name that no rule allows has an address. It must not block.
    fn are_open(&self) -> bool;

    /// Asks, and ends when that is decided. After a yes the rules allow it.
    fn ask(&self, to: Destination) -> Answering;
}

/// Ends when it is decided.
pub type Answering = Pin<Box<dyn Future<Output = Result<(), NotApproved>> + Send>>;

/// Why it was not approved: follows what was refused, after a semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotApproved(pub String);

impl fmt::Display for NotApproved {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// What becomes of a name that no rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// There is no such name.
    Denied,
    /// It has an address, and whoever connects to that is asked about.
    Asked,
}

/// The asking of one sandbox.
pub(crate) struct Asking {
    asks: Arc<dyn Asks>,
    held: Semaphore,
}

impl Asking {
    pub(crate) fn new(asks: Arc<dyn Asks>, connections_max: usize) -> Self {
        Self {
            asks,
            held: Semaphore::new(HELD_MAX.min(connections_max.div_ceil(2))),
        }
    }
}

impl Border {
    /// What becomes of this name, if no rule allows it.
    pub(crate) fn unnamed(&self, name: &HostName) -> Unnamed {
        match &self.asking {
            Some(asking) if asking.asks.are_open() && can_be_reached(&self.outside, name) => Unnamed::Asked,
            _ => Unnamed::Denied,
        }
    }

    /// Whether somebody may be asked about a connection that was refused by this rule.
    pub(crate) fn may_ask(&self, to: &Destination, refused: RefusalRule) -> bool {
        let by_name = matches!(refused, RefusalRule::Name | RefusalRule::Port);
        let name = to.host.name().filter(|_| by_name);
        name.is_some_and(|name| self.unnamed(name) == Unnamed::Asked)
    }

    /// Holds a connection until it is decided.
    pub(crate) async fn ask(&self, to: &Destination) -> Result<(), NotApproved> {
        let (Some(asking), Host::Name(name)) = (&self.asking, &to.host) else {
            return Err(NotApproved("there is nobody to ask".to_owned()));
        };
        let Ok(_held) = asking.held.try_acquire() else {
            let why = "nobody was asked: too many connections wait for answers already";
            return Err(NotApproved(why.to_owned()));
        };
        // A name that came by the proxy was never looked up; what it can carry is bounded all the same.
        let rules = self.rules_now();
        let admitted = self.names().admit_or_ask(name, &rules);
        admitted.map_err(|full| NotApproved(format!("nobody was asked: {full}")))?;
        asking.asks.ask(to.clone()).await
    }
}

/// Whether there can be an address behind it that is dialled.
fn can_be_reached(outside: &Outside, name: &HostName) -> bool {
    if outside.names_private(name) {
        return true;
    }
    let is_below = |ending: &&str| {
        let rest = name.as_str().strip_suffix(*ending);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.is_local()
        && name.labels().count() > 1
        && !NOT_PUBLIC.iter().any(is_below)
        && !METADATA.iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, OutsideSettings};
    use std::time::Duration;

    #[test]
    fn nobody_is_asked_about_names_that_no_answer_would_make_reachable() {
        let time = Duration::from_secs(1);
        let outside = Outside::new(OutsideSettings {
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
            assert_eq!(can_be_reached(&outside, &name.parse().unwrap()), expect, "{name}");
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
