//! `ringfence config`: what is in force and why, whether a file is right, and what a file may say.

use super::Context;
use crate::settings::{self, Layer, LogLevel};
use clap::{Args, Subcommand};
use ringfence_types::RequestError;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ConfigArguments {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print every effective value and where it comes from
    Show {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Say whether file, environment and flags make a valid configuration (exit code 1 if not)
    Check,
    /// Print the JSON Schema of a configuration file
    Schema,
    /// Print a configuration file that says every default
    Example,
}

/// Exit code of a configuration that is wrong.
const INVALID: u8 = 1;

pub(super) fn config(context: &Context, arguments: &ConfigArguments) -> Result<ExitCode, RequestError> {
    let terminal = context.terminal;
    let load = || context.settings(Layer::default(), LogLevel::Info);
    let usable = |config: settings::Config| config.engine.runtimes.check().map(|()| config.file);
    let printed = match &arguments.action {
        None | Some(Action::Show { json: false }) => terminal.print(&settings::table(&load()?).0),
        Some(Action::Show { json: true }) => terminal.print_json(&settings::table(&load()?).1),
        Some(Action::Schema) => terminal.print(&settings::schema()),
        Some(Action::Example) => terminal.print(&settings::example()),
        Some(Action::Check) => match load().and_then(usable) {
            Ok(file) => {
                let file = file.map_or("no file, defaults only".to_owned(), |file| {
                    file.display().to_string()
                });
                terminal.print(&format!("valid: {file}\n"))
            }
            Err(error) => {
                terminal.error(&error);
                return Ok(ExitCode::from(INVALID));
            }
        },
    };
    super::printed(printed)
}
