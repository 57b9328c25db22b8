//! `ringfence config`: effective values and their sources, a check of the configuration, its schema and an example.

use super::{CommandResult, Context, hints, token::OutputFormat};
use crate::settings::{self, Layer, LogLevel};
use clap::{Args, Subcommand};
use ringfence_types::RequestError;
use serde_json::json;

#[derive(Debug, Args)]
pub(super) struct ConfigArguments {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print every effective value and where it comes from
    Show(OutputFormat),
    /// Check that file, environment and flags make a valid configuration (exit code 1 if not)
    Check(OutputFormat),
    /// Print the JSON Schema of a configuration file
    Schema,
    /// Print a configuration file with every default
    Example,
}

/// Exit code of an invalid configuration.
const INVALID: u8 = 1;

pub(super) fn config(context: &Context, arguments: &ConfigArguments) -> CommandResult {
    let terminal = context.terminal;
    let load = || context.settings(Layer::default(), LogLevel::Info);
    let mut code = 0;
    let printed = match &arguments.action {
        Some(Action::Show(shown)) if shown.json => terminal.print_json(&settings::table(&load()?).1),
        None | Some(Action::Show(_)) => terminal.print(&settings::table(&load()?).0),
        Some(Action::Schema) => terminal.print(&settings::schema()),
        Some(Action::Example) => terminal.print(&settings::example()),
        Some(Action::Check(shown)) => {
            let (file, errors) = match context.checked(Layer::default(), LogLevel::Info) {
                Ok(config) => (config.file, config.engine.runtimes.faults()),
                Err(errors) => (None, errors),
            };
            let errors: Vec<RequestError> = errors.into_iter().map(hints::in_commands).collect();
            let valid = errors.is_empty();
            code = if valid { 0 } else { INVALID };
            let file = file.filter(|_| valid);
            if shown.json {
                terminal.print_json(&json!({
                    "valid": valid, "file": file, "error": errors.first(), "errors": errors,
                }))
            } else {
                errors.iter().for_each(|error| terminal.error(error));
                match file {
                    _ if !valid => Ok(()),
                    None => terminal.print("valid: no file, defaults only\n"),
                    Some(file) => terminal.print(&format!("valid: {}\n", file.display())),
                }
            }
        }
    };
    super::ended(printed, code)
}
