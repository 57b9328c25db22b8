//! How servers that run are asked and their answers printed, and the commands that do no more: `inspect`, `limits`.

use super::{CommandResult, Context, FAILED, ended, fault, hints, request};
use crate::{
    control::{self, Request, ServerReply},
    log,
    terminal::neutral,
};
use clap::{Args, Subcommand};
use ringfence_engine::{Engine, EngineSettings};
use ringfence_types::{LimitsRequest, Namespace, RequestError};
use serde_json::{Value, json};
use std::path::Path;
use tokio::runtime::{Builder, Runtime};

/// Which server, and how its answer is printed.
#[derive(Debug, Args)]
pub(super) struct Ask {
    /// Process number of the server that is meant, where several run
    #[arg(long, value_name = "PID", value_parser = request::whole::<u32>)]
    pub(super) server: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// What a server has that a request is about: its kind and its id.
fn subject_of(request: &Request) -> Option<(&'static str, &str)> {
    match request {
        Request::Session { session, .. } => Some(("session", session.as_str())),
        Request::SessionExec { call } => Some(("session", call.session.as_str())),
        Request::ExecutionsCancel { execution } | Request::Logs { execution, .. } => {
            Some(("execution", execution))
        }
        _ => None,
    }
}

/// The process number of the server that has what the request is about. If only one server runs, it is that one, which
/// says best why it has none.
pub(super) async fn server_for(
    state_dir: &Path,
    only: Option<u32>,
    request: &Request,
) -> Result<u32, RequestError> {
    let Some((what, id)) = subject_of(request) else {
        return control::expect_one(state_dir, only).await;
    };
    let (namespace, limit) = (None, usize::MAX);
    let (command, list) = match what {
        "session" => ("session list", Request::SessionList { namespace }),
        _ => ("ps", Request::ExecutionsList { namespace, limit }),
    };
    let answers = control::ask_all(state_dir, only, &list).await?;
    let lists_it = |reply: &&ServerReply| {
        let shown = reply.answer.as_ref().ok();
        let all = shown.and_then(|shown| shown.facts[format!("{what}s")].as_array());
        all.into_iter()
            .flatten()
            .any(|one| one[format!("{what}_id")] == id)
    };
    let found = match answers.as_slice() {
        [one] => Some(one),
        several => several.iter().find(lists_it),
    };
    found.map(|reply| reply.pid).ok_or_else(|| {
        RequestError::not_found(
            format!("none of {} servers has the {what} {id}.", answers.len()),
            format!("`ringfence {command}` shows those there are."),
        )
    })
}

/// Asks the server that has what the request is about, or the one server that there is.
pub(super) async fn ask(
    state_dir: &Path,
    only: Option<u32>,
    request: &Request,
) -> Result<ServerReply, RequestError> {
    let pid = server_for(state_dir, only, request).await?;
    control::ask_one(state_dir, Some(pid), request).await
}

pub(super) fn not_understood() -> RequestError {
    RequestError::store_fault(
        "the server's answer is not understood.",
        "Use the `ringfence` command of the server's version.",
    )
}

#[derive(Debug, Subcommand)]
pub(super) enum QueueAction {
    /// Show how many run and wait, and whose they are
    Status(Ask),
}

#[derive(Debug, Args)]
pub(super) struct InspectArguments {
    /// Namespace to look into
    #[arg(value_name = "NAMESPACE", default_value = "default")]
    named: Namespace,
    /// The same; with both, this one
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, Args)]
pub(super) struct LimitWords {
    /// Memory in MiB
    #[arg(long, value_name = "MIB", alias = "ram", value_parser = request::whole::<u64>)]
    ram_mb: Option<u64>,
    /// Processor cores; fractions are allowed
    #[arg(long, value_name = "CORES", alias = "cpu", value_parser = request::positive)]
    cpus: Option<f64>,
    /// Wall-clock limit in seconds
    #[arg(long, value_name = "SECONDS", value_parser = request::seconds)]
    timeout: Option<u64>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT", value_parser = request::whole::<u32>)]
    processes: Option<u32>,
    /// Bytes of output that are kept, of each stream
    #[arg(long, value_name = "BYTES", value_parser = request::whole::<u64>)]
    output_bytes: Option<u64>,
    /// Private disk in MiB
    #[arg(long, value_name = "MIB", value_parser = request::whole::<u64>)]
    disk_mb: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct LimitsArguments {
    /// Namespace whose limits are meant
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    #[command(flatten)]
    words: LimitWords,
    /// Give back what the operator's configuration allows
    #[arg(long, conflicts_with_all = ["ram_mb", "cpus", "timeout", "processes", "output_bytes", "disk_mb"])]
    restore: bool,
    #[command(flatten)]
    ask: Ask,
}

impl LimitWords {
    pub(super) fn request(&self) -> LimitsRequest {
        LimitsRequest {
            max_ram_mb: self.ram_mb,
            max_cpu_cores: self.cpus,
            timeout_ms: self.timeout,
            max_processes: self.processes,
            max_output_bytes: self.output_bytes,
            max_disk_mb: self.disk_mb,
        }
    }
}

pub(super) fn inspect(context: &Context, arguments: InspectArguments) -> CommandResult {
    let namespace = arguments.namespace.unwrap_or(arguments.named);
    all(context, &arguments.ask, &Request::Inspect { namespace })
}

/// Without a limit and without `--restore` it shows them.
pub(super) fn limits(context: &Context, arguments: LimitsArguments) -> CommandResult {
    let LimitsArguments { namespace, ask, .. } = &arguments;
    let (ask, namespace) = (ask, namespace.clone());
    if arguments.restore {
        return one(context, ask, &Request::LimitsRestore { namespace });
    }
    let limits = arguments.words.request();
    if limits == LimitsRequest::default() {
        all(context, ask, &Request::LimitsGet { namespace })
    } else {
        one(context, ask, &Request::LimitsSet { namespace, limits }).map_err(hints::of_limits)
    }
}

pub(super) fn all(context: &Context, ask: &Ask, request: &Request) -> CommandResult {
    let state_dir = &context.state_dir()?;
    let answers = wait(control::ask_all(state_dir, ask.server, request))?;
    print(context, ask, answers)
}

pub(super) fn one(context: &Context, ask: &Ask, request: &Request) -> CommandResult {
    one_of(context, &context.state_dir()?, ask, request)
}

/// The same, with the configuration read already. The server is named in the facts of its answer.
pub(super) fn one_of(context: &Context, state_dir: &Path, how: &Ask, request: &Request) -> CommandResult {
    let reply = wait(ask(state_dir, how.server, request))?;
    let mut shown = reply.answer?;
    shown.text = hints::limits_shown(&shown.text);
    shown.facts["pid"] = json!(reply.pid);
    context.show(how.json, &shown)
}

pub(super) fn wait<T>(asking: impl Future<Output = Result<T, RequestError>>) -> Result<T, RequestError> {
    runtime()?.block_on(asking)
}

/// What needs no server that runs: done by an engine of our own, which keeps nothing ready.
pub(super) fn with_engine<T>(
    settings: EngineSettings,
    work: impl AsyncFnOnce(&Engine) -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    wait(async {
        let engine = Engine::open(settings)?;
        log::redact_with(engine.log_redactor());
        let done = work(&engine).await;
        engine.leave_at_exit();
        done
    })
}

pub(super) fn runtime() -> Result<Runtime, RequestError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| fault("start", &error))
}

/// A refusal of the only server is ours; of several, each says its own.
fn print(context: &Context, ask: &Ask, answers: Vec<ServerReply>) -> CommandResult {
    let terminal = context.terminal;
    let all_well = answers.iter().all(|answered| answered.answer.is_ok());
    let printed = if ask.json {
        let document = |reply: ServerReply| {
            let error = |error| json!({"error": error});
            let mut document = reply.answer.map_or_else(error, |shown| shown.facts);
            document["pid"] = json!(reply.pid);
            document
        };
        let servers: Vec<Value> = answers.into_iter().map(document).collect();
        terminal.print_json(&json!({"servers": servers}))
    } else {
        let is_one = answers.len() == 1;
        let mut text = String::new();
        for ServerReply { pid, answer } in answers {
            if !is_one {
                text += &format!("server {pid}\n");
            }
            match answer {
                Ok(shown) => text += &neutral::text(&hints::limits_shown(&shown.text)),
                Err(error) if is_one => return Err(error),
                Err(error) => text += &format!("{}\n", neutral::line(&error.to_string())),
            }
        }
        terminal.print(&text)
    };
    ended(printed, if all_well { 0 } else { FAILED })
}
