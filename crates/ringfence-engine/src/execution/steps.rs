//! What the steps of the pipeline do alike for a run and for a call of a session.

use super::{
    fresh, in_session,
    report::{Clock, Executed},
    states::{Admitted, Finished, FreshTarget, Leased, Request, SessionTarget, Source, Target},
};
use crate::{
    admission::{Demand, Permit},
    artifacts::{self, FilesKept, StageOptions, Staged},
    caller::Stdin,
    check::Text,
    limits_met::Bounds,
    packages::{LayerRequest, Provided},
    policy::Grant,
    report::{self, About},
    session::{self, CallEgress},
    streams::{OutputPublisher, Stdio},
    workspaces::Wanted,
};
use ringfence_types::{ErrorCode, ExecuteRequest, Priority, RequestError, WorkspaceSource};

/// Policy, check, packages, and the wait for a permit. When this returns, the begin is on record.
pub(super) async fn admit(
    request: &Request<'_>,
    source: Source,
    asked: ExecuteRequest,
    clock: &mut Clock,
) -> Result<Admitted, RequestError> {
    let services = request.services;
    let (grant, text) = match &source {
        Source::Fresh { .. } => (fresh::decide(services, asked)?, Text::Program),
        Source::InSession(line) => (in_session::decide(services, line.session(), asked)?, Text::Call),
    };
    let check = services.checkers.check(&grant, text).await?;
    let target = match source {
        Source::Fresh {
            artifacts_to,
            holds_changes,
        } => Target::Fresh(FreshTarget {
            copies: fresh::open_copies(services, artifacts_to.as_deref())?,
            // Before the permit: an installer may take minutes, in which programs of others run.
            packages: packages(request, &grant).await?,
            holds_changes,
        }),
        Source::InSession(line) => {
            let session = line.session().clone();
            let turn = line.turn(&request.client).await?;
            turn.name(request.scope.id());
            request.scope.begin().await?;
            clock.queued();
            let wanted = &grant.request().packages;
            session::provide(&services.packages, &session, request.requester(), wanted).await?;
            Target::InSession(SessionTarget { turn, session })
        }
    };
    clock.starting();
    let permit = permit(request, &grant).await?;
    request.scope.begin().await?;
    clock.queued();
    Ok(Admitted {
        permit,
        target,
        check,
        grant,
    })
}

/// The packages that a request asks for, installed on the first request for them.
pub(super) async fn packages(request: &Request<'_>, grant: &Grant) -> Result<Option<Provided>, RequestError> {
    let asked = grant.request();
    if asked.packages.is_empty() {
        return Ok(None);
    }
    request.scope.begin().await?;
    let layer = LayerRequest {
        by: request.requester(),
        namespace: &asked.namespace,
        language: asked.language.packaged_as(),
        set: &asked.packages,
    };
    request.services.packages.layer(&layer).await.map(Some)
}

/// The right to run, unless the request is cancelled first. A call has the turn of its session before it waits here.
pub(super) async fn permit(request: &Request<'_>, grant: &Grant) -> Result<Permit, RequestError> {
    request.services.disk.check_floor()?;
    let asked = grant.request();
    let demand = Demand {
        priority: asked.priority.unwrap_or(Priority::Normal),
        ..Demand::of(grant.limits())
    };
    let queue = &request.services.queue;
    queue
        .admit_unless_cancelled(&asked.namespace, demand, &request.client)
        .await
}

/// Workspace and secrets; of a call also its egress.
pub(super) async fn lease(
    request: &Request<'_>,
    admitted: &Admitted,
    clock: &mut Clock,
) -> Result<Leased, RequestError> {
    let (services, grant) = (request.services, &admitted.grant);
    let Target::InSession(SessionTarget { session, .. }) = &admitted.target else {
        return fresh::lease(request, grant).await;
    };
    let egress = CallEgress::begin(&services.egress, session, grant, request.requester()).await?;
    clock.starting();
    // While it is held, no other state takes the workspace's place.
    let workspaces = &services.workspaces;
    let workspace = workspaces.acquire_for(&session.namespace, &session.workspace, Wanted::Shared);
    let workspace = workspace.await?;
    clock.queued();
    Ok(Leased {
        egress: Some(egress),
        secrets: session.lease.clone(),
        workspace,
    })
}

pub(super) fn stdio(request: &Request<'_>, grant: &Grant, leased: &Leased, stdin: Stdin) -> Stdio {
    let id = request.scope.id();
    Stdio {
        stdin,
        stdin_bytes: Vec::new(),
        live: request.client.output.clone(),
        redactor: leased.secrets.redactor.clone(),
        publisher: Some(OutputPublisher {
            bus: request.services.telemetry.bus.clone(),
            namespace: grant.request().namespace.to_string(),
            execution_id: id.to_owned(),
            so_far: request.services.executions.so_far(id),
        }),
    }
}

/// Stores the files that the program left, while nothing else runs in its sandbox.
pub(super) async fn stage(
    request: &Request<'_>,
    admitted: &mut Admitted,
    finished: &mut Finished,
) -> Result<Staged, RequestError> {
    let asked = admitted.grant.request();
    let mut options = StageOptions {
        store: request.services.artifacts.clone(),
        bus: request.services.telemetry.bus.clone(),
        namespace: asked.namespace.clone(),
        execution_id: request.scope.id().to_owned(),
        redactor: finished.secrets.redactor.clone(),
        total_max: u64::MAX,
        copy_to: None,
        workspace: if finished.workspace.stays() {
            FilesKept::WhereItIs
        } else {
            FilesKept::InStore
        },
    };
    match &mut admitted.target {
        Target::Fresh(target) => {
            let Some(dirs) = finished.raw.dirs.take() else {
                return Ok(Staged::default());
            };
            // Seen in memory; what lies on a disk may take longer.
            if asked.workspace == WorkspaceSource::Private {
                if artifacts::has_nothing(&dirs) {
                    return Ok(Staged::default());
                }
                options.total_max = admitted.grant.limits().disk_bytes;
            }
            options.copy_to = target.copies.take();
            let before = std::mem::take(&mut finished.before);
            staged(move || artifacts::stage(&dirs, &before, options).0).await
        }
        Target::InSession(SessionTarget { session, .. }) => {
            if session.workspace == WorkspaceSource::Private {
                if session.before().is_nothing() && artifacts::has_nothing(&session.dirs) {
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

/// Files are hashed on a thread of their own: a program may leave a gibibyte.
async fn staged(stage: impl FnOnce() -> Staged + Send + 'static) -> Result<Staged, RequestError> {
    tokio::task::spawn_blocking(stage).await.map_err(|error| {
        RequestError::new(
            ErrorCode::SandboxFault,
            format!("staging artifacts failed: {error}."),
            "Report this.",
        )
    })
}

/// The result. Workspace, turn and permit are given back first: findings about the code may still take a while.
pub(super) async fn report(
    request: &Request<'_>,
    admitted: Admitted,
    finished: Finished,
    staged: Staged,
    mut clock: Clock,
) -> Executed {
    let Admitted {
        permit,
        target,
        check,
        grant,
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
    let (session_id, bounds) = match &target {
        Target::Fresh(_) => (None, Bounds::of(&grant)),
        Target::InSession(SessionTarget { session, .. }) => (
            Some(session.id.to_string()),
            Bounds::of_call(&grant, &session.workspace),
        ),
    };
    drop((workspace, permit, target));
    let (validation, unchecked) = check.findings(&program.patched).await;
    clock.finished();
    let about = About {
        execution_id: request.scope.id(),
        grant: &grant,
        session_id,
        session_ended: session_ended.map(|end| end.as_str().to_owned()),
        phases: clock.phases,
        duration_ms: clock.total(),
        validation,
        unchecked,
        refused: reached.denials,
        bounds,
    };
    let mut executed = Executed::of(report::build(&raw, program, staged, about, &secrets), &grant);
    executed.reached = reached.recorded;
    match changes {
        Ok(changes) => executed.changes = changes,
        Err(untold) => executed.result.denials.push(untold),
    }
    executed.hold = raw.hold;
    executed
}
