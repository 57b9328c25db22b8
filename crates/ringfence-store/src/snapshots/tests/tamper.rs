//! Tampering: a user with write access to the store can delete it, but cannot make it restore anything but what was
//! saved.

use crate::snapshots::{
    tests::fixture::{Scratch, about, namespace, noise, populate, set_mtime, settle},
    *,
};
use std::{fs, os::fd::AsFd, path::Path};

/// Restores into an empty workspace, which must still be empty after an error.
fn attempt(scratch: &Scratch, id: SnapshotId) -> Result<(), SnapshotError> {
    fs::remove_dir_all(scratch.path("")).unwrap();
    fs::create_dir(scratch.path("")).unwrap();
    let restored =
        scratch
            .store()
            .restore(&Source::Namespace, id, &namespace("ours"), scratch.root().as_fd());
    if restored.is_err() {
        assert_eq!(scratch.state().len(), 1, "nothing is half restored");
    }
    restored.map(|_| ())
}

#[test]
fn flipped_byte_in_store_is_detected_or_harmless() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let id = scratch.create(&store).id;
    let good = scratch.state();
    let files: Vec<PathBuf> = scratch
        .stored()
        .into_iter()
        .filter(|path| fs::metadata(path).unwrap().len() > 0)
        .collect();
    assert_eq!(files.len(), 3, "a pack, a manifest and the list: {files:?}");
    let (mut refused, mut restored) = (0, 0);
    for path in &files {
        let bytes = fs::read(path).unwrap();
        let step = bytes.len() / 40 + 1;
        let positions = (0..bytes.len())
            .step_by(step)
            .chain(bytes.len().saturating_sub(60)..bytes.len());
        for at in positions {
            let mut bad = bytes.clone();
            bad[at] ^= 0x41;
            fs::write(path, bad).unwrap();
            match attempt(&scratch, id) {
                Ok(()) => {
                    assert_eq!(scratch.state(), good, "{path:?} {at}");
                    restored += 1;
                }
                Err(SnapshotError::Damaged { what }) => {
                    assert!(!what.is_empty());
                    refused += 1;
                }
                Err(error) => panic!("{path:?} {at}: {error}"),
            }
        }
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            fs::write(path, &bytes[..length]).unwrap();
            match attempt(&scratch, id) {
                Ok(()) => assert_eq!(scratch.state(), good),
                Err(SnapshotError::Damaged { .. }) => refused += 1,
                Err(error) => panic!("{path:?} cut to {length}: {error}"),
            }
        }
        fs::remove_file(path).unwrap();
        assert!(
            matches!(attempt(&scratch, id), Err(SnapshotError::Damaged { .. })),
            "{path:?} is missing"
        );
        fs::write(path, bytes).unwrap();
    }
    assert!(
        attempt(&scratch, id).is_ok() && scratch.state() == good,
        "the control: nothing is left damaged"
    );
    assert!(
        refused > 150 && restored > 50,
        "{refused} refused, {restored} restored by an index made anew"
    );
}

#[test]
fn forged_swapped_and_foreign_manifests_are_refused() {
    let scratch = Scratch::new();
    scratch.write("file", "first");
    let store = scratch.store();
    let first = scratch.create(&store).id;
    scratch.write("file", "second");
    let second = scratch.create(&store).id;
    let dir = scratch.base.join("store/namespaces/ours");
    let manifest = |id: SnapshotId| dir.join("manifests").join(id.to_string());
    let (one, two) = (
        fs::read(manifest(first)).unwrap(),
        fs::read(manifest(second)).unwrap(),
    );
    let damaged = |id| matches!(attempt(&scratch, id), Err(SnapshotError::Damaged { .. }));
    fs::write(manifest(first), &two).unwrap();
    assert!(damaged(first), "another snapshot's");
    fs::write(manifest(first), &one).unwrap();
    // Manifest and list signed with the attacker's own key.
    let own = Signer::in_memory().unwrap();
    let mut forged = store.manifest(first, &namespace("ours")).unwrap();
    forged.entries[0].path = "../outside".into();
    let opened = store.layout.find(&namespace("ours")).unwrap().unwrap();
    let (digest, _) = forged.write(&opened, &own).unwrap();
    assert!(damaged(first), "another digest");
    let good_list = fs::read(dir.join("list")).unwrap();
    let mut list = list::read(&opened, &store.signer.public_key()).unwrap();
    list[0].digest = digest;
    list::write(&opened, &own, &list).unwrap();
    assert!(damaged(first), "another key");
    // A path outside the workspace is refused even with the right signature.
    let (digest, _) = forged.write(&opened, &scratch.signer).unwrap();
    list[0].digest = digest;
    list::write(&opened, &scratch.signer, &list).unwrap();
    assert!(damaged(first), "a path that leads out");
    fs::write(manifest(first), &one).unwrap();
    fs::write(dir.join("list"), &good_list).unwrap();
    // The list of another namespace, with its valid signature.
    store.create(scratch.root().as_fd(), about("theirs")).unwrap();
    let theirs = scratch.base.join("store/namespaces/theirs");
    fs::copy(theirs.join("list"), dir.join("list")).unwrap();
    assert!(damaged(first), "another namespace's list");
    fs::write(dir.join("list"), &good_list).unwrap();
    assert!(attempt(&scratch, first).is_ok());
    assert_eq!(fs::read(scratch.path("file")).unwrap(), b"first");
}

#[test]
fn missing_chunk_is_reported_with_its_file_and_stored_again_by_next_snapshot() {
    let scratch = Scratch::new();
    scratch.write("directory/file", noise(100_000, 1));
    let store = scratch.store();
    let id = scratch.create(&store).id;
    let packs = scratch.base.join("store/namespaces/ours/packs");
    let pack = fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
    let other = Scratch::new();
    other.write("directory/file", noise(100_000, 2));
    store.create(other.root().as_fd(), about("theirs")).unwrap();
    let theirs = scratch.base.join("store/namespaces/theirs/packs");
    let theirs = fs::read_dir(theirs).unwrap().next().unwrap().unwrap().path();
    fs::copy(theirs, &pack).unwrap();
    let Err(SnapshotError::Damaged { what }) = attempt(&scratch, id) else {
        panic!("a chunk is missing");
    };
    assert!(what.contains("directory/file"), "{what}");
    // A snapshot created now stores the missing chunk again, although the last one has the file.
    scratch.write("directory/file", noise(100_000, 1));
    let made = scratch.create(&store);
    assert_eq!(made.new_bytes, 100_000);
    attempt(&scratch, made.id).unwrap();
    let digest = crate::artifacts::digest(fs::File::open(scratch.path("directory/file")).unwrap()).unwrap();
    let manifest = store.manifest(made.id, &namespace("ours")).unwrap();
    let Some(SnapshotKind::File(content)) = manifest
        .entry(Path::new("directory/file"))
        .map(|entry| &entry.kind)
    else {
        panic!("it is a file");
    };
    assert_eq!(digest.0, content.sha256);
}

/// claim: [SNAP-5]
#[test]
fn damaged_chunk_is_stored_again_when_its_file_is_read() {
    let scratch = Scratch::new();
    scratch.write("unchanged", noise(100_000, 1));
    scratch.write("moved", noise(100_000, 2));
    settle(&scratch);
    let first = scratch.create(&scratch.store()).id;
    let packs = scratch.base.join("store/namespaces/ours/packs");
    let pack = fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&pack).unwrap();
    (1..20).for_each(|at| bytes[at * 10_000] ^= 1);
    fs::write(&pack, bytes).unwrap();
    set_mtime(&pack, 1_000_000_000, 0);
    fs::rename(scratch.path("moved"), scratch.path("here")).unwrap();
    let store = scratch.store();
    assert_eq!(
        scratch.create(&store).new_bytes,
        100_000,
        "only the moved file is read"
    );
    set_mtime(&scratch.path("unchanged"), 1_000_000_000, 0);
    let state = scratch.state();
    let made = scratch.create(&store);
    assert_eq!(made.new_bytes, 100_000);
    set_mtime(&scratch.path("unchanged"), 1_000_000_001, 0);
    assert_eq!(scratch.create(&store).new_bytes, 0, "it is whole now");
    store.collect(&namespace("ours")).unwrap();
    attempt(&scratch, first).unwrap();
    attempt(&scratch, made.id).unwrap();
    assert_eq!(scratch.state(), state);
}

#[test]
fn snapshot_is_deleted_though_another_is_damaged() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let [damaged, other] = [scratch.create(&store).id, scratch.create(&store).id];
    let is_manifest = |path: &PathBuf| path.ends_with(damaged.to_string());
    let manifest = scratch.stored().into_iter().find(is_manifest).unwrap();
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[10] ^= 1;
    fs::write(&manifest, bytes).unwrap();
    store.delete(other, &namespace("ours")).unwrap();
    let left: Vec<SnapshotId> = store
        .list(&namespace("ours"))
        .unwrap()
        .iter()
        .map(|listed| listed.id)
        .collect();
    assert_eq!(left, [damaged]);
}
