//! The command line: what may be typed, and which exit code each end has. Everything of ours that fails ends with 125,
//! so that a script's own codes stay its own.

mod below_floor;
mod bench;
mod completions;
mod config;
mod doctor;
mod request;
mod run;
mod serve;

use crate::{
    settings::{self, Environment, Flags, Layer, LogLevel, Origin},
    terminal::Terminal,
};
use clap::{CommandFactory, Parser, Subcommand};
use ringfence_types::{ErrorCode, RequestError};
use std::{path::PathBuf, process::ExitCode};

/// Our own failure.
const FAILED: u8 = 125;

/// Runs code that nobody has read yet, behind walls that the kernel enforces.
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
    /// Serve the tools to an MCP client
    Serve(serve::ServeArguments),
    /// Try every layer of isolation on this host, and say what is missing and how to get it
    Doctor(doctor::DoctorArguments),
    /// Measure what a run costs on this host, beside the bare interpreter
    Bench(bench::BenchArguments),
    /// Show, check and describe the configuration
    Config(config::ConfigArguments),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArguments),
}

/// The whole program but the helper; the caller has made sure that no thread runs yet.
pub fn main() -> ExitCode {
    if below_floor::is_meant() {
        return below_floor::tell();
    }
    let environment = Environment::capture();
    let terminal = Terminal::new(&environment);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let Cli { command, config } = cli;
    let context = Context {
        environment,
        terminal,
        config,
    };
    let done = match command {
        Command::Run(arguments) => run::run(&context, *arguments),
        Command::Serve(arguments) => serve::serve(&context, arguments),
        Command::Doctor(arguments) => doctor::doctor(&context, &arguments),
        Command::Bench(arguments) => bench::bench(&context, &arguments),
        Command::Config(arguments) => config::config(&context, &arguments),
        Command::Completions(arguments) => completions::completions(&context, &arguments),
    };
    done.unwrap_or_else(|error| {
        terminal.error(&error);
        ExitCode::from(FAILED)
    })
}

/// Help and version are answers; anything else is a command line that we do not understand.
fn usage(error: &clap::Error) -> ExitCode {
    // clap writes to the stream that fits, and a closed one is nobody's problem
    drop(error.print());
    if error.use_stderr() {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    }
}

/// What every command has.
struct Context {
    environment: Environment,
    terminal: Terminal,
    config: Option<PathBuf>,
}

impl Context {
    fn settings(&self, layer: Layer, log: LogLevel) -> Result<settings::Config, RequestError> {
        settings::load(
            &self.environment,
            Flags {
                config: self.config.clone(),
                layer,
                log,
            },
        )
    }
}

/// A setting that a flag makes.
fn set(layer: &mut Layer, path: &str, text: &str, flag: &'static str) -> Result<(), RequestError> {
    layer.set(path, text, Origin::Flag(flag)).map_err(|reason| {
        RequestError::invalid(
            crate::nearest::sentence(&format!("{flag}: {reason}")),
            format!("It sets `{path}`."),
        )
    })
}

/// An operation of the operating system that our own start needs.
fn fault(operation: &str, error: &std::io::Error) -> RequestError {
    RequestError::new(
        ErrorCode::SandboxFault,
        format!("could not {operation}: {error}."),
        "Run `ringfence doctor`.",
    )
}

/// The help of the program and of each command, at a fixed width.
#[cfg(test)]
pub(crate) fn helps() -> Vec<(String, String)> {
    let mut command = definition().term_width(100);
    command.build();
    let mut helps = vec![("ringfence".to_owned(), command.render_long_help().to_string())];
    for sub in command
        .get_subcommands_mut()
        .filter(|sub| sub.get_name() != "help")
    {
        helps.push((
            format!("ringfence {}", sub.get_name()),
            sub.render_long_help().to_string(),
        ));
    }
    helps
}

/// The command line as a value: for completions and the reference.
fn definition() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        definition().debug_assert();
    }

    #[test]
    fn help_is_golden() {
        let text: Vec<String> = helps()
            .iter()
            .map(|(name, help)| format!("--- {name} ---\n{help}"))
            .collect();
        crate::golden::compare("help.txt", &text.join("\n"));
    }
}
