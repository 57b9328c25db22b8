//! The egress lease of a sandbox: it begins with the sockets that were made inside the sandbox, reports what went
//! through, and is closed. Dropping it cuts every connection.

use crate::{
    Destination, Dialer, EgressReport, Host, Names,
    connection::{check_connection, unconnected},
    forwarded::{self, Forwarded},
    idle::{Idle, Service, ServiceKind, serve_all},
    names::is_inside,
    observer::Observer,
    sandbox::{LeaseOptions, SandboxEgress},
};
use std::{
    collections::BTreeSet,
    io,
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

/// How long the listeners have to end; what is left then is dropped.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Sockets that were made in the sandbox's network namespace.
#[derive(Debug)]
pub struct Sockets {
    /// UDP, bound where the sandbox's resolver asks.
    pub dns_udp: OwnedFd,
    /// TCP, listening there.
    pub dns_tcp: OwnedFd,
    /// TCP, listening where a proxy is expected.
    pub proxy: OwnedFd,
    /// Raw TCP of IPv4, filtered to first segments; none where the kernel did not give one.
    pub observer: Option<OwnedFd>,
    /// TCP, listening on one port each, at every address.
    pub ports: Vec<(u16, OwnedFd)>,
}

pub struct Lease {
    sandbox: Arc<SandboxEgress>,
    observer: Option<Observer>,
    /// Dropping it ends everything that runs for it.
    listeners: Mutex<Listeners>,
    closing: watch::Sender<()>,
    /// Whether the sandbox has used any socket.
    used: watch::Receiver<bool>,
}

struct Listeners {
    /// The one task that waits for the first connection and then serves all sockets.
    tasks: JoinSet<()>,
    more: mpsc::UnboundedSender<Service>,
    ports: BTreeSet<u16>,
}

/// Begins to serve, in the runtime that this is called in.
///
/// # Errors
/// A descriptor is not a socket of its kind.
pub fn open(dialer: &Arc<Dialer>, sockets: Sockets, options: LeaseOptions) -> io::Result<Lease> {
    let sandbox = SandboxEgress::new(dialer, options, Names::default());
    let (closing, closed) = watch::channel(());
    let mut idle = Idle::new(vec![
        Service::new(ServiceKind::DnsUdp, sockets.dns_udp)?,
        Service::new(ServiceKind::DnsTcp, sockets.dns_tcp)?,
        Service::new(ServiceKind::Proxy, sockets.proxy)?,
    ])?;
    let mut ports = BTreeSet::new();
    for (port, socket) in sockets.ports {
        idle.add(Service::new(ServiceKind::Transparent, socket)?)?;
        ports.insert(port);
    }
    let (more, added) = mpsc::unbounded_channel();
    let (is_used, used) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_all(idle, sandbox.clone(), closed, added, is_used));
    Ok(Lease {
        sandbox,
        observer: sockets.observer.map(Observer::new).transpose()?,
        listeners: Mutex::new(Listeners { tasks, more, ports }),
        closing,
        used,
    })
}

/// Begins to serve a sandbox whose network is elsewhere: its connections are handed over one by one. Its names have
/// addresses from `base` on. To be called in a runtime.
pub fn open_forwarded(
    dialer: &Arc<Dialer>,
    base: Ipv4Addr,
    arrivals: mpsc::Receiver<Forwarded>,
    options: LeaseOptions,
) -> Lease {
    let sandbox = SandboxEgress::new(dialer, options, Names::from(base));
    let (closing, closed) = watch::channel(());
    // Ports are opened where the network is.
    let (more, _) = mpsc::unbounded_channel();
    let (is_used, used) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(forwarded::serve(arrivals, sandbox.clone(), closed, is_used));
    Lease {
        sandbox,
        observer: None,
        listeners: Mutex::new(Listeners {
            tasks,
            more,
            ports: BTreeSet::new(),
        }),
        closing,
        used,
    }
}

impl Lease {
    /// Listeners for ports that new rules name. To be called in the runtime that the lease was opened in.
    ///
    /// # Errors
    /// A descriptor is no listening socket; those before it are served.
    pub fn add_ports(&self, ports: Vec<(u16, OwnedFd)>) -> io::Result<()> {
        let mut listeners = self.listeners();
        for (port, socket) in ports {
            // The task is there as long as the lease is.
            drop(
                listeners
                    .more
                    .send(Service::new(ServiceKind::Transparent, socket)?),
            );
            listeners.ports.insert(port);
        }
        Ok(())
    }

    pub fn ports(&self) -> BTreeSet<u16> {
        self.listeners().ports.clone()
    }

    /// What happened since this was last asked. Connections go on.
    pub fn take_report(&self) -> EgressReport {
        self.report_failed_attempts();
        self.sandbox.publish_left_out();
        self.sandbox.report.take()
    }

    /// Cuts everything, and says what happened since the report was last taken.
    pub async fn close(self) -> EgressReport {
        let mut tasks = std::mem::take(&mut self.listeners().tasks);
        // Without a connection there is nothing to wait for: dropping the task closes the sockets.
        if *self.used.borrow() {
            self.closing.send_replace(());
            let ended = async { while tasks.join_next().await.is_some() {} };
            if timeout(CLOSE_TIME, ended).await.is_err() {
                tasks.shutdown().await;
            }
        }
        self.take_report()
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports connections to ports without a listener, which the kernel has refused; and names that were only looked
    /// up.
    fn report_failed_attempts(&self) {
        let tried = self.observer.iter().flat_map(Observer::tried);
        let (listened, rules) = (self.ports(), self.sandbox.rules_now());
        for (address, port) in tried {
            if listened.contains(&port) {
                continue;
            }
            let host = match self.sandbox.name_of(address) {
                Some(name) => Host::Name(name),
                // The program's own affair, or a service of ours.
                None if is_inside(address) => continue,
                None => Host::Address(address.into()),
            };
            let to = Destination { host, port };
            // Rules that were added just now may allow what they did not when it was tried.
            if let Err(refusal) = check_connection(&rules, &to) {
                self.sandbox.refuse(&refusal);
            }
        }
        let untold = self.sandbox.names().take_untold();
        for name in untold.iter().filter(|name| !rules.names_reached(name)) {
            self.sandbox.refuse(&unconnected(name));
        }
    }
}
