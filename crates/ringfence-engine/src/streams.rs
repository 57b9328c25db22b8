//! The program's streams: what it is given, and what comes out of it, redacted before anybody has it and cut at its limit.

use crate::{
    engine::{OutputChunk, OutputStream, Stdin},
    events::{Bus, EventKind},
};
use ringfence_redact::Redactor;
use std::io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::mpsc::{self, OwnedPermit},
    task::JoinHandle,
};

const CHUNK_BYTES: usize = 64 << 10;
/// The most that a program's driver may report; the rest is drained and dropped.
pub(crate) const REPORT_BYTES_MAX: u64 = 4 << 20;

/// What the caller gives to and wants from the streams.
pub(crate) struct Wires {
    pub(crate) stdin: Stdin,
    pub(crate) stdin_bytes: Vec<u8>,
    pub(crate) live: Option<mpsc::Sender<OutputChunk>>,
    /// What is taken out of the program's output before anybody has it.
    pub(crate) redactor: Redactor,
    /// Who is told of the output as it comes.
    pub(crate) teller: Option<Teller>,
}

/// Tells the bus of one execution's output.
#[derive(Clone)]
pub(crate) struct Teller {
    pub(crate) bus: Bus,
    pub(crate) namespace: String,
    pub(crate) execution_id: String,
}

/// A stream, redacted and then cut at its limit.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// Something was left out past the limit.
    pub(crate) is_cut: bool,
    /// As the program wrote it.
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
pub(crate) struct Outlet {
    stream: OutputStream,
    keep: u64,
    live: Option<mpsc::Sender<OutputChunk>>,
    /// For the next chunk.
    room: Option<OwnedPermit<OutputChunk>>,
    redaction: ringfence_redact::Stream,
    is_idle: bool,
    teller: Option<Teller>,
    kept: Kept,
    clean: Vec<u8>,
}

impl Outlet {
    /// `keep`: so many bytes of it.
    pub(crate) fn new(stream: OutputStream, wires: &Wires, keep: u64) -> Self {
        Self {
            stream,
            keep,
            live: wires.live.clone(),
            room: None,
            redaction: wires.redactor.stream(),
            is_idle: wires.redactor.is_idle(),
            teller: wires.teller.clone(),
            kept: Kept::default(),
            clean: Vec::new(),
        }
    }

    /// Waits until whoever watches has room for what comes next: who reads after this gives it on without a wait, and may
    /// be stopped before without a loss.
    pub(crate) async fn make_room(&mut self) {
        if let (Some(live), None) = (&self.live, &self.room) {
            self.room = live.clone().reserve_owned().await.ok();
            if self.room.is_none() {
                self.live = None; // nobody watches any more
            }
        }
    }

    /// The next bytes, as the program wrote them.
    pub(crate) async fn take(&mut self, bytes: &[u8]) {
        self.kept.total += bytes.len() as u64;
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

    /// No more come.
    pub(crate) async fn finish(mut self) -> Kept {
        let mut clean = Vec::new();
        self.redaction.finish(&mut clean);
        self.give(&clean).await;
        let found = self.redaction.found();
        self.kept.found = found.secrets + found.personal;
        self.kept
    }

    /// What may be seen of the next bytes, to everybody who sees any. Whoever watches gets all of it, and the program waits
    /// for them.
    async fn give(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let room = keep.saturating_sub(self.kept.bytes.len()).min(bytes.len());
        self.kept.bytes.extend_from_slice(&bytes[..room]);
        self.kept.is_cut |= room < bytes.len();
        if let Some(teller) = &self.teller {
            teller.tell(self.stream, bytes);
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

impl Teller {
    fn tell(&self, stream: OutputStream, bytes: &[u8]) {
        if self.bus.wants_output() {
            let kind = EventKind::ExecutionOutput {
                stream: stream.as_str(),
                text: String::from_utf8_lossy(bytes).into_owned(),
            };
            self.bus.tell(&self.namespace, Some(&self.execution_id), kind);
        }
    }
}

/// Reads a stream to its end. Keeps its beginning and counts the rest.
pub(crate) async fn collect(mut from: pipe::Receiver, mut outlet: Outlet) -> Kept {
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
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let (mut kept, mut chunk) = (Vec::new(), Vec::with_capacity(CHUNK_BYTES));
    loop {
        chunk.clear();
        match from.read_buf(&mut chunk).await {
            Ok(0) => return kept,
            Ok(count) => {
                let room = keep.saturating_sub(kept.len()).min(count);
                kept.extend_from_slice(&chunk[..room]);
            }
            Err(error) => {
                tracing::warn!(%error, "reading a driver's report");
                return kept;
            }
        }
    }
}
