//! `ringfence run`: one script, its output as it comes, its exit code.

use super::{
    Context, FAILED, below_floor,
    commit::{self, Decided, Keyboard, Question, Wish},
    fault,
    findings::Source,
    request, set, validate,
};
use crate::{
    control,
    log::{self, Log},
    settings::{Layer, LogLevel},
    telemetry::{Address, Telemetry},
    terminal::{Raw, Terminal},
};
use clap::Args;
use ringfence_engine::{
    Caller, Canceller, Conflicts, Engine, EngineSettings, Execution, HeldChanges, LAST_WORDS, OutputStream,
    Stdin, Submission, UNTOLD,
};
use ringfence_types::{
    ErrorCode, ExecuteRequest, ExecutionResult, ExitKind, ModuleName, Profile, ProgramError, RequestError,
    SessionId, Validate, WorkspaceMode, WorkspaceSource,
};
use serde_json::json;
use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::Duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Script to run, or `-` for standard input
    pub(super) script: PathBuf,
    /// Language: python, node, typescript or shell [default: by the file's ending, else its first line]
    #[arg(short, long, value_name = "NAME")]
    pub(super) language: Option<String>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(super) timeout: Option<f64>,
    /// What makes the sandbox
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// A host that the script may reach, as example.com, *.example.com, example.com:8443 or "GET example.com/path"; with any, only
    /// these, and not those of egress.allow
    #[arg(long, value_name = "HOST")]
    pub(super) allow: Vec<String>,
    /// Look at the script first: warn tells findings and refuses what the profile forbids, fix adds missing imports, too, and
    /// strict refuses warnings
    #[arg(long, value_name = "off|warn|fix|strict", default_value = "off", value_parser = validation, hide_default_value = true)]
    pub(super) validate: Validate,
    /// What Python may import, and by which rules it is read: unrestricted, basic, data_science, network, filesystem or strict
    #[arg(long, value_name = "NAME", value_parser = validate::profile)]
    pub(super) profile: Option<Profile>,
    /// A module that Python may import besides those of the profile; under `unrestricted`, nothing but these
    #[arg(long, value_name = "MODULE")]
    pub(super) allow_import: Vec<ModuleName>,
    /// A package that the script imports, as `numpy` or `lodash@4`; installed once, and kept for the next run
    #[arg(long, value_name = "NAME")]
    pub(super) package: Vec<String>,
    /// The session of a running server to run in, instead of a sandbox of its own; standard input that is no terminal is read
    /// to its end first
    #[arg(long, value_name = "ID", conflicts_with_all = ["allow", "language", "workspace", "artifacts", "memory", "cpus", "processes", "disk", "env", "secret", "backend", "package", "commit", "discard", "validate", "profile", "allow_import"])]
    pub(super) session: Option<SessionId>,
    /// Directory of the host to work in, and how: read-only, read-write, or with changes kept out of it until they are
    /// committed; `namespace`: the one that is kept for the namespace; or the name of one that the configuration lists
    #[arg(long, value_name = "DIR:ro|rw|overlay")]
    pub(super) workspace: Option<String>,
    /// Write what the script changed in DIR:overlay to the directory, if it succeeds, without asking
    #[arg(long, conflicts_with = "discard")]
    commit: bool,
    /// With --commit: also over what the host itself has changed in the directory meanwhile
    #[arg(long, requires = "commit")]
    overwrite: bool,
    /// Show what the script changed in DIR:overlay, and give it up without asking
    #[arg(long)]
    discard: bool,
    /// Print one JSON document with everything about the run, instead of streaming its output
    #[arg(long)]
    json: bool,
    /// Copy the files that the script leaves into this directory
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// Memory limit, as 256m or 1g
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<String>,
    /// Processor cores; fractions are allowed
    #[arg(long, value_name = "CORES")]
    pub(super) cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    pub(super) processes: Option<u32>,
    /// Private disk, as 256m or 1g
    #[arg(long, value_name = "SIZE")]
    pub(super) disk: Option<String>,
    /// A variable for the script, whose environment is otherwise built from nothing
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// A secret of the vault that the script gets as a variable of this name
    #[arg(long, value_name = "NAME")]
    pub(super) secret: Vec<String>,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    raw: bool,
    /// The script's own arguments
    #[arg(last = true, value_name = "ARGS")]
    pub(super) args: Vec<String>,
}

fn validation(word: &str) -> Result<Validate, String> {
    word.parse()
        .map_err(|_| format!("it is one of {}", Validate::WORDS.join(", ")))
}

impl RunArguments {
    fn wish(&self) -> Option<Wish> {
        let discard = self.discard.then_some(Wish::Discard);
        let conflicts = if self.overwrite {
            Conflicts::Overwrite
        } else {
            Conflicts::Refuse
        };
        self.commit.then_some(Wish::Commit(conflicts)).or(discard)
    }
}

/// Broken pipe, as a shell shows it: 128 + SIGPIPE.
pub(super) const READER_LEFT: u8 = 141;
/// How long a run may take to end after a signal.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(context: &Context, arguments: RunArguments) -> Result<ExitCode, RequestError> {
    if let Some(session) = arguments.session.clone() {
        return in_session(context, session, arguments);
    }
    let json = arguments.json;
    let workspace = arguments.workspace.clone();
    let prepared = prepare(context, arguments);
    let floor = prepared.as_ref().ok().map(|job| job.settings.tier);
    let source = prepared.as_ref().ok().and_then(|job| job.source.clone());
    let done = prepared.and_then(|job| job.perform(context.terminal));
    done.or_else(|error| {
        let error = super::hints::in_commands(request::explain_unlisted(error, workspace.as_deref()));
        if json {
            context
                .terminal
                .print_json(&json!({"error": error}))
                .map_err(|error| fault("print", &error))?;
        } else if let (Some(source), Some(found)) = (source, &error.validation) {
            source.tell(context.terminal, found);
        }
        let error = match floor {
            Some(floor) => below_floor::tell_about(error, floor),
            None => error,
        };
        if json {
            Ok(ExitCode::from(FAILED))
        } else {
            Err(error)
        }
    })
}

fn in_session(
    context: &Context,
    session: SessionId,
    arguments: RunArguments,
) -> Result<ExitCode, RequestError> {
    let timeout_ms = arguments.timeout.map(request::milliseconds).transpose()?;
    let raw = if arguments.raw {
        Raw::AsWritten
    } else {
        Raw::Neutralised
    };
    let shown = (!arguments.json).then_some(raw);
    super::session::run_script(
        context,
        session,
        &arguments.script,
        arguments.args,
        timeout_ms,
        shown,
    )
}

/// Everything that a run needs, read and checked.
struct Job {
    settings: EngineSettings,
    /// Who is told of the run.
    collector: Option<Address>,
    request: ExecuteRequest,
    /// Its text, where it is looked at.
    source: Option<Source>,
    script: PathBuf,
    artifacts: Option<PathBuf>,
    wish: Wish,
    shown: Shown,
}

/// What of the run is printed.
#[derive(Clone, Copy)]
enum Shown {
    Document,
    Streams(Raw),
}

fn prepare(context: &Context, arguments: RunArguments) -> Result<Job, RequestError> {
    let mut layer = Layer::default();
    if let Some(backend) = &arguments.backend {
        set(&mut layer, "backend", backend, "--backend")?;
    }
    let config = context.settings(layer, LogLevel::Error)?;
    Log::begin(config.log);
    let request = request::from_arguments(&arguments)?;
    let wish = Wish::of(arguments.wish(), &request)?;
    let raw = if arguments.raw {
        Raw::AsWritten
    } else {
        Raw::Neutralised
    };
    let shown = if arguments.json {
        Shown::Document
    } else {
        Shown::Streams(raw)
    };
    let RunArguments {
        script, artifacts, ..
    } = arguments;
    Ok(Job {
        settings: config.engine,
        collector: config.otlp,
        source: Source::of(&request, &script),
        request,
        script,
        artifacts,
        wish,
        shown,
    })
}

impl Job {
    fn perform(self, terminal: Terminal) -> Result<ExitCode, RequestError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| fault("start", &error))?;
        let done = runtime.block_on(self.live(terminal));
        // A read of our standard input may still wait for bytes that nobody needs any more.
        runtime.shutdown_background();
        done
    }

    async fn live(self, terminal: Terminal) -> Result<ExitCode, RequestError> {
        let mut signals = Signals::new().map_err(|error| fault("listen for signals", &error))?;
        let engine = Engine::open(self.settings.clone())?;
        let control = control::open_for_questions(&self.settings, &engine).await;
        log::redact_with(engine.log_redactor());
        let telemetry = self.collector.map(Telemetry::begin);
        if let Some(telemetry) = &telemetry {
            telemetry.follow(&engine);
        }
        let keyboard = Keyboard::new();
        let stdin = input(&self.script, &keyboard);
        let live = matches!(self.shown, Shown::Streams(_));
        let is_asked = live && can_be_asked(&self.script, terminal);
        let kept = Kept::of(&self.request, self.artifacts.as_deref());
        let execution = engine.submit(Submission {
            request: self.request,
            stdin,
            live,
            holds_changes: true,
            artifacts_to: self.artifacts,
            caller: Caller::new("cli run"),
        });
        let canceller = execution.canceller();
        let raw = if let Shown::Streams(raw) = self.shown {
            raw
        } else {
            Raw::Neutralised
        };
        let mut following = pin!(follow(execution, canceller.clone(), terminal, raw));
        let (signal, followed) = tokio::select! {
            followed = &mut following => (None, Some(followed)),
            signal = signals.next() => {
                canceller.cancel();
                (Some(signal), tokio::time::timeout(PATIENCE, following).await.ok())
            }
        };
        let question = |has_succeeded| Question {
            wish: self.wish,
            has_succeeded,
            keyboard: is_asked.then_some(keyboard),
            is_told: live,
            terminal,
        };
        let (signal, followed) = match (signal, followed) {
            (None, Some(Ok(Followed::Ended(ended)))) => tokio::select! {
                ended = ended.decided(question) => (None, Some(ended.map(Followed::Ended))),
                signal = signals.next() => (Some(signal), None),
            },
            others => others,
        };
        drop(control);
        // The run is over or out of patience: the helper cleans up behind us.
        engine.leave();
        if let Some(telemetry) = telemetry {
            telemetry.finish().await;
        }
        match (signal, followed) {
            (None, Some(followed)) => conclude(terminal, self.shown, followed?, kept, self.source),
            (Some(signal), Some(Ok(Followed::Ended(ended)))) if !live => {
                conclude(terminal, self.shown, Followed::Ended(ended), kept, None)?;
                Ok(ExitCode::from(signal))
            }
            (signal, _) => Ok(ExitCode::from(signal.unwrap_or(FAILED))),
        }
    }
}

/// How following a run ended.
enum Followed {
    Ended(Box<Ended>),
    ReaderLeft,
}

/// A run that has come to its end.
struct Ended {
    result: ExecutionResult,
    /// What it did to an overlay, until that is decided.
    changes: Option<HeldChanges>,
    decided: Option<Decided>,
}

impl Ended {
    async fn decided(
        mut self: Box<Self>,
        question: impl FnOnce(bool) -> Question,
    ) -> Result<Box<Self>, RequestError> {
        if let Some(changes) = self.changes.take() {
            self.decided = Some(commit::decide(changes, question(self.result.success)).await?);
        } else if let Some(untold) = self.result.denials.iter().find(|denial| denial.rule == UNTOLD)
            && matches!(question(self.result.success).wish, Wish::Commit(_))
        {
            return Err(RequestError::new(
                ErrorCode::PolicyDenied,
                format!("{}.", untold.what),
                &*untold.hint,
            ));
        }
        Ok(self)
    }
}

/// Copies the output as it comes, until the result is there.
async fn follow(
    mut execution: Execution,
    canceller: Canceller,
    terminal: Terminal,
    raw: Raw,
) -> Result<Followed, RequestError> {
    let (mut out, mut err) = terminal.guest(raw);
    let (mut left, mut is_told) = (false, false);
    while let Some(chunk) = execution.next_output().await {
        let written = match chunk.stream {
            OutputStream::Stdout => out.write(&chunk.bytes).await,
            OutputStream::Stderr => ignore_lost(err.write(&chunk.bytes).await),
            OutputStream::Notice => {
                is_told = true;
                let text = String::from_utf8_lossy(&chunk.bytes);
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                lines.for_each(|line| terminal.dim(line));
                Ok(())
            }
        };
        if let Err(error) = written {
            canceller.cancel();
            if error.kind() != io::ErrorKind::BrokenPipe {
                return Err(unwritten(&error));
            }
            left = true;
            break;
        }
    }
    let ended = out.end().await;
    ignore_lost(err.end().await).map_err(|error| unwritten(&error))?;
    let result = execution.finish_with_changes().await;
    match ended {
        _ if left => Ok(Followed::ReaderLeft),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Followed::ReaderLeft),
        Err(error) => Err(unwritten(&error)),
        Ok(()) => result
            .map_err(|error| if is_told { without_last_words(error) } else { error })
            .map(|(result, changes)| {
                Followed::Ended(Box::new(Ended {
                    result,
                    changes,
                    decided: None,
                }))
            }),
    }
}

/// What an installer has said stands above already.
fn without_last_words(mut error: RequestError) -> RequestError {
    if let Some(end) = error.message.find(LAST_WORDS) {
        error.message.truncate(end);
    }
    error
}

pub(super) fn unwritten(error: &io::Error) -> RequestError {
    RequestError::new(
        ErrorCode::SandboxFault,
        format!("could not write the script's output: {error}."),
        "Send it to a place that takes it.",
    )
}

/// Nobody reads our stderr any more: the run goes on for the sake of its stdout.
pub(super) fn ignore_lost(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Which of the files that the script leaves outlive it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// All: they are copied out.
    All,
    /// Those of the workspace, which is the host's own directory.
    Workspace,
    /// Those of the workspace, which were written to the host's directory.
    Committed,
    None,
}

impl Kept {
    fn of(request: &ExecuteRequest, artifacts: Option<&Path>) -> Self {
        match &request.workspace {
            _ if artifacts.is_some() => Self::All,
            WorkspaceSource::Namespace
            | WorkspaceSource::Listed(_)
            | WorkspaceSource::Host {
                mode: WorkspaceMode::Rw,
                ..
            } => Self::Workspace,
            WorkspaceSource::Host { .. } | WorkspaceSource::Private => Self::None,
        }
    }

    /// `output/...` is the output directory, anything else is the workspace.
    fn keeps(self, artifact: &str, signature: Option<&str>) -> bool {
        match self {
            Self::All => true,
            // What a listed directory's overlay had is stored, as is what was left in the output directory.
            Self::Workspace => signature.is_none() && !artifact.starts_with("output/"),
            Self::Committed => !artifact.starts_with("output/"),
            Self::None => false,
        }
    }
}

fn conclude(
    terminal: Terminal,
    shown: Shown,
    followed: Followed,
    kept: Kept,
    source: Option<Source>,
) -> Result<ExitCode, RequestError> {
    let Followed::Ended(ended) = followed else {
        return Ok(ExitCode::from(READER_LEFT));
    };
    let Ended { result, decided, .. } = *ended;
    let kept = match &decided {
        Some(decided) if decided.committed.is_some() => Kept::Committed,
        _ => kept,
    };
    match shown {
        Shown::Document => {
            let mut document = json!(result);
            if let Some(decided) = decided {
                document["changes"] = decided.into_facts();
            }
            terminal
                .print_json(&document)
                .map_err(|error| fault("print", &error))?;
        }
        Shown::Streams(_) => {
            if let (Some(source), Some(found)) = (source, &result.validation) {
                source.tell(terminal, found);
            }
            explain_end(terminal, &result, Where::OfItsOwn);
            if result.error.as_ref().is_some_and(ProgramError::is_missing_module) {
                terminal.dim("a package that has it is installed with --package NAME");
            }
            for denial in &result.denials {
                let lost = if denial.rule == "artifacts.plain_files" {
                    "not kept: "
                } else {
                    ""
                };
                terminal.dim(&format!(
                    "{lost}{} ({})",
                    denial.what,
                    super::hints::words(&denial.hint)
                ));
            }
            if let Some(line) = left_behind(&result, kept) {
                terminal.dim(&line);
            }
        }
    }
    Ok(ExitCode::from(u8::try_from(result.exit_code).unwrap_or(FAILED)))
}

/// Whose limits a script had.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    OfItsOwn,
    InSession,
}

/// An end that the script's own output cannot explain.
pub(super) fn explain_end(terminal: Terminal, result: &ExecutionResult, place: Where) {
    let (message, hint) = match result.exit.kind {
        ExitKind::Timeout => (
            "the script ran out of time and was stopped.",
            "Allow more with --timeout SECONDS.",
        ),
        ExitKind::OutOfMemory => (
            "the script ran out of memory and was stopped.",
            if place == Where::InSession {
                "Make a session that has more, with `ringfence session create --memory SIZE`; files that it wrote count, too."
            } else {
                "Allow more with --memory SIZE; files that it wrote count, too."
            },
        ),
        ExitKind::Limit => match result.exit.limit.as_deref() {
            Some("disk") if place == Where::InSession => (
                "the script filled the session's disk and was stopped.",
                "Make a session that has more, with `ringfence session create --disk SIZE`.",
            ),
            Some("disk") => (
                "the script filled its disk and was stopped.",
                "Allow more with --disk SIZE.",
            ),
            _ => (
                "the script passed a limit and was stopped.",
                "`--json` says which.",
            ),
        },
        ExitKind::Signal => (
            "the script was ended by a signal.",
            "Its status is 128 + the signal's number.",
        ),
        ExitKind::Code | ExitKind::Cancelled => return,
    };
    terminal.complain(message, hint);
}

const NAMES_SHOWN: usize = 5;

fn left_behind(result: &ExecutionResult, kept: Kept) -> Option<String> {
    let lost = result
        .artifacts
        .iter()
        .filter(|artifact| !kept.keeps(&artifact.name, artifact.signature.as_deref()));
    let lost: Vec<&str> = lost.map(|artifact| artifact.name.as_str()).collect();
    if lost.is_empty() {
        return None;
    }
    let names = some_of(lost.into_iter());
    // Those that the store has are signed.
    let is_stored = result
        .artifacts
        .iter()
        .any(|artifact| artifact.signature.is_some());
    let how = if is_stored {
        format!(
            "get them with `ringfence artifacts {} --out DIR`",
            result.execution_id
        )
    } else {
        "keep such files with --artifacts DIR".to_owned()
    };
    Some(format!("left behind: {names} ({how})"))
}

/// The first few names, and how many more there are.
pub(super) fn some_of<'a>(mut names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let shown = names.by_ref().take(NAMES_SHOWN).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Is somebody there who sees a question and can answer it.
fn can_be_asked(script: &Path, terminal: Terminal) -> bool {
    script != Path::new(request::STDIN) && has_answers(terminal)
}

/// The same, where no script reads our standard input.
pub(super) fn has_answers(terminal: Terminal) -> bool {
    io::stdin().is_terminal() && !in_background() && terminal.has_person()
}

/// The script's standard input. When the script itself came from there, nothing is left of it.
fn input(script: &Path, keyboard: &Keyboard) -> Stdin {
    if script == Path::new(request::STDIN) || (io::stdin().is_terminal() && in_background()) {
        return Stdin::FromRequest;
    }
    Stdin::Stream(Box::new(keyboard.clone()))
}

/// A background job that reads its terminal is stopped by SIGTTIN, wanted or not.
fn in_background() -> bool {
    fs::read_to_string("/proc/self/stat").is_ok_and(|stat| background_in(&stat))
}

/// Fields 5 (process group) and 8 (foreground group of the terminal) of proc_pid_stat(5); the name in field 2 may hold
/// anything, so counting starts behind it.
fn background_in(stat: &str) -> bool {
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(2);
    let group = fields.next();
    let foreground = fields.nth(2);
    group.is_some() && foreground.is_some() && group != foreground
}

/// The signals that ask us to stop, with the exit code that each gives.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hangup.recv() => 129,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_stay_are_not_called_left_behind() {
        let check =
            |kept: Kept, name: &str, expect: bool| assert_eq!(kept.keeps(name, None), expect, "{name}");
        check(Kept::None, "a", false);
        check(Kept::Workspace, "a", true);
        check(Kept::Workspace, "output/a", false);
        check(Kept::All, "output/a", true);
    }

    #[test]
    fn a_background_job_is_told_from_its_process_groups() {
        assert!(!background_in("17 (ringfence) S 1 17 17 34816 17 4194304 0"));
        assert!(background_in("17 (ringfence) S 1 17 17 34816 99 4194304 0"));
        assert!(background_in("17 (a) b) (c) S 1 17 17 34816 99 4194304 0"));
        assert!(!background_in(""));
    }
}
