//! `ringfence session exec` and `run --session`: make one call, stream its output and exit with its exit code.

use super::INTERRUPTED;
use crate::{
    cli::{
        CommandResult, Context, hints, interrupts,
        live::{self, Options},
        outcome::{ProgramOutput, READER_LEFT, exit_code, explain, mention_artifacts},
        printed, report_error,
        request::{self, STDIN},
        run::RunArguments,
    },
    control::{self, Bytes, Request, Response, SessionCall},
    terminal::{Raw, Terminal, neutral},
};
use clap::Args;
use ringfence_types::{ExecutionResult, ExitKind, Language, RequestError, STDIN_BYTES_MAX, SessionId};
use serde_json::{Value, json};
use std::{
    cell::Cell,
    io::{IsTerminal, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use tokio::{
    signal::unix::Signal,
    time::{Instant, timeout_at},
};

const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Signals that arrive within this time count as one: timeout(1) sends two.
const SIGNAL_GAP: Duration = Duration::from_millis(200);
const SHOWN_BYTES_MAX: usize = 32 << 10;

#[derive(Debug, Args)]
pub(super) struct Exec {
    /// Session id, as printed by `session create`
    session: SessionId,
    /// Script to run, or `-` for standard input
    #[arg(required_unless_present = "code")]
    script: Option<PathBuf>,
    /// The code itself
    #[arg(short, long, value_name = "CODE", conflicts_with = "script")]
    code: Option<String>,
    /// Standard input of the code: a file, or `-` for our own, which is otherwise not read
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS", value_parser = request::seconds)]
    timeout: Option<u64>,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    opts: Options,
    /// The code's own arguments
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(super) fn exec(context: &Context, exec: Exec) -> CommandResult {
    let script = exec.script.as_deref().unwrap_or(Path::new(STDIN));
    let is_code = exec.code.is_some();
    if !is_code && script == Path::new(STDIN) && exec.stdin.as_deref() == Some(script) {
        return Err(RequestError::invalid(
            "the script and what it reads cannot both come from standard input.",
            "Give the code with -c, or name a file.",
        ));
    }
    let (code, name) = match exec.code {
        Some(code) => (code, None),
        None => (request::read_script(script)?, request::script_name(script)),
    };
    let language = request::language_of(script, &code).filter(|_| !is_code);
    let stdin = exec.stdin.as_deref();
    let stdin = stdin.map(|file| request::read_input(file, STDIN_BYTES_MAX, "the code's standard input"));
    let call = SessionCall {
        session: exec.session,
        code,
        language,
        name,
        args: request::arguments(&exec.args)?,
        stdin: Bytes(stdin.transpose()?.unwrap_or_default()),
        timeout_ms: exec.timeout,
    };
    let stream = (!exec.opts.json).then_some(Raw::from(exec.raw));
    perform(context, call, exec.opts.server, stream)
}

/// `run --session`: like `session exec`; standard input is passed on, unless it is the script or a terminal.
pub(in crate::cli) fn run_script(
    context: &Context,
    session: SessionId,
    arguments: RunArguments,
) -> CommandResult {
    let keeps_stdin = arguments.script == Path::new(STDIN) || stdin().is_terminal();
    let call = Exec {
        session,
        script: Some(arguments.script),
        code: None,
        stdin: (!keeps_stdin).then(|| PathBuf::from(STDIN)),
        timeout: arguments.sandbox.timeout,
        raw: arguments.raw,
        opts: Options {
            server: None,
            json: arguments.json,
        },
        args: arguments.args,
    };
    exec(context, call)
}

/// Makes the call. `stream` is the form of streamed output; without it one document is printed instead.
fn perform(context: &Context, call: SessionCall, server: Option<u32>, stream: Option<Raw>) -> CommandResult {
    let terminal = context.terminal;
    let state_dir = context.state_dir()?;
    let (is_interrupted, facts) = match live::wait(follow(terminal, &state_dir, call, server, stream))? {
        Followed::ReaderLeft => return Ok(ExitCode::from(READER_LEFT)),
        Followed::Abandoned => {
            terminal.dim("interrupted, without waiting for its end");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        // Interrupted before it began.
        Followed::Ended(true, Err(error)) => {
            report_error(terminal, stream.is_none(), &error);
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Followed::Ended(is_interrupted, facts) => (is_interrupted, facts?),
    };
    let mut result: ExecutionResult = serde_json::from_value(facts).map_err(|_| live::not_understood())?;
    match stream {
        None => {
            hints::result_in_commands(&mut result);
            printed(terminal.print_json(&json!(result)))?;
        }
        Some(_) => {
            conclude(terminal, &result)?;
            match &result.session_ended {
                Some(end) => {
                    let end = neutral::line(end);
                    terminal.dim(&format!(
                        "the session has ended: {end}; make another with `ringfence session create`"
                    ));
                }
                None if is_interrupted => terminal.dim("interrupted; the session is kept"),
                None if result.exit.kind == ExitKind::Timeout => {
                    terminal.dim("the session and its state are kept");
                }
                None => {}
            }
        }
    }
    Ok(ExitCode::from(if is_interrupted {
        INTERRUPTED
    } else {
        exit_code(&result)
    }))
}

fn conclude(terminal: Terminal, result: &ExecutionResult) -> Result<(), RequestError> {
    // The value of a shell's call is only its exit status.
    let value = result.result_repr.as_deref();
    if let Some(value) = value.filter(|_| result.language != Language::Shell) {
        let gap = if result.stdout.is_empty() || result.stdout.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        printed(terminal.print_value(&format!("{gap}{value}\n"), SHOWN_BYTES_MAX))?;
    }
    explain(terminal, result);
    mention_artifacts(terminal, result);
    Ok(())
}

enum Followed {
    /// True if Ctrl-C was pressed, and the facts of the result.
    Ended(bool, Result<Value, RequestError>),
    /// The end is no longer awaited. The server interrupts the call when we close the connection.
    Abandoned,
    ReaderLeft,
}

async fn follow(
    terminal: Terminal,
    state_dir: &Path,
    call: SessionCall,
    server: Option<u32>,
    stream: Option<Raw>,
) -> Result<Followed, RequestError> {
    let request = Request::SessionExec { call: Box::new(call) };
    let pid = live::server_for(state_dir, server, &request).await?;
    let (mut first, both) = (interrupts()?, interrupts()?);
    let mut output = ProgramOutput::new(terminal, stream.unwrap_or(Raw::Neutralised));
    let is_interrupted = Cell::new(false);
    let on_response = async |response: Response| stream.is_none() || output.write_response(response).await;
    let interrupt = async {
        first.recv().await;
        is_interrupted.set(true);
    };
    let followed = tokio::select! {
        followed = control::follow_one(state_dir, Some(pid), &request, on_response, interrupt) => followed,
        () = abandoned(both) => return Ok(Followed::Abandoned),
    };
    if !output.end().await? {
        return Ok(Followed::ReaderLeft);
    }
    let facts = followed.map(|(_, answer)| answer.facts);
    Ok(Followed::Ended(is_interrupted.get(), facts))
}

/// Returns after a second Ctrl-C, or once `END_TIMEOUT` has passed since the first.
async fn abandoned(mut interrupts: Signal) {
    interrupts.recv().await;
    let begun = Instant::now();
    while timeout_at(begun + END_TIMEOUT, interrupts.recv()).await.is_ok() {
        if begun.elapsed() >= SIGNAL_GAP {
            return;
        }
    }
}
