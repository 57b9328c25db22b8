//! The services of one engine, for those who put the steps of a request together. A component has only those that it
//! needs.

use crate::{
    admission::Queue,
    approval::Approvals,
    caller::OURS,
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
    pub(crate) has_said_goodbye: AtomicBool,
    /// Rings when an execution has ended.
    pub(crate) one_ended: Notify,
}

impl Services {
    /// Lets the record say who serves here, and what was left open by servers that died.
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

    /// What is so of a namespace when one of its requests, or one of the session's, is decided.
    pub(crate) fn namespace_state(
        &self,
        namespace: &Namespace,
        session: Option<&SessionId>,
    ) -> NamespaceState {
        NamespaceState {
            limits: self.policy.own_limits(namespace),
            approved: self.approvals.approved(namespace, session),
        }
    }

    /// The state for a run, or a call of the session, which takes what was approved for the next one.
    pub(crate) fn state_for_run(&self, namespace: &Namespace, session: Option<&SessionId>) -> NamespaceState {
        let mut state = self.namespace_state(namespace, session);
        state.approved.once = self.approvals.store.take_once(namespace, session);
        state
    }

    /// A note of what the engine itself does.
    pub(crate) fn note(action: Action, outcome: Outcome, details: Value) -> Note<'static> {
        Note::of(&OURS, "", action, details).ended(outcome)
    }

    /// Nothing can be refused any more; that it is not on record is told by the log.
    pub(crate) fn say_goodbye(&self, log_bytes_left: u64) {
        if self.has_said_goodbye.swap(true, Ordering::Relaxed) {
            return;
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
