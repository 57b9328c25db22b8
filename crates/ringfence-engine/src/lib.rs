//! One request from start to finish. No other crate knows the order of the steps; it is in `execution`.
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an inner crate: a name that says it all has no comment"
)]

mod admission;
mod api;
mod approval;
mod artifacts;
mod backend;
mod caller;
mod changes;
mod check;
mod containers;
mod disk;
mod disk_quota;
mod egress;
mod error;
mod events;
mod execution;
mod executions;
mod host;
mod imports;
mod language;
mod limits_met;
mod log_redactor;
mod metrics;
mod overlay;
mod packages;
mod picture;
mod policy;
mod policy_store;
mod pool;
mod prepare;
mod record;
mod report;
mod runtimes;
mod sandbox;
mod secrets;
mod services;
mod session;
mod settings;
mod store;
mod streams;
mod sync;
mod telemetry;
mod warm;
mod web;
mod worker;
mod workspace_error;
mod workspaces;

pub use admission::{LineState, QueueState};
pub use api::{
    Canceller, CodeRequest, DATA_BYTES_MAX, DirectoryGot, DirectoryPut, EXPORT_BYTES_MAX, Edit, Edited,
    Engine, EngineTask, Execution, FileFacts, Fixing, HostAccessList, HostCommand, HostFile, HostListing,
    HostRequest, HostRun, HostVerdict, HostWritten, Inspection, NamespaceAccess, Reload, RunningNow, Runtime,
    SandboxInfo, SchemaChoice, SnapshotFacts, SnapshotMade, Stats, Warm, WorkspaceAccess, check_rules,
    egress_rule, ending_words,
};
pub use approval::{
    Answer, ApprovalRequest, ApprovalWatch, Decision, DeniedBy, REASON_CHARS_MAX, Scope, ScopeChoice,
    Verdict as ApprovalVerdict, Waiting,
};
pub use artifacts::{artifact_uri, create_below};
pub use backend::EarlyStart;
pub use caller::{Caller, OutputChunk, OutputStream, Stdin, Submission};
pub use changes::{Base, Changed, Difference, Lay};
pub use containers::ContainerRuntime;
pub use events::{ApprovalFacts, Ended, Event, EventKind, Hears, Subscriber};
pub use executions::{Cancelled, ExecutionLine, ExecutionState, ExecutionTimes, Following, Progress};
pub use language::{Blocked, ProgramReport, read_report};
pub use log_redactor::LogRedactor;
pub use metrics::{CallEnd, Counts, Percentiles, ToolCounts};
pub use overlay::{CommittedChanges, Conflicts, HeldChanges, UNTOLD};
pub use picture::Picture;
pub use policy::check_caps;
pub use ringfence_check::{CsvQuestion, Rule, check_known_import, check_schema, profile, read_exactly};
pub use ringfence_egress::{
    Limits as EgressLimits, PlaceError, Rule as HostRule, RuleError as HostRuleError, SecretPlace,
};
pub use ringfence_host::{
    Access as HostFileAccess, CHILD_WORD as HOST_CHILD_WORD, Ending as HostEnding, FileEntry as HostEntry,
    Rules as HostRules, Writing as HostWriting, load as load_host_rules, run_child as run_host_child,
};
pub use ringfence_jail::ExportDirectory;
use ringfence_jail::worker::{Answering, Work};
pub use ringfence_redact::{Personal, SHORTEST_SECRET};
pub use ringfence_store::{layers::Package, tree::Risk as RiskFacts};
pub use ringfence_web::{
    Fence, Provider as SearchProvider, ProviderKind, Recency, SearchQuery, Searched, Target as WebUrl,
    WaitUntil,
};
pub use session::{Bridged, BridgedValue, Installed};
pub use settings::{
    ApprovalSettings, AuditSettings, BackendPolicy, BackendSettings, CheckSettings, DiskPolicy, EgressPolicy,
    EgressRule, EgressSettings, EngineSettings, Images, IndexHost, ListedWorkspace, OnDenied, OnFailure,
    PackagePolicy, PackageSettings, PackageSources, PolicySettings, QueueSettings, Rate, RecordSettings,
    ResultSettings, RuntimeSettings, SecretBinding, SecretRule, SessionSettings, WarmSettings, WebSettings,
};
pub use web::{BrowseRequest, PageRequest, SearchRequest, WebPage, tried};
pub use workspaces::{FILE_BYTES_MAX, WorkspaceRef};

/// The worker that returns its input: the smallest program that proves a sandbox.
pub(crate) const ECHO: &str = "echo";

/// Returns the functions of this binary that run inside jails; `main` passes them to the helper.
pub fn workers() -> ringfence_jail::helper::Workers {
    const fn kept(by: Answering) -> Work {
        Work::Kept {
            by,
            prepare: ringfence_check::warm_up,
            answer: ringfence_check::answer_frame,
        }
    }
    const WORKERS: ringfence_jail::helper::Workers = &[
        (ECHO, Work::Once(|input| input.to_vec())),
        (language::PREPARE, Work::Once(ringfence_check::prepare)),
        (picture::PICTURE, Work::Once(ringfence_check::picture)),
        (web::DOCUMENT, Work::Once(ringfence_web::read_document)),
        (check::CHECK, kept(Answering::Forks)),
        (check::ADVISE, kept(Answering::Itself)),
    ];
    WORKERS
}
