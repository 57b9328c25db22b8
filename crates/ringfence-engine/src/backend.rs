//! Starts a jail and follows it to its end. Dropping a [`Running`] kills the process tree.

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

/// Maximum sweeps for the remains of a dead helper, and the pause between them.
const SWEEPS: u32 = 50;
/// Minimum sweeps: at the first a supervisor may still be ending.
const SWEEPS_LEAST: u32 = 10;
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// Maximum silence of a supervisor: walls take up to 20 s, the imports of a template 60 s, the end of a tree 5 s.
const SILENCE_MAX: Duration = Duration::from_secs(100);

/// A helper that starts while its server reads its settings and opens its stores.
pub struct EarlyStart {
    binary: PathBuf,
    cgroups: Parent,
    helper: Helper,
}

impl EarlyStart {
    pub fn begin(binary: PathBuf) -> Result<Self> {
        Self::with(binary, Helper::start)
    }

    /// Forks this process, which is `binary` and has only read its arguments; with threads, executes `binary` instead.
    pub fn fork(binary: PathBuf) -> Result<Self> {
        Self::with(binary, |binary| {
            helper::fork(crate::workers()).or_else(|_| Helper::start(binary))
        })
    }

    /// Prepares the cgroup, which has to precede the first child process, and starts the helper.
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

pub(crate) struct Native {
    binary: PathBuf,
    state_dir: PathBuf,
    /// None: the backend has been shut down.
    helper: Mutex<Option<Helper>>,
    pub(crate) host: Host,
    /// The number of sandboxes that have not ended although they were killed.
    pub(crate) stuck: Counter,
}

impl Native {
    pub(crate) fn with(started: EarlyStart, state_dir: PathBuf) -> Self {
        Self {
            host: Host::inspect(started.cgroups, Refused::detect(&started.binary)),
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

    /// Requests a sandbox, started anew or forked from a template, without waiting for its walls.
    pub(crate) fn spawn(&self, plan: Arc<Plan>, template: Option<Arc<Template>>) -> Result<Sandbox> {
        let ends = self.place(&plan, template.as_ref().map(|template| &template.ends))?;
        let sandbox = Sandbox::new(plan, ends, None, self.stuck.clone())?;
        Ok(Sandbox { template, ..sandbox })
    }

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

    fn place(&self, plan: &Plan, template: Option<&client::Template>) -> Result<client::SandboxEnds> {
        let mut helper = lock(&self.helper);
        let current = helper.as_ref().ok_or_else(closed)?;
        match current.start_sandbox(plan, template) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                tracing::error!(pid = current.pid(), "the helper is gone; starting another");
                if template.is_some() {
                    return Err(gone()); // the template is gone too
                }
            }
            placed => return placed.map_err(|error| fault("start a sandbox", &error)),
        }
        let next = Helper::start(&self.binary).map_err(|error| fault("start the helper", &error))?;
        let placed = next
            .start_sandbox(plan, template)
            .map_err(|error| fault("start a sandbox", &error));
        if let Some(dead) = helper.replace(next) {
            self.reap(Some(dead));
        }
        placed
    }

    /// Reaps a dead helper, and removes the cgroups and directories of its sandboxes, or of an earlier server's, in the
    /// background: all were killed with the helper or server, which takes the kernel a while.
    pub(crate) fn reap(&self, dead: Option<Helper>) {
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
            tracing::warn!("remains of killed sandboxes are still held");
        });
    }

    /// Disconnects from the helper, which then ends by itself and is reaped by a thread. False: this was done before.
    pub(crate) fn leave(&self) -> bool {
        let Some(helper) = self.take() else { return false };
        // Without a thread it stays a zombie until this process ends.
        let reaper = std::thread::Builder::new()
            .name("ringfence-end".to_owned())
            .spawn(move || end(helper));
        if let Err(error) = reaper {
            tracing::warn!(%error, "the helper ends, and is not waited for");
        }
        true
    }

    /// Ends the helper, and with it everything that still runs. False: this was done before.
    pub(crate) fn stop(&self) -> bool {
        self.take().map(end).is_some()
    }

    /// Takes the helper out, after which nothing can be started.
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

/// A sandbox before its claim. Dropping it ends the sandbox.
pub(crate) struct Sandbox {
    pub(crate) plan: Arc<Plan>,
    pub(crate) events: Events,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) report: OwnedFd,
    /// Held as long as the sandbox exists.
    pub(crate) template: Option<Arc<Template>>,
    /// None: the sandbox is native.
    pub(crate) container: Option<ContainerSide>,
    has_ended: AtomicBool,
}

/// The additional parts of a sandbox made by a container engine.
pub(crate) struct ContainerSide {
    pub(crate) facts: Arc<EngineFacts>,
    pub(crate) runner: Runner,
    /// Its network connections, until its egress takes them.
    pub(crate) arrivals: Option<Arrivals>,
}

pub(crate) enum EgressEnds {
    Sockets(EgressSockets),
    /// Connections forwarded by the agent in a container.
    Arrivals(Arrivals),
}

/// An interpreter that forks itself into the sandboxes made from it. It is kept as long as one of them exists.
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

    /// Waits until its walls are up and, in a template, its imports are done.
    pub(crate) async fn parked(&self) -> Result<(Imported, Vec<OwnedFd>)> {
        match self.events.receive().await? {
            (Event::Parked(imported), descriptors) => Ok((imported, descriptors)),
            _ => Err(gone()),
        }
    }

    /// Measures the host memory, in bytes, that the waiting sandbox uses by itself.
    pub(crate) async fn measure(&self) -> Result<u64> {
        wire::send(self.events.socket.as_fd(), &Order::Measure, &[])
            .map_err(|error| fault("measure a sandbox", &error))?;
        match self.events.receive().await? {
            (Event::Measured(bytes), _) => Ok(bytes),
            _ => Err(gone()),
        }
    }

    /// Returns true if it was made from this template; with `None`, if it was made from no template.
    pub(crate) fn is_made_from(&self, template: Option<&Arc<Template>>) -> bool {
        match (&self.template, template) {
            (Some(own), Some(template)) => Arc::ptr_eq(own, template),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns true if it is still parked. Any message from a parked sandbox means its end, and comes only once.
    pub(crate) fn is_parked(&self) -> bool {
        let socket = &self.events.socket;
        let received = socket.try_io(Interest::READABLE, || wire::receive::<Event>(socket.as_fd()));
        if !matches!(received, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        !self.has_ended.load(Ordering::Relaxed)
    }

    /// Claims it, ready or not, and waits until the program runs behind all walls. An error names the wall that could
    /// not be set up. The claim's parts point into `blobs`.
    pub(crate) async fn claim(
        mut self,
        claim: &Claim,
        blobs: &[impl AsRef<[u8]>],
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<Claimed, ClaimError> {
        let failed = |error, is_retryable| ClaimError { error, is_retryable };
        let is_sent = match client::claim(self.events.socket.as_fd(), claim, blobs) {
            Ok(()) => true,
            // It has ended, and has sent the reason.
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
            (Some(spec), None) if early.is_none() => {
                let descriptors = dirs.split_off(SANDBOX_DIRS.min(dirs.len()));
                let sockets = EgressSockets::from_descriptors(spec, descriptors);
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

/// A claimed sandbox in which the program runs, or that has ended before.
pub(crate) struct Claimed {
    pub(crate) sandbox: Sandbox,
    /// The time within which it has to end.
    patience: Duration,
    /// None: its end, `early`, was reported before the start of the program.
    pub(crate) dirs: Option<SandboxDirs>,
    /// None: the claim has no egress, or its native sandbox has ended.
    pub(crate) egress: Option<EgressEnds>,
    pub(crate) early: Option<Ending>,
}

pub(crate) struct Running {
    events: Events,
    patience: Duration,
    dirs: Option<SandboxDirs>,
    early: Option<Ending>,
    /// True: its streams end with it. Those of a container end by themselves: the other ends of the pipes belong to the
    /// server, and data in transit arrive after the end.
    ends_streams: bool,
    /// Signals the end to the readers of its streams.
    ended: watch::Sender<bool>,
    _stdin: Option<Attached<()>>,
    stdout: JoinHandle<CapturedStream>,
    stderr: JoinHandle<CapturedStream>,
    report: JoinHandle<Vec<u8>>,
    _template: Option<Arc<Template>>,
}

/// Everything that a process tree left; hostile.
#[derive(Debug)]
pub(crate) struct RawOutcome {
    pub(crate) ending: Ending,
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
    pub(crate) report: Vec<u8>,
    /// The directories of its files: changes and output. Dropping them releases the sandbox's disk.
    pub(crate) dirs: Option<SandboxDirs>,
    /// None: the sandbox goes on.
    pub(crate) hold: Option<Hold>,
    pub(crate) isolation: Isolation,
}

/// A sandbox that has ended. Dropping this removes its remains: namespaces, mounts, a cgroup, a directory of the host.
#[derive(Debug)]
pub(crate) struct Hold(#[expect(dead_code, reason = "held, not used")] UnixStream);

/// Descriptors of directories, which precede those of the egress.
const SANDBOX_DIRS: usize = 2;

#[derive(Debug)]
pub(crate) struct SandboxDirs {
    pub(crate) changes: OwnedFd,
    pub(crate) output: OwnedFd,
}

impl Claimed {
    /// Takes the sockets of its egress, if it is native and has one.
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
            Stdin::FromRequest if stdio.stdin_bytes.is_empty() => None, // closed here: an empty input
            _ => Some(pipe::Sender::from_owned_fd(sandbox.stdin).map_err(connect)?),
        };
        let sink = |stream| OutputSink::new(stream, &stdio, keep);
        let (stdout, stderr) = (sink(OutputStream::Stdout), sink(OutputStream::Stderr));
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

    /// Waits until the process tree has ended and its output is read.
    pub(crate) async fn wait(
        mut self,
        mut cancelled: watch::Receiver<bool>,
        isolation: Isolation,
    ) -> Result<RawOutcome> {
        let ending = match self.early {
            Some(ending) => ending,
            None => loop {
                let event = self.events.listen_within(self.patience, &mut cancelled).await?;
                if let RunEvent::Ended(ending) = event {
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

enum RunEvent {
    Running(Vec<OwnedFd>),
    Ended(Ending),
}

fn gone() -> RequestError {
    fault(
        "receive from the supervisor",
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
            "`ringfence doctor` checks the container engine; native sandboxes do not need it.",
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

/// The connection to the supervisor. tokio has no type for `SOCK_SEQPACKET`: its `UnixStream` is used for readiness
/// only, and messages go through [`wire`].
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

    /// Waits until the process tree has ended; other events are dropped.
    pub(crate) async fn ended(&self) -> Result<Ending> {
        loop {
            if let Event::Ended(ending) = self.next().await? {
                return Ok(ending);
            }
        }
    }

    pub(crate) async fn next(&self) -> Result<Event> {
        self.receive().await.map(|(event, _)| event)
    }

    /// Sends an order. If the supervisor is gone, its events show it.
    pub(crate) fn order(&self, order: &Order) {
        if let Err(error) = wire::send(self.socket.as_fd(), order, &[]) {
            tracing::debug!(%error, "an order to a supervisor that has ended");
        }
    }

    pub(crate) async fn receive(&self) -> Result<(Event, Vec<OwnedFd>)> {
        let socket = &self.socket;
        let failed = |error| fault("receive from the supervisor", &error);
        let mut reset = false;
        loop {
            socket.readable().await.map_err(failed)?;
            match socket.try_io(Interest::READABLE, || wire::receive::<Event>(socket.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A supervisor that ended before it read our claim resets the connection; its events are still there.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !reset => reset = true,
                Err(error) => return Err(failed(error)),
                Ok(None) => return Err(gone()),
                Ok(Some((Event::Failed(failure), _))) => return Err(refused(&failure)),
                Ok(Some(received)) => {
                    if matches!(&received.0, Event::Ended(ending) if ending.is_stuck) {
                        tracing::error!("a sandbox has not ended, though all of its processes were killed");
                        self.stuck.inc();
                    }
                    return Ok(received);
                }
            }
        }
    }

    /// Like [`Self::listen`], for at most `patience`. The supervisor itself enforces the program's time limit.
    async fn listen_within(
        &mut self,
        patience: Duration,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<RunEvent> {
        let event = timeout(patience, self.listen(cancelled)).await;
        event.unwrap_or_else(|_late| Err(self.report_stuck()))
    }

    /// Waits until the program runs. If its end comes first, it may have run, and must not be started again.
    async fn begun(
        &mut self,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Result<(Vec<OwnedFd>, Option<Ending>), NotBegun> {
        let Ok(event) = timeout(SILENCE_MAX, self.listen(cancelled)).await else {
            return Err(NotBegun::Silent(self.report_stuck()));
        };
        match event.map_err(NotBegun::Ended)? {
            RunEvent::Running(dirs) => Ok((dirs, None)),
            // Pid 1 has ended, and no limit was met.
            RunEvent::Ended(ending) if ending.cause == Cause::Killed => Err(NotBegun::Ended(gone())),
            RunEvent::Ended(ending) => Ok((Vec::new(), Some(ending))),
        }
    }

    fn report_stuck(&self) -> RequestError {
        tracing::error!("a supervisor does not answer");
        self.stuck.inc();
        fault("receive from the supervisor", &io::ErrorKind::TimedOut.into())
    }

    /// Waits until the program runs or has ended; meanwhile passes on a cancellation.
    async fn listen(&mut self, cancelled: &mut watch::Receiver<bool>) -> Result<RunEvent> {
        loop {
            let received = tokio::select! {
                received = self.receive() => received?,
                () = until_cancelled(cancelled), if !self.cancelled => {
                    self.cancelled = true;
                    self.order(&Order::Cancel);
                    continue;
                }
            };
            match received {
                (Event::Running, dirs) => return Ok(RunEvent::Running(dirs)),
                (Event::Ended(ending), _) => return Ok(RunEvent::Ended(ending)),
                // Replies to orders that only sessions send.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
