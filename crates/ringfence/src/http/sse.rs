//! The HTTP+SSE transport of revision 2024-11-05: a stream that a client opens with GET names the address for its
//! POSTed messages, and carries the server's. A session lasts as long as its stream. A POST is confirmed at once; its
//! permits are held until its call has ended and, unless cancelled, the response was sent on the stream.

use super::body::HttpResponse;
use crate::{
    lock::lock,
    mcp::{
        request_ids::{RequestIds, answered, cancelled, restore},
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

/// Queued messages, in either direction.
const MESSAGES_MAX: usize = 64;
/// Requests of one session whose responses have not been sent on its stream.
const OPEN_MAX: usize = 32;
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_TEXT: &[u8] = b": here\n\n";
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
    permits: Arc<Semaphore>,
    requests: OpenRequests,
    end: CancellationToken,
}

type OpenRequests = Arc<Mutex<HashMap<RequestId, Arc<OpenRequest>>>>;

/// Held by the call, and by the response until it has been sent on the stream.
struct OpenRequest {
    _permit: OwnedSemaphorePermit,
    _held: HeldPermits,
}

pub(super) type HeldPermits = Arc<dyn Any + Send + Sync>;

/// An event of the stream, with the request that it answers.
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
    ids: RequestIds,
    /// Bounds the messages other than responses that wait for room among the events.
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

    /// Returns the response with the stream, and its server's transport until `end`. None: too many, or no randomness.
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
            permits: Arc::new(Semaphore::new(OPEN_MAX)),
            requests: requests.clone(),
            end: end.clone(),
        };
        open.insert(id.clone(), session);
        drop(open);
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stream = EventStream {
            first: Some(encode_event("endpoint", &format!("{MESSAGES}?{SESSION}={id}"))),
            events,
            sent: None,
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
            ids: RequestIds::default(),
            waiting: Arc::new(Semaphore::new(MESSAGES_MAX)),
            end,
        };
        Some((answer, transport))
    }

    pub(super) fn accept(&self, parts: Parts, body: &[u8], held: HeldPermits) -> Result<(), SseRefused> {
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
        session.accept(message, held)
    }
}

impl SseSession {
    fn accept(&self, mut message: ClientJsonRpcMessage, held: HeldPermits) -> Result<(), SseRefused> {
        let ClientJsonRpcMessage::Request(request) = &message else {
            message.insert_extension(held);
            return self.enqueue(message);
        };
        let id = request.id.clone();
        let mut requests = lock(&self.requests);
        let Entry::Vacant(expected) = requests.entry(id) else {
            return Err(SseRefused::Malformed);
        };
        let permit = self.permits.clone().try_acquire_owned();
        let request = Arc::new(OpenRequest {
            _permit: permit.map_err(|_| SseRefused::Busy)?,
            _held: held,
        });
        message.insert_extension(request.clone());
        self.enqueue(message)?;
        expected.insert(request);
        Ok(())
    }

    fn enqueue(&self, message: ClientJsonRpcMessage) -> Result<(), SseRefused> {
        self.messages.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SseRefused::Busy,
            mpsc::error::TrySendError::Closed(_) => SseRefused::Unknown,
        })
    }
}

fn encode_event(event: &str, data: &str) -> Bytes {
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
    /// The request answered by the last event; released when the connection polls for the next one.
    sent: Option<Arc<OpenRequest>>,
    keepalive: Interval,
    _open: OpenSession,
    _end: DropGuard,
}

impl futures_core::Stream for EventStream {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.sent = None;
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Poll::Ready(event) = self.events.poll_recv(context) {
            return Poll::Ready(event.map(|event| {
                self.sent = event.request;
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
        mut message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        restore(&mut message);
        let answered = answered(&message).map(|id| lock(&self.requests).remove(id));
        let waiting = match &answered {
            Some(_) => Ok(None),
            None => self.waiting.clone().try_acquire_owned().map(Some),
        };
        if waiting.is_err() {
            // The client does not read.
            self.end.cancel();
        }
        let (events, text) = (self.events.clone(), serde_json::to_string(&message));
        async move {
            let waiting = waiting.map_err(|_| io::Error::other("too many messages wait"))?;
            let request = match answered {
                // The request was cancelled: no response is sent.
                Some(None) => return Ok(()),
                request => request.flatten(),
            };
            let text = encode_event("message", &text.map_err(io::Error::other)?);
            let sent = events.send(SseEvent { text, request }).await;
            drop(waiting);
            sent.map_err(|_| io::Error::other("the stream has ended"))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let mut message = self.messages.recv().await?;
            if let Some(id) = cancelled(&message) {
                // A cancelled request gets no response; its call holds the permit until it has ended.
                lock(&self.requests).remove(id);
            }
            let Err(error) = self.ids.replace(&mut message) else {
                return Some(message);
            };
            // Such as a subscription with this id that was cancelled and has not ended.
            if let ClientJsonRpcMessage::Request(request) = &message {
                lock(&self.requests).remove(&request.id);
            }
            drop(
                self.send(TxJsonRpcMessage::<RoleServer>::error(error, None))
                    .await,
            );
        }
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
    async fn session_ends_with_its_stream_and_is_found_only_by_its_id() {
        let sessions = SseSessions::new(1);
        let end = CancellationToken::new();
        let (mut answer, mut transport) = sessions.begin(end.clone()).unwrap();
        assert!(
            sessions.begin(CancellationToken::new()).is_none(),
            "the limit is 1"
        );
        let event = next(&mut answer).await;
        let address = event.strip_prefix("event: endpoint\ndata: ").unwrap().trim();
        assert!(address.starts_with("/messages?sessionId=") && address.len() == 20 + 2 * ID_BYTES);
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        let accept =
            |address: &str, body: &str| sessions.accept(parts(address), body.as_bytes(), Arc::new(()));
        assert_eq!(accept(address, "{"), Err(SseRefused::Malformed));
        for other in [
            "/messages",
            "/messages?sessionId=",
            "/messages?sessionId=0",
            "/messages?x=1",
        ] {
            assert_eq!(accept(other, &ping), Err(SseRefused::Unknown), "{other}");
        }
        assert_eq!(accept(address, &ping), Ok(()));
        assert!(matches!(
            transport.receive().await,
            Some(ClientJsonRpcMessage::Request(_))
        ));
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        for _ in 0..MESSAGES_MAX {
            accept(address, &notification).unwrap();
        }
        assert_eq!(accept(address, &notification), Err(SseRefused::Busy));
        drop(answer);
        assert!(end.is_cancelled());
        assert_eq!(accept(address, &ping), Err(SseRefused::Unknown));
        assert!(
            sessions.begin(CancellationToken::new()).is_some(),
            "the session has ended"
        );
    }

    #[tokio::test]
    async fn session_limits_open_requests_and_keeps_their_permits_until_answered() {
        let sessions = SseSessions::new(1);
        let end = CancellationToken::new();
        let (mut answer, mut transport) = sessions.begin(end.clone()).unwrap();
        let event = next(&mut answer).await;
        let address = event.strip_prefix("event: endpoint\ndata: ").unwrap().trim();
        let held: HeldPermits = Arc::new(());
        let accept = |body: &serde_json::Value| {
            sessions.accept(parts(address), body.to_string().as_bytes(), held.clone())
        };
        let ping = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let mut calls = Vec::new();
        for id in 0..OPEN_MAX {
            accept(&ping(id)).unwrap();
            calls.push(transport.receive().await.unwrap());
        }
        assert_eq!(accept(&ping(OPEN_MAX)), Err(SseRefused::Busy));
        assert_eq!(accept(&ping(0)), Err(SseRefused::Malformed), "it is open");
        assert_eq!(Arc::strong_count(&held), 1 + OPEN_MAX);
        // The call has ended, and its response waits for a client that does not read.
        let pong = |id: i64| {
            let pong = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            serde_json::from_value::<TxJsonRpcMessage<RoleServer>>(pong).unwrap()
        };
        drop(calls.remove(0));
        transport.send(pong(0)).await.unwrap();
        assert_eq!(accept(&ping(OPEN_MAX)), Err(SseRefused::Busy));
        assert!(next(&mut answer).await.contains(r#""id":0"#));
        // Polling for the next event means that the previous one has been sent.
        let more = tokio::time::timeout(Duration::from_millis(1), next(&mut answer));
        drop(more.await);
        assert_eq!(accept(&ping(OPEN_MAX)), Ok(()));
        drop(transport.receive().await);
        // A cancelled request gets no response, and keeps its permit until its call has ended.
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        accept(&cancelled).unwrap();
        drop(transport.receive().await);
        transport.send(pong(1)).await.unwrap();
        assert!(transport.events.capacity() == MESSAGES_MAX, "nothing is sent");
        assert_eq!(accept(&ping(OPEN_MAX + 1)), Err(SseRefused::Busy));
        drop(calls.remove(0));
        assert_eq!(accept(&ping(OPEN_MAX + 1)), Ok(()));
        assert_eq!(Arc::strong_count(&held), 1 + OPEN_MAX);
        drop((calls, transport, answer));
        assert_eq!(Arc::strong_count(&held), 1, "all permits are released");
    }

    #[tokio::test]
    async fn session_of_a_client_that_does_not_read_is_ended() {
        let sessions = SseSessions::new(1);
        let end = CancellationToken::new();
        let (_answer, mut transport) = sessions.begin(end.clone()).unwrap();
        let mut wait = Vec::new();
        for _ in 0..2 * MESSAGES_MAX + 1 {
            let notification = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            assert!(!end.is_cancelled());
            let mut sending = Box::pin(transport.send(serde_json::from_value(notification).unwrap()));
            if ready_now(&mut sending).await.is_none() {
                wait.push(sending);
            }
        }
        assert_eq!(wait.len(), MESSAGES_MAX);
        assert!(end.is_cancelled());
    }

    /// Returns the output if the future is ready without waiting.
    async fn ready_now<F: Future + Unpin>(sending: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            done = sending => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
