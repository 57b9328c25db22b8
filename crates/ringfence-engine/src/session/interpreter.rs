//! The interpreter of a session: one call at a time goes in, and its answer comes out. What it says between calls
//! belongs to the next one. Everything that comes from it is a stranger's.

use crate::{
    backend::{Events, Sandbox, Template, fault},
    caller::OutputStream,
    error::Result,
    language::{
        ProgramReport,
        session::{DriverAnswer, Reports},
    },
    streams::{CapturedStream, OutputSink, Stdio, standing},
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

/// How long an interrupted call may take to end before its session is given up.
const GRACE: Duration = Duration::from_secs(2);
/// Between two interrupts: one that comes too early is lost, and a program may swallow one.
const NUDGE: Duration = Duration::from_millis(250);
const NUDGES: u32 = 8;
/// Not before: an interpreter that has not begun with the call ignores it.
const BEGINNING: Duration = Duration::from_millis(20);
/// How long a supervisor may take to say what its tree has used.
const ANSWERING: Duration = Duration::from_secs(5);
/// How long a supervisor may take to attach a layer, or to open egress.
const SHOWING: Duration = Duration::from_secs(10);
/// After each piece of what is thrown away between two calls: reading it is the server's work, and no client waits.
const BREATH: Duration = Duration::from_millis(2);
/// Output of each stream that is kept between two calls.
const BETWEEN_BYTES_MAX: usize = 64 << 10;
const CHUNK_BYTES: usize = 64 << 10;

/// A claimed sandbox whose program serves calls.
pub(crate) struct Interpreter {
    /// By which its supervisor is reached.
    pub(crate) events: Arc<Events>,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    report: pipe::Receiver,
    reports: Reports,
    said_between: [Between; 2],
    /// How it ended; its supervisor says so once.
    over: Option<Result<Ending>>,
    /// It lives as long as its forks do.
    _template: Option<Arc<Template>>,
}

/// What came from a stream between two calls.
#[derive(Default)]
struct Between {
    bytes: Vec<u8>,
    lost: u64,
}

/// One call on its way to the interpreter.
pub(crate) struct DriverRequest {
    pub(crate) number: u64,
    pub(crate) message: Vec<u8>,
    pub(crate) stdio: Stdio,
    /// Bytes of each stream that are kept.
    pub(crate) keep: u64,
    pub(crate) timeout: Duration,
    pub(crate) cancelled: watch::Receiver<bool>,
    pub(crate) interrupts: watch::Receiver<u64>,
    /// To the driver and not to the program: what that has said meanwhile is the next call's.
    pub(crate) is_question: bool,
}

pub(crate) struct CallResult {
    pub(crate) outcome: CallOutcome,
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
    /// Usage of the session so far; none: it has ended.
    pub(crate) usage: Option<Usage>,
}

pub(crate) enum CallOutcome {
    /// With an answer, perhaps because it was interrupted.
    Answered(DriverAnswer, Option<Cause>),
    /// With the interpreter, which may have told something before.
    Ended(Ending, ProgramReport),
    /// Without an answer: the session has to end.
    GivenUp(SessionEnd, Cause),
    Lost(RequestError),
}

impl CallResult {
    /// A call that was not made, because its code cannot be read.
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
            said_between: Default::default(),
            over: None,
            _template: sandbox.template,
        })
    }

    /// Until it takes calls, or has ended. Its output meanwhile is dropped.
    pub(crate) async fn ready(&mut self, patience: Duration) -> Result<()> {
        self.reports.expect(0);
        let broken = |what: &str| fault("start the session", &io::Error::other(what));
        tokio::select! {
            _ = answer(&mut self.report, &mut self.reports) => {
                drop(taken(&self.stdout));
                drop(taken(&self.stderr));
                Ok(())
            }
            ended = self.events.ended() => Err(match ended {
                Ok(_) => broken("its interpreter has ended"),
                Err(error) => error,
            }),
            () = tokio::time::sleep(patience) => Err(broken("its interpreter does not answer")),
        }
    }

    /// Until it has ended by itself; its output meanwhile is kept for the next call.
    pub(crate) async fn idle(&mut self) -> Result<Ending> {
        if let Some(over) = &self.over {
            return over.clone();
        }
        let [out, err] = &mut self.said_between;
        let over = tokio::select! {
            ended = self.events.ended() => ended,
            never = out.listen(&mut self.stdout) => match never {},
            never = err.listen(&mut self.stderr) => match never {},
        };
        self.over.insert(over).clone()
    }

    /// One call, to its answer. `stop`: somebody ends the session.
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
        let [said_out, said_err] = &mut self.said_between;
        if !is_question {
            said_out.give(&mut out).await;
            said_err.give(&mut err).await;
        }
        // What was told between two calls answers neither.
        drop(taken(&self.report));
        self.reports.expect(number);
        let mut outcome = {
            let write = self.stdin.write_all(&message);
            let all = async {
                if is_question {
                    tokio::join!(
                        said_out.listen(&mut self.stdout),
                        said_err.listen(&mut self.stderr)
                    );
                } else {
                    tokio::join!(pump(&mut self.stdout, &mut out), pump(&mut self.stderr, &mut err));
                }
            };
            let answer = answer(&mut self.report, &mut self.reports);
            let wanted = Wanted {
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
            // It counts while what is left is read.
            CallOutcome::Answered(..) => self.events.order(&Order::Account(number)),
            CallOutcome::GivenUp(..) => {}
        }
        if !is_question {
            // All that was written before the answer.
            out.take(&taken(&self.stdout)).await;
            err.take(&taken(&self.stderr)).await;
        }
        let usage = if lives { self.usage(number).await } else { None };
        // A shell answers when its child was killed for memory, before its supervisor ends the tree.
        if let (CallOutcome::Answered(answer, _), Some(Ok(ending))) = (&mut outcome, &self.over)
            && matches!(ending.cause, Cause::OutOfMemory | Cause::Disk)
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

    /// Shows it this layer of packages, upon whatever it was shown before.
    pub(crate) async fn show(&mut self, layer: &LayerName) -> Result<()> {
        let shown = |event, _| match event {
            Event::Layered => Some(Ok(())),
            Event::NotLayered(failure) => Some(Err(failure.to_string())),
            _ => None,
        };
        let order = Order::Layer(layer.clone());
        self.order(&order, "show the session its packages", shown).await
    }

    /// Opens more of its egress: the sockets of that.
    pub(crate) async fn open(&mut self, spec: EgressSpec) -> Result<Vec<OwnedFd>> {
        let opened = |event, sockets| match event {
            Event::EgressOpened => Some(Ok(sockets)),
            Event::EgressNotOpened(failure) => Some(Err(failure.to_string())),
            _ => None,
        };
        let order = Order::Egress(spec);
        self.order(&order, "open the session's egress", opened).await
    }

    /// Gives its supervisor an order and waits for the answer. A supervisor that does not answer has lost its sandbox
    /// for us.
    async fn order<T>(
        &mut self,
        order: &Order,
        what: &str,
        answer: impl Fn(Event, Vec<OwnedFd>) -> Option<Result<T, String>>,
    ) -> Result<T> {
        let failed = |why: String| fault(what, &io::Error::other(why));
        self.events.order(order);
        let by = Instant::now() + SHOWING;
        loop {
            let over = match timeout_at(by, self.events.handed()).await {
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
        // One that was only lost sight of may live.
        if !matches!(self.over, Some(Ok(_))) {
            self.events.order(&Order::Cancel);
            return matches!(timeout(patience, self.events.ended()).await, Ok(Ok(_)));
        }
        true
    }

    /// What it has used by the end of this call; none: its supervisor has other things to do.
    async fn usage(&mut self, number: u64) -> Option<Usage> {
        let by = Instant::now() + ANSWERING;
        loop {
            let over = match timeout_at(by, self.events.said()).await.ok()? {
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

/// By which a call is ended before it has an answer.
struct Wanted<'a> {
    timeout: Duration,
    cancelled: watch::Receiver<bool>,
    stop: &'a mut watch::Receiver<Option<SessionEnd>>,
    interrupts: watch::Receiver<u64>,
}

/// Waits for whatever ends a call. Out of time or cancelled, it is interrupted first.
async fn follow(
    events: &Events,
    write: impl Future<Output = io::Result<()>>,
    pumps: impl Future<Output = ()>,
    answer: impl Future<Output = DriverAnswer>,
    mut wanted: Wanted<'_>,
) -> CallOutcome {
    let (mut write, mut pumps, mut answer) = (pin!(write), pin!(pumps), pin!(answer));
    let mut ended = pin!(events.ended());
    let mut clock = pin!(sleep_until(Instant::now() + wanted.timeout));
    let mut nudge = pin!(sleep_until(Instant::now()));
    let (mut why, mut nudges, mut is_written) = (None, 0, false);
    let mut begun = Instant::now() + BEGINNING;
    loop {
        let interrupted = tokio::select! {
            biased;
            answer = &mut answer => return CallOutcome::Answered(answer, why),
            ended = &mut ended => {
                return ended.map_or_else(CallOutcome::Lost, |ending| CallOutcome::Ended(ending, ProgramReport::default()));
            }
            // One that does not read its calls any more is out of time before long.
            _ = &mut write, if !is_written => {
                is_written = true;
                begun = Instant::now() + BEGINNING;
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
            () = &mut nudge, if nudges > 0 => {
                nudges -= 1;
                events.order(&Order::Interrupt);
                nudge.as_mut().reset(Instant::now() + NUDGE);
                continue;
            }
        };
        nudges = NUDGES + 1;
        nudge.as_mut().reset(begun.max(Instant::now()));
        if interrupted.is_some() {
            why = interrupted;
            clock.as_mut().reset(Instant::now() + GRACE);
        }
    }
}

/// Until the session is to end, or the engine is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<SessionEnd>>) -> SessionEnd {
    match stop.wait_for(Option::is_some).await {
        Ok(end) => end.unwrap_or(SessionEnd::Server),
        Err(_) => SessionEnd::Server,
    }
}

/// The answer to a call; never, if none comes.
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

/// Never ends; it is dropped when something else does.
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

/// What stands in a pipe now.
fn taken(from: &pipe::Receiver) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = standing(from, &mut bytes) {
        tracing::warn!(%error, "reading a session's output");
    }
    bytes
}

impl Between {
    /// Never ends, also where nothing more can come: the end of the interpreter itself is told elsewhere, and later.
    async fn listen(&mut self, from: &mut pipe::Receiver) -> Infallible {
        loop {
            if from.readable().await.is_err() {
                return std::future::pending().await;
            }
            // What fills a pipe again and again is thrown away in large pieces.
            let mut chunk = vec![0; if self.lost > 0 { CHUNK_BYTES } else { 4 << 10 }];
            match from.try_read(&mut chunk) {
                Ok(0) => return std::future::pending().await,
                Ok(count) => {
                    let room = BETWEEN_BYTES_MAX.saturating_sub(self.bytes.len()).min(count);
                    self.bytes.extend_from_slice(&chunk[..room]);
                    self.lost += (count - room) as u64;
                    if self.lost > 0 {
                        tokio::time::sleep(BREATH).await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }

    async fn give(&mut self, to: &mut OutputSink) {
        let Self { bytes, lost } = std::mem::take(self);
        to.take(&bytes).await;
        to.miss(lost);
    }
}
