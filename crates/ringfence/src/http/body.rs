//! HTTP responses, and the resources held until the last byte of one has been sent.

use crate::{mcp::service::UntilSent, time};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Response, StatusCode, Version,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::json;
use std::{
    any::Any,
    convert::Infallible,
    future::pending,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{sleep, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, task_tracker::TaskTrackerToken},
};

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
    pub(super) version: Version,
    /// Ends the connection, also with its other streams.
    pub(super) connection: CancellationToken,
    /// Expiry of the credentials, if known; a stream ends then.
    pub(super) expires_unix_ms: Option<u64>,
}

/// Larger bodies are given to the connection in such parts: it would keep all of one that its client does not read.
pub(super) const PART_BYTES_MAX: usize = 64 << 10;
/// Maximum time in which a client takes no part of a body.
const STALLED_MAX: Duration = Duration::from_secs(60);

impl Guard {
    pub(super) fn hold(self, answer: HttpResponse) -> HttpResponse {
        answer.map(|body| {
            let is_small = body
                .size_hint()
                .upper()
                .is_some_and(|bytes| bytes <= PART_BYTES_MAX as u64);
            // A stream of HTTP/2 takes nothing while its window is closed.
            let is_taken_at_once = is_small && self.version < Version::HTTP_2;
            let (body, feeding) = match is_taken_at_once || body.is_end_stream() {
                true => (body, None),
                false => self.in_parts(body),
            };
            let held = GuardedBody {
                body,
                _feeding: feeding,
                _guard: self,
            };
            held.boxed()
        })
    }

    fn in_parts(&self, body: ResponseBody) -> (ResponseBody, Option<AbortOnDropHandle<()>>) {
        let (sender, parts) = mpsc::channel(1);
        let left = body.size_hint().exact();
        let expiry = self.expires_unix_ms.map(|expires| {
            let left = Duration::from_millis(expires.saturating_sub(time::now_milliseconds()));
            left.min(STREAM_TIME_MAX)
        });
        let connection = self.connection.clone();
        let feeding = tokio::spawn(async move {
            tokio::select! {
                fed = feed(body, sender) => if fed == Fed::Stalled {
                    tracing::debug!("a client does not read its answer: its connection ends");
                    connection.cancel();
                },
                () = expired(expiry) => {}
            }
        });
        (
            Parts { parts, left }.boxed(),
            Some(AbortOnDropHandle::new(feeding)),
        )
    }
}

/// Maximum duration of a response whose credentials expire.
const STREAM_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

async fn expired(after: Option<Duration>) {
    match after {
        Some(after) => sleep(after).await,
        None => pending().await,
    }
}

#[derive(PartialEq, Eq)]
enum Fed {
    Done,
    Stalled,
}

/// Passes a body on, until its end or the client takes nothing of it for too long.
async fn feed(mut body: ResponseBody, parts: mpsc::Sender<Bytes>) -> Fed {
    while let Some(Ok(frame)) = body.frame().await {
        let mut data = frame.into_data().unwrap_or_default();
        while !data.is_empty() {
            let part = data.split_to(data.len().min(PART_BYTES_MAX));
            match timeout(STALLED_MAX, parts.send(part)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Fed::Done,
                Err(_) => return Fed::Stalled,
            }
        }
    }
    // The last part has been taken when there is room for another.
    match timeout(STALLED_MAX, parts.reserve()).await {
        Ok(_) => Fed::Done,
        Err(_) => Fed::Stalled,
    }
}

struct Parts {
    parts: mpsc::Receiver<Bytes>,
    /// Bytes to come, if known.
    left: Option<u64>,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = ready!(self.parts.poll_recv(context));
        if let (Some(left), Some(part)) = (&mut self.left, &part) {
            *left = left.saturating_sub(part.len() as u64);
        }
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

struct GuardedBody {
    body: ResponseBody,
    _feeding: Option<AbortOnDropHandle<()>>,
    _guard: Guard,
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
    use super::*;
    use http_body_util::StreamBody;
    use std::sync::Arc;
    use tokio::time::Instant;

    struct Endless;

    impl futures_core::Stream for Endless {
        type Item = Result<Frame<Bytes>, Infallible>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Pending
        }
    }

    fn guard(version: Version) -> (Guard, CancellationToken) {
        let connection = CancellationToken::new();
        let guard = Guard {
            _open: Box::new(()),
            permit: None,
            answer: None,
            until_sent: UntilSent::default(),
            version,
            connection: connection.clone(),
            expires_unix_ms: None,
        };
        (guard, connection)
    }

    #[tokio::test(start_paused = true)]
    async fn large_body_is_sent_in_parts_of_a_known_total() {
        let whole: Vec<u8> = (0..3 * PART_BYTES_MAX + 1)
            .map(|at| at.to_le_bytes()[1])
            .collect();
        let held = guard(Version::HTTP_11)
            .0
            .hold(text(StatusCode::OK, whole.clone()));
        let mut body = held.into_body();
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
        let mut sent = Vec::new();
        while let Some(frame) = body.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            assert!(part.len() <= PART_BYTES_MAX);
            sent.extend(part);
        }
        assert!(sent == whole && body.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_of_its_answer_loses_its_connection() {
        for (version, bytes, stalls) in [
            (Version::HTTP_11, PART_BYTES_MAX, false),
            (Version::HTTP_11, 3 * PART_BYTES_MAX, true),
            (Version::HTTP_2, 2, true),
        ] {
            let (guard, connection) = guard(version);
            let held = guard.hold(text(StatusCode::OK, vec![0; bytes]));
            sleep(STALLED_MAX - Duration::from_secs(1)).await;
            assert!(!connection.is_cancelled());
            sleep(Duration::from_secs(2)).await;
            assert_eq!(connection.is_cancelled(), stalls, "{version:?} {bytes}");
            drop(held);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stream_ends_when_its_credentials_expire() {
        let open = Arc::new(());
        let hold = |expires_unix_ms| {
            let guard = Guard {
                _open: Box::new(open.clone()),
                permit: None,
                answer: None,
                until_sent: UntilSent::default(),
                version: Version::HTTP_11,
                connection: CancellationToken::new(),
                expires_unix_ms,
            };
            guard.hold(Response::new(StreamBody::new(Endless).boxed()))
        };
        let begun = Instant::now();
        let soon = hold(Some(time::now_milliseconds() + 60_000));
        let past = hold(Some(0));
        assert_eq!(Arc::strong_count(&open), 3);
        assert!(past.collect().await.is_ok() && begun.elapsed() < Duration::from_secs(1));
        assert!(soon.collect().await.is_ok());
        let took = begun.elapsed().as_secs();
        assert!((59..=61).contains(&took), "{took}");
        assert_eq!(Arc::strong_count(&open), 1, "the guards were released");
        let never = timeout(2 * STREAM_TIME_MAX, hold(None).collect());
        assert!(never.await.is_err());
    }
}
