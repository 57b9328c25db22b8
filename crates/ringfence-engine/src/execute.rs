//! One request, from start to finish, in one straight function: each line consumes what the one above produced.
//! Resources are locals in the order in which they are taken, so that Rust gives them back in reverse on success,
//! error, panic and cancellation.

use crate::{
    artifacts::{self, Before, Staged},
    backend::{Doors, Hold, Place, RawOutcome, Running, Started, Wires},
    engine::{House, OutputChunk, Submission},
    policy::{self, Grant},
    prepare::{self, Prepared},
    report::{self, About, Report},
    sandbox::{self, Bound, Start, Surroundings},
    warm::{self, Taken},
};
use ringfence_jail::Layout;
use ringfence_types::{ErrorCode, ExecutionResult, Isolation, Phases, RequestError, WorkspaceSource};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// A result, and what is to be let go once it is on its way.
pub(crate) struct Executed {
    pub(crate) result: ExecutionResult,
    pub(crate) hold: Hold,
}

/// Runs one request. The caller owns the task; nothing here depends on anybody waiting for it.
pub(crate) async fn execute(
    house: &Arc<House>,
    id: &str,
    submission: Submission,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
) -> Result<Executed, RequestError> {
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
    let (started, isolation) = start(house, layout, &grant, &prepared, cancelled.clone()).await?;
    let wires = Wires {
        stdin,
        stdin_bytes: grant.request().stdin.clone(),
        live,
    };
    let running = Running::attach(started, wires, kept_bytes(&grant))?;
    clock.phases.start_ms = clock.lap();
    let raw = running.wait(cancelled, isolation).await?;
    clock.phases.run_ms = clock.lap();
    let (report, hold) = finish(raw, &grant, &prepared, before, artifacts_to, id, clock).await?;
    // (audit: the record is closed before the result leaves)
    drop(permit);
    Ok(Executed {
        result: report.into_result(),
        hold,
    })
}

/// Starts the program in a place that stands ready, or else in one that is begun now. A place that fails before the
/// program runs has cost nothing but time.
async fn start(
    house: &Arc<House>,
    layout: Layout,
    grant: &Grant,
    prepared: &Prepared,
    mut cancelled: watch::Receiver<bool>,
) -> Result<(Started, Isolation), RequestError> {
    let request = grant.request();
    let mut claim = async |place: Place, surroundings: &Surroundings| {
        let Bound { claim, blobs } = sandbox::bind(house, &place.plan, surroundings, grant, prepared);
        let isolation = place.plan.isolation(&claim, &house.native.host);
        let started = place.claim(&claim, &blobs, &mut cancelled).await?;
        Ok::<_, RequestError>((started, isolation))
    };
    if sandbox::can_start_ahead(request)
        && let Some(Taken { place, surroundings }) = warm::take(house, request)
    {
        match claim(place, &surroundings).await {
            Ok(started) => return Ok(started),
            Err(error) => tracing::warn!(%error, "a place that stood ready has failed; starting cold"),
        }
    }
    let surroundings = sandbox::surroundings(house, request.language)?;
    let workspace = sandbox::host_workspace(request);
    let plan = sandbox::plan(house, layout, &surroundings, workspace, Start::Claimed)?;
    claim(house.native.place(Arc::new(plan), None)?, &surroundings).await
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

async fn finish(
    mut raw: RawOutcome,
    grant: &Grant,
    prepared: &Prepared,
    before: Before,
    copy_to: Option<PathBuf>,
    id: &str,
    mut clock: Clock,
) -> Result<(Report, Hold), RequestError> {
    let private = grant.request().workspace == WorkspaceSource::Private;
    let total_max = if private {
        grant.limits().disk_bytes
    } else {
        u64::MAX
    };
    let staged = match raw.doors.take() {
        // A look into memory; what lies on a disk may take longer.
        Some(doors) if private && artifacts::has_nothing(&doors) => Staged::default(),
        Some(doors) => stage(doors, before, copy_to, total_max).await?,
        None => Staged::default(),
    };
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
    let report = report::build(&raw, program, staged, about);
    Ok((report, raw.hold))
}

/// Files are staged and hashed on a thread of their own: a program may leave a gibibyte.
async fn stage(
    doors: Doors,
    before: Before,
    copy_to: Option<PathBuf>,
    total_max: u64,
) -> Result<Staged, RequestError> {
    let staged =
        tokio::task::spawn_blocking(move || artifacts::stage(&doors, &before, copy_to.as_deref(), total_max));
    staged.await.map_err(|error| {
        RequestError::new(
            ErrorCode::SandboxFault,
            format!("staging artifacts failed: {error}."),
            "Report this.",
        )
    })
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
