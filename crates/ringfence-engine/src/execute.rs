//! One request, from start to finish, in one straight function: each line consumes what the one above produced.
//! Resources are locals in the order in which they are taken, so that Rust gives them back in reverse on success,
//! error, panic and cancellation.

mod call;
mod create;

pub(crate) use create::create_session;

use crate::{
    artifacts::{self, Before, FilesKept, StageOptions, Staged},
    backend::{Hold, RawOutcome, Running, Sandbox, SandboxDirs, Started},
    caller::{Caller, OutputChunk, Submission},
    check::{PendingCheck, Text},
    egress,
    events::{Ended, EventKind},
    language::{self, Prepared},
    overlay::{self, ChangeOrigin, HeldChanges, Lower, OverlayLayers},
    packages::{LayerRequest, Provided},
    policy::{self, Grant},
    prepare,
    queue::{Demand, Permit, Queue},
    record::{self, AuditScope, Closing, Written},
    report::{self, About, Report},
    runtimes::{self, Toolchain},
    sandbox::{self, RunInputs, Start},
    secrets::SecretLease,
    services::Services,
    session::InLine,
    store,
    streams::{OutputPublisher, Stdio},
    warm::{self, ReadySandbox},
    workspaces::WorkspaceLease,
};
use ringfence_jail::{ExportDirectory, Layout};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{
    Denial, ErrorCode, ExecutionResult, ExitKind, Isolation, Language, Namespace, Phases, Priority,
    RequestError, ResourceUsage, WorkspaceSource,
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// Of so many artifacts the digests stand in the record; the signed manifest has all.
const DIGESTS_MAX: usize = 20;

/// A result, and what is to be let go once it is on its way.
pub(crate) struct Executed {
    pub(crate) result: ExecutionResult,
    /// What it was allowed.
    pub(crate) granted: Value,
    /// Whom it reached, and what of that was refused.
    pub(crate) reached: Option<Value>,
    /// Secrets that were taken out of what leaves.
    pub(crate) found: u64,
    /// What was done to an overlay, for somebody to decide about.
    pub(crate) changes: Option<HeldChanges>,
    pub(crate) hold: Option<Hold>,
}

impl Executed {
    /// A call that leaves nothing behind.
    pub(crate) fn of(report: Report, grant: &Grant, reached: Option<Value>) -> Self {
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
    services: &Arc<Services>,
    id: &str,
    submission: Submission,
    place: Option<Result<InLine, RequestError>>,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
) -> Result<Executed, RequestError> {
    let clock = Clock::start();
    let (namespace, language) = (submission.request.namespace.clone(), submission.request.language);
    let is_ours = submission.caller == Caller::ours();
    let opened = match services.record.open(id, &submission.caller, &submission.request) {
        Ok(opened) => opened,
        Err(error) => {
            let done = Err(error);
            tell_the_end(services, id, &namespace, language, &done, clock);
            return done;
        }
    };
    if !is_ours {
        let started = EventKind::ExecutionStarted { language };
        services.telemetry.bus.tell(namespace.as_str(), Some(id), started);
    }
    let mut done = match place {
        None => run(services, &opened, submission, live, cancelled, clock).await,
        Some(Err(error)) => Err(error),
        Some(Ok(place)) => call::call(services, &opened, place, submission, live, cancelled, clock).await,
    };
    let closed = opened.close(done.as_ref().map(closing)).await;
    if let (Ok(executed), Ok(Written::No)) = (&mut done, &closed) {
        executed.result.security_events.push(not_on_record());
    }
    if closed.is_err() {
        withdraw(services, id).await;
    }
    let done = closed.and(done);
    if !is_ours {
        tell_the_end(services, id, &namespace, language, &done, clock);
    }
    done
}

/// One request, each line consuming what the one above produced.
async fn run(
    services: &Arc<Services>,
    opened: &AuditScope,
    submission: Submission,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
    mut clock: Clock,
) -> Result<Executed, RequestError> {
    let id = opened.id();
    let standing = services.standing_of_run(&submission.request.namespace, None);
    let grant = policy::decide(
        &services.policy.current(),
        &standing,
        &services.policy.private,
        submission.request,
    )?;
    let looked = services.checkers.look(&grant, Text::Program).await?;
    let copies = open_copies(services, submission.artifacts_to.as_deref())?;
    // Before there is a place: an installer may take minutes, in which programs of others run.
    let packages = packages_of(services, opened, &grant, live.clone(), cancelled.clone()).await?;
    let provided_ms = clock.lap();
    let permit = admit(services, &grant, cancelled.clone()).await?;
    opened.begin().await?;
    clock.phases.queued_ms = clock.lap();
    let workspace = services.workspaces.lend(&grant).await?;
    let lease = services.secrets.lease(opened, &grant).await?;
    let lease = services.egress.inspect(&grant, lease).await?;
    let chosen = Chosen::among(services, id, &grant, &lease, &workspace);
    let prepared = prepare::prepare(&services.sandboxes, grant.request(), chosen.layout())
        .await?
        .with(looked.checks.clone());
    let before = look_before(&grant, &workspace);
    let lower = overlay::lower_of(Some(&workspace).filter(|_| submission.holds_changes)).await?;
    let brought = RunInputs {
        lease: &lease,
        prepared: &prepared,
        layer: packages.as_ref().map(|packages| &packages.name),
        workspace: workspace.shared.as_ref(),
    };
    let (mut started, isolation) = start(services, chosen, &grant, &brought, cancelled.clone()).await?;
    let holder = egress::LeaseOwner::Run(egress::Requester::of(opened, live.as_ref()));
    let way_out = services
        .egress
        .open_for(&grant, &lease, holder, started.take_sockets())?;
    let wires = Stdio {
        stdin: submission.stdin,
        stdin_bytes: grant.request().stdin.clone(),
        live,
        redactor: lease.redactor.clone(),
        teller: Some(teller(services, id, &grant)),
    };
    let running = Running::attach(started, wires, kept_bytes(&grant))?;
    clock.phases.start_ms = provided_ms + clock.lap();
    let mut raw = running.wait(cancelled, isolation).await?;
    remember(services, &grant, &raw);
    clock.phases.run_ms = clock.lap();
    let reached = egress::close(way_out, &raw).await;
    let (changes, untold) = changes_of(services, &grant, id, lower, &raw, &lease).await;
    let ran = Ran {
        id,
        grant: &grant,
        lease: &lease,
        prepared: &prepared,
        workspace: &workspace,
        refused: reached.denials,
        clock,
    };
    let staged = ran.stage(services, raw.doors.take(), before, copies).await?;
    let report = ran.report(&raw, staged, looked).await;
    drop((packages, permit));
    let mut executed = Executed::of(report, &grant, reached.recorded);
    executed.result.denials.extend(untold);
    executed.changes = changes;
    executed.hold = raw.hold;
    Ok(executed)
}

/// What a run has left in its namespace's workspace.
fn remember(services: &Services, grant: &Grant, raw: &RawOutcome) {
    let request = grant.request();
    if let (Some(count), WorkspaceSource::Namespace) = (raw.ending.usage.workspace, &request.workspace) {
        services.disk.remember(&request.namespace, count);
    }
}

/// What the program did to an overlay, read before anything of the sandbox is let go. A run whose changes cannot be
/// told has run all the same: it has its result, and nothing that could be accepted.
async fn changes_of(
    services: &Arc<Services>,
    grant: &Grant,
    id: &str,
    lower: Option<Arc<Lower>>,
    raw: &RawOutcome,
    lease: &SecretLease,
) -> (Option<HeldChanges>, Option<Denial>) {
    let Some((lower, doors)) = lower.zip(raw.doors.as_ref()) else {
        return (None, None);
    };
    let of = ChangeOrigin::Execution(id.to_owned());
    let held = match doors.changes.try_clone() {
        Ok(upper) => {
            HeldChanges::read(
                &services.record,
                &grant.request().namespace,
                of,
                OverlayLayers { lower, upper },
                lease.redactor.clone(),
            )
            .await
        }
        Err(error) => Err(store::fault(error.to_string())),
    };
    match held {
        Ok(held) => (Some(held), None),
        Err(error) => (None, Some(overlay::untold(&lease.redactor.text(&error.message)))),
    }
}

/// The operator's directory for copies, if there is one; it is none of the server's own.
fn open_copies(
    services: &Services,
    directory: Option<&Path>,
) -> Result<Option<ExportDirectory>, RequestError> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    // What is not there yet will be below what is.
    let there = absolute.ancestors().find_map(|above| above.canonicalize().ok());
    let is_private = |own: &PathBuf| {
        absolute.starts_with(own) || there.as_ref().is_some_and(|there| there.starts_with(own))
    };
    if services.policy.private.iter().any(is_private) {
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
async fn withdraw(services: &Arc<Services>, id: &str) {
    let (store, execution) = (services.artifacts.clone(), id.to_owned());
    let withdrawn = tokio::task::spawn_blocking(move || store.withdraw(&execution)).await;
    if !matches!(withdrawn, Ok(Ok(_))) {
        tracing::error!(%id, "the files of a run whose end is not on record could not be withdrawn");
    }
}

pub(crate) fn teller(services: &Services, id: &str, grant: &Grant) -> OutputPublisher {
    OutputPublisher {
        bus: services.telemetry.bus.clone(),
        namespace: grant.request().namespace.to_string(),
        execution_id: id.to_owned(),
        so_far: services.executions.so_far(id),
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
    services: &Services,
    id: &str,
    namespace: &Namespace,
    language: Language,
    done: &Result<Executed, RequestError>,
    clock: Clock,
) {
    let mut ended = Ended {
        language,
        exit: None,
        exit_code: None,
        refused: done.as_ref().err().map(|error| error.code.as_str()),
        duration_ms: clock.total(),
        phases: clock.phases,
        resource_usage: ResourceUsage::default(),
    };
    if let Ok(Executed { result, found, .. }) = done {
        ended.exit = Some(result.exit.kind);
        ended.exit_code = Some(result.exit_code);
        ended.duration_ms = result.duration_ms;
        ended.phases = result.phases;
        ended.resource_usage = result.resource_usage;
        services.telemetry.meters.count_redactions(*found);
        if let Some(limit) = &result.exit.limit {
            let kind = EventKind::ResourceExceeded { limit: limit.clone() };
            services.telemetry.bus.tell(namespace.as_str(), Some(id), kind);
        }
        services.telemetry.meters.count_result(result);
    }
    services.telemetry.meters.count_end(&ended);
    let kind = match done {
        Ok(done) if done.result.exit.kind == ExitKind::Timeout => EventKind::ExecutionTimeout(ended),
        Ok(done) if done.result.success => EventKind::ExecutionCompleted(ended),
        _ => EventKind::ExecutionFailed(ended),
    };
    services.telemetry.bus.tell(namespace.as_str(), Some(id), kind);
}

/// The packages that a request asks for, installed when nobody has asked for them before.
pub(crate) async fn packages_of(
    services: &Arc<Services>,
    opened: &AuditScope,
    grant: &Grant,
    live: Option<mpsc::Sender<OutputChunk>>,
    cancelled: watch::Receiver<bool>,
) -> Result<Option<Provided>, RequestError> {
    let request = grant.request();
    if request.packages.is_empty() {
        return Ok(None);
    }
    opened.begin().await?;
    let wish = LayerRequest {
        caller: opened.caller(),
        namespace: &request.namespace,
        execution_id: Some(opened.id()),
        language: request.language.packaged_as(),
        set: &request.packages,
        live,
        cancelled,
    };
    services.packages.layer(&wish).await.map(Some)
}

/// Where a program will run: in a place that stands ready, or else in one that is made then, with this layout.
pub(crate) struct Chosen {
    ready: Option<ReadySandbox>,
    layout: Layout,
}

impl Chosen {
    /// `id` names the directory of a place that is made then.
    pub(crate) fn among(
        services: &Services,
        id: &str,
        grant: &Grant,
        lease: &SecretLease,
        workspace: &WorkspaceLease,
    ) -> Self {
        let request = grant.request();
        let beside = sandbox::can_start_ahead(request, lease).then(|| workspace.names());
        let ready = match services.sandboxes.of_the_place(workspace.shared.as_ref()) {
            None => warm::take(&services.sandboxes, request, beside),
            Some(_) => None,
        };
        let layout = services.sandboxes.layout(id);
        Self { ready, layout }
    }

    /// Of the program.
    pub(crate) fn layout(&self) -> &Layout {
        self.ready
            .as_ref()
            .map_or(&self.layout, |taken| &taken.place.plan.layout)
    }
}

/// Starts the program. A place that stood ready and fails before the program runs has cost nothing but time.
pub(crate) async fn start(
    services: &Arc<Services>,
    chosen: Chosen,
    grant: &Grant,
    brought: &RunInputs<'_>,
    mut cancelled: watch::Receiver<bool>,
) -> Result<(Started, Isolation), RequestError> {
    let Chosen { ready, layout } = chosen;
    let mut claim = async |place: Sandbox, toolchain: &Toolchain| {
        let bound = services.sandboxes.bind(&place.plan, toolchain, grant, brought);
        let isolation = place
            .plan
            .isolation(&bound.claim, &services.sandboxes.native.host);
        let started = place.claim(&bound.claim, &bound.blobs, &mut cancelled).await?;
        Ok::<_, RequestError>((started, isolation))
    };
    if let Some(ReadySandbox { place, toolchain }) = ready {
        let workspace = place.plan.layout.workspace.display().to_string();
        match claim(place, &toolchain).await {
            Ok(started) => return Ok(started),
            // A module was made ready for the workspace of this place, which no other place has.
            Err(error)
                if layout.host_directory.is_some() && brought.prepared.script().contains(&workspace) =>
            {
                return Err(error);
            }
            Err(error) => tracing::warn!(%error, "a place that stood ready has failed; starting cold"),
        }
    }
    let of_the_place = services.sandboxes.of_the_place(brought.workspace);
    let toolchain = runtimes::toolchain(grant.request().language, &services.sandboxes.runtimes)?;
    let plan = services
        .sandboxes
        .plan(layout, &toolchain, of_the_place, Start::Claimed)?;
    claim(services.sandboxes.native.place(Arc::new(plan), None)?, &toolchain).await
}

pub(crate) async fn admit(
    services: &Services,
    grant: &Grant,
    cancelled: watch::Receiver<bool>,
) -> Result<Permit, RequestError> {
    services.disk.check_floor()?;
    let request = grant.request();
    let priority = request.priority.unwrap_or(Priority::Normal);
    let demand = Demand::of(grant.limits());
    queued(&services.queue, &request.namespace, priority, demand, cancelled).await
}

/// Until it is admitted or cancelled. Who wants the turn of a session, too, has that first: all take them in this
/// order.
pub(crate) async fn queued(
    queue: &Queue,
    namespace: &Namespace,
    priority: Priority,
    demand: Demand,
    mut cancelled: watch::Receiver<bool>,
) -> Result<Permit, RequestError> {
    tokio::select! {
        admitted = queue.admit(namespace, priority, demand) => admitted,
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

fn look_before(grant: &Grant, workspace: &WorkspaceLease) -> Before {
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

/// A run whose program has ended.
struct Ran<'a> {
    id: &'a str,
    grant: &'a Grant,
    lease: &'a SecretLease,
    prepared: &'a Prepared,
    workspace: &'a WorkspaceLease,
    /// What egress refused it.
    refused: Vec<Denial>,
    clock: Clock,
}

impl Ran<'_> {
    /// The files that it leaves.
    async fn stage(
        &self,
        services: &Services,
        doors: Option<SandboxDirs>,
        before: Before,
        copy_to: Option<ExportDirectory>,
    ) -> Result<Staged, RequestError> {
        let Some(doors) = doors else {
            return Ok(Staged::default());
        };
        let request = self.grant.request();
        let private = request.workspace == WorkspaceSource::Private;
        // A look into memory; what lies on a disk may take longer.
        if private && artifacts::has_nothing(&doors) {
            return Ok(Staged::default());
        }
        let mut options = stage_options(services, self.id, &request.namespace, self.lease, self.workspace);
        options.copy_to = copy_to;
        if private {
            options.total_max = self.grant.limits().disk_bytes;
        }
        staged(move || artifacts::stage(&doors, &before, options).0).await
    }

    /// What its caller is told.
    async fn report(mut self, raw: &RawOutcome, staged: Staged, looked: PendingCheck) -> Report {
        let program = language::read_outcome(self.prepared, &raw.report);
        let (validation, unchecked) = looked.findings(&program.patched).await;
        self.clock.phases.finish_ms = self.clock.lap();
        let about = About {
            phases: self.clock.phases,
            duration_ms: self.clock.total(),
            validation,
            unchecked,
            refused: self.refused,
            ..About::of(self.id, self.grant)
        };
        report::build(raw, program, staged, about, self.lease)
    }
}

/// Files are staged and hashed on a thread of their own: a program may leave a gibibyte.
async fn staged(stage: impl FnOnce() -> Staged + Send + 'static) -> Result<Staged, RequestError> {
    tokio::task::spawn_blocking(stage).await.map_err(|error| {
        RequestError::new(
            ErrorCode::SandboxFault,
            format!("staging artifacts failed: {error}."),
            "Report this.",
        )
    })
}

/// How the files of an execution are stored; no limit on their size, no copies.
fn stage_options(
    services: &Services,
    id: &str,
    namespace: &Namespace,
    lease: &SecretLease,
    workspace: &WorkspaceLease,
) -> StageOptions {
    StageOptions {
        store: services.artifacts.clone(),
        bus: services.telemetry.bus.clone(),
        namespace: namespace.clone(),
        execution_id: id.to_owned(),
        redactor: lease.redactor.clone(),
        total_max: u64::MAX,
        copy_to: None,
        workspace: if workspace.stays() {
            FilesKept::WhereItIs
        } else {
            FilesKept::InStore
        },
    }
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

fn details(executed: &Executed) -> Value {
    let result = &executed.result;
    let usage = &result.resource_usage;
    let mut details = json!({
        "exit": result.exit.kind,
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "tier": result.isolation.tier,
        "limits": executed.granted,
        "cpu_ms": usage.cpu_user_ms + usage.cpu_system_ms,
        "max_rss_bytes": usage.max_rss_bytes,
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
    });
    if let Some(limit) = &result.exit.limit {
        details["limit"] = json!(limit);
    }
    if !result.artifacts.is_empty() {
        let digests = result.artifacts.iter().take(DIGESTS_MAX);
        let digests: Vec<&str> = digests.map(|artifact| artifact.sha256.as_str()).collect();
        details["artifacts"] = json!({"count": result.artifacts.len(), "sha256": digests});
    }
    let rules: Vec<&str> = result
        .denials
        .iter()
        .chain(&result.security_events)
        .map(|denial| denial.rule.as_str())
        .collect();
    if !rules.is_empty() {
        details["rules"] = json!(rules);
    }
    if let Some(reached) = &executed.reached {
        details["egress"] = reached.clone();
    }
    if executed.found > 0 {
        details["redacted"] = json!(executed.found);
    }
    details
}

fn closing(executed: &Executed) -> Closing {
    let result = &executed.result;
    let (action, outcome) = match result.exit.kind {
        ExitKind::Timeout => (Action::ExecutionTimeout, Outcome::Failed),
        _ if result.success => (Action::ExecutionCompleted, Outcome::Ok),
        _ => (Action::ExecutionFailed, Outcome::Failed),
    };
    Closing {
        action,
        outcome,
        details: details(executed),
    }
}
