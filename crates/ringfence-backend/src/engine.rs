//! One container engine: what it is, what it has, and what of it is ours.

use crate::{
    error::EngineError,
    run_directory::{self, User},
};
use bollard::{
    API_DEFAULT_VERSION, Docker,
    models::SystemInfoCgroupVersionEnum as CgroupVersion,
    query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder},
};
use ringfence_jail::seccomp::profile_of_containers;
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

/// How long the engine may take for one answer; beyond it, it is as good as gone.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// How long what is known of the engine is taken as true.
const FACTS_AGE: Duration = Duration::from_secs(10);
/// How long it is believed that it does not answer.
const FAILURE_AGE: Duration = Duration::from_secs(1);
/// Between two looks at what is left, and between those at an engine that does not answer.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long the last look, at a server's end, may take.
const LAST_LOOK: Duration = Duration::from_secs(2);
/// Looks in a row that have to find nothing: what was asked of an engine that hung is done when it wakes.
const LOOKS: u32 = 3;
/// The agent, linked with everything that it needs.
const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));

/// The state directory whose server made a container.
pub(crate) const STATE_LABEL: &str = "dev.ringfence.state";
/// Its directory on the host, which its server has locked.
pub(crate) const DIRECTORY_LABEL: &str = "dev.ringfence.directory";

/// An image that the engine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFacts {
    pub name: String,
    /// By which containers are made: what is behind the name may change.
    pub id: String,
    /// The directories of its `PATH`.
    pub path: Vec<String>,
}

/// What runs a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runner {
    /// The engine's own runtime: `runc` or `crun`.
    Kernel,
    /// gVisor.
    Gvisor,
}

#[derive(Clone, Debug)]
pub struct ContainerSettings {
    /// Its socket.
    pub socket: PathBuf,
    /// The engine's name for gVisor.
    pub gvisor: String,
    /// Whether an image that is missing is fetched from its registry.
    pub pull: bool,
    pub require_digest: bool,
    /// Where the directories of containers are made.
    pub state_dir: PathBuf,
    pub user: User,
}

/// What an engine says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    pub version: String,
    /// Runtimes by name, with their arguments.
    pub runtimes: HashMap<String, Vec<String>>,
    pub default_runtime: String,
    /// Whether its containers are in a user namespace: it remaps them, or is an ordinary user's.
    pub remaps_users: bool,
    pub is_rootless: bool,
    pub(crate) is_podman: bool,
    /// Podman of an ordinary user takes limits and sets none where cgroups are of version 1.
    pub(crate) ignores_limits: bool,
    pub has_seccomp: bool,
    pub limits_memory: bool,
    pub limits_processes: bool,
    pub limits_processors: bool,
}

impl EngineFacts {
    /// Whether cgroups hold a container of this runner: gVisor may be told to leave them alone.
    pub fn has_cgroups(&self, runner: Runner, settings: &ContainerSettings) -> bool {
        let name = match runner {
            Runner::Kernel => &self.default_runtime,
            Runner::Gvisor => &settings.gvisor,
        };
        let arguments = self.runtimes.get(name);
        let left_alone = |all: &Vec<String>| all.iter().any(|one| one.starts_with("--ignore-cgroups"));
        !self.ignores_limits && !arguments.is_some_and(left_alone)
    }

    /// Whether a cgroup counts the memory of such a container; else the agent samples it.
    pub fn counts_memory(&self, runner: Runner, settings: &ContainerSettings) -> bool {
        self.limits_memory && self.has_cgroups(runner, settings)
    }
}

type Described = Result<Arc<EngineFacts>, EngineError>;

pub struct ContainerEngine {
    pub(crate) docker: Docker,
    pub(crate) settings: ContainerSettings,
    pub(crate) agent: PathBuf,
    /// The filter as a file, which Podman reads.
    pub(crate) seccomp: PathBuf,
    facts: tokio::sync::Mutex<Option<(Instant, Described)>>,
    pub(crate) images: Mutex<HashMap<String, (Instant, Arc<ImageFacts>)>>,
    /// Containers that are still there.
    living: watch::Sender<usize>,
    /// Whether a task looks for what is left.
    is_cleaning: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContainerEngine {
    /// Connects to nothing yet.
    pub fn new(settings: ContainerSettings) -> io::Result<Self> {
        let socket = settings.socket.display().to_string();
        let docker = Docker::connect_with_unix(&socket, ANSWER.as_secs(), API_DEFAULT_VERSION);
        Ok(Self {
            docker: docker.map_err(io::Error::other)?,
            agent: put(&settings.state_dir, "agent", AGENT)?,
            seccomp: put(&settings.state_dir, "seccomp", profile_of_containers().as_bytes())?,
            settings,
            facts: tokio::sync::Mutex::default(),
            images: Mutex::default(),
            living: watch::Sender::new(0),
            is_cleaning: AtomicBool::new(false),
        })
    }

    pub fn settings(&self) -> &ContainerSettings {
        &self.settings
    }

    pub(crate) fn socket(&self) -> String {
        self.settings.socket.display().to_string()
    }

    /// An answer of the engine, in time.
    pub(crate) async fn ask<T>(
        &self,
        step: &'static str,
        question: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        match timeout(ANSWER, question).await {
            Ok(answer) => answer.map_err(|error| EngineError::of(step, &self.socket(), &error)),
            Err(_) => Err(EngineError::Unreachable {
                socket: self.socket(),
                why: format!("it took more than {} s to {step}", ANSWER.as_secs()),
            }),
        }
    }

    /// What it says of itself, now or a moment ago. Those who ask meanwhile get the same answer or error: an engine
    /// that hangs costs each of them [`ANSWER`], and not the time of those before it.
    pub async fn facts(&self) -> Described {
        let asked = Instant::now();
        let mut known = self.facts.lock().await;
        if let Some((when, facts)) = known.as_ref() {
            let age = if facts.is_ok() { FACTS_AGE } else { FAILURE_AGE };
            if *when >= asked || when.elapsed() < age {
                return facts.clone();
            }
        }
        let facts = self.describe().await.map(Arc::new);
        *known = Some((Instant::now(), facts.clone()));
        facts
    }

    async fn describe(&self) -> Result<EngineFacts, EngineError> {
        let described = async {
            // An older engine knows fewer versions of its interface.
            let docker = self.docker.clone().negotiate_version().await?;
            let peer = UnixStream::connect(&self.settings.socket).await?.peer_cred()?;
            Ok((docker.version().await?, docker.info().await?, peer.uid()))
        };
        let (version, info, uid) = self.ask("describe itself", described).await?;
        let components = version.components.unwrap_or_default();
        let is_podman = components.iter().any(|part| part.name.starts_with("Podman"));
        let options = info.security_options.unwrap_or_default();
        let has = |name: &str| options.iter().any(|option| option.contains(name));
        let runtimes = info.runtimes.unwrap_or_default().into_iter();
        // Podman 4.3 does not say so; the kernel says who listens at its socket.
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

    /// The facts, where it can also run containers so.
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

    pub(crate) fn began(&self) {
        self.living.send_modify(|living| *living += 1);
    }

    pub(crate) fn ended(&self) {
        self.living.send_modify(|living| *living -= 1);
    }

    /// Until every container of this server is gone. If it is still looking for what is left, it looks once more: an
    /// engine that was killed may have come back and made what it had begun.
    pub async fn emptied(&self) {
        drop(self.living.subscribe().wait_for(|living| *living == 0).await);
        if self.is_cleaning.load(Ordering::Acquire) {
            match timeout(LAST_LOOK, self.sweep()).await {
                Ok(Ok(Swept { held_up: 0, .. })) => {}
                failed => tracing::warn!(?failed, "containers may be left"),
            }
        }
    }

    /// Removes a container with everything in it. That it is gone already is as good.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) {
        if let Err(error) = self.try_remove(name).await {
            tracing::warn!(%error, name, "a container is still there");
            self.clean();
        }
    }

    /// Removes what has our label and no holder that lives, in the background, until nothing is left.
    pub fn clean(self: &Arc<Self>) {
        if !self.is_cleaning.swap(true, Ordering::AcqRel) {
            tokio::spawn(self.clone().clean_all());
        }
    }

    async fn clean_all(self: Arc<Self>) {
        let (mut looks, mut pause) = (0, AGAIN);
        while looks < LOOKS {
            match self.sweep().await {
                Ok(Swept { gone: 0, held_up: 0 }) => (looks, pause) = (looks + 1, AGAIN),
                Ok(Swept { gone, held_up: 0 }) => {
                    tracing::info!(containers = gone, "removed what was left");
                    (looks, pause) = (0, AGAIN);
                }
                failed => {
                    tracing::debug!(?failed, "containers may be left");
                    (looks, pause) = (0, (pause * 2).min(AGAIN_MAX));
                }
            }
            tokio::time::sleep(pause).await;
        }
        self.is_cleaning.store(false, Ordering::Release);
    }

    async fn try_remove(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let removed = timeout(ANSWER, self.docker.remove_container(name, Some(options))).await;
        match removed {
            Ok(Ok(())) => Ok(()),
            // It is gone, or goes just now.
            Ok(Err(bollard::errors::Error::DockerResponseServerError {
                status_code: 404 | 409,
                ..
            })) => Ok(()),
            Ok(Err(error)) => Err(EngineError::of("remove a container", &self.socket(), &error)),
            Err(_) => Err(EngineError::refused("remove a container", "it does not answer")),
        }
    }

    /// Removes the containers of servers with this state directory that let go of them, and no others.
    async fn sweep(&self) -> Result<Swept, EngineError> {
        let ours = format!("{}={}", STATE_LABEL, self.settings.state_dir.display());
        let filters = HashMap::from([("label", vec![ours])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters)
            .build();
        let found = self
            .ask("list containers", self.docker.list_containers(Some(options)))
            .await?;
        let mut swept = Swept::default();
        for container in found {
            let labels = container.labels.unwrap_or_default();
            let directory = labels.get(DIRECTORY_LABEL).map(PathBuf::from);
            // A server that lives holds the lock on the directory of each of its containers.
            let is_held = directory.is_some_and(|directory| run_directory::is_held(&directory));
            if let (Some(id), false) = (container.id, is_held) {
                match self.try_remove(&id).await {
                    Ok(()) => swept.gone += 1,
                    Err(error) => {
                        tracing::warn!(%error, id, "a container is still there");
                        swept.held_up += 1;
                    }
                }
            }
        }
        Ok(swept)
    }
}

/// Containers that a look has found, and could remove or not.
#[derive(Debug, Default)]
struct Swept {
    gone: usize,
    held_up: usize,
}

/// Writes a file where the engine can read it. Its name has a digest of it: another version does not replace one that
/// is being used.
fn put(state_dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
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
