//! `execute_code`: from a stranger's JSON to a request, and from a result to an answer.

use super::{
    Answer, Offer,
    arguments::{Arguments, NAMESPACE, Name, invalid, unsupported, wrong_type},
    arrivals::Arrival,
    asked::Dialogues,
    logging, progress, resources,
    sessions::session_id,
    validate::{ALLOWED_IMPORTS, allowed_imports, name_of, profile, validate},
};
use crate::frames::{self, Bounds};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ringfence_engine::{Caller, Engine, Hears, Picture, Stdin, Submission};
use ringfence_types::nearest::suggestion;
use ringfence_types::{
    AllowedDomains, Argument, Artifact, EnvName, EnvValue, ErrorCode, ExecuteRequest, ExecutionResult,
    ExitKind, FILES_MAX, InputFile, Language, LimitsRequest, Namespace, ProgramError, RequestError,
    Requirement, SessionId, Validate, WorkspacePath, WorkspaceSource, parse_size, requirements,
};
use rmcp::{RoleServer, service::RequestContext};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

pub(super) const CODE: Name = ("code", &[]);
pub(super) const LANGUAGE: Name = ("language", &[]);
pub(super) const TIMEOUT: Name = ("timeout_seconds", &["timeout", "timeout_sec"]);
pub(super) const FILES: Name = ("files", &[]);
pub(super) const ENV: Name = ("env", &["env_vars"]);
pub(super) const SECRETS: Name = ("secrets", &[]);
pub(super) const PACKAGES: Name = ("packages", &[]);
pub(super) const ARGS: Name = ("args", &[]);
pub(super) const STDIN: Name = ("stdin", &[]);
pub(super) const CAPTURE: Name = ("capture_output", &[]);
pub(super) const MEMORY: Name = ("memory_limit", &[]);
pub(super) const LIMITS: Name = ("resource_limits", &[]);
pub(super) const PROFILE: Name = ("profile", &[]);
pub(super) const CONTAINER: Name = ("use_container", &[]);
pub(super) const BACKEND: Name = ("backend", &[]);
pub(super) const SESSION: Name = ("session_id", &[]);
pub(super) const VALIDATE: Name = ("validate", &[]);
pub(super) const ALLOWED_DOMAINS: Name = ("allowed_domains", &[]);
pub(super) const WORKSPACE: Name = ("workspace", &[]);

const KNOWN: &[Name] = &[
    CODE,
    LANGUAGE,
    SESSION,
    TIMEOUT,
    FILES,
    ENV,
    SECRETS,
    ARGS,
    STDIN,
    CAPTURE,
    MEMORY,
    LIMITS,
    PROFILE,
    CONTAINER,
    BACKEND,
    VALIDATE,
    PACKAGES,
    WORKSPACE,
    NAMESPACE,
    ALLOWED_IMPORTS,
    ALLOWED_DOMAINS,
];
pub(crate) const LIMIT_NAMES: [&str; 6] = [
    "max_ram_mb",
    "max_cpu_cores",
    "timeout_seconds",
    "max_processes",
    "max_output_bytes",
    "max_disk_mb",
];

const MEBIBYTE: u64 = 1 << 20;

/// The request, with each part checked.
/// `language_of`: what a session speaks, for a call that names no language.
pub(super) fn parse(
    arguments: Map<String, Value>,
    offer: &Offer,
    language_of: impl FnOnce(&Namespace, &SessionId) -> Result<Language, RequestError>,
) -> Result<ExecuteRequest, RequestError> {
    let mut arguments = Arguments::open(arguments, "", KNOWN)?;
    only_values_that_work(&mut arguments)?;
    let code = arguments.text(CODE)?.ok_or_else(|| {
        invalid(
            "`code` is missing.".to_owned(),
            "Send the program's text in `code`.",
        )
    })?;
    let namespace = arguments.namespace(offer.namespaces)?;
    let session = session_id(&mut arguments, SESSION)?;
    let language = match (language(&mut arguments)?, &session) {
        (Some(named), _) => named,
        (None, Some(session)) => language_of(&namespace, session)?,
        (None, None) => Language::Python,
    };
    let mut request = ExecuteRequest::new(language, code);
    request.namespace = namespace;
    request.session = session;
    request.files = files(arguments.list(FILES)?.unwrap_or_default())?;
    request.env = env(arguments.object(ENV)?.unwrap_or_default())?;
    request.secrets = secrets(arguments.list(SECRETS)?.unwrap_or_default())?;
    request.packages = packages(&mut arguments, request.language)?;
    request.allowed_domains = allowed_domains(&mut arguments)?;
    request.args = args(arguments.list(ARGS)?.unwrap_or_default())?;
    request.stdin = arguments.text(STDIN)?.unwrap_or_default().into_bytes();
    request.capture_output = arguments.flag(CAPTURE)?.unwrap_or(true);
    if let Some(name) = arguments.text(WORKSPACE)? {
        request.workspace = workspace(&name)?;
    }
    request.limits = limits(&mut arguments, offer)?;
    request.validate = validate(&mut arguments)?.unwrap_or(Validate::Warn);
    request.profile = profile(&mut arguments)?;
    request.allowed_imports = allowed_imports(&mut arguments)?;
    request.check()?;
    Ok(request)
}

/// Arguments of the contract that have one true value in this version.
fn only_values_that_work(arguments: &mut Arguments) -> Result<(), RequestError> {
    let mut only = |name: Name, value: &str, hint: &str| match arguments.text(name)? {
        Some(given) if given != value => Err(unsupported(
            &format!("{} = {}", name.0, given.escape_default()),
            hint,
        )),
        _ => Ok(()),
    };
    only(BACKEND, "native", "Leave it out.")?;
    match arguments.flag(CONTAINER)? {
        Some(true) => Err(unsupported(
            "use_container = true",
            "Leave it out: the native sandbox needs no container.",
        )),
        _ => Ok(()),
    }
}

pub(super) fn language(arguments: &mut Arguments) -> Result<Option<Language>, RequestError> {
    let Some(name) = arguments.text(LANGUAGE)? else {
        return Ok(None);
    };
    name.parse().map(Some).map_err(|_| {
        let shown: String = name.chars().take(64).collect();
        let names = Language::NAMES.map(|(name, _)| name);
        invalid(
            format!("`{shown}` is not a language.{}", suggestion(&name, names)),
            format!("Known: {}.", names.join(", ")),
        )
    })
}

fn files(items: Vec<Value>) -> Result<Vec<InputFile>, RequestError> {
    if items.len() > FILES_MAX {
        return Err(invalid(
            format!("more than {FILES_MAX} files."),
            "Send an archive and unpack it inside.",
        ));
    }
    items.into_iter().map(file).collect()
}

/// `{path, text}` or `{path, base64}`.
fn file(item: Value) -> Result<InputFile, RequestError> {
    const PATH: Name = ("path", &[]);
    const TEXT: Name = ("text", &[]);
    const BASE64: Name = ("base64", &[]);
    let Value::Object(fields) = item else {
        return Err(wrong_type("files[]", "an object", &item));
    };
    let mut fields = Arguments::open(fields, "files[].", &[PATH, TEXT, BASE64])?;
    let path = fields.text(PATH)?.ok_or_else(|| {
        invalid(
            "a file has no `path`.".to_owned(),
            "Name it below the workspace, as data/in.csv.",
        )
    })?;
    let path = WorkspacePath::try_from(path).map_err(|reason| {
        invalid(
            format!("{reason}."),
            "Name files below the workspace, as data/in.csv.",
        )
    })?;
    let bytes = content(&mut fields, TEXT, BASE64, &path)?;
    Ok(InputFile { path, bytes })
}

/// One of two arguments: text as it is, or anything in base64.
pub(super) fn content(
    fields: &mut Arguments,
    text: Name,
    base64: Name,
    path: &WorkspacePath,
) -> Result<Vec<u8>, RequestError> {
    match (fields.text(text)?, fields.text(base64)?) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|reason| {
            invalid(
                format!("`base64` of {:?}: {reason}.", path.as_str()),
                "Send standard base64 with padding.",
            )
        }),
        _ => Err(invalid(
            format!("the file {:?} needs one of `text` and `base64`.", path.as_str()),
            "Send text as `text` and anything else as `base64`.",
        )),
    }
}

pub(super) fn env(variables: Map<String, Value>) -> Result<BTreeMap<EnvName, EnvValue>, RequestError> {
    let variable = |(name, value): (String, Value)| {
        let shown: String = name.chars().take(64).collect();
        let Value::String(value) = value else {
            return Err(wrong_type(&format!("env.{shown}"), "a string", &value));
        };
        let invalid =
            |reason: String| invalid(format!("`env.{shown}`: {reason}."), "Use plain names and text.");
        Ok((
            EnvName::try_from(name).map_err(invalid)?,
            EnvValue::try_from(value).map_err(invalid)?,
        ))
    };
    variables.into_iter().map(variable).collect()
}

/// A name, never a path: which directories there are is the operator's to say.
pub(super) fn workspace(name: &str) -> Result<WorkspaceSource, RequestError> {
    name.parse().map_err(|reason| {
        invalid(
            format!("`workspace`: {reason}."),
            "Say private, namespace, or the name of a directory that the operator has listed.",
        )
    })
}

/// Names only: there is no argument that takes a secret's value.
pub(super) fn secrets(names: Vec<Value>) -> Result<BTreeSet<EnvName>, RequestError> {
    let name = |name: Value| {
        let Value::String(name) = name else {
            return Err(wrong_type("secrets[]", "a string", &name));
        };
        EnvName::try_from(name)
            .map_err(|reason| invalid(format!("`secrets`: {reason}."), "`vault_list` has their names."))
    };
    names.into_iter().map(name).collect()
}

/// Names and versions, as pip and npm write them.
pub(super) fn packages(
    arguments: &mut Arguments,
    language: Language,
) -> Result<BTreeSet<Requirement>, RequestError> {
    requirements(language, &arguments.texts(PACKAGES)?.unwrap_or_default())
}

/// Hosts; what they mean is the policy's to say.
pub(super) fn allowed_domains(arguments: &mut Arguments) -> Result<AllowedDomains, RequestError> {
    arguments.texts(ALLOWED_DOMAINS).map(AllowedDomains::asked)
}

fn args(words: Vec<Value>) -> Result<Vec<Argument>, RequestError> {
    let word = |word: Value| {
        let Value::String(word) = word else {
            return Err(wrong_type("args[]", "a string", &word));
        };
        Argument::try_from(word)
            .map_err(|reason| invalid(format!("`args`: {reason}."), "Send long values as `files`."))
    };
    words.into_iter().map(word).collect()
}

pub(super) fn limits(arguments: &mut Arguments, offer: &Offer) -> Result<LimitsRequest, RequestError> {
    let outer = arguments.number(TIMEOUT)?;
    let memory = arguments.text(MEMORY)?.map(|text| mebibytes(&text)).transpose()?;
    let known = LIMIT_NAMES.map(|name| (name, [].as_slice()));
    let mut inner = Arguments::open(
        arguments.object(LIMITS)?.unwrap_or_default(),
        "resource_limits.",
        &known,
    )?;
    let [ram, cpu, timeout, processes, output, disk] = known;
    let seconds = one_of(
        "timeout_seconds",
        outer,
        "resource_limits.timeout_seconds",
        inner.number(timeout)?,
    )?;
    let ram = one_of(
        "memory_limit",
        memory,
        "resource_limits.max_ram_mb",
        inner.whole(ram)?,
    )?;
    let cap_ms = offer.policy.borrow().caps.timeout_ms;
    Ok(LimitsRequest {
        max_ram_mb: ram,
        max_cpu_cores: inner.number(cpu)?,
        timeout_ms: seconds.map(|seconds| milliseconds(seconds, cap_ms)).transpose()?,
        // the policy refuses what is more than its cap, which no u32 exceeds
        max_processes: inner
            .whole(processes)?
            .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        max_output_bytes: inner.whole(output)?,
        max_disk_mb: inner.whole(disk)?,
    })
}

/// Two ways to say one thing must say the same.
fn one_of<N: PartialEq>(
    name: &str,
    value: Option<N>,
    other: &str,
    same: Option<N>,
) -> Result<Option<N>, RequestError> {
    match (value, same) {
        (Some(value), Some(same)) if value != same => Err(invalid(
            format!("`{name}` and `{other}` say different things."),
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "checked to be between 0 and the cap, which is days at most"
)]
pub(super) fn milliseconds(seconds: f64, cap_ms: u64) -> Result<u64, RequestError> {
    let cap = cap_ms as f64 / 1000.0;
    if !(seconds > 0.0 && seconds <= cap) {
        return Err(invalid(
            format!("timeout_seconds = {seconds} is outside 0.1..={cap}."),
            format!("Ask for at most {cap} seconds, or have the operator raise caps.timeout_seconds."),
        ));
    }
    Ok((seconds * 1000.0).round() as u64)
}

/// Runs the request; a caller who cancels or leaves takes the run with it.
pub(super) async fn call(
    engine: &Engine,
    caller: &Caller,
    request: ExecuteRequest,
    code: &str,
    context: &RequestContext<RoleServer>,
    gone: &CancellationToken,
) -> Result<Answer, RequestError> {
    let reporter = progress::Reporter::for_call(context);
    let live = reporter.is_some();
    let turn = match context.extensions.get::<Arrival>() {
        Some(arrival) => arrival.turn().await,
        None => None,
    };
    let execution = engine.submit(Submission {
        request,
        stdin: Stdin::FromRequest,
        live,
        holds_changes: false,
        artifacts_to: None,
        caller: caller.clone(),
    });
    drop(turn);
    let told = context.meta.log_level().map(|level| {
        let events = engine.subscribe(Hears::AllButOutput);
        let id = Some(execution.id().to_owned());
        tokio::spawn(logging::forward(events, context.peer.clone(), level.into(), id))
    });
    let dialogues = Dialogues::begin(engine, caller, execution.id(), context);
    let canceller = execution.canceller();
    let following = progress::follow(execution, reporter);
    tokio::pin!(following);
    let result = tokio::select! {
        result = &mut following => result,
        () = context.ct.cancelled() => { canceller.cancel(); following.await }
        () = gone.cancelled() => { canceller.cancel(); following.await }
    };
    if let Some(dialogues) = dialogues {
        dialogues.end().await;
    }
    // What is to be told of the end is told before it is answered.
    if let Some(mut told) = told
        && tokio::time::timeout(TELLING, &mut told).await.is_err()
    {
        told.abort();
        tracing::debug!("log messages of a call were not taken in time");
    }
    let result = result?;
    let mut answer = answer(&result)?;
    answer.text += &advice(&result, code);
    let enough = async {
        tokio::select! {
            () = tokio::time::sleep(PICTURES_PATIENCE) => {}
            () = context.ct.cancelled() => {}
            () = gone.cancelled() => {}
        }
    };
    answer.pictures = pictures(engine, &result, enough).await;
    Ok(answer)
}

/// How long a client may take for the log messages of a call that has ended.
const TELLING: Duration = Duration::from_millis(500);
/// How many artifacts are given as pictures.
const PICTURES_MAX: usize = 4;
/// Of the file of one.
const PICTURE_BYTES_MAX: usize = 1 << 20;

/// A program may leave pictures that take long; its result shall not wait for them.
const PICTURES_PATIENCE: Duration = Duration::from_secs(3);

/// The first few, beginning with those that the program shows. What cannot be redrawn is an artifact and nothing more;
/// what a program has saved and left open is one picture.
async fn pictures(
    engine: &Engine,
    result: &ExecutionResult,
    enough: impl Future<Output = ()>,
) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let redraw = async {
        for artifact in picturesque(result).into_iter().take(PICTURES_MAX) {
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
    pictures
}

fn picturesque(result: &ExecutionResult) -> Vec<&Artifact> {
    const MIMES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    let shown = |artifact: &Artifact| {
        let mut names = result.display.iter().map(|display| display.artifact.as_ref());
        names.any(|name| name == Some(&artifact.name))
    };
    let is_picture = |artifact: &&Artifact| MIMES.contains(&artifact.mime.as_str());
    let mut pictures: Vec<&Artifact> = result.artifacts.iter().filter(is_picture).collect();
    pictures.sort_by_key(|artifact| !shown(artifact));
    pictures
}

/// Links of one answer; the structured result names all.
const LINKS_MAX: usize = 20;

fn answer(result: &ExecutionResult) -> Result<Answer, RequestError> {
    let structured = serde_json::to_value(result).map_err(|error| {
        RequestError::new(
            ErrorCode::SandboxFault,
            format!("the result cannot be written: {error}."),
            "Report this.",
        )
        .for_execution(&result.execution_id)
    })?;
    Ok(Answer {
        links: result
            .artifacts
            .iter()
            .filter_map(resources::link)
            .take(LINKS_MAX)
            .collect(),
        ..Answer::plain(text(result), structured)
    })
}

/// What of each stream stands in the text for people; all of it stands in the structured result.
const SHOWN_BYTES_MAX: usize = 32 << 10;

fn text(result: &ExecutionResult) -> String {
    let mut text = headline(result);
    text += &format!("\nexecution_id: {}", result.execution_id);
    match &result.session_ended {
        Some(end) => {
            text += &format!("\nthe session has ended: {end}; make another with create_session");
        }
        None if result.session_id.is_some() && !result.success => {
            text += "\nthe session and its state are kept";
        }
        None => {}
    }
    for (name, stream, total) in [
        ("stdout", &result.stdout, result.stdout_bytes),
        ("stderr", &result.stderr, result.stderr_bytes),
    ] {
        if !stream.is_empty() {
            let shown = beginning(stream, SHOWN_BYTES_MAX);
            text += &format!("\n\n{name}:\n{}", shown.trim_end_matches('\n'));
            if (shown.len() as u64) < total {
                text += &format!("\n[{} of {total} bytes shown]", shown.len());
            }
        }
    }
    if let Some(repr) = &result.result_repr {
        text += &format!("\n\nresult: {}", beginning(repr, SHOWN_BYTES_MAX));
    }
    if let Some(error) = &result.error {
        text += &format!("\n\nerror: {}", shown(error));
        if error.is_missing_module() {
            text += "\nnext: name the package that has it in `packages`.";
        }
    }
    for artifact in &result.artifacts {
        text += &format!(
            "\nartifact: {} ({}, {} bytes)",
            artifact.name, artifact.mime, artifact.size_bytes
        );
    }
    for denial in &result.denials {
        text += &format!("\nrefused: {}: {} {}", denial.rule, denial.what, denial.hint);
    }
    text
}

/// What was found of the code, below what it did.
fn advice(result: &ExecutionResult, code: &str) -> String {
    let Some(found) = &result.validation else {
        return String::new();
    };
    let mut text = String::new();
    if !found.fixes_applied.is_empty() {
        text += &format!("\n\nadded to the code: {}", found.fixes_applied.join("; "));
    }
    let frames = frames::of_code(name_of(result.language), code, found, Bounds::RESULT);
    if !frames.is_empty() {
        text += &format!(
            "\n\nfound in the code (advice; the walls do not depend on it):\n{}",
            frames.plain().trim_end()
        );
    }
    text
}

/// With the line, which Python tells in the message of some already.
fn shown(error: &ProgramError) -> String {
    let line = error
        .line
        .filter(|line| !error.message.contains(&format!(", line {line})")))
        .map_or_else(String::new, |line| format!(" (line {line})"));
    format!("{}{line}", beginning(&error.to_string(), SHOWN_BYTES_MAX))
}

fn headline(result: &ExecutionResult) -> String {
    let end = match result.exit.kind {
        ExitKind::Code if result.success => "finished".to_owned(),
        ExitKind::Code => format!("failed with exit code {}", result.exit_code),
        ExitKind::Signal => format!("ended by signal {}", result.exit.signal.unwrap_or_default()),
        ExitKind::Timeout => "stopped: out of time".to_owned(),
        ExitKind::OutOfMemory => "stopped: out of memory".to_owned(),
        ExitKind::Limit => format!(
            "stopped: limit {}",
            result.exit.limit.as_deref().unwrap_or("passed")
        ),
        ExitKind::Cancelled => "cancelled".to_owned(),
    };
    format!(
        "{} {end} after {:.0} ms, isolation {}",
        result.language, result.duration_ms, result.isolation.tier
    )
}

/// At most so many bytes, cut between characters.
fn beginning(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
#[path = "execute_code_tests.rs"]
pub(super) mod tests;
