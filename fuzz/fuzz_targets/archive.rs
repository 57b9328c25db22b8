//! An untrusted archive, plain or in gzip. A refused archive leaves nothing behind; an accepted one is unpacked below
//! the directory and within the bounds, without links, special files and set-id bits.

use ringfence_store::tree::{
    Bounds, EntryKind, MODES,
    archive::{Limits, unpack},
    walk,
};
use std::{
    fs::{self, File},
    os::fd::AsFd,
};

const LIMITS: Limits = Limits {
    entries: 64,
    bytes: 1 << 16,
};

/// One input.
pub fn run(bytes: &[u8]) {
    let base = std::env::temp_dir().join(format!("ringfence-fuzz-archive-{}", std::process::id()));
    let inside = base.join("inside");
    fs::create_dir_all(&inside).expect("a directory to unpack into");
    let root = File::open(&inside).expect("the directory");
    let unpacked = unpack(root.as_fd(), None, bytes, LIMITS);
    let bounds = Bounds {
        entries: LIMITS.entries,
        depth: 64,
    };
    let found = walk(root.as_fd(), bounds).expect("what was unpacked is within the bounds");
    match unpacked {
        Ok(unpacked) => {
            let files = found.iter().filter(|entry| entry.kind == EntryKind::File);
            assert_eq!(files.clone().count(), unpacked.files);
            assert_eq!(files.map(|entry| entry.size).sum::<u64>(), unpacked.bytes);
            assert!(unpacked.bytes <= LIMITS.bytes);
            for entry in &found {
                assert!(matches!(entry.kind, EntryKind::File | EntryKind::Directory));
                assert_eq!(entry.mode & !MODES, 0);
            }
        }
        Err(_) => assert!(found.is_empty(), "{found:?}"),
    }
    let beside = fs::read_dir(&base).expect("the base").count();
    assert_eq!(beside, 1, "nothing is beside the directory");
    fs::remove_dir_all(&base).expect("the directory can be removed");
}
