//! Standard input and output as the protocol's transport: messages, one to a line. Where a line cannot be read the
//! client is told so, under the number of its request if that can be seen: the protocol's library would pass it over,
//! and the client would wait. The moment the client is gone is known here first, while that library still waits for the
//! answers of requests in flight.

use super::call_order::CallOrder;
use crate::lock::lock;
use rmcp::{
    ErrorData, RoleServer,
    model::{ClientNotification, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex},
};
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
    /// A line was too long, and its end has not come.
    is_too_long: bool,
    writer: AsyncRwTransport<RoleServer, Empty, W>,
    /// What is said of the last line that could not be read. A task of its own, because it holds the writer while
    /// others wait for that, and the client may not be reading then.
    answering: Option<JoinHandle<io::Result<()>>>,
    /// Requests whose answers have not been sent. The protocol's library would drop the first of two with one id.
    open: Arc<Mutex<HashSet<RequestId>>>,
    order: CallOrder,
    /// Cancelled when the client has left.
    gone: CancellationToken,
}

/// What can be seen of a message that cannot be read.
#[derive(Deserialize)]
struct Envelope {
    id: Option<RequestId>,
    method: Option<IgnoredAny>,
}

/// Of a message that is JSON and no request: its parameters, which any method has as an object.
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
            answering: None,
            open: Arc::default(),
            order: CallOrder::default(),
            gone,
        }
    }

    /// Whether another line is whole in `line`; no: there are no more. Safe to cancel.
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

    /// Whether a message goes on to be answered: a second request with the id of an open one does not.
    fn admits(&self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        let mut open = lock(&self.open);
        if let JsonRpcMessage::Request(request) = message {
            return open.insert(request.id.clone());
        }
        if let Some(id) = cancelled(message) {
            // Its answer never comes.
            open.remove(id);
        }
        true
    }

    fn answer(&mut self, error: ErrorData, id: Option<RequestId>) {
        let error = TxJsonRpcMessage::<RoleServer>::error(error, id);
        self.answering = Some(tokio::spawn(self.writer.send(error)));
    }

    /// Waits until the last answer is written: a client that sends and does not read would fill the memory with
    /// answers. Safe to cancel.
    async fn answered(&mut self) {
        if let Some(answering) = &mut self.answering {
            // A client that is gone is noticed by others.
            drop(answering.await);
            self.answering = None;
        }
    }
}

/// The request that a message of the client cancels.
pub(crate) fn cancelled(message: &RxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(told) => match &told.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// The request that a message of the server answers.
pub(crate) fn answered(message: &TxJsonRpcMessage<RoleServer>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// A message, or an error and the id of its request; errors in notifications and responses are not answered.
fn read(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Option<(ErrorData, Option<RequestId>)>> {
    serde_json::from_slice(line).map_err(|error| {
        // Of values that are passed over it is not asked what they are: a half of a character, a number past all
        // bounds.
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
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let Some(id) = answered(&message) {
            lock(&self.open).remove(id);
        }
        let (sending, gone) = (self.writer.send(message), self.gone.clone());
        async move { sending.await.inspect_err(|_| gone.cancel()) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.answered().await;
            if !self.next().await {
                self.gone.cancel();
                return None;
            }
            if std::mem::take(&mut self.is_too_long) {
                tracing::error!("a message longer than {MESSAGE_BYTES_MAX} bytes was not read");
                let what = format!("a message has at most {} MiB", MESSAGE_BYTES_MAX >> 20);
                self.answer(ErrorData::invalid_request(what, None), None);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let text = line.trim_ascii();
            let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
            if text.is_empty() {
                continue;
            }
            match read(text) {
                Ok(mut message) if self.admits(&message) => {
                    self.order.line_up(&mut message);
                    return Some(message);
                }
                // Under its id, this would be taken for the answer to the first.
                Ok(_) => self.answer(
                    ErrorData::invalid_request("a request with this id is open", None),
                    None,
                ),
                Err(Some((error, id))) => self.answer(error, id),
                Err(None) => tracing::debug!("a line that is no message was passed over"),
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

    #[tokio::test]
    async fn whoever_sends_what_cannot_be_read_is_told_under_its_number() {
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
        let message = transport.receive().await.unwrap();
        assert_eq!(json!(message)["id"], 5);
        assert!(transport.receive().await.is_none());
        let mut told = Vec::new();
        while told.iter().filter(|byte| **byte == b'\n').count() < 6 {
            assert!(theirs.read_buf(&mut told).await.unwrap() > 0);
        }
        let told = serde_json::Deserializer::from_slice(&told).into_iter::<Value>();
        let mut told: Vec<(Value, Value)> = told
            .map(|answer| answer.unwrap())
            .map(|answer| (answer["id"].clone(), answer["error"]["code"].clone()))
            .collect();
        told.sort_by_key(|(id, code)| (id.to_string(), code.to_string()));
        let expect = [
            (json!("two"), json!(-32700)),
            (json!(1), json!(-32700)),
            (json!(3), json!(-32602)),
            (Value::Null, json!(-32600)),
            (Value::Null, json!(-32700)),
            (Value::Null, json!(-32700)),
        ];
        assert_eq!(told, expect);
    }

    #[tokio::test]
    async fn a_second_request_with_the_id_of_an_open_one_is_refused_and_the_first_is_answered() {
        let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let input = format!("{ping}{ping}{cancel}\n{ping}");
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut transport = Lines::new(input.as_bytes(), ours, CancellationToken::new());
        assert_eq!(json!(transport.receive().await.unwrap())["id"], 1);
        assert!(json!(transport.receive().await.unwrap()).get("id").is_none());
        let mut told = Vec::new();
        while !told.ends_with(b"\n") {
            assert!(theirs.read_buf(&mut told).await.unwrap() > 0);
        }
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!((told.get("id"), &told["error"]["code"]), (None, &json!(-32600)));
        // What was cancelled is no longer open.
        assert_eq!(json!(transport.receive().await.unwrap())["id"], 1);
    }

    /// Lines that cannot be read, without end.
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
    async fn whoever_does_not_read_the_answers_is_not_read_either() {
        let lines = Arc::new(AtomicUsize::new(0));
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let nonsense = Nonsense {
            lines: Arc::clone(&lines),
        };
        let mut transport = Lines::new(nonsense, ours, CancellationToken::new());
        let mut taken = Vec::new();
        for _ in 0..3 {
            // The protocol's library, too, stops waiting and comes again.
            for _ in 0..10 {
                let waiting = tokio::time::timeout(Duration::from_millis(10), transport.receive());
                assert!(waiting.await.is_err(), "none of it is a message");
            }
            let read = lines.swap(0, Ordering::Relaxed);
            assert!((1..100).contains(&read), "{read} lines were read");
            // A client that is late is answered from there on.
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
    async fn a_line_that_is_too_long_is_passed_over_to_its_end() {
        let long = tokio::io::repeat(b' ').take(MESSAGE_BYTES_MAX as u64 + 1);
        let next = b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut transport = Lines::new(long.chain(&next[..]), ours, CancellationToken::new());
        assert_eq!(json!(transport.receive().await.unwrap())["id"], 1);
        let mut told = vec![0; 1024];
        let length = theirs.read(&mut told).await.unwrap();
        let told: Value = serde_json::from_slice(&told[..length]).unwrap();
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&Value::Null, &json!(-32600))
        );
    }
    #[tokio::test]
    async fn the_end_of_the_input_means_that_the_client_is_gone() {
        let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let gone = CancellationToken::new();
        let mut transport = Lines::new(ping.as_bytes(), tokio::io::sink(), gone.clone());
        assert!(transport.receive().await.is_some());
        assert!(!gone.is_cancelled());
        assert!(transport.receive().await.is_none());
        assert!(gone.is_cancelled());
    }

    #[tokio::test]
    async fn an_output_that_nobody_reads_means_that_the_client_is_gone() {
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
