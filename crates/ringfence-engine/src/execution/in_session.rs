//! A call of a session: its code goes to an interpreter that lives on afterwards.

use super::{
    outcome::PhaseTimer,
    states::{Admitted, ExecutionContext, Finished, Leased},
};
use crate::{
    approval::TakenOnce,
    artifacts::Baseline,
    backend::RawOutcome,
    egress::Reached,
    error::Result,
    language::{ProgramReport, session as language_session},
    policy::{self, Grant},
    prepare::{self, PreparedCall},
    services::Services,
    session::{CallEgress, CallOutcome, CallResult, DriverRequest, Session, Turn},
    store,
    streams::Stdio,
    workspaces::{self, WorkspaceLease},
};
use ringfence_jail::wire::{Cause, Ending, Order};
use ringfence_store::tree;
use ringfence_types::{Backend, ExecuteRequest, ProgramError, RequestError, WorkspaceSource};
use std::{
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// The exit status of a call whose program failed, as wait(2) gives it.
const FAILED: i32 = 1 << 8;

pub(super) fn decide(
    context: &ExecutionContext<'_>,
    session: &Session,
    request: ExecuteRequest,
) -> Result<(Grant, TakenOnce)> {
    let services = context.services;
    let language = request.language;
    if language != session.language {
        return Err(RequestError::invalid(
            format!(
                "the language of the session {} is {}, not {language}.",
                session.id, session.language
            ),
            "Leave `language` out, or make a session of that language.",
        ));
    }
    let caller = context.scope.caller();
    let (state, once) = services.state_for_run(caller, &session.namespace, Some(&session.id));
    let of_session = policy::SessionGrant {
        limits: &session.limits,
        allowed_domains: &session.allowed_domains,
        backend: session.backend,
    };
    let policy = services.policy.current();
    policy::decide_call(&policy, &state, of_session, request).map(|grant| (grant, once))
}

/// A call that is ready to be sent. Dropped, it ends its egress and its CPU share.
pub(super) struct SessionCall {
    sent: DriverRequest,
    /// The parser's error, if any; then nothing is sent.
    objection: Option<ProgramError>,
    share: Option<Share>,
    egress: Option<CallEgress>,
    session: Arc<Session>,
    leased: Leased,
}

pub(super) async fn start(
    context: &ExecutionContext<'_>,
    admitted: &Admitted,
    turn: &Turn,
    leased: Leased,
    stdio: Stdio,
) -> Result<SessionCall> {
    let (services, session, grant) = (context.services, &turn.session, &admitted.grant);
    let number = session.activity.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let PreparedCall { name, code, error } =
        prepare::call(&services.sandboxes, &grant.request, number).await?;
    let workspace = put_files(services, session, leased.workspace, grant).await?;
    let request = &grant.request;
    let env: Vec<(String, String)> = request
        .env
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned()))
        .collect();
    let call = language_session::Call {
        number,
        name: &name,
        code: &code,
        args: &request.args,
        env: &env,
        stdin: &request.stdin,
        checks: admitted.check.checks.as_ref(),
    };
    let message = language_session::encode_call(session.language, &call).map_err(|why| {
        RequestError::invalid(
            format!("the call cannot be sent: {why}."),
            "Send large data as files.",
        )
    })?;
    let sent = DriverRequest {
        number,
        message,
        stdio,
        keep: admitted.kept_bytes(),
        timeout: Duration::from_millis(grant.limits.timeout_ms),
        cancelled: context.client.cancelled.clone(),
        interrupts: turn.open_to_interrupts(),
        is_question: false,
    };
    Ok(SessionCall {
        sent,
        objection: error,
        share: Share::take(services, session, grant.limits.cpu_millicores)?,
        egress: leased.egress,
        session: session.clone(),
        leased: Leased {
            egress: None,
            workspace,
            secrets: leased.secrets,
        },
    })
}

/// A call's own CPU share. The session's share is restored when this is dropped.
struct Share(Arc<Session>);

impl Share {
    fn take(services: &Services, session: &Arc<Session>, cpu_millicores: u32) -> Result<Option<Self>> {
        if cpu_millicores == session.limits.cpu_millicores {
            return Ok(None);
        }
        let backend = session.backend;
        if backend != Backend::Native {
            return Err(RequestError::unsupported(
                format!("the backend `{backend}` gives a running session no other share of the processors."),
                "Give max_cpu_cores to `create_session`.",
            ));
        }
        if !services.sandboxes.native.host.cgroups.shares_processors() {
            return Err(RequestError::unsupported(
                "this host has no cgroup by which a running session could be given another share of the processors.",
                "Give max_cpu_cores to `create_session`, or run the server where it has a cgroup with the cpu controller.",
            ));
        }
        session.events.order(&Order::Share { cpu_millicores });
        Ok(Some(Self(session.clone())))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let cpu_millicores = self.0.limits.cpu_millicores;
        self.0.events.order(&Order::Share { cpu_millicores });
    }
}

async fn put_files(
    services: &Arc<Services>,
    session: &Arc<Session>,
    workspace: WorkspaceLease,
    grant: &Grant,
) -> Result<WorkspaceLease> {
    if grant.request.files.is_empty() {
        // Others may have written into a shared workspace since the last call; those files are not this call's.
        if workspace.stays() {
            let session = session.clone();
            store::blocking(move || session.reset_baseline()).await?;
        }
        return Ok(workspace);
    }
    if workspace.shared.is_some() && !workspace.stays() {
        return Err(RequestError::invalid(
            "no files can be put into a workspace that is read-only or an overlay.",
            "Have the program write them, or use a session with a private workspace.",
        ));
    }
    if session.workspace == WorkspaceSource::Namespace {
        services.disk.check(&session.namespace).await?;
    }
    let root = workspace.open(Some(&session.dirs))?;
    let (session, files) = (session.clone(), grant.request.files.clone());
    let put = move || {
        let alone = workspace.lock_for_writing().map_err(store::fault)?;
        let sizes: Vec<_> = files
            .iter()
            .map(|file| (&file.path, file.bytes.len() as u64))
            .collect();
        session.quota().check(root.as_fd(), &sizes)?;
        for file in &files {
            let (path, bytes) = (&file.path, &file.bytes);
            let put = tree::put(root.as_fd(), path, bytes, None, workspaces::FILE_BYTES_MAX);
            put.map_err(|error| workspaces::write_error(error, &workspace))?;
        }
        session.reset_baseline();
        drop(alone);
        Ok(workspace)
    };
    store::blocking(put).await?
}

/// Sends the call, waits for its answer, and ends its egress.
pub(super) async fn wait(call: SessionCall, timer: &mut PhaseTimer) -> Result<Finished> {
    // In order of acquisition, so that they are released in reverse.
    let SessionCall {
        leased,
        session,
        egress,
        share,
        objection,
        sent,
    } = call;
    let called = match objection {
        None => session.send(sent).await?,
        Some(objection) => CallResult::objected(sent.number, objection),
    };
    drop(share);
    timer.lap(|phases| &mut phases.run_ms);
    let session_ended = called.outcome.end();
    let (raw, program) = outcome(&session, called)?;
    let traffic = egress.and_then(CallEgress::report);
    Ok(Finished {
        reached: Reached::of(traffic, raw.ending.usage.unrouted),
        raw,
        program,
        changes: Ok(None),
        session_ended,
        before: Baseline::default(),
        secrets: leased.secrets,
        workspace: leased.workspace,
    })
}

/// Converts the result of a call to the form of a run's outcome.
fn outcome(session: &Session, called: CallResult) -> Result<(RawOutcome, ProgramReport)> {
    let CallResult {
        outcome,
        stdout,
        stderr,
        usage,
    } = called;
    let (cause, status, usage, program) = match outcome {
        CallOutcome::Lost(error) => return Err(error),
        CallOutcome::Answered(answer, why) => {
            let status = match (answer.status, answer.ok) {
                (Some(status), _) => status << 8,
                (None, true) => 0,
                (None, false) => FAILED,
            };
            let cause = why.unwrap_or(Cause::Program);
            (cause, Some(status), usage, answer.report)
        }
        CallOutcome::Ended(ending, program) => (ending.cause, ending.status, Some(ending.usage), program),
        CallOutcome::GivenUp(_, why) => (why, None, usage, ProgramReport::default()),
    };
    let raw = RawOutcome {
        ending: Ending {
            cause,
            status: status.filter(|_| cause == Cause::Program),
            usage: session.used_since_last(usage),
            is_stuck: false,
        },
        stdout,
        stderr,
        report: Vec::new(),
        dirs: None,
        hold: None,
        isolation: session.isolation.clone(),
    };
    Ok((raw, program))
}
