//! Plain types of a request: the caller, the submission, and the output on its way back.

use ringfence_types::{ExecuteRequest, Limits, LimitsRequest, closed_words};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tokio::{
    io::AsyncRead,
    sync::{mpsc, watch},
};

/// The caller of a request, as recorded in the audit: at most 128 printable ASCII characters. It may have caps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    origin: Origin,
    /// Caps of its programs, below those of the namespace.
    caps: Option<Limits>,
}

/// The origin of a call: a front end that calls itself `ringfence` is still not the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Engine,
    FrontEnd(String),
}

pub(crate) static ENGINE_CALLER: Caller = Caller {
    origin: Origin::Engine,
    caps: None,
};

impl Caller {
    const CHARS_MAX: usize = 128;

    /// Makes a front end's name for itself printable: other characters become `?`.
    pub fn new(text: &str) -> Self {
        let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        Self {
            origin: Origin::FrontEnd(text.chars().take(Self::CHARS_MAX).map(printable).collect()),
            caps: None,
        }
    }

    #[must_use]
    pub fn with_caps(self, caps: &LimitsRequest) -> Self {
        let caps = Some(caps.caps());
        Self { caps, ..self }
    }

    pub(crate) fn caps(&self) -> Option<&Limits> {
        self.caps.as_ref()
    }

    pub fn as_str(&self) -> &str {
        match &self.origin {
            Origin::Engine => "ringfence",
            Origin::FrontEnd(text) => text,
        }
    }
}

/// One request, with the parts that are not plain data.
pub struct Submission {
    pub request: ExecuteRequest,
    pub stdin: Stdin,
    /// True: [`crate::Execution::next_output`] returns the output as it comes. The program waits for a slow reader.
    pub live: bool,
    /// True: changes to an overlay are held until a decision, see [`crate::Execution::finish_with_changes`].
    pub holds_changes: bool,
    /// The directory into which artifacts are copied (created when absent).
    pub artifacts_to: Option<PathBuf>,
    pub caller: Caller,
}

pub enum Stdin {
    /// `request.stdin`, then end of file.
    FromRequest,
    Stream(Box<dyn AsyncRead + Send + Unpin>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
    /// Neither, but progress of the engine, such as packages being installed.
    Notice,
}

closed_words!(OutputStream: Stdout = "stdout", Stderr = "stderr", Notice = "notice");

/// Output of the program, without the request's secrets: still hostile.
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
    /// Receives output and notices as they come; none: the client does not follow them.
    pub(crate) output: Option<mpsc::Sender<OutputChunk>>,
    pub(crate) cancelled: watch::Receiver<bool>,
}

impl Client {
    /// A client that neither follows the output nor cancels.
    pub(crate) fn absent() -> Self {
        Self {
            output: None,
            cancelled: watch::channel(false).1,
        }
    }

    pub(crate) async fn cancelled(&self) {
        until_cancelled(&mut self.cancelled.clone()).await;
    }
}

/// Waits until the value is true; forever if no client that could cancel is left.
pub(crate) async fn until_cancelled(cancelled: &mut watch::Receiver<bool>) {
    if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The requester of a step within a request: named in records, and sent notices.
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
    fn front_end_named_like_the_engine_is_not_the_engine() {
        let named = Caller::new(ENGINE_CALLER.as_str());
        assert_eq!(named.as_str(), ENGINE_CALLER.as_str());
        assert_ne!(named, ENGINE_CALLER);
    }
}
