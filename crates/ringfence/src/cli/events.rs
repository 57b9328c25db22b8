//! `ringfence events`: what happens in a server, in all namespaces, one line for each event.

use super::{
    Context, interrupts,
    live::{self, Ask},
};
use crate::{
    control::{self, Piece, Request},
    terminal::{Terminal, neutral},
    time,
};
use clap::Args;
use ringfence_types::RequestError;
use serde_json::Value;
use std::process::ExitCode;

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
    use serde_json::json;

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
