//! The rate of HTTP/2 frames that a program sends beside its requests (priorities, windows, settings, pings, resets).
//! Each costs this process more than it costs the sandbox, so only so many per second are read.

use crate::{
    RefusalRule, connection::Connection, refusal::Refusal, token_bucket::TokenBucket, wire::write_through,
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Maximum frames at once, and per second after that. A client that receives a gigabyte a second sends fewer.
const BURST: u32 = 10_000;
const PER_SECOND: u32 = 10_000;
const PAUSE: Duration = Duration::from_millis(100);
/// Length of the client's connection preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
/// The types of frames that requests are made of: DATA, HEADERS and CONTINUATION.
const OF_REQUESTS: [u8; 3] = [0, 1, 9];

/// Counts frames in a stream of bytes, in pieces of any size.
#[derive(Debug)]
struct FrameCounter {
    /// Bytes left before the next frame header.
    left: usize,
    header: Vec<u8>,
}

impl FrameCounter {
    fn new() -> Self {
        Self {
            left: PREFACE_BYTES,
            header: Vec::with_capacity(HEADER_BYTES),
        }
    }

    /// Returns the number of frame headers completed in these bytes that are not part of a request.
    fn read(&mut self, mut bytes: &[u8]) -> u32 {
        let mut count = 0;
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [high, middle, low, kind, ..] = *self.header
                && self.header.len() == HEADER_BYTES
            {
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                count += u32::from(!OF_REQUESTS.contains(&kind));
                self.header.clear();
            }
        }
        count
    }
}

/// The sandbox's side of an HTTP/2 connection, with a limit on its frames.
pub(super) struct FrameLimiter<S> {
    stream: S,
    connection: Arc<Connection>,
    counter: FrameCounter,
    rate_limit: TokenBucket,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> FrameLimiter<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            connection,
            counter: FrameCounter::new(),
            rate_limit: TokenBucket::new(BURST, PER_SECOND),
            pause: None,
        }
    }

    fn wrote(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimiter<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        let begin = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let count = this.counter.read(&buffer.filled()[begin..]);
        let allowed = (0..count).filter(|_| this.rate_limit.allows()).count();
        if allowed < count as usize {
            let what = format!("more than {PER_SECOND} HTTP/2 frames a second that are not requests");
            let refusal = Refusal::plain(RefusalRule::Limit, what, "Send fewer of them.");
            this.connection.sandbox.refuse(&refusal);
            this.pause = Some(Box::pin(sleep(PAUSE)));
        }
        Poll::Ready(Ok(()))
    }
}

write_through!(FrameLimiter<S>);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, bytes: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, bytes, kind, 0, 0, 0, 0, 0];
        frame.resize(HEADER_BYTES + usize::from(bytes), 2);
        frame
    }

    #[test]
    fn non_request_frames_are_counted_in_reads_of_any_size() {
        let stream = [
            vec![2; PREFACE_BYTES],
            frame(4, 6), // SETTINGS
            frame(1, 40),
            frame(0, 200),
            frame(2, 5),  // PRIORITY
            frame(8, 4),  // WINDOW_UPDATE
            frame(99, 0), // an unknown type
        ]
        .concat();
        for size in [1, 2, 7, 9, 10, 64, 1000] {
            let mut counter = FrameCounter::new();
            let counts = stream.chunks(size).map(|piece| counter.read(piece));
            assert_eq!(counts.sum::<u32>(), 4, "in pieces of {size}");
        }
    }
}
