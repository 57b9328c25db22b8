//! A server over HTTP, and clients that write each request by hand.

use super::{McpClient, becomes_true_within, expose_error, ringfence};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

/// Maximum wait for data or a log line of the server.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);
const HANDSHAKE: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// `ringfence serve --transport http`, on its own port.
pub struct HttpServer {
    pub child: Child,
    /// `127.0.0.1:PORT` or `unix:PATH`.
    pub address: String,
    log: Receiver<String>,
}

impl HttpServer {
    pub fn start(arguments: &[&str]) -> Self {
        Self::from_command(Self::command(arguments))
    }

    /// A server with these environment variables.
    pub fn with_env<const N: usize>(settings: [(&str, &str); N]) -> Self {
        let mut command = Self::command(&[]);
        command.envs(settings);
        Self::from_command(command)
    }

    pub fn command(arguments: &[&str]) -> Command {
        let mut command = ringfence(&["serve", "--transport", "http", "--listen", "127.0.0.1:0"]);
        command.args(arguments);
        command
    }

    /// Starts this command, which must serve over HTTP, and waits until it listens.
    pub fn from_command(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (line, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for text in stderr.lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    continue; // keeps reading: a full pipe would block the server
                }
            }
        });
        let mut server = Self {
            child,
            address: String::new(),
            log,
        };
        let line = server.await_log("serving MCP over HTTP");
        let line: Value = serde_json::from_str(&line).unwrap();
        server.address = line["fields"]["place"].as_str().unwrap().to_owned();
        server
    }

    /// Waits for the next log line that contains this text.
    pub fn await_log(&self, part: &str) -> String {
        loop {
            let line = self.log.recv_timeout(RECEIVE_TIMEOUT).unwrap();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// A client without a token.
    pub fn client(&self) -> HttpClient {
        HttpClient {
            address: self.address.clone(),
            token: None,
            session: None,
            next: 1,
        }
    }

    /// A client without a token, after the handshake.
    pub fn initialized_client(&self) -> HttpClient {
        let mut client = self.client();
        client.initialize();
        client
    }

    /// A client with this token, before the handshake.
    pub fn client_with(&self, token: &str) -> HttpClient {
        let token = Some(token.to_owned());
        HttpClient {
            token,
            ..self.client()
        }
    }

    /// A client with this token, after the handshake.
    pub fn initialized_client_with(&self, token: &str) -> HttpClient {
        let mut client = self.client_with(token);
        client.initialize();
        client
    }

    pub fn ready(&self) -> bool {
        self.client().get("/readyz").status == 200
    }

    /// The exit status of the server, if it ends within the timeout.
    pub fn wait_exit(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let mut status = None;
        becomes_true_within(timeout, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[derive(Clone)]
pub struct HttpClient {
    pub address: String,
    pub token: Option<String>,
    pub session: Option<String>,
    next: u64,
}

#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    /// The header lines as received, without the status line.
    pub head: String,
    pub body: String,
}

impl HttpReply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// The JSON-RPC messages in the body: one document, or one per event.
    pub fn messages(&self) -> Vec<Value> {
        let is_stream = self
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        let texts: Vec<&str> = match is_stream {
            true => self
                .body
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .collect(),
            false => vec![&self.body],
        };
        let read = |text: &str| serde_json::from_str(text.trim()).ok();
        texts.into_iter().filter_map(read).collect()
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// `_meta` of a request in revision 2026-07-28, from a client with these capabilities.
pub fn stateless_meta(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
    })
}

impl McpClient for HttpClient {
    #[track_caller]
    fn rpc(&mut self, method: &str, params: Value) -> Value {
        let reply = self.rpc_reply(method, params);
        let id = json!(self.next);
        let answer = reply.messages().into_iter().find(|message| message["id"] == id);
        let mut answer = answer.unwrap_or_else(|| panic!("no answer to {method}: {reply:?}"));
        expose_error(&mut answer);
        answer
    }
}

impl HttpClient {
    fn connect(&self) -> Box<dyn Stream> {
        match self.address.strip_prefix("unix:") {
            Some(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
                Box::new(stream)
            }
            None => {
                let stream = TcpStream::connect(&self.address).unwrap();
                stream.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
                Box::new(stream)
            }
        }
    }

    /// Sends these bytes, and reads the reply until the server closes the connection.
    pub fn raw(&self, bytes: &[u8]) -> HttpReply {
        let mut stream = self.connect();
        // A server that rejects the head may close the connection before it has read the rest.
        drop(stream.write_all(bytes));
        drop(stream.flush());
        let mut all = Vec::new();
        if let Err(error) = stream.read_to_end(&mut all) {
            assert!(!all.is_empty(), "{error}");
        }
        reply(&all)
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpReply {
        let head = self.head(method, path, headers, body);
        self.raw(format!("{head}{body}").as_bytes())
    }

    fn head(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !has("host") {
            let host = if self.address.starts_with("unix:") {
                "localhost"
            } else {
                &self.address
            };
            text += &format!("Host: {host}\r\n");
        }
        if let (Some(token), false) = (&self.token, has("authorization")) {
            text += &format!("Authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text + "\r\n"
    }

    /// Requests a stream of events, without reading the reply.
    pub fn open(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
        let session = self.session.iter().map(|id| ("Mcp-Session-Id", id.as_str()));
        let headers: Vec<_> = session.chain([("Accept", "text/event-stream")]).collect();
        stream
            .write_all(self.head("GET", path, &headers, "").as_bytes())
            .unwrap();
        stream
    }

    /// Opens the stream of this session's events.
    pub fn open_events(&self) -> EventStream {
        let mut events = EventStream {
            stream: self.open("/mcp"),
            text: String::new(),
        };
        events.read_until("text/event-stream");
        events
    }

    /// Ends this client's session.
    pub fn delete(&self) -> HttpReply {
        let id = self.session.as_deref().unwrap();
        self.request("DELETE", "/mcp", &[("Mcp-Session-Id", id)], "")
    }

    pub fn get(&self, path: &str) -> HttpReply {
        self.request("GET", path, &[], "")
    }

    pub fn post(&self, headers: &[(&str, &str)], message: &Value) -> HttpReply {
        let headers = self.message_headers(headers);
        self.request("POST", "/mcp", &headers, &message.to_string())
    }

    /// [`HttpClient::post`] without reading the reply.
    pub fn send_post(&self, headers: &[(&str, &str)], message: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let body = message.to_string();
        let head = self.head("POST", "/mcp", &self.message_headers(headers), &body);
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream
    }

    fn message_headers<'a>(&'a self, headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let usual = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let session = self.session.iter().map(|id| ("Mcp-Session-Id", id.as_str()));
        let all = usual.into_iter().chain(session);
        all.chain(headers.iter().copied()).collect()
    }

    /// Sends `initialize`, as in revisions with a handshake, and returns the reply.
    pub fn send_initialize(&self, capabilities: &Value) -> HttpReply {
        let params = json!({"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": {"name": "story", "version": "1"}});
        self.post(
            &[],
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
        )
    }

    /// Performs the handshake.
    #[track_caller]
    pub fn initialize(&mut self) {
        self.initialize_with(&json!({}));
    }

    /// [`HttpClient::initialize`] for a client with these capabilities.
    #[track_caller]
    pub fn initialize_with(&mut self, capabilities: &Value) {
        self.session = None;
        let reply = self.send_initialize(capabilities);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(
            reply.messages()[0]["result"]["serverInfo"]["name"],
            "ringfence",
            "{reply:?}"
        );
        self.session = Some(reply.header("mcp-session-id").unwrap().to_owned());
        let reply = self.post(
            &[],
            &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        );
        assert_eq!(reply.status, 202, "{reply:?}");
    }

    /// Sends a request in the session and returns the HTTP reply.
    pub fn rpc_reply(&mut self, method: &str, params: Value) -> HttpReply {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.post(&[("MCP-Protocol-Version", HANDSHAKE)], &message)
    }

    /// Sends a stateless request, of revision 2026-07-28.
    #[track_caller]
    pub fn rpc_stateless(&mut self, method: &str, params: Value) -> Value {
        self.rpc_stateless_with(json!({}), method, params)
    }

    /// [`HttpClient::rpc_stateless`] for a client with these capabilities.
    #[track_caller]
    pub fn rpc_stateless_with(&mut self, capabilities: Value, method: &str, mut params: Value) -> Value {
        self.next += 1;
        params["_meta"] = stateless_meta(capabilities);
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        let mut headers = vec![("MCP-Protocol-Version", STATELESS), ("Mcp-Method", method)];
        let name = ["taskId", "name"]
            .into_iter()
            .find_map(|name| message["params"][name].as_str());
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        let without = Self {
            session: None,
            ..self.clone()
        };
        let reply = without.post(&headers, &message);
        let mut answer = reply.messages().pop().unwrap_or_else(|| panic!("{reply:?}"));
        expose_error(&mut answer);
        answer
    }
}

/// A stream of notifications.
pub struct EventStream {
    stream: TcpStream,
    pub text: String,
}

impl EventStream {
    /// Reads until the text appears in all that was received.
    #[track_caller]
    pub fn read_until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.text.contains(text) {
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "{}", self.text);
            self.text += &String::from_utf8_lossy(&buffer[..count]);
        }
    }
}

fn reply(bytes: &[u8]) -> HttpReply {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let (status, head) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    HttpReply {
        status: status.unwrap_or_default(),
        head: head.to_owned(),
        body: if is_chunked {
            decode_chunked(body)
        } else {
            body.to_owned()
        },
    }
}

/// Decodes a chunked body. Chunk lengths count bytes; the tests search it for ASCII only.
fn decode_chunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length.trim(), 16) else {
            break;
        };
        let (Some(chunk), true) = (after.get(..length), length > 0) else {
            break;
        };
        body += chunk;
        rest = after[length..].trim_start_matches("\r\n");
    }
    body
}
