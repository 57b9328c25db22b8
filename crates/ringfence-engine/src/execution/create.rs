//! A session from its request to its first call: what a run has until its program starts, and then it stays.

use super::{
    fresh::{self, Choice},
    states::{Leased, Request},
    steps,
};
use crate::{
    artifacts::Before,
    caller::{Caller, Client},
    error::{stopping, task_died},
    events::{EventKind, now_ms},
    language, overlay,
    policy::{self, Grant},
    sandbox::RunInputs,
    services::Services,
    session::{
        Activity, Interpreter, Job, Session, SessionEgress, SessionReservation, SessionTask, ShownPackages,
    },
    settings::SessionSettings,
    warm,
};
use ringfence_jail::wire::Cause;
use ringfence_types::{
    ErrorCode, ExecuteRequest, Limits, RequestError, Session as SessionFacts, SessionEnd, SessionId,
    SessionRequest,
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, mpsc, watch};

/// How long an interpreter may take to say that it is ready.
const START_PATIENCE: Duration = Duration::from_secs(20);
const IDLE_MIN: Duration = Duration::from_secs(1);

/// A session whose creator has not been answered yet. It ends if that never happens.
struct Unclaimed {
    session: Arc<Session>,
    is_claimed: bool,
}

impl Unclaimed {
    fn claim(mut self) -> Arc<Session> {
        self.is_claimed = true;
        self.session.clone()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if !self.is_claimed {
            self.session.stop(SessionEnd::Terminated);
        }
    }
}

async fn create(
    services: &Arc<Services>,
    caller: &Caller,
    asked: SessionRequest,
    client: Client,
) -> Result<Unclaimed, RequestError> {
    let id = SessionId::try_from(uuid::Uuid::now_v7().to_string())
        .map_err(|reason| RequestError::new(ErrorCode::SandboxFault, reason, "Report this."))?;
    let scope = services.record.open_session(&id, caller, &asked)?;
    let request = Request {
        services,
        scope: &scope,
        client,
    };
    let made = make(&request, &id, asked).await;
    let closed = scope
        .close_session(made.as_ref().map(|made| &made.session.limits))
        .await;
    let made = made?;
    closed?;
    let session = &made.session;
    let kind = EventKind::SessionCreated {
        session_id: id.to_string(),
        language: session.language,
    };
    services
        .telemetry
        .bus
        .publish(session.namespace.as_str(), None, kind);
    warm::fill(&services.sandboxes);
    Ok(made)
}

/// The grant of its sandbox, and the limits of its calls.
fn decide(services: &Services, asked: ExecuteRequest) -> Result<(Grant, Limits), RequestError> {
    let state = services.namespace_state(&asked.namespace, None);
    let (policy, private) = (services.policy.current(), &services.policy.private);
    policy::decide_session(&policy, &state, private, asked, services.sessions.settings.age)
}

async fn make(
    request: &Request<'_>,
    id: &SessionId,
    asked: SessionRequest,
) -> Result<Unclaimed, RequestError> {
    let services = request.services;
    let reserved = services.sessions.reserve(&asked.namespace)?;
    let idle = idle(&services.sessions.settings, asked.idle_ms)?;
    let (grant, limits) = decide(services, execute_request(asked))?;
    let packages = steps::packages(request, &grant).await?;
    let permit = steps::permit(request, &grant).await?;
    request.scope.begin().await?;
    let leased = fresh::lease(request, &grant).await?;
    let workspace = &leased.workspace;
    let lower = overlay::lower_of(workspace).await?;
    let inputs = RunInputs {
        lease: &leased.secrets,
        prepared: &language::session_program(),
        layer: packages.as_ref().map(|packages| &packages.name),
        workspace: workspace.shared.as_ref(),
    };
    let found = workspace.found().await?;
    let choice = Choice::among(request, &grant, &leased);
    let (mut claimed, isolation) = fresh::claim(request, choice, &grant, &inputs).await?;
    // Its turn at the workspace ends here; each call takes one of its own.
    let Leased {
        secrets, workspace, ..
    } = leased;
    drop(workspace);
    let egress = SessionEgress::begin(&services.egress, &grant, &secrets, id, claimed.take_sockets())?;
    let mut parts = claimed.into_parts();
    let dirs = parts.dirs.take().ok_or_else(|| not_begun(parts.early))?;
    let mut interpreter = Interpreter::attach(parts)?;
    interpreter.ready(START_PATIENCE).await?;
    drop(permit);
    let (jobs, received) = mpsc::channel(1);
    let (now, asked) = (Instant::now(), grant.request());
    let session = Arc::new(Session {
        id: id.clone(),
        namespace: asked.namespace.clone(),
        language: asked.language,
        workspace: asked.workspace.clone(),
        allowed_domains: asked.allowed_domains.clone(),
        lower,
        limits,
        found,
        isolation,
        before: Mutex::new(Before::look_behind(&dirs)),
        dirs,
        lease: secrets,
        idle,
        age: services.sessions.settings.age,
        created: now,
        created_unix_ms: now_ms(),
        activity: Activity::new(now),
        usage: Mutex::default(),
        packages: Mutex::new(ShownPackages::new(asked.packages.clone(), packages)),
        egress: Mutex::new(egress),
        line: Arc::new(Semaphore::new(1)),
        jobs,
        events: interpreter.events(),
        stop: watch::channel(None).0,
        interrupts: watch::channel(0).0,
        gone: watch::channel(None).0,
    });
    settle(services, reserved, session.clone(), interpreter, received)?;
    Ok(Unclaimed {
        session,
        is_claimed: false,
    })
}

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

fn settle(
    services: &Arc<Services>,
    reserved: SessionReservation,
    session: Arc<Session>,
    interpreter: Interpreter,
    jobs: mpsc::Receiver<Job>,
) -> Result<(), RequestError> {
    if !services.sessions.add(session.clone()) {
        return Err(stopping());
    }
    drop(reserved);
    let task = SessionTask {
        sessions: Arc::downgrade(&services.sessions),
        stop: session.stop.subscribe(),
        live: session,
        interpreter,
        jobs,
    };
    tokio::spawn(task.run());
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
fn execute_request(asked: SessionRequest) -> ExecuteRequest {
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
    } = asked;
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

/// Cancels the creation of a session when its creator no longer waits.
struct CancelOnDrop(watch::Sender<bool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Makes a session. It is on record before it is made, and with what became of it. A creator that hangs up meanwhile
/// leaves no session behind.
pub(crate) async fn create_session(
    services: &Arc<Services>,
    caller: &Caller,
    asked: SessionRequest,
) -> Result<SessionFacts, RequestError> {
    let (services, caller) = (services.clone(), caller.clone());
    let (cancel, cancelled) = watch::channel(false);
    let cancel = CancelOnDrop(cancel);
    let client = Client {
        output: None,
        cancelled,
    };
    let made = tokio::spawn(async move { create(&services, &caller, asked, client).await });
    let made = made.await.unwrap_or_else(|_| Err(task_died()));
    drop(cancel);
    made.map(|unclaimed| unclaimed.claim().describe())
}
