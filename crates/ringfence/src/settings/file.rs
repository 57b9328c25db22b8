//! What an operator typed into the configuration file, before it means anything. The text is a stranger's as far as
//! the parser is concerned: its size, nesting and aliases are bounded.

use super::{
    check_words::{KnownImports, ProfileWord, PythonModule, Schemas},
    egress_words::{BoundHost, EgressPattern, OnDeniedWord, PackageHost, PrivateHost, Resolver},
    keys::{
        AskSeconds, Burst, Concurrency, Connections, Days, Disk, Forks, Layer, Memory, Minutes, Origin,
        Output, PerMinute, Processes, Ready, Sessions, Setting, Snapshots, Waiting, WholeSeconds,
    },
    record_words::{
        AuditDurability, AuditOnFailure, AuditStore, Endpoint, Listen, NamespacePriority, PackagePattern,
        SecretPattern, VaultKey, VaultStore,
    },
    shares::Shares,
    words::{BackendName, Cores, Floor, HostPath, List, Location, LogLevel, ModuleName, Seconds, Toolset},
};
use ringfence_types::nearest::suggestion;
use serde::Deserialize;
use serde_saphyr::{Error, Spanned};
use std::{fmt, path::Path, sync::Arc};

/// The longest configuration file, in bytes.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;
const EVENTS_MAX: usize = 10_000;
const ALIASES_MAX: usize = 100;
const DEPTH_MAX: usize = 32;

/// A configuration file as it was typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    backend: Option<Spanned<BackendName>>,
    floor: Option<Spanned<Floor>>,
    limits: Option<LimitsFile>,
    caps: Option<LimitsFile>,
    queue: Option<QueueFile>,
    runtimes: Option<RuntimesFile>,
    packages: Option<PackagesFile>,
    egress: Option<EgressFile>,
    warm: Option<WarmFile>,
    sessions: Option<SessionsFile>,
    approvals: Option<ApprovalsFile>,
    check: Option<CheckFile>,
    audit: Option<AuditFile>,
    vault: Option<VaultFile>,
    artifacts: Option<ArtifactsFile>,
    snapshots: Option<SnapshotsFile>,
    redact: Option<RedactFile>,
    metrics: Option<MetricsFile>,
    telemetry: Option<TelemetryFile>,
    namespaces: Option<NamespacesFile>,
    workspaces: Option<Spanned<Shares>>,
    state_dir: Option<Spanned<HostPath>>,
    toolsets: Option<Spanned<List<Toolset>>>,
    log: Option<Spanned<LogLevel>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsFile {
    ram_mb: Option<Spanned<Memory>>,
    cpu_cores: Option<Spanned<Cores>>,
    timeout_seconds: Option<Spanned<Seconds>>,
    processes: Option<Spanned<Processes>>,
    output_bytes: Option<Spanned<Output>>,
    disk_mb: Option<Spanned<Disk>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueFile {
    concurrency: Option<Spanned<Concurrency>>,
    waiting: Option<Spanned<Waiting>>,
    wait_seconds: Option<Spanned<Seconds>>,
    priorities: Option<Spanned<List<NamespacePriority>>>,
    rate_per_minute: Option<Spanned<PerMinute>>,
    rate_burst: Option<Spanned<Burst>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuntimesFile {
    python: Option<Spanned<Location>>,
    node: Option<Spanned<Location>>,
    shell: Option<Spanned<Location>>,
    mounts: Option<Spanned<List<HostPath>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WarmFile {
    ready: Option<Spanned<Ready>>,
    ready_max: Option<Spanned<Ready>>,
    memory_mb: Option<Spanned<Memory>>,
    preload_python: Option<Spanned<List<ModuleName>>>,
    preload_node: Option<Spanned<List<ModuleName>>>,
    template_forks: Option<Spanned<Forks>>,
    template_minutes: Option<Spanned<Minutes>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionsFile {
    max: Option<Spanned<Sessions>>,
    per_namespace: Option<Spanned<Sessions>>,
    idle_seconds: Option<Spanned<Seconds>>,
    idle_seconds_max: Option<Spanned<Seconds>>,
    age_seconds: Option<Spanned<Seconds>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalsFile {
    timeout_seconds: Option<Spanned<WholeSeconds>>,
    max_namespace_minutes: Option<Spanned<Minutes>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckFile {
    profile: Option<Spanned<ProfileWord>>,
    profiles: Option<Spanned<List<ProfileWord>>>,
    allowed_imports: Option<Spanned<List<PythonModule>>>,
    known_imports: Option<Spanned<KnownImports>>,
    schemas: Option<Spanned<Schemas>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditFile {
    store: Option<Spanned<AuditStore>>,
    path: Option<Spanned<Location>>,
    durability: Option<Spanned<AuditDurability>>,
    on_failure: Option<Spanned<AuditOnFailure>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VaultFile {
    store: Option<Spanned<VaultStore>>,
    path: Option<Spanned<Location>>,
    key: Option<Spanned<VaultKey>>,
    key_file: Option<Spanned<Location>>,
    allow: Option<Spanned<List<SecretPattern>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PackagesFile {
    enabled: Option<Spanned<bool>>,
    allow: Option<Spanned<List<PackagePattern>>>,
    hosts: Option<Spanned<List<PackageHost>>>,
    timeout_seconds: Option<Spanned<Seconds>>,
    max_mb: Option<Spanned<Disk>>,
    keep_days: Option<Spanned<Days>>,
    keep_mb: Option<Spanned<Disk>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EgressFile {
    allow: Option<Spanned<List<EgressPattern>>>,
    on_denied: Option<Spanned<OnDeniedWord>>,
    ask_seconds: Option<Spanned<AskSeconds>>,
    private: Option<Spanned<List<PrivateHost>>>,
    secrets: Option<Spanned<List<BoundHost>>>,
    ca_file: Option<Spanned<Location>>,
    resolvers: Option<Spanned<List<Resolver>>>,
    connections: Option<Spanned<Connections>>,
    connections_per_namespace: Option<Spanned<Connections>>,
    sent_mb: Option<Spanned<Disk>>,
    received_mb: Option<Spanned<Disk>>,
    connection_seconds: Option<Spanned<Seconds>>,
    idle_seconds: Option<Spanned<Seconds>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArtifactsFile {
    keep_days: Option<Spanned<Days>>,
    max_mb: Option<Spanned<Disk>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotsFile {
    max: Option<Spanned<Snapshots>>,
    max_mb: Option<Spanned<Disk>>,
    total_mb: Option<Spanned<Disk>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedactFile {
    personal: Option<Spanned<bool>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsFile {
    listen: Option<Spanned<Listen>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TelemetryFile {
    otlp_endpoint: Option<Spanned<Endpoint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespacesFile {
    caller_chooses: Option<Spanned<bool>>,
}

/// Why a configuration file is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// From 1; absent where the text as a whole is at fault.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a configuration file's text.
pub fn parse_config(text: &str) -> Result<ConfigFile, ConfigError> {
    if text.len() > CONFIG_BYTES_MAX {
        return Err(ConfigError {
            line: None,
            message: "the file is longer than 1 MiB".to_owned(),
        });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: EVENTS_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_depth: DEPTH_MAX,
            max_documents: 1,
        },
        // comments are read past, whatever their number
        emit_comments: false,
        with_snippet: false,
    };
    // A file of comments only says nothing, which is fine.
    let file: Option<ConfigFile> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| explain(&error))?;
    Ok(file.unwrap_or_default())
}

fn explain(error: &Error) -> ConfigError {
    let error = error.without_snippet();
    let line = error.location().map(|location| location.line());
    let message = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let known = expected.iter().copied();
            format!(
                "`{field}` is not a setting here.{} Known: {}.",
                suggestion(field, known),
                expected.join(", ")
            )
        }
        // The parser's own text ends with the place, which is told apart here.
        other => {
            let text = other.to_string();
            text.split(" at line ")
                .next()
                .unwrap_or(&text)
                .trim_end_matches(',')
                .to_owned()
        }
    };
    ConfigError { line, message }
}

impl ConfigFile {
    /// The same as a layer whose values know their lines.
    #[expect(clippy::too_many_lines, reason = "one line for each setting")]
    pub(crate) fn into_layer(self, path: &Arc<Path>) -> Layer {
        let (limits, caps) = (self.limits.unwrap_or_default(), self.caps.unwrap_or_default());
        let packages = self.packages.unwrap_or_default();
        let egress = self.egress.unwrap_or_default();
        let warm = self.warm.unwrap_or_default();
        let sessions = self.sessions.unwrap_or_default();
        let approvals = self.approvals.unwrap_or_default();
        let check = self.check.unwrap_or_default();
        let (audit, vault) = (self.audit.unwrap_or_default(), self.vault.unwrap_or_default());
        let artifacts = self.artifacts.unwrap_or_default();
        let snapshots = self.snapshots.unwrap_or_default();
        let (queue, runtimes) = (self.queue.unwrap_or_default(), self.runtimes.unwrap_or_default());
        Layer {
            backend: at(path, self.backend),
            floor: at(path, self.floor),
            limits_ram_mb: at(path, limits.ram_mb),
            limits_cpu_cores: at(path, limits.cpu_cores),
            limits_timeout_seconds: at(path, limits.timeout_seconds),
            limits_processes: at(path, limits.processes),
            limits_output_bytes: at(path, limits.output_bytes),
            limits_disk_mb: at(path, limits.disk_mb),
            caps_ram_mb: at(path, caps.ram_mb),
            caps_cpu_cores: at(path, caps.cpu_cores),
            caps_timeout_seconds: at(path, caps.timeout_seconds),
            caps_processes: at(path, caps.processes),
            caps_output_bytes: at(path, caps.output_bytes),
            caps_disk_mb: at(path, caps.disk_mb),
            queue_concurrency: at(path, queue.concurrency),
            queue_waiting: at(path, queue.waiting),
            queue_wait_seconds: at(path, queue.wait_seconds),
            queue_priorities: at(path, queue.priorities),
            queue_rate_per_minute: at(path, queue.rate_per_minute),
            queue_rate_burst: at(path, queue.rate_burst),
            runtimes_python: at(path, runtimes.python),
            runtimes_node: at(path, runtimes.node),
            runtimes_shell: at(path, runtimes.shell),
            runtimes_mounts: at(path, runtimes.mounts),
            packages_enabled: at(path, packages.enabled),
            packages_allow: at(path, packages.allow),
            packages_hosts: at(path, packages.hosts),
            packages_timeout_seconds: at(path, packages.timeout_seconds),
            packages_max_mb: at(path, packages.max_mb),
            packages_keep_days: at(path, packages.keep_days),
            packages_keep_mb: at(path, packages.keep_mb),
            egress_allow: at(path, egress.allow),
            egress_on_denied: at(path, egress.on_denied),
            egress_ask_seconds: at(path, egress.ask_seconds),
            egress_private: at(path, egress.private),
            egress_secrets: at(path, egress.secrets),
            egress_ca_file: at(path, egress.ca_file),
            egress_resolvers: at(path, egress.resolvers),
            egress_connections: at(path, egress.connections),
            egress_connections_per_namespace: at(path, egress.connections_per_namespace),
            egress_sent_mb: at(path, egress.sent_mb),
            egress_received_mb: at(path, egress.received_mb),
            egress_connection_seconds: at(path, egress.connection_seconds),
            egress_idle_seconds: at(path, egress.idle_seconds),
            warm_ready: at(path, warm.ready),
            warm_ready_max: at(path, warm.ready_max),
            warm_memory_mb: at(path, warm.memory_mb),
            warm_preload_python: at(path, warm.preload_python),
            warm_preload_node: at(path, warm.preload_node),
            warm_template_forks: at(path, warm.template_forks),
            warm_template_minutes: at(path, warm.template_minutes),
            sessions_max: at(path, sessions.max),
            sessions_per_namespace: at(path, sessions.per_namespace),
            sessions_idle_seconds: at(path, sessions.idle_seconds),
            sessions_idle_seconds_max: at(path, sessions.idle_seconds_max),
            sessions_age_seconds: at(path, sessions.age_seconds),
            approvals_timeout_seconds: at(path, approvals.timeout_seconds),
            approvals_max_namespace_minutes: at(path, approvals.max_namespace_minutes),
            check_profile: at(path, check.profile),
            check_profiles: at(path, check.profiles),
            check_allowed_imports: at(path, check.allowed_imports),
            check_known_imports: at(path, check.known_imports),
            check_schemas: at(path, check.schemas),
            audit_store: at(path, audit.store),
            audit_path: at(path, audit.path),
            audit_durability: at(path, audit.durability),
            audit_on_failure: at(path, audit.on_failure),
            vault_store: at(path, vault.store),
            vault_path: at(path, vault.path),
            vault_key: at(path, vault.key),
            vault_key_file: at(path, vault.key_file),
            vault_allow: at(path, vault.allow),
            artifacts_keep_days: at(path, artifacts.keep_days),
            artifacts_max_mb: at(path, artifacts.max_mb),
            snapshots_max: at(path, snapshots.max),
            snapshots_max_mb: at(path, snapshots.max_mb),
            snapshots_total_mb: at(path, snapshots.total_mb),
            redact_personal: at(path, self.redact.unwrap_or_default().personal),
            metrics_listen: at(path, self.metrics.unwrap_or_default().listen),
            telemetry_otlp_endpoint: at(path, self.telemetry.unwrap_or_default().otlp_endpoint),
            namespaces_caller_chooses: at(path, self.namespaces.unwrap_or_default().caller_chooses),
            workspaces: at(path, self.workspaces),
            state_dir: at(path, self.state_dir),
            toolsets: at(path, self.toolsets),
            log: at(path, self.log),
        }
    }
}

fn at<T>(path: &Arc<Path>, typed: Option<Spanned<T>>) -> Option<Setting<T>> {
    typed.map(|typed| {
        let line = typed.referenced.line();
        Setting {
            value: typed.value,
            origin: Origin::File {
                path: path.clone(),
                line,
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> ConfigError {
        parse_config(text).unwrap_err()
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_name() {
        let error = refused("backend: native\nlimits:\n  ram_mbb: 5\n");
        assert_eq!(error.line, Some(3), "{error}");
        assert!(error.message.contains("`ram_mbb`"), "{error}");
        assert!(error.message.contains("Did you mean `ram_mb`?"), "{error}");
        let error = refused("flor: full\n");
        assert_eq!(error.line, Some(1), "{error}");
        assert!(error.message.contains("Did you mean `floor`?"), "{error}");
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line() {
        let check = |text: &str, line: u64, part: &str| {
            let error = refused(text);
            assert_eq!(error.line, Some(line), "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        };
        check("floor: none\n", 1, "full, landlock");
        check("\nlimits:\n  ram_mb: 0\n", 3, "outside 16");
        check("limits:\n  cpu_cores: .nan\n", 2, "outside");
        check("limits:\n  ram_mb: -5\n", 2, "");
        check("toolsets: [web]\n", 1, "not in this version");
        check("state_dir: here\n", 1, "relative");
        check("floor: full\nfloor: landlock\n", 2, "floor");
    }

    #[test]
    fn nothing_means_every_default() {
        for text in ["", "# only a comment\n", "---\n", "{}\n"] {
            let layer = parse_config(text).unwrap().into_layer(&Path::new("/c").into());
            assert!(
                layer.backend.is_none() && layer.limits_ram_mb.is_none(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn values_know_their_lines() {
        let text = "limits:\n  ram_mb: 1024\n\n  cpu_cores: 2\ntoolsets: all\n";
        let layer = parse_config(text)
            .unwrap()
            .into_layer(&Path::new("/etc/c.yaml").into());
        let memory = layer.limits_ram_mb.unwrap();
        assert_eq!(
            (memory.value.get(), memory.origin.to_string().as_str()),
            (1024, "/etc/c.yaml:2")
        );
        assert_eq!(
            layer.limits_cpu_cores.unwrap().origin.to_string(),
            "/etc/c.yaml:4"
        );
        assert_eq!(layer.toolsets.unwrap().origin.to_string(), "/etc/c.yaml:5");
    }

    #[test]
    fn bombs_and_noise_are_refused_and_do_not_panic() {
        let laughs = "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n";
        let deep = "[".repeat(100_000);
        let long = format!("log: {}", "x".repeat(CONFIG_BYTES_MAX));
        for text in [
            laughs,
            &deep,
            &long,
            "\u{0}",
            "%",
            "a: b: c",
            "- 1\n- 2\n",
            "limits: 5\n",
            "!!binary x",
            "? a\n: b",
        ] {
            assert!(parse_config(text).is_err(), "{:?}", &text[..text.len().min(40)]);
        }
    }
}
