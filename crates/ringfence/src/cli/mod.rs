//! The command line: its commands and their exit codes. An invalid command line exits with 2 and any other failure of
//! our own with 125, to keep them apart from a script's own codes.

mod approvals;
mod artifacts;
mod audit;
mod bench;
mod commit;
mod config;
mod connect;
mod doctor;
mod executions;
mod hints;
mod host;
mod live;
mod manual;
mod outcome;
mod request;
mod run;
mod secret;
mod serve;
mod session;
mod snapshot;
mod stored;
mod token;
mod validate;
mod vault;
mod web;

use crate::{
    control::{EgressRequest, Request},
    log::Log,
    render::Rendered,
    settings::{self, Environment, Flags, Layer, LogLevel, Origin},
    terminal::{Terminal, neutral},
};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use ringfence_types::{ErrorCode, Namespace, RequestError};
use std::{ffi::OsString, io, path::PathBuf, process::ExitCode};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of our own failures.
const FAILED: u8 = 125;
/// Exit code of an invalid command line.
const MISUSED: u8 = 2;

type CommandResult = Result<ExitCode, RequestError>;

/// Runs untrusted code behind walls that the Linux kernel enforces.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Configuration file [default: $RINGFENCE_CONFIG, else ~/.config/ringfence/config.yaml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a script in a sandbox, stream its output and exit with its exit code
    Run(Box<run::RunArguments>),
    /// Check code, JSON or tables without running anything (exit code 1 if rejected, 2 for a wrong command line)
    Validate(Box<validate::ValidateArguments>),
    /// Serve the tools to an MCP client
    Serve(serve::ServeArguments),
    /// Serve MCP on stdin and stdout by forwarding everything to a running server
    Connect(connect::ConnectArguments),
    /// Create, list and revoke tokens for clients of `serve --transport http`
    #[command(subcommand)]
    Token(token::TokenAction),
    /// Keep interpreters alive in a running server, and run code in them
    Session(session::SessionArguments),
    /// Save, list and restore the workspaces of namespaces
    Snapshot(snapshot::SnapshotArguments),
    /// Set a variable in a session
    Bridge(session::BridgeArguments),
    /// Show the events of a running server
    Events(executions::EventsArguments),
    /// List executions of running servers: running ones, and ended ones whose results are kept
    Ps {
        /// Limit the list to this namespace
        #[arg(long, value_name = "NAME")]
        namespace: Option<Namespace>,
        /// Maximum number per server: running ones first, then the latest
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20, value_parser = request::whole::<usize>)]
        limit: usize,
        #[command(flatten)]
        opts: live::Options,
    },
    /// Print a program's output, while it runs or as long as its result is kept
    Logs(executions::LogsArguments),
    /// Stop a program that runs in a server; it is not an error if it has already ended
    Cancel {
        /// The execution_id, as `ringfence ps` shows it
        execution: String,
        #[command(flatten)]
        opts: live::Options,
    },
    /// Show how many executions run and wait in the servers of this user
    #[command(subcommand)]
    Queue(live::QueueAction),
    /// Show statistics of this user's servers: queue, sandboxes, sessions, memory
    Stats(live::Options),
    /// Show the activity of a namespace, and what it may use
    Inspect(live::InspectArguments),
    /// Show, lower or restore the limits of a namespace
    Limits(live::LimitsArguments),
    /// Request access to a host for programs of a running server; wait for the answer (exit code 1 if denied)
    Egress {
        #[command(flatten)]
        request: EgressRequest,
        #[command(flatten)]
        opts: live::Options,
    },
    /// Run commands and use files of this host by the rules for agents; show these rules
    #[command(subcommand)]
    Host(host::HostAction),
    /// Show and answer the requests of programs and models
    Approvals(approvals::ApprovalsArguments),
    /// Search, fetch or browse the web as agents do
    #[command(subcommand)]
    Web(web::WebAction),
    /// Add, list and delete secrets
    #[command(subcommand)]
    Vault(vault::VaultAction),
    /// Show, check and export the audit record
    Audit(audit::AuditArguments),
    /// List or copy out the files that executions left
    Artifacts(artifacts::ArtifactsArguments),
    /// Check that a file has a digest, or is an artifact of an execution (exit code 1 if not)
    Verify(artifacts::VerifyArguments),
    /// Test every layer of isolation on this host, and show what is missing and how to get it
    Doctor(doctor::DoctorArguments),
    /// Measure the time of a run on this host, compared with the bare interpreter
    Bench(bench::BenchArguments),
    /// Show, check and describe the configuration
    Config(config::ConfigArguments),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArguments),
    /// Write the manual pages to a directory, or print the main page
    Man(manual::ManArguments),
}

/// Runs the whole program except the helper. The caller has made sure that no other thread runs yet.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // Forked before anything is read: a fork has a copy of what this process has read.
    let helper = run::fork_helper(&words);
    let environment = Environment::capture();
    let terminal = Terminal::new(&environment);
    // Most command lines are valid; adding the examples would cost each of them half a millisecond.
    let parsed = Cli::command()
        .try_get_matches_from(&words)
        .or_else(|_| definition().try_get_matches_from(config_first(&words)));
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, asks_for_json(&matches))));
    let (cli, json) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(terminal, &words, &error),
    };
    let Cli { command, config } = cli;
    let context = Context {
        environment,
        terminal,
        config,
    };
    let done = match command {
        Command::Run(arguments) => run::run(&context, *arguments, helper),
        Command::Validate(arguments) => validate::validate(&context, &arguments),
        Command::Serve(arguments) => serve::serve(&context, arguments),
        Command::Connect(arguments) => connect::connect(&context, arguments),
        Command::Token(action) => token::token(&context, action),
        Command::Session(arguments) => session::session(&context, arguments),
        Command::Snapshot(arguments) => snapshot::snapshot(&context, arguments),
        Command::Bridge(arguments) => session::bridge(&context, arguments),
        Command::Events(arguments) => executions::events(&context, &arguments),
        Command::Ps {
            namespace,
            limit,
            opts,
        } => live::all(&context, &opts, &Request::ExecutionsList { namespace, limit }),
        Command::Logs(arguments) => executions::logs(&context, arguments),
        Command::Cancel { execution, opts } => {
            live::one(&context, &opts, &Request::ExecutionsCancel { execution })
        }
        Command::Queue(live::QueueAction::Status(opts)) => live::all(&context, &opts, &Request::Queue),
        Command::Stats(opts) => live::all(&context, &opts, &Request::Stats),
        Command::Inspect(arguments) => live::inspect(&context, arguments),
        Command::Limits(arguments) => live::limits(&context, arguments),
        Command::Egress { request, opts } => approvals::egress(&context, request, &opts),
        Command::Host(action) => host::host(&context, action),
        Command::Approvals(arguments) => approvals::approvals(&context, arguments),
        Command::Web(action) => web::web(&context, action),
        Command::Vault(action) => vault::vault(&context, action),
        Command::Audit(arguments) => audit::audit(&context, arguments),
        Command::Artifacts(arguments) => artifacts::artifacts(&context, &arguments),
        Command::Verify(arguments) => artifacts::verify(&context, &arguments),
        Command::Doctor(arguments) => doctor::doctor(&context, &arguments),
        Command::Bench(arguments) => bench::bench(&context, &arguments),
        Command::Config(arguments) => config::config(&context, &arguments),
        Command::Completions(arguments) => manual::completions(&context, &arguments),
        Command::Man(arguments) => manual::man(&context, &arguments),
    };
    done.unwrap_or_else(|error| {
        let error = hints::in_commands(error);
        report_error(terminal, json, &error);
        ExitCode::from(status_of(&error))
    })
}

/// Returns the words with `--config` moved to the front. After a command that has both flags of its own and
/// subcommands, clap accepts no flag before a subcommand, not even a global one.
fn config_first(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    let has_both = words
        .get(1)
        .is_some_and(|word| word == "audit" || word == "snapshot");
    let own = words.iter().take_while(|word| *word != "--").enumerate();
    let mut flags = own.filter_map(|(at, word)| match word.as_encoded_bytes() {
        b"--config" => Some((at, 2)),
        text => text.starts_with(b"--config=").then_some((at, 1)),
    });
    let flag = flags.next().filter(|_| has_both);
    if let Some((at, taken)) = flag
        && let Some(words) = words.get_mut(1..at + taken)
    {
        words.rotate_right(taken);
    }
    words
}

#[expect(
    clippy::fn_params_excessive_bools,
    reason = "the flag `--json`, as it was typed"
)]
fn report_error(terminal: Terminal, json: bool, error: &RequestError) {
    let printed = json && terminal.print_json(&serde_json::json!({"error": error})).is_ok();
    if !printed {
        terminal.error(error);
    }
}

/// Exit code of an error. An invalid argument counts as an invalid command line, also if the server finds it.
fn status_of(error: &RequestError) -> u8 {
    match error.code {
        ErrorCode::InvalidArgument | ErrorCode::UnknownArgument | ErrorCode::UnsupportedArgument => MISUSED,
        _ => FAILED,
    }
}

fn asks_for_json(matches: &ArgMatches) -> bool {
    let own = matches.try_get_one::<bool>("json").ok().flatten();
    let inner = matches.subcommand();
    own == Some(&true) || inner.is_some_and(|(_, inner)| asks_for_json(inner))
}

/// Prints help or the version, which is a success, or the error of an invalid command line.
fn usage(terminal: Terminal, words: &[OsString], error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed stdout cannot be reported anywhere else.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    // Words after `--` belong to the script.
    let mut own = words.iter().take_while(|word| *word != "--");
    let printed = own.any(|word| word == "--json")
        && terminal
            .print_json(&serde_json::json!({"error": usage_error(error)}))
            .is_ok();
    if !printed {
        drop(error.print());
    }
    ExitCode::from(MISUSED)
}

/// Converts clap's error: the first paragraph becomes the message, the others the hint.
fn usage_error(error: &clap::Error) -> RequestError {
    let text = error.render().to_string();
    let mut paragraphs = text
        .split("\n\n")
        .map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let rest: Vec<String> = paragraphs.filter(|one| !one.is_empty()).collect();
    RequestError::invalid(format!("{message}."), rest.join(" "))
}

struct Context {
    environment: Environment,
    terminal: Terminal,
    config: Option<PathBuf>,
}

impl Context {
    fn settings(&self, layer: Layer, log: LogLevel) -> Result<settings::Config, RequestError> {
        self.checked(layer, log).map_err(settings::first)
    }

    fn checked(&self, layer: Layer, log: LogLevel) -> Result<settings::Config, Vec<RequestError>> {
        let flags = Flags {
            config: self.config.clone(),
            layer,
            log,
        };
        let config = settings::check(&self.environment, flags)?;
        if let Some(warning) = &config.warning {
            self.terminal.note(&crate::sentence::without_numbers(warning));
        }
        Ok(config)
    }

    fn config(&self) -> Result<settings::Config, RequestError> {
        self.settings(Layer::default(), LogLevel::Error)
    }

    fn begin(&self) -> Result<settings::Config, RequestError> {
        let config = self.config()?;
        Log::begin(config.log);
        Ok(config)
    }

    fn state_dir(&self) -> Result<PathBuf, RequestError> {
        Ok(self.config()?.engine.state_dir)
    }

    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the flag `--json`, as it was typed"
    )]
    fn show(&self, json: bool, rendered: &Rendered) -> CommandResult {
        printed(match json {
            true => self.terminal.print_json(&rendered.facts),
            false => self.terminal.print(&neutral::text(&rendered.text)),
        })
    }
}

fn printed(result: io::Result<()>) -> CommandResult {
    ended(result, 0)
}

fn ended(printed: io::Result<()>, code: u8) -> CommandResult {
    printed.map_err(|error| fault("print", &error))?;
    Ok(ExitCode::from(code))
}

fn interrupts() -> Result<Signal, RequestError> {
    signal(SignalKind::interrupt()).map_err(|error| fault("listen for signals", &error))
}

fn set(layer: &mut Layer, path: &str, text: &str, flag: &'static str) -> Result<(), RequestError> {
    layer.set(path, text, Origin::Flag(flag)).map_err(|reason| {
        RequestError::invalid(
            crate::sentence::sentence(&format!("{flag}: {reason}")),
            format!("It sets `{path}`."),
        )
    })
}

fn fault(operation: &str, error: &io::Error) -> RequestError {
    RequestError::fault(
        format!("could not {operation}: {error}."),
        "Run `ringfence doctor`.",
    )
}

fn definition() -> clap::Command {
    manual::complete(Cli::command())
}

#[cfg(test)]
pub(crate) mod tests;
