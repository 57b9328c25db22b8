//! Running executions with their output so far, and results while they are kept, each for its own namespace only.

use crate::{
    caller::{ENGINE_CALLER, OutputChunk, Submission},
    error::{self, Result},
    events::now_ms,
    metrics::outcome,
    settings::ResultSettings,
    store,
    streams::SoFar,
    sync::lock,
};
use ringfence_redact::Redactor;
use ringfence_types::{ExecuteRequest, ExecutionResult, Language, Namespace, RequestError, SessionId};
use serde::Serialize;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// Memory of an entry without its result, in bytes.
const ENTRY_BYTES: usize = 1 << 10;
/// Time after which a request that found no memory may be sent again.
const RETRY_AFTER_MS: u64 = 1000;
/// Length of a program's first line before redaction, and after.
const LINE_BYTES_MAX: usize = 1000;
const LINE_CHARS_MAX: usize = 80;

/// Maximum bytes of the requests of a namespace, and of all, that have not ended: each is in memory until its end.
const REQUESTS_BYTES_MAX: [usize; 2] = [512 << 20, 2 << 30];

/// Divisor of the memory for all results that gives a stream's maximum, so that a long one does not evict itself.
const STREAM_SHARE: usize = 8;

#[derive(Clone, Debug, Serialize)]
pub struct ExecutionLine {
    pub execution_id: String,
    pub namespace: Namespace,
    pub session_id: Option<String>,
    /// Time of acceptance.
    pub started_unix_ms: u64,
    pub language: Language,
    /// First line of the program, at most 80 characters.
    pub first_line: String,
    /// `running`, `ok`, `failed`, `refused`, or another way in which it ended.
    pub verdict: &'static str,
    /// Up to now, if it is running.
    pub duration_ms: u64,
    pub artifacts: usize,
}

#[derive(Debug)]
pub enum ExecutionState {
    Running(Progress),
    Ended(Box<ExecutionResult>),
}

#[derive(Clone, Copy, Debug)]
pub struct ExecutionTimes {
    pub started_unix_ms: u64,
    pub duration_ms: u64,
    /// Time that its result is kept after its end, unless later results need the memory.
    pub keep: Duration,
}

#[derive(Debug)]
pub struct Progress {
    pub line: ExecutionLine,
    /// Up to now, without the request's secrets; at most 1 MiB.
    pub stdout: String,
    pub stderr: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cancelled {
    /// True if it was running.
    pub cancelled: bool,
    pub existed: bool,
}

/// The output of a running execution, from its beginning: the first MiB of each stream.
pub struct Following {
    pub(crate) so_far: Arc<SoFar>,
    pub(crate) given: [usize; 2],
    pub(crate) has_ended: watch::Receiver<bool>,
}

impl Following {
    /// Returns the next bytes; `None` once the execution has ended.
    pub async fn next(&mut self) -> Option<OutputChunk> {
        loop {
            // Both are subscribed to before they are checked, so that no change is missed.
            let mut grown = pin!(self.so_far.grown.notified());
            grown.as_mut().enable();
            let has_ended = *self.has_ended.borrow_and_update();
            let chunk = self.so_far.after(&mut self.given);
            if chunk.is_some() || has_ended {
                return chunk;
            }
            tokio::select! {
                () = grown => {}
                changed = self.has_ended.changed() => if changed.is_err() {
                    return self.so_far.after(&mut self.given);
                }
            }
        }
    }
}

pub(crate) struct Executions {
    settings: ResultSettings,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
pub(crate) struct RegistryState {
    pub(crate) entries: HashMap<String, Entry>,
    /// Oldest first.
    pub(crate) ended: VecDeque<String>,
    pub(crate) bytes: HashMap<Namespace, usize>,
    /// Bytes of the requests that have not ended.
    requests: HashMap<Namespace, usize>,
}

pub(crate) struct Entry {
    /// True for the engine's own executions, which are not found, listed or kept.
    pub(crate) is_ours: bool,
    pub(crate) namespace: Namespace,
    pub(crate) session: Option<SessionId>,
    pub(crate) language: Language,
    pub(crate) first_line: String,
    request_bytes: usize,
    pub(crate) started_unix_ms: u64,
    pub(crate) started: Instant,
    pub(crate) so_far: Arc<SoFar>,
    pub(crate) cancel: watch::Sender<bool>,
    pub(crate) has_ended: watch::Sender<bool>,
    pub(crate) kept: Option<StoredResult>,
}

pub(crate) struct StoredResult {
    pub(crate) at: Instant,
    /// As JSON, which is smaller than the value.
    pub(crate) result: Result<Arc<Vec<u8>>>,
    pub(crate) verdict: &'static str,
    pub(crate) duration_ms: u64,
    pub(crate) artifacts: usize,
    pub(crate) bytes: usize,
}

impl Executions {
    pub(crate) fn new(settings: ResultSettings) -> Self {
        Self {
            settings,
            state: Mutex::default(),
        }
    }

    /// Registers an execution; the error refuses it.
    pub(crate) fn begin(
        &self,
        id: &str,
        submission: &Submission,
        cancel: &watch::Sender<bool>,
    ) -> Result<()> {
        let request = &submission.request;
        let (bytes, line) = (bytes_of(request), first_distinctive_line(&request.code));
        let mut state = lock(&self.state);
        let reserved = state.reserve(&request.namespace, bytes);
        let entry = Entry {
            is_ours: submission.caller == ENGINE_CALLER,
            namespace: request.namespace.clone(),
            session: request.session.clone(),
            language: request.language,
            first_line: line[..line.floor_char_boundary(LINE_BYTES_MAX)].to_owned(),
            request_bytes: *reserved.as_ref().unwrap_or(&0),
            started_unix_ms: now_ms(),
            started: Instant::now(),
            so_far: Arc::default(),
            cancel: cancel.clone(),
            has_ended: watch::channel(false).0,
            kept: None,
        };
        state.entries.insert(id.to_owned(), entry);
        reserved.map(drop)
    }

    pub(crate) fn so_far(&self, id: &str) -> Option<Arc<SoFar>> {
        let state = lock(&self.state);
        state.get(id).map(|entry| entry.so_far.clone())
    }

    /// Ends an execution, once.
    pub(crate) fn end(&self, id: &str, result: Result<&ExecutionResult, &RequestError>) {
        let (verdict, artifacts) = match result {
            Ok(result) => (verdict(result), result.artifacts.len()),
            Err(error) if *error == error::task_died() => ("lost", 0),
            Err(_) => ("refused", 0),
        };
        let json = result
            .map_err(|error| error.clone().for_execution(id))
            .and_then(|result| encode(result, self.settings.bytes_max / STREAM_SHARE));
        let mut state = lock(&self.state);
        state.release(id);
        if state.entries.get(id).is_some_and(|entry| entry.is_ours) {
            state.entries.remove(id);
        }
        let Some(entry) = state.entries.get_mut(id).filter(|entry| entry.kept.is_none()) else {
            return;
        };
        let bytes = ENTRY_BYTES + entry.first_line.len() + json.as_ref().map_or(0, |json| json.len());
        entry.so_far = Arc::default();
        entry.kept = Some(StoredResult {
            at: Instant::now(),
            result: json,
            verdict,
            duration_ms: milliseconds(entry.started),
            artifacts,
            bytes,
        });
        entry.has_ended.send_replace(true);
        let namespace = entry.namespace.clone();
        *state.bytes.entry(namespace).or_default() += bytes;
        state.ended.push_back(id.to_owned());
        state.forget(&self.settings);
    }

    pub(crate) fn times(&self, namespace: &Namespace, id: &str) -> Result<ExecutionTimes> {
        let state = self.state();
        let entry = state.find(namespace, id)?;
        let kept = entry.kept.as_ref();
        Ok(ExecutionTimes {
            started_unix_ms: entry.started_unix_ms,
            duration_ms: kept.map_or_else(|| milliseconds(entry.started), |kept| kept.duration_ms),
            keep: self.settings.keep,
        })
    }

    /// Locks the state, without results that are too old.
    pub(crate) fn state(&self) -> MutexGuard<'_, RegistryState> {
        let mut state = lock(&self.state);
        state.forget(&self.settings);
        state
    }
}

impl RegistryState {
    /// Counts the bytes of a new request, unless there are too many.
    fn reserve(&mut self, namespace: &Namespace, bytes: usize) -> Result<usize> {
        let own = self.requests.get(namespace).copied().unwrap_or_default();
        let all: usize = self.requests.values().sum();
        let [own_max, all_max] = REQUESTS_BYTES_MAX;
        if own + bytes > own_max || all + bytes > all_max {
            let whose = if own + bytes > own_max {
                "this namespace"
            } else {
                "all namespaces"
            };
            return Err(error::busy(
                format!(
                    "the code and files of the requests of {whose} that have not ended take too much memory."
                ),
                "Send it again when an earlier one has ended, or send fewer and smaller files.",
                RETRY_AFTER_MS,
            ));
        }
        *self.requests.entry(namespace.clone()).or_default() += bytes;
        Ok(bytes)
    }

    fn release(&mut self, id: &str) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let bytes = std::mem::take(&mut entry.request_bytes);
        if let Some(all) = self.requests.get_mut(&entry.namespace) {
            *all -= bytes;
        }
        self.requests.retain(|_, bytes| *bytes > 0);
    }

    fn forget(&mut self, settings: &ResultSettings) {
        let is_old = |kept: &StoredResult| kept.at.elapsed() > settings.keep;
        while let Some(oldest) = self.ended.front()
            && self
                .entries
                .get(oldest)
                .and_then(|entry| entry.kept.as_ref())
                .is_none_or(is_old)
        {
            self.remove(0);
        }
        while self.bytes.values().sum::<usize>() > settings.bytes_max
            && let Some((most, _)) = self.bytes.iter().max_by_key(|(_, bytes)| **bytes)
            && let Some(at) = self
                .ended
                .iter()
                .position(|id| self.entries.get(id).is_some_and(|entry| entry.namespace == *most))
        {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(entry) = self.ended.remove(at).and_then(|id| self.entries.remove(&id)) else {
            return;
        };
        if let (Some(kept), Some(bytes)) = (&entry.kept, self.bytes.get_mut(&entry.namespace)) {
            *bytes -= kept.bytes;
            if *bytes == 0 {
                self.bytes.remove(&entry.namespace);
            }
        }
    }

    pub(crate) fn namespaces(&self) -> BTreeSet<Namespace> {
        let all = self.entries.values().filter(|entry| !entry.is_ours);
        all.map(|entry| entry.namespace.clone()).collect()
    }

    /// Returns a caller's execution, of any namespace.
    pub(crate) fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id).filter(|entry| !entry.is_ours)
    }

    /// Returns executions that have not ended, including the engine's own.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter().filter(|(_, entry)| entry.kept.is_none())
    }

    pub(crate) fn find(&self, namespace: &Namespace, id: &str) -> Result<&Entry> {
        let own = self.get(id).filter(|entry| entry.namespace == *namespace);
        own.ok_or_else(not_found)
    }
}

fn bytes_of(request: &ExecuteRequest) -> usize {
    let files: usize = request.files.iter().map(|file| file.bytes.len()).sum();
    files + request.code.len() + request.stdin.len()
}

pub(crate) fn not_found() -> RequestError {
    RequestError::not_found(
        "there is no such execution, or its result is no longer kept.",
        "next: list_executions {}",
    )
}

impl Entry {
    pub(crate) fn line(&self, id: &str, redactor: &Redactor) -> ExecutionLine {
        let clean = if self.first_line.len() + 4 > LINE_BYTES_MAX {
            redactor.cut_text(&self.first_line)
        } else {
            redactor.text(&self.first_line)
        };
        let kept = self.kept.as_ref();
        ExecutionLine {
            execution_id: id.to_owned(),
            namespace: self.namespace.clone(),
            session_id: self.session.as_ref().map(ToString::to_string),
            started_unix_ms: self.started_unix_ms,
            language: self.language,
            first_line: clean.chars().take(LINE_CHARS_MAX).collect(),
            verdict: kept.map_or("running", |kept| kept.verdict),
            duration_ms: kept.map_or_else(|| milliseconds(self.started), |kept| kept.duration_ms),
            artifacts: kept.map_or(0, |kept| kept.artifacts),
        }
    }
}

/// Encodes a result for keeping; only the beginning of a long stream is kept.
fn encode(result: &ExecutionResult, stream_bytes_max: usize) -> Result<Arc<Vec<u8>>> {
    let mut kept = Cow::Borrowed(result);
    if result.stdout.len().max(result.stderr.len()) > stream_bytes_max {
        let kept = kept.to_mut();
        let truncated = &mut kept.truncated;
        for (stream, is_cut) in [
            (&mut kept.stdout, &mut truncated.stdout),
            (&mut kept.stderr, &mut truncated.stderr),
        ] {
            *is_cut |= stream.len() > stream_bytes_max;
            stream.truncate(stream.floor_char_boundary(stream_bytes_max));
        }
    }
    let mut json = serde_json::to_vec(&*kept).map_err(store::fault)?;
    json.shrink_to_fit(); // it is kept for an hour
    Ok(Arc::new(json))
}

pub(crate) fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn verdict(result: &ExecutionResult) -> &'static str {
    match outcome(result) {
        "completed" => "ok",
        other => other,
    }
}

/// Returns the first line that is no comment or plain import, with which most programs begin; otherwise the first line.
fn first_distinctive_line(code: &str) -> &str {
    let mut lines = code.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or_default();
    let is_distinctive = |line: &&str| {
        let is_usual = ["#", "//", "import ", "from "]
            .iter()
            .any(|start| line.starts_with(start));
        !is_usual || line.trim_end_matches(';').contains(';')
    };
    lines.find(is_distinctive).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        caller::{Caller, OutputStream},
        streams::SO_FAR_BYTES_MAX,
    };
    use ringfence_redact::{Forms, Personal};
    use ringfence_types::ErrorCode;

    #[test]
    fn first_line_skips_comments_and_plain_imports() {
        let first = |code| first_distinctive_line(code);
        assert_eq!(
            first("# x\nimport os\nimport fs from 'fs';\nprint(1)"),
            "print(1)"
        );
        assert_eq!(
            first("import os; os.system('ls')\nprint(1)"),
            "import os; os.system('ls')"
        );
        assert_eq!(first("import os"), "import os");
    }

    const SMALL: ResultSettings = ResultSettings {
        keep: Duration::from_secs(3600),
        bytes_max: 20 * ENTRY_BYTES,
    };

    fn of(namespace: &str) -> Namespace {
        Namespace::try_from(namespace.to_owned()).unwrap()
    }

    fn refuse(executions: &Executions, namespace: &str, id: &str) {
        let mut request = ExecuteRequest::new(Language::Shell, "\n  true\nfalse");
        request.namespace = of(namespace);
        let submission = Submission::new(Caller::new("test"), request);
        executions
            .begin(id, &submission, &watch::channel(false).0)
            .unwrap();
        let error = RequestError::invalid("no.", "yes.");
        executions.end(id, Err(&error));
    }

    #[test]
    fn execution_is_visible_to_its_own_namespace_only() {
        let executions = Executions::new(SMALL);
        refuse(&executions, "a", "1");
        let state = executions.state();
        assert!(state.find(&of("a"), "1").is_ok());
        let error = state.find(&of("b"), "1").err().unwrap();
        assert_eq!(error, state.find(&of("b"), "2").err().unwrap());
        let redactor = Redactor::new([], Forms::All, Personal::Keep);
        let line = state.entries["1"].line("1", &redactor);
        assert_eq!((line.first_line.as_str(), line.verdict), ("true", "refused"));
    }

    #[test]
    fn eviction_drops_oldest_result_of_largest_namespace() {
        let executions = Executions::new(SMALL);
        refuse(&executions, "b", "b");
        for number in 0..100 {
            refuse(&executions, "a", &number.to_string());
        }
        let state = executions.state();
        assert!(state.bytes.values().sum::<usize>() <= SMALL.bytes_max);
        assert!(state.find(&of("b"), "b").is_ok() && state.find(&of("a"), "99").is_ok());
        assert!(state.find(&of("a"), "0").is_err() && state.ended.len() == state.entries.len());
    }

    #[test]
    fn bytes_of_requests_that_have_not_ended_are_bounded() {
        let executions = Executions::new(SMALL);
        let begin = |namespace: &str, id: &str, bytes: usize| {
            let mut request = ExecuteRequest::new(Language::Shell, "true");
            request.namespace = of(namespace);
            request.stdin = vec![0; bytes];
            let submission = Submission::new(Caller::new("test"), request);
            executions.begin(id, &submission, &watch::channel(false).0)
        };
        let large = REQUESTS_BYTES_MAX[0] - 10;
        for namespace in ["a", "b", "c"] {
            begin(namespace, namespace, large).unwrap();
        }
        let refused = begin("a", "a2", 10).unwrap_err();
        assert!(
            refused.code == ErrorCode::Busy && refused.message.contains("this namespace"),
            "{refused}"
        );
        begin("d", "d", large).unwrap();
        assert!(
            begin("e", "e", 100)
                .unwrap_err()
                .message
                .contains("all namespaces")
        );
        let died = error::task_died();
        for _ in 0..2 {
            executions.end("a", Err(&died));
        }
        begin("e", "e2", 100).unwrap();
        begin("a", "a3", 10).unwrap();
        let state = executions.state();
        assert_eq!(state.entries["a"].kept.as_ref().unwrap().verdict, "lost");
        assert_eq!(state.ended.len(), 1, "it has ended once");
    }

    #[test]
    fn expired_result_is_removed() {
        let executions = Executions::new(ResultSettings {
            keep: Duration::ZERO,
            ..SMALL
        });
        refuse(&executions, "a", "1");
        let state = executions.state();
        assert!(state.entries.is_empty() && state.bytes.is_empty() && state.ended.is_empty());
    }

    #[tokio::test]
    async fn output_is_followed_from_its_beginning_to_its_end() {
        let (so_far, ended) = (Arc::new(SoFar::default()), watch::channel(false).0);
        let mut following = Following {
            so_far: so_far.clone(),
            given: [0; 2],
            has_ended: ended.subscribe(),
        };
        so_far.push(OutputStream::Stdout, b"a");
        let write = async {
            for _ in 0..1000 {
                so_far.push(OutputStream::Stdout, b"b");
                tokio::task::yield_now().await;
            }
            so_far.push(OutputStream::Stderr, b"e");
            ended.send_replace(true);
        };
        let read = async {
            let mut all = [Vec::new(), Vec::new()];
            while let Some(OutputChunk { stream, bytes }) = following.next().await {
                all[usize::from(stream == OutputStream::Stderr)].extend(bytes);
            }
            all
        };
        let ((), [stdout, stderr]) = tokio::join!(write, read);
        assert_eq!((stdout.len(), stderr.as_slice()), (1001, &b"e"[..]));
        assert!(following.next().await.is_none());
    }

    #[test]
    fn output_so_far_is_bounded() {
        let so_far = SoFar::default();
        for _ in 0..3 {
            so_far.push(OutputStream::Stdout, &vec![b'x'; SO_FAR_BYTES_MAX / 2 + 1]);
        }
        so_far.push(OutputStream::Stderr, b"e");
        so_far.push(OutputStream::Notice, b"n");
        let [stdout, stderr] = so_far.texts();
        assert_eq!((stdout.len(), stderr.as_str()), (SO_FAR_BYTES_MAX, "e"));
    }
}
