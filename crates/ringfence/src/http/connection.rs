//! The lifetime of a connection. It is closed if its client sends nothing, stops within a head or leaves it unused; at
//! the limit, connections that are not authenticated or have no open request are evicted, oldest first.

use super::{
    HttpServer,
    authenticator::Peer,
    body::{Guard, PART_BYTES_MAX},
};
use crate::{lock::lock, mcp::service::UntilSent};
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

/// From accepting a connection to its first request, and for the TLS handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// From a graceful shutdown to the forced close of a connection.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 100;
/// Concurrent streams of one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
const PING: Duration = Duration::from_secs(30);

pub(super) struct ConnectionSlots {
    permits: Arc<Semaphore>,
    evictable: Arc<Mutex<Evictable>>,
}

/// Connections that may be closed to admit another, oldest first.
#[derive(Default)]
struct Evictable {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

impl Evictable {
    fn add(&mut self, evicted: CancellationToken) -> u64 {
        self.next += 1;
        self.connections.insert(self.next, evicted);
        self.next
    }
}

pub(super) struct Connection {
    pub(super) peer: Peer,
    number: AtomicU64,
    evicted: CancellationToken,
    /// False: the connection is evictable.
    is_protected: AtomicBool,
    requests: watch::Sender<Requests>,
    evictable: Arc<Mutex<Evictable>>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    begun: u64,
    open: usize,
}

/// An open request; when the last one of a connection ends, the connection becomes evictable.
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
        self.0.unprotect_if_unused();
    }
}

impl Connection {
    fn unprotect_if_unused(&self) {
        let mut evictable = lock(&self.evictable);
        if self.requests.borrow().open > 0 || !self.is_protected.swap(false, Ordering::Relaxed) {
            return;
        }
        let number = evictable.add(self.evicted.clone());
        self.number.store(number, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.evictable).connections.remove(self.number.get_mut());
    }
}

impl ConnectionSlots {
    pub(super) fn new(max: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(max)),
            evictable: Arc::default(),
        }
    }

    /// Admits a connection; at the limit, evicts the oldest evictable one and waits for a permit.
    pub(super) async fn acquire(&self, peer: Peer) -> Option<Connection> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if let Some((_, oldest)) = lock(&self.evictable).connections.pop_first() {
                    oldest.cancel();
                }
                self.permits.clone().acquire_owned().await.ok()?
            }
        };
        let evicted = CancellationToken::new();
        let number = lock(&self.evictable).add(evicted.clone());
        Some(Connection {
            peer,
            number: number.into(),
            evicted,
            is_protected: AtomicBool::new(false),
            requests: watch::channel(Requests::default()).0,
            evictable: self.evictable.clone(),
            _permit: permit,
        })
    }

    /// Protects an authenticated connection from eviction until its last open request ends.
    pub(super) fn protect(&self, connection: &Connection) {
        if !connection.is_protected.swap(true, Ordering::Relaxed) {
            let number = connection.number.load(Ordering::Relaxed);
            lock(&self.evictable).connections.remove(&number);
        }
    }
}

/// Performs the TLS handshake. None: it failed, took too long, or the connection was evicted.
pub(super) async fn handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    connection: &Connection,
) -> Option<TlsStream<TcpStream>> {
    let accepted = timeout(HEAD_TIMEOUT, tls.accept(stream));
    connection.evicted.run_until_cancelled(accepted).await?.ok()?.ok()
}

/// Serves requests until the client disconnects, the connection is idle for too long or evicted, or the server stops.
pub(super) async fn serve_connection<S>(server: Arc<HttpServer>, stream: S, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (server, connection) = (server.clone(), connection.clone());
        let guard = Guard {
            _open: Box::new(OpenRequest::begin(&connection)),
            permit: None,
            answer: Some(server.answers.token()),
            until_sent: UntilSent::default(),
            connection: connection.evicted.clone(),
            expires_unix_ms: None,
            uri: request.uri().clone(),
            principal: None,
        };
        // Boxed, because hyper reserves the size of one such future in every connection.
        Box::pin(async move { Ok::<_, Infallible>(server.answer(request, &connection, guard).await) })
    });
    let builder = builder(server.settings.idle);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut idle = std::pin::pin!(until_idle(connection.requests.subscribe(), server.settings.idle));
    let mut deadline = None;
    loop {
        tokio::select! {
            done = serving.as_mut() => {
                if let Err(error) = done {
                    tracing::debug!(%error, "a connection broke off");
                }
                break;
            }
            () = connection.evicted.cancelled() => break,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break,
            () = idle.as_mut(), if deadline.is_none() => {}
            () = server.leaving.cancelled(), if deadline.is_none() => {}
        }
        serving.as_mut().graceful_shutdown();
        deadline = Some(Instant::now() + CLOSING_TIMEOUT);
    }
}

pub(super) fn builder(idle: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle.max(HEAD_TIMEOUT))
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(PART_BYTES_MAX)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// Completes when no first request came within [`HEAD_TIMEOUT`], or later none was open for the idle time.
async fn until_idle(mut requests: watch::Receiver<Requests>, idle: Duration) {
    let first = requests.wait_for(|requests| requests.begun > 0);
    if timeout(HEAD_TIMEOUT, first).await.is_err() {
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
    async fn connection_is_idle_without_a_first_or_an_open_request() {
        const IDLE: Duration = Duration::from_secs(60);
        let (count, requests) = watch::channel(Requests::default());
        let began = Instant::now();
        until_idle(requests.clone(), IDLE).await;
        assert_eq!(began.elapsed(), HEAD_TIMEOUT, "nothing was ever sent");
        let begin = || {
            count.send_modify(|requests| {
                requests.begun += 1;
                requests.open += 1;
            });
        };
        let end = || count.send_modify(|requests| requests.open -= 1);
        begin();
        let waiting = tokio::spawn(until_idle(requests, IDLE));
        tokio::time::sleep(10 * IDLE).await;
        assert!(!waiting.is_finished(), "an open request is not idleness");
        end();
        begin();
        end();
        let closed = Instant::now();
        waiting.await.unwrap();
        assert_eq!(closed.elapsed(), IDLE);
    }

    #[tokio::test]
    async fn oldest_unauthenticated_connection_is_evicted_and_an_authenticated_one_is_not() {
        let connections = ConnectionSlots::new(2);
        let authenticated = connections.acquire(Peer::Network).await.unwrap();
        connections.protect(&authenticated);
        let silent = connections.acquire(Peer::Network).await.unwrap();
        let evicted = silent.evicted.clone();
        let ending = tokio::spawn(async move {
            evicted.cancelled().await;
            drop(silent);
        });
        let third = connections.acquire(Peer::Network).await.unwrap();
        ending.await.unwrap();
        assert!(!authenticated.evicted.is_cancelled() && !third.evicted.is_cancelled());
    }

    #[tokio::test]
    async fn authenticated_connection_without_an_open_request_is_evicted() {
        let connections = ConnectionSlots::new(1);
        let authenticated = Arc::new(connections.acquire(Peer::Network).await.unwrap());
        connections.protect(&authenticated);
        let request = OpenRequest::begin(&authenticated);
        authenticated.unprotect_if_unused();
        assert!(
            lock(&connections.evictable).connections.is_empty(),
            "a request is open"
        );
        drop(request);
        let evicted = authenticated.evicted.clone();
        let ending = tokio::spawn(async move {
            evicted.cancelled().await;
            drop(authenticated);
        });
        connections.acquire(Peer::Network).await.unwrap();
        ending.await.unwrap();
    }

    #[tokio::test]
    async fn closed_unauthenticated_connection_leaves_no_entry() {
        let connections = ConnectionSlots::new(1);
        drop(connections.acquire(Peer::Network).await.unwrap());
        assert!(lock(&connections.evictable).connections.is_empty());
    }
}
