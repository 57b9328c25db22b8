//! The states of a request between the steps of the pipeline.

use crate::{
    admission::Permit,
    approval::TakenOnce,
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
        /// The directory that artifacts are copied into.
        artifacts_to: Option<PathBuf>,
        /// Keeps changes to an overlay until they are accepted or discarded.
        holds_changes: bool,
    },
    /// A call of a session, with its place in the session's queue.
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

/// A request that is allowed, checked, on record, and has a permit to run.
pub(super) struct Admitted {
    // Fields are dropped in this order: the permit before the turn of a session.
    pub(super) permit: Permit,
    pub(super) target: Target,
    pub(super) check: PendingCheck,
    pub(super) grant: Grant,
    pub(super) once: TakenOnce,
}

impl Admitted {
    /// Returns the bytes kept of each output stream.
    pub(super) fn kept_bytes(&self) -> u64 {
        if self.grant.request.capture_output {
            self.grant.limits.output_bytes
        } else {
            0
        }
    }
}

pub(super) enum Target {
    Fresh(FreshTarget),
    InSession(Turn),
}

pub(super) struct FreshTarget {
    pub(super) packages: Option<Provided>,
    pub(super) copies: Option<ExportDirectory>,
    pub(super) holds_changes: bool,
}

pub(super) struct Leased {
    /// The egress of a call; that of a run is opened with its sandbox.
    pub(super) egress: Option<CallEgress>,
    pub(super) secrets: Arc<SecretLease>,
    pub(super) workspace: WorkspaceLease,
}

/// The state after the program has ended and its egress is closed.
pub(super) struct Finished {
    pub(super) raw: RawOutcome,
    pub(super) program: ProgramReport,
    pub(super) reached: Reached,
    /// Changes to an overlay, or the reason why they cannot be read.
    pub(super) changes: Result<Option<HeldChanges>, Denial>,
    /// The reason, if the session has ended with this call.
    pub(super) session_ended: Option<SessionEnd>,
    /// Files that were there before a run started.
    pub(super) before: Baseline,
    pub(super) secrets: Arc<SecretLease>,
    pub(super) workspace: WorkspaceLease,
}
