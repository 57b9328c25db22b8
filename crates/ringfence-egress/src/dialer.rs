//! What all sandboxes of a server share: the resolvers, the services that may have private addresses, and the limits of
//! open connections.

use crate::{Destination, Host, HostName, Rule, Rules, RulesError, Verdict, resolve::Resolver};
use ringfence_types::Namespace;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Limits. There are no defaults: the operator's settings give each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that one sandbox has open at once.
    pub connections: usize,
    /// Connections that all sandboxes of a namespace have open at once.
    pub connections_per_namespace: usize,
    /// Bytes that one sandbox sends, all its life; `u64::MAX`: without a limit.
    pub bytes_out: u64,
    /// Bytes that one sandbox receives, all its life; `u64::MAX`: without a limit.
    pub bytes_in: u64,
    pub connection_time: Duration,
    /// How long a connection lasts on which nothing moves.
    pub idle: Duration,
    /// How long finding an address and connecting to it take at most, together.
    pub connect: Duration,
    /// How long the first words of a connection take at most, from its first byte: a ClientHello, a request's head.
    pub hello: Duration,
}

/// Whose connections they are, which decides what stands in for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Programs,
    /// The web tools. `*` in their rules means public hosts only: a service that may be private has to be named. And a
    /// browser always sends the extension of Encrypted Client Hello, so its name in clear counts.
    Web,
}

#[derive(Clone, Debug)]
pub struct DialerSettings {
    /// Resolvers; empty: those of the host, its hosts file first.
    pub resolvers: Vec<SocketAddr>,
    /// Services whose addresses may be other than public: by name, or by the network that they are in.
    pub private: Vec<Rule>,
    pub limits: Limits,
}

/// Connections that all sandboxes of a server have open at once: each takes two descriptors and up to 256 KiB of it.
pub const CONNECTIONS_MAX: usize = 2048;

/// What is shared by all sandboxes of a server.
pub struct Dialer {
    resolver: Resolver,
    private: Rules,
    limits: Limits,
    /// The permits of all namespaces together.
    permits_of_all: Arc<Semaphore>,
    /// One for each namespace that has a sandbox with egress.
    namespaces: Mutex<HashMap<Namespace, Weak<Semaphore>>>,
}

impl Dialer {
    /// The host's resolvers are read when the first name is looked up. Needs no runtime yet.
    ///
    /// # Errors
    /// There are too many private services.
    pub fn new(settings: DialerSettings) -> Result<Arc<Self>, RulesError> {
        Ok(Arc::new(Self {
            resolver: Resolver::new(settings.resolvers),
            private: Rules::new(settings.private)?,
            limits: settings.limits,
            permits_of_all: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            namespaces: Mutex::new(HashMap::new()),
        }))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Whether the operator has named this service as one whose address may be private.
    pub(crate) fn may_be_private(&self, name: &HostName, port: u16) -> bool {
        !matches!(self.private.verdict(name, port), Verdict::Denied(_))
    }

    /// Whether the operator has named services under this name, on whatever port.
    pub(crate) fn names_private(&self, name: &HostName) -> bool {
        self.private.names_reached(name)
    }

    /// Whether the operator has named this address, or its network, as one that services may have.
    pub(crate) fn may_be_dialled(&self, address: IpAddr, port: u16) -> bool {
        self.private.address(address, port).is_ok()
    }

    pub(crate) fn permits_of_all(&self) -> Arc<Semaphore> {
        self.permits_of_all.clone()
    }

    /// The permits that the sandboxes of a namespace share.
    pub(crate) fn permits_of(&self, namespace: &Namespace) -> Arc<Semaphore> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = namespaces.get(namespace).and_then(Weak::upgrade) {
            return permits;
        }
        namespaces.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(
            self.limits.connections_per_namespace.min(Semaphore::MAX_PERMITS),
        ));
        namespaces.insert(namespace.clone(), Arc::downgrade(&permits));
        permits
    }
}

/// What rules say to a connection to `to`: a name by its rules, an address by the rules of its network.
pub(crate) fn verdict(rules: &Rules, to: &Destination) -> Verdict {
    match &to.host {
        Host::Name(name) => rules.verdict(name, to.port),
        Host::Address(address) => match rules.address(*address, to.port) {
            Ok(()) => Verdict::Open,
            Err(why) => Verdict::Denied(why),
        },
    }
}
