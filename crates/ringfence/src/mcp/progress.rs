//! Output as it comes, in progress notifications. The program never waits for the client: what a slow client cannot
//! take in is counted and left out (the result at the end has it), so that memory stays bounded and 1 GB of output is
//! not a gigabyte of notifications.

use crate::utf8::Decoder;
use ringfence_engine::{Execution, Installation, Installed, OutputChunk, OutputStream};
use ringfence_types::{ExecutionResult, RequestError};
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use std::{future::pending, pin::Pin, time::Duration};
use tokio::time::{Instant, sleep_until};

const INTERVAL: Duration = Duration::from_millis(50);
const TEXT_BYTES_MAX: usize = 16 << 10;

pub(super) struct Reporter {
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl Reporter {
    /// Only for a caller who asked for progress.
    pub(super) fn for_call(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self {
            peer: context.peer.clone(),
            token,
        })
    }

    /// Ends when the client's pipe has taken it. A client that is gone is noticed elsewhere.
    pub(super) fn send(&self, total: u64, text: String) -> Sending {
        #[expect(clippy::cast_precision_loss, reason = "no program prints 2^52 bytes")]
        let progress = ProgressNotificationParam::new(self.token.clone(), total as f64).with_message(text);
        let peer = self.peer.clone();
        Box::pin(async move {
            if let Err(error) = peer.notify_progress(progress).await {
                tracing::debug!(%error, "progress was not delivered");
            }
        })
    }
}

pub(super) type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What has output on its way to an end.
pub(super) trait Followed {
    type End;

    /// `None` when there is no more.
    fn next(&mut self) -> impl Future<Output = Option<OutputChunk>> + Send;

    fn end(self) -> impl Future<Output = Result<Self::End, RequestError>> + Send;
}

impl Followed for Execution {
    type End = ExecutionResult;

    async fn next(&mut self) -> Option<OutputChunk> {
        self.next_output().await
    }

    async fn end(self) -> Result<ExecutionResult, RequestError> {
        self.finish().await
    }
}

impl Followed for Installation {
    type End = Installed;

    async fn next(&mut self) -> Option<OutputChunk> {
        self.next_notice().await
    }

    async fn end(self) -> Result<Installed, RequestError> {
        self.finish().await
    }
}

/// Reads output to its end, reporting it on the way, and gives back what came of it.
pub(super) async fn follow<F: Followed>(
    mut followed: F,
    reporter: Option<Reporter>,
) -> Result<F::End, RequestError> {
    let Some(reporter) = reporter else {
        return followed.end().await;
    };
    let mut pending = Pending::default();
    let mut sending: Option<Sending> = None;
    let mut next = Instant::now();
    loop {
        let due = sending.is_none() && !pending.is_empty();
        tokio::select! {
            chunk = followed.next() => match chunk {
                Some(chunk) => pending.push(&chunk),
                None => break,
            },
            () = finished(&mut sending) => sending = None,
            () = sleep_until(next), if due => {
                let (total, text) = pending.take();
                sending = Some(reporter.send(total, text));
                next = Instant::now() + INTERVAL;
            }
        }
    }
    let result = followed.end().await;
    if let Some(sending) = sending {
        sending.await;
    }
    pending.end();
    if !pending.is_empty() {
        let (total, text) = pending.take();
        reporter.send(total, text).await;
    }
    result
}

async fn finished(sending: &mut Option<Sending>) {
    match sending {
        Some(sending) => sending.await,
        None => pending().await,
    }
}

#[derive(Default)]
struct Pending {
    stdout: Decoder,
    stderr: Decoder,
    text: String,
    left_out: usize,
    total: u64,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.left_out == 0
    }

    fn push(&mut self, chunk: &OutputChunk) {
        self.total += chunk.bytes.len() as u64;
        let decoder = match chunk.stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr | OutputStream::Notice => &mut self.stderr,
        };
        let text = decoder.push(&chunk.bytes);
        self.add(&text);
    }

    /// Once something is left out, so is what follows, until the next notification: a gap has one place.
    fn add(&mut self, text: &str) {
        if self.left_out == 0 && self.text.len() + text.len() <= TEXT_BYTES_MAX {
            self.text.push_str(text);
        } else if self.left_out == 0 {
            let room = TEXT_BYTES_MAX - self.text.len();
            let cut = text.floor_char_boundary(room);
            self.text.push_str(&text[..cut]);
            self.left_out = text.len() - cut;
        } else {
            self.left_out += text.len();
        }
    }

    /// Characters that never came to their end.
    fn end(&mut self) {
        let rest = self.stdout.end() + &self.stderr.end();
        self.add(&rest);
    }

    fn take(&mut self) -> (u64, String) {
        let mut text = std::mem::take(&mut self.text);
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            text += &format!("\n[{left_out} bytes are left out here; the result has them]\n");
        }
        (self.total, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stream: OutputStream, bytes: &[u8]) -> OutputChunk {
        OutputChunk {
            stream,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn a_character_cut_between_chunks_is_whole_even_when_the_streams_mix() {
        let mut pending = Pending::default();
        let (first, second) = "é".as_bytes().split_at(1);
        pending.push(&chunk(OutputStream::Stdout, first));
        pending.push(&chunk(OutputStream::Stderr, b"x"));
        pending.push(&chunk(OutputStream::Stdout, second));
        assert_eq!(pending.take(), (3, "xé".to_owned()));
    }

    #[test]
    fn what_waits_for_a_slow_client_is_bounded_and_the_gap_is_told() {
        let mut pending = Pending::default();
        for _ in 0..1000 {
            pending.push(&chunk(OutputStream::Stdout, "é".repeat(32 << 10).as_bytes()));
            assert!(pending.text.len() <= TEXT_BYTES_MAX);
        }
        let (total, text) = pending.take();
        assert_eq!(total, 1000 << 16);
        assert!(text.len() < TEXT_BYTES_MAX + 100);
        assert!(text.contains(&format!("[{} bytes are left out", (1000 << 16) - TEXT_BYTES_MAX)));
        assert!(pending.is_empty());
    }

    #[test]
    fn an_unfinished_character_at_the_end_is_shown_as_one() {
        let mut pending = Pending::default();
        pending.push(&chunk(OutputStream::Stdout, b"a\xc3"));
        pending.end();
        assert_eq!(pending.take().1, "a\u{fffd}");
    }
}
