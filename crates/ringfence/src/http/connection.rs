//! One connection from its first byte to its last. A client that sends nothing, stops in the middle of a head or leaves
//! a connection open and unused loses it; where all places are taken, connections that have not shown a good token yet
//! and those that have no request open make room, oldest first.

use super::{HttpServer, authenticator::Peer, body::Guard};
use crate::lock::lock;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

/// From the connection to the end of the first head, with the TLS handshake.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// What is left after a connection was asked to end.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);
/// The request line and all headers.
const HEAD_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 100;
/// Of one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
const PING: Duration = Duration::from_secs(30);

pub(super) struct ConnectionSlots {
    places: Arc<Semaphore>,
    unproven: Arc<Mutex<Unproven>>,
}

#[derive(Default)]
struct Unproven {
    next: u64,
    waiting: BTreeMap<u64, CancellationToken>,
}

impl Unproven {
    fn add(&mut self, evicted: CancellationToken) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, evicted);
        self.next
    }
}

pub(super) struct Connection {
    pub(super) peer: Peer,
    number: AtomicU64,
    evicted: CancellationToken,
    is_proven: AtomicBool,
    requests: watch::Sender<Requests>,
    unproven: Arc<Mutex<Unproven>>,
    _place: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    begun: u64,
    open: usize,
}

/// One of the open ones. With the end of the last, its connection is one that makes room.
struct OpenRequest(Arc<Connection>);

impl OpenRequest {
    fn begin(connection: &Arc<Connection>) -> Self {
        connection.requests.send_modify(|requests| {
            requests.begun += 1;
            requests.open += 1;
        });
        Self(connection.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.requests.send_modify(|requests| requests.open -= 1);
        self.0.rest();
    }
}

impl Connection {
    fn rest(&self) {
        let mut unproven = lock(&self.unproven);
        if self.requests.borrow().open > 0 || !self.is_proven.swap(false, Ordering::Relaxed) {
            return;
        }
        let number = unproven.add(self.evicted.clone());
        self.number.store(number, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.unproven).waiting.remove(self.number.get_mut());
    }
}

impl ConnectionSlots {
    pub(super) fn new(max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(max)),
            unproven: Arc::default(),
        }
    }

    pub(super) async fn place(&self, peer: Peer) -> Option<Connection> {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                if let Some((_, oldest)) = lock(&self.unproven).waiting.pop_first() {
                    oldest.cancel();
                }
                self.places.clone().acquire_owned().await.ok()?
            }
        };
        let evicted = CancellationToken::new();
        let number = lock(&self.unproven).add(evicted.clone());
        Some(Connection {
            peer,
            number: number.into(),
            evicted,
            is_proven: AtomicBool::new(false),
            requests: watch::channel(Requests::default()).0,
            unproven: self.unproven.clone(),
            _place: place,
        })
    }

    /// The connection has shown that it belongs to a principal.
    pub(super) fn prove(&self, connection: &Connection) {
        if !connection.is_proven.swap(true, Ordering::Relaxed) {
            let number = connection.number.load(Ordering::Relaxed);
            lock(&self.unproven).waiting.remove(&number);
        }
    }
}

/// The TLS handshake; none: it failed, took too long, or the connection had to make room.
pub(super) async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    connection: &Connection,
) -> Option<TlsStream<TcpStream>> {
    let shaken = timeout(HEAD_PATIENCE, tls.accept(stream));
    connection.evicted.run_until_cancelled(shaken).await?.ok()?.ok()
}

/// Answers requests until the client leaves, is silent for too long, or the server stops.
pub(super) async fn converse<S>(server: Arc<HttpServer>, stream: S, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (server, connection) = (server.clone(), connection.clone());
        let guard = Guard {
            _open: Box::new(OpenRequest::begin(&connection)),
            permit: None,
            memory: None,
            answer: Some(server.answers.token()),
            expires_unix_ms: None,
        };
        // On the heap while it lasts: the library keeps room for one with every connection.
        Box::pin(async move { Ok::<_, Infallible>(server.answer(request, &connection, guard).await) })
    });
    let builder = builder(server.settings.idle);
    let mut conversation = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut silence = std::pin::pin!(silence(connection.requests.subscribe(), server.settings.idle));
    let mut last = None;
    loop {
        tokio::select! {
            done = conversation.as_mut() => {
                if let Err(error) = done {
                    tracing::debug!(%error, "a connection broke off");
                }
                break;
            }
            () = connection.evicted.cancelled() => break,
            () = sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => break,
            () = silence.as_mut(), if last.is_none() => {}
            () = server.leaving.cancelled(), if last.is_none() => {}
        }
        conversation.as_mut().graceful_shutdown();
        last = Some(Instant::now() + CLOSING_PATIENCE);
    }
}

fn builder(idle: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle.max(HEAD_PATIENCE))
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// Until no request came for too long: the first must come soon, and then none may be open for the idle time.
async fn silence(mut requests: watch::Receiver<Requests>, idle: Duration) {
    let first = requests.wait_for(|requests| requests.begun > 0);
    if timeout(HEAD_PATIENCE, first).await.is_err() {
        return;
    }
    loop {
        let Ok(begun) = requests
            .wait_for(|requests| requests.open == 0)
            .await
            .map(|now| now.begun)
        else {
            return;
        };
        let next = requests.wait_for(|requests| requests.begun > begun);
        if timeout(idle, next).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_silent_when_no_request_comes_or_none_is_open() {
        const IDLE: Duration = Duration::from_secs(60);
        let (count, requests) = watch::channel(Requests::default());
        let began = Instant::now();
        silence(requests.clone(), IDLE).await;
        assert_eq!(began.elapsed(), HEAD_PATIENCE, "nothing was ever sent");
        let begin = || {
            count.send_modify(|requests| {
                requests.begun += 1;
                requests.open += 1;
            });
        };
        let end = || count.send_modify(|requests| requests.open -= 1);
        begin();
        let waiting = tokio::spawn(silence(requests, IDLE));
        tokio::time::sleep(10 * IDLE).await;
        assert!(!waiting.is_finished(), "an answer that takes long is not silence");
        end();
        begin();
        end();
        let closed = Instant::now();
        waiting.await.unwrap();
        assert_eq!(closed.elapsed(), IDLE);
    }

    #[tokio::test]
    async fn the_oldest_connection_without_a_token_makes_room_and_a_proven_one_does_not() {
        let connections = ConnectionSlots::new(2);
        let proven = connections.place(Peer::Network).await.unwrap();
        connections.prove(&proven);
        let silent = connections.place(Peer::Network).await.unwrap();
        let evicted = silent.evicted.clone();
        let ending = tokio::spawn(async move {
            evicted.cancelled().await;
            drop(silent);
        });
        let third = connections.place(Peer::Network).await.unwrap();
        ending.await.unwrap();
        assert!(!proven.evicted.is_cancelled() && !third.evicted.is_cancelled());
    }

    #[tokio::test]
    async fn a_proven_connection_makes_room_when_it_has_no_request_open() {
        let connections = ConnectionSlots::new(1);
        let proven = Arc::new(connections.place(Peer::Network).await.unwrap());
        connections.prove(&proven);
        let request = OpenRequest::begin(&proven);
        proven.rest();
        assert!(
            lock(&connections.unproven).waiting.is_empty(),
            "a request is open"
        );
        drop(request);
        let evicted = proven.evicted.clone();
        let ending = tokio::spawn(async move {
            evicted.cancelled().await;
            drop(proven);
        });
        connections.place(Peer::Network).await.unwrap();
        ending.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_it_is_proven_leaves_nothing() {
        let connections = ConnectionSlots::new(1);
        drop(connections.place(Peer::Network).await.unwrap());
        assert!(lock(&connections.unproven).waiting.is_empty());
    }
}
