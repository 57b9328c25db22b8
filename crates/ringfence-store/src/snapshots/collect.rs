//! Garbage collection of manifests that the list does not name, chunks that no manifest names, and half written files.
//! It runs alone. A manifest that cannot be read stops it before it removes anything: its chunks are unknown.

use super::{Snapshot, SnapshotError, SnapshotStore, layout::NamespaceDir, list};
use crate::{
    blobs::{
        chunk::ChunkId,
        pack::{Index, PackFile, PackReader, PackWriter},
    },
    whole_file::{Directory, FileError, UNFINISHED},
};
use ringfence_types::Namespace;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// True if nothing was done, because a snapshot was being created or read; try again later.
    pub busy: bool,
    pub packs: u64,
    pub bytes: u64,
}

impl SnapshotStore {
    /// Removes what no snapshot of the namespace needs. While one is created or read, it only sets [`Collected::busy`].
    pub fn collect(&self, namespace: &Namespace) -> Result<Collected, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(dir) => self.collect_in(&dir),
            None => Ok(Collected::default()),
        }
    }

    pub(super) fn collect_in(&self, dir: &NamespaceDir) -> Result<Collected, SnapshotError> {
        let mut collected = Collected::default();
        let Some(_lock) = dir.lock_alone()? else {
            collected.busy = true;
            return Ok(collected);
        };
        let before = dir.stored_bytes()?;
        let list = list::read(dir, &self.signer.public_key())?;
        let mut needed = HashSet::new();
        for listed in &list {
            let snapshot = Snapshot::read(dir, listed.id, &listed.digest, &self.signer.public_key())?;
            needed.extend(snapshot.files().flat_map(|(_, content)| &content.chunks));
        }
        let named: HashSet<String> = list.iter().map(|listed| listed.id.to_string()).collect();
        remove(&dir.manifests, |name| !named.contains(name))?;
        remove(&dir.packs, |name| name.ends_with(UNFINISHED))?;
        remove(&dir.root, |name| name.ends_with(UNFINISHED))?;
        collected.packs = sweep(&dir.packs, needed)?;
        collected.bytes = before.saturating_sub(dir.stored_bytes()?);
        Ok(collected)
    }
}

fn remove(directory: &Directory, unwanted: impl Fn(&str) -> bool) -> Result<(), FileError> {
    let mut files = directory.files()?;
    files.retain(|(name, _)| unwanted(name));
    files.iter().try_for_each(|(name, _)| directory.remove(name))
}

/// Replaces each pack of which less than half is needed by one with only the needed chunks.
fn sweep(packs: &Directory, mut needed: HashSet<ChunkId>) -> Result<u64, SnapshotError> {
    let index = Index::read(packs)?;
    let mut reader = PackReader::new(packs, &index);
    let mut writer = PackWriter::new(packs);
    let mut unneeded: Vec<&PackFile> = Vec::new();
    for (number, pack) in index.packs.iter().enumerate() {
        let here = |id: &ChunkId| {
            let location = index.get(*id);
            // Of a chunk in two packs, only the indexed copy is needed.
            location.filter(|location| location.pack as usize == number && needed.contains(id))
        };
        let live = pack.chunks.iter().filter_map(here);
        let live_bytes: u64 = live.map(|location| u64::from(location.stored)).sum();
        if live_bytes * 2 >= pack.bytes {
            continue;
        }
        for id in pack.chunks.iter().filter(|id| here(id).is_some()) {
            reader.copy(*id, &mut writer)?;
        }
        unneeded.push(pack);
    }
    needed.clear();
    // The copies must be on the disk before their old packs are removed.
    writer.finish()?;
    for pack in &unneeded {
        packs.remove(&pack.name)?;
    }
    Ok(unneeded.len() as u64)
}
