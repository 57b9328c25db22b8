//! The audit bracket around every action: a record before it starts and one before its result leaves. If one cannot be
//! written, nothing runs or leaves, unless `audit.on_failure` is `warn`; then the log and an execution's result say so.
//!
//! Room for both records is reserved before the run. A refusal is one record; a flood of them is counted (`refusals`).

mod refusals;

pub(crate) use ringfence_store::to_hex as hex;

use crate::{
    caller::{Caller, ENGINE_CALLER},
    error::{Result, busy},
    policy::Grant,
    settings::OnFailure,
    sync::lock,
};
use refusals::Refusals;
use ringfence_store::audit::{Action, Audit, AuditError, Entry, Outcome, QueueReservation, Receipt};
use ringfence_types::{
    EnvName, ErrorCode, ExecuteRequest, Namespace, RequestError, Requirement, WorkspaceSource,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::oneshot;

/// Reserved records of an execution: its begin, its end, and that its end could not be written.
const RESERVED: usize = 3;
/// Retry interval if there is no room.
const RETRY_MS: u64 = 100;

/// Most egress rules in one record; each has at most 1 KiB.
const RULES_SHOWN_MAX: usize = 16;
/// Most secret names in one record; each has at most 256 bytes.
const SECRET_NAMES_MAX: usize = 100;

/// The record of one engine; clones share it.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) audit: Arc<Audit>,
    on_failure: OnFailure,
    lost: Arc<AtomicU64>,
    /// Operations with a begin and without an end on record, also those whose task was dropped.
    open: Arc<AtomicU64>,
    refusals: Arc<Refusals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// Not written, but the operator allows the action anyway (`audit.on_failure: warn`).
    No,
}

#[derive(Clone)]
pub(crate) struct Note<'a> {
    action: Action,
    outcome: Outcome,
    namespace: &'a str,
    execution_id: Option<&'a str>,
    caller: &'a Caller,
    pub(crate) details: Value,
}

impl<'a> Note<'a> {
    /// Returns a note of an action that belongs to no execution and is not done yet.
    pub(crate) fn of(caller: &'a Caller, namespace: &'a str, action: Action, details: Value) -> Self {
        Self {
            action,
            outcome: Outcome::Pending,
            namespace,
            execution_id: None,
            caller,
            details,
        }
    }

    pub(crate) fn ended(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    pub(crate) fn of_execution(self, execution_id: Option<&'a str>) -> Self {
        Self { execution_id, ..self }
    }

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

/// The end of an execution, or of the creation of a session, for the record.
pub(crate) struct Closing {
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
    pub(crate) details: Value,
}

/// The audit scope of an execution, or of the creation of a session, with room reserved for its begin and end. Dropped
/// without an end (a panic, an aborted task), it records one.
pub(crate) struct AuditScope {
    record: Record,
    id: String,
    begun: Action,
    namespace: Namespace,
    caller: Caller,
    requested: Value,
    room: Mutex<QueueReservation>,
    is_begun: AtomicBool,
    is_closed: bool,
    /// True if a step of it is not on record.
    is_missing: AtomicBool,
}

impl Record {
    pub(crate) fn new(audit: Audit, on_failure: OnFailure) -> Self {
        Self {
            audit: Arc::new(audit),
            on_failure,
            lost: Arc::default(),
            open: Arc::default(),
            refusals: Arc::default(),
        }
    }

    /// Returns the number of actions that were done but are not on record.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Has the next server look for the ends of operations, if any is open now; returns false if none is.
    pub(crate) fn note_open(&self) -> bool {
        let is_open = self.open.load(Ordering::Relaxed) > 0;
        if is_open {
            self.audit.note_open_operation();
        }
        is_open
    }

    pub(crate) async fn note(&self, note: Note<'_>) -> Result<Written> {
        let (done, receipt) = oneshot::channel();
        self.audit
            .append(note.entry(), move |written| drop(done.send(written)));
        self.written(receipt).await
    }

    /// Puts an action on record before it is done and again with its outcome, to which `done` adds its results.
    pub(crate) async fn around<T>(
        &self,
        note: Note<'_>,
        act: impl Future<Output = Result<T>>,
        done: impl FnOnce(&T, &mut Value),
    ) -> Result<T> {
        // The next server closes executions alone.
        let counted = u64::from(note.execution_id.is_some());
        self.open.fetch_add(counted, Ordering::Relaxed);
        if let Err(error) = self.note(note.clone()).await {
            self.open.fetch_sub(counted, Ordering::Relaxed);
            return Err(error);
        }
        let result = act.await;
        let mut note = note.ended(outcome_of(&result));
        if let Ok(value) = &result {
            done(value, &mut note.details);
        }
        self.note(note).await?;
        self.open.fetch_sub(counted, Ordering::Relaxed);
        result
    }

    /// Puts a refusal on record, or only counts it if there are too many.
    pub(crate) async fn note_refusal(&self, note: Note<'_>) -> Result<Written> {
        if self.refusals.counts(self, &note) {
            return Ok(Written::Yes);
        }
        self.note(note).await
    }

    /// Puts the refusal of an action that has not begun on record, and returns it, or the error of recording it.
    pub(crate) async fn refused(&self, mut note: Note<'_>, error: RequestError) -> RequestError {
        note.details["code"] = json!(error.code.as_str());
        match self.note_refusal(note.ended(Outcome::Denied)).await {
            Ok(_) => error,
            Err(unrecorded) => unrecorded,
        }
    }

    async fn written(&self, receipt: oneshot::Receiver<Result<Receipt, AuditError>>) -> Result<Written> {
        match receipt.await {
            Ok(Ok(_)) => Ok(Written::Yes),
            Ok(Err(error)) => self.judge(error),
            Err(_) => self.judge(AuditError::Stopped),
        }
    }

    /// Records, without waiting, an action that is done in any case, like a removal. The log has those not on record.
    pub(crate) fn note_unwaited(&self, note: Note<'_>) {
        let (lost, audit) = (self.lost.clone(), Arc::downgrade(&self.audit));
        self.audit.append(note.entry(), move |written| {
            if let Err(error) = written {
                audit.upgrade().inspect(|audit| audit.note_open_operation());
                lost.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "NOT ON RECORD: something that was taken away");
            }
        });
    }

    /// Puts an action on record and blocks until it is written: the start and the end of a server.
    pub(crate) fn note_now(&self, note: Note<'_>) -> Result<Written> {
        match self.audit.append_and_wait(note.entry()) {
            Ok(_) => Ok(Written::Yes),
            Err(error) => self.judge(error),
        }
    }

    /// Closes the audit entries that crashed servers left open. Blocks meanwhile.
    pub(crate) fn close_lost(&self) -> Result<()> {
        let Some(lost) = self.audit.lost().map_err(unavailable)? else {
            return Ok(());
        };
        let mut are_closed = true;
        for begun in &lost.records {
            let action = match begun.action.as_str() {
                "execution.started" => Action::ExecutionFailed,
                "session.created" => Action::SessionCreated,
                "approval.requested" => Action::ApprovalDecided,
                "host.executed" => Action::HostExecuted,
                "snapshot.restored" => Action::SnapshotRestored,
                _ => continue,
            };
            let details =
                json!({"why": "its server died", "begun_by": begun.server_id, "begun_seq": begun.seq});
            let note = Note::of(&ENGINE_CALLER, &begun.namespace, action, details).ended(Outcome::Lost);
            let note = note.of_execution(begun.execution_id.as_deref());
            are_closed &= self.note_now(note)? == Written::Yes;
        }
        if are_closed {
            lost.closed();
        }
        Ok(())
    }

    /// Writes the counts of refusals of the current period, at the end of the server.
    pub(crate) fn flush_refusals(&self) {
        self.refusals.flush(self);
    }

    fn judge(&self, error: AuditError) -> Result<Written> {
        self.audit.note_open_operation();
        if error == AuditError::Overloaded {
            return Err(overloaded());
        }
        match self.on_failure {
            OnFailure::Deny => Err(unavailable(error)),
            OnFailure::Warn => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "NOT ON RECORD: the audit record cannot be written, and audit.on_failure is warn");
                Ok(Written::No)
            }
        }
    }

    /// Reserves the records of an execution, or of the creation of a session. Errors: `busy`.
    pub(crate) fn open(
        &self,
        begun: Action,
        id: &str,
        caller: &Caller,
        request: &ExecuteRequest,
    ) -> Result<AuditScope> {
        let room = self.audit.reserve(request.namespace.as_str(), RESERVED);
        Ok(AuditScope {
            room: Mutex::new(room.map_err(|_| overloaded())?),
            record: self.clone(),
            id: id.to_owned(),
            begun,
            namespace: request.namespace.clone(),
            caller: caller.clone(),
            requested: match begun {
                Action::SessionCreated => requested_session(id, request),
                _ => requested(request),
            },
            is_begun: AtomicBool::new(false),
            is_closed: false,
            is_missing: AtomicBool::new(false),
        })
    }
}

impl AuditScope {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Records the begin. Without a record nothing runs.
    pub(crate) async fn begin(&self) -> Result<()> {
        if self.is_begun.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.record.open.fetch_add(1, Ordering::Relaxed);
        let note = self.note(self.begun, Outcome::Pending, self.requested.clone());
        self.reserved(note).await.map(drop)
    }

    async fn reserved(&self, note: Note<'_>) -> Result<Written> {
        let (done, receipt) = oneshot::channel();
        self.append(note.entry(), move |written| drop(done.send(written)));
        let written = self.record.written(receipt).await?;
        self.is_missing
            .fetch_or(written == Written::No, Ordering::Relaxed);
        Ok(written)
    }

    fn append(&self, entry: Entry, done: impl FnOnce(Result<Receipt, AuditError>) + Send + 'static) {
        let mut room = lock(&self.room);
        self.record.audit.append_reserved(&mut room, entry, done);
    }

    pub(crate) async fn step(&self, action: Action, outcome: Outcome, details: Value) -> Result<Written> {
        let written = self.record.note(self.note(action, outcome, details)).await?;
        self.is_missing
            .fetch_or(written == Written::No, Ordering::Relaxed);
        Ok(written)
    }

    /// Records the end. Without a record no result leaves: the creator of a session then ends it.
    pub(crate) async fn close(mut self, ended: Result<Closing, &RequestError>) -> Result<Written> {
        let Closing {
            action,
            outcome,
            details,
        } = ended.unwrap_or_else(|error| self.refused(error));
        let written = self.end(self.note(action, outcome, details)).await?;
        self.is_closed = true;
        match self.is_missing.load(Ordering::Relaxed) {
            true => Ok(Written::No),
            false => Ok(written),
        }
    }

    /// The closing of a refusal, with the request if no record has it; no message, which may repeat the caller's data.
    fn refused(&self, error: &RequestError) -> Closing {
        let (action, mut details) = match self.begun {
            Action::SessionCreated => (Action::SessionCreated, json!({"session": self.id})),
            _ => (Action::ExecutionRefused, json!({})),
        };
        if !self.is_begun.load(Ordering::Relaxed) {
            details.clone_from(&self.requested);
        }
        details["code"] = json!(error.code.as_str());
        Closing {
            action,
            outcome: refusal(error),
            details,
        }
    }

    async fn end(&self, note: Note<'_>) -> Result<Written> {
        if self.is_begun.load(Ordering::Relaxed) {
            let written = self.reserved(note).await?;
            self.record.open.fetch_sub(1, Ordering::Relaxed);
            Ok(written)
        } else {
            self.record.note_refusal(note).await
        }
    }

    fn note(&self, action: Action, outcome: Outcome, details: Value) -> Note<'_> {
        let note = Note::of(self.caller(), &self.namespace, action, details);
        note.ended(outcome).of_execution(Some(self.id()))
    }
}

impl Drop for AuditScope {
    fn drop(&mut self) {
        if !self.is_closed && self.is_begun.load(Ordering::Relaxed) {
            let details = json!({"why": "its task ended, or its end could not be written"});
            let action = match self.begun {
                Action::SessionCreated => Action::SessionCreated,
                _ => Action::ExecutionFailed,
            };
            let note = self.note(action, Outcome::Failed, details);
            let open = self.record.open.clone();
            self.append(note.entry(), move |written| match written {
                Ok(_) => drop(open.fetch_sub(1, Ordering::Relaxed)),
                Err(error) => {
                    tracing::error!(%error, "an execution that was abandoned is not on record");
                }
            });
        }
    }
}

/// Returns the outcome of an action that was allowed.
pub(crate) fn outcome_of<T, E>(result: &Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(_) => Outcome::Failed,
    }
}

/// Returns the outcome of an action that was refused, or failed.
pub(crate) fn refusal(error: &RequestError) -> Outcome {
    match error.code {
        ErrorCode::PolicyDenied | ErrorCode::Busy => Outcome::Denied,
        _ => Outcome::Failed,
    }
}

fn overloaded() -> RequestError {
    busy(
        "too many calls of this namespace wait to be put on the audit record.",
        format!("Try again in {RETRY_MS} ms, with fewer calls at once."),
        RETRY_MS,
    )
}

pub(crate) fn unavailable(error: AuditError) -> RequestError {
    RequestError::new(
        ErrorCode::AuditUnavailable,
        format!("the audit record cannot be written: {error}."),
        match &error {
            AuditError::Gone(_) => {
                "If the state directory was removed, start the server again; a directory of `audit.path` is yours to make."
            }
            _ => {
                "Nothing runs without a record: give its disk room, or set `audit.store: memory`; `ringfence audit verify` looks at it."
            }
        },
    )
}

/// Returns the details of a request: digests and names, never their contents.
fn requested(request: &ExecuteRequest) -> Value {
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
    add_inputs(&mut details, request);
    details
}

fn requested_session(id: &str, request: &ExecuteRequest) -> Value {
    let mut details = json!({"session": id, "language": request.language});
    add_inputs(&mut details, request);
    details
}

/// Adds the inputs and the workspace of a program: names and counts.
fn add_inputs(details: &mut Value, request: &ExecuteRequest) {
    if !request.env.is_empty() {
        details["variables"] = json!(request.env.len());
    }
    if !request.packages.is_empty() {
        details["packages"] = request.packages.iter().map(Requirement::as_str).collect();
    }
    if !request.secrets.is_empty() {
        details["secrets"] = secret_names(request.secrets.iter().map(EnvName::as_str));
    }
    match &request.workspace {
        WorkspaceSource::Private => {}
        WorkspaceSource::Namespace => details["workspace"] = json!("namespace"),
        WorkspaceSource::Listed(name) => details["workspace"] = json!(name),
        WorkspaceSource::Host { directory, mode } => {
            details["workspace"] = json!({"directory": directory, "mode": mode});
        }
    }
}

/// Returns all names, or the first and their count: a record has room for 64 KiB.
pub(crate) fn secret_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Value {
    if names.len() <= SECRET_NAMES_MAX {
        return json!(names.collect::<Vec<_>>());
    }
    let count = names.len();
    json!({"count": count, "first": names.take(SECRET_NAMES_MAX).collect::<Vec<_>>()})
}

pub(crate) fn granted(grant: &Grant) -> Value {
    let mut granted = json!(&grant.limits);
    let reaches = &grant.reaches;
    if !reaches.is_empty() {
        let shown = reaches.iter().take(RULES_SHOWN_MAX).map(ToString::to_string);
        granted["egress"] = json!({"count": reaches.iter().len(), "rules": shown.collect::<Vec<_>>()});
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_in_a_record_are_bounded() {
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
