//! A server over HTTP at a free port of this host, for the clients that chores start.

use crate::command::{capture, command};
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// It ends with this, and its state directory goes.
pub struct HttpServer {
    child: Child,
    /// Of its endpoint.
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
    /// Starts what `server` makes of an address and a state directory, and waits until it listens.
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
            if begun.elapsed() > START || server.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{name}: it does not serve at {address}"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// The product.
    pub fn product(binary: &Path) -> Result<Self, String> {
        Self::start("http", |address, state| {
            let mut serve = command(binary, ["serve", "--transport", "http", "--listen", address]);
            serve
                .env("RINGFENCE_STATE_DIR", state)
                .env("RINGFENCE_LOG", "error");
            serve
        })
    }

    /// Makes a token of a person's client, for all namespaces.
    pub fn token(&self, binary: &Path, name: &str) -> Result<String, String> {
        let person = ["--role", "operator", "--namespace", "*"];
        let mut create = command(binary, [&["token", "create", name], &person[..]].concat());
        create.env("RINGFENCE_STATE_DIR", &self.state);
        capture(create).map(|token| token.trim().to_owned())
    }
}
