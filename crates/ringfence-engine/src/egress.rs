//! The way out that one request has been given: its sockets, its rules as they are now, and what was done with it.

mod asking;
mod veil;

pub(crate) use asking::Asker;

use crate::{
    backend::RawOutcome,
    engine::House,
    events::{EgressFacts, EventKind},
    policy::{self, Approved, Grant},
    secrets::SecretLease,
};
use asking::{Asked, Asking, Open};
use ringfence_egress::{
    BoundSecret, DEFAULT_PORTS, Happened, Inspection, Lease, Outside, OutsideSettings, Rule, Rules, Sockets,
    Traffic, Trust, Who,
};
use ringfence_jail::{PORTS_MAX, WayOut, WayOutSockets};
use ringfence_redact::{Forms, Personal, Redactor};
use ringfence_store::vault::SecretValue;
use ringfence_types::{AllowedDomains, Denial, EnvName, ErrorCode, Namespace, RequestError, SessionId};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::watch;
use veil::Veil;

/// What is read there is no TLS.
const HTTP_PORT: u16 = 80;
/// Hosts that stand in one record.
const RECORDED_MAX: usize = 32;

/// What all ways out of a server share.
pub(crate) struct Egress {
    outside: OnceLock<Arc<Outside>>,
    trust: OnceLock<Arc<Trust>>,
    open: Mutex<Vec<Weak<Terms>>>,
    /// Somebody listens to what is approved.
    listens: Once,
}

/// On what terms a way out was given.
struct Terms {
    namespace: Namespace,
    session: Option<SessionId>,
    asked: AllowedDomains,
    /// What the run, or the call, that goes on has for itself.
    own: Mutex<Own>,
    rules: watch::Sender<Arc<Rules>>,
}

/// What one run or call has, and the next has not.
#[derive(Clone, Default, PartialEq, Eq)]
struct Own {
    /// What was approved for it.
    once: Vec<Rule>,
    /// Of a call of a session: those of the session's hosts that it names.
    named: Option<Rules>,
}

/// A way out. Dropping it cuts every connection.
pub(crate) struct EgressLease {
    /// While it is held, a change of the rules reaches it.
    terms: Arc<Terms>,
    lease: Lease,
    veil: Veil,
    asking: Open,
}

/// Whose way out it is.
pub(crate) enum Holder<'a> {
    Run(Asker),
    Session(&'a SessionId),
}

impl Own {
    fn of(grant: &Grant) -> Self {
        Self {
            once: grant.once().to_vec(),
            named: grant.named().cloned(),
        }
    }
}

impl Terms {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ports that are listened on: those of the rules and, where somebody is asked, those that most programs want.
fn ports(rules: &Rules, asks: Option<Duration>) -> BTreeSet<u16> {
    let usual = asks.iter().flat_map(|_| DEFAULT_PORTS);
    rules.ports().into_iter().chain(usual).collect()
}

/// What the claim of a sandbox with these rules brings; none: it has no way out.
pub(crate) fn way_out(rules: &Rules, asks: Option<Duration>) -> Option<WayOut> {
    if rules.is_empty() && asks.is_none() {
        return None;
    }
    Some(WayOut {
        ports: ports(rules, asks).into_iter().collect(),
        networks: rules
            .networks()
            .map(|network| (network.network(), network.prefix_len()))
            .collect(),
    })
}

/// Refuses rules that name more ports than there can be listeners.
pub(crate) fn check(rules: &Rules, asks: Option<Duration>) -> Result<(), RequestError> {
    match ports(rules, asks).len() {
        0..=PORTS_MAX => Ok(()),
        count => Err(RequestError::new(
            ErrorCode::PolicyDenied,
            format!(
                "the rules for this request name {count} different ports; one sandbox has at most {PORTS_MAX}."
            ),
            "Narrow it with `allowed_domains` to the hosts that the program needs.",
        )),
    }
}

impl Egress {
    pub(crate) fn new() -> Self {
        Self {
            outside: OnceLock::new(),
            trust: OnceLock::new(),
            open: Mutex::default(),
            listens: Once::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<Terms>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outside(&self, house: &House) -> Result<Arc<Outside>, RequestError> {
        if let Some(outside) = self.outside.get() {
            return Ok(outside.clone());
        }
        let made = outside(house, house.settings.egress.private.clone())?;
        Ok(self.outside.get_or_init(|| made).clone())
    }

    /// From the first way out on: what is approved, or ends, reaches those that are open.
    fn listen(&self, house: &Arc<House>) {
        self.listens.call_once(|| {
            let (house, mut changes) = (Arc::downgrade(house), house.approvals.rules().changes());
            tokio::spawn(async move {
                while changes.changed().await.is_ok() {
                    let Some(house) = house.upgrade() else { return };
                    house.egress.refresh(&house);
                }
            });
        });
    }

    /// After the rules have changed: whoever has a way out has it by the new ones, and what they do not allow is cut.
    pub(crate) fn refresh(&self, house: &House) {
        let terms: Vec<Arc<Terms>> = {
            let mut open = self.open();
            open.retain(|terms| terms.strong_count() > 0);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        for terms in terms {
            // Held until it is told: of two who look at the same time, the second sees what both have changed.
            let own = terms.own();
            let policy = house.policy();
            let approved = Approved {
                once: own.once.clone(),
                ..house.approved(&terms.namespace, terms.session.as_ref())
            };
            let now = policy::again(&policy.egress, &approved, &terms.namespace, &terms.asked);
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
}

/// What the TLS of a sandbox is read with, where it has to be: for secrets that leave without being handed in, and for rules
/// that depend on what is asked.
pub(crate) async fn inspection(
    house: &House,
    grant: &Grant,
    secrets: &[(EnvName, Arc<SecretValue>)],
) -> Result<Option<Arc<Inspection>>, RequestError> {
    let policy = house.policy();
    let mut bound = Vec::new();
    for (name, value) in secrets {
        let places = policy.egress.places_of(&grant.request().namespace, name);
        if !places.is_empty() {
            let secret = BoundSecret::new(name.as_str(), value.expose(), places);
            bound.push(secret.map_err(|error| unread(&error.to_string()))?);
        }
    }
    let reads = |rule: &Rule| rule.needs_request() && rule.ports().iter().any(|port| *port != HTTP_PORT);
    if bound.is_empty() && !grant.reaches().iter().any(reads) {
        return Ok(None);
    }
    let (trust, file) = (
        house.egress.trust.get().cloned(),
        house.settings.egress.ca_file.clone(),
    );
    let made = tokio::task::spawn_blocking(move || {
        let trust = match trust {
            Some(trust) => trust,
            None => Trust::read(file.as_deref()).map_err(|error| error.to_string())?,
        };
        let values = bound.iter().map(BoundSecret::value);
        let redactor = Redactor::new(values, Forms::All, Personal::Keep);
        Ok((trust.clone(), Inspection::new(trust, bound, redactor)?))
    });
    let made = made.await.map_err(|error| unread(&error.to_string()))?;
    let (trust, inspection) = made.map_err(|error: String| unread(&error))?;
    // Two may have read it at once; either is good.
    drop(house.egress.trust.set(trust));
    Ok(Some(Arc::new(inspection)))
}

fn unread(why: &str) -> RequestError {
    RequestError::new(
        ErrorCode::SandboxFault,
        format!("TLS cannot be read, as a secret or a rule needs it: {why}."),
        "Install the host's certificates of authorities (`ca-certificates`), or name a file of them in `egress.ca_file`.",
    )
}

/// The way out of an installer: its rules are the operator's own, whose index may have a private address.
pub(crate) fn open_for_installer(
    house: &House,
    namespace: &Namespace,
    rules: &Rules,
    sockets: WayOutSockets,
) -> Result<Lease, RequestError> {
    let private = rules.iter().filter(|rule| !rule.is_network()).cloned().collect();
    let outside = outside(house, private)?;
    let who = Who {
        namespace: namespace.clone(),
        id: "packages".to_owned(),
    };
    let (_, now) = watch::channel(Arc::new(rules.clone()));
    ringfence_egress::open(
        &outside,
        who,
        sockets_of(sockets),
        now,
        None,
        Arc::new(|_| {}),
        None,
    )
    .map_err(|error| fault(&error))
}

/// Begins to serve the sockets of a sandbox, if it has any.
pub(crate) fn open_for(
    house: &Arc<House>,
    (grant, lease): (&Grant, &SecretLease),
    holder: Holder<'_>,
    sockets: Option<WayOutSockets>,
) -> Result<Option<EgressLease>, RequestError> {
    sockets
        .map(|sockets| open(house, (grant, lease), holder, sockets))
        .transpose()
}

fn open(
    house: &Arc<House>,
    (grant, lease): (&Grant, &SecretLease),
    holder: Holder<'_>,
    sockets: WayOutSockets,
) -> Result<EgressLease, RequestError> {
    let request = grant.request();
    let (id, session) = match &holder {
        Holder::Run(asker) => (asker.execution(), None),
        Holder::Session(id) => (id.as_str(), Some(*id)),
    };
    let terms = Arc::new(Terms {
        namespace: request.namespace.clone(),
        session: session.cloned(),
        asked: request.allowed_domains.clone(),
        own: Mutex::new(Own::of(grant)),
        rules: watch::Sender::new(Arc::new(grant.reaches().clone())),
    });
    let outside = house.egress.outside(house)?;
    let who = Who {
        namespace: request.namespace.clone(),
        id: id.to_owned(),
    };
    let sockets = sockets_of(sockets);
    let (veil, inspection) = (Veil::of(lease), lease.inspection.clone());
    let tell = teller(house, id, &request.namespace, veil.clone());
    let asking = Asking::new(house, &terms, veil.clone());
    let asked = Arc::new(Asked(asking.clone()));
    let rules = terms.rules.subscribe();
    let lease = ringfence_egress::open(&outside, who, sockets, rules, inspection, tell, Some(asked))
        .map_err(|error| fault(&error))?;
    house.egress.open().push(Arc::downgrade(&terms));
    house.egress.listen(house);
    // The rules may have changed since the grant was made.
    house.egress.refresh(house);
    let open = EgressLease {
        terms,
        lease,
        veil,
        asking: Open(asking),
    };
    if let (Holder::Run(asker), Some(patience)) = (holder, grant.asks()) {
        open.asking.begin(asker, patience);
    }
    Ok(open)
}

fn outside(house: &House, private: Vec<Rule>) -> Result<Arc<Outside>, RequestError> {
    let settings = &house.settings.egress;
    let made = Outside::new(OutsideSettings {
        resolvers: settings.resolvers.clone(),
        private,
        limits: settings.limits,
    });
    made.map_err(|error| {
        RequestError::new(
            ErrorCode::SandboxFault,
            format!("there is no way out of this host: {error}."),
            "Name the resolvers in `egress.resolvers`.",
        )
    })
}

fn sockets_of(sockets: WayOutSockets) -> Sockets {
    let WayOutSockets {
        dns_udp,
        dns_tcp,
        proxy,
        attempts,
        ports,
    } = sockets;
    Sockets {
        dns_udp,
        dns_tcp,
        proxy,
        observer: Some(attempts),
        ports,
    }
}

fn fault(error: &io::Error) -> RequestError {
    RequestError::new(
        ErrorCode::SandboxFault,
        format!("the way out could not be opened: {error}."),
        "Run `ringfence doctor` to see whether this host can make sandboxes.",
    )
}

/// Tells the bus what happens as it happens.
fn teller(
    house: &Arc<House>,
    id: &str,
    namespace: &Namespace,
    veil: Veil,
) -> Arc<dyn Fn(Happened) + Send + Sync> {
    let (house, id, namespace) = (Arc::downgrade(house), id.to_owned(), namespace.clone());
    Arc::new(move |happened| {
        if let Some(house) = house.upgrade() {
            house.meters.count_egress(&happened);
            house
                .bus
                .tell(namespace.as_str(), Some(&id), event(happened, &veil));
        }
    })
}

/// The same in the words of events.
fn event(happened: Happened, veil: &Veil) -> EventKind {
    let to = |host, port| EgressFacts {
        host,
        port,
        ..EgressFacts::default()
    };
    let mut event = match happened {
        Happened::Connected { name, port, address } => EventKind::EgressConnected(EgressFacts {
            address: Some(address),
            ..to(Some(name), Some(port))
        }),
        Happened::Closed {
            name,
            port,
            address,
            bytes_out,
            bytes_in,
            ..
        } => EventKind::EgressClosed(EgressFacts {
            address: Some(address),
            bytes_out: Some(bytes_out),
            bytes_in: Some(bytes_in),
            ..to(Some(name), Some(port))
        }),
        Happened::Request {
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
        Happened::Denied {
            rule,
            host,
            port,
            what,
            hint,
        } => EventKind::EgressRefused(EgressFacts {
            rule: Some(rule.as_str().to_owned()),
            what: Some(what),
            hint: Some(hint).filter(|hint| !hint.is_empty()),
            ..to(host, port)
        }),
        Happened::Untold { count } => return EventKind::EgressUntold { count },
    };
    if let EventKind::EgressConnected(facts)
    | EventKind::EgressClosed(facts)
    | EventKind::EgressRequest(facts)
    | EventKind::EgressRefused(facts) = &mut event
    {
        veil.over_facts(facts);
    }
    event
}

impl EgressLease {
    /// A call of the session begins. It has what was approved for it, no more than it names, and may ask for more where it names
    /// nobody.
    pub(crate) fn begin_call(&self, house: &House, grant: &Grant, asker: Asker) {
        self.set_own(house, Own::of(grant));
        if let Some(patience) = grant.asks() {
            self.asking.begin(asker, patience);
        }
    }

    /// It has ended, and what was its alone is gone.
    pub(crate) fn end_call(&self, house: &House) {
        self.asking.end();
        self.set_own(house, Own::default());
    }

    fn set_own(&self, house: &House, own: Own) {
        let mut now = self.terms.own();
        if *now == own {
            return;
        }
        *now = own;
        drop(now);
        house.egress.refresh(house);
    }

    /// Listens at more ports.
    pub(crate) fn add_ports(&self, ports: Vec<(u16, OwnedFd)>) -> Result<(), RequestError> {
        self.lease.add_ports(ports).map_err(|error| fault(&error))
    }

    /// What was done since somebody asked last.
    pub(crate) fn report(&self) -> Traffic {
        let mut traffic = self.lease.take_report();
        self.veil.over_traffic(&mut traffic);
        traffic
    }

    /// Cuts what is still open, and says the same.
    async fn close(self) -> Traffic {
        let mut traffic = self.lease.close().await;
        self.veil.over_traffic(&mut traffic);
        traffic
    }
}

/// What was done with a way out, for the result and for the record.
#[derive(Default)]
pub(crate) struct Reached {
    pub(crate) denials: Vec<Denial>,
    pub(crate) recorded: Option<Value>,
}

impl Reached {
    pub(crate) fn of(traffic: Option<Traffic>, packets_unrouted: u64, grant: &Grant) -> Self {
        let traffic = traffic.unwrap_or_default();
        let recorded = recorded(&traffic);
        let mut denials = traffic.denials;
        denials.extend(unrouted(packets_unrouted, grant.reaches(), grant.asks()));
        Self { denials, recorded }
    }
}

/// The end of an installer's way out: what it was refused.
pub(crate) async fn refused(lease: Option<Lease>, raw: &RawOutcome, rules: &Rules) -> Vec<Denial> {
    let mut refused = match lease {
        Some(lease) => lease.close().await.denials,
        None => Vec::new(),
    };
    refused.extend(unrouted(raw.ending.usage.unrouted, rules, None));
    refused
}

/// The end of a run's way out.
pub(crate) async fn close(lease: Option<EgressLease>, raw: &RawOutcome, grant: &Grant) -> Reached {
    let traffic = match lease {
        Some(lease) => Some(lease.close().await),
        None => None,
    };
    Reached::of(traffic, raw.ending.usage.unrouted, grant)
}

/// Packets that had no way, as a caller is told.
fn unrouted(packets: u64, rules: &Rules, asks: Option<Duration>) -> Option<Denial> {
    let hint = if way_out(rules, asks).is_none() {
        "This program has no way out: name the hosts that it needs in `allowed_domains`, as far as the operator's \
         `egress.allow` has them, or ask with `request_egress`."
    } else {
        "Connect to hosts by their names; an address by number is the operator's to allow, in `egress.allow`."
    };
    (packets > 0).then(|| Denial {
        rule: "egress.no_route".to_owned(),
        layer: "network_namespace".to_owned(),
        what: format!("{packets} packet(s) to addresses that no route leads to"),
        hint: hint.to_owned(),
    })
}

/// What stands on record of it.
fn recorded(traffic: &Traffic) -> Option<Value> {
    if traffic.reached.is_empty() && traffic.denials.is_empty() {
        return None;
    }
    let reached: Vec<Value> = traffic
        .reached
        .iter()
        .take(RECORDED_MAX)
        .map(|end| {
            json!({
                "name": end.name, "port": end.port, "address": end.address, "connections": end.connections,
                "requests": end.requests, "bytes_out": end.bytes_out, "bytes_in": end.bytes_in,
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
