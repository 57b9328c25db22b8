//! `ringfence ps`, `logs` and `cancel`: the executions of servers that run.

use super::{
    Context,
    live::{self, Ask},
    outcome::{OutputReader, ProgramOutput, READER_LEFT},
};
use crate::{
    control::{self, Piece, Request},
    terminal::{Raw, Terminal},
};
use clap::Args;
use ringfence_types::{Namespace, RequestError};
use serde_json::json;
use std::{path::Path, process::ExitCode};

#[derive(Debug, Args)]
pub(super) struct PsArguments {
    /// Only those of this namespace
    #[arg(long, value_name = "NAME")]
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
    let (namespace, limit) = (arguments.namespace, arguments.limit);
    live::all(
        context,
        &arguments.ask,
        &Request::ExecutionsList { namespace, limit },
    )
}

pub(super) fn cancel(context: &Context, arguments: CancelArguments) -> Result<ExitCode, RequestError> {
    let CancelArguments { execution, ask } = arguments;
    live::one(context, &ask, &Request::ExecutionsCancel { execution })
}

/// The exit code is ours, not the program's. Ctrl-C ends this alone.
pub(super) fn logs(context: &Context, arguments: LogsArguments) -> Result<ExitCode, RequestError> {
    let state_dir = context.state_dir()?;
    let shown = (!arguments.ask.json).then_some(Raw::from(arguments.raw));
    live::wait(print_logs(context.terminal, &state_dir, arguments, shown))
}

/// `shown`: how it is printed as it comes; none: one document is printed instead.
async fn print_logs(
    terminal: Terminal,
    state_dir: &Path,
    arguments: LogsArguments,
    shown: Option<Raw>,
) -> Result<ExitCode, RequestError> {
    let (execution, follow) = (arguments.execution, arguments.follow);
    let request = Request::Logs { execution, follow };
    let pid = live::server_for(state_dir, arguments.ask.server, &request).await?;
    let mut output = ProgramOutput::new(terminal, shown.unwrap_or(Raw::Neutralised));
    let mut streams = [Vec::new(), Vec::new()];
    let give = async |piece: Piece| match shown {
        Some(_) => output.write(&piece).await,
        None => {
            streams[usize::from(piece.is_stderr)].extend(piece.bytes);
            true
        }
    };
    let told = control::follow_one(state_dir, pid, &request, give, std::future::pending()).await;
    if output.end().await? == OutputReader::Left {
        return Ok(ExitCode::from(READER_LEFT));
    }
    let mut facts = told?.facts;
    if shown.is_none() {
        let [stdout, stderr] = streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (facts["stdout"], facts["stderr"], facts["pid"]) = (json!(stdout), json!(stderr), json!(pid));
        super::printed(terminal.print_json(&facts))?;
    }
    Ok(ExitCode::SUCCESS)
}
