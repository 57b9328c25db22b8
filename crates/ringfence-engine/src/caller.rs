//! Plain types of a request: who asks, what is asked, and the output on its way back.

use ringfence_types::{ExecuteRequest, closed_words};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tokio::{
    io::AsyncRead,
    sync::{mpsc, watch},
};

/// Who asks, as it stands on record: at most 128 characters that can be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(Origin);

/// A front end that calls itself `ringfence` is still not the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Engine,
    FrontEnd(String),
}

/// The engine itself.
pub(crate) static OURS: Caller = Caller(Origin::Engine);

impl Caller {
    const CHARS_MAX: usize = 128;

    /// Makes a front end's word printable, whatever a stranger has put into it.
    pub fn new(text: &str) -> Self {
        let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        Self(Origin::FrontEnd(
            text.chars().take(Self::CHARS_MAX).map(printable).collect(),
        ))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Origin::Engine => "ringfence",
            Origin::FrontEnd(text) => text,
        }
    }
}

/// One request with what is not plain data.
pub struct Submission {
    pub request: ExecuteRequest,
    pub stdin: Stdin,
    /// True: [`crate::Execution::next_output`] offers the output as it comes. The program waits for a slow reader.
    pub live: bool,
    /// True: what it does to an overlay of a directory of the host is kept until somebody has decided, and comes out of
    /// [`crate::Execution::finish_with_changes`].
    pub holds_changes: bool,
    /// Copy artifacts into this directory (created when absent).
    pub artifacts_to: Option<PathBuf>,
    pub caller: Caller,
}

pub enum Stdin {
    /// `request.stdin`, then end of file.
    FromRequest,
    /// Copied as it comes.
    Stream(Box<dyn AsyncRead + Send + Unpin>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
    /// Neither, but what is told meanwhile: packages are being installed.
    Notice,
}

closed_words!(OutputStream: Stdout = "stdout", Stderr = "stderr", Notice = "notice");

/// What the program wrote, without the request's secrets: hostile all the same.
#[derive(Clone, Debug)]
pub struct OutputChunk {
    pub stream: OutputStream,
    /// At most 64 KiB.
    pub bytes: Vec<u8>,
}

impl OutputChunk {
    pub(crate) fn notice(text: &str) -> Self {
        Self {
            stream: OutputStream::Notice,
            bytes: text.as_bytes().to_vec(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    /// Receives output and notices as they come, if it listens.
    pub(crate) output: Option<mpsc::Sender<OutputChunk>>,
    pub(crate) cancelled: watch::Receiver<bool>,
}

impl Client {
    /// A client that does not wait.
    pub(crate) fn absent() -> Self {
        Self {
            output: None,
            cancelled: watch::channel(false).1,
        }
    }

    /// Waits until the request is cancelled; forever, if its client is gone.
    pub(crate) async fn cancelled(&self) {
        until_cancelled(&mut self.cancelled.clone()).await;
    }
}

/// Waits until it is true; forever, if no client is left that could cancel.
pub(crate) async fn until_cancelled(cancelled: &mut watch::Receiver<bool>) {
    if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Who asks for something on the way: named in records, and informed.
#[derive(Clone)]
pub(crate) struct Requester {
    pub(crate) caller: Caller,
    pub(crate) execution_id: Option<String>,
    pub(crate) client: Client,
}

impl Submission {
    /// A request whose output is not followed.
    #[must_use]
    pub fn new(caller: Caller, request: ExecuteRequest) -> Self {
        Self {
            request,
            stdin: Stdin::FromRequest,
            live: false,
            holds_changes: false,
            artifacts_to: None,
            caller,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_end_that_calls_itself_the_engine_is_not_the_engine() {
        let named = Caller::new(OURS.as_str());
        assert_eq!(named.as_str(), OURS.as_str());
        assert_ne!(named, OURS);
    }
}
