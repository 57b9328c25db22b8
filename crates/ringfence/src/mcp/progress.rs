//! Progress notifications: output as it comes, and a heartbeat while none comes, since clients give up on silent calls.
//! The program never waits for the client: output that a slow client cannot take is counted and left out (the result at
//! the end has it), so that memory stays bounded and 1 GB of output is not a gigabyte of notifications.

use crate::utf8::Decoder;
use ringfence_engine::{EngineTask, OutputChunk, OutputStream};
use ringfence_types::RequestError;
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use std::{
    future::pending,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

const INTERVAL: Duration = Duration::from_millis(50);
const TEXT_BYTES_MAX: usize = 16 << 10;
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(super) struct Reporter {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    clock: Arc<Clock>,
}

/// Progress values are seconds since the call began. The protocol requires each value to be above the one before.
struct Clock {
    begun: Instant,
    last_ms: AtomicU64,
    /// Held while a value is sent, so that values are sent in order.
    turn: Mutex<()>,
}

impl Clock {
    fn next_ms(&self) -> u64 {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = now.max(self.last_ms.load(Ordering::Relaxed) + 1);
        self.last_ms.store(next, Ordering::Relaxed);
        next
    }

    fn due(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + HEARTBEAT
    }
}

impl Reporter {
    pub(super) fn for_call(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self {
            peer: context.peer.clone(),
            token,
            clock: Arc::new(Clock {
                begun: Instant::now(),
                last_ms: AtomicU64::new(0),
                turn: Mutex::new(()),
            }),
        })
    }

    /// Sends a notification. Completes when the client's pipe has taken it; a client that is gone is noticed elsewhere.
    pub(super) fn send(&self, text: String) -> Sending {
        let reporter = self.clone();
        Box::pin(async move {
            let _turn = reporter.clock.turn.lock().await;
            #[expect(clippy::cast_precision_loss, reason = "no call takes 2^52 milliseconds")]
            let seconds = reporter.clock.next_ms() as f64 / 1000.0;
            let progress = ProgressNotificationParam::new(reporter.token, seconds).with_message(text);
            if let Err(error) = reporter.peer.notify_progress(progress).await {
                tracing::debug!(%error, "progress was not delivered");
            }
        })
    }

    /// Does the work, and sends a heartbeat whenever nothing else was sent for a while.
    pub(super) async fn with_heartbeat<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut sending: Option<Sending> = None;
        loop {
            let due = self.clock.due();
            tokio::select! {
                done = &mut work => {
                    // Nothing is sent after the answer.
                    if let Some(sending) = sending {
                        sending.await;
                    }
                    return done;
                }
                () = finished(&mut sending) => sending = None,
                () = sleep_until(due), if sending.is_none() => if due == self.clock.due() {
                    let text = format!("{} s, nothing new\n", self.clock.begun.elapsed().as_secs());
                    sending = Some(self.send(text));
                }
            }
        }
    }
}

pub(super) type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads a task's output to its end, reporting it on the way, and returns the task's result; or that of `leave`, if it
/// completes first. Nothing is reported afterwards.
pub(super) async fn follow<T, L>(
    mut task: EngineTask<T>,
    reporter: Option<&Reporter>,
    leave: impl Future<Output = L>,
) -> Result<Result<T, RequestError>, L> {
    let mut leave = pin!(leave);
    let Some(reporter) = reporter else {
        return end(task, leave).await;
    };
    let mut pending = Pending::default();
    let mut sending: Option<Sending> = None;
    let mut next = Instant::now();
    let left = loop {
        let due = sending.is_none() && !pending.is_empty();
        tokio::select! {
            chunk = task.next_output() => match chunk {
                Some(chunk) => pending.push(&chunk),
                None => break None,
            },
            left = &mut leave => break Some(left),
            () = finished(&mut sending) => sending = None,
            () = sleep_until(next), if due => {
                sending = Some(reporter.send(pending.take()));
                next = Instant::now() + INTERVAL;
            }
        }
    };
    let end = match left {
        Some(left) => {
            // Dropped before waiting for the client: the program waits for the reader of its output.
            drop(task);
            Err(left)
        }
        None => end(task, leave).await,
    };
    if let Some(sending) = sending {
        sending.await;
    }
    pending.end();
    if !pending.is_empty() {
        reporter.send(pending.take()).await;
    }
    end
}

async fn end<T, L>(
    task: EngineTask<T>,
    leave: impl Future<Output = L>,
) -> Result<Result<T, RequestError>, L> {
    tokio::select! {
        biased;
        end = task.finish() => Ok(end),
        left = leave => Err(left),
    }
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
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.left_out == 0
    }

    fn push(&mut self, chunk: &OutputChunk) {
        let decoder = match chunk.stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr | OutputStream::Notice => &mut self.stderr,
        };
        let text = decoder.push(&chunk.bytes);
        self.add(&text);
    }

    /// Once something is left out, everything after it is, until the next notification: each has one gap at most.
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

    fn end(&mut self) {
        let rest = self.stdout.end() + &self.stderr.end();
        self.add(&rest);
    }

    fn take(&mut self) -> String {
        let mut text = std::mem::take(&mut self.text);
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            text += &format!("\n[{left_out} bytes are left out here; the result has them]\n");
        }
        text
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
    fn character_cut_between_chunks_is_whole_if_streams_mix() {
        let mut pending = Pending::default();
        let (first, second) = "é".as_bytes().split_at(1);
        pending.push(&chunk(OutputStream::Stdout, first));
        pending.push(&chunk(OutputStream::Stderr, b"x"));
        pending.push(&chunk(OutputStream::Stdout, second));
        assert_eq!(pending.take(), "xé");
    }

    #[test]
    fn backlog_of_a_slow_client_is_bounded_and_its_gap_is_reported() {
        let mut pending = Pending::default();
        for _ in 0..1000 {
            pending.push(&chunk(OutputStream::Stdout, "é".repeat(32 << 10).as_bytes()));
            assert!(pending.text.len() <= TEXT_BYTES_MAX);
        }
        let text = pending.take();
        assert!(text.len() < TEXT_BYTES_MAX + 100);
        assert!(text.contains(&format!("[{} bytes are left out", (1000 << 16) - TEXT_BYTES_MAX)));
        assert!(pending.is_empty());
    }

    #[test]
    fn incomplete_character_at_the_end_is_one_replacement() {
        let mut pending = Pending::default();
        pending.push(&chunk(OutputStream::Stdout, b"a\xc3"));
        pending.end();
        assert_eq!(pending.take(), "a\u{fffd}");
    }

    #[test]
    fn progress_values_increase() {
        let clock = Clock {
            begun: Instant::now(),
            last_ms: AtomicU64::new(0),
            turn: Mutex::new(()),
        };
        let values: Vec<u64> = (0..1000).map(|_| clock.next_ms()).collect();
        assert!(values.is_sorted_by(|one, next| one < next) && values[0] > 0);
        assert!(clock.due() >= clock.begun + HEARTBEAT + Duration::from_millis(values[999]));
    }
}
