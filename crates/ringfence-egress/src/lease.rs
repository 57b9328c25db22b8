//! A sandbox's way out for as long as it is open: begun with the sockets that were made inside it, asked what went through,
//! and closed. Dropping it cuts everything that is left.

use crate::{
    Asks, Destination, Host, Inspection, Names, Outside, Rules, Traffic,
    border::{Border, Tell},
    course::opened,
    door::{Door, serve},
    observer::Observer,
    questions::Questions,
};
use ringfence_types::Namespace;
use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, TcpListener as PlainListener, UdpSocket as PlainUdp},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

/// How long the doors have to end; what is left then is dropped where it stands.
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

/// Whose way out it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The tenant, whose sandboxes share limits.
    pub namespace: Namespace,
    /// The execution or session, for the operator's log.
    pub id: String,
}

/// Something that happened on the way out. Texts out of the sandbox are escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A connection to the outside was opened.
    Connected {
        /// The name that was asked for, or the address where that was.
        name: String,
        /// Port.
        port: u16,
        /// The address that was dialled.
        address: IpAddr,
    },
    /// Something was refused, for the first time since a report was taken.
    Denied {
        /// By which rule.
        rule: crate::RefusalRule,
        /// Whom it was for, where that is known.
        host: Option<String>,
        /// Which port, where that is known.
        port: Option<u16>,
        /// What was refused.
        what: String,
        /// The smallest change that would allow it; may be empty.
        hint: String,
    },
    /// A request was passed on, and answered or not.
    Request {
        /// Method.
        method: String,
        /// Host.
        name: String,
        /// Port.
        port: u16,
        /// Path, without the query.
        path: String,
        /// The answer's status; none: there was no answer.
        status: Option<u16>,
        /// Names of the secrets that were put into it.
        secrets: Vec<String>,
    },
    /// A connection to the outside has ended.
    Closed {
        /// As when it was opened.
        name: String,
        /// Port.
        port: u16,
        /// Address.
        address: IpAddr,
        /// Requests that went over it, where it was one that is read.
        requests: u64,
        /// Bytes that left.
        bytes_out: u64,
        /// Bytes that came.
        bytes_in: u64,
        /// How long it was open.
        duration: Duration,
    },
    /// So many events before the next were not told: there were too many at once.
    Untold {
        /// How many.
        count: u64,
    },
}

/// An open way out.
pub struct Lease {
    border: Arc<Border>,
    observer: Option<Observer>,
    /// Dropping it ends everything that runs for it.
    doors: Mutex<Doors>,
    closing: watch::Sender<()>,
}

#[derive(Default)]
struct Doors {
    tasks: JoinSet<()>,
    ports: BTreeSet<u16>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Lease")
            .field("who", self.border.who())
            .finish_non_exhaustive()
    }
}

/// Begins to serve, in the runtime that this is called in. The rules may change at any time: a connection that they no
/// longer allow is cut. TLS that has to be read is so with `inspection`, and refused without. `tell` is called from that
/// runtime's threads and must not block. `asks` is asked about connections that no rule allows by name or port; none: they
/// are denied.
///
/// # Errors
/// A descriptor is no socket of its kind.
pub fn open(
    outside: &Arc<Outside>,
    who: Who,
    sockets: Sockets,
    rules: watch::Receiver<Arc<Rules>>,
    inspection: Option<Arc<Inspection>>,
    tell: Tell,
    asks: Option<Arc<dyn Asks>>,
) -> io::Result<Lease> {
    open_with(Border::new(outside, who, rules, inspection, tell, asks), sockets)
}

fn open_with(border: Arc<Border>, sockets: Sockets) -> io::Result<Lease> {
    let (closing, closed) = watch::channel(());
    let questions = Questions::new(border.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(
        questions
            .clone()
            .serve_udp(datagrams(sockets.dns_udp)?, closed.clone()),
    );
    tasks.spawn(questions.serve_tcp(listener(sockets.dns_tcp)?, closed.clone()));
    tasks.spawn(serve(
        Door::Proxy,
        listener(sockets.proxy)?,
        border.clone(),
        closed,
    ));
    let lease = Lease {
        border,
        observer: sockets.observer.map(Observer::new).transpose()?,
        doors: Mutex::new(Doors {
            tasks,
            ports: BTreeSet::new(),
        }),
        closing,
    };
    lease.add_ports(sockets.ports)?;
    Ok(lease)
}

impl Lease {
    /// Listeners for ports that new rules name. To be called in the runtime that the lease was opened in.
    ///
    /// # Errors
    /// A descriptor is no listening socket; those before it are served.
    pub fn add_ports(&self, ports: Vec<(u16, OwnedFd)>) -> io::Result<()> {
        let mut doors = self.doors();
        for (port, socket) in ports {
            let closed = self.closing.subscribe();
            doors
                .tasks
                .spawn(serve(Door::Port, listener(socket)?, self.border.clone(), closed));
            doors.ports.insert(port);
        }
        Ok(())
    }

    /// The ports that are listened on.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.doors().ports.clone()
    }

    /// What happened since this was last asked. Connections go on.
    pub fn take_report(&self) -> Traffic {
        self.note_tried_ports();
        self.border.tell_of_untold();
        self.border.report.take()
    }

    /// Cuts everything, and says what happened since the report was last taken.
    pub async fn close(self) -> Traffic {
        let mut tasks = std::mem::take(&mut self.doors().tasks);
        self.note_tried_ports();
        // Each door ends its connections and waits for that; nobody is left who would be told of an error.
        self.closing.send_replace(());
        let ended = async { while tasks.join_next().await.is_some() {} };
        if timeout(CLOSE_TIME, ended).await.is_err() {
            tasks.shutdown().await;
        }
        self.border.tell_of_untold();
        self.border.report.take()
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections to names on ports that nobody listens on, which the kernel has refused.
    fn note_tried_ports(&self) {
        let Some(observer) = &self.observer else {
            return;
        };
        let (listened, rules) = (self.ports(), self.border.rules_now());
        for (address, port) in observer.tried() {
            if listened.contains(&port) {
                continue;
            }
            let Some(name) = self.border.name_of(address) else {
                continue;
            };
            let to = Destination {
                host: Host::Name(name),
                port,
            };
            // Rules that were added just now may allow what they did not when it was tried.
            if let Err(refusal) = opened(&rules, &to) {
                self.border.refuse(&refusal);
            }
        }
    }

    /// The names of the sandbox, for tests that connect to them.
    #[doc(hidden)]
    pub fn with_names<T>(&self, look: impl FnOnce(&mut Names) -> T) -> T {
        look(&mut self.border.names())
    }
}

fn listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = PlainListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn datagrams(socket: OwnedFd) -> io::Result<UdpSocket> {
    let socket = PlainUdp::from(socket);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
