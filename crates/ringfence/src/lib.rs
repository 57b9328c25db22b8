//! The binary's inside: command line, MCP server and configuration, in front of the engine.
#![forbid(unsafe_code)]

mod cli;
mod control;
#[cfg(test)]
mod golden;
mod mcp;
mod moment;
mod nearest;
#[cfg(test)]
mod reference;
mod settings;
mod shown;
mod terminal;
mod utf8;

pub use cli::main;
pub use settings::{CONFIG_BYTES_MAX, ConfigError, ConfigFile, Environment, parse_config};
