//! One call of a session, each line consuming what the one above produced, inside the same bracket as a run.

use super::{Clock, Executed, admit, kept_bytes, stage_options, staged, teller};
use crate::{
    artifacts::{self, Staged},
    backend::RawOutcome,
    caller::{OutputChunk, Submission},
    check::Text,
    egress::{Reached, Requester},
    language::{Checks, ProgramReport, session as language_session},
    limits_met::Bounds,
    policy::{self, Grant},
    prepare::{self, Sendable},
    record::AuditScope,
    report::{self, About},
    services::Services,
    session::{self, Called, How, InLine, PackageCaller, Sent, Session, Turn, way_out},
    store,
    streams::Stdio,
    workspaces::{self, Wanted, WorkspaceLease},
};
use ringfence_jail::wire::{Cause, Ending, Order};
use ringfence_store::tree;
use ringfence_types::{ErrorCode, ExecuteRequest, RequestError, WorkspaceSource};
use std::{
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// The exit status of a call whose program failed, as wait(2) gives it.
const FAILED: i32 = 1 << 8;

pub(crate) async fn call(
    services: &Arc<Services>,
    opened: &AuditScope,
    place: InLine,
    submission: Submission,
    live_output: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
    mut clock: Clock,
) -> Result<Executed, RequestError> {
    let Submission { request, stdin, .. } = submission;
    let live = place.live().clone();
    let grant = decide(services, &live, request)?;
    let looked = services.checkers.look(&grant, Text::Call).await?;
    let turn = place.turn(cancelled.clone()).await?;
    turn.name(opened.id());
    opened.begin().await?;
    let turned_ms = clock.lap();
    let of = PackageCaller::of(opened, live_output.as_ref(), &cancelled);
    session::provide(&services.packages, &live, of, &grant.request().packages).await?;
    let asker = Requester::of(opened, live_output.as_ref());
    let of_call = way_out::provide(&services.egress, &live, &grant, asker).await?;
    let provided_ms = clock.lap();
    let permit = admit(services, &grant, cancelled.clone()).await?;
    // Nobody puts another state in the workspace's place while a call runs.
    let lent = services
        .workspaces
        .lend_to(&live.namespace, &live.workspace, Wanted::Shared)
        .await?;
    clock.phases.queued_ms = turned_ms + clock.lap();
    let number = live.activity.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let sendable = prepare::call(&services.sandboxes, grant.request(), number).await?;
    let lent = put_files(services, &live, lent, &grant).await?;
    let sent = Sent {
        number,
        word: word(&live, number, &grant, &sendable, looked.checks.as_ref())?,
        wires: Stdio {
            stdin,
            stdin_bytes: Vec::new(),
            live: live_output,
            redactor: live.lease.redactor.clone(),
            teller: Some(teller(services, opened.id(), &grant)),
        },
        keep: kept_bytes(&grant),
        timeout: Duration::from_millis(grant.limits().timeout_ms),
        cancelled,
        interrupts: turn.open_to_interrupts(),
        is_question: false,
    };
    let share = Share::take(services, &live, grant.limits().cpu_millicores)?;
    clock.phases.start_ms = provided_ms + clock.lap();
    let called = match sendable.error {
        None => live.send(sent).await?,
        Some(objection) => Called::objected(number, objection),
    };
    drop(share);
    clock.phases.run_ms = clock.lap();
    let ended = called.how.end();
    let (raw, program) = outcome(&live, called)?;
    let reached = Reached::of(of_call.report(), raw.ending.usage.unrouted);
    let staged = stage(services, &live, opened.id(), &lent, turn).await?;
    drop((lent, permit));
    let (validation, unchecked) = looked.findings(&program.patched).await;
    clock.phases.finish_ms = clock.lap();
    let about = About {
        session_id: Some(live.id.to_string()),
        session_ended: ended.map(|end| end.as_str().to_owned()),
        phases: clock.phases,
        duration_ms: clock.total(),
        validation,
        unchecked,
        refused: reached.denials,
        bounds: Bounds::of_call(&grant, &live.workspace),
        ..About::of(opened.id(), &grant)
    };
    let report = report::build(&raw, program, staged, about, &live.lease);
    Ok(Executed::of(report, &grant, reached.recorded))
}

/// A call's own share of the processors; the session has its own again when this is dropped.
struct Share<'a>(&'a Session);

impl<'a> Share<'a> {
    fn take(
        services: &Services,
        live: &'a Session,
        cpu_millicores: u32,
    ) -> Result<Option<Self>, RequestError> {
        if cpu_millicores == live.limits.cpu_millicores {
            return Ok(None);
        }
        if !services.sandboxes.native.host.cgroups.shares_processors() {
            return Err(RequestError::new(
                ErrorCode::UnsupportedArgument,
                "this host has no cgroup by which a running session could be given another share of the processors.",
                "Give max_cpu_cores to `create_session`, or run the server where it has a cgroup with the cpu controller.",
            ));
        }
        live.events.order(&Order::Share { cpu_millicores });
        Ok(Some(Self(live)))
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let cpu_millicores = self.0.limits.cpu_millicores;
        self.0.events.order(&Order::Share { cpu_millicores });
    }
}

fn decide(services: &Services, live: &Session, request: ExecuteRequest) -> Result<Grant, RequestError> {
    let asked = request.language;
    if asked != live.language {
        return Err(RequestError::invalid(
            format!("the session {} speaks {}, not {asked}.", live.id, live.language),
            "Leave `language` out, or make a session of that language.",
        ));
    }
    let standing = services.standing_of_run(&live.namespace, Some(&live.id));
    let session = (&live.limits, &live.allowed_domains);
    policy::decide_call(&services.policy.current(), &standing, session, request)
}

/// The bytes that the interpreter reads.
fn word(
    live: &Session,
    number: u64,
    grant: &Grant,
    sendable: &Sendable,
    checks: Option<&Checks>,
) -> Result<Vec<u8>, RequestError> {
    let request = grant.request();
    let env: Vec<(String, String)> = request
        .env
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned()))
        .collect();
    let call = language_session::Call {
        number,
        name: &sendable.name,
        code: &sendable.code,
        args: &request.args,
        env: &env,
        stdin: &request.stdin,
        checks,
    };
    language_session::encode_call(live.language, &call).map_err(|why| {
        RequestError::invalid(
            format!("the call cannot be sent: {why}."),
            "Send large data as files.",
        )
    })
}

/// Before the call, which finds them in the workspace.
async fn put_files(
    services: &Arc<Services>,
    live: &Arc<Session>,
    lent: WorkspaceLease,
    grant: &Grant,
) -> Result<WorkspaceLease, RequestError> {
    if grant.request().files.is_empty() {
        return if lent.stays() {
            look_again(live, lent).await
        } else {
            Ok(lent)
        };
    }
    if lent.shared.is_some() && !lent.stays() {
        return Err(RequestError::invalid(
            "no files can be put into a workspace that is read-only or an overlay.",
            "Have the program write them, or use a session with a private workspace.",
        ));
    }
    if live.workspace == WorkspaceSource::Namespace {
        services.disk.check(&live.namespace).await?;
    }
    let root = lent.open(Some(&live.doors))?;
    let (live, files) = (live.clone(), grant.request().files.clone());
    let put = move || {
        let alone = lent.turn().map(workspaces::WorkspaceTurn::one_by_one).transpose();
        let alone = alone.map_err(|error| store::fault(error.to_string()))?;
        let sizes: Vec<_> = files
            .iter()
            .map(|file| (&file.path, file.bytes.len() as u64))
            .collect();
        live.room().check(root.as_fd(), &sizes)?;
        for file in &files {
            let put = tree::put(
                root.as_fd(),
                &file.path,
                &file.bytes,
                None,
                workspaces::FILE_BYTES_MAX,
            );
            put.map_err(|error| workspaces::unwritten(&error, &lent))?;
        }
        live.look_again();
        drop(alone);
        Ok(lent)
    };
    tokio::task::spawn_blocking(put)
        .await
        .map_err(|error| store::fault(error.to_string()))?
}

/// Others may have written into a shared workspace since the session's last call; what they left is not this call's.
async fn look_again(live: &Arc<Session>, lent: WorkspaceLease) -> Result<WorkspaceLease, RequestError> {
    let live = live.clone();
    let looked = tokio::task::spawn_blocking(move || live.look_again()).await;
    looked.map_err(|error| store::fault(error.to_string()))?;
    Ok(lent)
}

/// What a call left, as a run's would be told.
fn outcome(live: &Session, called: Called) -> Result<(RawOutcome, ProgramReport), RequestError> {
    let Called {
        how,
        stdout,
        stderr,
        usage,
    } = called;
    let (cause, status, usage, program) = match how {
        How::Lost(error) => return Err(error),
        How::Answered(answer, why) => {
            let status = match (answer.status, answer.ok) {
                (Some(status), _) => status << 8,
                (None, true) => 0,
                (None, false) => FAILED,
            };
            let cause = why.unwrap_or(Cause::Program);
            (cause, Some(status), usage, answer.report)
        }
        How::Ended(ending, program) => (ending.cause, ending.status, Some(ending.usage), program),
        How::GivenUp(_, why) => (why, None, usage, ProgramReport::default()),
    };
    let raw = RawOutcome {
        ending: Ending {
            cause,
            status: status.filter(|_| cause == Cause::Program),
            usage: live.used_since_last(usage),
            is_stuck: false,
        },
        stdout,
        stderr,
        report: Vec::new(),
        doors: None,
        hold: None,
        isolation: live.isolation.clone(),
    };
    Ok((raw, program))
}

/// Files that are new since the last call, while nobody else has a turn.
async fn stage(
    services: &Arc<Services>,
    live: &Arc<Session>,
    id: &str,
    lent: &WorkspaceLease,
    turn: Turn,
) -> Result<Staged, RequestError> {
    // A look into memory; what lies on a disk may take longer.
    let private = live.workspace == WorkspaceSource::Private;
    if private && live.before().is_nothing() && artifacts::has_nothing(&live.doors) {
        return Ok(Staged::default());
    }
    let mut options = stage_options(services, id, &live.namespace, &live.lease, lent);
    if lent.shared.is_none() {
        options.total_max = live.limits.disk_bytes;
    }
    let live = live.clone();
    let staging = move || {
        let mut before = live.before();
        let (files, now) = artifacts::stage(&live.doors, &before, options);
        *before = now;
        drop((before, turn));
        files
    };
    staged(staging).await
}
