//! The engine's interface for front ends.

mod approvals;
mod changes;
mod directories;
mod edit;
mod execute;
mod executions;
mod files;
mod host;
mod host_files;
mod namespace;
mod observe;
mod overlay;
mod packages;
mod runtimes;
mod sessions;
mod snapshots;
mod validate;
mod web;

pub use approvals::{HostRequest, egress_rule};
pub use directories::{DirectoryGot, DirectoryPut};
pub use edit::{Edit, Edited};
pub use execute::{Canceller, EngineTask, Execution};
pub use files::{FileFacts, WorkspaceAccess};
pub use host::{HostAccessList, HostCommand, HostRun, HostVerdict, ending_words};
pub use host_files::{HostFile, HostListing, HostWritten};
pub use namespace::NamespaceAccess;
pub use observe::{Inspection, Reload, RunningNow, Stats, Warm};
pub use runtimes::{Runtime, SandboxInfo};
pub use snapshots::{EXPORT_BYTES_MAX, SnapshotFacts, SnapshotMade};
pub use validate::{CodeRequest, DATA_BYTES_MAX, Fixing, SchemaChoice, check_rules};

use crate::{
    admission::Queue,
    approval::Approvals,
    backend::{EarlyStart, Native},
    check::Checkers,
    containers::Containers,
    disk::Disk,
    egress::Egress,
    error::Result,
    events::{Bus, Event, Hears, Subscriber},
    executions::Executions,
    host::HostAccess,
    log_redactor::LogRedactor,
    metrics::Metrics,
    packages::{PackageServices, Packages},
    picture::{self, Picture},
    policy_store::PolicyStore,
    pool::Pools,
    sandbox::Sandboxes,
    secrets::Secrets,
    services::Services,
    session::Sessions,
    settings::EngineSettings,
    store,
    telemetry::Telemetry,
    warm,
    web::Web,
    worker,
    workspaces::Workspaces,
};
use ringfence_types::ExecuteRequest;
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::{Notify, OnceCell, Semaphore};

/// A running engine; clones share it.
#[derive(Clone)]
pub struct Engine {
    services: Arc<Services>,
    /// One of each language, in their order in [`runtimes::PROGRAMS`].
    versions: Arc<[OnceCell<Runtime>; runtimes::PROGRAMS.len()]>,
}

/// Maximum wait of [`Engine::shutdown`] for the last run to end, and then for the helper.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);
/// Maximum bytes of the record's log that a command leaves to the next one, so as not to wait for the disk.
const LOG_BYTES_LEFT: u64 = 1 << 20;
/// Maximum wait of [`Engine::shutdown`] for the removal of the last container.
const CONTAINERS_PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// Makes one sandbox with every wall of the tier. Fails with `BelowFloor` if the host lacks a layer.
    pub async fn prove(&self) -> Result<()> {
        // The end of the worker does not matter: it has started, behind all walls.
        let proved = worker::run(&self.services.sandboxes, crate::ECHO, None, Vec::new());
        proved.await.map(drop)
    }

    /// Opens the record, starts the helper, removes an old server's remains. The first run, or `prove`, tests the tier.
    pub fn open(settings: EngineSettings) -> Result<Self> {
        Self::open_with(EarlyStart::begin(settings.helper.clone())?, settings, None)
    }

    /// Like [`Engine::open`], with a helper started earlier, and the first request, whose sandbox is made meanwhile.
    pub fn open_with(
        helper: EarlyStart,
        settings: EngineSettings,
        first: Option<&ExecuteRequest>,
    ) -> Result<Self> {
        let native = Native::with(helper, settings.state_dir.clone());
        let policy = Arc::new(PolicyStore::new(settings.policy.clone(), settings.secret_files()));
        let sandboxes = Arc::new(sandboxes(&settings, native, &policy));
        if let Some(request) = first {
            warm::make_first(&sandboxes, request);
        }
        let native = &sandboxes.native;
        let id = uuid::Uuid::now_v7().to_string();
        let opened = store::open(&settings, &id)?;
        let swept = ringfence_jail::sweep(&native.host.cgroups, &settings.state_dir);
        if swept.cgroups + swept.directories > 0 {
            tracing::info!(?swept, "removed what an earlier server left");
        }
        if swept.held > 0 {
            native.reap(None);
        }
        let services = services(settings, sandboxes, id, opened);
        services.begin_record()?;
        Ok(Self {
            services: Arc::new(services),
            versions: Arc::default(),
        })
    }

    /// Starts to keep sandboxes ready (until then runs start cold), to sweep packages and to count the disk.
    pub fn warm_up(&self) {
        warm::begin(&self.services.sandboxes);
        let checkers = self.services.checkers.clone();
        tokio::spawn(async move { checkers.warm_up().await });
        self.services.packages.keep_swept();
        self.services.disk.begin();
    }

    /// Waits until the pools are filled as far as possible. False: `patience` was too short.
    pub async fn warmed_up(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.services.sandboxes.pools.settled())
            .await
            .is_ok()
    }

    /// Disconnects from the helper without waiting: it ends by itself, with all that still runs, and cleans up.
    pub fn leave(&self) {
        self.close();
        self.services.sandboxes.native.leave();
    }

    /// Like [`Engine::leave`], for a process about to exit: its exit disconnects the helper, and no clean-up delays it.
    pub fn leave_at_exit(&self) {
        self.close();
        std::mem::forget(self.services.sandboxes.native.take()); // the exit closes the connection
    }

    fn close(&self) {
        self.cancel_all();
        self.services.approvals.close();
        self.services.sessions.close();
        self.services.checkers.close();
        self.services.sandboxes.pools.close();
        self.services.sandboxes.containers.drop_ready();
        // Also if a shutdown has begun that takes too long; it is recorded only once.
        self.services.record_stop(LOG_BYTES_LEFT);
        self.services.record.note_open();
    }

    fn cancel_all(&self) {
        for (_, entry) in self.services.executions.state().running() {
            entry.cancel.send_replace(true);
        }
    }

    /// Returns the public key that verifies the artifacts signed here.
    pub fn public_key(&self) -> [u8; 32] {
        self.services.artifacts.public_key()
    }

    pub fn log_redactor(&self) -> LogRedactor {
        LogRedactor::new(&self.services.secrets.vault)
    }

    pub fn subscribe(&self, hears: Hears) -> Subscriber {
        self.services.telemetry.bus.subscribe(hears)
    }

    /// Returns the last hundred events, oldest first, without output.
    pub fn recent_events(&self) -> Vec<Arc<Event>> {
        self.services.telemetry.bus.recent()
    }

    pub async fn idle(&self) {
        loop {
            let execution_ended = self.services.execution_ended.notified();
            if self.services.executions.state().running().next().is_none() {
                return;
            }
            execution_ended.await;
        }
    }

    /// Redraws a program's picture (PNG, JPEG, GIF, WebP) in a sandbox, small enough for a model and with nothing but
    /// its pixels. `None`: it cannot be shown.
    pub async fn picture(&self, bytes: Vec<u8>) -> Option<Picture> {
        picture::reencode(&self.services.sandboxes, bytes).await
    }

    /// Kills everything that runs, and waits until it is gone, with the helper.
    pub async fn shutdown(&self) {
        self.cancel_all();
        self.services.approvals.close();
        let mut sessions = self.services.sessions.close();
        let ended = async {
            self.idle().await;
            for session in &mut sessions {
                drop(session.wait_for(Option::is_some).await);
            }
        };
        let have_ended = tokio::time::timeout(SHUTDOWN_PATIENCE, ended).await.is_ok();
        if !have_ended {
            tracing::warn!("runs were still ending at shutdown");
            self.services.record.audit.note_open_operation();
        }
        self.services.sandboxes.pools.close();
        self.services.checkers.close();
        let containers = self.services.sandboxes.containers.close();
        if tokio::time::timeout(CONTAINERS_PATIENCE, containers)
            .await
            .is_err()
        {
            tracing::warn!("containers were still being removed at shutdown");
        }
        // On another thread: tasks that still hold a sandbox have to drop it first.
        let sandboxes = self.services.sandboxes.clone();
        let stopped = tokio::task::spawn_blocking(move || sandboxes.native.stop());
        match tokio::time::timeout(SHUTDOWN_PATIENCE, stopped).await {
            Ok(Ok(false)) => return, // it was shut down before
            Ok(_) => {}
            Err(_) => tracing::warn!("sandboxes were still ending at shutdown"),
        }
        self.services.record_stop(0);
        if !self.services.record.note_open() && have_ended {
            self.services.record.audit.end();
        }
    }
}

fn telemetry(native: &Native) -> Telemetry {
    Telemetry {
        bus: Bus::new(),
        metrics: Arc::new(Metrics::new(&native.stuck)),
    }
}

fn services(
    settings: EngineSettings,
    sandboxes: Arc<Sandboxes>,
    id: String,
    opened: store::Stores,
) -> Services {
    let record = opened.record;
    let policy = sandboxes.policy.clone();
    let telemetry = telemetry(&sandboxes.native);
    let bus = telemetry.bus.clone();
    let snapshots = Arc::new(opened.snapshots);
    let disk = Arc::new(Disk::new(snapshots.clone(), sandboxes.clone()));
    let workspaces = Workspaces::new(settings.deciding_files(), disk.clone());
    let secrets = Arc::new(Secrets::new(opened.vault, settings.record.personal, bus.clone()));
    let redactor = LogRedactor::new(&secrets.vault);
    let host = host_access(&settings, &sandboxes, &secrets);
    let approvals = Arc::new(Approvals::new(
        settings.approvals,
        bus.clone(),
        record.clone(),
        redactor,
    ));
    let egress = Egress::new(&sandboxes, settings.egress, approvals.clone(), telemetry.clone());
    let queue = Queue::new(settings.queue, bus.clone());
    let web = Web::new(
        settings.web,
        egress.clone(),
        sandboxes.clone(),
        secrets.clone(),
        queue.clone(),
    );
    let packages = Packages::new(PackageServices {
        layers: opened.layers,
        settings: settings.packages,
        personal: settings.record.personal,
        sandboxes: sandboxes.clone(),
        disk: disk.clone(),
        egress: egress.clone(),
        record: record.clone(),
        bus: bus.clone(),
    });
    let sessions = Sessions::new(
        settings.sessions,
        record.clone(),
        approvals.clone(),
        bus.clone(),
        snapshots.clone(),
    );
    Services {
        checkers: Arc::new(Checkers::new(sandboxes.clone())),
        sandboxes,
        queue,
        telemetry,
        record,
        secrets,
        web: Arc::new(web),
        artifacts: Arc::new(opened.artifacts),
        workspaces,
        snapshots,
        disk,
        packages: Arc::new(packages),
        egress,
        sessions: Arc::new(sessions),
        approvals,
        host,
        executions: Executions::new(settings.results),
        policy,
        id,
        is_stop_recorded: AtomicBool::new(false),
        execution_ended: Notify::new(),
    }
}

fn host_access(settings: &EngineSettings, sandboxes: &Sandboxes, secrets: &Secrets) -> HostAccess {
    let cgroups = sandboxes.native.host.cgroups.clone();
    HostAccess::new(settings, cgroups, LogRedactor::new(&secrets.vault))
}

fn sandboxes(settings: &EngineSettings, native: Native, policy: &Arc<PolicyStore>) -> Sandboxes {
    let containers = Containers::new(&settings.backends, &settings.warm, &settings.state_dir, &native);
    Sandboxes {
        native,
        containers: Arc::new(containers),
        pools: Pools::default(),
        first: Mutex::default(),
        tier: settings.tier,
        runtimes: settings.runtimes.clone(),
        forks_max: settings.sessions.max + settings.queue.concurrency + settings.warm.ready_max,
        node_does_not_fork: AtomicBool::new(false),
        warm: settings.warm.clone(),
        state_dir: settings.state_dir.clone(),
        layers: store::layers(settings),
        policy: policy.clone(),
        pictures: Semaphore::new(picture::AT_ONCE),
    }
}
