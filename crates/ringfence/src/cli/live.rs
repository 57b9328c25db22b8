//! Requests to running servers and their printed answers; the commands `inspect` and `limits`, which do no more.

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

/// The server to ask, and the form in which its answer is printed.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Process number of the server, if several run
    #[arg(long, value_name = "PID", value_parser = request::whole::<u32>)]
    pub(super) server: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

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

/// Returns the process number of the server that has the subject of the request. A single running server is returned
/// without a check: its own answer explains best what it lacks.
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
            format!("See `ringfence {command}`."),
        )
    })
}

/// Asks the server that has the subject of the request, or the only running server.
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
    /// Show how many executions run, and how many wait in each namespace
    Status(Options),
}

#[derive(Debug, Args)]
pub(super) struct InspectArguments {
    /// Namespace to inspect
    #[arg(value_name = "NAMESPACE", default_value = "default")]
    named: Namespace,
    /// The namespace, given as a flag; it takes precedence
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    #[command(flatten)]
    opts: Options,
}

#[derive(Debug, Args)]
pub(super) struct NamespaceLimitFlags {
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
    /// Bytes of output that are kept of each stream
    #[arg(long, value_name = "BYTES", value_parser = request::whole::<u64>)]
    output_bytes: Option<u64>,
    /// Private disk in MiB
    #[arg(long, value_name = "MIB", value_parser = request::whole::<u64>)]
    disk_mb: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct LimitsArguments {
    /// Namespace whose limits are shown or set
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: Namespace,
    #[command(flatten)]
    limits: NamespaceLimitFlags,
    /// Restore the limits of the operator's configuration
    #[arg(long, conflicts_with_all = ["ram_mb", "cpus", "timeout", "processes", "output_bytes", "disk_mb"])]
    restore: bool,
    #[command(flatten)]
    opts: Options,
}

impl NamespaceLimitFlags {
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
    all(context, &arguments.opts, &Request::Inspect { namespace })
}

/// Sets or restores the limits; without a limit and `--restore` it shows them.
pub(super) fn limits(context: &Context, arguments: LimitsArguments) -> CommandResult {
    let LimitsArguments { namespace, opts, .. } = &arguments;
    let (opts, namespace) = (opts, namespace.clone());
    if arguments.restore {
        return one(context, opts, &Request::LimitsRestore { namespace });
    }
    let limits = arguments.limits.request();
    if limits == LimitsRequest::default() {
        all(context, opts, &Request::LimitsGet { namespace })
    } else {
        one(context, opts, &Request::LimitsSet { namespace, limits }).map_err(hints::limits_error_in_flags)
    }
}

pub(super) fn all(context: &Context, opts: &Options, request: &Request) -> CommandResult {
    let state_dir = &context.state_dir()?;
    let answers = wait(control::ask_all(state_dir, opts.server, request))?;
    print(context, opts, answers)
}

pub(super) fn one(context: &Context, opts: &Options, request: &Request) -> CommandResult {
    one_of(context, &context.state_dir()?, opts, request)
}

/// Like `one`, with the state directory already known. The facts of the answer get the server's `pid`.
pub(super) fn one_of(context: &Context, dir: &Path, opts: &Options, request: &Request) -> CommandResult {
    let reply = wait(ask(dir, opts.server, request))?;
    let mut shown = reply.answer?;
    shown.text = hints::limits_in_flags(&shown.text);
    shown.facts["pid"] = json!(reply.pid);
    context.show(opts.json, &shown)
}

pub(super) fn wait<T>(future: impl Future<Output = Result<T, RequestError>>) -> Result<T, RequestError> {
    runtime()?.block_on(future)
}

/// Does work that needs no running server with an engine of our own, which keeps no sandboxes ready.
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

/// Prints the answers. An error of the only server is the command's; of several servers, each prints its own.
fn print(context: &Context, opts: &Options, answers: Vec<ServerReply>) -> CommandResult {
    let terminal = context.terminal;
    let all_well = answers.iter().all(|answered| answered.answer.is_ok());
    let printed = if opts.json {
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
                Ok(shown) => text += &neutral::text(&hints::limits_in_flags(&shown.text)),
                Err(error) if is_one => return Err(error),
                Err(error) => text += &format!("{}\n", neutral::line(&error.to_string())),
            }
        }
        terminal.print(&text)
    };
    ended(printed, if all_well { 0 } else { FAILED })
}
