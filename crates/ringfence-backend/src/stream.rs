//! Streams to and from an agent, each with its window: what is not read here is not sent there.

use crate::frame::{self, Kind, WINDOW_BYTES};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Semaphore, mpsc},
};

const CHUNK_BYTES: usize = 32 << 10;

/// Frames on their way to the agent. What is in it is bounded by the windows and by what the server itself says.
#[derive(Clone)]
pub(crate) struct ToAgent {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// Bytes that wait for an agent. One that does not read them gets no more.
const WAITING_BYTES_MAX: usize = 80 << 20;

/// The other end of [`ToAgent`].
pub(crate) struct FramesToWrite {
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

impl ToAgent {
    pub(crate) fn new() -> (Self, FramesToWrite) {
        let (queue, frames) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let to_write = FramesToWrite {
            frames,
            waiting: waiting.clone(),
        };
        (Self { queue, waiting }, to_write)
    }
}

impl FramesToWrite {
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.recv().await?;
        self.waiting.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }
}

/// Until the agent, or whatever speaks to it, is gone.
pub(crate) async fn write_frames(mut input: impl AsyncWrite + Unpin, mut frames: FramesToWrite) {
    while let Some(frame) = frames.next().await {
        let written = async {
            input.write_all(&frame).await?;
            input.flush().await
        };
        if written.await.is_err() {
            return; // its end is told by its output
        }
    }
}

pub(crate) fn tell(to: &ToAgent, kind: Kind, stream: u32, payload: &[u8]) {
    let frame = frame::encode(kind, stream, payload);
    let length = frame.len();
    if to.waiting.fetch_add(length, Ordering::Relaxed) + length > WAITING_BYTES_MAX {
        to.waiting.fetch_sub(length, Ordering::Relaxed);
        return;
    }
    // An agent that is gone is told by its end.
    drop(to.queue.send(frame));
}

/// Bytes from the agent on their way to where they are read.
pub(crate) struct Incoming {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that have come and were not read yet.
    waiting: Arc<AtomicU32>,
}

/// The agent has sent more than there was room for.
#[derive(Debug)]
pub(crate) struct PastWindow;

impl Incoming {
    pub(crate) fn new() -> (Self, IncomingEnd) {
        let (queue, chunks) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicU32::new(0));
        let end = IncomingEnd {
            chunks,
            waiting: waiting.clone(),
        };
        (Self { queue, waiting }, end)
    }

    pub(crate) fn take(&self, bytes: Vec<u8>) -> Result<(), PastWindow> {
        let count = u32::try_from(bytes.len()).map_err(|_| PastWindow)?;
        if count == 0 {
            return Err(PastWindow); // it would cost no window
        }
        let before = self.waiting.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) > WINDOW_BYTES {
            return Err(PastWindow);
        }
        // A reader that is gone reads no more.
        drop(self.queue.send(bytes));
        Ok(())
    }

    /// Whether what it is poured into is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

pub(crate) struct IncomingEnd {
    chunks: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicU32>,
}

impl IncomingEnd {
    /// Writes what comes until it ends; what a closed sink does not take is dropped, and the program goes on.
    pub(crate) async fn pour(
        mut self,
        number: u32,
        mut to: impl AsyncWrite + Unpin,
        agent: ToAgent,
    ) -> io::Result<()> {
        let mut poured = Ok(());
        while let Some(chunk) = self.chunks.recv().await {
            if poured.is_ok() {
                poured = to.write_all(&chunk).await;
            }
            let count = u32::try_from(chunk.len()).unwrap_or(0);
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            tell(&agent, Kind::Credit, number, &count.to_le_bytes());
        }
        poured?;
        to.shutdown().await
    }
}

/// Room for bytes to the agent.
#[derive(Clone)]
pub(crate) struct Outgoing(Arc<Semaphore>);

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(WINDOW_BYTES as usize)))
    }

    /// Nothing more goes there; what waits for room is woken.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The agent has passed on so many bytes, it says.
    pub(crate) fn credit(&self, bytes: u32) {
        let room = (WINDOW_BYTES as usize).saturating_sub(self.0.available_permits());
        self.0.add_permits(room.min(bytes as usize));
    }

    /// Sends what is read until it ends.
    pub(crate) async fn fill(
        self,
        number: u32,
        mut from: impl AsyncRead + Unpin,
        agent: ToAgent,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let first = self.0.acquire().await.map_err(io::Error::other)?;
            let room = (1 + self.0.available_permits()).min(CHUNK_BYTES);
            let count = from.read(&mut chunk[..room]).await?;
            if count == 0 {
                tell(&agent, Kind::Close, number, &[]);
                return Ok(());
            }
            first.forget();
            let rest = u32::try_from(count - 1).unwrap_or(0);
            if let Ok(more) = self.0.try_acquire_many(rest) {
                more.forget();
            }
            tell(&agent, Kind::Data, number, &chunk[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_that_sends_past_its_window_is_noticed() {
        let (incoming, _end) = Incoming::new();
        let chunk = || vec![0; frame::PAYLOAD_BYTES_MAX];
        for _ in 0..WINDOW_BYTES as usize / frame::PAYLOAD_BYTES_MAX {
            incoming.take(chunk()).unwrap();
        }
        assert!(incoming.take(vec![0]).is_err());
    }

    #[tokio::test]
    async fn no_more_is_sent_than_the_agent_has_room_for() {
        let (to_agent, mut frames) = ToAgent::new();
        let outgoing = Outgoing::new();
        let endless = tokio::io::repeat(7);
        let filled = tokio::spawn(outgoing.clone().fill(9, endless, to_agent));
        let (mut sent, window) = (0, WINDOW_BYTES as usize);
        while sent < window {
            sent += frames.next().await.unwrap().len() - frame::HEAD_BYTES;
        }
        assert_eq!(sent, window);
        tokio::task::yield_now().await;
        assert!(frames.frames.try_recv().is_err(), "it waits");
        // A credit for more than was sent is worth no more than what was.
        outgoing.credit(u32::MAX);
        let mut more = 0;
        while more < window {
            more += frames.next().await.unwrap().len() - frame::HEAD_BYTES;
        }
        assert_eq!(more, window);
        filled.abort();
    }
}
