//! The supervisor of one container: it has the container made, hears orders and tells events as the jail's supervisors
//! do, keeps the clock and the disk, passes streams on, and has the container removed when its server lets go of it.
//! Every byte from the agent is taken for an attacker's.

mod claimed;

use crate::{
    container::{self, ContainerSpec},
    egress::{self, Arrival, Arrivals},
    engine::{ContainerEngine, EngineFacts, Runner},
    error::EngineError,
    frame::{self, Decoder, Frame, Kind, ListenerKind, Used},
    run_directory::RunDirectory,
    stream::{Incoming, Outgoing, ToAgent, tell, write_frames},
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
    task::JoinSet,
    time::{Instant, interval, sleep_until, timeout},
};

/// From the wish for a container to the first word of its agent.
const START: Duration = Duration::from_secs(30);
/// How often the agent hears that its server lives; it gives up after several without.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How long the streams of a tree that has ended are read.
const STREAMS: Duration = Duration::from_secs(60);
/// How often the disk is looked at while a program runs.
const LOOK: Duration = Duration::from_millis(200);
/// After the order to kill everything, until the container itself is removed.
const DEATH: Duration = Duration::from_secs(6);
/// Of what an agent writes on its standard error.
const COMPLAINT_BYTES_MAX: usize = 1 << 10;

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
type Input = Pin<Box<dyn AsyncWrite + Send>>;

impl ContainerEngine {
    /// Asks for a container, in the runtime that this is called in. It is made meanwhile.
    pub fn place(self: &Arc<Self>, spec: Arc<ContainerSpec>) -> io::Result<(SandboxEnds, Arrivals)> {
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
        self.began();
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
                self.say(&Event::Failed(error.failure()), &[]);
                self.engine.remove(&self.name).await;
                // An engine that hangs may have been told to make it, and do so when it wakes.
                self.engine.clean();
                directory
            }
        };
        // A program may have left it full.
        drop(tokio::task::spawn_blocking(move || drop(directory)).await);
        self.engine.ended();
    }

    fn say(&self, event: &Event, descriptors: &[BorrowedFd<'_>]) {
        // A server that is gone shows when it is listened to.
        if let Err(error) = wire::send(self.server.as_fd(), event, descriptors) {
            tracing::debug!(%error, "an event for a server that is gone");
        }
    }

    /// Makes the container and waits for its agent.
    async fn make(&self) -> Result<Made, (EngineError, Option<Arc<RunDirectory>>)> {
        let failed = |error| (EngineError::refused("make its directory", error), None);
        let directory = self.directory().map_err(failed)?;
        let made = timeout(START, self.make_in(&directory)).await;
        let late = EngineError::Unreachable {
            socket: self.engine.socket(),
            why: format!("a container took more than {} s to start", START.as_secs()),
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
            let opened = directory.open_to_all();
            opened.map_err(|error| EngineError::refused("open its directory", error))?;
        }
        let body = container::describe(engine, &facts, &self.spec, directory);
        let named = CreateContainerOptionsBuilder::new().name(&self.name).build();
        engine
            .ask(
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
        let attached = engine.ask("attach to a container", attach).await?;
        engine
            .ask(
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
            Ok(None) => "it has ended at once".to_owned(),
            Err(why) => why,
        };
        Err(EngineError::refused("start the agent", why))
    }

    /// From the agent's first word to the moment when the server lets go.
    async fn supervise(&mut self, made: Made) {
        let Some(pipes) = self.pipes.take() else { return };
        let mut tasks = JoinSet::new();
        let (mut live, mut from) = match Supervised::connect(self, made, pipes, &mut tasks) {
            Ok(connected) => connected,
            Err(error) => {
                let failure = Failure::new("connect the container's streams", &error);
                return self.say(&Event::Failed(failure), &[]);
            }
        };
        live.begin();
        match live.serve(&mut from, &mut tasks).await {
            Ok(ending) => self.say(&Event::Ended(ending), &[]),
            Err(failure) => self.say(&Event::Failed(failure), &[]),
        }
        if !live.is_told {
            // Nothing is known of it: it goes now, whatever holds its streams.
            live.incoming.clear();
            self.engine.remove(&self.name).await;
        }
        live.linger(&mut from, &mut tasks).await;
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
            if let Some(frame) = frame.map_err(|_| "the agent sent what is no frame".to_owned())? {
                return Ok(Some(frame));
            }
            match self.output.next().await {
                Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => {
                    self.decoder.push(&message)
                }
                Some(Ok(LogOutput::StdErr { message })) => {
                    let message = &message[..message.len().min(COMPLAINT_BYTES_MAX)];
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

/// What an agent says that it could not do.
fn failure_of(kind: Kind, payload: &[u8]) -> Failure {
    if kind != Kind::Failed {
        return Failure::other("hear from the agent", format!("{kind:?} came out of turn"));
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

/// One container that is supervised.
struct Supervised<'a> {
    supervisor: &'a Supervisor,
    directory: Arc<RunDirectory>,
    agent: ToAgent,
    incoming: HashMap<u32, Incoming>,
    outgoing: HashMap<u32, Outgoing>,
    /// What its engine was when it was made.
    facts: Arc<EngineFacts>,
    /// Whether the agent has told the end of the tree.
    is_told: bool,
    /// Whether a claim may take effect.
    is_up: bool,
    claim: Option<(u64, File)>,
    running: Option<Running>,
    /// What a session has asked for last.
    accounts: HashMap<u32, u64>,
    asked: u32,
}

/// What ends [`Supervised::serve`].
enum End {
    /// The tree has ended, the agent says.
    Told(Used),
    /// The agent is gone.
    Lost,
    /// The server is gone, or wants it no more, before anything has run.
    Left,
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
        let mut live = Self {
            supervisor,
            directory: made.directory,
            agent,
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            facts: made.facts,
            is_told: false,
            is_up: false,
            claim: None,
            running: None,
            accounts: HashMap::new(),
            asked: 0,
        };
        let given = Outgoing::new();
        live.outgoing.insert(frame::STDIN, given.clone());
        let (stdin, agent) = (pipe::Receiver::from_owned_fd(pipes.stdin)?, live.agent.clone());
        tasks.spawn(async move { drop(given.fill(frame::STDIN, stdin, agent).await) });
        for (number, pipe) in [
            (frame::STDOUT, pipes.stdout),
            (frame::STDERR, pipes.stderr),
            (frame::REPORT, pipes.report),
        ] {
            let (incoming, end) = Incoming::new();
            live.incoming.insert(number, incoming);
            let (pipe, agent) = (pipe::Sender::from_owned_fd(pipe)?, live.agent.clone());
            tasks.spawn(async move { drop(end.pour(number, pipe, agent).await) });
        }
        Ok((live, made.from))
    }

    /// Starts the program that waits for its claim, or says that a claim may come.
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
        self.is_up = true;
        self.supervisor.say(&Event::Parked(imported), &[]);
    }

    fn send_spec(&self, spec: &frame::Spec, kind: Kind) {
        for chunk in spec.encode().chunks(frame::PAYLOAD_BYTES_MAX) {
            tell(&self.agent, Kind::Spec, 0, chunk);
        }
        tell(&self.agent, kind, 0, &[]);
    }

    /// Until the tree has ended.
    async fn serve(&mut self, from: &mut FromAgent, tasks: &mut JoinSet<()>) -> Result<Ending, Failure> {
        let (mut heartbeat, mut look) = (interval(HEARTBEAT), interval(LOOK));
        let end = loop {
            if self.is_up
                && let Some((bytes, payload)) = self.claim.take()
            {
                self.bind(bytes, payload).await?;
            }
            let alarm = self.running.as_ref().map(Running::alarm);
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                frame = from.next_frame() => match frame {
                    Ok(Some(frame)) => if let Some(used) = self.hear(frame, tasks)? {
                        break End::Told(used);
                    },
                    Ok(None) => break End::Lost,
                    Err(detail) => {
                        tracing::warn!(detail, "a container is lost");
                        break End::Lost;
                    }
                },
                order = next_order(&self.supervisor.server) => match order {
                    Some((order, descriptors)) => if let Some(end) = self.obey(order, descriptors).await {
                        break end;
                    },
                    None => break End::Left,
                },
                () = sleep_until(alarm.unwrap_or(far)), if alarm.is_some() => if self.ring() {
                    break End::Lost;
                },
                _ = heartbeat.tick() => tell(&self.agent, Kind::Credit, frame::STDERR, &0_u32.to_le_bytes()),
                _ = look.tick(), if self.running.as_ref().is_some_and(Running::wants_look) => self.look().await,
                Some(_) = tasks.join_next() => {}
            }
        };
        self.is_told = matches!(end, End::Told(_));
        Ok(self.ending(end))
    }

    /// What the end of a tree is called.
    fn ending(&self, end: End) -> Ending {
        let (otherwise, used) = match end {
            End::Told(used) if used.out_of_memory => (Cause::OutOfMemory, Some(used)),
            End::Told(used) => (Cause::Program, Some(used)),
            End::Lost => (Cause::Killed, None),
            End::Left => (Cause::Cancelled, None),
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

    /// The tree has ended; its streams are read to their ends, until the server lets go.
    async fn linger(&mut self, from: &mut FromAgent, tasks: &mut JoinSet<()>) {
        let mut lives = true;
        let by = Instant::now() + STREAMS;
        loop {
            tokio::select! {
                frame = from.next_frame(), if lives => match frame {
                    Ok(Some(frame)) => lives = self.hear(frame, tasks).is_ok(),
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
                // Their readers see their ends.
                self.incoming.clear();
            }
        }
    }

    fn fault(&self, detail: &str) -> Failure {
        Failure::other("hear from the agent", detail)
    }

    /// One frame; of the end of the tree, what it used.
    fn hear(&mut self, frame: Frame, tasks: &mut JoinSet<()>) -> Result<Option<Used>, Failure> {
        let Frame {
            kind,
            stream,
            payload,
        } = frame;
        match kind {
            Kind::Data => {
                if let Some(incoming) = self.incoming.get(&stream) {
                    let taken = incoming.take(payload);
                    taken.map_err(|_| self.fault("it sent more than there is room for"))?;
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
            Kind::Query => self.question(stream, payload, tasks),
            Kind::Imported if !self.is_up => {
                // Whatever it says, it is there.
                self.parked(serde_json::from_slice(&payload).unwrap_or_default());
            }
            Kind::Running => self.program_runs()?,
            Kind::Listens => self.listens(stream, &payload)?,
            Kind::Used | Kind::Ended => {
                let used = Used::decode(&payload).map_err(|_| self.fault("its account makes no sense"))?;
                if kind == Kind::Ended {
                    return Ok(Some(used));
                }
                if let Some(asked) = self.accounts.remove(&stream) {
                    let event = Event::Account(asked, usage(&used, self.disk_bytes()));
                    self.supervisor.say(&event, &[]);
                }
            }
            _ => return Err(failure_of(kind, &payload)),
        }
        Ok(None)
    }

    /// An answer to [`Kind::Listen`]: of a claim, or of a session's order.
    fn listens(&self, asked: u32, payload: &[u8]) -> Result<(), Failure> {
        let failed = (!payload.is_empty()).then(|| failure_of(Kind::Failed, payload));
        match (asked, failed) {
            (claimed::OF_CLAIM, Some(failure)) => return Err(failure),
            (claimed::OF_CLAIM, None) => {}
            (_, Some(failure)) => self.supervisor.say(&Event::EgressNotOpened(failure), &[]),
            (_, None) => self.supervisor.say(&Event::EgressOpened, &[]),
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.disk_bytes)
    }

    /// A connection of the program: its bytes go to a socket of this host, whose other end is served.
    fn open(&mut self, stream: u32, payload: &[u8], tasks: &mut JoinSet<()>) -> Result<(), Failure> {
        let [kind, low, high, a, b, c, d] = *payload else {
            return Err(self.fault("its connection makes no sense"));
        };
        let kind =
            ListenerKind::from_byte(kind).ok_or_else(|| self.fault("its connection makes no sense"))?;
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
        let meant = SocketAddr::from((Ipv4Addr::new(a, b, c, d), u16::from_le_bytes([low, high])));
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
                    meant,
                    stream: theirs,
                };
                out.try_send(arrival)
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                let (said, says) = ours.into_split();
                let there = end.pour(stream, says, agent.clone());
                let back = outgoing.fill(stream, said, agent.clone());
                tokio::try_join!(there, back).map(drop)
            };
            let is_broken = forwarded.await.is_err();
            ended.close();
            if is_broken {
                tell(&agent, Kind::Reset, stream, &[]);
            }
        });
        Ok(())
    }

    fn question(&self, number: u32, query: Vec<u8>, tasks: &mut JoinSet<()>) {
        let (answer, answered) = oneshot::channel();
        let asked = self.supervisor.out.try_send(Arrival::Question { query, answer });
        if asked.is_err() {
            return; // a resolver asks again
        }
        let agent = self.agent.clone();
        tasks.spawn(async move {
            if let Ok(Some(answer)) = answered.await {
                tell(&agent, Kind::Answer, number, &answer);
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

/// The server's next order; none: it is gone.
async fn next_order(server: &UnixStream) -> Option<(Order, Vec<OwnedFd>)> {
    loop {
        server.readable().await.ok()?;
        match server.try_io(Interest::READABLE, || wire::receive::<Order>(server.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received.ok().flatten(),
        }
    }
}
