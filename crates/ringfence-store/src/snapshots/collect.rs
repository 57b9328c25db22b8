//! Collection: manifests that the list does not name, chunks that no manifest names, and what a crash left half written.
//! It runs alone. A manifest that cannot be read stops it before it removes anything: nobody knows what it needs.

use super::{
    Snapshot, SnapshotError, SnapshotKind, SnapshotStore,
    chunk::ChunkId,
    layout::{Place, UNFINISHED},
    list,
    pack::{Index, PackFile, Reader, Writer},
};
use crate::artifacts::layout::{plain_files, unlink};
use ringfence_types::Namespace;
use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
};

/// What one collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Somebody made or read a snapshot at this moment, so nothing was done; try again later.
    pub busy: bool,
    /// Packs that were removed or written anew.
    pub packs: u64,
    /// Bytes freed.
    pub bytes: u64,
}

pub(super) fn collect(
    store: &SnapshotStore,
    place: &Place,
    namespace: &Namespace,
) -> Result<Collected, SnapshotError> {
    let Some(_lock) = place.lock_alone()? else {
        return Ok(Collected {
            busy: true,
            ..Collected::default()
        });
    };
    let before = place.stored_bytes()?;
    let list = list::read(place, namespace, &store.public_key())?;
    let mut needed = HashSet::new();
    for listed in &list {
        let snapshot = Snapshot::read(place, namespace, listed.id, &listed.digest, &store.public_key())?;
        for entry in snapshot.entries {
            if let SnapshotKind::File(content) = entry.kind {
                needed.extend(content.chunks);
            }
        }
    }
    let named: HashSet<String> = list.iter().map(|listed| listed.id.to_string()).collect();
    remove(place, place.manifests.as_fd(), |name| !named.contains(name))?;
    remove(place, place.packs.as_fd(), |name| name.ends_with(UNFINISHED))?;
    remove(place, place.root.as_fd(), |name| name.ends_with(UNFINISHED))?;
    let packs = sweep(place, needed)?;
    Ok(Collected {
        busy: false,
        packs,
        bytes: before.saturating_sub(place.stored_bytes()?),
    })
}

fn remove(
    place: &Place,
    directory: BorrowedFd<'_>,
    unwanted: impl Fn(&str) -> bool,
) -> Result<(), SnapshotError> {
    let failed = |step| SnapshotError::std(step, place.path());
    for (name, _) in plain_files(directory).map_err(failed("list"))? {
        if unwanted(&name) {
            unlink(directory, &name).map_err(failed("remove from"))?;
        }
    }
    Ok(())
}

/// A pack of which less than half is needed is written anew, with only that.
fn sweep(place: &Place, mut needed: HashSet<ChunkId>) -> Result<u64, SnapshotError> {
    let index = Index::read(place)?;
    let mut reader = Reader::new(place, &index);
    let mut writer = Writer::new(place);
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
        unlink(place.packs.as_fd(), &pack.name).map_err(SnapshotError::std(
            "remove",
            place.path().join("packs").join(&pack.name),
        ))?;
    }
    Ok(unneeded.len() as u64)
}
