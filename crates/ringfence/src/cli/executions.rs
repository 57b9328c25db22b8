//! `ringfence ps`, `logs` and `cancel`: the executions of servers that run.

use super::{
    Context,
    live::{self, Ask, Subject, namespace, server_of},
    outcome::{READER_LEFT, ignore_lost, unwritten},
};
use crate::{
    control::{self, Piece, Request},
    terminal::{Raw, Terminal},
};
use clap::Args;
use ringfence_types::{Namespace, RequestError};
use serde_json::json;
use std::{io, path::Path, process::ExitCode};

#[derive(Debug, Args)]
pub(super) struct PsArguments {
    /// Only those of this namespace
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<Namespace>,
    /// At most so many of each server: those that run, then the latest
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(super) struct LogsArguments {
    /// The execution_id of a result, as `ringfence ps` shows it
    execution: String,
    /// Show what comes, too, until the program ends
    #[arg(short, long)]
    follow: bool,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(super) struct CancelArguments {
    /// The execution_id, as `ringfence ps` shows it
    execution: String,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn ps(context: &Context, arguments: PsArguments) -> Result<ExitCode, RequestError> {
    let PsArguments {
        namespace,
        limit,
        ask,
    } = arguments;
    live::all(context, &ask, &Request::ExecutionsList { namespace, limit })
}

pub(super) fn cancel(context: &Context, arguments: CancelArguments) -> Result<ExitCode, RequestError> {
    let CancelArguments { execution, ask } = arguments;
    let state_dir = context.state_dir()?;
    let pid = live::wait(server_of(&state_dir, ask.server, Subject::Execution, &execution))?;
    live::one_of(
        context,
        &state_dir,
        &ask.at(pid),
        &Request::ExecutionsCancel { execution },
    )
}

/// The exit code is ours, not the program's. Ctrl-C ends this alone.
pub(super) fn logs(context: &Context, arguments: LogsArguments) -> Result<ExitCode, RequestError> {
    let state_dir = context.state_dir()?;
    let shown = (!arguments.ask.json).then_some(Raw::of(arguments.raw));
    live::wait(print_logs(context.terminal, &state_dir, arguments, shown))
}

/// `shown`: how it is printed as it comes; none: one document is printed instead.
async fn print_logs(
    terminal: Terminal,
    state_dir: &Path,
    arguments: LogsArguments,
    shown: Option<Raw>,
) -> Result<ExitCode, RequestError> {
    let LogsArguments {
        execution,
        follow,
        ask,
        ..
    } = arguments;
    let pid = server_of(state_dir, ask.server, Subject::Execution, &execution).await?;
    let (mut out, mut err) = terminal.guest(shown.unwrap_or(Raw::Neutralised));
    let mut streams = [Vec::new(), Vec::new()];
    let mut lost: Option<io::Error> = None;
    let give = async |piece: Piece| {
        let written = match (shown, piece.is_stderr) {
            (None, is_stderr) => {
                streams[usize::from(is_stderr)].extend(piece.bytes);
                Ok(())
            }
            (Some(_), true) => ignore_lost(err.write(&piece.bytes).await),
            (Some(_), false) => out.write(&piece.bytes).await,
        };
        lost = written.err();
        lost.is_none()
    };
    let request = Request::Logs { execution, follow };
    let told = control::follow_one(state_dir, pid, &request, give, std::future::pending()).await;
    for end in [
        lost.map_or(Ok(()), Err),
        out.end().await,
        ignore_lost(err.end().await),
    ] {
        match end {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::from(READER_LEFT));
            }
            end => end.map_err(|error| unwritten(&error))?,
        }
    }
    let mut facts = told?.facts;
    if shown.is_none() {
        let [stdout, stderr] = streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (facts["stdout"], facts["stderr"], facts["pid"]) = (json!(stdout), json!(stderr), json!(pid));
        super::printed(terminal.print_json(&facts))?;
    }
    Ok(ExitCode::SUCCESS)
}
