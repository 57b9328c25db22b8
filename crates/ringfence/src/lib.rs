//! The binary's inside: command line, MCP server and configuration, in front of the engine.
#![forbid(unsafe_code)]

mod cli;
#[cfg(test)]
mod golden;
mod log;
mod mcp;
mod metrics;
mod moment;
mod nearest;
#[cfg(test)]
mod reference;
mod reload;
mod settings;
mod telemetry;
mod terminal;
mod utf8;

pub use cli::main;
pub use settings::{CONFIG_BYTES_MAX, ConfigError, ConfigFile, Environment, parse_config};
