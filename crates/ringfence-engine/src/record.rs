//! The audit bracket around everything that is done: a record before a run starts, and one before its result leaves. When
//! it cannot be written nothing runs and nothing leaves, unless the operator has said otherwise; then the log says so, and
//! so does the result of an execution.

use crate::{engine::Caller, execute::Executed, policy::Grant, settings::OnFailure};
use ringfence_store::audit::{Action, Audit, AuditError, Entry, Outcome};
use ringfence_types::{
    EnvName, EnvValue, ErrorCode, ExecuteRequest, ExitKind, Limits, Namespace, RequestError, Requirement,
    SessionId, SessionRequest, WorkspaceSource,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::oneshot;

/// Of so many artifacts the digests stand in the record; the signed manifest has all.
const DIGESTS_MAX: usize = 20;
/// Rules of a way out that stand in one record; each has at most a kibibyte.
const RULES_SHOWN_MAX: usize = 16;
/// Names of secrets that stand in one record; each has at most 256 bytes.
const SECRET_NAMES_MAX: usize = 100;

/// The record of one engine; clones share it.
#[derive(Clone)]
pub(crate) struct Record {
    audit: Arc<Audit>,
    on_failure: OnFailure,
    lost: Arc<AtomicU64>,
}

/// Is what was done on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// And the operator said that it may go on.
    No,
}

/// One action.
pub(crate) struct Note<'a> {
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
    pub(crate) namespace: &'a str,
    pub(crate) execution_id: Option<&'a str>,
    pub(crate) caller: &'a Caller,
    pub(crate) details: Value,
}

impl Note<'_> {
    fn entry(self) -> Entry {
        Entry {
            action: self.action,
            outcome: self.outcome,
            namespace: self.namespace.to_owned(),
            execution_id: self.execution_id.map(str::to_owned),
            caller: self.caller.as_str().to_owned(),
            details: match self.details {
                Value::Object(details) => details,
                _ => Map::new(),
            },
        }
    }
}

/// An execution, or a session that is being made, whose beginning is on record. Dropped without an end (a panic, a task that
/// is taken down), it leaves one.
pub(crate) struct Opened {
    record: Record,
    id: String,
    /// What it is on record as when it is dropped.
    abandoned: Action,
    namespace: Namespace,
    caller: Caller,
    is_closed: bool,
    /// A step of it is not on record.
    is_missing: AtomicBool,
}

impl Record {
    pub(crate) fn new(audit: Audit, on_failure: OnFailure) -> Self {
        Self {
            audit: Arc::new(audit),
            on_failure,
            lost: Arc::default(),
        }
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Actions that are not on record although they were done.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Puts an action on record.
    pub(crate) async fn note(&self, note: Note<'_>) -> Result<Written, RequestError> {
        let (done, told) = oneshot::channel();
        self.audit
            .append(note.entry(), move |written| drop(done.send(written)));
        match told.await {
            Ok(Ok(_)) => Ok(Written::Yes),
            Ok(Err(error)) => self.judge(&error),
            Err(_) => self.judge(&AuditError::Stopped),
        }
    }

    /// The same, for what is done whether it is on record or not: something is taken away. The log says what is not.
    pub(crate) fn note_unwaited(&self, note: Note<'_>) {
        let lost = self.lost.clone();
        self.audit.append(note.entry(), move |written| {
            if let Err(error) = written {
                lost.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "NOT ON RECORD: something that was taken away");
            }
        });
    }

    /// The same, for who cannot wait otherwise than by standing still: the start and the end of a server.
    pub(crate) fn note_now(&self, note: Note<'_>) -> Result<Written, RequestError> {
        match self.audit.append_and_wait(note.entry()) {
            Ok(_) => Ok(Written::Yes),
            Err(error) => self.judge(&error),
        }
    }

    fn judge(&self, error: &AuditError) -> Result<Written, RequestError> {
        match self.on_failure {
            OnFailure::Deny => Err(unavailable(error)),
            OnFailure::Warn => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "NOT ON RECORD: the audit record cannot be written, and audit.on_failure is warn");
                Ok(Written::No)
            }
        }
    }

    /// No record, no run.
    pub(crate) async fn begin(
        &self,
        id: &str,
        caller: &Caller,
        request: &ExecuteRequest,
    ) -> Result<Opened, RequestError> {
        let note = Note {
            action: Action::ExecutionStarted,
            outcome: Outcome::Pending,
            namespace: request.namespace.as_str(),
            execution_id: Some(id),
            caller,
            details: asked(request),
        };
        let begun = self.note(note).await?;
        Ok(Opened {
            record: self.clone(),
            id: id.to_owned(),
            abandoned: Action::ExecutionFailed,
            namespace: request.namespace.clone(),
            caller: caller.clone(),
            is_closed: false,
            is_missing: AtomicBool::new(begun == Written::No),
        })
    }

    /// No record, no session.
    pub(crate) async fn begin_session(
        &self,
        id: &SessionId,
        caller: &Caller,
        wish: &SessionRequest,
    ) -> Result<Opened, RequestError> {
        let mut details = json!({"session": id.as_str(), "language": wish.language});
        add_belongings(
            &mut details,
            &wish.env,
            &wish.packages,
            &wish.secrets,
            &wish.workspace,
        );
        let note = Note {
            action: Action::SessionCreated,
            outcome: Outcome::Pending,
            namespace: wish.namespace.as_str(),
            execution_id: Some(id.as_str()),
            caller,
            details,
        };
        let begun = self.note(note).await?;
        Ok(Opened {
            record: self.clone(),
            id: id.to_string(),
            abandoned: Action::SessionCreated,
            namespace: wish.namespace.clone(),
            caller: caller.clone(),
            is_closed: false,
            is_missing: AtomicBool::new(begun == Written::No),
        })
    }
}

impl Opened {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// A step of it.
    pub(crate) async fn step(
        &self,
        action: Action,
        outcome: Outcome,
        details: Value,
    ) -> Result<Written, RequestError> {
        let written = self.record.note(self.note(action, outcome, details)).await?;
        self.is_missing
            .fetch_or(written == Written::No, Ordering::Relaxed);
        Ok(written)
    }

    /// No record, no result.
    pub(crate) async fn close(
        mut self,
        ended: Result<&Executed, &RequestError>,
    ) -> Result<Written, RequestError> {
        let (action, outcome, details) = match ended {
            Ok(executed) => (action(executed), outcome(executed), done(executed)),
            Err(error) => {
                let outcome = refusal(error);
                // The message may repeat what the caller sent; the code says which rule it was.
                (
                    Action::ExecutionRefused,
                    outcome,
                    json!({"code": error.code.as_str()}),
                )
            }
        };
        let written = self.step(action, outcome, details).await?;
        self.is_closed = true;
        Ok(if self.is_missing.load(Ordering::Relaxed) {
            Written::No
        } else {
            written
        })
    }

    /// No record, no session: one that was made and is not on record is ended by whoever made it.
    pub(crate) async fn close_session(
        mut self,
        made: Result<&Limits, &RequestError>,
    ) -> Result<(), RequestError> {
        let (outcome, details) = match made {
            Ok(limits) => (
                Outcome::Ok,
                json!({"session": self.id, "limits": limits_in_words(limits)}),
            ),
            Err(error) => (
                refusal(error),
                json!({"session": self.id, "code": error.code.as_str()}),
            ),
        };
        self.step(Action::SessionCreated, outcome, details).await?;
        self.is_closed = true;
        Ok(())
    }

    fn note(&self, action: Action, outcome: Outcome, details: Value) -> Note<'_> {
        Note {
            action,
            outcome,
            namespace: self.namespace.as_str(),
            execution_id: Some(&self.id),
            caller: &self.caller,
            details,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.is_closed {
            let details = json!({"why": "its task ended, or its end could not be written"});
            let entry = self.note(self.abandoned, Outcome::Failed, details).entry();
            self.record.audit.append(entry, |written| {
                if let Err(error) = written {
                    tracing::error!(%error, "an execution that was abandoned is not on record");
                }
            });
        }
    }
}

fn refusal(error: &RequestError) -> Outcome {
    if [ErrorCode::PolicyDenied, ErrorCode::Busy].contains(&error.code) {
        Outcome::Denied
    } else {
        Outcome::Failed
    }
}

pub(crate) fn unavailable(error: &AuditError) -> RequestError {
    RequestError::new(
        ErrorCode::AuditUnavailable,
        format!("the audit record cannot be written: {error}."),
        "Nothing runs without a record: give its disk room, or set `audit.store: memory`; `ringfence audit verify` looks at it.",
    )
}

/// What was asked for: digests and names, never what they stand for.
fn asked(request: &ExecuteRequest) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut details = json!({
        "language": request.language,
        "code_sha256": hex(&Sha256::digest(request.code.as_bytes())),
        "code_bytes": request.code.len(),
    });
    let mut add = |name: &str, is_there: bool, value: Value| {
        if is_there {
            details[name] = value;
        }
    };
    let files: usize = request.files.iter().map(|file| file.bytes.len()).sum();
    add(
        "files",
        !request.files.is_empty(),
        json!({"count": request.files.len(), "bytes": files}),
    );
    if let Some(session) = &request.session {
        add("session", true, json!(session.as_str()));
    }
    add("arguments", !request.args.is_empty(), json!(request.args.len()));
    add(
        "stdin_bytes",
        !request.stdin.is_empty(),
        json!(request.stdin.len()),
    );
    add_belongings(
        &mut details,
        &request.env,
        &request.packages,
        &request.secrets,
        &request.workspace,
    );
    details
}

/// What a program is given, and what it may touch: names and numbers.
fn add_belongings(
    details: &mut Value,
    env: &BTreeMap<EnvName, EnvValue>,
    packages: &BTreeSet<Requirement>,
    secrets: &BTreeSet<EnvName>,
    workspace: &WorkspaceSource,
) {
    if !env.is_empty() {
        details["variables"] = json!(env.len());
    }
    if !packages.is_empty() {
        details["packages"] = packages.iter().map(Requirement::as_str).collect();
    }
    if !secrets.is_empty() {
        details["secrets"] = secret_names(secrets.iter().map(EnvName::as_str));
    }
    match workspace {
        WorkspaceSource::Private => {}
        WorkspaceSource::Namespace => details["workspace"] = json!("namespace"),
        WorkspaceSource::Listed(name) => details["workspace"] = json!(name),
        WorkspaceSource::Host { directory, mode } => {
            details["workspace"] = json!({"directory": directory, "mode": mode});
        }
    }
}

/// All of them, or the first and how many there are: a record has room for 64 KiB.
pub(crate) fn secret_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Value {
    if names.len() <= SECRET_NAMES_MAX {
        return json!(names.collect::<Vec<_>>());
    }
    let count = names.len();
    json!({"count": count, "first": names.take(SECRET_NAMES_MAX).collect::<Vec<_>>()})
}

/// What a grant allowed, as it stands on record.
pub(crate) fn granted(grant: &Grant) -> Value {
    let mut granted = limits_in_words(grant.limits());
    let reaches = grant.reaches();
    if !reaches.is_empty() {
        let shown = reaches.iter().take(RULES_SHOWN_MAX).map(ToString::to_string);
        granted["egress"] = json!({"count": reaches.iter().len(), "rules": shown.collect::<Vec<_>>()});
    }
    granted
}

pub(crate) fn limits_in_words(limits: &Limits) -> Value {
    json!({
        "memory_bytes": limits.memory_bytes,
        "cpu_millicores": limits.cpu_millicores,
        "timeout_ms": limits.timeout_ms,
        "processes": limits.processes,
        "output_bytes": limits.output_bytes,
        "disk_bytes": limits.disk_bytes,
    })
}

fn action(executed: &Executed) -> Action {
    match executed.result.exit.kind {
        ExitKind::Timeout => Action::ExecutionTimeout,
        _ if executed.result.success => Action::ExecutionCompleted,
        _ => Action::ExecutionFailed,
    }
}

fn outcome(executed: &Executed) -> Outcome {
    if executed.result.success {
        Outcome::Ok
    } else {
        Outcome::Failed
    }
}

fn done(executed: &Executed) -> Value {
    let result = &executed.result;
    let usage = &result.resource_usage;
    let mut details = json!({
        "exit": result.exit.kind,
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "tier": result.isolation.tier,
        "limits": executed.granted,
        "cpu_ms": usage.cpu_user_ms + usage.cpu_system_ms,
        "max_rss_bytes": usage.max_rss_bytes,
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
    });
    if let Some(limit) = &result.exit.limit {
        details["limit"] = json!(limit);
    }
    if !result.artifacts.is_empty() {
        let digests = result.artifacts.iter().take(DIGESTS_MAX);
        let digests: Vec<&str> = digests.map(|artifact| artifact.sha256.as_str()).collect();
        details["artifacts"] = json!({"count": result.artifacts.len(), "sha256": digests});
    }
    let rules: Vec<&str> = result
        .denials
        .iter()
        .chain(&result.security_events)
        .map(|denial| denial.rule.as_str())
        .collect();
    if !rules.is_empty() {
        details["rules"] = json!(rules);
    }
    if let Some(reached) = &executed.reached {
        details["egress"] = reached.clone();
    }
    if executed.found > 0 {
        details["redacted"] = json!(executed.found);
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_secrets_are_asked_for_there_is_room_for_their_record() {
        let names: Vec<String> = (0..1000)
            .map(|number| format!("{}{number:04}", "K".repeat(252)))
            .collect();
        let named = |count: usize| secret_names(names[..count].iter().map(String::as_str));
        assert_eq!(named(2), json!([names[0], names[1]]));
        let all = named(1000);
        assert_eq!(
            (&all["count"], all["first"].as_array().map(Vec::len)),
            (&json!(1000), Some(SECRET_NAMES_MAX))
        );
        assert!(all.to_string().len() < 32 << 10);
    }
}
