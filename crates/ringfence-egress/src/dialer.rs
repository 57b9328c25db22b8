//! Egress state that all sandboxes of a server share: the resolvers, the services that may have private addresses, and
//! the limits of open connections.

use crate::{Destination, Host, HostName, Rule, Rules, RulesError, Verdict, resolve::Resolver};
use ringfence_types::Namespace;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Limits, all from the operator's settings; there are no defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum open connections of one sandbox.
    pub connections: usize,
    /// Maximum open connections of all sandboxes of a namespace.
    pub connections_per_namespace: usize,
    /// Maximum bytes that one sandbox sends in its life; `u64::MAX`: no limit.
    pub bytes_out: u64,
    /// Maximum bytes that one sandbox receives in its life; `u64::MAX`: no limit.
    pub bytes_in: u64,
    pub connection_time: Duration,
    /// Maximum time without activity on a connection.
    pub idle: Duration,
    /// Maximum time of resolving and connecting together; a TLS handshake with the upstream has the same time again.
    pub connect: Duration,
    /// Maximum time of the beginning of a connection: a ClientHello, a TLS handshake with the sandbox, a request's
    /// head. Where the server may speak first, it runs from the client's first byte.
    pub hello: Duration,
}

/// The clients of a lease, which decide how `*` and Encrypted Client Hello are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Programs,
    /// The web tools. `*` in their rules means public hosts only: a service that may be private has to be named. A
    /// browser always sends the extension of Encrypted Client Hello, so its name in clear counts.
    Web,
}

#[derive(Clone, Debug)]
pub struct DialerSettings {
    /// Resolvers; empty: those of the host, its hosts file first.
    pub resolvers: Vec<SocketAddr>,
    /// Services that may have addresses that are not public: by name, or by their network.
    pub private: Vec<Rule>,
    pub limits: Limits,
}

/// Maximum open connections of all sandboxes of a server: each takes two descriptors and up to 256 KiB of memory.
pub const CONNECTIONS_MAX: usize = 2048;

pub struct Dialer {
    resolver: Resolver,
    private: Rules,
    limits: Limits,
    permits_of_all: Arc<Semaphore>,
    /// One for each namespace that has a sandbox with egress.
    namespaces: Mutex<HashMap<Namespace, Weak<Semaphore>>>,
}

impl Dialer {
    /// Needs no runtime yet: the host's resolvers are read at the first lookup. Fails with too many private services.
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

    /// True if the operator has named this service as one with an address that may be private.
    pub(crate) fn may_be_private(&self, name: &HostName, port: u16) -> bool {
        !matches!(self.private.verdict(name, port), Verdict::Denied(_))
    }

    /// True if the operator has named services under this name, on any port.
    pub(crate) fn names_private(&self, name: &HostName) -> bool {
        self.private.names_reached(name)
    }

    /// True if the operator has named this address, or its network, as one that services may have.
    pub(crate) fn may_be_dialled(&self, address: IpAddr, port: u16) -> bool {
        self.private.address(address, port).is_ok()
    }

    pub(crate) fn permits_of_all(&self) -> Arc<Semaphore> {
        self.permits_of_all.clone()
    }

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

/// Returns the verdict of the rules on a connection: a name by its rules, an address by the rules of its network.
pub(crate) fn verdict(rules: &Rules, to: &Destination) -> Verdict {
    match &to.host {
        Host::Name(name) => rules.verdict(name, to.port),
        Host::Address(address) => match rules.address(*address, to.port) {
            Ok(()) => Verdict::Open,
            Err(why) => Verdict::Denied(why),
        },
    }
}
