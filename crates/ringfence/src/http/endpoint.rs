//! The endpoint of one principal: the MCP protocol with its sessions, and the principal's limits. Sessions of other
//! principals are unknown here, like sessions that never existed.

use super::{
    body::{Guard, HttpResponse, busy, invalid, not_found, refused, response, text},
    principal::Principal,
    sessions::ProtocolSessions,
    sse::{MESSAGES, SSE, SseRefused, SseSessions, SseTransport},
};
use crate::{
    mcp::{
        malformed::unreadable,
        service::{MayNotApprove, UntilSent},
    },
    settings::HttpSettings,
};
use governor::{DefaultDirectRateLimiter, Quota, clock::Clock as _};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Body as _, Bytes, Incoming},
    header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, RETRY_AFTER},
    http::request::Parts,
};
use ringfence_store::tokens::PrincipalRole;
use rmcp::{
    ErrorData, ServerHandler, ServiceExt as _,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// From the head of a request to the end of its body, including the wait for other bodies of the principal.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bodies of one principal that are read at once, which bounds their memory; small ones are not counted, so that slow
/// clients do not delay them.
const BODIES_MAX: usize = 4;
const SMALL_BODY_BYTES_MAX: u64 = 64 << 10;
/// Concurrent requests of one principal, open streams included.
const REQUESTS_MAX: usize = 512;
const VALUES_MAX: usize = 100_000;
/// Memory of the bodies of one principal until their responses have been sent, in bodies of the largest size.
const BODIES_HELD_MAX: usize = 4;
/// Streams of one principal that may repeat cached answers, which their calls no longer count.
const REPLAYS_MAX: usize = 16;
const REPLAY_TIMEOUT: Duration = Duration::from_secs(10);
const KIB: usize = 1 << 10;
const SESSION_ID: &str = "mcp-session-id";
/// Header with the method of a request of revision 2026-07-28, which its body must repeat.
const METHOD: &str = "mcp-method";
/// The method whose response is a stream of notifications.
const LISTEN: &str = "subscriptions/listen";

/// Handles a request by the protocol, independent of the type of the server.
type Serve = dyn Fn(Request<Full<Bytes>>) -> Pin<Box<dyn Future<Output = HttpResponse> + Send>> + Send + Sync;
/// Serves one client of revision 2024-11-05.
type ServeSse = dyn Fn(SseTransport, CancellationToken) + Send + Sync;
type BodyCheck<'a> = dyn Fn(&[u8]) -> Option<HttpResponse> + Sync + 'a;

pub(super) struct McpEndpoint {
    pub(super) principal: Arc<Principal>,
    protocol: Box<Serve>,
    sessions: Arc<ProtocolSessions>,
    sse: SseSessions,
    serve_sse: Box<ServeSse>,
    rate: Option<DefaultDirectRateLimiter>,
    bodies: Semaphore,
    body_bytes_max: usize,
    requests: Arc<Semaphore>,
    /// Memory of the request bodies, in KiB.
    memory: Arc<Semaphore>,
    replays: Arc<Semaphore>,
    /// Ends the calls, sessions and streams; cancelled by `end`, or when the endpoint is dropped.
    gone: CancellationToken,
    _end: DropGuard,
}

impl McpEndpoint {
    /// `make` creates a server for each session of the handshake revisions and for each other request.
    pub(super) fn new<H: ServerHandler>(
        principal: Arc<Principal>,
        make: impl Fn() -> H + Send + Sync + 'static,
        gone: CancellationToken,
        settings: &HttpSettings,
    ) -> Self {
        let sessions = Arc::new(ProtocolSessions::new(
            settings.sessions_max,
            settings.session_idle,
        ));
        let watch = sessions.clone().watch();
        tokio::spawn(gone.clone().run_until_cancelled_owned(watch));
        let make = Arc::new(make);
        let of_service = make.clone();
        let service = StreamableHttpService::new(
            move || Ok(of_service()),
            sessions.clone(),
            config(settings, &gone),
        );
        let serve_sse = move |transport, end| {
            let serving = make().serve_with_ct(transport, end);
            tokio::spawn(async move {
                match serving.await {
                    Ok(running) => drop(running.waiting().await),
                    Err(error) => tracing::debug!(%error, "an MCP session did not begin"),
                }
            });
        };
        Self {
            rate: principal
                .rate_per_minute
                .map(|rate| DefaultDirectRateLimiter::direct(Quota::per_minute(rate))),
            principal,
            protocol: Box::new(move |request| {
                let service = service.clone();
                Box::pin(async move { service.handle(request).await })
            }),
            sessions,
            sse: SseSessions::new(settings.sessions_max),
            serve_sse: Box::new(serve_sse),
            bodies: Semaphore::new(BODIES_MAX),
            body_bytes_max: settings.body_bytes_max,
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            memory: Arc::new(Semaphore::new(
                BODIES_HELD_MAX * settings.body_bytes_max.div_ceil(KIB),
            )),
            replays: Arc::new(Semaphore::new(REPLAYS_MAX)),
            _end: gone.clone().drop_guard(),
            gone,
        }
    }

    /// True if no request is in progress; work begun outside requests continues without the endpoint.
    pub(super) fn is_unused(&self) -> bool {
        self.requests.available_permits() == REQUESTS_MAX
    }

    pub(super) fn end(&self) {
        self.gone.cancel();
    }

    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.gone.is_cancelled()
    }

    pub(super) fn begin_request(&self) -> Option<OwnedSemaphorePermit> {
        self.requests.clone().try_acquire_owned().ok()
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        mut guard: Guard,
        check_body: &BodyCheck<'_>,
    ) -> HttpResponse {
        let Some(permit) = guard.permit.take() else {
            return busy("this principal has too many concurrent requests");
        };
        let (mut parts, body) = request.into_parts();
        // An accepted call may run to its end although its credentials expire; a stream has no end of its own.
        let is_stream =
            parts.method == Method::GET || parts.headers.get(METHOD).is_some_and(|method| method == LISTEN);
        if !is_stream {
            guard.expires_unix_ms = None;
        }
        // Code after this never sees the credentials.
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(COOKIE);
        if self.principal.role == PrincipalRole::Caller {
            parts.extensions.insert(MayNotApprove);
        }
        let (mut bytes, mut memory) = (Bytes::new(), None);
        // The protocol refuses other types of content by the head alone.
        let is_read = match parts.uri.path() {
            SSE => false,
            MESSAGES => true,
            _ => is_json(&parts.headers),
        };
        if parts.method == Method::POST && is_read {
            match self.read(body, check_body).await {
                Ok((body, of_body)) => (bytes, memory) = (body, Some(of_body)),
                Err(answer) => return answer,
            }
        } else if parts.method != Method::POST {
            guard.answer = None;
        } else if let Some(answer) = self.check_rate() {
            return answer;
        }
        let replay = match is_replay(&parts) {
            true => match timeout(REPLAY_TIMEOUT, self.replays.clone().acquire_owned()).await {
                Ok(permit) => permit.ok(),
                Err(_) => return busy("this principal resumes too many streams"),
            },
            false => None,
        };
        // A call of a protocol session goes on when its connection breaks off.
        guard.until_sent = UntilSent::holding((permit, memory, replay));
        parts.extensions.insert(guard.until_sent.clone());
        let answer = match parts.uri.path() {
            SSE => self.begin_sse(&parts.method),
            MESSAGES => self.accept_message(parts, &bytes, &mut guard),
            _ => self.handle(parts, bytes).await,
        };
        guard.principal = Some(self.principal.name.clone());
        guard.hold(answer).await
    }

    async fn handle(&self, parts: Parts, body: Bytes) -> HttpResponse {
        let begins_session = !parts.headers.contains_key(SESSION_ID) && mentions_initialize(&body);
        if begins_session && !self.sessions.make_room().await {
            return busy("every protocol session of this principal has calls in progress");
        }
        let is_end = parts.method == Method::DELETE;
        if is_end && !self.sessions.knows(parts.headers.get(SESSION_ID)) {
            return not_found("there is no such protocol session");
        }
        let kept = is_json(&parts.headers).then(|| body.clone());
        let request = Request::from_parts(parts, Full::new(body));
        let mut answer = (self.protocol)(request).await;
        if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
            && let Some(body) = kept
        {
            // The library's word for JSON that is not a message.
            return malformed(&body);
        }
        if is_end && answer.status() == StatusCode::ACCEPTED {
            // The session has ended; official clients warn if the status is 202.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer
    }

    fn begin_sse(&self, method: &Method) -> HttpResponse {
        if *method != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n");
        }
        let end = self.gone.child_token();
        match self.sse.begin(end.clone()) {
            Some((answer, transport)) => {
                (self.serve_sse)(transport, end);
                answer
            }
            None => busy("this principal has reached its limit of streams (`http.sessions`)"),
        }
    }

    fn accept_message(&self, parts: Parts, body: &[u8], guard: &mut Guard) -> HttpResponse {
        if parts.method != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Use POST.\n");
        }
        // The HTTP response only confirms receipt, so the permits are held until the message is answered.
        let held = (guard.answer.take(), guard.until_sent.clone());
        match self.sse.accept(parts, body, Arc::new(held)) {
            Ok(()) => text(StatusCode::ACCEPTED, "Accepted\n"),
            Err(SseRefused::Unknown) => not_found("there is no such session"),
            Err(SseRefused::Malformed) => {
                invalid("the body is not a message, or has the id of an open request")
            }
            Err(SseRefused::Busy) => busy("this session has too many open requests or queued messages"),
        }
    }

    fn check_rate(&self) -> Option<HttpResponse> {
        let rate = self.rate.as_ref()?;
        let until = rate.check().err()?;
        let wait = until.wait_time_from(governor::clock::DefaultClock::default().now());
        let mut answer = busy("this principal sends more requests than its rate allows");
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        Some(answer)
    }

    async fn read(
        &self,
        body: Incoming,
        check_body: &BodyCheck<'_>,
    ) -> Result<(Bytes, OwnedSemaphorePermit), HttpResponse> {
        if let Some(answer) = self.check_rate() {
            return Err(answer);
        }
        let bytes = self.collect(body).await?;
        if !is_within_values_max(&bytes) {
            return Err(too_large("the body has too many values"));
        }
        if let Some(answer) = check_body(&bytes) {
            return Err(answer);
        }
        let kib = u32::try_from(bytes.len().div_ceil(KIB)).ok();
        let memory = kib.and_then(|kib| self.memory.clone().try_acquire_many_owned(kib).ok());
        let memory = memory.ok_or_else(|| busy("the bodies of this principal take too much memory"))?;
        Ok((bytes, memory))
    }

    async fn collect(&self, body: Incoming) -> Result<Bytes, HttpResponse> {
        let too_large = || too_large("the body is larger than `http.body_mb`");
        if body.size_hint().lower() > self.body_bytes_max as u64 {
            return Err(too_large());
        }
        let is_small = body
            .size_hint()
            .exact()
            .is_some_and(|bytes| bytes <= SMALL_BODY_BYTES_MAX);
        let reading = async {
            let _slot = match is_small {
                true => None,
                false => self.bodies.acquire().await.ok(),
            };
            Limited::new(body, self.body_bytes_max).collect().await
        };
        match timeout(BODY_TIMEOUT, reading).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(invalid("the body is incomplete")),
            Err(_) => Err(refused(
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "the body took too long",
            )),
        }
    }
}

fn too_large(message: &str) -> HttpResponse {
    refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_argument", message)
}

/// The error under the id of the request, if that can be read.
fn malformed(body: &[u8]) -> HttpResponse {
    let read = serde_json::from_slice::<ClientJsonRpcMessage>(body);
    let error = read.err().and_then(|error| unreadable(body, &error));
    let (error, id) = error.unwrap_or_else(|| (ErrorData::invalid_request("not a message", None), None));
    let text = serde_json::to_string(&ServerJsonRpcMessage::error(error, id)).unwrap_or_default();
    response(StatusCode::BAD_REQUEST, "application/json", text.into())
}

fn config(settings: &HttpSettings, gone: &CancellationToken) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_json_response(true)
        // Host and Origin are checked before the body is read.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(settings.body_bytes_max)
        .with_cancellation_token(gone.child_token())
}

/// True if the stream of a call is resumed: its events have `INDEX/CALL` for an id, others only an index.
fn is_replay(parts: &Parts) -> bool {
    let last = parts.headers.get("last-event-id");
    parts.method == Method::GET && last.is_some_and(|id| id.as_bytes().contains(&b'/'))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// True if a JSON text has at most [`VALUES_MAX`] values; parsed values take far more memory than the text.
fn is_within_values_max(body: &[u8]) -> bool {
    let (mut in_string, mut escaped, mut values) = (false, false, 0_usize);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'{' | b'[' if !in_string => values += 1,
            _ => {}
        }
    }
    values <= VALUES_MAX
}

/// A guess, so that a principal at its session limit gets a reason; [`ProtocolSessions`] enforces the limit itself.
fn mentions_initialize(body: &[u8]) -> bool {
    const WORD: &[u8] = b"\"initialize\"";
    body.windows(WORD.len()).any(|window| window == WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn body_with_too_many_json_values_is_detected() {
        assert!(is_within_values_max(b"{}") && is_within_values_max(b""));
        let text = format!(r#"{{"code": "{}"}}"#, r#"\",{[\\"#.repeat(VALUES_MAX));
        assert!(
            is_within_values_max(text.as_bytes()),
            "the brackets are in a string"
        );
        for small in ["[],", r#"{"":0},"#, "0,"] {
            assert!(
                !is_within_values_max(small.repeat(VALUES_MAX + 1).as_bytes()),
                "{small}"
            );
        }
    }
}
