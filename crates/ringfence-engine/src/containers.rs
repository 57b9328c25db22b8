//! Sandboxes made by a container engine, and a few containers kept ready. The result is a sandbox like any other.

use crate::{
    backend::{ContainerSide, Native, Sandbox, fault},
    error::Result,
    language,
    pool::is_shadowed,
    runtimes::{Toolchain, environment},
    settings::{BackendSettings, Images, WarmSettings},
    sync::lock,
};
use prometheus_client::metrics::counter::Counter;
use ringfence_backend::{ContainerEngine, ContainerSettings, ContainerSpec, EngineFacts, Runner, User};
use ringfence_jail::{Layout, Plan, Program, host::UID_BASE, wire::Imported};
use ringfence_types::{Backend, ExecuteRequest, Isolation, Language, Limits, RequestError, Tier};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

/// The first uid of containers, above those of native sandboxes.
const UID_FIRST: u32 = UID_BASE + (4 << 20);
/// The overflow id, for a server that is root without a range of ids.
const UNMAPPED: u32 = 65_534;
/// Time after the last request for which containers are kept ready.
const KEPT_READY: Duration = Duration::from_secs(600);
/// Maximum containers of all kinds made ahead at once: on a busy machine requests wait for them.
const MAKING_MAX: usize = 2;
/// Pause after a container could not be made ahead.
const BACK_OFF: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct ContainerKind {
    pub(crate) plan: Arc<Plan>,
    pub(crate) toolchain: Arc<Toolchain>,
    spec: Arc<ContainerSpec>,
    facts: Arc<EngineFacts>,
}

/// The state of a container backend on this host.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerRuntime {
    /// `docker` or `gvisor`.
    pub backend: Backend,
    pub tier: Tier,
    pub allowed: bool,
    /// True: it can run containers now.
    pub available: bool,
    /// The engine's version.
    pub engine: Option<String>,
    /// The reason why it is not available or not allowed, with the smallest change that helps.
    pub reason: Option<String>,
    pub images: Images,
    pub images_missing: Vec<String>,
}

struct ContainerPool {
    language: Language,
    kind: ContainerKind,
    ready: Vec<(Sandbox, Imported)>,
    making: usize,
    requested_at: Instant,
    failed: Option<Instant>,
}

pub(crate) struct Containers {
    /// Made at first use.
    engine: OnceLock<Arc<ContainerEngine>>,
    /// None: no container backend is allowed.
    engine_settings: Option<ContainerSettings>,
    pub(crate) settings: BackendSettings,
    warm: WarmSettings,
    pools: Mutex<Vec<ContainerPool>>,
    stuck: Counter,
}

impl Containers {
    pub(crate) fn new(
        settings: &BackendSettings,
        warm: &WarmSettings,
        state_dir: &Path,
        native: &Native,
    ) -> Self {
        let (uid, gid) = native.host.user;
        let user = match (uid, native.host.own_uids) {
            (0, true) => User::RandomFrom(UID_FIRST),
            (0, false) => User::Fixed {
                uid: UNMAPPED,
                gid: UNMAPPED,
            },
            _ => User::Fixed { uid, gid },
        };
        let is_allowed = settings
            .policy
            .allowed
            .iter()
            .any(|backend| *backend != Backend::Native);
        let engine_settings = is_allowed.then(|| ContainerSettings {
            socket: settings.socket.clone(),
            gvisor: settings.gvisor.clone(),
            pull: settings.pull,
            require_digest: settings.require_digest,
            state_dir: state_dir.to_owned(),
            user,
        });
        Self {
            engine: OnceLock::new(),
            engine_settings,
            settings: settings.clone(),
            warm: warm.clone(),
            pools: Mutex::default(),
            stuck: native.stuck.clone(),
        }
    }

    fn engine(&self) -> Result<&Arc<ContainerEngine>> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        let made = match &self.engine_settings {
            Some(settings) => ContainerEngine::new(settings.clone()).map_err(|error| error.to_string()),
            None => Err("no container backend is allowed here".to_owned()),
        };
        let made = made.map_err(|why| {
            RequestError::runtime_unavailable(
                format!("containers cannot be used: {why}."),
                "Start the engine or correct `containers.socket`; the state directory must be writable, too.",
            )
        })?;
        let engine = self.engine.get_or_init(|| Arc::new(made));
        engine.clean();
        Ok(engine)
    }

    /// Returns the kind of container for a request, after the engine is found ready and has the image.
    pub(crate) async fn kind(
        self: &Arc<Self>,
        backend: Backend,
        language: Language,
        limits: &Limits,
    ) -> Result<ContainerKind> {
        let engine = self.engine()?;
        let runner = runner(backend);
        let facts = engine.ready(runner).await.map_err(|error| error.refusal())?;
        let image = engine.image(self.settings.images.of(language)).await;
        let image = image.map_err(|error| error.refusal())?;
        let (interpreter, ahead) = match language {
            Language::Python => ("python3", true),
            Language::Node | Language::Typescript => ("node", true),
            Language::Shell => ("bash", false),
        };
        let toolchain = Toolchain {
            interpreter: interpreter.into(),
            // A placeholder for an interpreter in each directory of the image's path.
            on_path: image
                .path
                .iter()
                .map(|directory| PathBuf::from(directory).join("any"))
                .collect(),
            ..Toolchain::default()
        };
        let program = match ahead {
            true => self.ahead(language, &toolchain),
            false => Program::Claimed,
        };
        Ok(ContainerKind {
            plan: Arc::new(Plan::made_elsewhere(
                runner.tier(),
                program.clone(),
                limits.clone(),
            )),
            toolchain: Arc::new(toolchain),
            spec: Arc::new(ContainerSpec {
                runner,
                image: image.id.clone(),
                volumes: image.volumes.clone(),
                program,
                limits: limits.clone(),
            }),
            facts,
        })
    }

    fn ahead(&self, language: Language, toolchain: &Toolchain) -> Program {
        let interpreter = toolchain.interpreter.display().to_string();
        let launch = match language {
            Language::Python => language::python_ahead(&interpreter),
            _ => language::node_ahead(&interpreter, &self.warm.preload_node),
        };
        let environment = environment(&Layout::own_root(), &toolchain.on_path);
        Program::Ahead {
            argv: launch.argv,
            environment: [environment, launch.env].concat(),
        }
    }

    /// Returns the same kind for one request: with its limits from the start, and without a waiting interpreter.
    pub(crate) fn claimed(kind: &ContainerKind, limits: &Limits) -> ContainerKind {
        let (plan, spec) = (&kind.plan, &kind.spec);
        ContainerKind {
            plan: Arc::new(Plan::made_elsewhere(plan.tier, Program::Claimed, limits.clone())),
            spec: Arc::new(ContainerSpec {
                program: Program::Claimed,
                limits: limits.clone(),
                ..(**spec).clone()
            }),
            ..kind.clone()
        }
    }

    /// Takes a ready container for this request, except one that has imported a module shadowed by a file of it.
    pub(crate) fn take(&self, request: &ExecuteRequest, kind: &ContainerKind) -> Option<Sandbox> {
        let mut pools = lock(&self.pools);
        let language = request.language.runs_as();
        let at = pools
            .iter()
            .position(|pool| pool.language == language && pool.kind.spec.runner == kind.spec.runner);
        let Some(at) = at else {
            pools.push(ContainerPool {
                language,
                kind: kind.clone(),
                ready: Vec::new(),
                making: 0,
                requested_at: Instant::now(),
                failed: None,
            });
            return None;
        };
        let pool = &mut pools[at];
        pool.requested_at = Instant::now();
        if pool.kind.spec.image != kind.spec.image || pool.kind.spec.program != kind.spec.program {
            (pool.kind, pool.ready, pool.making) = (kind.clone(), Vec::new(), 0);
        }
        let beside = HashSet::new();
        pool.ready.retain(|(sandbox, _)| sandbox.is_parked());
        let mut ready = pool.ready.iter();
        let fits = ready.position(|(_, known)| !is_shadowed(&known.loaded, &request.files, &beside))?;
        Some(pool.ready.swap_remove(fits).0)
    }

    /// Requests a container, without waiting for it.
    pub(crate) fn spawn(&self, kind: &ContainerKind) -> Result<Sandbox> {
        let engine = self.engine()?;
        let placed = engine.new_container(kind.spec.clone());
        let (ends, arrivals) = placed.map_err(|error| fault("start a container", &error))?;
        let side = ContainerSide {
            facts: kind.facts.clone(),
            runner: kind.spec.runner,
            arrivals: Some(arrivals),
        };
        Sandbox::new(kind.plan.clone(), ends, Some(side), self.stuck.clone())
    }

    pub(crate) fn isolation(&self, side: &ContainerSide, limits: &Limits) -> Isolation {
        match self.engine.get() {
            Some(engine) => engine.isolation(&side.facts, side.runner, limits),
            None => Isolation::new(side.runner.tier(), Default::default()),
        }
    }

    /// Makes missing containers in the background, after a run (which needs the processors more) or another making.
    pub(crate) fn fill(self: &Arc<Self>) {
        let mut pools = lock(&self.pools);
        let making: usize = pools.iter().map(|pool| pool.making).sum();
        let mut may_make = MAKING_MAX.saturating_sub(making);
        for pool in pools.iter_mut() {
            if pool.requested_at.elapsed() > KEPT_READY {
                pool.ready.clear();
                continue;
            }
            pool.ready.retain(|(sandbox, _)| sandbox.is_parked());
            let is_backing_off = pool.failed.is_some_and(|when| when.elapsed() < BACK_OFF);
            let missing = self.warm.ready.saturating_sub(pool.ready.len() + pool.making);
            let made_now = if is_backing_off { 0 } else { missing.min(may_make) };
            for _ in 0..made_now {
                pool.making += 1;
                may_make -= 1;
                tokio::spawn(make(self.clone(), pool.kind.clone()));
            }
        }
    }

    pub(crate) fn ready(&self, language: Language) -> BTreeMap<Backend, usize> {
        let pools = lock(&self.pools);
        let of_language = pools.iter().filter(|pool| pool.language == language);
        let count = |pool: &ContainerPool| {
            let backend = match pool.kind.spec.runner {
                Runner::Kernel => Backend::Docker,
                Runner::Gvisor => Backend::Gvisor,
            };
            (backend, pool.ready.len())
        };
        of_language.map(count).collect()
    }

    /// Starts the removal of what an earlier server has left, in the background, if containers are allowed.
    pub(crate) fn begin(&self) {
        drop(self.engine());
    }

    /// Drops the ready containers, and waits until all are gone.
    pub(crate) async fn close(&self) {
        self.drop_ready();
        if let Some(engine) = self.engine.get() {
            engine.wait_until_empty().await;
        }
    }

    /// Returns the images that the engine does not have, each once.
    async fn missing(&self, engine: &ContainerEngine) -> Vec<String> {
        let Images { python, node, shell } = &self.settings.images;
        let mut missing = Vec::new();
        for image in [python, node, shell] {
            if !missing.contains(image) && !engine.has_image(image).await {
                missing.push(image.clone());
            }
        }
        missing
    }

    pub(crate) fn drop_ready(&self) {
        lock(&self.pools).clear();
    }

    /// Returns the container backends, for `list_runtimes`, `get_sandbox_info` and `doctor`.
    pub(crate) async fn runtimes(&self) -> Vec<ContainerRuntime> {
        let mut runtimes = Vec::new();
        let describe = |error: RequestError| format!("{} {}", error.message, error.hint);
        for backend in [Backend::Docker, Backend::Gvisor] {
            let allowed = self.settings.policy.allows(backend);
            let mut runtime = ContainerRuntime {
                backend,
                tier: backend.tier(Tier::Full),
                allowed: allowed.is_ok(),
                available: false,
                engine: None,
                reason: allowed.err().map(describe),
                images: self.settings.images.clone(),
                images_missing: Vec::new(),
            };
            if runtime.allowed {
                let ready = async {
                    let engine = self.engine()?;
                    let facts = engine.ready(runner(backend)).await;
                    facts
                        .map(|facts| (engine, facts))
                        .map_err(|error| error.refusal())
                };
                match ready.await {
                    Ok((engine, facts)) => {
                        runtime.available = true;
                        runtime.engine = Some(facts.version.clone());
                        runtime.images_missing = self.missing(engine).await;
                    }
                    Err(error) => runtime.reason = Some(describe(error)),
                }
            }
            runtimes.push(runtime);
        }
        runtimes
    }
}

fn runner(backend: Backend) -> Runner {
    match backend {
        Backend::Gvisor => Runner::Gvisor,
        Backend::Native | Backend::Docker => Runner::Kernel,
    }
}

async fn make(containers: Arc<Containers>, kind: ContainerKind) {
    let made = async {
        let sandbox = containers.spawn(&kind)?;
        let (imported, _) = sandbox.parked().await?;
        Ok::<_, RequestError>((sandbox, imported))
    };
    let made = made.await;
    let mut pools = lock(&containers.pools);
    let pool = pools.iter_mut().find(|pool| pool.kind.spec == kind.spec);
    let Some(pool) = pool else { return };
    pool.making = pool.making.saturating_sub(1);
    match made {
        Ok(ready) => {
            pool.ready.push(ready);
            pool.failed = None;
            drop(pools);
            containers.fill();
        }
        Err(error) => {
            tracing::warn!(%error, "no container could be kept ready");
            pool.failed = Some(Instant::now());
        }
    }
}
