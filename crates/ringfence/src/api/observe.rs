//! The toolset `observe`.

use super::{
    Object, ResourceLimits, operations,
    read::{OneOf, Whole},
    response,
};
use ringfence_store::audit::Outcome;
use schemars::JsonSchema;
use serde::Deserialize;

operations! {
    /// List the files that an execution left, with digest, signature and resource address.
    "get_artifacts" "List an execution's files" Observe Reads
    GetArtifacts {
        /// The execution_id of a result.
        #[serde(alias = "execution_id")]
        request_id: String,
        /// The number of the first, from 0.
        #[schemars(extend("x-unlisted" = true))]
        from: Option<Whole>,
    } -> Artifacts {
        execution_id: String, artifacts: Vec<Object>, artifacts_total: u64, next_from: Option<u64>, manifest: Object,
    }
}

/// Set the default limits of this namespace's programs, within the operator's caps.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub(crate) struct SetResourceLimits(pub(crate) ResourceLimits);
operations!(SetResourceLimits => LimitsNow, "set_resource_limits", "Set default limits", Observe, Sets);

response!(LimitsNow {
    namespace: String,
    limits: Object
});

operations! {
    /// Show this server's load: programs running and waiting, ready sandboxes, memory.
    "sandbox_stats" "Show the server's load" Observe Reads
    SandboxStats {} -> Stats {
        server_id: String, version: String, pid: u32, tier: String, queue: Object, warm: Vec<Object>,
        sessions: u64, vault: String, artifacts_bytes: u64, not_recorded: u64, memory_bytes: u64,
    }

    /// Count what this server did since its start: executions, durations, refusals, limits met.
    "get_sandbox_metrics" "Count what was done" Observe Reads
    GetSandboxMetrics {} -> Metrics {
        uptime_seconds: f64, executions: Object, refusals: Object, limits_exceeded: Object,
        duration_ms: Object, memory_peak_bytes: Object, tools: Object, cpu_seconds: f64, stdout_bytes: u64,
        stderr_bytes: u64, redactions: u64, artifacts: u64,
    }

    /// Describe this namespace: requests, sessions, limits, approved hosts, names of secrets, events.
    "inspect_state" "Describe a namespace" Observe Reads
    InspectState {} -> State {
        namespace: String, running: Vec<Object>, waiting: u64, sessions: Vec<Object>, limits: Object,
        is_narrowed: bool, approved: Vec<String>, secrets: Vec<String>, recent_events: Vec<Object>,
    }

    /// Read this namespace's signed audit record, newest first: what was run or refused, by whom, with what outcome.
    "audit_execution" "Read the audit record" Observe Reads
    AuditExecution {
        /// At most 1000.
        limit: Option<Whole>,
        /// Also caller, details and hash.
        detail: Option<bool>,
        /// Such as execution.failed.
        action: Option<String>,
        /// A time (RFC 3339), or 2h.
        since: Option<String>,
        outcome: Option<OneOf<Outcome>>,
        /// next_before of the page before.
        before: Option<Whole>,
    } -> Records { records: Vec<Object>, next_before: Option<u64> }
}
