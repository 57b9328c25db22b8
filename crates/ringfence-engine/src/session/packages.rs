//! Packages for a running session. It keeps its packages: a new layer contains all of them.

use super::{Session, task::Job};
use crate::{
    caller::Requester,
    error::Result,
    packages::{LayerRequest, Packages, Provided},
    sync::lock,
};
use ringfence_store::layers::Package;
use ringfence_types::{RequestError, Requirement, with_packages_hint};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::oneshot;

#[derive(Default)]
pub(crate) struct ShownPackages {
    set: BTreeSet<Requirement>,
    /// Kept as long as the session: modules imported from an older layer may still be read.
    layers: Vec<Provided>,
}

/// Most layers of a session; each is a mount, and kept.
const LAYERS_MAX: usize = 32;

impl ShownPackages {
    pub(crate) fn new(set: BTreeSet<Requirement>, provided: Option<Provided>) -> Self {
        Self {
            set,
            layers: provided.into_iter().collect(),
        }
    }

    /// Returns the requirements, as the caller wrote them.
    pub(crate) fn names(&self) -> Vec<String> {
        self.set.iter().map(|one| one.as_str().to_owned()).collect()
    }

    fn replaced_by(&self, now: &[Package]) -> Vec<String> {
        let had = self.layers.iter().flat_map(|provided| provided.layer.packages());
        let replaced: BTreeSet<String> = had
            .filter(|had| {
                now.iter()
                    .any(|now| now.name == had.name && now.version != had.version)
            })
            .map(|had| format!("{} {}", had.name, had.version))
            .collect();
        replaced.into_iter().collect()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// All packages, including dependencies.
    pub packages: Vec<Package>,
    /// Output of the installer; empty if they were installed before.
    pub output: String,
    /// Packages that the session had in another version, as `tabulate 0.10.0`. Modules imported from them stay.
    pub replaced: Vec<String>,
    /// From the request to the answer.
    pub duration: Duration,
}

/// Adds these packages to a session, in its turn. `None`: it has them already.
pub(crate) async fn provide(
    packages: &Arc<Packages>,
    session: &Session,
    requester: Requester,
    wanted: &BTreeSet<Requirement>,
) -> Result<Option<Installed>> {
    let (set, layers) = {
        let shown = lock(&session.packages);
        if wanted.is_subset(&shown.set) {
            return Ok(None);
        }
        (shown.set.union(wanted).cloned().collect(), shown.layers.len())
    };
    if layers >= LAYERS_MAX {
        return Err(RequestError::invalid(
            format!("packages were added to the session {LAYERS_MAX} times."),
            "Make a session with all that it needs in `packages`.",
        ));
    }
    let request = LayerRequest {
        requester,
        namespace: &session.namespace,
        language: session.language.packaged_as(),
        set: &set,
    };
    let provided = packages.layer(&request).await;
    let provided = provided.map_err(|error| with_packages_hint(error, session.language))?;
    let (done, attached) = oneshot::channel();
    let job = Job::Layer(provided.name.clone(), done);
    session.jobs.send(job).await.map_err(|_| session.ended())?;
    attached.await.map_err(|_| session.ended())??;
    let mut shown = lock(&session.packages);
    let packages = provided.layer.packages();
    let told = Installed {
        output: provided.output.clone(),
        packages: packages.to_vec(),
        replaced: shown.replaced_by(packages),
        ..Installed::default()
    };
    shown.set = set;
    shown.layers.push(provided);
    Ok(Some(told))
}
