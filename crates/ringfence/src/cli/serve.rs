//! `ringfence serve`: the tools, for one MCP client on standard input and output or for many over HTTP, with metrics,
//! telemetry and reloading of the configuration.

use super::{CommandResult, Context, fault, set};
use crate::{
    http,
    log::{self, Log},
    mcp::{self, Offer},
    metrics,
    reload::{ConfigReader, Reloader},
    settings::{self, Config, Flags, Layer, LogLevel},
    telemetry::Telemetry,
};
use clap::{Args, ValueEnum};
use ringfence_engine::Engine;
use ringfence_types::RequestError;
use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Transport of clients: stdio, http (streamable HTTP at /mcp), or sse (that, and revision 2024-11-05 at /sse)
    #[arg(
        long,
        value_name = "NAME",
        default_value = "stdio",
        hide_possible_values = true
    )]
    transport: Transport,
    /// Address to listen on, with --transport http [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", conflicts_with_all = ["host", "port"])]
    listen: Option<String>,
    /// Only the address to listen on
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// Only the port to listen on
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Host names that clients use for this server, besides localhost
    #[arg(long, value_name = "HOST,HOST")]
    allowed_host: Option<String>,
    /// Tools to offer, as a list of toolsets or `all`
    #[arg(long, value_name = "A,B")]
    toolsets: Option<String>,
    /// Address at which /metrics (OpenMetrics) is served
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<String>,
}

const WORKER_THREADS: usize = 2;
const DEFAULT_PORT: u16 = 8000;

pub(super) fn serve(context: &Context, arguments: ServeArguments) -> CommandResult {
    let transport = arguments.transport;
    check_flags(&arguments)?;
    let (environment, file) = (context.environment.clone(), context.config.clone());
    let reading: ConfigReader = Arc::new(move || {
        let flags = Flags {
            config: file.clone(),
            layer: layer(&arguments)?,
            log: LogLevel::Info,
        };
        settings::load(&environment, flags)
    });
    let config = reading()?;
    let log = Log::begin(config.log);
    if transport == Transport::Stdio && io::stdin().is_terminal() {
        context.terminal.note(
            "MCP on stdin and stdout, for a client that starts this; for many: `serve --transport http`.",
        );
    }
    if let Some(warning) = &config.warning {
        tracing::warn!("{warning}");
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.map_err(|error| fault("start", &error))?;
    let served = runtime.block_on(live(config, reading, log, transport));
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn layer(arguments: &ServeArguments) -> Result<Layer, RequestError> {
    let mut layer = Layer::default();
    for (path, text, flag) in [
        ("toolsets", &arguments.toolsets, "--toolsets"),
        ("http.listen", &listen(arguments), "--listen"),
        ("http.allowed_hosts", &arguments.allowed_host, "--allowed-host"),
        ("metrics.listen", &arguments.metrics_listen, "--metrics-listen"),
    ] {
        if let Some(text) = text {
            set(&mut layer, path, text, flag)?;
        }
    }
    Ok(layer)
}

async fn live(
    config: Config,
    reading: ConfigReader,
    log: Log,
    transport: Transport,
) -> Result<(), RequestError> {
    let mut http = config.http.clone();
    http.has_sse = transport == Transport::Sse;
    let settings = config.engine.clone();
    let (policy, in_force) = watch::channel(settings.policy.clone());
    let offer = Offer::of(&config, in_force);
    let listener = match config.metrics {
        Some(address) => Some(metrics::bind(address).await?),
        None => None,
    };
    let telemetry = config.otlp.as_ref().and_then(Telemetry::begin);
    let reloader =
        Reloader::new(reading, config, log, policy).map_err(|error| fault("listen for signals", &error))?;
    let (engine_telemetry, tasks) = (telemetry.clone(), CancellationToken::new());
    let stop = tasks.clone();
    let on_open = move |engine: &Engine| {
        log::redact_with(engine.log_redactor());
        if let Some(telemetry) = engine_telemetry {
            telemetry.follow(engine);
        }
        if let Some(listener) = listener {
            let answering = metrics::serve(listener, engine.clone());
            tokio::spawn(stop.clone().run_until_cancelled_owned(answering));
        }
        tokio::spawn(stop.run_until_cancelled_owned(reloader.follow(engine.clone())));
    };
    let served = match transport {
        Transport::Stdio => mcp::serve_stdio(settings, offer, on_open).await,
        Transport::Http | Transport::Sse => http::serve(settings, offer, http, on_open).await,
    };
    tasks.cancel();
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    served
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Stdio,
    Http,
    Sse,
}

fn check_flags(arguments: &ServeArguments) -> Result<(), RequestError> {
    let is_of_http = listen(arguments).is_some() || arguments.allowed_host.is_some();
    match arguments.transport {
        Transport::Stdio if is_of_http => Err(RequestError::invalid(
            "--listen, --host, --port and --allowed-host are about --transport http and sse.",
            "Add `--transport http`, or leave them out.",
        )),
        _ => Ok(()),
    }
}

/// Returns `--listen`, or an address made from `--host` and `--port` if one of them is given, with the other's default.
fn listen(arguments: &ServeArguments) -> Option<String> {
    let (host, port) = (&arguments.host, arguments.port);
    if arguments.listen.is_some() || (host.is_none() && port.is_none()) {
        return arguments.listen.clone();
    }
    let host = match host.as_deref() {
        None | Some("localhost") => "127.0.0.1".to_owned(),
        Some(address) if address.contains(':') && !address.starts_with('[') => format!("[{address}]"),
        Some(address) => address.to_owned(),
    };
    Some(format!("{host}:{}", port.unwrap_or(DEFAULT_PORT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        serve: ServeArguments,
    }

    fn parsed(words: &[&str]) -> Result<ServeArguments, clap::Error> {
        <Parsed as clap::Parser>::try_parse_from(["serve"].iter().chain(words)).map(|parsed| parsed.serve)
    }

    fn arguments(words: &[&str]) -> ServeArguments {
        parsed(words).unwrap()
    }

    #[test]
    fn unknown_transport_is_rejected_with_a_suggestion() {
        let transport = |words: &[&str]| {
            let arguments = arguments(words);
            check_flags(&arguments).map(|()| arguments.transport)
        };
        assert_eq!(transport(&[]).unwrap(), Transport::Stdio);
        assert_eq!(
            transport(&["--transport", "http", "--port", "0"]).unwrap(),
            Transport::Http
        );
        assert_eq!(transport(&["--transport", "sse"]).unwrap(), Transport::Sse);
        let error = parsed(&["--transport", "studio"]).unwrap_err().to_string();
        assert!(error.contains("a similar value exists: 'stdio'"), "{error}");
        assert!(transport(&["--port", "8000"]).is_err());
    }

    #[test]
    fn listen_address_is_completed_from_host_or_port() {
        let check = |words: &[&str], expect: Option<&str>| {
            assert_eq!(listen(&arguments(words)).as_deref(), expect, "{words:?}");
        };
        check(&[], None);
        check(&["--port", "9000"], Some("127.0.0.1:9000"));
        check(&["--host", "0.0.0.0"], Some("0.0.0.0:8000"));
        check(&["--host", "localhost", "--port", "1"], Some("127.0.0.1:1"));
        check(&["--host", "::1", "--port", "1"], Some("[::1]:1"));
        check(&["--listen", "unix:/x"], Some("unix:/x"));
    }
}
