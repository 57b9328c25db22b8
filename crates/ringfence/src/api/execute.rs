//! The toolset `execute`, except `validate_code`.

use super::{
    Object, operations,
    read::{Many, OneOf, Whole},
};
use ringfence_types::{
    Argument, Backend, EnvName, EnvValue, ExecutionResult, Language, ModuleName, Profile, SessionId,
    Validate, WorkspacePath,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

operations! {
    /// Run a complete program (Python, Node.js, TypeScript or bash) in a fresh sandbox. Variables stay only in a
    /// session (session_id), files also with workspace "namespace". No network but hosts the operator allows. Files
    /// left in the working directory come back as artifacts, Python's last expression as result.
    "execute_code" "Run code in a sandbox" Execute Runs
    ExecuteCode {
        /// The complete program.
        code: String,
        /// Default: python, or the session's.
        language: Option<OneOf<Language>>,
        session_id: Option<SessionId>,
        /// Answer at once; see get_execution.
        background: Option<bool>,
        /// Time after which the call is answered while its program runs on; 0: never. Default: the operator's setting.
        #[serde(alias = "detach_after")]
        #[schemars(extend("x-unlisted" = true))]
        detach_after_seconds: Option<f64>,
        #[serde(alias = "timeout", alias = "timeout_sec")]
        timeout_seconds: Option<f64>,
        /// Such as pandas>=2 or lodash@4.
        packages: Option<Many<Vec<String>>>,
        files: Option<Vec<FileInput>>,
        /// Environment variables.
        #[serde(alias = "env_vars")]
        #[schemars(extend("x-unlisted" = true))]
        env: Option<BTreeMap<EnvName, EnvValue>>,
        /// Names of secrets in the vault.
        secrets: Option<Many<BTreeSet<EnvName>>>,
        /// The program's arguments.
        #[schemars(extend("x-unlisted" = true))]
        args: Option<Vec<Argument>>,
        stdin: Option<String>,
        /// private (default), namespace (kept), or a listed directory.
        workspace: Option<String>,
        /// Narrows the allowed hosts.
        #[schemars(extend("x-unlisted" = true))]
        allowed_domains: Option<Many<Vec<String>>>,
        /// Such as 512m or 1g.
        #[schemars(extend("x-unlisted" = true))]
        memory_limit: Option<String>,
        resource_limits: Option<ResourceLimits>,
        /// warn (default) reports, fix adds imports, strict refuses.
        #[serde(alias = "validate")]
        validation: Option<OneOf<Validate>>,
        /// Python modules that may be imported, as get_sandbox_info lists them.
        #[schemars(extend("x-unlisted" = true))]
        profile: Option<OneOf<Profile>>,
        /// Python modules besides those of the profile.
        #[schemars(extend("x-unlisted" = true))]
        allowed_imports: Option<Many<BTreeSet<ModuleName>>>,
        /// false: output is counted and not kept.
        #[schemars(extend("x-unlisted" = true))]
        capture_output: Option<bool>,
        /// true: as backend docker.
        #[schemars(extend("x-unlisted" = true))]
        use_container: Option<bool>,
        /// The sandbox's backend, where the operator lets callers choose: native, docker, gvisor.
        #[schemars(extend("x-unlisted" = true))]
        backend: Option<OneOf<Backend>>,
    } -> Ran
}

/// The result, or the output so far of a program that still runs.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Ran {
    #[serde(flatten)]
    result: ExecutionResult,
    /// Number of artifacts; `artifacts` lists the first ten.
    artifacts_total: u64,
    running: bool,
    stdout_next: u64,
    stderr_next: u64,
}

// Exactly one of text, base64 and artifact is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileInput {
    pub(crate) path: WorkspacePath,
    pub(crate) text: Option<String>,
    pub(crate) base64: Option<String>,
    /// Its URI.
    pub(crate) artifact: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResourceLimits {
    pub(crate) max_ram_mb: Option<Whole>,
    pub(crate) max_cpu_cores: Option<f64>,
    pub(crate) timeout_seconds: Option<f64>,
    pub(crate) max_processes: Option<Whole>,
    pub(crate) max_output_bytes: Option<Whole>,
    pub(crate) max_disk_mb: Option<Whole>,
}

operations! {
    /// Run Python without os, subprocess etc. on the namespace's kept files; prefer execute_code.
    "run_sandbox_code" "Run Python on the kept files" Execute Runs
    RunSandboxCode {
        code: String,
        #[serde(alias = "timeout", alias = "timeout_seconds")]
        timeout_sec: Option<f64>,
    } -> Object

    /// Read an execution by its id: its result, or while it runs its output so far.
    "get_execution" "Read an execution" Execute Reads
    GetExecution {
        execution_id: String,
        /// Until it ends, at most 25.
        wait_seconds: Option<f64>,
        stdout_from: Option<Whole>,
        stderr_from: Option<Whole>,
    } -> Object

    /// List the latest executions (10), also those whose call was cut off.
    "list_executions" "List executions" Execute Reads
    ListExecutions {
        limit: Option<Whole>,
        session_id: Option<SessionId>,
    } -> Executions { executions: Vec<Object> }

    /// Stop a running execution; what it printed is kept.
    "cancel_execution" "Stop an execution" Execute Replaces
    CancelExecution {
        execution_id: String,
    } -> Cancelled { cancelled: bool, existed: bool }

    /// Install packages from PyPI or npm, into a session or ahead of an execute_code that names them.
    "install_package" "Install packages" Execute Reaches
    InstallPackage {
        language: Option<OneOf<Language>>,
        packages: Many<Vec<String>>,
        session_id: Option<SessionId>,
    } -> Installed { installed: Vec<Object>, output: String, replaced: Vec<String>, duration_ms: f64 }

    /// List languages with their versions, and why one is missing.
    "list_runtimes" "List languages" Execute Reads
    ListRuntimes {} -> Runtimes { runtimes: Vec<Object> }

    /// Describe isolation, the default and largest limits, and what each profile may import.
    "get_sandbox_info" "Describe the sandbox" Execute Reads
    GetSandboxInfo {} -> SandboxInfo {
        security_profiles: Object, resource_limits: Object, container_mode: Object, isolation: Object,
        limits: Object,
    }
}
