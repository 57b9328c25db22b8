//! The states of a request between the steps of the pipeline.

use crate::{
    admission::Permit,
    artifacts::Baseline,
    backend::RawOutcome,
    caller::{Client, Requester},
    check::PendingCheck,
    egress::Reached,
    language::ProgramReport,
    overlay::HeldChanges,
    packages::Provided,
    policy::Grant,
    record::AuditScope,
    secrets::SecretLease,
    services::Services,
    session::{CallEgress, QueuedTurn, Turn},
    workspaces::WorkspaceLease,
};
use ringfence_jail::ExportDirectory;
use ringfence_types::{Denial, SessionEnd};
use std::{path::PathBuf, sync::Arc};

pub(crate) enum Source {
    Fresh {
        /// Copy artifacts into this directory.
        artifacts_to: Option<PathBuf>,
        /// Keep what it does to an overlay until somebody has decided.
        holds_changes: bool,
    },
    /// In a session, when its turn has come.
    InSession(QueuedTurn),
}

pub(super) struct ExecutionContext<'a> {
    pub(super) services: &'a Arc<Services>,
    pub(super) scope: &'a AuditScope,
    pub(super) client: Client,
}

impl ExecutionContext<'_> {
    pub(super) fn requester(&self) -> Requester {
        Requester {
            caller: self.scope.caller().clone(),
            execution_id: Some(self.scope.id().to_owned()),
            client: self.client.clone(),
        }
    }
}

/// Allowed, checked, on record, and with a permit to run.
pub(super) struct Admitted {
    // Fields are dropped in this order: the permit before the turn of a session.
    pub(super) permit: Permit,
    pub(super) target: Target,
    pub(super) check: PendingCheck,
    pub(super) grant: Grant,
}

impl Admitted {
    /// Bytes that are kept of each output stream.
    pub(super) fn kept_bytes(&self) -> u64 {
        if self.grant.request.capture_output {
            self.grant.limits.output_bytes
        } else {
            0
        }
    }
}

/// What an admitted request holds of the sandbox where it will run.
pub(super) enum Target {
    Fresh(FreshTarget),
    InSession(Turn),
}

pub(super) struct FreshTarget {
    pub(super) packages: Option<Provided>,
    pub(super) copies: Option<ExportDirectory>,
    pub(super) holds_changes: bool,
}

/// With everything that was lent to it.
pub(super) struct Leased {
    /// A call's own; a run's is opened with its sandbox.
    pub(super) egress: Option<CallEgress>,
    pub(super) secrets: Arc<SecretLease>,
    pub(super) workspace: WorkspaceLease,
}

/// Its program has ended, and egress is closed.
pub(super) struct Finished {
    pub(super) raw: RawOutcome,
    pub(super) program: ProgramReport,
    pub(super) reached: Reached,
    /// What it has done to an overlay, or why that cannot be told.
    pub(super) changes: Result<Option<HeldChanges>, Denial>,
    /// The session has ended with it.
    pub(super) session_ended: Option<SessionEnd>,
    /// What a run found when it started.
    pub(super) before: Baseline,
    pub(super) secrets: Arc<SecretLease>,
    pub(super) workspace: WorkspaceLease,
}
