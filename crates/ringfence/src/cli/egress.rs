//! `ringfence egress DOMAIN`: asks whether programs of a server that runs may reach a host, as a model does with
//! `request_egress`, and waits until somebody has answered. The answer is not given here: the question goes
//! where all of them go.

use super::{
    Context,
    live::{self, Ask},
};
use crate::{
    control::{self, EgressRequest},
    time,
};
use clap::Args;
use ringfence_engine::ApprovalRequest;
use ringfence_types::RequestError;
use serde_json::json;
use std::{cell::Cell, pin::pin, process::ExitCode, time::Duration};
use tokio::time::interval;

#[derive(Debug, Args)]
pub(super) struct EgressArguments {
    #[command(flatten)]
    wish: EgressRequest,
    #[command(flatten)]
    ask: Ask,
}

const DENIED: u8 = 1;

pub(super) fn egress(context: &Context, arguments: EgressArguments) -> Result<ExitCode, RequestError> {
    let EgressArguments { wish, ask } = arguments;
    let state_dir = context.state_dir()?;
    let terminal = context.terminal;
    let expires_ms = Cell::new(0);
    let told = |request: &ApprovalRequest| {
        if !ask.json {
            let id = &request.id;
            terminal.dim(&format!(
                "a person is asked: `ringfence approvals approve {id}`; Ctrl-C takes it back"
            ));
            expires_ms.set(request.expires_unix_ms);
        }
    };
    let (pid, mut shown) = live::wait(async {
        let mut asking = pin!(control::request_egress(&state_dir, ask.server, wish, told));
        let mut seconds = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                answer = &mut asking => {
                    terminal.progress("");
                    return answer;
                }
                _ = seconds.tick() => match time::left(expires_ms.get()) {
                    0 => {}
                    left => terminal.progress(&format!("{left} s left for the answer")),
                },
            }
        }
    })?;
    let is_approved = shown.facts["approved"] == true;
    shown.facts["pid"] = json!(pid);
    context.show(ask.json, &shown)?;
    Ok(ExitCode::from(if is_approved { 0 } else { DENIED }))
}
