//! Answers, and what is held until the last byte of one has left.

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
};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::task::task_tracker::TaskTrackerToken;

pub(super) type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// What a request holds until its answer has left.
pub(super) struct Guard {
    /// Its place among those of its connection.
    pub(super) _open: Open,
    /// Dropped after the place, whose end it looks for.
    pub(super) _resting: Box<dyn Any + Send + Sync>,
    /// Its place among those of its principal.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// The memory of its body.
    pub(super) memory: Option<OwnedSemaphorePermit>,
    /// Its place among the answers that a server that stops waits for.
    pub(super) answer: Option<TaskTrackerToken>,
}

/// The requests of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    pub(super) begun: u64,
    pub(super) open: usize,
}

/// One of the open ones.
pub(super) struct Open(watch::Sender<Requests>);

impl Open {
    pub(super) fn begin(requests: &watch::Sender<Requests>) -> Self {
        requests.send_modify(|requests| {
            requests.begun += 1;
            requests.open += 1;
        });
        Self(requests.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0
            .send_modify(|requests| requests.open = requests.open.saturating_sub(1));
    }
}

impl Guard {
    pub(super) fn hold(self, answer: HttpResponse) -> HttpResponse {
        answer.map(|body| Held { body, _guard: self }.boxed())
    }
}

struct Held {
    body: BoxBody<Bytes, Infallible>,
    _guard: Guard,
}

impl Body for Held {
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
    of(status, "text/plain; charset=utf-8", text.into())
}

/// A refusal outside of the protocol, with a code of the same list.
pub(super) fn refused(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let facts = json!({"error": {"code": code, "message": format!("{message}.")}});
    of(status, "application/json", facts.to_string().into())
}

pub(super) fn of(status: StatusCode, kind: &'static str, bytes: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(bytes).boxed());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
