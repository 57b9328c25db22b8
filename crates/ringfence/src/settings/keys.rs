//! The table of settings. The configuration file, the layers above it (environment, flags), the defaults and the
//! effective values are generated from it, so that a setting cannot exist in one place and be missing in another.

use super::{
    check_words::{KnownImports, Schemas},
    egress_words::{OnDeniedSetting, PrivateHost, Resolver},
    http_words::{ClaimRule, HostName, HttpAuthentication, HttpListen, HttpUrl, PathOrOff},
    record_words::{AuditStore, Endpoint, Listen, NamespacePriority, PackagePattern, VaultKey, VaultStore},
    shares::Shares,
    words::{
        Cores, HostPath, ImageName, List, Location, LogLevel, ModuleName, OnHangUp, Seconds, SecondsOrNever,
        SettingValue, Toolset, WholeNumber,
    },
};
use ringfence_engine::{EgressRule, IndexHost, OnFailure, SearchProvider, SecretBinding, SecretRule};
use ringfence_store::audit::Durability;
use ringfence_types::{
    Backend, ModuleName as PythonModule, Profile, Tier,
    yaml::{self, Fault, Node},
};
use serde_json::Value;
use std::{fmt, ops::Deref, path::Path, sync::Arc};

pub(crate) type Memory = WholeNumber<16, 1_048_576>;
pub(crate) type Concurrency = WholeNumber<1, 1024>;
/// At most ten years.
pub(crate) type Days = WholeNumber<1, 3650>;

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

#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Setting<T> {
    pub(crate) fn default_of(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }
}

pub(crate) struct Key {
    /// `limits.ram_mb`.
    pub(crate) path: &'static str,
    /// The default as text, `None` when it depends on the machine.
    pub(crate) default: Option<&'static str>,
    pub(crate) about: &'static str,
    pub(crate) schema: fn() -> Value,
}

impl Key {
    /// `RINGFENCE_LIMITS_RAM_MB`.
    pub(crate) fn variable(&self) -> String {
        format!("RINGFENCE_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }

    /// The section, if any, and the name: `limits` and `ram_mb`.
    pub(crate) fn parts(&self) -> (Option<&'static str>, &'static str) {
        let parts = self.path.split_once('.');
        parts.map_or((None, self.path), |(section, name)| (Some(section), name))
    }
}

/// One line of `config show`.
pub(crate) struct Row<'a> {
    pub(crate) path: &'static str,
    pub(crate) value: Value,
    pub(crate) origin: &'a Origin,
}

/// Sets the default from its text; without one, the machine's default stays.
fn set_default<T: SettingValue>(
    setting: &mut Option<Setting<T>>,
    path: &str,
    text: Option<&str>,
) -> Result<(), String> {
    if let Some(text) = text {
        let value = match text.starts_with(['[', '{']) {
            true => yaml::read(text)
                .and_then(|node| T::of(&node))
                .map_err(|fault| fault.to_string()),
            // Avoids the YAML parser, which would cost time at every start.
            false => T::read(text),
        };
        let value = value.map_err(|reason| format!("the default of `{path}`: {reason}"))?;
        *setting = Some(Setting::default_of(value));
    }
    Ok(())
}

macro_rules! keys {
    ($($field:ident $path:literal: $type:ty, $default:expr, $about:literal;)+) => {
        /// Every setting, in the order of the reference.
        pub(crate) const KEYS: &[Key] =
            &[$(Key { path: $path, default: $default, about: $about, schema: <$type as SettingValue>::schema }),+];

        #[derive(Debug, Default)]
        pub(crate) struct Layer {
            $(pub(crate) $field: Option<Setting<$type>>,)+
        }

        impl Layer {
            pub(crate) fn set(&mut self, path: &str, text: &str, origin: Origin) -> Result<(), String> {
                $(if path == $path {
                    self.$field = Some(Setting { value: <$type as SettingValue>::read(text)?, origin });
                    return Ok(());
                })+
                Err(format!("`{path}` is not a setting"))
            }

            pub(crate) fn set_node(&mut self, path: &str, node: &Node, origin: Origin) -> Result<(), Fault> {
                $(if path == $path {
                    self.$field = Some(Setting { value: <$type as SettingValue>::of(node)?, origin });
                    return Ok(());
                })+
                Err(node.mismatch("a setting"))
            }
        }

        #[derive(Clone, Debug)]
        pub(crate) struct Effective {
            $(pub(crate) $field: Setting<$type>,)+
        }

        impl Effective {
            /// Returns the defaults of the table, and from `machine` those that depend on the machine.
            pub(crate) fn defaults(mut machine: Layer) -> Result<Self, String> {
                $(set_default(&mut machine.$field, $path, $default)?;)+
                let Layer { $($field: Some($field),)+ } = machine else {
                    return Err("a setting has no default".to_owned());
                };
                Ok(Self { $($field,)+ })
            }

            #[must_use]
            pub(crate) fn overlaid(mut self, layer: Layer) -> Self {
                $(if let Some(set) = layer.$field {
                    self.$field = set;
                })+
                self
            }

            pub(crate) fn rows(&self) -> Vec<Row<'_>> {
                vec![$(Row { path: $path, value: self.$field.value.json(), origin: &self.$field.origin }),+]
            }
        }
    };
}

keys! {
    backend "backend": Backend, Some("native"),
        "Backend of a run that names none: `native`, a container engine (`docker`), or the engine with gVisor (`gvisor`).";
    floor "floor": Tier, Some("full"),
        "Minimum isolation of every run; without it nothing runs. From strong to weak: `full`; `gvisor` and `container` permit those backends; `landlock` gives up namespaces, the private root and the empty network, even if this host has them.";
    containers_enabled "containers.enabled": bool, Some("false"),
        "Callers may name a `backend`, or set `use_container`; it still has to meet the floor.";
    containers_socket "containers.socket": HostPath, Some("/var/run/docker.sock"),
        "Socket of the container engine (Docker or Podman) on this host.";
    containers_image_python "containers.image_python": ImageName, Some("python:3.11-slim"),
        "Image for Python; it must have `python3`.";
    containers_image_node "containers.image_node": ImageName, Some("node:20-slim"),
        "Image for JavaScript and TypeScript; it must have `node`.";
    containers_image_shell "containers.image_shell": ImageName, Some("ubuntu:22.04"),
        "Image for shell scripts; it must have `bash`.";
    containers_pull "containers.pull": bool, Some("true"), "Pull images that the engine does not have.";
    containers_require_digest "containers.require_digest": bool, Some("false"),
        "Refuse images that are not pinned, as NAME@sha256:DIGEST or as sha256:ID.";
    containers_gvisor_runtime "containers.gvisor_runtime": ModuleName, Some("runsc"),
        "Name of the gVisor runtime in the engine's daemon.json.";
    limits_ram_mb "limits.ram_mb": Memory, Some("512"), "Default memory of a run, in MiB.";
    limits_cpu_cores "limits.cpu_cores": Cores, Some("1"), "Default processor cores of a run.";
    limits_timeout_seconds "limits.timeout_seconds": Seconds, Some("60"), "Default wall-clock time of a run.";
    limits_processes "limits.processes": WholeNumber<1, 32_768>, Some("64"), "Default processes and threads of a run.";
    limits_output_bytes "limits.output_bytes": WholeNumber<1, 268_435_456>, Some("1000000"), "Kept bytes of each of stdout and stderr.";
    limits_disk_mb "limits.disk_mb": WholeNumber<1, 1_048_576>, Some("512"), "Default private disk of a run, in MiB.";
    caps_ram_mb "caps.ram_mb": Memory, Some("8192"), "Maximum memory of a run, in MiB.";
    caps_cpu_cores "caps.cpu_cores": Cores, None, "Maximum processor cores of a run; default: the machine's.";
    caps_timeout_seconds "caps.timeout_seconds": Seconds, Some("3600"), "Maximum wall-clock time of a run.";
    caps_processes "caps.processes": WholeNumber<1, 32_768>, Some("1024"), "Maximum processes and threads of a run.";
    caps_output_bytes "caps.output_bytes": WholeNumber<1, 268_435_456>, Some("67108864"),
        "Maximum kept bytes of each of stdout and stderr.";
    caps_disk_mb "caps.disk_mb": WholeNumber<1, 1_048_576>, Some("16384"), "Maximum private disk of a run, in MiB.";
    queue_concurrency "queue.concurrency": Concurrency, None,
        "Maximum running programs; default: 16 per core. From four on, one namespace cannot occupy all of them.";
    queue_memory_mb "queue.memory_mb": Memory, None,
        "Memory of all running programs together, by their limits, in MiB; default: twice the machine's.";
    queue_waiting "queue.waiting": WholeNumber<0, 65_536>, Some("256"), "Maximum queued requests; more are rejected with `busy`.";
    queue_wait_seconds "queue.wait_seconds": Seconds, Some("60"), "Maximum time that a request waits.";
    queue_priorities "queue.priorities": List<NamespacePriority>, Some("[]"),
        "Namespaces served more or less often than others while requests are queued, as `team-a=high`, `batch=low`.";
    queue_rate_per_minute "queue.rate_per_minute": WholeNumber<0, 1_000_000>, Some("0"),
        "Requests that one namespace may send per minute; 0: unlimited.";
    queue_rate_burst "queue.rate_burst": WholeNumber<1, 1_000_000>, Some("10"), "Requests that a namespace may send at once, if there is a rate.";
    runtimes_python "runtimes.python": Location, Some("auto"),
        "Python interpreter or virtual environment; `auto`: the first python3 on PATH.";
    runtimes_node "runtimes.node": Location, Some("auto"), "Node.js; `auto`: the first node on PATH.";
    runtimes_shell "runtimes.shell": Location, Some("auto"), "bash; `auto`: the first on PATH.";
    runtimes_mounts "runtimes.mounts": List<HostPath>, Some("[]"),
        "Additional directories of the host that interpreters need, mounted read-only at the same path.";
    packages_enabled "packages.enabled": bool, Some("true"),
        "Programs may request packages, which are installed from the index that pip and npm are configured for.";
    packages_allow "packages.allow": List<PackagePattern>, Some(r#"["*"]"#),
        "Packages that may be requested; a name may end with `*`. Their dependencies are included.";
    packages_hosts "packages.hosts": List<IndexHost>, Some(r#"["auto"]"#),
        "Hosts that pip and npm may reach while they install. `auto`: those of the index in their own configuration; others as HOST or HOST:PORT, if its files are elsewhere.";
    packages_timeout_seconds "packages.timeout_seconds": Seconds, Some("300"),
        "Maximum time to install one set of packages.";
    packages_max_mb "packages.max_mb": WholeNumber<1, 1_048_576>, Some("1024"), "Maximum installed size of one set of packages, in MiB.";
    packages_keep_days "packages.keep_days": Days, Some("30"), "How long installed packages are kept after their last use.";
    packages_keep_mb "packages.keep_mb": WholeNumber<1, 1_048_576>, Some("8192"),
        "Maximum disk space of all installed packages, in MiB; the least recently used are removed first.";
    egress_allow "egress.allow": List<EgressRule>, Some("[]"),
        "Hosts that programs may reach: HOST, *.HOST, HOST:PORT, METHODS HOST/PATH, or a network; for some namespaces only as NAMESPACE=RULE, where NAMESPACE may end with `*`. In the variable, separated by semicolons. docs/egress.md explains the matching.";
    egress_on_denied "egress.on_denied": OnDeniedSetting, Some("deny"),
        "When a program connects to a host that no rule allows: `deny` it, or `ask` a person (`ringfence approvals`, the client's dialogue) while the connection waits.";
    egress_ask_seconds "egress.ask_seconds": WholeNumber<1, 120>, Some("10"),
        "How long such a connection waits for the answer before it is denied; at most `approvals.timeout_seconds`.";
    egress_private "egress.private": List<PrivateHost>, Some("[]"),
        "Hosts that may have private addresses, as HOST or HOST:PORT; any other name with a private address is refused. In the variable, separated by semicolons.";
    egress_secrets "egress.secrets": List<SecretBinding>, Some("[]"),
        "Secrets of which programs see only a placeholder; Ringfence replaces it with the value in requests to that host. NAMESPACE/KEY=HOST, and the place in a request: `header NAME` (default: authorization), `header NAME: TEXT {}`, `query NAME` or `query NAME=`. In the variable, separated by semicolons.";
    egress_ca_file "egress.ca_file": Location, Some("auto"),
        "Certificates (PEM) trusted in addition to this host's when TLS is inspected; `auto`: only this host's.";
    egress_resolvers "egress.resolvers": List<Resolver>, Some("[]"),
        "DNS resolvers, as ADDRESS or ADDRESS:PORT; default: the host's own, with its hosts file first.";
    egress_connections "egress.connections": WholeNumber<1, 100_000>, Some("64"), "Maximum open connections of one sandbox.";
    egress_connections_per_namespace "egress.connections_per_namespace": WholeNumber<1, 100_000>, Some("256"),
        "Maximum open connections of all sandboxes of a namespace.";
    egress_sent_mb "egress.sent_mb": WholeNumber<1, 1_048_576>, Some("1024"), "Maximum that one sandbox sends in total, in MiB.";
    egress_received_mb "egress.received_mb": WholeNumber<1, 1_048_576>, Some("4096"),
        "Maximum that one sandbox receives in total, in MiB.";
    egress_connection_seconds "egress.connection_seconds": Seconds, Some("3600"), "Maximum lifetime of a connection.";
    egress_idle_seconds "egress.idle_seconds": Seconds, Some("300"),
        "Time without traffic after which a connection is closed.";
    web_allow "web.allow": List<EgressRule>, Some(r#"["*"]"#),
        "Hosts that the web tools may reach, in the syntax of `egress.allow`; `*`: every public one. Hosts that a person approves are added.";
    web_robots "web.robots": bool, Some("true"), "`fetch_webpage` obeys robots.txt.";
    web_timeout_seconds "web.timeout_seconds": Seconds, Some("30"),
        "Maximum time to fetch one page, redirects included.";
    web_max_mb "web.max_mb": WholeNumber<1, 256>, Some("10"), "Maximum that is read of one page, as it is sent, in MiB.";
    web_search "web.search": List<SearchProvider>, Some(r#"["duckduckgo"]"#),
        "Search providers, in the order in which they are asked: `searxng=URL`, `brave key NAME`, `tavily key NAME`, `mojeek key NAME`, `duckduckgo`; NAME is a secret in the vault that `vault.allow` permits. In the variable, separated by semicolons.";
    web_browser "web.browser": Location, Some("auto"),
        "Chromium; `auto`: the first of chromium-headless-shell and chromium on PATH.";
    warm_ready "warm.ready": WholeNumber<0, 256>, Some("2"),
        "Sandboxes that `serve` keeps ready for each language; 0: none, every run starts cold.";
    warm_ready_max "warm.ready_max": WholeNumber<0, 256>, Some("8"), "Maximum sandboxes kept ready for a language under load.";
    warm_memory_mb "warm.memory_mb": Memory, Some("1024"),
        "Maximum memory of ready sandboxes and their templates, in MiB; beyond it no more are made.";
    warm_preload_python "warm.preload_python": List<ModuleName>, Some(r#"["numpy", "pandas", "matplotlib.pyplot"]"#),
        "Modules that a second Python template imports, if the interpreter has them, for programs that name them.";
    warm_preload_node "warm.preload_node": List<ModuleName>, Some("[]"),
        "Modules that Node.js loads before it gets a program.";
    warm_template_forks "warm.template_forks": WholeNumber<1, 1_000_000>, Some("10000"), "Forks after which a template is replaced.";
    warm_template_minutes "warm.template_minutes": WholeNumber<1, 10_080>, Some("60"), "Age at which a template is replaced.";
    sessions_max "sessions.max": WholeNumber<0, 10_000>, Some("1000"), "Maximum live sessions; more are refused.";
    sessions_per_namespace "sessions.per_namespace": WholeNumber<0, 10_000>, Some("100"), "Maximum live sessions of one namespace.";
    sessions_idle_seconds "sessions.idle_seconds": Seconds, Some("900"),
        "Idle time after which a session ends, unless its creator has named another.";
    sessions_idle_seconds_max "sessions.idle_seconds_max": Seconds, Some("14400"),
        "Maximum idle time that a creator may name.";
    sessions_age_seconds "sessions.age_seconds": Seconds, Some("86400"), "Age at which a session ends.";
    calls_detach_after_seconds "calls.detach_after_seconds": SecondsOrNever, Some("50"),
        "Time after which a call whose program still runs is detached: its answer is the execution_id and the output so far, and `get_execution` reads the rest. Many clients give up after 60 seconds. 0: never.";
    calls_on_cancel "calls.on_cancel": OnHangUp, Some("cancel"),
        "When a client cancels an unanswered call: `cancel` stops its program, `detach` lets it run on. A client that times out and a person who stops the call send the same message.";
    calls_on_disconnect "calls.on_disconnect": OnHangUp, Some("cancel"),
        "When a client disconnects before a call is answered: `cancel` stops its program, `detach` lets it run on. A server on stdio then ends after the last program, and its results are lost; files that programs left are kept.";
    results_keep_minutes "results.keep_minutes": WholeNumber<1, 10_080>, Some("60"),
        "How long a result can be read again after its program has ended.";
    results_memory_mb "results.memory_mb": WholeNumber<0, 1_048_576>, Some("64"),
        "Maximum memory of the kept results of all namespaces, in MiB; each takes at least 1 KiB, and each stream at most an eighth. Beyond it, the oldest result of the namespace with most is removed first. 0: no result is kept, and no call is detached.";
    approvals_timeout_seconds "approvals.timeout_seconds": WholeNumber<1, 86_400>, Some("120"),
        "How long a request for approval waits for an answer; then it is denied.";
    approvals_max_namespace_minutes "approvals.max_namespace_minutes": WholeNumber<1, 10_080>, Some("60"),
        "Maximum duration of an approval for a whole namespace.";
    check_profile "check.profile": Profile, Some("unrestricted"),
        "Profile of Python programs that name none: what they may import. `unrestricted`: everything; the kernel is the wall.";
    check_profiles "check.profiles": List<Profile>, Some("all"),
        "Profiles that callers may choose. Default if `check.profile` restricts: that one and `strict`.";
    check_allowed_imports "check.allowed_imports": List<PythonModule>, Some("[]"),
        "Modules that every restricting profile allows in addition to its own, each with its submodules.";
    check_known_imports "check.known_imports": KnownImports, Some("{}"),
        "Names whose missing import may be added, in addition to the well-known ones: NAME: STATEMENT; in the variable NAME=STATEMENT, separated by semicolons.";
    check_schemas "check.schemas": Schemas, Some("{}"),
        "JSON Schemas that callers may name, in addition to `config`, `user` and `dataset`: NAME: the path of a file, or the schema itself; in the variable NAME=FILE, separated by commas.";
    audit_store "audit.store": AuditStore, Some("sqlite"),
        "Where the audit record is: in a file, or in memory until the server stops.";
    audit_path "audit.path": Location, Some("auto"), "The record's file; `auto`: record/audit.db in the state directory.";
    audit_durability "audit.durability": Durability, Some("process"),
        "What a record survives: that the server is killed, or that the power fails, which costs a disk sync for each run.";
    audit_on_failure "audit.on_failure": OnFailure, Some("deny"),
        "If the record cannot be written, `deny`: nothing runs; `warn`: programs run, and their results say that they are not on record.";
    audit_segment_mb "audit.segment_mb": WholeNumber<1, 1_048_576>, Some("16"),
        "Size of the record's database, in MiB, at which its oldest records are moved into a compressed segment beside it.";
    audit_keep_days "audit.keep_days": Days, Some("365"),
        "How long closed segments are kept; the record says which were removed.";
    audit_max_mb "audit.max_mb": WholeNumber<1, 1_048_576>, Some("1024"),
        "Maximum disk space of the record, in MiB; the oldest closed segments are removed first, and the record says which.";
    vault_store "vault.store": VaultStore, Some("memory"),
        "Where secrets come from: `ringfence vault add` until the server stops, variables RINGFENCE_SECRET_{NAMESPACE}_{KEY}, or an encrypted file.";
    vault_path "vault.path": Location, Some("auto"), "The vault's file; `auto`: record/vault in the state directory.";
    vault_key "vault.key": VaultKey, Some("file"),
        "What opens the vault's file: a key in a file, or a passphrase (variable RINGFENCE_VAULT_PASSPHRASE).";
    vault_key_file "vault.key_file": Location, Some("auto"),
        "The key's file, mode 0600; `auto`: record/vault.key in the state directory, made with the vault.";
    vault_allow "vault.allow": List<SecretRule>, Some(r#"["*/*"]"#),
        "Secrets that a namespace may use, as NAMESPACE/KEY; either may end with `*`.";
    artifacts_keep_days "artifacts.keep_days": Days, Some("7"), "How long files that programs left are kept.";
    artifacts_max_mb "artifacts.max_mb": WholeNumber<1, 1_048_576>, Some("1024"),
        "Maximum disk space of files that programs left, in MiB; the oldest of the namespace with most are removed first.";
    snapshots_max "snapshots.max": WholeNumber<1, 100_000>, Some("100"),
        "Maximum snapshots of a namespace; none is deleted to make room.";
    snapshots_max_mb "snapshots.max_mb": WholeNumber<1, 1_048_576>, Some("4096"),
        "Maximum disk space of a namespace's snapshots, in MiB, compressed and with each content counted once.";
    snapshots_total_mb "snapshots.total_mb": WholeNumber<1, 1_048_576>, Some("65536"),
        "Maximum disk space of the snapshots of all namespaces, in MiB.";
    disk_total_mb "disk.total_mb": WholeNumber<1, 1_073_741_824>, Some("102400"),
        "Maximum that the server keeps on the disk of its state directory, in MiB: workspaces, snapshots, artifacts, packages, record.";
    disk_namespace_mb "disk.namespace_mb": WholeNumber<1, 1_073_741_824>, Some("32768"),
        "Maximum for the workspace and snapshots of one namespace, in MiB.";
    disk_free_mb "disk.free_mb": WholeNumber<0, 1_048_576>, Some("1024"),
        "Space that stays free on the file system of the state directory, in MiB: below it nothing more is kept, and below half of it nothing runs.";
    redact_personal "redact.personal": bool, Some("false"),
        "Also remove e-mail addresses, telephone, card and social security numbers from everything that leaves.";
    metrics_listen "metrics.listen": Listen, Some("off"),
        "Address and port at which `serve` answers /metrics (OpenMetrics), as 127.0.0.1:9464.";
    telemetry_otlp_endpoint "telemetry.otlp_endpoint": Endpoint, Some("off"),
        "Collector that `serve` and `run` send traces and metrics to (OTLP over HTTP), as http://127.0.0.1:4318; neither waits for it, except for up to a second at its end.";
    http_listen "http.listen": HttpListen, Some("127.0.0.1:8000"),
        "Where `serve --transport http` listens: ADDRESS:PORT or unix:PATH.";
    http_authentication "http.authentication": HttpAuthentication, Some("auto"),
        "`required`: every request from the network needs a token. `auto`: the same as soon as there is a token (`ringfence token create`, SANDBOX_API_TOKEN) or OAuth; before that the server may listen only on this host.";
    http_token_file "http.token_file": PathOrOff, Some("off"),
        "File with the token that SANDBOX_API_TOKEN would have, such as a container's secret.";
    http_allowed_hosts "http.allowed_hosts": List<HostName>, Some("[]"),
        "Hosts, as HOST or HOST:PORT, that clients may send as Host header, and browsers as Origin, in addition to localhost, 127.0.0.1 and [::1].";
    http_tls_cert "http.tls_cert": PathOrOff, Some("off"),
        "Certificate chain (PEM) for TLS; read again on SIGHUP.";
    http_tls_key "http.tls_key": PathOrOff, Some("off"), "Key of the certificate (PEM); other users must have no access to it.";
    http_public_url "http.public_url": HttpUrl, Some("off"),
        "Origin of the server for OAuth clients, as https://mcp.example.com; the audience of tokens is this followed by /mcp.";
    http_oauth_issuer "http.oauth_issuer": HttpUrl, Some("off"), "Issuer of OAuth access tokens, as their `iss` says.";
    http_oauth_jwks_url "http.oauth_jwks_url": HttpUrl, Some("off"), "URL of the issuer's keys (JWKS).";
    http_oauth_principals "http.oauth_principals": List<ClaimRule>, Some("[]"),
        "Principals of access tokens; the first match applies. CLAIM=VALUE: NAME NAMESPACE,... [TOOLSET,...] [LIMIT=NUMBER ...]. VALUE may be `*`, `{}` stands for the claim's value, and LIMIT is rate, detach_after, ram_mb, cpus, timeout, processes, output_bytes or disk_mb. In the variable, separated by semicolons.";
    http_body_mb "http.body_mb": WholeNumber<1, 256>, Some("32"), "Maximum body of a request, in MiB.";
    http_connections "http.connections": WholeNumber<1, 100_000>, Some("1024"), "Maximum open connections.";
    http_idle_seconds "http.idle_seconds": WholeNumber<1, 86_400>, Some("120"),
        "Time without a request after which a connection is closed.";
    http_sessions "http.sessions": WholeNumber<1, 10_000>, Some("64"),
        "Maximum protocol sessions (handshake revisions) of one principal; the least recently used one makes room.";
    http_session_idle_seconds "http.session_idle_seconds": WholeNumber<1, 86_400>, Some("1800"),
        "Time without a request or an open stream after which a protocol session ends.";
    http_drain_seconds "http.drain_seconds": WholeNumber<0, 3600>, Some("20"),
        "Time that running calls have to end after SIGTERM; new ones are refused with `busy`.";
    host_enabled "host.enabled": bool, Some("false"),
        "Callers may run commands and use files of this host, by rules (toolset `host`).";
    host_rules "host.rules": Location, Some("auto"),
        "File with rules in addition to the built-in ones (docs/host.md); `auto`: only the built-in ones.";
    namespaces_caller_chooses "namespaces.caller_chooses": bool, Some("true"),
        "MCP callers may name their namespace; if not, the tools have no such argument.";
    workspaces "workspaces": Shares, Some("{}"),
        "Directories of the host that callers may name as their workspace: NAME: {path, mode: ro, rw or overlay, namespaces}; in the variable NAME=DIR:MODE, separated by commas.";
    state_dir "state_dir": HostPath, None,
        "Directory of the record, the vault, artifacts and the control socket; default: ringfence below $XDG_STATE_HOME, for root below /var/lib.";
    toolsets "toolsets": List<Toolset>, Some("all"), "Tools that `serve` offers.";
    text_max "text_max": WholeNumber<1024, 1_048_576>, Some("8192"),
        "Maximum bytes of a result's text, which a model reads, and of each stream in its structured content, whose other fields may have twice as many; `get_execution` reads the rest.";
    log "log": LogLevel, None, "Lowest level of log lines on stderr; default: info for `serve`, error otherwise.";
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
                    "egress.allow" | "egress.private" | "web.allow" => "example.com;*.example.com",
                    "egress.secrets" => "a/K=api.example.com header x-key: Key {};a/*=b.test query key",
                    "web.search" => "duckduckgo;searxng=https://search.example.com/;brave key K",
                    "egress.resolvers" => "9.9.9.9,127.0.0.1:5353",
                    "check.allowed_imports" => "math,os.path",
                    "check.known_imports" => "np=import numpy as np",
                    "check.schemas" => "order=/order.json",
                    "log" => "info",
                    "queue.memory_mb" => "512",
                    "http.allowed_hosts" => "a.example,[::1]:8000",
                    "http.oauth_principals" => "tenant=*: {} {},shared;sub=me: me * execute",
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
