//! The requests of a connection whose TLS ends here: each is checked as on a plain connection, gets the secrets that
//! belong to its host, and is answered without them. HTTP/1.1 or HTTP/2, as the other end has chosen, and the same on
//! both sides.

use super::{
    frames::Frames,
    handshake::{self, Inner, Outer, Protocol, offer},
    redacted::{RedactedBody, WithoutTrailers, redact_headers},
};
use crate::{
    ClientHello, Destination, EgressEvent, Inspection, RefusalRule,
    connection::{Connection, Mode, check_connection, check_request},
    dial::unreachable,
    framing::HEAD_BYTES_MAX,
    http::{HEADERS_MAX, PACKED, Unsent, refused, tell_of_bad_end, unanswered},
    inspection::{Unwritable, fill},
    refusal::{Refusal, shown},
    request::{self, Means, ProxyMode, Wanted},
    upstream::{self, Upstream},
    wire::{Client, Gate, Strict},
};
use http_body_util::{Either, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::{Bytes, Incoming},
    client::conn::{http1 as outward1, http2 as outward2},
    ext::ReasonPhrase,
    header::{self, HeaderValue},
    http::request::Parts,
    rt::Executor,
    server::conn::{http1 as inward1, http2 as inward2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use ringfence_redact::Redactor;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::task::JoinSet;

/// Requests that one connection of HTTP/2 has open at once.
const STREAMS_MAX: u32 = 64;
/// Bytes of one HTTP/2 connection that are buffered for a peer that does not read: in all, and of one request towards
/// the socket. The library's defaults are ten times as large.
const WINDOW_BYTES: u32 = 512 * 1024;
const SENT_AHEAD_BYTES: usize = 16 * 1024;

/// A destination that was reached, and has shown that it is who it should be.
pub(crate) struct InspectedTls {
    inspection: Arc<Inspection>,
    to: Destination,
    outer: Outer,
    protocol: Protocol,
    /// By name, where one was chosen.
    chosen: Option<Vec<u8>>,
    offered: Vec<Vec<u8>>,
}

/// Reaches `to` for a connection that is read.
pub(crate) async fn meet(
    connection: &Arc<Connection>,
    inspection: &Arc<Inspection>,
    to: &Destination,
    hello: &ClientHello,
    ready: Option<Upstream>,
) -> Result<InspectedTls, Refusal> {
    let offered = offer(hello, to)?;
    let upstream = upstream::open(connection, to, ready).await?;
    let (outer, protocol) = handshake::outward(inspection, to, offered.clone(), upstream).await?;
    Ok(InspectedTls {
        inspection: inspection.clone(),
        to: to.clone(),
        chosen: outer.get_ref().1.alpn_protocol().map(<[u8]>::to_vec),
        outer,
        protocol,
        offered,
    })
}

/// Answers the requests of a connection to its end.
pub(crate) async fn serve(connection: &Arc<Connection>, client: Client, inspected: InspectedTls) {
    let InspectedTls {
        inspection,
        to,
        outer,
        protocol,
        chosen,
        offered,
    } = inspected;
    let inner = match handshake::inward(&inspection, connection, &to, client, chosen).await {
        Ok(inner) => inner,
        Err(error) => return connection.sandbox.refuse(&disbelieved(&to, &error)),
    };
    let tasks = Tasks::default();
    let _ends_with_it = Ending(tasks.clone());
    let line = match Line::over(outer, protocol, &tasks).await {
        Ok(line) => line,
        Err(error) => {
            tracing::debug!(%error, "a connection has ended before its first request");
            return;
        }
    };
    let is_for_secrets = inspection.concerns(&to);
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
        offered,
        gate: Gate::default(),
        tasks,
        line: tokio::sync::Mutex::new(Some(line)),
    });
    let served = answers(&handler, inner).await;
    let hello = connection.sandbox.dialer.limits().hello;
    tell_of_bad_end(connection, &handler.gate, served.as_ref().err(), hello);
}

/// Answers as long as anything is asked.
async fn answers(handler: &Arc<RequestHandler>, inner: Inner) -> hyper::Result<()> {
    let for_service = handler.clone();
    let service = service_fn(move |request| {
        let handler = for_service.clone();
        Box::pin(async move { Ok::<_, Infallible>(handler.answer(request).await) })
    });
    match handler.protocol {
        Protocol::Http1 => {
            let io = Strict::new(
                inner,
                Vec::new(),
                handler.connection.clone(),
                handler.gate.clone(),
            );
            inward1::Builder::new()
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
            inward2::Builder::new(handler.tasks.clone())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .max_send_buf_size(SENT_AHEAD_BYTES)
                .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
                .auto_date_header(false)
                .serve_connection(
                    TokioIo::new(Frames::new(inner, handler.connection.clone())),
                    service,
                )
                .await
        }
    }
}

/// The program has hung up at our certificate.
fn disbelieved(to: &Destination, error: &std::io::Error) -> Refusal {
    Refusal::of(
        RefusalRule::Certificate,
        to,
        format!(
            "{to}: its TLS is read here, and the program did not go on: {}",
            shown(error.to_string().as_bytes())
        ),
        "have the program believe the certificates in the file that $SSL_CERT_FILE names; where it knows only those of its \
         own, its TLS cannot be read",
    )
}

/// What runs for one connection; ends with it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

struct Ending(Tasks);

impl Drop for Ending {
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

/// A connection to the outside that requests go over.
enum Line {
    Http1(outward1::SendRequest<WithoutTrailers>),
    Http2(outward2::SendRequest<WithoutTrailers>),
}

impl Line {
    async fn over(outer: Outer, protocol: Protocol, tasks: &Tasks) -> hyper::Result<Self> {
        let io = TokioIo::new(outer);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = outward1::Builder::new()
                    .max_headers(HEADERS_MAX)
                    .max_buf_size(HEAD_BYTES_MAX * 2)
                    .handshake(io)
                    .await?;
                tasks.execute(connection);
                Ok(Self::Http1(sender))
            }
            Protocol::Http2 => {
                let (sender, connection) = outward2::Builder::new(tasks.clone())
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

    async fn send(
        &mut self,
        request: Request<WithoutTrailers>,
    ) -> Result<Response<Incoming>, Unsent<WithoutTrailers>> {
        let is_open = match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        };
        if is_open.is_err() {
            return Err(Unsent::Never(Box::new(request)));
        }
        let sent = match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(Unsent::from)
    }
}

struct RequestHandler {
    connection: Arc<Connection>,
    inspection: Arc<Inspection>,
    /// Takes out of answers what was put into requests.
    redactor: Redactor,
    is_for_secrets: bool,
    to: Destination,
    protocol: Protocol,
    offered: Vec<Vec<u8>>,
    gate: Gate,
    tasks: Tasks,
    line: tokio::sync::Mutex<Option<Line>>,
}

/// What is answered: our own words, or what the other end says.
type Answer = Either<Full<Bytes>, RedactedBody>;

impl RequestHandler {
    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let answered = match request::read(&ProxyMode::Inspected(self.to.clone()), &parts) {
            Ok(wanted) => self.pass_on(wanted, parts, body).await,
            Err(refusal) => Err(refusal),
        };
        answered.unwrap_or_else(|refusal| {
            self.connection.sandbox.refuse(&refusal);
            let mut response = refused(&self.connection.sandbox.advised(refusal)).map(Either::Left);
            if self.protocol == Protocol::Http2 {
                // A stream ends with its answer; there the header is a fault.
                response.headers_mut().remove(header::CONNECTION);
            }
            response
        })
    }

    async fn pass_on(
        &self,
        mut wanted: Wanted,
        mut parts: Parts,
        body: Incoming,
    ) -> Result<Response<Answer>, Refusal> {
        let method = shown(parts.method.as_str().as_bytes());
        // The state is set before the rules are checked, so that a change of them in between is seen by one of the two.
        let request_guard = self.connection.begin_request(&self.to, &method, &wanted.target);
        let rules = self.connection.sandbox.rules_now();
        check_request(&rules, &self.to, &method, &wanted.target)?;
        if check_connection(&rules, &self.to)? == Mode::Inspect {
            request::refuse_overrides(&self.to, &parts.headers)?;
        }
        if wanted.means != Means::Answer {
            return Err(self.not_read(
                "a WebSocket",
                "plain requests there, or a rule and no secret for it",
            ));
        }
        let path = shown(wanted.target.split('?').next().unwrap_or_default().as_bytes());
        // Before the secrets are written: what the program names in `Connection` cannot take them away again.
        request::strip_named(&mut parts.headers);
        let secrets = self.fill(&mut parts.headers, &mut wanted.target)?;
        match self.protocol {
            Protocol::Http1 => request::rewrite(&mut parts, &wanted, 443)?,
            Protocol::Http2 => request::rewrite_for_http2(&mut parts, &wanted)?,
        }
        let answered = self.send(Request::from_parts(parts, WithoutTrailers(body))).await;
        self.connection.sandbox.happened(EgressEvent::Request {
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
                "it answered with a protocol that was not asked for",
            ));
        }
        if !request::is_plainly_coded(&parts.headers) {
            return Err(unreachable(&self.to, PACKED));
        }
        // A text of the server's that no redactor reads.
        parts.extensions.remove::<ReasonPhrase>();
        request::strip(&mut parts.headers);
        let body = RedactedBody::new(body, &self.redactor, request_guard);
        if body.may_differ() {
            self.readable(&parts.headers)?;
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        redact_headers(&mut parts.headers, &self.redactor);
        if self.protocol == Protocol::Http1 {
            parts.version = Version::HTTP_11;
        }
        Ok(Response::from_parts(parts, Either::Right(body)))
    }

    /// Puts the secrets of this host into a request, and asks for an answer in which they could be found.
    fn fill(&self, headers: &mut HeaderMap, target: &mut String) -> Result<Vec<String>, Refusal> {
        if !self.is_for_secrets {
            return Ok(Vec::new());
        }
        let filled = fill(self.inspection.secrets(), &self.to, headers, target);
        let filled = filled.map_err(|Unwritable(name)| {
            let what = format!("{}: the secret {name} has bytes that no header can have", self.to);
            Refusal::of(
                RefusalRule::Secret,
                &self.to,
                what,
                "store it without line breaks",
            )
        })?;
        // Neither packed, nor in pieces that are each too small to be found.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.remove(header::RANGE);
        headers.remove(header::IF_RANGE);
        Ok(filled)
    }

    /// Whether secrets would be found in an answer.
    fn readable(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
        if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Ok(());
        }
        let what = format!(
            "{}: its answer is packed (Content-Encoding), so that a secret in it could not be found",
            self.to
        );
        Err(Refusal::of(
            RefusalRule::Secret,
            &self.to,
            what,
            "an address there whose answers are not packed",
        ))
    }

    fn not_read(&self, what: &str, hint: &str) -> Refusal {
        let what = format!("{}: what is said there is read, and {what} is not", self.to);
        Refusal::of(RefusalRule::Request, &self.to, what, hint)
    }

    /// Sends a request over the connection that there is, or a new one where that has ended before anything was sent.
    async fn send(&self, mut request: Request<WithoutTrailers>) -> Result<Response<Incoming>, Refusal> {
        let mut line = self.line.lock().await;
        for is_new in [false, true] {
            let mut open = match line.take() {
                Some(open) if !is_new => open,
                _ => self.open().await?,
            };
            let sent = if let Line::Http2(sender) = &open {
                // Others use it meanwhile.
                let mut own = Line::Http2(sender.clone());
                *line = Some(open);
                drop(line);
                let sent = own.send(request).await;
                line = self.line.lock().await;
                sent
            } else {
                let sent = open.send(request).await;
                *line = Some(open);
                sent
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(Unsent::Never(unsent)) => request = *unsent,
                Err(Unsent::Perhaps(error)) => return Err(unanswered(&self.gate, &self.to, &error)),
            }
        }
        Err(unreachable(
            &self.to,
            "it ends every connection before the first request",
        ))
    }

    async fn open(&self) -> Result<Line, Refusal> {
        let upstream = upstream::open(&self.connection, &self.to, None).await?;
        let offered = self.offered.clone();
        let (outer, protocol) = handshake::outward(&self.inspection, &self.to, offered, upstream).await?;
        if protocol != self.protocol {
            return Err(unreachable(
                &self.to,
                "it has chosen another protocol than before",
            ));
        }
        let line = Line::over(outer, protocol, &self.tasks).await;
        line.map_err(|_| unreachable(&self.to, "the connection ended at once"))
    }
}
