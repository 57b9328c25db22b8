//! What one principal is served by: the protocol with its sessions, and what bounds the principal. The session of
//! another principal is as unknown here as one that never was.

use super::{
    body::{Guard, HttpResponse, refused},
    principal::Principal,
    sessions::ProtocolSessions,
};
use crate::{
    mcp::service::{MayNotApprove, Server, ServerFactory},
    settings::HttpSettings,
};
use governor::{DefaultDirectRateLimiter, Quota, clock::Clock as _};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Body as _, Bytes, Incoming},
    header::{AUTHORIZATION, COOKIE, HeaderValue, RETRY_AFTER},
};
use ringfence_store::tokens::PrincipalRole;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

/// From the head of a request to the end of its body, with the wait for other bodies of the principal.
const BODY_PATIENCE: Duration = Duration::from_secs(60);
/// Bodies of one principal that are read at once, which bounds what they take of the memory.
const BODIES_MAX: usize = 4;
/// Requests of one principal that are on their way, with its open streams.
const REQUESTS_MAX: usize = 512;
/// Values in a body.
const VALUES_MAX: usize = 100_000;
/// The memory that bodies of one principal take until their answers have left, in bodies of the largest size.
const BODIES_HELD_MAX: usize = 4;
const KIB: usize = 1 << 10;
const SESSION_ID: &str = "mcp-session-id";
/// Origins of a browser on this host; a page of any other is refused.
const LOCAL_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

pub(super) struct McpEndpoint {
    pub(super) principal: Arc<Principal>,
    service: StreamableHttpService<Server, ProtocolSessions>,
    sessions: Arc<ProtocolSessions>,
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
    pub(super) fn new(principal: Arc<Principal>, factory: ServerFactory, settings: &HttpSettings) -> Self {
        let gone = factory.gone.clone();
        let sessions = Arc::new(ProtocolSessions::new(
            settings.sessions_max,
            settings.session_idle,
        ));
        let watch = sessions.clone().watch();
        tokio::spawn(gone.clone().run_until_cancelled_owned(watch));
        let service = StreamableHttpService::new(
            move || Ok(factory.make()),
            sessions.clone(),
            config(settings, &gone),
        );
        Self {
            rate: principal
                .rate_per_minute
                .map(|rate| DefaultDirectRateLimiter::direct(Quota::per_minute(rate))),
            principal,
            service,
            sessions,
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

    /// Has it no request on its way: what it has begun beside requests goes on without it.
    pub(super) fn is_unused(&self) -> bool {
        self.requests.available_permits() == REQUESTS_MAX
    }

    pub(super) fn end(&self) {
        self.gone.cancel();
    }

    pub(super) async fn answer(&self, request: Request<Incoming>, mut guard: Guard) -> HttpResponse {
        let Ok(permit) = self.requests.clone().try_acquire_owned() else {
            return refused(
                StatusCode::TOO_MANY_REQUESTS,
                "busy",
                "this principal has too many requests on their way",
            );
        };
        guard.permit = Some(permit);
        let (mut parts, body) = request.into_parts();
        // What comes after this is shown to no one who could use it.
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(COOKIE);
        if self.principal.role == PrincipalRole::Caller {
            parts.extensions.insert(MayNotApprove);
        }
        let mut bytes = Bytes::new();
        if parts.method == Method::POST {
            if let Some(answer) = self.over_rate() {
                return answer;
            }
            bytes = match self.read(body).await {
                Ok(bytes) => bytes,
                Err(answer) => return answer,
            };
            // Every request of revision 2026-07-28 is complete in itself; those of a session name it.
            if !is_simple(&bytes) {
                return refused(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "invalid_argument",
                    "the body has too many values",
                );
            }
            let Some(memory) = self.memory_for(&bytes) else {
                return refused(
                    StatusCode::TOO_MANY_REQUESTS,
                    "busy",
                    "the bodies of this principal take too much memory",
                );
            };
            guard.memory = Some(memory);
            let begins_session = !parts.headers.contains_key(SESSION_ID) && mentions_initialize(&bytes);
            if begins_session && !self.sessions.make_room().await {
                return refused(
                    StatusCode::TOO_MANY_REQUESTS,
                    "busy",
                    "every protocol session of this principal has calls on their way",
                );
            }
        } else {
            guard.answer = None;
        }
        let is_end = parts.method == Method::DELETE;
        if is_end && !self.sessions.knows(parts.headers.get(SESSION_ID)) {
            return refused(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such protocol session",
            );
        }
        let request = Request::from_parts(parts, Full::new(bytes));
        let mut answer = self.service.handle(request).await;
        if is_end && answer.status() == StatusCode::ACCEPTED {
            // It has ended; official clients warn about an answer that says less.
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        guard.hold(answer)
    }

    fn memory_for(&self, body: &Bytes) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(body.len().div_ceil(KIB)).ok()?;
        self.memory.clone().try_acquire_many_owned(kib).ok()
    }

    fn over_rate(&self) -> Option<HttpResponse> {
        let rate = self.rate.as_ref()?;
        let until = rate.check().err()?;
        let wait = until.wait_time_from(governor::clock::DefaultClock::default().now());
        let mut answer = refused(
            StatusCode::TOO_MANY_REQUESTS,
            "busy",
            "this principal sends more requests than its rate allows",
        );
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        Some(answer)
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, HttpResponse> {
        let too_large = || {
            refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                "invalid_argument",
                "the body is larger than `http.body_mb`",
            )
        };
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
            Ok(Err(_)) => Err(refused(
                StatusCode::BAD_REQUEST,
                "invalid_argument",
                "the body broke off",
            )),
            Err(_) => Err(refused(
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "the body took too long",
            )),
        }
    }
}

fn config(settings: &HttpSettings, gone: &CancellationToken) -> StreamableHttpServerConfig {
    let hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
    let own = settings.allowed_hosts.iter().cloned();
    let of_host = |host: &String| {
        let port = if host.ends_with(']') || !host.contains(':') {
            ":*"
        } else {
            ""
        };
        [format!("http://{host}{port}"), format!("https://{host}{port}")]
    };
    let origins = settings.allowed_hosts.iter().flat_map(of_host);
    StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_allowed_hosts(hosts.into_iter().chain(own))
        .with_allowed_origins(LOCAL_ORIGINS.map(str::to_owned).into_iter().chain(origins))
        .enforce_origin_validation()
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
