//! The engine's settings, made from the effective values: each part of the engine gets its own.

use super::{
    Environment, Faults, Origin, Setting, checks,
    egress_words::OnDeniedSetting,
    expand,
    keys::Effective,
    location, read_text,
    record_words::{AuditStore, PackagePattern, VaultKey, VaultStore},
    refusal,
    shares::{Share, Shares},
    state, trust,
    words::{List, Location, ModuleName, OnHangUp, SettingValue, Toolset},
};
use ringfence_engine::{
    ApprovalSettings, AuditSettings, BackendPolicy, BackendSettings, DiskPolicy, EgressLimits, EgressPolicy,
    EgressSettings, EngineSettings, HostFileAccess, HostRules, Images, ListedWorkspace, OnDenied,
    PackagePolicy, PackageSettings, Personal, PolicySettings, QueueSettings, Rate, RecordSettings,
    ResultSettings, RuntimeSettings, SessionSettings, WarmSettings, WebSettings, load_host_rules,
};
use ringfence_store::{
    artifacts::Retention,
    audit::{Keep, Storage},
    layers::LayerRetention,
    snapshots::SnapshotLimits,
    vault::{FileKey, VaultSettings},
};
use ringfence_types::{Backend, Limits, RequestError, Tier, WorkspaceMode, WorkspaceName};
use std::{
    io,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;
/// Files, directories and links of one snapshot.
const SNAPSHOT_ENTRIES_MAX: usize = 200_000;
const RECORD: &str = "record";
/// Timeout for name resolution and the connect.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout for the first bytes of a connection.
const HELLO: Duration = Duration::from_secs(10);

/// Returns the engine's settings, and a warning if the state is not in its default directory.
pub(super) fn engine(
    environment: &Environment,
    settings: &Effective,
    file: Option<&Path>,
    faults: &Faults,
) -> Option<(EngineSettings, Option<String>)> {
    let at = |setting: &Setting<Location>| faults.keep(location(environment, setting)).flatten();
    let mounts = &settings.runtimes_mounts;
    let mounts = mounts
        .iter()
        .filter_map(|path| faults.keep(expand(environment, path, &mounts.origin)));
    let (state_dir, warning) = faults.keep(state::of(environment, settings, faults)).unzip();
    let record = |state_dir| faults.keep(record(environment, settings, state_dir));
    let record = state_dir.as_deref().and_then(record);
    let engine = EngineSettings {
        host: faults.keep(host_rules(environment, settings, file)).flatten(),
        helper: PathBuf::from(crate::executable::SELF),
        guarded: trust::guarded(environment, settings, file),
        secret_files: trust::secret(environment, settings),
        tier: settings.floor.value.native(),
        packages: PackageSettings {
            sources: environment.package_sources(),
            kept: LayerRetention {
                age: settings.packages_keep_days.of_seconds(DAY),
                bytes: settings.packages_keep_mb.bytes(),
            },
        },
        egress: egress(settings, at(&settings.egress_ca_file)),
        web: WebSettings {
            robots: settings.web_robots.value,
            timeout: settings.web_timeout_seconds.duration(),
            bytes_max: usize::try_from(settings.web_max_mb.bytes()).unwrap_or(usize::MAX),
            search: settings.web_search.to_vec(),
            browser: at(&settings.web_browser),
        },
        policy: policy(environment, settings, faults),
        queue: queue(settings),
        runtimes: RuntimeSettings {
            python: at(&settings.runtimes_python),
            node: at(&settings.runtimes_node),
            shell: at(&settings.runtimes_shell),
            search_path: environment.search_path(),
            extra_mounts: mounts.collect(),
        },
        warm: warm(settings),
        sessions: SessionSettings {
            max: settings.sessions_max.size(),
            per_namespace: settings.sessions_per_namespace.size(),
            idle: settings
                .sessions_idle_seconds
                .duration()
                .min(settings.sessions_idle_seconds_max.duration()),
            idle_max: settings.sessions_idle_seconds_max.duration(),
            age: settings.sessions_age_seconds.duration(),
        },
        results: ResultSettings {
            keep: settings.results_keep_minutes.of_seconds(MINUTE),
            bytes_max: usize::try_from(settings.results_memory_mb.bytes()).unwrap_or(usize::MAX),
        },
        approvals: ApprovalSettings {
            timeout: settings.approvals_timeout_seconds.of_seconds(1),
            namespace_max: settings.approvals_max_namespace_minutes.of_seconds(MINUTE),
        },
        // Last, so that the faults of the other settings are found first.
        backends: faults.keep(backends(environment, settings))?,
        record: record?,
        state_dir: state_dir?,
    };
    Some((engine, warning.flatten()))
}

fn backends(environment: &Environment, settings: &Effective) -> Result<BackendSettings, RequestError> {
    let socket = &settings.containers_socket;
    let policy = backend_policy(settings);
    let (default, floor) = (policy.default, policy.floor);
    let tier = default.tier(policy.native);
    if tier > floor {
        return Err(refusal(
            format!(
                "`backend: {default}` ({}) gives the tier `{tier}`, and the floor is `{floor}`: every run would be refused.",
                settings.backend.origin
            ),
            &format!("Set `floor: {tier}`, or `backend: native`."),
        ));
    }
    Ok(BackendSettings {
        policy,
        socket: expand(environment, &socket.value, &socket.origin)?,
        gvisor: settings.containers_gvisor_runtime.0.clone(),
        images: Images {
            python: settings.containers_image_python.0.clone(),
            node: settings.containers_image_node.0.clone(),
            shell: settings.containers_image_shell.0.clone(),
        },
        pull: settings.containers_pull.value,
        require_digest: settings.containers_require_digest.value,
    })
}

fn backend_policy(settings: &Effective) -> BackendPolicy {
    let default = settings.backend.value;
    let chosen = settings.containers_enabled.value;
    let allowed = Backend::ALL.iter().copied();
    let allowed = allowed.filter(|backend| chosen || *backend == default);
    BackendPolicy {
        default,
        allowed: allowed.collect(),
        floor: settings.floor.value,
        native: settings.floor.value.native(),
    }
}

fn queue(settings: &Effective) -> QueueSettings {
    let narrow = |number: u64| u32::try_from(number).ok().and_then(NonZeroU32::new);
    let per_minute = narrow(settings.queue_rate_per_minute.get());
    let burst = narrow(settings.queue_rate_burst.get());
    QueueSettings {
        concurrency: settings.queue_concurrency.size(),
        memory_bytes: settings.queue_memory_mb.bytes(),
        waiting: settings.queue_waiting.size(),
        patience: settings.queue_wait_seconds.duration(),
        priorities: settings.queue_priorities.iter().cloned().collect(),
        rate: per_minute
            .zip(burst)
            .map(|(per_minute, burst)| Rate { per_minute, burst }),
    }
}

fn warm(settings: &Effective) -> WarmSettings {
    let names = |modules: &List<ModuleName>| modules.iter().map(|module| module.0.clone()).collect();
    WarmSettings {
        ready: settings.warm_ready.size(),
        ready_max: settings.warm_ready_max.size(),
        memory_bytes: settings.warm_memory_mb.bytes(),
        preload_python: names(&settings.warm_preload_python),
        preload_node: names(&settings.warm_preload_node),
        template_forks: u32::try_from(settings.warm_template_forks.get()).unwrap_or(u32::MAX),
        template_age: settings.warm_template_minutes.of_seconds(MINUTE),
    }
}

fn egress(settings: &Effective, ca_file: Option<PathBuf>) -> EgressSettings {
    EgressSettings {
        ca_file,
        resolvers: settings
            .egress_resolvers
            .iter()
            .map(|resolver| resolver.0)
            .collect(),
        private: settings
            .egress_private
            .iter()
            .map(|host| host.0.clone())
            .collect(),
        limits: EgressLimits {
            connections: settings.egress_connections.size(),
            connections_per_namespace: settings.egress_connections_per_namespace.size(),
            bytes_out: settings.egress_sent_mb.bytes(),
            bytes_in: settings.egress_received_mb.bytes(),
            connection_time: settings.egress_connection_seconds.duration(),
            idle: settings.egress_idle_seconds.duration(),
            connect: CONNECT,
            hello: HELLO,
        },
    }
}

/// Everything that outlives a request is in one directory that belongs to this user alone.
fn record(
    environment: &Environment,
    settings: &Effective,
    state_dir: &Path,
) -> Result<RecordSettings, RequestError> {
    let directory = state_dir.join(RECORD);
    let usual = |setting: &Setting<Location>, name: &str| {
        Ok(location(environment, setting)?.unwrap_or_else(|| directory.join(name)))
    };
    let place = match settings.audit_store.value {
        AuditStore::Sqlite => Storage::File(usual(&settings.audit_path, "audit.db")?),
        AuditStore::Memory => Storage::Memory,
    };
    Ok(RecordSettings {
        audit: AuditSettings {
            place,
            durability: settings.audit_durability.value,
            on_failure: settings.audit_on_failure.value,
            keep: Keep {
                segment_bytes: settings.audit_segment_mb.bytes(),
                total_bytes: settings.audit_max_mb.bytes(),
                age: settings.audit_keep_days.of_seconds(DAY),
            },
        },
        vault: vault(environment, settings, usual)?,
        retention: Retention {
            age: settings.artifacts_keep_days.of_seconds(DAY),
            bytes: settings.artifacts_max_mb.bytes(),
        },
        snapshots: SnapshotLimits {
            entries: SNAPSHOT_ENTRIES_MAX,
            bytes: settings.caps_disk_mb.bytes(),
            stored_bytes: settings.snapshots_max_mb.bytes(),
            total_bytes: settings.snapshots_total_mb.bytes(),
            snapshots: settings.snapshots_max.size(),
        },
        personal: match settings.redact_personal.value {
            true => Personal::Remove,
            false => Personal::Keep,
        },
        directory,
    })
}

fn vault(
    environment: &Environment,
    settings: &Effective,
    usual: impl Fn(&Setting<Location>, &str) -> Result<PathBuf, RequestError>,
) -> Result<VaultSettings, RequestError> {
    let secrets = environment.secrets()?;
    let store = &settings.vault_store;
    Ok(match store.value {
        VaultStore::Environment => VaultSettings::Environment(secrets),
        _ if environment.configures() && !secrets.is_empty() => {
            return Err(refusal(
                format!(
                    "{} is set, and vault.store = {} ({}) does not read the environment.",
                    secrets[0].0,
                    store.json().as_str().unwrap_or_default(),
                    store.origin
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
    })
}

fn policy(environment: &Environment, settings: &Effective, faults: &Faults) -> PolicySettings {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let defaults = Limits {
        memory_bytes: settings.limits_ram_mb.bytes(),
        cpu_millicores: narrow(settings.limits_cpu_cores.thousandths()),
        timeout_ms: settings.limits_timeout_seconds.thousandths(),
        processes: narrow(settings.limits_processes.get()),
        output_bytes: settings.limits_output_bytes.get(),
        disk_bytes: settings.limits_disk_mb.bytes(),
    };
    let caps = Limits {
        memory_bytes: settings.caps_ram_mb.bytes(),
        cpu_millicores: narrow(settings.caps_cpu_cores.thousandths()),
        timeout_ms: settings.caps_timeout_seconds.thousandths(),
        processes: narrow(settings.caps_processes.get()),
        output_bytes: settings.caps_output_bytes.get(),
        disk_bytes: settings.caps_disk_mb.bytes(),
    };
    let patterns = settings.packages_allow.iter();
    let on_denied = match settings.egress_on_denied.value {
        OnDeniedSetting::Deny => OnDenied::Deny,
        OnDeniedSetting::Ask => OnDenied::Ask(settings.egress_ask_seconds.of_seconds(1)),
    };
    PolicySettings {
        defaults,
        caps,
        secrets: settings.vault_allow.to_vec(),
        workspaces: workspaces(environment, &settings.workspaces, faults),
        check: checks::check(environment, settings, faults),
        egress: EgressPolicy {
            tier: settings.floor.value.native(),
            allow: settings.egress_allow.to_vec(),
            secrets: settings.egress_secrets.to_vec(),
            on_denied,
        },
        web: EgressPolicy {
            // The server connects itself, and a browser is started only where it gets a network namespace.
            tier: Tier::Full,
            allow: settings.web_allow.to_vec(),
            secrets: Vec::new(),
            on_denied,
        },
        backends: backend_policy(settings),
        disk: DiskPolicy {
            total: settings.disk_total_mb.bytes(),
            of_namespace: settings.disk_namespace_mb.bytes(),
            free: settings.disk_free_mb.bytes(),
        },
        packages: PackagePolicy {
            enabled: settings.packages_enabled.value,
            allow: patterns.map(|PackagePattern(pattern)| pattern.clone()).collect(),
            hosts: settings.packages_hosts.to_vec(),
            timeout: settings.packages_timeout_seconds.duration(),
            bytes_max: settings.packages_max_mb.bytes(),
        },
    }
}

/// Resolves the directories, so that programs get the directories that the operator sees now.
fn workspaces(environment: &Environment, setting: &Setting<Shares>, faults: &Faults) -> Vec<ListedWorkspace> {
    let one = |(name, share): (&WorkspaceName, &Share)| {
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
                "Name an existing directory.",
            )
        })?;
        let listed = ListedWorkspace {
            name: name.clone(),
            directory,
            mode: share.mode,
            namespaces: share.namespaces.clone(),
        };
        Ok::<_, RequestError>((path, listed))
    };
    let all = setting.items().iter();
    let all: Vec<(PathBuf, ListedWorkspace)> = all.filter_map(|item| faults.keep(one(item))).collect();
    for (path, inner) in &all {
        let mut others = all.iter().map(|(_, other)| other);
        if let Some(outer) = others.find(|outer| may_replace(outer, path, &inner.directory)) {
            faults.add(refusal(
                format!(
                    "workspace `{}` ({}): {} is inside the workspace `{}`, whose programs may put anything in its place.",
                    inner.name,
                    setting.origin,
                    path.display(),
                    outer.name
                ),
                "Share that one as `overlay` or `ro`, or use a directory elsewhere.",
            ));
        }
    }
    all.into_iter().map(|(_, listed)| listed).collect()
}

/// True if the path to a directory, as written or resolved, leads through one that programs may write.
fn may_replace(outer: &ListedWorkspace, path: &Path, directory: &Path) -> bool {
    let passes = |path: &Path| {
        let mut above = path.ancestors().skip(1);
        above.any(|above| above.canonicalize().is_ok_and(|real| real == outer.directory))
    };
    outer.mode == WorkspaceMode::Rw && (passes(path) || passes(directory))
}

fn host_rules(
    environment: &Environment,
    settings: &Effective,
    configuration: Option<&Path>,
) -> Result<Option<Arc<HostRules>>, RequestError> {
    if !settings.host_enabled.value {
        return Ok(None);
    }
    let file = location(environment, &settings.host_rules)?;
    let text = file.as_deref().map(trusted).transpose()?;
    let source = file.as_deref().zip(text.as_deref());
    let mut rules = load_host_rules(source).map_err(|error| {
        refusal(
            format!("{error}."),
            "`ringfence host check` tries a command; docs/host.md says what a rule file may contain.",
        )
    })?;
    rules.guard(trust::private(environment, configuration), HostFileAccess::Read);
    Ok(Some(Arc::new(rules)))
}

fn trusted(path: &Path) -> Result<String, RequestError> {
    let (text, found) = read_text(path).map_err(|error| {
        refusal(
            format!(
                "the rules of the host {} cannot be read: {error}.",
                path.display()
            ),
            "Name an existing file in `host.rules`.",
        )
    })?;
    trust::check(path, &found)?;
    Ok(text)
}

/// Adds `host` to the default toolsets if it is enabled; an explicit `host` is refused if it is not.
pub(super) fn toolsets(settings: &Effective) -> Result<Vec<Toolset>, RequestError> {
    let mut toolsets = settings.toolsets.to_vec();
    match (settings.host_enabled.value, toolsets.contains(&Toolset::Host)) {
        (true, false) if toolsets == Toolset::ALL_MEANS => toolsets.push(Toolset::Host),
        (false, true) => {
            return Err(refusal(
                format!("the toolset `host` ({}) is off.", settings.toolsets.origin),
                "Set `host.enabled: true`, too.",
            ));
        }
        _ => {}
    }
    Ok(toolsets)
}

/// Settings of calls: how long a call waits for its program, and what happens to the program of an abandoned call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// None: a call waits for the end of its program without a limit.
    pub(crate) detach_after: Option<Duration>,
    pub(crate) on_cancel: OnHangUp,
    pub(crate) on_disconnect: OnHangUp,
    /// True if results are kept for later calls; otherwise no call is detached.
    pub(crate) keep_results: bool,
}

impl Calls {
    /// If no results are kept, a default that detaches calls is ignored, and a value that was set is refused.
    pub(super) fn of(settings: &Effective) -> Result<Self, RequestError> {
        let memory = &settings.results_memory_mb;
        let keep_results = memory.get() > 0;
        let after = &settings.calls_detach_after_seconds;
        let (on_cancel, on_disconnect) = (&settings.calls_on_cancel, &settings.calls_on_disconnect);
        if !keep_results {
            let all = [
                detaching("detach_after_seconds", after, |seconds| seconds.get() > 0.0),
                detaching("on_cancel", on_cancel, |word| *word == OnHangUp::Detach),
                detaching("on_disconnect", on_disconnect, |word| *word == OnHangUp::Detach),
            ];
            if let Some(conflict) = all.into_iter().flatten().next() {
                return Err(refusal(
                    format!(
                        "{conflict} needs results that are kept, and results.memory_mb = 0 ({}).",
                        memory.origin
                    ),
                    "Raise results.memory_mb, or leave the other one out.",
                ));
            }
        }
        Ok(Self {
            detach_after: duration_or_never(after.get()).filter(|_| keep_results),
            on_cancel: on_cancel.value,
            on_disconnect: on_disconnect.value,
            keep_results,
        })
    }
}

pub(crate) fn duration_or_never(seconds: f64) -> Option<Duration> {
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
}

fn detaching<T: SettingValue>(
    name: &str,
    setting: &Setting<T>,
    detaches: impl Fn(&T) -> bool,
) -> Option<String> {
    let is_set = setting.origin != Origin::Default && detaches(&setting.value);
    is_set.then(|| format!("calls.{name} = {} ({})", setting.json(), setting.origin))
}
