//! Events as MCP log messages. A client of the handshake revisions sets a level once and receives all events of its
//! namespaces from then on; one of revision 2026-07-28 sets it for each request and receives the events of that one.

#![expect(
    deprecated,
    reason = "clients of the handshake revisions have no other way to receive events"
)]

use crate::settings::Namespaces;
use ringfence_engine::{Event, EventKind, Hears, Subscriber};
use rmcp::{
    Peer, RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam},
};
use serde_json::json;

/// Returns the events to subscribe to for `level`: output is sent at `debug`, and not copied for any other level.
pub(super) fn subscription(level: LoggingLevel) -> Hears {
    match level {
        LoggingLevel::Debug => Hears::Everything,
        _ => Hears::AllButOutput,
    }
}

fn level_of(kind: &EventKind) -> LoggingLevel {
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
        | EventKind::HostRequested(_)
        | EventKind::HostApproved(_)
        | EventKind::HostDenied(_)
        | EventKind::EgressRefused(_)
        | EventKind::ExecutionFailed(_)
        | EventKind::SnapshotRestored { .. } => LoggingLevel::Notice,
        EventKind::ExecutionTimeout(_)
        | EventKind::ResourceExceeded { .. }
        | EventKind::EgressUntold { .. }
        | EventKind::QueueBackpressure { .. } => LoggingLevel::Warning,
    }
}

pub(super) enum EventFilter {
    /// Events of one execution, until it has ended.
    Execution(String),
    /// Events of a caller's namespaces, until the engine or the client is gone.
    Namespaces(Namespaces),
}

impl EventFilter {
    fn concerns(&self, event: &Event) -> bool {
        match self {
            Self::Execution(id) => event.execution_id.as_ref() == Some(id),
            Self::Namespaces(namespaces) => namespaces.has(&event.namespace),
        }
    }
}

/// Sends events of `least` and above.
pub(super) async fn forward(
    mut events: Subscriber,
    peer: Peer<RoleServer>,
    least: LoggingLevel,
    filter: EventFilter,
) {
    // The library declares the levels in this order.
    let takes = |level: LoggingLevel| level as u8 >= least as u8;
    while let Some(event) = events.next().await {
        let count = events.missed();
        if count > 0 {
            let text = json!({"event": "events.missed", "count": count});
            if takes(LoggingLevel::Warning) && !send(&peer, LoggingLevel::Warning, text).await {
                return;
            }
        }
        if !filter.concerns(&event) {
            continue;
        }
        let text = serde_json::to_value(&*event).unwrap_or_else(|_| json!({"event": event.kind.name()}));
        let level = level_of(&event.kind);
        if takes(level) && !send(&peer, level, text).await {
            return;
        }
        if matches!(filter, EventFilter::Execution(_)) && is_end(&event.kind) {
            return;
        }
    }
}

fn is_end(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ExecutionCompleted(_) | EventKind::ExecutionFailed(_) | EventKind::ExecutionTimeout(_)
    )
}

/// Returns false if the client is gone.
async fn send(peer: &Peer<RoleServer>, level: LoggingLevel, data: serde_json::Value) -> bool {
    let message = LoggingMessageNotificationParam::new(level, data).with_logger("ringfence");
    peer.notify_logging_message(message).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_output_is_sent_at_debug_only() {
        assert!((LoggingLevel::Notice as u8) < LoggingLevel::Warning as u8);
        assert!((LoggingLevel::Warning as u8) < LoggingLevel::Alert as u8);
        assert_eq!(subscription(LoggingLevel::Debug), Hears::Everything);
        assert_eq!(subscription(LoggingLevel::Info), Hears::AllButOutput);
    }
}
