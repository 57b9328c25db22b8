//! The requests of a connection whose TLS is terminated here: each is checked as on a plain connection, gets the
//! secrets of its host, and is answered without them. Both sides speak HTTP/1.1 or HTTP/2, as the upstream has chosen.

use super::{
    frames::FrameLimiter,
    handshake::{self, ClientTls, Protocol, UpstreamTls, offer},
    redacted::{RedactedBody, WithoutTrailers, redact_headers},
};
use crate::{
    ClientHello, Destination, EgressEvent, Inspection, RefusalRule,
    connection::{Connection, Mode, check_connection, check_request},
    dial::unreachable,
    framing::HEAD_BYTES_MAX,
    http::{HEADERS_MAX, SendError, TRANSFER_CODED, refused, report_http_error, unanswered},
    inspection::{Unwritable, fill},
    refusal::{Refusal, escaped},
    request::{self, ParsedRequest, ProxyMode, RequestKind},
    upstream::{self, Upstream},
    wire::{Client, FramingState, StrictStream},
};
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::{Bytes, Incoming},
    client::conn::{http1 as http1_client, http2 as http2_client},
    ext::ReasonPhrase,
    header::{self, HeaderValue},
    http::request::Parts,
    rt::Executor,
    server::conn::{http1 as http1_server, http2 as http2_server},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use ringfence_redact::Redactor;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::task::JoinSet;

/// Maximum concurrent requests of an HTTP/2 connection.
const STREAMS_MAX: u32 = 64;
/// Bytes of one HTTP/2 connection that are buffered for a peer that does not read: in all, and of one request towards
/// the socket. The library's defaults are several times as large.
const WINDOW_BYTES: u32 = 512 * 1024;
const SENT_AHEAD_BYTES: usize = 16 * 1024;
/// Maximum connections to the outside that are tried for one request.
const TRIES_MAX: usize = 4;

/// A connection to a destination whose certificate was verified.
pub(crate) struct InspectedTls {
    inspection: Arc<Inspection>,
    to: Destination,
    upstream_tls: UpstreamTls,
    protocol: Protocol,
    chosen_alpn: Option<Vec<u8>>,
    offered_alpn: Vec<Vec<u8>>,
}

/// Connects to `to` for an inspected connection, and verifies its certificate.
pub(crate) async fn connect(
    connection: &Arc<Connection>,
    inspection: &Arc<Inspection>,
    to: &Destination,
    hello: &ClientHello,
    ready: Option<Upstream>,
) -> Result<InspectedTls, Refusal> {
    let offered_alpn = offer(hello, to)?;
    let upstream = upstream::open(connection, to, ready).await?;
    let (upstream_tls, protocol) = handshake::connect(inspection, to, offered_alpn.clone(), upstream).await?;
    Ok(InspectedTls {
        inspection: inspection.clone(),
        to: to.clone(),
        chosen_alpn: upstream_tls.get_ref().1.alpn_protocol().map(<[u8]>::to_vec),
        upstream_tls,
        protocol,
        offered_alpn,
    })
}

pub(crate) async fn serve(connection: &Arc<Connection>, client: Client, inspected: InspectedTls) {
    let InspectedTls {
        inspection,
        to,
        upstream_tls,
        protocol,
        chosen_alpn,
        offered_alpn,
    } = inspected;
    let client_tls = match handshake::accept(&inspection, connection, &to, client, chosen_alpn).await {
        Ok(client_tls) => client_tls,
        Err(error) => return connection.sandbox.refuse(&certificate_rejected(&to, &error)),
    };
    let tasks = Tasks::default();
    let _abort_on_drop = AbortOnDrop(tasks.clone());
    let http_upstream = match HttpUpstream::over(upstream_tls, protocol, &tasks).await {
        Ok(http_upstream) => http_upstream,
        Err(error) => {
            tracing::debug!(%error, "a connection has ended before its first request");
            return;
        }
    };
    let is_for_secrets = inspection.has_secret_for(&to);
    let handler = Arc::new(RequestHandler {
        connection: connection.clone(),
        redactor: if is_for_secrets {
            inspection.redactor().clone()
        } else {
            Redactor::none()
        },
        is_for_secrets,
        inspection,
        to,
        protocol,
        offered_alpn,
        framing: FramingState::default(),
        tasks,
        http_upstream: tokio::sync::Mutex::new(Some(http_upstream)),
    });
    let served = serve_requests(&handler, client_tls).await;
    let hello = connection.sandbox.dialer.limits().hello;
    report_http_error(connection, &handler.framing, served.as_ref().err(), hello);
}

async fn serve_requests(handler: &Arc<RequestHandler>, client_tls: ClientTls) -> hyper::Result<()> {
    let for_service = handler.clone();
    let service = service_fn(move |request| {
        let handler = for_service.clone();
        Box::pin(async move { Ok::<_, Infallible>(handler.answer(request).await) })
    });
    match handler.protocol {
        Protocol::Http1 => {
            let io = StrictStream::new(
                client_tls,
                Vec::new(),
                handler.connection.clone(),
                handler.framing.clone(),
            );
            http1_server::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(handler.connection.sandbox.dialer.limits().hello)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEAD_BYTES_MAX * 2)
                .max_header_size(HEAD_BYTES_MAX)
                .half_close(true)
                .auto_date_header(false)
                .serve_connection(TokioIo::new(io), service)
                .await
        }
        Protocol::Http2 => {
            http2_server::Builder::new(handler.tasks.clone())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_send_buf_size(SENT_AHEAD_BYTES)
                .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
                .auto_date_header(false)
                .serve_connection(
                    TokioIo::new(FrameLimiter::new(client_tls, handler.connection.clone())),
                    service,
                )
                .await
        }
    }
}

fn certificate_rejected(to: &Destination, error: &std::io::Error) -> Refusal {
    Refusal::of(
        RefusalRule::Certificate,
        to,
        format!(
            "{to}: its TLS is inspected, and the program ended the handshake: {}",
            escaped(error.to_string().as_bytes())
        ),
        "have the program trust the certificates in the file that $SSL_CERT_FILE names; if it trusts only its own, its TLS \
         cannot be inspected",
    )
}

/// Tasks of one connection, which end with it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

struct AbortOnDrop(Tasks);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abort_all();
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { drop(task.await) });
    }
}

enum HttpUpstream {
    Http1(http1_client::SendRequest<WithoutTrailers>),
    Http2(http2_client::SendRequest<WithoutTrailers>),
}

impl HttpUpstream {
    async fn over(upstream_tls: UpstreamTls, protocol: Protocol, tasks: &Tasks) -> hyper::Result<Self> {
        let io = TokioIo::new(upstream_tls);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1_client::Builder::new()
                    .max_headers(HEADERS_MAX)
                    .max_buf_size(HEAD_BYTES_MAX * 2)
                    .handshake(io)
                    .await?;
                tasks.execute(connection);
                Ok(Self::Http1(sender))
            }
            Protocol::Http2 => {
                let (sender, connection) = http2_client::Builder::new(tasks.clone())
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(WINDOW_BYTES)
                    .initial_connection_window_size(WINDOW_BYTES)
                    .max_send_buf_size(SENT_AHEAD_BYTES)
                    .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
                    .handshake(io)
                    .await?;
                tasks.execute(connection);
                Ok(Self::Http2(sender))
            }
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    async fn send(
        &mut self,
        request: Request<WithoutTrailers>,
    ) -> Result<Response<Incoming>, SendError<WithoutTrailers>> {
        let is_open = match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        };
        if is_open.is_err() {
            return Err(SendError::NotSent(Box::new(request)));
        }
        let sent = match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(SendError::from)
    }
}

struct RequestHandler {
    connection: Arc<Connection>,
    inspection: Arc<Inspection>,
    /// Removes from answers the secrets that were written into requests.
    redactor: Redactor,
    is_for_secrets: bool,
    to: Destination,
    protocol: Protocol,
    offered_alpn: Vec<Vec<u8>>,
    framing: FramingState,
    tasks: Tasks,
    http_upstream: tokio::sync::Mutex<Option<HttpUpstream>>,
}

type Answer = Either<Full<Bytes>, RedactedBody>;

impl RequestHandler {
    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let answered = match request::read(&ProxyMode::Inspected(self.to.clone()), &parts) {
            Ok(parsed) => self.forward(parsed, parts, body).await,
            Err(refusal) => Err(refusal),
        };
        answered.unwrap_or_else(|refusal| {
            self.connection.sandbox.refuse(&refusal);
            let mut response = refused(&self.connection.sandbox.with_hint(refusal)).map(Either::Left);
            if self.protocol == Protocol::Http2 {
                // An HTTP/2 stream ends with its answer; the header would be an error there.
                response.headers_mut().remove(header::CONNECTION);
            }
            response
        })
    }

    async fn forward(
        &self,
        mut parsed: ParsedRequest,
        mut parts: Parts,
        body: Incoming,
    ) -> Result<Response<Answer>, Refusal> {
        let method = escaped(parts.method.as_str().as_bytes());
        // The state is set before the rules are checked, so that a change of them in between is seen by one of the two.
        let request_guard = self.connection.begin_request(&self.to, &method, &parsed.target);
        let rules = self.connection.sandbox.rules_now();
        check_request(&rules, &self.to, &method, &parsed.target)?;
        if check_connection(&rules, &self.to)? == Mode::Inspect {
            request::refuse_overrides(&self.to, &parts.headers)?;
        }
        if parsed.kind != RequestKind::Plain {
            return Err(self.not_supported(
                "a WebSocket",
                "use plain requests, or a rule without a secret for the host",
            ));
        }
        let path = escaped(parsed.target.split('?').next().unwrap_or_default().as_bytes());
        // Before the secrets are written, so that the program's `Connection` header cannot remove them.
        request::strip_named(&mut parts.headers);
        let secrets = self.fill(&mut parts.headers, &mut parsed.target).await?;
        match self.protocol {
            Protocol::Http1 => request::rewrite(&mut parts, &parsed, 443)?,
            Protocol::Http2 => request::rewrite_for_http2(&mut parts, &parsed)?,
        }
        let answered = self.send(Request::from_parts(parts, WithoutTrailers(body))).await;
        self.connection.sandbox.publish(EgressEvent::Request {
            method,
            name: self.to.host.to_string(),
            port: self.to.port,
            path,
            status: answered.as_ref().ok().map(|response| response.status().as_u16()),
            secrets,
        });
        let (mut parts, body) = answered?.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(unreachable(
                &self.to,
                "it switched to a protocol that was not requested",
            ));
        }
        if !request::has_only_chunked_coding(&parts.headers) {
            return Err(unreachable(&self.to, TRANSFER_CODED));
        }
        // The server's text, which no redactor reads.
        parts.extensions.remove::<ReasonPhrase>();
        request::strip(&mut parts.headers);
        let body = RedactedBody::new(body, &self.redactor, request_guard);
        if body.may_differ() {
            self.check_uncompressed(&parts.headers)?;
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        redact_headers(&mut parts.headers, &self.redactor);
        if self.protocol == Protocol::Http1 {
            parts.version = Version::HTTP_11;
        }
        Ok(Response::from_parts(parts, Either::Right(body)))
    }

    /// Writes the secrets of this host into a request, and requests an answer in which they can be found.
    async fn fill(&self, headers: &mut HeaderMap, target: &mut String) -> Result<Vec<String>, Refusal> {
        if !self.is_for_secrets {
            return Ok(Vec::new());
        }
        let filled = fill(self.inspection.secrets(), &self.to, headers, target).await;
        let filled = filled.map_err(|unwritable| {
            let (name, why, hint) = match unwritable {
                Unwritable::Bytes(name) => (
                    name,
                    "has bytes that no header can have",
                    "store it without line breaks",
                ),
                Unwritable::Outdated(name) => (name, "was replaced or removed", "make a new session"),
            };
            let what = format!("{}: the secret {name} {why}", self.to);
            Refusal::of(RefusalRule::Secret, &self.to, what, hint)
        })?;
        // Neither compressed, nor in ranges that are each too small to find a secret in.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.remove(header::RANGE);
        headers.remove(header::IF_RANGE);
        Ok(filled)
    }

    /// Checks that secrets can be found in an answer.
    fn check_uncompressed(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
        if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Ok(());
        }
        let what = format!(
            "{}: its answer is compressed (Content-Encoding), so that a secret in it could not be found",
            self.to
        );
        Err(Refusal::of(
            RefusalRule::Secret,
            &self.to,
            what,
            "use a URL of this host with uncompressed answers",
        ))
    }

    fn not_supported(&self, what: &str, hint: &str) -> Refusal {
        let what = format!("{}: its requests are inspected, and {what} cannot be", self.to);
        Refusal::of(RefusalRule::Request, &self.to, what, hint)
    }

    /// Sends a request over the existing connection, or over a new one if that has ended before anything was sent. With
    /// HTTP/2 other requests may have replaced it, and used up the new one too.
    async fn send(&self, mut request: Request<WithoutTrailers>) -> Result<Response<Incoming>, Refusal> {
        let mut http_upstream = self.http_upstream.lock().await;
        for _ in 0..TRIES_MAX {
            let (mut open, is_own) = match http_upstream.take() {
                Some(open) if !open.is_closed() => (open, false),
                _ => (self.open().await?, true),
            };
            let sent = if let HttpUpstream::Http2(sender) = &open {
                // Other requests use it at the same time.
                let mut own = HttpUpstream::Http2(sender.clone());
                *http_upstream = Some(open);
                drop(http_upstream);
                let sent = own.send(request).await;
                http_upstream = self.http_upstream.lock().await;
                sent
            } else {
                let sent = open.send(request).await;
                *http_upstream = Some(open);
                sent
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(SendError::NotSent(_)) if is_own => break,
                Err(SendError::NotSent(unsent)) => request = *unsent,
                Err(SendError::MaybeSent(error)) => return Err(unanswered(&self.framing, &self.to, &error)),
            }
        }
        Err(unreachable(
            &self.to,
            "it ends every connection before the first request",
        ))
    }

    async fn open(&self) -> Result<HttpUpstream, Refusal> {
        // With HTTP/2 the one before may still be answering requests; then both count.
        let is_second = self.protocol == Protocol::Http2 && self.connection.upstreams().open > 0;
        let permit = is_second.then(|| self.connection.sandbox.permit()).transpose()?;
        let upstream = upstream::open(&self.connection, &self.to, None).await?;
        self.connection.upstreams().keep(permit);
        let alpn = self.offered_alpn.clone();
        let (upstream_tls, protocol) = handshake::connect(&self.inspection, &self.to, alpn, upstream).await?;
        if protocol != self.protocol {
            return Err(unreachable(
                &self.to,
                "it has chosen a different protocol than before",
            ));
        }
        let http_upstream = HttpUpstream::over(upstream_tls, protocol, &self.tasks).await;
        http_upstream.map_err(|_| unreachable(&self.to, "the connection ended at once"))
    }
}
