//! The program's streams: its input, and its output, which is redacted before any use and cut at its limit.

use crate::{
    caller::{OutputChunk, OutputStream, Stdin},
    events::{Bus, EventKind},
    sync::lock,
};
use ringfence_jail::client;
use ringfence_redact::Redactor;
use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::{
        Notify,
        mpsc::{self, OwnedPermit},
        watch,
    },
    task::JoinHandle,
};

/// Output of one stream that can be read while its program runs, in bytes.
pub(crate) const SO_FAR_BYTES_MAX: usize = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;
/// Most bytes of a driver's report; the rest is read and dropped.
pub(crate) const REPORT_BYTES_MAX: usize = 4 << 20;

pub(crate) struct Stdio {
    pub(crate) stdin: Stdin,
    pub(crate) stdin_bytes: Vec<u8>,
    pub(crate) live: Option<mpsc::Sender<OutputChunk>>,
    /// Redacts the program's output before any use.
    pub(crate) redactor: Redactor,
    /// Publishes the output as it comes.
    pub(crate) publisher: Option<OutputPublisher>,
}

impl Stdio {
    /// Returns the streams of a program without input, whose output is read when it has ended.
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
    /// For clients that read the output while the program runs.
    pub(crate) so_far: Option<Arc<SoFar>>,
}

/// A stream, redacted and then cut at its limit.
#[derive(Debug, Default)]
pub(crate) struct CapturedStream {
    pub(crate) bytes: Vec<u8>,
    /// True if output past the limit was left out.
    pub(crate) is_cut: bool,
    /// All its bytes after redaction: the number before it would reveal the length of a secret.
    pub(crate) total: u64,
    pub(crate) found: u64,
}

/// A task that is aborted when this is dropped.
pub(crate) struct Attached<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Attached<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the program's standard input. A program that does not read it is not an error.
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

    /// Waits for room at the client, so that the next read is passed on without waiting. Cancelling loses nothing.
    pub(crate) async fn make_room(&mut self) {
        if let (Some(live), None) = (&self.live, &self.room) {
            self.room = live.clone().reserve_owned().await.ok();
            if self.room.is_none() {
                self.live = None; // the client is gone
            }
        }
    }

    /// Takes the next bytes, as the program wrote them.
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

    pub(crate) fn add_discarded(&mut self, count: u64) {
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

    /// Passes redacted bytes on to all their users. A client that watches gets all: the program waits for it.
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
        if self.bus.is_output_wanted() {
            let kind = EventKind::ExecutionOutput {
                stream: stream.as_str(),
                text: String::from_utf8_lossy(bytes).into_owned(),
            };
            self.bus.publish(&self.namespace, Some(&self.execution_id), kind);
        }
    }
}

/// The reading end of one of a program's streams. Its end of file is not waited for once the sandbox has ended: a
/// program can keep the writing end open without a process, in a message that waits in a socket which is itself in
/// flight in that message (unix(7)), and the kernel may take long to collect that. Everything in the pipe at the end
/// was written before it.
pub(crate) struct StreamReader {
    pipe: pipe::Receiver,
    /// True, or closed: no process of the program exists.
    sandbox_ended: watch::Receiver<bool>,
    is_over: bool,
    chunk: Vec<u8>,
}

impl StreamReader {
    pub(crate) fn new(pipe: OwnedFd, sandbox_ended: watch::Receiver<bool>) -> io::Result<Self> {
        Ok(Self {
            pipe: pipe::Receiver::from_owned_fd(pipe)?,
            sandbox_ended,
            is_over: false,
            chunk: Vec::with_capacity(CHUNK_BYTES),
        })
    }

    /// Returns the next bytes; empty: the stream has ended.
    async fn next(&mut self) -> &[u8] {
        self.chunk.clear();
        if !self.is_over
            && let Err(error) = self.fill().await
        {
            tracing::warn!(%error, "reading a program's output");
            self.is_over = true;
            self.chunk.clear();
        }
        &self.chunk
    }

    async fn fill(&mut self) -> io::Result<()> {
        tokio::select! {
            biased; // a stuck program may write without end
            _ = self.sandbox_ended.wait_for(|ended| *ended) => self.is_over = true,
            read = self.pipe.read_buf(&mut self.chunk) => drop(read?),
        }
        match self.is_over {
            true => read_available(&self.pipe, &mut self.chunk),
            false => Ok(()),
        }
    }
}

/// Reads everything that a pipe holds now, bypassing the runtime, which may not have seen yet that it is readable.
pub(crate) fn read_available(from: &pipe::Receiver, to: &mut Vec<u8>) -> io::Result<()> {
    let bytes = client::unread(from.as_fd())?;
    let pipe = File::from(from.as_fd().try_clone_to_owned()?);
    match pipe.take(bytes).read_to_end(to) {
        // Another reader may have taken it meanwhile.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Reads a stream to its end. Keeps its beginning and counts the rest.
pub(crate) async fn collect(mut from: StreamReader, mut sink: OutputSink) -> CapturedStream {
    loop {
        match from.next().await {
            [] => return sink.finish().await,
            bytes => sink.take(bytes).await,
        }
    }
}

/// Reads a driver's report to its end, and keeps the first `keep` bytes.
pub(crate) async fn drain(mut from: StreamReader, keep: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    loop {
        match from.next().await {
            [] => return kept,
            bytes => {
                let room = keep.saturating_sub(kept.len()).min(bytes.len());
                kept.extend_from_slice(&bytes[..room]);
            }
        }
    }
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

    /// Returns the text as the result will have it, without an incomplete character at the end.
    pub(crate) fn texts(&self) -> [String; 2] {
        let kept = lock(&self.streams);
        [0, 1].map(|at| String::from_utf8_lossy(whole_characters(&kept[at])).into_owned())
    }

    /// Returns the bytes after these offsets, of the first stream that has more.
    pub(crate) fn after(&self, given: &mut [usize; 2]) -> Option<OutputChunk> {
        let kept = lock(&self.streams);
        let streams = [OutputStream::Stdout, OutputStream::Stderr];
        let (at, stream) = (0..2).zip(streams).find(|(at, _)| kept[*at].len() > given[*at])?;
        let bytes = kept[at][given[at]..].to_vec();
        given[at] = kept[at].len();
        Some(OutputChunk { stream, bytes })
    }
}

/// Returns the bytes without an incomplete character at the end.
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
    use std::{io::Write, time::Duration};
    use tokio::time::timeout;

    /// A limit, so that a stream that does not end fails the test.
    const LONG: Duration = Duration::from_secs(50);

    fn reader() -> (StreamReader, File, watch::Sender<bool>) {
        let (ends, supervisor) = client::ends().unwrap();
        let (ended, sandbox_ended) = watch::channel(false);
        let reader = StreamReader::new(ends.stdout, sandbox_ended).unwrap();
        (reader, supervisor.pipes.stdout.into(), ended)
    }

    /// claim: [PROC-11]
    #[tokio::test]
    async fn open_stream_ends_with_its_sandbox_without_loss() {
        let (reader, mut held, ended) = reader();
        let sink = OutputSink::new(OutputStream::Stdout, &Stdio::captured(Redactor::none()), u64::MAX);
        let mut collected = tokio::spawn(collect(reader, sink));
        held.write_all(b"early ").unwrap();
        let early = timeout(Duration::from_millis(100), &mut collected).await;
        assert!(early.is_err(), "the control: it has not ended");
        // Fills the pipe, without time to read it.
        held.write_all(&[b'x'; 64 << 10]).unwrap();
        ended.send_replace(true);
        let all = timeout(LONG, collected).await.unwrap().unwrap();
        assert_eq!(
            (all.bytes.len(), &all.bytes[..6]),
            (6 + (64 << 10), &b"early "[..])
        );
        drop(held);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn endless_stream_ends_with_its_sandbox() {
        let (reader, mut held, ended) = reader();
        let writer = std::thread::spawn(move || while held.write_all(&[b'x'; 4 << 10]).is_ok() {});
        let drained = tokio::spawn(drain(reader, 10));
        ended.send_replace(true);
        let kept = timeout(LONG, drained).await.unwrap().unwrap();
        assert!(kept.len() <= 10);
        writer.join().unwrap();
    }

    #[tokio::test]
    async fn stream_ends_when_its_sandbox_is_dropped() {
        let (reader, held, ended) = reader();
        drop(ended);
        assert_eq!(timeout(LONG, drain(reader, 10)).await.unwrap(), b"");
        drop(held);
    }

    #[tokio::test]
    async fn byte_count_does_not_reveal_length_of_secret() {
        let counted = async |secret: &str| {
            let stdio = Stdio::captured(Redactor::new([secret], Forms::All, Personal::Keep));
            let mut sink = OutputSink::new(OutputStream::Stdout, &stdio, 8);
            for part in ["key: ", secret, "\n"] {
                sink.take(part.as_bytes()).await;
            }
            sink.add_discarded(1);
            let kept = sink.finish().await;
            assert_eq!((kept.bytes.len(), kept.found), (8, 1));
            kept.total
        };
        assert_eq!(
            counted("hunter2-hunter2").await,
            counted(&"swordfish".repeat(9)).await
        );
    }
}
