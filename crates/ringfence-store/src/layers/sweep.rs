//! Removes layers that have not been used for long, and the least recently used ones if all are too large. A layer in
//! use by any process is kept; after a clock jump ([`clock`]) none is removed for its age.

use super::{
    LAYERS, LOCKS, LayerError, Layers, MAKING, MANIFESTS, SETS, manifest,
    manifest::{LayerManifest, Resolved},
    remove,
};
use crate::{FileError, clock, whole_file::UNFINISHED};
use std::{
    fs,
    time::{Duration, SystemTime},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRetention {
    pub age: Duration,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayersSwept {
    pub removed: usize,
    /// Bytes of the remaining layers.
    pub bytes: u64,
}

impl Layers {
    pub fn sweep(&self, kept: LayerRetention) -> Result<LayersSwept, LayerError> {
        let _places = self.lock_places()?;
        let mut layers = Vec::new();
        for name in self.names(LAYERS)? {
            let used = fs::metadata(self.place(LOCKS, &name)).and_then(|lock| lock.modified());
            let manifest = manifest::read::<LayerManifest>(&self.signer, &self.place(MANIFESTS, &name));
            // A layer without a manifest was not completely installed.
            let bytes = manifest.ok().flatten().map_or(0, |manifest| manifest.bytes());
            layers.push((used.unwrap_or(SystemTime::UNIX_EPOCH), bytes, name));
        }
        layers.sort();
        let bytes = layers.iter().map(|(_, bytes, _)| bytes).sum();
        let mut swept = LayersSwept { removed: 0, bytes };
        let now = clock::for_retention(&self.directory.join(LAYERS), SystemTime::now());
        for (used, bytes, name) in layers {
            let age = now.and_then(|now| now.duration_since(used).ok());
            let is_old = age.is_some_and(|age| age > kept.age);
            if (is_old || swept.bytes > kept.bytes) && self.remove_layer(&name)? {
                swept.removed += 1;
                swept.bytes -= bytes;
            }
        }
        self.remove_stale_sets()?;
        self.remove_leftovers()?;
        self.remove_stale_locks()?;
        Ok(swept)
    }

    fn remove_layer(&self, name: &str) -> Result<bool, LayerError> {
        let Some(_lock) = self.try_lock_exclusive(name)? else {
            return Ok(false);
        };
        // The manifest first: a layer without one is not valid.
        remove(&self.place(MANIFESTS, name))?;
        remove(&self.place(LAYERS, name))?;
        self.checked().remove(name);
        Ok(true)
    }

    fn remove_stale_sets(&self) -> Result<(), LayerError> {
        for name in self.names(SETS)? {
            let path = self.place(SETS, &name);
            let resolved = manifest::read::<Resolved>(&self.signer, &path).ok().flatten();
            if !resolved.is_some_and(|resolved| self.place(MANIFESTS, &resolved.layer).exists()) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes leftovers of killed servers. A set is built under its lock, texts are written by the holder of `places`.
    fn remove_leftovers(&self) -> Result<(), LayerError> {
        for part in [SETS, MANIFESTS] {
            for name in self.names(part)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
                remove(&self.place(part, name))?;
            }
        }
        for name in self.names(MAKING)? {
            // Earlier versions wrote texts here, with a dot in their names.
            if name.contains('.') || self.try_lock_exclusive(&name)?.is_some() {
                remove(&self.place(MAKING, &name))?;
            }
        }
        Ok(())
    }

    pub(super) fn names(&self, part: &str) -> Result<Vec<String>, LayerError> {
        let path = self.directory.join(part);
        let entries = fs::read_dir(&path).map_err(FileError::at("list", &path))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }
}
