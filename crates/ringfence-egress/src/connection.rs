//! A connection from the sandbox: its state, its time limits, and the checks of its state against the rules. It is cut
//! when nothing has moved for too long, when it has lasted too long, or when the rules no longer allow it.

use crate::{
    Destination, Host, HostName, RefusalRule, Rules, Verdict, Why,
    destination::TLS_PORT,
    dial::UNSPECIFIED,
    dialer::verdict,
    refusal::{Refusal, escaped},
    sandbox::{Permit, SandboxEgress},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

pub(crate) struct Connection {
    pub(crate) sandbox: Arc<SandboxEgress>,
    began: Instant,
    /// Time of the last activity, in milliseconds since `began`.
    moved: AtomicU64,
    state: Mutex<ConnState>,
    upstreams: Mutex<Upstreams>,
    /// The number of the next request, where several are answered at once.
    requests: AtomicU64,
}

/// Connections to the outside. The first has the permit of the connection from the sandbox, each other one its own.
#[derive(Default)]
pub(crate) struct Upstreams {
    pub(crate) open: usize,
    permits: Vec<Permit>,
}

impl Upstreams {
    /// Keeps this permit if it is needed, and frees those that no longer are.
    pub(crate) fn keep(&mut self, permit: Option<Permit>) {
        self.permits.extend(permit);
        self.permits.truncate(self.open.saturating_sub(1));
    }
}

/// Activity of a connection, as far as rules apply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// Nothing that a rule could forbid: the destination is not known yet, or the next request is awaited.
    Waiting,
    /// The host is about to be connected to, or the first bytes are awaited.
    Opening(Destination),
    Held(Destination),
    Passing(Destination),
    /// Requests to one host are being answered; with HTTP/2 several at once.
    Answering {
        to: Destination,
        /// Method and target of each request, by its number.
        requests: BTreeMap<u64, (String, String)>,
    },
}

impl ConnState {
    pub(crate) fn answering(to: &Destination, number: u64, method: &str, target: &str) -> Self {
        let request = (method.to_owned(), target.to_owned());
        Self::Answering {
            to: to.clone(),
            requests: BTreeMap::from([(number, request)]),
        }
    }
}

/// A request that is being answered; dropping it marks the end of the answer.
pub(crate) struct RequestGuard {
    connection: Arc<Connection>,
    number: u64,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let ConnState::Answering { requests, .. } = &mut *self.connection.lock() {
            requests.remove(&self.number);
        }
    }
}

impl Connection {
    pub(crate) fn new(sandbox: Arc<SandboxEgress>) -> Arc<Self> {
        Arc::new(Self {
            sandbox,
            began: Instant::now(),
            moved: AtomicU64::new(0),
            state: Mutex::new(ConnState::Waiting),
            upstreams: Mutex::default(),
            requests: AtomicU64::new(0),
        })
    }

    pub(crate) fn moved(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
    }

    pub(crate) fn upstreams(&self) -> MutexGuard<'_, Upstreams> {
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, ConnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_state(&self, state: ConnState) {
        *self.lock() = state;
    }

    /// Adds a request to `to` that is being answered until the guard is dropped.
    pub(crate) fn begin_request(
        self: &Arc<Self>,
        to: &Destination,
        method: &str,
        target: &str,
    ) -> RequestGuard {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        match &mut *self.lock() {
            ConnState::Answering { requests, .. } => {
                requests.insert(number, (method.to_owned(), target.to_owned()));
            }
            state => *state = ConnState::answering(to, number, method, target),
        }
        RequestGuard {
            connection: self.clone(),
            number,
        }
    }

    /// Reports the refusal of the connection's next step. The state is reset, so that the check of the rules, which
    /// continues while the answer is sent, neither finds the same refusal again nor cuts the answer off.
    pub(crate) fn refuse(&self, refusal: &Refusal) {
        self.set_state(ConnState::Waiting);
        self.sandbox.refuse(refusal);
    }

    /// Starts to forward bytes without inspection, if the rules allow it. The state is set before the rules are
    /// checked, so that a change of the rules in between is seen by one of the two.
    pub(crate) fn passes(&self, to: &Destination) -> Result<(), Refusal> {
        let state = ConnState::Passing(to.clone());
        self.set_state(state.clone());
        check_state(&self.sandbox.rules_now(), &state)
    }

    /// Checks the rules for opening a connection. If they deny it and approval can be asked for, the connection is held
    /// until that is decided, and the rules are checked again.
    pub(crate) async fn check_or_ask(&self, to: &Destination) -> Result<Mode, Refusal> {
        self.set_state(ConnState::Opening(to.clone()));
        match check_connection(&self.sandbox.rules_now(), to) {
            Err(refusal) if self.sandbox.may_ask(to, refusal.rule) => {}
            decided => return decided,
        }
        self.set_state(ConnState::Held(to.clone()));
        let mut rules = self.sandbox.rules.clone();
        let approved = tokio::select! {
            approved = self.sandbox.ask(to) => approved,
            // The rules allow it now, so there is nothing left to ask.
            _ = rules.wait_for(|rules| check_connection(rules, to).is_ok()) => Ok(()),
        };
        self.moved();
        // The state is set before the rules are checked, so that a change of them in between is seen by one of the two.
        self.set_state(ConnState::Opening(to.clone()));
        let checked = check_connection(&self.sandbox.rules_now(), to);
        checked.map_err(|refusal| match approved {
            Ok(()) => refusal,
            Err(why) => refusal.after(&why),
        })
    }

    fn state(&self) -> ConnState {
        self.lock().clone()
    }

    /// Runs `work` until its end, a time limit, or a change of the rules; all that it holds is dropped with it.
    pub(crate) async fn run(&self, work: impl Future<Output = ()>) {
        let violation = tokio::select! {
            () = work => return,
            violation = self.violation() => violation,
        };
        self.sandbox.refuse(&violation);
    }

    async fn violation(&self) -> Refusal {
        tokio::select! {
            refusal = self.too_long() => refusal,
            refusal = self.forbidden() => refusal,
        }
    }

    async fn too_long(&self) -> Refusal {
        let limits = self.sandbox.dialer.limits();
        let end = self.began + limits.connection_time;
        loop {
            if matches!(*self.lock(), ConnState::Held(_)) {
                // Nothing can move on a held connection, and approval has its own time limit.
                self.moved();
            }
            let moved = self.began + Duration::from_millis(self.moved.load(Ordering::Relaxed));
            let idle = moved + limits.idle;
            let now = Instant::now();
            if now >= end {
                return self.limit(
                    limits.connection_time,
                    "it has lasted",
                    "egress.connection_seconds",
                );
            }
            if now >= idle {
                return self.limit(limits.idle, "nothing has moved on it for", "egress.idle_seconds");
            }
            sleep_until(idle.min(end)).await;
        }
    }

    fn limit(&self, time: Duration, why: &str, setting: &str) -> Refusal {
        let to = match self.state() {
            ConnState::Waiting => "a connection".to_owned(),
            ConnState::Opening(to)
            | ConnState::Held(to)
            | ConnState::Passing(to)
            | ConnState::Answering { to, .. } => format!("the connection to {to}"),
        };
        let what = format!("{to} was closed: {why} {} s", time.as_secs_f64());
        Refusal::plain(
            RefusalRule::Limit,
            what,
            &format!("have the operator raise `{setting}`"),
        )
    }

    async fn forbidden(&self) -> Refusal {
        let mut rules = self.sandbox.rules.clone();
        loop {
            let current = rules.borrow_and_update().clone();
            if let Err(refusal) = check_state(&current, &self.state()) {
                return refusal;
            }
            if rules.changed().await.is_err() {
                // The rules cannot change any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

fn check_state(rules: &Rules, state: &ConnState) -> Result<(), Refusal> {
    match state {
        ConnState::Waiting | ConnState::Held(_) => Ok(()),
        ConnState::Opening(to) => check_connection(rules, to).map(drop),
        ConnState::Passing(to) => match check_connection(rules, to)? {
            Mode::Passthrough => Ok(()),
            Mode::Inspect => Err(not_inspected(to)),
        },
        ConnState::Answering { to, requests } => {
            check_connection(rules, to)?;
            requests
                .values()
                .try_for_each(|(method, target)| check_request(rules, to, method, target))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Passthrough,
    /// Requests are read, and each is checked on its own.
    Inspect,
}

pub(crate) fn check_connection(rules: &Rules, to: &Destination) -> Result<Mode, Refusal> {
    match verdict(rules, to) {
        Verdict::Open => Ok(Mode::Passthrough),
        Verdict::ByRequest => Ok(Mode::Inspect),
        Verdict::Denied(why) => Err(refused(to, &why, &to.to_string())),
    }
}

pub(crate) fn check_request(
    rules: &Rules,
    to: &Destination,
    method: &str,
    target: &str,
) -> Result<(), Refusal> {
    let answer = match &to.host {
        Host::Name(name) => rules.request(name, to.port, method, target),
        Host::Address(address) => rules.address(*address, to.port),
    };
    answer.map_err(|why| {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let what = format!("{} {to}{}", escaped(method.as_bytes()), escaped(path.as_bytes()));
        refused(to, &why, &what)
    })
}

pub(crate) fn not_inspected(to: &Destination) -> Refusal {
    Refusal::of(
        RefusalRule::Request,
        to,
        format!("{to}: its rules name methods or paths, and requests cannot be inspected in this sandbox"),
        &format!("use a rule without method and path for `{to}`, or start a new sandbox with this rule"),
    )
}

fn refused(to: &Destination, why: &Why, what: &str) -> Refusal {
    let no_access = format!("No network access to {to}");
    let (rule, what) = match why {
        Why::Name => (RefusalRule::Name, no_access),
        Why::Address => (
            RefusalRule::Address,
            format!("{no_access}: no rule names the address"),
        ),
        Why::Port { .. } => (RefusalRule::Port, format!("{no_access}: {why}")),
        Why::Method { .. } | Why::Path { .. } => (RefusalRule::Request, format!("{what}: {why}")),
    };
    Refusal::of(rule, to, what, &hint(to, why))
}

/// Returns the refusal of a name that was looked up but not connected to.
pub(crate) fn unconnected(name: &HostName) -> Refusal {
    Refusal {
        rule: RefusalRule::Name,
        host: Some(name.to_string()),
        port: None,
        what: format!("No network access to {name}"),
        hint: Why::Name.hint(name, TLS_PORT),
    }
}

fn hint(to: &Destination, why: &Why) -> String {
    match (&to.host, why) {
        (Host::Address(address), _) if address.is_unspecified() => UNSPECIFIED.to_owned(),
        (Host::Address(address), Why::Address) => format!(
            "Connect by name; or have the operator add the address or its network with the port, as in \
             `{address}:{}`, to `egress.allow`.",
            to.port
        ),
        (host, why) => why.hint(host, to.port),
    }
}
