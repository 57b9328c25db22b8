//! A program that swaps files and directories for links and for other contents during operations from outside
//! (ATTACKS.md, C03).

use crate::tree::{
    Bounds, CompareBounds, EntryKind, ListBounds, ListedFile, Side,
    archive::{Limits, unpack},
    compare, get, list, put,
    tests::fixture::Scratch,
};
use ringfence_types::WorkspacePath;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest, Sha256};
use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

const ROUNDS: u64 = 100_000;
const CANARY: &[u8] = b"the canary lives outside";

/// Exchanges `swapped` and `file` with links to the outside, until `stop` is set.
fn swap(scratch: &Scratch, stop: &AtomicBool, swaps: &AtomicU64) {
    let pairs = [("swapped", "trap"), ("inner/file", "inner/trap")];
    while !stop.load(Ordering::Relaxed) {
        for (one, other) in pairs {
            // One of the two may not have been written yet by the other thread.
            let swapped = renameat_with(
                CWD,
                scratch.path(one),
                CWD,
                scratch.path(other),
                RenameFlags::EXCHANGE,
            );
            if swapped.is_ok() {
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn set_up(scratch: &Scratch) {
    fs::create_dir(scratch.outside("beyond")).unwrap();
    fs::write(scratch.outside("beyond/file"), CANARY).unwrap();
    fs::create_dir_all(scratch.path("swapped")).unwrap();
    fs::create_dir_all(scratch.path("inner")).unwrap();
    fs::write(scratch.path("swapped/file"), "inside").unwrap();
    fs::write(scratch.path("inner/file"), "inside").unwrap();
    symlink(scratch.outside("beyond"), scratch.path("trap")).unwrap();
    symlink(scratch.outside("beyond/file"), scratch.path("inner/trap")).unwrap();
}

/// The results of the operations from outside.
#[derive(Default)]
struct Seen {
    canaries: u64,
    done: u64,
    refused: u64,
}

fn work(scratch: &Scratch, round: u64, seen: &mut Seen) {
    let paths: [WorkspacePath; 2] = ["swapped/file".parse().unwrap(), "inner/file".parse().unwrap()];
    let path = &paths[usize::try_from(round % 2).unwrap()];
    let bounds = ListBounds {
        walk: Bounds {
            entries: 100,
            depth: 8,
        },
        hashed_bytes: 1 << 20,
    };
    let done = match round / 2 % 32 {
        0..4 => put(scratch.root(), path, b"inside", None, 100).is_ok(),
        4 => match list(scratch.root(), None, bounds) {
            Ok(listed) => {
                let canary = |one: &ListedFile| {
                    one.entry.kind == EntryKind::File && one.entry.size == CANARY.len() as u64
                };
                seen.canaries += u64::from(listed.iter().any(canary));
                true
            }
            Err(_) => false,
        },
        _ => match get(scratch.root(), path, 100) {
            Ok(got) => {
                seen.canaries += u64::from(got.bytes != b"inside");
                true
            }
            Err(_) => false,
        },
    };
    seen.done += u64::from(done);
    seen.refused += u64::from(!done);
}

#[test]
fn rename_race_of_hundred_thousand_rounds_reaches_nothing_outside() {
    let scratch = Scratch::new();
    set_up(&scratch);
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut seen = Seen::default();
    let mut reached = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&scratch, &stop, &swaps));
        // Control: by path, the canary is soon reached.
        for _ in 0..ROUNDS {
            reached += u64::from(fs::read(scratch.path("swapped/file")).is_ok_and(|bytes| bytes == CANARY));
            if reached > 10 && swaps.load(Ordering::Relaxed) > 10 {
                break;
            }
        }
        for round in 0..ROUNDS {
            work(&scratch, round, &mut seen);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let swaps = swaps.into_inner();
    println!(
        "{ROUNDS} rounds, {swaps} swaps: {} done, {} refused",
        seen.done, seen.refused
    );
    assert!(reached > 10, "the control reaches the canary by path: {reached}");
    assert!(swaps > 1000, "the other thread ran: {swaps}");
    assert!(seen.done > 1000 && seen.refused > 100, "both ways were seen");
    assert_eq!(seen.canaries, 0);
    assert_eq!(fs::read(scratch.outside("beyond/file")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(scratch.outside("beyond")).unwrap().count(), 1);
}

#[test]
fn archive_unpacked_during_rename_race_writes_nothing_outside() {
    let scratch = Scratch::new();
    set_up(&scratch);
    let mut tar = tar::Builder::new(Vec::new());
    for path in ["swapped/file", "swapped/new", "inner/file"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(6);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, &b"inside"[..]).unwrap();
    }
    let archive = tar.into_inner().unwrap();
    let limits = Limits {
        entries: 10,
        bytes: 100,
    };
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&scratch, &stop, &swaps));
        for _ in 0..2000 {
            match unpack(scratch.root(), None, archive.as_slice(), limits) {
                Ok(_) => done += 1,
                Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{done} done, {refused} refused");
    assert!(
        done + refused == 2000 && refused > 10 && swaps.into_inner() > 1000,
        "{done} {refused}"
    );
    assert_eq!(fs::read(scratch.outside("beyond/file")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(scratch.outside("beyond")).unwrap().count(), 1);
}

#[test]
fn shown_text_matches_digest_during_concurrent_writes() {
    let scratch = Scratch::new();
    let texts = ["harmless\n", "dangerous\n"];
    for (name, text) in ["file", "other"].iter().zip(texts) {
        fs::write(scratch.path(name), text).unwrap();
    }
    let bounds = Bounds {
        entries: 10,
        depth: 1,
    };
    let compared = CompareBounds {
        read_bytes: 1000,
        text_bytes: 100,
        diff_bytes: 1000,
        redact: &crate::tree::unredacted,
    };
    let stop = AtomicBool::new(false);
    let mut seen = [0; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (one, other) = (scratch.path("file"), scratch.path("other"));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..5000 {
            let live = Side::live(scratch.root(), bounds).unwrap();
            let changes = compare(&Side::empty(), &live, compared).unwrap();
            let file = &changes.list[0];
            let shown = texts.map(|text| file.diff.as_ref().unwrap().ends_with(&format!("+{text}")));
            let digests =
                texts.map(|text| file.new.as_ref().unwrap().sha256 == Some(Sha256::digest(text).into()));
            assert_eq!(shown, digests);
            seen[usize::from(shown[1])] += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(
        seen.iter().all(|times| *times > 10),
        "both contents were seen: {seen:?}"
    );
}
