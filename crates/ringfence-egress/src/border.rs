//! One sandbox's border: what all its connections share. Who may sit down, what was spent, who is told.

use crate::{
    Destination, Happened, Host, HostName, Inspection, Names, RefusalRule, Rules, Who,
    asks::{Asking, Asks},
    carried::Carried,
    dial::dial,
    outside::{CONNECTIONS_MAX, Outside},
    pace::Pace,
    refusal::Refusal,
    traffic::{End, Heard, Report},
};
use std::{
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

/// Events that are told at once, and how many a second after that; the others are only counted.
const EVENTS_BURST: u32 = 1000;
const EVENTS_PER_SECOND: u32 = 200;

/// Names of settings, for hints.
const PER_NAMESPACE: &str = "egress.connections_per_namespace";
const SPENT: &str = "have the operator raise `egress.sent_mb` or `egress.received_mb`";

/// Where events go.
pub type Tell = Arc<dyn Fn(Happened) + Send + Sync>;

/// What the connections of one sandbox share.
pub(crate) struct Border {
    pub(crate) outside: Arc<Outside>,
    pub(crate) rules: watch::Receiver<Arc<Rules>>,
    pub(crate) report: Report,
    /// What its TLS is read with, where it has to be.
    pub(crate) inspection: Option<Arc<Inspection>>,
    /// None: what no rule allows is denied.
    pub(crate) asking: Option<Asking>,
    who: Who,
    names: Mutex<Names>,
    tell: Tell,
    pace: Mutex<(Pace, u64)>,
    seats: Arc<Semaphore>,
    seats_of_namespace: Arc<Semaphore>,
    out: Spent,
    back: Spent,
}

/// Bytes of one direction, of all connections.
#[derive(Debug, Default)]
struct Spent {
    bytes: AtomicU64,
    told: AtomicBool,
}

/// Which way bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the sandbox.
    Out,
    /// Into it.
    Back,
}

/// A connection's seats: the sandbox's and the namespace's. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct Seat {
    _of_sandbox: OwnedSemaphorePermit,
    _of_namespace: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// An open connection to the outside.
pub(crate) struct Upstream {
    pub(crate) stream: TcpStream,
    pub(crate) carried: Arc<Carried>,
}

impl Border {
    pub(crate) fn new(
        outside: &Arc<Outside>,
        who: Who,
        rules: watch::Receiver<Arc<Rules>>,
        inspection: Option<Arc<Inspection>>,
        tell: Tell,
        asks: Option<Arc<dyn Asks>>,
    ) -> Arc<Self> {
        let seats = Arc::new(Semaphore::new(
            outside.limits().connections.min(Semaphore::MAX_PERMITS),
        ));
        let seats_of_namespace = outside.seats_of(&who.namespace);
        Arc::new(Self {
            outside: outside.clone(),
            rules,
            report: Report::default(),
            inspection,
            asking: asks.map(|asks| Asking::new(asks, outside.limits().connections)),
            who,
            names: Mutex::new(Names::default()),
            tell,
            pace: Mutex::new((Pace::new(EVENTS_BURST, EVENTS_PER_SECOND), 0)),
            seats,
            seats_of_namespace,
            out: Spent::default(),
            back: Spent::default(),
        })
    }

    /// Whose border it is.
    pub(crate) fn who(&self) -> &Who {
        &self.who
    }

    /// The rules as they are now.
    pub(crate) fn rules_now(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    /// The name that an address of the sandbox means.
    pub(crate) fn name_of(&self, address: Ipv4Addr) -> Option<HostName> {
        self.names().name_of(address).cloned()
    }

    /// The names of this sandbox. Not to be held over anything slow.
    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a connection, or the refusal.
    pub(crate) fn seat(&self) -> Result<Seat, Refusal> {
        let limits = self.outside.limits();
        let full = |how_many: usize, whose: &str, setting: &str| {
            Refusal::plain(
                RefusalRule::Limit,
                format!("more than {how_many} connections of {whose} at once"),
                &format!("close connections that are done, or have the operator raise `{setting}`"),
            )
        };
        let of_sandbox = self.seats.clone().try_acquire_owned();
        let of_sandbox =
            of_sandbox.map_err(|_| full(limits.connections, "this sandbox", "egress.connections"))?;
        let of_namespace = self.seats_of_namespace.clone().try_acquire_owned();
        let of_namespace = of_namespace
            .map_err(|_| full(limits.connections_per_namespace, "this namespace", PER_NAMESPACE))?;
        let of_all = self.outside.seats_of_all().try_acquire_owned().map_err(|_| {
            let what = format!("more than {CONNECTIONS_MAX} connections of this server's sandboxes at once");
            Refusal::plain(RefusalRule::Limit, what, "try again later")
        })?;
        Ok(Seat {
            _of_sandbox: of_sandbox,
            _of_namespace: of_namespace,
            _of_all: of_all,
        })
    }

    /// Counts bytes against what the sandbox may move, before they are passed on.
    ///
    /// # Errors
    /// It may not move that much; what has read them keeps them.
    pub(crate) fn spend(&self, way: Way, bytes: usize) -> io::Result<()> {
        let limits = self.outside.limits();
        let (spent, most, said) = match way {
            Way::Out => (&self.out, limits.bytes_out, "sent"),
            Way::Back => (&self.back, limits.bytes_in, "received"),
        };
        let before = spent.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) <= most {
            return Ok(());
        }
        if !spent.told.swap(true, Ordering::Relaxed) {
            let what = format!("more than {most} bytes {said} by this sandbox");
            self.refuse(&Refusal::plain(RefusalRule::Limit, what, SPENT));
        }
        Err(io::Error::other(
            "the sandbox has moved all the bytes that it may",
        ))
    }

    /// Notes a refusal, and tells of it where it is news.
    pub(crate) fn refuse(&self, refusal: &Refusal) {
        if self.report.refused(refusal) == Heard::First {
            let Refusal {
                rule,
                host,
                port,
                what,
                hint,
            } = refusal.clone();
            self.happened(Happened::Denied {
                rule,
                host,
                port,
                what,
                hint,
            });
        }
    }

    /// Tells, unless too much happens to tell each.
    pub(crate) fn happened(&self, what: Happened) {
        {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let (pace, untold) = &mut *pace;
            if !pace.allows() {
                *untold += 1;
                return;
            }
        }
        self.tell_of_untold();
        (self.tell)(what);
    }

    /// Tells how many events were not told, where there are such.
    pub(crate) fn tell_of_untold(&self) {
        let count = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut pace.1)
        };
        if count > 0 {
            (self.tell)(Happened::Untold { count });
        }
    }

    /// Connects to a destination that the caller has judged by name and by what was said.
    pub(crate) async fn dial(self: &Arc<Self>, to: &Destination) -> Result<Upstream, Refusal> {
        // With nothing left to spend there is nothing to say, and nobody to disturb.
        if self.spend(Way::Out, 0).is_err() || self.spend(Way::Back, 0).is_err() {
            let what = format!("{to}: this sandbox has moved all the bytes that it may");
            return Err(Refusal::of(RefusalRule::Limit, to, what, SPENT));
        }
        if let Host::Name(name) = &to.host {
            // A name that is resolved leaves as one, so wildcards have their limits here too.
            let admitted = self.names().admit(name, &self.rules.borrow());
            admitted.map_err(|full| {
                Refusal::of(RefusalRule::Limit, to, format!("{to}: {full}"), &full.hint(name))
            })?;
        }
        let (stream, address) = dial(&self.outside, &self.rules_now(), to).await?;
        let end = End {
            name: to.host.to_string(),
            port: to.port,
            address,
        };
        Ok(Upstream {
            stream,
            carried: Carried::begin(self.clone(), end),
        })
    }
}
