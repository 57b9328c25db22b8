//! The Chrome DevTools Protocol over a pair of pipes: JSON messages, each ended by a zero byte. One caller, one call
//! at a time; what the browser says in between is kept as events, up to a limit.

use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::VecDeque, io};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// The longest message: a screenshot, in base64.
const MESSAGE_BYTES_MAX: u64 = 20 << 20;
/// All that one browser says.
const TOTAL_BYTES_MAX: usize = 128 << 20;
/// The longest event that is looked at.
const EVENT_BYTES_MAX: usize = 256 << 10;
/// Events that wait to be looked at, and their bytes; what a page says beyond that is not heard.
const EVENTS_MAX: usize = 2000;
const EVENTS_BYTES_MAX: usize = 16 << 20;

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum CdpError {
    /// The browser is gone, or speaks nonsense.
    Gone(io::Error),
    /// It refuses, and says why.
    Refused(String),
}

impl From<io::Error> for CdpError {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

/// What is read of every message; the rest only of those that are wanted.
#[derive(Deserialize)]
struct Head {
    id: Option<u64>,
    method: Option<String>,
}

/// A message that has arrived whole.
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
    /// The page that calls are about.
    pub(crate) session: Option<String>,
    events: VecDeque<CdpEvent>,
    events_bytes: usize,
    total_bytes: usize,
    /// The events that are kept.
    heard: &'static [&'static str],
    /// What has arrived of a message; a read that is given up loses nothing.
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
        heard: &'static [&'static str],
    ) -> Self {
        Self {
            from: BufReader::new(Box::new(from)),
            to: Box::new(to),
            next: 1,
            session: None,
            events: VecDeque::new(),
            events_bytes: 0,
            total_bytes: 0,
            heard,
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

    /// Calls a method whose result is not needed.
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

    /// The next event, waiting for it. It may be given up at any time.
    pub(crate) async fn event(&mut self) -> Result<CdpEvent, CdpError> {
        loop {
            if let Some(event) = self.said() {
                return Ok(event);
            }
            let message = self.message().await?;
            self.keep(message).await?;
        }
    }

    /// The next event that has arrived already.
    pub(crate) fn said(&mut self) -> Option<CdpEvent> {
        let event = self.events.pop_front()?;
        self.events_bytes -= event.bytes;
        Some(event)
    }

    /// Keeps an event that is heard, and closes a dialogue, which would stop the page.
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
        if has_room && bytes <= EVENT_BYTES_MAX && self.heard.contains(&method.as_str()) {
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
                return Err(io::Error::other("it says too much").into());
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
    async fn answers_find_their_calls_and_events_wait() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (from, to) = tokio::io::split(ours);
        let mut cdp = Cdp::new(from, to, &["a.b"]);
        cdp.session = Some("s".to_owned());
        let browser = tokio::spawn(async move {
            let (from, mut to) = tokio::io::split(theirs);
            let mut from = BufReader::new(from);
            let mut asked = Vec::new();
            from.read_until(0, &mut asked).await.unwrap();
            let asked: Value = serde_json::from_slice(&asked[..asked.len() - 1]).unwrap();
            assert_eq!(asked["sessionId"], "s");
            let said = format!(
                "{{\"method\":\"a.b\",\"params\":{{\"x\":1}}}}\0{{\"id\":99}}\0{{\"id\":{},\"result\":{{\"y\":2}}}}\0",
                asked["id"]
            );
            for byte in said.bytes() {
                to.write_all(&[byte]).await.unwrap();
            }
            let mut asked = Vec::new();
            from.read_until(0, &mut asked).await.unwrap();
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
