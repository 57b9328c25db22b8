//! `ringfence serve`: the tools, for one MCP client on standard input and output.

use super::{Context, below_floor, fault, log_to_stderr, set};
use crate::{
    mcp::{self, Offer},
    nearest::suggestion,
    settings::{Layer, LogLevel},
};
use clap::Args;
use ringfence_types::{ErrorCode, RequestError};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// How the client is connected: stdio
    #[arg(long, value_name = "NAME", default_value = "stdio")]
    transport: String,
    /// Tools to offer, as a list of toolsets or `all`
    #[arg(long, value_name = "A,B")]
    toolsets: Option<String>,
}

const WORKER_THREADS: usize = 2;

pub(super) fn serve(context: &Context, arguments: ServeArguments) -> Result<ExitCode, RequestError> {
    check_transport(&arguments.transport)?;
    let mut layer = Layer::default();
    if let Some(toolsets) = &arguments.toolsets {
        set(&mut layer, "toolsets", toolsets, "--toolsets")?;
    }
    let config = context.settings(layer, LogLevel::Info)?;
    log_to_stderr(config.log);
    let floor = config.floor.tier();
    let offer = Offer {
        toolsets: config.toolsets.items().to_vec(),
        namespaces: config.namespaces,
        policy: config.engine.policy.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| fault("start", &error))?;
    let served = runtime.block_on(mcp::serve_stdio(config.engine, offer));
    runtime.shutdown_background();
    served.map_err(|error| below_floor::tell_about(error, floor))?;
    Ok(ExitCode::SUCCESS)
}

fn check_transport(name: &str) -> Result<(), RequestError> {
    match name {
        "stdio" => Ok(()),
        "http" | "sse" => Err(RequestError::new(
            ErrorCode::UnsupportedArgument,
            format!("--transport {name}: there is no HTTP server in this version."),
            "Use --transport stdio; the client starts the server itself.",
        )),
        other => Err(RequestError::invalid(
            format!(
                "--transport {other}: not a transport.{}",
                suggestion(other, ["stdio", "http", "sse"])
            ),
            "Use --transport stdio.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_that_do_not_exist_are_refused_by_name() {
        assert!(check_transport("stdio").is_ok());
        assert_eq!(
            check_transport("http").unwrap_err().code,
            ErrorCode::UnsupportedArgument
        );
        assert_eq!(
            check_transport("sse").unwrap_err().code,
            ErrorCode::UnsupportedArgument
        );
        assert!(
            check_transport("studio")
                .unwrap_err()
                .message
                .contains("Did you mean `stdio`?")
        );
    }
}
