//! The program's streams: what it is given, and what comes out of it, redacted before anybody has it and cut at its
//! limit.

use crate::{
    caller::{OutputChunk, OutputStream, Stdin},
    events::{Bus, EventKind},
    sync::lock,
};
use ringfence_redact::Redactor;
use std::{
    io,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::{
        Notify,
        mpsc::{self, OwnedPermit},
    },
    task::JoinHandle,
};

/// Output of one stream that can be read while its program runs.
pub(crate) const SO_FAR_BYTES_MAX: usize = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;
/// The most that a program's driver may report; the rest is drained and dropped.
pub(crate) const REPORT_BYTES_MAX: u64 = 4 << 20;

/// What the caller gives to and wants from the streams.
pub(crate) struct Stdio {
    pub(crate) stdin: Stdin,
    pub(crate) stdin_bytes: Vec<u8>,
    pub(crate) live: Option<mpsc::Sender<OutputChunk>>,
    /// What is taken out of the program's output before anybody has it.
    pub(crate) redactor: Redactor,
    /// Who is told of the output as it comes.
    pub(crate) publisher: Option<OutputPublisher>,
}

impl Stdio {
    /// Of a program that is given nothing, and whose output is read when it has ended.
    pub(crate) fn captured(redactor: Redactor) -> Self {
        Self {
            stdin: Stdin::FromRequest,
            stdin_bytes: Vec::new(),
            live: None,
            redactor,
            publisher: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct OutputPublisher {
    pub(crate) bus: Bus,
    pub(crate) namespace: String,
    pub(crate) execution_id: String,
    /// For clients that ask while it runs.
    pub(crate) so_far: Option<Arc<SoFar>>,
}

/// A stream, redacted and then cut at its limit.
#[derive(Debug, Default)]
pub(crate) struct CapturedStream {
    pub(crate) bytes: Vec<u8>,
    /// Something was left out past the limit.
    pub(crate) is_cut: bool,
    /// All bytes of it, counted as redacted: what was written would tell how long a secret is.
    pub(crate) total: u64,
    /// Secrets that were taken out.
    pub(crate) found: u64,
}

/// A task that ends with its owner.
pub(crate) struct Attached<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Attached<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Gives the program its standard input. A program that does not read it is no error.
pub(crate) async fn feed(mut to: pipe::Sender, from: Stdin, bytes: Vec<u8>) {
    let fed = match from {
        Stdin::FromRequest => to.write_all(&bytes).await,
        Stdin::Stream(mut stream) => tokio::io::copy(&mut stream, &mut to).await.map(|_| ()),
    };
    if let Err(error) = fed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        tracing::debug!(%error, "standard input ended early");
    }
}

/// Where one stream of a program goes.
pub(crate) struct OutputSink {
    stream: OutputStream,
    keep: u64,
    live: Option<mpsc::Sender<OutputChunk>>,
    room: Option<OwnedPermit<OutputChunk>>,
    redaction: ringfence_redact::Stream,
    is_idle: bool,
    publisher: Option<OutputPublisher>,
    kept: CapturedStream,
    clean: Vec<u8>,
}

impl OutputSink {
    /// `keep`: bytes of it that are kept.
    pub(crate) fn new(stream: OutputStream, stdio: &Stdio, keep: u64) -> Self {
        Self {
            stream,
            keep,
            live: stdio.live.clone(),
            room: None,
            redaction: stdio.redactor.stream(),
            is_idle: stdio.redactor.is_idle(),
            publisher: stdio.publisher.clone(),
            kept: CapturedStream::default(),
            clean: Vec::new(),
        }
    }

    /// Waits until the client has room for what comes next: what is read after this is passed on without a wait, and
    /// may be stopped before without a loss.
    pub(crate) async fn make_room(&mut self) {
        if let (Some(live), None) = (&self.live, &self.room) {
            self.room = live.clone().reserve_owned().await.ok();
            if self.room.is_none() {
                self.live = None; // the client is gone
            }
        }
    }

    /// The next bytes, as the program wrote them.
    pub(crate) async fn take(&mut self, bytes: &[u8]) {
        if self.is_idle {
            return self.give(bytes).await;
        }
        let mut clean = std::mem::take(&mut self.clean);
        clean.clear();
        self.redaction.push(bytes, &mut clean);
        self.give(&clean).await;
        self.clean = clean;
    }

    /// Bytes that are gone already.
    pub(crate) fn miss(&mut self, count: u64) {
        self.kept.total += count;
        self.kept.is_cut |= count > 0;
    }

    pub(crate) async fn finish(mut self) -> CapturedStream {
        let mut clean = Vec::new();
        self.redaction.finish(&mut clean);
        self.give(&clean).await;
        let found = self.redaction.found();
        self.kept.found = found.secrets + found.personal;
        self.kept
    }

    /// Passes the redacted bytes on to all that see any. A client that watches gets all of it, and the program waits
    /// for it.
    async fn give(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.kept.total += bytes.len() as u64;
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let room = keep.saturating_sub(self.kept.bytes.len()).min(bytes.len());
        self.kept.bytes.extend_from_slice(&bytes[..room]);
        self.kept.is_cut |= room < bytes.len();
        if let Some(publisher) = &self.publisher {
            publisher.publish(self.stream, bytes);
        }
        self.make_room().await;
        if let Some(room) = self.room.take() {
            room.send(OutputChunk {
                stream: self.stream,
                bytes: bytes.to_vec(),
            });
        }
    }
}

impl OutputPublisher {
    fn publish(&self, stream: OutputStream, bytes: &[u8]) {
        if let Some(so_far) = &self.so_far {
            so_far.push(stream, bytes);
        }
        if self.bus.wants_output() {
            let kind = EventKind::ExecutionOutput {
                stream: stream.as_str(),
                text: String::from_utf8_lossy(bytes).into_owned(),
            };
            self.bus.publish(&self.namespace, Some(&self.execution_id), kind);
        }
    }
}

/// Reads a stream to its end. Keeps its beginning and counts the rest.
pub(crate) async fn collect(mut from: pipe::Receiver, mut outlet: OutputSink) -> CapturedStream {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    loop {
        chunk.clear();
        match from.read_buf(&mut chunk).await {
            Ok(0) => break,
            Ok(_) => outlet.take(&chunk).await,
            Err(error) => {
                tracing::warn!(%error, "reading a program's output");
                break;
            }
        }
    }
    outlet.finish().await
}

/// Reads what a driver reports, as much of it as is taken.
pub(crate) async fn drain(mut from: pipe::Receiver, keep: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    let read = async {
        (&mut from).take(keep).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await
    };
    if let Err(error) = read.await {
        tracing::warn!(%error, "reading a driver's report");
    }
    kept
}

#[derive(Debug, Default)]
pub(crate) struct SoFar {
    streams: Mutex<[Vec<u8>; 2]>,
    pub(crate) grown: Notify,
}

impl SoFar {
    pub(crate) fn push(&self, stream: OutputStream, bytes: &[u8]) {
        let at = match stream {
            OutputStream::Stdout => 0,
            OutputStream::Stderr => 1,
            OutputStream::Notice => return,
        };
        let kept = &mut lock(&self.streams)[at];
        let room = SO_FAR_BYTES_MAX.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        self.grown.notify_waiters();
    }

    /// As the result will have them: a character whose end has not come is not there yet.
    pub(crate) fn texts(&self) -> [String; 2] {
        let kept = lock(&self.streams);
        [0, 1].map(|at| String::from_utf8_lossy(whole_characters(&kept[at])).into_owned())
    }

    /// What comes after these offsets, of the first stream that has more.
    pub(crate) fn after(&self, given: &mut [usize; 2]) -> Option<OutputChunk> {
        let kept = lock(&self.streams);
        let streams = [OutputStream::Stdout, OutputStream::Stderr];
        let (at, stream) = (0..2).zip(streams).find(|(at, _)| kept[*at].len() > given[*at])?;
        let bytes = kept[at][given[at]..].to_vec();
        given[at] = kept[at].len();
        Some(OutputChunk { stream, bytes })
    }
}

/// Without the beginning of a character at the end.
pub(crate) fn whole_characters(bytes: &[u8]) -> &[u8] {
    let last = bytes.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    let is_cut = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
    if is_cut {
        &bytes[..bytes.len() - invalid.len()]
    } else {
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_redact::{Forms, Personal};

    #[tokio::test]
    async fn a_count_of_bytes_does_not_tell_how_long_a_secret_is() {
        let counted = async |secret: &str| {
            let stdio = Stdio::captured(Redactor::new([secret], Forms::All, Personal::Keep));
            let mut outlet = OutputSink::new(OutputStream::Stdout, &stdio, 8);
            for part in ["key: ", secret, "\n"] {
                outlet.take(part.as_bytes()).await;
            }
            outlet.miss(1);
            let kept = outlet.finish().await;
            assert_eq!((kept.bytes.len(), kept.found), (8, 1));
            kept.total
        };
        assert_eq!(
            counted("hunter2-hunter2").await,
            counted(&"swordfish".repeat(9)).await
        );
    }
}
