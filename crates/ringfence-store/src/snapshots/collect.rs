//! Collection: manifests that the list does not name, chunks that no manifest names, and what a crash left half
//! written. It runs alone. A manifest that cannot be read stops it before it removes anything: what it needs is
//! unknown.

use super::{Snapshot, SnapshotError, SnapshotKind, SnapshotStore, layout::NamespaceDir, list};
use crate::{
    blobs::{
        chunk::ChunkId,
        pack::{Index, PackFile, PackReader, PackWriter},
    },
    whole_file::{Directory, FileError, UNFINISHED},
};
use std::collections::HashSet;

/// What one collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// A snapshot was made or read at this moment, so nothing was done; try again later.
    pub busy: bool,
    /// Packs that were removed or written anew.
    pub packs: u64,
    /// Bytes freed.
    pub bytes: u64,
}

pub(super) fn collect(store: &SnapshotStore, place: &NamespaceDir) -> Result<Collected, SnapshotError> {
    let Some(_lock) = place.lock_alone()? else {
        return Ok(Collected {
            busy: true,
            ..Collected::default()
        });
    };
    let before = place.stored_bytes()?;
    let list = list::read(place, &store.public_key())?;
    let mut needed = HashSet::new();
    for listed in &list {
        let snapshot = Snapshot::read(place, listed.id, &listed.digest, &store.public_key())?;
        for entry in snapshot.entries {
            if let SnapshotKind::File(content) = entry.kind {
                needed.extend(content.chunks);
            }
        }
    }
    let named: HashSet<String> = list.iter().map(|listed| listed.id.to_string()).collect();
    remove(&place.manifests, |name| !named.contains(name))?;
    remove(&place.packs, |name| name.ends_with(UNFINISHED))?;
    remove(&place.root, |name| name.ends_with(UNFINISHED))?;
    let packs = sweep(&place.packs, needed)?;
    Ok(Collected {
        busy: false,
        packs,
        bytes: before.saturating_sub(place.stored_bytes()?),
    })
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
        let live_bytes: u64 = pack
            .chunks
            .iter()
            .filter_map(here)
            .map(|spot| u64::from(spot.stored))
            .sum();
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
