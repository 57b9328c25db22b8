//! `ringfence run`: runs one script, streams its output and exits with its exit code.

mod arguments;

pub(super) use arguments::RunArguments;

use super::{
    CommandResult, Context, FAILED,
    commit::{self, CommitChoice, Keyboard, Question},
    fault, hints, live,
    outcome::{
        ProgramOutput, READER_LEFT, Source, exit_code, explain, in_background, is_interactive,
        mention_artifacts,
    },
    request, set,
};
use crate::{
    control,
    executable::SELF,
    log::{self, Log},
    settings::{Config, Layer, LogLevel},
    telemetry::Telemetry,
    terminal::{Raw, Terminal},
};
use ringfence_engine::{
    Caller, Canceller, EarlyStart, Engine, Execution, HeldChanges, OutputChunk, OutputStream, Stdin,
    Submission, UNTOLD,
};
use ringfence_types::{ExecuteRequest, ExecutionResult, RequestError};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::Duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time that a run has to end after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Forks the helper if the command line begins with `run`, so that it starts while settings and the script are read.
pub(super) fn fork_helper(words: &[OsString]) -> Option<Result<EarlyStart, RequestError>> {
    let is_run = words.get(1).is_some_and(|word| word == "run");
    is_run.then(|| EarlyStart::fork(PathBuf::from(SELF)))
}

pub(super) fn run(
    context: &Context,
    arguments: RunArguments,
    helper: Option<Result<EarlyStart, RequestError>>,
) -> CommandResult {
    if let Some(session) = arguments.session.clone() {
        return super::session::run_script(context, session, arguments);
    }
    let helper = helper.unwrap_or_else(|| EarlyStart::begin(PathBuf::from(SELF)));
    let json = arguments.json;
    let workspace = arguments.workspace.clone();
    let prepared = prepare(context, arguments);
    let source = prepared.as_ref().ok().and_then(|job| job.source.clone());
    let done = prepared.and_then(|job| job.perform(helper?, context.terminal));
    done.map_err(|error| {
        let error = hints::in_commands(request::explain_unlisted(error, workspace.as_deref()));
        if let (false, Some(source), Some(found)) = (json, source, &error.validation) {
            source.report(context.terminal, found);
        }
        error
    })
}

struct Job {
    config: Config,
    request: ExecuteRequest,
    source: Option<Source>,
    choice: CommitChoice,
    arguments: RunArguments,
}

fn prepare(context: &Context, arguments: RunArguments) -> Result<Job, RequestError> {
    let mut layer = Layer::default();
    if let Some(backend) = &arguments.backend {
        set(&mut layer, "backend", backend, "--backend")?;
    }
    let config = context.settings(layer, LogLevel::Error)?;
    Log::begin(config.log);
    let request = arguments.request()?;
    Ok(Job {
        config,
        source: Source::of(&request, &arguments.script),
        choice: CommitChoice::of(arguments.choice(), &request)?,
        request,
        arguments,
    })
}

impl Job {
    fn perform(self, helper: EarlyStart, terminal: Terminal) -> CommandResult {
        let runtime = live::runtime()?;
        let done = runtime.block_on(self.live(helper, terminal));
        // A read of our standard input may still be pending; its bytes are not needed.
        runtime.shutdown_background();
        done
    }

    async fn live(self, helper: EarlyStart, terminal: Terminal) -> CommandResult {
        let mut signals = Signals::new().map_err(|error| fault("listen for signals", &error))?;
        let engine = Engine::open_with(helper, self.config.engine.clone(), Some(&self.request))?;
        let control = control::open_for_approvals(&self.config.engine, &engine).await;
        log::redact_with(engine.log_redactor());
        let telemetry = self.config.otlp.as_ref().and_then(Telemetry::begin);
        if let Some(telemetry) = &telemetry {
            telemetry.follow(&engine);
        }
        let keyboard = Keyboard::new();
        let arguments = self.arguments;
        let stdin = input(&arguments.script, &keyboard);
        let live = !arguments.json;
        let may_ask = live && arguments.script != Path::new(request::STDIN) && is_interactive(terminal);
        let execution = engine.submit(Submission {
            request: self.request,
            stdin,
            live,
            holds_changes: true,
            artifacts_to: arguments.artifacts.clone(),
            caller: Caller::new("cli run"),
        });
        let canceller = execution.canceller();
        let output = ProgramOutput::new(terminal, Raw::from(live && arguments.raw));
        let mut following = pin!(follow(execution, canceller.clone(), terminal, output));
        let (signal, followed) = tokio::select! {
            followed = &mut following => (None, Some(followed)),
            signal = signals.next() => {
                canceller.cancel();
                (Some(signal), tokio::time::timeout(END_TIMEOUT, following).await.ok())
            }
        };
        let question = |has_succeeded| Question {
            choice: self.choice,
            has_succeeded,
            keyboard: may_ask.then_some(keyboard),
            is_shown: live,
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
        match &followed {
            Some(_) => engine.leave_at_exit(),
            None => engine.leave(), // timed out: programs that still run end now
        }
        if let Some(telemetry) = telemetry {
            telemetry.finish().await;
        }
        match (signal, followed) {
            (None, Some(followed)) => conclude(terminal, &arguments, followed?, self.source),
            (Some(signal), Some(Ok(Followed::Ended(ended)))) if !live => {
                conclude(terminal, &arguments, Followed::Ended(ended), None)?;
                Ok(ExitCode::from(signal))
            }
            (signal, _) => Ok(ExitCode::from(signal.unwrap_or(FAILED))),
        }
    }
}

enum Followed {
    Ended(Box<Ended>),
    ReaderLeft,
}

struct Ended {
    result: ExecutionResult,
    changes: Option<HeldChanges>,
    decided: Option<Value>,
}

impl Ended {
    async fn decided(
        mut self: Box<Self>,
        question: impl FnOnce(bool) -> Question,
    ) -> Result<Box<Self>, RequestError> {
        if let Some(changes) = self.changes.take() {
            self.decided = Some(commit::decide(changes, question(self.result.success)).await?);
        } else if let Some(untold) = self.result.denials.iter().find(|denial| denial.rule == UNTOLD)
            && matches!(question(self.result.success).choice, CommitChoice::Commit(_))
        {
            return Err(RequestError::denied(format!("{}.", untold.what), &*untold.hint));
        }
        Ok(self)
    }
}

async fn follow(
    mut execution: Execution,
    canceller: Canceller,
    terminal: Terminal,
    mut output: ProgramOutput,
) -> Result<Followed, RequestError> {
    while let Some(OutputChunk { stream, bytes }) = execution.next_output().await {
        if stream == OutputStream::Notice {
            terminal.notices(&bytes);
        } else if !output.write(stream, &bytes).await {
            canceller.cancel();
            break;
        }
    }
    let reader = output.end().await;
    let ended = execution.finish_with_changes().await;
    if !reader? {
        return Ok(Followed::ReaderLeft);
    }
    let (result, changes) = ended?;
    let ended = Ended {
        result,
        changes,
        decided: None,
    };
    Ok(Followed::Ended(Box::new(ended)))
}

fn conclude(
    terminal: Terminal,
    arguments: &RunArguments,
    followed: Followed,
    source: Option<Source>,
) -> CommandResult {
    let Followed::Ended(ended) = followed else {
        return Ok(ExitCode::from(READER_LEFT));
    };
    let Ended {
        mut result, decided, ..
    } = *ended;
    if arguments.json {
        if !arguments.verbose {
            result.isolation.layers.clear();
        }
        hints::result_in_commands(&mut result);
        let mut document = json!(result);
        if let Some(decided) = decided {
            document["changes"] = decided;
        }
        super::printed(terminal.print_json(&document))?;
    } else {
        if let (Some(source), Some(found)) = (source, &result.validation) {
            source.report(terminal, found);
        }
        explain(terminal, &result);
        if let Some(error) = &result.error {
            // A refused import that the program caught did not end it: only the one in its error is explained.
            let refused = error.message.strip_prefix("ringfence: module '");
            let refused = refused.and_then(|rest| Some(format!("import of `{}`", rest.split_once('\'')?.0)));
            let mut events = result.security_events.iter();
            let event =
                events.find(|event| refused.as_ref().is_some_and(|what| event.what.starts_with(what)));
            if let Some(event) = event {
                terminal.dim(&hints::rewrite(&event.hint));
            }
            if error.is_missing_module() {
                terminal.dim("install the package that has it with --package NAME");
            }
        }
        if arguments.artifacts.is_none() {
            mention_artifacts(terminal, &result);
        }
    }
    Ok(ExitCode::from(exit_code(&result)))
}

/// The script's standard input: none if the script was read from it, or if it is a terminal and we run in background.
fn input(script: &Path, keyboard: &Keyboard) -> Stdin {
    if script == Path::new(request::STDIN) || (io::stdin().is_terminal() && in_background()) {
        return Stdin::FromRequest;
    }
    Stdin::Stream(Box::new(keyboard.clone()))
}

/// The signals that ask us to stop. `next` returns the exit code of the first one.
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
