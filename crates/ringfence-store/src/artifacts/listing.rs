//! What a namespace has, newest first, reading no more manifests than it must.

use super::{ArtifactError, Manifest, layout::ArtifactsDir};
use ringfence_types::Namespace;
use std::cmp::Reverse;

const LISTED_MAX: usize = 1000;

/// One execution of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExecution {
    /// For [`super::ArtifactStore::manifest`].
    pub execution_id: String,
    pub created_unix_ms: u64,
    pub artifacts: usize,
    /// The sum of their sizes.
    pub size_bytes: u64,
}

pub(super) fn list(
    layout: &ArtifactsDir,
    namespace: &Namespace,
    limit: usize,
    check: impl Fn(&Manifest, &str) -> Result<(), String>,
) -> Result<Vec<ListedExecution>, ArtifactError> {
    let limit = limit.min(LISTED_MAX);
    let mut files = layout.executions.files()?;
    // A manifest's time is set when it is published.
    files.sort_by_key(|(_, stat)| Reverse((stat.st_mtime, stat.st_mtime_nsec)));
    let mut listed = Vec::new();
    for (file_name, _) in &files {
        if listed.len() >= limit {
            break;
        }
        let Some(execution_id) = file_name.strip_suffix(".json") else {
            continue;
        };
        // None: a sweep has taken it since.
        let Some(text) = layout.read_manifest(file_name)? else {
            continue;
        };
        let read = Manifest::from_json(&text);
        if read
            .as_ref()
            .is_ok_and(|manifest| manifest.namespace != *namespace)
        {
            continue;
        }
        match read.and_then(|manifest| check(&manifest, execution_id).map(|()| manifest)) {
            Ok(manifest) => listed.push(summary(manifest)),
            Err(what) => tracing::warn!(execution_id, what, "a damaged manifest is left out of a list"),
        }
    }
    listed.sort_by_key(|one| Reverse(one.created_unix_ms));
    Ok(listed)
}

fn summary(manifest: Manifest) -> ListedExecution {
    let sizes = manifest.artifacts.iter().map(|item| item.size_bytes);
    ListedExecution {
        artifacts: manifest.artifacts.len(),
        size_bytes: sizes.fold(0, u64::saturating_add),
        execution_id: manifest.execution_id,
        created_unix_ms: manifest.created_unix_ms,
    }
}
