//! Creates a session: the same steps as a run has until its program starts; the sandbox is then kept.

use super::{
    fresh::{self, Choice},
    states::{ExecutionContext, Leased},
    steps,
};
use crate::{
    artifacts::Baseline,
    caller::{Caller, Client},
    error::{Result, stopping, task_died},
    events::{EventKind, now_ms},
    language::{self, Prepared},
    overlay,
    policy::{self, Grant},
    record::Closing,
    sandbox::RunInputs,
    secrets::Redacted,
    services::Services,
    session::{
        Activity, Interpreter, Job, Session, SessionEgress, SessionReservation, SessionTask, ShownPackages,
    },
    settings::SessionSettings,
    warm,
};
use ringfence_jail::wire::Cause;
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{
    ExecuteRequest, Limits, RequestError, Session as SessionFacts, SessionEnd, SessionId, SessionRequest,
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, mpsc, watch};

/// Time for an interpreter to report that it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_MIN: Duration = Duration::from_secs(1);

/// A session whose id has not been returned to its creator. Dropped before that, it stops the session.
struct NewSession {
    session: Arc<Session>,
    is_delivered: bool,
}

impl Drop for NewSession {
    fn drop(&mut self) {
        if !self.is_delivered {
            self.session.stop(SessionEnd::Terminated);
        }
    }
}

async fn create(
    services: &Arc<Services>,
    caller: &Caller,
    request: ExecuteRequest,
    idle_ms: Option<u64>,
    client: Client,
) -> Result<NewSession> {
    let id = SessionId::try_from(uuid::Uuid::now_v7().to_string())
        .map_err(|reason| RequestError::fault(reason, "Report this."))?;
    let scope = services
        .record
        .open(Action::SessionCreated, id.as_str(), caller, &request)?;
    let context = ExecutionContext {
        services,
        scope: &scope,
        client,
    };
    let made = make(&context, &id, request, idle_ms).await;
    let closing = |made: &NewSession| Closing {
        action: Action::SessionCreated,
        outcome: Outcome::Ok,
        details: json!({"session": id.as_str(), "limits": made.session.limits}),
    };
    let closed = scope.close(made.as_ref().map(closing)).await;
    let made = made?;
    closed?;
    let session = &made.session;
    let kind = EventKind::SessionCreated {
        session_id: id.to_string(),
        language: session.language,
    };
    services.telemetry.bus.publish(&session.namespace, None, kind);
    warm::fill(&services.sandboxes);
    Ok(made)
}

/// Returns the grant of the sandbox, and the limits of the session's calls.
fn decide(context: &ExecutionContext<'_>, request: ExecuteRequest) -> Result<(Grant, Limits)> {
    let services = context.services;
    let state = services.namespace_state(context.scope.caller(), &request.namespace, None);
    let (policy, private) = (services.policy.current(), &services.policy.private);
    policy::decide_session(&policy, &state, private, request, services.sessions.settings.age)
}

async fn make(
    context: &ExecutionContext<'_>,
    id: &SessionId,
    request: ExecuteRequest,
    idle_ms: Option<u64>,
) -> Result<NewSession> {
    let services = context.services;
    let reserved = services.sessions.reserve(&request.namespace)?;
    let idle = idle(&services.sessions.settings, idle_ms)?;
    let (grant, limits) = decide(context, request)?;
    let packages = steps::packages(context, &grant).await?;
    let permit = steps::permit(context, &grant).await?;
    context.scope.begin().await?;
    let leased = fresh::lease(context, &grant, Redacted::All).await?;
    let workspace = &leased.workspace;
    let lower = overlay::lower_of(workspace).await?;
    let inputs = RunInputs {
        lease: &leased.secrets,
        prepared: &Prepared::session(),
        layer: packages.as_ref().map(|packages| &packages.name),
        workspace: workspace.shared.as_ref(),
    };
    let initial_use = workspace.found().await?;
    let choice = Choice::among(context, &grant, &leased).await?;
    let (mut claimed, isolation) = fresh::claim(context, choice, &grant, &inputs).await?;
    // The workspace is released here; each call acquires it again.
    let Leased {
        secrets, workspace, ..
    } = leased;
    drop(workspace);
    let egress = SessionEgress::begin(&services.egress, &grant, &secrets, id, claimed.egress.take())?;
    let early = claimed.early.as_ref().map(|ending| ending.cause);
    let dirs = claimed.dirs.take().ok_or_else(|| ended_early(early))?;
    let mut interpreter = Interpreter::attach(claimed.sandbox)?;
    interpreter.ready(START_TIMEOUT).await?;
    drop(permit);
    let (jobs, received) = mpsc::channel(1);
    let (now, request) = (Instant::now(), &grant.request);
    let session = Arc::new(Session {
        id: id.clone(),
        namespace: request.namespace.clone(),
        language: request.language,
        workspace: request.workspace.clone(),
        backend: grant.backend,
        allowed_domains: request.allowed_domains.clone(),
        lower,
        limits,
        initial_use,
        isolation,
        before: Mutex::new(Baseline::of(&dirs)),
        dirs,
        lease: secrets,
        idle,
        age: services.sessions.settings.age,
        created: now,
        created_unix_ms: now_ms(),
        used: Mutex::new(now),
        activity: Activity::default(),
        usage: Mutex::default(),
        packages: Mutex::new(ShownPackages::new(request.packages.clone(), packages)),
        egress: Mutex::new(egress),
        queue: Arc::new(Semaphore::new(1)),
        jobs,
        events: interpreter.events.clone(),
        stop: watch::channel(None).0,
        interrupts: watch::channel(0).0,
        gone: watch::channel(None).0,
    });
    register(services, reserved, session.clone(), interpreter, received)?;
    Ok(NewSession {
        session,
        is_delivered: false,
    })
}

fn ended_early(why: Option<Cause>) -> RequestError {
    match why {
        Some(Cause::Disk) => RequestError::denied(
            "the workspace holds more than twice its limit.",
            "Restore a snapshot that is smaller, put smaller files in the place of large ones, or have the operator raise limits.disk_mb.",
        ),
        _ => RequestError::fault("the session was ended while it was created.", "Try again."),
    }
}

fn register(
    services: &Arc<Services>,
    reserved: SessionReservation,
    session: Arc<Session>,
    interpreter: Interpreter,
    jobs: mpsc::Receiver<Job>,
) -> Result<()> {
    if !services.sessions.add(session.clone()) {
        return Err(stopping());
    }
    drop(reserved);
    let task = SessionTask {
        sessions: Arc::downgrade(&services.sessions),
        stop: session.stop.subscribe(),
        session,
        interpreter,
        jobs,
    };
    tokio::spawn(task.run());
    Ok(())
}

fn idle(settings: &SessionSettings, idle_ms: Option<u64>) -> Result<Duration> {
    let Some(idle) = idle_ms.map(Duration::from_millis) else {
        return Ok(settings.idle);
    };
    if idle < IDLE_MIN || idle > settings.idle_max {
        return Err(RequestError::invalid(
            format!(
                "idle_timeout_seconds = {} is outside {}..={}.",
                idle.as_secs_f64(),
                IDLE_MIN.as_secs(),
                settings.idle_max.as_secs()
            ),
            "Ask for a time within; the bound is the operator's `sessions.idle_seconds_max`.",
        ));
    }
    Ok(idle)
}

/// Returns the request that the sandbox is claimed with: an interpreter, without code.
fn execute_request(request: SessionRequest) -> ExecuteRequest {
    ExecuteRequest {
        namespace: request.namespace,
        env: request.env,
        secrets: request.secrets,
        limits: request.limits,
        workspace: request.workspace,
        packages: request.packages,
        allowed_domains: request.allowed_domains,
        backend: request.backend,
        ..ExecuteRequest::new(request.language, language::SESSION)
    }
}

/// Cancels the creation of a session when its creator no longer waits.
struct CancelOnDrop(watch::Sender<bool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// Creates a session, on record before it begins and with its outcome. If its creator disconnects, none remains.
pub(crate) async fn create_session(
    services: &Arc<Services>,
    caller: &Caller,
    request: SessionRequest,
) -> Result<SessionFacts> {
    let (services, caller) = (services.clone(), caller.clone());
    let (cancel, cancelled) = watch::channel(false);
    let cancel = CancelOnDrop(cancel);
    let client = Client {
        output: None,
        cancelled,
    };
    let (idle_ms, request) = (request.idle_ms, execute_request(request));
    let made = tokio::spawn(async move { create(&services, &caller, request, idle_ms, client).await });
    let made = made.await.unwrap_or_else(|_| Err(task_died()));
    drop(cancel);
    made.map(|mut made| {
        made.is_delivered = true;
        made.session.describe()
    })
}
