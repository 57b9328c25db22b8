//! Collection: manifests that the list does not name, chunks that no manifest names, and what a crash left half
//! written. It runs alone. A manifest that cannot be read stops it before it removes anything: what it needs is
//! unknown.

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
    /// A snapshot was made or read at this moment, so nothing was done; try again later.
    pub busy: bool,
    pub packs: u64,
    pub bytes: u64,
}

impl SnapshotStore {
    /// Removes what no snapshot of the namespace needs. When one is made or read at this moment, nothing is done
    /// and [`Collected::busy`] says so.
    pub fn collect(&self, namespace: &Namespace) -> Result<Collected, SnapshotError> {
        match self.layout.find(namespace)? {
            Some(place) => self.collect_in(&place),
            None => Ok(Collected::default()),
        }
    }

    pub(super) fn collect_in(&self, place: &NamespaceDir) -> Result<Collected, SnapshotError> {
        let mut collected = Collected::default();
        let Some(_lock) = place.lock_alone()? else {
            collected.busy = true;
            return Ok(collected);
        };
        let before = place.stored_bytes()?;
        let list = list::read(place, &self.signer.public_key())?;
        let mut needed = HashSet::new();
        for listed in &list {
            let snapshot = Snapshot::read(place, listed.id, &listed.digest, &self.signer.public_key())?;
            needed.extend(snapshot.files().flat_map(|(_, content)| &content.chunks));
        }
        let named: HashSet<String> = list.iter().map(|listed| listed.id.to_string()).collect();
        remove(&place.manifests, |name| !named.contains(name))?;
        remove(&place.packs, |name| name.ends_with(UNFINISHED))?;
        remove(&place.root, |name| name.ends_with(UNFINISHED))?;
        collected.packs = sweep(&place.packs, needed)?;
        collected.bytes = before.saturating_sub(place.stored_bytes()?);
        Ok(collected)
    }
}

fn remove(directory: &Directory, unwanted: impl Fn(&str) -> bool) -> Result<(), FileError> {
    let mut files = directory.files()?;
    files.retain(|(name, _)| unwanted(name));
    files.iter().try_for_each(|(name, _)| directory.remove(name))
}

/// A pack of which less than half is needed is written anew, with only that.
fn sweep(packs: &Directory, mut needed: HashSet<ChunkId>) -> Result<u64, SnapshotError> {
    let index = Index::read(packs)?;
    let mut reader = PackReader::new(packs, &index);
    let mut writer = PackWriter::new(packs);
    let mut unneeded: Vec<&PackFile> = Vec::new();
    for (number, pack) in index.packs.iter().enumerate() {
        let here = |id: &ChunkId| {
            let spot = index.get(*id);
            // Of a chunk that lies in two packs, one is needed.
            spot.filter(|spot| spot.pack as usize == number && needed.contains(id))
        };
        let live = pack.chunks.iter().filter_map(here);
        let live_bytes: u64 = live.map(|spot| u64::from(spot.stored)).sum();
        if live_bytes * 2 >= pack.bytes {
            continue;
        }
        for id in pack.chunks.iter().filter(|id| here(id).is_some()) {
            reader.copy(*id, &mut writer)?;
        }
        unneeded.push(pack);
    }
    needed.clear();
    // On the disk before the packs go that they were in.
    writer.finish()?;
    for pack in &unneeded {
        packs.remove(&pack.name)?;
    }
    Ok(unneeded.len() as u64)
}
