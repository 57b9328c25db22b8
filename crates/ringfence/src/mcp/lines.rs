//! Standard input and output as the protocol's transport: one message per line. A line that cannot be read is answered
//! with an error, under its request's id if that can be read: the protocol library would skip it, and the client would
//! wait. This module also notices first that the client is gone, while the library waits for open requests.

use super::{
    call_order::CallOrder,
    request_ids::{RequestIds, id_is_open, restore},
};
use rmcp::{
    ErrorData, RoleServer,
    model::RequestId,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use std::io;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty, empty},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The longest message: 64 MiB of files are 86 MiB in base64.
const MESSAGE_BYTES_MAX: usize = 96 << 20;

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
    gone: CancellationToken,
}

#[derive(Deserialize)]
struct Envelope {
    id: Option<RequestId>,
    method: Option<IgnoredAny>,
}

/// The parameters of a message that is JSON and not a request; those of any method are an object.
#[derive(Deserialize)]
struct Parameters {
    jsonrpc: String,
    params: Value,
}

impl Parameters {
    fn are_wrong(&self) -> bool {
        let meta = self.params.get("_meta");
        self.jsonrpc == "2.0" && !(self.params.is_object() && meta.is_none_or(Value::is_object))
    }
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
            gone,
        }
    }

    /// Reads a line into `line`; returns false if there are no more. Cancel-safe.
    async fn next(&mut self) -> bool {
        loop {
            let Ok(bytes) = self.reader.fill_buf().await else {
                return false;
            };
            if bytes.is_empty() {
                return false;
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

/// Reads a message, or returns an error and its request's id; errors in notifications and responses get no answer.
fn read(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Option<(ErrorData, Option<RequestId>)>> {
    serde_json::from_slice(line).map_err(|error| {
        // Skipped values need not be valid: half of a surrogate pair, or a number out of range.
        let envelope = serde_json::from_slice::<Envelope>(line);
        let id = match envelope.map(|envelope| (envelope.id, envelope.method)) {
            Ok((Some(id), Some(_))) => Some(id),
            Err(_) => None,
            Ok((None, None)) if error.is_data() => None,
            _ => return None,
        };
        let parameters = || serde_json::from_slice::<Parameters>(line);
        let error = match error.is_data() {
            true if id.is_some() && parameters().is_ok_and(|given| given.are_wrong()) => {
                ErrorData::invalid_params("`params` is not an object, or its `_meta` is not one", None)
            }
            true => ErrorData::invalid_request(format!("not a request: {error}"), None),
            false => ErrorData::parse_error(format!("not readable as JSON: {error}"), None),
        };
        Some((error, id))
    })
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for Lines<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        restore(&mut message);
        let (sending, gone) = (self.writer.send(message), self.gone.clone());
        async move { sending.await.inspect_err(|_| gone.cancel()) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.error_sent().await;
            if !self.next().await {
                self.gone.cancel();
                return None;
            }
            if std::mem::take(&mut self.is_too_long) {
                tracing::error!("a message longer than {MESSAGE_BYTES_MAX} bytes was not read");
                let what = format!("a message has at most {} MiB", MESSAGE_BYTES_MAX >> 20);
                self.send_error(ErrorData::invalid_request(what, None), None);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let text = line.trim_ascii();
            let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
            if text.is_empty() {
                continue;
            }
            match read(text) {
                Ok(mut message) => {
                    if self.ids.replace(&mut message) {
                        self.order.enqueue(&mut message);
                        return Some(message);
                    }
                    // Under its id, this would be taken for the answer to the first.
                    self.send_error(id_is_open(), None);
                }
                Err(Some((error, id))) => self.send_error(error, id),
                Err(None) => tracing::debug!("a line that is not a message was skipped"),
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.writer.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::request_ids::client_id;
    use rmcp::model::JsonRpcMessage;
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
        let answer = TxJsonRpcMessage::<RoleServer>::error(id_is_open(), Some(request.id.clone()));
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
            "nonsense {",
            r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"x","arguments":{"n":NaN}}}"#,
            "[]",
            "",
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\r",
        ];
        let input = lines.map(|line| format!("{line}\n")).concat();
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut transport = Lines::new(input.as_bytes(), ours, CancellationToken::new());
        assert_eq!(id_of(transport.receive().await.as_ref()), 5);
        assert!(transport.receive().await.is_none());
        let mut sent = Vec::new();
        while sent.iter().filter(|byte| **byte == b'\n').count() < 6 {
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
        let mut end =
            TxJsonRpcMessage::<RoleServer>::error(id_is_open(), Some(RequestId::String("1:2".into())));
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
