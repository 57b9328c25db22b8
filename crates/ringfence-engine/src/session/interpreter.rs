//! The interpreter of a session: it takes one call at a time, and returns its answer. Its output between calls belongs
//! to the next one. Everything that comes from it is untrusted.

use crate::{
    backend::{Events, Sandbox, Template, fault},
    caller::OutputStream,
    error::Result,
    language::{
        ProgramReport,
        session::{DriverAnswer, Reports},
    },
    streams::{CapturedStream, OutputSink, Stdio, read_available},
};
use ringfence_jail::{
    EgressSpec, LayerName,
    wire::{Cause, Ending, Event, Order, Usage},
};
use ringfence_types::{ProgramError, RequestError, SessionEnd};
use std::{convert::Infallible, io, os::fd::OwnedFd, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::watch,
    time::{Instant, sleep_until, timeout, timeout_at},
};

/// Time for an interrupted call to end before its session is ended.
const GRACE: Duration = Duration::from_secs(2);
/// Interval between two interrupts: one that comes too early is lost, and a program may ignore one.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(250);
const INTERRUPTS_MAX: u32 = 8;
/// Delay before the first interrupt: an interpreter that has not begun with the call ignores it.
const INTERRUPT_DELAY: Duration = Duration::from_millis(20);
/// Time for a supervisor to report the usage of its tree.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a supervisor to attach a layer, or to open egress.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after each discarded chunk between two calls: reading takes the server's time, and no client waits for it.
const DISCARD_PAUSE: Duration = Duration::from_millis(2);
const BETWEEN_BYTES_MAX: usize = 64 << 10;
const CHUNK_BYTES: usize = 64 << 10;

/// A claimed sandbox whose program serves calls.
pub(crate) struct Interpreter {
    pub(crate) events: Arc<Events>,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    report: pipe::Receiver,
    reports: Reports,
    output_between: [OutputBetween; 2],
    /// Its end, which its supervisor reports only once.
    over: Option<Result<Ending>>,
    /// Kept alive as long as its forks.
    _template: Option<Arc<Template>>,
}

#[derive(Default)]
struct OutputBetween {
    bytes: Vec<u8>,
    lost: u64,
}

pub(crate) struct DriverRequest {
    pub(crate) number: u64,
    pub(crate) message: Vec<u8>,
    pub(crate) stdio: Stdio,
    pub(crate) keep: u64,
    pub(crate) timeout: Duration,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) interrupts: watch::Receiver<u64>,
    /// True for a request to the driver: output of the program meanwhile belongs to the next call.
    pub(crate) is_question: bool,
}

pub(crate) struct CallResult {
    pub(crate) outcome: CallOutcome,
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
    /// Usage of the session so far; `None` if it has ended.
    pub(crate) usage: Option<Usage>,
}

pub(crate) enum CallOutcome {
    /// The call was answered, perhaps after an interrupt.
    Answered(DriverAnswer, Option<Cause>),
    /// The interpreter has ended; it may have reported something before.
    Ended(Ending, ProgramReport),
    /// The call was not answered: the session has to end.
    GivenUp(SessionEnd, Cause),
    Lost(RequestError),
}

impl CallResult {
    /// Returns the result of a call that was not made, because its code cannot be parsed.
    pub(crate) fn objected(number: u64, objection: ProgramError) -> Self {
        let stderr = CapturedStream {
            bytes: objection.traceback.clone().into_bytes(),
            total: objection.traceback.len() as u64,
            ..CapturedStream::default()
        };
        let answer = DriverAnswer {
            number,
            report: ProgramReport {
                error: Some(objection),
                ..ProgramReport::default()
            },
            ..DriverAnswer::default()
        };
        Self {
            outcome: CallOutcome::Answered(answer, None),
            stdout: CapturedStream::default(),
            stderr,
            usage: None,
        }
    }
}

impl Interpreter {
    pub(crate) fn attach(sandbox: Sandbox) -> Result<Self> {
        let connect = |error: io::Error| fault("connect the session's streams", &error);
        let receiver = |end: OwnedFd| pipe::Receiver::from_owned_fd(end).map_err(connect);
        Ok(Self {
            events: Arc::new(sandbox.events),
            stdin: pipe::Sender::from_owned_fd(sandbox.stdin).map_err(connect)?,
            stdout: receiver(sandbox.stdout)?,
            stderr: receiver(sandbox.stderr)?,
            report: receiver(sandbox.report)?,
            reports: Reports::default(),
            output_between: Default::default(),
            over: None,
            _template: sandbox.template,
        })
    }

    /// Waits until it takes calls, or has ended. Its output meanwhile is dropped.
    pub(crate) async fn ready(&mut self, patience: Duration) -> Result<()> {
        self.reports.expect(0);
        let broken = |what: &str| fault("start the session", &io::Error::other(what));
        tokio::select! {
            _ = answer(&mut self.report, &mut self.reports) => {
                drop(available(&self.stdout));
                drop(available(&self.stderr));
                Ok(())
            }
            ended = self.events.ended() => Err(match ended {
                Ok(_) => broken("its interpreter has ended"),
                Err(error) => error,
            }),
            () = tokio::time::sleep(patience) => Err(broken("its interpreter does not answer")),
        }
    }

    /// Waits until it has ended by itself; its output meanwhile is kept for the next call.
    pub(crate) async fn idle(&mut self) -> Result<Ending> {
        if let Some(over) = &self.over {
            return over.clone();
        }
        let [out, err] = &mut self.output_between;
        let over = tokio::select! {
            ended = self.events.ended() => ended,
            never = out.collect(&mut self.stdout) => match never {},
            never = err.collect(&mut self.stderr) => match never {},
        };
        self.over.insert(over).clone()
    }

    /// Makes one call and waits for the answer. `stop` ends the session.
    pub(crate) async fn call(
        &mut self,
        sent: DriverRequest,
        stop: &mut watch::Receiver<Option<SessionEnd>>,
    ) -> CallResult {
        let DriverRequest {
            number,
            message,
            stdio,
            keep,
            timeout,
            cancelled,
            interrupts,
            is_question,
        } = sent;
        let mut out = OutputSink::new(OutputStream::Stdout, &stdio, keep);
        let mut err = OutputSink::new(OutputStream::Stderr, &stdio, keep);
        let [said_out, said_err] = &mut self.output_between;
        if !is_question {
            said_out.flush_to(&mut out).await;
            said_err.flush_to(&mut err).await;
        }
        // Reports between two calls belong to neither.
        drop(available(&self.report));
        self.reports.expect(number);
        let mut outcome = {
            let stdin = &mut self.stdin;
            // Owns the message: that may be long, and is not needed once it is written.
            let write = async move { stdin.write_all(&message).await };
            let all = async {
                if is_question {
                    tokio::join!(
                        said_out.collect(&mut self.stdout),
                        said_err.collect(&mut self.stderr)
                    );
                } else {
                    tokio::join!(pump(&mut self.stdout, &mut out), pump(&mut self.stderr, &mut err));
                }
            };
            let answer = answer(&mut self.report, &mut self.reports);
            let wanted = EndSignals {
                timeout,
                cancelled,
                stop,
                interrupts,
            };
            follow(&self.events, write, all, answer, wanted).await
        };
        if let CallOutcome::Ended(_, report) = &mut outcome {
            *report = self.reports.unfinished().report;
        }
        let lives = matches!(outcome, CallOutcome::Answered(..));
        match &outcome {
            CallOutcome::Ended(ending, _) => self.over = Some(Ok(ending.clone())),
            CallOutcome::Lost(error) => self.over = Some(Err(error.clone())),
            // The supervisor measures while the remaining output is read.
            CallOutcome::Answered(..) => self.events.order(&Order::Account(number)),
            CallOutcome::GivenUp(..) => {}
        }
        if !is_question {
            // Everything that was written before the answer.
            out.take(&available(&self.stdout)).await;
            err.take(&available(&self.stderr)).await;
        }
        let usage = if lives { self.usage(number).await } else { None };
        // A shell answers when its child was killed for memory, before its supervisor ends the tree.
        if let (CallOutcome::Answered(answer, _), Some(Ok(ending))) = (&mut outcome, &self.over)
            && matches!(ending.cause, Cause::OutOfMemory | Cause::Disk | Cause::Locks)
        {
            outcome = CallOutcome::Ended(ending.clone(), std::mem::take(&mut answer.report));
        }
        CallResult {
            outcome,
            stdout: out.finish().await,
            stderr: err.finish().await,
            usage,
        }
    }

    /// Attaches this layer of packages above the earlier ones.
    pub(crate) async fn show(&mut self, layer: &LayerName) -> Result<()> {
        let shown = |event, _| match event {
            Event::Layered => Some(Ok(())),
            Event::NotLayered(failure) => Some(Err(failure.to_string())),
            _ => None,
        };
        let order = Order::Layer(layer.clone());
        self.order(&order, "show the session its packages", shown).await
    }

    /// Opens more egress, and returns its sockets.
    pub(crate) async fn open(&mut self, spec: EgressSpec) -> Result<Vec<OwnedFd>> {
        let opened = |event, sockets| match event {
            Event::EgressOpened => Some(Ok(sockets)),
            Event::EgressNotOpened(failure) => Some(Err(failure.to_string())),
            _ => None,
        };
        let order = Order::Egress(spec);
        self.order(&order, "open the session's egress", opened).await
    }

    /// Sends its supervisor an order and waits for the answer. Without one in time the sandbox counts as lost.
    async fn order<T>(
        &mut self,
        order: &Order,
        what: &str,
        answer: impl Fn(Event, Vec<OwnedFd>) -> Option<Result<T, String>>,
    ) -> Result<T> {
        let failed = |why: String| fault(what, &io::Error::other(why));
        self.events.order(order);
        let by = Instant::now() + ORDER_TIMEOUT;
        loop {
            let over = match timeout_at(by, self.events.receive()).await {
                Ok(Ok((Event::Ended(ending), _))) => Ok(ending),
                Ok(Ok((event, descriptors))) => match answer(event, descriptors) {
                    Some(answer) => return answer.map_err(failed),
                    None => continue,
                },
                Ok(Err(error)) => Err(error),
                Err(late) => Err(failed(late.to_string())),
            };
            self.over = Some(over);
            return Err(failed("it has ended".to_owned()));
        }
    }

    /// Ends it, with everything in its sandbox; false: its supervisor has not confirmed that.
    pub(crate) async fn end(self, patience: Duration) -> bool {
        // If only the connection was lost, it may still be running.
        if !matches!(self.over, Some(Ok(_))) {
            self.events.order(&Order::Cancel);
            return matches!(timeout(patience, self.events.ended()).await, Ok(Ok(_)));
        }
        true
    }

    /// Returns its usage at the end of this call; `None`: its supervisor did not answer in time, or failed.
    async fn usage(&mut self, number: u64) -> Option<Usage> {
        let by = Instant::now() + USAGE_TIMEOUT;
        loop {
            let over = match timeout_at(by, self.events.next()).await.ok()? {
                Ok(Event::Account(asked, usage)) if asked == number => return Some(usage),
                Ok(Event::Ended(ending)) => Ok(ending),
                Ok(_) => continue,
                Err(error) => Err(error),
            };
            let usage = over.as_ref().ok().map(|ending| ending.usage);
            self.over = Some(over);
            return usage;
        }
    }
}

/// The events that end a call before its answer.
struct EndSignals<'a> {
    timeout: Duration,
    cancelled: watch::Receiver<bool>,
    stop: &'a mut watch::Receiver<Option<SessionEnd>>,
    interrupts: watch::Receiver<u64>,
}

/// Waits for the end of a call. On a timeout or a cancellation it is interrupted first.
async fn follow(
    events: &Events,
    write: impl Future<Output = io::Result<()>>,
    pumps: impl Future<Output = ()>,
    answer: impl Future<Output = DriverAnswer>,
    mut wanted: EndSignals<'_>,
) -> CallOutcome {
    let (mut write, mut pumps, mut answer) = (pin!(write), pin!(pumps), pin!(answer));
    let mut ended = pin!(events.ended());
    let mut clock = pin!(sleep_until(Instant::now() + wanted.timeout));
    let mut next_interrupt = pin!(sleep_until(Instant::now()));
    let (mut why, mut interrupts_left, mut is_written) = (None, 0, false);
    let mut begun = Instant::now() + INTERRUPT_DELAY;
    loop {
        let interrupted = tokio::select! {
            biased;
            answer = &mut answer => return CallOutcome::Answered(answer, why),
            ended = &mut ended => {
                return ended.map_or_else(CallOutcome::Lost, |ending| CallOutcome::Ended(ending, ProgramReport::default()));
            }
            // An interpreter that does not read its calls runs into the timeout.
            _ = &mut write, if !is_written => {
                is_written = true;
                begun = Instant::now() + INTERRUPT_DELAY;
                continue;
            }
            () = &mut pumps => continue,
            end = stopped(wanted.stop) => return CallOutcome::GivenUp(end, Cause::Cancelled),
            () = &mut clock => match why {
                None => Some(Cause::Timeout),
                Some(why) => return CallOutcome::GivenUp(SessionEnd::Stuck, why),
            },
            Ok(_) = wanted.cancelled.wait_for(|cancelled| *cancelled), if why.is_none() => Some(Cause::Cancelled),
            Ok(()) = wanted.interrupts.changed() => None,
            () = &mut next_interrupt, if interrupts_left > 0 => {
                interrupts_left -= 1;
                events.order(&Order::Interrupt);
                next_interrupt.as_mut().reset(Instant::now() + INTERRUPT_INTERVAL);
                continue;
            }
        };
        interrupts_left = INTERRUPTS_MAX + 1;
        next_interrupt.as_mut().reset(begun.max(Instant::now()));
        if interrupted.is_some() {
            why = interrupted;
            clock.as_mut().reset(Instant::now() + GRACE);
        }
    }
}

/// Waits until the session is to end, or the engine is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<SessionEnd>>) -> SessionEnd {
    match stop.wait_for(Option::is_some).await {
        Ok(end) => end.unwrap_or(SessionEnd::Server),
        Err(_) => SessionEnd::Server,
    }
}

/// Waits for the answer to a call; forever, if none comes.
async fn answer(report: &mut pipe::Receiver, reports: &mut Reports) -> DriverAnswer {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    loop {
        chunk.clear();
        match report.read_buf(&mut chunk).await {
            Ok(0) | Err(_) => return std::future::pending().await,
            Ok(_) => {
                if let Some(answer) = reports.feed(&chunk) {
                    return answer;
                }
            }
        }
    }
}

/// Copies output. Never ends; it is dropped when something else ends the call.
async fn pump(from: &mut pipe::Receiver, to: &mut OutputSink) {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    loop {
        chunk.clear();
        to.make_room().await;
        match from.read_buf(&mut chunk).await {
            Ok(0) | Err(_) => return std::future::pending().await,
            Ok(_) => to.take(&chunk).await,
        }
    }
}

/// Reads everything that is in a pipe now.
fn available(from: &pipe::Receiver) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = read_available(from, &mut bytes) {
        tracing::warn!(%error, "reading a session's output");
    }
    bytes
}

impl OutputBetween {
    /// Collects output. Never ends, even at end of file: the interpreter's end is reported elsewhere, and later.
    async fn collect(&mut self, from: &mut pipe::Receiver) -> Infallible {
        loop {
            if from.readable().await.is_err() {
                return std::future::pending().await;
            }
            // Output beyond the limit is discarded in large chunks.
            let mut chunk = vec![0; if self.lost > 0 { CHUNK_BYTES } else { 4 << 10 }];
            match from.try_read(&mut chunk) {
                Ok(0) => return std::future::pending().await,
                Ok(count) => {
                    let room = BETWEEN_BYTES_MAX.saturating_sub(self.bytes.len()).min(count);
                    self.bytes.extend_from_slice(&chunk[..room]);
                    self.lost += (count - room) as u64;
                    if self.lost > 0 {
                        tokio::time::sleep(DISCARD_PAUSE).await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }

    async fn flush_to(&mut self, to: &mut OutputSink) {
        let Self { bytes, lost } = std::mem::take(self);
        to.take(&bytes).await;
        to.add_discarded(lost);
    }
}
