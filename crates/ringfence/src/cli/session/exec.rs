//! `ringfence session exec` and `run --session`: one call, its output as it comes, its exit code.

use super::{INTERRUPTED, its_server, state_dir};
use crate::{
    cli::{
        Context, FAILED, fault, hints,
        live::{self, Ask},
        request::{self, STDIN},
        run::{READER_LEFT, Where, explain_end, ignore_lost, some_of, unwritten},
    },
    control::{self, Bytes, Call, Piece, Request},
    terminal::{Raw, Terminal, neutral},
};
use clap::Args;
use ringfence_types::{
    ErrorCode, ExecutionResult, ExitKind, Language, RequestError, STDIN_BYTES_MAX, ScriptName, SessionId,
};
use serde_json::{Value, json};
use std::{
    cell::Cell,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, timeout_at},
};

/// How long an interrupted call may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Signals that come closer together are one: timeout(1) sends two.
const APART: Duration = Duration::from_millis(200);
/// Of a value, on a terminal.
const SHOWN_BYTES_MAX: usize = 32 << 10;

#[derive(Debug, Args)]
pub(super) struct Exec {
    /// What `session create` printed
    session: SessionId,
    /// Script to run, or `-` for standard input
    #[arg(required_unless_present = "code")]
    script: Option<PathBuf>,
    /// The code itself
    #[arg(short, long, value_name = "CODE", conflicts_with = "script")]
    code: Option<String>,
    /// What the code can read as its standard input: a file, or `-` for our own, which is not read otherwise
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    ask: Ask,
    /// The code's own arguments
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(super) fn exec(context: &Context, exec: Exec) -> Result<ExitCode, RequestError> {
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
    let language = if is_code {
        None
    } else {
        request::language_of(script, &code)
    };
    let stdin = exec
        .stdin
        .as_deref()
        .map(|file| request::read_input(file, STDIN_BYTES_MAX, "the code's standard input"));
    let call = Call {
        session: exec.session,
        code,
        language,
        name,
        args: exec.args,
        stdin: Bytes(stdin.transpose()?.unwrap_or_default()),
        timeout_ms: exec.timeout.map(request::milliseconds).transpose()?,
    };
    let raw = if exec.raw {
        Raw::AsWritten
    } else {
        Raw::Neutralised
    };
    perform(context, call, exec.ask.server, (!exec.ask.json).then_some(raw))
}

/// `run --session`: the same, with what `run` knows of a script.
pub(in crate::cli) fn run_script(
    context: &Context,
    session: SessionId,
    script: &Path,
    args: Vec<String>,
    timeout_ms: Option<u64>,
    shown: Option<Raw>,
) -> Result<ExitCode, RequestError> {
    let code = request::read_script(script)?;
    let is_taken = script == Path::new(STDIN) || io::stdin().is_terminal();
    let stdin = if is_taken {
        Vec::new()
    } else {
        request::read_input(Path::new(STDIN), STDIN_BYTES_MAX, "the script's standard input")?
    };
    let name: Option<ScriptName> = request::script_name(script);
    let language: Option<Language> = request::language_of(script, &code);
    let call = Call {
        session,
        code,
        language,
        name,
        args,
        stdin: Bytes(stdin),
        timeout_ms,
    };
    perform(context, call, None, shown)
}

/// `shown`: how its output is printed as it comes; none: one document is printed instead.
fn perform(
    context: &Context,
    call: Call,
    server: Option<u32>,
    shown: Option<Raw>,
) -> Result<ExitCode, RequestError> {
    let terminal = context.terminal;
    let state_dir = state_dir(context)?;
    let (by, facts) = match live::wait(follow(terminal, &state_dir, call, server, shown))? {
        Followed::ReaderLeft => return Ok(ExitCode::from(READER_LEFT)),
        Followed::Abandoned => {
            terminal.dim("interrupted, without waiting for its end");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        // It was interrupted before it began.
        Followed::Interrupted(Err(error)) => {
            let is_told = shown.is_none() && terminal.print_json(&json!({"error": error})).is_ok();
            if !is_told {
                terminal.error(&error);
            }
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Followed::Interrupted(Ok(facts)) => (EndedBy::CtrlC, facts),
        Followed::Ended(facts) => (EndedBy::Itself, facts),
    };
    let result = understood(&facts)?;
    match shown {
        None => terminal
            .print_json(&facts)
            .map_err(|error| fault("print", &error))?,
        Some(_) => conclude(terminal, &result, by)?,
    }
    Ok(ExitCode::from(if by == EndedBy::CtrlC {
        INTERRUPTED
    } else {
        u8::try_from(result.exit_code).unwrap_or(FAILED)
    }))
}

fn understood(facts: &Value) -> Result<ExecutionResult, RequestError> {
    serde_json::from_value(facts.clone()).map_err(|_| {
        RequestError::new(
            ErrorCode::StoreFault,
            "the server's answer is not understood.",
            "Use the `ringfence` command of the server's version.",
        )
    })
}

/// What its output has not said.
fn conclude(terminal: Terminal, result: &ExecutionResult, by: EndedBy) -> Result<(), RequestError> {
    // The value of a shell's call is its status.
    let value = result.result_repr.as_deref();
    if let Some(value) = value.filter(|_| result.language != Language::Shell) {
        let gap = if result.stdout.is_empty() || result.stdout.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        terminal
            .print_value(&format!("{gap}{value}\n"), SHOWN_BYTES_MAX)
            .map_err(|error| fault("print", &error))?;
    }
    explain_end(terminal, result, Where::InSession);
    for denial in &result.denials {
        terminal.dim(&format!("{} ({})", denial.what, hints::words(&denial.hint)));
    }
    if !result.artifacts.is_empty() {
        let names = some_of(result.artifacts.iter().map(|artifact| artifact.name.as_str()));
        let id = &result.execution_id;
        terminal.dim(&format!(
            "artifacts: {names} (get them with `ringfence artifacts {id} --out DIR`)"
        ));
    }
    match &result.session_ended {
        Some(end) => {
            let end = neutral::line(end);
            terminal.dim(&format!(
                "the session has ended: {end}; make another with `ringfence session create`"
            ));
        }
        None if by == EndedBy::CtrlC => terminal.dim("interrupted; the session is kept"),
        None if result.exit.kind == ExitKind::Timeout => terminal.dim("the session and its state are kept"),
        None => {}
    }
    Ok(())
}

/// Whose wish the end of a call was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndedBy {
    Itself,
    CtrlC,
}

/// How following a call ended.
enum Followed {
    Ended(Value),
    /// By Ctrl-C, and this is what became of it.
    Interrupted(Result<Value, RequestError>),
    /// Its end is not waited for. The server interrupts it when we hang up.
    Abandoned,
    ReaderLeft,
}

async fn follow(
    terminal: Terminal,
    state_dir: &Path,
    call: Call,
    server: Option<u32>,
    shown: Option<Raw>,
) -> Result<Followed, RequestError> {
    let pid = its_server(state_dir, server, &call.session).await?;
    let listen = || signal(SignalKind::interrupt()).map_err(|error| fault("listen for signals", &error));
    let (mut once, twice) = (listen()?, listen()?);
    let (mut out, mut err) = terminal.guest(shown.unwrap_or(Raw::Neutralised));
    let request = Request::SessionExec { call: Box::new(call) };
    let mut lost: Option<io::Error> = None;
    let is_interrupted = Cell::new(false);
    let give = async |piece: Piece| {
        if shown.is_none() {
            return true;
        }
        let written = if piece.is_stderr {
            ignore_lost(err.write(&piece.bytes).await)
        } else {
            out.write(&piece.bytes).await
        };
        lost = written.err();
        lost.is_none()
    };
    let interrupt = async {
        once.recv().await;
        is_interrupted.set(true);
    };
    let followed = tokio::select! {
        followed = control::follow_one(state_dir, pid, &request, give, interrupt) => followed,
        () = abandoned(twice) => return Ok(Followed::Abandoned),
    };
    for end in [
        lost.map_or(Ok(()), Err),
        out.end().await,
        ignore_lost(err.end().await),
    ] {
        match end {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Followed::ReaderLeft),
            end => end.map_err(|error| unwritten(&error))?,
        }
    }
    let facts = followed.map(|shown| shown.facts);
    if is_interrupted.get() {
        return Ok(Followed::Interrupted(facts));
    }
    facts.map(Followed::Ended)
}

/// When Ctrl-C came a second time, or so long ago that nothing more is to be expected.
async fn abandoned(mut interrupts: Signal) {
    interrupts.recv().await;
    let begun = Instant::now();
    while timeout_at(begun + PATIENCE, interrupts.recv()).await.is_ok() {
        if begun.elapsed() >= APART {
            return;
        }
    }
}
