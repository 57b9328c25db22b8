//! Inspected plain HTTP/1.1: each request is checked and rewritten on its own, and bodies are streamed. The library
//! parses only bytes that pass [`crate::framing`]; no byte of one message is ever taken for part of another.

use crate::{
    Destination, EgressEvent, RefusalRule,
    connection::{ConnState, Connection, Mode, check_connection, check_request, not_inspected},
    dial::unreachable,
    framing::HEAD_BYTES_MAX,
    refusal::{Refusal, escaped},
    request::{self, ParsedRequest, ProxyMode, RequestKind, malformed_request},
    upstream::{self, Upstream, UpstreamMeter},
    wire::{Client, FramingState, StrictStream},
};
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode, Version,
    body::{Bytes, Incoming},
    client::conn::{TrySendError, http1 as http1_client},
    header::{self, HeaderValue},
    http::request::Parts,
    server::conn::http1 as http1_server,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

pub(crate) const HEADERS_MAX: usize = 128;
/// Maximum bytes read from a client that still sends after the last answer, so that it receives that answer.
const LINGER_BYTES_MAX: usize = 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Reason for refusing an answer with a Transfer-Encoding that would be lost.
pub(crate) const TRANSFER_CODED: &str = "its answer has a Transfer-Encoding other than chunked";

/// The body of an answer: Ringfence's own text, or the upstream's.
type Answer = Either<Full<Bytes>, Incoming>;

pub(crate) enum Next {
    Ended,
    /// Both ends have switched to a protocol that is not inspected.
    Upgraded {
        client: Client,
        upstream: Upstream,
        read_ahead: Vec<u8>,
    },
    /// The proxy has accepted a `CONNECT`.
    Connect {
        client: Client,
        to: Destination,
        upstream: Upstream,
    },
}

/// Answers the requests of one connection, until it ends or switches to another protocol.
pub(crate) async fn serve(
    connection: &Arc<Connection>,
    client: Client,
    proxy: ProxyMode,
    ready: Option<Upstream>,
) -> Next {
    let framing = FramingState::default();
    let handler = Arc::new(RequestHandler {
        connection: connection.clone(),
        proxy,
        framing: framing.clone(),
        http_upstream: tokio::sync::Mutex::new(ready.map(UpstreamState::Fresh)),
        upgrade: Mutex::new(None),
    });
    let for_service = handler.clone();
    let service = service_fn(move |request| {
        let handler = for_service.clone();
        Box::pin(async move { Ok::<_, Infallible>(handler.answer(request).await) })
    });
    let hello = connection.sandbox.dialer.limits().hello;
    let io = TokioIo::new(StrictStream::new(
        client.stream,
        client.read_ahead,
        connection.clone(),
        framing.clone(),
    ));
    let served = http1_server::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(hello)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX * 2)
        .max_header_size(HEAD_BYTES_MAX)
        .half_close(true)
        .preserve_header_case(true)
        .title_case_headers(true)
        .auto_date_header(false)
        .serve_connection(io, service)
        .without_shutdown()
        .await;
    report_http_error(connection, &framing, served.as_ref().err(), hello);
    match served {
        Ok(parts) => {
            let (stream, before) = parts.io.into_inner().into_parts();
            let read_ahead = [&parts.read_buf[..], &before].concat();
            next_step(handler.take_upgrade(), Client { stream, read_ahead }).await
        }
        Err(_) => Next::Ended,
    }
}

async fn next_step(upgrade: Option<Upgrade>, mut client: Client) -> Next {
    match upgrade {
        Some(Upgrade::Tunnel { to, upstream }) => Next::Connect { client, to, upstream },
        Some(Upgrade::WebSocket(mut http_upstream)) => match http_upstream.driver.join_next().await {
            Some(Ok(Some((upstream, read_ahead)))) => Next::Upgraded {
                client,
                upstream,
                read_ahead,
            },
            _ => Next::Ended,
        },
        None => {
            linger(&mut client.stream).await;
            Next::Ended
        }
    }
}

/// Shuts down the sending side, and reads for a moment: a close with unread bytes could destroy the answer on its way.
pub(crate) async fn linger(stream: &mut TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let drained = async {
        let mut buffer = [0; 4096];
        let mut left = LINGER_BYTES_MAX;
        while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
            left = left.saturating_sub(bytes);
            if left == 0 {
                break;
            }
        }
    };
    // The socket is closed now, after the end of the client or of the time.
    drop(tokio::time::timeout(LINGER_TIME, drained).await);
}

pub(crate) fn report_http_error(
    connection: &Connection,
    framing: &FramingState,
    error: Option<&hyper::Error>,
    hello: Duration,
) {
    let refusal = if let Some(fault) = framing.framing_error() {
        malformed_request(&fault.to_string())
    } else {
        match error {
            Some(error) if error.is_parse() => malformed_request(&escaped(error.to_string().as_bytes())),
            Some(error) if error.is_timeout() && framing.is_open() => {
                let what = format!(
                    "a request was refused: its head took longer than {} s",
                    hello.as_secs_f64()
                );
                Refusal::plain(RefusalRule::Limit, what, "send it in one go")
            }
            _ => return,
        }
    };
    connection.sandbox.refuse(&refusal);
}

struct RequestHandler {
    connection: Arc<Connection>,
    proxy: ProxyMode,
    framing: FramingState,
    /// The connection to the outside that the last request used. Requests come one by one, so the lock is always free.
    http_upstream: tokio::sync::Mutex<Option<UpstreamState>>,
    upgrade: Mutex<Option<Upgrade>>,
}

/// A connection to the outside, before and after its first request.
enum UpstreamState {
    Fresh(Upstream),
    Used(HttpUpstream),
}

struct HttpUpstream {
    to: Destination,
    sender: http1_client::SendRequest<Incoming>,
    meter: Arc<UpstreamMeter>,
    /// The task that moves its bytes; returns the socket when the connection stops being HTTP.
    driver: JoinSet<Option<(Upstream, Vec<u8>)>>,
}

enum Upgrade {
    Tunnel { to: Destination, upstream: Upstream },
    WebSocket(HttpUpstream),
}

pub(crate) enum SendError<B> {
    /// Nothing of it was sent, so it can be sent again.
    NotSent(Box<Request<B>>),
    /// A part of it may have arrived.
    MaybeSent(hyper::Error),
}

impl<B> From<TrySendError<Request<B>>> for SendError<B> {
    fn from(mut error: TrySendError<Request<B>>) -> Self {
        match error.take_message() {
            Some(request) => Self::NotSent(Box::new(request)),
            None => Self::MaybeSent(error.into_error()),
        }
    }
}

impl HttpUpstream {
    /// Sends a request over a connection that was used before.
    async fn send(&mut self, request: Request<Incoming>) -> Result<Response<Incoming>, SendError<Incoming>> {
        if self.sender.ready().await.is_err() {
            return Err(SendError::NotSent(Box::new(request)));
        }
        let sent = self.sender.try_send_request(request).await;
        let sent = sent.map_err(SendError::from);
        if !matches!(sent, Err(SendError::NotSent(_))) {
            self.meter.request();
        }
        sent
    }
}

impl RequestHandler {
    fn take_upgrade(&self) -> Option<Upgrade> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set_upgrade(&self, upgrade: Upgrade) {
        *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let answered = match request::read(&self.proxy, &parts) {
            Ok(parsed) if parsed.kind == RequestKind::Tunnel => self.tunnel(parsed.to).await,
            Ok(parsed) => self.forward(parsed, parts, body).await,
            Err(refusal) => Err(refusal),
        };
        answered.unwrap_or_else(|refusal| {
            self.connection.refuse(&refusal);
            refused(&self.connection.sandbox.with_hint(refusal)).map(Either::Left)
        })
    }

    /// Answers `CONNECT` by the rules for its host and port; the traffic inside is checked as on any connection.
    async fn tunnel(&self, to: Destination) -> Result<Response<Answer>, Refusal> {
        let mode = self.connection.check_or_ask(&to).await?;
        if mode == Mode::Inspect && to.port == 443 && self.connection.sandbox.inspection.is_none() {
            return Err(not_inspected(&to));
        }
        let upstream = upstream::open(&self.connection, &to, None).await?;
        self.framing.pass_all();
        self.set_upgrade(Upgrade::Tunnel { to, upstream });
        Ok(Response::new(Either::Left(Full::default())))
    }

    async fn forward(
        &self,
        parsed: ParsedRequest,
        mut parts: Parts,
        body: Incoming,
    ) -> Result<Response<Answer>, Refusal> {
        let ParsedRequest { to, target, .. } = &parsed;
        let method = escaped(parts.method.as_str().as_bytes());
        self.connection.check_or_ask(to).await?;
        // The state is set before the rules are checked, so that a change of them in between is seen by one of the two.
        let state = ConnState::answering(to, 0, &method, target);
        self.connection.set_state(state);
        let rules = self.connection.sandbox.rules_now();
        let mode = check_connection(&rules, to)?;
        check_request(&rules, to, &method, target)?;
        if mode == Mode::Inspect {
            request::refuse_overrides(to, &parts.headers)?;
        }
        if parsed.kind == RequestKind::WebSocket && mode == Mode::Inspect {
            let what = format!("{to}: its rules name methods or paths, and a WebSocket cannot be inspected");
            let hint = format!("use a rule without method and path for `{to}`");
            return Err(Refusal::of(RefusalRule::Request, to, what, &hint));
        }
        request::rewrite(&mut parts, &parsed, 80)?;
        let answered = self.send(to, Request::from_parts(parts, body)).await;
        self.connection.sandbox.publish(EgressEvent::Request {
            method,
            name: to.host.to_string(),
            port: to.port,
            path: escaped(target.split('?').next().unwrap_or_default().as_bytes()),
            status: answered
                .as_ref()
                .ok()
                .map(|(response, _)| response.status().as_u16()),
            secrets: Vec::new(),
        });
        let (response, http_upstream) = answered?;
        self.respond(&parsed, response, http_upstream).await
    }

    /// Sends a request over the existing connection, or a new one. If the upstream has closed the existing one in the
    /// meantime, that is noticed before any part of the request was sent; only then is it sent again.
    async fn send(
        &self,
        to: &Destination,
        request: Request<Incoming>,
    ) -> Result<(Response<Incoming>, HttpUpstream), Refusal> {
        let before = self.http_upstream.lock().await.take();
        let (mut http_upstream, request) = match before {
            Some(UpstreamState::Fresh(upstream)) => (self.open(to, Some(upstream)).await?, request),
            Some(UpstreamState::Used(mut used)) if used.to == *to => match used.send(request).await {
                Ok(response) => return Ok((response, used)),
                Err(SendError::NotSent(request)) => (self.open(to, None).await?, *request),
                Err(SendError::MaybeSent(error)) => return Err(unanswered(&self.framing, to, &error)),
            },
            _ => (self.open(to, None).await?, request),
        };
        http_upstream.meter.request();
        let sent = http_upstream.sender.send_request(request).await;
        sent.map(|response| (response, http_upstream))
            .map_err(|error| unanswered(&self.framing, to, &error))
    }

    async fn open(&self, to: &Destination, ready: Option<Upstream>) -> Result<HttpUpstream, Refusal> {
        let upstream = upstream::open(&self.connection, to, ready).await?;
        let meter = upstream.meter.clone();
        let handshake = http1_client::Builder::new()
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX * 2)
            .handshake::<_, Incoming>(TokioIo::new(upstream))
            .await;
        let (sender, connection) = handshake.map_err(|_| unreachable(to, "the connection ended at once"))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let parts = connection.without_shutdown().await.ok()?;
            Some((parts.io.into_inner(), parts.read_buf.to_vec()))
        });
        Ok(HttpUpstream {
            to: to.clone(),
            sender,
            meter,
            driver,
        })
    }

    async fn respond(
        &self,
        parsed: &ParsedRequest,
        response: Response<Incoming>,
        http_upstream: HttpUpstream,
    ) -> Result<Response<Answer>, Refusal> {
        let (mut parts, body) = response.into_parts();
        if !request::has_only_chunked_coding(&parts.headers) {
            return Err(unreachable(&parsed.to, TRANSFER_CODED));
        }
        request::strip(&mut parts.headers);
        parts.version = Version::HTTP_11;
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            *self.http_upstream.lock().await = Some(UpstreamState::Used(http_upstream));
            return Ok(Response::from_parts(parts, Either::Right(body)));
        }
        if parsed.kind != RequestKind::WebSocket {
            return Err(unreachable(
                &parsed.to,
                "it switched to a protocol that was not requested",
            ));
        }
        self.connection.passes(&parsed.to)?;
        request::set_websocket_headers(&mut parts.headers);
        self.framing.pass_all();
        self.set_upgrade(Upgrade::WebSocket(http_upstream));
        Ok(Response::from_parts(parts, Either::Left(Full::default())))
    }
}

/// Returns the refusal of a request that may have been sent and has no answer.
pub(crate) fn unanswered(framing: &FramingState, to: &Destination, error: &hyper::Error) -> Refusal {
    match framing.framing_error() {
        Some(fault) => malformed_request(&fault.to_string()),
        None => {
            tracing::debug!(%error, "a request was not answered");
            unreachable(to, "the connection ended without a proper answer")
        }
    }
}

/// Returns the answer to a request that is not forwarded. Nothing follows it on this connection.
pub(crate) fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(refusal.text()));
    *response.status_mut() = match refusal.rule {
        RefusalRule::Http => StatusCode::BAD_REQUEST,
        RefusalRule::Unreachable | RefusalRule::Certificate => StatusCode::BAD_GATEWAY,
        _ => StatusCode::FORBIDDEN,
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
