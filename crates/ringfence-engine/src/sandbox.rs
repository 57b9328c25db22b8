//! Translates a granted request for the jail: the interpreter and its toolchain, an environment that inherits nothing,
//! and the places of files and other bytes.

use crate::{
    backend::{Native, Sandbox},
    containers::Containers,
    error::Result,
    language::{self, Launch, Prepared, TemplateOf},
    policy::{Grant, reach},
    policy_store::PolicyStore,
    pool::Pools,
    runtimes::{Toolchain, environment},
    secrets::SecretLease,
    settings::{RuntimeSettings, WarmSettings},
};
use ringfence_jail::{
    Claim, Forker, HostWorkspace, JailSpec, LayerName, Layout, PACKAGES, Part, Plan, Program, Run, Written,
    client,
};
use ringfence_types::{ExecuteRequest, Isolation, Language, Limits, Tier, WorkspaceMode, WorkspaceSource};
use std::{
    borrow::Cow,
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::Semaphore;
use zeroize::{Zeroize, Zeroizing};

const GRACE_MS: u64 = 500;
/// Additional processes and threads that a user may start while a worker is kept.
const OTHER_TASKS_MARGIN: u64 = 1024;
/// Memory of a template that each fork keeps: pages that it has written to since. 1.1 MiB with the common modules.
const FORK_OVERHEAD_BYTES: u64 = 4 << 20;

pub(crate) const NO_BLOBS: &[&[u8]] = &[];

pub(crate) struct Sandboxes {
    pub(crate) native: Native,
    pub(crate) containers: Arc<Containers>,
    pub(crate) pools: Pools,
    /// Made for the first request of a language, before it is admitted.
    pub(crate) first: Mutex<HashMap<Language, ReadySandbox>>,
    pub(crate) tier: Tier,
    pub(crate) runtimes: RuntimeSettings,
    pub(crate) warm: WarmSettings,
    /// Most concurrent forks of one template.
    pub(crate) forks_max: usize,
    /// True once a template of Node.js has failed.
    pub(crate) node_does_not_fork: AtomicBool,
    pub(crate) state_dir: PathBuf,
    pub(crate) layers: PathBuf,
    pub(crate) policy: Arc<PolicyStore>,
    /// Permits for workers that re-encode pictures.
    pub(crate) pictures: Semaphore,
}

pub(crate) struct ReadySandbox {
    pub(crate) sandbox: Sandbox,
    pub(crate) toolchain: Arc<Toolchain>,
}

/// The time at which the interpreter of a sandbox is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Claimed,
    /// Before the claim, which sends it the program: if there are no templates.
    Ahead(Language),
    /// Before the claim, as a fork of a template.
    Forked,
    Template(TemplateOf),
}

/// True if the interpreter can be started before the request, which must not set variables that are read only at start.
/// Without forks, Node.js cannot restrict itself after its start, as a directory of the host requires.
pub(crate) fn can_start_ahead(
    request: &ExecuteRequest,
    lease: &SecretLease,
    node: Option<TemplateOf>,
) -> bool {
    let needs_a_wall = request.workspace != WorkspaceSource::Private && node.is_none();
    !(request.language.runs_as() == Language::Node && (lease.inspection.is_some() || needs_a_wall))
        && !request
            .env
            .keys()
            .chain(&request.secrets)
            .any(|name| language::is_read_at_start(name.as_str()))
}

/// A claim with the bytes that its parts refer to. Both may hold secrets, and are wiped.
pub(crate) struct Bound<'a> {
    pub(crate) claim: Claim,
    pub(crate) blobs: Vec<Cow<'a, [u8]>>,
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if let Run::Exec { environment, .. } = &mut self.claim.run {
            environment.zeroize();
        }
        for blob in &mut self.blobs {
            if let Cow::Owned(bytes) = blob {
                bytes.zeroize();
            }
        }
    }
}

/// The file of certificate authorities for inspected TLS, beside the code.
const AUTHORITIES: &str = "authorities.pem";
/// The variables that name it for OpenSSL and its users, Python's requests, curl, git, Node.js, npm and AWS SDKs.
const AUTHORITY_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "AWS_CA_BUNDLE",
];

pub(crate) struct RunInputs<'a> {
    pub(crate) lease: &'a SecretLease,
    pub(crate) prepared: &'a Prepared,
    pub(crate) layer: Option<&'a LayerName>,
    pub(crate) workspace: Option<&'a HostWorkspace>,
}

/// The variable that tells a driver and its program the path of packages.
const PACKAGES_VARIABLE: &str = "RINGFENCE_PACKAGES";

/// Adds the environment of a program with packages: their scripts come last on its path.
fn add_packages(environment: &mut Vec<(String, String)>, language: Language) {
    for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
        *path += &format!(":{PACKAGES}/bin:{PACKAGES}/node_modules/.bin");
    }
    environment.push((PACKAGES_VARIABLE.to_owned(), PACKAGES.to_owned()));
    if language == Language::Shell {
        // For a Python that the script calls; a Python driver sets this itself.
        environment.push(("PYTHONPATH".to_owned(), format!("{PACKAGES}/python")));
    }
}

/// The limits of a parser of one megabyte of text, or a decoder of a picture.
const WORKER_LIMITS: Limits = Limits {
    memory_bytes: 512 << 20,
    cpu_millicores: 1000,
    timeout_ms: 10_000,
    processes: 4,
    output_bytes: 16 << 20,
    disk_bytes: 1 << 20,
};

/// Returns variables that make pip and npm give up at once if no package index can be reached: otherwise they retry for
/// up to a minute, look for newer versions of themselves, and, with the system's Python, advise to break it.
fn no_retry_variables(grant: &Grant) -> impl Iterator<Item = (String, String)> {
    const ONCE: [(&str, &str); 5] = [
        ("PIP_RETRIES", "0"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("npm_config_fetch_retries", "0"),
        ("npm_config_update_notifier", "false"),
    ];
    let is_reached = |index: &&str| index.parse().is_ok_and(|name| grant.reaches.names_reached(&name));
    let refused = grant.approval_timeout.is_none() && !reach::PACKAGE_INDEXES.iter().any(is_reached);
    let names = ONCE.into_iter().filter(move |_| refused);
    names.map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// The bytes of a payload, with their offsets.
#[derive(Default)]
pub(crate) struct Blobs<'a> {
    pub(crate) blobs: Vec<Cow<'a, [u8]>>,
    length: u64,
}

impl<'a> Blobs<'a> {
    pub(crate) fn add(&mut self, bytes: impl Into<Cow<'a, [u8]>>) -> Part {
        let bytes = bytes.into();
        let part = Part {
            offset: client::BLOBS_AT + self.length,
            length: bytes.len() as u64,
        };
        self.length += part.length;
        self.blobs.push(bytes);
        part
    }
}

impl Sandboxes {
    /// Returns the directory of the host that has to be mounted when a sandbox is made, because no claim can mount it.
    pub(crate) fn made_with(&self, shared: Option<&HostWorkspace>) -> Option<HostWorkspace> {
        let overlaid = |shared: &&HostWorkspace| shared.mode == WorkspaceMode::Overlay;
        shared
            .filter(|shared| self.tier == Tier::Landlock || overlaid(shared))
            .cloned()
    }

    /// Returns the plan of a language's sandbox, which is the same for all requests without a directory of the host.
    pub(crate) fn plan(
        &self,
        mut layout: Layout,
        toolchain: &Toolchain,
        host_workspace: Option<HostWorkspace>,
        start: Start,
    ) -> Result<Plan> {
        let mut limits = self.policy.current().defaults.clone();
        if matches!(start, Start::Template(_)) {
            // Its forks must not exhaust its memory: if it is killed, all of them are.
            limits.memory_bytes += self.forks_max as u64 * FORK_OVERHEAD_BYTES;
        }
        let program = self.program(&layout, toolchain, start);
        if let (Tier::Landlock, Some(shared)) = (self.tier, &host_workspace) {
            // Without a root of its own it cannot be mounted elsewhere.
            layout.workspace.clone_from(&shared.directory.path);
        }
        self.native.plan(JailSpec {
            trees: toolchain.trees.clone(),
            links: toolchain.links.clone(),
            host_workspace,
            layers: (self.tier == Tier::Full).then(|| self.layers.clone()),
            ..self.spec(layout, program, limits)
        })
    }

    /// Returns the spec of a sandbox without an interpreter, files or packages.
    fn spec(&self, layout: Layout, program: Program, limits: Limits) -> JailSpec {
        JailSpec {
            tier: self.tier,
            layout,
            trees: Vec::new(),
            links: Vec::new(),
            program,
            host_workspace: None,
            layers: None,
            written: Written::MayRun,
            limits,
        }
    }

    fn program(&self, layout: &Layout, toolchain: &Toolchain, start: Start) -> Program {
        let warm = &self.warm;
        let interpreter = toolchain.interpreter.display().to_string();
        let Launch { argv, env, .. } = match start {
            Start::Claimed => return Program::Claimed,
            Start::Forked => return Program::Forked,
            Start::Ahead(Language::Python) => language::python_ahead(&interpreter),
            Start::Ahead(_) => language::node_ahead(&interpreter, &warm.preload_node),
            Start::Template(TemplateOf::Python(imports)) => {
                language::template(&interpreter, imports, &warm.preload_python)
            }
            Start::Template(TemplateOf::Node) => language::node_template(&interpreter, &warm.preload_node),
        };
        let environment = [environment(layout, &toolchain.on_path), env].concat();
        let forker = match start {
            Start::Template(TemplateOf::Python(_)) => Forker::Python,
            Start::Template(TemplateOf::Node) => Forker::Node,
            _ => return Program::Ahead { argv, environment },
        };
        Program::Template {
            argv,
            environment,
            forker,
        }
    }

    pub(crate) fn bind<'a>(
        &self,
        plan: &Plan,
        toolchain: &Toolchain,
        grant: &'a Grant,
        inputs: &RunInputs<'a>,
    ) -> Bound<'a> {
        let RunInputs { lease, prepared, .. } = *inputs;
        let layer = inputs.layer;
        // A workspace that the sandbox was made with is already mounted.
        let workspace = inputs.workspace.filter(|_| plan.shared.is_none());
        let (request, layout) = (&grant.request, &plan.layout);
        let mut blobs = Blobs::default();
        let mut code = vec![(prepared.name(), blobs.add(prepared.script.as_bytes()))];
        let files = request
            .files
            .iter()
            .map(|file| (file.path.clone(), blobs.add(file.bytes.as_slice())))
            .collect();
        let launch = prepared.launch(
            request.language,
            &toolchain.interpreter,
            &layout.code,
            &request.args,
        );
        let mut environment = Zeroizing::new(environment(layout, &toolchain.on_path));
        environment.extend(launch.env);
        // Packages may be added to a session later.
        if layer.is_some() || (prepared.session && plan.tier == Tier::Full) {
            add_packages(&mut environment, request.language);
        }
        if let Some(inspection) = &lease.inspection {
            let file = blobs.add(inspection.authorities().into_bytes());
            code.push((AUTHORITIES.to_owned(), file));
            let path = layout.code.join(AUTHORITIES).display().to_string();
            environment.extend(AUTHORITY_VARIABLES.map(|name| (name.to_owned(), path.clone())));
        }
        environment.extend(no_retry_variables(grant));
        environment.retain(|(name, _)| !request.env.keys().any(|given| given.as_str() == name));
        environment.extend(
            request
                .env
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned())),
        );
        environment.retain(|(name, _)| !lease.secrets.iter().any(|(secret, _)| secret.as_str() == name));
        environment.extend(
            lease
                .environment_values()
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let run = match plan.program {
            Program::Ahead { .. } | Program::Forked => {
                let arrives = workspace.map(|_| layout.workspace.as_path());
                Run::Go(blobs.add(prepared.go(request, &layout.code, &environment, arrives)))
            }
            Program::Claimed | Program::Worker { .. } | Program::Template { .. } => Run::Exec {
                argv: launch.argv,
                environment: std::mem::take(&mut *environment),
                report: launch.report_fd,
            },
        };
        let claim = Claim {
            code,
            files,
            workspace: workspace.cloned(),
            layer: layer.cloned(),
            egress: reach::spec(plan.tier, &grant.reaches),
            others: self.pools.tasks_to_come(),
            grace_ms: GRACE_MS,
            ..self.native.claim(run, grant.limits.clone())
        };
        Bound {
            claim,
            blobs: blobs.blobs,
        }
    }

    /// Returns the plan of a worker of our own: no interpreter, no files, only its pipes.
    pub(crate) fn plan_of_worker(&self, id: &str, name: &str) -> Result<Plan> {
        let program = Program::Worker {
            name: name.to_owned(),
        };
        self.native
            .plan(self.spec(self.layout(id), program, WORKER_LIMITS))
    }

    /// Returns the plan of a package installer, in which written files cannot be executed.
    pub(crate) fn plan_of_installer(
        &self,
        toolchain: &Toolchain,
        wheels: &[PathBuf],
        limits: Limits,
    ) -> Result<Plan> {
        let trees = toolchain.trees.iter().chain(wheels).cloned();
        self.native.plan(JailSpec {
            trees: trees.collect(),
            links: toolchain.links.clone(),
            written: Written::NeverRuns,
            ..self.spec(Layout::own_root(), Program::Claimed, limits)
        })
    }

    /// Returns the plan of a browser, in which written files cannot be executed.
    pub(crate) fn plan_of_browser(&self, program: &Path, limits: Limits) -> Result<Plan> {
        // The program's resources are beside it; a directory of the system is visible already.
        let tree = program
            .canonicalize()
            .ok()
            .and_then(|real| real.parent().map(Path::to_owned));
        self.native.plan(JailSpec {
            trees: tree
                .filter(|tree| !tree.starts_with("/usr"))
                .into_iter()
                .collect(),
            written: Written::NeverRuns,
            ..self.spec(Layout::own_root(), Program::Claimed, limits)
        })
    }

    /// Returns the claim of a worker, which only starts it.
    pub(crate) fn claim_of_worker(&self) -> Claim {
        let mut claim = self.native.claim(Run::Work, WORKER_LIMITS);
        claim.others = self.pools.tasks_to_come();
        claim
    }

    pub(crate) fn claim_of_kept_worker(&self, age: Duration) -> Claim {
        let mut claim = self.claim_of_worker();
        claim.limits.timeout_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        // It forks for each question, long after the user's other processes were counted; those forks cannot fork.
        claim.others += OTHER_TASKS_MARGIN;
        claim
    }

    pub(crate) fn isolation_of(&self, sandbox: &Sandbox, claim: &Claim) -> Isolation {
        match &sandbox.container {
            Some(side) => self.containers.isolation(side, &claim.limits),
            None => sandbox.plan.isolation(claim, &self.native.host),
        }
    }

    pub(crate) fn isolation(&self, limits: &Limits) -> Result<Isolation> {
        let plan = self.plan_of_worker("none", "none")?;
        let mut claim = self.claim_of_worker();
        claim.limits = limits.clone();
        Ok(plan.isolation(&claim, &self.native.host))
    }

    pub(crate) fn layout(&self, id: &str) -> Layout {
        match self.tier {
            Tier::Full | Tier::Gvisor | Tier::Container => Layout::own_root(),
            Tier::Landlock => Layout::below(&self.state_dir.join(ringfence_jail::RUNS).join(id)),
        }
    }
}
