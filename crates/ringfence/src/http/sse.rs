//! The transport of revision 2024-11-05: a stream that a client opens with GET tells it where to POST its messages, and
//! has all that the server says. The session is as old as the stream, and ends with it. A request is answered at once,
//! and what it was let in with is held until the answer to its message is on the stream, or its call has ended.

use super::body::HttpResponse;
use crate::{
    lock::lock,
    mcp::{
        lines::{answered, cancelled},
        service::SessionEnd,
    },
};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    Response,
    body::{Bytes, Frame},
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
    http::request::Parts,
};
use ring::rand::{SystemRandom, generate};
use ringfence_store::to_hex;
use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use std::{
    any::Any,
    collections::{HashMap, hash_map::Entry},
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Interval, MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Messages that wait, in either direction.
const MESSAGES_MAX: usize = 64;
/// Requests of one session whose answers are not on its stream yet.
const OPEN_MAX: usize = 32;
/// A comment that says that the server is there.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_TEXT: &[u8] = b": here\n\n";
/// Where clients listen, and where they post.
pub(super) const SSE: &str = "/sse";
pub(super) const MESSAGES: &str = "/messages";
const SESSION: &str = "sessionId";
const ID_BYTES: usize = 16;

pub(super) struct SseSessions {
    open: Arc<Mutex<HashMap<String, SseSession>>>,
    max: usize,
}

struct SseSession {
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    places: Arc<Semaphore>,
    requests: OpenRequests,
    end: CancellationToken,
}

/// Those that an answer is expected to.
type OpenRequests = Arc<Mutex<HashMap<RequestId, Arc<OpenRequest>>>>;

/// Held by the call, and by the answer until it is on the stream.
struct OpenRequest {
    _place: OwnedSemaphorePermit,
    _held: Held,
}

/// What a request was let in with.
pub(super) type Held = Arc<dyn Any + Send + Sync>;

/// What the stream says, with what it holds until then.
struct SseEvent {
    text: Bytes,
    request: Option<Arc<OpenRequest>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SseRefused {
    Unknown,
    Malformed,
    Busy,
}

pub(super) struct SseTransport {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    events: mpsc::Sender<SseEvent>,
    requests: OpenRequests,
    /// What is no answer and waits for room among the events.
    waiting: Arc<Semaphore>,
    end: CancellationToken,
}

impl SseSessions {
    pub(super) fn new(max: usize) -> Self {
        Self {
            open: Arc::default(),
            max,
        }
    }

    /// A new session: the answer that its client reads, and what its server speaks by until `end`. None: there are too
    /// many, or no randomness.
    pub(super) fn begin(&self, end: CancellationToken) -> Option<(HttpResponse, SseTransport)> {
        let random = generate::<[u8; ID_BYTES]>(&SystemRandom::new());
        let id = to_hex(&random.ok()?.expose());
        let (message, messages) = mpsc::channel(MESSAGES_MAX);
        let (event, events) = mpsc::channel(MESSAGES_MAX);
        let mut open = lock(&self.open);
        if open.len() >= self.max {
            return None;
        }
        let requests = OpenRequests::default();
        let session = SseSession {
            messages: message,
            places: Arc::new(Semaphore::new(OPEN_MAX)),
            requests: requests.clone(),
            end: end.clone(),
        };
        open.insert(id.clone(), session);
        drop(open);
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stream = EventStream {
            first: Some(written("endpoint", &format!("{MESSAGES}?{SESSION}={id}"))),
            events,
            said: None,
            keepalive,
            _open: OpenSession {
                open: self.open.clone(),
                id,
            },
            _end: end.clone().drop_guard(),
        };
        let mut answer = Response::new(StreamBody::new(stream).boxed());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let transport = SseTransport {
            messages,
            events: event,
            requests,
            waiting: Arc::new(Semaphore::new(MESSAGES_MAX)),
            end,
        };
        Some((answer, transport))
    }

    /// A message of the session that its address names, with what is known of its request and what that was let in
    /// with.
    pub(super) fn take(&self, parts: Parts, body: &[u8], held: Held) -> Result<(), SseRefused> {
        let query = parts.uri.query().unwrap_or_default();
        let id = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(SESSION)?.strip_prefix('='));
        let mut message: ClientJsonRpcMessage =
            serde_json::from_slice(body).map_err(|_| SseRefused::Malformed)?;
        let open = lock(&self.open);
        let session = id.and_then(|id| open.get(id)).ok_or(SseRefused::Unknown)?;
        message.insert_extension(SessionEnd(session.end.clone()));
        message.insert_extension(parts);
        session.take(message, held)
    }
}

impl SseSession {
    fn take(&self, mut message: ClientJsonRpcMessage, held: Held) -> Result<(), SseRefused> {
        let ClientJsonRpcMessage::Request(request) = &message else {
            message.insert_extension(held);
            return self.hand_over(message);
        };
        let id = request.id.clone();
        let mut requests = lock(&self.requests);
        let Entry::Vacant(expected) = requests.entry(id) else {
            return Err(SseRefused::Malformed);
        };
        let place = self.places.clone().try_acquire_owned();
        let request = Arc::new(OpenRequest {
            _place: place.map_err(|_| SseRefused::Busy)?,
            _held: held,
        });
        message.insert_extension(request.clone());
        self.hand_over(message)?;
        expected.insert(request);
        Ok(())
    }

    fn hand_over(&self, message: ClientJsonRpcMessage) -> Result<(), SseRefused> {
        self.messages.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SseRefused::Busy,
            mpsc::error::TrySendError::Closed(_) => SseRefused::Unknown,
        })
    }
}

fn written(event: &str, data: &str) -> Bytes {
    format!("event: {event}\ndata: {data}\n\n").into()
}

struct OpenSession {
    open: Arc<Mutex<HashMap<String, SseSession>>>,
    id: String,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.id);
    }
}

struct EventStream {
    first: Option<Bytes>,
    events: mpsc::Receiver<SseEvent>,
    /// Of what has been said last, until the connection asks for more.
    said: Option<Arc<OpenRequest>>,
    keepalive: Interval,
    _open: OpenSession,
    _end: DropGuard,
}

impl futures_core::Stream for EventStream {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.said = None;
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Poll::Ready(event) = self.events.poll_recv(context) {
            return Poll::Ready(event.map(|event| {
                self.said = event.request;
                Ok(Frame::data(event.text))
            }));
        }
        match self.keepalive.poll_tick(context) {
            Poll::Ready(_) => Poll::Ready(Some(Ok(Frame::data(KEEPALIVE_TEXT.into())))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Transport<RoleServer> for SseTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = answered(&message).map(|id| lock(&self.requests).remove(id));
        // What is no answer waits for room among the events.
        let waiting = match &answered {
            Some(_) => Ok(None),
            None => self.waiting.clone().try_acquire_owned().map(Some),
        };
        if waiting.is_err() {
            // Its client does not read.
            self.end.cancel();
        }
        let (events, text) = (self.events.clone(), serde_json::to_string(&message));
        async move {
            let waiting = waiting.map_err(|_| io::Error::other("too many messages wait"))?;
            let request = match answered {
                // The request was cancelled: its answer is not said.
                Some(None) => return Ok(()),
                request => request.flatten(),
            };
            let text = written("message", &text.map_err(io::Error::other)?);
            let sent = events.send(SseEvent { text, request }).await;
            drop(waiting);
            sent.map_err(|_| io::Error::other("the stream has ended"))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.messages.recv().await?;
        if let Some(id) = cancelled(&message) {
            // It has no answer; the call holds its place until it has ended.
            lock(&self.requests).remove(id);
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.messages.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use serde_json::json;

    fn parts(address: &str) -> Parts {
        Request::post(address).body(()).unwrap().into_parts().0
    }

    async fn next(answer: &mut HttpResponse) -> String {
        let frame = answer.body_mut().frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_session_is_as_old_as_its_stream_and_named_by_nothing_else() {
        let sessions = SseSessions::new(1);
        let end = CancellationToken::new();
        let (mut answer, mut transport) = sessions.begin(end.clone()).unwrap();
        assert!(sessions.begin(CancellationToken::new()).is_none(), "one is all");
        let told = next(&mut answer).await;
        let address = told.strip_prefix("event: endpoint\ndata: ").unwrap().trim();
        assert!(address.starts_with("/messages?sessionId=") && address.len() == 20 + 2 * ID_BYTES);
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        let take = |address: &str, body: &str| sessions.take(parts(address), body.as_bytes(), Arc::new(()));
        assert_eq!(take(address, "{"), Err(SseRefused::Malformed));
        for other in [
            "/messages",
            "/messages?sessionId=",
            "/messages?sessionId=0",
            "/messages?x=1",
        ] {
            assert_eq!(take(other, &ping), Err(SseRefused::Unknown), "{other}");
        }
        assert_eq!(take(address, &ping), Ok(()));
        assert!(matches!(
            transport.receive().await,
            Some(ClientJsonRpcMessage::Request(_))
        ));
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        for _ in 0..MESSAGES_MAX {
            take(address, &told).unwrap();
        }
        assert_eq!(take(address, &told), Err(SseRefused::Busy));
        drop(answer);
        assert!(end.is_cancelled());
        assert_eq!(take(address, &ping), Err(SseRefused::Unknown));
        assert!(
            sessions.begin(CancellationToken::new()).is_some(),
            "its place is free"
        );
    }

    #[tokio::test]
    async fn a_session_has_so_many_open_requests_and_holds_what_they_were_let_in_with() {
        let sessions = SseSessions::new(1);
        let end = CancellationToken::new();
        let (mut answer, mut transport) = sessions.begin(end.clone()).unwrap();
        let told = next(&mut answer).await;
        let address = told.strip_prefix("event: endpoint\ndata: ").unwrap().trim();
        let held: Held = Arc::new(());
        let take = |body: &serde_json::Value| {
            sessions.take(parts(address), body.to_string().as_bytes(), held.clone())
        };
        let ping = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let mut calls = Vec::new();
        for id in 0..OPEN_MAX {
            take(&ping(id)).unwrap();
            calls.push(transport.receive().await.unwrap());
        }
        assert_eq!(take(&ping(OPEN_MAX)), Err(SseRefused::Busy));
        assert_eq!(take(&ping(0)), Err(SseRefused::Malformed), "it is open");
        assert_eq!(Arc::strong_count(&held), 1 + OPEN_MAX);
        // The call has ended, and its answer waits for a client that does not read.
        let pong = |id: i64| {
            let pong = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            serde_json::from_value::<TxJsonRpcMessage<RoleServer>>(pong).unwrap()
        };
        drop(calls.remove(0));
        transport.send(pong(0)).await.unwrap();
        assert_eq!(take(&ping(OPEN_MAX)), Err(SseRefused::Busy));
        assert!(next(&mut answer).await.contains(r#""id":0"#));
        // A connection that asks for more has what was said before.
        let more = tokio::time::timeout(Duration::from_millis(1), next(&mut answer));
        drop(more.await);
        assert_eq!(take(&ping(OPEN_MAX)), Ok(()));
        drop(transport.receive().await);
        // A cancelled one is not answered, and has its place until its call has ended.
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        take(&cancelled).unwrap();
        drop(transport.receive().await);
        transport.send(pong(1)).await.unwrap();
        assert!(transport.events.capacity() == MESSAGES_MAX, "nothing is said");
        assert_eq!(take(&ping(OPEN_MAX + 1)), Err(SseRefused::Busy));
        drop(calls.remove(0));
        assert_eq!(take(&ping(OPEN_MAX + 1)), Ok(()));
        assert_eq!(Arc::strong_count(&held), 1 + OPEN_MAX);
        drop((calls, transport, answer));
        assert_eq!(Arc::strong_count(&held), 1, "all is given back");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_loses_its_session() {
        let sessions = SseSessions::new(1);
        let end = CancellationToken::new();
        let (_answer, mut transport) = sessions.begin(end.clone()).unwrap();
        let mut wait = Vec::new();
        for _ in 0..2 * MESSAGES_MAX + 1 {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            assert!(!end.is_cancelled());
            let mut sending = Box::pin(transport.send(serde_json::from_value(told).unwrap()));
            if ready_now(&mut sending).await.is_none() {
                wait.push(sending);
            }
        }
        assert_eq!(wait.len(), MESSAGES_MAX);
        assert!(end.is_cancelled());
    }

    /// What is ready without a wait.
    async fn ready_now<F: Future + Unpin>(sending: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            done = sending => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
