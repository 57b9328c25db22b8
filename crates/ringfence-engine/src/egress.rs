//! The egress of sandboxes: sockets, current rules, and reports of what was reached.

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
    secrets::{SecretLease, Secrets},
    settings::{EgressPolicy, EgressSettings, PolicySettings},
    sync::lock,
    telemetry::Telemetry,
};
use asking::{ApprovalScope, ApprovalScopeGuard, AskHook};
use redaction::EgressRedactor;
use ringfence_backend::{Arrival, Arrivals, ListenerKind, NAMES_FROM};
use ringfence_egress::{
    BoundSecret, Dialer, DialerSettings, EgressEvent, EgressOwner, EgressReport, EventSink, Forwarded,
    InspectedHosts, Inspection, Lease, LeaseOptions, PlacesFuture, Purpose, Rule, Rules, SecretPlace,
    Sockets, Trust,
};
use ringfence_jail::EgressSockets;
use ringfence_store::vault::SecretValue;
use ringfence_types::{AllowedDomains, Denial, EnvName, ErrorCode, Namespace, RequestError, SessionId, Tier};
use serde_json::{Value, json};
use std::{
    fmt::Display,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, Once, OnceLock, Weak},
};
use tokio::sync::{mpsc, watch};

/// The port of plain HTTP, for which no TLS has to be inspected.
const HTTP_PORT: u16 = 80;
/// Maximum hosts, and denials, in one record.
const RECORDED_MAX: usize = 32;

pub(crate) struct Egress {
    dialer: OnceLock<Arc<Dialer>>,
    trust: OnceLock<Arc<Trust>>,
    /// The dialer for search providers, whose hosts the operator has configured.
    providers: OnceLock<Arc<Dialer>>,
    open: Mutex<Vec<Weak<LeasePolicy>>>,
    /// Starts the task that follows changes of approvals.
    follows_approvals: Once,
    settings: EgressSettings,
    policy: Arc<PolicyStore>,
    approvals: Arc<Approvals>,
    telemetry: Telemetry,
    pub(crate) tier: Tier,
}

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
    requested: AllowedDomains,
    overrides: Mutex<CallOverrides>,
    rules: watch::Sender<Arc<Rules>>,
}

/// The rules of one run or call, which the next does not get.
#[derive(Clone, Default, PartialEq, Eq)]
struct CallOverrides {
    once: Vec<Rule>,
    /// For a call of a session: the rules of the session's hosts that the call names.
    named: Option<Rules>,
}

/// The egress of one sandbox. Dropping it cuts every connection.
pub(crate) struct EgressLease {
    /// As long as this is held, changes of the rules reach the lease.
    policy: Arc<LeasePolicy>,
    lease: Lease,
    redactor: EgressRedactor,
    approvals: ApprovalScopeGuard,
}

pub(crate) enum LeaseOwner<'a> {
    Run(Requester),
    Session(&'a SessionId),
}

/// A secret of an open lease that is bound to hosts.
struct LeasedSecret {
    policy: Arc<PolicyStore>,
    secrets: Arc<Secrets>,
    namespace: Namespace,
    name: EnvName,
    value: Arc<SecretValue>,
}

impl LeasedSecret {
    /// Returns its present places: none once the policy no longer gives it to the namespace, or the vault no longer has
    /// this value.
    async fn places_now(self: Arc<Self>) -> Vec<SecretPlace> {
        let policy = self.policy.current();
        let places = policy.egress.places_of(&self.namespace, &self.name);
        if places.is_empty() || !policy.gives(&self.namespace, &self.name) {
            return Vec::new();
        }
        let names = [self.name.clone()];
        let secrets = &self.secrets;
        let asked = secrets.ask(&self.namespace, move |vault, of| vault.lease(of, &names));
        match asked.await {
            Ok(now) if now.iter().all(|(_, now)| now.expose() == self.value.expose()) => return places,
            Err(error) if error.code != ErrorCode::SecretUnavailable => {
                tracing::warn!(%error, "a bound secret cannot be compared with the vault's; it is not sent");
            }
            Ok(_) | Err(_) => {}
        }
        Vec::new()
    }
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
            follows_approvals: Once::new(),
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

    /// Makes changes of the rules reach this lease, also those since its grant; from the first lease on, approvals too.
    fn follow(self: &Arc<Self>, lease_policy: &Arc<LeasePolicy>) {
        lock(&self.open).push(Arc::downgrade(lease_policy));
        self.follows_approvals.call_once(|| {
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

    /// Applies changed rules to open leases, and cuts connections that they do not allow.
    pub(crate) fn refresh(&self) {
        let leases: Vec<Arc<LeasePolicy>> = {
            let mut open = lock(&self.open);
            open.retain(|lease| lease.strong_count() > 0);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        for lease in leases {
            // Held until the rules are sent: of two concurrent refreshes, the second sees both changes.
            let overrides = lock(&lease.overrides);
            let policy = self.policy.current();
            let approved = Approved {
                once: overrides.once.clone(),
                ..self.approvals.approved(&lease.namespace, lease.session.as_ref())
            };
            let source = lease.source.of(&policy);
            let now = policy::reevaluate(source, &approved, &lease.namespace, &lease.requested);
            let now = policy::restrict(now, overrides.named.as_ref());
            lease.rules.send_if_modified(|rules| {
                let is_changed = **rules != now;
                if is_changed {
                    *rules = Arc::new(now);
                }
                is_changed
            });
        }
    }

    /// Returns the current rules of a namespace, or of one of its sessions, for requests that name no hosts.
    pub(crate) fn granted(
        &self,
        source: RuleSource,
        namespace: &Namespace,
        session: Option<&SessionId>,
    ) -> Rules {
        let approved = self.approvals.approved(namespace, session);
        let policy = self.policy.current();
        policy::reevaluate(source.of(&policy), &approved, namespace, &AllowedDomains::Granted)
    }

    /// Adds TLS inspection to a lease if secrets that programs do not get, or rules that depend on requests, need it.
    pub(crate) async fn inspect(
        &self,
        grant: &Grant,
        lease: SecretLease,
        secrets: &Arc<Secrets>,
    ) -> Result<SecretLease> {
        let policy = self.policy.current();
        let (mut bound, mut values) = (Vec::new(), Vec::new());
        for (name, value) in &lease.secrets {
            let places = policy.egress.places_of(&grant.request.namespace, name);
            if places.is_empty() {
                continue;
            }
            let leased = Arc::new(LeasedSecret {
                policy: self.policy.clone(),
                secrets: secrets.clone(),
                namespace: grant.request.namespace.clone(),
                name: name.clone(),
                value: value.clone(),
            });
            let places_now = move || -> PlacesFuture { Box::pin(leased.clone().places_now()) };
            let secret = BoundSecret::new(name.as_str(), value.expose(), places, places_now);
            bound.push(secret.map_err(inspection_error)?);
            values.push((name.clone(), value.clone()));
        }
        if bound.is_empty() && !grant.reaches.iter().any(needs_inspection) {
            return Ok(lease);
        }
        let trust = self.trust().await?;
        let redactor = secrets.redactor_of_bound(&values).await?;
        let made = tokio::task::spawn_blocking(move || Inspection::new(trust, bound, redactor));
        let made = made.await.map_err(inspection_error)?;
        let inspection = made.map_err(inspection_error)?;
        Ok(SecretLease {
            inspection: Some(Arc::new(inspection)),
            ..lease
        })
    }

    /// Returns TLS inspection for a browser if rules depend on requests, or for CAs of the operator, unknown to it.
    pub(crate) async fn inspect_browser(&self, rules: &Rules) -> Result<Option<Arc<Inspection>>> {
        let hosts = match &self.settings.ca_file {
            Some(_) => InspectedHosts::All,
            None if rules.iter().any(needs_inspection) => InspectedHosts::WithSecrets,
            None => return Ok(None),
        };
        let made = Inspection::for_browser(self.trust().await?, hosts);
        made.map(|made| Some(Arc::new(made))).map_err(inspection_error)
    }

    /// Returns the certificate authorities trusted for TLS to the outside, read once.
    async fn trust(&self) -> Result<Arc<Trust>> {
        if let Some(trust) = self.trust.get() {
            return Ok(trust.clone());
        }
        let file = self.settings.ca_file.clone();
        let read = tokio::task::spawn_blocking(move || Trust::read(file.as_deref()));
        let read = read.await.map_err(inspection_error)?;
        let trust = read.map_err(inspection_error)?;
        // Two tasks may have read it at once; either result is good.
        Ok(self.trust.get_or_init(|| trust).clone())
    }

    /// Opens the egress of a package installer. Its rules are the operator's own: an index may have a private address.
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

    /// Starts to serve the sockets of a sandbox, if it has any.
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
        let lease_policy = Arc::new(LeasePolicy {
            source: RuleSource::Programs,
            namespace: request.namespace.clone(),
            session: session.cloned(),
            requested: request.allowed_domains.clone(),
            overrides: Mutex::new(CallOverrides::of(grant)),
            rules: watch::Sender::new(Arc::new(grant.reaches.clone())),
        });
        let dialer = self.shared_dialer()?;
        let redactor = EgressRedactor::of(lease);
        let scope = ApprovalScope::new(self, &lease_policy, redactor.clone());
        let hook = Arc::new(AskHook(scope.clone()));
        let of = &request.namespace;
        let events = self.publisher(id, of, redactor.clone());
        let options = LeaseOptions {
            inspection: lease.inspection.clone(),
            approval: Some(hook),
            ..options(Purpose::Programs, of, id, lease_policy.rules.subscribe(), events)
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
        self.follow(&lease_policy);
        let open = EgressLease {
            policy: lease_policy,
            lease,
            redactor,
            approvals: ApprovalScopeGuard(scope),
        };
        if let (LeaseOwner::Run(by), Some(patience)) = (owner, grant.approval_timeout) {
            open.approvals.begin(by, patience);
        }
        Ok(Some(open))
    }

    fn publisher(self: &Arc<Self>, id: &str, namespace: &Namespace, redactor: EgressRedactor) -> EventSink {
        let (egress, id, namespace) = (Arc::downgrade(self), id.to_owned(), namespace.clone());
        Arc::new(move |reported| {
            if let Some(egress) = egress.upgrade() {
                egress.telemetry.metrics.count_egress(&reported);
                let bus = &egress.telemetry.bus;
                bus.publish(&namespace, Some(&id), event(reported, &redactor));
            }
        })
    }
}

fn inspection_error(why: impl Display) -> RequestError {
    RequestError::fault(
        format!("TLS cannot be inspected, which a secret or a rule requires: {why}."),
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

/// Returns the options of a lease without TLS inspection and without approvals.
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

/// Forwards the connections of a container to its egress, until either ends.
fn forwarded(mut arrivals: Arrivals) -> mpsc::Receiver<Forwarded> {
    let (to, forwarded) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(arrival) = arrivals.recv().await {
            let forwarded = match arrival {
                Arrival::Question { query, answer } => Forwarded::Question(query, answer),
                Arrival::Connection {
                    kind,
                    destination,
                    stream,
                } => match kind {
                    ListenerKind::Proxy => Forwarded::Proxy(stream),
                    ListenerKind::Transparent => Forwarded::Connection(destination, stream),
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

/// Translates an event of the egress to one of the engine, redacted.
fn event(reported: EgressEvent, redactor: &EgressRedactor) -> EventKind {
    let to = |host, port| EgressFacts {
        host,
        port,
        ..EgressFacts::default()
    };
    let mut event = match reported {
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
        redactor.redact_facts(facts);
    }
    event
}

impl EgressLease {
    /// Begins a call of the session: with what was approved, for hosts that it names; it may ask if the grant allows.
    pub(crate) fn begin_call(&self, egress: &Egress, grant: &Grant, by: Requester) {
        self.set_overrides(egress, CallOverrides::of(grant));
        if let Some(patience) = grant.approval_timeout {
            self.approvals.begin(by, patience);
        }
    }

    pub(crate) fn end_call(&self, egress: &Egress) {
        self.approvals.end();
        self.set_overrides(egress, CallOverrides::default());
    }

    fn set_overrides(&self, egress: &Egress, overrides: CallOverrides) {
        let mut now = lock(&self.policy.overrides);
        if *now == overrides {
            return;
        }
        *now = overrides;
        drop(now);
        egress.refresh();
    }

    pub(crate) fn add_ports(&self, ports: Vec<(u16, OwnedFd)>) -> Result<()> {
        self.lease.add_ports(ports).map_err(fault)
    }

    /// Returns what was done since the last report.
    pub(crate) fn report(&self) -> EgressReport {
        let mut report = self.lease.take_report();
        self.redactor.redact_report(&mut report);
        report
    }

    /// Cuts open connections, and returns the last report.
    async fn close(self) -> EgressReport {
        let mut report = self.lease.close().await;
        self.redactor.redact_report(&mut report);
        report
    }
}

/// The use of egress, for the result and for the record.
#[derive(Default)]
pub(crate) struct Reached {
    pub(crate) denials: Vec<Denial>,
    pub(crate) recorded: Option<Value>,
}

impl Reached {
    pub(crate) fn of(report: Option<EgressReport>, packets_unrouted: u64) -> Self {
        let report = report.unwrap_or_default();
        let recorded = recorded(&report);
        let mut denials = report.denials;
        denials.extend(unrouted(packets_unrouted));
        Self { denials, recorded }
    }
}

/// Closes the egress of an installer, and returns its denials.
pub(crate) async fn refused(lease: Option<Lease>, raw: &RawOutcome) -> Vec<Denial> {
    let mut refused = match lease {
        Some(lease) => lease.close().await.denials,
        None => Vec::new(),
    };
    refused.extend(unrouted(raw.ending.usage.unrouted));
    refused
}

pub(crate) async fn close(lease: Option<EgressLease>, raw: &RawOutcome) -> Reached {
    let report = match lease {
        Some(lease) => Some(lease.close().await),
        None => None,
    };
    Reached::of(report, raw.ending.usage.unrouted)
}

/// Returns the denial for packets that had no route. Other denied connections are reported by host and port.
fn unrouted(packets: u64) -> Option<Denial> {
    let what = format!(
        "No network access by UDP, by IPv6, or to an address without a name: {packets} packet(s) had no route"
    );
    let hint =
        "Connect by TCP, to hosts by their names. The operator can allow an address in `egress.allow`.";
    (packets > 0).then(|| denial("egress.no_route", "network_namespace", what, hint))
}

pub(crate) fn recorded(report: &EgressReport) -> Option<Value> {
    if report.reached.is_empty() && report.denials.is_empty() {
        return None;
    }
    let reached: Vec<Value> = report
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
    let denied: Vec<Value> = report
        .denials
        .iter()
        .take(RECORDED_MAX)
        .map(|denial| json!({"rule": denial.rule, "what": denial.what}))
        .collect();
    let more_reached = report.reached.len().saturating_sub(RECORDED_MAX) as u64 + report.more.connections;
    let more_denied = report.denials.len().saturating_sub(RECORDED_MAX) as u64 + report.more.denials;
    Some(json!({
        "reached": reached, "denied": denied, "more_reached": more_reached, "more_denied": more_denied,
    }))
}

fn needs_inspection(rule: &Rule) -> bool {
    rule.needs_request() && rule.ports().iter().any(|port| *port != HTTP_PORT)
}
