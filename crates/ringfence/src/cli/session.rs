//! `ringfence session` and `ringfence bridge`: the sessions of servers that run.

mod create;
mod exec;
mod files;
mod overlay;

pub(super) use exec::run_script;

use create::Create;
use exec::Exec;
use files::{Copy, List};
use overlay::Consent;

use super::{
    Context,
    live::{self, Ask, namespace},
    request,
};
use crate::{
    control::{self, Answered, Request},
    settings::{Layer, LogLevel},
};
use clap::{Args, Subcommand};
use ringfence_engine::Conflicts;
use ringfence_types::{EnvName, ErrorCode, Namespace, RequestError, SessionId};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// As a shell shows SIGINT.
const INTERRUPTED: u8 = 130;
/// A value that is given to a session has at most so many bytes.
const VALUE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct SessionArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start an interpreter that stays alive in a running server, and print its session's id alone
    Create(Box<Create>),
    /// Show the sessions of running servers
    List {
        /// Only those of this namespace
        #[arg(long, value_name = "NAME", value_parser = namespace)]
        namespace: Option<Namespace>,
        #[command(flatten)]
        ask: Ask,
    },
    /// Run code in a session: its output streams, its exit code is ours; Ctrl-C interrupts the code and keeps the session
    Exec(Exec),
    /// Interrupt the code that runs in a session, and keep the session
    Interrupt {
        /// What `session create` printed
        session: SessionId,
        #[command(flatten)]
        ask: Ask,
    },
    /// Copy a file to a session, or from one
    Cp(Copy),
    /// List the files of a session
    Ls(List),
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
    Kill {
        /// What `session create` printed
        session: SessionId,
        #[command(flatten)]
        ask: Ask,
    },
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

pub(super) fn session(context: &Context, arguments: SessionArguments) -> Result<ExitCode, RequestError> {
    match arguments.action {
        Action::Create(create) => create::create(context, *create),
        Action::List { namespace, ask } => live::all(context, &ask, &Request::SessionList { namespace }),
        Action::Exec(exec) => exec::exec(context, exec),
        Action::Cp(copy) => files::copy(context, copy),
        Action::Ls(list) => files::list(context, list),
        Action::Interrupt { session, ask } => ask_its_server(context, &ask, &session, |session| {
            Request::SessionInterrupt { session }
        }),
        Action::Diff { session, ask } => overlay::diff(context, session, &ask),
        Action::Commit {
            session,
            yes,
            overwrite,
            ask,
        } => {
            let consent = match (yes, overwrite) {
                (false, _) => Consent::Asked,
                (true, false) => Consent::Given(Conflicts::Refuse),
                (true, true) => Consent::Given(Conflicts::Overwrite),
            };
            overlay::commit(context, session, consent, &ask)
        }
        Action::Kill { session, ask } => ask_its_server(context, &ask, &session, |session| {
            Request::SessionKill { session }
        }),
    }
}

pub(super) fn bridge(context: &Context, arguments: BridgeArguments) -> Result<ExitCode, RequestError> {
    let BridgeArguments {
        session,
        key,
        value,
        from,
        renamed,
        ask,
    } = arguments;
    for name in [Some(&key), renamed.as_ref()].into_iter().flatten() {
        EnvName::try_from(name.clone()).map_err(|reason| {
            RequestError::invalid(format!("{reason}."), "Name a plain variable, as total or x2.")
        })?;
    }
    let value = match value {
        Some(text) if text == request::STDIN => Some(read_value()?),
        text => text,
    };
    // What is no JSON is meant as text.
    let value = value.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    ask_its_server(context, &ask, &session, |to| Request::SessionBridge {
        from,
        to,
        name: key,
        renamed,
        value,
    })
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

/// Of several servers only one has it.
fn ask_its_server(
    context: &Context,
    ask: &Ask,
    session: &SessionId,
    request: impl FnOnce(SessionId) -> Request,
) -> Result<ExitCode, RequestError> {
    let state_dir = state_dir(context)?;
    let pid = live::wait(its_server(&state_dir, ask.server, session))?;
    let ask = Ask {
        server: Some(pid),
        json: ask.json,
    };
    live::one_of(context, &state_dir, &ask, &request(session.clone()))
}

fn state_dir(context: &Context) -> Result<PathBuf, RequestError> {
    let settings = context.settings(Layer::default(), LogLevel::Error)?;
    Ok(settings.engine.state_dir)
}

/// The process number of the server that has this session; the only one there is says best why it has none.
pub(super) async fn its_server(
    state_dir: &Path,
    only: Option<u32>,
    session: &SessionId,
) -> Result<u32, RequestError> {
    let answers = control::ask_all(state_dir, only, &Request::SessionList { namespace: None }).await?;
    let has_it = |answered: &&Answered| {
        let facts = answered.answer.as_ref().map(|shown| &shown.facts["sessions"]);
        let sessions = facts.ok().and_then(Value::as_array);
        sessions.is_some_and(|all| all.iter().any(|one| one["session_id"] == session.as_str()))
    };
    if let [one] = answers.as_slice() {
        return Ok(one.pid);
    }
    answers.iter().find(has_it).map(|found| found.pid).ok_or_else(|| {
        RequestError::new(
            ErrorCode::NotFound,
            format!("none of {} servers has the session {session}.", answers.len()),
            "`ringfence session list` shows those there are.",
        )
    })
}
