//! Standard input and output as the protocol's transport: one message per line. A line that cannot be read is answered
//! with an error, under its request's id if that can be read: the protocol library would skip it, and the client would
//! wait. This module also notices first that the client is gone, while the library waits for open requests.

use super::{
    call_order::CallOrder,
    malformed::unreadable,
    request_ids::{RequestIds, answered, cancelled, restore},
    service::UntilSent,
};
use rmcp::{
    ErrorData, RoleServer,
    model::{JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty, empty},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The longest message: 64 MiB of files are 86 MiB in base64.
const MESSAGE_BYTES_MAX: usize = 96 << 20;
/// Requests whose answers have not been written. A client that does not read would fill the memory with them.
const OPEN_MAX: usize = 512;
/// Requests that wait beyond those. Until there are as many, lines are read: a cancellation may be among them.
const WAITING_MAX: usize = 16;

pub(super) struct Lines<R, W: AsyncWrite> {
    reader: BufReader<R>,
    line: Vec<u8>,
    /// The line is too long, and is skipped to its end.
    is_too_long: bool,
    writer: AsyncRwTransport<RoleServer, Empty, W>,
    /// Sends the error for the last line that could not be read. A separate task, because it holds the writer while
    /// others wait for that, and the client may not be reading then.
    sending_error: Option<JoinHandle<io::Result<()>>>,
    ids: RequestIds,
    order: CallOrder,
    permits: Arc<Semaphore>,
    /// By the library's id, until the answer has been written.
    open: HashMap<RequestId, UntilSent>,
    waiting: VecDeque<RxJsonRpcMessage<RoleServer>>,
    gone: CancellationToken,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(super) fn new(reader: R, writer: W, gone: CancellationToken) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            is_too_long: false,
            writer: AsyncRwTransport::new_server(empty(), writer),
            sending_error: None,
            ids: RequestIds::default(),
            order: CallOrder::default(),
            permits: Arc::new(Semaphore::new(OPEN_MAX)),
            open: HashMap::new(),
            waiting: VecDeque::new(),
            gone,
        }
    }

    /// Returns the next message that may be handled now: no request while too many are open. Cancel-safe.
    async fn admitted(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.error_sent().await;
            let permits = self.permits.clone();
            tokio::select! {
                biased;
                Ok(permit) = permits.acquire_owned(), if !self.waiting.is_empty() => {
                    return self.waiting.pop_front().map(|request| self.open(request, permit));
                }
                is_more = self.next(), if self.waiting.len() < WAITING_MAX => if !is_more {
                    self.gone.cancel();
                    if self.waiting.is_empty() {
                        return None;
                    }
                    let permit = self.permits.clone().acquire_owned().await.ok()?;
                    return self.waiting.pop_front().map(|request| self.open(request, permit));
                },
            }
            let Some(message) = self.read() else { continue };
            if let Some(id) = cancelled(&message) {
                // No answer follows, and a call that has begun holds its permit to its end.
                self.open.remove(id);
                self.waiting.retain(|request| request_id(request) != Some(id));
            }
            match request_id(&message) {
                Some(_) => self.waiting.push_back(message),
                None => return Some(message),
            }
        }
    }

    fn open(
        &mut self,
        mut request: RxJsonRpcMessage<RoleServer>,
        permit: OwnedSemaphorePermit,
    ) -> RxJsonRpcMessage<RoleServer> {
        let until_sent = UntilSent::holding(permit);
        if let Some(id) = request_id(&request) {
            self.open.insert(id.clone(), until_sent.clone());
        }
        request.insert_extension(until_sent);
        request
    }

    /// Parses the line that was read. None: it is empty, or its error is on its way.
    fn read(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if std::mem::take(&mut self.is_too_long) {
            tracing::error!("a message longer than {MESSAGE_BYTES_MAX} bytes was not read");
            let what = format!("a message has at most {} MiB", MESSAGE_BYTES_MAX >> 20);
            self.send_error(ErrorData::invalid_request(what, None), None);
            return None;
        }
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        if text.is_empty() {
            return None;
        }
        match serde_json::from_slice(text) {
            Ok(mut message) => {
                if let Err(error) = self.ids.replace(&mut message) {
                    self.send_error(error, None);
                    return None;
                }
                self.order.enqueue(&mut message);
                return Some(message);
            }
            Err(error) => match unreadable(text, &error) {
                Some((error, id)) => self.send_error(error, id),
                None => tracing::debug!("a line that is not a message was skipped"),
            },
        }
        None
    }

    /// Reads a line into `line`; returns false if there are no more. Cancel-safe.
    async fn next(&mut self) -> bool {
        loop {
            let Ok(bytes) = self.reader.fill_buf().await else {
                return false;
            };
            if bytes.is_empty() {
                // The last line need not have an end.
                return self.is_too_long || !self.line.is_empty();
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            if self.line.len() + taken > MESSAGE_BYTES_MAX {
                self.is_too_long = true;
                self.line = Vec::new();
            }
            if !self.is_too_long {
                self.line.extend_from_slice(&bytes[..taken]);
            }
            self.reader.consume(taken);
            if end.is_some() {
                return true;
            }
        }
    }

    fn send_error(&mut self, error: ErrorData, id: Option<RequestId>) {
        let error = TxJsonRpcMessage::<RoleServer>::error(error, id);
        self.sending_error = Some(tokio::spawn(self.writer.send(error)));
    }

    /// Waits until the last error is written: a client that only sends would fill the memory with errors. Cancel-safe.
    async fn error_sent(&mut self) {
        if let Some(sending) = &mut self.sending_error {
            // A client that is gone is noticed elsewhere.
            drop(sending.await);
            self.sending_error = None;
        }
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for Lines<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let until_sent = answered(&message).and_then(|id| self.open.remove(id));
        restore(&mut message);
        let (sending, gone) = (self.writer.send(message), self.gone.clone());
        async move {
            let sent = sending.await;
            drop(until_sent);
            sent.inspect_err(|_| gone.cancel())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.admitted().await
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.writer.close()
    }
}

fn request_id(message: &RxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::request_ids::client_id;
    use serde_json::{Value, json};
    use std::{
        pin::Pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Poll},
        time::Duration,
    };
    use tokio::io::{AsyncReadExt, ReadBuf};

    /// Returns the client's id of a request.
    fn id_of(message: Option<&RxJsonRpcMessage<RoleServer>>) -> Value {
        let Some(JsonRpcMessage::Request(request)) = message else {
            panic!("{message:?} is no request")
        };
        let answer = TxJsonRpcMessage::<RoleServer>::error(
            ErrorData::invalid_request("x", None),
            Some(request.id.clone()),
        );
        json!(client_id(&answer))
    }

    #[tokio::test]
    async fn unreadable_request_is_answered_under_its_id() {
        let lines = [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"code":"\ud800"}}}"#,
            r#"{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"x","arguments":{"n":1e999}}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[]}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\ud800"}}"#,
            r#"{"jsonrpc":"2.0","id":4,"result":"\ud800"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":8,"params":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping","params":7}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            "nonsense {",
            r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"x","arguments":{"n":NaN}}}"#,
            "[]",
            "",
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\r",
        ];
        let long = json!({"jsonrpc": "2.0", "id": "x".repeat(2 << 10), "method": "ping"});
        let input = format!("{long}\n") + &lines.map(|line| format!("{line}\n")).concat();
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        // The last line has no end.
        let input = input.trim_end_matches('\n').as_bytes();
        let mut transport = Lines::new(input, ours, CancellationToken::new());
        assert_eq!(id_of(transport.receive().await.as_ref()), 5);
        assert!(transport.receive().await.is_none());
        let mut sent = Vec::new();
        while sent.iter().filter(|byte| **byte == b'\n').count() < 11 {
            assert!(theirs.read_buf(&mut sent).await.unwrap() > 0);
        }
        let sent = serde_json::Deserializer::from_slice(&sent).into_iter::<Value>();
        let mut sent: Vec<(Value, Value)> = sent
            .map(|answer| answer.unwrap())
            .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
            .collect();
        sent.sort_by_key(|(id, code)| (id.to_string(), code.to_string()));
        let expect = [
            (json!("two"), json!(-32700)),
            (json!(1), json!(-32700)),
            (json!(3), json!(-32602)),
            (json!(7), json!(-32600)),
            (json!(8), json!(-32600)),
            (Value::Null, json!(-32600)),
            (Value::Null, json!(-32600)),
            (Value::Null, json!(-32600)),
            (Value::Null, json!(-32600)),
            (Value::Null, json!(-32700)),
            (Value::Null, json!(-32700)),
        ];
        assert_eq!(sent, expect);
    }

    #[tokio::test]
    async fn duplicate_request_id_is_refused_and_the_first_is_answered() {
        let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let input = format!("{ping}{ping}{cancel}\n{ping}");
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut transport = Lines::new(input.as_bytes(), ours, CancellationToken::new());
        let first = transport.receive().await;
        assert_eq!(id_of(first.as_ref()), 1);
        let cancelled = json!(transport.receive().await.unwrap());
        assert_eq!(cancelled["params"]["requestId"], json!(first)["id"]);
        let mut sent = Vec::new();
        while !sent.ends_with(b"\n") {
            assert!(theirs.read_buf(&mut sent).await.unwrap() > 0);
        }
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!((sent.get("id"), &sent["error"]["code"]), (None, &json!(-32600)));
        // The id of the cancelled request is free, and the library does not take one for the other.
        let next = transport.receive().await;
        assert_eq!(id_of(next.as_ref()), 1);
        assert_ne!(json!(next)["id"], json!(first)["id"]);
        drop((first, next));
    }

    #[tokio::test]
    async fn id_of_a_subscription_is_kept_and_free_when_it_has_ended() {
        let lines = [
            r#"{"jsonrpc":"2.0","id":"1:2","method":"subscriptions/listen","params":{"notifications":{}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1:2"}}"#,
            r#"{"jsonrpc":"2.0","id":"1:2","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":"1:2","method":"ping"}"#,
        ];
        let input = lines.map(|line| format!("{line}\n")).concat();
        let (ours, _theirs) = tokio::io::duplex(1 << 16);
        let mut transport = Lines::new(input.as_bytes(), ours, CancellationToken::new());
        let listen = transport.receive().await;
        assert_eq!(json!(listen)["id"], "1:2");
        let mut end = TxJsonRpcMessage::<RoleServer>::error(
            ErrorData::invalid_request("x", None),
            Some(RequestId::String("1:2".into())),
        );
        restore(&mut end);
        assert_eq!(json!(end)["id"], "1:2");
        assert_eq!(json!(transport.receive().await)["params"]["requestId"], "1:2");
        assert_eq!(
            id_of(transport.receive().await.as_ref()),
            3,
            "the other is refused"
        );
        drop(listen);
        assert_eq!(id_of(transport.receive().await.as_ref()), "1:2");
    }

    /// Invalid lines without end.
    struct Nonsense {
        lines: Arc<AtomicUsize>,
    }

    impl AsyncRead for Nonsense {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.lines.fetch_add(1, Ordering::Relaxed);
            buffer.put_slice(b"[]\n");
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn client_that_does_not_read_is_not_read() {
        let lines = Arc::new(AtomicUsize::new(0));
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let nonsense = Nonsense {
            lines: Arc::clone(&lines),
        };
        let mut transport = Lines::new(nonsense, ours, CancellationToken::new());
        let mut taken = Vec::new();
        for _ in 0..3 {
            // The protocol library, too, stops waiting and calls again.
            for _ in 0..10 {
                let waiting = tokio::time::timeout(Duration::from_millis(10), transport.receive());
                assert!(waiting.await.is_err(), "none of it is a message");
            }
            let read = lines.swap(0, Ordering::Relaxed);
            assert!((1..100).contains(&read), "{read} lines were read");
            // A client that reads late gets the errors from there on.
            let mut some = vec![0; 1 << 10];
            theirs.read_exact(&mut some).await.unwrap();
            taken.extend(some);
        }
        assert!(taken.split(|byte| *byte == b'\n').rev().skip(1).all(|line| {
            let answer: Value = serde_json::from_slice(line).unwrap();
            answer["error"]["code"] == -32600
        }));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_wait_and_their_cancellations_are_read() {
        let ping = |id: usize| format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        let cancel = |id: usize| {
            let params = json!({"requestId": id});
            let notice = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            format!("{notice}\n")
        };
        let (all, last) = (OPEN_MAX + 1, OPEN_MAX + 2 * WAITING_MAX);
        let input = (0..=OPEN_MAX).map(ping).collect::<String>()
            + &cancel(0)
            + &cancel(OPEN_MAX)
            + &(all..last).map(ping).collect::<String>();
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut transport = Lines::new(input.as_bytes(), ours, CancellationToken::new());
        let mut open = Vec::new();
        for id in 0..OPEN_MAX {
            let request = transport.receive().await;
            assert_eq!(id_of(request.as_ref()), id);
            open.push(request);
        }
        for _ in [0, OPEN_MAX] {
            assert!(matches!(
                transport.receive().await,
                Some(JsonRpcMessage::Notification(_))
            ));
        }
        let wait = Duration::from_secs(1);
        assert!(
            tokio::time::timeout(wait, transport.receive()).await.is_err(),
            "the cancelled call has not ended"
        );
        assert_eq!(transport.waiting.len(), WAITING_MAX);
        // The first call has ended; the cancelled request that waited is never handled.
        drop(open.remove(0));
        assert_eq!(id_of(transport.receive().await.as_ref()), all);
        // A request counts until its answer has been written, which here takes a client that reads.
        let Some(Some(JsonRpcMessage::Request(second))) = open.first() else {
            panic!("a request")
        };
        let text = "x".repeat(4 << 10);
        let answer = TxJsonRpcMessage::<RoleServer>::error(
            ErrorData::invalid_request(text, None),
            Some(second.id.clone()),
        );
        let sending = tokio::spawn(transport.send(answer));
        drop(open.remove(0));
        let waiting = tokio::time::timeout(wait, transport.receive());
        assert!(waiting.await.is_err(), "its answer has not been written");
        let reading = tokio::spawn(async move {
            let mut read = vec![0; 4 << 10];
            theirs.read_exact(&mut read).await.unwrap();
            theirs
        });
        assert_eq!(id_of(transport.receive().await.as_ref()), all + 1);
        sending.await.unwrap().unwrap();
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn overlong_message_is_skipped_to_its_end() {
        let long = tokio::io::repeat(b' ').take(MESSAGE_BYTES_MAX as u64 + 1);
        let next = b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut transport = Lines::new(long.chain(&next[..]), ours, CancellationToken::new());
        assert_eq!(id_of(transport.receive().await.as_ref()), 1);
        let mut sent = vec![0; 1024];
        let length = theirs.read(&mut sent).await.unwrap();
        let sent: Value = serde_json::from_slice(&sent[..length]).unwrap();
        assert_eq!(
            (&sent["id"], &sent["error"]["code"]),
            (&Value::Null, &json!(-32600))
        );
    }
    #[tokio::test]
    async fn end_of_input_means_that_the_client_is_gone() {
        let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let gone = CancellationToken::new();
        let mut transport = Lines::new(ping.as_bytes(), tokio::io::sink(), gone.clone());
        assert!(transport.receive().await.is_some());
        assert!(!gone.is_cancelled());
        assert!(transport.receive().await.is_none());
        assert!(gone.is_cancelled());
    }

    #[tokio::test]
    async fn requests_that_wait_at_the_end_of_input_are_handled() {
        let ping = |id: usize| format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        let input: String = (0..OPEN_MAX + 3).map(ping).collect();
        let mut transport = Lines::new(input.as_bytes(), tokio::io::sink(), CancellationToken::new());
        let mut open = VecDeque::new();
        for id in 0..OPEN_MAX + 3 {
            if id >= OPEN_MAX {
                // The library stops waiting and calls again.
                let waiting = tokio::time::timeout(Duration::from_millis(10), transport.receive());
                assert!(waiting.await.is_err());
                let Some(Some(JsonRpcMessage::Request(first))) = open.pop_front() else {
                    panic!("a request")
                };
                let error = ErrorData::invalid_request("x", None);
                let answer = TxJsonRpcMessage::<RoleServer>::error(error, Some(first.id.clone()));
                drop(first);
                transport.send(answer).await.unwrap();
            }
            let request = transport.receive().await;
            assert_eq!(id_of(request.as_ref()), id);
            open.push_back(request);
        }
        assert!(transport.receive().await.is_none());
    }

    #[tokio::test]
    async fn closed_output_means_that_the_client_is_gone() {
        let gone = CancellationToken::new();
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let mut transport = Lines::new(empty(), ours, gone.clone());
        let error = || TxJsonRpcMessage::<RoleServer>::error(ErrorData::invalid_request("x", None), None);
        transport.send(error()).await.unwrap();
        assert!(!gone.is_cancelled());
        drop(theirs);
        assert!(transport.send(error()).await.is_err());
        assert!(gone.is_cancelled());
    }
}
