//! A package index on loopback: PyPI's simple pages and npm's documents, and a list of all requests.

use super::archive;
use crate::client::*;
use base64::Engine as _;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Condvar, Mutex},
};

/// One request: its path, and its credentials.
#[derive(Clone, Debug)]
pub struct IndexRequest {
    pub path: String,
    pub authorization: Option<String>,
}

#[derive(Default)]
struct State {
    pages: BTreeMap<String, Vec<u8>>,
    requests: Vec<IndexRequest>,
    /// Requests for paths with this suffix wait.
    held: Option<String>,
    /// The Authorization header that every request must have.
    authorization: Option<String>,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

pub struct Index {
    port: u16,
    shared: Shared,
}

impl Index {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared::default();
        let served = shared.clone();
        // The thread ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = served.clone();
                std::thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The address with a user name and a password.
    pub fn address_of(&self, user: &str, path: &str) -> String {
        format!("http://{user}@127.0.0.1:{}{path}", self.port)
    }

    pub fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.shared
            .0
            .lock()
            .unwrap()
            .pages
            .insert(path.to_owned(), bytes.into());
    }

    /// Adds a wheel of this package with these files.
    pub fn wheel(&self, name: &str, version: &str, files: &[(&str, &str)], needs: &[&str]) {
        let file = format!("{name}-{version}-py3-none-any.whl");
        self.python(name, &file, archive::wheel(name, version, files, needs));
    }

    /// Adds a file of a Python package.
    pub fn python(&self, name: &str, file: &str, bytes: Vec<u8>) {
        let page = format!("/simple/{name}/");
        let mut state = self.shared.0.lock().unwrap();
        let link = format!("<a href=\"/files/{file}\">{file}</a>\n");
        state.pages.entry(page).or_default().extend(link.as_bytes());
        state.pages.insert(format!("/files/{file}"), bytes);
    }

    /// Adds an npm package of one version.
    pub fn npm(&self, name: &str, version: &str, manifest: &Value, tgz: Vec<u8>) {
        let file = format!("/npm/{name}/-/{name}-{version}.tgz");
        let mut own = manifest.clone();
        own["dist"] = json!({"tarball": self.address(&file), "integrity": integrity(&tgz)});
        let document = json!({"name": name, "dist-tags": {"latest": version}, "versions": {version: own}});
        self.put(&format!("/npm/{name}"), document.to_string());
        self.put(&file, tgz);
    }

    pub fn requests(&self) -> Vec<IndexRequest> {
        self.shared.0.lock().unwrap().requests.clone()
    }

    /// Number of requests for paths with this suffix.
    pub fn count(&self, ending: &str) -> usize {
        self.requests()
            .iter()
            .filter(|request| request.path.ends_with(ending))
            .count()
    }

    pub fn require_authorization(&self, authorization: &str) {
        self.shared.0.lock().unwrap().authorization = Some(authorization.to_owned());
    }

    /// Makes requests for paths with this suffix wait; `None` releases all.
    pub fn hold(&self, ending: Option<&str>) {
        self.shared.0.lock().unwrap().held = ending.map(str::to_owned);
        self.shared.1.notify_all();
    }
}

/// Returns the integrity string of a package, as npm writes it.
pub fn integrity(tgz: &[u8]) -> String {
    let hex = digest("sha512sum", tgz);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
    format!(
        "sha512-{}",
        base64::engine::general_purpose::STANDARD.encode(bytes)
    )
}

/// Returns a digest computed by coreutils.
pub fn digest(program: &str, bytes: &[u8]) -> String {
    let said = stdout_of(&run_with_stdin(Command::new(program), bytes));
    said.split(' ').next().unwrap().to_owned()
}

fn serve(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().replace("%2f", "/");
        let mut authorization = None;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("authorization")
            {
                authorization = Some(value.trim().to_owned());
            }
        }
        let answer = answer(shared, IndexRequest { path, authorization });
        (&mut &*stream).write_all(&answer)?;
    }
}

fn answer(shared: &Shared, request: IndexRequest) -> Vec<u8> {
    let (state, changed) = &**shared;
    let mut state = state.lock().unwrap();
    state.requests.push(request.clone());
    let is_held = |state: &mut State| {
        state
            .held
            .as_ref()
            .is_some_and(|ending| request.path.ends_with(ending))
    };
    state = changed.wait_while(state, is_held).unwrap();
    let (status, body) = match (state.pages.get(&request.path), &state.authorization) {
        (_, Some(required)) if request.authorization.as_ref() != Some(required) => {
            ("401 Unauthorized", Vec::new())
        }
        (Some(body), _) => ("200 OK", body.clone()),
        (None, _) => ("404 Not Found", b"{}".to_vec()),
    };
    let kind = if request.path.starts_with("/npm/") {
        "application/json"
    } else {
        "text/html"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nWWW-Authenticate: Basic\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}
