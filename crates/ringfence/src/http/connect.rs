//! The stdio bridge (`ringfence connect`): forwards each line of a client on standard input as an HTTP request to a
//! server, and writes each message of the server as a line. Messages are not changed; the headers that HTTP needs
//! (session, revision, method and name) are derived from them.

use crate::{
    lock::lock,
    outgoing::{Destination, Exchange, error_text},
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
    sync::{Mutex as AsyncMutex, Semaphore, mpsc},
    task::{self, AbortHandle, JoinSet},
};

const MESSAGE_BYTES_MAX: usize = 64 << 20;
const REQUESTS_MAX: usize = 256;
/// Messages of the server queued for the client.
const LINES_MAX: usize = 64;
const REOPEN: Duration = Duration::from_secs(1);
/// Maximum time to replace a lost session.
const RESTART_MAX: Duration = Duration::from_secs(30);
const SESSION_ID: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
/// The member of `_meta` that makes a request independent of a session.
const META_REVISION: &str = "io.modelcontextprotocol/protocolVersion";

struct Bridge {
    destination: Destination,
    path: String,
    token: Option<HeaderValue>,
    state: Mutex<State>,
    /// Held while a lost session is replaced: other requests that need it wait. The error of the last attempt.
    restart: AsyncMutex<String>,
    lines: mpsc::Sender<Value>,
    permits: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    session: Option<String>,
    /// Attempts to replace a lost session that have ended.
    restarts: u64,
    revision: Option<String>,
    /// The client's `initialize` request, sent again if the server has lost the session.
    initialize: Option<Value>,
    running: HashMap<String, AbortHandle>,
}

/// Forwards messages until the client closes a stream. `address`: the destination as the user wrote it; `path`: the
/// protocol's path there.
pub(crate) async fn connect(
    address: &str,
    destination: Destination,
    path: String,
    token: Option<&str>,
) -> Result<(), RequestError> {
    let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
    let mut token = token
        .transpose()
        .map_err(|_| RequestError::invalid("the token is not one word.", "Put it alone into the file."))?;
    if let Some(token) = &mut token {
        token.set_sensitive(true);
    }
    let (lines, written) = mpsc::channel(LINES_MAX);
    let bridge = Arc::new(Bridge {
        destination,
        path,
        token,
        state: Mutex::default(),
        restart: AsyncMutex::default(),
        lines,
        permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
    });
    bridge.check_reachable(address).await?;
    tokio::select! {
        read = bridge.clone().read() => read?,
        () = write(written) => {}
    }
    bridge.end_session().await;
    Ok(())
}

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
    /// Fails before the client waits for a server that cannot be reached.
    async fn check_reachable(&self, address: &str) -> Result<(), RequestError> {
        let request = Request::get("/healthz").body(Full::default()).map_err(error_text);
        let reached = async { self.destination.send(request?).await };
        reached.await.map(drop).map_err(|reason| {
            RequestError::not_found(
                format!("no server can be reached at {address}: {reason}."),
                "Start one with `ringfence serve --transport http`, or name the address where it listens.",
            )
        })
    }

    /// Reads and forwards messages until stdin ends; requests in progress are aborted then.
    async fn read(self: Arc<Self>) -> Result<(), RequestError> {
        let mut stdin = BufReader::new(tokio::io::stdin());
        let mut tasks = JoinSet::new();
        loop {
            let mut line = Vec::new();
            let mut message = (&mut stdin).take(MESSAGE_BYTES_MAX as u64);
            let count = message.read_until(b'\n', &mut line).await;
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
                self.output(error_response(&Value::Null, -32700, "the line is not JSON"))
                    .await;
                continue;
            };
            if message["method"] == "notifications/cancelled" {
                self.cancel(&message).await;
                continue;
            }
            let key = message["id"].to_string();
            let is_request = message["method"].is_string() && !message["id"].is_null();
            if is_request && lock(&self.state).running.contains_key(&key) {
                // Under its id, this would be taken for the answer to the first.
                let error = json!({"code": -32600, "message": "a request with this id is open."});
                self.output(json!({"jsonrpc": "2.0", "error": error})).await;
                continue;
            }
            let Ok(permit) = self.permits.clone().acquire_owned().await else {
                return Ok(());
            };
            // The handshake is completed, and a notification delivered, before later messages are sent.
            if message["method"] == "initialize" || !is_request {
                if let (Err(reason), true) = (self.post(&message).await, is_request) {
                    self.output(error_response(&message["id"], -32000, &reason)).await;
                }
                if message["method"] == "notifications/initialized" {
                    tasks.spawn(self.clone().listen());
                }
                continue;
            }
            let (bridge, id) = (self.clone(), key.clone());
            // Locked until the task is registered, so that a task that ends at once does not stay registered.
            let mut state = lock(&self.state);
            let task = tasks.spawn(async move {
                let posted = bridge.post(&message).await;
                if let (true, Err(reason)) = (bridge.end(&key), posted) {
                    bridge
                        .output(error_response(&message["id"], -32000, &reason))
                        .await;
                }
                drop(permit);
            });
            state.running.insert(id, task);
        }
    }

    /// Cancels the request that a cancellation names, and frees its id. The server of a session is told; elsewhere
    /// closing the connection cancels it (revision 2026-07-28).
    async fn cancel(&self, message: &Value) {
        let (running, is_in_session) = {
            let mut state = lock(&self.state);
            let key = message["params"]["requestId"].to_string();
            (state.running.remove(&key), state.session.is_some())
        };
        if is_in_session && let Err(reason) = self.post(message).await {
            tracing::debug!(reason, "a cancellation was not delivered");
        }
        if let Some(running) = running {
            // Not while it replaces a lost session.
            let _restart = self.restart.lock().await;
            running.abort();
        }
    }

    /// Forgets the request of the current task. False: it was answered or cancelled.
    fn end(&self, key: &str) -> bool {
        let running = &mut lock(&self.state).running;
        let is_own = running.get(key).is_some_and(|held| held.id() == task::id());
        is_own && running.remove(key).is_some()
    }

    async fn output(&self, message: Value) {
        // The client may use the id of an answered request again at once.
        if message.get("method").is_none() {
            lock(&self.state).running.remove(&message["id"].to_string());
        }
        if self.lines.send(message).await.is_err() {
            tracing::debug!("the client has stopped reading");
        }
    }

    /// Sends a message and forwards the response. If the server has lost the session, retries once in a new one.
    async fn post(&self, message: &Value) -> Result<(), String> {
        let (session, restarts) = {
            let state = lock(&self.state);
            let is_stateless = !message["params"]["_meta"][META_REVISION].is_null();
            (state.session.clone().filter(|_| !is_stateless), state.restarts)
        };
        let mut exchange = self.exchange(message).await?;
        if let (Some(lost), StatusCode::NOT_FOUND) = (session, exchange.answer.status()) {
            self.restart(&lost, restarts).await?;
            exchange = self.exchange(message).await?;
        }
        self.forward(message, exchange).await
    }

    /// Replaces the session `lost`, unless another request has done so. `restarts`: their number when this request was
    /// sent. Requests sent before an attempt ended share its error; a later one tries again.
    async fn restart(&self, lost: &str, restarts: u64) -> Result<(), String> {
        let mut error = self.restart.lock().await;
        let initialize = {
            let state = lock(&self.state);
            if state.session.as_deref() != Some(lost) {
                return Ok(());
            }
            if state.restarts != restarts {
                return Err(error.clone());
            }
            let known = state.initialize.clone();
            known.ok_or("the server does not know the session")?
        };
        let late = |_| Err("the server began no new session in time".to_owned());
        let begun = tokio::time::timeout(RESTART_MAX, self.begin_new_session(&initialize)).await;
        let begun = begun.unwrap_or_else(late);
        let mut state = lock(&self.state);
        state.restarts += 1;
        if let Err(reason) = &begun {
            state.session = Some(lost.to_owned());
            error.clone_from(reason);
        }
        begun
    }

    async fn begin_new_session(&self, initialize: &Value) -> Result<(), String> {
        let mut exchange = self.exchange(initialize).await?;
        let body = exchange.body(MESSAGE_BYTES_MAX).await?;
        let answer = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let status = exchange.answer.status();
        if !status.is_success() || answer["error"].is_object() {
            let why = answer["error"]["message"].as_str().unwrap_or_default();
            return Err(format!("the server answered {status} to a new session: {why}"));
        }
        // None: the server has become stateless.
        lock(&self.state).session = session_of(&exchange);
        self.store_revision(initialize, &answer);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let status = self.exchange(&initialized).await?.answer.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("the server answered {status} in a new session")),
        }
    }

    fn store_session(&self, message: &Value, exchange: &Exchange) {
        if let (Some(session), true) = (session_of(exchange), message["method"] == "initialize") {
            let mut state = lock(&self.state);
            state.session = Some(session);
            state.initialize = Some(message.clone());
        }
    }

    fn store_revision(&self, message: &Value, answer: &Value) {
        if message["method"] == "initialize"
            && let Some(revision) = answer["result"]["protocolVersion"].as_str()
        {
            lock(&self.state).revision = Some(revision.to_owned());
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

    fn with_session(&self, mut request: Builder) -> Builder {
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
            _ => request = self.with_session(request),
        }
        let request = request.body(Full::from(message.to_string())).map_err(error_text);
        self.destination.send(request?).await
    }

    async fn forward(&self, message: &Value, mut exchange: Exchange) -> Result<(), String> {
        let status = exchange.answer.status();
        let kind = exchange.answer.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        self.store_session(message, &exchange);
        if is_stream {
            let is_answered = self.forward_events(&mut exchange, message).await?;
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
                self.store_revision(message, &answer);
                self.output(answer).await;
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

    /// Forwards the events of a stream. True: one of them was the response to `request`.
    async fn forward_events(&self, exchange: &mut Exchange, request: &Value) -> Result<bool, String> {
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
                            self.store_revision(request, &event);
                            is_answered |= event["id"] == request["id"] && event.get("method").is_none();
                            self.output(event).await;
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(is_answered)
    }

    /// Forwards the server's notifications. The stream is reopened until the bridge ends, or the server has none (405).
    async fn listen(self: Arc<Self>) {
        loop {
            let request = self.with_session(self.request(Method::GET)).body(Full::default());
            let Ok(request) = request else { return };
            if let Ok(mut exchange) = self.destination.send(request).await {
                match exchange.answer.status() {
                    StatusCode::OK => drop(self.forward_events(&mut exchange, &Value::Null).await),
                    StatusCode::METHOD_NOT_ALLOWED => return,
                    _ => {}
                }
            }
            tokio::time::sleep(REOPEN).await;
        }
    }

    async fn end_session(&self) {
        if lock(&self.state).session.is_none() {
            return;
        }
        if let Ok(request) = self
            .with_session(self.request(Method::DELETE))
            .body(Full::default())
            && let Err(reason) = self.destination.send(request).await.map(drop)
        {
            tracing::debug!(reason, "the session was not ended");
        }
    }
}

fn session_of(exchange: &Exchange) -> Option<String> {
    let session = exchange.answer.headers().get(SESSION_ID)?;
    session.to_str().ok().map(str::to_owned)
}

fn error_response(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": format!("{message}.")}})
}

/// Returns the value of the `Mcp-Name` header, for methods that have one (SEP-2243).
fn name_of<'a>(method: &str, params: &'a Value) -> Option<&'a str> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ if method.starts_with("tasks/") => "taskId",
        _ => return None,
    };
    params[member].as_str()
}

/// Returns the text as it is, or in base64 if a header cannot carry it.
fn header_text(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let is_safe = text.bytes().all(is_plain) && text.trim() == text && !text.starts_with("=?");
    match is_safe {
        true => text.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answered_request_is_not_running_before_its_answer_is_written() {
        let (lines, mut written) = mpsc::channel(LINES_MAX);
        let bridge = Arc::new(Bridge {
            destination: Destination::socket("/nowhere".into()).unwrap(),
            path: String::new(),
            token: None,
            state: Mutex::default(),
            restart: AsyncMutex::default(),
            lines,
            permits: Arc::new(Semaphore::new(1)),
        });
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        lock(&bridge.state).running.insert("1".to_owned(), task);
        bridge
            .output(json!({"id": 1, "method": "elicitation/create"}))
            .await;
        assert_eq!(
            lock(&bridge.state).running.len(),
            1,
            "it is a request of the server"
        );
        bridge.output(json!({"id": 1, "result": {}})).await;
        assert!(written.recv().await.is_some() && lock(&bridge.state).running.is_empty());
        // A task ends its own request, and no later one with its id.
        let end = || tokio::spawn(ending(bridge.clone()));
        let (first, second) = (end(), end());
        lock(&bridge.state)
            .running
            .insert("1".to_owned(), second.abort_handle());
        assert!(!first.await.unwrap());
        assert!(second.await.unwrap() && lock(&bridge.state).running.is_empty());
    }

    async fn ending(bridge: Arc<Bridge>) -> bool {
        bridge.end("1")
    }

    #[test]
    fn request_name_is_sent_in_a_header_and_encoded_where_needed() {
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
