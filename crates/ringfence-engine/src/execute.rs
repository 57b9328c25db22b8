//! One request, from start to finish, in one straight function: each line consumes what the one above produced.
//! Resources are locals in the order in which they are taken, so that Rust gives them back in reverse on success,
//! error, panic and cancellation.

use crate::{
    artifacts::{self, Before},
    backend::{Place, RawOutcome, Running, Started, Wires},
    engine::{House, OutputChunk, Submission},
    policy::{self, Grant},
    prepare::{self, Prepared},
    report::{self, About, Report},
    sandbox::{self, Bound, Start, Surroundings},
    warm,
};
use ringfence_jail::Layout;
use ringfence_types::{
    ErrorCode, ExecuteRequest, ExecutionResult, Isolation, Phases, RequestError, WorkspaceSource,
};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// Runs one request. The caller owns the task; nothing here depends on anybody waiting for it.
pub(crate) async fn execute(
    house: &Arc<House>,
    id: &str,
    submission: Submission,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
) -> Result<ExecutionResult, RequestError> {
    let Submission {
        request,
        stdin,
        artifacts_to,
        ..
    } = submission;
    let mut clock = Clock::start();
    // (audit: a record is on disk before anything runs)
    let grant = policy::decide(&house.settings.policy, request)?;
    if let Some(directory) = &artifacts_to {
        artifacts::prepare_copies(directory).map_err(|error| {
            RequestError::invalid(
                format!("{} cannot hold the artifacts: {error}.", directory.display()),
                "Name a directory that can be made and written.",
            )
        })?;
    }
    let permit = admit(house, &grant, cancelled.clone()).await?;
    clock.phases.queued_ms = clock.lap();
    // (vault: lease of secrets; egress: lease of a way out)
    let layout = sandbox::layout(house, id);
    let prepared = prepare::prepare(house, grant.request(), &layout).await?;
    let before = look_before(&grant)?;
    let surroundings = sandbox::surroundings(house, grant.request().language)?;
    let bound = |place: &Place| sandbox::bind(house, &place.plan, &surroundings, &grant, &prepared);
    let (started, isolation) = start(
        house,
        layout,
        &surroundings,
        grant.request(),
        bound,
        cancelled.clone(),
    )
    .await?;
    let wires = Wires {
        stdin,
        stdin_bytes: grant.request().stdin.clone(),
        live,
    };
    let running = Running::attach(started, wires, kept_bytes(&grant))?;
    clock.phases.start_ms = clock.lap();
    let raw = running.wait(cancelled, isolation).await?;
    clock.phases.run_ms = clock.lap();
    let report = finish(raw, &grant, &prepared, before, artifacts_to, id, clock).await?;
    // (audit: the record is closed before the result leaves)
    drop(permit);
    Ok(report.into_result())
}

/// Starts the program in a place that stands ready, or else in one that is begun now. A place that fails before the
/// program runs has cost nothing but time.
async fn start<'a>(
    house: &Arc<House>,
    layout: Layout,
    surroundings: &Surroundings,
    request: &ExecuteRequest,
    bind: impl Fn(&Place) -> Bound<'a>,
    mut cancelled: watch::Receiver<bool>,
) -> Result<(Started, Isolation), RequestError> {
    let workspace = sandbox::host_workspace(request);
    let plan = |start| sandbox::plan(house, layout.clone(), surroundings, workspace.clone(), start);
    let mut claim = async |place: Place| {
        let Bound { claim, blobs } = bind(&place);
        let isolation = place.plan.isolation(&claim, &house.native.host);
        let started = place.claim(&claim, &blobs, &mut cancelled).await?;
        Ok::<_, RequestError>((started, isolation))
    };
    if let Some(place) = warm::take(house, &plan(Start::of(request))?) {
        match claim(place).await {
            Ok(started) => return Ok(started),
            Err(error) => tracing::warn!(%error, "a place that stood ready has failed; starting cold"),
        }
    }
    claim(house.native.place(Arc::new(plan(Start::Claimed)?), None)?).await
}

async fn admit(
    house: &House,
    grant: &Grant,
    mut cancelled: watch::Receiver<bool>,
) -> Result<crate::queue::Permit, RequestError> {
    tokio::select! {
        admitted = house.queue.admit(&grant.request().namespace) => admitted,
        Ok(_) = cancelled.wait_for(|cancelled| *cancelled) => Err(RequestError::new(
            ErrorCode::Cancelled,
            "the request was cancelled while it waited.",
            "Send it again when it is wanted.",
        )),
    }
}

fn kept_bytes(grant: &Grant) -> u64 {
    if grant.request().capture_output {
        grant.limits().output_bytes
    } else {
        0
    }
}

fn look_before(grant: &Grant) -> Result<Before, RequestError> {
    let request = grant.request();
    let mut before = Before::inputs(
        request
            .files
            .iter()
            .map(|file| (&file.path, file.bytes.as_slice())),
    );
    if let WorkspaceSource::Host { directory, mode } = &request.workspace
        && *mode != ringfence_types::WorkspaceMode::Overlay
    {
        before.look(directory).map_err(|error| {
            RequestError::invalid(
                format!("the workspace {} cannot be read: {error}.", directory.display()),
                "Name a directory that the server may read.",
            )
        })?;
    }
    Ok(before)
}

/// Files are staged and hashed on a thread of their own: a program may leave a gibibyte.
async fn finish(
    raw: RawOutcome,
    grant: &Grant,
    prepared: &Prepared,
    before: Before,
    copy_to: Option<PathBuf>,
    id: &str,
    mut clock: Clock,
) -> Result<Report, RequestError> {
    let raw = Arc::new(raw);
    let shared = raw.clone();
    let total_max = match grant.request().workspace {
        WorkspaceSource::Private => grant.limits().disk_bytes,
        WorkspaceSource::Host { .. } => u64::MAX,
    };
    let staged = tokio::task::spawn_blocking(move || match &shared.doors {
        Some(doors) => artifacts::stage(doors, &before, copy_to.as_deref(), total_max),
        None => artifacts::Staged::default(),
    });
    let staged = staged.await.map_err(|error| {
        RequestError::new(
            ErrorCode::SandboxFault,
            format!("staging artifacts failed: {error}."),
            "Report this.",
        )
    })?;
    let program = prepare::read_outcome(prepared, &raw.report);
    clock.phases.finish_ms = clock.lap();
    let about = About {
        execution_id: id.to_owned(),
        namespace: grant.request().namespace.to_string(),
        language: grant.request().language,
        capture_output: grant.request().capture_output,
        phases: clock.phases,
        duration_ms: clock.total(),
    };
    Ok(report::build(&raw, program, staged, about))
}

/// To the microsecond.
#[expect(clippy::cast_precision_loss, reason = "no run takes centuries")]
fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Laps of one request.
struct Clock {
    begun: Instant,
    lap: Instant,
    phases: Phases,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            lap: now,
            phases: Phases::default(),
        }
    }

    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let lap = milliseconds(now.duration_since(self.lap));
        self.lap = now;
        lap
    }

    fn total(&self) -> f64 {
        milliseconds(self.begun.elapsed())
    }
}
