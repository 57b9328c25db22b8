//! The languages of this host, and what a sandbox is here.

use super::Engine;
use crate::{
    caller::{OURS, Submission},
    containers::ContainerRuntime,
    error::Result,
    policy::{NamespaceState, decide},
    pool::Warmth,
    runtimes, warm,
};
use ringfence_types::{Backend, ExecuteRequest, ExitKind, Isolation, Language, Limits};
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf};

#[derive(Clone, Debug, Serialize)]
pub struct Runtime {
    pub language: Language,
    pub available: bool,
    pub path: Option<PathBuf>,
    /// As the interpreter says it, inside the sandbox.
    pub version: Option<String>,
    pub backends: Vec<String>,
    /// Containers that stand ready for it, by backend.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub containers_ready: BTreeMap<Backend, usize>,
    pub tier: String,
    pub warm: bool,
    pub ready: usize,
    /// Why none could be made ready, when that was tried last.
    pub trouble: Option<String>,
    pub preloaded: Vec<String>,
    /// What its sandboxes that wait take of the host's memory, with their templates.
    pub memory_bytes: u64,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SandboxInfo {
    /// Tier and layers that a run with default limits gets.
    pub isolation: Isolation,
    /// For requests that say nothing.
    pub defaults: Limits,
    /// The most that any request gets.
    pub caps: Limits,
}

impl Engine {
    /// The languages, each asked inside a sandbox for its version, once.
    pub async fn runtimes(&self) -> Vec<Runtime> {
        let known = self.versions.get_or_init(|| versions(self)).await;
        let mut runtimes = known.clone();
        for runtime in &mut runtimes {
            let warmth = match runtime.available {
                true => self.services.sandboxes.pools.warmth(runtime.language),
                false => Warmth::default(),
            };
            runtime.warm = warmth.ready > 0;
            runtime.ready = warmth.ready;
            runtime.memory_bytes = warmth.memory_bytes;
            runtime.preloaded = warmth.preloaded;
            runtime.trouble = warmth.trouble;
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

    /// The container engine's runtimes: whether they may be asked for, and work.
    pub async fn container_runtimes(&self) -> Vec<ContainerRuntime> {
        self.services.sandboxes.containers.runtimes().await
    }

    /// The same, and of each that is available one program that ran, in an image that is there.
    pub async fn prove_containers(&self) -> Vec<ContainerRuntime> {
        let mut runtimes = self.container_runtimes().await;
        for runtime in runtimes.iter_mut().filter(|runtime| runtime.available) {
            let Some((language, code)) = proof(runtime) else {
                continue;
            };
            let mut request = ExecuteRequest::new(language, code);
            request.backend = Some(runtime.backend);
            let failed = match self.submit(Submission::new(OURS.clone(), request)).finish().await {
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

/// A program for an image that is there.
fn proof(runtime: &ContainerRuntime) -> Option<(Language, &'static str)> {
    let images = &runtime.images;
    let programs = [
        (&images.shell, Language::Shell, "true"),
        (&images.python, Language::Python, "pass"),
        (&images.node, Language::Node, "0"),
    ];
    let mut there = programs
        .into_iter()
        .filter(|(image, ..)| !runtime.images_missing.contains(image));
    there.next().map(|(_, language, code)| (language, code))
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

/// Asks each interpreter for its version inside a sandbox.
async fn versions(engine: &Engine) -> Vec<Runtime> {
    let mut runtimes = Vec::new();
    for (language, code) in [
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
    ] {
        runtimes.push(ask_version(engine, language, code).await);
    }
    runtimes
}

async fn ask_version(engine: &Engine, language: Language, code: &str) -> Runtime {
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
        return runtime;
    }
    let mut request = ExecuteRequest::new(language, code);
    request.backend = Some(Backend::Native);
    let submission = Submission::new(OURS.clone(), request);
    match engine.submit(submission).finish().await {
        Ok(done) if done.success && !done.stdout.trim().starts_with(|c: char| c.is_ascii_digit()) => {
            runtime.reason = Some("it tells no version, so it is no interpreter of this language".to_owned());
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
        Err(error) => runtime.reason = Some(error.message),
    }
    runtime
}
