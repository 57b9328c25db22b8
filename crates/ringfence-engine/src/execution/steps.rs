//! The parts of the pipeline's steps that a run and a call of a session share.

use super::{
    fresh, in_session,
    outcome::{ExecutionOutcome, PhaseTimer},
    states::{Admitted, ExecutionContext, Finished, FreshTarget, Leased, Source, Target},
};
use crate::{
    admission::{Demand, Permit},
    artifacts::{self, FilesKept, StageOptions, Staged},
    caller::Stdin,
    check::Text,
    error::Result,
    limits_met::Bounds,
    overlay,
    packages::{LayerRequest, Provided},
    policy::Grant,
    report::{self, About},
    secrets::{Redacted, SecretLease},
    session::{self, CallEgress, Turn},
    streams::{OutputPublisher, Stdio},
    workspaces::Use,
};
use ringfence_types::{ExecuteRequest, Priority, RequestError, WorkspaceSource, with_packages_hint};
use std::sync::Arc;

/// Decides, checks the code, installs packages, and waits for a permit. When this returns, the begin is on record.
pub(super) async fn admit(
    context: &ExecutionContext<'_>,
    source: Source,
    request: ExecuteRequest,
    timer: &mut PhaseTimer,
) -> Result<Admitted> {
    let services = context.services;
    let ((grant, once), text) = match &source {
        Source::Fresh { .. } => (fresh::decide(context, request)?, Text::Program),
        Source::InSession(turn) => (in_session::decide(context, &turn.session, request)?, Text::Call),
    };
    let check = services.checkers.check(&grant, text).await?;
    let target = match source {
        Source::Fresh {
            artifacts_to,
            holds_changes,
        } => Target::Fresh(FreshTarget {
            copies: fresh::open_copies(services, artifacts_to.as_deref())?,
            // Before the permit: an installer may take minutes, and other programs run meanwhile.
            packages: packages(context, &grant).await?,
            holds_changes,
        }),
        Source::InSession(queued) => {
            let turn = queued.turn(&context.client).await?;
            turn.name(context.scope.id());
            context.scope.begin().await?;
            timer.lap(|phases| &mut phases.queued_ms);
            let wanted = &grant.request.packages;
            session::provide(&services.packages, &turn.session, context.requester(), wanted).await?;
            Target::InSession(turn)
        }
    };
    timer.lap(|phases| &mut phases.start_ms);
    let permit = permit(context, &grant).await?;
    context.scope.begin().await?;
    timer.lap(|phases| &mut phases.queued_ms);
    Ok(Admitted {
        permit,
        target,
        check,
        grant,
        once,
    })
}

/// Provides the packages that a request asks for; they are installed on the first request for them.
pub(super) async fn packages(context: &ExecutionContext<'_>, grant: &Grant) -> Result<Option<Provided>> {
    let request = &grant.request;
    if request.packages.is_empty() {
        return Ok(None);
    }
    context.scope.begin().await?;
    let layer = LayerRequest {
        requester: context.requester(),
        namespace: &request.namespace,
        language: request.language.packaged_as(),
        set: &request.packages,
    };
    let provided = context.services.packages.layer(&layer).await;
    let refused = |error| with_packages_hint(error, request.language);
    provided.map(Some).map_err(refused)
}

/// Waits for the permit to run, unless the request is cancelled first. A call already has its session's turn here.
pub(super) async fn permit(context: &ExecutionContext<'_>, grant: &Grant) -> Result<Permit> {
    context.services.disk.check_floor()?;
    let request = &grant.request;
    let demand = Demand {
        priority: request.priority.unwrap_or(Priority::Normal),
        ..Demand::of(&grant.limits)
    };
    let queue = &context.services.queue;
    queue
        .admit_unless_cancelled(&request.namespace, demand, &context.client)
        .await
}

/// Acquires workspace and secrets; for a call also its egress.
pub(super) async fn lease(
    context: &ExecutionContext<'_>,
    admitted: &Admitted,
    timer: &mut PhaseTimer,
) -> Result<Leased> {
    let (services, grant) = (context.services, &admitted.grant);
    let Target::InSession(Turn { session, .. }) = &admitted.target else {
        let redacted = match grant.request.workspace {
            WorkspaceSource::Private => Redacted::Leased,
            _ => Redacted::All,
        };
        return fresh::lease(context, grant, redacted).await;
    };
    // From here on, programs that the session left running can use what is approved for this call.
    admitted.once.use_up();
    let egress = CallEgress::begin(&services.egress, session, grant, context.requester()).await?;
    timer.lap(|phases| &mut phases.start_ms);
    // While it is held, no snapshot can be restored there.
    let workspaces = &services.workspaces;
    let workspace = workspaces.acquire_for(&session.namespace, &session.workspace, Use::Write);
    let workspace = workspace.await?;
    timer.lap(|phases| &mut phases.queued_ms);
    let secrets = SecretLease {
        secrets: session.lease.secrets.clone(),
        redactor: session.redactor(&services.secrets).await?,
        inspection: session.lease.inspection.clone(),
    };
    Ok(Leased {
        egress: Some(egress),
        secrets: Arc::new(secrets),
        workspace,
    })
}

pub(super) fn stdio(context: &ExecutionContext<'_>, grant: &Grant, leased: &Leased, stdin: Stdin) -> Stdio {
    let id = context.scope.id();
    Stdio {
        stdin,
        stdin_bytes: Vec::new(),
        live: context.client.output.clone(),
        redactor: leased.secrets.redactor.clone(),
        publisher: Some(OutputPublisher {
            bus: context.services.telemetry.bus.clone(),
            namespace: grant.request.namespace.to_string(),
            execution_id: id.to_owned(),
            so_far: context.services.executions.so_far(id),
        }),
    }
}

/// Stores the files that the program left, while nothing else runs in its sandbox.
pub(super) async fn stage(
    context: &ExecutionContext<'_>,
    admitted: &mut Admitted,
    finished: &mut Finished,
) -> Result<Staged> {
    let request = &admitted.grant.request;
    let mut options = StageOptions {
        store: context.services.artifacts.clone(),
        bus: context.services.telemetry.bus.clone(),
        namespace: request.namespace.clone(),
        execution_id: context.scope.id().to_owned(),
        redactor: finished.secrets.redactor.clone(),
        total_max: u64::MAX,
        copy_to: None,
        workspace: if finished.workspace.stays() {
            FilesKept::InPlace
        } else {
            FilesKept::InStore
        },
    };
    match &mut admitted.target {
        Target::Fresh(target) => {
            let Some(dirs) = finished.raw.dirs.take() else {
                return Ok(Staged::default());
            };
            // A private workspace is in memory and quick to check; on a disk that may take longer.
            if request.workspace == WorkspaceSource::Private {
                if artifacts::dirs_are_empty(&dirs) {
                    return Ok(Staged::default());
                }
                options.total_max = admitted.grant.limits.disk_bytes;
            }
            options.copy_to = target.copies.take();
            let before = std::mem::take(&mut finished.before);
            staged(move || artifacts::stage(&dirs, &before, options).0).await
        }
        Target::InSession(Turn { session, .. }) => {
            if session.workspace == WorkspaceSource::Private {
                if session.before().is_empty() && artifacts::dirs_are_empty(&session.dirs) {
                    return Ok(Staged::default());
                }
                options.total_max = session.limits.disk_bytes;
            }
            let session = session.clone();
            staged(move || {
                let mut before = session.before();
                let (files, now) = artifacts::stage(&session.dirs, &before, options);
                *before = now;
                files
            })
            .await
        }
    }
}

/// Stages files on a blocking thread: a program may leave a gibibyte to hash.
async fn staged(stage: impl FnOnce() -> Staged + Send + 'static) -> Result<Staged> {
    tokio::task::spawn_blocking(stage)
        .await
        .map_err(|error| RequestError::fault(format!("staging artifacts failed: {error}."), "Report this."))
}

/// Builds the result. Workspace, turn and permit are released first: findings about the code may take longer.
pub(super) async fn report(
    context: &ExecutionContext<'_>,
    admitted: Admitted,
    finished: Finished,
    staged: Staged,
    mut timer: PhaseTimer,
) -> ExecutionOutcome {
    let Admitted {
        permit,
        target,
        check,
        grant,
        ..
    } = admitted;
    let Finished {
        raw,
        program,
        reached,
        changes,
        session_ended,
        secrets,
        workspace,
        ..
    } = finished;
    let session = match &target {
        Target::Fresh(_) => None,
        Target::InSession(Turn { session, .. }) => Some(session),
    };
    let session_id = session.map(|session| session.id.to_string());
    let bounds = Bounds::of(&grant, session.map(|session| &session.workspace));
    drop((workspace, permit, target));
    let (validation, unchecked) = check.findings(&program.patched).await;
    timer.lap(|phases| &mut phases.finish_ms);
    let about = About {
        execution_id: context.scope.id(),
        grant: &grant,
        session_id,
        session_ended: session_ended.map(|end| end.as_str().to_owned()),
        phases: timer.phases,
        duration_ms: timer.total(),
        validation,
        unchecked,
        refused: reached.denials,
        bounds,
    };
    let mut outcome = ExecutionOutcome::of(report::build(&raw, program, staged, about, &secrets), &grant);
    outcome.reached = reached.recorded;
    match changes {
        Ok(None) if overlay::is_dropped(&grant.request, &outcome.result) => {
            outcome.result.denials.push(overlay::not_kept());
        }
        Ok(changes) => outcome.changes = changes,
        Err(denial) => outcome.result.denials.push(denial),
    }
    outcome.hold = raw.hold;
    outcome
}
