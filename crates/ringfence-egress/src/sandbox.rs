//! The egress of one sandbox, which all its connections share: permits, bytes spent, names, events and the report.

use crate::{
    Destination, EgressEvent, EventSink, Host, HostName, Inspection, Names, RefusalRule, Rules,
    approval::{ApprovalHook, Approver, NotApproved, Unlisted, can_be_reached},
    destination::TLS_PORT,
    dialer::{CONNECTIONS_MAX, Dialer, Purpose},
    refusal::Refusal,
    report::Report,
    token_bucket::TokenBucket,
};
use ringfence_types::Namespace;
use std::{
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Maximum events published at once, and per second after that; more are only counted.
const EVENTS_BURST: u32 = 1000;
const EVENTS_PER_SECOND: u32 = 200;

const PER_NAMESPACE: &str = "egress.connections_per_namespace";
pub(crate) const SPENT: &str = "have the operator raise `egress.sent_mb` or `egress.received_mb`";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressOwner {
    pub namespace: Namespace,
    /// The execution or session, for the operator's log.
    pub id: String,
}

pub struct LeaseOptions {
    pub owner: EgressOwner,
    pub purpose: Purpose,
    /// May change at any time: a connection that they no longer allow is cut.
    pub rules: watch::Receiver<Arc<Rules>>,
    /// For TLS that rules or secrets require to be inspected; without it such connections are refused.
    pub inspection: Option<Arc<Inspection>>,
    /// Called from the threads of the runtime; must not block.
    pub events: EventSink,
    /// Decides about connections that no rule allows by name or port; without it they are denied.
    pub approval: Option<Arc<dyn ApprovalHook>>,
}

pub(crate) struct SandboxEgress {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) rules: watch::Receiver<Arc<Rules>>,
    pub(crate) report: Report,
    pub(crate) inspection: Option<Arc<Inspection>>,
    /// `None`: connections that no rule allows are denied.
    approver: Option<Approver>,
    owner: EgressOwner,
    pub(crate) purpose: Purpose,
    names: Mutex<Names>,
    events: EventSink,
    rate_limit: Mutex<(TokenBucket, u64)>,
    permits: Arc<Semaphore>,
    permits_of_namespace: Arc<Semaphore>,
    bytes_sent: ByteCount,
    bytes_received: ByteCount,
}

#[derive(Debug, Default)]
struct ByteCount {
    bytes: AtomicU64,
    is_reported: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Out,
    In,
}

/// A connection's permits: the sandbox's, the namespace's and the server's. Dropping it frees them.
#[derive(Debug)]
pub(crate) struct Permit {
    _of_sandbox: OwnedSemaphorePermit,
    _of_namespace: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl SandboxEgress {
    pub(crate) fn new(dialer: &Arc<Dialer>, options: LeaseOptions, names: Names) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(
            dialer.limits().connections.min(Semaphore::MAX_PERMITS),
        ));
        let permits_of_namespace = dialer.permits_of(&options.owner.namespace);
        Arc::new(Self {
            dialer: dialer.clone(),
            rules: options.rules,
            report: Report::default(),
            inspection: options.inspection,
            approver: options
                .approval
                .map(|hook| Approver::new(hook, dialer.limits().connections)),
            owner: options.owner,
            purpose: options.purpose,
            names: Mutex::new(names),
            events: options.events,
            rate_limit: Mutex::new((TokenBucket::new(EVENTS_BURST, EVENTS_PER_SECOND), 0)),
            permits,
            permits_of_namespace,
            bytes_sent: ByteCount::default(),
            bytes_received: ByteCount::default(),
        })
    }

    pub(crate) fn owner(&self) -> &EgressOwner {
        &self.owner
    }

    pub(crate) fn rules_now(&self) -> Arc<Rules> {
        self.rules.borrow().clone()
    }

    pub(crate) fn name_of(&self, address: Ipv4Addr) -> Option<HostName> {
        self.names().name_of(address).cloned()
    }

    /// Locks the names of this sandbox. Must not be held over anything slow.
    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn permit(&self) -> Result<Permit, Refusal> {
        let limits = self.dialer.limits();
        let full = |how_many: usize, holder: &str, setting: &str| {
            Refusal::plain(
                RefusalRule::Limit,
                format!("more than {how_many} connections of {holder} at once"),
                &format!("close connections that are done, or have the operator raise `{setting}`"),
            )
        };
        let of_sandbox = self.permits.clone().try_acquire_owned();
        let of_sandbox =
            of_sandbox.map_err(|_| full(limits.connections, "this sandbox", "egress.connections"))?;
        let of_namespace = self.permits_of_namespace.clone().try_acquire_owned();
        let of_namespace = of_namespace
            .map_err(|_| full(limits.connections_per_namespace, "this namespace", PER_NAMESPACE))?;
        let of_all = self.dialer.permits_of_all().try_acquire_owned().map_err(|_| {
            let what = format!("more than {CONNECTIONS_MAX} connections of this server's sandboxes at once");
            Refusal::plain(RefusalRule::Limit, what, "try again later")
        })?;
        Ok(Permit {
            _of_sandbox: of_sandbox,
            _of_namespace: of_namespace,
            _of_all: of_all,
        })
    }

    /// Counts bytes before they are forwarded. If this fails, the sandbox may not move that many, and they must not be.
    pub(crate) fn spend(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        let limits = self.dialer.limits();
        let (count, most, verb) = match direction {
            Direction::Out => (&self.bytes_sent, limits.bytes_out, "sent"),
            Direction::In => (&self.bytes_received, limits.bytes_in, "received"),
        };
        let before = count.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) <= most {
            return Ok(());
        }
        if !count.is_reported.swap(true, Ordering::Relaxed) {
            let what = format!("more than {most} bytes {verb} by this sandbox");
            self.refuse(&Refusal::plain(RefusalRule::Limit, what, SPENT));
        }
        Err(io::Error::other("the sandbox has reached its byte limit"))
    }

    /// Reports a refusal, and publishes the first of its kind.
    pub(crate) fn refuse(&self, refusal: &Refusal) {
        if let Some(name) = &refusal.host {
            self.names().mark_reported(name);
        }
        let refusal = self.with_hint(refusal.clone());
        if self.report.refused(&refusal) {
            self.publish(EgressEvent::Denied(refusal));
        }
    }

    /// Publishes an event, unless there are too many.
    pub(crate) fn publish(&self, what: EgressEvent) {
        {
            let (rate_limit, left_out) = &mut *self.rate_limit.lock().unwrap_or_else(PoisonError::into_inner);
            if !rate_limit.allows() {
                *left_out += 1;
                return;
            }
        }
        self.publish_left_out();
        (self.events)(what);
    }

    pub(crate) fn publish_left_out(&self) {
        let count = std::mem::take(&mut self.rate_limit.lock().unwrap_or_else(PoisonError::into_inner).1);
        if count > 0 {
            (self.events)(EgressEvent::Untold { count });
        }
    }

    pub(crate) fn unlisted(&self, name: &HostName) -> Unlisted {
        match &self.approver {
            Some(approver) if approver.hook.is_available() && can_be_reached(&self.dialer, name) => {
                Unlisted::Asked
            }
            _ => Unlisted::Refused,
        }
    }

    pub(crate) fn with_hint(&self, mut refusal: Refusal) -> Refusal {
        let is_advised = matches!(refusal.rule, RefusalRule::Name | RefusalRule::Port);
        if let (true, Some(approver), Some(host)) = (is_advised, &self.approver, &refusal.host)
            && let Ok(to) = Destination::read(host, Some(refusal.port.unwrap_or(TLS_PORT)))
            && let Some(hint) = approver.hook.hint(&to)
        {
            refusal.hint = hint;
        }
        refusal
    }

    /// True if approval may be asked for after a refusal by this rule.
    pub(crate) fn may_ask(&self, to: &Destination, refused: RefusalRule) -> bool {
        let by_name = matches!(refused, RefusalRule::Name | RefusalRule::Port);
        let name = to.host.name().filter(|_| by_name);
        name.is_some_and(|name| self.unlisted(name) == Unlisted::Asked)
    }

    /// Asks for approval of a held connection, and waits for the decision.
    pub(crate) async fn ask(&self, to: &Destination) -> Result<(), NotApproved> {
        let (Some(approver), Host::Name(name)) = (&self.approver, &to.host) else {
            return Err(NotApproved("approval cannot be asked for".to_owned()));
        };
        let Ok(_held) = approver.held.try_acquire() else {
            let why = "approval was not asked for: too many connections wait already";
            return Err(NotApproved(why.to_owned()));
        };
        // A name from the proxy was never looked up; the data that it can carry is bounded here, too.
        let rules = self.rules_now();
        let admitted = self.names().admit_or_ask(name, &rules);
        admitted.map_err(|full| NotApproved(format!("approval was not asked for: {full}")))?;
        approver.hook.ask(to.clone()).await
    }
}
