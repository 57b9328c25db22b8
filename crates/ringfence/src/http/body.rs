//! HTTP responses, and the resources held until the last byte of one has been sent.

use crate::{mcp::service::UntilSent, time};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Response, StatusCode, Uri,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::json;
use std::{
    any::Any,
    convert::Infallible,
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc, oneshot},
    time::{error::Elapsed, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

type ResponseBody = BoxBody<Bytes, Infallible>;
pub(super) type HttpResponse = Response<ResponseBody>;

pub(super) struct Guard {
    /// Counts the request as open on its connection.
    pub(super) _open: Box<dyn Any + Send + Sync>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// Makes a stopping server wait for the response.
    pub(super) answer: Option<TaskTrackerToken>,
    /// Also held by the call.
    pub(super) until_sent: UntilSent,
    /// Ends the connection, also with its other streams.
    pub(super) connection: CancellationToken,
    /// Expiry of the credentials, if known; a stream ends then.
    pub(super) expires_unix_ms: Option<u64>,
    /// For the log.
    pub(super) uri: Uri,
    pub(super) principal: Option<Arc<str>>,
}

/// Larger bodies are given to the connection in such parts: it would keep all of one that its client does not read.
pub(super) const PART_BYTES_MAX: usize = 64 << 10;
/// Parts of one body that the connection may hold.
const PARTS_MAX: u32 = 2;
/// Maximum time in which a client takes less than one part of a body.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// Maximum duration of a response whose credentials expire.
const STREAM_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes that hold something until the connection has written or dropped them.
struct Part<T> {
    bytes: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for Part<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + 'static> Part<T> {
    fn bytes(bytes: Bytes, held: T) -> Bytes {
        Bytes::from_owner(Self { bytes, _held: held })
    }
}

impl Guard {
    pub(super) async fn hold(self, answer: HttpResponse) -> HttpResponse {
        let (head, body) = answer.into_parts();
        let size = body.size_hint();
        let body = match size.exact() {
            Some(bytes) if bytes <= PART_BYTES_MAX as u64 => {
                let Ok(small) = body.collect().await;
                let (held, released) = oneshot::channel::<Infallible>();
                tokio::spawn(async move {
                    if timeout(STALLED_MAX, released).await.is_err() {
                        self.end_connection();
                    }
                });
                Full::new(Part::bytes(small.to_bytes(), held)).boxed()
            }
            _ => {
                let (sender, parts) = mpsc::channel(PARTS_MAX as usize);
                tokio::spawn(self.feed(body, sender));
                Parts { parts, size }.boxed()
            }
        };
        Response::from_parts(head, body)
    }

    /// Passes a body on, and waits until the connection has written all of it.
    async fn feed(self, mut body: ResponseBody, sender: mpsc::Sender<Bytes>) {
        let held = Arc::new(Semaphore::new(PARTS_MAX as usize));
        let passing = async {
            while let Some(Ok(frame)) = body.frame().await {
                for part in frame.into_data().unwrap_or_default().chunks(PART_BYTES_MAX) {
                    let permit = timeout(STALLED_MAX, held.clone().acquire_owned()).await?;
                    // A copy, since a slice would keep the whole body.
                    if sender
                        .try_send(Part::bytes(Bytes::copy_from_slice(part), permit))
                        .is_err()
                    {
                        return Ok(());
                    }
                }
            }
            Ok::<_, Elapsed>(())
        };
        let passed = tokio::select! {
            passed = passing => passed,
            () = sender.closed() => Ok(()),
            () = expired(self.expires_unix_ms) => Ok(()),
        };
        drop((sender, body));
        let written = async {
            for _ in 0..PARTS_MAX {
                timeout(STALLED_MAX, held.acquire())
                    .await?
                    .map(SemaphorePermit::forget)
                    .ok();
            }
            Ok::<_, Elapsed>(())
        };
        if passed.is_err() || written.await.is_err() {
            self.end_connection();
        }
    }

    /// Ends the connection of a client that does not read.
    fn end_connection(&self) {
        let (principal, path) = (self.principal.as_deref(), self.uri.path());
        tracing::info!(
            principal,
            path,
            "a client does not read its answer: its connection ends"
        );
        self.connection.cancel();
    }
}

async fn expired(expires_unix_ms: Option<u64>) {
    match expires_unix_ms {
        Some(expires) => {
            let left = Duration::from_millis(expires.saturating_sub(time::now_milliseconds()));
            sleep(left.min(STREAM_TIME_MAX)).await;
        }
        None => pending().await,
    }
}

struct Parts {
    parts: mpsc::Receiver<Bytes>,
    /// Of the whole body.
    size: SizeHint,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.poll_recv(context);
        part.map(|part| part.map(|part| Ok(Frame::data(part))))
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> HttpResponse {
    response(status, "text/plain; charset=utf-8", text.into())
}

/// An error response outside the MCP protocol, with an error code of the same list.
pub(super) fn refused(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let facts = json!({"error": {"code": code, "message": format!("{message}.")}});
    response(status, "application/json", facts.to_string().into())
}

pub(super) fn busy(message: &str) -> HttpResponse {
    refused(StatusCode::TOO_MANY_REQUESTS, "busy", message)
}

pub(super) fn invalid(message: &str) -> HttpResponse {
    refused(StatusCode::BAD_REQUEST, "invalid_argument", message)
}

pub(super) fn not_found(message: &str) -> HttpResponse {
    refused(StatusCode::NOT_FOUND, "not_found", message)
}

pub(super) fn response(status: StatusCode, content_type: &'static str, bytes: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(bytes).boxed());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::{super::connection::builder, *};
    use http_body_util::{Empty, StreamBody};
    use hyper::{Request, Version, body::Incoming, client, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::sync::Mutex;
    use tokio::time::Instant;

    struct Endless;

    impl futures_core::Stream for Endless {
        type Item = Result<Frame<Bytes>, Infallible>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Pending
        }
    }

    fn guard(open: &Arc<()>) -> Guard {
        Guard {
            _open: Box::new(open.clone()),
            permit: None,
            answer: None,
            until_sent: UntilSent::default(),
            connection: CancellationToken::new(),
            expires_unix_ms: None,
            uri: Uri::default(),
            principal: None,
        }
    }

    #[tokio::test]
    async fn large_body_is_sent_in_parts_of_a_known_total() {
        let whole: Vec<u8> = (0..3 * PART_BYTES_MAX + 1)
            .map(|at| at.to_le_bytes()[1])
            .collect();
        let answer = text(StatusCode::OK, whole.clone());
        let mut body = guard(&Arc::default()).hold(answer).await.into_body();
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        let mut sent = Vec::new();
        while let Some(frame) = body.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            assert!(part.len() <= PART_BYTES_MAX);
            sent.extend(part);
        }
        assert!(sent == whole);
    }

    /// Serves one answer to a client of `hyper` that does not read the body.
    async fn serve(guard: Guard, bytes: usize, version: Version) -> Response<Incoming> {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let guard = Mutex::new(Some(guard));
        let service = service_fn(move |_| {
            let guard = guard.lock().unwrap().take().unwrap();
            async move { Ok::<_, Infallible>(guard.hold(text(StatusCode::OK, vec![0; bytes])).await) }
        });
        let server = builder(STREAM_TIME_MAX);
        tokio::spawn(async move {
            server
                .serve_connection(TokioIo::new(ours), service)
                .await
                .unwrap()
        });
        let (io, request) = (TokioIo::new(theirs), Request::new(Empty::<Bytes>::new()));
        if version == Version::HTTP_2 {
            let mut client = client::conn::http2::Builder::new(TokioExecutor::new());
            let (mut sender, connection) = client.initial_stream_window_size(1).handshake(io).await.unwrap();
            tokio::spawn(connection);
            return sender.send_request(request).await.unwrap();
        }
        let (mut sender, connection) = client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_of_its_answer_loses_its_connection() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for bytes in [PART_BYTES_MAX, PART_BYTES_MAX + 1, 5 * PART_BYTES_MAX] {
                let open = Arc::default();
                let guard = guard(&open);
                let connection = guard.connection.clone();
                let unread = serve(guard, bytes, version).await;
                sleep(STALLED_MAX - Duration::from_secs(1)).await;
                assert!(!connection.is_cancelled(), "{version:?} {bytes}");
                assert_eq!(Arc::strong_count(&open), 2, "{version:?} {bytes}");
                sleep(Duration::from_secs(2)).await;
                assert!(connection.is_cancelled(), "{version:?} {bytes}");
                drop(unread);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guard_is_released_when_a_client_has_read_its_answer() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for bytes in [2, 5 * PART_BYTES_MAX] {
                let open = Arc::default();
                let guard = guard(&open);
                let connection = guard.connection.clone();
                let read = serve(guard, bytes, version).await.collect().await.unwrap();
                assert_eq!(read.to_bytes().len(), bytes);
                sleep(STALLED_MAX - Duration::from_secs(1)).await;
                assert_eq!(Arc::strong_count(&open), 1, "{version:?} {bytes}");
                assert!(!connection.is_cancelled());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stream_ends_when_its_credentials_expire() {
        let open = Arc::default();
        let hold = async |expires_unix_ms| {
            let guard = Guard {
                expires_unix_ms,
                ..guard(&open)
            };
            let endless = StreamBody::new(Endless).boxed();
            guard.hold(Response::new(endless)).await
        };
        let begun = Instant::now();
        let soon = hold(Some(time::now_milliseconds() + 60_000)).await;
        let past = hold(Some(0)).await;
        assert_eq!(Arc::strong_count(&open), 3);
        assert!(past.collect().await.is_ok() && begun.elapsed() < Duration::from_secs(1));
        assert!(soon.collect().await.is_ok());
        let took = begun.elapsed().as_secs();
        assert!((59..=61).contains(&took), "{took}");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&open), 1, "the guards were released");
        let never = timeout(2 * STREAM_TIME_MAX, hold(None).await.collect());
        assert!(never.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_passed_before_the_credentials_expired_is_held_until_it_is_written() {
        let open = Arc::default();
        let mut guard = guard(&open);
        guard.expires_unix_ms = Some(time::now_milliseconds() + 1000);
        let connection = guard.connection.clone();
        let (sender, mut parts) = mpsc::channel(PARTS_MAX as usize);
        let whole = Full::new(Bytes::from(vec![0; 5 * PART_BYTES_MAX])).boxed();
        tokio::spawn(guard.feed(whole, sender));
        let part = parts.recv().await;
        sleep(STALLED_MAX / 2).await;
        assert_eq!(Arc::strong_count(&open), 2);
        sleep(STALLED_MAX).await;
        assert!(connection.is_cancelled() && part.is_some());
    }
}
