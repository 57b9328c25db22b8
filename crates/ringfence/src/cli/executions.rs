//! `ringfence logs`: the output of an execution of a running server. `ringfence events`: the events of a running server
//! in all namespaces, one per line.

use super::{
    CommandResult, Context, interrupts,
    live::{self, Options},
    outcome::{ProgramOutput, READER_LEFT},
};
use crate::{
    control::{self, Request, Response},
    terminal::{Raw, Terminal, neutral},
    time,
};
use clap::Args;
use ringfence_engine::OutputStream;
use serde_json::{Value, json};
use std::{future::pending, process::ExitCode};

#[derive(Debug, Args)]
pub(super) struct LogsArguments {
    /// The execution_id of a result, as `ringfence ps` shows it
    execution: String,
    /// Also show new output, until the program ends
    #[arg(short, long)]
    follow: bool,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    opts: Options,
}

/// Prints the output. The exit code is ours, not the program's; Ctrl-C ends only this command.
pub(super) fn logs(context: &Context, arguments: LogsArguments) -> CommandResult {
    let state_dir = context.state_dir()?;
    let (terminal, opts) = (context.terminal, arguments.opts);
    let (execution, follow) = (arguments.execution, arguments.follow);
    let request = Request::Logs { execution, follow };
    live::wait(async {
        let pid = live::server_for(&state_dir, opts.server, &request).await?;
        let mut output = ProgramOutput::new(terminal, Raw::from(arguments.raw));
        let mut streams = [Vec::new(), Vec::new()];
        let on_response = async |response: Response| match response {
            Response::Output { stream, bytes } if opts.json => {
                streams[usize::from(stream != OutputStream::Stdout)].extend(bytes.0);
                true
            }
            response => output.write_response(response).await,
        };
        let answer = control::follow_one(&state_dir, Some(pid), &request, on_response, pending()).await;
        if !output.end().await? {
            return Ok(ExitCode::from(READER_LEFT));
        }
        let mut facts = answer?.1.facts;
        if opts.json {
            let [stdout, stderr] = streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            (facts["stdout"], facts["stderr"], facts["pid"]) = (json!(stdout), json!(stderr), json!(pid));
            super::printed(terminal.print_json(&facts))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[derive(Debug, Args)]
pub(super) struct EventsArguments {
    /// Wait for new events, and show them as they arrive
    #[arg(short, long)]
    follow: bool,
    /// With --follow: also show the output of programs
    #[arg(long, requires = "follow")]
    output: bool,
    #[command(flatten)]
    opts: Options,
}

pub(super) fn events(context: &Context, arguments: &EventsArguments) -> CommandResult {
    let state_dir = context.state_dir()?;
    let (terminal, opts) = (context.terminal, &arguments.opts);
    let request = Request::Events {
        follow: arguments.follow,
        output: arguments.output,
    };
    live::wait(async {
        let mut interrupted = interrupts()?;
        let on_response = async |response: Response| match response {
            Response::Output { bytes, .. } => print(terminal, opts, &bytes.0).is_ok(),
            _ => true,
        };
        let following = control::follow_one(&state_dir, opts.server, &request, on_response, pending());
        tokio::select! {
            answer = following => answer.map(drop),
            _ = interrupted.recv() => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(terminal: Terminal, opts: &Options, line: &[u8]) -> std::io::Result<()> {
    let event: Value = serde_json::from_slice(line)?;
    if opts.json {
        return terminal.print_json(&event);
    }
    terminal.print(&(neutral::line(&event_line(&event)) + "\n"))
}

/// One line: time, kind, namespace, execution, then the other fields as JSON. `number` is left out.
fn event_line(event: &Value) -> String {
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
    fn event_is_printed_as_one_line() {
        let event = json!({
            "number": 3, "time_ms": 0, "event": "execution.started", "namespace": "a", "execution_id": "x", "language": "shell"
        });
        let expect = "1970-01-01T00:00:00Z execution.started a x {\"language\":\"shell\"}";
        assert_eq!(event_line(&event), expect);
        let other = json!({"time_ms": 0, "event": "queue.backpressure", "namespace": ""});
        assert_eq!(
            event_line(&other),
            "1970-01-01T00:00:00Z queue.backpressure - - {}"
        );
    }
}
