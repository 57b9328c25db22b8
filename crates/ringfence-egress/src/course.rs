//! What a connection is doing, and until when it may: nothing moving for too long, too long altogether, or rules that no
//! longer allow it end it. One clock and one look at the rules for all kinds of connections.

use crate::{
    Destination, Host, RefusalRule, Rules, Verdict, Why,
    border::Border,
    outside::verdict,
    refusal::{Refusal, shown},
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

/// One connection from the sandbox, from its acceptance to its end.
pub(crate) struct Course {
    pub(crate) border: Arc<Border>,
    began: Instant,
    /// When something moved last, in milliseconds since it began.
    moved: AtomicU64,
    act: Mutex<Act>,
    /// So many were answered, or are, where several are at once.
    requests: AtomicU64,
}

/// What it is doing, as far as rules care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing that a rule could forbid: it has not said where it wants to go, or waits for the next request.
    Waiting,
    /// It is about to be connected, or its first bytes are awaited.
    Opening(Destination),
    /// It is held until somebody has said whether it may be opened.
    Held(Destination),
    /// Bytes pass that nobody reads.
    Passing(Destination),
    /// A request is being answered.
    Asking {
        /// Whom.
        to: Destination,
        /// Its method.
        method: String,
        /// Its path and query.
        target: String,
    },
    /// Requests to one host are being answered, several at once.
    Answering {
        /// Whom.
        to: Destination,
        /// Method and target of each, by its number.
        asked: BTreeMap<u64, (String, String)>,
    },
}

/// One of the requests that are being answered; dropping it says that it was.
pub(crate) struct Asked {
    course: Arc<Course>,
    number: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Act::Answering { asked, .. } = &mut *self.course.now() {
            asked.remove(&self.number);
        }
    }
}

impl Course {
    pub(crate) fn new(border: Arc<Border>) -> Arc<Self> {
        Arc::new(Self {
            border,
            began: Instant::now(),
            moved: AtomicU64::new(0),
            act: Mutex::new(Act::Waiting),
            requests: AtomicU64::new(0),
        })
    }

    /// Something moved.
    pub(crate) fn moved(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
    }

    fn now(&self) -> MutexGuard<'_, Act> {
        self.act.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It does something else from now on.
    pub(crate) fn does(&self, act: Act) {
        *self.now() = act;
    }

    /// One more request to `to` is being answered, until what this gives is dropped.
    pub(crate) fn asks(self: &Arc<Self>, to: &Destination, method: &str, target: &str) -> Asked {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let request = (method.to_owned(), target.to_owned());
        match &mut *self.now() {
            Act::Answering { asked, .. } => drop(asked.insert(number, request)),
            act => {
                *act = Act::Answering {
                    to: to.clone(),
                    asked: BTreeMap::from([(number, request)]),
                };
            }
        }
        Asked {
            course: self.clone(),
            number,
        }
    }

    /// Bytes pass from now on that nobody reads, if the rules allow that. It is said first and looked at then, so that a
    /// change of the rules in between is seen by one of the two.
    pub(crate) fn passes(&self, to: &Destination) -> Result<(), Refusal> {
        let act = Act::Passing(to.clone());
        self.does(act.clone());
        allowed(&self.border.rules_now(), &act)
    }

    /// What the rules say to opening a connection. Where they say no, and somebody may be asked, it is held until that is
    /// decided, and the rules are looked at again.
    pub(crate) async fn opened_or_asked(&self, to: &Destination) -> Result<Passage, Refusal> {
        self.does(Act::Opening(to.clone()));
        match opened(&self.border.rules_now(), to) {
            Err(refusal) if self.border.may_ask(to, refusal.rule) => {}
            decided => return decided,
        }
        self.does(Act::Held(to.clone()));
        let mut rules = self.border.rules.clone();
        let asked = tokio::select! {
            asked = self.border.ask(to) => asked,
            // Whoever has changed them, there is nothing left to ask.
            _ = rules.wait_for(|rules| opened(rules, to).is_ok()) => Ok(()),
        };
        self.moved();
        // Said before the rules are looked at, so that a change of them in between is seen by one of the two.
        self.does(Act::Opening(to.clone()));
        let now = opened(&self.border.rules_now(), to);
        now.map_err(|refusal| match asked {
            Ok(()) => refusal,
            Err(why) => refusal.after(&why),
        })
    }

    fn act(&self) -> Act {
        self.now().clone()
    }

    /// Runs `work` for as long as it may. What it holds is dropped with it, its sockets among that.
    pub(crate) async fn run(&self, work: impl Future<Output = ()>) {
        let over = tokio::select! {
            () = work => return,
            over = self.over() => over,
        };
        self.border.refuse(&over);
    }

    /// Ends when the connection has to.
    async fn over(&self) -> Refusal {
        tokio::select! {
            refusal = self.too_long() => refusal,
            refusal = self.forbidden() => refusal,
        }
    }

    async fn too_long(&self) -> Refusal {
        let limits = self.border.outside.limits();
        let end = self.began + limits.connection_time;
        loop {
            if matches!(self.act(), Act::Held(_)) {
                // Nothing can move on it, and the answer has a time of its own.
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
        let to = match self.act() {
            Act::Waiting => "a connection".to_owned(),
            Act::Opening(to)
            | Act::Held(to)
            | Act::Passing(to)
            | Act::Asking { to, .. }
            | Act::Answering { to, .. } => {
                format!("the connection to {to}")
            }
        };
        let what = format!("{to} was closed: {why} {} s", time.as_secs_f64());
        Refusal::plain(
            RefusalRule::Limit,
            what,
            &format!("have the operator raise `{setting}`"),
        )
    }

    /// Looks at the rules whenever they change.
    async fn forbidden(&self) -> Refusal {
        let mut rules = self.border.rules.clone();
        loop {
            let now = rules.borrow_and_update().clone();
            if let Err(refusal) = allowed(&now, &self.act()) {
                return refusal;
            }
            if rules.changed().await.is_err() {
                // Nobody is left who could change them.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Whether rules allow what a connection is doing already.
fn allowed(rules: &Rules, act: &Act) -> Result<(), Refusal> {
    match act {
        Act::Waiting | Act::Held(_) => Ok(()),
        Act::Opening(to) => opened(rules, to).map(drop),
        Act::Passing(to) => match opened(rules, to)? {
            Passage::Free => Ok(()),
            Passage::Read => Err(unread(to)),
        },
        Act::Asking { to, method, target } => asked(rules, to, method, target),
        Act::Answering { to, asked: requests } => {
            opened(rules, to)?;
            requests
                .values()
                .try_for_each(|(method, target)| asked(rules, to, method, target))
        }
    }
}

/// How a connection may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// For whatever its ends like.
    Free,
    /// For requests that are read, each judged by itself.
    Read,
}

/// What rules say to a connection, as a refusal where it is one.
pub(crate) fn opened(rules: &Rules, to: &Destination) -> Result<Passage, Refusal> {
    match verdict(rules, to) {
        Verdict::Open => Ok(Passage::Free),
        Verdict::ByRequest => Ok(Passage::Read),
        Verdict::Denied(why) => Err(refused(to, &why, &to.to_string())),
    }
}

/// What rules say to a request, as a refusal where it is one.
pub(crate) fn asked(rules: &Rules, to: &Destination, method: &str, target: &str) -> Result<(), Refusal> {
    let answer = match &to.host {
        Host::Name(name) => rules.request(name, to.port, method, target),
        Host::Address(address) => rules.address(*address, to.port),
    };
    answer.map_err(|why| {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let what = format!("{} {to}{}", shown(method.as_bytes()), shown(path.as_bytes()));
        refused(to, &why, &what)
    })
}

/// A connection that would have to be read, and cannot be.
pub(crate) fn unread(to: &Destination) -> Refusal {
    Refusal::of(
        RefusalRule::Request,
        to,
        format!("{to}: its rules name methods or paths, and what is said there is not read in this sandbox"),
        &format!("a rule without method and path for `{to}`, or a sandbox that is made with this one"),
    )
}

fn refused(to: &Destination, why: &Why, what: &str) -> Refusal {
    let rule = match why {
        Why::Name => RefusalRule::Name,
        Why::Port { .. } => RefusalRule::Port,
        Why::Address => RefusalRule::Address,
        Why::Method { .. } | Why::Path { .. } => RefusalRule::Request,
    };
    let what = match why {
        // By number there is no name that could lead anywhere: it is the number that no rule has.
        Why::Address => format!("{what}: no rule names the address"),
        why => format!("{what}: {why}"),
    };
    Refusal::of(rule, to, what, &hint(to, why))
}

fn hint(to: &Destination, why: &Why) -> String {
    match (&to.host, why) {
        (Host::Address(address), Why::Address) => format!(
            "Connect by name; or have the operator add the address or its network with the port, as in \
             `{address}:{}`, to `egress.allow`.",
            to.port
        ),
        (host, why) => why.hint(host, to.port),
    }
}
