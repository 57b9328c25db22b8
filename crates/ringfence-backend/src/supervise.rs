//! The supervisor of one container: it has it created, receives orders and sends events as the jail's supervisors do,
//! enforces the limits of time and disk, forwards streams, and has the container removed when its server closes the
//! connection. Every byte from the agent is treated as an attacker's.

mod claimed;

use crate::{
    container::{self, ContainerSpec},
    egress::{self, Arrival, Arrivals},
    engine::{ContainerEngine, EngineFacts, Runner},
    error::EngineError,
    frame::{self, Decoder, Frame, Kind, ListenerKind, Used},
    run_directory::RunDirectory,
    stream::{Incoming, Outgoing, ToAgent, send_frame, write_frames},
};
use bollard::{
    container::LogOutput,
    query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder},
};
use claimed::Running;
use futures_util::{Stream, StreamExt};
use ringfence_jail::{
    Program,
    client::{self, Pipes, SandboxEnds, SupervisorEnds},
    wire::{self, Cause, Ending, Event, Failure, Imported, Order, Usage},
};
use std::{
    collections::HashMap,
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncWrite, Interest},
    net::{UnixStream, unix::pipe},
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::{Instant, interval, sleep_until, timeout},
};

/// From the request for a container to the first frame of its agent.
const START_MAX: Duration = Duration::from_secs(30);
/// Interval of the heartbeats to the agent, which gives up without several of them.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Time for which the streams of an ended tree are still read.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of disk checks while a program runs.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// From the order to kill everything to the removal of the container itself.
const KILL_TIMEOUT: Duration = Duration::from_secs(6);
/// Maximum logged bytes of a message on an agent's standard error.
const STDERR_BYTES_MAX: usize = 1 << 10;

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
type Input = Pin<Box<dyn AsyncWrite + Send>>;

impl ContainerEngine {
    /// Requests a container, in the Tokio runtime of the caller. It is created in the background.
    pub fn new_container(self: &Arc<Self>, spec: Arc<ContainerSpec>) -> io::Result<(SandboxEnds, Arrivals)> {
        let (ends, SupervisorEnds { server, pipes }) = client::ends()?;
        let (out, arrivals) = egress::arrivals();
        let server = std::os::unix::net::UnixStream::from(server);
        server.set_nonblocking(true)?;
        let supervisor = Supervisor {
            server: UnixStream::from_std(server)?,
            pipes: Some(pipes),
            engine: self.clone(),
            spec,
            out,
            name: format!("ringfence-{}", uuid::Uuid::now_v7()),
        };
        self.container_began();
        tokio::spawn(supervisor.run());
        Ok((ends, arrivals))
    }
}

struct Supervisor {
    server: UnixStream,
    pipes: Option<Pipes>,
    engine: Arc<ContainerEngine>,
    spec: Arc<ContainerSpec>,
    out: mpsc::Sender<Arrival>,
    name: String,
}

/// A container whose agent is ready, and the connection to it.
struct Made {
    directory: Arc<RunDirectory>,
    facts: Arc<EngineFacts>,
    from: FromAgent,
    input: Input,
}

impl Supervisor {
    async fn run(mut self) {
        let directory = match self.make().await {
            Ok(made) => {
                let directory = made.directory.clone();
                self.supervise(made).await;
                self.engine.remove(&self.name).await;
                Some(directory)
            }
            Err((error, directory)) => {
                self.send_event(&Event::Failed(error.failure()), &[]);
                self.engine.remove(&self.name).await;
                // An engine that hangs may have got the request, and may create it later.
                self.engine.clean();
                directory
            }
        };
        // A program may have filled it, so that its removal takes time.
        drop(tokio::task::spawn_blocking(move || drop(directory)).await);
        self.engine.container_ended();
    }

    fn send_event(&self, event: &Event, descriptors: &[BorrowedFd<'_>]) {
        // The end of the server is noticed when its next order is read.
        if let Err(error) = wire::send(self.server.as_fd(), event, descriptors) {
            tracing::debug!(%error, "cannot send an event: the server is gone");
        }
    }

    /// Creates the container and waits for its agent.
    async fn make(&self) -> Result<Made, (EngineError, Option<Arc<RunDirectory>>)> {
        let failed = |error| (EngineError::refused("make its directory", error), None);
        let directory = self.directory().map_err(failed)?;
        let made = timeout(START_MAX, self.make_in(&directory)).await;
        let late = EngineError::Unreachable {
            socket: self.engine.socket(),
            why: format!("a container took more than {} s to start", START_MAX.as_secs()),
        };
        made.unwrap_or(Err(late))
            .map_err(|error| (error, Some(directory)))
    }

    fn directory(&self) -> io::Result<Arc<RunDirectory>> {
        let settings = &self.engine.settings;
        let runs = settings.state_dir.join(ringfence_jail::RUNS);
        RunDirectory::create(&runs, &self.name, settings.user.next(), egress::RESOLVER).map(Arc::new)
    }

    async fn make_in(&self, directory: &Arc<RunDirectory>) -> Result<Made, EngineError> {
        let engine = &self.engine;
        let facts = engine.ready(self.spec.runner).await?;
        if facts.remaps_users {
            let opened = directory.make_world_writable();
            opened.map_err(|error| EngineError::refused("open its directory", error))?;
        }
        let body = container::describe(engine, &facts, &self.spec, directory);
        let named = CreateContainerOptionsBuilder::new().name(&self.name).build();
        engine
            .request(
                "create a container",
                engine.docker.create_container(Some(named), body),
            )
            .await?;
        if self.spec.runner == Runner::Gvisor {
            engine.check_gvisor(&self.name).await?;
        }
        let options = AttachContainerOptionsBuilder::new()
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .stream(true);
        let attach = engine.docker.attach_container(&self.name, Some(options.build()));
        let attached = engine.request("attach to a container", attach).await?;
        engine
            .request(
                "start a container",
                engine.docker.start_container(&self.name, None),
            )
            .await?;
        let mut made = Made {
            directory: directory.clone(),
            facts,
            from: FromAgent {
                output: attached.output,
                decoder: Decoder::default(),
            },
            input: attached.input,
        };
        let why = match made.from.next_frame().await {
            Ok(Some(frame)) if frame.kind == Kind::Ready => return Ok(made),
            Ok(Some(frame)) => failure_of(frame.kind, &frame.payload).to_string(),
            Ok(None) => "it ended immediately".to_owned(),
            Err(why) => why,
        };
        Err(EngineError::refused("start the agent", why))
    }

    /// Serves the container from its agent's first frame until the server closes the connection.
    async fn supervise(&mut self, made: Made) {
        let Some(pipes) = self.pipes.take() else { return };
        let mut tasks = JoinSet::new();
        let (mut supervised, mut from) = match Supervised::connect(self, made, pipes, &mut tasks) {
            Ok(connected) => connected,
            Err(error) => {
                let failure = Failure::new("connect the container's streams", &error);
                return self.send_event(&Event::Failed(failure), &[]);
            }
        };
        supervised.begin();
        match supervised.serve(&mut from, &mut tasks).await {
            Ok(ending) => self.send_event(&Event::Ended(ending), &[]),
            Err(failure) => self.send_event(&Event::Failed(failure), &[]),
        }
        if !supervised.end_is_reported {
            // Its state is unknown: it is removed now, even if its streams are still open.
            supervised.incoming.clear();
            self.engine.remove(&self.name).await;
        }
        supervised.drain(&mut from, &mut tasks).await;
    }
}

struct FromAgent {
    output: Output,
    decoder: Decoder,
}

impl FromAgent {
    async fn next_frame(&mut self) -> Result<Option<Frame>, String> {
        loop {
            let frame = self.decoder.next();
            if let Some(frame) = frame.map_err(|_| "the agent sent a malformed frame".to_owned())? {
                return Ok(Some(frame));
            }
            match self.output.next().await {
                Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => {
                    self.decoder.push(&message)
                }
                Some(Ok(LogOutput::StdErr { message })) => {
                    let message = &message[..message.len().min(STDERR_BYTES_MAX)];
                    let text = String::from_utf8_lossy(message);
                    tracing::debug!(text = text.escape_debug().to_string(), "a container says");
                }
                Some(Ok(LogOutput::StdIn { .. })) => {}
                Some(Err(error)) => return Err(error.to_string()),
                None => return Ok(None),
            }
        }
    }
}

/// Returns the failure that an agent reports; a frame of another kind is a failure of its own.
fn failure_of(kind: Kind, payload: &[u8]) -> Failure {
    if kind != Kind::Failed {
        return Failure::other("receive from the agent", format!("unexpected {kind:?}"));
    }
    let errno = i32::try_from(frame::number(payload)).unwrap_or(0);
    let step = payload.get(4..).unwrap_or_default();
    let step: String = String::from_utf8_lossy(step)
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    Failure::new(step, &io::Error::from_raw_os_error(errno))
}

struct Supervised<'a> {
    supervisor: &'a Supervisor,
    directory: Arc<RunDirectory>,
    agent: ToAgent,
    incoming: HashMap<u32, Incoming>,
    outgoing: HashMap<u32, Outgoing>,
    /// Facts of the engine when it created the container.
    facts: Arc<EngineFacts>,
    /// True once the agent has reported the end of the tree.
    end_is_reported: bool,
    /// True once a claim can take effect.
    is_ready: bool,
    claim: Option<(u64, File)>,
    running: Option<Running>,
    /// Numbers of a session's latest account orders, by the number that the agent was sent.
    accounts: HashMap<u32, u64>,
    last_account: u32,
}

/// Reasons for the end of [`Supervised::serve`].
enum End {
    /// The agent has reported the end of the tree.
    Reported(Used),
    /// The agent is gone, or has not ended the tree in time.
    Lost,
    /// The server is gone, or has cancelled before anything has run.
    Cancelled,
}

impl<'a> Supervised<'a> {
    fn connect(
        supervisor: &'a Supervisor,
        made: Made,
        pipes: Pipes,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<(Self, FromAgent)> {
        let (agent, frames) = ToAgent::new();
        tasks.spawn(write_frames(made.input, frames));
        let mut this = Self {
            supervisor,
            directory: made.directory,
            agent,
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            facts: made.facts,
            end_is_reported: false,
            is_ready: false,
            claim: None,
            running: None,
            accounts: HashMap::new(),
            last_account: 0,
        };
        let given = Outgoing::new();
        this.outgoing.insert(frame::STDIN, given.clone());
        let (stdin, agent) = (pipe::Receiver::from_owned_fd(pipes.stdin)?, this.agent.clone());
        tasks.spawn(async move { drop(given.send_from(frame::STDIN, stdin, agent).await) });
        for (number, pipe) in [
            (frame::STDOUT, pipes.stdout),
            (frame::STDERR, pipes.stderr),
            (frame::REPORT, pipes.report),
        ] {
            let (incoming, end) = Incoming::new();
            this.incoming.insert(number, incoming);
            let (pipe, agent) = (pipe::Sender::from_owned_fd(pipe)?, this.agent.clone());
            tasks.spawn(async move { drop(end.write_to(number, pipe, agent).await) });
        }
        Ok((this, made.from))
    }

    /// Starts the program that waits for its claim, or reports that a claim can be made.
    fn begin(&mut self) {
        match &self.supervisor.spec.program {
            Program::Ahead { argv, environment } => {
                let spec = frame::Spec {
                    argv: argv.clone(),
                    environment: environment.clone(),
                    report: true,
                    ..frame::Spec::default()
                };
                self.send_spec(&spec, Kind::Ahead);
            }
            _ => self.parked(Imported::default()),
        }
    }

    fn parked(&mut self, imported: Imported) {
        self.is_ready = true;
        self.supervisor.send_event(&Event::Parked(imported), &[]);
    }

    fn send_spec(&self, spec: &frame::Spec, kind: Kind) {
        for chunk in spec.encode().chunks(frame::PAYLOAD_BYTES_MAX) {
            send_frame(&self.agent, Kind::Spec, 0, chunk);
        }
        send_frame(&self.agent, kind, 0, &[]);
    }

    /// Handles frames, orders and deadlines until the tree has ended.
    async fn serve(&mut self, from: &mut FromAgent, tasks: &mut JoinSet<()>) -> Result<Ending, Failure> {
        let (mut heartbeat, mut disk_check) = (interval(HEARTBEAT_INTERVAL), interval(DISK_CHECK_INTERVAL));
        // A walk over many files takes long; orders and deadlines are handled meanwhile.
        let mut counting: Option<JoinHandle<u64>> = None;
        let end = loop {
            if self.is_ready
                && let Some((bytes, payload)) = self.claim.take()
            {
                self.apply_claim(bytes, payload).await?;
            }
            let deadline = self.running.as_ref().map(Running::deadline);
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                frame = from.next_frame() => match frame {
                    Ok(Some(frame)) => if let Some(used) = self.handle_frame(frame, tasks)? {
                        break End::Reported(used);
                    },
                    Ok(None) => break End::Lost,
                    Err(detail) => {
                        tracing::warn!(detail, "a container is lost");
                        break End::Lost;
                    }
                },
                order = next_order(&self.supervisor.server) => match order {
                    Some((order, descriptors)) => if let Some(end) = self.handle_order(order, descriptors).await {
                        break end;
                    },
                    None => break End::Cancelled,
                },
                () = sleep_until(deadline.unwrap_or(far)), if deadline.is_some() => if self.handle_deadline() {
                    break End::Lost;
                },
                _ = heartbeat.tick() => send_frame(&self.agent, Kind::Credit, frame::STDERR, &0_u32.to_le_bytes()),
                _ = disk_check.tick(), if counting.is_none() && self.needs_disk_check() => {
                    counting = Some(self.count_disk());
                },
                counted = async { counting.as_mut()?.await.ok() }, if counting.is_some() => {
                    counting = None;
                    self.check_disk(counted.unwrap_or_default());
                },
                Some(_) = tasks.join_next() => {}
            }
        };
        self.end_is_reported = matches!(end, End::Reported(_));
        Ok(self.ending(end))
    }

    fn ending(&self, end: End) -> Ending {
        let (otherwise, used) = match end {
            End::Reported(used) if used.out_of_memory => (Cause::OutOfMemory, Some(used)),
            End::Reported(used) => (Cause::Program, Some(used)),
            End::Lost => (Cause::Killed, None),
            End::Cancelled => (Cause::Cancelled, None),
        };
        let cause = self.running.as_ref().and_then(|running| running.cause);
        let cause = cause.unwrap_or(otherwise);
        let disk_bytes = self.disk_bytes();
        let unknown = Usage {
            disk_bytes,
            ..Usage::default()
        };
        Ending {
            cause,
            status: used.filter(|_| cause == Cause::Program).map(|used| used.status),
            usage: used.map_or(unknown, |used| usage(&used, disk_bytes)),
            is_stuck: false,
        }
    }

    /// Reads the streams of an ended tree to their ends, until the server closes the connection.
    async fn drain(&mut self, from: &mut FromAgent, tasks: &mut JoinSet<()>) {
        let mut lives = true;
        let by = Instant::now() + STREAMS_TIMEOUT;
        loop {
            tokio::select! {
                frame = from.next_frame(), if lives => match frame {
                    Ok(Some(frame)) => lives = self.handle_frame(frame, tasks).is_ok(),
                    _ => lives = false,
                },
                order = next_order(&self.supervisor.server) => match order {
                    None => return,
                    Some((Order::Cancel, _)) => lives = false,
                    Some(_) => {}
                },
                () = sleep_until(by), if lives => lives = false,
                Some(_) = tasks.join_next() => {}
            }
            if !lives {
                // Their readers see the end of file.
                self.incoming.clear();
            }
        }
    }

    fn fault(&self, detail: &str) -> Failure {
        Failure::other("receive from the agent", detail)
    }

    /// Handles one frame. Returns the usage if it reports the end of the tree.
    fn handle_frame(&mut self, frame: Frame, tasks: &mut JoinSet<()>) -> Result<Option<Used>, Failure> {
        let Frame {
            kind,
            stream,
            payload,
        } = frame;
        match kind {
            Kind::Data => {
                if let Some(incoming) = self.incoming.get(&stream) {
                    let taken = incoming.take(payload);
                    taken.map_err(|_| self.fault("it sent more than its window allows"))?;
                }
            }
            Kind::Credit => {
                if let Some(outgoing) = self.outgoing.get(&stream) {
                    outgoing.credit(frame::number(&payload));
                }
            }
            Kind::Close => drop(self.incoming.remove(&stream)),
            Kind::Reset => {
                self.incoming.remove(&stream);
                if let Some(outgoing) = self.outgoing.remove(&stream) {
                    outgoing.close();
                }
            }
            Kind::Open => self.open(stream, &payload, tasks)?,
            Kind::Query => self.query_names(stream, payload, tasks),
            Kind::Imported if !self.is_ready => {
                // The program is ready even if its report is malformed.
                self.parked(serde_json::from_slice(&payload).unwrap_or_default());
            }
            Kind::Running => self.program_runs()?,
            Kind::Listens => self.listens(stream, &payload)?,
            Kind::Used | Kind::Ended => {
                let used = Used::decode(&payload).map_err(|_| self.fault("its usage report is malformed"))?;
                if kind == Kind::Ended {
                    return Ok(Some(used));
                }
                if let Some(number) = self.accounts.remove(&stream) {
                    let event = Event::Account(number, usage(&used, self.disk_bytes()));
                    self.supervisor.send_event(&event, &[]);
                }
            }
            _ => return Err(failure_of(kind, &payload)),
        }
        Ok(None)
    }

    /// Handles the answer to a [`Kind::Listen`] of a claim or of a session's order.
    fn listens(&self, number: u32, payload: &[u8]) -> Result<(), Failure> {
        let failed = (!payload.is_empty()).then(|| failure_of(Kind::Failed, payload));
        match (number, failed) {
            (claimed::OF_CLAIM, Some(failure)) => return Err(failure),
            (claimed::OF_CLAIM, None) => {}
            (_, Some(failure)) => self.supervisor.send_event(&Event::EgressNotOpened(failure), &[]),
            (_, None) => self.supervisor.send_event(&Event::EgressOpened, &[]),
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.disk_bytes)
    }

    /// Accepts a connection of the program: its bytes go to a socket of this host, whose other end is served.
    fn open(&mut self, stream: u32, payload: &[u8], tasks: &mut JoinSet<()>) -> Result<(), Failure> {
        let [kind, low, high, a, b, c, d] = *payload else {
            return Err(self.fault("its connection is malformed"));
        };
        let kind = ListenerKind::from_byte(kind).ok_or_else(|| self.fault("its connection is malformed"))?;
        let is_new = stream >= frame::CONNECTION_FIRST && !self.outgoing.contains_key(&stream);
        if !is_new {
            return Err(self.fault("it opened a connection twice"));
        }
        let is_program = |number: &u32| *number < frame::CONNECTION_FIRST;
        self.incoming
            .retain(|number, incoming| is_program(number) || !incoming.is_closed());
        self.outgoing
            .retain(|number, outgoing| is_program(number) || !outgoing.is_closed());
        if self.outgoing.len().max(self.incoming.len()) > frame::CONNECTIONS_MAX {
            return Err(self.fault("it opened too many connections"));
        }
        let destination = SocketAddr::from((Ipv4Addr::new(a, b, c, d), u16::from_le_bytes([low, high])));
        let (incoming, end) = Incoming::new();
        let outgoing = Outgoing::new();
        self.incoming.insert(stream, incoming);
        self.outgoing.insert(stream, outgoing.clone());
        let ended = outgoing.clone();
        let (agent, out) = (self.agent.clone(), self.supervisor.out.clone());
        tasks.spawn(async move {
            let forwarded = async {
                let (theirs, ours) = egress::pair().await?;
                let arrival = Arrival::Connection {
                    kind,
                    destination,
                    stream: theirs,
                };
                out.try_send(arrival)
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                let (reader, writer) = ours.into_split();
                let there = end.write_to(stream, writer, agent.clone());
                let back = outgoing.send_from(stream, reader, agent.clone());
                tokio::try_join!(there, back).map(drop)
            };
            let is_broken = forwarded.await.is_err();
            ended.close();
            if is_broken {
                send_frame(&agent, Kind::Reset, stream, &[]);
            }
        });
        Ok(())
    }

    fn query_names(&self, number: u32, query: Vec<u8>, tasks: &mut JoinSet<()>) {
        let (answer, answered) = oneshot::channel();
        let sent = self.supervisor.out.try_send(Arrival::Question { query, answer });
        if sent.is_err() {
            return; // a resolver repeats its query
        }
        let agent = self.agent.clone();
        tasks.spawn(async move {
            if let Ok(Some(answer)) = answered.await {
                send_frame(&agent, Kind::Answer, number, &answer);
            }
        });
    }
}

fn usage(used: &Used, disk_bytes: u64) -> Usage {
    Usage {
        cpu_user: Duration::from_micros(used.user_us),
        cpu_system: Duration::from_micros(used.system_us),
        memory_peak_bytes: used.memory_peak_kib.saturating_mul(1024),
        processes_peak: Some(used.processes_peak),
        disk_bytes,
        workspace: None,
        unrouted: used.unrouted,
    }
}

/// Reads the server's next order; `None`: the server is gone.
async fn next_order(server: &UnixStream) -> Option<(Order, Vec<OwnedFd>)> {
    loop {
        server.readable().await.ok()?;
        match server.try_io(Interest::READABLE, || wire::receive::<Order>(server.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received.ok().flatten(),
        }
    }
}
