//! `ringfence session diff` and `session commit`: what a session has done to a directory that it sees through an overlay, and
//! its way to the host. What is accepted is what was shown: the server commits by the token of what it has told us.

use super::{its_server, state_dir};
use crate::{
    cli::{
        Context, FAILED,
        commit::{Keyboard, is_accepted},
        fault,
        live::{self, Ask},
        run::has_answers,
    },
    control::{self, Request},
    shown::Shown,
    terminal::neutral,
};
use ringfence_engine::Conflicts;
use ringfence_types::{ErrorCode, RequestError, SessionId};
use serde_json::Value;
use std::{io, path::Path, process::ExitCode};

pub(super) fn diff(context: &Context, session: SessionId, ask: &Ask) -> Result<ExitCode, RequestError> {
    let state_dir = state_dir(context)?;
    let shown = live::wait(async {
        let pid = its_server(&state_dir, ask.server, &session).await?;
        asked(&state_dir, pid, &Request::SessionDiff { session }).await
    })?;
    let printed = if ask.json {
        context.terminal.print_json(&shown.facts)
    } else {
        context.terminal.print_difference(&shown.text)
    };
    printed_or_fault(printed)
}

/// Whose yes it needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    /// Of whoever sits there.
    Asked,
    /// It was given with the command.
    Given(Conflicts),
}

pub(super) fn commit(
    context: &Context,
    session: SessionId,
    consent: Consent,
    ask: &Ask,
) -> Result<ExitCode, RequestError> {
    let state_dir = state_dir(context)?;
    live::wait(async {
        let pid = its_server(&state_dir, ask.server, &session).await?;
        let request = Request::SessionDiff {
            session: session.clone(),
        };
        let Shown { text, mut facts } = asked(&state_dir, pid, &request).await?;
        let terminal = context.terminal;
        terminal.difference(&text);
        let is_empty = ["added", "changed", "deleted"]
            .iter()
            .all(|group| facts[group].as_array().is_some_and(Vec::is_empty));
        facts["committed"] = Value::Null;
        if is_empty {
            return printed_or_fault(if ask.json {
                terminal.print_json(&facts)
            } else {
                Ok(())
            });
        }
        let (Some(token), Some(directory)) = (facts["token"].as_str(), facts["directory"].as_str()) else {
            return Err(not_understood());
        };
        if consent == Consent::Asked && !has_answers(terminal) {
            return Err(RequestError::invalid(
                "nobody is there who could accept these changes; nothing was written.",
                "Accept them with --yes.",
            ));
        }
        let conflicting = facts["conflicts"].as_array().map_or(0, Vec::len);
        if consent == Consent::Asked
            && !is_accepted(terminal, Keyboard::new(), directory, conflicting).await?
        {
            return Ok(ExitCode::from(FAILED));
        }
        let request = Request::SessionCommit {
            session,
            token: token.to_owned(),
            // The question has named those there were.
            overwrite: match consent {
                Consent::Asked => conflicting > 0,
                Consent::Given(conflicts) => conflicts == Conflicts::Overwrite,
            },
        };
        let committed = asked(&state_dir, pid, &request).await?;
        facts["committed"] = committed.facts;
        printed_or_fault(if ask.json {
            terminal.print_json(&facts)
        } else {
            terminal.print(&neutral::text(&committed.text))
        })
    })
}

async fn asked(state_dir: &Path, pid: u32, request: &Request) -> Result<Shown, RequestError> {
    control::ask_one(state_dir, Some(pid), request).await?.answer
}

fn printed_or_fault(printed: io::Result<()>) -> Result<ExitCode, RequestError> {
    printed.map_err(|error| fault("print", &error))?;
    Ok(ExitCode::SUCCESS)
}

fn not_understood() -> RequestError {
    RequestError::new(
        ErrorCode::StoreFault,
        "the server's answer is not understood.",
        "Use the `ringfence` command of the server's version.",
    )
}
