//! The services of one engine, for the steps of a request. A component has only those that it needs.

use crate::{
    admission::Queue,
    approval::{Approvals, TakenOnce},
    caller::{Caller, ENGINE_CALLER},
    check::Checkers,
    disk::Disk,
    egress::Egress,
    error::Result,
    executions::Executions,
    host::HostAccess,
    packages::Packages,
    policy::NamespaceState,
    policy_store::PolicyStore,
    record::{Note, Record},
    sandbox::Sandboxes,
    secrets::Secrets,
    session::Sessions,
    store,
    telemetry::Telemetry,
    web::Web,
    workspaces::Workspaces,
};
use ringfence_store::{
    artifacts::ArtifactStore,
    audit::{Action, Outcome},
    snapshots::SnapshotStore,
};
use ringfence_types::{Namespace, SessionId};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

pub(crate) struct Services {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) queue: Queue,
    pub(crate) checkers: Arc<Checkers>,
    pub(crate) telemetry: Telemetry,
    pub(crate) record: Record,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) web: Arc<Web>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) workspaces: Workspaces,
    pub(crate) disk: Arc<Disk>,
    pub(crate) packages: Arc<Packages>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) host: HostAccess,
    pub(crate) executions: Executions,
    pub(crate) policy: Arc<PolicyStore>,
    pub(crate) id: String,
    pub(crate) is_stop_recorded: AtomicBool,
    /// Notified when an execution has ended.
    pub(crate) execution_ended: Notify,
}

impl Services {
    /// Records the start of the server, and closes the entries that crashed servers left open.
    pub(crate) fn begin_record(&self) -> Result<()> {
        let facts = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "tier": self.sandboxes.tier,
            "vault": self.secrets.vault.kind(),
        });
        let started = Self::note(Action::ServerStarted, Outcome::Ok, facts);
        self.record.note_now(started)?;
        self.record.close_lost()
    }

    /// Returns the state for deciding on a caller's request in the namespace, or in the session.
    pub(crate) fn namespace_state(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        session: Option<&SessionId>,
    ) -> NamespaceState {
        NamespaceState {
            limits: self.policy.own_limits(namespace),
            caller: caller.caps().cloned(),
            approved: self.approvals.approved(namespace, session),
        }
    }

    /// Returns the state for a run, or a call of the session. It takes the approvals for the next run.
    pub(crate) fn state_for_run(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        session: Option<&SessionId>,
    ) -> (NamespaceState, TakenOnce) {
        let mut state = self.namespace_state(caller, namespace, session);
        let once = self.approvals.store.take_once(namespace, session);
        state.approved.once = once.rules();
        (state, once)
    }

    pub(crate) fn note(action: Action, outcome: Outcome, details: Value) -> Note<'static> {
        Note::of(&ENGINE_CALLER, "", action, details).ended(outcome)
    }

    /// Records the stop of the server. If that fails, only the log says so, since nothing can be refused any more.
    pub(crate) fn record_stop(&self, log_bytes_left: u64) {
        if self.is_stop_recorded.swap(true, Ordering::Relaxed) {
            return;
        }
        // A process of one run has no later moment for it. One that has added nothing may have other settings.
        if self.artifacts.has_added() {
            if self.artifacts.sweep_is_due() {
                store::sweep(&self.artifacts);
            }
            if let Err(error) = self.artifacts.note_added() {
                tracing::warn!(%error, "the next sweep of the artifacts may be late");
            }
        }
        self.record.flush_refusals();
        let details = json!({"not_recorded": self.record.lost()});
        if let Err(error) = self
            .record
            .note_now(Self::note(Action::ServerStopped, Outcome::Ok, details))
        {
            tracing::error!(%error, "the end of the server is not on record");
        }
        self.record.audit.checkpoint(log_bytes_left);
    }
}
