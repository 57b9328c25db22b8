//! Packages for programs. A set of requirements is installed once, as a layer, and later requests for the same set use
//! it at no cost. It is installed in a sandbox of its own, which runs the installer but no code that it downloads.

mod hosts;
mod installers;

use installers::LAST_LINES;

use crate::{
    admission::{Demand, Permit, Queue},
    backend::{RawOutcome, Running},
    caller::{Client, OutputChunk, Requester},
    disk::Disk,
    egress::{self, Egress},
    error::{self, Result, busy},
    events::{Bus, EventKind},
    policy::reach,
    record::{Note, Record},
    runtimes,
    sandbox::{Blobs, Sandboxes},
    settings::{PackagePolicy, PackageSettings},
    store,
    streams::Stdio,
    sync::lock,
};
use ringfence_jail::{
    Claim, LayerName, Run, harvest,
    wire::{Cause, Ending},
};
use ringfence_redact::Personal;
use ringfence_store::{
    audit::{Action, Outcome},
    layers::{Layer, LayerError, Layers, Package, SetLock, SetName},
};
use ringfence_types::{
    Denial, ErrorCode, Language, Limits, Namespace, RequestError, Requirement, Tier, WorkspacePath,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Concurrent installers, and those of one namespace.
const INSTALLERS_MAX: usize = 3;
const INSTALLERS_MAX_OF_ONE: usize = 2;
/// Requests waiting for packages, including those waiting for another request that installs the same set.
const REQUESTS_MAX: usize = 512;
const REQUESTS_MAX_OF_ONE: usize = 64;
const RETRY_AFTER_MS: u64 = 5000;
/// Interval between checks whether another request or server has installed a set.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Interval between removals of old layers.
const SWEEP_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// Time that a failure is returned again without another attempt.
const FAILURE_TTL: Duration = Duration::from_secs(10);
const FAILURES_MAX: usize = 256;
/// Most packages in one audit record.
const NOTED_MAX: usize = 100;
const INSTALLING: &str = "its packages were installed";
const MEBIBYTE: u64 = 1 << 20;
/// Memory of an installer without the packages themselves.
const INSTALLER_BYTES: u64 = 512 * MEBIBYTE;
const OUTPUT_BYTES_MAX: u64 = MEBIBYTE;

pub(crate) struct Packages {
    services: PackageServices,
    /// Limits the requests, waiting or installing.
    requests: Queue,
    installers: Queue,
    failures: Mutex<HashMap<SetName, (Instant, RequestError)>>,
}

pub(crate) struct PackageServices {
    pub(crate) layers: Layers,
    pub(crate) settings: PackageSettings,
    /// Redaction of personal data in an installer's output.
    pub(crate) personal: Personal,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) record: Record,
    pub(crate) bus: Bus,
}

/// The packages of one request, kept as long as this lives.
#[derive(Debug)]
pub(crate) struct Provided {
    pub(crate) layer: Layer,
    pub(crate) name: LayerName,
    /// Output of the installer, if it was run.
    pub(crate) output: String,
}

pub(crate) struct LayerRequest<'a> {
    pub(crate) requester: Requester,
    pub(crate) namespace: &'a Namespace,
    pub(crate) language: Language,
    pub(crate) set: &'a BTreeSet<Requirement>,
}

impl Packages {
    pub(crate) fn new(services: PackageServices) -> Self {
        Self {
            services,
            requests: Queue::of_places(REQUESTS_MAX, REQUESTS_MAX_OF_ONE, 0),
            installers: Queue::of_places(INSTALLERS_MAX, INSTALLERS_MAX_OF_ONE, REQUESTS_MAX),
            failures: Mutex::default(),
        }
    }

    fn failed_lately(&self, set: &SetName) -> Option<RequestError> {
        let mut failures = lock(&self.failures);
        failures.retain(|_, (at, _)| at.elapsed() < FAILURE_TTL);
        failures.get(set).map(|(_, error)| error.clone())
    }

    fn remember(&self, set: &SetName, error: &RequestError) {
        let mut failures = lock(&self.failures);
        if failures.len() < FAILURES_MAX {
            failures.insert(set.clone(), (Instant::now(), error.clone()));
        }
    }

    /// Returns the layer of a set, installed if it does not exist. Other requests for the same set wait for it.
    pub(crate) async fn layer(self: &Arc<Self>, request: &LayerRequest<'_>) -> Result<Provided> {
        let policy = self.services.sandboxes.policy.current().packages.clone();
        self.check(&policy, request.set)?;
        let set = self.name_of(request.language, request.set)?;
        let until = Instant::now() + 2 * policy.timeout;
        let mut counted = None;
        loop {
            if let Some(layer) = self.find(&set).await? {
                return provided(layer, String::new());
            }
            if counted.is_none() {
                let wanted = self
                    .requests
                    .permit(request.namespace, Demand::default(), Duration::ZERO);
                counted = Some(wanted.await.map_err(|_| crowded())?);
            }
            if let Some(error) = self.failed_lately(&set) {
                return Err(error);
            }
            if let Some(making) = self.services.layers.begin(&set).map_err(fault)? {
                // It may have been made a moment ago.
                if let Some(layer) = self.find(&set).await? {
                    return provided(layer, String::new());
                }
                return self.make(request, &policy, making).await;
            }
            if *request.requester.client.cancelled.borrow() {
                return Err(error::cancelled(INSTALLING));
            }
            if Instant::now() > until {
                return Err(RequestError::new(
                    ErrorCode::PackageUnavailable,
                    "the same packages are being installed for another request, and it takes too long.",
                    "Ask again later.",
                ));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    fn check(&self, policy: &PackagePolicy, set: &BTreeSet<Requirement>) -> Result<()> {
        if self.services.sandboxes.tier != Tier::Full {
            return Err(RequestError::unsupported(
                "there are no packages in the tier `landlock`.",
                "Use what the host's interpreter has, or the tier `full`.",
            ));
        }
        policy.check(set)
    }

    /// Finds a layer on a blocking thread, since every file is read. A changed one is refused, and reinstalled later.
    async fn find(self: &Arc<Self>, set: &SetName) -> Result<Option<Layer>> {
        let (own, wanted) = (self.clone(), set.clone());
        match store::blocking(move || own.services.layers.find(&wanted)).await? {
            Err(error @ LayerError::Damaged { .. }) => {
                tracing::error!(%error, "a layer of packages has been changed");
                self.services.layers.forget(set).map_err(fault)?;
                Err(RequestError::store_fault(
                    format!("{error}."),
                    "Files in the state directory were changed. Try again: the packages are then installed again.",
                ))
            }
            found => found.map_err(fault),
        }
    }

    /// Returns the name of a set for this interpreter: another version or build of it needs other files.
    fn name_of(&self, language: Language, set: &BTreeSet<Requirement>) -> Result<SetName> {
        let interpreter =
            runtimes::toolchain(language.runs_as(), &self.services.sandboxes.runtimes)?.interpreter;
        let real = interpreter.canonicalize().unwrap_or_else(|_| interpreter.clone());
        let build = std::fs::metadata(&real).map_or_else(
            |_| String::new(),
            |file| format!("{} {}.{}", file.len(), file.mtime(), file.mtime_nsec()),
        );
        let (path, real) = (interpreter.display().to_string(), real.display().to_string());
        let mut parts = vec![language.runs_as().as_str(), &path, &real, &build];
        parts.extend(set.iter().map(Requirement::as_str));
        Ok(SetName::of(&parts))
    }

    async fn make(
        self: &Arc<Self>,
        request: &LayerRequest<'_>,
        policy: &PackagePolicy,
        making: SetLock,
    ) -> Result<Provided> {
        let set = making.set().clone();
        let names: Vec<&str> = request.set.iter().map(Requirement::as_str).collect();
        let by = &request.requester;
        let mut details = json!({"wanted": names, "language": request.language});
        self.note(request, Outcome::Pending, details.clone()).await?;
        notify(&by.client, &format!("installing {}\n", names.join(", "))).await;
        let begun = Instant::now();
        let made = match self.services.disk.check(request.namespace).await {
            Ok(()) => self.install(request, policy, making).await,
            Err(error) => Err(error),
        };
        match made {
            Ok((layer, output)) => {
                details["layer"] = json!(layer.name());
                details["packages"] = noted(layer.packages());
                self.note(request, Outcome::Ok, details).await?;
                let packages: Vec<String> = layer.packages().iter().map(shown).collect();
                let line = format!(
                    "installed {} in {:.1} s\n",
                    packages.join(", "),
                    begun.elapsed().as_secs_f64()
                );
                notify(&by.client, &line).await;
                let kind = EventKind::PackageInstalled {
                    language: request.language,
                    packages,
                };
                let execution_id = by.execution_id.as_deref();
                self.services.bus.publish(request.namespace, execution_id, kind);
                self.sweep();
                provided(layer, output)
            }
            Err(error) => {
                details["code"] = json!(error.code.as_str());
                self.note(request, Outcome::Failed, details).await?;
                if error.code == ErrorCode::PackageUnavailable {
                    self.remember(&set, &error);
                }
                Err(error)
            }
        }
    }

    async fn note(&self, request: &LayerRequest<'_>, outcome: Outcome, details: Value) -> Result<()> {
        let by = &request.requester;
        let note = Note::of(&by.caller, request.namespace, Action::PackageInstalled, details);
        let note = note.ended(outcome).of_execution(by.execution_id.as_deref());
        self.services.record.note(note).await.map(drop)
    }

    async fn install(
        self: &Arc<Self>,
        request: &LayerRequest<'_>,
        policy: &PackagePolicy,
        making: SetLock,
    ) -> Result<(Layer, String)> {
        let _permit = self.installer(request, policy).await?;
        let mut run = self.run(request, policy).await?;
        let explained = |error| with_refusals(error, &run.refused);
        judge(request, policy, &run.raw.ending, &run.output).map_err(explained)?;
        let dirs = run.raw.dirs.take();
        let dirs = dirs.ok_or_else(|| store::fault("the installer has left nothing"))?;
        let (own, language, bytes_max) = (self.clone(), request.language, policy.bytes_max);
        let taken = store::blocking(move || {
            let failed =
                |error: std::io::Error| store::fault(format!("what the installer has left: {error}"));
            let packages = installers::downloaded(language, dirs.changes.as_fd()).map_err(failed)?;
            let installed = harvest::open_directory(dirs.changes.as_fd(), installers::LAYER.as_ref());
            let installed = installed.map_err(failed)?;
            let layers = &own.services.layers;
            layers
                .put(&making, installed.as_fd(), packages, bytes_max)
                .map_err(fault)
        });
        Ok((taken.await??, run.output))
    }

    async fn installer(&self, request: &LayerRequest<'_>, policy: &PackagePolicy) -> Result<Permit> {
        let permit = self
            .installers
            .permit(request.namespace, Demand::default(), policy.timeout);
        tokio::select! {
            permit = permit => permit.map_err(|_| crowded()),
            () = request.requester.client.cancelled() => Err(error::cancelled(INSTALLING)),
        }
    }

    async fn run(&self, request: &LayerRequest<'_>, policy: &PackagePolicy) -> Result<InstallerRun> {
        let (sources, sandboxes) = (&self.services.settings.sources, &self.services.sandboxes);
        let toolchain = runtimes::toolchain(request.language.runs_as(), &sandboxes.runtimes)?;
        let limits = limits(policy);
        let call = installers::call(request.language, &toolchain.interpreter, request.set, sources)?;
        let plan = sandboxes.plan_of_installer(&toolchain, &sources.wheel_directories, limits.clone())?;
        let mut environment = runtimes::environment(&plan.layout, &toolchain.on_path);
        environment.retain(|(name, _)| !call.environment.iter().any(|(given, _)| given == name));
        environment.extend(call.environment);
        let mut blobs = Blobs::default();
        let mut files = Vec::new();
        for (path, bytes) in &call.files {
            let path = WorkspacePath::try_from((*path).to_owned()).map_err(store::fault)?;
            files.push((path, blobs.add(bytes.as_slice())));
        }
        let reaches = hosts::rules(request.language, sources, &policy.hosts)?;
        reach::check(&reaches)?;
        let run = Run::Exec {
            argv: call.argv,
            environment,
            report: false,
        };
        let claim = Claim {
            files,
            egress: reach::spec(sandboxes.tier, &reaches),
            ..sandboxes.native.claim(run, limits)
        };
        let isolation = plan.isolation(&claim, &sandboxes.native.host);
        let sandbox = sandboxes.native.spawn(Arc::new(plan), None)?;
        let mut is_cancelled = request.requester.client.cancelled.clone();
        let mut started = sandbox.claim(&claim, &blobs.blobs, &mut is_cancelled).await?;
        let (egress, sockets) = (&self.services.egress, started.take_sockets());
        let open = |sockets| egress.open_for_installer(request.namespace, &reaches, sockets);
        let lease = sockets.map(open).transpose()?;
        let stdio = Stdio::captured(sources.redactor(self.services.personal));
        let running = Running::attach(started, stdio, OUTPUT_BYTES_MAX)?;
        let raw = running.wait(is_cancelled, isolation).await?;
        let refused = egress::refused(lease, &raw).await;
        let output = [raw.stdout.bytes.as_slice(), &raw.stderr.bytes].concat();
        Ok(InstallerRun {
            output: String::from_utf8_lossy(&output).into_owned(),
            raw,
            refused,
        })
    }

    /// Removes layers that are too old or too many, at once and once a day: a quiet server installs no others.
    pub(crate) fn keep_swept(self: &Arc<Self>) {
        let packages = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut due = tokio::time::interval(SWEEP_EVERY);
            loop {
                due.tick().await;
                let Some(packages) = packages.upgrade() else {
                    return;
                };
                packages.sweep();
            }
        });
    }

    /// Removes layers that are too old or too many; called after each installation.
    fn sweep(self: &Arc<Self>) {
        let packages = self.clone();
        tokio::task::spawn_blocking(move || {
            match packages.services.layers.sweep(packages.services.settings.kept) {
                Ok(swept) => {
                    tracing::debug!(removed = swept.removed, bytes = swept.bytes, "layers of packages")
                }
                Err(error) => {
                    tracing::error!(%error, "layers that are too old or too many could not be removed")
                }
            }
        });
    }
}

fn provided(layer: Layer, output: String) -> Result<Provided> {
    let name = LayerName::try_from(layer.name().to_owned()).map_err(store::fault)?;
    Ok(Provided { layer, name, output })
}

fn fault(error: LayerError) -> RequestError {
    match error {
        LayerError::Refused(_) | LayerError::TooLarge { .. } => RequestError::new(
            ErrorCode::PackageUnavailable,
            format!("{error}."),
            "Ask for less; the bound is the operator's `packages.max_mb`.",
        ),
        LayerError::Io(_) | LayerError::Damaged { .. } => store::fault(error),
    }
}

fn shown(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

fn noted(packages: &[Package]) -> Value {
    let first = packages.iter().take(NOTED_MAX).map(|package| {
        let digest = package.sha256.as_ref().or(package.integrity.as_ref());
        json!([shown(package), digest])
    });
    json!({"count": packages.len(), "first": first.collect::<Vec<_>>()})
}

async fn notify(client: &Client, text: &str) {
    if let Some(output) = &client.output {
        // A client that has gone misses a line.
        drop(output.send(OutputChunk::notice(text)).await);
    }
}

fn crowded() -> RequestError {
    busy(
        "other packages are being installed, and it takes too long.",
        "Ask again later.",
        RETRY_AFTER_MS,
    )
}

struct InstallerRun {
    raw: RawOutcome,
    output: String,
    refused: Vec<Denial>,
}

fn limits(policy: &PackagePolicy) -> Limits {
    // The archives, the unpacked files and the layer are there at the same time.
    let disk_bytes = 3 * policy.bytes_max;
    Limits {
        // The disk takes at most half of the memory.
        memory_bytes: 2 * disk_bytes.max(INSTALLER_BYTES),
        cpu_millicores: 2000,
        timeout_ms: u64::try_from(policy.timeout.as_millis()).unwrap_or(u64::MAX),
        processes: 128,
        output_bytes: OUTPUT_BYTES_MAX,
        disk_bytes,
    }
}

fn judge(request: &LayerRequest<'_>, policy: &PackagePolicy, ending: &Ending, output: &str) -> Result<()> {
    let unavailable =
        |message: String, hint: &str| Err(RequestError::new(ErrorCode::PackageUnavailable, message, hint));
    match (ending.cause, ending.status) {
        (Cause::Program, Some(0)) => Ok(()),
        (Cause::Cancelled, _) => Err(error::cancelled(INSTALLING)),
        (Cause::Timeout, _) => unavailable(
            format!("installing took more than {} seconds.", policy.timeout.as_secs()),
            "Ask for less, or have the operator raise `packages.timeout_seconds`; what was slow may be the index.",
        ),
        (cause, _)
            if matches!(cause, Cause::OutOfMemory | Cause::Disk)
                || output.contains("No space left on device") =>
        {
            unavailable(
                format!("the packages need more than {} MiB.", policy.bytes_max / MEBIBYTE),
                "Ask for less, or have the operator raise `packages.max_mb`.",
            )
        }
        _ => Err(installers::refusal(request.language, request.set, output)),
    }
}

/// Adds the connection that egress refused, which explains more than the installer's last lines.
fn with_refusals(mut error: RequestError, refused: &[Denial]) -> RequestError {
    if let Some(denial) = refused.first() {
        let (what, last_lines) = error
            .message
            .split_once(LAST_LINES)
            .unwrap_or((&error.message, ""));
        error.message = format!(
            "{what} Its egress refused: {} ({}).{LAST_LINES}{last_lines}",
            denial.what, denial.rule
        );
        error.hint = "An installer reaches the hosts of `packages.hosts`: by default those of the index in pip's or npm's configuration.".to_owned();
    }
    error
}
