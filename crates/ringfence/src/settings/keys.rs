//! The one table of settings. Layers (file, environment, flags) and the effective values are made from it, so that a
//! setting cannot exist in one place and be forgotten in another.

use super::{
    check_words::{KnownImports, ProfileWord, PythonModule, Schemas},
    egress_words::{BoundHost, EgressPattern, OnDeniedWord, PackageHost, PrivateHost, Resolver},
    record_words::{
        AuditDurability, AuditOnFailure, AuditStore, Endpoint, Listen, NamespacePriority, PackagePattern,
        SecretPattern, VaultKey, VaultStore,
    },
    shares::Shares,
    words::{
        BackendName, Cores, Floor, HostPath, List, Location, LogLevel, ModuleName, Seconds, Toolset, Whole,
        Word,
    },
};
use serde_json::Value;
use std::{fmt, path::Path, sync::Arc};

/// MiB of memory: 16 MiB to 1 TiB.
pub(crate) type Memory = Whole<16, 1_048_576>;
/// MiB of disk: 1 MiB to 1 TiB.
pub(crate) type Disk = Whole<1, 1_048_576>;
/// Processes and threads.
pub(crate) type Processes = Whole<1, 32_768>;
/// Bytes of one stream: at most 256 MiB.
pub(crate) type Output = Whole<1, 268_435_456>;
/// Programs that run at once.
pub(crate) type Concurrency = Whole<1, 1024>;
/// Requests that wait at once.
pub(crate) type Waiting = Whole<0, 65_536>;

/// Connections at once.
pub(crate) type Connections = Whole<1, 100_000>;

/// Sandboxes that stand ready.
pub(crate) type Ready = Whole<0, 256>;
/// Sessions.
pub(crate) type Sessions = Whole<0, 10_000>;
/// Forks of one template.
pub(crate) type Forks = Whole<1, 1_000_000>;
/// At most a week.
pub(crate) type Minutes = Whole<1, 10_080>;
/// At most ten years.
pub(crate) type Days = Whole<1, 3650>;
/// Snapshots of a namespace.
pub(crate) type Snapshots = Whole<1, 100_000>;
/// Requests in a minute; 0: as many as they like.
pub(crate) type PerMinute = Whole<0, 1_000_000>;
/// Requests at once.
pub(crate) type Burst = Whole<1, 1_000_000>;

/// A connection that waits: programs give up after a minute or two.
pub(crate) type AskSeconds = Whole<1, 120>;

/// At most a day.
pub(crate) type WholeSeconds = Whole<1, 86_400>;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: Arc<Path>, line: u64 },
    Environment(String),
    Flag(&'static str),
    Builder,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Builder => f.write_str("builder"),
        }
    }
}

/// A value and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    pub(crate) fn default_of(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }
}

/// What the reference says of one setting.
pub(crate) struct Key {
    /// `limits.ram_mb`.
    pub(crate) path: &'static str,
    /// The default as text, `None` when it depends on the machine.
    pub(crate) default: Option<&'static str>,
    /// One line.
    pub(crate) about: &'static str,
    /// What a file may say.
    pub(crate) schema: fn() -> Value,
}

impl Key {
    /// `RINGFENCE_LIMITS_RAM_MB`.
    pub(crate) fn variable(&self) -> String {
        format!("RINGFENCE_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }
}

/// One line of `config show`.
pub(crate) struct Row<'a> {
    pub(crate) path: &'static str,
    pub(crate) value: Value,
    pub(crate) origin: &'a Origin,
}

macro_rules! keys {
    ($($field:ident: $type:ty, $path:literal, $default:expr, $about:literal;)+) => {
        /// Every setting, in the order of the reference.
        pub(crate) const KEYS: &[Key] =
            &[$(Key { path: $path, default: $default, about: $about, schema: <$type as Word>::schema }),+];

        /// What one source says; most of it is usually absent.
        #[derive(Debug, Default)]
        pub(crate) struct Layer {
            $(pub(crate) $field: Option<Setting<$type>>,)+
        }

        impl Layer {
            /// Reads the value of the setting `path`; the caller has looked the path up in [`KEYS`].
            pub(crate) fn set(&mut self, path: &str, text: &str, origin: Origin) -> Result<(), String> {
                match path {
                    $($path => self.$field = Some(Setting { value: <$type as Word>::read(text)?, origin }),)+
                    other => return Err(format!("`{other}` is not a setting")),
                }
                Ok(())
            }
        }

        /// Every setting with its value.
        #[derive(Clone, Debug)]
        pub(crate) struct Effective {
            $(pub(crate) $field: Setting<$type>,)+
        }

        impl Effective {
            /// A layer's values win.
            #[must_use]
            pub(crate) fn overlaid(self, layer: Layer) -> Self {
                Self { $($field: layer.$field.unwrap_or(self.$field),)+ }
            }

            pub(crate) fn rows(&self) -> Vec<Row<'_>> {
                vec![$(Row { path: $path, value: self.$field.value.json(), origin: &self.$field.origin }),+]
            }
        }
    };
}

keys! {
    backend: BackendName, "backend", Some("native"), "What makes the sandboxes.";
    floor: Floor, "floor", Some("full"),
        "The isolation of every run; a host that cannot give it is refused. `landlock` gives up namespaces, the own root and the empty network.";
    limits_ram_mb: Memory, "limits.ram_mb", Some("512"), "Memory of a run that asks for none, in MiB.";
    limits_cpu_cores: Cores, "limits.cpu_cores", Some("1"), "Processor cores of a run that asks for none.";
    limits_timeout_seconds: Seconds, "limits.timeout_seconds", Some("60"), "Wall-clock time of a run that asks for none.";
    limits_processes: Processes, "limits.processes", Some("64"), "Processes and threads of a run that asks for none.";
    limits_output_bytes: Output, "limits.output_bytes", Some("1000000"), "Kept bytes of each of stdout and stderr.";
    limits_disk_mb: Disk, "limits.disk_mb", Some("512"), "Private disk of a run that asks for none, in MiB.";
    caps_ram_mb: Memory, "caps.ram_mb", Some("8192"), "The most memory that a request gets, in MiB.";
    caps_cpu_cores: Cores, "caps.cpu_cores", None, "The most processor cores that a request gets; default: the machine's.";
    caps_timeout_seconds: Seconds, "caps.timeout_seconds", Some("3600"), "The longest time that a request gets.";
    caps_processes: Processes, "caps.processes", Some("1024"), "The most processes and threads that a request gets.";
    caps_output_bytes: Output, "caps.output_bytes", Some("67108864"), "The most kept bytes per stream that a request gets.";
    caps_disk_mb: Disk, "caps.disk_mb", Some("16384"), "The most private disk that a request gets, in MiB.";
    queue_concurrency: Concurrency, "queue.concurrency", None, "Programs that run at once; default: two for each core.";
    queue_waiting: Waiting, "queue.waiting", Some("256"), "Requests that wait at once; one more is told to come back.";
    queue_wait_seconds: Seconds, "queue.wait_seconds", Some("60"), "The longest that a request waits.";
    queue_priorities: List<NamespacePriority>, "queue.priorities", Some("[]"),
        "Namespaces that are served more or less often than others when requests wait, as `team-a=high`, `batch=low`.";
    queue_rate_per_minute: PerMinute, "queue.rate_per_minute", Some("0"),
        "Requests that one namespace may send in a minute; 0: as many as it likes.";
    queue_rate_burst: Burst, "queue.rate_burst", Some("10"), "Requests that it may send at once, where there is a rate.";
    runtimes_python: Location, "runtimes.python", Some("auto"),
        "Python interpreter or virtual environment; `auto`: the first python3 on PATH.";
    runtimes_node: Location, "runtimes.node", Some("auto"), "Node.js; `auto`: the first node on PATH.";
    runtimes_shell: Location, "runtimes.shell", Some("auto"), "bash; `auto`: the first on PATH.";
    runtimes_mounts: List<HostPath>, "runtimes.mounts", Some("[]"),
        "More directories of the host that interpreters need, mounted read-only at the same place.";
    packages_enabled: bool, "packages.enabled", Some("true"),
        "May programs bring packages, which are installed from the index of pip's and npm's own configuration.";
    packages_allow: List<PackagePattern>, "packages.allow", Some(r#"["*"]"#),
        "Packages that may be asked for; a name may end with `*`. What they need themselves comes with them.";
    packages_hosts: List<PackageHost>, "packages.hosts", Some(r#"["auto"]"#),
        "Hosts that pip and npm may reach while they install. `auto`: those of the index in their own configuration; others as HOST or HOST:PORT, where its files lie elsewhere.";
    packages_timeout_seconds: Seconds, "packages.timeout_seconds", Some("300"), "The longest that installing one set may take.";
    packages_max_mb: Disk, "packages.max_mb", Some("1024"), "The most that one set may have, installed, in MiB.";
    packages_keep_days: Days, "packages.keep_days", Some("30"), "How long installed packages are kept after their last use.";
    packages_keep_mb: Disk, "packages.keep_mb", Some("8192"),
        "The most that all of them take of the disk, in MiB; those that were not used for longest go first.";
    egress_allow: List<EgressPattern>, "egress.allow", Some("[]"),
        "Hosts that programs may reach: HOST, *.HOST, HOST:PORT, METHODS HOST/PATH, or a network; for some namespaces alone as NAMESPACE=RULE, which may end with `*`. In the variable separated by semicolons. docs/egress.md says what matches.";
    egress_on_denied: OnDeniedWord, "egress.on_denied", Some("deny"),
        "When a program connects to a host that no rule allows: `deny` it, or `ask` a person (`ringfence approvals`, the client's dialogue) while the connection waits.";
    egress_ask_seconds: AskSeconds, "egress.ask_seconds", Some("10"),
        "How long such a connection waits for the answer; then it is denied. No longer than `approvals.timeout_seconds`.";
    egress_private: List<PrivateHost>, "egress.private", Some("[]"),
        "Of these hosts the addresses may be private, as HOST or HOST:PORT; every other name that leads to one is refused.";
    egress_secrets: List<BoundHost>, "egress.secrets", Some("[]"),
        "Secrets that programs get a word for, which becomes the value on the way out alone: NAMESPACE/KEY=HOST, and where in a request: `header NAME` (authorization, where nothing stands), `header NAME: TEXT {}`, `query NAME` or `query NAME=`. In the variable separated by semicolons.";
    egress_ca_file: Location, "egress.ca_file", Some("auto"),
        "Certificates (PEM) that are believed beside this host's own where TLS is read; `auto`: those of the host alone.";
    egress_resolvers: List<Resolver>, "egress.resolvers", Some("[]"),
        "Who is asked for addresses, as ADDRESS or ADDRESS:PORT; none: whom the host asks, its hosts file first.";
    egress_connections: Connections, "egress.connections", Some("64"), "Connections that one sandbox has open at once.";
    egress_connections_per_namespace: Connections, "egress.connections_per_namespace", Some("256"),
        "Connections that all sandboxes of a namespace have open at once.";
    egress_sent_mb: Disk, "egress.sent_mb", Some("1024"), "The most that one sandbox sends, all its life, in MiB.";
    egress_received_mb: Disk, "egress.received_mb", Some("4096"), "The most that one sandbox receives, all its life, in MiB.";
    egress_connection_seconds: Seconds, "egress.connection_seconds", Some("3600"), "The longest that one connection lasts.";
    egress_idle_seconds: Seconds, "egress.idle_seconds", Some("300"), "A connection ends when nothing was sent on it for so long.";
    warm_ready: Ready, "warm.ready", Some("2"),
        "Sandboxes that `serve` keeps ready for each language; 0: none, every run starts cold.";
    warm_ready_max: Ready, "warm.ready_max", Some("8"), "The most that are kept ready for a language under load.";
    warm_memory_mb: Memory, "warm.memory_mb", Some("1024"),
        "Memory that sandboxes which wait may take with their templates, in MiB; then no more are made.";
    warm_preload_python: List<ModuleName>, "warm.preload_python", Some(r#"["numpy", "pandas", "matplotlib.pyplot"]"#),
        "Modules that a second Python template imports, where the interpreter has them, for programs that name them.";
    warm_preload_node: List<ModuleName>, "warm.preload_node", Some("[]"),
        "Modules that Node.js loads before it is told what to run.";
    warm_template_forks: Forks, "warm.template_forks", Some("10000"), "A template is replaced after so many forks.";
    warm_template_minutes: Minutes, "warm.template_minutes", Some("60"), "A template is replaced when it is so old.";
    sessions_max: Sessions, "sessions.max", Some("1000"), "Sessions at once; one more is refused.";
    sessions_per_namespace: Sessions, "sessions.per_namespace", Some("100"), "Of which one namespace has at most so many.";
    sessions_idle_seconds: Seconds, "sessions.idle_seconds", Some("900"),
        "A session ends when nobody has used it for so long and its creator has named no other time.";
    sessions_idle_seconds_max: Seconds, "sessions.idle_seconds_max", Some("14400"),
        "The longest such time that a creator may name.";
    sessions_age_seconds: Seconds, "sessions.age_seconds", Some("86400"), "A session ends when it is so old.";
    approvals_timeout_seconds: WholeSeconds, "approvals.timeout_seconds", Some("120"),
        "How long a request for approval waits for an answer; then it is denied.";
    approvals_max_namespace_minutes: Minutes, "approvals.max_namespace_minutes", Some("60"),
        "The longest that an approval for a whole namespace lasts.";
    check_profile: ProfileWord, "check.profile", Some("unrestricted"),
        "What Python programs may import that name no profile. `unrestricted`: everything; the kernel is the wall.";
    check_profiles: List<ProfileWord>, "check.profiles", Some("all"),
        "Profiles that callers may choose. Where `check.profile` restricts and nobody sets this: that one and `strict`.";
    check_allowed_imports: List<PythonModule>, "check.allowed_imports", Some("[]"),
        "Modules that every profile which restricts allows besides its own, each with what lies below it.";
    check_known_imports: KnownImports, "check.known_imports", Some("{}"),
        "Names whose import may be added where it is missing, beside the well-known ones: NAME: STATEMENT; in the variable NAME=STATEMENT, separated by semicolons.";
    check_schemas: Schemas, "check.schemas", Some("{}"),
        "JSON Schemas that callers may name, beside `config`, `user` and `dataset`: NAME: the path of a file, or the schema itself; in the variable NAME=FILE, separated by commas.";
    audit_store: AuditStore, "audit.store", Some("sqlite"), "Where the audit record is: in a file, or in memory until the server stops.";
    audit_path: Location, "audit.path", Some("auto"), "The record's file; `auto`: record/audit.db in the state directory.";
    audit_durability: AuditDurability, "audit.durability", Some("process"),
        "What a record survives: that the server is killed, or that the power fails, which costs a disk's time for each run.";
    audit_on_failure: AuditOnFailure, "audit.on_failure", Some("deny"),
        "When the record cannot be written: `deny`, nothing runs; `warn`, it runs and its result says that it is not on record.";
    vault_store: VaultStore, "vault.store", Some("memory"),
        "Where secrets come from: `ringfence vault add` until the server stops, variables RINGFENCE_SECRET_{NAMESPACE}_{KEY}, or an encrypted file.";
    vault_path: Location, "vault.path", Some("auto"), "The vault's file; `auto`: record/vault in the state directory.";
    vault_key: VaultKey, "vault.key", Some("file"),
        "What opens it: a key in a file, or a passphrase (variable RINGFENCE_VAULT_PASSPHRASE).";
    vault_key_file: Location, "vault.key_file", Some("auto"),
        "The key's file, mode 0600; `auto`: record/vault.key in the state directory, made with the vault.";
    vault_allow: List<SecretPattern>, "vault.allow", Some(r#"["*/*"]"#),
        "Which namespace may have which of its secrets, as NAMESPACE/KEY; either may end with `*`.";
    artifacts_keep_days: Days, "artifacts.keep_days", Some("7"), "How long files that programs left are kept.";
    artifacts_max_mb: Disk, "artifacts.max_mb", Some("1024"), "The most that they take of the disk, in MiB; the oldest go first.";
    snapshots_max: Snapshots, "snapshots.max", Some("100"), "Snapshots that a namespace may have; none is deleted to make room.";
    snapshots_max_mb: Disk, "snapshots.max_mb", Some("4096"), "What they may take of the disk, in MiB, compressed and each content once.";
    snapshots_total_mb: Disk, "snapshots.total_mb", Some("65536"), "What those of all namespaces together may take of the disk, in MiB.";
    redact_personal: bool, "redact.personal", Some("false"),
        "Take e-mail addresses, telephone, card and social security numbers out of everything that leaves, too.";
    metrics_listen: Listen, "metrics.listen", Some("off"),
        "Address and port at which `serve` answers /metrics (OpenMetrics), as 127.0.0.1:9464.";
    telemetry_otlp_endpoint: Endpoint, "telemetry.otlp_endpoint", Some("off"),
        "Collector that `serve` and `run` send traces and metrics to (OTLP over HTTP), as http://127.0.0.1:4318; neither waits for it, but for a second at its end.";
    namespaces_caller_chooses: bool, "namespaces.caller_chooses", Some("true"),
        "May an MCP caller name its namespace; if not, the tools have no such argument.";
    workspaces: Shares, "workspaces", Some("{}"),
        "Directories of the host that callers may name as their workspace: NAME: {path, mode: ro, rw or overlay, namespaces}; in the variable NAME=DIR:MODE, separated by commas.";
    state_dir: HostPath, "state_dir", None,
        "Where the record, the vault, artifacts and the control socket are; default: ringfence below $XDG_STATE_HOME, for root below /var/lib.";
    toolsets: List<Toolset>, "toolsets", Some("all"), "Tools that `serve` offers.";
    log: LogLevel, "log", None, "Least level of the log on stderr; default: info for `serve`, error otherwise.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_can_be_set_from_text_and_an_unknown_one_cannot() {
        let mut layer = Layer::default();
        for key in KEYS {
            let text = key
                .default
                .filter(|text| !text.starts_with(['[', '{']))
                .unwrap_or(match key.path {
                    "state_dir" | "runtimes.mounts" => "/x",
                    path if path.starts_with("warm.preload_") => "x.y",
                    "queue.priorities" => "a=high",
                    "vault.allow" => "a/K",
                    "workspaces" => "x=/x:ro",
                    "packages.allow" => "a*",
                    "packages.hosts" => "auto;a.test",
                    "egress.allow" | "egress.private" => "example.com;*.example.com",
                    "egress.secrets" => "a/K=api.example.com header x-key: Key {};a/*=b.test query key",
                    "egress.resolvers" => "9.9.9.9,127.0.0.1:5353",
                    "check.allowed_imports" => "math,os.path",
                    "check.known_imports" => "np=import numpy as np",
                    "check.schemas" => "order=/order.json",
                    "log" => "info",
                    _ => "1",
                });
            layer.set(key.path, text, Origin::Default).unwrap();
        }
        assert!(layer.log.is_some() && layer.runtimes_mounts.is_some() && layer.caps_cpu_cores.is_some());
        assert!(layer.set("limits.ramm_mb", "1", Origin::Default).is_err());
    }

    #[test]
    fn variables_are_named_after_their_keys() {
        let names: Vec<String> = KEYS.iter().map(Key::variable).collect();
        assert!(names.contains(&"RINGFENCE_LIMITS_RAM_MB".to_owned()));
        assert!(names.contains(&"RINGFENCE_STATE_DIR".to_owned()));
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }
}
