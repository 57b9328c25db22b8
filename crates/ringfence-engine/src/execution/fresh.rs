//! A run: one program in a sandbox that was made for it or in advance, and that serves nothing else.

use super::{
    outcome::PhaseTimer,
    states::{Admitted, ExecutionContext, Finished, FreshTarget, Leased},
};
use crate::{
    approval::TakenOnce,
    artifacts::{self, Baseline},
    backend::{ClaimError, Claimed, Running, Sandbox, SandboxDirs},
    containers::{ContainerKind, Containers},
    egress::{self, EgressLease, LeaseOwner},
    error::{self, Result},
    language::{self, Prepared},
    overlay::{self, ChangeOrigin, HeldChanges, Lower, OverlayLayers},
    policy::{self, Grant},
    pool::Purpose,
    prepare,
    runtimes::{self, Toolchain},
    sandbox::{self, ReadySandbox, RunInputs, Start},
    secrets::Redacted,
    services::Services,
    store,
    streams::Stdio,
    warm,
    workspaces::WorkspaceLease,
};
use ringfence_jail::{ExportDirectory, Layout};
use ringfence_types::{Backend, Denial, ExecuteRequest, Isolation, Language, RequestError, WorkspaceSource};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) fn decide(context: &ExecutionContext<'_>, request: ExecuteRequest) -> Result<(Grant, TakenOnce)> {
    let services = context.services;
    let (state, once) = services.state_for_run(context.scope.caller(), &request.namespace, None);
    let (policy, private) = (services.policy.current(), &services.policy.private);
    policy::decide(&policy, &state, private, request).map(|grant| (grant, once))
}

/// Opens the operator's directory for copies of artifacts; refused inside the server's own directories.
pub(super) fn open_copies(services: &Services, directory: Option<&Path>) -> Result<Option<ExportDirectory>> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    // A path that does not exist yet will be created below its nearest existing ancestor.
    let existing = absolute.ancestors().find_map(|above| above.canonicalize().ok());
    let is_private = |own: &PathBuf| {
        absolute.starts_with(own)
            || existing
                .as_ref()
                .is_some_and(|existing| existing.starts_with(own))
    };
    if services.policy.private.iter().any(is_private) {
        return Err(RequestError::denied(
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

/// Acquires the workspace, and the secrets with the keys that inspect TLS.
pub(super) async fn lease(
    context: &ExecutionContext<'_>,
    grant: &Grant,
    redacted: Redacted,
) -> Result<Leased> {
    let services = context.services;
    let workspace = services.workspaces.acquire(grant).await?;
    let secrets = services.secrets.lease(context.scope, grant, redacted).await?;
    let egress = &services.egress;
    let secrets = egress.inspect(grant, secrets, &services.secrets).await?;
    Ok(Leased {
        egress: None,
        secrets: Arc::new(secrets),
        workspace,
    })
}

/// A running program. Dropped, it is killed before its egress is closed.
pub(super) struct FreshProgram {
    running: Running,
    egress: Option<EgressLease>,
    isolation: Isolation,
    prepared: Prepared,
    lower: Option<Arc<Lower>>,
    before: Baseline,
    leased: Leased,
}

pub(super) async fn start(
    context: &ExecutionContext<'_>,
    admitted: &Admitted,
    target: &FreshTarget,
    leased: Leased,
    stdio: Stdio,
) -> Result<FreshProgram> {
    let (services, grant) = (context.services, &admitted.grant);
    let choice = Choice::among(context, grant, &leased).await?;
    let prepared = prepare::prepare(&services.sandboxes, &grant.request, choice.layout())
        .await?
        .with(admitted.check.checks.clone());
    let before = files_before(grant, &leased.workspace);
    let lower = match target.holds_changes {
        true => overlay::lower_of(&leased.workspace).await?,
        false => None,
    };
    let inputs = RunInputs {
        lease: &leased.secrets,
        prepared: &prepared,
        layer: target.packages.as_ref().map(|packages| &packages.name),
        workspace: leased.workspace.shared.as_ref(),
    };
    let (mut claimed, isolation) = claim(context, choice, grant, &inputs).await?;
    let owner = LeaseOwner::Run(context.requester());
    let ends = claimed.egress.take();
    let egress = services.egress.open_for(grant, &leased.secrets, owner, ends)?;
    let stdio = Stdio {
        stdin_bytes: grant.request.stdin.clone(),
        ..stdio
    };
    Ok(FreshProgram {
        running: Running::attach(claimed, stdio, admitted.kept_bytes())?,
        egress,
        isolation,
        prepared,
        lower,
        before,
        leased,
    })
}

/// The sandbox for a program: one that is ready, or a new one with this layout.
pub(super) struct Choice {
    ready: Option<ReadySandbox>,
    layout: Layout,
    /// The container to make; `None` for a native sandbox.
    container: Option<ContainerKind>,
}

impl Choice {
    pub(super) async fn among(
        context: &ExecutionContext<'_>,
        grant: &Grant,
        leased: &Leased,
    ) -> Result<Self> {
        match grant.backend {
            Backend::Native => Ok(Self::native(context, grant, leased)),
            backend => Self::of_engine(context, grant, leased, backend).await,
        }
    }

    /// Chooses a ready container, or a new one without an interpreter, which may depend on the request.
    async fn of_engine(
        context: &ExecutionContext<'_>,
        grant: &Grant,
        leased: &Leased,
        backend: Backend,
    ) -> Result<Self> {
        let containers = &context.services.sandboxes.containers;
        let request = &grant.request;
        let usual = context.services.policy.current().defaults.clone();
        let kind = tokio::select! {
            kind = containers.kind(backend, request.language, &usual) => kind?,
            // Fetching an image may take minutes.
            () = context.client.cancelled() => return Err(error::cancelled("its container was prepared")),
        };
        let starts_ahead =
            sandbox::can_start_ahead(request, &leased.secrets, Some(language::TemplateOf::Node));
        // A container's disks are in memory, and their size is fixed when it is made.
        let starts_ahead = starts_ahead && grant.limits.disk_bytes == usual.disk_bytes;
        let taken = starts_ahead.then(|| containers.take(request, &kind)).flatten();
        let ready = taken.map(|sandbox| ReadySandbox {
            sandbox,
            toolchain: kind.toolchain.clone(),
        });
        Ok(Self {
            ready,
            layout: Layout::own_root(),
            container: Some(Containers::claimed(&kind, &grant.limits)),
        })
    }

    fn native(context: &ExecutionContext<'_>, grant: &Grant, leased: &Leased) -> Self {
        let (sandboxes, workspace) = (&context.services.sandboxes, &leased.workspace);
        let node = warm::template_of(Purpose::Program(Language::Node), sandboxes);
        let starts_ahead = sandbox::can_start_ahead(&grant.request, &leased.secrets, node);
        let beside = starts_ahead.then(|| workspace.names());
        let ready = match sandboxes.made_with(workspace.shared.as_ref()) {
            None => warm::take(sandboxes, &grant.request, beside),
            Some(_) => None,
        };
        // The id names the directory of a new sandbox.
        let layout = sandboxes.layout(context.scope.id());
        Self {
            ready,
            layout,
            container: None,
        }
    }

    fn layout(&self) -> &Layout {
        self.ready
            .as_ref()
            .map_or(&self.layout, |ready| &ready.sandbox.plan.layout)
    }
}

/// Starts the program. A ready sandbox that fails before is replaced, unless a module was prepared for its workspace.
pub(super) async fn claim(
    context: &ExecutionContext<'_>,
    choice: Choice,
    grant: &Grant,
    inputs: &RunInputs<'_>,
) -> Result<(Claimed, Isolation)> {
    let sandboxes = &context.services.sandboxes;
    let mut cancelled = context.client.cancelled.clone();
    let Choice {
        ready,
        layout,
        container,
    } = choice;
    let mut claim = async |sandbox: Sandbox, toolchain: &Toolchain| {
        let bound = sandboxes.bind(&sandbox.plan, toolchain, grant, inputs);
        let isolation = sandboxes.isolation_of(&sandbox, &bound.claim);
        let claimed = sandbox.claim(&bound.claim, &bound.blobs, &mut cancelled).await?;
        Ok::<_, ClaimError>((claimed, isolation))
    };
    if let Some(ReadySandbox { sandbox, toolchain }) = ready {
        let workspace = sandbox.plan.layout.workspace.display().to_string();
        match claim(sandbox, &toolchain).await {
            Ok(claimed) => return Ok(claimed),
            Err(ClaimError { error, is_retryable }) => {
                // A module was prepared for the path of this sandbox's workspace, which no other sandbox has.
                let is_bound = layout.host_directory.is_some() && inputs.prepared.script.contains(&workspace);
                if !is_retryable || is_bound {
                    return Err(error);
                }
                tracing::warn!(%error, "a ready sandbox has failed; starting cold");
            }
        }
    }
    if let Some(kind) = container {
        return Ok(claim(sandboxes.containers.spawn(&kind)?, &kind.toolchain).await?);
    }
    let made_with = sandboxes.made_with(inputs.workspace);
    let toolchain = runtimes::toolchain(grant.request.language, &sandboxes.runtimes)?;
    let plan = sandboxes.plan(layout, &toolchain, made_with, Start::Claimed)?;
    Ok(claim(sandboxes.native.spawn(Arc::new(plan), None)?, &toolchain).await?)
}

fn files_before(grant: &Grant, workspace: &WorkspaceLease) -> Baseline {
    let files = grant.request.files.iter();
    let mut before = Baseline::inputs(files.map(|file| (&file.path, file.bytes.as_slice())));
    if let Some(root) = workspace.baseline_root() {
        before.add_host_directory(root);
    }
    before
}

/// Waits for the end of the program, closes its egress, and reads its changes to an overlay.
pub(super) async fn wait(
    context: &ExecutionContext<'_>,
    grant: &Grant,
    program: FreshProgram,
    timer: &mut PhaseTimer,
) -> Result<Finished> {
    // In order of acquisition, so that they are released in reverse.
    let FreshProgram {
        leased,
        before,
        lower,
        prepared,
        isolation,
        egress,
        running,
    } = program;
    let raw = running.wait(context.client.cancelled.clone(), isolation).await?;
    let request = &grant.request;
    if let (Some(count), WorkspaceSource::Namespace) = (raw.ending.usage.workspace, &request.workspace) {
        context.services.disk.remember(&request.namespace, count);
    }
    timer.lap(|phases| &mut phases.run_ms);
    let reached = egress::close(egress, &raw).await;
    let changes = match lower.zip(raw.dirs.as_ref()) {
        Some((lower, dirs)) => changes(context, grant, lower, dirs, &leased).await.map(Some),
        None => Ok(None),
    };
    Ok(Finished {
        program: language::read_outcome(&prepared, &raw.report),
        raw,
        reached,
        changes,
        session_ended: None,
        before,
        secrets: leased.secrets,
        workspace: leased.workspace,
    })
}

/// Reads the changes to an overlay while its sandbox exists. If that fails, the result has no changes to accept.
async fn changes(
    context: &ExecutionContext<'_>,
    grant: &Grant,
    lower: Arc<Lower>,
    dirs: &SandboxDirs,
    leased: &Leased,
) -> Result<HeldChanges, Denial> {
    let redactor = &leased.secrets.redactor;
    let held = match dirs.changes.try_clone() {
        Ok(upper) => {
            let of = ChangeOrigin::Execution(context.scope.id().to_owned());
            let (layers, redactor) = (OverlayLayers { lower, upper }, redactor.clone());
            let record = &context.services.record;
            HeldChanges::read(record, &grant.request.namespace, of, layers, redactor).await
        }
        Err(error) => Err(store::fault(error)),
    };
    held.map_err(|error| overlay::unreadable(&redactor.text(&error.message)))
}
