//! The commands that ask servers which run: `queue`, `stats`, `inspect`, `limits`. How an answer of one or several is
//! printed stands here for the others, too.

use super::{Context, FAILED, fault, request};
use crate::{
    control::{self, Request, ServerReply},
    render::Rendered,
    terminal::neutral,
};
use clap::{Args, Subcommand};
use ringfence_types::{ErrorCode, LimitsRequest, Namespace, RequestError};
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};

/// Which server, and how its answer is printed.
#[derive(Debug, Default, Args)]
pub(super) struct Ask {
    /// Process number of the server that is meant, where several run
    #[arg(long, value_name = "PID", value_parser = request::whole::<u32>)]
    pub(super) server: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl Ask {
    pub(super) fn at(&self, pid: u32) -> Self {
        Self {
            server: Some(pid),
            json: self.json,
        }
    }
}

/// What a server has that a command can be about.
#[derive(Clone, Copy)]
pub(super) enum Subject {
    Session,
    Execution,
}

/// The process number of the server that has it. If only one server runs, it is that one, which says best why it has
/// none.
pub(super) async fn server_of(
    state_dir: &Path,
    only: Option<u32>,
    subject: Subject,
    id: &str,
) -> Result<u32, RequestError> {
    let (namespace, limit) = (None, usize::MAX);
    let (request, what, command) = match subject {
        Subject::Session => (Request::SessionList { namespace }, "session", "session list"),
        Subject::Execution => (Request::ExecutionsList { namespace, limit }, "execution", "ps"),
    };
    let answers = control::ask_all(state_dir, only, &request).await?;
    let lists_it = |reply: &&ServerReply| {
        let facts = reply
            .answer
            .as_ref()
            .ok()
            .map(|shown| &shown.facts[format!("{what}s")]);
        let all = facts.and_then(Value::as_array).into_iter().flatten();
        all.into_iter().any(|one| one[format!("{what}_id")] == id)
    };
    let found = match answers.as_slice() {
        [one] => Some(one),
        several => several.iter().find(lists_it),
    };
    found.map(|reply| reply.pid).ok_or_else(|| {
        RequestError::new(
            ErrorCode::NotFound,
            format!("none of {} servers has the {what} {id}.", answers.len()),
            format!("`ringfence {command}` shows those there are."),
        )
    })
}

/// A server of another version.
pub(super) fn not_understood() -> RequestError {
    RequestError::new(
        ErrorCode::StoreFault,
        "the server's answer is not understood.",
        "Use the `ringfence` command of the server's version.",
    )
}

#[derive(Debug, Args)]
pub(super) struct QueueArguments {
    #[command(subcommand)]
    action: QueueAction,
}

#[derive(Debug, Subcommand)]
enum QueueAction {
    /// Show how many run and wait, and whose they are
    Status(Ask),
}

#[derive(Debug, Args)]
pub(super) struct StatsArguments {
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(super) struct InspectArguments {
    /// Namespace to look into
    #[arg(value_name = "NAMESPACE", default_value = "default", value_parser = namespace)]
    named: Namespace,
    /// The same; with both, this one
    #[arg(long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<Namespace>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(super) struct LimitsArguments {
    /// Namespace whose limits are meant
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    namespace: Namespace,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", alias = "ram", value_parser = request::whole::<u64>)]
    ram_mb: Option<u64>,
    /// Processor cores; fractions are allowed
    #[arg(long, value_name = "CORES", alias = "cpu", value_parser = request::number)]
    cpus: Option<f64>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS", value_parser = request::number)]
    timeout: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT", value_parser = request::whole::<u32>)]
    processes: Option<u32>,
    /// Bytes of output that are kept, of each stream
    #[arg(long, value_name = "BYTES", value_parser = request::whole::<u64>)]
    output_bytes: Option<u64>,
    /// Private disk in MiB
    #[arg(long, value_name = "MIB", value_parser = request::whole::<u64>)]
    disk_mb: Option<u64>,
    /// Give back what the operator's configuration allows
    #[arg(long, conflicts_with_all = ["ram_mb", "cpus", "timeout", "processes", "output_bytes", "disk_mb"])]
    restore: bool,
    #[command(flatten)]
    ask: Ask,
}

pub(super) fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::try_from(text.to_owned())
}

pub(super) fn queue(context: &Context, arguments: &QueueArguments) -> Result<ExitCode, RequestError> {
    let QueueAction::Status(ask) = &arguments.action;
    all(context, ask, &Request::Queue)
}

pub(super) fn stats(context: &Context, arguments: &StatsArguments) -> Result<ExitCode, RequestError> {
    all(context, &arguments.ask, &Request::Stats)
}

pub(super) fn inspect(context: &Context, arguments: InspectArguments) -> Result<ExitCode, RequestError> {
    let InspectArguments {
        named,
        namespace,
        ask,
    } = arguments;
    let namespace = namespace.unwrap_or(named);
    all(context, &ask, &Request::Inspect { namespace })
}

/// Without a limit and without `--restore` it shows them.
pub(super) fn limits(context: &Context, arguments: LimitsArguments) -> Result<ExitCode, RequestError> {
    let LimitsArguments { namespace, ask, .. } = &arguments;
    let (ask, namespace) = (ask, namespace.clone());
    if arguments.restore {
        return one(context, ask, &Request::LimitsRestore { namespace });
    }
    let limits = LimitsRequest {
        max_ram_mb: arguments.ram_mb,
        max_cpu_cores: arguments.cpus,
        timeout_ms: arguments.timeout.map(request::milliseconds).transpose()?,
        max_processes: arguments.processes,
        max_output_bytes: arguments.output_bytes,
        max_disk_mb: arguments.disk_mb,
    };
    if limits == LimitsRequest::default() {
        all(context, ask, &Request::LimitsGet { namespace })
    } else {
        one(context, ask, &Request::LimitsSet { namespace, limits })
    }
}

pub(super) fn all(context: &Context, ask: &Ask, request: &Request) -> Result<ExitCode, RequestError> {
    let state_dir = &context.state_dir()?;
    let answers = wait(control::ask_all(state_dir, ask.server, request))?;
    print(context, ask, answers)
}

/// Asks the one server that there is, or that is meant.
pub(super) fn one(context: &Context, ask: &Ask, request: &Request) -> Result<ExitCode, RequestError> {
    let state_dir = &context.state_dir()?;
    one_of(context, state_dir, ask, request)
}

/// The same, with the configuration read already.
pub(super) fn one_of(
    context: &Context,
    state_dir: &Path,
    ask: &Ask,
    request: &Request,
) -> Result<ExitCode, RequestError> {
    let ServerReply { pid, answer } = wait(control::ask_one(state_dir, ask.server, request))?;
    let mut shown = answer?;
    shown.facts["pid"] = json!(pid);
    context.show(ask.json, &shown)
}

/// The process number of the one server that there is, or that is meant.
pub(super) fn expect_one(state_dir: &Path, ask: &Ask) -> Result<u32, RequestError> {
    wait(control::expect_one(state_dir, ask.server))
}

pub(super) fn wait<T>(asking: impl Future<Output = Result<T, RequestError>>) -> Result<T, RequestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| fault("start", &error))?.block_on(asking)
}

/// A refusal of the only server is ours; of several, each says its own.
fn print(context: &Context, ask: &Ask, answers: Vec<ServerReply>) -> Result<ExitCode, RequestError> {
    let terminal = context.terminal;
    let all_well = answers.iter().all(|answered| answered.answer.is_ok());
    let printed = if ask.json {
        let servers: Vec<Value> = answers
            .into_iter()
            .map(|answered| document(answered.pid, answered.answer))
            .collect();
        terminal.print_json(&json!({"servers": servers}))
    } else {
        let is_one = answers.len() == 1;
        let mut text = String::new();
        for ServerReply { pid, answer } in answers {
            if !is_one {
                text += &format!("server {pid}\n");
            }
            match answer {
                Ok(shown) => text += &neutral::text(&shown.text),
                Err(error) if is_one => return Err(error),
                Err(error) => text += &format!("{}\n", neutral::line(&error.to_string())),
            }
        }
        terminal.print(&text)
    };
    printed.map_err(|error| fault("print", &error))?;
    Ok(if all_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

fn document(pid: u32, answer: Result<Rendered, RequestError>) -> Value {
    let mut document = match answer {
        Ok(shown) => shown.facts,
        Err(error) => json!({"error": error}),
    };
    document["pid"] = json!(pid);
    document
}
