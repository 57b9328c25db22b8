//! Sessions: sandboxes whose interpreter is kept between calls. Each belongs to one namespace, serves one call at a time in
//! the order in which they came, and ends by itself when nobody uses it. To any other namespace it is not there.

mod bridge;
mod call;
mod create;
mod interpreter;
mod life;
mod packages;
mod way_out;

pub use bridge::{Bridged, Gift};
pub(crate) use call::call;
pub(crate) use packages::{Told, provide};

use crate::{
    artifacts::Before,
    backend::{Doors, Events},
    engine::{Caller, Engine, House},
    events::EventKind,
    overlay::Lower,
    record::Note,
    room::{Room, Taken},
    secrets::SecretLease,
};
use life::Job;
use packages::Shown;
use ringfence_jail::wire::Usage;
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{
    AllowedDomains, ErrorCode, Isolation, Language, Limits, Namespace, RequestError, Session, SessionEnd,
    SessionId, SessionState, WorkspaceSource,
};
use serde_json::json;
use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use way_out::WayOut;

/// Calls that wait for their turn on one session.
const WAITING_MAX: usize = 32;
/// Sessions that have ended, and of which it is still known why.
const ENDED_MAX: usize = 1000;
/// How long one waits for a turn who has something short to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a session is waited for.
const END_PATIENCE: Duration = Duration::from_secs(15);

/// How many sessions there may be, and for how long.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Of all namespaces.
    pub max: usize,
    /// Of one.
    pub per_namespace: usize,
    /// Without a call, where the caller says nothing.
    pub idle: Duration,
    /// The longest that a caller may ask for.
    pub idle_max: Duration,
    /// The oldest that one becomes.
    pub age: Duration,
}

/// The sessions of a server.
#[derive(Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: HashMap<SessionId, Arc<Live>>,
    /// Seats of sessions that are just being made.
    making: HashMap<Namespace, usize>,
    /// The latest last.
    ended: VecDeque<(SessionId, Namespace, SessionEnd)>,
    is_closed: bool,
}

/// A session that lives.
pub(crate) struct Live {
    pub(crate) id: SessionId,
    pub(crate) namespace: Namespace,
    pub(crate) language: Language,
    pub(crate) workspace: WorkspaceSource,
    /// Which hosts its creator named.
    pub(crate) allowed_domains: AllowedDomains,
    /// What is below its overlay, if that is its workspace.
    pub(crate) lower: Option<Arc<Lower>>,
    /// Of a call that asks for nothing.
    pub(crate) limits: Limits,
    /// What lay in a directory of the host's when it was shared.
    pub(crate) found: Taken,
    pub(crate) isolation: Isolation,
    pub(crate) doors: Doors,
    pub(crate) lease: SecretLease,
    idle: Duration,
    age: Duration,
    created: Instant,
    created_unix_ms: u64,
    used: Mutex<Instant>,
    calls: AtomicU64,
    waiting: AtomicUsize,
    is_busy: AtomicBool,
    /// Whoever has the turn has it for a call.
    has_call: AtomicBool,
    line: Arc<Semaphore>,
    jobs: mpsc::Sender<Job>,
    events: Arc<Events>,
    stop: watch::Sender<Option<SessionEnd>>,
    interrupts: watch::Sender<u64>,
    gone: watch::Sender<Option<SessionEnd>>,
    packages: Mutex<Shown>,
    way_out: Mutex<WayOut>,
    /// So far.
    usage: Mutex<Usage>,
    /// What a call finds that it has not made.
    before: Mutex<Before>,
}

type Permit = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

/// A place in the line of those who want to use a session; given up when dropped.
pub(crate) struct InLine {
    live: Arc<Live>,
    waits: Waits,
    permit: Permit,
    at_once: Option<Result<OwnedSemaphorePermit, AcquireError>>,
}

impl InLine {
    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Waits until those ahead have had their turns.
    pub(crate) async fn turn(self, mut cancelled: watch::Receiver<bool>) -> Result<Turn, RequestError> {
        let Self {
            live,
            waits,
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
            Ok(_) = cancelled.wait_for(|cancelled| *cancelled) => return Err(RequestError::new(
                ErrorCode::Cancelled,
                "the call was cancelled while it waited for its turn.",
                "Send it again when it is wanted.",
            )),
        };
        drop(waits);
        let Some(permit) = permit else {
            // Whoever is told that it has ended does not find it any more.
            let mut gone = live.gone.subscribe();
            drop(tokio::time::timeout(END_PATIENCE, gone.wait_for(Option::is_some)).await);
            return Err(live.ended());
        };
        let interrupts = live.interrupts.subscribe();
        live.is_busy.store(true, Ordering::Relaxed);
        Ok(Turn {
            live,
            interrupts,
            _permit: permit,
        })
    }
}

/// The right to be the one who uses a session.
pub(crate) struct Turn {
    live: Arc<Live>,
    /// Of this turn, not of one before.
    interrupts: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Turn {
    pub(crate) fn live(&self) -> &Live {
        &self.live
    }

    /// Lets `interrupt_session` reach whoever has this turn, from now on; the interrupts of it, counted up.
    pub(crate) fn open_to_interrupts(&self) -> watch::Receiver<u64> {
        self.live.has_call.store(true, Ordering::Relaxed);
        self.interrupts.clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.live.touch();
        self.live.is_busy.store(false, Ordering::Relaxed);
        self.live.has_call.store(false, Ordering::Relaxed);
    }
}

/// A seat for a session that is being made.
struct Seat {
    house: Arc<House>,
    namespace: Namespace,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.house.sessions.state();
        if let Some(making) = state.making.get_mut(&self.namespace) {
            *making -= 1;
            if *making == 0 {
                state.making.remove(&self.namespace);
            }
        }
    }
}

impl Live {
    /// Stands in line from now on, behind those who came before.
    pub(crate) fn line_up(self: &Arc<Self>) -> Result<InLine, RequestError> {
        let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waits = Waits(self.clone());
        if ahead >= WAITING_MAX {
            let mut busy = RequestError::new(
                ErrorCode::Busy,
                format!("{WAITING_MAX} calls wait for their turn on this session."),
                "Wait for an answer before the next call, or use more sessions.",
            );
            busy.retry_after_ms = Some(1000);
            return Err(busy);
        }
        let mut permit: Permit = Box::pin(self.line.clone().acquire_owned());
        // Asked once, it has its place; whoever waits for it asks again.
        let at_once = match permit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        };
        Ok(InLine {
            live: self.clone(),
            waits,
            permit,
            at_once,
        })
    }

    /// Waits for its turn behind those who came before.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        cancelled: watch::Receiver<bool>,
    ) -> Result<Turn, RequestError> {
        self.line_up()?.turn(cancelled).await
    }

    /// The same for whoever has something short to do, and does not wait for a long call.
    pub(crate) async fn turn_soon(self: &Arc<Self>) -> Result<Turn, RequestError> {
        let (_nobody, cancelled) = watch::channel(false);
        let turn = tokio::time::timeout(PATIENCE, self.turn(cancelled)).await;
        turn.unwrap_or_else(|_| {
            let mut busy = RequestError::new(
                ErrorCode::Busy,
                "the session is busy with a call.",
                "Wait for its answer, or stop it with `interrupt_session`.",
            );
            busy.retry_after_ms = Some(1000);
            Err(busy)
        })
    }

    /// Interrupts the call that runs or is about to; false: there is none.
    fn interrupt(&self) -> bool {
        let has_call = self.has_call.load(Ordering::Relaxed);
        if has_call {
            self.interrupts.send_modify(|count| *count += 1);
        }
        has_call
    }

    /// Ends it; the first reason counts.
    fn stop(&self, why: SessionEnd) {
        self.stop.send_if_modified(|stop| {
            let is_first = stop.is_none();
            *stop = stop.or(Some(why));
            is_first
        });
    }

    /// It has just been used.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it ends if nothing happens.
    fn ends_at(&self) -> Instant {
        (self.used() + self.idle).min(self.created + self.age)
    }

    /// Is it time.
    fn is_over(&self) -> Option<SessionEnd> {
        let now = Instant::now();
        if now >= self.created + self.age {
            Some(SessionEnd::Age)
        } else if now >= self.used() + self.idle && !self.is_busy.load(Ordering::Relaxed) {
            Some(SessionEnd::Idle)
        } else {
            None
        }
    }

    /// Nobody gets a turn any more.
    fn close(&self) {
        self.line.close();
    }

    fn ended(&self) -> RequestError {
        ended(&self.id, self.stop.borrow().unwrap_or(SessionEnd::Terminated))
    }

    /// How much its workspace may have.
    pub(crate) fn room(&self) -> Room {
        Room::of(&self.workspace, &self.limits, self.found)
    }

    /// What was done to its files from outside is nothing that the next call has made.
    pub(crate) fn look_again(&self) {
        *self.before() = Before::look_behind(&self.doors);
    }

    pub(crate) fn before(&self) -> MutexGuard<'_, Before> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a session only the whole is counted; its processor time is divided among its calls here.
    fn used_since_last(&self, usage: Option<Usage>) -> Usage {
        let mut last = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn describe(&self) -> Session {
        let unix = |at: Instant| {
            let since = at.saturating_duration_since(self.created).as_millis();
            self.created_unix_ms
                .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
        };
        Session {
            session_id: self.id.clone(),
            namespace: self.namespace.to_string(),
            language: self.language,
            state: if self.is_busy.load(Ordering::Relaxed) {
                SessionState::Busy
            } else {
                SessionState::Idle
            },
            created_unix_ms: self.created_unix_ms,
            used_unix_ms: unix(self.used()),
            idle_until_unix_ms: unix(self.used() + self.idle),
            ends_unix_ms: unix(self.created + self.age),
            calls: self.calls.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            tier: self.isolation.tier.to_string(),
            memory_bytes_max: self.limits.memory_bytes,
            timeout_seconds: Duration::from_millis(self.limits.timeout_ms).as_secs_f64(),
            // Where on the host it lies is not for every caller to know.
            workspace: match &self.workspace {
                WorkspaceSource::Private => "private".to_owned(),
                WorkspaceSource::Namespace => "namespace".to_owned(),
                WorkspaceSource::Listed(name) => name.to_string(),
                WorkspaceSource::Host { mode, .. } => format!("directory:{}", mode.as_str()),
            },
            packages: self
                .packages
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .names(),
        }
    }
}

/// One who waits; not any more when dropped.
struct Waits(Arc<Live>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sessions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this name, if it is this namespace's.
    pub(crate) fn find(&self, namespace: &Namespace, id: &SessionId) -> Result<Arc<Live>, RequestError> {
        let state = self.state();
        if let Some(live) = state.live.get(id).filter(|live| live.namespace == *namespace) {
            return Ok(live.clone());
        }
        let was = state
            .ended
            .iter()
            .find(|(ended, of, _)| ended == id && of == namespace);
        Err(match was {
            Some((_, _, end)) => ended(id, *end),
            None => absent(),
        })
    }

    /// Whose it is, and what it speaks.
    fn whose(&self, id: &SessionId) -> Result<(Namespace, Language), RequestError> {
        let state = self.state();
        if let Some(live) = state.live.get(id) {
            return Ok((live.namespace.clone(), live.language));
        }
        let was = state.ended.iter().find(|(ended, ..)| ended == id);
        Err(was.map_or_else(absent, |(_, _, end)| ended(id, *end)))
    }

    /// A place in the line of this session.
    pub(crate) fn line_up(&self, namespace: &Namespace, id: &SessionId) -> Result<InLine, RequestError> {
        self.find(namespace, id)?.line_up()
    }

    /// Those of a namespace, or all, the oldest first.
    pub(crate) fn list(&self, namespace: Option<&Namespace>) -> Vec<Session> {
        let state = self.state();
        let is_own = |live: &Live| namespace.is_none_or(|namespace| live.namespace == *namespace);
        let own = state.live.values().filter(|live| is_own(live));
        let mut listed: Vec<Session> = own.map(|live| live.describe()).collect();
        listed.sort_by(|a, b| a.session_id.cmp(&b.session_id));
        listed
    }

    /// How many live.
    pub(crate) fn count(&self) -> usize {
        self.state().live.len()
    }

    /// Takes a seat for one more.
    fn sit(&self, house: &Arc<House>, namespace: &Namespace) -> Result<Seat, RequestError> {
        let settings = &house.settings.sessions;
        let mut state = self.state();
        let making: usize = state.making.values().sum();
        let own = state
            .live
            .values()
            .filter(|live| live.namespace == *namespace)
            .count()
            + state.making.get(namespace).copied().unwrap_or(0);
        let full = |what: String| {
            Err(RequestError::new(
                ErrorCode::Busy,
                what,
                "End one with `terminate_session`, or wait until one has not been used for too long.",
            ))
        };
        if state.is_closed {
            return Err(RequestError::new(
                ErrorCode::Cancelled,
                "the server is stopping.",
                "Start it again.",
            ));
        }
        if own >= settings.per_namespace {
            return full(format!(
                "the namespace `{namespace}` has {own} sessions, which is as many as it may (`sessions.per_namespace`)."
            ));
        }
        if state.live.len() + making >= settings.max {
            return full(format!(
                "this server has {} sessions, which is as many as it may (`sessions.max`).",
                state.live.len() + making
            ));
        }
        *state.making.entry(namespace.clone()).or_default() += 1;
        Ok(Seat {
            house: house.clone(),
            namespace: namespace.clone(),
        })
    }

    /// False: the server has begun to stop.
    fn add(&self, live: Arc<Live>) -> bool {
        let mut state = self.state();
        if !state.is_closed {
            state.live.insert(live.id.clone(), live);
        }
        !state.is_closed
    }

    /// Its end is on record before it cannot be found any more.
    async fn bury(&self, house: &House, live: &Live, end: SessionEnd) {
        let details = json!({"session": live.id.as_str(), "why": end.as_str(), "calls": live.calls.load(Ordering::Relaxed)});
        let caller = Caller::ours();
        let note = Note {
            action: Action::SessionKilled,
            outcome: Outcome::Ok,
            namespace: live.namespace.as_str(),
            execution_id: None,
            caller: &caller,
            details,
        };
        if let Err(error) = house.record.note(note).await {
            tracing::error!(%error, session = %live.id, "the end of a session is not on record");
        }
        {
            let mut state = self.state();
            state.live.remove(&live.id);
            state
                .ended
                .push_back((live.id.clone(), live.namespace.clone(), end));
            if state.ended.len() > ENDED_MAX {
                state.ended.pop_front();
            }
        }
        house.approvals.forget_session(&live.id);
        let kind = EventKind::SessionKilled {
            session_id: live.id.to_string(),
            reason: end.as_str(),
        };
        house.bus.tell(live.namespace.as_str(), None, kind);
    }

    /// Ends all, and lets no other begin. Who has to be waited for.
    pub(crate) fn close(&self) -> Vec<watch::Receiver<Option<SessionEnd>>> {
        let mut state = self.state();
        state.is_closed = true;
        let all = state.live.values();
        all.map(|live| {
            live.stop(SessionEnd::Server);
            live.gone.subscribe()
        })
        .collect()
    }
}

fn absent() -> RequestError {
    RequestError::new(
        ErrorCode::NotFound,
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

impl Engine {
    /// The sessions of a namespace.
    pub async fn sessions(
        &self,
        caller: &Caller,
        namespace: &Namespace,
    ) -> Result<Vec<Session>, RequestError> {
        self.note_call(caller, namespace.as_str(), "list_sessions")
            .await?;
        Ok(self.house().sessions.list(Some(namespace)))
    }

    /// The language of a session, for a call that names none.
    pub fn language_of(&self, namespace: &Namespace, id: &SessionId) -> Result<Language, RequestError> {
        Ok(self.house().sessions.find(namespace, id)?.language)
    }

    /// The sessions of all namespaces. For the operator alone.
    pub async fn all_sessions(&self, caller: &Caller) -> Result<Vec<Session>, RequestError> {
        self.note_call(caller, "", "list_sessions").await?;
        Ok(self.house().sessions.list(None))
    }

    /// Whose session it is, and what it speaks. For the operator alone.
    pub fn whose(&self, id: &SessionId) -> Result<(Namespace, Language), RequestError> {
        self.house().sessions.whose(id)
    }

    /// Interrupts the call that runs in a session; false: none does.
    pub async fn interrupt_session(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        id: &SessionId,
    ) -> Result<bool, RequestError> {
        let interrupted = self
            .house()
            .sessions
            .find(namespace, id)
            .map(|live| live.interrupt());
        let told = interrupted.as_ref().map(|interrupted| json!(interrupted));
        self.note_session(caller, namespace, "interrupt_session", id, told)
            .await?;
        interrupted
    }

    /// Ends a session, and waits until nothing of it is left; false: it had ended before.
    pub async fn terminate_session(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        id: &SessionId,
    ) -> Result<bool, RequestError> {
        let ended = self.end_session(namespace, id).await;
        let told = ended.as_ref().map(|ended| json!(ended));
        self.note_session(caller, namespace, "terminate_session", id, told)
            .await?;
        ended
    }

    async fn end_session(&self, namespace: &Namespace, id: &SessionId) -> Result<bool, RequestError> {
        let live = match self.house().sessions.find(namespace, id) {
            Ok(live) => live,
            Err(error) if error.code == ErrorCode::SessionEnded => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut gone = live.gone.subscribe();
        live.stop(SessionEnd::Terminated);
        match tokio::time::timeout(END_PATIENCE, gone.wait_for(Option::is_some)).await {
            Ok(_) => Ok(true),
            Err(_) => Err(RequestError::new(
                ErrorCode::SandboxFault,
                format!("the session {id} is being ended, and is not gone yet."),
                "Look with `list_sessions`; the server's log says more.",
            )),
        }
    }

    /// What was done with which session, and how it went.
    async fn note_session(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        tool: &str,
        id: &SessionId,
        told: Result<serde_json::Value, &RequestError>,
    ) -> Result<(), RequestError> {
        let mut details = json!({"tool": tool, "session": id.as_str()});
        let outcome = match told {
            Ok(told) => {
                details["done"] = told;
                Outcome::Ok
            }
            Err(error) => {
                details["code"] = json!(error.code.as_str());
                Outcome::Failed
            }
        };
        let note = Note {
            action: Action::ToolCalled,
            outcome,
            namespace: namespace.as_str(),
            execution_id: None,
            caller,
            details,
        };
        self.house().record.note(note).await.map(drop)
    }
}
