//! Bodies of inspected requests, without trailers, and of answers, without the secrets that were sent for them.

use crate::connection::RequestGuard;
use hyper::{
    HeaderMap,
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    header::HeaderValue,
};
use ringfence_redact::{Redactor, Stream};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// A request's body without its trailers: they arrive after everything that was checked, and could contradict it.
pub(super) struct WithoutTrailers(pub(super) Incoming);

impl Body for WithoutTrailers {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.get_mut().0).poll_frame(cx));
        Poll::Ready(frame.filter(|frame| !frame.as_ref().is_ok_and(Frame::is_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

pub(super) struct RedactedBody {
    body: Incoming,
    /// `None`: there is nothing to redact.
    stream: Option<Stream>,
    redactor: Redactor,
    trailers: Option<HeaderMap>,
    is_done: bool,
    /// Marks the request as being answered until the body is dropped.
    _request_guard: RequestGuard,
}

impl RedactedBody {
    pub(super) fn new(body: Incoming, redactor: &Redactor, request_guard: RequestGuard) -> Self {
        let stream = (!redactor.is_idle() && !body.is_end_stream()).then(|| redactor.stream());
        Self {
            is_done: body.is_end_stream(),
            stream,
            redactor: redactor.clone(),
            body,
            trailers: None,
            _request_guard: request_guard,
        }
    }

    /// True if its length may differ from that of the original body.
    pub(super) fn may_differ(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the last frames: the bytes held back, and then the trailers.
    fn finish(&mut self) -> Option<Frame<Bytes>> {
        if let Some(mut stream) = self.stream.take() {
            let mut rest = Vec::new();
            stream.finish(&mut rest);
            if !rest.is_empty() {
                return Some(Frame::data(Bytes::from(rest)));
            }
        }
        self.is_done = true;
        self.trailers.take().map(Frame::trailers)
    }
}

impl Body for RedactedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        loop {
            if this.is_done {
                return Poll::Ready(None);
            }
            if this.trailers.is_some() {
                return Poll::Ready(this.finish().map(Ok));
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    // The bytes held back may be half of a secret.
                    this.is_done = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => return Poll::Ready(this.finish().map(Ok)),
            };
            match frame.into_data() {
                Ok(data) => {
                    let Some(stream) = &mut this.stream else {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    };
                    let mut out = Vec::with_capacity(data.len());
                    stream.push(&data, &mut out);
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from(out)))));
                    }
                }
                Err(other) => {
                    if let Ok(mut trailers) = other.into_trailers() {
                        redact_headers(&mut trailers, &this.redactor);
                        this.trailers = Some(trailers);
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_done
    }

    fn size_hint(&self) -> SizeHint {
        if self.may_differ() {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}

/// Redacts secrets in headers. A value that can no longer be written is left out.
pub(super) fn redact_headers(headers: &mut HeaderMap, redactor: &Redactor) {
    if redactor.is_idle() {
        return;
    }
    let names: Vec<_> = headers.keys().cloned().collect();
    for name in names {
        let values: Vec<Vec<u8>> = headers
            .get_all(&name)
            .iter()
            .map(|value| redactor.bytes(value.as_bytes()).into_owned())
            .collect();
        headers.remove(&name);
        // A header's name can be of any length; one that contains a secret is left out.
        if redactor.bytes(name.as_str().as_bytes()) != name.as_str().as_bytes() {
            continue;
        }
        for value in values {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(&name, value);
            }
        }
    }
}
