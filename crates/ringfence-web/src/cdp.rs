//! The Chrome DevTools Protocol over a pair of pipes: JSON messages, each ended by a zero byte. One caller makes one
//! call at a time; events that the browser sends in between are kept, up to a limit.

use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::VecDeque, io};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// Maximum bytes of a message; the longest is a screenshot in base64.
const MESSAGE_BYTES_MAX: u64 = 20 << 20;
/// Maximum bytes that a browser may send in total.
const TOTAL_BYTES_MAX: usize = 128 << 20;
/// Maximum bytes of an event; longer ones are dropped.
const EVENT_BYTES_MAX: usize = 256 << 10;
/// Maximum of buffered events and of their bytes; events beyond that are dropped.
const EVENTS_MAX: usize = 2000;
const EVENTS_BYTES_MAX: usize = 16 << 20;

/// The reason why a call has no result.
#[derive(Debug)]
pub(crate) enum CdpError {
    /// The browser has ended, or broke the protocol.
    Gone(io::Error),
    /// The browser answered with this error.
    Refused(String),
}

impl From<io::Error> for CdpError {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// The part that is parsed of every message; the rest is parsed only where it is needed.
#[derive(Deserialize)]
struct Head {
    id: Option<u64>,
    method: Option<String>,
}

struct Message {
    head: Head,
    bytes: Vec<u8>,
}

const DIALOGUE: &str = "Page.javascriptDialogOpening";

/// A browser, or one of its pages.
pub(crate) struct Cdp {
    from: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    to: Box<dyn AsyncWrite + Send + Unpin>,
    next: u64,
    /// Session of the page that calls refer to. `None`: the browser.
    pub(crate) session: Option<String>,
    events: VecDeque<CdpEvent>,
    events_bytes: usize,
    total_bytes: usize,
    kept_events: &'static [&'static str],
    /// Beginning of the next message; a cancelled read loses nothing.
    partial: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct CdpEvent {
    pub(crate) method: String,
    pub(crate) params: Value,
    bytes: usize,
}

impl Cdp {
    pub(crate) fn new(
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        kept_events: &'static [&'static str],
    ) -> Self {
        Self {
            from: BufReader::new(Box::new(from)),
            to: Box::new(to),
            next: 1,
            session: None,
            events: VecDeque::new(),
            events_bytes: 0,
            total_bytes: 0,
            kept_events,
            partial: Vec::new(),
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, CdpError> {
        let id = self.send(method, params).await?;
        loop {
            let message = self.message().await?;
            if message.head.id != Some(id) {
                self.keep(message).await?;
                continue;
            }
            let mut answer: Value = serde_json::from_slice(&message.bytes).map_err(io::Error::other)?;
            if let Some(error) = answer.get("error") {
                let why = error["message"].as_str().unwrap_or("no reason given");
                let (why, _) = crate::fence::clean(why);
                return Err(CdpError::Refused(why.chars().take(300).collect()));
            }
            return Ok(answer["result"].take());
        }
    }

    /// Sends a call without waiting for its result. Returns its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> Result<u64, CdpError> {
        let id = self.next;
        self.next += 1;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await?;
        self.to.flush().await?;
        Ok(id)
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn event(&mut self) -> Result<CdpEvent, CdpError> {
        loop {
            if let Some(event) = self.buffered_event() {
                return Ok(event);
            }
            let message = self.message().await?;
            self.keep(message).await?;
        }
    }

    pub(crate) fn buffered_event(&mut self) -> Option<CdpEvent> {
        let event = self.events.pop_front()?;
        self.events_bytes -= event.bytes;
        Some(event)
    }

    /// Buffers an event of a kept method, and closes a JavaScript dialogue, which would stop the page.
    async fn keep(&mut self, message: Message) -> Result<(), CdpError> {
        let Some(method) = message.head.method else {
            return Ok(());
        };
        if method == DIALOGUE {
            self.send("Page.handleJavaScriptDialog", json!({"accept": false}))
                .await?;
        }
        let bytes = message.bytes.len();
        let has_room = self.events.len() < EVENTS_MAX && self.events_bytes + bytes <= EVENTS_BYTES_MAX;
        if has_room && bytes <= EVENT_BYTES_MAX && self.kept_events.contains(&method.as_str()) {
            let mut event: Value = serde_json::from_slice(&message.bytes).map_err(io::Error::other)?;
            let params = event["params"].take();
            self.events_bytes += bytes;
            self.events.push_back(CdpEvent {
                method,
                params,
                bytes,
            });
        }
        Ok(())
    }

    async fn message(&mut self) -> Result<Message, CdpError> {
        while self.partial.last() != Some(&0) {
            let left = (MESSAGE_BYTES_MAX + 1).saturating_sub(self.partial.len() as u64);
            let before = self.partial.len();
            let read = (&mut self.from).take(left).read_until(0, &mut self.partial).await;
            self.total_bytes += self.partial.len() - before;
            if self.total_bytes > TOTAL_BYTES_MAX || left == 0 {
                return Err(io::Error::other("it sent too much").into());
            }
            if read? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.pop();
        let head = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        Ok(Message { head, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_match_their_calls_and_events_are_queued() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (from, to) = tokio::io::split(ours);
        let mut cdp = Cdp::new(from, to, &["a.b"]);
        cdp.session = Some("s".to_owned());
        let browser = tokio::spawn(async move {
            let (from, mut to) = tokio::io::split(theirs);
            let mut from = BufReader::new(from);
            let mut request = Vec::new();
            from.read_until(0, &mut request).await.unwrap();
            let request: Value = serde_json::from_slice(&request[..request.len() - 1]).unwrap();
            assert_eq!(request["sessionId"], "s");
            let messages = format!(
                "{{\"method\":\"a.b\",\"params\":{{\"x\":1}}}}\0{{\"id\":99}}\0{{\"id\":{},\"result\":{{\"y\":2}}}}\0",
                request["id"]
            );
            for byte in messages.bytes() {
                to.write_all(&[byte]).await.unwrap();
            }
            let mut request = Vec::new();
            from.read_until(0, &mut request).await.unwrap();
            to.write_all(b"{\"id\":2,\"error\":{\"message\":\"no\"}}\0")
                .await
                .unwrap();
        });
        assert_eq!(cdp.call("x", json!({})).await.unwrap()["y"], 2);
        assert!(matches!(cdp.call("y", json!({})).await, Err(CdpError::Refused(why)) if why == "no"));
        let event = cdp.event().await.unwrap();
        assert_eq!(
            (event.method.as_str(), event.params["x"].as_u64()),
            ("a.b", Some(1))
        );
        browser.await.unwrap();
        assert!(matches!(cdp.event().await, Err(CdpError::Gone(_))));
    }
}
