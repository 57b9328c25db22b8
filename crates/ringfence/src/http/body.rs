//! Answers, and what is held until the last byte of one has left.

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

/// What a request holds until its answer has left.
pub(super) struct Guard {
    /// Its place among those of its connection.
    pub(super) _open: Box<dyn Any + Send + Sync>,
    /// Its place among those of its principal.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// The memory of its body.
    pub(super) memory: Option<OwnedSemaphorePermit>,
    /// Its place among the answers that a server that stops waits for.
    pub(super) answer: Option<TaskTrackerToken>,
    /// When its credentials are good no longer, where that is known. Of a stream it is the end.
    pub(super) expires_unix_ms: Option<u64>,
}

impl Guard {
    pub(super) fn hold(self, answer: HttpResponse) -> HttpResponse {
        let end = self.expires_unix_ms.map(|expires| {
            let left = Duration::from_millis(expires.saturating_sub(time::now_milliseconds()));
            Box::pin(tokio::time::sleep(left.min(FAR)))
        });
        let held = |body| Held {
            body,
            end,
            _guard: self,
        };
        answer.map(|body| held(body).boxed())
    }
}

/// A client comes back before.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

struct Held {
    body: BoxBody<Bytes, Infallible>,
    end: Option<Pin<Box<Sleep>>>,
    _guard: Guard,
}

impl Body for Held {
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
    of(status, "text/plain; charset=utf-8", text.into())
}

/// A refusal outside of the protocol, with a code of the same list.
pub(super) fn refused(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let facts = json!({"error": {"code": code, "message": format!("{message}.")}});
    of(status, "application/json", facts.to_string().into())
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

pub(super) fn of(status: StatusCode, kind: &'static str, bytes: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(bytes).boxed());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
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
    async fn a_stream_ends_when_its_credentials_are_good_no_longer() {
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
        assert_eq!(Arc::strong_count(&open), 1, "its place is free");
        let never = tokio::time::timeout(2 * FAR, hold(None).collect());
        assert!(never.await.is_err());
    }
}
