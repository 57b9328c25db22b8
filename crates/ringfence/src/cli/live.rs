//! The commands that ask servers which run: `queue`, `stats`, `inspect`, `limits`. How an answer of one or several is
//! printed stands here for the others, too.

use super::{Context, FAILED, fault};
use crate::{
    control::{self, Answered, Request},
    settings::{Layer, LogLevel},
    shown::Shown,
    terminal::neutral,
};
use clap::{Args, Subcommand};
use ringfence_types::{LimitsRequest, Namespace, RequestError};
use serde_json::{Value, json};
use std::{path::Path, process::ExitCode};

/// Which server, and how its answer is printed.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// Process number of the server that is meant, where several run
    #[arg(long, value_name = "PID")]
    pub(super) server: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
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
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    namespace: Namespace,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(super) struct LimitsArguments {
    /// Namespace whose limits are meant
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    namespace: Namespace,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    ram_mb: Option<u64>,
    /// Processor cores; fractions are allowed
    #[arg(long, value_name = "CORES")]
    cpus: Option<f64>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// Bytes of output that are kept, of each stream
    #[arg(long, value_name = "BYTES")]
    output_bytes: Option<u64>,
    /// Private disk in MiB
    #[arg(long, value_name = "MIB")]
    disk_mb: Option<u64>,
    /// Give back what the operator's configuration allows
    #[arg(long, conflicts_with_all = ["ram_mb", "cpus", "timeout", "processes", "output_bytes", "disk_mb"])]
    restore: bool,
    #[command(flatten)]
    ask: Ask,
}

/// A namespace on the command line.
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
    let InspectArguments { namespace, ask } = arguments;
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
        timeout_ms: arguments.timeout.map(super::request::milliseconds).transpose()?,
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

/// Asks every server.
pub(super) fn all(context: &Context, ask: &Ask, request: &Request) -> Result<ExitCode, RequestError> {
    let state_dir = &context
        .settings(Layer::default(), LogLevel::Error)?
        .engine
        .state_dir;
    let answers = wait(control::ask_all(state_dir, ask.server, request))?;
    print(context, ask, answers)
}

/// Asks the one server that there is, or that is meant.
pub(super) fn one(context: &Context, ask: &Ask, request: &Request) -> Result<ExitCode, RequestError> {
    let state_dir = &context
        .settings(Layer::default(), LogLevel::Error)?
        .engine
        .state_dir;
    one_of(context, state_dir, ask, request)
}

/// The same, with the configuration read already.
pub(super) fn one_of(
    context: &Context,
    state_dir: &Path,
    ask: &Ask,
    request: &Request,
) -> Result<ExitCode, RequestError> {
    let Answered { pid, answer } = wait(control::ask_one(state_dir, ask.server, request))?;
    let shown = answer?;
    let printed = if ask.json {
        context.terminal.print_json(&document(pid, Ok(shown)))
    } else {
        context.terminal.print(&neutral::text(&shown.text))
    };
    printed.map_err(|error| fault("print", &error))?;
    Ok(ExitCode::SUCCESS)
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
fn print(context: &Context, ask: &Ask, answers: Vec<Answered>) -> Result<ExitCode, RequestError> {
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
        for Answered { pid, answer } in answers {
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

fn document(pid: u32, answer: Result<Shown, RequestError>) -> Value {
    let mut document = match answer {
        Ok(shown) => shown.facts,
        Err(error) => json!({"error": error}),
    };
    document["pid"] = json!(pid);
    document
}
