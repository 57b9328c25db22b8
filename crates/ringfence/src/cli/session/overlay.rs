//! `ringfence session diff` and `session commit`: changes of a session behind an overlay, shown and written to the
//! host. Only shown changes are accepted: the server commits by the token of the difference that it sent.

use crate::{
    cli::{
        CommandResult, Context, FAILED,
        commit::{Keyboard, is_accepted},
        live::{self, Options},
        outcome::is_interactive,
        printed,
    },
    control::{self, Request, ServerReply, SessionAction},
    render::Rendered,
    terminal::neutral,
};
use ringfence_engine::Conflicts;
use ringfence_types::{RequestError, SessionId};
use serde_json::Value;
use std::process::ExitCode;

pub(super) fn diff(context: &Context, session: SessionId, opts: &Options) -> CommandResult {
    let state_dir = context.state_dir()?;
    let action = SessionAction::Diff;
    let request = Request::Session { session, action };
    let shown = live::wait(live::ask(&state_dir, opts.server, &request))?.answer?;
    printed(match opts.json {
        true => context.terminal.print_json(&shown.facts),
        false => context.terminal.print_difference(&shown.text),
    })
}

/// Shows the changes and commits them with the consent of the command line, or asks for consent.
pub(super) fn commit(
    context: &Context,
    session: SessionId,
    consent: Option<Conflicts>,
    opts: &Options,
) -> CommandResult {
    let state_dir = context.state_dir()?;
    live::wait(async {
        let request = Request::Session {
            session: session.clone(),
            action: SessionAction::Diff,
        };
        let ServerReply { pid, answer } = live::ask(&state_dir, opts.server, &request).await?;
        let Rendered { text, mut facts } = answer?;
        let terminal = context.terminal;
        terminal.difference(&text);
        let is_empty = ["added", "changed", "deleted"]
            .iter()
            .all(|group| facts[group].as_array().is_some_and(Vec::is_empty));
        facts["committed"] = Value::Null;
        if is_empty {
            return printed(if opts.json {
                terminal.print_json(&facts)
            } else {
                Ok(())
            });
        }
        let (Some(token), Some(directory)) = (facts["token"].as_str(), facts["directory"].as_str()) else {
            return Err(live::not_understood());
        };
        if consent.is_none() && !is_interactive(terminal) {
            return Err(RequestError::invalid(
                "there is no terminal to accept these changes on; nothing was written.",
                "Accept them with --yes.",
            ));
        }
        let conflicting = facts["conflicts"].as_array().map_or(0, Vec::len);
        if consent.is_none() && !is_accepted(terminal, Keyboard::new(), directory, conflicting).await? {
            return Ok(ExitCode::from(FAILED));
        }
        let action = SessionAction::Commit {
            token: token.to_owned(),
            conflicts: consent.unwrap_or(match conflicting {
                0 => Conflicts::Refuse,
                // The question has given their number.
                _ => Conflicts::Overwrite,
            }),
        };
        let request = Request::Session { session, action };
        let committed = control::ask_one(&state_dir, Some(pid), &request).await?.answer?;
        facts["committed"] = committed.facts;
        printed(if opts.json {
            terminal.print_json(&facts)
        } else {
            terminal.print(&neutral::text(&committed.text))
        })
    })
}
