//! Sessions: sandboxes whose interpreter is kept between calls. Each belongs to one namespace and is invisible to
//! others, serves one call at a time, in order of arrival, and ends by itself when it is idle for too long.

mod bridge;
mod egress;
mod interpreter;
mod packages;
mod task;

pub(crate) use bridge::{BridgeTarget, carry};
pub use bridge::{Bridged, BridgedValue};
pub(crate) use egress::{CallEgress, SessionEgress};
pub(crate) use interpreter::{CallOutcome, CallResult, DriverRequest, Interpreter};
pub use packages::Installed;
pub(crate) use packages::{ShownPackages, provide};
pub(crate) use task::{Job, SessionTask};

use crate::{
    approval::Approvals,
    artifacts::Baseline,
    backend::{Events, SandboxDirs},
    caller::{Client, ENGINE_CALLER},
    disk_quota::{DiskQuota, DiskUse},
    error::{Result, busy, stopping},
    events::{Bus, EventKind},
    overlay::Lower,
    record::{Note, Record},
    secrets::{SecretLease, Secrets},
    settings::SessionSettings,
    sync::lock,
};
use ringfence_jail::wire::Usage;
use ringfence_redact::Redactor;
use ringfence_store::audit::{Action, Outcome};
use ringfence_store::snapshots::SnapshotStore;
use ringfence_types::{
    AllowedDomains, Backend, ErrorCode, Isolation, Language, Limits, Namespace, RequestError,
    Session as SessionFacts, SessionEnd, SessionId, SessionState, WorkspaceSource,
};
use serde_json::json;
use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// Most calls waiting for their turn on one session.
const WAITING_MAX: usize = 32;
/// Ended sessions whose reason is still known.
const ENDED_MAX: usize = 1000;
/// A session of others may end in this time; how long one lasts is not known.
const RETRY_AFTER_MS: u64 = 5000;
/// Time that a short operation waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for the end of a session.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct Sessions {
    state: Mutex<State>,
    pub(crate) settings: SessionSettings,
    record: Record,
    approvals: Arc<Approvals>,
    bus: Bus,
    snapshots: Arc<SnapshotStore>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Arc<Session>>,
    making: HashMap<Namespace, usize>,
    /// Oldest first.
    ended: VecDeque<(SessionId, Namespace, SessionEnd)>,
    is_closed: bool,
}

pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) namespace: Namespace,
    pub(crate) language: Language,
    pub(crate) workspace: WorkspaceSource,
    pub(crate) backend: Backend,
    pub(crate) allowed_domains: AllowedDomains,
    /// The directory below its overlay, if that is its workspace.
    pub(crate) lower: Option<Arc<Lower>>,
    /// Limits of a call that names none.
    pub(crate) limits: Limits,
    /// Initial usage of a shared directory of the host.
    pub(crate) initial_use: DiskUse,
    pub(crate) isolation: Isolation,
    pub(crate) dirs: SandboxDirs,
    pub(crate) lease: Arc<SecretLease>,
    pub(crate) idle: Duration,
    pub(crate) age: Duration,
    pub(crate) created: Instant,
    pub(crate) created_unix_ms: u64,
    pub(crate) used: Mutex<Instant>,
    pub(crate) activity: Activity,
    pub(crate) queue: Arc<Semaphore>,
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) events: Arc<Events>,
    pub(crate) stop: watch::Sender<Option<SessionEnd>>,
    pub(crate) interrupts: watch::Sender<u64>,
    pub(crate) gone: watch::Sender<Option<SessionEnd>>,
    pub(crate) packages: Mutex<ShownPackages>,
    pub(crate) egress: Mutex<SessionEgress>,
    pub(crate) usage: Mutex<Usage>,
    /// Files that a call has not made.
    pub(crate) before: Mutex<Baseline>,
}

#[derive(Default)]
pub(crate) struct Activity {
    pub(crate) calls: AtomicU64,
    waiting: AtomicUsize,
    is_busy: AtomicBool,
    has_call: AtomicBool,
    /// The execution that has the turn.
    running: Mutex<Option<String>>,
}

type TurnFuture = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

/// A position in the queue of a session; given up when dropped.
pub(crate) struct QueuedTurn {
    pub(crate) session: Arc<Session>,
    waiting: WaitingCall,
    permit: TurnFuture,
    at_once: Option<Result<OwnedSemaphorePermit, AcquireError>>,
}

impl QueuedTurn {
    pub(crate) async fn turn(self, client: &Client) -> Result<Turn> {
        let Self {
            session,
            waiting,
            permit,
            at_once,
        } = self;
        let permit = async {
            match at_once {
                Some(permit) => permit,
                None => permit.await,
            }
        };
        let permit = tokio::select! {
            permit = permit => permit.ok(),
            () = client.cancelled() => return Err(RequestError::new(
                ErrorCode::Cancelled,
                "the call was cancelled while it waited for its turn.",
                "Send it again when it is wanted.",
            )),
        };
        drop(waiting);
        let Some(permit) = permit else {
            // Waits until the session is removed: a client that learns of its end must not find it any more.
            let mut gone = session.gone.subscribe();
            drop(tokio::time::timeout(END_TIMEOUT, gone.wait_for(Option::is_some)).await);
            return Err(session.ended());
        };
        let interrupts = session.interrupts.subscribe();
        session.activity.is_busy.store(true, Ordering::Relaxed);
        Ok(Turn {
            session,
            interrupts,
            _permit: permit,
        })
    }
}

/// The exclusive right to use a session.
pub(crate) struct Turn {
    pub(crate) session: Arc<Session>,
    /// Counts interrupts of this turn, not of an earlier one.
    interrupts: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Turn {
    /// Names the execution that keeps the session busy, for refusals.
    pub(crate) fn name(&self, execution_id: &str) {
        *self.session.running() = Some(execution_id.to_owned());
    }

    /// Lets `interrupt_session` reach this turn from now on; returns the counter of its interrupts.
    pub(crate) fn open_to_interrupts(&self) -> watch::Receiver<u64> {
        self.session.activity.has_call.store(true, Ordering::Relaxed);
        self.interrupts.clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.session.touch();
        self.session.activity.is_busy.store(false, Ordering::Relaxed);
        self.session.activity.has_call.store(false, Ordering::Relaxed);
        *self.session.running() = None;
    }
}

pub(crate) struct SessionReservation {
    sessions: Arc<Sessions>,
    namespace: Namespace,
}

impl Drop for SessionReservation {
    fn drop(&mut self) {
        let mut state = lock(&self.sessions.state);
        if let Some(making) = state.making.get_mut(&self.namespace) {
            *making -= 1;
            if *making == 0 {
                state.making.remove(&self.namespace);
            }
        }
    }
}

impl Session {
    /// Returns the redactor of the session's secrets and of all that the namespace has now.
    pub(crate) async fn redactor(&self, secrets: &Secrets) -> Result<Redactor> {
        secrets
            .redactor_of_all(&self.namespace, &self.lease.secrets)
            .await
    }

    /// Sends a call, or a request for the driver, to the interpreter.
    pub(crate) async fn send(&self, sent: DriverRequest) -> Result<CallResult> {
        let (answer, answered) = oneshot::channel();
        let job = Job::Call(Box::new(sent), answer);
        self.jobs.send(job).await.map_err(|_| self.ended())?;
        answered.await.map_err(|_| self.ended())
    }

    /// Joins the queue, behind earlier calls.
    pub(crate) fn join_queue(self: &Arc<Self>) -> Result<QueuedTurn> {
        let ahead = self.activity.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = WaitingCall(self.clone());
        if ahead >= WAITING_MAX {
            return Err(busy(
                format!("{WAITING_MAX} calls wait for their turn on this session."),
                "Wait for an answer before the next call, or use more sessions.",
                1000,
            ));
        }
        let mut permit: TurnFuture = Box::pin(self.queue.clone().acquire_owned());
        // The first poll enters the queue of the semaphore; waiting for it polls again.
        let at_once = match permit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        };
        Ok(QueuedTurn {
            session: self.clone(),
            waiting,
            permit,
            at_once,
        })
    }

    pub(crate) async fn turn(self: &Arc<Self>, client: &Client) -> Result<Turn> {
        self.join_queue()?.turn(client).await
    }

    /// Waits a short time for a turn, for a short operation.
    pub(crate) async fn turn_soon(self: &Arc<Self>) -> Result<Turn> {
        let client = Client::absent();
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.turn(&client)).await;
        turn.unwrap_or_else(|_| {
            let (what, hint) = match self.running().clone() {
                Some(id) => (
                    format!("the session is busy with the execution {id}."),
                    format!(
                        "next: cancel_execution {{\"execution_id\": \"{id}\"}} stops it, or call again later"
                    ),
                ),
                None => ("the session is busy.".to_owned(), "Call again later.".to_owned()),
            };
            Err(busy(what, hint, 1000))
        })
    }

    fn running(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.activity.running)
    }

    /// Interrupts the call that runs or is about to; false if there is no call.
    pub(crate) fn interrupt(&self) -> bool {
        let has_call = self.activity.has_call.load(Ordering::Relaxed);
        if has_call {
            self.interrupts.send_modify(|count| *count += 1);
        }
        has_call
    }

    /// Ends the session; the first reason counts.
    pub(crate) fn stop(&self, why: SessionEnd) {
        self.stop.send_if_modified(|stop| {
            let is_first = stop.is_none();
            *stop = stop.or(Some(why));
            is_first
        });
    }

    pub(crate) fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    fn used(&self) -> Instant {
        *lock(&self.used)
    }

    fn ends_at(&self) -> Instant {
        (self.used() + self.idle).min(self.created + self.age)
    }

    fn expired(&self) -> Option<SessionEnd> {
        let now = Instant::now();
        if now >= self.created + self.age {
            Some(SessionEnd::Age)
        } else if now >= self.used() + self.idle && !self.activity.is_busy.load(Ordering::Relaxed) {
            Some(SessionEnd::Idle)
        } else {
            None
        }
    }

    pub(crate) fn ended(&self) -> RequestError {
        ended(&self.id, self.stop.borrow().unwrap_or(SessionEnd::Terminated))
    }

    pub(crate) fn quota(&self) -> DiskQuota {
        DiskQuota::of(&self.workspace, &self.limits, self.initial_use)
    }

    /// Takes a new baseline: changes from outside do not count as the next call's.
    pub(crate) fn reset_baseline(&self) {
        *self.before() = Baseline::of(&self.dirs);
    }

    pub(crate) fn before(&self) -> MutexGuard<'_, Baseline> {
        lock(&self.before)
    }

    /// Returns the usage since the last call, by difference, because only a session's total is measured.
    pub(crate) fn used_since_last(&self, usage: Option<Usage>) -> Usage {
        let mut last = lock(&self.usage);
        let now = usage.unwrap_or(*last);
        let since = Usage {
            cpu_user: now.cpu_user.saturating_sub(last.cpu_user),
            cpu_system: now.cpu_system.saturating_sub(last.cpu_system),
            unrouted: now.unrouted.saturating_sub(last.unrouted),
            ..now
        };
        *last = now;
        since
    }

    pub(crate) fn describe(&self) -> SessionFacts {
        let unix = |at: Instant| {
            let since = at.saturating_duration_since(self.created).as_millis();
            self.created_unix_ms
                .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
        };
        SessionFacts {
            session_id: self.id.clone(),
            namespace: self.namespace.to_string(),
            language: self.language,
            state: if self.activity.is_busy.load(Ordering::Relaxed) {
                SessionState::Busy
            } else {
                SessionState::Idle
            },
            created_unix_ms: self.created_unix_ms,
            used_unix_ms: unix(self.used()),
            idle_until_unix_ms: unix(self.used() + self.idle),
            ends_unix_ms: unix(self.created + self.age),
            calls: self.activity.calls.load(Ordering::Relaxed),
            waiting: self.activity.waiting.load(Ordering::Relaxed),
            tier: self.isolation.tier.to_string(),
            memory_bytes_max: self.limits.memory_bytes,
            timeout_seconds: Duration::from_millis(self.limits.timeout_ms).as_secs_f64(),
            // The path on the host is not shown to callers.
            workspace: match &self.workspace {
                WorkspaceSource::Private => "private".to_owned(),
                WorkspaceSource::Namespace => "namespace".to_owned(),
                WorkspaceSource::Listed(name) => name.to_string(),
                WorkspaceSource::Host { mode, .. } => format!("directory:{}", mode.as_str()),
            },
            packages: lock(&self.packages).names(),
        }
    }
}

/// Counts one waiting call until it is dropped.
struct WaitingCall(Arc<Session>);

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.0.activity.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sessions {
    pub(crate) fn new(
        settings: SessionSettings,
        record: Record,
        approvals: Arc<Approvals>,
        bus: Bus,
        snapshots: Arc<SnapshotStore>,
    ) -> Self {
        Self {
            state: Mutex::default(),
            settings,
            record,
            approvals,
            bus,
            snapshots,
        }
    }

    /// Abandons an interrupted restore into a private workspace, which ends with its session.
    async fn forget_workspace(&self, session: &Arc<Session>) {
        if session.workspace != WorkspaceSource::Private {
            return;
        }
        let (store, of) = (self.snapshots.clone(), session.clone());
        let forgotten = tokio::task::spawn_blocking(move || store.forget(of.dirs.changes.as_fd())).await;
        if !matches!(forgotten, Ok(Ok(()))) {
            tracing::warn!(?forgotten, session = %session.id, "a restore of its workspace is still in the store");
        }
    }

    /// Returns the session with this id, if it belongs to this namespace.
    pub(crate) fn find(&self, namespace: &Namespace, id: &SessionId) -> Result<Arc<Session>> {
        self.find_of(id, |of| of == namespace)
    }

    pub(crate) fn owner_of(&self, id: &SessionId) -> Result<(Namespace, Language)> {
        let session = self.find_of(id, |_| true)?;
        Ok((session.namespace.clone(), session.language))
    }

    fn find_of(&self, id: &SessionId, is_meant: impl Fn(&Namespace) -> bool) -> Result<Arc<Session>> {
        let state = lock(&self.state);
        let session = state.sessions.get(id);
        if let Some(session) = session.filter(|session| is_meant(&session.namespace)) {
            return Ok(session.clone());
        }
        let mut ended_ones = state.ended.iter();
        let was = ended_ones.find(|(known, of, _)| known == id && is_meant(of));
        Err(was.map_or_else(absent, |(_, _, end)| ended(id, *end)))
    }

    /// Lists the sessions of a namespace, or all, the oldest first.
    pub(crate) fn list(&self, namespace: Option<&Namespace>) -> Vec<SessionFacts> {
        let state = lock(&self.state);
        let is_own = |session: &Session| namespace.is_none_or(|namespace| session.namespace == *namespace);
        let own = state.sessions.values().filter(|session| is_own(session));
        let mut listed: Vec<SessionFacts> = own.map(|session| session.describe()).collect();
        listed.sort_by(|a, b| a.session_id.cmp(&b.session_id));
        listed
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.state).sessions.len()
    }

    pub(crate) fn reserve(self: &Arc<Self>, namespace: &Namespace) -> Result<SessionReservation> {
        let settings = &self.settings;
        let mut state = lock(&self.state);
        let making: usize = state.making.values().sum();
        let own = state
            .sessions
            .values()
            .filter(|session| session.namespace == *namespace)
            .count()
            + state.making.get(namespace).copied().unwrap_or(0);
        let full = |what: String| {
            Err(busy(
                what,
                "End one with `terminate_session`, or wait until one has not been used for too long.",
                RETRY_AFTER_MS,
            ))
        };
        if state.is_closed {
            return Err(stopping());
        }
        if own >= settings.per_namespace {
            return full(format!(
                "the namespace `{namespace}` has {own} sessions, which is as many as it may (`sessions.per_namespace`)."
            ));
        }
        if state.sessions.len() + making >= settings.max {
            return full(format!(
                "this server has {} sessions, which is as many as it may (`sessions.max`).",
                state.sessions.len() + making
            ));
        }
        *state.making.entry(namespace.clone()).or_default() += 1;
        Ok(SessionReservation {
            sessions: self.clone(),
            namespace: namespace.clone(),
        })
    }

    /// Adds a session; false: the server has begun to stop.
    pub(crate) fn add(&self, session: Arc<Session>) -> bool {
        let mut state = lock(&self.state);
        if !state.is_closed {
            state.sessions.insert(session.id.clone(), session);
        }
        !state.is_closed
    }

    /// Removes a session. Its end is on record before it is removed.
    async fn remove_ended(&self, session: &Session, end: SessionEnd) {
        let details = json!({"session": session.id.as_str(), "why": end.as_str(), "calls": session.activity.calls.load(Ordering::Relaxed)});
        let note = Note::of(&ENGINE_CALLER, &session.namespace, Action::SessionKilled, details);
        if let Err(error) = self.record.note(note.ended(Outcome::Ok)).await {
            tracing::error!(%error, session = %session.id, "the end of a session is not on record");
        }
        {
            let mut state = lock(&self.state);
            state.sessions.remove(&session.id);
            state
                .ended
                .push_back((session.id.clone(), session.namespace.clone(), end));
            if state.ended.len() > ENDED_MAX {
                state.ended.pop_front();
            }
        }
        self.approvals.forget_session(&session.id);
        let kind = EventKind::SessionKilled {
            session_id: session.id.to_string(),
            reason: end.as_str(),
        };
        self.bus.publish(&session.namespace, None, kind);
    }

    /// Ends all sessions, and admits no more. Returns receivers for their ends.
    pub(crate) fn close(&self) -> Vec<watch::Receiver<Option<SessionEnd>>> {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let all = state.sessions.values();
        all.map(|session| {
            session.stop(SessionEnd::Server);
            session.gone.subscribe()
        })
        .collect()
    }
}

fn absent() -> RequestError {
    RequestError::not_found(
        "there is no such session in this namespace.",
        "`list_sessions` names those there are; `create_session` makes one.",
    )
}

fn ended(id: &SessionId, end: SessionEnd) -> RequestError {
    RequestError::new(
        ErrorCode::SessionEnded,
        format!("the session {id} {}.", end.in_words()),
        "Make another with `create_session`; what the old one held in memory is gone.",
    )
}
