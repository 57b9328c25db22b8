//! What one principal is served by: the protocol with its sessions, and what bounds the principal. The session of
//! another principal is as unknown here as one that never was.

use super::{
    body::{Guard, HttpResponse, busy, invalid, not_found, refused, text},
    principal::Principal,
    sessions::ProtocolSessions,
    sse::{MESSAGES, SSE, SseRefused, SseSessions, SseTransport},
};
use crate::{mcp::service::MayNotApprove, settings::HttpSettings};
use governor::{DefaultDirectRateLimiter, Quota, clock::Clock as _};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Body as _, Bytes, Incoming},
    header::{AUTHORIZATION, COOKIE, HeaderValue, RETRY_AFTER},
    http::request::Parts,
};
use ringfence_store::tokens::PrincipalRole;
use rmcp::{
    ServerHandler, ServiceExt as _,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

/// From the head of a request to the end of its body, with the wait for other bodies of the principal.
const BODY_PATIENCE: Duration = Duration::from_secs(60);
/// Bodies of one principal that are read at once, which bounds what they take of the memory.
const BODIES_MAX: usize = 4;
/// Requests of one principal that are on their way, with its open streams.
const REQUESTS_MAX: usize = 512;
const VALUES_MAX: usize = 100_000;
/// The memory that bodies of one principal take until their answers have left, in bodies of the largest size.
const BODIES_HELD_MAX: usize = 4;
const KIB: usize = 1 << 10;
const SESSION_ID: &str = "mcp-session-id";
/// The method of a request of revision 2026-07-28, which its body must repeat.
const METHOD: &str = "mcp-method";
/// Its answer is a stream of notifications.
const LISTEN: &str = "subscriptions/listen";

/// Answers a request by the protocol, whatever stands behind it.
type Speak = dyn Fn(Request<Full<Bytes>>) -> Pin<Box<dyn Future<Output = HttpResponse> + Send>> + Send + Sync;
/// Speaks the protocol with one client of revision 2024-11-05.
type ServeSse = dyn Fn(SseTransport, CancellationToken) + Send + Sync;
/// The refusal of a body that is not for its client.
type Judge<'a> = dyn Fn(&[u8]) -> Option<HttpResponse> + Sync + 'a;

pub(super) struct McpEndpoint {
    pub(super) principal: Arc<Principal>,
    protocol: Box<Speak>,
    sessions: Arc<ProtocolSessions>,
    sse: SseSessions,
    serve_sse: Box<ServeSse>,
    rate: Option<DefaultDirectRateLimiter>,
    bodies: Semaphore,
    body_bytes_max: usize,
    requests: Arc<Semaphore>,
    /// What its bodies take, in KiB.
    memory: Arc<Semaphore>,
    /// Ends its calls, sessions and streams when this is dropped, or before.
    gone: CancellationToken,
    _end: DropGuard,
}

impl McpEndpoint {
    /// `make`: what answers, once for each session of the handshake revisions and for each other request.
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
                    Err(error) => tracing::debug!(%error, "a session did not begin"),
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
            _end: gone.clone().drop_guard(),
            gone,
        }
    }

    /// Whether it has no request on its way: what it has begun beside requests goes on without it.
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

    /// The place of one request; none: there are too many.
    pub(super) fn begin_request(&self) -> Option<OwnedSemaphorePermit> {
        self.requests.clone().try_acquire_owned().ok()
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        mut guard: Guard,
        judge: &Judge<'_>,
    ) -> HttpResponse {
        if guard.permit.is_none() {
            return busy("this principal has too many requests on their way");
        }
        let (mut parts, body) = request.into_parts();
        // A call was let in to its end, which comes; a stream has none of its own.
        let is_stream =
            parts.method == Method::GET || parts.headers.get(METHOD).is_some_and(|method| method == LISTEN);
        if !is_stream {
            guard.expires_unix_ms = None;
        }
        // What comes after this is shown to no one who could use it.
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(COOKIE);
        if self.principal.role == PrincipalRole::Caller {
            parts.extensions.insert(MayNotApprove);
        }
        let mut bytes = Bytes::new();
        if parts.method == Method::POST {
            match self.read(body, judge).await {
                Ok((body, memory)) => (bytes, guard.memory) = (body, Some(memory)),
                Err(answer) => return answer,
            }
        } else {
            guard.answer = None;
        }
        let answer = match parts.uri.path() {
            SSE => self.begin_sse(&parts.method),
            MESSAGES => self.take_message(parts, &bytes, &mut guard),
            _ => self.speak(parts, bytes).await,
        };
        guard.hold(answer)
    }

    async fn speak(&self, parts: Parts, body: Bytes) -> HttpResponse {
        let begins_session = !parts.headers.contains_key(SESSION_ID) && mentions_initialize(&body);
        if begins_session && !self.sessions.make_room().await {
            return busy("every protocol session of this principal has calls on their way");
        }
        let is_end = parts.method == Method::DELETE;
        if is_end && !self.sessions.knows(parts.headers.get(SESSION_ID)) {
            return not_found("there is no such protocol session");
        }
        let request = Request::from_parts(parts, Full::new(body));
        let mut answer = (self.protocol)(request).await;
        if is_end && answer.status() == StatusCode::ACCEPTED {
            // It has ended; official clients warn about an answer that says less.
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
            None => busy("this principal has as many streams as it may have (`http.sessions`)"),
        }
    }

    fn take_message(&self, parts: Parts, body: &[u8], guard: &mut Guard) -> HttpResponse {
        if parts.method != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Use POST.\n");
        }
        // The answer to the request says only that there will be one.
        let held = (guard.permit.take(), guard.memory.take(), guard.answer.take());
        match self.sse.take(parts, body, Arc::new(held)) {
            Ok(()) => text(StatusCode::ACCEPTED, "Accepted\n"),
            Err(SseRefused::Unknown) => not_found("there is no such session"),
            Err(SseRefused::Malformed) => {
                invalid("the body is no message, or has the id of a request that is open")
            }
            Err(SseRefused::Busy) => {
                busy("this session has too many requests that are open, or messages that wait")
            }
        }
    }

    fn over_rate(&self) -> Option<HttpResponse> {
        let rate = self.rate.as_ref()?;
        let until = rate.check().err()?;
        let wait = until.wait_time_from(governor::clock::DefaultClock::default().now());
        let mut answer = busy("this principal sends more requests than its rate allows");
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        Some(answer)
    }

    /// A body that may be answered, with the memory that it takes.
    async fn read(
        &self,
        body: Incoming,
        judge: &Judge<'_>,
    ) -> Result<(Bytes, OwnedSemaphorePermit), HttpResponse> {
        if let Some(answer) = self.over_rate() {
            return Err(answer);
        }
        let bytes = self.collect(body).await?;
        // Every request of revision 2026-07-28 is complete in itself; those of a session name it.
        if !is_simple(&bytes) {
            return Err(too_large("the body has too many values"));
        }
        if let Some(answer) = judge(&bytes) {
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
        let reading = async {
            let _slot = self.bodies.acquire().await;
            Limited::new(body, self.body_bytes_max).collect().await
        };
        match tokio::time::timeout(BODY_PATIENCE, reading).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(invalid("the body broke off")),
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

fn config(settings: &HttpSettings, gone: &CancellationToken) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_json_response(true)
        // Both are looked at before the body is read.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(settings.body_bytes_max)
        .with_cancellation_token(gone.child_token())
}

/// Whether a text of JSON becomes a tree of at most [`VALUES_MAX`] values, which take far more memory than the text.
fn is_simple(body: &[u8]) -> bool {
    let (mut in_text, mut escaped, mut values) = (false, false, 0_usize);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'{' | b'[' if !in_text => values += 1,
            _ => {}
        }
    }
    values <= VALUES_MAX
}

/// A guess, so that a principal without room is told why; the sessions count for themselves.
fn mentions_initialize(body: &[u8]) -> bool {
    const WORD: &[u8] = b"\"initialize\"";
    body.windows(WORD.len()).any(|window| window == WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_body_of_many_small_values_is_not_simple() {
        assert!(is_simple(b"{}") && is_simple(b""));
        let text = format!(r#"{{"code": "{}"}}"#, r#"\",{[\\"#.repeat(VALUES_MAX));
        assert!(is_simple(text.as_bytes()), "they are in a text");
        for small in ["[],", r#"{"":0},"#, "0,"] {
            assert!(!is_simple(small.repeat(VALUES_MAX + 1).as_bytes()), "{small}");
        }
    }
}
