//! What a namespace has, newest first, reading no more manifests than it must.

use super::{
    ArtifactError, Manifest,
    layout::{Layout, plain_files},
};
use ringfence_types::Namespace;
use std::{cmp::Reverse, os::fd::AsFd};

const LISTED_MAX: usize = 1000;

/// One execution of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// For [`super::ArtifactStore::manifest`].
    pub execution_id: String,
    /// When its artifacts were published.
    pub created_unix_ms: u64,
    /// How many they are.
    pub artifacts: usize,
    /// The sum of their sizes.
    pub size_bytes: u64,
}

pub(super) fn list(
    layout: &Layout,
    namespace: &Namespace,
    limit: usize,
    check: impl Fn(&Manifest, &str) -> Result<(), String>,
) -> Result<Vec<Listed>, ArtifactError> {
    let limit = limit.min(LISTED_MAX);
    let files = plain_files(layout.executions.as_fd());
    let mut files = files.map_err(|error| layout.failed("list", "executions", error))?;
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

fn summary(manifest: Manifest) -> Listed {
    let sizes = manifest.artifacts.iter().map(|item| item.size_bytes);
    Listed {
        artifacts: manifest.artifacts.len(),
        size_bytes: sizes.fold(0, u64::saturating_add),
        execution_id: manifest.execution_id,
        created_unix_ms: manifest.created_unix_ms,
    }
}
