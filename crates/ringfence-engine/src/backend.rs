//! Starts a jail and follows it to its end: the program's streams, its report, its deadline, its files. Dropping a
//! [`Running`] kills the tree.

mod failed;

pub(crate) use failed::ClaimError;

use crate::{
    caller::{OutputStream, Stdin, until_cancelled},
    error::Result,
    streams::{
        Attached, CapturedStream, OutputSink, REPORT_BYTES_MAX, Stdio, StreamReader, collect, drain, feed,
    },
    sync::lock,
};
use failed::NotBegun;
use prometheus_client::metrics::counter::Counter;
use ringfence_backend::{Arrivals, ENGINE_STEP, EngineFacts, Runner};
use ringfence_jail::{
    Claim, EgressSockets, Host, JailSpec, Plan, PlanError, Refused, Run,
    cgroup::{self, Parent},
    client::{self, Helper},
    doctor::{self, Advice},
    helper, plan,
    wire::{self, Cause, Ending, Event, Failure, Imported, Order, TEMPLATE_GONE},
};
use ringfence_types::{ErrorCode, Isolation, Limits, RequestError};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::Interest,
    net::{UnixStream, unix::pipe},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

/// After the death of a helper: how often it is looked what it has left, and how long in between.
const SWEEPS: u32 = 50;
/// A supervisor may be dying when it is looked at first.
const SWEEPS_LEAST: u32 = 10;
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// How long a supervisor may be silent: walls take up to twenty seconds, the imports of a template sixty, the end of a
/// tree five.
const SILENCE_MAX: Duration = Duration::from_secs(100);

/// A helper that comes up, while its server reads its settings and opens its stores.
pub struct EarlyStart {
    binary: PathBuf,
    cgroups: Parent,
    helper: Helper,
}

impl EarlyStart {
    pub fn begin(binary: PathBuf) -> Result<Self> {
        Self::with(binary, Helper::start)
    }

    /// Forks this process, which is `binary` and has read its arguments at most. With threads it executes `binary`.
    pub fn fork(binary: PathBuf) -> Result<Self> {
        Self::with(binary, |binary| {
            helper::fork(crate::workers()).or_else(|_| Helper::start(binary))
        })
    }

    /// Prepares the cgroup, which comes before the first process of ours, and starts the helper.
    fn with(binary: PathBuf, start: fn(&Path) -> io::Result<Helper>) -> Result<Self> {
        let cgroups = Parent::find();
        cgroup::prepare(&cgroups).map_err(|error| fault("prepare the cgroup", &error))?;
        match start(&binary) {
            Ok(helper) => Ok(Self {
                binary,
                cgroups,
                helper,
            }),
            Err(error) => Err(refused(&Failure::new("start the helper", &error))),
        }
    }
}

/// The native backend: the helper process and what is known of the host.
pub(crate) struct Native {
    binary: PathBuf,
    state_dir: PathBuf,
    /// None: it has been shut down.
    helper: Mutex<Option<Helper>>,
    pub(crate) host: Host,
    /// Sandboxes that have not ended though they were killed.
    pub(crate) stuck: Counter,
}

impl Native {
    pub(crate) fn with(started: EarlyStart, state_dir: PathBuf) -> Self {
        Self {
            host: Host::inspect(started.cgroups, Refused::ask(&started.binary)),
            binary: started.binary,
            state_dir,
            helper: Mutex::new(Some(started.helper)),
            stuck: Counter::default(),
        }
    }

    pub(crate) fn plan(&self, spec: JailSpec) -> Result<Plan> {
        plan::build(spec, &self.host).map_err(|error| match &error {
            PlanError::MissingLayer { layer } => {
                let refusal = self.host.landlock_version().err();
                let error = refusal.unwrap_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
                refused(&Failure::new(*layer, &error))
            }
            PlanError::TreeTooBroad { .. } => RequestError::runtime_unavailable(
                format!("{error}."),
                "Install the interpreter in a directory of its own.",
            ),
        })
    }

    pub(crate) fn claim(&self, run: Run, limits: Limits) -> Claim {
        plan::claim(run, limits, &self.host)
    }

    /// Asks for a sandbox, of its own or made from a template. Its walls go up meanwhile.
    pub(crate) fn spawn(&self, plan: Arc<Plan>, template: Option<Arc<Template>>) -> Result<Sandbox> {
        let ends = self.ask(&plan, template.as_ref().map(|template| &template.ends))?;
        let sandbox = Sandbox::new(plan, ends, None, self.stuck.clone())?;
        Ok(Sandbox { template, ..sandbox })
    }

    /// Makes a template, from which sandboxes are then made.
    pub(crate) async fn template(&self, plan: Arc<Plan>) -> Result<Template> {
        let sandbox = self.spawn(plan, None)?;
        let (imported, descriptors) = sandbox.parked().await?;
        let ends = client::Template::from_descriptors(descriptors).ok_or_else(gone)?;
        Ok(Template {
            sandbox,
            ends,
            imported,
        })
    }

    fn ask(&self, plan: &Plan, template: Option<&client::Template>) -> Result<client::SandboxEnds> {
        let mut helper = lock(&self.helper);
        let living = helper.as_ref().ok_or_else(closed)?;
        match living.place(plan, template) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                tracing::error!(pid = living.pid(), "the helper is gone; starting another");
                if template.is_some() {
                    return Err(gone()); // the template is gone too
                }
            }
            placed => return placed.map_err(|error| fault("start a sandbox", &error)),
        }
        let next = Helper::start(&self.binary).map_err(|error| fault("start the helper", &error))?;
        let placed = next
            .place(plan, template)
            .map_err(|error| fault("start a sandbox", &error));
        if let Some(dead) = helper.replace(next) {
            self.bury(Some(dead));
        }
        placed
    }

    /// Supervisors have been killed with their helper, or with an earlier server, and their sandboxes with them; the
    /// kernel takes a while, and then there are their cgroups and directories.
    pub(crate) fn bury(&self, dead: Option<Helper>) {
        let (cgroups, state_dir) = (self.host.cgroups.clone(), self.state_dir.clone());
        std::thread::spawn(move || {
            if let Some(Err(error)) = dead.map(Helper::stop) {
                tracing::warn!(%error, "waiting for a helper that has ended");
            }
            for turn in 0..SWEEPS {
                std::thread::sleep(SWEEP_PAUSE);
                let swept = ringfence_jail::sweep(&cgroups, &state_dir);
                if swept.held == 0 && turn >= SWEEPS_LEAST {
                    return;
                }
            }
            tracing::warn!("what killed sandboxes have left is still held");
        });
    }

    /// Hangs up on the helper, which then ends by itself, and is buried when it has. False: that was done before.
    pub(crate) fn leave(&self) -> bool {
        let Some(helper) = self.take() else { return false };
        // Without a thread it stays a zombie until this process ends.
        let buried = std::thread::Builder::new()
            .name("ringfence-end".to_owned())
            .spawn(move || end(helper));
        if let Err(error) = buried {
            tracing::warn!(%error, "the helper ends, and is not waited for");
        }
        true
    }

    /// Ends the helper and with it everything that still runs. False: that was done before.
    pub(crate) fn stop(&self) -> bool {
        self.take().map(end).is_some()
    }

    /// Nothing is started any more.
    pub(crate) fn take(&self) -> Option<Helper> {
        lock(&self.helper).take()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.leave();
    }
}

fn end(helper: Helper) {
    if let Err(error) = helper.stop() {
        tracing::warn!(%error, "waiting for the helper");
    }
}

fn closed() -> RequestError {
    RequestError::fault("Ringfence has been shut down here.", "Start it anew.")
}

pub(crate) fn fault(operation: &str, error: &io::Error) -> RequestError {
    RequestError::fault(
        format!("could not {operation}: {error}."),
        "Run `ringfence doctor` to see whether this host can make sandboxes.",
    )
}

/// A sandbox before its claim. Dropping it ends it.
pub(crate) struct Sandbox {
    pub(crate) plan: Arc<Plan>,
    pub(crate) events: Events,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
    /// Held as long as the sandbox lives.
    pub(crate) template: Option<Arc<Template>>,
    /// None: it is native.
    pub(crate) container: Option<ContainerSide>,
    has_ended: AtomicBool,
}

/// What a sandbox has beside the others when a container engine makes it.
pub(crate) struct ContainerSide {
    pub(crate) facts: Arc<EngineFacts>,
    pub(crate) runner: Runner,
    /// Its connections, until its egress takes them.
    pub(crate) arrivals: Option<Arrivals>,
}

pub(crate) enum EgressEnds {
    Sockets(EgressSockets),
    /// What its agent forwards.
    Arrivals(Arrivals),
}

/// An interpreter that forks itself into the sandboxes that are made from it. It is kept as long as one of them lives.
pub(crate) struct Template {
    pub(crate) sandbox: Sandbox,
    ends: client::Template,
    pub(crate) imported: Imported,
}

impl Sandbox {
    pub(crate) fn new(
        plan: Arc<Plan>,
        ends: client::SandboxEnds,
        container: Option<ContainerSide>,
        stuck: Counter,
    ) -> Result<Self> {
        let connect = |error: io::Error| fault("connect the program's streams", &error);
        Ok(Self {
            plan,
            events: Events::new(ends.events, stuck).map_err(connect)?,
            stdin: ends.stdin,
            stdout: ends.stdout,
            stderr: ends.stderr,
            report: ends.report,
            template: None,
            container,
            has_ended: AtomicBool::new(false),
        })
    }

    /// Waits until its walls are up; a template has also done its imports.
    pub(crate) async fn parked(&self) -> Result<(Imported, Vec<OwnedFd>)> {
        match self.events.handed().await? {
            (Event::Parked(imported), descriptors) => Ok((imported, descriptors)),
            _ => Err(gone()),
        }
    }

    /// What it takes of the host's memory alone, while it waits.
    pub(crate) async fn measure(&self) -> Result<u64> {
        wire::send(self.events.socket.as_fd(), &Order::Measure, &[])
            .map_err(|error| fault("measure a sandbox", &error))?;
        match self.events.handed().await? {
            (Event::Measured(bytes), _) => Ok(bytes),
            _ => Err(gone()),
        }
    }

    /// Whether it was made from this template, or from none.
    pub(crate) fn is_of(&self, template: Option<&Arc<Template>>) -> bool {
        match (&self.template, template) {
            (Some(own), Some(template)) => Arc::ptr_eq(own, template),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether it still waits. Whatever a parked sandbox says, which it says once, means that it does not.
    pub(crate) fn waits(&self) -> bool {
        let socket = &self.events.socket;
        let heard = socket.try_io(Interest::READABLE, || wire::receive::<Event>(socket.as_fd()));
        if !matches!(heard, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        !self.has_ended.load(Ordering::Relaxed)
    }

    /// Claims it, ready or not, and waits until the program runs behind all walls. An error names the wall that did not
    /// stand. `blobs` are what the claim's parts point into.
    pub(crate) async fn claim(
        mut self,
        claim: &Claim,
        blobs: &[impl AsRef<[u8]>],
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<Claimed, ClaimError> {
        let failed = |error, is_retryable| ClaimError { error, is_retryable };
        let is_sent = match client::claim(self.events.socket.as_fd(), claim, blobs) {
            Ok(()) => true,
            // It has ended, and has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
            Err(error) => return Err(failed(fault("claim a sandbox", &error), true)),
        };
        let begun = self.events.begun(cancelled).await;
        let (mut dirs, early) = begun.map_err(|not_begun| {
            let is_retryable = !is_sent || not_begun.has_not_run(&self.plan.program);
            failed(not_begun.error(), is_retryable)
        })?;
        let arrivals = self.container.as_mut().map(|container| container.arrivals.take());
        let egress = match (&claim.egress, arrivals) {
            (Some(_), Some(arrivals)) => arrivals.map(EgressEnds::Arrivals),
            (Some(way), None) if early.is_none() => {
                let handed = dirs.split_off(DOORS.min(dirs.len()));
                let sockets = EgressSockets::from_descriptors(way, handed);
                Some(EgressEnds::Sockets(sockets.ok_or_else(|| failed(gone(), false))?))
            }
            _ => None,
        };
        let limit = Duration::from_millis(claim.limits.timeout_ms.saturating_add(claim.grace_ms));
        Ok(Claimed {
            sandbox: self,
            patience: limit.saturating_add(SILENCE_MAX),
            dirs: SandboxDirs::from_descriptors(dirs),
            egress,
            early,
        })
    }
}

/// A claimed sandbox in which the program runs, or that was cancelled before it could.
pub(crate) struct Claimed {
    pub(crate) sandbox: Sandbox,
    /// In which it has to have ended.
    patience: Duration,
    /// `None`: it has ended before its program could run.
    pub(crate) dirs: Option<SandboxDirs>,
    /// None: it has none.
    pub(crate) egress: Option<EgressEnds>,
    pub(crate) early: Option<Ending>,
}

pub(crate) struct Running {
    events: Events,
    patience: Duration,
    dirs: Option<SandboxDirs>,
    early: Option<Ending>,
    /// Whether its end is the end of its streams, too. Those of a container end by themselves: the other ends of the
    /// pipes are the server's own, and what is under way comes after the end.
    ends_streams: bool,
    /// For the readers of its streams.
    ended: watch::Sender<bool>,
    _stdin: Option<Attached<()>>,
    stdout: JoinHandle<CapturedStream>,
    stderr: JoinHandle<CapturedStream>,
    report: JoinHandle<Vec<u8>>,
    _template: Option<Arc<Template>>,
}

/// Everything a tree left, hostile.
#[derive(Debug)]
pub(crate) struct RawOutcome {
    pub(crate) ending: Ending,
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
    pub(crate) report: Vec<u8>,
    /// Where its files are: changes, output directory. Dropping them lets the sandbox's disk go.
    pub(crate) dirs: Option<SandboxDirs>,
    /// None: it lives on.
    pub(crate) hold: Option<Hold>,
    pub(crate) isolation: Isolation,
}

/// A sandbox that has ended. What is left of it (namespaces, mounts, a cgroup, a directory of the host) is taken down
/// when this is dropped.
#[derive(Debug)]
pub(crate) struct Hold(#[expect(dead_code, reason = "held, not used")] UnixStream);

const DOORS: usize = 2;

#[derive(Debug)]
pub(crate) struct SandboxDirs {
    pub(crate) changes: OwnedFd,
    pub(crate) output: OwnedFd,
}

impl Claimed {
    /// The sockets of its egress, where it is native and has one.
    pub(crate) fn take_sockets(&mut self) -> Option<EgressSockets> {
        match self.egress.take() {
            Some(EgressEnds::Sockets(sockets)) => Some(sockets),
            _ => None,
        }
    }
}

impl SandboxDirs {
    fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut dirs = descriptors.into_iter();
        let (changes, output) = dirs.next().zip(dirs.next())?;
        Some(Self { changes, output })
    }
}

impl Running {
    pub(crate) fn attach(started: Claimed, stdio: Stdio, keep: u64) -> Result<Self> {
        let Claimed {
            sandbox,
            patience,
            dirs,
            early,
            ..
        } = started;
        let connect = |error: io::Error| fault("connect the program's streams", &error);
        let (ended, sandbox_ended) = watch::channel(false);
        let reader = |pipe: OwnedFd| StreamReader::new(pipe, sandbox_ended.clone()).map_err(connect);
        let stdin = match &stdio.stdin {
            Stdin::FromRequest if stdio.stdin_bytes.is_empty() => None, // closed here, which is all there is to say
            _ => Some(pipe::Sender::from_owned_fd(sandbox.stdin).map_err(connect)?),
        };
        let outlet = |stream| OutputSink::new(stream, &stdio, keep);
        let (stdout, stderr) = (outlet(OutputStream::Stdout), outlet(OutputStream::Stderr));
        Ok(Self {
            events: sandbox.events,
            patience,
            dirs,
            early,
            ends_streams: sandbox.container.is_none(),
            ended,
            _stdin: stdin.map(|stdin| Attached(tokio::spawn(feed(stdin, stdio.stdin, stdio.stdin_bytes)))),
            stdout: tokio::spawn(collect(reader(sandbox.stdout)?, stdout)),
            stderr: tokio::spawn(collect(reader(sandbox.stderr)?, stderr)),
            report: tokio::spawn(drain(reader(sandbox.report)?, REPORT_BYTES_MAX)),
            _template: sandbox.template,
        })
    }

    /// Waits until the tree is dead and what it wrote is read.
    pub(crate) async fn wait(
        mut self,
        mut cancelled: watch::Receiver<bool>,
        isolation: Isolation,
    ) -> Result<RawOutcome> {
        let ending = match self.early {
            Some(ending) => ending,
            None => loop {
                let heard = self.events.listen_within(self.patience, &mut cancelled).await?;
                if let Heard::Ended(ending) = heard {
                    break ending;
                }
            },
        };
        if self.ends_streams {
            self.ended.send_replace(true);
        }
        Ok(RawOutcome {
            ending,
            stdout: self.stdout.await.unwrap_or_default(),
            stderr: self.stderr.await.unwrap_or_default(),
            report: self.report.await.unwrap_or_default(),
            dirs: self.dirs,
            hold: Some(Hold(self.events.socket)),
            isolation,
        })
    }
}

enum Heard {
    Running(Vec<OwnedFd>),
    Ended(Ending),
}

fn gone() -> RequestError {
    fault(
        "hear from the supervisor",
        &io::Error::from(io::ErrorKind::UnexpectedEof),
    )
}

pub(crate) fn refused(failure: &Failure) -> RequestError {
    if failure.step != ENGINE_STEP
        && let Some(Advice { cause, fix }) = doctor::explain(failure)
    {
        return RequestError::new(
            ErrorCode::BelowFloor,
            format!("this host refuses a step of the sandbox: {failure}: {cause}."),
            format!("To allow it: {fix}. `ringfence doctor` shows all layers."),
        );
    }
    if failure.step == ENGINE_STEP {
        let code = match failure.errno {
            0 => ErrorCode::SandboxFault,
            _ => ErrorCode::RuntimeUnavailable,
        };
        return RequestError::new(
            code,
            format!("{}.", failure.detail),
            "`ringfence doctor` looks at the container engine; native sandboxes do not need it.",
        );
    }
    if failure.step == TEMPLATE_GONE {
        return RequestError::fault(
            "the sandbox has ended with the template that it was forked from.",
            "Send the request again; another template is being made.",
        );
    }
    RequestError::fault(
        format!("the sandbox could not be made: {failure}."),
        "If the step names a path, make it readable for the server; else run `ringfence doctor`.",
    )
}

/// The connection to the supervisor.
///
/// tokio has no type for `SOCK_SEQPACKET`; its `UnixStream` is used for readiness only, and messages go through
/// [`wire`].
pub(crate) struct Events {
    socket: UnixStream,
    cancelled: bool,
    stuck: Counter,
}

impl Events {
    fn new(socket: OwnedFd, stuck: Counter) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        Ok(Self {
            socket: UnixStream::from_std(socket)?,
            cancelled: false,
            stuck,
        })
    }

    /// Waits until the tree has ended; other events are dropped.
    pub(crate) async fn ended(&self) -> Result<Ending> {
        loop {
            if let Event::Ended(ending) = self.said().await? {
                return Ok(ending);
            }
        }
    }

    /// The next event of a tree that runs.
    pub(crate) async fn said(&self) -> Result<Event> {
        self.handed().await.map(|(event, _)| event)
    }

    /// Sends one order. That a supervisor is gone shows in its events.
    pub(crate) fn order(&self, order: &Order) {
        if let Err(error) = wire::send(self.socket.as_fd(), order, &[]) {
            tracing::debug!(%error, "an order to a supervisor that has ended");
        }
    }

    /// The next event, with the descriptors that are handed over.
    pub(crate) async fn handed(&self) -> Result<(Event, Vec<OwnedFd>)> {
        let socket = &self.socket;
        let unheard = |error| fault("hear from the supervisor", &error);
        let mut reset = false;
        loop {
            socket.readable().await.map_err(unheard)?;
            match socket.try_io(Interest::READABLE, || wire::receive::<Event>(socket.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A supervisor that ended before it read our claim resets the connection; what it said stands behind
                // that.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !reset => reset = true,
                Err(error) => return Err(unheard(error)),
                Ok(None) => return Err(gone()),
                Ok(Some((Event::Failed(failure), _))) => return Err(refused(&failure)),
                Ok(Some(heard)) => {
                    if matches!(&heard.0, Event::Ended(ending) if ending.is_stuck) {
                        tracing::error!("a sandbox has not ended, though all of its processes were killed");
                        self.stuck.inc();
                    }
                    return Ok(heard);
                }
            }
        }
    }

    /// [`Self::listen`] to a supervisor that keeps the clock itself, and is given up when it is silent for so long.
    async fn listen_within(
        &mut self,
        patience: Duration,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<Heard> {
        let heard = timeout(patience, self.listen(cancelled)).await;
        heard.unwrap_or_else(|_late| Err(self.is_stuck()))
    }

    /// Waits until the program runs. On a busy machine its end may be heard first: then it may have run, and must not
    /// be started again.
    async fn begun(
        &mut self,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<(Vec<OwnedFd>, Option<Ending>), NotBegun> {
        let Ok(heard) = timeout(SILENCE_MAX, self.listen(cancelled)).await else {
            return Err(NotBegun::Silent(self.is_stuck()));
        };
        match heard.map_err(NotBegun::Ended)? {
            Heard::Running(dirs) => Ok((dirs, None)),
            // Pid 1 has gone without a limit that was met.
            Heard::Ended(ending) if ending.cause == Cause::Killed => Err(NotBegun::Ended(gone())),
            Heard::Ended(ending) => Ok((Vec::new(), Some(ending))),
        }
    }

    fn is_stuck(&self) -> RequestError {
        tracing::error!("a supervisor does not answer");
        self.stuck.inc();
        fault("hear from the supervisor", &io::ErrorKind::TimedOut.into())
    }

    /// What matters next; a cancellation is passed on meanwhile.
    async fn listen(&mut self, cancelled: &mut watch::Receiver<bool>) -> Result<Heard> {
        loop {
            let handed = tokio::select! {
                handed = self.handed() => handed?,
                () = until_cancelled(cancelled), if !self.cancelled => {
                    self.cancelled = true;
                    self.order(&Order::Cancel);
                    continue;
                }
            };
            match handed {
                (Event::Running, dirs) => return Ok(Heard::Running(dirs)),
                (Event::Ended(ending), _) => return Ok(Heard::Ended(ending)),
                // Answers to what only sessions ask.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
