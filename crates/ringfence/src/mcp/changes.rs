//! Notifies clients that the tools have changed: their schemas name the limits, which an operator may change while the
//! server runs. A client of the handshake revisions is always notified; one of revision 2026-07-28 while it listens.

use ringfence_engine::PolicySettings;
use rmcp::{Peer, RoleServer, service::SubscriptionContext};
use tokio::sync::watch;

pub(super) async fn notify(mut policy: watch::Receiver<PolicySettings>, peer: Peer<RoleServer>) {
    policy.mark_unchanged();
    while policy.changed().await.is_ok() {
        if peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}

pub(super) async fn notify_listener(
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
