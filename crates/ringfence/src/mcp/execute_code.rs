//! `execute_code` and `run_sandbox_code`: conversion of arguments to a request, and of a result to an answer.

use super::{
    Answer, Offer, Refused, bounded,
    call::Call,
    call_order::Ticket,
    elicitation::Dialogues,
    executions, hints,
    logging::{self, EventFilter},
    progress::{self, Reporter},
    resources,
    result_text::{self, ARTIFACTS_LISTED},
    validate,
};
use crate::{
    api::{ExecuteCode, FileInput, ResourceLimits, RunSandboxCode, invalid},
    settings::{OnHangUp, duration_or_never},
    time::{self, DETACH_SECONDS_MAX},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{Canceller, Execution, ExecutionState, Picture, Submission};
use ringfence_types::{
    AllowedDomains, Artifact, Backend, ExecuteRequest, ExecutionResult, FILES_BYTES_MAX, FILES_MAX,
    InputFile, Language, LimitsRequest, Namespace, Profile, RequestError, SessionId, Truncated, Validate,
    WorkspacePath, WorkspaceSource, parse_size, requirements,
};
use serde_json::{Value, json};
use std::{future::pending, time::Duration};
use tokio::time::sleep_until;
use tokio_util::task::AbortOnDropHandle;

const SHORT_TIMEOUT_MS: u64 = 10_000;

const MEBIBYTE: u64 = 1 << 20;

/// Builds the request, with each part checked. `language_of`: the language of a session, for a call that names none.
fn request(
    given: ExecuteCode,
    namespace: Namespace,
    offer: &Offer,
    language_of: impl FnOnce(&Namespace, &SessionId) -> Result<Language, RequestError>,
) -> Result<ExecuteRequest, RequestError> {
    let backend = backend(given.backend.map(|word| word.0), given.use_container)?;
    let language = match (given.language, &given.session_id) {
        (Some(named), _) => named.0,
        (None, Some(session)) => language_of(&namespace, session)?,
        (None, None) => Language::Python,
    };
    let mut request = ExecuteRequest::new(language, given.code);
    request.backend = backend;
    request.namespace = namespace;
    request.session = given.session_id;
    request.files = files(given.files.unwrap_or_default())?;
    request.env = given.env.unwrap_or_default();
    request.secrets = given.secrets.unwrap_or_default().0;
    request.packages = requirements(language, &given.packages.unwrap_or_default().0)?;
    request.allowed_domains = AllowedDomains::from_request(given.allowed_domains.map(|domains| domains.0));
    request.args = given.args.unwrap_or_default();
    request.stdin = given.stdin.unwrap_or_default().into_bytes();
    request.capture_output = given.capture_output.unwrap_or(true);
    if let Some(name) = given.workspace {
        request.workspace = workspace(&name)?;
    }
    let limits = given.resource_limits.unwrap_or_default();
    request.limits = limits_of(limits, given.timeout_seconds, given.memory_limit, offer)?;
    request.validate = given.validation.map_or(Validate::Warn, |word| word.0);
    request.profile = given.profile.map(|word| word.0);
    let modules = given.allowed_imports.map(|modules| modules.0);
    request.allowed_imports = modules.filter(|modules| !modules.is_empty());
    request.check()?;
    Ok(request)
}

fn short_request(
    given: RunSandboxCode,
    namespace: Namespace,
    offer: &Offer,
) -> Result<ExecuteRequest, RequestError> {
    let cap_ms = offer.policy.borrow().caps.timeout_ms;
    let mut request = ExecuteRequest::python(given.code);
    request.namespace = namespace;
    request.workspace = WorkspaceSource::Namespace;
    request.validate = Validate::Strict;
    request.profile = Some(Profile::Strict);
    request.limits.timeout_ms = Some(match given.timeout_sec {
        Some(seconds) => milliseconds(seconds, cap_ms)?,
        None => SHORT_TIMEOUT_MS.min(cap_ms).min(offer.limits.caps().timeout_ms),
    });
    request.check()?;
    Ok(request)
}

/// Rewrites a hint for `run_sandbox_code`: limits and profiles belong to `execute_code`, in the same workspace.
fn for_short_request(hint: &mut String) {
    const NEXT: &str = "next: execute_code {";
    if hint.contains("allowed_imports") {
        *hint = format!("{NEXT}workspace: \"namespace\", code: ...}} has no such profile.");
    } else if let Some(call) = hint.strip_prefix(NEXT) {
        *hint = format!("{NEXT}workspace: \"namespace\", {call}");
    }
}

/// Returns the backend; `None`: the one that the operator has chosen.
fn backend(named: Option<Backend>, use_container: Option<bool>) -> Result<Option<Backend>, RequestError> {
    match (named, use_container) {
        (Some(Backend::Native), Some(true)) => Err(invalid(
            "`use_container: true` and `backend: native` exclude each other.",
            "Leave one of them out.",
        )),
        (None, Some(true)) => Ok(Some(Backend::Docker)),
        (named, _) => Ok(named),
    }
}

fn files(items: Vec<FileInput>) -> Result<Vec<InputFile>, RequestError> {
    at_most_files(items.len())?;
    let file = |file: FileInput| {
        let bytes = content(file.text, file.base64, &file.path)?;
        Ok(InputFile {
            path: file.path,
            bytes,
        })
    };
    items.into_iter().map(file).collect()
}

fn at_most_files(count: usize) -> Result<(), RequestError> {
    if count <= FILES_MAX {
        return Ok(());
    }
    Err(invalid(
        format!("more than {FILES_MAX} files."),
        "Send an archive and unpack it inside.",
    ))
}

fn one_content(path: &WorkspacePath) -> RequestError {
    invalid(
        format!("the file {:?} needs one of `text` and `base64`.", path.as_str()),
        "Send text as `text` and anything else as `base64`.",
    )
}

pub(super) fn content(
    text: Option<String>,
    base64: Option<String>,
    path: &WorkspacePath,
) -> Result<Vec<u8>, RequestError> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|reason| {
            let reason = reason.to_string();
            invalid(
                format!(
                    "`base64` of {:?}: {}.",
                    path.as_str(),
                    reason.trim_end_matches('.')
                ),
                "Send standard base64 with padding.",
            )
        }),
        _ => Err(one_content(path)),
    }
}

/// Reads the name of a workspace. It is never a path: the operator lists the directories.
pub(super) fn workspace(name: &str) -> Result<WorkspaceSource, RequestError> {
    name.parse().map_err(|reason| {
        invalid(
            format!("`workspace`: {reason}."),
            "Say private, namespace, or the name of a directory that the operator has listed.",
        )
    })
}

pub(super) fn limits_of(
    inner: ResourceLimits,
    timeout_seconds: Option<f64>,
    memory_limit: Option<String>,
    offer: &Offer,
) -> Result<LimitsRequest, RequestError> {
    let memory = memory_limit.map(|text| mebibytes(&text)).transpose()?;
    let seconds = one_of("timeout_seconds", timeout_seconds, inner.timeout_seconds)?;
    let ram = inner.max_ram_mb.map(|megabytes| megabytes.0);
    let ram = one_of("memory_limit", memory, ram)?;
    let cap_ms = offer.policy.borrow().caps.timeout_ms;
    Ok(LimitsRequest {
        max_ram_mb: ram,
        timeout_ms: seconds.map(|seconds| milliseconds(seconds, cap_ms)).transpose()?,
        ..plain_limits(&inner)
    })
}

/// Returns the limits of `resource_limits`, without the timeout.
pub(super) fn plain_limits(given: &ResourceLimits) -> LimitsRequest {
    LimitsRequest {
        max_ram_mb: given.max_ram_mb.map(|limit| limit.0),
        max_cpu_cores: given.max_cpu_cores,
        timeout_ms: None,
        // the policy refuses what is more than its cap, which no u32 exceeds
        max_processes: given
            .max_processes
            .map(|limit| u32::try_from(limit.0).unwrap_or(u32::MAX)),
        max_output_bytes: given.max_output_bytes.map(|limit| limit.0),
        max_disk_mb: given.max_disk_mb.map(|limit| limit.0),
    }
}

/// Merges two arguments for one value, which must agree if both are given.
fn one_of<N: PartialEq>(name: &str, value: Option<N>, same: Option<N>) -> Result<Option<N>, RequestError> {
    match (value, same) {
        (Some(value), Some(same)) if value != same => Err(invalid(
            format!("`{name}` and `resource_limits` say different things."),
            "Give one of them.",
        )),
        (value, same) => Ok(value.or(same)),
    }
}

fn mebibytes(text: &str) -> Result<u64, RequestError> {
    let bytes = parse_size(text)
        .map_err(|reason| invalid(format!("`memory_limit`: {reason}."), "Write 256m or 1g."))?;
    Ok(bytes.div_ceil(MEBIBYTE))
}

#[expect(clippy::cast_precision_loss, reason = "days in milliseconds")]
pub(super) fn milliseconds(seconds: f64, cap_ms: u64) -> Result<u64, RequestError> {
    let cap = cap_ms as f64 / 1000.0;
    time::milliseconds(seconds, cap).ok_or_else(|| {
        invalid(
            format!("timeout_seconds = {seconds} is outside 0.1..={cap}."),
            format!("Ask for 0.1 to {cap} seconds, or have the operator raise caps.timeout_seconds."),
        )
    })
}

impl Call<'_> {
    pub(super) async fn execute_code(
        &self,
        mut given: ExecuteCode,
        namespace: Namespace,
    ) -> Result<Answer, Refused> {
        let language_of = |namespace: &_, id: &_| self.unrecorded().language_of(namespace, id);
        let in_background = given.background == Some(true);
        let detach_after = self.detach_after(&given)?;
        let artifacts = self.artifact_inputs(&mut given, &namespace).await?;
        let mut request = request(given, namespace, self.offer(), language_of)?;
        if !artifacts.is_empty() {
            request.files.extend(artifacts);
            request.check()?;
        }
        if in_background {
            return Ok(self.begin(request).await);
        }
        self.execute(request, detach_after, |_| {}).await
    }

    /// Returns the time after which the call is answered though its program runs on; `None`: never.
    fn detach_after(&self, given: &ExecuteCode) -> Result<Option<Duration>, RequestError> {
        let calls = &self.offer().calls;
        if given.background == Some(true) && !calls.keep_results {
            return Err(RequestError::unsupported(
                "this server keeps no results, so that nothing runs in the background.",
                "Leave `background` out, or have the operator raise results.memory_mb.",
            ));
        }
        let Some(seconds) = given.detach_after_seconds else {
            return Ok(calls.detach_after);
        };
        if !(0.0..=DETACH_SECONDS_MAX).contains(&seconds) {
            return Err(invalid(
                format!("detach_after_seconds = {seconds} is outside 0..={DETACH_SECONDS_MAX}."),
                "0 waits for the end of the program.",
            ));
        }
        let after = duration_or_never(seconds);
        match after {
            Some(_) if given.background == Some(true) => Err(invalid(
                "a call with `background` is answered at once, and `detach_after_seconds` says otherwise.",
                "Give one of them.",
            )),
            Some(_) if !calls.keep_results => Err(RequestError::unsupported(
                "this server keeps no results, so that no call is detached.",
                "Leave `detach_after_seconds` out, or have the operator raise results.memory_mb.",
            )),
            after => Ok(after),
        }
    }

    /// Takes out the files that name artifacts of earlier executions of the namespace, and reads their content.
    async fn artifact_inputs(
        &self,
        given: &mut ExecuteCode,
        namespace: &Namespace,
    ) -> Result<Vec<InputFile>, RequestError> {
        let files = given.files.get_or_insert_default();
        at_most_files(files.len())?;
        let artifacts: Vec<FileInput> = files.extract_if(.., |file| file.artifact.is_some()).collect();
        let (mut inputs, mut left) = (Vec::new(), FILES_BYTES_MAX);
        for file in artifacts {
            let path = file.path;
            if file.text.is_some() || file.base64.is_some() {
                return Err(one_content(&path));
            }
            let uri = file.artifact.unwrap_or_default();
            let resource = resources::parse(&uri, self.offer()).ok();
            let artifact = resource.as_ref().and_then(|found| found.artifact_of(namespace));
            let (execution_id, name) = artifact.ok_or_else(|| {
                RequestError::not_found(
                    format!(
                        "`artifact` of {:?} is not the uri of an artifact of this namespace.",
                        path.as_str()
                    ),
                    "next: get_artifacts {\"request_id\": EXECUTION_ID} lists the uri of each",
                )
            })?;
            let read = self
                .namespace(namespace)
                .artifact_within(execution_id, name, left as u64);
            let (_, bytes) = read.await?;
            left -= bytes.len();
            inputs.push(InputFile { path, bytes });
        }
        Ok(inputs)
    }

    pub(super) async fn run_sandbox_code(
        &self,
        given: RunSandboxCode,
        namespace: Namespace,
    ) -> Result<Answer, Refused> {
        let request = short_request(given, namespace, self.offer())?;
        let detach_after = self.offer().calls.detach_after;
        self.execute(request, detach_after, for_short_request).await
    }

    async fn execute(
        &self,
        request: ExecuteRequest,
        detach_after: Option<Duration>,
        reword: fn(&mut String),
    ) -> Result<Answer, Refused> {
        let (language, code) = (request.language, request.code.clone());
        let run = self.run(request, detach_after).await;
        let state = run.map_err(|mut error| {
            hints::in_error(&mut error).for_each(reword);
            Refused {
                below: validate::below(&error, language, &code),
                error,
            }
        })?;
        let mut result = match state {
            ExecutionState::Running(progress) => {
                let answer = executions::so_far(&progress, [None; 2], self.offer().text_max);
                let line = &progress.line;
                return Ok(self.running(answer, &line.namespace, &line.execution_id));
            }
            ExecutionState::Ended(result) => result,
        };
        let denials = result.denials.iter_mut();
        denials.for_each(|denial| reword(&mut denial.hint));
        Ok(self.whole(&result, [0; 2]).await?)
    }

    /// Answers with a whole result. `from`: offsets at which its streams begin, if earlier answers had the rest.
    pub(super) async fn whole(
        &self,
        result: &ExecutionResult,
        from: [usize; 2],
    ) -> Result<Answer, RequestError> {
        let mut answer = answer(result, from, self.offer())?;
        let enough = async {
            tokio::select! {
                () = tokio::time::sleep(PICTURES_PATIENCE) => {}
                _ = self.hung_up() => {}
            }
        };
        answer.pictures = pictures(self, result, enough).await;
        Ok(answer)
    }

    async fn begin(&self, request: ExecuteRequest) -> Answer {
        let namespace = request.namespace.clone();
        let execution = self.submit(request, None).await;
        let answer = executions::begun(execution.id());
        self.running(answer, &namespace, execution.id())
    }

    /// Submits a request, in the order of the client's calls.
    async fn submit(&self, request: ExecuteRequest, reporter: Option<&Reporter>) -> Execution {
        let turn = match self.context.extensions.get::<Ticket>() {
            Some(ticket) => ticket.turn().await,
            None => None,
        };
        let execution = self.engine().submit(Submission {
            live: reporter.is_some(),
            ..Submission::new(self.caller().clone(), request)
        });
        drop(turn);
        execution
    }

    async fn run(
        &self,
        request: ExecuteRequest,
        detach_after: Option<Duration>,
    ) -> Result<ExecutionState, RequestError> {
        let (engine, context) = (self.engine(), self.context);
        let namespace = request.namespace.clone();
        let log_level = context.meta.log_level();
        let events = log_level.map(|level| (level, engine.subscribe(logging::subscription(level))));
        let execution = self.submit(request, self.reporter.as_ref()).await;
        let (id, canceller) = (execution.id().to_owned(), execution.canceller());
        let forwarder = events.map(|(level, events)| {
            let filter = EventFilter::Execution(id.clone());
            let forward = logging::forward(events, context.peer.clone(), level, filter);
            AbortOnDropHandle::new(tokio::spawn(forward))
        });
        let dialogues = Dialogues::begin(engine, self.caller(), &id, context);
        let leave = self.leave(detach_after, canceller);
        let ended = progress::follow(execution.into_task(), self.reporter.as_ref(), leave).await;
        if let Some(dialogues) = dialogues {
            dialogues.end().await;
        }
        // Log messages about the end are sent before the answer.
        if let Some(mut forwarder) = forwarder
            && (ended.is_err() || tokio::time::timeout(LOG_PATIENCE, &mut forwarder).await.is_err())
        {
            tracing::debug!("not all log messages of a call were sent");
        }
        match ended {
            Ok(Ok((result, _))) => Ok(ExecutionState::Ended(Box::new(result))),
            Ok(Err(error)) => Err(error.for_execution(&id)),
            Err(Detached) => {
                tracing::info!(%id, "the call is detached, its program runs on");
                let access = engine.namespace(self.caller(), &namespace);
                access.execution_now(&id).await
            }
        }
    }

    /// Completes when the call is answered before its program ends; never after a cancel, since the end is to come.
    async fn leave(&self, detach_after: Option<Duration>, canceller: Canceller) -> Detached {
        let answered = self.begun + detach_after.unwrap_or_default();
        let becomes = tokio::select! {
            () = sleep_until(answered), if detach_after.is_some() => OnHangUp::Detach,
            becomes = self.hung_up() => becomes,
        };
        if becomes == OnHangUp::Cancel {
            canceller.cancel();
            pending().await
        }
        Detached
    }
}

struct Detached;

/// Time limit for a client to take the log messages of a call that has ended.
const LOG_PATIENCE: Duration = Duration::from_millis(500);
const PICTURES_MAX: usize = 4;
const PICTURE_BYTES_MAX: usize = 1 << 20;

/// Time limit for redrawing pictures: a result does not wait for pictures that take long.
const PICTURES_PATIENCE: Duration = Duration::from_secs(3);

/// Returns the first few pictures, beginning with those that the program displays. A file that cannot be redrawn is an
/// artifact only; equal pictures, as of a figure that was saved and left open, are returned once.
async fn pictures(
    call: &Call<'_>,
    result: &ExecutionResult,
    enough: impl Future<Output = ()>,
) -> Vec<Picture> {
    let (engine, artifacts) = (call.engine(), picture_artifacts(result));
    let (mut pictures, mut room) = (Vec::new(), None);
    let redraw = async {
        if !artifacts.is_empty() {
            room = call.server.large_answer(call.context).await.ok();
        }
        if room.is_none() {
            return;
        }
        for artifact in artifacts.into_iter().take(PICTURES_MAX) {
            if let Some(content) = engine.content_of(result, artifact).await
                && let Some(picture) = engine.picture(content).await
                && picture.bytes.len() <= PICTURE_BYTES_MAX
                && !pictures.contains(&picture)
            {
                pictures.push(picture);
            }
        }
    };
    tokio::select! {
        biased;
        () = redraw => {}
        () = enough => tracing::info!("pictures took too long to be shown"),
    }
    if let Some(room) = room {
        room.keep_for(pictures.iter().map(|picture| picture.bytes.len()).sum());
    }
    pictures
}

fn picture_artifacts(result: &ExecutionResult) -> Vec<&Artifact> {
    const MIMES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    let is_displayed = |artifact: &Artifact| {
        let mut names = result.display.iter().map(|display| display.artifact.as_ref());
        names.any(|name| name == Some(&artifact.name))
    };
    let is_picture = |artifact: &&Artifact| MIMES.contains(&artifact.mime.as_str());
    let mut pictures: Vec<&Artifact> = result.artifacts.iter().filter(is_picture).collect();
    pictures.sort_by_key(|artifact| !is_displayed(artifact));
    pictures
}

/// Removes empty fields: some clients give the structured result to a model.
fn shorten(result: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    for name in ["exit", "validation"] {
        if let Some(Value::Object(fields)) = result.get_mut(name) {
            fields.retain(|_, value| !is_empty(value));
        }
    }
    if let Some(Value::Object(found)) = result.get_mut("validation") {
        // validate_code has them.
        for name in ["analysis", "validation", "recommendations"] {
            found.remove(name);
        }
        if found.get("issues").is_none() {
            found.remove("issues_total");
        }
    }
    let Value::Object(fields) = result else { return };
    for name in ["display", "security_events", "variables"] {
        fields.retain(|field, value| field != name || !is_empty(value));
    }
    fields.retain(|name, value| {
        !["lossy", "truncated"].contains(&name.as_str()) || *value != json!(Truncated::default())
    });
}

fn answer(result: &ExecutionResult, from: [usize; 2], offer: &Offer) -> Result<Answer, RequestError> {
    let text_max = offer.text_max;
    let mut shortened = result.clone();
    hints::of_result(&mut shortened, offer);
    let text = result_text::render(&shortened, from, offer);
    shortened.isolation.layers.clear();
    shortened.artifacts.truncate(ARTIFACTS_LISTED);
    result_text::bound(&mut shortened, from, text_max);
    let mut structured = serde_json::to_value(shortened).map_err(|error| {
        RequestError::fault(format!("the result cannot be written: {error}."), "Report this.")
            .for_execution(&result.execution_id)
    })?;
    if !result.artifacts.is_empty() {
        structured["artifacts_total"] = result.artifacts.len().into();
    }
    shorten(&mut structured);
    bounded::fit(&mut structured, &["stdout", "stderr"], 2 * text_max);
    Ok(Answer {
        links: result
            .artifacts
            .iter()
            .filter_map(resources::link)
            .take(ARTIFACTS_LISTED)
            .collect(),
        ..Answer::plain(text, structured)
    })
}

#[cfg(test)]
#[path = "execute_code_tests.rs"]
mod tests;
