//! An HTTP server at a free port of this host, for the clients that chores start.

use crate::command::{capture, command};
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running server. Dropping it kills the server and removes its state directory.
pub struct HttpServer {
    child: Child,
    /// URL of its endpoint.
    pub url: String,
    state: PathBuf,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.state));
    }
}

impl HttpServer {
    /// Starts the command that `server` returns for an address and a state directory, and waits until it listens.
    pub fn start(name: &str, server: impl Fn(&str, &Path) -> Command) -> Result<Self, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(|error| error.to_string())?.to_string();
        let state = std::env::temp_dir().join(format!("ringfence-{name}-{}", std::process::id()));
        let mut command = server(&address, &state);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let mut server = Self {
            child,
            url: format!("http://{address}/mcp"),
            state,
        };
        let begun = Instant::now();
        while TcpStream::connect(&address).is_err() {
            if begun.elapsed() > START_TIMEOUT || server.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{name}: the server does not listen at {address}"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    /// Starts the product.
    pub fn product(binary: &Path) -> Result<Self, String> {
        Self::start("http", |address, state| {
            let mut serve = command(binary, ["serve", "--transport", "http", "--listen", address]);
            serve
                .env("RINGFENCE_STATE_DIR", state)
                .env("RINGFENCE_LOG", "error");
            serve
        })
    }

    /// Creates an operator token for all namespaces.
    pub fn token(&self, binary: &Path, name: &str) -> Result<String, String> {
        let role = ["--role", "operator", "--namespace", "*"];
        let mut create = command(binary, [&["token", "create", name], &role[..]].concat());
        create.env("RINGFENCE_STATE_DIR", &self.state);
        capture(create).map(|token| token.trim().to_owned())
    }
}
