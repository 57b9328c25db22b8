//! `ringfence connect`: an MCP server on standard input and output that forwards everything to a running server, so
//! that many clients share its warm sandboxes, its sessions and its record.

use super::{CommandResult, Context, live};
use crate::{
    http::{MCP, connect},
    log::Log,
    outgoing::Destination,
    settings::{HttpListen, HttpUrl, Layer, LogLevel, SettingValue as _, token_line},
};
use clap::Args;
use hyper::Uri;
use ringfence_types::RequestError;
use std::{path::PathBuf, process::ExitCode};
use zeroize::Zeroizing;

/// Permissions that the token's file must not grant: any to others, and writing to the group.
const FORBIDDEN_MODE: u32 = 0o027;

#[derive(Debug, Args)]
pub(super) struct ConnectArguments {
    /// unix:PATH, or the URL of the server [default: from `http.listen`]
    #[arg(value_name = "unix:PATH|URL")]
    address: Option<String>,
    /// File with the token, not readable by everyone
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(super) fn connect(context: &Context, arguments: ConnectArguments) -> CommandResult {
    let config = context.settings(Layer::default(), LogLevel::Warn)?;
    Log::begin(config.log);
    let address = match arguments.address {
        Some(address) => address,
        None => match &config.http.listen {
            HttpListen::Tcp(address) if config.http.tls.is_none() => format!("http://{address}"),
            HttpListen::Tcp(address) => format!("https://{address}"),
            socket => socket.to_string(),
        },
    };
    let (destination, path) = destination(&address)?;
    let token = arguments.token_file.map(token).transpose()?;
    let runtime = live::runtime()?;
    let token = token.as_ref().map(|token| token.as_str());
    let served = runtime.block_on(connect::connect(&address, destination, path, token));
    // The thread that reads standard input cannot be stopped.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn destination(address: &str) -> Result<(Destination, String), RequestError> {
    let invalid = |reason: String| {
        RequestError::invalid(
            crate::sentence::sentence(&reason),
            "Write unix:PATH, http://127.0.0.1:8000 or https://HOST.",
        )
    };
    if address.starts_with("unix:") {
        return match HttpListen::read(address).map_err(invalid)? {
            HttpListen::Unix(path) => Ok((Destination::socket(path).map_err(invalid)?, MCP.to_owned())),
            HttpListen::Tcp(_) => Err(invalid(format!("`{address}` is not a socket"))),
        };
    }
    let HttpUrl(url) = HttpUrl::read(address).map_err(|why| invalid(why.replace(", nor `off`", "")))?;
    let url = url.ok_or_else(|| invalid("`off` is not an address".to_owned()))?;
    let uri: Result<Uri, _> = url.0.parse();
    let uri = uri.map_err(|_| invalid(format!("`{address}` is not a URL")))?;
    let path = match uri.path() {
        "" | "/" => MCP,
        path => path,
    };
    Ok((Destination::host(&uri).map_err(invalid)?, path.to_owned()))
}

fn token(path: PathBuf) -> Result<Zeroizing<String>, RequestError> {
    let refused = |reason: String| {
        RequestError::invalid(
            format!("the token in {}: {reason}.", path.display()),
            "Keep it in a file of yours that not everyone may read: `chmod 600 FILE`.",
        )
    };
    let why = "everyone may read it, or its group may write it";
    match token_line(&path, FORBIDDEN_MODE, why) {
        Ok(text) if text.is_empty() => Err(refused("it is empty".to_owned())),
        Ok(text) => Ok(text),
        Err(error) => Err(refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_a_socket_or_a_url_that_protects_the_token() {
        let named = |place: &str| {
            let (destination, path) = destination(place).ok()?;
            Some(format!("{}{path}", destination.authority.to_str().ok()?))
        };
        for (place, expect) in [
            ("unix:/run/x.sock", Some("localhost/mcp")),
            ("http://127.0.0.1:8000", Some("127.0.0.1:8000/mcp")),
            ("http://localhost:8000/", Some("localhost:8000/mcp")),
            (
                "https://mcp.example.com/tools/mcp",
                Some("mcp.example.com/tools/mcp"),
            ),
            ("http://mcp.example.com", None),
            ("unix:x.sock", None),
            ("off", None),
            ("127.0.0.1:8000", None),
        ] {
            assert_eq!(named(place).as_deref(), expect, "{place}");
        }
    }
}
