//! Streams to and from an agent, each with a window: a sender waits until the receiver has read.

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

/// Queue of frames to the agent, bounded by the windows, the server's own frames and [`QUEUED_BYTES_MAX`].
#[derive(Clone)]
pub(crate) struct ToAgent {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

/// Maximum bytes queued for an agent. An agent that does not read gets no further frames.
const QUEUED_BYTES_MAX: usize = 80 << 20;

pub(crate) struct FramesToWrite {
    frames: mpsc::UnboundedReceiver<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

impl ToAgent {
    pub(crate) fn new() -> (Self, FramesToWrite) {
        let (queue, frames) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let to_write = FramesToWrite {
            frames,
            queued: queued.clone(),
        };
        (Self { queue, queued }, to_write)
    }
}

impl FramesToWrite {
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.recv().await?;
        self.queued.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }
}

/// Writes frames until the connection to the agent is closed.
pub(crate) async fn write_frames(mut input: impl AsyncWrite + Unpin, mut frames: FramesToWrite) {
    while let Some(frame) = frames.next().await {
        let written = async {
            input.write_all(&frame).await?;
            input.flush().await
        };
        if written.await.is_err() {
            return; // its end shows in its output
        }
    }
}

pub(crate) fn send_frame(to: &ToAgent, kind: Kind, stream: u32, payload: &[u8]) {
    let frame = frame::encode(kind, stream, payload);
    let length = frame.len();
    if to.queued.fetch_add(length, Ordering::Relaxed) + length > QUEUED_BYTES_MAX {
        to.queued.fetch_sub(length, Ordering::Relaxed);
        return;
    }
    // The end of an agent shows in its output.
    drop(to.queue.send(frame));
}

/// Queue of bytes from the agent to their reader.
pub(crate) struct Incoming {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that have arrived and are not read yet.
    queued: Arc<AtomicU32>,
}

/// The agent has sent more than its window allows.
#[derive(Debug)]
pub(crate) struct WindowExceeded;

impl Incoming {
    pub(crate) fn new() -> (Self, IncomingEnd) {
        let (queue, chunks) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicU32::new(0));
        let end = IncomingEnd {
            chunks,
            queued: queued.clone(),
        };
        (Self { queue, queued }, end)
    }

    pub(crate) fn take(&self, bytes: Vec<u8>) -> Result<(), WindowExceeded> {
        let count = u32::try_from(bytes.len()).map_err(|_| WindowExceeded)?;
        if count == 0 {
            return Err(WindowExceeded); // it would not count against the window
        }
        let before = self.queued.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) > WINDOW_BYTES {
            return Err(WindowExceeded);
        }
        // A reader that is gone needs no bytes.
        drop(self.queue.send(bytes));
        Ok(())
    }

    /// True if its reader is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

pub(crate) struct IncomingEnd {
    chunks: mpsc::UnboundedReceiver<Vec<u8>>,
    queued: Arc<AtomicU32>,
}

impl IncomingEnd {
    /// Writes the incoming bytes until they end. Bytes for a closed sink are dropped, and the program continues.
    pub(crate) async fn write_to(
        mut self,
        number: u32,
        mut to: impl AsyncWrite + Unpin,
        agent: ToAgent,
    ) -> io::Result<()> {
        let mut written = Ok(());
        while let Some(chunk) = self.chunks.recv().await {
            if written.is_ok() {
                written = to.write_all(&chunk).await;
            }
            let count = u32::try_from(chunk.len()).unwrap_or(0);
            self.queued.fetch_sub(count, Ordering::Relaxed);
            send_frame(&agent, Kind::Credit, number, &count.to_le_bytes());
        }
        written?;
        to.shutdown().await
    }
}

/// Window for bytes to the agent.
#[derive(Clone)]
pub(crate) struct Outgoing(Arc<Semaphore>);

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(WINDOW_BYTES as usize)))
    }

    /// Closes the window; a sender that waits for it is woken.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Handles the agent's report that it has forwarded so many bytes.
    pub(crate) fn credit(&self, bytes: u32) {
        let room = (WINDOW_BYTES as usize).saturating_sub(self.0.available_permits());
        self.0.add_permits(room.min(bytes as usize));
    }

    /// Sends the bytes of a reader until they end.
    pub(crate) async fn send_from(
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
                send_frame(&agent, Kind::Close, number, &[]);
                return Ok(());
            }
            first.forget();
            let rest = u32::try_from(count - 1).unwrap_or(0);
            if let Ok(more) = self.0.try_acquire_many(rest) {
                more.forget();
            }
            send_frame(&agent, Kind::Data, number, &chunk[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn agent_that_exceeds_its_window_is_refused() {
        let (incoming, _end) = Incoming::new();
        let chunk = || vec![0; frame::PAYLOAD_BYTES_MAX];
        for _ in 0..WINDOW_BYTES as usize / frame::PAYLOAD_BYTES_MAX {
            incoming.take(chunk()).unwrap();
        }
        assert!(incoming.take(vec![0]).is_err());
    }

    #[tokio::test]
    async fn sender_stops_at_the_agents_window() {
        let (to_agent, mut frames) = ToAgent::new();
        let outgoing = Outgoing::new();
        let endless = tokio::io::repeat(7);
        let sender = tokio::spawn(outgoing.clone().send_from(9, endless, to_agent));
        let (mut sent, window) = (0, WINDOW_BYTES as usize);
        while sent < window {
            sent += frames.next().await.unwrap().len() - frame::HEAD_BYTES;
        }
        assert_eq!(sent, window);
        tokio::task::yield_now().await;
        assert!(frames.frames.try_recv().is_err(), "it waits");
        // A credit for more than was sent counts as one for what was sent.
        outgoing.credit(u32::MAX);
        let mut more = 0;
        while more < window {
            more += frames.next().await.unwrap().len() - frame::HEAD_BYTES;
        }
        assert_eq!(more, window);
        sender.abort();
    }
}
