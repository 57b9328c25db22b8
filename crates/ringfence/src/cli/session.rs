//! `ringfence session` and `ringfence bridge`: sessions of running servers.

mod create;
mod exec;
mod files;
mod overlay;

pub(super) use exec::run_script;

use create::Create;
use exec::Exec;
use files::Copy;

use super::{
    CommandResult, Context,
    live::{self, Options},
    request,
};
use crate::control::{Request, SessionAction};
use clap::{Args, Subcommand};
use ringfence_engine::Conflicts;
use ringfence_types::{EnvName, Namespace, RequestError, SessionId};
use serde_json::Value;
use std::path::Path;

/// Exit code after Ctrl-C, as shells report SIGINT.
const INTERRUPTED: u8 = 130;
/// Longest value in bytes that a session is given from standard input.
const VALUE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct SessionArguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

/// A session, given as an argument or by a flag.
#[derive(Debug, Args)]
struct SessionTarget {
    /// Session id, as printed by `session create`
    #[arg(required_unless_present = "id")]
    session: Option<SessionId>,
    /// The session, given as a flag
    #[arg(long, value_name = "SESSION", conflicts_with = "session")]
    id: Option<SessionId>,
    #[command(flatten)]
    opts: Options,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start an interpreter that stays alive in a running server, and print only its session's id
    Create(Box<Create>),
    /// Show the sessions of running servers (the default)
    List {
        /// Limit the list to this namespace
        #[arg(long, value_name = "NAME")]
        namespace: Option<Namespace>,
        #[command(flatten)]
        opts: Options,
    },
    /// Run code in a session, stream its output and exit with its exit code; Ctrl-C interrupts the code and keeps the
    /// session
    Exec(Exec),
    /// Interrupt the code that runs in a session, and keep the session
    Interrupt(SessionTarget),
    /// Copy a file to a session, or from one
    Cp(Copy),
    /// List the files of a session
    Ls {
        /// Session id, as printed by `session create`
        session: SessionId,
        /// Only files below this directory
        path: Option<String>,
        #[command(flatten)]
        opts: Options,
    },
    /// Show what a session has changed in a directory that it sees through an overlay
    Diff {
        /// Session id, as printed by `session create`
        session: SessionId,
        #[command(flatten)]
        opts: Options,
    },
    /// Show these changes, ask, and write them to the directory
    Commit {
        /// Session id, as printed by `session create`
        session: SessionId,
        /// Accept the changes without asking
        #[arg(short, long)]
        yes: bool,
        /// With --yes: also overwrite what the host has changed in the directory meanwhile
        #[arg(long, requires = "yes")]
        overwrite: bool,
        #[command(flatten)]
        opts: Options,
    },
    /// End a session with everything in it; it is not an error if it has already ended
    Kill(SessionTarget),
}

#[derive(Debug, Args)]
pub(super) struct BridgeArguments {
    /// The session that gets the value
    session: SessionId,
    /// Name of the variable; with --from, also its name there
    key: String,
    /// The value: JSON, or else text; `-` for standard input
    #[arg(required_unless_present = "from")]
    value: Option<String>,
    /// Copy the variable of this session
    #[arg(long, value_name = "SESSION", conflicts_with = "value")]
    from: Option<SessionId>,
    /// Name of the variable in the session that gets it
    #[arg(long = "as", value_name = "KEY")]
    renamed: Option<String>,
    #[command(flatten)]
    opts: Options,
}

pub(super) fn session(context: &Context, arguments: SessionArguments) -> CommandResult {
    let SessionArguments { action, json } = arguments;
    let (namespace, opts) = (None, Options { json, server: None });
    match action.unwrap_or(Action::List { namespace, opts }) {
        Action::Create(create) => create::create(context, *create),
        Action::List { namespace, opts } => live::all(context, &opts, &Request::SessionList { namespace }),
        Action::Exec(exec) => exec::exec(context, exec),
        Action::Cp(copy) => files::copy(context, copy),
        Action::Ls { session, path, opts } => files::list(context, session, path.as_deref(), &opts),
        Action::Interrupt(target) => target.perform(context, SessionAction::Interrupt),
        Action::Diff { session, opts } => overlay::diff(context, session, &opts),
        Action::Commit {
            session,
            yes,
            overwrite,
            opts,
        } => {
            let conflicts = match overwrite {
                true => Conflicts::Overwrite,
                false => Conflicts::Refuse,
            };
            overlay::commit(context, session, yes.then_some(conflicts), &opts)
        }
        Action::Kill(target) => target.perform(context, SessionAction::Kill),
    }
}

impl SessionTarget {
    fn perform(self, context: &Context, action: SessionAction) -> CommandResult {
        let none = || RequestError::invalid("no session is named.", "See `ringfence session list`.");
        let session = self.session.or(self.id).ok_or_else(none)?;
        live::one(context, &self.opts, &Request::Session { session, action })
    }
}

pub(super) fn bridge(context: &Context, arguments: BridgeArguments) -> CommandResult {
    let name = |text: String| {
        EnvName::try_from(text).map_err(|reason| {
            RequestError::invalid(format!("{reason}."), "Name a plain variable, as total or x2.")
        })
    };
    let (name, renamed) = (name(arguments.key)?, arguments.renamed.map(name).transpose()?);
    let value = match arguments.value {
        Some(text) if text == request::STDIN => Some(read_value()?),
        text => text,
    };
    // A value that is not JSON is text.
    let value = value.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    let session = arguments.session;
    let action = SessionAction::Bridge {
        from: arguments.from,
        name,
        renamed,
        value,
    };
    live::one(context, &arguments.opts, &Request::Session { session, action })
}

/// Reads a value from standard input and removes one newline at its end, much as a shell's `$(...)` does.
fn read_value() -> Result<String, RequestError> {
    let bytes = request::read_input(Path::new(request::STDIN), VALUE_BYTES_MAX, "the value")?;
    let mut text = String::from_utf8(bytes).map_err(|_| {
        RequestError::invalid(
            "the value is not UTF-8.",
            "Copy it to the session as a file, with `ringfence session cp`.",
        )
    })?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}
