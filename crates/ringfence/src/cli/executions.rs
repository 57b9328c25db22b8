//! `ringfence ps`, `logs` and `cancel`: the executions of servers that run; and `ringfence events`: what happens in
//! one, in all namespaces, one line for each event.

use super::{
    Context, interrupts,
    live::{self, Ask},
    outcome::{OutputReader, ProgramOutput, READER_LEFT},
    request,
};
use crate::{
    control::{self, Piece, Request},
    terminal::{Raw, Terminal, neutral},
    time,
};
use clap::Args;
use ringfence_types::{Namespace, RequestError};
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};

#[derive(Debug, Args)]
pub(super) struct PsArguments {
    /// Only those of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// At most so many of each server: those that run, then the latest
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20, value_parser = request::whole::<usize>)]
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
    let request = Request::ExecutionsList { namespace, limit };
    live::all(context, &arguments.ask, &request)
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

#[derive(Debug, Args)]
pub(super) struct EventsArguments {
    /// Wait for more, and show them as they come
    #[arg(short, long)]
    follow: bool,
    /// With --follow: what programs print, too
    #[arg(long, requires = "follow")]
    output: bool,
    #[command(flatten)]
    ask: Ask,
}

/// Ctrl-C ends it.
pub(super) fn events(context: &Context, arguments: &EventsArguments) -> Result<ExitCode, RequestError> {
    let state_dir = context.state_dir()?;
    let (terminal, ask) = (context.terminal, &arguments.ask);
    let request = Request::Events {
        follow: arguments.follow,
        output: arguments.output,
    };
    live::wait(async {
        let mut interrupted = interrupts()?;
        let pid = control::expect_one(&state_dir, ask.server).await?;
        let show = async |piece: Piece| print(terminal, ask, &piece.bytes).is_ok();
        let following = control::follow_one(&state_dir, pid, &request, show, std::future::pending());
        tokio::select! {
            told = following => told.map(drop),
            _ = interrupted.recv() => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(terminal: Terminal, ask: &Ask, line: &[u8]) -> std::io::Result<()> {
    let event: Value = serde_json::from_slice(line)?;
    if ask.json {
        return terminal.print_json(&event);
    }
    terminal.print(&(neutral::line(&words(&event)) + "\n"))
}

/// When, what, whose, of which execution, and the rest as it is.
fn words(event: &Value) -> String {
    let mut rest = event.as_object().cloned().unwrap_or_default();
    let mut take = |name: &str| rest.remove(name).unwrap_or_default();
    let (time, kind) = (take("time_ms"), take("event"));
    let (namespace, execution) = (take("namespace"), take("execution_id"));
    take("number");
    let text = |value: &Value| match value.as_str() {
        None | Some("") => "-".to_owned(),
        Some(text) => text.to_owned(),
    };
    format!(
        "{} {} {} {} {}",
        time::write_seconds(time.as_u64().unwrap_or_default() / 1000),
        text(&kind),
        text(&namespace),
        text(&execution),
        Value::Object(rest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = json!({
            "number": 3, "time_ms": 0, "event": "execution.started", "namespace": "a", "execution_id": "x", "language": "shell"
        });
        let expect = "1970-01-01T00:00:00Z execution.started a x {\"language\":\"shell\"}";
        assert_eq!(words(&event), expect);
        let other = json!({"time_ms": 0, "event": "queue.backpressure", "namespace": ""});
        assert_eq!(words(&other), "1970-01-01T00:00:00Z queue.backpressure - - {}");
    }
}
