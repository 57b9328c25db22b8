//! Sandboxes that a container engine makes: which image a language has, and the few containers that stand ready. What
//! comes back is a sandbox like any other.

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

/// Above those of native sandboxes.
const UID_FIRST: u32 = UID_BASE + (4 << 20);
/// Where the server is root without a range of ids: the id that stands for no user.
const UNMAPPED: u32 = 65_534;
/// Containers stand ready for what was asked for within so long.
const WANTED: Duration = Duration::from_secs(600);
/// Containers of all kinds that are made ahead at once: on a busy machine requests wait for them.
const MAKING_MAX: usize = 2;
/// After a container could not be made ahead, until it is tried again.
const BACK_OFF: Duration = Duration::from_secs(30);

/// A sandbox of a container engine as a language needs it.
#[derive(Clone)]
pub(crate) struct ContainerKind {
    pub(crate) plan: Arc<Plan>,
    pub(crate) toolchain: Arc<Toolchain>,
    spec: Arc<ContainerSpec>,
    facts: Arc<EngineFacts>,
}

/// What one backend is here, for those who ask.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerRuntime {
    /// `docker` or `gvisor`.
    pub backend: Backend,
    pub tier: Tier,
    pub allowed: bool,
    /// Whether it runs containers now.
    pub available: bool,
    /// The engine's version.
    pub engine: Option<String>,
    /// Why it is not available or not allowed, with the smallest change.
    pub reason: Option<String>,
    pub images: Images,
    /// Those that the engine does not have yet.
    pub images_missing: Vec<String>,
}

struct ContainerPool {
    language: Language,
    kind: ContainerKind,
    ready: Vec<(Sandbox, Imported)>,
    making: usize,
    wanted: Instant,
    failed: Option<Instant>,
}

pub(crate) struct Containers {
    /// Made when its socket is there.
    engine: OnceLock<Arc<ContainerEngine>>,
    /// None: no request may ask for a container.
    wanted: Option<ContainerSettings>,
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
            (0, true) => User::OwnFrom(UID_FIRST),
            (0, false) => User::Fixed {
                uid: UNMAPPED,
                gid: UNMAPPED,
            },
            _ => User::Fixed { uid, gid },
        };
        let is_wanted = settings
            .policy
            .allowed
            .iter()
            .any(|backend| *backend != Backend::Native);
        let wanted = is_wanted.then(|| ContainerSettings {
            socket: settings.socket.clone(),
            gvisor: settings.gvisor.clone(),
            pull: settings.pull,
            require_digest: settings.require_digest,
            state_dir: state_dir.to_owned(),
            user,
        });
        Self {
            engine: OnceLock::new(),
            wanted,
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
        let made = match &self.wanted {
            Some(wanted) => ContainerEngine::new(wanted.clone()).map_err(|error| error.to_string()),
            None => Err("no container backend is allowed here".to_owned()),
        };
        let made = made.map_err(|why| {
            RequestError::runtime_unavailable(
                format!("containers cannot be used: {why}."),
                "Correct `containers.socket`, and see that the state directory can be written.",
            )
        })?;
        let engine = self.engine.get_or_init(|| Arc::new(made));
        engine.clean();
        Ok(engine)
    }

    /// What a request needs: the engine is there, and has the image.
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
            // What stands for an interpreter in each directory of the image's path.
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

    /// The same for one request: with its limits from the beginning, and without an interpreter that waits.
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

    /// A container that stands ready for this request, unless it has imported a module that the request has another of.
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
                wanted: Instant::now(),
                failed: None,
            });
            return None;
        };
        let pool = &mut pools[at];
        pool.wanted = Instant::now();
        if pool.kind.spec.image != kind.spec.image || pool.kind.spec.program != kind.spec.program {
            (pool.kind, pool.ready, pool.making) = (kind.clone(), Vec::new(), 0);
        }
        let beside = HashSet::new();
        pool.ready.retain(|(sandbox, _)| sandbox.waits());
        let mut ready = pool.ready.iter();
        let fits = ready.position(|(_, known)| !is_shadowed(&known.loaded, &request.files, &beside))?;
        Some(pool.ready.swap_remove(fits).0)
    }

    /// Asks for a container. It is made meanwhile.
    pub(crate) fn spawn(&self, kind: &ContainerKind) -> Result<Sandbox> {
        let engine = self.engine()?;
        let placed = engine.place(kind.spec.clone());
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

    /// Makes what is missing, in the background: when a run has ended, because until then it needs the processors more,
    /// and when one has been made.
    pub(crate) fn fill(self: &Arc<Self>) {
        let mut pools = lock(&self.pools);
        let making: usize = pools.iter().map(|pool| pool.making).sum();
        let mut may_make = MAKING_MAX.saturating_sub(making);
        for pool in pools.iter_mut() {
            if pool.wanted.elapsed() > WANTED {
                pool.ready.clear();
                continue;
            }
            pool.ready.retain(|(sandbox, _)| sandbox.waits());
            let rests = pool.failed.is_some_and(|when| when.elapsed() < BACK_OFF);
            let missing = self.warm.ready.saturating_sub(pool.ready.len() + pool.making);
            let made_now = if rests { 0 } else { missing.min(may_make) };
            for _ in 0..made_now {
                pool.making += 1;
                may_make -= 1;
                tokio::spawn(make(self.clone(), pool.kind.clone()));
            }
        }
    }

    /// How many stand ready for a language, by backend.
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

    /// Looks for what an earlier server has left, if there may be any, in the background.
    pub(crate) fn begin(&self) {
        drop(self.engine());
    }

    /// Lets every container go that stands ready, and waits until all are gone.
    pub(crate) async fn close(&self) {
        self.let_go();
        if let Some(engine) = self.engine.get() {
            engine.emptied().await;
        }
    }

    /// Images that the engine does not have, each once.
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

    pub(crate) fn let_go(&self) {
        lock(&self.pools).clear();
    }

    /// What there is, for `list_runtimes`, `get_sandbox_info` and `doctor`.
    pub(crate) async fn runtimes(&self) -> Vec<ContainerRuntime> {
        let mut runtimes = Vec::new();
        let said = |error: RequestError| format!("{} {}", error.message, error.hint);
        for backend in [Backend::Docker, Backend::Gvisor] {
            let allowed = self.settings.policy.allows(backend);
            let mut runtime = ContainerRuntime {
                backend,
                tier: backend.tier(Tier::Full),
                allowed: allowed.is_ok(),
                available: false,
                engine: None,
                reason: allowed.err().map(said),
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
                    Err(error) => runtime.reason = Some(said(error)),
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
