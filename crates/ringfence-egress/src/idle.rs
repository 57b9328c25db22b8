//! Sockets of a sandbox before their first use. Most programs never use one, so all of them wait behind one descriptor;
//! on the first use of any of them, each is registered with the runtime and gets a task.

use crate::{
    dns_server::DnsServer,
    listener::{admit, serve},
    sandbox::SandboxEgress,
};
use rustix::event::epoll;
use std::{io, os::fd::OwnedFd, sync::Arc};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{mpsc, watch},
    task::JoinSet,
};

#[derive(Clone, Copy)]
pub(crate) enum ServiceKind {
    DnsUdp,
    DnsTcp,
    Proxy,
    /// Connections to addresses assigned to names, or to addresses of networks that rules name.
    Transparent,
}

pub(crate) struct Service {
    kind: ServiceKind,
    socket: OwnedFd,
}

impl Service {
    pub(crate) fn new(kind: ServiceKind, socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { kind, socket })
    }
}

/// Sockets before their first use, behind one epoll(7) descriptor, which is readable as soon as one of them is.
pub(crate) struct Idle {
    epoll: AsyncFd<OwnedFd>,
    services: Vec<Service>,
}

impl Idle {
    /// Must be called in a runtime.
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, for types with a descriptor that may change; an OwnedFd's does not"
    )]
    pub(crate) fn new(services: Vec<Service>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut idle = Self {
            epoll: AsyncFd::with_interest(epoll, Interest::READABLE)?,
            services: Vec::with_capacity(services.len()),
        };
        for service in services {
            idle.add(service)?;
        }
        Ok(idle)
    }

    pub(crate) fn add(&mut self, service: Service) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(self.epoll.get_ref(), &service.socket, data, epoll::EventFlags::IN)?;
        self.services.push(service);
        Ok(())
    }
}

/// Waits until the sandbox uses one of its sockets, then serves all of them until the lease is closed.
pub(crate) async fn serve_all(
    mut idle: Idle,
    sandbox: Arc<SandboxEgress>,
    closed: watch::Receiver<()>,
    mut added: mpsc::UnboundedReceiver<Service>,
    used: watch::Sender<bool>,
) {
    let mut closing = closed.clone();
    loop {
        tokio::select! {
            biased;
            _ = idle.epoll.readable() => break,
            Some(service) = added.recv() => if let Err(error) = idle.add(service) {
                tracing::error!(%error, "a port has no listener");
            },
            _ = closing.changed() => return,
        }
    }
    used.send_replace(true);
    let starter = ServiceStarter {
        dns_server: DnsServer::new(sandbox.clone()),
        sandbox,
        closed,
    };
    let Idle { epoll, services } = idle;
    drop(epoll);
    let mut tasks = JoinSet::new();
    for service in services {
        starter.start(service, &mut tasks);
    }
    loop {
        tokio::select! {
            Some(service) = added.recv() => starter.start(service, &mut tasks),
            Some(_) = tasks.join_next() => {}
            _ = closing.changed() => break,
        }
    }
    // Each task ends its connections and waits for their end.
    while tasks.join_next().await.is_some() {}
}

struct ServiceStarter {
    dns_server: Arc<DnsServer>,
    sandbox: Arc<SandboxEgress>,
    closed: watch::Receiver<()>,
}

impl ServiceStarter {
    fn start(&self, service: Service, tasks: &mut JoinSet<()>) {
        let (names, sandbox, closed) = (self.dns_server.clone(), self.sandbox.clone(), self.closed.clone());
        let Service { kind, socket } = service;
        let started = match kind {
            ServiceKind::DnsUdp => {
                UdpSocket::from_std(socket.into()).map(|socket| tasks.spawn(names.serve_udp(socket, closed)))
            }
            ServiceKind::DnsTcp => TcpListener::from_std(socket.into()).map(|listener| {
                let connection = move |stream| Some(names.clone().serve_connection(stream));
                tasks.spawn(serve(listener, sandbox, closed, connection))
            }),
            ServiceKind::Proxy => TcpListener::from_std(socket.into()).map(|listener| {
                let connection = move |stream| admit(&sandbox, stream, None);
                tasks.spawn(serve(listener, self.sandbox.clone(), closed, connection))
            }),
            ServiceKind::Transparent => TcpListener::from_std(socket.into()).map(|listener| {
                let connection = move |stream: TcpStream| {
                    // A connection without a local address has ended already.
                    let original_dst = stream.local_addr().ok()?;
                    admit(&sandbox, stream, Some(original_dst))
                };
                tasks.spawn(serve(listener, self.sandbox.clone(), closed, connection))
            }),
        };
        if let Err(error) = started {
            tracing::error!(%error, "a socket of a sandbox is not served");
        }
    }
}
