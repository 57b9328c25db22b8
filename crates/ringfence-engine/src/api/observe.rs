//! The engine's interface for observation and operation. Queries and changes of stored data are recorded.

use super::{Engine, NamespaceAccess};
use crate::{
    admission::QueueState,
    caller::Caller,
    egress::RuleSource,
    error::Result,
    events::Event,
    executions::milliseconds,
    metrics::{CallEnd, Counts},
    policy::{self, OwnLimits},
    record::Note,
    services::Services,
    settings::{PolicySettings, QueueSettings},
    store,
};
use base64::Engine as _;
use ringfence_store::{
    artifacts::{ArtifactError, Manifest, Retention},
    audit::{Action, Outcome, Page, Query},
    vault::{SecretEntry, SecretValue, Vault, VaultError},
};
use ringfence_types::{
    Artifact, EnvName, ErrorCode, ExecutionResult, Language, Limits, LimitsRequest, Namespace, RequestError,
    Session,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const OWN_LIMITS_MAX: usize = 10_000;
const WHY_CHARS_MAX: usize = 500;
/// Maximum bytes of an artifact returned in one piece.
const ARTIFACT_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Id of this server, as in its audit records.
    pub server_id: String,
    pub version: &'static str,
    pub pid: u32,
    pub tier: String,
    pub queue: QueueState,
    pub warm: Vec<Warm>,
    pub sessions: usize,
    pub vault: &'static str,
    pub artifacts_bytes: u64,
    /// Actions that could not be recorded.
    pub not_recorded: u64,
    /// Resident memory of the server itself.
    pub memory_bytes: u64,
}

/// The ready sandboxes of one language.
#[derive(Clone, Debug, Serialize)]
pub struct Warm {
    pub language: Language,
    pub ready: usize,
    /// Their memory, including their templates.
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    pub namespace: String,
    pub running: Vec<RunningNow>,
    pub waiting: usize,
    pub sessions: Vec<Session>,
    /// Limits of a request that names none.
    #[serde(skip)]
    pub defaults: Limits,
    #[serde(skip)]
    pub caps: Limits,
    /// True: it has narrowed its own caps below the operator's.
    pub is_narrowed: bool,
    /// Hosts approved for the whole namespace, as rules.
    pub approved: Vec<String>,
    pub secrets: Vec<String>,
    /// Its recent events, oldest first.
    #[serde(rename = "recent_events")]
    pub recent: Vec<Arc<Event>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunningNow {
    pub execution_id: String,
    pub language: Language,
    /// Milliseconds since it was accepted.
    pub for_ms: u64,
}

/// The settings that can change while a server runs.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Limits, caps, and access to secrets.
    pub policy: PolicySettings,
    pub queue: QueueSettings,
    pub retention: Retention,
    pub changed: Vec<String>,
}

impl Engine {
    pub fn stats(&self) -> Stats {
        let services = &self.services;
        Stats {
            server_id: services.id.clone(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            tier: self.services.sandboxes.tier.to_string(),
            queue: services.queue.state(),
            warm: warm(services),
            sessions: services.sessions.count(),
            vault: services.secrets.vault.kind(),
            artifacts_bytes: services.artifacts.bytes(),
            not_recorded: services.record.lost(),
            memory_bytes: resident_bytes(),
        }
    }

    pub fn counts(&self) -> Counts {
        self.services.telemetry.metrics.counts()
    }

    pub fn count_call(&self, tool: &str, end: CallEnd, took: Duration) {
        self.services.telemetry.metrics.count_call(tool, end, took);
    }

    /// Returns all counts and the present state as OpenMetrics text.
    pub fn metrics(&self) -> String {
        let (stats, metrics) = (self.stats(), &self.services.telemetry.metrics);
        let present = [
            (&metrics.running, stats.queue.running as u64),
            (&metrics.waiting, stats.queue.waiting as u64),
            (&metrics.sessions, stats.sessions as u64),
            (&metrics.artifact_bytes, stats.artifacts_bytes),
            (&metrics.not_recorded, stats.not_recorded),
        ];
        let ready = stats.warm.iter().map(|warm| (warm.language, warm.ready));
        metrics.text(&present, ready)
    }

    pub fn inspect(&self, namespace: &Namespace) -> Result<Inspection> {
        let services = &self.services;
        let executions = services.executions.state();
        let running = executions.running();
        let running: Vec<RunningNow> = running
            .filter(|(_, entry)| entry.namespace == *namespace)
            .map(|(id, entry)| RunningNow {
                execution_id: id.clone(),
                language: entry.language,
                for_ms: milliseconds(entry.started),
            })
            .collect();
        drop(executions);
        let lines = services.queue.state().lines;
        let waiting = lines.iter().find(|line| line.namespace == namespace.as_str());
        let (defaults, caps) = self.limits_of(namespace);
        let secrets = services.secrets.vault.list(namespace);
        let secrets = secrets.map_err(|error| services.secrets.refusal(namespace, &error))?;
        let approved = services.approvals.store.rules_for(namespace, None);
        let recent = services.telemetry.bus.recent().into_iter();
        Ok(Inspection {
            namespace: namespace.to_string(),
            running,
            waiting: waiting.map_or(0, |line| line.waiting),
            sessions: services.sessions.list(Some(namespace)),
            defaults,
            caps,
            is_narrowed: services.policy.own_limits(namespace).caps.is_some(),
            approved: approved.iter().map(ToString::to_string).collect(),
            secrets: secrets
                .into_iter()
                .map(|entry| entry.key.as_str().to_owned())
                .collect(),
            recent: recent
                .filter(|event| event.namespace == namespace.as_str())
                .collect(),
        })
    }

    /// Returns the default and maximum limits of a namespace.
    pub fn limits_of(&self, namespace: &Namespace) -> (Limits, Limits) {
        self.services.policy.limits_of(namespace)
    }

    /// Returns the rules of the hosts reached by a namespace's requests that name none.
    pub fn hosts_of(&self, namespace: &Namespace) -> Vec<String> {
        let services = &self.services;
        let policy = services.policy.current();
        if !policy.backends.default.tier(policy.egress.tier).has_network() {
            return Vec::new();
        }
        let rules = services.egress.granted(RuleSource::Programs, namespace, None);
        rules.iter().map(ToString::to_string).collect()
    }

    /// Queries the audit record; the query itself is recorded, too.
    pub async fn audit(&self, caller: &Caller, query: Query) -> Result<Page> {
        let namespace = query.namespace.as_deref().unwrap_or_default();
        self.note_call(caller, namespace, "audit_execution").await?;
        let services = self.services.clone();
        let page = store::blocking(move || services.record.audit.query(&query)).await?;
        page.map_err(|error| store::fault(format!("the audit record cannot be read: {error}")))
    }

    /// Returns an artifact's bytes for a result that is being sent: part of that answer, not recorded as a read.
    pub async fn content_of(&self, result: &ExecutionResult, artifact: &Artifact) -> Option<Vec<u8>> {
        if let Some(inline) = &artifact.content_b64 {
            return base64::engine::general_purpose::STANDARD.decode(inline).ok();
        }
        let namespace = Namespace::try_from(result.namespace.clone()).ok()?;
        let services = &self.services;
        let (id, name) = (&result.execution_id, &artifact.name);
        let found = artifact_content(services, &namespace, id, name, ARTIFACT_BYTES_MAX).await;
        found.ok()?.ok().flatten().map(|(_, bytes)| bytes)
    }

    /// Applies a new configuration, as far as it can change while a server runs.
    pub async fn reload(&self, caller: &Caller, reload: Reload) -> Result<()> {
        let services = &self.services;
        let details = json!({"changed": reload.changed});
        let note = Note::of(caller, "", Action::ConfigChanged, details);
        self.note(note.ended(Outcome::Ok)).await?;
        services.policy.replace(reload.policy);
        services.egress.refresh();
        services.queue.replace(reload.queue);
        services.artifacts.set_retention(reload.retention);
        Ok(())
    }

    /// Records that a new configuration could not be read.
    pub async fn reload_failed(&self, caller: &Caller, error: &RequestError) -> Result<()> {
        let why: String = error.message.chars().take(WHY_CHARS_MAX).collect();
        let why = self.log_redactor().text(&why);
        let details = json!({"code": error.code.as_str(), "why": why});
        let note = Note::of(caller, "", Action::ConfigChanged, details);
        self.note(note.ended(Outcome::Failed)).await
    }

    /// Records a call that changes nothing, before it is answered.
    pub async fn note_call(&self, caller: &Caller, namespace: &str, tool: &str) -> Result<()> {
        let note = Note::of(caller, namespace, Action::ToolCalled, json!({"tool": tool}));
        self.note(note.ended(Outcome::Ok)).await
    }

    /// Records a call refused before any action: its arguments are not understood, or this caller may not make it.
    pub async fn note_refusal(&self, caller: &Caller, tool: &str, code: ErrorCode) -> Result<()> {
        let details = json!({"tool": tool, "code": code.as_str()});
        let note = Note::of(caller, "", Action::ToolCalled, details).ended(Outcome::Denied);
        self.services.record.note_refusal(note).await.map(drop)
    }

    /// Makes a change of access tokens, recorded before it is made, and after it, with its outcome.
    pub async fn note_token<T>(
        &self,
        caller: &Caller,
        action: Action,
        details: Value,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let note = Note::of(caller, "", action, details);
        let record = &self.services.record;
        record.around(note, async { act() }, |_, _| ()).await
    }

    pub(crate) async fn note(&self, note: Note<'_>) -> Result<()> {
        self.services.record.note(note).await.map(drop)
    }
}

impl NamespaceAccess<'_> {
    /// Sets the limits of requests that name none, within the namespace's caps, which do not change.
    pub async fn set_limits(self, request: &LimitsRequest) -> Result<()> {
        self.change_limits(|policy, own| policy::set_defaults(policy, own, request))
            .await
    }

    /// Narrows the namespace's caps. Only the operator can widen them again, with [`NamespaceAccess::restore_limits`].
    pub async fn narrow_limits(self, request: &LimitsRequest) -> Result<()> {
        self.change_limits(|policy, own| policy::narrow(policy, own, request))
            .await
    }

    async fn change_limits(
        &self,
        change: impl Fn(&PolicySettings, &OwnLimits) -> Result<OwnLimits>,
    ) -> Result<()> {
        let (policy, namespace) = (&self.services.policy, self.namespace);
        let _turn = policy.changing_limits.lock().await;
        let changed = || {
            let changed = change(&policy.current(), &policy.own_limits(namespace))?;
            let own = policy.all_own_limits();
            if own.len() >= OWN_LIMITS_MAX && !own.contains_key(namespace) {
                return Err(RequestError::denied(
                    format!("{OWN_LIMITS_MAX} namespaces have limits of their own."),
                    "Use one of them.",
                ));
            }
            Ok(changed)
        };
        let (outcome, details) = match &changed() {
            Ok(own) => {
                let (defaults, caps) = policy::limits_of(&policy.current(), own);
                (Outcome::Ok, json!({"limits": defaults, "caps": caps}))
            }
            Err(error) => (Outcome::Denied, json!({"why": error.code.as_str()})),
        };
        self.done(Action::LimitsChanged, outcome, details).await?;
        let own = changed()?;
        policy.all_own_limits().insert(namespace.clone(), own);
        Ok(())
    }

    /// Removes the namespace's own limits, so that the operator's apply. For the operator alone.
    pub async fn restore_limits(self) -> Result<()> {
        let details = json!({"restored": true});
        self.done(Action::LimitsChanged, Outcome::Ok, details).await?;
        self.services.policy.all_own_limits().remove(self.namespace);
        Ok(())
    }

    pub async fn secrets(self) -> Result<Vec<SecretEntry>> {
        let details = json!({"listed": true});
        self.done(Action::VaultAccessed, Outcome::Ok, details).await?;
        self.services.secrets.ask(self.namespace, Vault::list).await
    }

    /// Stores a secret until it is deleted, or for a time. True: it replaced another.
    pub async fn put_secret(self, key: &EnvName, value: SecretValue, ttl: Option<Duration>) -> Result<bool> {
        ringfence_jail::hide_memory()
            .map_err(|error| store::fault(format!("the vault's memory cannot be hidden: {error}")))?;
        let details =
            json!({"secret": key.as_str(), "put": true, "ttl_seconds": ttl.map(|ttl| ttl.as_secs())});
        let name = key.clone();
        let put =
            move |vault: &Vault, of: &Namespace| vault.put(of, &name, value, ttl).map(|put| put.replaced);
        self.change_vault(details, put, |_, _| ()).await
    }

    /// Deletes a secret. False: it did not exist.
    pub async fn delete_secret(self, key: &EnvName) -> Result<bool> {
        let details = json!({"secret": key.as_str(), "delete": true});
        let name = key.clone();
        let delete = move |vault: &Vault, of: &Namespace| vault.delete(of, &name);
        let noted = |existed: &bool, details: &mut Value| details["deleted"] = json!(existed);
        self.change_vault(details, delete, noted).await
    }

    /// Changes the vault, recorded before the change, and after it, with its outcome and the details that `noted` adds.
    async fn change_vault(
        &self,
        details: Value,
        change: impl FnOnce(&Vault, &Namespace) -> Result<bool, VaultError> + Send + 'static,
        noted: impl FnOnce(&bool, &mut Value),
    ) -> Result<bool> {
        let secrets = &self.services.secrets;
        let change = async {
            let changed = secrets.ask(self.namespace, change).await;
            secrets.forget_old();
            changed
        };
        let note = self.note(Action::VaultChanged, details);
        self.services.record.around(note, change, noted).await
    }

    /// Returns the signed manifest of the artifacts of an execution of this namespace.
    pub async fn manifest(self, execution_id: &str) -> Result<Manifest> {
        let (services, of) = (self.services.clone(), self.namespace.clone());
        let id = execution_id.to_owned();
        let found = store::blocking(move || services.artifacts.manifest(&id, &of)).await?;
        self.artifacts_read(execution_id, found).await
    }

    /// Returns the MIME type and the content of an artifact.
    pub async fn artifact(self, execution_id: &str, name: &str) -> Result<(String, Vec<u8>)> {
        let found = artifact_content(
            self.services,
            self.namespace,
            execution_id,
            name,
            ARTIFACT_BYTES_MAX,
        )
        .await?;
        self.artifacts_read(execution_id, found).await
    }

    /// Like [`Self::artifact`], for a file of a call; refused before it is read if it has more bytes than this.
    pub async fn artifact_within(
        self,
        execution_id: &str,
        name: &str,
        bytes_max: u64,
    ) -> Result<(String, Vec<u8>)> {
        let found = artifact_content(self.services, self.namespace, execution_id, name, bytes_max).await?;
        let is_too_large = matches!(found, Err(ArtifactError::TooLarge { .. }));
        self.artifacts_read(execution_id, found).await.map_err(|mut error| {
            if is_too_large {
                error.hint =
                    "Files and artifacts of one call have at most 64 MiB together; copy large ones from the workspace."
                        .to_owned();
            }
            error
        })
    }

    async fn artifacts_read<T>(
        &self,
        execution_id: &str,
        found: Result<Option<T>, ArtifactError>,
    ) -> Result<T> {
        let outcome = match &found {
            Ok(Some(_)) => Outcome::Ok,
            Ok(None) | Err(ArtifactError::Refused(_) | ArtifactError::TooLarge { .. }) => Outcome::Denied,
            Err(_) => Outcome::Failed,
        };
        let of: String = execution_id.chars().take(64).collect();
        self.done(Action::ArtifactRead, outcome, json!({"of": of}))
            .await?;
        match found {
            Ok(found) => found.ok_or_else(no_artifacts),
            Err(ArtifactError::Refused(_)) => Err(no_artifacts()),
            Err(ArtifactError::TooLarge { bytes_max }) => Err(RequestError::invalid(
                format!("the artifact is larger than the {bytes_max} bytes that may be read here."),
                "The operator copies it out with `ringfence artifacts ID --out DIR`.",
            )),
            Err(other) => Err(store::fault(other)),
        }
    }
}

async fn artifact_content(
    services: &Arc<Services>,
    namespace: &Namespace,
    execution_id: &str,
    name: &str,
    bytes_max: u64,
) -> Result<Result<Option<(String, Vec<u8>)>, ArtifactError>> {
    let (services, namespace) = (services.clone(), namespace.clone());
    let (id, name) = (execution_id.to_owned(), name.to_owned());
    store::blocking(move || services.artifacts.read_whole(&id, &namespace, &name, bytes_max)).await
}

fn no_artifacts() -> RequestError {
    RequestError::not_found(
        "there are no such artifacts.",
        "`get_artifacts` lists what an execution has left; what is old is removed (`artifacts.keep_days`, `artifacts.max_mb`).",
    )
}

fn warm(services: &Services) -> Vec<Warm> {
    let languages = [Language::Python, Language::Node, Language::Shell];
    let warm = languages.map(|language| {
        let pool_status = services.sandboxes.pools.pool_status(language);
        Warm {
            language,
            ready: pool_status.ready,
            memory_bytes: pool_status.memory_bytes,
        }
    });
    warm.into()
}

/// Reads the resident memory. proc_pid_statm(5): the second field counts pages.
fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}
