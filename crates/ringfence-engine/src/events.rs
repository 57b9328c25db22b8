//! What happens, told as it happens by the thing itself. Subscribers are bounded: one that is too slow loses the oldest
//! events and is told how many. Nothing here has been inside a sandbox without redaction.

use crate::sync::lock;
use ringfence_types::{ExitKind, Language, Phases, ResourceUsage};
use serde::Serialize;
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::broadcast;

/// Events that wait for the slowest subscriber.
const WAITING_MAX: usize = 1024;
const RECENT_MAX: usize = 100;

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// From 1, without gaps.
    pub number: u64,
    /// Unix time.
    pub time_ms: u64,
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Each event with its name, which is said once: as it is written, and as `name` tells it.
macro_rules! events {
    ($($(#[$about:meta])* $name:literal => $variant:ident $({ $($fields:tt)* })? $(($facts:ty))?,)+) => {
        /// Every event that this version has. The names are the contract's.
        #[derive(Clone, Debug, Serialize)]
        #[serde(tag = "event")]
        pub enum EventKind {
            $($(#[$about])* #[serde(rename = $name)] $variant $({ $($fields)* })? $(($facts))?,)+
        }

        impl EventKind {
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)+
                }
            }
        }
    };
}

events! {
    /// A program is about to start.
    "execution.started" => ExecutionStarted {
        language: Language,
    },
    /// It ended by itself, with success.
    "execution.completed" => ExecutionCompleted(Ended),
    /// It ended in any other way but by the clock, or was refused.
    "execution.failed" => ExecutionFailed(Ended),
    /// Its time was up.
    "execution.timeout" => ExecutionTimeout(Ended),
    /// It printed something. Told only while somebody listens.
    "execution.output" => ExecutionOutput {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// Redacted; what is not UTF-8 is U+FFFD.
        text: String,
    },
    "resource.exceeded" => ResourceExceeded {
        /// `memory`, `timeout`, `disk`, `cpu`, `file_size`.
        limit: String,
    },
    "session.created" => SessionCreated {
        session_id: String,
        language: Language,
    },
    "session.killed" => SessionKilled {
        session_id: String,
        reason: &'static str,
    },
    /// Secrets were given to it.
    "vault.accessed" => VaultAccessed {
        secrets: Vec<String>,
    },
    /// Packages were installed, for this request and every later one.
    "package.installed" => PackageInstalled {
        language: Language,
        /// Names and versions, with those that came with what was asked for.
        packages: Vec<String>,
    },
    "egress.connected" => EgressConnected(EgressFacts),
    "egress.closed" => EgressClosed(EgressFacts),
    /// It sent a request that could be read.
    "egress.request" => EgressRequest(EgressFacts),
    "egress.refused" => EgressRefused(EgressFacts),
    /// Events of hosts were dropped: there were too many at once.
    "egress.untold" => EgressUntold {
        count: u64,
    },
    /// A person is asked.
    "approval.requested" => ApprovalRequested(ApprovalFacts),
    /// The answer, or that there was none.
    "approval.decided" => ApprovalDecided(ApprovalFacts),
    /// A person is asked whether programs may reach a host.
    "egress.requested" => EgressRequested(ApprovalFacts),
    /// They may.
    "egress.approved" => EgressApproved(ApprovalFacts),
    /// They may not.
    "egress.denied" => EgressDenied(ApprovalFacts),
    /// A command of the host is asked for: by a caller, or of a person.
    "host.requested" => HostRequested(ApprovalFacts),
    /// It may run, by a rule or a person.
    "host.approved" => HostApproved(ApprovalFacts),
    /// It may not.
    "host.denied" => HostDenied(ApprovalFacts),
    /// A file that it left was kept and signed.
    "artifact.signed" => ArtifactSigned {
        /// Redacted.
        name: String,
        /// Lower-case hex.
        sha256: String,
        size_bytes: u64,
    },
    "snapshot.created" => SnapshotCreated {
        snapshot_id: String,
        size_bytes: u64,
    },
    /// A saved workspace took the place of what was there.
    "snapshot.restored" => SnapshotRestored {
        snapshot_id: String,
    },
    /// The queue is nearly full, or somebody was turned away.
    "queue.backpressure" => QueueBackpressure {
        waiting: usize,
        waiting_max: usize,
    },
}

/// A program and a host. Texts from inside are escaped and cut.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EgressFacts {
    /// The name that it asked for, or the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that was dialled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its path, without the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Names of the secrets that were put into it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// By which rule it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The smallest change that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Bytes that a connection has sent when it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Bytes that it has received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
}

/// A request for approval, without the requester's reason: only those who decide see that.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ApprovalFacts {
    pub request_id: String,
    /// `egress` or `host`.
    pub kind: &'static str,
    /// What exactly is asked for.
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Once it is decided: yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// `once`, `session`, `namespace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    pub language: Language,
    /// How it ended; absent: it was refused.
    pub exit: Option<ExitKind>,
    /// As a shell would give it.
    pub exit_code: Option<i32>,
    /// The refusal's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<&'static str>,
    /// From acceptance to result.
    pub duration_ms: f64,
    pub phases: Phases,
    pub resource_usage: ResourceUsage,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if self.output.is_some() {
            self.output_wanted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Where events are told; clones share it.
#[derive(Clone)]
pub(crate) struct Bus {
    shared: Arc<Shared>,
}

struct Shared {
    sender: broadcast::Sender<Arc<Event>>,
    /// A queue of its own, so that one program's output pushes nothing else out.
    output: broadcast::Sender<Arc<Event>>,
    recent: Mutex<VecDeque<Arc<Event>>>,
    numbers: AtomicU64,
    /// Subscribers who want to hear of output.
    output_wanted: Arc<AtomicUsize>,
}

/// Whether a subscriber wants every piece of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    Everything,
    /// It hears only how things begin and end.
    AllButOutput,
}

pub struct Subscriber {
    others: Queue,
    /// Of one that hears of output.
    output: Option<Queue>,
    /// Not the whole bus: holding that would keep its channel open.
    output_wanted: Arc<AtomicUsize>,
}

impl Bus {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                sender: broadcast::channel(WAITING_MAX).0,
                output: broadcast::channel(WAITING_MAX).0,
                recent: Mutex::new(VecDeque::with_capacity(RECENT_MAX)),
                numbers: AtomicU64::new(1),
                output_wanted: Arc::default(),
            }),
        }
    }

    pub(crate) fn publish(&self, namespace: &str, execution_id: Option<&str>, kind: EventKind) {
        let mut recent = lock(&self.shared.recent);
        let event = Arc::new(Event {
            number: self.shared.numbers.fetch_add(1, Ordering::Relaxed),
            time_ms: now_ms(),
            namespace: namespace.to_owned(),
            execution_id: execution_id.map(str::to_owned),
            kind,
        });
        // Under the lock, so that events are sent in the order of their numbers. There may be no subscriber.
        if matches!(event.kind, EventKind::ExecutionOutput { .. }) {
            drop(self.shared.output.send(event));
            return;
        }
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(event.clone());
        drop(self.shared.sender.send(event));
    }

    /// Whether anybody wants output; otherwise it need not be copied.
    pub(crate) fn wants_output(&self) -> bool {
        self.shared.output_wanted.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn subscribe(&self, hears: Hears) -> Subscriber {
        let output = (hears == Hears::Everything).then(|| {
            self.shared.output_wanted.fetch_add(1, Ordering::Relaxed);
            Queue::of(&self.shared.output)
        });
        Subscriber {
            others: Queue::of(&self.shared.sender),
            output,
            output_wanted: self.shared.output_wanted.clone(),
        }
    }

    /// The last of them, output left out, oldest first.
    pub(crate) fn recent(&self) -> Vec<Arc<Event>> {
        lock(&self.shared.recent).iter().cloned().collect()
    }
}

impl Subscriber {
    /// The next event; `None` when the engine is gone.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            let other = self.others.first();
            let is_open = match self.output.as_mut() {
                None if other.is_some() => return self.others.next.take(),
                None => self.others.wait().await,
                // Output that is older than `other` was sent before it, and is found here.
                Some(output) => match output.first() {
                    None if other.is_some() => return self.others.next.take(),
                    None => tokio::select! {
                        is_open = output.wait() => is_open,
                        is_open = self.others.wait() => is_open,
                    },
                    Some(number) if self.others.first().is_none_or(|other| number < other) => {
                        return output.next.take();
                    }
                    Some(_) => return self.others.next.take(),
                },
            };
            if !is_open {
                return None;
            }
        }
    }

    /// How many were lost since the last question, output left out, because this subscriber was too slow.
    pub fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.others.missed)
    }

    pub fn missed_output(&mut self) -> u64 {
        self.output
            .as_mut()
            .map_or(0, |output| std::mem::take(&mut output.missed))
    }
}

struct Queue {
    receiver: broadcast::Receiver<Arc<Event>>,
    next: Option<Arc<Event>>,
    missed: u64,
}

impl Queue {
    fn of(sender: &broadcast::Sender<Arc<Event>>) -> Self {
        Self {
            receiver: sender.subscribe(),
            next: None,
            missed: 0,
        }
    }

    /// The number of the first that is there.
    fn first(&mut self) -> Option<u64> {
        while self.next.is_none() {
            match self.receiver.try_recv() {
                Ok(event) => self.next = Some(event),
                Err(broadcast::error::TryRecvError::Lagged(missed)) => self.missed += missed,
                Err(_) => break,
            }
        }
        self.next.as_ref().map(|event| event.number)
    }

    /// Until there is one; false: there will be none.
    async fn wait(&mut self) -> bool {
        while self.next.is_none() {
            match self.receiver.recv().await {
                Ok(event) => self.next = Some(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => self.missed += missed,
                Err(broadcast::error::RecvError::Closed) => return false,
            }
        }
        true
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> EventKind {
        EventKind::ExecutionStarted {
            language: Language::Shell,
        }
    }

    #[tokio::test]
    async fn a_slow_subscriber_loses_the_oldest_and_is_told_how_many() {
        let bus = Bus::new();
        let mut slow = bus.subscribe(Hears::Everything);
        for _ in 0..WAITING_MAX + 10 {
            bus.publish("default", None, started());
        }
        assert_eq!(slow.next().await.unwrap().number, 11);
        assert_eq!((slow.missed(), slow.missed()), (10, 0));
    }

    fn printed() -> EventKind {
        EventKind::ExecutionOutput {
            stream: "stdout",
            text: "much".to_owned(),
        }
    }

    #[tokio::test]
    async fn output_pushes_nothing_else_out_and_comes_in_its_order() {
        let bus = Bus::new();
        let (mut slow, mut others) = (
            bus.subscribe(Hears::Everything),
            bus.subscribe(Hears::AllButOutput),
        );
        bus.publish("default", None, started());
        for _ in 0..WAITING_MAX + 10 {
            bus.publish("default", None, printed());
        }
        bus.publish("default", None, started());
        let last = WAITING_MAX as u64 + 12;
        let mut heard = vec![
            others.next().await.unwrap().number,
            others.next().await.unwrap().number,
        ];
        assert_eq!(heard, [1, last]);
        heard.clear();
        while heard.last() != Some(&last) {
            heard.push(slow.next().await.unwrap().number);
        }
        let expect: Vec<u64> = [1].into_iter().chain(12..=last).collect();
        assert_eq!(heard, expect);
        assert_eq!(
            (slow.missed(), slow.missed_output(), slow.missed_output()),
            (0, 10, 0)
        );
        drop(bus);
        assert!(slow.next().await.is_none() && others.next().await.is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_leaves_output_out() {
        let bus = Bus::new();
        for _ in 0..RECENT_MAX + 5 {
            bus.publish("default", Some("x"), started());
            bus.publish("default", Some("x"), printed());
        }
        let recent = bus.recent();
        assert_eq!(recent.len(), RECENT_MAX);
        assert!(
            recent
                .iter()
                .all(|event| event.kind.name() == "execution.started")
        );
        assert!(recent.windows(2).all(|pair| pair[0].number < pair[1].number));
    }

    #[test]
    fn an_event_is_written_under_its_name() {
        let bus = Bus::new();
        bus.publish("team", Some("id"), started());
        let written = serde_json::to_value(&*bus.recent()[0]).unwrap();
        assert_eq!(written["event"], "execution.started");
        assert_eq!(
            (&written["namespace"], &written["language"]),
            (&"team".into(), &"shell".into())
        );
        assert_eq!(written["event"], bus.recent()[0].kind.name());
    }
}
