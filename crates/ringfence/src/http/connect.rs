//! A client on standard input and output, and a server that runs elsewhere: each line is a request of its own over
//! HTTP, and what the server says is a line again. Nothing of a message is changed. What HTTP wants to know of a
//! message beside it (session, revision, method and name) is read off it here.

use crate::{
    lock::lock,
    outgoing::{Destination, Exchange, said},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
    http::request::Builder,
};
use ringfence_types::RequestError;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};

/// Of a message, in either direction.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Messages of the client that are on their way.
const REQUESTS_MAX: usize = 256;
/// Messages of the server that wait for the client to read.
const LINES_MAX: usize = 64;
/// Before the stream of notifications is opened again.
const REOPEN: Duration = Duration::from_secs(1);
const SESSION_ID: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
/// The member of `_meta` that makes a request complete in itself.
const META_REVISION: &str = "io.modelcontextprotocol/protocolVersion";

struct Bridge {
    destination: Destination,
    path: String,
    token: Option<HeaderValue>,
    state: Mutex<State>,
    lines: mpsc::Sender<Value>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    session: Option<String>,
    revision: Option<String>,
    /// The client's first message, for a server that has been started again.
    hello: Option<Value>,
    running: HashMap<String, AbortHandle>,
}

/// Hands everything over until the client leaves. `path`: of the protocol, at its destination.
pub(crate) async fn connect(
    destination: Destination,
    path: String,
    token: Option<&str>,
) -> Result<(), RequestError> {
    let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
    let mut token = token
        .transpose()
        .map_err(|_| RequestError::invalid("the token is not one word.", "Write unix:PATH or a URL."))?;
    if let Some(token) = &mut token {
        token.set_sensitive(true);
    }
    let (lines, written) = mpsc::channel(LINES_MAX);
    let bridge = Arc::new(Bridge {
        destination,
        path,
        token,
        state: Mutex::default(),
        lines,
        places: Arc::new(Semaphore::new(REQUESTS_MAX)),
    });
    bridge.reach().await?;
    tokio::select! {
        read = bridge.clone().read() => read?,
        () = write(written) => {}
    }
    bridge.leave().await;
    Ok(())
}

/// Until the client reads no more.
async fn write(mut lines: mpsc::Receiver<Value>) {
    let mut stdout = tokio::io::stdout();
    while let Some(message) = lines.recv().await {
        let line = format!("{message}\n");
        if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}

impl Bridge {
    /// A server that is not there is told before the client waits for it.
    async fn reach(&self) -> Result<(), RequestError> {
        let request = Request::get("/healthz").body(Full::default());
        let reached = async { self.destination.send(request.map_err(said)?).await.map(drop) };
        reached.await.map_err(|reason| {
            RequestError::not_found(
                format!("there is no server to connect to: {reason}."),
                "Start one with `ringfence serve --transport http`, or name the place where it listens.",
            )
        })
    }

    /// Until the client has said everything; what is on its way then has its answer no more.
    async fn read(self: Arc<Self>) -> Result<(), RequestError> {
        let mut stdin = BufReader::new(tokio::io::stdin());
        let mut tasks = JoinSet::new();
        loop {
            let mut line = Vec::new();
            let count = (&mut stdin)
                .take(MESSAGE_BYTES_MAX as u64)
                .read_until(b'\n', &mut line)
                .await;
            match count {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) if line.len() >= MESSAGE_BYTES_MAX => {
                    return Err(RequestError::invalid(
                        format!("a message is longer than {MESSAGE_BYTES_MAX} bytes."),
                        "Put files into the workspace in parts.",
                    ));
                }
                Ok(_) => {}
            }
            while tasks.try_join_next().is_some() {}
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                self.say(failure(&Value::Null, -32700, "the line is not JSON"))
                    .await;
                continue;
            };
            if self.cancels(&message) {
                continue;
            }
            let Ok(place) = self.places.clone().acquire_owned().await else {
                return Ok(());
            };
            let key = message["id"].to_string();
            let is_request = message["method"].is_string() && !message["id"].is_null();
            // A handshake has no message beside it, and a notification is heard before what comes after it.
            if message["method"] == "initialize" || !is_request {
                self.post(&message).await;
                if message["method"] == "notifications/initialized" {
                    tasks.spawn(self.clone().listen());
                }
                continue;
            }
            let (bridge, finished) = (self.clone(), key.clone());
            // Held until it is known, so that a task which has ended already is not known for ever.
            let mut state = lock(&self.state);
            let task = tasks.spawn(async move {
                bridge.post(&message).await;
                lock(&bridge.state).running.remove(&finished);
                drop(place);
            });
            state.running.insert(key, task);
        }
    }

    /// In revision 2026-07-28 the end of the connection is the cancellation.
    fn cancels(&self, message: &Value) -> bool {
        if message["method"] != "notifications/cancelled" {
            return false;
        }
        let mut state = lock(&self.state);
        if state.session.is_some() {
            return false;
        }
        if let Some(running) = state.running.remove(&message["params"]["requestId"].to_string()) {
            running.abort();
        }
        true
    }

    async fn say(&self, message: Value) {
        if self.lines.send(message).await.is_err() {
            tracing::debug!("the client reads no more");
        }
    }

    /// Sends one message, and passes on what comes of it. A session that the server does not know any more is begun
    /// again, once.
    async fn post(&self, message: &Value) {
        let answered = match self.exchange(message).await {
            Ok(exchange) if self.is_lost(&exchange) => match self.begin_again().await {
                Ok(()) => self.exchange(message).await,
                Err(reason) => Err(reason),
            },
            answered => answered,
        };
        let told = match answered {
            Ok(exchange) => self.pass_on(message, exchange).await,
            Err(reason) => Err(reason),
        };
        if let (Err(reason), true) = (told, message["method"].is_string() && !message["id"].is_null()) {
            self.say(failure(&message["id"], -32000, &reason)).await;
        }
    }

    fn is_lost(&self, exchange: &Exchange) -> bool {
        exchange.answer.status() == StatusCode::NOT_FOUND && lock(&self.state).session.is_some()
    }

    async fn begin_again(&self) -> Result<(), String> {
        let hello = {
            let mut state = lock(&self.state);
            state.session = None;
            state
                .hello
                .clone()
                .ok_or("the server does not know the session")?
        };
        let mut exchange = self.exchange(&hello).await?;
        self.remember(&hello, &exchange);
        drop(exchange.body(MESSAGE_BYTES_MAX).await?);
        drop(
            self.exchange(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await?,
        );
        Ok(())
    }

    fn remember(&self, message: &Value, exchange: &Exchange) {
        let session = exchange.answer.headers().get(SESSION_ID);
        let session = session.and_then(|session| Some(session.to_str().ok()?.to_owned()));
        if let (Some(session), true) = (session, message["method"] == "initialize") {
            let mut state = lock(&self.state);
            state.session = Some(session);
            state.hello = Some(message.clone());
        }
    }

    fn request(&self, method: Method) -> Builder {
        let mut request = Request::builder().method(method).uri(&self.path);
        request = request.header(ACCEPT, "application/json, text/event-stream");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        request
    }

    fn of_session(&self, mut request: Builder) -> Builder {
        let state = lock(&self.state);
        if let Some(session) = &state.session {
            request = request.header(SESSION_ID, session);
        }
        if let Some(revision) = &state.revision {
            request = request.header(REVISION, revision);
        }
        request
    }

    async fn exchange(&self, message: &Value) -> Result<Exchange, String> {
        let mut request = self
            .request(Method::POST)
            .header(CONTENT_TYPE, "application/json");
        match (
            message["params"]["_meta"][META_REVISION].as_str(),
            message["method"].as_str(),
        ) {
            (Some(revision), Some(method)) => {
                request = request.header(REVISION, revision).header("mcp-method", method);
                if let Some(name) = name_of(method, &message["params"]) {
                    request = request.header("mcp-name", header_text(name));
                }
            }
            (_, Some("initialize")) => {}
            _ => request = self.of_session(request),
        }
        let request = request.body(Full::from(message.to_string())).map_err(said)?;
        self.destination.send(request).await
    }

    /// The messages of an answer, as they come.
    async fn pass_on(&self, message: &Value, mut exchange: Exchange) -> Result<(), String> {
        let status = exchange.answer.status();
        let kind = exchange.answer.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        self.remember(message, &exchange);
        if is_stream {
            let is_answered = self.pass_on_events(&mut exchange, message).await?;
            return match message.get("id") {
                Some(_) if !is_answered => Err("the server ended the call without an answer".to_owned()),
                _ => Ok(()),
            };
        }
        let body = exchange.body(MESSAGE_BYTES_MAX).await?;
        if body.is_empty() && status.is_success() {
            return Ok(());
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(answer) if answer["jsonrpc"].is_string() => {
                self.say(answer).await;
                Ok(())
            }
            Ok(answer) => {
                let why = answer["error"]["message"].as_str().unwrap_or_default();
                let next = match status {
                    StatusCode::UNAUTHORIZED => " (`ringfence connect --token-file FILE`)",
                    _ => "",
                };
                Err(format!(
                    "the server answered {status}: {}{next}",
                    why.trim_end_matches('.')
                ))
            }
            Err(_) => Err(format!("the server answered {status}")),
        }
    }

    async fn pass_on_events(&self, exchange: &mut Exchange, asked: &Value) -> Result<bool, String> {
        let mut is_answered = false;
        let (mut rest, mut data) = (Vec::new(), Vec::new());
        while let Some(frame) = exchange.answer.body_mut().frame().await {
            let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
            let mut from = rest.len();
            rest.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
            if rest.len() + data.len() > MESSAGE_BYTES_MAX {
                return Err("an event is too long".to_owned());
            }
            while let Some(end) = rest[from..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=from + end).collect();
                from = 0;
                let line = line.trim_ascii_end();
                match line.strip_prefix(b"data:") {
                    Some(part) => data.extend_from_slice(part),
                    None if line.is_empty() => {
                        if let Ok(event) = serde_json::from_slice::<Value>(&std::mem::take(&mut data)) {
                            if asked["method"] == "initialize"
                                && let Some(revision) = event["result"]["protocolVersion"].as_str()
                            {
                                lock(&self.state).revision = Some(revision.to_owned());
                            }
                            is_answered |= event["id"] == asked["id"] && event.get("method").is_none();
                            self.say(event).await;
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(is_answered)
    }

    /// What the server says beside answers. It is opened again as long as there is a session.
    async fn listen(self: Arc<Self>) {
        loop {
            let request = self.of_session(self.request(Method::GET)).body(Full::default());
            let Ok(request) = request else { return };
            if let Ok(mut exchange) = self.destination.send(request).await {
                match exchange.answer.status() {
                    StatusCode::OK => drop(self.pass_on_events(&mut exchange, &Value::Null).await),
                    StatusCode::METHOD_NOT_ALLOWED => return,
                    _ => {}
                }
            }
            tokio::time::sleep(REOPEN).await;
        }
    }

    async fn leave(&self) {
        if lock(&self.state).session.is_none() {
            return;
        }
        if let Ok(request) = self
            .of_session(self.request(Method::DELETE))
            .body(Full::default())
            && let Err(reason) = self.destination.send(request).await.map(drop)
        {
            tracing::debug!(reason, "the session was not ended");
        }
    }
}

fn failure(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": format!("{message}.")}})
}

/// What a request is about, where a header names it (SEP-2243).
fn name_of<'a>(method: &str, params: &'a Value) -> Option<&'a str> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ if method.starts_with("tasks/") => "taskId",
        _ => return None,
    };
    params[member].as_str()
}

/// As it is, or in base64 where a header cannot carry it.
fn header_text(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let goes = text.bytes().all(is_plain) && text.trim() == text && !text.starts_with("=?");
    match goes {
        true => text.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_what_it_is_about_in_a_header_that_can_carry_it() {
        let name = |method: &str, params: Value| name_of(method, &params).map(header_text);
        assert_eq!(
            name("tools/call", json!({"name": "execute_code"})).as_deref(),
            Some("execute_code")
        );
        assert_eq!(
            name("resources/read", json!({"uri": "sandbox://a b"})).as_deref(),
            Some("sandbox://a b")
        );
        assert_eq!(name("tools/list", json!({"name": "x"})), None);
        for (text, sent) in [
            ("\u{e9}", "=?base64?w6k=?="),
            (" x", "=?base64?IHg=?="),
            ("a\r\nb", "=?base64?YQ0KYg==?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            assert_eq!(header_text(text), sent);
        }
    }
}
