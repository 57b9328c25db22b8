//! Configuration: what was typed (a file, the environment, flags) becomes what it means. A flag wins over the
//! environment, which wins over the file, which wins over the default; every value remembers where it comes from.

pub(crate) mod aliases;
mod approvals;
mod check_words;
mod checks;
mod egress;
mod egress_words;
mod environment;
mod file;
pub(crate) mod keys;
mod package_sources;
mod record_words;
mod reload;
mod render;
mod shares;
mod words;

pub use environment::Environment;
pub use file::{CONFIG_BYTES_MAX, ConfigError, ConfigFile, parse_config};
pub(crate) use keys::{Layer, Origin, Setting};
pub(crate) use render::{example, schema, table};
pub(crate) use words::{BackendName, Floor, List, LogLevel, Toolset, Word};

use crate::telemetry::Address;
use check_words::{KnownImports, ProfileWord, Schemas};
use egress_words::{OnDeniedWord, PackageHost};
use environment::CONFIG_VARIABLE;
use keys::{
    AskSeconds, Burst, Concurrency, Connections, Days, Disk, Effective, Forks, Memory, Minutes, Output,
    PerMinute, Processes, Ready, Sessions, Snapshots, Waiting, WholeSeconds,
};
use record_words::{
    AuditDurability, AuditOnFailure, AuditStore, Endpoint, Listen, NamespacePriority, PackagePattern,
    SecretPattern, VaultKey, VaultStore,
};
use ringfence_engine::{
    AuditSettings, CheckSettings, EngineSettings, IndexHost, ListedWorkspace, OnFailure, PackagePolicy,
    PackageSettings, Personal, PolicySettings, QueueSettings, Rate, RecordSettings, RuntimeSettings,
    SessionSettings, WarmSettings,
};
use ringfence_store::{
    artifacts::Retention,
    audit::{Durability, Place},
    layers::LayersKept,
    snapshots::SnapshotLimits,
    vault::{FileKey, VaultSettings},
};
use ringfence_types::{ErrorCode, Limits, Profile, RequestError, WorkspaceMode, WorkspaceName};
use shares::{Share, Shares};
use std::{
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use words::{Cores, HostPath, Location, ModuleName, Seconds};

/// What the command line says about the configuration.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) layer: Layer,
    /// The log level of this command where nobody sets one.
    pub(crate) log: LogLevel,
}

/// May an MCP caller name its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    CallerChooses,
    Fixed,
}

/// What the configuration means.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) engine: EngineSettings,
    pub(crate) floor: Floor,
    pub(crate) toolsets: List<Toolset>,
    pub(crate) namespaces: Namespaces,
    pub(crate) log: LogLevel,
    /// Where metrics are answered.
    pub(crate) metrics: Option<SocketAddr>,
    /// Where traces and metrics are sent.
    pub(crate) otlp: Option<Address>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    effective: Effective,
}

const MEBIBYTE: u64 = 1 << 20;
/// Files, directories and links of one snapshot.
const SNAPSHOT_ENTRIES_MAX: usize = 200_000;
/// Below the state directory.
const RECORD: &str = "record";

/// Reads everything that the configuration is made of.
pub(crate) fn load(environment: &Environment, flags: Flags) -> Result<Config, RequestError> {
    let (file, typed) = read_file(environment, flags.config)?;
    let from_file = match &file {
        Some(path) => typed.into_layer(&Arc::from(path.as_path())),
        None => Layer::default(),
    };
    let effective = defaults(environment, flags.log)
        .overlaid(from_file)
        .overlaid(environment.layer()?)
        .overlaid(flags.layer);
    let effective = lower_defaults_to_caps(effective);
    let effective = checks::settle(effective, &environment.profile_aliases()?)?;
    check_against_caps(&effective)?;
    mean(environment, effective, file)
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// What Python has imported already, where it is installed.
const PRELOADED: &[&str] = &["numpy", "pandas", "matplotlib.pyplot"];

#[expect(clippy::cast_precision_loss, reason = "no machine has 2^52 cores")]
#[expect(clippy::too_many_lines, reason = "one line for each setting")]
fn defaults(environment: &Environment, log: LogLevel) -> Effective {
    let machine = Cores::clamped(cores() as f64);
    Effective {
        backend: Setting::default_of(BackendName::Native),
        floor: Setting::default_of(Floor::Full),
        limits_ram_mb: Setting::default_of(Memory::clamped(512)),
        limits_cpu_cores: Setting::default_of(Cores::clamped(1.0)),
        limits_timeout_seconds: Setting::default_of(Seconds::clamped(60.0)),
        limits_processes: Setting::default_of(Processes::clamped(64)),
        limits_output_bytes: Setting::default_of(Output::clamped(1_000_000)),
        limits_disk_mb: Setting::default_of(Disk::clamped(512)),
        caps_ram_mb: Setting::default_of(Memory::clamped(8192)),
        caps_cpu_cores: Setting::default_of(machine),
        caps_timeout_seconds: Setting::default_of(Seconds::clamped(3600.0)),
        caps_processes: Setting::default_of(Processes::clamped(1024)),
        caps_output_bytes: Setting::default_of(Output::clamped(64 * MEBIBYTE)),
        caps_disk_mb: Setting::default_of(Disk::clamped(16384)),
        queue_concurrency: Setting::default_of(Concurrency::clamped(2 * cores())),
        queue_waiting: Setting::default_of(Waiting::clamped(256)),
        queue_wait_seconds: Setting::default_of(Seconds::clamped(60.0)),
        queue_priorities: Setting::default_of(List::of(Vec::new())),
        queue_rate_per_minute: Setting::default_of(PerMinute::clamped(0)),
        queue_rate_burst: Setting::default_of(Burst::clamped(10)),
        runtimes_python: Setting::default_of(Location::Usual),
        runtimes_node: Setting::default_of(Location::Usual),
        runtimes_shell: Setting::default_of(Location::Usual),
        runtimes_mounts: Setting::default_of(List::of(Vec::new())),
        packages_enabled: Setting::default_of(true),
        packages_allow: Setting::default_of(List::of(vec![PackagePattern::everything()])),
        packages_hosts: Setting::default_of(List::of(vec![PackageHost(IndexHost::Configured)])),
        packages_timeout_seconds: Setting::default_of(Seconds::clamped(300.0)),
        packages_max_mb: Setting::default_of(Disk::clamped(1024)),
        packages_keep_days: Setting::default_of(Days::clamped(30)),
        packages_keep_mb: Setting::default_of(Disk::clamped(8192)),
        egress_allow: Setting::default_of(List::of(Vec::new())),
        egress_on_denied: Setting::default_of(OnDeniedWord::Deny),
        egress_ask_seconds: Setting::default_of(AskSeconds::clamped(10)),
        egress_private: Setting::default_of(List::of(Vec::new())),
        egress_secrets: Setting::default_of(List::of(Vec::new())),
        egress_ca_file: Setting::default_of(Location::Usual),
        egress_resolvers: Setting::default_of(List::of(Vec::new())),
        egress_connections: Setting::default_of(Connections::clamped(64)),
        egress_connections_per_namespace: Setting::default_of(Connections::clamped(256)),
        egress_sent_mb: Setting::default_of(Disk::clamped(1024)),
        egress_received_mb: Setting::default_of(Disk::clamped(4096)),
        egress_connection_seconds: Setting::default_of(Seconds::clamped(3600.0)),
        egress_idle_seconds: Setting::default_of(Seconds::clamped(300.0)),
        warm_ready: Setting::default_of(Ready::clamped(2)),
        warm_ready_max: Setting::default_of(Ready::clamped(8)),
        warm_memory_mb: Setting::default_of(Memory::clamped(1024)),
        warm_preload_python: Setting::default_of(List::of(ModuleName::ours(PRELOADED))),
        warm_preload_node: Setting::default_of(List::of(Vec::new())),
        warm_template_forks: Setting::default_of(Forks::clamped(10_000)),
        warm_template_minutes: Setting::default_of(Minutes::clamped(60)),
        sessions_max: Setting::default_of(Sessions::clamped(1000)),
        sessions_per_namespace: Setting::default_of(Sessions::clamped(100)),
        sessions_idle_seconds: Setting::default_of(Seconds::clamped(900.0)),
        sessions_idle_seconds_max: Setting::default_of(Seconds::clamped(14_400.0)),
        sessions_age_seconds: Setting::default_of(Seconds::clamped(86_400.0)),
        approvals_timeout_seconds: Setting::default_of(WholeSeconds::clamped(120)),
        approvals_max_namespace_minutes: Setting::default_of(Minutes::clamped(60)),
        check_profile: Setting::default_of(ProfileWord(Profile::Unrestricted)),
        check_profiles: Setting::default_of(List::of(words::Listed::all())),
        check_allowed_imports: Setting::default_of(List::of(Vec::new())),
        check_known_imports: Setting::default_of(KnownImports::default()),
        check_schemas: Setting::default_of(Schemas::default()),
        audit_store: Setting::default_of(AuditStore::Sqlite),
        audit_path: Setting::default_of(Location::Usual),
        audit_durability: Setting::default_of(AuditDurability::Process),
        audit_on_failure: Setting::default_of(AuditOnFailure::Deny),
        vault_store: Setting::default_of(VaultStore::Memory),
        vault_path: Setting::default_of(Location::Usual),
        vault_key: Setting::default_of(VaultKey::File),
        vault_key_file: Setting::default_of(Location::Usual),
        vault_allow: Setting::default_of(List::of(vec![SecretPattern::everything()])),
        artifacts_keep_days: Setting::default_of(Days::clamped(7)),
        artifacts_max_mb: Setting::default_of(Disk::clamped(1024)),
        snapshots_max: Setting::default_of(Snapshots::clamped(100)),
        snapshots_max_mb: Setting::default_of(Disk::clamped(4096)),
        snapshots_total_mb: Setting::default_of(Disk::clamped(65536)),
        redact_personal: Setting::default_of(false),
        metrics_listen: Setting::default_of(Listen(None)),
        telemetry_otlp_endpoint: Setting::default_of(Endpoint(None)),
        namespaces_caller_chooses: Setting::default_of(true),
        workspaces: Setting::default_of(Shares::default()),
        state_dir: Setting::default_of(HostPath::ours(&environment.usual_state())),
        toolsets: Setting::default_of(List::of(words::Listed::all())),
        log: Setting::default_of(log),
    }
}

/// A cap below a default that nobody chose lowers the default; below one that somebody chose it is a contradiction.
fn lower_defaults_to_caps(mut settings: Effective) -> Effective {
    macro_rules! lower {
        ($($limit:ident <= $cap:ident),+) => {$(
            if settings.$limit.origin == Origin::Default && settings.$limit.value.get() > settings.$cap.value.get() {
                settings.$limit.value = settings.$cap.value;
            }
        )+};
    }
    lower!(
        limits_ram_mb <= caps_ram_mb,
        limits_cpu_cores <= caps_cpu_cores,
        limits_timeout_seconds <= caps_timeout_seconds,
        limits_processes <= caps_processes,
        limits_output_bytes <= caps_output_bytes,
        limits_disk_mb <= caps_disk_mb
    );
    settings
}

fn check_against_caps(settings: &Effective) -> Result<(), RequestError> {
    macro_rules! check {
        ($($name:literal: $limit:ident <= $cap:ident),+) => {$(
            let (limit, cap) = (&settings.$limit, &settings.$cap);
            if limit.value.get() > cap.value.get() {
                return Err(refusal(
                    format!(
                        "limits.{0} = {1} ({2}) is more than caps.{0} = {3} ({4}).",
                        $name, limit.value.json(), limit.origin, cap.value.json(), cap.origin
                    ),
                    "Raise the cap or lower the limit.",
                ));
            }
        )+};
    }
    check!(
        "ram_mb": limits_ram_mb <= caps_ram_mb,
        "cpu_cores": limits_cpu_cores <= caps_cpu_cores,
        "timeout_seconds": limits_timeout_seconds <= caps_timeout_seconds,
        "processes": limits_processes <= caps_processes,
        "output_bytes": limits_output_bytes <= caps_output_bytes,
        "disk_mb": limits_disk_mb <= caps_disk_mb
    );
    Ok(())
}

fn mean(
    environment: &Environment,
    effective: Effective,
    file: Option<PathBuf>,
) -> Result<Config, RequestError> {
    let expand = |path: &HostPath, origin: &Origin| expand(environment, path, origin);
    let at = |setting: &Setting<Location>| match &setting.value {
        Location::Usual => Ok(None),
        Location::At(path) => expand(path, &setting.origin).map(Some),
    };
    let mounts = &effective.runtimes_mounts;
    let extra_mounts: Result<Vec<PathBuf>, RequestError> = mounts
        .value
        .items()
        .iter()
        .map(|path| expand(path, &mounts.origin))
        .collect();
    let namespaces = if effective.namespaces_caller_chooses.value {
        Namespaces::CallerChooses
    } else {
        Namespaces::Fixed
    };
    let names = |modules: &Setting<List<ModuleName>>| {
        let items = modules.value.items().iter();
        items.map(|module| module.as_str().to_owned()).collect()
    };
    let state_dir = expand(&effective.state_dir.value, &effective.state_dir.origin)?;
    let engine = EngineSettings {
        helper: PathBuf::from(crate::executable::SELF),
        tier: effective.floor.value.tier(),
        record: record(environment, &effective, &state_dir, at)?,
        state_dir,
        packages: packages(environment, &effective),
        egress: egress::settings(&effective, at(&effective.egress_ca_file)?),
        policy: policy(
            &effective,
            workspaces(environment, &effective.workspaces)?,
            checks::check(environment, &effective)?,
        ),
        queue: queue(&effective),
        runtimes: RuntimeSettings {
            python: at(&effective.runtimes_python)?,
            node: at(&effective.runtimes_node)?,
            shell: at(&effective.runtimes_shell)?,
            search_path: environment.search_path(),
            extra_mounts: extra_mounts?,
        },
        warm: WarmSettings {
            ready: bounded(effective.warm_ready.value.get()),
            ready_max: bounded(effective.warm_ready_max.value.get()),
            memory_bytes: effective.warm_memory_mb.value.get() << 20,
            preload_python: names(&effective.warm_preload_python),
            preload_node: names(&effective.warm_preload_node),
            template_forks: u32::try_from(effective.warm_template_forks.value.get()).unwrap_or(u32::MAX),
            template_age: Duration::from_secs(60 * effective.warm_template_minutes.value.get()),
        },
        sessions: sessions(&effective),
        approvals: approvals::meant(&effective),
    };
    Ok(Config {
        engine,
        floor: effective.floor.value,
        toolsets: effective.toolsets.value.clone(),
        namespaces,
        log: effective.log.value,
        metrics: effective.metrics_listen.value.0,
        otlp: effective.telemetry_otlp_endpoint.value.address(),
        file,
        effective,
    })
}

fn packages(environment: &Environment, settings: &Effective) -> PackageSettings {
    PackageSettings {
        sources: environment.package_sources(),
        kept: LayersKept {
            age: Duration::from_secs(24 * 60 * 60 * settings.packages_keep_days.value.get()),
            bytes: settings.packages_keep_mb.value.get() * MEBIBYTE,
        },
    }
}

fn sessions(settings: &Effective) -> SessionSettings {
    let time = |setting: &Setting<Seconds>| Duration::from_millis(setting.value.thousandths());
    SessionSettings {
        max: bounded(settings.sessions_max.value.get()),
        per_namespace: bounded(settings.sessions_per_namespace.value.get()),
        idle: time(&settings.sessions_idle_seconds).min(time(&settings.sessions_idle_seconds_max)),
        idle_max: time(&settings.sessions_idle_seconds_max),
        age: time(&settings.sessions_age_seconds),
    }
}

fn bounded(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn queue(settings: &Effective) -> QueueSettings {
    let narrow = |number: u64| u32::try_from(number).ok().and_then(NonZeroU32::new);
    let per_minute = narrow(settings.queue_rate_per_minute.value.get());
    let burst = narrow(settings.queue_rate_burst.value.get());
    let priorities = settings.queue_priorities.value.items().iter().cloned();
    QueueSettings {
        concurrency: bounded(settings.queue_concurrency.value.get()),
        waiting: bounded(settings.queue_waiting.value.get()),
        patience: Duration::from_millis(settings.queue_wait_seconds.value.thousandths()),
        priorities: priorities
            .map(|NamespacePriority(namespace, priority)| (namespace, priority))
            .collect(),
        rate: per_minute
            .zip(burst)
            .map(|(per_minute, burst)| Rate { per_minute, burst }),
    }
}

/// Everything that outlives a request lies in one directory of this user's alone.
fn record(
    environment: &Environment,
    settings: &Effective,
    state_dir: &Path,
    at: impl Fn(&Setting<Location>) -> Result<Option<PathBuf>, RequestError>,
) -> Result<RecordSettings, RequestError> {
    let directory = state_dir.join(RECORD);
    let usual =
        |setting: &Setting<Location>, name: &str| Ok(at(setting)?.unwrap_or_else(|| directory.join(name)));
    let place = match settings.audit_store.value {
        AuditStore::Sqlite => Place::File(usual(&settings.audit_path, "audit.db")?),
        AuditStore::Memory => Place::Memory,
    };
    let secrets = environment.secrets()?;
    let vault = match settings.vault_store.value {
        VaultStore::Environment => VaultSettings::Environment(secrets),
        _ if environment.configures() && !secrets.is_empty() => {
            return Err(refusal(
                format!(
                    "{} is set, and vault.store = {} ({}) does not read the environment.",
                    secrets[0].0,
                    settings.vault_store.value.as_str(),
                    settings.vault_store.origin
                ),
                "Set `vault.store: env` (RINGFENCE_VAULT_STORE=env), or unset the variable.",
            ));
        }
        VaultStore::Memory => VaultSettings::Memory,
        VaultStore::File => VaultSettings::File {
            path: usual(&settings.vault_path, "vault")?,
            key: match settings.vault_key.value {
                VaultKey::File => FileKey::KeyFile(usual(&settings.vault_key_file, "vault.key")?),
                VaultKey::Passphrase => FileKey::Passphrase(environment.passphrase()?),
            },
        },
    };
    Ok(RecordSettings {
        audit: AuditSettings {
            place,
            durability: match settings.audit_durability.value {
                AuditDurability::Process => Durability::Process,
                AuditDurability::Power => Durability::Power,
            },
            on_failure: match settings.audit_on_failure.value {
                AuditOnFailure::Deny => OnFailure::Deny,
                AuditOnFailure::Warn => OnFailure::Warn,
            },
        },
        vault,
        retention: retention(settings),
        snapshots: SnapshotLimits {
            entries: SNAPSHOT_ENTRIES_MAX,
            bytes: settings.caps_disk_mb.value.get() * MEBIBYTE,
            stored_bytes: settings.snapshots_max_mb.value.get() * MEBIBYTE,
            total_bytes: settings.snapshots_total_mb.value.get() * MEBIBYTE,
            snapshots: bounded(settings.snapshots_max.value.get()),
        },
        personal: if settings.redact_personal.value {
            Personal::Remove
        } else {
            Personal::Keep
        },
        directory,
    })
}

fn retention(settings: &Effective) -> Retention {
    Retention {
        age: Duration::from_secs(24 * 60 * 60 * settings.artifacts_keep_days.value.get()),
        bytes: settings.artifacts_max_mb.value.get() * MEBIBYTE,
    }
}

fn policy(settings: &Effective, workspaces: Vec<ListedWorkspace>, check: CheckSettings) -> PolicySettings {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    macro_rules! limits {
        ($ram:ident, $cpu:ident, $timeout:ident, $processes:ident, $output:ident, $disk:ident) => {
            Limits {
                memory_bytes: settings.$ram.value.get() * MEBIBYTE,
                cpu_millicores: narrow(settings.$cpu.value.thousandths()),
                timeout_ms: settings.$timeout.value.thousandths(),
                processes: narrow(settings.$processes.value.get()),
                output_bytes: settings.$output.value.get(),
                disk_bytes: settings.$disk.value.get() * MEBIBYTE,
            }
        };
    }
    PolicySettings {
        defaults: limits!(
            limits_ram_mb,
            limits_cpu_cores,
            limits_timeout_seconds,
            limits_processes,
            limits_output_bytes,
            limits_disk_mb
        ),
        caps: limits!(
            caps_ram_mb,
            caps_cpu_cores,
            caps_timeout_seconds,
            caps_processes,
            caps_output_bytes,
            caps_disk_mb
        ),
        secrets: settings
            .vault_allow
            .value
            .items()
            .iter()
            .map(SecretPattern::rule)
            .collect(),
        workspaces,
        check,
        egress: egress::policy(settings),
        packages: PackagePolicy {
            enabled: settings.packages_enabled.value,
            allow: settings
                .packages_allow
                .value
                .items()
                .iter()
                .map(|pattern| pattern.as_str().to_owned())
                .collect(),
            hosts: settings
                .packages_hosts
                .value
                .items()
                .iter()
                .map(|host| host.0.clone())
                .collect(),
            timeout: Duration::from_millis(settings.packages_timeout_seconds.value.thousandths()),
            bytes_max: settings.packages_max_mb.value.get() * MEBIBYTE,
        },
    }
}

/// Where they really are: what is lent shall be what the operator sees now.
fn workspaces(
    environment: &Environment,
    setting: &Setting<Shares>,
) -> Result<Vec<ListedWorkspace>, RequestError> {
    let listed = |(name, share): (&WorkspaceName, &Share)| {
        let path = expand(environment, &share.path, &setting.origin)?;
        let found = path
            .canonicalize()
            .and_then(|directory| match directory.is_dir() {
                true => Ok(directory),
                false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
            });
        let directory = found.map_err(|error| {
            refusal(
                format!(
                    "workspace `{name}` ({}): {}: {error}.",
                    setting.origin,
                    path.display()
                ),
                "Name a directory that is there.",
            )
        })?;
        let listed = ListedWorkspace {
            name: name.clone(),
            directory,
            mode: share.mode,
            namespaces: share.namespaces.clone(),
        };
        Ok((path, listed))
    };
    let all: Vec<(PathBuf, ListedWorkspace)> = setting.value.items().map(listed).collect::<Result<_, _>>()?;
    for (path, inner) in &all {
        let mut others = all.iter().map(|(_, other)| other);
        if let Some(outer) = others.find(|outer| may_replace(outer, path, &inner.directory)) {
            return Err(refusal(
                format!(
                    "workspace `{}` ({}): {} lies in the workspace `{}`, whose programs may put anything in its place.",
                    inner.name,
                    setting.origin,
                    path.display(),
                    outer.name
                ),
                "Share that one as `overlay` or `ro`, or have a directory elsewhere.",
            ));
        }
    }
    Ok(all.into_iter().map(|(_, listed)| listed).collect())
}

/// Does the way to a directory, as it was written or as it is, lead through one that programs may write.
fn may_replace(outer: &ListedWorkspace, path: &Path, directory: &Path) -> bool {
    let passes = |way: &Path| {
        let mut above = way.ancestors().skip(1);
        above.any(|above| above.canonicalize().is_ok_and(|real| real == outer.directory))
    };
    outer.mode == WorkspaceMode::Rw && (passes(path) || passes(directory))
}

fn expand(environment: &Environment, path: &HostPath, origin: &Origin) -> Result<PathBuf, RequestError> {
    match (path.as_str().strip_prefix("~/"), environment.home()) {
        (None, _) => Ok(PathBuf::from(path.as_str())),
        (Some(rest), Some(home)) => Ok(home.join(rest)),
        (Some(_), None) => Err(refusal(
            format!(
                "`{}` ({origin}) needs a home directory, and HOME is not set.",
                path.as_str()
            ),
            "Write the path from `/`.",
        )),
    }
}

/// The file that is named, or the usual one where it exists.
fn read_file(
    environment: &Environment,
    flag: Option<PathBuf>,
) -> Result<(Option<PathBuf>, ConfigFile), RequestError> {
    let by_flag = if environment.configures() {
        "--config"
    } else {
        "as the program says"
    };
    let named = flag
        .map(|path| (path, by_flag))
        .or(environment.named_config().map(|path| (path, CONFIG_VARIABLE)));
    if let Some((path, by)) = named {
        let text = read_text(&path).map_err(|error| {
            refusal(
                format!(
                    "cannot read the configuration {} ({by}): {error}.",
                    path.display()
                ),
                "Name a file that exists, or start from `ringfence config example`.",
            )
        })?;
        return Ok((Some(path.clone()), parse(&path, &text)?));
    }
    let Some(path) = environment.usual_config() else {
        return Ok((None, ConfigFile::default()));
    };
    match read_text(&path) {
        Ok(text) => Ok((Some(path.clone()), parse(&path, &text)?)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok((None, ConfigFile::default()))
        }
        // It may hold limits; going on without them would be to degrade in silence.
        Err(error) => Err(refusal(
            format!("cannot read the configuration {}: {error}.", path.display()),
            "Make it readable, set HOME to your own, or name another file with --config.",
        )),
    }
}

/// At most one byte more than is allowed is read, whatever the file is.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(CONFIG_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<ConfigFile, RequestError> {
    parse_config(text).map_err(|error| {
        let place = error.line.map_or_else(String::new, |line| format!(":{line}"));
        refusal(
            format!("{}{place}: {}", path.display(), error.message),
            "`ringfence config schema` prints what a file may say.",
        )
    })
}

fn refusal(message: String, hint: &str) -> RequestError {
    RequestError::new(ErrorCode::InvalidConfiguration, message, hint)
}

#[cfg(test)]
mod tests;
