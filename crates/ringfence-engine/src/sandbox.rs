//! What a granted request becomes for the jail: the interpreter and its surroundings, the environment built from
//! nothing, and which bytes go where.

use crate::{
    backend::{Running, Wires},
    engine::{House, Stdin},
    policy::Grant,
    prepare::Prepared,
    runtimes,
};
use ringfence_jail::{Claim, ClaimSpec, JailSpec, Layout, Part, Plan, Program, Run, client};
use ringfence_types::{
    ExecuteRequest, Isolation, Language, Limits, RequestError, Tier, WorkspaceMode, WorkspaceSource,
};
use std::{path::PathBuf, sync::Arc};

const GRACE_MS: u64 = 500;

/// The place that a language needs, which is the same for every request that shares no directory of the host.
pub(crate) fn plan(
    house: &House,
    layout: Layout,
    language: Language,
    host_workspace: Option<(PathBuf, WorkspaceMode)>,
) -> Result<Plan, RequestError> {
    let surroundings = surroundings(house, language)?;
    house.native.plan(JailSpec {
        tier: house.settings.tier,
        layout,
        trees: surroundings.trees,
        links: surroundings.links,
        program: Program::Claimed,
        host_workspace,
        limits: house.settings.policy.defaults.clone(),
    })
}

/// The directory of the host behind a request's workspace.
pub(crate) fn host_workspace(request: &ExecuteRequest) -> Option<(PathBuf, WorkspaceMode)> {
    match &request.workspace {
        WorkspaceSource::Private => None,
        WorkspaceSource::Host { directory, mode } => Some((directory.clone(), *mode)),
    }
}

/// What a granted request brings to its place.
pub(crate) fn claim(
    house: &House,
    layout: &Layout,
    grant: &Grant,
    prepared: &Prepared,
) -> Result<Claim, RequestError> {
    let request = grant.request();
    let surroundings = surroundings(house, request.language)?;
    let launch = prepared.launch(
        request.language,
        &surroundings.interpreter,
        &layout.code,
        &request.args,
    );
    let mut parts = Parts {
        next: client::BLOBS_AT,
    };
    let code = Some((prepared.name(), parts.take(prepared.script().len())));
    let files = request
        .files
        .iter()
        .map(|file| (file.path.clone(), parts.take(file.bytes.len())))
        .collect();
    let mut environment = base_environment(layout, &surroundings.on_path);
    environment.extend(launch.env);
    environment.retain(|(name, _)| !request.env.keys().any(|given| given.as_str() == name));
    environment.extend(
        request
            .env
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned())),
    );
    Ok(house.native.claim(ClaimSpec {
        code,
        files,
        run: Run::Exec {
            argv: launch.argv,
            environment,
            report: launch.report_fd,
        },
        limits: grant.limits().clone(),
        grace_ms: GRACE_MS,
    }))
}

/// An interpreter and what it needs of the host.
struct Surroundings {
    interpreter: PathBuf,
    trees: Vec<PathBuf>,
    links: Vec<(PathBuf, String)>,
    on_path: Vec<PathBuf>,
}

fn surroundings(house: &House, language: Language) -> Result<Surroundings, RequestError> {
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

/// The bytes, in the order in which [`claim`] gave them their places.
pub(crate) fn blobs<'a>(grant: &'a Grant, prepared: &'a Prepared) -> Vec<&'a [u8]> {
    let files = grant.request().files.iter().map(|file| file.bytes.as_slice());
    std::iter::once(prepared.script().as_bytes())
        .chain(files)
        .collect()
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
        limits: WORKER_LIMITS,
    })
}

/// Its claim: no more than to begin.
pub(crate) fn claim_of_worker(house: &House) -> Claim {
    house.native.claim(ClaimSpec {
        code: None,
        files: Vec::new(),
        run: Run::Work,
        limits: WORKER_LIMITS,
        grace_ms: 0,
    })
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
    let plan = plan_of_worker(house, &uuid::Uuid::now_v7().to_string(), crate::ECHO)?;
    let claim = claim_of_worker(house);
    let (_cancel, cancelled) = tokio::sync::watch::channel(false);
    let wires = Wires {
        stdin: Stdin::FromRequest,
        stdin_bytes: Vec::new(),
        live: None,
        cancelled,
    };
    let isolation = plan.isolation(&claim, &house.native.host);
    let place = house.native.place(Arc::new(plan))?;
    let mut running = Running::start(place, &claim, &[], wires, 0)?;
    let early = running.started().await?;
    running.wait(early, isolation).await?;
    Ok(())
}

/// A parser of one megabyte of text.
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

/// Hands out the places of blobs in a payload.
struct Parts {
    next: u64,
}

impl Parts {
    fn take(&mut self, length: usize) -> Part {
        let part = Part {
            offset: self.next,
            length: length as u64,
        };
        self.next += part.length;
        part
    }
}
