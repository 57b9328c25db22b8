//! `ringfence session` and `ringfence bridge`: the sessions of servers that run.

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
    live::{self, Ask},
    request,
};
use crate::control::{Request, SessionAction};
use clap::{Args, Subcommand};
use ringfence_engine::Conflicts;
use ringfence_types::{EnvName, Namespace, RequestError, SessionId};
use serde_json::Value;
use std::path::Path;

/// As a shell shows SIGINT.
const INTERRUPTED: u8 = 130;
/// A value that is given to a session has at most so many bytes.
const VALUE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct SessionArguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

/// A session, by its place on the command line or by a flag.
#[derive(Debug, Args)]
struct Which {
    /// What `session create` printed
    #[arg(required_unless_present = "id")]
    session: Option<SessionId>,
    /// The same
    #[arg(long, value_name = "SESSION", conflicts_with = "session")]
    id: Option<SessionId>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start an interpreter that stays alive in a running server, and print its session's id alone
    Create(Box<Create>),
    /// Show the sessions of running servers (the default)
    List {
        /// Only those of this namespace
        #[arg(long, value_name = "NAME")]
        namespace: Option<Namespace>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Run code in a session: its output streams, its exit code is ours; Ctrl-C interrupts the code and keeps the
    /// session
    Exec(Exec),
    /// Interrupt the code that runs in a session, and keep the session
    Interrupt(Which),
    /// Copy a file to a session, or from one
    Cp(Copy),
    /// List the files of a session
    Ls {
        /// What `session create` printed
        session: SessionId,
        /// Only what is below this directory
        path: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show what a session has done to a directory that it sees through an overlay
    Diff {
        /// What `session create` printed
        session: SessionId,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show the same, ask, and write it to the directory
    Commit {
        /// What `session create` printed
        session: SessionId,
        /// Accept it without a question
        #[arg(short, long)]
        yes: bool,
        /// With --yes: also over what the host itself has changed in the directory meanwhile
        #[arg(long, requires = "yes")]
        overwrite: bool,
        #[command(flatten)]
        ask: Ask,
    },
    /// End a session with everything in it; one that has ended already is no error
    Kill(Which),
}

#[derive(Debug, Args)]
pub(super) struct BridgeArguments {
    /// The session that gets the value
    session: SessionId,
    /// What the variable is called; with --from, also there
    key: String,
    /// The value: JSON, or else text; `-` for standard input
    #[arg(required_unless_present = "from")]
    value: Option<String>,
    /// Take the variable of this session
    #[arg(long, value_name = "SESSION", conflicts_with = "value")]
    from: Option<SessionId>,
    /// What the variable is called in the session that gets it
    #[arg(long = "as", value_name = "KEY")]
    renamed: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn session(context: &Context, arguments: SessionArguments) -> CommandResult {
    let SessionArguments { action, json } = arguments;
    let (namespace, ask) = (None, Ask { json, server: None });
    match action.unwrap_or(Action::List { namespace, ask }) {
        Action::Create(create) => create::create(context, *create),
        Action::List { namespace, ask } => live::all(context, &ask, &Request::SessionList { namespace }),
        Action::Exec(exec) => exec::exec(context, exec),
        Action::Cp(copy) => files::copy(context, copy),
        Action::Ls { session, path, ask } => files::list(context, session, path.as_deref(), &ask),
        Action::Interrupt(which) => which.ask(context, SessionAction::Interrupt),
        Action::Diff { session, ask } => overlay::diff(context, session, &ask),
        Action::Commit {
            session,
            yes,
            overwrite,
            ask,
        } => {
            let conflicts = match overwrite {
                true => Conflicts::Overwrite,
                false => Conflicts::Refuse,
            };
            overlay::commit(context, session, yes.then_some(conflicts), &ask)
        }
        Action::Kill(which) => which.ask(context, SessionAction::Kill),
    }
}

impl Which {
    fn ask(self, context: &Context, action: SessionAction) -> CommandResult {
        let session = self.session.or(self.id).ok_or_else(|| {
            RequestError::invalid(
                "no session is named.",
                "`ringfence session list` shows those there are.",
            )
        })?;
        live::one(context, &self.ask, &Request::Session { session, action })
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
    // What is no JSON is meant as text.
    let value = value.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    let session = arguments.session;
    let action = SessionAction::Bridge {
        from: arguments.from,
        name,
        renamed,
        value,
    };
    live::one(context, &arguments.ask, &Request::Session { session, action })
}

/// A text loses the end of its last line, as in a shell's `$(...)`.
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
