//! `ringfence serve`: the tools, for one MCP client on standard input and output, and what the operator's systems see.

use super::{Context, fault, set};
use crate::{
    log::{self, Log},
    mcp::{self, Offer},
    metrics,
    reload::{Reach, Reading, Reloader},
    settings::{self, Config, Flags, Layer, LogLevel},
    telemetry::Telemetry,
};
use clap::Args;
use ringfence_engine::Engine;
use ringfence_types::{ErrorCode, RequestError, nearest::suggestion};
use std::{process::ExitCode, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// How the client is connected: stdio
    #[arg(long, value_name = "NAME", default_value = "stdio")]
    transport: String,
    /// Tools to offer, as a list of toolsets or `all`
    #[arg(long, value_name = "A,B")]
    toolsets: Option<String>,
    /// Answer /metrics (OpenMetrics) here
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<String>,
}

const WORKER_THREADS: usize = 2;

pub(super) fn serve(context: &Context, arguments: ServeArguments) -> Result<ExitCode, RequestError> {
    check_transport(&arguments.transport)?;
    let (environment, file) = (context.environment.clone(), context.config.clone());
    let reading: Reading = Arc::new(move || {
        let flags = Flags {
            config: file.clone(),
            layer: layer(&arguments)?,
            log: LogLevel::Info,
        };
        settings::load(&environment, flags)
    });
    let config = reading()?;
    let log = Log::begin(config.log);
    if let Some(warning) = &config.warning {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| fault("start", &error))?;
    let served = runtime.block_on(live(config, reading, log));
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn layer(arguments: &ServeArguments) -> Result<Layer, RequestError> {
    let mut layer = Layer::default();
    if let Some(toolsets) = &arguments.toolsets {
        set(&mut layer, "toolsets", toolsets, "--toolsets")?;
    }
    if let Some(address) = &arguments.metrics_listen {
        set(&mut layer, "metrics.listen", address, "--metrics-listen")?;
    }
    Ok(layer)
}

/// Serves, with everything that follows the engine beside it.
async fn live(config: Config, reading: Reading, log: Log) -> Result<(), RequestError> {
    let settings = config.engine.clone();
    let (policy, in_force) = watch::channel(settings.policy.clone());
    let offer = Offer {
        toolsets: config.toolsets.clone(),
        namespaces: config.namespaces,
        text_max: config.text_max,
        policy: in_force,
    };
    let listener = match config.metrics {
        Some(address) => Some(metrics::bind(address).await?),
        None => None,
    };
    let telemetry = config.otlp.clone().map(Telemetry::begin);
    let reloader = Reloader::new(reading, config, Reach { log, policy })
        .map_err(|error| fault("listen for signals", &error))?;
    let (told, beside) = (telemetry.clone(), CancellationToken::new());
    let stop = beside.clone();
    let attend = move |engine: &Engine| {
        log::redact_with(engine.log_redactor());
        if let Some(telemetry) = told {
            telemetry.follow(engine);
        }
        if let Some(listener) = listener {
            tokio::spawn(
                stop.clone()
                    .run_until_cancelled_owned(listener.answer(engine.clone())),
            );
        }
        tokio::spawn(stop.run_until_cancelled_owned(reloader.follow(engine.clone())));
    };
    let served = mcp::serve_stdio(settings, offer, attend).await;
    beside.cancel();
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    served
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
