//! The engine's door: what a front end holds. A submitted request is a task of the engine's own, so that a caller who
//! hangs up loses nothing.

use crate::{
    approval::Approvals,
    backend::Native,
    check::{self, Checkers},
    egress::Egress,
    events::{Bus, Event, Hears, Subscriber},
    execute::{self, Executed},
    log_redactor::LogRedactor,
    meters::Meters,
    overlay::HeldChanges,
    packages::{self, Packages},
    picture::{self, Picture},
    policy::{Approved, Standing, decide},
    prepare,
    queue::Queue,
    record::{Note, Record},
    runtimes, sandbox,
    secrets::Redactors,
    session::Sessions,
    settings::{EngineSettings, PolicySettings},
    store,
    warm::{self, Pools},
    workspaces::Workspaces,
};
use ringfence_jail::cgroup;
use ringfence_redact::{Forms, Redactor};
use ringfence_store::{
    artifacts::ArtifactStore,
    audit::{Action, Outcome},
    snapshots::SnapshotStore,
    vault::Vault,
};
use ringfence_types::{
    ErrorCode, ExecuteRequest, ExecutionResult, Isolation, Language, Limits, Namespace, RequestError,
    SessionId, Tier,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncRead,
    sync::{Notify, OnceCell, Semaphore, mpsc, oneshot, watch},
};

/// A running engine; clones share it.
#[derive(Clone)]
pub struct Engine {
    house: Arc<House>,
}

/// Everything a request needs on its way.
pub(crate) struct House {
    pub(crate) settings: EngineSettings,
    pub(crate) native: Native,
    pub(crate) queue: Queue,
    pub(crate) pools: Pools,
    pub(crate) checkers: Checkers,
    /// Workers that may redraw pictures now.
    pub(crate) pictures: Semaphore,
    pub(crate) bus: Bus,
    pub(crate) meters: Meters,
    pub(crate) record: Record,
    /// Shared with whoever writes the log.
    pub(crate) vault: Arc<Vault>,
    pub(crate) artifacts: ArtifactStore,
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) workspaces: Workspaces,
    pub(crate) packages: Packages,
    pub(crate) egress: Egress,
    pub(crate) redactors: Redactors,
    pub(crate) sessions: Sessions,
    pub(crate) approvals: Approvals,
    /// For requests without secrets.
    pub(crate) personal: Redactor,
    /// Which engine wrote a record.
    pub(crate) id: String,
    /// Directories of the host that no program is ever shown: keys and the record lie in them.
    pub(crate) private: Vec<PathBuf>,
    policy: RwLock<Arc<PolicySettings>>,
    /// What namespaces have given up of their limits.
    pub(crate) narrowed: Mutex<HashMap<Namespace, Limits>>,
    has_said_goodbye: AtomicBool,
    /// One at a time gives some up, so that the record says what is so.
    pub(crate) narrowing: tokio::sync::Mutex<()>,
    running: Mutex<HashMap<String, Run>>,
    /// Rings when one of them has ended.
    one_ended: Notify,
    versions: OnceCell<Vec<Runtime>>,
}

/// A request on its way.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) namespace: Namespace,
    pub(crate) language: Language,
    pub(crate) since: Instant,
    cancel: watch::Sender<bool>,
}

/// Who asks, as it stands on record: at most 128 characters that can be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(String);

impl Caller {
    const CHARS_MAX: usize = 128;

    /// Of a front end's word, whatever a stranger has put into it.
    pub fn new(text: &str) -> Self {
        let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        Self(text.chars().take(Self::CHARS_MAX).map(printable).collect())
    }

    /// The engine itself.
    pub(crate) fn ours() -> Self {
        Self("ringfence".to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One request with what is not plain data.
pub struct Submission {
    /// What to run.
    pub request: ExecuteRequest,
    /// Where its standard input comes from.
    pub stdin: Stdin,
    /// True: output is offered through [`Execution::next_output`] as it comes. The program waits for a slow reader.
    pub live: bool,
    /// True: what it does to an overlay of a directory of the host is kept until somebody has decided, and comes out of
    /// [`Execution::finish_with_changes`].
    pub holds_changes: bool,
    /// Copy artifacts into this directory (created when absent).
    pub artifacts_to: Option<PathBuf>,
    /// Who asks.
    pub caller: Caller,
}

/// Standard input of a program.
pub enum Stdin {
    /// `request.stdin`, then end of file.
    FromRequest,
    /// Copied as it comes.
    Stream(Box<dyn AsyncRead + Send + Unpin>),
}

/// Which of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Neither, but what is told meanwhile: packages are being installed.
    Notice,
}

impl OutputStream {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Notice => "notice",
        }
    }
}

/// What the program wrote, without the request's secrets: hostile all the same.
#[derive(Clone, Debug)]
pub struct OutputChunk {
    /// Which stream.
    pub stream: OutputStream,
    /// At most 64 KiB.
    pub bytes: Vec<u8>,
}

/// A submitted request. The engine owns the task: dropping this loses nothing and stops nothing.
pub struct Execution {
    id: String,
    output: Option<mpsc::Receiver<OutputChunk>>,
    result: oneshot::Receiver<Answered>,
    canceller: Canceller,
}

/// Stops one execution; may be cloned and kept.
#[derive(Clone)]
pub struct Canceller {
    cancel: watch::Sender<bool>,
}

/// One language on this host.
#[derive(Clone, Debug, Serialize)]
pub struct Runtime {
    /// Language.
    pub language: Language,
    /// Can it run.
    pub available: bool,
    /// Interpreter.
    pub path: Option<PathBuf>,
    /// As the interpreter says it, inside the sandbox.
    pub version: Option<String>,
    /// Backends that can run it.
    pub backends: Vec<String>,
    /// Tier it runs in.
    pub tier: String,
    /// Does a sandbox stand ready for it.
    pub warm: bool,
    /// How many do.
    pub ready: usize,
    /// Why none could be made ready, when that was tried last.
    pub trouble: Option<String>,
    /// Packages imported ahead.
    pub preloaded: Vec<String>,
    /// What its sandboxes that wait take of the host's memory, with their templates.
    pub memory_bytes: u64,
    /// Why it cannot run.
    pub reason: Option<String>,
}

/// The static facts about this server's sandboxes.
#[derive(Clone, Debug, Serialize)]
pub struct SandboxInfo {
    /// Tier and layers that a run with default limits gets.
    pub isolation: Isolation,
    /// For requests that say nothing.
    pub defaults: Limits,
    /// The most that any request gets.
    pub caps: Limits,
}

/// Pieces of live output that wait for their reader; then the program waits.
const OUTPUT_CHUNKS_WAITING: usize = 16;
/// Until what has ended is taken down and the next is made ready, so that the answer is out before.
const AFTER_ANSWER: Duration = Duration::from_millis(1);
/// How long [`Engine::shutdown`] waits for the last run to end.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

impl Engine {
    /// Makes one sandbox with every wall of the tier. `BelowFloor` when the host lacks a layer.
    pub async fn prove(&self) -> Result<(), RequestError> {
        sandbox::prove(&self.house).await
    }

    /// Opens the record, starts the helper and sweeps what an earlier server left. Whether the host gives the tier is told
    /// by the first run, or by [`Engine::prove`].
    pub fn open(settings: EngineSettings) -> Result<Self, RequestError> {
        let failed = |what: &str, error: std::io::Error| {
            RequestError::new(
                ErrorCode::SandboxFault,
                format!("{what}: {error}."),
                "Run `ringfence doctor`.",
            )
        };
        let parent = cgroup::Parent::find();
        cgroup::prepare(&parent).map_err(|error| failed("could not prepare the cgroup", error))?;
        let native = Native::start(settings.helper.clone(), parent, settings.state_dir.clone())
            .map_err(|error| failed("could not start the helper", error))?;
        let id = uuid::Uuid::now_v7().to_string();
        let store::Opened {
            record,
            vault,
            artifacts,
            snapshots,
            layers,
        } = store::open(&settings, &id)?;
        let swept = ringfence_jail::sweep(&native.host.cgroups, &settings.state_dir);
        if swept.cgroups + swept.directories > 0 {
            tracing::info!(?swept, "removed what an earlier server left");
        }
        let bus = Bus::new();
        let personal = Redactor::new([], Forms::All, settings.record.personal);
        let vault = Arc::new(vault);
        let approvals = Approvals::new(
            settings.approvals,
            bus.clone(),
            record.clone(),
            LogRedactor::new(&vault),
        );
        let house = House {
            native,
            queue: Queue::new(settings.queue.clone(), bus.clone()),
            pools: Pools::default(),
            checkers: Checkers::default(),
            pictures: Semaphore::new(picture::AT_ONCE),
            bus,
            meters: Meters::new(),
            record,
            vault,
            artifacts,
            snapshots: Arc::new(snapshots),
            workspaces: Workspaces::below(&settings.state_dir),
            packages: Packages::new(layers),
            egress: Egress::new(),
            redactors: Redactors::default(),
            sessions: Sessions::default(),
            approvals,
            personal,
            id,
            private: store::private(&settings),
            policy: RwLock::new(Arc::new(settings.policy.clone())),
            narrowed: Mutex::default(),
            has_said_goodbye: AtomicBool::new(false),
            narrowing: tokio::sync::Mutex::default(),
            settings,
            running: Mutex::new(HashMap::new()),
            one_ended: Notify::new(),
            versions: OnceCell::new(),
        };
        house
            .record
            .note_now(house.note(Action::ServerStarted, Outcome::Ok, house.facts()))?;
        Ok(Self {
            house: Arc::new(house),
        })
    }

    /// Begins to keep places ready, in the background; until they are, runs start cold. And what is kept too long begins to go.
    pub fn warm_up(&self) {
        warm::begin(&self.house);
        let house = self.house.clone();
        tokio::spawn(async move { check::warm_up(&house).await });
        packages::keep_swept(&self.house);
    }

    /// Until everything stands ready that can; false: the time was too short.
    pub async fn warmed_up(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.house.pools.settled())
            .await
            .is_ok()
    }

    /// Accepts a request; refusals come out of [`Execution::finish`].
    pub fn submit(&self, submission: Submission) -> Execution {
        let id = uuid::Uuid::now_v7().to_string();
        let (cancel, cancelled) = watch::channel(false);
        let (answer, result) = oneshot::channel();
        let (live, output) = match submission.live.then(|| mpsc::channel(OUTPUT_CHUNKS_WAITING)) {
            Some((live, output)) => (Some(live), Some(output)),
            None => (None, None),
        };
        let run = Run {
            namespace: submission.request.namespace.clone(),
            language: submission.request.language,
            since: Instant::now(),
            cancel: cancel.clone(),
        };
        self.house.running().insert(id.clone(), run);
        let (house, task_id) = (self.house.clone(), id.clone());
        // Calls of one session take their turns in the order in which they were submitted.
        let session = submission.request.session.as_ref();
        let place = session.map(|session| house.sessions.line_up(&submission.request.namespace, session));
        tokio::spawn(async move {
            let executed = execute::execute(&house, &task_id, submission, place, live, cancelled).await;
            house.running().remove(&task_id);
            house.one_ended.notify_waiters();
            conclude(&house, &task_id, executed, answer).await;
        });
        Execution {
            id,
            output,
            result,
            canceller: Canceller { cancel },
        }
    }

    /// The languages, each asked inside a sandbox for its version, once.
    pub async fn runtimes(&self) -> Vec<Runtime> {
        let versions = self.house.versions.get_or_init(|| prepare::versions(self)).await;
        let mut runtimes = versions.clone();
        for runtime in &mut runtimes {
            let warmth = self.house.pools.warmth(runtime.language);
            runtime.warm = warmth.ready > 0;
            runtime.ready = warmth.ready;
            runtime.memory_bytes = warmth.memory_bytes;
            runtime.preloaded = warmth.preloaded;
            runtime.trouble = warmth.trouble;
        }
        let typescript = runtimes.iter().find(|runtime| runtime.language == Language::Node);
        let typescript = typescript.cloned().map(|node| Runtime {
            language: Language::Typescript,
            ..node
        });
        runtimes.extend(typescript);
        warm::fill(&self.house);
        runtimes
    }

    /// Draws a program's picture (PNG, JPEG, GIF, WebP) anew in a sandbox, small enough for a model and without anything
    /// but its pixels. `None`: it cannot be shown.
    pub async fn picture(&self, bytes: Vec<u8>) -> Option<Picture> {
        picture::safe(&self.house, bytes).await
    }

    /// Where an interpreter is, without starting it.
    pub(crate) fn locate(&self, language: Language) -> Result<PathBuf, RequestError> {
        runtimes::find(language, &self.house.settings.runtimes).map(|found| found.path)
    }

    pub(crate) fn house(&self) -> &Arc<House> {
        &self.house
    }

    pub(crate) fn tier(&self) -> Tier {
        self.house.settings.tier
    }

    /// Facts for `get_sandbox_info`.
    pub fn info(&self) -> Result<SandboxInfo, RequestError> {
        let policy = self.house.policy();
        let grant = decide(
            &policy,
            &Standing::default(),
            &self.house.private,
            ExecuteRequest::new(Language::Shell, "true"),
        )?;
        let isolation = sandbox::isolation(&self.house, grant.limits())?;
        Ok(SandboxInfo {
            isolation,
            defaults: policy.defaults.clone(),
            caps: policy.caps.clone(),
        })
    }

    /// Lets go of the helper without waiting: it ends by itself, with whatever still runs, and cleans up after it. For a
    /// program that is about to exit, or that cannot wait.
    pub fn leave(&self) {
        self.cancel_all();
        self.house.approvals.close();
        self.house.sessions.close();
        self.house.checkers.close();
        self.house.pools.close();
        self.house.native.leave();
        // Also where a shutdown was begun that waits too long; it is said once.
        self.house.say_goodbye();
    }

    fn cancel_all(&self) {
        for run in self.house.running().values() {
            run.cancel.send_replace(true);
        }
    }

    /// The key with which artifacts are signed here, for whoever checks them.
    pub fn public_key(&self) -> [u8; 32] {
        self.house.artifacts.public_key()
    }

    /// Keeps the vault's values out of the log.
    pub fn log_redactor(&self) -> LogRedactor {
        LogRedactor::new(&self.house.vault)
    }

    /// Hears what happens from now on.
    pub fn subscribe(&self, hears: Hears) -> Subscriber {
        self.house.bus.subscribe(hears)
    }

    /// The last hundred events, oldest first, without output.
    pub fn recent_events(&self) -> Vec<Arc<Event>> {
        self.house.bus.recent()
    }

    /// Kills what runs, and waits until it is gone, with the helper.
    pub async fn shutdown(&self) {
        self.cancel_all();
        self.house.approvals.close();
        let mut sessions = self.house.sessions.close();
        let ended = async {
            loop {
                let one_ended = self.house.one_ended.notified();
                if self.house.running().is_empty() {
                    return;
                }
                one_ended.await;
            }
        };
        let ended = async {
            ended.await;
            for session in &mut sessions {
                drop(session.wait_for(Option::is_some).await);
            }
        };
        if tokio::time::timeout(SHUTDOWN_PATIENCE, ended).await.is_err() {
            tracing::warn!("runs were still ending at shutdown");
        }
        self.house.pools.close();
        self.house.checkers.close();
        // Off this thread: tasks that still hold a sandbox have yet to let it go.
        let house = self.house.clone();
        let stopped = tokio::task::spawn_blocking(move || house.native.stop());
        match tokio::time::timeout(SHUTDOWN_PATIENCE, stopped).await {
            Ok(Ok(false)) => return, // it was shut down before
            Ok(_) => {}
            Err(_) => tracing::warn!("sandboxes were still ending at shutdown"),
        }
        self.house.say_goodbye();
    }
}

type Answered = Result<(ExecutionResult, Option<HeldChanges>), RequestError>;

/// Gives the answer; what is left to do comes after it.
async fn conclude(
    house: &Arc<House>,
    id: &str,
    executed: Result<Executed, RequestError>,
    answer: oneshot::Sender<Answered>,
) {
    let (result, hold) = match executed {
        Ok(Executed {
            result,
            changes,
            hold,
            ..
        }) => (Ok((result, changes)), hold),
        Err(error) => (Err(error), None),
    };
    match &result {
        Ok((done, _)) => {
            tracing::info!(id = %id, language = %done.language, exit = ?done.exit.kind, ms = done.duration_ms, "execution")
        }
        Err(error) => tracing::info!(id = %id, code = %error.code, "refused"),
    }
    // Nobody may be waiting; the run is complete all the same.
    drop(answer.send(result.map_err(|error| error.for_execution(id))));
    // The answer has the processors first.
    tokio::time::sleep(AFTER_ANSWER).await;
    drop(hold);
    warm::fill(house);
    store::sweep_when_due(house);
    if !house.redactors.is_empty() {
        house.redactors.forget_all_but(house.vault.generation());
    }
}

impl House {
    pub(crate) fn running(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in force now.
    pub(crate) fn policy(&self) -> Arc<PolicySettings> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace_policy(&self, policy: PolicySettings) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// What a namespace has given up of its limits.
    pub(crate) fn narrowed(&self, namespace: &Namespace) -> Option<Limits> {
        let narrowed = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        narrowed.get(namespace).cloned()
    }

    /// What is so of a namespace when one of its requests, or one of the session's, is decided.
    pub(crate) fn standing(&self, namespace: &Namespace, session: Option<&SessionId>) -> Standing {
        Standing {
            narrowed: self.narrowed(namespace),
            approved: self.approved(namespace, session),
        }
    }

    /// The same for a run, or a call of the session, which takes what was approved for the next one.
    pub(crate) fn standing_of_run(&self, namespace: &Namespace, session: Option<&SessionId>) -> Standing {
        let mut standing = self.standing(namespace, session);
        standing.approved.once = self.approvals.rules().take_once(namespace, session);
        standing
    }

    /// What a human has let them reach, but for one run alone.
    pub(crate) fn approved(&self, namespace: &Namespace, session: Option<&SessionId>) -> Approved {
        let rules = self.approvals.rules();
        let of_namespace = rules.rules_for(namespace, None);
        let own = session
            .map(|_| rules.rules_for(namespace, session))
            .unwrap_or_default();
        Approved {
            own: own
                .into_iter()
                .filter(|rule| !of_namespace.contains(rule))
                .collect(),
            of_namespace,
            once: Vec::new(),
        }
    }

    /// A note of what the engine itself does.
    fn note(&self, action: Action, outcome: Outcome, details: Value) -> Note<'static> {
        static OURS: LazyLock<Caller> = LazyLock::new(Caller::ours);
        Note {
            action,
            outcome,
            namespace: "",
            execution_id: None,
            caller: &OURS,
            details,
        }
    }

    /// What a server is, for the record of its start.
    fn facts(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "tier": self.settings.tier,
            "vault": self.vault.kind(),
        })
    }

    /// Nothing can be refused any more; that it is not on record is told by the log.
    fn say_goodbye(&self) {
        if self.has_said_goodbye.swap(true, Ordering::Relaxed) {
            return;
        }
        let details = json!({"not_recorded": self.record.lost()});
        if let Err(error) = self
            .record
            .note_now(self.note(Action::ServerStopped, Outcome::Ok, details))
        {
            tracing::error!(%error, "the end of the server is not on record");
        }
    }
}

impl Execution {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A handle that stops it.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The next piece of live output; `None` when the program has ended.
    pub async fn next_output(&mut self) -> Option<OutputChunk> {
        match &mut self.output {
            Some(output) => output.recv().await,
            None => None,
        }
    }

    /// The result. Live output that was not taken is dropped.
    pub async fn finish(self) -> Result<ExecutionResult, RequestError> {
        self.finish_with_changes().await.map(|(result, _)| result)
    }

    /// The same with what it did to an overlay, where the submission said that it is to be kept.
    pub async fn finish_with_changes(
        mut self,
    ) -> Result<(ExecutionResult, Option<HeldChanges>), RequestError> {
        self.output = None;
        let id = self.id;
        self.result.await.unwrap_or_else(|_| {
            let error = RequestError::new(ErrorCode::SandboxFault, "the engine's task died.", "Report this.");
            Err(error.for_execution(&id))
        })
    }
}

impl Canceller {
    pub(crate) fn new(cancel: watch::Sender<bool>) -> Self {
        Self { cancel }
    }

    /// Stops the execution; the tree is dead within a second.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }
}
