//! The command line: what may be typed, and which exit code each end has. A command line that makes no sense ends with
//! 2, everything else of ours that fails with 125, so that a script's own codes stay its own.

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
/// Of a command line that does not make sense.
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
    /// Run a script in a sandbox: its output streams, its exit code is ours
    Run(Box<run::RunArguments>),
    /// Check code, JSON or tables without running anything (exit code 1 if rejected, 2 for a wrong command line)
    Validate(Box<validate::ValidateArguments>),
    /// Serve the tools to an MCP client
    Serve(serve::ServeArguments),
    /// Be an MCP server on stdin and stdout that hands everything to a running one
    Connect(connect::ConnectArguments),
    /// Make, list and revoke the tokens of clients of `serve --transport http`
    #[command(subcommand)]
    Token(token::TokenAction),
    /// Keep interpreters alive in a running server, and run code in them
    Session(session::SessionArguments),
    /// Save, list and restore the workspaces that are kept for namespaces
    Snapshot(snapshot::SnapshotArguments),
    /// Give a session a variable
    Bridge(session::BridgeArguments),
    /// Show what happens in a running server
    Events(executions::EventsArguments),
    /// List the executions of running servers: those that run, and those whose results are kept
    Ps {
        /// Only those of this namespace
        #[arg(long, value_name = "NAME")]
        namespace: Option<Namespace>,
        /// At most so many of each server: those that run, then the latest
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20, value_parser = request::whole::<usize>)]
        limit: usize,
        #[command(flatten)]
        ask: live::Ask,
    },
    /// Print what a program has written, while it runs or as long as its result is kept
    Logs(executions::LogsArguments),
    /// Stop a program that runs in a server; one that has ended already is no error
    Cancel {
        /// The execution_id, as `ringfence ps` shows it
        execution: String,
        #[command(flatten)]
        ask: live::Ask,
    },
    /// Show how many run and wait in the servers of this user
    #[command(subcommand)]
    Queue(live::QueueAction),
    /// Show what the servers of this user have and take
    Stats(live::Ask),
    /// Show what happens in a namespace, and what it may use
    Inspect(live::InspectArguments),
    /// Show or narrow what a namespace may use
    Limits(live::LimitsArguments),
    /// Ask whether programs of a running server may reach a host; wait for the answer (exit code 1 if denied)
    Egress {
        #[command(flatten)]
        wish: EgressRequest,
        #[command(flatten)]
        ask: live::Ask,
    },
    /// Run commands and use files of this host as an agent would, by rules; say what the rules are
    #[command(subcommand)]
    Host(host::HostAction),
    /// Show what programs and models ask for, and answer
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
    /// Say whether a file has a digest, or is what an execution left (exit code 1 if not)
    Verify(artifacts::VerifyArguments),
    /// Try every layer of isolation on this host, and say what is missing and how to get it
    Doctor(doctor::DoctorArguments),
    /// Measure what a run costs on this host, beside the bare interpreter
    Bench(bench::BenchArguments),
    /// Show, check and describe the configuration
    Config(config::ConfigArguments),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArguments),
    /// Write the manual pages into a directory, or print that of the program
    Man(manual::ManArguments),
}

/// The whole program but the helper; the caller has made sure that no thread runs yet.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // A fork has what this process has read.
    let helper = run::fork_helper(&words);
    let environment = Environment::capture();
    let terminal = Terminal::new(&environment);
    // Most command lines are right, and examples cost every one of them half a millisecond.
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
            ask,
        } => live::all(&context, &ask, &Request::ExecutionsList { namespace, limit }),
        Command::Logs(arguments) => executions::logs(&context, arguments),
        Command::Cancel { execution, ask } => {
            live::one(&context, &ask, &Request::ExecutionsCancel { execution })
        }
        Command::Queue(live::QueueAction::Status(ask)) => live::all(&context, &ask, &Request::Queue),
        Command::Stats(ask) => live::all(&context, &ask, &Request::Stats),
        Command::Inspect(arguments) => live::inspect(&context, arguments),
        Command::Limits(arguments) => live::limits(&context, arguments),
        Command::Egress { wish, ask } => approvals::egress(&context, wish, &ask),
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
        tell(terminal, json, &error);
        ExitCode::from(status_of(&error))
    })
}

/// The words with `--config` in front. Behind commands that have flags of their own and commands, clap takes none, not
/// even a global one.
fn config_first(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    let has_both = words
        .get(1)
        .is_some_and(|word| word == "audit" || word == "snapshot");
    let mut own = words.iter().take_while(|word| *word != "--");
    let at = own.position(|word| word == "--config").filter(|_| has_both);
    if let Some(words) = at.and_then(|at| words.get_mut(1..at + 2)) {
        words.rotate_right(2);
    }
    words
}

/// An error, as a JSON document where that is wanted and stdout takes it.
#[expect(
    clippy::fn_params_excessive_bools,
    reason = "the flag `--json`, as it was typed"
)]
fn tell(terminal: Terminal, json: bool, error: &RequestError) {
    let told = json && terminal.print_json(&serde_json::json!({"error": error})).is_ok();
    if !told {
        terminal.error(error);
    }
}

/// A wrong argument is a wrong command line, also if the server finds it.
fn status_of(error: &RequestError) -> u8 {
    match error.code {
        ErrorCode::InvalidArgument | ErrorCode::UnknownArgument | ErrorCode::UnsupportedArgument => MISUSED,
        _ => FAILED,
    }
}

/// Whether the command has the flag `--json`, and it was given.
fn asks_for_json(matches: &ArgMatches) -> bool {
    let own = matches.try_get_one::<bool>("json").ok().flatten();
    let inner = matches.subcommand();
    own == Some(&true) || inner.is_some_and(|(_, inner)| asks_for_json(inner))
}

/// Help and version are answers; anything else is a command line that we do not understand.
fn usage(terminal: Terminal, words: &[OsString], error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // There is no stream left to report a closed stream on.
        drop(error.print());
        return ExitCode::SUCCESS;
    }
    // What follows `--` is the script's.
    let mut own = words.iter().take_while(|word| *word != "--");
    let told = own.any(|word| word == "--json")
        && terminal
            .print_json(&serde_json::json!({"error": misunderstood(error)}))
            .is_ok();
    if !told {
        drop(error.print());
    }
    ExitCode::from(MISUSED)
}

/// The first paragraph says what is wrong, and the others what would be right.
fn misunderstood(error: &clap::Error) -> RequestError {
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
            self.terminal.note(warning);
        }
        Ok(config)
    }

    /// Of a command without settings of its own.
    fn config(&self) -> Result<settings::Config, RequestError> {
        self.settings(Layer::default(), LogLevel::Error)
    }

    /// The same, with its log begun.
    fn begin(&self) -> Result<settings::Config, RequestError> {
        let config = self.config()?;
        Log::begin(config.log);
        Ok(config)
    }

    fn state_dir(&self) -> Result<PathBuf, RequestError> {
        Ok(self.config()?.engine.state_dir)
    }

    /// Prints the facts as one JSON document, or the text.
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the flag `--json`, as it was typed"
    )]
    fn show(&self, json: bool, shown: &Rendered) -> CommandResult {
        printed(match json {
            true => self.terminal.print_json(&shown.facts),
            false => self.terminal.print(&neutral::text(&shown.text)),
        })
    }
}

fn printed(result: io::Result<()>) -> CommandResult {
    ended(result, 0)
}

/// The end of a command that has printed something and has this exit code.
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

/// The command line as a value, with examples: for the help, completions, the manual and the reference.
fn definition() -> clap::Command {
    manual::complete(Cli::command())
}

#[cfg(test)]
pub(crate) mod tests;
