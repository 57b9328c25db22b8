//! The languages of this host, and the isolation and limits of its sandboxes.

use super::Engine;
use crate::{
    caller::{ENGINE_CALLER, Submission},
    containers::ContainerRuntime,
    error::Result,
    policy::{NamespaceState, decide},
    pool::PoolStatus,
    runtimes, warm,
};
use ringfence_types::{Backend, ErrorCode, ExecuteRequest, ExitKind, Isolation, Language, Limits};
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf};

/// The languages, each with a program that prints its version.
pub(super) const PROGRAMS: [(Language, &str); 3] = [
    (
        Language::Python,
        "import sys\nprint('.'.join(map(str, sys.version_info[:3])))",
    ),
    // A module of `warm.preload_node` may have another console.
    (
        Language::Node,
        "require('fs').writeSync(1, process.versions.node)",
    ),
    (Language::Shell, "echo \"${BASH_VERSION%%(*}\""),
];

#[derive(Clone, Debug, Serialize)]
pub struct Runtime {
    pub language: Language,
    pub available: bool,
    pub path: Option<PathBuf>,
    /// The version that the interpreter reports inside a sandbox.
    pub version: Option<String>,
    pub backends: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub containers_ready: BTreeMap<Backend, usize>,
    pub tier: String,
    pub warm: bool,
    pub ready: usize,
    /// The reason why the last attempt to make a sandbox ready failed.
    pub trouble: Option<String>,
    pub preloaded: Vec<String>,
    /// Host memory used by its ready sandboxes, including their templates.
    pub memory_bytes: u64,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SandboxInfo {
    /// Tier and layers of a run with default limits.
    pub isolation: Isolation,
    /// Limits of requests that name none.
    pub defaults: Limits,
    /// Maximum limits of any request.
    pub caps: Limits,
}

impl Engine {
    /// Returns the languages. Their versions are determined once, each inside a sandbox; again if it was busy.
    pub async fn runtimes(&self) -> Vec<Runtime> {
        let mut runtimes = Vec::new();
        for (known, (language, code)) in self.versions.iter().zip(PROGRAMS) {
            let runtime = known.get_or_try_init(|| version(self, language, code)).await;
            runtimes.push(runtime.cloned().unwrap_or_else(|refused| *refused));
        }
        for runtime in &mut runtimes {
            let pool_status = match runtime.available {
                true => self.services.sandboxes.pools.pool_status(runtime.language),
                false => PoolStatus::default(),
            };
            runtime.warm = pool_status.ready > 0;
            runtime.ready = pool_status.ready;
            runtime.memory_bytes = pool_status.memory_bytes;
            runtime.preloaded = pool_status.preloaded;
            runtime.trouble = pool_status.trouble;
        }
        let containers = self.container_runtimes().await;
        let containers = containers.iter().filter(|runtime| runtime.available);
        let names: Vec<String> = containers.map(|runtime| runtime.backend.to_string()).collect();
        for runtime in &mut runtimes {
            runtime.backends.extend(names.iter().cloned());
            runtime.containers_ready = self.services.sandboxes.containers.ready(runtime.language);
        }
        let typescript = runtimes.iter().find(|runtime| runtime.language == Language::Node);
        let typescript = typescript.cloned().map(|node| Runtime {
            language: Language::Typescript,
            ..node
        });
        runtimes.extend(typescript);
        warm::fill(&self.services.sandboxes);
        runtimes
    }

    /// Returns the container backends, and if each is allowed and available.
    pub async fn container_runtimes(&self) -> Vec<ContainerRuntime> {
        self.services.sandboxes.containers.runtimes().await
    }

    /// Returns the container backends, after running a program in each available one that has an image.
    pub async fn prove_containers(&self) -> Vec<ContainerRuntime> {
        let mut runtimes = self.container_runtimes().await;
        for runtime in runtimes.iter_mut().filter(|runtime| runtime.available) {
            let Some((language, code)) = proof(runtime) else {
                runtime.available = self.services.sandboxes.containers.settings.pull;
                let none = || "none of its images was found. Pull them, or set `containers.pull: true`.";
                runtime.reason = (!runtime.available).then(|| none().to_owned());
                continue;
            };
            let mut request = ExecuteRequest::new(language, code);
            request.backend = Some(runtime.backend);
            let submission = Submission::new(ENGINE_CALLER.clone(), request);
            let failed = match self.submit(submission).finish().await {
                Ok(done) if done.success => None,
                Ok(done) => Some(last_line(&done.stderr)),
                Err(error) => Some(format!("{} {}", error.message, error.hint)),
            };
            runtime.available = failed.is_none();
            runtime.reason = failed;
        }
        runtimes
    }

    pub fn info(&self) -> Result<SandboxInfo> {
        let policy = self.services.policy.current();
        let grant = decide(
            &policy,
            &NamespaceState::default(),
            &self.services.policy.private,
            ExecuteRequest {
                backend: Some(policy.backends.default),
                ..ExecuteRequest::new(Language::Shell, "true")
            },
        )?;
        let isolation = self.services.sandboxes.isolation(&grant.limits)?;
        Ok(SandboxInfo {
            isolation,
            defaults: policy.defaults.clone(),
            caps: policy.caps.clone(),
        })
    }
}

/// Returns a program for an image that the engine has.
fn proof(runtime: &ContainerRuntime) -> Option<(Language, &'static str)> {
    let images = &runtime.images;
    let programs = [
        (&images.shell, Language::Shell, "true"),
        (&images.python, Language::Python, "pass"),
        (&images.node, Language::Node, "0"),
    ];
    let mut present = programs
        .into_iter()
        .filter(|(image, ..)| !runtime.images_missing.contains(image));
    present.next().map(|(_, language, code)| (language, code))
}

fn last_line(text: &str) -> String {
    text.trim()
        .lines()
        .last()
        .unwrap_or("")
        .chars()
        .take(200)
        .collect()
}

/// Returns a language and its version. Error: the language, unavailable because the server was busy.
async fn version(engine: &Engine, language: Language, code: &str) -> Result<Runtime, Box<Runtime>> {
    let found = runtimes::find(language, &engine.services.sandboxes.runtimes);
    let path = found.map(|found| found.interpreter);
    let mut runtime = Runtime {
        language,
        available: false,
        path: path.as_ref().ok().cloned(),
        version: None,
        backends: Vec::new(),
        tier: engine.services.sandboxes.tier.to_string(),
        containers_ready: BTreeMap::new(),
        warm: false,
        ready: 0,
        trouble: None,
        preloaded: Vec::new(),
        memory_bytes: 0,
        reason: path.err().map(|error| error.message),
    };
    if runtime.reason.is_some() {
        return Ok(runtime);
    }
    let mut request = ExecuteRequest::new(language, code);
    request.backend = Some(Backend::Native);
    let submission = Submission::new(ENGINE_CALLER.clone(), request);
    match engine.submit(submission).finish().await {
        Ok(done) if done.success && !done.stdout.trim().starts_with(|c: char| c.is_ascii_digit()) => {
            runtime.reason = Some("it reports no version: not an interpreter of this language".to_owned());
        }
        Ok(done) if done.exit.kind == ExitKind::Code && done.success => {
            runtime.version = Some(done.stdout.trim().to_owned());
            runtime.available = true;
            runtime.backends = vec!["native".to_owned()];
        }
        Ok(done) => {
            let line = last_line(&done.stderr);
            runtime.reason = Some(format!("it does not start in a sandbox: {line}"));
        }
        Err(error) => {
            let may_pass = error.code == ErrorCode::Busy;
            runtime.reason = Some(error.message);
            if may_pass {
                return Err(Box::new(runtime));
            }
        }
    }
    Ok(runtime)
}
