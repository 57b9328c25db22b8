//! The egress lease of a sandbox: it is opened with sockets that were made inside the sandbox, reports the traffic, and
//! is closed. Dropping it cuts every connection.

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

/// Time for the listeners to end; the rest is aborted then.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Sockets that were made in the sandbox's network namespace.
#[derive(Debug)]
pub struct Sockets {
    /// UDP, bound to the address of the sandbox's name server.
    pub dns_udp: OwnedFd,
    /// TCP, listening at the same address.
    pub dns_tcp: OwnedFd,
    /// TCP, listening at the address of the proxy.
    pub proxy: OwnedFd,
    /// Raw TCP of IPv4, filtered to first segments; `None` if the kernel did not provide one.
    pub observer: Option<OwnedFd>,
    /// TCP, listening on one port each, at every address.
    pub ports: Vec<(u16, OwnedFd)>,
}

pub struct Lease {
    sandbox: Arc<SandboxEgress>,
    observer: Option<Observer>,
    /// Dropping it ends all tasks of the lease.
    listeners: Mutex<Listeners>,
    closing: watch::Sender<()>,
    /// True once the sandbox has used a socket.
    used: watch::Receiver<bool>,
}

struct Listeners {
    /// The one task that waits for the first connection and then serves all sockets.
    tasks: JoinSet<()>,
    queue: mpsc::UnboundedSender<Service>,
    ports: BTreeSet<u16>,
}

/// Serves the sockets, in the runtime that this is called in. Fails if one cannot be made non-blocking or polled.
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
    let (queue, added) = mpsc::unbounded_channel();
    let (is_used, used) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_all(idle, sandbox.clone(), closed, added, is_used));
    Ok(Lease {
        sandbox,
        observer: sockets.observer.map(Observer::new).transpose()?,
        listeners: Mutex::new(Listeners { tasks, queue, ports }),
        closing,
        used,
    })
}

/// Opens the lease of a sandbox whose network is elsewhere: its connections are handed over one by one. Its names have
/// addresses from `base` on. Must be called in a runtime.
pub fn open_forwarded(
    dialer: &Arc<Dialer>,
    base: Ipv4Addr,
    arrivals: mpsc::Receiver<Forwarded>,
    options: LeaseOptions,
) -> Lease {
    let sandbox = SandboxEgress::new(dialer, options, Names::from(base));
    let (closing, closed) = watch::channel(());
    // Ports are opened where the network is.
    let (queue, _) = mpsc::unbounded_channel();
    let (is_used, used) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(forwarded::serve(arrivals, sandbox.clone(), closed, is_used));
    Lease {
        sandbox,
        observer: None,
        listeners: Mutex::new(Listeners {
            tasks,
            queue,
            ports: BTreeSet::new(),
        }),
        closing,
        used,
    }
}

impl Lease {
    /// Adds listeners for ports that new rules name, in the runtime that the lease was opened in. If one cannot be made
    /// non-blocking, those before it are served.
    pub fn add_ports(&self, ports: Vec<(u16, OwnedFd)>) -> io::Result<()> {
        let mut listeners = self.listeners();
        for (port, socket) in ports {
            // Fails only for a forwarded lease, whose ports are opened where its network is.
            drop(
                listeners
                    .queue
                    .send(Service::new(ServiceKind::Transparent, socket)?),
            );
            listeners.ports.insert(port);
        }
        Ok(())
    }

    pub fn ports(&self) -> BTreeSet<u16> {
        self.listeners().ports.clone()
    }

    /// Takes the report since the last call. Connections continue.
    pub fn take_report(&self) -> EgressReport {
        self.report_failed_attempts();
        self.sandbox.publish_left_out();
        self.sandbox.report.take()
    }

    /// Cuts all connections, and returns the report since the last one.
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

    /// Reports connections to ports without a listener, which the kernel refused, and names that were only looked up.
    fn report_failed_attempts(&self) {
        let attempts = self.observer.iter().flat_map(Observer::attempts);
        let (listened, rules) = (self.ports(), self.sandbox.rules_now());
        for (address, port) in attempts {
            if listened.contains(&port) {
                continue;
            }
            let host = match self.sandbox.name_of(address) {
                Some(name) => Host::Name(name),
                // The program's own loopback, or a service of Ringfence.
                None if is_inside(address) => continue,
                None => Host::Address(address.into()),
            };
            let to = Destination { host, port };
            // Rules that were added in the meantime may allow it now.
            if let Err(refusal) = check_connection(&rules, &to) {
                self.sandbox.refuse(&refusal);
            }
        }
        let unreported = self.sandbox.names().take_unreported();
        for name in unreported.iter().filter(|name| !rules.names_reached(name)) {
            self.sandbox.refuse(&unconnected(name));
        }
    }
}
