//! One request from start to finish. The only crate that knows the order of the steps; `execute` tells it.
#![forbid(unsafe_code)]

mod approval;
mod artifacts;
mod backend;
mod changes;
mod check;
mod directories;
mod egress;
mod engine;
mod events;
mod execute;
mod files;
mod imports;
mod language;
mod log_redactor;
mod meters;
mod observe;
mod overlay;
mod packages;
mod picture;
mod policy;
mod prepare;
mod queue;
mod record;
mod report;
mod room;
mod runtimes;
mod sandbox;
mod seats;
mod secrets;
mod session;
mod settings;
mod snapshots;
mod store;
mod streams;
mod validate;
mod warm;
mod worker;
mod workspaces;

pub use approval::{
    Answer, ApprovalRequest, ApprovalSettings, ApprovalWatch, Decision, DeniedBy, EgressWish,
    REASON_CHARS_MAX, Scope, ScopeWish, Verdict as ApprovalVerdict, Waiting, egress_rule,
};
pub use artifacts::{artifact_uri, create_below};
pub use changes::{Base, Changed, Difference, Lay, RiskFacts};
pub use directories::{DirectoryGot, DirectoryPut};
pub use engine::{
    Caller, Canceller, Engine, Execution, OutputChunk, OutputStream, Runtime, SandboxInfo, Stdin, Submission,
};
pub use events::{ApprovalFacts, Ended, Event, EventKind, Hears, Subscriber};
pub use files::{FILE_BYTES_MAX, FileFacts, Whose};
pub use language::{Blocked, ProgramReport, read_report};
pub use log_redactor::LogRedactor;
pub use meters::{Counts, Percentiles};
pub use observe::{Inspection, Reload, RunningNow, Stats, Warm};
pub use overlay::{CommittedChanges, Conflicts, HeldChanges, UNTOLD};
pub use packages::{Installation, Installed, LAST_WORDS, PackageSettings, PackageSources, PackageWish};
pub use picture::Picture;
pub use queue::{LineState, QueueState};
pub use ringfence_check::{CsvQuestion, Rule, check_known_import, check_schema, profile};
pub use ringfence_egress::{
    Limits as EgressLimits, PlaceError, Rule as HostRule, RuleError as HostRuleError, SecretPlace,
};
pub use ringfence_jail::Outlet;
use ringfence_jail::worker::Work;
pub use ringfence_redact::{Personal, SHORTEST_SECRET};
pub use ringfence_store::layers::Package;
pub use session::{Bridged, Gift, SessionSettings};
pub use settings::{
    AuditSettings, CheckSettings, EgressPolicy, EgressRule, EgressSettings, EngineSettings, IndexHost,
    ListedWorkspace, OnDenied, OnFailure, PackagePolicy, PolicySettings, QueueSettings, Rate, RecordSettings,
    RuntimeSettings, SecretBinding, SecretRule,
};
pub use snapshots::{EXPORT_BYTES_MAX, SnapshotFacts, SnapshotMade, SnapshotRestored};
pub use validate::{CodeWish, DATA_BYTES_MAX, Fixing, SchemaWish, check_rules};
pub use warm::WarmSettings;

/// The worker that gives back what it is given: the smallest program that proves a sandbox.
pub(crate) const ECHO: &str = "echo";

/// The functions of this binary that run inside jails; `main` hands them to the helper.
pub fn workers() -> ringfence_jail::helper::Workers {
    &[
        (ECHO, Work::Once(|input| input.to_vec())),
        (prepare::PREPARE, Work::Once(ringfence_check::prepare)),
        (picture::PICTURE, Work::Once(ringfence_check::picture)),
        (
            check::CHECK,
            Work::Kept {
                prepare: ringfence_check::warm_up,
                answer: ringfence_check::answer_frame,
            },
        ),
    ]
}
