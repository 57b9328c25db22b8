//! Events, redacted, as they happen. A slow subscriber loses the oldest events and gets their count.

use crate::sync::lock;
use ringfence_types::{ExitKind, Language, Phases, ResourceUsage};
use serde::Serialize;
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::broadcast::{self, error::RecvError};

/// Maximum events that wait for the slowest subscriber.
const WAITING_MAX: usize = 1024;
const RECENT_MAX: usize = 100;

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// The sequence number, from 1, without gaps.
    pub number: u64,
    /// Unix time.
    pub time_ms: u64,
    pub namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Declares each event with its name once, both for serialization and for `name`.
macro_rules! events {
    ($($(#[$about:meta])* $name:literal => $variant:ident $({ $($fields:tt)* })? $(($facts:ty))?,)+) => {
        /// The events of this version. Their names are part of the contract.
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
    /// A program ended by itself, with success.
    "execution.completed" => ExecutionCompleted(Ended),
    /// A program ended in another way, except by its timeout, or the request was refused.
    "execution.failed" => ExecutionFailed(Ended),
    "execution.timeout" => ExecutionTimeout(Ended),
    /// A program wrote output. Published only while a subscriber wants output.
    "execution.output" => ExecutionOutput {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// Redacted; bytes that are not UTF-8 become U+FFFD.
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
    /// A program was given secrets.
    "vault.accessed" => VaultAccessed {
        secrets: Vec<String>,
    },
    /// Packages were installed, for this request and later ones.
    "package.installed" => PackageInstalled {
        language: Language,
        /// Names and versions, including dependencies.
        packages: Vec<String>,
    },
    "egress.connected" => EgressConnected(EgressFacts),
    "egress.closed" => EgressClosed(EgressFacts),
    /// A program sent a request that could be read.
    "egress.request" => EgressRequest(EgressFacts),
    "egress.refused" => EgressRefused(EgressFacts),
    /// Egress events were dropped because there were too many at once.
    "egress.untold" => EgressUntold {
        count: u64,
    },
    /// A person is asked.
    "approval.requested" => ApprovalRequested(ApprovalFacts),
    /// A request for approval was decided, or got no answer.
    "approval.decided" => ApprovalDecided(ApprovalFacts),
    /// A person is asked to let programs reach a host.
    "egress.requested" => EgressRequested(ApprovalFacts),
    "egress.approved" => EgressApproved(ApprovalFacts),
    "egress.denied" => EgressDenied(ApprovalFacts),
    /// A caller requests a command of the host, or a person is asked to allow one.
    "host.requested" => HostRequested(ApprovalFacts),
    /// The command may run, by a rule or by a person's approval.
    "host.approved" => HostApproved(ApprovalFacts),
    "host.denied" => HostDenied(ApprovalFacts),
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
    "snapshot.restored" => SnapshotRestored {
        snapshot_id: String,
    },
    /// The queue is nearly full, or a request was refused.
    "queue.backpressure" => QueueBackpressure {
        waiting: usize,
        waiting_max: usize,
    },
}

/// The facts of a program's connection or request. Texts from inside the sandbox are escaped and cut.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EgressFacts {
    /// The requested host name, or the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that was dialled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of the request, without the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Names of the secrets put into the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The smallest change that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Bytes sent by an ended connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
}

/// A request for approval, without the caller's reason: only those who decide see that.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ApprovalFacts {
    pub request_id: String,
    /// `egress` or `host`.
    pub kind: &'static str,
    /// The exact subject, without secrets.
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// True: approved. Absent: not decided.
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
    /// The exit; none: it was refused.
    pub exit: Option<ExitKind>,
    /// The exit code as a shell reports it.
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<&'static str>,
    /// Milliseconds from acceptance to result.
    pub duration_ms: f64,
    pub phases: Phases,
    pub resource_usage: ResourceUsage,
}

#[derive(Clone)]
pub(crate) struct Bus {
    shared: Arc<Shared>,
}

struct Shared {
    everything: broadcast::Sender<Arc<Event>>,
    all_but_output: broadcast::Sender<Arc<Event>>,
    recent: Mutex<VecDeque<Arc<Event>>>,
    numbers: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    Everything,
    AllButOutput,
}

pub struct Subscriber {
    events: broadcast::Receiver<Arc<Event>>,
    missed: u64,
}

impl Bus {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                everything: broadcast::channel(WAITING_MAX).0,
                all_but_output: broadcast::channel(WAITING_MAX).0,
                recent: Mutex::new(VecDeque::with_capacity(RECENT_MAX)),
                numbers: AtomicU64::new(1),
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
        drop(self.shared.everything.send(event.clone()));
        if matches!(event.kind, EventKind::ExecutionOutput { .. }) {
            return;
        }
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(event.clone());
        drop(self.shared.all_but_output.send(event));
    }

    /// Returns true if a subscriber wants output; otherwise it need not be copied.
    pub(crate) fn is_output_wanted(&self) -> bool {
        self.shared.everything.receiver_count() > 0
    }

    pub(crate) fn subscribe(&self, hears: Hears) -> Subscriber {
        let sender = match hears {
            Hears::Everything => &self.shared.everything,
            Hears::AllButOutput => &self.shared.all_but_output,
        };
        Subscriber {
            events: sender.subscribe(),
            missed: 0,
        }
    }

    pub(crate) fn recent(&self) -> Vec<Arc<Event>> {
        lock(&self.shared.recent).iter().cloned().collect()
    }
}

impl Subscriber {
    /// Waits for the next event; `None` when the engine is gone.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            match self.events.recv().await {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(missed)) => self.missed += missed,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Returns the number of events lost since the last call because this subscriber was too slow.
    pub fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
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
    async fn slow_subscriber_loses_the_oldest_events_and_gets_their_count() {
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
    async fn events_arrive_in_order_and_output_only_where_it_is_wanted() {
        let bus = Bus::new();
        let mut others = bus.subscribe(Hears::AllButOutput);
        assert!(!bus.is_output_wanted());
        let mut everything = bus.subscribe(Hears::Everything);
        assert!(bus.is_output_wanted());
        bus.publish("default", None, started());
        for _ in 0..WAITING_MAX + 10 {
            bus.publish("default", None, printed());
        }
        bus.publish("default", None, started());
        let last = WAITING_MAX as u64 + 12;
        for expect in [1, last] {
            assert_eq!(others.next().await.unwrap().number, expect);
        }
        for expect in 13..=last {
            assert_eq!(everything.next().await.unwrap().number, expect);
        }
        assert_eq!((everything.missed(), others.missed()), (12, 0));
        drop(bus);
        assert!(everything.next().await.is_none() && others.next().await.is_none());
    }

    #[test]
    fn recent_events_are_bounded_and_exclude_output() {
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
    fn event_is_serialized_under_its_name() {
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
