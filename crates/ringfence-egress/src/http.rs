//! Inspected plain HTTP/1.1: each request is checked by itself and written anew, and bodies are streamed. The library
//! parses only what [`crate::framing`] lets through; no byte of one message is ever taken for part of another.

use crate::{
    Destination, EgressEvent, RefusalRule,
    connection::{ConnState, Connection, Mode, check_connection, check_request, not_inspected},
    dial::unreachable,
    framing::HEAD_BYTES_MAX,
    refusal::{Refusal, shown},
    request::{self, Means, ProxyMode, Wanted, malformed_request},
    upstream::{self, Upstream, UpstreamMeter},
    wire::{Client, Gate, Strict},
};
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode, Version,
    body::{Bytes, Incoming},
    client::conn::{TrySendError, http1 as outward},
    header::{self, HeaderValue},
    http::request::Parts,
    server::conn::http1 as inward,
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
/// Bytes that are still read of an end that goes on talking after our last answer, so that it receives that answer.
const LINGER_BYTES_MAX: usize = 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// Refuses an answer whose Transfer-Encoding would be lost.
pub(crate) const PACKED: &str = "its answer is packed (Transfer-Encoding)";

/// What is answered: our own words, or what the other end says.
type Answer = Either<Full<Bytes>, Incoming>;

/// What comes after the requests of a connection.
pub(crate) enum Next {
    Ended,
    /// Both ends have agreed on something that is not read.
    Joined {
        client: Client,
        upstream: Upstream,
        /// What the outside has said already.
        said: Vec<u8>,
    },
    /// The proxy was asked for a tunnel, and has said yes.
    Connect {
        client: Client,
        to: Destination,
        upstream: Upstream,
    },
}

/// Answers the requests of one connection, until it ends or becomes something else.
pub(crate) async fn serve(
    connection: &Arc<Connection>,
    client: Client,
    proxy: ProxyMode,
    ready: Option<Upstream>,
) -> Next {
    let gate = Gate::default();
    let handler = Arc::new(RequestHandler {
        connection: connection.clone(),
        proxy,
        gate: gate.clone(),
        line: tokio::sync::Mutex::new(ready.map(UpstreamState::Fresh)),
        agreed: Mutex::new(None),
    });
    let for_service = handler.clone();
    let service = service_fn(move |request| {
        let handler = for_service.clone();
        Box::pin(async move { Ok::<_, Infallible>(handler.answer(request).await) })
    });
    let hello = connection.sandbox.dialer.limits().hello;
    let io = TokioIo::new(Strict::new(
        client.stream,
        client.read,
        connection.clone(),
        gate.clone(),
    ));
    let served = inward::Builder::new()
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
    tell_of_bad_end(connection, &gate, served.as_ref().err(), hello);
    match served {
        Ok(parts) => {
            let (stream, before) = parts.io.into_inner().into_parts();
            let read = [&parts.read_buf[..], &before].concat();
            after(handler.agreed(), Client { stream, read }).await
        }
        Err(_) => Next::Ended,
    }
}

/// What the requests have come to.
async fn after(agreed: Option<Agreed>, mut client: Client) -> Next {
    match agreed {
        Some(Agreed::Tunnel { to, upstream }) => Next::Connect { client, to, upstream },
        Some(Agreed::WebSocket(mut line)) => match line.driver.join_next().await {
            Some(Ok(Some((upstream, said)))) => Next::Joined {
                client,
                upstream,
                said,
            },
            _ => Next::Ended,
        },
        None => {
            linger(&mut client.stream).await;
            Next::Ended
        }
    }
}

/// Ends our side, and hears the other out for a moment: closing with its words unread would take ours away from it.
pub(crate) async fn linger(stream: &mut TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let heard = async {
        let mut buffer = [0; 4096];
        let mut left = LINGER_BYTES_MAX;
        while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
            left = left.saturating_sub(bytes);
            if left == 0 {
                break;
            }
        }
    };
    // Whether it has ended or only the time has, the socket is closed now.
    drop(tokio::time::timeout(LINGER_TIME, heard).await);
}

pub(crate) fn tell_of_bad_end(
    connection: &Connection,
    gate: &Gate,
    error: Option<&hyper::Error>,
    hello: Duration,
) {
    let refusal = if let Some(wrong) = gate.framing_error() {
        malformed_request(&wrong.to_string())
    } else {
        match error {
            Some(error) if error.is_parse() => malformed_request(&shown(error.to_string().as_bytes())),
            Some(error) if error.is_timeout() && gate.is_open() => {
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
    gate: Gate,
    /// The connection to the outside that the last request used. Requests come one by one, so the lock is always free.
    line: tokio::sync::Mutex<Option<UpstreamState>>,
    agreed: Mutex<Option<Agreed>>,
}

/// A connection to the outside, before and after its first request.
enum UpstreamState {
    Fresh(Upstream),
    Used(Line),
}

/// A connection to the outside that requests go over.
struct Line {
    to: Destination,
    sender: outward::SendRequest<Incoming>,
    meter: Arc<UpstreamMeter>,
    /// What moves its bytes; gives the socket back where it stops being HTTP.
    driver: JoinSet<Option<(Upstream, Vec<u8>)>>,
}

/// What both ends have agreed on instead of more requests.
enum Agreed {
    Tunnel { to: Destination, upstream: Upstream },
    WebSocket(Line),
}

/// Why a request has no answer.
pub(crate) enum Unsent<B> {
    /// Nothing of it was sent, so it can be sent again.
    Never(Box<Request<B>>),
    /// Something of it may have arrived.
    Perhaps(hyper::Error),
}

impl<B> From<TrySendError<Request<B>>> for Unsent<B> {
    fn from(mut error: TrySendError<Request<B>>) -> Self {
        match error.take_message() {
            Some(request) => Self::Never(Box::new(request)),
            None => Self::Perhaps(error.into_error()),
        }
    }
}

impl Line {
    /// Sends one more request over a connection that was used before.
    async fn send(&mut self, request: Request<Incoming>) -> Result<Response<Incoming>, Unsent<Incoming>> {
        if self.sender.ready().await.is_err() {
            return Err(Unsent::Never(Box::new(request)));
        }
        let sent = self.sender.try_send_request(request).await;
        let sent = sent.map_err(Unsent::from);
        if !matches!(sent, Err(Unsent::Never(_))) {
            self.meter.request();
        }
        sent
    }
}

impl RequestHandler {
    fn agreed(&self) -> Option<Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn agree(&self, on: Agreed) {
        *self.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(on);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let answered = match request::read(&self.proxy, &parts) {
            Ok(wanted) if wanted.means == Means::Tunnel => self.tunnel(wanted.to).await,
            Ok(wanted) => self.pass_on(wanted, parts, body).await,
            Err(refusal) => Err(refusal),
        };
        answered.unwrap_or_else(|refusal| {
            self.connection.refuse(&refusal);
            refused(&self.connection.sandbox.advised(refusal)).map(Either::Left)
        })
    }

    /// `CONNECT`: what the rules say of the host and port; what is said through it is judged as on any connection.
    async fn tunnel(&self, to: Destination) -> Result<Response<Answer>, Refusal> {
        let mode = self.connection.check_or_ask(&to).await?;
        if mode == Mode::Inspect && to.port == 443 && self.connection.sandbox.inspection.is_none() {
            return Err(not_inspected(&to));
        }
        let upstream = upstream::open(&self.connection, &to, None).await?;
        self.gate.pass_all();
        self.agree(Agreed::Tunnel { to, upstream });
        Ok(Response::new(Either::Left(Full::default())))
    }

    async fn pass_on(
        &self,
        wanted: Wanted,
        mut parts: Parts,
        body: Incoming,
    ) -> Result<Response<Answer>, Refusal> {
        let Wanted { to, target, .. } = &wanted;
        let method = shown(parts.method.as_str().as_bytes());
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
        if wanted.means == Means::WebSocket && mode == Mode::Inspect {
            let what = format!("{to}: its rules name methods or paths, and a WebSocket is not read");
            let hint = format!("a rule without method and path for `{to}`");
            return Err(Refusal::of(RefusalRule::Request, to, what, &hint));
        }
        request::rewrite(&mut parts, &wanted, 80)?;
        let answered = self.send(to, Request::from_parts(parts, body)).await;
        self.connection.sandbox.happened(EgressEvent::Request {
            method,
            name: to.host.to_string(),
            port: to.port,
            path: shown(target.split('?').next().unwrap_or_default().as_bytes()),
            status: answered
                .as_ref()
                .ok()
                .map(|(response, _)| response.status().as_u16()),
            secrets: Vec::new(),
        });
        let (response, line) = answered?;
        self.give_back(&wanted, response, line).await
    }

    /// Sends a request over the connection that there is, or a new one. One that the other end has closed in the
    /// meantime is noticed before anything of the request was sent; only then is it sent again.
    async fn send(
        &self,
        to: &Destination,
        request: Request<Incoming>,
    ) -> Result<(Response<Incoming>, Line), Refusal> {
        let before = self.line.lock().await.take();
        let (mut line, request) = match before {
            Some(UpstreamState::Fresh(upstream)) => (self.open(to, Some(upstream)).await?, request),
            Some(UpstreamState::Used(mut line)) if line.to == *to => match line.send(request).await {
                Ok(response) => return Ok((response, line)),
                Err(Unsent::Never(request)) => (self.open(to, None).await?, *request),
                Err(Unsent::Perhaps(error)) => return Err(unanswered(&self.gate, to, &error)),
            },
            _ => (self.open(to, None).await?, request),
        };
        line.meter.request();
        let sent = line.sender.send_request(request).await;
        sent.map(|response| (response, line))
            .map_err(|error| unanswered(&self.gate, to, &error))
    }

    async fn open(&self, to: &Destination, ready: Option<Upstream>) -> Result<Line, Refusal> {
        let upstream = upstream::open(&self.connection, to, ready).await?;
        let meter = upstream.meter.clone();
        let shaken = outward::Builder::new()
            .preserve_header_case(true)
            .title_case_headers(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX * 2)
            .handshake::<_, Incoming>(TokioIo::new(upstream))
            .await;
        let (sender, connection) = shaken.map_err(|_| unreachable(to, "the connection ended at once"))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let parts = connection.without_shutdown().await.ok()?;
            Some((parts.io.into_inner(), parts.read_buf.to_vec()))
        });
        Ok(Line {
            to: to.clone(),
            sender,
            meter,
            driver,
        })
    }

    /// Makes of the other end's answer the one that the sandbox gets.
    async fn give_back(
        &self,
        wanted: &Wanted,
        response: Response<Incoming>,
        line: Line,
    ) -> Result<Response<Answer>, Refusal> {
        let (mut parts, body) = response.into_parts();
        if !request::is_plainly_coded(&parts.headers) {
            return Err(unreachable(&wanted.to, PACKED));
        }
        request::strip(&mut parts.headers);
        parts.version = Version::HTTP_11;
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            *self.line.lock().await = Some(UpstreamState::Used(line));
            return Ok(Response::from_parts(parts, Either::Right(body)));
        }
        if wanted.means != Means::WebSocket {
            return Err(unreachable(
                &wanted.to,
                "it answered with a protocol that was not asked for",
            ));
        }
        self.connection.passes(&wanted.to)?;
        request::ask_for_websocket(&mut parts.headers);
        self.gate.pass_all();
        self.agree(Agreed::WebSocket(line));
        Ok(Response::from_parts(parts, Either::Left(Full::default())))
    }
}

/// The refusal of a request that may have been sent and has no answer.
pub(crate) fn unanswered(gate: &Gate, to: &Destination, error: &hyper::Error) -> Refusal {
    match gate.framing_error() {
        Some(wrong) => malformed_request(&wrong.to_string()),
        None => {
            tracing::debug!(%error, "a request was not answered");
            unreachable(to, "the connection ended without a proper answer")
        }
    }
}

/// The answer to what is not passed on. Nothing follows it on this connection.
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
