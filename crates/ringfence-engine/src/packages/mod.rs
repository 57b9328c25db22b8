//! Packages for programs: a set of requirements becomes a layer, once, and every later request for the same set has it
//! at no cost. It is installed in a sandbox of its own, which runs the installer and nothing of what that downloads.

mod hosts;
mod installers;

use installers::LAST_WORDS;

use crate::{
    admission::{Demand, Permit, Queue},
    backend::{RawOutcome, Running},
    caller::{Client, OutputChunk, Requester},
    disk::Disk,
    egress::{self, Egress},
    error::{self, Result},
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

/// Installers at once, and of one namespace.
const INSTALLERS_MAX: usize = 3;
const INSTALLERS_MAX_OF_ONE: usize = 2;
/// Requests that wait for packages, also for those of another request that installs the same.
const REQUESTS_MAX: usize = 512;
const REQUESTS_MAX_OF_ONE: usize = 64;
/// How often it is looked whether somebody else has made a set.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often it is looked which layers are too old.
const SWEEP_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a failure is taken for the answer.
const FAILURE_LASTS: Duration = Duration::from_secs(10);
const FAILURES_MAX: usize = 256;
/// The most packages that stand in one record.
const NOTED_MAX: usize = 100;
const INSTALLING: &str = "its packages were installed";
const MEBIBYTE: u64 = 1 << 20;
/// What an installer takes beside the packages themselves.
const INSTALLER_BYTES: u64 = 512 * MEBIBYTE;
const OUTPUT_BYTES_MAX: u64 = MEBIBYTE;

/// The layers of a server, and what it knows of them.
pub(crate) struct Packages {
    services: PackageServices,
    /// Bounds the requests, waiting or not.
    requests: Queue,
    installers: Queue,
    failures: Mutex<HashMap<SetName, (Instant, RequestError)>>,
}

pub(crate) struct PackageServices {
    pub(crate) layers: Layers,
    pub(crate) settings: PackageSettings,
    /// Whether personal data is taken out of an installer's output.
    pub(crate) personal: Personal,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) disk: Arc<Disk>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) record: Record,
    pub(crate) bus: Bus,
}

/// The packages of one request, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Provided {
    pub(crate) layer: Layer,
    pub(crate) name: LayerName,
    /// What the installer said, where it was asked.
    pub(crate) output: String,
}

pub(crate) struct LayerRequest<'a> {
    pub(crate) by: Requester,
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
        failures.retain(|_, (at, _)| at.elapsed() < FAILURE_LASTS);
        failures.get(set).map(|(_, error)| error.clone())
    }

    fn remember(&self, set: &SetName, error: &RequestError) {
        let mut failures = lock(&self.failures);
        if failures.len() < FAILURES_MAX {
            failures.insert(set.clone(), (Instant::now(), error.clone()));
        }
    }

    /// The layer of a set, installed if it is not there yet. Other requests for the same set wait for it.
    pub(crate) async fn layer(self: &Arc<Self>, wish: &LayerRequest<'_>) -> Result<Provided> {
        let policy = self.services.sandboxes.policy.current().packages.clone();
        self.check(&policy, wish.set)?;
        let set = self.name_of(wish.language, wish.set)?;
        let until = Instant::now() + 2 * policy.timeout;
        let mut counted = None;
        loop {
            if let Some(layer) = self.find(&set).await? {
                return provided(layer, String::new());
            }
            if counted.is_none() {
                let wanted = self
                    .requests
                    .permit(wish.namespace, Demand::default(), Duration::ZERO);
                counted = Some(wanted.await.map_err(|_| crowded())?);
            }
            if let Some(error) = self.failed_lately(&set) {
                return Err(error);
            }
            if let Some(making) = self.services.layers.begin(&set).map_err(fault)? {
                // Somebody may have made it a moment ago.
                if let Some(layer) = self.find(&set).await? {
                    return provided(layer, String::new());
                }
                return self.make(wish, &policy, making).await;
            }
            if *wish.by.client.cancelled.borrow() {
                return Err(error::cancelled(INSTALLING));
            }
            if Instant::now() > until {
                return Err(RequestError::new(
                    ErrorCode::PackageUnavailable,
                    "the same packages are being installed for somebody else, and it takes too long.",
                    "Ask again later.",
                ));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
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

    /// Off the runtime's threads: every file is read. A changed layer is refused, and made anew by the next request.
    async fn find(self: &Arc<Self>, set: &SetName) -> Result<Option<Layer>> {
        let (own, wanted) = (self.clone(), set.clone());
        match store::blocking(move || own.services.layers.find(&wanted)).await? {
            Err(error @ LayerError::Damaged { .. }) => {
                tracing::error!(%error, "a layer of packages has been changed");
                self.services.layers.forget(set).map_err(fault)?;
                Err(RequestError::store_fault(
                    format!("{error}."),
                    "Somebody has changed files in the state directory. Ask again: the packages are then installed anew.",
                ))
            }
            found => found.map_err(fault),
        }
    }

    /// A set of this interpreter's: another version or build of it needs other files.
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

    /// Installs a set, on record.
    async fn make(
        self: &Arc<Self>,
        wish: &LayerRequest<'_>,
        policy: &PackagePolicy,
        making: SetLock,
    ) -> Result<Provided> {
        let set = making.set().clone();
        let names: Vec<&str> = wish.set.iter().map(Requirement::as_str).collect();
        let mut details = json!({"wanted": names, "language": wish.language});
        self.note(wish, Outcome::Pending, details.clone()).await?;
        notify(&wish.by.client, &format!("installing {}\n", names.join(", "))).await;
        let begun = Instant::now();
        let made = match self.services.disk.check(wish.namespace).await {
            Ok(()) => self.install(wish, policy, making).await,
            Err(error) => Err(error),
        };
        match made {
            Ok((layer, output)) => {
                details["layer"] = json!(layer.name());
                details["packages"] = noted(layer.packages());
                self.note(wish, Outcome::Ok, details).await?;
                let packages: Vec<String> = layer.packages().iter().map(shown).collect();
                let line = format!(
                    "installed {} in {:.1} s\n",
                    packages.join(", "),
                    begun.elapsed().as_secs_f64()
                );
                notify(&wish.by.client, &line).await;
                let kind = EventKind::PackageInstalled {
                    language: wish.language,
                    packages,
                };
                let execution_id = wish.by.execution_id.as_deref();
                self.services.bus.publish(wish.namespace, execution_id, kind);
                self.sweep();
                provided(layer, output)
            }
            Err(error) => {
                details["code"] = json!(error.code.as_str());
                self.note(wish, Outcome::Failed, details).await?;
                if error.code == ErrorCode::PackageUnavailable {
                    self.remember(&set, &error);
                }
                Err(error)
            }
        }
    }

    async fn note(&self, wish: &LayerRequest<'_>, outcome: Outcome, details: Value) -> Result<()> {
        let note = Note::of(&wish.by.caller, wish.namespace, Action::PackageInstalled, details);
        let note = note.ended(outcome).of_execution(wish.by.execution_id.as_deref());
        self.services.record.note(note).await.map(drop)
    }

    /// Runs the installer, and takes in what it leaves.
    async fn install(
        self: &Arc<Self>,
        wish: &LayerRequest<'_>,
        policy: &PackagePolicy,
        making: SetLock,
    ) -> Result<(Layer, String)> {
        let _permit = self.installer(wish, policy).await?;
        let Ended {
            mut raw,
            said,
            refused,
        } = self.run(wish, policy).await?;
        judge(wish, policy, &raw.ending, &said).map_err(|error| with_refusals(error, &refused))?;
        let dirs = raw
            .dirs
            .take()
            .ok_or_else(|| store::fault("the installer has left nothing"))?;
        let (own, language, bytes_max) = (self.clone(), wish.language, policy.bytes_max);
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
        Ok((taken.await??, said))
    }

    async fn installer(&self, wish: &LayerRequest<'_>, policy: &PackagePolicy) -> Result<Permit> {
        let permit = self
            .installers
            .permit(wish.namespace, Demand::default(), policy.timeout);
        tokio::select! {
            permit = permit => permit.map_err(|_| crowded()),
            () = wish.by.client.cancelled() => Err(error::cancelled(INSTALLING)),
        }
    }

    /// The installer, to its end, and what it said.
    async fn run(&self, wish: &LayerRequest<'_>, policy: &PackagePolicy) -> Result<Ended> {
        let (sources, sandboxes) = (&self.services.settings.sources, &self.services.sandboxes);
        let toolchain = runtimes::toolchain(wish.language.runs_as(), &sandboxes.runtimes)?;
        let limits = limits(policy);
        let call = installers::call(wish.language, &toolchain.interpreter, wish.set, sources)?;
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
        let reaches = hosts::rules(wish.language, sources, &policy.hosts)?;
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
        let mut is_cancelled = wish.by.client.cancelled.clone();
        let mut started = sandbox.claim(&claim, &blobs.blobs, &mut is_cancelled).await?;
        let (egress, sockets) = (&self.services.egress, started.take_sockets());
        let open = |sockets| egress.open_for_installer(wish.namespace, &reaches, sockets);
        let lease = sockets.map(open).transpose()?;
        let stdio = Stdio::captured(sources.redactor(self.services.personal));
        let running = Running::attach(started, stdio, OUTPUT_BYTES_MAX)?;
        let raw = running.wait(is_cancelled, isolation).await?;
        let refused = egress::refused(lease, &raw).await;
        let said = [raw.stdout.bytes.as_slice(), &raw.stderr.bytes].concat();
        Ok(Ended {
            said: String::from_utf8_lossy(&said).into_owned(),
            raw,
            refused,
        })
    }

    /// Removes layers that are too old or too many, at once and once a day: on a quiet server no other comes.
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

    /// Removes them now; called whenever there is another layer.
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
        // A client that does not listen any more misses a line.
        drop(output.send(OutputChunk::notice(text)).await);
    }
}

fn crowded() -> RequestError {
    RequestError::new(
        ErrorCode::Busy,
        "other packages are being installed, and it takes too long.",
        "Ask again later.",
    )
}

struct Ended {
    raw: RawOutcome,
    said: String,
    /// What it was refused of the network.
    refused: Vec<Denial>,
}

fn limits(policy: &PackagePolicy) -> Limits {
    // The archives, what is unpacked of them, and what becomes of it lie there at one time.
    let disk_bytes = 3 * policy.bytes_max;
    Limits {
        // Half of it is the disk's at most.
        memory_bytes: 2 * disk_bytes.max(INSTALLER_BYTES),
        cpu_millicores: 2000,
        timeout_ms: u64::try_from(policy.timeout.as_millis()).unwrap_or(u64::MAX),
        processes: 128,
        output_bytes: OUTPUT_BYTES_MAX,
        disk_bytes,
    }
}

fn judge(wish: &LayerRequest<'_>, policy: &PackagePolicy, ending: &Ending, said: &str) -> Result<()> {
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
                || said.contains("No space left on device") =>
        {
            unavailable(
                format!("the packages need more than {} MiB.", policy.bytes_max / MEBIBYTE),
                "Ask for less, or have the operator raise `packages.max_mb`.",
            )
        }
        _ => Err(installers::refusal(wish.language, wish.set, said)),
    }
}

/// What egress has refused says more than the installer's last words.
fn with_refusals(mut error: RequestError, refused: &[Denial]) -> RequestError {
    if let Some(denial) = refused.first() {
        let (what, last_words) = error
            .message
            .split_once(LAST_WORDS)
            .unwrap_or((&error.message, ""));
        error.message = format!(
            "{what} Its egress refused: {} ({}).{LAST_WORDS}{last_words}",
            denial.what, denial.rule
        );
        error.hint = "An installer reaches the hosts of `packages.hosts`: by default those of the index in pip's or npm's configuration.".to_owned();
    }
    error
}
