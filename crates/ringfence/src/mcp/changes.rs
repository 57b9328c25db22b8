//! Tells clients that the tools have changed: their schemas name the limits, which an operator may change while the
//! server runs. A client of the handshake revisions is told at once; one of revision 2026-07-28 when it listens.

use ringfence_engine::PolicySettings;
use rmcp::{Peer, RoleServer, service::SubscriptionContext};
use tokio::sync::watch;

pub(super) async fn tell(mut policy: watch::Receiver<PolicySettings>, peer: Peer<RoleServer>) {
    policy.mark_unchanged();
    while policy.changed().await.is_ok() {
        if peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}

/// The same until the client has heard enough.
pub(super) async fn tell_listener(
    mut policy: watch::Receiver<PolicySettings>,
    listener: &SubscriptionContext,
) {
    if listener.accepted().tools_list_changed != Some(true) {
        return listener.cancelled().await;
    }
    policy.mark_unchanged();
    loop {
        tokio::select! {
            () = listener.cancelled() => return,
            Ok(()) = policy.changed() => {}
            else => return,
        }
        if listener.sink().notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}
