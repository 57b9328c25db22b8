//! A session from its request to its first call: what a run has until its program starts, and then it stays.

use super::{Chosen, admit, packages_of, start};
use crate::{
    artifacts::Before,
    caller::Caller,
    events::{EventKind, now_ms},
    language, overlay, policy,
    record::AuditScope,
    sandbox::RunInputs,
    services::Services,
    session::{Activity, Interpreter, Job, Session, SessionPermit, SessionTask, ShownPackages, WayOut},
    settings::SessionSettings,
    warm,
};
use ringfence_jail::wire::Cause;
use ringfence_types::{
    ErrorCode, ExecuteRequest, RequestError, Session as SessionFacts, SessionEnd, SessionId, SessionRequest,
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, mpsc, watch};

/// How long an interpreter may take to say that it is ready.
const START_PATIENCE: Duration = Duration::from_secs(20);
const IDLE_MIN: Duration = Duration::from_secs(1);

/// A session of which nobody has been told. It ends if nobody ever is.
struct Unclaimed {
    live: Arc<Session>,
    is_claimed: bool,
}

impl Unclaimed {
    fn claim(mut self) -> Arc<Session> {
        self.is_claimed = true;
        self.live.clone()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if !self.is_claimed {
            self.live.stop(SessionEnd::Terminated);
        }
    }
}

async fn create(
    services: &Arc<Services>,
    caller: &Caller,
    wish: SessionRequest,
    cancelled: watch::Receiver<bool>,
) -> Result<Unclaimed, RequestError> {
    let id = SessionId::try_from(uuid::Uuid::now_v7().to_string())
        .map_err(|reason| RequestError::new(ErrorCode::SandboxFault, reason, "Report this."))?;
    let opened = services.record.open_session(&id, caller, &wish)?;
    let made = make(services, &opened, &id, wish, cancelled).await;
    let closed = opened
        .close_session(made.as_ref().map(|made| &made.live.limits))
        .await;
    let made = made?;
    closed?;
    let live = &made.live;
    let kind = EventKind::SessionCreated {
        session_id: id.to_string(),
        language: live.language,
    };
    services.telemetry.bus.tell(live.namespace.as_str(), None, kind);
    warm::fill(&services.sandboxes);
    Ok(made)
}

async fn make(
    services: &Arc<Services>,
    opened: &AuditScope,
    id: &SessionId,
    wish: SessionRequest,
    cancelled: watch::Receiver<bool>,
) -> Result<Unclaimed, RequestError> {
    let seat = services.sessions.sit(&wish.namespace)?;
    let idle = idle(&services.sessions.settings, wish.idle_ms)?;
    let age = services.sessions.settings.age;
    let request = request(wish);
    let standing = services.standing(&request.namespace, None);
    let (grant, limits) = policy::decide_session(
        &services.policy.current(),
        &standing,
        &services.policy.private,
        request,
        age,
    )?;
    let packages = packages_of(services, opened, &grant, None, cancelled.clone()).await?;
    let permit = admit(services, &grant, cancelled.clone()).await?;
    opened.begin().await?;
    let lease = services.secrets.lease(opened, &grant).await?;
    let lease = services.egress.inspect(&grant, lease).await?;
    // Its turn at the workspace ends here; each call takes one of its own.
    let lent = services.workspaces.lend(&grant).await?;
    let lower = overlay::lower_of(Some(&lent)).await?;
    let brought = RunInputs {
        lease: &lease,
        prepared: &language::session_program(),
        layer: packages.as_ref().map(|packages| &packages.name),
        workspace: lent.shared.as_ref(),
    };
    let found = lent.found().await?;
    let chosen = Chosen::among(services, id.as_str(), &grant, &lease, &lent);
    let (mut started, isolation) = start(services, chosen, &grant, &brought, cancelled).await?;
    drop(lent);
    let way_out = WayOut::begin(&services.egress, &grant, &lease, id, started.take_sockets())?;
    let mut parts = started.into_parts();
    let doors = parts.doors.take().ok_or_else(|| not_begun(parts.early))?;
    let mut interpreter = Interpreter::attach(parts)?;
    interpreter.ready(START_PATIENCE).await?;
    drop(permit);
    let (jobs, received) = mpsc::channel(1);
    let (now, request) = (Instant::now(), grant.request());
    let live = Arc::new(Session {
        id: id.clone(),
        namespace: request.namespace.clone(),
        language: request.language,
        workspace: request.workspace.clone(),
        allowed_domains: request.allowed_domains.clone(),
        lower,
        limits,
        found,
        isolation,
        before: Mutex::new(Before::look_behind(&doors)),
        doors,
        lease,
        idle,
        age,
        created: now,
        created_unix_ms: now_ms(),
        activity: Activity::new(now),
        usage: Mutex::default(),
        packages: Mutex::new(ShownPackages::new(request.packages.clone(), packages)),
        way_out: Mutex::new(way_out),
        line: Arc::new(Semaphore::new(1)),
        jobs,
        events: interpreter.events(),
        stop: watch::channel(None).0,
        interrupts: watch::channel(0).0,
        gone: watch::channel(None).0,
    });
    settle(services, seat, live.clone(), interpreter, received)?;
    let is_claimed = false;
    Ok(Unclaimed { live, is_claimed })
}

/// Its interpreter never ran.
fn not_begun(why: Option<Cause>) -> RequestError {
    match why {
        Some(Cause::Disk) => RequestError::new(
            ErrorCode::PolicyDenied,
            "there is more than twice as much in the workspace as it may have.",
            "Restore a snapshot that is smaller, put smaller files in the place of large ones, or have the operator raise limits.disk_mb.",
        ),
        _ => RequestError::new(
            ErrorCode::SandboxFault,
            "the session was ended while it was made.",
            "Try again.",
        ),
    }
}

/// It lives from here.
fn settle(
    services: &Arc<Services>,
    seat: SessionPermit,
    live: Arc<Session>,
    interpreter: Interpreter,
    jobs: mpsc::Receiver<Job>,
) -> Result<(), RequestError> {
    if !services.sessions.add(live.clone()) {
        return Err(RequestError::new(
            ErrorCode::Cancelled,
            "the server is stopping.",
            "Start it again.",
        ));
    }
    drop(seat);
    let life = SessionTask {
        sessions: Arc::downgrade(&services.sessions),
        stop: live.stop.subscribe(),
        live: live.clone(),
        interpreter,
        jobs,
    };
    tokio::spawn(life.live());
    Ok(())
}

fn idle(settings: &SessionSettings, asked_ms: Option<u64>) -> Result<Duration, RequestError> {
    let Some(asked) = asked_ms.map(Duration::from_millis) else {
        return Ok(settings.idle);
    };
    if asked < IDLE_MIN || asked > settings.idle_max {
        return Err(RequestError::invalid(
            format!(
                "idle_timeout_seconds = {} is outside {}..={}.",
                asked.as_secs_f64(),
                IDLE_MIN.as_secs(),
                settings.idle_max.as_secs()
            ),
            "Ask for a time within; the bound is the operator's `sessions.idle_seconds_max`.",
        ));
    }
    Ok(asked)
}

/// What its sandbox is claimed with: an interpreter, and nothing to run yet.
fn request(wish: SessionRequest) -> ExecuteRequest {
    let SessionRequest {
        language,
        namespace,
        env,
        secrets,
        limits,
        workspace,
        packages,
        allowed_domains,
        ..
    } = wish;
    let mut request = ExecuteRequest::new(language, language::SESSION);
    request.namespace = namespace;
    request.env = env;
    request.secrets = secrets;
    request.limits = limits;
    request.workspace = workspace;
    request.packages = packages;
    request.allowed_domains = allowed_domains;
    request
}

/// Somebody waits for a session to be made; tells when they do no more.
struct Waits(watch::Sender<bool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Makes a session. It is on record before it is made, and with what became of it. Who hangs up meanwhile leaves none
/// behind.
pub(crate) async fn create_session(
    services: &Arc<Services>,
    caller: &Caller,
    wish: SessionRequest,
) -> Result<SessionFacts, RequestError> {
    let (services, caller) = (services.clone(), caller.clone());
    let (waits, cancelled) = watch::channel(false);
    let waits = Waits(waits);
    let made = tokio::spawn(async move { create(&services, &caller, wish, cancelled).await });
    let made = made.await.unwrap_or_else(|_| {
        Err(RequestError::new(
            ErrorCode::SandboxFault,
            "the engine's task died.",
            "Report this.",
        ))
    });
    drop(waits);
    made.map(|unclaimed| unclaimed.claim().describe())
}
