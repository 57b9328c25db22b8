//! What a granted request becomes for the jail: the interpreter and its surroundings, the environment built from
//! nothing, and which bytes go where.

use crate::{
    egress,
    engine::House,
    language::{self, Imports, Launch},
    policy::Grant,
    prepare::Prepared,
    runtimes,
    secrets::SecretLease,
    worker,
};
use ringfence_jail::{
    Claim, ClaimSpec, HostWorkspace, JailSpec, LayerName, Layout, PACKAGES, Part, Plan, Program, Run,
    Written, client,
};
use ringfence_types::{ExecuteRequest, Isolation, Language, Limits, RequestError, Tier, WorkspaceSource};
use std::{borrow::Cow, path::PathBuf, time::Duration};
use zeroize::{Zeroize, Zeroizing};

const GRACE_MS: u64 = 500;
/// Of a template's memory, by which its living forks still see what it has written to since: 1.1 MiB each where it has
/// the common modules.
const LEFT_WITH_A_FORK_BYTES: u64 = 4 << 20;

/// Of a claim that has no parts.
pub(crate) const NO_BLOBS: &[&[u8]] = &[];

/// When the interpreter of a place is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// By the claim.
    Claimed,
    /// Node.js, before the claim, which tells it what to run.
    Ahead,
    /// Before it, as a fork of a template.
    Forked,
    /// It is the template with these imports.
    Template(Imports),
}

/// Can the request's interpreter be there before the request: then it does not see what the environment would have told
/// it at its start, and a directory of the host is bound when the place is made.
pub(crate) fn can_start_ahead(request: &ExecuteRequest, lease: &SecretLease) -> bool {
    request.workspace == WorkspaceSource::Private
        && !(request.language == Language::Node && lease.inspection.is_some())
        && !request
            .env
            .keys()
            .chain(&request.secrets)
            .any(|name| language::decides_at_start(name.as_str()))
}

/// The place that a language needs, which is the same for every request that shares no directory of the host.
pub(crate) fn plan(
    house: &House,
    mut layout: Layout,
    surroundings: &Surroundings,
    host_workspace: Option<HostWorkspace>,
    start: Start,
) -> Result<Plan, RequestError> {
    let (warm, interpreter) = (
        &house.settings.warm,
        surroundings.interpreter.display().to_string(),
    );
    let mut limits = house.policy().defaults.clone();
    if matches!(start, Start::Template(_)) {
        // It may not die of the number of its forks: all of them die with it.
        let forks = house.settings.sessions.max + house.settings.queue.concurrency + warm.ready_max;
        limits.memory_bytes += forks as u64 * LEFT_WITH_A_FORK_BYTES;
    }
    let program = match start {
        Start::Claimed => Program::Claimed,
        Start::Forked => Program::Forked,
        Start::Ahead => {
            let Launch { argv, env, .. } = language::node_ahead(&interpreter, &warm.preload_node);
            let environment = [base_environment(&layout, &surroundings.on_path), env].concat();
            Program::Ahead { argv, environment }
        }
        Start::Template(imports) => {
            let Launch { argv, env, .. } = language::template(&interpreter, imports, &warm.preload_python);
            let environment = [base_environment(&layout, &surroundings.on_path), env].concat();
            Program::Template { argv, environment }
        }
    };
    if let (Tier::Landlock, Some(shared)) = (house.settings.tier, &host_workspace) {
        // There is no root in which it could be shown elsewhere.
        layout.workspace.clone_from(&shared.directory.path);
    }
    house.native.plan(JailSpec {
        tier: house.settings.tier,
        layout,
        trees: surroundings.trees.clone(),
        links: surroundings.links.clone(),
        program,
        host_workspace,
        layers: layers(house),
        written: Written::MayRun,
        limits,
    })
}

/// A claim with the bytes that its parts point into. Both may hold secrets, and are wiped.
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

/// The authorities that programs have to believe where TLS is read, beside their code.
const AUTHORITIES: &str = "authorities.pem";
/// The variables by which OpenSSL and what is made with it, Python's requests, curl, git, Node.js, npm and the SDKs of AWS
/// find them.
const AUTHORITY_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "AWS_CA_BUNDLE",
];

/// What a granted request brings to its place.
pub(crate) fn bind<'a>(
    house: &House,
    plan: &Plan,
    surroundings: &Surroundings,
    grant: &'a Grant,
    lease: &SecretLease,
    prepared: &'a Prepared,
    layer: Option<&LayerName>,
) -> Bound<'a> {
    let (request, layout) = (grant.request(), &plan.layout);
    let mut blobs = Blobs::default();
    let mut code = vec![(prepared.name(), blobs.add(prepared.script().as_bytes()))];
    let files = request
        .files
        .iter()
        .map(|file| (file.path.clone(), blobs.add(file.bytes.as_slice())))
        .collect();
    let launch = prepared.launch(
        request.language,
        &surroundings.interpreter,
        &layout.code,
        &request.args,
    );
    let mut environment = Zeroizing::new(base_environment(layout, &surroundings.on_path));
    environment.extend(launch.env);
    // To a session they may be added while it lives.
    if layer.is_some() || (prepared.is_session() && plan.tier == Tier::Full) {
        add_packages(&mut environment);
    }
    if let Some(inspection) = &lease.inspection {
        let file = blobs.add(inspection.authorities().into_bytes());
        code.push((AUTHORITIES.to_owned(), file));
        let path = layout.code.join(AUTHORITIES).display().to_string();
        environment.extend(AUTHORITY_VARIABLES.map(|name| (name.to_owned(), path.clone())));
    }
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
            .handed_in()
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let run = match plan.program {
        Program::Ahead { .. } | Program::Forked => {
            Run::Go(blobs.add(prepared.go(request.language, &layout.code, &request.args, &environment)))
        }
        Program::Claimed | Program::Worker { .. } | Program::Template { .. } => Run::Exec {
            argv: launch.argv,
            environment: std::mem::take(&mut *environment),
            report: launch.report_fd,
        },
    };
    let claim = house.native.claim(ClaimSpec {
        code,
        files,
        run,
        layer: layer.cloned(),
        way_out: egress::way_out(grant.reaches(), grant.asks()),
        limits: grant.limits().clone(),
        grace_ms: GRACE_MS,
    });
    Bound {
        claim,
        blobs: blobs.blobs,
    }
}

/// An interpreter and what it needs of the host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    pub(crate) interpreter: PathBuf,
    trees: Vec<PathBuf>,
    links: Vec<(PathBuf, String)>,
    on_path: Vec<PathBuf>,
}

pub(crate) fn surroundings(house: &House, language: Language) -> Result<Surroundings, RequestError> {
    let found = runtimes::find(language, &house.settings.runtimes)?;
    let mut surroundings = Surroundings {
        on_path: vec![found.path.clone()],
        interpreter: found.path,
        trees: found.trees,
        links: found.links,
    };
    if language == Language::Shell {
        // A script calls the other interpreters by name.
        for other in [Language::Python, Language::Node] {
            if let Ok(found) = runtimes::find(other, &house.settings.runtimes) {
                surroundings.trees.extend(found.trees);
                surroundings.links.extend(found.links);
                surroundings.on_path.push(found.path);
            }
        }
    }
    Ok(surroundings)
}

/// The place of a worker of our own: no interpreter, no files, nothing but its pipes.
pub(crate) fn plan_of_worker(house: &House, id: &str, name: &str) -> Result<Plan, RequestError> {
    house.native.plan(JailSpec {
        tier: house.settings.tier,
        layout: layout(house, id),
        trees: Vec::new(),
        links: Vec::new(),
        program: Program::Worker {
            name: name.to_owned(),
        },
        host_workspace: None,
        layers: None,
        written: Written::MayRun,
        limits: WORKER_LIMITS,
    })
}

/// Where layers of packages lie, for places that have a root of their own.
fn layers(house: &House) -> Option<PathBuf> {
    (house.settings.tier == Tier::Full).then(|| house.packages.layers.directory())
}

/// The variable by which a driver, and the program, know where packages are.
const PACKAGES_VARIABLE: &str = "RINGFENCE_PACKAGES";

/// What a program with packages has in its environment: their scripts come last on its path.
fn add_packages(environment: &mut Vec<(String, String)>) {
    for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
        *path += &format!(":{PACKAGES}/bin:{PACKAGES}/node_modules/.bin");
    }
    environment.push((PACKAGES_VARIABLE.to_owned(), PACKAGES.to_owned()));
}

/// The place of an installer of packages, in which nothing that was written can be executed.
pub(crate) fn plan_of_installer(
    house: &House,
    surroundings: &Surroundings,
    wheels: &[PathBuf],
    limits: Limits,
) -> Result<Plan, RequestError> {
    let trees = surroundings.trees.iter().chain(wheels).cloned();
    house.native.plan(JailSpec {
        tier: house.settings.tier,
        layout: Layout::own_root(),
        trees: trees.collect(),
        links: surroundings.links.clone(),
        program: Program::Claimed,
        host_workspace: None,
        layers: None,
        written: Written::NeverRuns,
        limits,
    })
}

/// The environment of a program that nobody has asked anything for.
pub(crate) fn environment(layout: &Layout, surroundings: &Surroundings) -> Vec<(String, String)> {
    base_environment(layout, &surroundings.on_path)
}

/// Its claim: no more than to begin.
pub(crate) fn claim_of_worker(house: &House) -> Claim {
    house.native.claim(ClaimSpec {
        code: Vec::new(),
        files: Vec::new(),
        run: Run::Work,
        layer: None,
        way_out: None,
        limits: WORKER_LIMITS,
        grace_ms: 0,
    })
}

/// The claim of a worker that is kept for so long at most.
pub(crate) fn claim_of_kept_worker(house: &House, age: Duration) -> Claim {
    let mut claim = claim_of_worker(house);
    claim.limits.timeout_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    claim
}

/// Tier and layers of a run with these limits.
pub(crate) fn isolation(house: &House, limits: &Limits) -> Result<Isolation, RequestError> {
    let plan = plan_of_worker(house, "none", "none")?;
    let mut claim = claim_of_worker(house);
    claim.limits = limits.clone();
    Ok(plan.isolation(&claim, &house.native.host))
}

/// Makes one sandbox with every wall of the tier and lets it end at once.
pub(crate) async fn prove(house: &House) -> Result<(), RequestError> {
    // How the worker ends is its own affair: it has begun, behind all walls.
    worker::run(house, crate::ECHO, None, Vec::new()).await.map(drop)
}

/// A parser of one megabyte of text, or a decoder of a picture.
const WORKER_LIMITS: Limits = Limits {
    memory_bytes: 512 << 20,
    cpu_millicores: 1000,
    timeout_ms: 10_000,
    processes: 4,
    output_bytes: 16 << 20,
    disk_bytes: 1 << 20,
};

/// Where things will be inside.
pub(crate) fn layout(house: &House, id: &str) -> Layout {
    match house.settings.tier {
        Tier::Full => Layout::own_root(),
        Tier::Landlock => Layout::below(&house.settings.state_dir.join(ringfence_jail::RUNS).join(id)),
    }
}

/// No variable of the server's: these, the language's own, and the request's.
fn base_environment(layout: &Layout, interpreters: &[PathBuf]) -> Vec<(String, String)> {
    let mut path: Vec<String> = Vec::new();
    let bins = interpreters
        .iter()
        .filter_map(|path| path.parent())
        .map(|bin| bin.display().to_string());
    for bin in bins.chain(["/usr/local/bin", "/usr/bin", "/bin"].map(str::to_owned)) {
        if !path.contains(&bin) {
            path.push(bin);
        }
    }
    let text = |path: &std::path::Path| path.display().to_string();
    [
        ("PATH", path.join(":")),
        ("HOME", text(&layout.home)),
        ("USER", "sandbox".to_owned()),
        ("LOGNAME", "sandbox".to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        ("PWD", text(&layout.workspace)),
        ("TMPDIR", text(&layout.tmp)),
        ("LANG", "C.UTF-8".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("RINGFENCE_OUTPUT_DIR", text(&layout.output)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The bytes of a payload, each with its place.
#[derive(Default)]
pub(crate) struct Blobs<'a> {
    blobs: Vec<Cow<'a, [u8]>>,
    length: u64,
}

impl<'a> Blobs<'a> {
    pub(crate) fn bytes(&self) -> &[Cow<'a, [u8]>] {
        &self.blobs
    }

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
