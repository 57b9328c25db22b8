//! `ringfence egress DOMAIN`: asks whether programs of a server that runs may reach a host, as a model does with `request_egress`,
//! and waits until somebody has answered. Whoever asks here does not answer here: the question goes where all of them go.

use super::{
    Context, fault,
    live::{self, Ask},
};
use crate::{
    control::{self, HostWish},
    settings::{Layer, LogLevel},
    terminal::neutral,
};
use clap::Args;
use ringfence_types::{Namespace, RequestError, SessionId};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct EgressArguments {
    /// Host that programs are to reach, as example.com or example.com:8443
    domain: String,
    /// Namespace whose programs they are
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = live::namespace)]
    namespace: Namespace,
    /// The one session whose programs they are
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Why, for whoever is asked
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    ask: Ask,
}

/// It was asked, and the answer is no.
const DENIED: u8 = 1;

pub(super) fn egress(context: &Context, arguments: EgressArguments) -> Result<ExitCode, RequestError> {
    let EgressArguments {
        domain,
        namespace,
        session,
        reason,
        ask,
    } = arguments;
    let state_dir = context
        .settings(Layer::default(), LogLevel::Error)?
        .engine
        .state_dir;
    let wish = HostWish {
        namespace,
        session,
        domain,
        reason,
    };
    let terminal = context.terminal;
    let told = |id: &str| {
        if !ask.json {
            terminal.dim(&format!(
                "a person is asked: `ringfence approvals approve {id}`; Ctrl-C takes it back"
            ));
        }
    };
    let (pid, shown) = live::wait(control::request_egress(&state_dir, ask.server, wish, told))?;
    let mut facts = shown.facts;
    let is_approved = facts["approved"] == true;
    let printed = if ask.json {
        facts["pid"] = json!(pid);
        terminal.print_json(&facts)
    } else {
        terminal.print(&neutral::text(&shown.text))
    };
    printed.map_err(|error| fault("print", &error))?;
    Ok(ExitCode::from(if is_approved { 0 } else { DENIED }))
}
