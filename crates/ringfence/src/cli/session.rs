//! `ringfence session` and `ringfence bridge`: the sessions of servers that run.

mod overlay;

use overlay::Consent;

use super::{
    Context, FAILED, fault,
    live::{self, Ask, namespace},
    request::{self, STDIN},
    run::{explain_end, unwritten},
};
use crate::{
    control::{self, Answered, Call, Piece, Request, Wish},
    settings::{Layer, LogLevel},
    terminal::{Raw, Terminal, neutral},
};
use clap::{Args, Subcommand};
use ringfence_types::{
    ErrorCode, ExecutionResult, Language, LimitsRequest, Namespace, RequestError, ScriptName, SessionId,
    WorkspaceSource,
};
use serde_json::Value;
use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Args)]
pub(super) struct SessionArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start an interpreter that stays alive in a running server, and print its session's id
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
        #[command(flatten)]
        ask: Ask,
    },
    /// End a session with everything in it
    Kill {
        /// What `session create` printed
        session: SessionId,
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// Language: python, node, typescript or shell
    #[arg(short, long, value_name = "NAME", default_value = "python", value_parser = language)]
    language: Language,
    /// Namespace that it belongs to
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    namespace: Namespace,
    /// Wall-clock limit of a call, in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// The session ends when it was not used for so many seconds
    #[arg(long, value_name = "SECONDS")]
    idle: Option<f64>,
    /// Memory limit, as 256m or 1g
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Processor cores; fractions are allowed
    #[arg(long, value_name = "CORES")]
    cpus: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// Private disk, as 256m or 1g
    #[arg(long, value_name = "SIZE")]
    disk: Option<String>,
    /// A variable for the session, whose environment is otherwise built from nothing
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A secret of the vault that the session gets as a variable of this name
    #[arg(long, value_name = "NAME")]
    secret: Vec<String>,
    /// Directory of the host to work in, or `namespace`, or a name of `workspaces` in the configuration
    #[arg(long, value_name = "DIR:ro|rw|overlay")]
    workspace: Option<String>,
    /// A package that the session has from its beginning, as `numpy` or `lodash@4`; installed once, and kept for the next
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
struct Exec {
    /// What `session create` printed
    session: SessionId,
    /// Script to run, or `-` for standard input
    #[arg(required_unless_present = "code")]
    script: Option<PathBuf>,
    /// The code itself
    #[arg(short, long, value_name = "CODE", conflicts_with = "script")]
    code: Option<String>,
    /// A file that the code can read as its standard input
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    ask: Ask,
    /// The code's own arguments
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct BridgeArguments {
    /// The session that gets the value
    session: SessionId,
    /// What the variable is called; with --from, also there
    key: String,
    /// The value: JSON, or else text
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

fn language(name: &str) -> Result<Language, String> {
    name.parse()
}

pub(super) fn session(context: &Context, arguments: SessionArguments) -> Result<ExitCode, RequestError> {
    match arguments.action {
        Action::Create(create) => {
            let ask = Ask { ..create.ask };
            live::one(context, &ask, &create_request(*create)?)
        }
        Action::List { namespace, ask } => live::all(context, &ask, &Request::SessionList { namespace }),
        Action::Exec(exec) => run_in(context, exec),
        Action::Interrupt { session, ask } => ask_its_server(context, ask, &session, |session| {
            Request::SessionInterrupt { session }
        }),
        Action::Diff { session, ask } => overlay::diff(context, session, &ask),
        Action::Commit { session, yes, ask } => {
            let consent = if yes { Consent::Given } else { Consent::Asked };
            overlay::commit(context, session, consent, &ask)
        }
        Action::Kill { session, ask } => {
            ask_its_server(context, ask, &session, |session| Request::SessionKill { session })
        }
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
    // What is no JSON is meant as text.
    let value = value.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    ask_its_server(context, ask, &session, |to| Request::SessionBridge {
        from,
        to,
        name: key,
        renamed,
        value,
    })
}

fn create_request(create: Create) -> Result<Request, RequestError> {
    let size = |flag: &str, text: &Option<String>| {
        let text = text.as_deref();
        text.map(|text| request::mebibytes(flag, text)).transpose()
    };
    let env = request::variables(&create.env)?;
    let wish = Wish {
        namespace: create.namespace,
        language: create.language,
        env: env
            .into_iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned()))
            .collect(),
        secrets: create.secret,
        limits: LimitsRequest {
            max_ram_mb: size("--memory", &create.memory)?,
            max_cpu_cores: create.cpus,
            timeout_ms: create.timeout.map(request::milliseconds).transpose()?,
            max_processes: create.processes,
            max_output_bytes: None,
            max_disk_mb: size("--disk", &create.disk)?,
        },
        idle_ms: create.idle.map(request::milliseconds).transpose()?,
        workspace: match &create.workspace {
            Some(workspace) => request::workspace_of(workspace)?,
            None => WorkspaceSource::Private,
        },
        packages: create.package,
    };
    Ok(Request::SessionCreate { wish: Box::new(wish) })
}

/// Of several servers only one has it.
fn ask_its_server(
    context: &Context,
    ask: Ask,
    session: &SessionId,
    request: impl FnOnce(SessionId) -> Request,
) -> Result<ExitCode, RequestError> {
    let state_dir = state_dir(context)?;
    let pid = live::wait(its_server(&state_dir, ask.server, session))?;
    let ask = Ask {
        server: Some(pid),
        ..ask
    };
    live::one_of(context, &state_dir, &ask, &request(session.clone()))
}

fn state_dir(context: &Context) -> Result<PathBuf, RequestError> {
    let settings = context.settings(Layer::default(), LogLevel::Error)?;
    Ok(settings.engine.state_dir)
}

/// The process number of the server that has this session; the only one there is says best why it has none.
async fn its_server(state_dir: &Path, only: Option<u32>, session: &SessionId) -> Result<u32, RequestError> {
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

fn run_in(context: &Context, exec: Exec) -> Result<ExitCode, RequestError> {
    let (code, name) = match (exec.code, &exec.script) {
        (Some(code), _) => (code, None),
        (None, Some(script)) => (request::read_script(script)?, request::script_name(script)),
        (None, None) => (request::read_script(Path::new(STDIN))?, None),
    };
    let stdin = match &exec.stdin {
        None => String::new(),
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            RequestError::invalid(
                format!("cannot read {}: {error}.", file.display()),
                "Name a file of text.",
            )
        })?,
    };
    let call = Call {
        session: exec.session,
        code,
        name,
        args: exec.args,
        stdin,
        timeout_ms: exec.timeout.map(request::milliseconds).transpose()?,
    };
    let raw = if exec.raw {
        Raw::AsWritten
    } else {
        Raw::Neutralised
    };
    perform(context, call, exec.ask.server, (!exec.ask.json).then_some(raw))
}

/// `run --session`: the same, with what `run` knows of a script.
pub(super) fn run_script(
    context: &Context,
    session: SessionId,
    (code, name): (String, Option<ScriptName>),
    args: Vec<String>,
    timeout_ms: Option<u64>,
    shown: Option<Raw>,
) -> Result<ExitCode, RequestError> {
    let call = Call {
        session,
        code,
        name,
        args,
        stdin: String::new(),
        timeout_ms,
    };
    perform(context, call, None, shown)
}

/// `shown`: how its output is printed as it comes; none: one document is printed instead.
fn perform(
    context: &Context,
    call: Call,
    server: Option<u32>,
    shown: Option<Raw>,
) -> Result<ExitCode, RequestError> {
    let state_dir = state_dir(context)?;
    let followed = live::wait(follow(context.terminal, &state_dir, call, server, shown))?;
    let Some(facts) = followed else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if shown.is_none() {
        context
            .terminal
            .print_json(&facts)
            .map_err(|error| fault("print", &error))?;
    }
    let result: ExecutionResult = serde_json::from_value(facts).map_err(|_| {
        RequestError::new(
            ErrorCode::StoreFault,
            "the server's answer is not understood.",
            "Use the `ringfence` command of the server's version.",
        )
    })?;
    if shown.is_some() {
        if let Some(value) = &result.result_repr {
            context.terminal.dim(&format!("result: {}", neutral::text(value)));
        }
        explain_end(context.terminal, &result);
        if let Some(end) = &result.session_ended {
            context
                .terminal
                .dim(&format!("the session has ended with it: {}", neutral::line(end)));
        }
    }
    Ok(ExitCode::from(u8::try_from(result.exit_code).unwrap_or(FAILED)))
}

/// As a shell shows SIGINT.
const INTERRUPTED: u8 = 130;

/// None: a signal came. The server interrupts the call when we hang up.
async fn follow(
    terminal: Terminal,
    state_dir: &Path,
    call: Call,
    server: Option<u32>,
    shown: Option<Raw>,
) -> Result<Option<Value>, RequestError> {
    let pid = its_server(state_dir, server, &call.session).await?;
    let mut interrupted =
        signal(SignalKind::interrupt()).map_err(|error| fault("listen for signals", &error))?;
    let (mut out, mut err) = terminal.guest(shown.unwrap_or(Raw::Neutralised));
    let request = Request::SessionExec { call: Box::new(call) };
    let mut lost: Option<io::Error> = None;
    let following = control::follow_one(state_dir, pid, &request, async |piece: Piece| {
        if shown.is_none() {
            return true;
        }
        let written = if piece.is_stderr {
            err.write(&piece.bytes).await
        } else {
            out.write(&piece.bytes).await
        };
        match written {
            Ok(()) => true,
            Err(error) => {
                lost = Some(error);
                false
            }
        }
    });
    let followed = tokio::select! {
        followed = following => followed,
        _ = interrupted.recv() => return Ok(None),
    };
    if let Some(error) = lost {
        return Err(unwritten(&error));
    }
    for end in [out.end().await, err.end().await] {
        end.map_err(|error| unwritten(&error))?;
    }
    Ok(Some(followed?.facts))
}
