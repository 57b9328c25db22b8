//! One container engine: its facts and images, and the containers in it that are ours.

use crate::{
    error::EngineError,
    run_directory::{self, User},
};
use bollard::{
    API_DEFAULT_VERSION, Docker,
    models::SystemInfoCgroupVersionEnum as CgroupVersion,
    query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder},
};
use ringfence_jail::seccomp::container_profile;
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{net::UnixStream, sync::watch, time::timeout};

/// Timeout of a request to the engine, after which it counts as unreachable.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum age of the facts about the engine.
const FACTS_AGE: Duration = Duration::from_secs(10);
/// Maximum age of the fact that it does not answer.
const FAILURE_AGE: Duration = Duration::from_secs(1);
/// Pause between sweeps for containers that are left, and its maximum while the engine does not answer.
const SWEEP_PAUSE: Duration = Duration::from_secs(5);
const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Timeout of the last sweeps, at the end of a server, and the pause between them.
const LAST_SWEEPS_TIMEOUT: Duration = Duration::from_secs(4);
const LAST_SWEEPS_PAUSE: Duration = Duration::from_millis(100);
/// Consecutive sweeps that must find nothing: an engine that hung carries out earlier requests when it resumes.
const EMPTY_SWEEPS: u32 = 3;
/// The agent, linked with everything that it needs.
const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));

/// Label with the state directory of the server that created a container.
pub(crate) const STATE_LABEL: &str = "dev.ringfence.state";
/// Label with the container's directory on the host, which its server has locked.
pub(crate) const DIRECTORY_LABEL: &str = "dev.ringfence.directory";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    pub name: String,
    /// Containers are created by it, because the name can come to mean another image.
    pub id: String,
    /// The directories of its `PATH`.
    pub path: Vec<String>,
    /// Paths where the engine would mount a disk, writable and without a limit.
    pub volumes: Vec<String>,
}

/// Runtime of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runner {
    /// The engine's own runtime: `runc` or `crun`.
    Kernel,
    Gvisor,
}

#[derive(Clone, Debug)]
pub struct ContainerSettings {
    pub socket: PathBuf,
    /// The engine's name for gVisor.
    pub gvisor: String,
    /// True if a missing image is pulled from its registry.
    pub pull: bool,
    pub require_digest: bool,
    /// Parent of the directories of containers.
    pub state_dir: PathBuf,
    pub user: User,
}

/// An engine's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    pub version: String,
    /// Runtimes by name, with their arguments.
    pub runtimes: HashMap<String, Vec<String>>,
    pub default_runtime: String,
    /// True if its containers are in a user namespace: it remaps users, or is rootless.
    pub remaps_users: bool,
    pub is_rootless: bool,
    pub(crate) is_podman: bool,
    /// Rootless Podman accepts limits and does not set them with cgroups of version 1.
    pub(crate) ignores_limits: bool,
    pub has_seccomp: bool,
    pub limits_memory: bool,
    pub limits_processes: bool,
    pub limits_processors: bool,
}

impl EngineFacts {
    /// True if cgroups limit a container of this runner: gVisor may be configured to ignore them.
    pub fn has_cgroups(&self, runner: Runner, settings: &ContainerSettings) -> bool {
        let name = match runner {
            Runner::Kernel => &self.default_runtime,
            Runner::Gvisor => &settings.gvisor,
        };
        let arguments = self.runtimes.get(name);
        let left_alone = |all: &Vec<String>| all.iter().any(|one| one.starts_with("--ignore-cgroups"));
        !self.ignores_limits && !arguments.is_some_and(left_alone)
    }

    /// True if a cgroup counts the memory of such a container; otherwise the agent samples it.
    pub fn counts_memory(&self, runner: Runner, settings: &ContainerSettings) -> bool {
        self.limits_memory && self.has_cgroups(runner, settings)
    }
}

type Described = Result<Arc<EngineFacts>, EngineError>;

pub struct ContainerEngine {
    pub(crate) docker: Docker,
    pub(crate) settings: ContainerSettings,
    pub(crate) agent: PathBuf,
    /// The seccomp profile as a file, which Podman reads.
    pub(crate) seccomp: PathBuf,
    facts: tokio::sync::Mutex<Option<(Instant, Described)>>,
    pub(crate) images: Mutex<HashMap<String, (Instant, Arc<ImageFacts>)>>,
    /// Number of containers that exist.
    containers: watch::Sender<usize>,
    /// True while a task sweeps for containers that are left.
    is_cleaning: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContainerEngine {
    /// Connects to nothing yet.
    pub fn new(settings: ContainerSettings) -> io::Result<Self> {
        let socket = settings.socket.display().to_string();
        let docker = Docker::connect_with_unix(&socket, REQUEST_TIMEOUT.as_secs(), API_DEFAULT_VERSION);
        Ok(Self {
            docker: docker.map_err(io::Error::other)?,
            agent: install_file(&settings.state_dir, "agent", AGENT)?,
            seccomp: install_file(&settings.state_dir, "seccomp", container_profile().as_bytes())?,
            settings,
            facts: tokio::sync::Mutex::default(),
            images: Mutex::default(),
            containers: watch::Sender::new(0),
            is_cleaning: AtomicBool::new(false),
        })
    }

    pub fn settings(&self) -> &ContainerSettings {
        &self.settings
    }

    pub(crate) fn socket(&self) -> String {
        self.settings.socket.display().to_string()
    }

    /// Makes a request to the engine, with a timeout.
    pub(crate) async fn request<T>(
        &self,
        step: &'static str,
        question: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        match timeout(REQUEST_TIMEOUT, question).await {
            Ok(answer) => answer.map_err(|error| EngineError::of(step, &self.socket(), &error)),
            Err(_) => Err(EngineError::Unreachable {
                socket: self.socket(),
                why: format!("it took more than {} s to {step}", REQUEST_TIMEOUT.as_secs()),
            }),
        }
    }

    /// Returns its description of itself, at most `FACTS_AGE` old. Concurrent callers get the same answer or error:
    /// an engine that hangs costs each of them [`REQUEST_TIMEOUT`], and not the time of the callers before it.
    pub async fn facts(&self) -> Described {
        let requested_at = Instant::now();
        let mut known = self.facts.lock().await;
        if let Some((when, facts)) = known.as_ref() {
            let age = if facts.is_ok() { FACTS_AGE } else { FAILURE_AGE };
            if *when >= requested_at || when.elapsed() < age {
                return facts.clone();
            }
        }
        let facts = self.describe().await.map(Arc::new);
        *known = Some((Instant::now(), facts.clone()));
        facts
    }

    async fn describe(&self) -> Result<EngineFacts, EngineError> {
        let described = async {
            // An older engine has fewer versions of the API.
            let docker = self.docker.clone().negotiate_version().await?;
            let peer = UnixStream::connect(&self.settings.socket).await?.peer_cred()?;
            Ok((docker.version().await?, docker.info().await?, peer.uid()))
        };
        let (version, info, uid) = self.request("describe itself", described).await?;
        let components = version.components.unwrap_or_default();
        let is_podman = components.iter().any(|part| part.name.starts_with("Podman"));
        let options = info.security_options.unwrap_or_default();
        let has = |name: &str| options.iter().any(|option| option.contains(name));
        let runtimes = info.runtimes.unwrap_or_default().into_iter();
        // Podman 4.3 does not report it; the kernel reports the uid that listens at the socket.
        let is_rootless = has("name=rootless") || is_podman && uid != 0;
        Ok(EngineFacts {
            version: info.server_version.unwrap_or_default(),
            runtimes: runtimes
                .map(|(name, runtime)| (name, runtime.runtime_args.unwrap_or_default()))
                .collect(),
            default_runtime: info.default_runtime.unwrap_or_default(),
            remaps_users: has("name=userns") || is_rootless,
            is_rootless,
            is_podman,
            ignores_limits: is_rootless && info.cgroup_version == Some(CgroupVersion::_1),
            has_seccomp: has("name=seccomp"),
            limits_memory: info.memory_limit.unwrap_or(false),
            limits_processes: info.pids_limit.unwrap_or(false),
            limits_processors: info.cpu_cfs_quota.unwrap_or(false),
        })
    }

    /// Returns the facts, if the engine can run containers with this runner.
    pub async fn ready(&self, runner: Runner) -> Result<Arc<EngineFacts>, EngineError> {
        let facts = self.facts().await?;
        let name = &self.settings.gvisor;
        match runner {
            Runner::Gvisor if !facts.runtimes.contains_key(name) => Err(EngineError::NoRuntime {
                runtime: name.clone(),
            }),
            Runner::Gvisor if facts.is_podman => Err(EngineError::OtherRuntime {
                runtime: name.clone(),
                used: facts.default_runtime.clone(),
            }),
            _ => Ok(facts),
        }
    }

    pub(crate) fn container_began(&self) {
        self.containers.send_modify(|count| *count += 1);
    }

    pub(crate) fn container_ended(&self) {
        self.containers.send_modify(|count| *count -= 1);
    }

    /// Waits until every container of this server is gone. If sweeps are still running, sweeps until nothing is found:
    /// an engine that was killed may restart, create a container that it had begun, or fail at the first removal.
    pub async fn wait_until_empty(&self) {
        drop(self.containers.subscribe().wait_for(|count| *count == 0).await);
        if !self.is_cleaning.load(Ordering::Acquire) {
            return;
        }
        let last_sweeps = async {
            loop {
                match self.sweep().await? {
                    Swept { removed: 0, left: 0 } => return Ok::<_, EngineError>(()),
                    _ => tokio::time::sleep(LAST_SWEEPS_PAUSE).await,
                }
            }
        };
        match timeout(LAST_SWEEPS_TIMEOUT, last_sweeps).await {
            Ok(Ok(())) => {}
            failed => tracing::warn!(?failed, "containers may be left; the next server removes them"),
        }
    }

    /// Removes a container with everything in it. A container that is gone already is not an error.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) {
        if let Err(error) = self.try_remove(name).await {
            tracing::warn!(%error, name, "a container is still there");
            self.clean();
        }
    }

    /// Removes containers with our label whose server is gone, in the background, until none are left.
    pub fn clean(self: &Arc<Self>) {
        if !self.is_cleaning.swap(true, Ordering::AcqRel) {
            tokio::spawn(self.clone().clean_all());
        }
    }

    async fn clean_all(self: Arc<Self>) {
        let (mut empty_sweeps, mut pause) = (0, SWEEP_PAUSE);
        while empty_sweeps < EMPTY_SWEEPS {
            match self.sweep().await {
                Ok(Swept { removed: 0, left: 0 }) => (empty_sweeps, pause) = (empty_sweeps + 1, SWEEP_PAUSE),
                Ok(Swept { removed, left: 0 }) => {
                    tracing::info!(containers = removed, "removed what was left");
                    (empty_sweeps, pause) = (0, SWEEP_PAUSE);
                }
                failed => {
                    tracing::debug!(?failed, "containers may be left");
                    (empty_sweeps, pause) = (0, (pause * 2).min(SWEEP_PAUSE_MAX));
                }
            }
            tokio::time::sleep(pause).await;
        }
        self.is_cleaning.store(false, Ordering::Release);
    }

    async fn try_remove(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let removed = timeout(REQUEST_TIMEOUT, self.docker.remove_container(name, Some(options))).await;
        match removed {
            Ok(Ok(())) => Ok(()),
            // It is gone, or its removal is in progress.
            Ok(Err(bollard::errors::Error::DockerResponseServerError {
                status_code: 404 | 409,
                ..
            })) => Ok(()),
            Ok(Err(error)) => Err(EngineError::of("remove a container", &self.socket(), &error)),
            Err(_) => Err(EngineError::refused("remove a container", "it does not answer")),
        }
    }

    /// Removes the containers of servers with this state directory that no longer hold them, and no others.
    async fn sweep(&self) -> Result<Swept, EngineError> {
        let ours = format!("{}={}", STATE_LABEL, self.settings.state_dir.display());
        let filters = HashMap::from([("label", vec![ours])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters)
            .build();
        let found = self
            .request("list containers", self.docker.list_containers(Some(options)))
            .await?;
        let mut swept = Swept::default();
        for container in found {
            let labels = container.labels.unwrap_or_default();
            let directory = labels.get(DIRECTORY_LABEL).map(PathBuf::from);
            // A running server holds the lock on the directory of each of its containers.
            let is_held = directory.is_some_and(|directory| run_directory::is_held(&directory));
            if let (Some(id), false) = (container.id, is_held) {
                match self.try_remove(&id).await {
                    Ok(()) => swept.removed += 1,
                    Err(error) => {
                        tracing::warn!(%error, id, "a container is still there");
                        swept.left += 1;
                    }
                }
            }
        }
        Ok(swept)
    }
}

/// Numbers of containers that a sweep has removed, and that are left because it could not.
#[derive(Debug, Default)]
struct Swept {
    removed: usize,
    left: usize,
}

/// Writes a file for the engine, with a hash of the content in its name: another version does not replace one in use.
fn install_file(state_dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    fs::create_dir_all(state_dir)?;
    let path = state_dir.join(format!("{name}-{:016x}", hasher.finish()));
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    let new = state_dir.join(format!("{name}-new-{}", uuid::Uuid::now_v7()));
    fs::write(&new, bytes)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o555))?;
    fs::rename(&new, &path)?;
    Ok(path)
}
