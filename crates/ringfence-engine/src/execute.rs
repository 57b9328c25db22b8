//! One request, from start to finish, in one straight function: each line consumes what the one above produced.
//! Resources are locals in the order in which they are taken, so that Rust gives them back in reverse on success,
//! error, panic and cancellation.

use crate::{
    artifacts::{self, Before, Kept, Shelf, Staged},
    backend::{Doors, Hold, Place, RawOutcome, Running, Started},
    check::{self, Looked, Text},
    egress,
    engine::{Caller, House, OutputChunk, Submission},
    events::{Ended, EventKind},
    overlay::{self, HeldChanges, Lower, Origin},
    packages::{self, Provided, Wish},
    policy::{self, Grant},
    prepare::{self, Prepared},
    record::{self, Opened, Written},
    report::{self, About, Report},
    sandbox::{self, Start, Surroundings},
    secrets::{self, SecretLease},
    session::{self, InLine},
    store,
    streams::{Teller, Wires},
    warm::{self, Taken},
    workspaces::{self, Lent},
};
use ringfence_jail::{Layout, Outlet};
use ringfence_types::{
    Denial, ErrorCode, ExecutionResult, ExitKind, Isolation, Language, Namespace, Phases, Priority,
    RequestError, ResourceUsage, WorkspaceSource,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// A result, and what is to be let go once it is on its way.
pub(crate) struct Executed {
    pub(crate) result: ExecutionResult,
    /// What it was allowed.
    pub(crate) granted: serde_json::Value,
    /// Whom it reached, and what of that was refused.
    pub(crate) reached: Option<serde_json::Value>,
    /// Secrets that were taken out of what leaves.
    pub(crate) found: u64,
    /// What was done to an overlay, for somebody to decide about.
    pub(crate) changes: Option<HeldChanges>,
    pub(crate) hold: Option<Hold>,
}

impl Executed {
    /// A call that leaves nothing behind.
    pub(crate) fn of(report: Report, grant: &Grant, reached: Option<serde_json::Value>) -> Self {
        let found = report.found();
        Self {
            result: report.into_result(),
            granted: record::granted(grant),
            reached,
            found,
            changes: None,
            hold: None,
        }
    }
}

/// The bracket: a record before anything runs, and one before anything leaves. The caller owns the task; nothing here
/// depends on anybody waiting for it. `place` is in the line of the session that is asked for.
pub(crate) async fn execute(
    house: &Arc<House>,
    id: &str,
    submission: Submission,
    place: Option<Result<InLine, RequestError>>,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
) -> Result<Executed, RequestError> {
    let clock = Clock::start();
    let (namespace, language) = (submission.request.namespace.clone(), submission.request.language);
    let is_ours = submission.caller == Caller::ours();
    let begun = house
        .record
        .begin(id, &submission.caller, &submission.request)
        .await;
    let opened = match begun {
        Ok(opened) => opened,
        Err(error) => {
            let done = Err(error);
            tell_the_end(house, id, &namespace, language, &done, clock);
            return done;
        }
    };
    if !is_ours {
        let kind = EventKind::ExecutionStarted { language };
        house.bus.tell(namespace.as_str(), Some(id), kind);
    }
    let mut done = match place {
        None => run(house, &opened, submission, live, cancelled, clock).await,
        Some(Err(error)) => Err(error),
        Some(Ok(place)) => session::call(house, &opened, place, submission, live, cancelled, clock).await,
    };
    let closed = opened.close(done.as_ref()).await;
    if let (Ok(executed), Ok(Written::No)) = (&mut done, &closed) {
        executed.result.security_events.push(not_on_record());
    }
    if closed.is_err() {
        withdraw(house, id).await;
    }
    let done = closed.and(done);
    if !is_ours {
        tell_the_end(house, id, &namespace, language, &done, clock);
    }
    done
}

/// One request, each line consuming what the one above produced.
async fn run(
    house: &Arc<House>,
    opened: &Opened,
    submission: Submission,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
    mut clock: Clock,
) -> Result<Executed, RequestError> {
    let Submission {
        request,
        stdin,
        artifacts_to,
        holds_changes,
        ..
    } = submission;
    let id = opened.id();
    let standing = house.standing_of_run(&request.namespace, None);
    let grant = policy::decide(&house.policy(), &standing, &house.private, request)?;
    let looked = check::look(house, &grant, Text::Program).await?;
    let copies = open_copies(house, artifacts_to.as_deref())?;
    // Before there is a place: an installer may take minutes, in which programs of others run.
    let packages = packages_of(house, opened, &grant, live.clone(), cancelled.clone()).await?;
    let provided_ms = clock.lap();
    let permit = admit(house, &grant, cancelled.clone()).await?;
    clock.phases.queued_ms = clock.lap();
    let workspace = workspaces::lend(house, &grant).await?;
    let lease = secrets::lease(house, opened, &grant).await?;
    let layout = sandbox::layout(house, id);
    let prepared = prepare::prepare(house, grant.request(), &layout)
        .await?
        .with(looked.checks.clone());
    let before = look_before(&grant, &workspace);
    let lower = overlay::lower_of(Some(&workspace).filter(|_| holds_changes)).await?;
    let brought = Brought {
        lease: &lease,
        prepared: &prepared,
        packages: packages.as_ref(),
    };
    let around = (layout, &workspace);
    let (mut started, isolation) = start(house, around, &grant, &brought, cancelled.clone()).await?;
    let holder = egress::Holder::Run(egress::Asker::of(opened, live.as_ref()));
    let way_out = egress::open_for(house, (&grant, &lease), holder, started.take_sockets())?;
    let wires = Wires {
        stdin,
        stdin_bytes: grant.request().stdin.clone(),
        live,
        redactor: lease.redactor.clone(),
        teller: Some(teller(house, id, &grant)),
    };
    let running = Running::attach(started, wires, kept_bytes(&grant))?;
    clock.phases.start_ms = provided_ms + clock.lap();
    let raw = running.wait(cancelled, isolation).await?;
    clock.phases.run_ms = clock.lap();
    let reached = egress::close(way_out, &raw, &grant).await;
    let (changes, untold) = changes_of(house, &grant, id, lower, &raw, &lease).await;
    let (report, hold) = finish(
        house,
        raw,
        &grant,
        &lease,
        (&prepared, looked),
        (&workspace, before),
        reached.denials,
        copies,
        id,
        clock,
    )
    .await?;
    drop((packages, permit));
    let mut executed = Executed::of(report, &grant, reached.recorded);
    executed.result.denials.extend(untold);
    Ok(Executed {
        changes,
        hold,
        ..executed
    })
}

/// What the program did to an overlay, read before anything of the sandbox is let go. A run whose changes cannot be told has
/// run all the same: it has its result, and nothing that could be accepted.
async fn changes_of(
    house: &Arc<House>,
    grant: &Grant,
    id: &str,
    lower: Option<Arc<Lower>>,
    raw: &RawOutcome,
    lease: &SecretLease,
) -> (Option<HeldChanges>, Option<Denial>) {
    let Some((lower, doors)) = lower.zip(raw.doors.as_ref()) else {
        return (None, None);
    };
    let of = (&grant.request().namespace, Origin::Execution(id.to_owned()));
    let held = match doors.changes.try_clone() {
        Ok(upper) => HeldChanges::read(house, of, lower, upper, lease.redactor.clone()).await,
        Err(error) => Err(store::fault(error.to_string())),
    };
    match held {
        Ok(held) => (Some(held), None),
        Err(error) => (None, Some(overlay::untold(&lease.redactor.text(&error.message)))),
    }
}

/// The operator's directory for copies, if there is one; it is none of the server's own.
fn open_copies(house: &House, directory: Option<&Path>) -> Result<Option<Outlet>, RequestError> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    // What is not there yet will be below what is.
    let there = absolute.ancestors().find_map(|above| above.canonicalize().ok());
    let is_private = |own: &PathBuf| {
        absolute.starts_with(own) || there.as_ref().is_some_and(|there| there.starts_with(own))
    };
    if house.private.iter().any(is_private) {
        return Err(RequestError::new(
            ErrorCode::PolicyDenied,
            format!("{} is among the server's keys and records.", directory.display()),
            "Name another directory for the artifacts.",
        ));
    }
    let prepared = artifacts::prepare_copies(directory).map_err(|error| {
        RequestError::invalid(
            format!("{} cannot hold the artifacts: {error}.", directory.display()),
            "Name a directory that can be made and written.",
        )
    });
    prepared.map(Some)
}

/// Files of a run whose end is not on record do not leave either.
async fn withdraw(house: &Arc<House>, id: &str) {
    let (store, execution) = (house.clone(), id.to_owned());
    let withdrawn = tokio::task::spawn_blocking(move || store.artifacts.withdraw(&execution)).await;
    if !matches!(withdrawn, Ok(Ok(_))) {
        tracing::error!(%id, "the files of a run whose end is not on record could not be withdrawn");
    }
}

pub(crate) fn teller(house: &House, id: &str, grant: &Grant) -> Teller {
    Teller {
        bus: house.bus.clone(),
        namespace: grant.request().namespace.to_string(),
        execution_id: id.to_owned(),
    }
}

fn not_on_record() -> Denial {
    Denial {
        rule: "audit.not_recorded".to_owned(),
        layer: "audit".to_owned(),
        what: "this run is not on the audit record, which could not be written".to_owned(),
        hint: "The operator chose `audit.on_failure: warn`; the server's log says why it failed.".to_owned(),
    }
}

/// Tells the bus and the meters how it ended.
fn tell_the_end(
    house: &House,
    id: &str,
    namespace: &Namespace,
    language: Language,
    done: &Result<Executed, RequestError>,
    clock: Clock,
) {
    let ended = match done {
        Ok(Executed { result, .. }) => Ended {
            language,
            exit: Some(result.exit.kind),
            exit_code: Some(result.exit_code),
            refused: None,
            duration_ms: result.duration_ms,
            phases: result.phases,
            resource_usage: result.resource_usage,
        },
        Err(error) => Ended {
            language,
            exit: None,
            exit_code: None,
            refused: Some(error.code.as_str()),
            duration_ms: clock.total(),
            phases: clock.phases,
            resource_usage: ResourceUsage::default(),
        },
    };
    if let Ok(Executed { result, found, .. }) = done {
        house.meters.count_redactions(*found);
        if let Some(limit) = &result.exit.limit {
            let kind = EventKind::ResourceExceeded { limit: limit.clone() };
            house.bus.tell(namespace.as_str(), Some(id), kind);
        }
        house.meters.count_result(result);
    }
    house.meters.count_end(&ended);
    let kind = match done {
        Ok(done) if done.result.exit.kind == ExitKind::Timeout => EventKind::ExecutionTimeout(ended),
        Ok(done) if done.result.success => EventKind::ExecutionCompleted(ended),
        _ => EventKind::ExecutionFailed(ended),
    };
    house.bus.tell(namespace.as_str(), Some(id), kind);
}

/// What a request brings to its place.
pub(crate) struct Brought<'a> {
    pub(crate) lease: &'a SecretLease,
    pub(crate) prepared: &'a Prepared,
    pub(crate) packages: Option<&'a Provided>,
}

/// The packages that a request asks for, installed when nobody has asked for them before.
pub(crate) async fn packages_of(
    house: &Arc<House>,
    opened: &Opened,
    grant: &Grant,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
) -> Result<Option<Provided>, RequestError> {
    let request = grant.request();
    if request.packages.is_empty() {
        return Ok(None);
    }
    let wish = Wish {
        caller: opened.caller(),
        namespace: &request.namespace,
        execution_id: Some(opened.id()),
        language: request.language,
        set: &request.packages,
        live,
        cancelled,
    };
    packages::layer(house, &wish).await.map(Some)
}

/// Starts the program in a place that stands ready, or else in one that is begun now. A place that fails before the
/// program runs has cost nothing but time.
pub(crate) async fn start(
    house: &Arc<House>,
    (layout, workspace): (Layout, &Lent),
    grant: &Grant,
    brought: &Brought<'_>,
    mut cancelled: watch::Receiver<bool>,
) -> Result<(Started, Isolation), RequestError> {
    let Brought {
        lease,
        prepared,
        packages,
    } = brought;
    let layer = packages.map(|packages| &packages.name);
    let request = grant.request();
    let mut claim = async |place: Place, surroundings: &Surroundings| {
        let bound = sandbox::bind(house, &place.plan, surroundings, grant, lease, prepared, layer);
        let isolation = place.plan.isolation(&bound.claim, &house.native.host);
        let started = place.claim(&bound.claim, &bound.blobs, &mut cancelled).await?;
        Ok::<_, RequestError>((started, isolation))
    };
    if sandbox::can_start_ahead(request, lease)
        && let Some(Taken { place, surroundings }) = warm::take(house, request)
    {
        match claim(place, &surroundings).await {
            Ok(started) => return Ok(started),
            Err(error) => tracing::warn!(%error, "a place that stood ready has failed; starting cold"),
        }
    }
    let surroundings = sandbox::surroundings(house, request.language)?;
    let shared = workspace.shared.clone();
    let plan = sandbox::plan(house, layout, &surroundings, shared, Start::Claimed)?;
    claim(house.native.place(Arc::new(plan), None)?, &surroundings).await
}

pub(crate) async fn admit(
    house: &House,
    grant: &Grant,
    cancelled: watch::Receiver<bool>,
) -> Result<crate::queue::Permit, RequestError> {
    let request = grant.request();
    let priority = request.priority.unwrap_or(Priority::Normal);
    queued(house, &request.namespace, priority, cancelled).await
}

/// Until it is admitted or cancelled. Who wants the turn of a session, too, has that first: all take them in this order.
pub(crate) async fn queued(
    house: &House,
    namespace: &Namespace,
    priority: Priority,
    mut cancelled: watch::Receiver<bool>,
) -> Result<crate::queue::Permit, RequestError> {
    tokio::select! {
        admitted = house.queue.admit(namespace, priority) => admitted,
        Ok(_) = cancelled.wait_for(|cancelled| *cancelled) => Err(RequestError::new(
            ErrorCode::Cancelled,
            "the request was cancelled while it waited.",
            "Send it again when it is wanted.",
        )),
    }
}

pub(crate) fn kept_bytes(grant: &Grant) -> u64 {
    if grant.request().capture_output {
        grant.limits().output_bytes
    } else {
        0
    }
}

fn look_before(grant: &Grant, workspace: &Lent) -> Before {
    let request = grant.request();
    let mut before = Before::inputs(
        request
            .files
            .iter()
            .map(|file| (&file.path, file.bytes.as_slice())),
    );
    if let Some(root) = workspace.lies_below() {
        before.look(root);
    }
    before
}

#[expect(
    clippy::too_many_arguments,
    reason = "each is a thing that the steps before have made"
)]
async fn finish(
    house: &Arc<House>,
    mut raw: RawOutcome,
    grant: &Grant,
    lease: &SecretLease,
    (prepared, looked): (&Prepared, Looked),
    (workspace, before): (&Lent, Before),
    refused: Vec<Denial>,
    copy_to: Option<Outlet>,
    id: &str,
    mut clock: Clock,
) -> Result<(Report, Option<Hold>), RequestError> {
    let private = grant.request().workspace == WorkspaceSource::Private;
    let staged = match raw.doors.take() {
        // A look into memory; what lies on a disk may take longer.
        Some(doors) if private && artifacts::has_nothing(&doors) => Staged::default(),
        Some(doors) => {
            let shelf = Shelf {
                house: house.clone(),
                namespace: grant.request().namespace.clone(),
                execution_id: id.to_owned(),
                redactor: lease.redactor.clone(),
                total_max: if private {
                    grant.limits().disk_bytes
                } else {
                    u64::MAX
                },
                copy_to,
                workspace: if workspace.stays() {
                    Kept::WhereItIs
                } else {
                    Kept::InStore
                },
            };
            stage(doors, before, shelf).await?
        }
        None => Staged::default(),
    };
    let program = prepare::read_outcome(prepared, &raw.report);
    let (validation, unchecked) = looked.findings(&program.patched).await;
    clock.phases.finish_ms = clock.lap();
    let about = About {
        execution_id: id.to_owned(),
        namespace: grant.request().namespace.to_string(),
        session_id: None,
        session_ended: None,
        language: grant.request().language,
        capture_output: grant.request().capture_output,
        profile: grant.rules().restrict().then(|| grant.rules().profile.as_str()),
        phases: clock.phases,
        duration_ms: clock.total(),
        validation,
        unchecked,
        refused,
    };
    let report = report::build(&raw, program, staged, about, lease);
    Ok((report, raw.hold))
}

/// Files are staged and hashed on a thread of their own: a program may leave a gibibyte.
async fn stage(doors: Doors, before: Before, shelf: Shelf) -> Result<Staged, RequestError> {
    let staged = tokio::task::spawn_blocking(move || artifacts::stage(&doors, &before, shelf).0);
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
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    begun: Instant,
    lap: Instant,
    pub(crate) phases: Phases,
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

    pub(crate) fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let lap = milliseconds(now.duration_since(self.lap));
        self.lap = now;
        lap
    }

    pub(crate) fn total(&self) -> f64 {
        milliseconds(self.begun.elapsed())
    }
}
