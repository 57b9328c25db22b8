//! HTTP responses, and the resources held until the last byte of one has been sent.

use crate::time;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Response, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::json;
use std::{
    any::Any,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{sync::OwnedSemaphorePermit, time::Sleep};
use tokio_util::task::task_tracker::TaskTrackerToken;

pub(super) type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

pub(super) struct Guard {
    /// Counts the request as open on its connection.
    pub(super) _open: Box<dyn Any + Send + Sync>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) memory: Option<OwnedSemaphorePermit>,
    /// Makes a stopping server wait for the response.
    pub(super) answer: Option<TaskTrackerToken>,
    /// Expiry of the credentials, if known; a stream ends then.
    pub(super) expires_unix_ms: Option<u64>,
}

impl Guard {
    pub(super) fn hold(self, answer: HttpResponse) -> HttpResponse {
        let end = self.expires_unix_ms.map(|expires| {
            let left = Duration::from_millis(expires.saturating_sub(time::now_milliseconds()));
            Box::pin(tokio::time::sleep(left.min(STREAM_TIME_MAX)))
        });
        let held = |body| GuardedBody {
            body,
            end,
            _guard: self,
        };
        answer.map(|body| held(body).boxed())
    }
}

/// Maximum duration of a response whose credentials expire.
const STREAM_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

struct GuardedBody {
    body: BoxBody<Bytes, Infallible>,
    end: Option<Pin<Box<Sleep>>>,
    _guard: Guard,
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
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

    #[tokio::test(start_paused = true)]
    async fn stream_ends_when_its_credentials_expire() {
        let open = Arc::new(());
        let hold = |expires_unix_ms| {
            let guard = Guard {
                _open: Box::new(open.clone()),
                permit: None,
                memory: None,
                answer: None,
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
        let never = tokio::time::timeout(2 * STREAM_TIME_MAX, hold(None).collect());
        assert!(never.await.is_err());
    }
}
