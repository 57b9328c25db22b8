//! A server that is reached over HTTP, and its clients, which write each request by hand.

use super::{Caller, ringfence, show_refusal, within};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

/// A server that says nothing for so long while a test waits for it has failed.
const SILENCE: Duration = Duration::from_secs(60);
const HANDSHAKE: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// `ringfence serve --transport http`, at a port of its own.
pub struct HttpServer {
    pub child: Child,
    /// `127.0.0.1:PORT` or `unix:PATH`.
    pub place: String,
    log: Receiver<String>,
}

impl HttpServer {
    pub fn start(words: &[&str]) -> Self {
        Self::of(Self::command(words))
    }

    /// With these settings.
    pub fn with_env<const N: usize>(settings: [(&str, &str); N]) -> Self {
        let mut command = Self::command(&[]);
        command.envs(settings);
        Self::of(command)
    }

    pub fn command(words: &[&str]) -> Command {
        let mut command = ringfence(&["serve", "--transport", "http", "--listen", "127.0.0.1:0"]);
        command.args(words);
        command
    }

    /// Of a command line that serves over HTTP.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (line, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for text in stderr.lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    continue; // read on: a full pipe would stop the server
                }
            }
        });
        let mut server = Self {
            child,
            place: String::new(),
            log,
        };
        let said = server.logs("MCP over HTTP is answered");
        let said: Value = serde_json::from_str(&said).unwrap();
        server.place = said["fields"]["place"].as_str().unwrap().to_owned();
        server
    }

    /// The next line of the log that has this in it.
    pub fn logs(&self, part: &str) -> String {
        loop {
            let line = self.log.recv_timeout(SILENCE).unwrap();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// A client without a token.
    pub fn client(&self) -> HttpClient {
        HttpClient {
            place: self.place.clone(),
            token: None,
            session: None,
            next: 1,
        }
    }

    /// A client without a token, after the handshake.
    pub fn greeted(&self) -> HttpClient {
        let mut client = self.client();
        client.initialize();
        client
    }

    /// A client with this token, which has said nothing yet.
    pub fn client_with(&self, token: &str) -> HttpClient {
        let token = Some(token.to_owned());
        HttpClient {
            token,
            ..self.client()
        }
    }

    /// A client with this token, after the handshake.
    pub fn client_of(&self, token: &str) -> HttpClient {
        let mut client = self.client_with(token);
        client.initialize();
        client
    }

    pub fn ready(&self) -> bool {
        self.client().get("/readyz").status == 200
    }

    pub fn ends_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let mut status = None;
        within(patience, || {
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
    pub place: String,
    pub token: Option<String>,
    pub session: Option<String>,
    next: u64,
}

#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    /// As they came, below the status.
    pub head: String,
    pub body: String,
}

impl HttpReply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// The JSON-RPC messages in it.
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

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// What a request of revision 2026-07-28 says of its client, which has these capabilities.
pub fn stateless(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "story", "version": "1"},
    })
}

impl Caller for HttpClient {
    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let reply = self.ask_reply(method, params);
        let id = json!(self.next);
        let answer = reply.messages().into_iter().find(|message| message["id"] == id);
        let mut answer = answer.unwrap_or_else(|| panic!("no answer to {method}: {reply:?}"));
        show_refusal(&mut answer);
        answer
    }
}

impl HttpClient {
    fn connect(&self) -> Box<dyn Wire> {
        match self.place.strip_prefix("unix:") {
            Some(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(SILENCE)).unwrap();
                Box::new(stream)
            }
            None => {
                let stream = TcpStream::connect(&self.place).unwrap();
                stream.set_read_timeout(Some(SILENCE)).unwrap();
                Box::new(stream)
            }
        }
    }

    /// Sends these bytes, and reads what comes until the server closes the connection.
    pub fn raw(&self, bytes: &[u8]) -> HttpReply {
        let mut stream = self.connect();
        // A server that has refused the head may close before it has read the rest.
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
            let host = if self.place.starts_with("unix:") {
                "localhost"
            } else {
                &self.place
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

    /// Asks for a stream of events, of which nothing is read yet.
    pub fn open(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.place).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        let session = self.session.iter().map(|id| ("Mcp-Session-Id", id.as_str()));
        let headers: Vec<_> = session.chain([("Accept", "text/event-stream")]).collect();
        stream
            .write_all(self.head("GET", path, &headers, "").as_bytes())
            .unwrap();
        stream
    }

    /// The events of its session, from now on.
    pub fn listen(&self) -> Heard {
        let mut heard = Heard {
            stream: self.open("/mcp"),
            text: String::new(),
        };
        heard.until("text/event-stream");
        heard
    }

    /// Ends its session.
    pub fn delete(&self) -> HttpReply {
        let id = self.session.as_deref().unwrap();
        self.request("DELETE", "/mcp", &[("Mcp-Session-Id", id)], "")
    }

    pub fn get(&self, path: &str) -> HttpReply {
        self.request("GET", path, &[], "")
    }

    pub fn post(&self, headers: &[(&str, &str)], message: &Value) -> HttpReply {
        let usual = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let session = self.session.iter().map(|id| ("Mcp-Session-Id", id.as_str()));
        let headers: Vec<_> = usual
            .into_iter()
            .chain(session)
            .chain(headers.iter().copied())
            .collect();
        self.request("POST", "/mcp", &headers, &message.to_string())
    }

    /// The first request of the handshake revisions, as it is.
    pub fn hello(&self, capabilities: &Value) -> HttpReply {
        let params = json!({"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": {"name": "story", "version": "1"}});
        self.post(
            &[],
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
        )
    }

    /// Speaks the handshake.
    #[track_caller]
    pub fn initialize(&mut self) {
        self.initialize_able(&json!({}));
    }

    /// The same of a client with these capabilities.
    #[track_caller]
    pub fn initialize_able(&mut self, capabilities: &Value) {
        self.session = None;
        let reply = self.hello(capabilities);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(
            reply.messages()[0]["result"]["serverInfo"]["name"],
            "ringfence",
            "{reply:?}"
        );
        self.session = Some(reply.header("mcp-session-id").unwrap().to_owned());
        let told = self.post(
            &[],
            &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        );
        assert_eq!(told.status, 202, "{told:?}");
    }

    /// A request in the session.
    pub fn ask_reply(&mut self, method: &str, params: Value) -> HttpReply {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.post(&[("MCP-Protocol-Version", HANDSHAKE)], &message)
    }

    /// A request of revision 2026-07-28, complete in itself.
    #[track_caller]
    pub fn ask_stateless(&mut self, method: &str, params: Value) -> Value {
        self.ask_able(json!({}), method, params)
    }

    /// The same of a client with these capabilities.
    #[track_caller]
    pub fn ask_able(&mut self, capabilities: Value, method: &str, mut params: Value) -> Value {
        self.next += 1;
        params["_meta"] = stateless(capabilities);
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
        show_refusal(&mut answer);
        answer
    }
}

/// A stream of notifications.
pub struct Heard {
    stream: TcpStream,
    pub text: String,
}

impl Heard {
    #[track_caller]
    pub fn until(&mut self, word: &str) {
        let mut buffer = [0; 4096];
        while !self.text.contains(word) {
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
            unchunked(body)
        } else {
            body.to_owned()
        },
    }
}

/// Lengths are of bytes, and nothing but ASCII is looked for behind them.
fn unchunked(mut rest: &str) -> String {
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
