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
mod record_words;
mod reload;
mod render;
mod sessions;
mod shares;
mod state;
mod trust;
mod warm;
mod words;

pub use environment::Environment;
pub use file::{CONFIG_BYTES_MAX, ConfigError, parse_config};
pub use keys::ConfigFile;
pub(crate) use keys::{Layer, Origin, Setting};
pub(crate) use record_words::OtlpAddress;
pub(crate) use render::{example, schema, table};
pub(crate) use words::{Floor, List, LogLevel, SettingValue, Toolset};

use environment::CONFIG_VARIABLE;
use keys::{Concurrency, Days, Effective, Memory};
use record_words::{
    AuditDurability, AuditOnFailure, AuditStore, NamespacePriority, SecretPattern, VaultKey, VaultStore,
};
use ringfence_engine::{
    AuditSettings, CheckSettings, DiskPolicy, EngineSettings, ListedWorkspace, OnFailure, PackagePolicy,
    PackageSettings, Personal, PolicySettings, QueueSettings, Rate, RecordSettings, RuntimeSettings,
};
use ringfence_store::{
    artifacts::Retention,
    audit::{Durability, Keep, Place},
    layers::LayersKept,
    snapshots::SnapshotLimits,
    vault::{FileKey, VaultSettings},
};
use ringfence_types::{ErrorCode, Limits, RequestError, WorkspaceMode, WorkspaceName};
use shares::{Share, Shares};
use std::{
    fs::{File, Metadata},
    io::{self, Read},
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use words::{Cores, HostPath, Location};

/// What the command line says about the configuration.
#[derive(Debug)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) layer: Layer,
    /// The log level of this command if none is set.
    pub(crate) log: LogLevel,
}

/// May an MCP caller name its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespaces {
    CallerChooses,
    Fixed,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) engine: EngineSettings,
    pub(crate) floor: Floor,
    pub(crate) toolsets: List<Toolset>,
    pub(crate) namespaces: Namespaces,
    pub(crate) text_max: usize,
    pub(crate) log: LogLevel,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) otlp: Option<OtlpAddress>,
    pub(crate) file: Option<PathBuf>,
    /// What is not as it usually is.
    pub(crate) warning: Option<String>,
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
    let effective = Effective::defaults(machine(environment, flags.log))
        .map_err(|reason| refusal(format!("{reason}."), "Report this."))?
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

/// Of the host, or of the container that this server is in.
fn machine_memory_mb() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let total = read("/proc/meminfo");
    let total = total.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total_kb = total.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    let of_container = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limits = of_container.map(|path| read(path).trim().parse().ok().map(|bytes: u64| bytes / MEBIBYTE));
    let all = limits.into_iter().chain([total_kb.map(|kb: u64| kb / 1024)]);
    all.flatten().min().unwrap_or(1024)
}

/// The defaults that depend on the machine.
#[expect(clippy::cast_precision_loss, reason = "no machine has 2^52 cores")]
fn machine(environment: &Environment, log: LogLevel) -> Layer {
    Layer {
        caps_cpu_cores: Some(Setting::default_of(Cores::clamped(cores() as f64))),
        queue_concurrency: Some(Setting::default_of(Concurrency::clamped(16 * cores()))),
        queue_memory_mb: Some(Setting::default_of(Memory::clamped(2 * machine_memory_mb()))),
        state_dir: Some(Setting::default_of(HostPath::ours(&environment.usual_state()))),
        log: Some(Setting::default_of(log)),
        ..Layer::default()
    }
}

/// A cap lowers a default below it; a limit that was set above its cap is refused later.
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
    let paths = mounts.value.items().iter();
    let extra_mounts: Result<Vec<PathBuf>, RequestError> =
        paths.map(|path| expand(path, &mounts.origin)).collect();
    let namespaces = if effective.namespaces_caller_chooses.value {
        Namespaces::CallerChooses
    } else {
        Namespaces::Fixed
    };
    let state::Found {
        directory: state_dir,
        warning,
    } = state::of(environment, &effective)?;
    let engine = EngineSettings {
        helper: PathBuf::from(crate::executable::SELF),
        guarded: trust::guarded(environment, file.as_deref()),
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
        warm: warm::meant(&effective),
        sessions: sessions::meant(&effective),
        results: sessions::results(&effective),
        approvals: approvals::meant(&effective),
    };
    Ok(Config {
        engine,
        floor: effective.floor.value,
        toolsets: effective.toolsets.value.clone(),
        namespaces,
        text_max: bounded(effective.text_max.value.get()),
        log: effective.log.value,
        metrics: effective.metrics_listen.value.0,
        otlp: effective.telemetry_otlp_endpoint.value.address(),
        file,
        warning,
        effective,
    })
}

fn packages(environment: &Environment, settings: &Effective) -> PackageSettings {
    PackageSettings {
        sources: environment.package_sources(),
        kept: LayersKept {
            age: days(&settings.packages_keep_days),
            bytes: settings.packages_keep_mb.value.get() * MEBIBYTE,
        },
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
        memory_bytes: settings.queue_memory_mb.value.get() * MEBIBYTE,
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
            keep: Keep {
                segment_bytes: settings.audit_segment_mb.value.get() * MEBIBYTE,
                total_bytes: settings.audit_max_mb.value.get() * MEBIBYTE,
                age: days(&settings.audit_keep_days),
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

fn days(setting: &Setting<Days>) -> Duration {
    Duration::from_secs(24 * 60 * 60 * setting.value.get())
}

fn retention(settings: &Effective) -> Retention {
    Retention {
        age: days(&settings.artifacts_keep_days),
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
        disk: DiskPolicy {
            total: settings.disk_total_mb.value.get() * MEBIBYTE,
            of_namespace: settings.disk_namespace_mb.value.get() * MEBIBYTE,
            free: settings.disk_free_mb.value.get() * MEBIBYTE,
        },
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
        let (text, found) = text;
        trust::check(&path, &found)?;
        return Ok((Some(path.clone()), parse(&path, &text)?));
    }
    let Some(path) = environment.usual_config() else {
        return Ok((None, ConfigFile::default()));
    };
    match read_text(&path) {
        Ok(text) => {
            let (text, found) = text;
            trust::check(&path, &found)?;
            Ok((Some(path.clone()), parse(&path, &text)?))
        }
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
fn read_text(path: &Path) -> io::Result<(String, Metadata)> {
    let mut text = String::new();
    let file = File::open(path)?;
    let found = file.metadata()?;
    file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok((text, found))
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
