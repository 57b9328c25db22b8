//! The toolset `execute`, but for what only looks at code.

use super::{
    Object, operation,
    read::{BACKENDS, LANGUAGES, Whole, many, words},
    response,
};
use ringfence_types::{
    Argument, Backend, EnvName, EnvValue, ExecutionResult, Language, ModuleName, Profile, SessionId,
    Validate, WorkspacePath,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Run a complete program (Python, Node.js, TypeScript or bash) in a fresh sandbox. Variables stay only in a session
/// (session_id), files also with workspace "namespace". No network but hosts the operator allows. Files left in the
/// working directory come back as artifacts, Python's last expression as result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecuteCode {
    /// The complete program.
    pub(crate) code: String,
    /// Default: python, or the session's.
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = LANGUAGES))]
    pub(crate) language: Option<Language>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
    /// Answer at once; see get_execution.
    pub(crate) background: Option<bool>,
    /// Then the call is answered and its program runs on; 0: never. Default: as the operator says.
    #[serde(alias = "detach_after")]
    #[schemars(extend("x-unlisted" = true))]
    pub(crate) detach_after_seconds: Option<f64>,
    #[serde(alias = "timeout", alias = "timeout_sec")]
    pub(crate) timeout_seconds: Option<f64>,
    /// Such as pandas>=2 or lodash@4.
    #[serde(default, deserialize_with = "many")]
    pub(crate) packages: Option<Vec<String>>,
    pub(crate) files: Option<Vec<FileInput>>,
    #[serde(alias = "env_vars")]
    #[schemars(with = "Option<BTreeMap<String, String>>", extend("x-unlisted" = true))]
    pub(crate) env: Option<BTreeMap<EnvName, EnvValue>>,
    /// Names of secrets in the vault.
    #[serde(default, deserialize_with = "many")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) secrets: Option<BTreeSet<EnvName>>,
    #[schemars(with = "Option<Vec<String>>", extend("x-unlisted" = true))]
    pub(crate) args: Option<Vec<Argument>>,
    pub(crate) stdin: Option<String>,
    /// private (default), namespace (kept), or a listed directory.
    pub(crate) workspace: Option<String>,
    /// Narrows the allowed hosts.
    #[serde(default, deserialize_with = "many")]
    #[schemars(extend("x-unlisted" = true))]
    pub(crate) allowed_domains: Option<Vec<String>>,
    /// Such as 512m or 1g.
    #[schemars(extend("x-unlisted" = true))]
    pub(crate) memory_limit: Option<String>,
    pub(crate) resource_limits: Option<ResourceLimits>,
    /// warn (default) reports, fix adds imports, strict refuses.
    #[serde(default, alias = "validate", deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = Validate::WORDS))]
    pub(crate) validation: Option<Validate>,
    /// Python modules that may be imported, as get_sandbox_info lists them.
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = Profile::WORDS, "x-unlisted" = true))]
    pub(crate) profile: Option<Profile>,
    /// Python modules besides those of the profile.
    #[serde(default, deserialize_with = "many")]
    #[schemars(with = "Option<Vec<String>>", extend("x-unlisted" = true))]
    pub(crate) allowed_imports: Option<BTreeSet<ModuleName>>,
    /// false: output is counted and not kept.
    #[schemars(extend("x-unlisted" = true))]
    pub(crate) capture_output: Option<bool>,
    /// true: as backend docker.
    #[schemars(extend("x-unlisted" = true))]
    pub(crate) use_container: Option<bool>,
    /// What makes the sandbox, where the operator lets callers choose: native, docker, gvisor.
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = BACKENDS, "x-unlisted" = true))]
    pub(crate) backend: Option<Backend>,
}
operation!(ExecuteCode => Ran, "execute_code", "Run code in a sandbox", Execute, Adds);

/// A result, or of a program that runs on its beginning.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Ran {
    #[serde(flatten)]
    result: ExecutionResult,
    /// Of which artifacts has the first ten.
    artifacts_total: u64,
    running: bool,
    stdout_next: u64,
    stderr_next: u64,
}

// With exactly one of text, base64 and artifact.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileInput {
    #[schemars(with = "String")]
    pub(crate) path: WorkspacePath,
    pub(crate) text: Option<String>,
    pub(crate) base64: Option<String>,
    /// The uri of one.
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

/// Run Python without os, subprocess etc. on the namespace's kept files; prefer execute_code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunSandboxCode {
    pub(crate) code: String,
    #[serde(alias = "timeout", alias = "timeout_seconds")]
    pub(crate) timeout_sec: Option<f64>,
}
operation!(RunSandboxCode => Object, "run_sandbox_code", "Run Python on the kept files", Execute, Runs);

/// Read an execution by its id: its result, or while it runs its output so far.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetExecution {
    pub(crate) execution_id: String,
    /// For its end, at most 25.
    pub(crate) wait_seconds: Option<f64>,
    pub(crate) stdout_from: Option<Whole>,
    pub(crate) stderr_from: Option<Whole>,
}
operation!(GetExecution => Object, "get_execution", "Read an execution", Execute, Reads);

/// List the latest executions (10), also those whose call was cut off.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListExecutions {
    pub(crate) limit: Option<Whole>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(ListExecutions => Executions, "list_executions", "List executions", Execute, Reads);

response!(Executions { executions: Vec<Object> });

/// Stop a running execution; what it printed is kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CancelExecution {
    pub(crate) execution_id: String,
}
operation!(CancelExecution => Cancelled, "cancel_execution", "Stop an execution", Execute, Replaces);

response!(Cancelled {
    cancelled: bool,
    existed: bool
});

/// Install packages from PyPI or npm, into a session or ahead of an execute_code that names them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstallPackage {
    #[serde(default, deserialize_with = "words")]
    #[schemars(with = "Option<String>", extend("enum" = LANGUAGES))]
    pub(crate) language: Option<Language>,
    #[serde(deserialize_with = "many")]
    #[schemars(with = "Vec<String>")]
    pub(crate) packages: Option<Vec<String>>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(InstallPackage => Installed, "install_package", "Install packages", Execute, Reaches);

response!(Installed { installed: Vec<Object>, output: String, replaced: Vec<String>, duration_ms: f64 });

/// List languages with their versions, and why one is missing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRuntimes {}
operation!(ListRuntimes => Runtimes, "list_runtimes", "List languages", Execute, Reads);

response!(Runtimes { runtimes: Vec<Object> });

/// Describe isolation, the default and largest limits, and what each profile may import.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetSandboxInfo {}
operation!(GetSandboxInfo => SandboxInfo, "get_sandbox_info", "Describe the sandbox", Execute, Reads);

response!(SandboxInfo {
    security_profiles: Object,
    resource_limits: Object,
    container_mode: Object,
    isolation: Object,
    limits: Object,
});
