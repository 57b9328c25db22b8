//! The egress of sandboxes: sockets, rules as they are now, and what was reached.

mod asking;
mod redaction;
mod web;

use crate::{
    approval::Approvals,
    backend::{EgressEnds, RawOutcome},
    caller::Requester,
    error::{Result, denial},
    events::{EgressFacts, EventKind},
    policy::{self, Approved, Grant},
    policy_store::PolicyStore,
    sandbox::Sandboxes,
    secrets::SecretLease,
    settings::{EgressPolicy, EgressSettings, PolicySettings},
    sync::lock,
    telemetry::Telemetry,
};
use asking::{ApprovalScope, AskHook, Open};
use redaction::EgressRedactor;
use ringfence_backend::{Arrival, Arrivals, ListenerKind, NAMES_FROM};
use ringfence_egress::{
    BoundSecret, Dialer, DialerSettings, EgressEvent, EgressOwner, EgressReport, EventSink, Forwarded,
    InspectedHosts, Inspection, Lease, LeaseOptions, Purpose, Rule, Rules, Sockets, Trust,
};
use ringfence_jail::EgressSockets;
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_types::{AllowedDomains, Denial, Namespace, RequestError, SessionId, Tier};
use serde_json::{Value, json};
use std::{
    fmt::Display,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, Once, OnceLock, Weak},
};
use tokio::sync::{mpsc, watch};

/// What is read there is no TLS.
const HTTP_PORT: u16 = 80;
/// Hosts that stand in one record.
const RECORDED_MAX: usize = 32;

/// What all egress of a server shares.
pub(crate) struct Egress {
    dialer: OnceLock<Arc<Dialer>>,
    trust: OnceLock<Arc<Trust>>,
    /// Of search providers, whose hosts the operator has named.
    providers: OnceLock<Arc<Dialer>>,
    open: Mutex<Vec<Weak<LeasePolicy>>>,
    /// Somebody listens to what is approved.
    listens: Once,
    settings: EgressSettings,
    policy: Arc<PolicyStore>,
    approvals: Arc<Approvals>,
    telemetry: Telemetry,
    pub(crate) tier: Tier,
}

/// Whose rules a lease has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleSource {
    Programs,
    /// The server's own connections for the web tools, and those of its browser.
    Web,
}

impl RuleSource {
    fn of(self, policy: &PolicySettings) -> &EgressPolicy {
        match self {
            Self::Programs => &policy.egress,
            Self::Web => &policy.web,
        }
    }
}

struct LeasePolicy {
    source: RuleSource,
    namespace: Namespace,
    session: Option<SessionId>,
    asked: AllowedDomains,
    /// What the run, or the call, that goes on has for itself.
    own: Mutex<CallOverrides>,
    rules: watch::Sender<Arc<Rules>>,
}

/// What one run or call has, and the next has not.
#[derive(Clone, Default, PartialEq, Eq)]
struct CallOverrides {
    once: Vec<Rule>,
    /// For a call of a session: those of the session's hosts that it names.
    named: Option<Rules>,
}

/// The egress of one sandbox. Dropping it cuts every connection.
pub(crate) struct EgressLease {
    /// While it is held, a change of the rules reaches it.
    terms: Arc<LeasePolicy>,
    lease: Lease,
    redactor: EgressRedactor,
    asking: Open,
}

pub(crate) enum LeaseOwner<'a> {
    Run(Requester),
    Session(&'a SessionId),
}

impl CallOverrides {
    fn of(grant: &Grant) -> Self {
        Self {
            once: grant.once.clone(),
            named: grant.named.clone(),
        }
    }
}

impl Egress {
    pub(crate) fn new(
        sandboxes: &Sandboxes,
        settings: EgressSettings,
        approvals: Arc<Approvals>,
        telemetry: Telemetry,
    ) -> Arc<Self> {
        Arc::new(Self {
            dialer: OnceLock::new(),
            trust: OnceLock::new(),
            providers: OnceLock::new(),
            open: Mutex::default(),
            listens: Once::new(),
            settings,
            policy: sandboxes.policy.clone(),
            approvals,
            telemetry,
            tier: sandboxes.tier,
        })
    }

    fn shared_dialer(&self) -> Result<Arc<Dialer>> {
        if let Some(dialer) = self.dialer.get() {
            return Ok(dialer.clone());
        }
        let made = dialer(&self.settings, self.settings.private.clone())?;
        Ok(self.dialer.get_or_init(|| made).clone())
    }

    /// From now on what changes reaches this lease, and what has changed since its grant was made. From the first lease
    /// on also what is approved, or ends.
    fn follow(self: &Arc<Self>, terms: &Arc<LeasePolicy>) {
        lock(&self.open).push(Arc::downgrade(terms));
        self.listens.call_once(|| {
            let (egress, mut changes) = (Arc::downgrade(self), self.approvals.store.changes());
            tokio::spawn(async move {
                while changes.changed().await.is_ok() {
                    let Some(egress) = egress.upgrade() else { return };
                    egress.refresh();
                }
            });
        });
        self.refresh();
    }

    /// Puts changed rules in force for open leases, and cuts what they do not allow.
    pub(crate) fn refresh(&self) {
        let terms: Vec<Arc<LeasePolicy>> = {
            let mut open = lock(&self.open);
            open.retain(|terms| terms.strong_count() > 0);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        for terms in terms {
            // Held until the rules are sent: of two refreshes at once, the second sees both changes.
            let own = lock(&terms.own);
            let policy = self.policy.current();
            let approved = Approved {
                once: own.once.clone(),
                ..self.approvals.approved(&terms.namespace, terms.session.as_ref())
            };
            let source = terms.source.of(&policy);
            let now = policy::again(source, &approved, &terms.namespace, &terms.asked);
            let now = policy::within(now, own.named.as_ref());
            terms.rules.send_if_modified(|rules| {
                let is_other = **rules != now;
                if is_other {
                    *rules = Arc::new(now);
                }
                is_other
            });
        }
    }

    /// What a namespace, or one of its sessions, may reach now that names no hosts.
    pub(crate) fn granted(
        &self,
        source: RuleSource,
        namespace: &Namespace,
        session: Option<&SessionId>,
    ) -> Rules {
        let approved = self.approvals.approved(namespace, session);
        let policy = self.policy.current();
        policy::again(source.of(&policy), &approved, namespace, &AllowedDomains::Granted)
    }

    /// Adds to a lease what the TLS of a sandbox is read with, where it has to be: for secrets that programs do not
    /// get, and for rules that depend on the request.
    pub(crate) async fn inspect(&self, grant: &Grant, lease: SecretLease) -> Result<SecretLease> {
        let policy = self.policy.current();
        let mut bound = Vec::new();
        for (name, value) in &lease.secrets {
            let places = policy.egress.places_of(&grant.request.namespace, name);
            if !places.is_empty() {
                let secret = BoundSecret::new(name.as_str(), value.expose(), places);
                bound.push(secret.map_err(unread)?);
            }
        }
        if bound.is_empty() && !grant.reaches.iter().any(is_read) {
            return Ok(lease);
        }
        let trust = self.trust().await?;
        let made = tokio::task::spawn_blocking(move || {
            let values = bound.iter().map(BoundSecret::value);
            let redactor = Redactor::new(values, Forms::All, Personal::Keep);
            Inspection::new(trust, bound, redactor)
        });
        let made = made.await.map_err(unread)?;
        let inspection = made.map_err(unread)?;
        Ok(SecretLease {
            inspection: Some(Arc::new(inspection)),
            ..lease
        })
    }

    /// What a browser's TLS is read with, where it has to be: for rules that depend on the request, and where the
    /// operator adds authorities, which no browser knows.
    pub(crate) async fn inspect_browser(&self, rules: &Rules) -> Result<Option<Arc<Inspection>>> {
        let hosts = match &self.settings.ca_file {
            Some(_) => InspectedHosts::All,
            None if rules.iter().any(is_read) => InspectedHosts::OfSecrets,
            None => return Ok(None),
        };
        let made = Inspection::of_browser(self.trust().await?, hosts);
        made.map(|made| Some(Arc::new(made))).map_err(unread)
    }

    /// The authorities that TLS to the outside trusts, read once.
    async fn trust(&self) -> Result<Arc<Trust>> {
        if let Some(trust) = self.trust.get() {
            return Ok(trust.clone());
        }
        let file = self.settings.ca_file.clone();
        let read = tokio::task::spawn_blocking(move || Trust::read(file.as_deref()));
        let read = read.await.map_err(unread)?;
        let trust = read.map_err(unread)?;
        // Two may have read it at once; either is good.
        Ok(self.trust.get_or_init(|| trust).clone())
    }

    /// The egress of an installer: its rules are the operator's own, whose index may have a private address.
    pub(crate) fn open_for_installer(
        &self,
        namespace: &Namespace,
        rules: &Rules,
        sockets: EgressSockets,
    ) -> Result<Lease> {
        let private = rules.iter().filter(|rule| !rule.is_network()).cloned().collect();
        let dialer = dialer(&self.settings, private)?;
        let (_, now) = watch::channel(Arc::new(rules.clone()));
        let options = options(Purpose::Programs, namespace, "packages", now, Arc::new(|_| {}));
        ringfence_egress::open(&dialer, sockets_of(sockets), options).map_err(fault)
    }

    /// Begins to serve the sockets of a sandbox, if it has any.
    pub(crate) fn open_for(
        self: &Arc<Self>,
        grant: &Grant,
        lease: &SecretLease,
        owner: LeaseOwner<'_>,
        ends: Option<EgressEnds>,
    ) -> Result<Option<EgressLease>> {
        let Some(ends) = ends else { return Ok(None) };
        let request = &grant.request;
        let (id, session) = match &owner {
            LeaseOwner::Run(by) => (by.execution_id.as_deref().unwrap_or_default(), None),
            LeaseOwner::Session(id) => (id.as_str(), Some(*id)),
        };
        let terms = Arc::new(LeasePolicy {
            source: RuleSource::Programs,
            namespace: request.namespace.clone(),
            session: session.cloned(),
            asked: request.allowed_domains.clone(),
            own: Mutex::new(CallOverrides::of(grant)),
            rules: watch::Sender::new(Arc::new(grant.reaches.clone())),
        });
        let dialer = self.shared_dialer()?;
        let redactor = EgressRedactor::of(lease);
        let asking = ApprovalScope::new(self, &terms, redactor.clone());
        let asked = Arc::new(AskHook(asking.clone()));
        let of = &request.namespace;
        let events = self.publisher(id, of, redactor.clone());
        let options = LeaseOptions {
            inspection: lease.inspection.clone(),
            approval: Some(asked),
            ..options(Purpose::Programs, of, id, terms.rules.subscribe(), events)
        };
        let lease = match ends {
            EgressEnds::Sockets(sockets) => {
                ringfence_egress::open(&dialer, sockets_of(sockets), options).map_err(fault)?
            }
            EgressEnds::Arrivals(arrivals) => {
                let forwarded = forwarded(arrivals);
                ringfence_egress::open_forwarded(&dialer, NAMES_FROM, forwarded, options)
            }
        };
        self.follow(&terms);
        let open = EgressLease {
            terms,
            lease,
            redactor,
            asking: Open(asking),
        };
        if let (LeaseOwner::Run(by), Some(patience)) = (owner, grant.asks) {
            open.asking.begin(by, patience);
        }
        Ok(Some(open))
    }

    fn publisher(self: &Arc<Self>, id: &str, namespace: &Namespace, redactor: EgressRedactor) -> EventSink {
        let (egress, id, namespace) = (Arc::downgrade(self), id.to_owned(), namespace.clone());
        Arc::new(move |happened| {
            if let Some(egress) = egress.upgrade() {
                egress.telemetry.metrics.count_egress(&happened);
                let bus = &egress.telemetry.bus;
                bus.publish(&namespace, Some(&id), event(happened, &redactor));
            }
        })
    }
}

fn unread(why: impl Display) -> RequestError {
    RequestError::fault(
        format!("TLS cannot be read, as a secret or a rule needs it: {why}."),
        "Install the host's certificates of authorities (`ca-certificates`), or name a file of them in `egress.ca_file`.",
    )
}

fn dialer(settings: &EgressSettings, private: Vec<Rule>) -> Result<Arc<Dialer>> {
    let made = Dialer::new(DialerSettings {
        resolvers: settings.resolvers.clone(),
        private,
        limits: settings.limits,
    });
    made.map_err(|error| {
        RequestError::fault(
            format!("of services that may be private, {error}."),
            "Name fewer in `egress.private`.",
        )
    })
}

fn sockets_of(sockets: EgressSockets) -> Sockets {
    Sockets {
        dns_udp: sockets.dns_udp,
        dns_tcp: sockets.dns_tcp,
        proxy: sockets.proxy,
        observer: Some(sockets.attempts),
        ports: sockets.ports,
    }
}

/// What a lease has whose TLS is not read, and for which no person is asked.
fn options(
    purpose: Purpose,
    namespace: &Namespace,
    id: &str,
    rules: watch::Receiver<Arc<Rules>>,
    events: EventSink,
) -> LeaseOptions {
    LeaseOptions {
        purpose,
        owner: EgressOwner {
            namespace: namespace.clone(),
            id: id.to_owned(),
        },
        rules,
        inspection: None,
        events,
        approval: None,
    }
}

/// What comes out of a container, as egress takes it; it ends with either.
fn forwarded(mut arrivals: Arrivals) -> mpsc::Receiver<Forwarded> {
    let (to, forwarded) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(arrival) = arrivals.recv().await {
            let forwarded = match arrival {
                Arrival::Question { query, answer } => Forwarded::Question(query, answer),
                Arrival::Connection { kind, meant, stream } => match kind {
                    ListenerKind::Proxy => Forwarded::Proxy(stream),
                    ListenerKind::Transparent => Forwarded::Connection(meant, stream),
                    ListenerKind::Names => Forwarded::Names(stream),
                },
            };
            if to.send(forwarded).await.is_err() {
                return;
            }
        }
    });
    forwarded
}

fn fault(error: io::Error) -> RequestError {
    RequestError::fault(
        format!("the egress could not be opened: {error}."),
        "Run `ringfence doctor` to see whether this host can make sandboxes.",
    )
}

/// Translates what the egress reports to an event.
fn event(happened: EgressEvent, redactor: &EgressRedactor) -> EventKind {
    let to = |host, port| EgressFacts {
        host,
        port,
        ..EgressFacts::default()
    };
    let mut event = match happened {
        EgressEvent::Connected(end) => EventKind::EgressConnected(EgressFacts {
            address: Some(end.address),
            ..to(Some(end.name), Some(end.port))
        }),
        EgressEvent::Closed {
            end,
            bytes_out,
            bytes_in,
        } => EventKind::EgressClosed(EgressFacts {
            address: Some(end.address),
            bytes_out: Some(bytes_out),
            bytes_in: Some(bytes_in),
            ..to(Some(end.name), Some(end.port))
        }),
        EgressEvent::Request {
            method,
            name,
            port,
            path,
            status,
            secrets,
        } => EventKind::EgressRequest(EgressFacts {
            method: Some(method),
            path: Some(path),
            status,
            secrets,
            ..to(Some(name), Some(port))
        }),
        EgressEvent::Denied(refusal) => EventKind::EgressRefused(EgressFacts {
            rule: Some(refusal.rule.as_str().to_owned()),
            what: Some(refusal.what),
            hint: Some(refusal.hint).filter(|hint| !hint.is_empty()),
            ..to(refusal.host, refusal.port)
        }),
        EgressEvent::Untold { count } => return EventKind::EgressUntold { count },
    };
    if let EventKind::EgressConnected(facts)
    | EventKind::EgressClosed(facts)
    | EventKind::EgressRequest(facts)
    | EventKind::EgressRefused(facts) = &mut event
    {
        redactor.over_facts(facts);
    }
    event
}

impl EgressLease {
    /// A call of the session begins. It has what was approved for it, no more than it names, and may ask for more where
    /// it names no host.
    pub(crate) fn begin_call(&self, egress: &Egress, grant: &Grant, by: Requester) {
        self.set_own(egress, CallOverrides::of(grant));
        if let Some(patience) = grant.asks {
            self.asking.begin(by, patience);
        }
    }

    /// It has ended, and what was its alone is gone.
    pub(crate) fn end_call(&self, egress: &Egress) {
        self.asking.end();
        self.set_own(egress, CallOverrides::default());
    }

    fn set_own(&self, egress: &Egress, own: CallOverrides) {
        let mut now = lock(&self.terms.own);
        if *now == own {
            return;
        }
        *now = own;
        drop(now);
        egress.refresh();
    }

    pub(crate) fn add_ports(&self, ports: Vec<(u16, OwnedFd)>) -> Result<()> {
        self.lease.add_ports(ports).map_err(fault)
    }

    /// What was done since somebody asked last.
    pub(crate) fn report(&self) -> EgressReport {
        let mut traffic = self.lease.take_report();
        self.redactor.over_traffic(&mut traffic);
        traffic
    }

    /// Cuts what is still open, and says the same.
    async fn close(self) -> EgressReport {
        let mut traffic = self.lease.close().await;
        self.redactor.over_traffic(&mut traffic);
        traffic
    }
}

/// What egress was used for, for the result and for the record.
#[derive(Default)]
pub(crate) struct Reached {
    pub(crate) denials: Vec<Denial>,
    pub(crate) recorded: Option<Value>,
}

impl Reached {
    pub(crate) fn of(traffic: Option<EgressReport>, packets_unrouted: u64) -> Self {
        let traffic = traffic.unwrap_or_default();
        let recorded = recorded(&traffic);
        let mut denials = traffic.denials;
        denials.extend(unrouted(packets_unrouted));
        Self { denials, recorded }
    }
}

/// The end of an installer's egress: what it was refused.
pub(crate) async fn refused(lease: Option<Lease>, raw: &RawOutcome) -> Vec<Denial> {
    let mut refused = match lease {
        Some(lease) => lease.close().await.denials,
        None => Vec::new(),
    };
    refused.extend(unrouted(raw.ending.usage.unrouted));
    refused
}

pub(crate) async fn close(lease: Option<EgressLease>, raw: &RawOutcome) -> Reached {
    let traffic = match lease {
        Some(lease) => Some(lease.close().await),
        None => None,
    };
    Reached::of(traffic, raw.ending.usage.unrouted)
}

/// Packets that had no route, as a caller is told. Other connections are told by host and port.
fn unrouted(packets: u64) -> Option<Denial> {
    let what = format!(
        "No network access by UDP, by IPv6, or to an address without a name: {packets} packet(s) had no route"
    );
    let hint =
        "Connect by TCP, to hosts by their names. The operator can allow an address in `egress.allow`.";
    (packets > 0).then(|| denial("egress.no_route", "network_namespace", what, hint))
}

pub(crate) fn recorded(traffic: &EgressReport) -> Option<Value> {
    if traffic.reached.is_empty() && traffic.denials.is_empty() {
        return None;
    }
    let reached: Vec<Value> = traffic
        .reached
        .iter()
        .take(RECORDED_MAX)
        .map(|to| {
            json!({
                "name": to.end.name, "port": to.end.port, "address": to.end.address, "connections": to.connections,
                "requests": to.requests, "bytes_out": to.bytes_out, "bytes_in": to.bytes_in,
            })
        })
        .collect();
    let denied: Vec<Value> = traffic
        .denials
        .iter()
        .take(RECORDED_MAX)
        .map(|denial| json!({"rule": denial.rule, "what": denial.what}))
        .collect();
    let untold = traffic.reached.len().saturating_sub(RECORDED_MAX) as u64 + traffic.more.connections;
    let undenied = traffic.denials.len().saturating_sub(RECORDED_MAX) as u64 + traffic.more.denials;
    Some(json!({"reached": reached, "denied": denied, "more_reached": untold, "more_denied": undenied}))
}

fn is_read(rule: &Rule) -> bool {
    rule.needs_request() && rule.ports().iter().any(|port| *port != HTTP_PORT)
}
