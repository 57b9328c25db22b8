//! Packages for programs: a set of requirements becomes a layer, once, and every later request for the same set has it
//! at no cost. It is installed in a sandbox of its own, which runs the installer and nothing of what that downloads.

mod hosts;
mod installation;
mod installers;
mod sources;

pub use installation::{Installation, Installed, PackageWish};
pub use installers::LAST_WORDS;
pub use sources::PackageSources;

use crate::{
    backend::{RawOutcome, Running},
    egress,
    engine::{Caller, House, OutputChunk, OutputStream, Stdin},
    events::EventKind,
    record::Note,
    sandbox::{self, Blobs},
    seats::{Asking, Bounds, Seat, Seats},
    settings::PackagePolicy,
    store,
    streams::Wires,
};
use ringfence_jail::{
    ClaimSpec, LayerName, Run, harvest,
    wire::{Cause, Ending},
};
use ringfence_store::{
    audit::{Action, Outcome},
    layers::{Layer, LayerError, Layers, LayersKept, Lock, Package, SetName},
};
use ringfence_types::{
    Denial, ErrorCode, Language, Limits, Namespace, RequestError, Requirement, Tier, WorkspacePath,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

/// What the engine has to be told about packages.
#[derive(Clone, Debug)]
pub struct PackageSettings {
    /// Where they come from.
    pub sources: PackageSources,
    /// How long layers are kept.
    pub kept: LayersKept,
}

const INSTALLERS: Bounds = Bounds {
    seats: 3,
    seats_of_one: 2,
    // They may also wait for somebody else who installs the same.
    asking: 512,
    asking_of_one: 64,
};
/// How often it is looked whether somebody else has made a set.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often it is looked which layers are too old.
const SWEEP_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a failure is taken for the answer.
const FAILURE_LASTS: Duration = Duration::from_secs(10);
const FAILURES_MAX: usize = 256;
/// The most packages that stand in one record.
const NOTED_MAX: usize = 100;
const MEBIBYTE: u64 = 1 << 20;
/// What an installer takes beside the packages themselves.
const INSTALLER_BYTES: u64 = 512 * MEBIBYTE;
const OUTPUT_BYTES_MAX: u64 = MEBIBYTE;

/// The layers of a server, and what it knows of them.
pub(crate) struct Packages {
    pub(crate) layers: Layers,
    seats: Seats,
    failures: Mutex<HashMap<SetName, (Instant, RequestError)>>,
}

/// The packages of one request, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Provided {
    pub(crate) layer: Layer,
    pub(crate) name: LayerName,
    /// What the installer said, where it was asked.
    pub(crate) output: String,
}

/// Who wants packages, and which.
pub(crate) struct Wish<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) namespace: &'a Namespace,
    /// The execution that it is for.
    pub(crate) execution_id: Option<&'a str>,
    pub(crate) language: Language,
    pub(crate) set: &'a BTreeSet<Requirement>,
    /// Hears what goes on.
    pub(crate) live: Option<mpsc::Sender<OutputChunk>>,
    pub(crate) cancelled: watch::Receiver<bool>,
}

impl Packages {
    pub(crate) fn new(layers: Layers) -> Self {
        Self {
            layers,
            seats: Seats::new(INSTALLERS),
            failures: Mutex::default(),
        }
    }

    fn failed_lately(&self, set: &SetName) -> Option<RequestError> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, (at, _)| at.elapsed() < FAILURE_LASTS);
        failures.get(set).map(|(_, error)| error.clone())
    }

    fn remember(&self, set: &SetName, error: &RequestError) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_MAX {
            failures.insert(set.clone(), (Instant::now(), error.clone()));
        }
    }
}

/// The layer of a set, which is made when there is none yet. Whoever else wants the same set waits for it.
pub(crate) async fn layer(house: &Arc<House>, wish: &Wish<'_>) -> Result<Provided, RequestError> {
    let policy = house.policy().packages.clone();
    check(house, &policy, wish.set)?;
    let set = name_of(house, wish.language, wish.set)?;
    let until = Instant::now() + 2 * policy.timeout;
    let mut asking = None;
    loop {
        if let Some(layer) = find(house, &set).await? {
            return provided(layer, String::new());
        }
        let asking = match &mut asking {
            Some(asking) => asking,
            none => none.insert(house.packages.seats.ask(wish.namespace).ok_or_else(crowded)?),
        };
        if let Some(error) = house.packages.failed_lately(&set) {
            return Err(error);
        }
        if let Some(making) = house.packages.layers.begin(&set).map_err(|error| fault(&error))? {
            // Somebody may have made it a moment ago.
            if let Some(layer) = find(house, &set).await? {
                return provided(layer, String::new());
            }
            return make(house, wish, &policy, &set, (making, asking)).await;
        }
        if *wish.cancelled.borrow() {
            return Err(cancelled());
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

fn provided(layer: Layer, output: String) -> Result<Provided, RequestError> {
    let name = LayerName::try_from(layer.name().to_owned()).map_err(store::fault)?;
    Ok(Provided { layer, name, output })
}

fn check(house: &House, policy: &PackagePolicy, set: &BTreeSet<Requirement>) -> Result<(), RequestError> {
    if house.settings.tier != Tier::Full {
        return Err(RequestError::new(
            ErrorCode::UnsupportedArgument,
            "there are no packages in the tier `landlock`.",
            "Use what the host's interpreter has, or the tier `full`.",
        ));
    }
    policy.check(set)
}

/// Off the runtime's threads: every file is looked at. A layer that is not what it was is refused, and made anew by the
/// next request.
async fn find(house: &Arc<House>, set: &SetName) -> Result<Option<Layer>, RequestError> {
    let (own, wanted) = (house.clone(), set.clone());
    let found = tokio::task::spawn_blocking(move || own.packages.layers.find(&wanted)).await;
    match found.map_err(|error| store::fault(error.to_string()))? {
        Err(error @ LayerError::Damaged { .. }) => {
            tracing::error!(%error, "a layer of packages has been changed");
            house.packages.layers.forget(set).map_err(|error| fault(&error))?;
            Err(RequestError::new(
                ErrorCode::StoreFault,
                format!("{error}."),
                "Somebody has changed files in the state directory. Ask again: the packages are then installed anew.",
            ))
        }
        found => found.map_err(|error| fault(&error)),
    }
}

fn fault(error: &LayerError) -> RequestError {
    match error {
        LayerError::Refused(_) | LayerError::TooLarge { .. } => RequestError::new(
            ErrorCode::PackageUnavailable,
            format!("{error}."),
            "Ask for less; the bound is the operator's `packages.max_mb`.",
        ),
        LayerError::Io { .. } | LayerError::Damaged { .. } => store::fault(error.to_string()),
    }
}

fn cancelled() -> RequestError {
    RequestError::new(
        ErrorCode::Cancelled,
        "the request was cancelled while its packages were installed.",
        "Send it again when it is wanted.",
    )
}

/// A set of this interpreter's: another version or build of it needs other files.
fn name_of(house: &House, language: Language, set: &BTreeSet<Requirement>) -> Result<SetName, RequestError> {
    let interpreter = sandbox::surroundings(house, language.runs_as())?.interpreter;
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
    house: &Arc<House>,
    wish: &Wish<'_>,
    policy: &PackagePolicy,
    set: &SetName,
    (making, asking): (Lock, &Asking<'_>),
) -> Result<Provided, RequestError> {
    let names: Vec<&str> = wish.set.iter().map(Requirement::as_str).collect();
    note(
        house,
        wish,
        Outcome::Pending,
        json!({"wanted": names, "language": wish.language}),
    )
    .await?;
    tell(wish.live.as_ref(), &format!("installing {}\n", names.join(", "))).await;
    let begun = Instant::now();
    let made = install(house, wish, policy, set, (making, asking)).await;
    match made {
        Ok((layer, output)) => {
            let details = json!({
                "wanted": names,
                "language": wish.language,
                "layer": layer.name(),
                "packages": noted(layer.packages()),
            });
            note(house, wish, Outcome::Ok, details).await?;
            let packages: Vec<String> = layer.packages().iter().map(shown).collect();
            let line = format!(
                "installed {} in {:.1} s\n",
                packages.join(", "),
                begun.elapsed().as_secs_f64()
            );
            tell(wish.live.as_ref(), &line).await;
            let kind = EventKind::PackageInstalled {
                language: wish.language,
                packages,
            };
            house.bus.tell(wish.namespace.as_str(), wish.execution_id, kind);
            sweep(house);
            provided(layer, output)
        }
        Err(error) => {
            let details = json!({"wanted": names, "language": wish.language, "code": error.code.as_str()});
            note(house, wish, Outcome::Failed, details).await?;
            if error.code == ErrorCode::PackageUnavailable {
                house.packages.remember(set, &error);
            }
            Err(error)
        }
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

async fn note(house: &House, wish: &Wish<'_>, outcome: Outcome, details: Value) -> Result<(), RequestError> {
    let note = Note {
        action: Action::PackageInstalled,
        outcome,
        namespace: wish.namespace.as_str(),
        execution_id: wish.execution_id,
        caller: wish.caller,
        details,
    };
    house.record.note(note).await.map(drop)
}

async fn tell(live: Option<&mpsc::Sender<OutputChunk>>, text: &str) {
    if let Some(live) = live {
        let chunk = OutputChunk {
            stream: OutputStream::Notice,
            bytes: text.as_bytes().to_vec(),
        };
        // Whoever does not listen any more has missed a line.
        drop(live.send(chunk).await);
    }
}

/// Runs the installer, and takes in what it leaves.
async fn install(
    house: &Arc<House>,
    wish: &Wish<'_>,
    policy: &PackagePolicy,
    set: &SetName,
    (making, asking): (Lock, &Asking<'_>),
) -> Result<(Layer, String), RequestError> {
    let _seat = seat(wish, policy, asking).await?;
    let Ended {
        mut raw,
        said,
        refused,
    } = run(house, wish, policy).await?;
    judge(wish, policy, &raw.ending, &said).map_err(|error| with_refusals(error, &refused))?;
    let doors = raw
        .doors
        .take()
        .ok_or_else(|| store::fault("the installer has left nothing".to_owned()))?;
    let (own, set, language, bytes_max) = (house.clone(), set.clone(), wish.language, policy.bytes_max);
    let taken = tokio::task::spawn_blocking(move || {
        let failed = |error: std::io::Error| store::fault(format!("what the installer has left: {error}"));
        let packages = installers::downloaded(language, doors.changes.as_fd()).map_err(failed)?;
        let installed = harvest::open_directory(doors.changes.as_fd(), installers::LAYER.as_ref());
        let installed = installed.map_err(failed)?;
        let layers = &own.packages.layers;
        layers
            .put(&set, &making, installed.as_fd(), packages, bytes_max)
            .map_err(|error| fault(&error))
    });
    let layer = taken.await.map_err(|error| store::fault(error.to_string()))??;
    Ok((layer, said))
}

/// Until fewer installers run than may.
async fn seat<'a>(
    wish: &Wish<'_>,
    policy: &PackagePolicy,
    asking: &Asking<'a>,
) -> Result<Seat<'a>, RequestError> {
    let mut is_cancelled = wish.cancelled.clone();
    tokio::select! {
        seat = tokio::time::timeout(policy.timeout, asking.seat()) => seat.map_err(|_| crowded()),
        Ok(_) = is_cancelled.wait_for(|cancelled| *cancelled) => Err(cancelled()),
    }
}

fn crowded() -> RequestError {
    RequestError::new(
        ErrorCode::Busy,
        "other packages are being installed, and it takes too long.",
        "Ask again later.",
    )
}

/// The installer, to its end, and what it said.
async fn run(house: &House, wish: &Wish<'_>, policy: &PackagePolicy) -> Result<Ended, RequestError> {
    let sources = &house.settings.packages.sources;
    let surroundings = sandbox::surroundings(house, wish.language.runs_as())?;
    let limits = limits(policy);
    let call = installers::call(wish.language, &surroundings.interpreter, wish.set, sources)?;
    let plan = sandbox::plan_of_installer(house, &surroundings, &sources.wheel_directories, limits.clone())?;
    let mut environment = sandbox::environment(&plan.layout, &surroundings);
    environment.retain(|(name, _)| !call.environment.iter().any(|(given, _)| given == name));
    environment.extend(call.environment);
    let mut blobs = Blobs::default();
    let mut files = Vec::new();
    for (path, bytes) in &call.files {
        let path = WorkspacePath::try_from((*path).to_owned()).map_err(store::fault)?;
        files.push((path, blobs.add(bytes.as_slice())));
    }
    let reaches = hosts::rules(wish.language, sources, &policy.hosts)?;
    egress::check(&reaches, None)?;
    let claim = house.native.claim(ClaimSpec {
        code: Vec::new(),
        files,
        run: Run::Exec {
            argv: call.argv,
            environment,
            report: false,
        },
        layer: None,
        way_out: egress::way_out(&reaches, None),
        limits,
        grace_ms: 0,
    });
    let isolation = plan.isolation(&claim, &house.native.host);
    let place = house.native.place(Arc::new(plan), None)?;
    let mut is_cancelled = wish.cancelled.clone();
    let mut started = place.claim(&claim, blobs.bytes(), &mut is_cancelled).await?;
    let sockets = started.take_sockets();
    let lease = sockets.map(|sockets| egress::open_for_installer(house, wish.namespace, &reaches, sockets));
    let lease = lease.transpose()?;
    let (heard, forwarding) = forward(wish.live.clone());
    let wires = Wires {
        stdin: Stdin::FromRequest,
        stdin_bytes: Vec::new(),
        live: heard,
        redactor: sources.redactor(house.settings.record.personal),
        teller: None,
    };
    let running = Running::attach(started, wires, OUTPUT_BYTES_MAX)?;
    let raw = running.wait(is_cancelled, isolation).await?;
    let refused = egress::refused(lease, &raw, &reaches).await;
    if let Some(forwarding) = forwarding {
        drop(forwarding.await);
    }
    let said = [raw.stdout.bytes.as_slice(), &raw.stderr.bytes].concat();
    Ok(Ended {
        said: String::from_utf8_lossy(&said).into_owned(),
        raw,
        refused,
    })
}

/// How an installer came to its end.
struct Ended {
    raw: RawOutcome,
    said: String,
    /// Whom it wanted to reach and did not.
    refused: Vec<Denial>,
}

/// What the installer prints is a notice to whoever watches.
fn forward(
    live: Option<mpsc::Sender<OutputChunk>>,
) -> (
    Option<mpsc::Sender<OutputChunk>>,
    Option<tokio::task::JoinHandle<()>>,
) {
    let Some(live) = live else { return (None, None) };
    let (heard, mut chunks) = mpsc::channel::<OutputChunk>(16);
    let forwarding = tokio::spawn(async move {
        while let Some(chunk) = chunks.recv().await {
            let notice = OutputChunk {
                stream: OutputStream::Notice,
                bytes: chunk.bytes,
            };
            if live.send(notice).await.is_err() {
                return;
            }
        }
    });
    (Some(heard), Some(forwarding))
}

fn limits(policy: &PackagePolicy) -> Limits {
    // The archives, what is unpacked of them, and what becomes of it lie there at one time.
    let disk_bytes = 3 * policy.bytes_max;
    Limits {
        memory_bytes: disk_bytes + INSTALLER_BYTES,
        cpu_millicores: 2000,
        timeout_ms: u64::try_from(policy.timeout.as_millis()).unwrap_or(u64::MAX),
        processes: 128,
        output_bytes: OUTPUT_BYTES_MAX,
        disk_bytes,
    }
}

fn judge(wish: &Wish<'_>, policy: &PackagePolicy, ending: &Ending, said: &str) -> Result<(), RequestError> {
    let unavailable =
        |message: String, hint: &str| Err(RequestError::new(ErrorCode::PackageUnavailable, message, hint));
    match (ending.cause, ending.status) {
        (Cause::Program, Some(0)) => Ok(()),
        (Cause::Cancelled, _) => Err(cancelled()),
        (Cause::Timeout, _) => unavailable(
            format!("installing took more than {} seconds.", policy.timeout.as_secs()),
            "Ask for less, or have the operator raise `packages.timeout_seconds`; what was slow may be the index.",
        ),
        (Cause::OutOfMemory | Cause::Disk, _) => unavailable(
            format!("the packages need more than {} MiB.", policy.bytes_max / MEBIBYTE),
            "Ask for less, or have the operator raise `packages.max_mb`.",
        ),
        _ if said.contains("No space left on device") => unavailable(
            format!("the packages need more than {} MiB.", policy.bytes_max / MEBIBYTE),
            "Ask for less, or have the operator raise `packages.max_mb`.",
        ),
        _ => Err(installers::refusal(wish.language, wish.set, said)),
    }
}

/// What the way out has refused says more than the installer's last words.
fn with_refusals(mut error: RequestError, refused: &[Denial]) -> RequestError {
    if let Some(denial) = refused.first() {
        let (what, last_words) = error
            .message
            .split_once(LAST_WORDS)
            .unwrap_or((&error.message, ""));
        error.message = format!(
            "{what} Its way out refused: {} ({}).{LAST_WORDS}{last_words}",
            denial.what, denial.rule
        );
        error.hint = "An installer reaches the hosts of `packages.hosts`: by default those of the index in pip's or npm's configuration.".to_owned();
    }
    error
}

/// Removes layers that are too old or too many, at once and once a day: on a quiet server no other comes.
pub(crate) fn keep_swept(house: &Arc<House>) {
    let house = Arc::downgrade(house);
    tokio::spawn(async move {
        let mut due = tokio::time::interval(SWEEP_EVERY);
        loop {
            due.tick().await;
            let Some(house) = house.upgrade() else { return };
            sweep(&house);
        }
    });
}

/// The same whenever there is another.
fn sweep(house: &Arc<House>) {
    let house = house.clone();
    tokio::task::spawn_blocking(
        move || match house.packages.layers.sweep(house.settings.packages.kept) {
            Ok(swept) => tracing::info!(?swept, "layers of packages"),
            Err(error) => tracing::error!(%error, "layers that are too old or too many could not be removed"),
        },
    );
}
