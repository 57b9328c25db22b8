//! The engine's door for everything but executions: what happens now, what is kept, and what an operator changes. Each
//! question and each change goes on record.

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

/// Namespaces that may have limits of their own.
const OWN_LIMITS_MAX: usize = 10_000;
const WHY_CHARS_MAX: usize = 500;
/// The largest artifact that is given in one piece.
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
    /// Where secrets come from.
    pub vault: &'static str,
    pub artifacts_bytes: u64,
    /// Actions that are not on record.
    pub not_recorded: u64,
    /// What the server itself takes.
    pub memory_bytes: u64,
}

/// Sandboxes of one language that stand ready.
#[derive(Clone, Debug, Serialize)]
pub struct Warm {
    pub language: Language,
    pub ready: usize,
    /// What they take of memory, with their templates.
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    pub namespace: String,
    pub running: Vec<RunningNow>,
    pub waiting: usize,
    pub sessions: Vec<Session>,
    /// Limits of a request that asks for none.
    #[serde(skip)]
    pub defaults: Limits,
    #[serde(skip)]
    pub caps: Limits,
    /// Whether it has given up some of what the operator allows.
    pub is_narrowed: bool,
    /// Hosts that somebody has approved for all of it, as rules.
    pub approved: Vec<String>,
    pub secrets: Vec<String>,
    /// What happened in it lately, oldest first.
    #[serde(rename = "recent_events")]
    pub recent: Vec<Arc<Event>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunningNow {
    pub execution_id: String,
    pub language: Language,
    /// Since it was accepted.
    pub for_ms: u64,
}

/// What can change while a server runs.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Limits, caps, and who may have which secret.
    pub policy: PolicySettings,
    pub queue: QueueSettings,
    pub retention: Retention,
    /// The names of the settings that differ.
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
            queue: services.queue.look(),
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

    /// All counts and the present state, as OpenMetrics text.
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
        let lines = services.queue.look().lines;
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

    /// Default and greatest limits of a namespace.
    pub fn limits_of(&self, namespace: &Namespace) -> (Limits, Limits) {
        self.services.policy.limits_of(namespace)
    }

    /// Rules of the hosts that a namespace's requests reach that name none.
    pub fn hosts_of(&self, namespace: &Namespace) -> Vec<String> {
        let services = &self.services;
        if !services.policy.current().egress.tier.has_network() {
            return Vec::new();
        }
        let rules = services.egress.granted(RuleSource::Programs, namespace, None);
        rules.iter().map(ToString::to_string).collect()
    }

    /// Records, filtered; the question is one, too.
    pub async fn audit(&self, caller: &Caller, query: Query) -> Result<Page> {
        let namespace = query.namespace.as_deref().unwrap_or_default();
        self.note_call(caller, namespace, "audit_execution").await?;
        let services = self.services.clone();
        let page = store::blocking(move || services.record.audit.query(&query)).await?;
        page.map_err(|error| store::fault(format!("the audit record cannot be read: {error}")))
    }

    /// The bytes of an artifact of a result that is on its way to its caller: part of the answer, and not a question of
    /// its own.
    pub async fn content_of(&self, result: &ExecutionResult, artifact: &Artifact) -> Option<Vec<u8>> {
        if let Some(inline) = &artifact.content_b64 {
            return base64::engine::general_purpose::STANDARD.decode(inline).ok();
        }
        let namespace = Namespace::try_from(result.namespace.clone()).ok()?;
        let services = &self.services;
        let found = artifact_content(services, &namespace, &result.execution_id, &artifact.name).await;
        found.ok()?.ok().flatten().map(|(_, bytes)| bytes)
    }

    /// Puts another configuration in force, in so far as it can change while a server runs.
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

    /// Puts on record that another configuration was to be put in force and could not be read.
    pub async fn reload_failed(&self, caller: &Caller, error: &RequestError) -> Result<()> {
        let why: String = error.message.chars().take(WHY_CHARS_MAX).collect();
        let why = self.log_redactor().text(&why);
        let details = json!({"code": error.code.as_str(), "why": why});
        let note = Note::of(caller, "", Action::ConfigChanged, details);
        self.note(note.ended(Outcome::Failed)).await
    }

    /// A call that changes nothing, on record before it is answered.
    pub async fn note_call(&self, caller: &Caller, namespace: &str, tool: &str) -> Result<()> {
        let note = Note::of(caller, namespace, Action::ToolCalled, json!({"tool": tool}));
        self.note(note.ended(Outcome::Ok)).await
    }

    /// A call that was refused before it asked for anything: its arguments are not understood, or not for this caller.
    pub async fn note_refusal(&self, caller: &Caller, tool: &str, code: ErrorCode) -> Result<()> {
        let details = json!({"tool": tool, "code": code.as_str()});
        let note = Note::of(caller, "", Action::ToolCalled, details).ended(Outcome::Denied);
        self.services.record.note_refusal(note).await.map(drop)
    }

    /// A change of who may call, which is no business of the engine but for the record: before it is done, and after,
    /// with its outcome.
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
    /// Sets limits of its requests that ask for none, within its caps, which stay as they are.
    pub async fn set_limits(self, wish: &LimitsRequest) -> Result<()> {
        self.change_limits(|policy, own| policy::set_defaults(policy, own, wish))
            .await
    }

    /// Narrows what it may have; nothing widens it again but the operator, with [`NamespaceAccess::restore_limits`].
    pub async fn narrow_limits(self, wish: &LimitsRequest) -> Result<()> {
        self.change_limits(|policy, own| policy::narrow(policy, own, wish))
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

    /// Gives it back what the operator's limits allow. For the operator alone.
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

    /// Keeps a secret until it is deleted, or for a time; true: it replaced another.
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

    /// Forgets a secret; false: there was none.
    pub async fn delete_secret(self, key: &EnvName) -> Result<bool> {
        let details = json!({"secret": key.as_str(), "delete": true});
        let name = key.clone();
        let delete = move |vault: &Vault, of: &Namespace| vault.delete(of, &name);
        let noted = |existed: &bool, details: &mut Value| details["deleted"] = json!(existed);
        self.change_vault(details, delete, noted).await
    }

    /// On record before it is done, and after, with its outcome and what `noted` adds.
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

    /// What an execution of this namespace has left, with signatures.
    pub async fn manifest(self, execution_id: &str) -> Result<Manifest> {
        let (services, of) = (self.services.clone(), self.namespace.clone());
        let id = execution_id.to_owned();
        let found = store::blocking(move || services.artifacts.manifest(&id, &of)).await?;
        self.artifacts_read(execution_id, found).await
    }

    /// One artifact: its type and content.
    pub async fn artifact(self, execution_id: &str, name: &str) -> Result<(String, Vec<u8>)> {
        let found = artifact_content(self.services, self.namespace, execution_id, name).await?;
        self.artifacts_read(execution_id, found).await
    }

    async fn artifacts_read<T>(
        &self,
        execution_id: &str,
        found: Result<Option<T>, ArtifactError>,
    ) -> Result<T> {
        let outcome = match &found {
            Ok(Some(_)) => Outcome::Ok,
            Ok(None) | Err(ArtifactError::Refused(_)) => Outcome::Denied,
            Err(_) => Outcome::Failed,
        };
        let of: String = execution_id.chars().take(64).collect();
        self.done(Action::ArtifactRead, outcome, json!({"of": of}))
            .await?;
        match found {
            Ok(found) => found.ok_or_else(no_artifacts),
            Err(ArtifactError::Refused(_)) => Err(no_artifacts()),
            Err(other) => Err(store::fault(other)),
        }
    }
}

async fn artifact_content(
    services: &Arc<Services>,
    namespace: &Namespace,
    execution_id: &str,
    name: &str,
) -> Result<Result<Option<(String, Vec<u8>)>, ArtifactError>> {
    let (services, namespace) = (services.clone(), namespace.clone());
    let (id, name) = (execution_id.to_owned(), name.to_owned());
    let read = move || {
        services
            .artifacts
            .read_whole(&id, &namespace, &name, ARTIFACT_BYTES_MAX)
    };
    store::blocking(read).await
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
        let warmth = services.sandboxes.pools.warmth(language);
        Warm {
            language,
            ready: warmth.ready,
            memory_bytes: warmth.memory_bytes,
        }
    });
    warm.into()
}

/// proc_pid_statm(5): the second field counts pages.
fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}
