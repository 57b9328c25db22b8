//! What happens, as MCP log messages. A client of the handshake revisions sets a level once and hears of everything in
//! its namespaces from then on; one of revision 2026-07-28 sets it for each request and hears of that one.

#![expect(
    deprecated,
    reason = "clients of the handshake revisions have no other way to hear of it"
)]

use ringfence_engine::{Event, EventKind, Subscriber};
use rmcp::{
    Peer, RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam},
};
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// The level that a client has set; nothing is sent before it has.
#[derive(Clone, Default)]
pub(super) struct Level(Arc<AtomicU8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing is forwarded to the client yet.
    Unset,
    Set,
}

impl Level {
    pub(super) fn set(&self, level: LoggingLevel) -> Before {
        match self.0.swap(severity(level), Ordering::Relaxed) {
            0 => Before::Unset,
            _ => Before::Set,
        }
    }

    fn takes(&self, level: LoggingLevel) -> bool {
        let least = self.0.load(Ordering::Relaxed);
        least > 0 && severity(level) >= least
    }
}

impl From<LoggingLevel> for Level {
    fn from(level: LoggingLevel) -> Self {
        Self(Arc::new(AtomicU8::new(severity(level))))
    }
}

/// From 1; RFC 5424 counts the other way.
fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 1,
        LoggingLevel::Info => 2,
        LoggingLevel::Notice => 3,
        LoggingLevel::Warning => 4,
        LoggingLevel::Error => 5,
        LoggingLevel::Critical => 6,
        LoggingLevel::Alert => 7,
        LoggingLevel::Emergency => 8,
    }
}

fn level(kind: &EventKind) -> LoggingLevel {
    match kind {
        EventKind::ExecutionOutput { .. } => LoggingLevel::Debug,
        EventKind::ExecutionStarted { .. }
        | EventKind::ExecutionCompleted(_)
        | EventKind::SessionCreated { .. }
        | EventKind::SessionKilled { .. }
        | EventKind::VaultAccessed { .. }
        | EventKind::PackageInstalled { .. }
        | EventKind::ArtifactSigned { .. }
        | EventKind::SnapshotCreated { .. }
        | EventKind::EgressConnected(_)
        | EventKind::EgressClosed(_)
        | EventKind::EgressRequest(_) => LoggingLevel::Info,
        EventKind::ApprovalRequested(_)
        | EventKind::ApprovalDecided(_)
        | EventKind::EgressRequested(_)
        | EventKind::EgressApproved(_)
        | EventKind::EgressDenied(_)
        | EventKind::EgressRefused(_)
        | EventKind::ExecutionFailed(_)
        | EventKind::SnapshotRestored { .. } => LoggingLevel::Notice,
        EventKind::ExecutionTimeout(_)
        | EventKind::ResourceExceeded { .. }
        | EventKind::EgressUntold { .. }
        | EventKind::QueueBackpressure { .. } => LoggingLevel::Warning,
    }
}

/// Sends what the level takes, of one execution until it has ended, or of all until the engine or the client is gone.
pub(super) async fn forward(
    mut events: Subscriber,
    peer: Peer<RoleServer>,
    level: Level,
    execution_id: Option<String>,
) {
    while let Some(event) = events.next().await {
        let missed = events.missed();
        if missed > 0 && level.takes(LoggingLevel::Warning) {
            let lost = json!({"event": "events.missed", "count": missed});
            if !send(&peer, LoggingLevel::Warning, lost).await {
                return;
            }
        }
        if !concerns(&event, execution_id.as_deref()) {
            continue;
        }
        let text = serde_json::to_value(&*event).unwrap_or_else(|_| json!({"event": event.kind.name()}));
        let of_event = self::level(&event.kind);
        if level.takes(of_event) && !send(&peer, of_event, text).await {
            return;
        }
        if execution_id.is_some() && is_end(&event.kind) {
            return;
        }
    }
}

fn concerns(event: &Event, execution_id: Option<&str>) -> bool {
    execution_id.is_none() || event.execution_id.as_deref() == execution_id
}

fn is_end(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ExecutionCompleted(_) | EventKind::ExecutionFailed(_) | EventKind::ExecutionTimeout(_)
    )
}

/// False: the client is gone.
async fn send(peer: &Peer<RoleServer>, level: LoggingLevel, data: serde_json::Value) -> bool {
    let message = LoggingMessageNotificationParam::new(level, data).with_logger("ringfence");
    peer.notify_logging_message(message).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_before_a_level_is_set_and_nothing_below_it_after() {
        let level = Level::default();
        assert!(!level.takes(LoggingLevel::Emergency));
        assert_eq!(level.set(LoggingLevel::Warning), Before::Unset);
        assert_eq!(level.set(LoggingLevel::Warning), Before::Set);
        assert!(!level.takes(LoggingLevel::Notice));
        assert!(level.takes(LoggingLevel::Warning) && level.takes(LoggingLevel::Alert));
    }
}
