//! Images: found by name, pulled if the operator allows it, pinned by a digest if the operator requires it.

use crate::{
    container::{TARGETS, TMPFS},
    engine::{ContainerEngine, ImageFacts, lock},
    error::EngineError,
};
use bollard::{errors::Error, models::ImageInspect, query_parameters::CreateImageOptionsBuilder};
use futures_util::StreamExt;
use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

const PULL_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum age of the fact which image a name means.
const NAME_MAX_AGE: Duration = Duration::from_secs(60);

impl ContainerEngine {
    /// Returns the image of this name, pulled if that is needed and allowed.
    pub async fn image(&self, name: &str) -> Result<Arc<ImageFacts>, EngineError> {
        let known = lock(&self.images).get(name).cloned();
        if let Some((_, known)) = known.filter(|(when, _)| when.elapsed() < NAME_MAX_AGE) {
            return Ok(known);
        }
        let found = Arc::new(find(self, name).await?);
        lock(&self.images).insert(name.to_owned(), (Instant::now(), found.clone()));
        Ok(found)
    }

    pub async fn has_image(&self, name: &str) -> bool {
        matches!(inspect(self, name).await, Ok(Some(_)))
    }
}

async fn find(engine: &ContainerEngine, name: &str) -> Result<ImageFacts, EngineError> {
    let is_pinned = name.contains("@sha256:") || name.starts_with("sha256:");
    if engine.settings.require_digest && !is_pinned {
        return Err(EngineError::NotPinned {
            image: name.to_owned(),
        });
    }
    match inspect(engine, name).await? {
        Some(found) => return Ok(found),
        None if engine.settings.pull => pull(engine, name).await?,
        None => return Err(absent(name, "it is missing, and `containers.pull` is off")),
    }
    let found = inspect(engine, name).await?;
    found.ok_or_else(|| absent(name, "it was pulled, but is still missing"))
}

fn absent(name: &str, why: impl Into<String>) -> EngineError {
    EngineError::NoImage {
        image: name.to_owned(),
        why: why.into(),
    }
}

async fn inspect(engine: &ContainerEngine, name: &str) -> Result<Option<ImageFacts>, EngineError> {
    let inspected = timeout(crate::engine::REQUEST_TIMEOUT, engine.docker.inspect_image(name)).await;
    let inspected = match inspected {
        Ok(Ok(inspected)) => inspected,
        Ok(Err(Error::DockerResponseServerError { status_code: 404, .. })) => return Ok(None),
        Ok(Err(error)) => return Err(EngineError::of("inspect an image", &engine.socket(), &error)),
        Err(_) => return Err(absent(name, "the engine takes too long to say")),
    };
    facts(name, inspected).map(Some)
}

fn facts(name: &str, inspected: ImageInspect) -> Result<ImageFacts, EngineError> {
    let config = inspected.config.unwrap_or_default();
    let environment = config.env.unwrap_or_default();
    let path = environment
        .iter()
        .find_map(|variable| variable.strip_prefix("PATH="));
    let is_plain = |directory: &&str| directory.starts_with('/') && !directory.contains(char::is_control);
    Ok(ImageFacts {
        name: name.to_owned(),
        id: inspected.id.unwrap_or_else(|| name.to_owned()),
        path: path
            .unwrap_or_default()
            .split(':')
            .filter(is_plain)
            .map(str::to_owned)
            .collect(),
        volumes: volumes(name, config.volumes.unwrap_or_default())?,
    })
}

/// Returns the normalised paths of an image's volumes except those that are mount points of a sandbox anyway. Refuses a
/// volume that would hide these, or would lie in one that is not a tmpfs.
fn volumes(name: &str, declared: Vec<String>) -> Result<Vec<String>, EngineError> {
    let mut volumes = Vec::new();
    for volume in declared {
        let path: PathBuf = Path::new(&volume).components().collect();
        if TARGETS.iter().any(|target| path == Path::new(target)) {
            continue;
        }
        let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
        let overlaps = |target: &&str| {
            Path::new(target).starts_with(&path) || path.starts_with(target) && !TMPFS.contains(target)
        };
        if !is_plain || TARGETS.iter().any(overlaps) {
            let image = name.to_owned();
            return Err(EngineError::Volume { image, volume });
        }
        volumes.push(path.display().to_string());
    }
    Ok(volumes)
}

/// Pulls it, with its progress in the log.
async fn pull(engine: &ContainerEngine, name: &str) -> Result<(), EngineError> {
    tracing::info!(image = name, "fetching an image");
    let mut options = CreateImageOptionsBuilder::new().from_image(name);
    if !name.contains('@') && !name.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        options = options.tag("latest");
    }
    let mut progress = engine.docker.create_image(Some(options.build()), None, None);
    let fetched = async {
        while let Some(step) = progress.next().await {
            let step =
                step.map_err(
                    |error| match EngineError::of("fetch the image", &engine.socket(), &error) {
                        EngineError::Refused { why, .. } => absent(name, why),
                        other => absent(name, other.to_string()),
                    },
                )?;
            tracing::debug!(
                image = name,
                status = step.status,
                id = step.id,
                "fetching an image"
            );
        }
        Ok(())
    };
    let late = || {
        Err(absent(
            name,
            format!("it could not be fetched within {} s", PULL_TIMEOUT.as_secs()),
        ))
    };
    timeout(PULL_TIMEOUT, fetched).await.unwrap_or_else(|_| late())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_covered_or_refused() {
        let image = |config| facts("x", serde_json::from_str(config).unwrap());
        let plain = image(r#"{"Config": {"Env": ["PATH=/bin"]}}"#).unwrap();
        assert_eq!((plain.path, plain.volumes), (vec!["/bin".to_owned()], vec![]));
        let covered = image(
            r#"{"Config": {"Volumes": {"/data/": {}, "/tmp": {}, "/workspace": {}, "/tmp/x": {}, "/codex": {}}}}"#,
        );
        let mut covered = covered.unwrap().volumes;
        covered.sort();
        assert_eq!(covered, ["/codex", "/data", "/tmp/x"]);
        let below = TARGETS.iter().filter(|target| !TMPFS.contains(target));
        let below: Vec<String> = below.map(|target| format!("{target}/x")).collect();
        assert_eq!(below.len(), 5);
        let other = ["/", "/etc", "/home", "data", "/data/../tmp"];
        for volume in below.iter().map(String::as_str).chain(other) {
            let refused = volumes("x", vec![volume.to_owned()]);
            assert!(
                matches!(refused, Err(EngineError::Volume { .. })),
                "{volume}: {refused:?}"
            );
        }
    }
}
