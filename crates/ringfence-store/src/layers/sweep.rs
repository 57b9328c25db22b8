//! Removes layers that have not been used for long, and the oldest when all together are too large. One that is in
//! use by any process stays. While the clock has jumped ([`clock`]) none is too old.

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
pub struct LayersKept {
    pub age: Duration,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayersSwept {
    pub removed: usize,
    /// Bytes of those that stay.
    pub bytes: u64,
}

impl Layers {
    pub fn sweep(&self, kept: LayersKept) -> Result<LayersSwept, LayerError> {
        let _places = self.places()?;
        let mut layers = Vec::new();
        for name in self.names(LAYERS)? {
            let used = fs::metadata(self.place(LOCKS, &name)).and_then(|lock| lock.modified());
            let manifest = manifest::read::<LayerManifest>(&self.signer, &self.place(MANIFESTS, &name));
            // One without a manifest was never put in place to the end.
            let bytes = manifest.ok().flatten().map_or(0, |manifest| manifest.bytes());
            layers.push((used.unwrap_or(SystemTime::UNIX_EPOCH), bytes, name));
        }
        layers.sort();
        let mut swept = LayersSwept {
            removed: 0,
            bytes: layers.iter().map(|(_, bytes, _)| bytes).sum(),
        };
        let now = clock::for_retention(&self.directory.join(LAYERS), SystemTime::now());
        for (used, bytes, name) in layers {
            let age = now.and_then(|now| now.duration_since(used).ok());
            let is_old = age.is_some_and(|age| age > kept.age);
            if (is_old || swept.bytes > kept.bytes) && self.remove_layer(&name)? {
                swept.removed += 1;
                swept.bytes -= bytes;
            }
        }
        self.forget_sets()?;
        self.forget_unfinished()?;
        self.forget_locks()?;
        Ok(swept)
    }

    fn remove_layer(&self, name: &str) -> Result<bool, LayerError> {
        let Some(_alone) = self.alone(name)? else {
            return Ok(false);
        };
        // The manifest first: a layer without one does not count.
        remove(&self.place(MANIFESTS, name))?;
        remove(&self.place(LAYERS, name))?;
        self.checked().remove(name);
        Ok(true)
    }

    fn forget_sets(&self) -> Result<(), LayerError> {
        for name in self.names(SETS)? {
            let path = self.place(SETS, &name);
            let resolved = manifest::read::<Resolved>(&self.signer, &path).ok().flatten();
            if !resolved.is_some_and(|resolved| self.place(MANIFESTS, &resolved.layer).exists()) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// What killed servers have left: a set is made under its lock, and texts are written by the holder of the places,
    /// as this is.
    fn forget_unfinished(&self) -> Result<(), LayerError> {
        for part in [SETS, MANIFESTS] {
            for name in self.names(part)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
                remove(&self.place(part, name))?;
            }
        }
        for name in self.names(MAKING)? {
            // Texts of earlier versions have a dot in their names.
            if name.contains('.') || self.alone(&name)?.is_some() {
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
