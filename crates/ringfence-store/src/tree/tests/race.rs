//! A program that swaps files and directories, for links and for other contents, while they are worked on from outside
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

/// `swapped` and `file` change places with links to the outside, until told to stop.
fn swap(place: &Scratch, stop: &AtomicBool, swaps: &AtomicU64) {
    let pairs = [("swapped", "trap"), ("inner/file", "inner/trap")];
    while !stop.load(Ordering::Relaxed) {
        for (one, other) in pairs {
            // The other thread may not have put one of the two yet.
            let swapped = renameat_with(
                CWD,
                place.path(one),
                CWD,
                place.path(other),
                RenameFlags::EXCHANGE,
            );
            if swapped.is_ok() {
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn lay(place: &Scratch) {
    fs::create_dir(place.outside("beyond")).unwrap();
    fs::write(place.outside("beyond/file"), CANARY).unwrap();
    fs::create_dir_all(place.path("swapped")).unwrap();
    fs::create_dir_all(place.path("inner")).unwrap();
    fs::write(place.path("swapped/file"), "inside").unwrap();
    fs::write(place.path("inner/file"), "inside").unwrap();
    symlink(place.outside("beyond"), place.path("trap")).unwrap();
    symlink(place.outside("beyond/file"), place.path("inner/trap")).unwrap();
}

/// What the race did to the one who works from outside.
#[derive(Default)]
struct Seen {
    canaries: u64,
    done: u64,
    refused: u64,
}

fn work(place: &Scratch, round: u64, seen: &mut Seen) {
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
        0..4 => put(place.root(), path, b"inside", None, 100).is_ok(),
        4 => match list(place.root(), None, bounds) {
            Ok(listed) => {
                let canary = |one: &ListedFile| {
                    one.entry.kind == EntryKind::File && one.entry.size == CANARY.len() as u64
                };
                seen.canaries += u64::from(listed.iter().any(canary));
                true
            }
            Err(_) => false,
        },
        _ => match get(place.root(), path, 100) {
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
fn a_hundred_thousand_rounds_of_a_rename_race_reach_nothing_outside() {
    let place = Scratch::new();
    lay(&place);
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut seen = Seen::default();
    let mut reached = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&place, &stop, &swaps));
        // The control: by path, the canary is reached within moments.
        for _ in 0..ROUNDS {
            reached += u64::from(fs::read(place.path("swapped/file")).is_ok_and(|bytes| bytes == CANARY));
            if reached > 10 && swaps.load(Ordering::Relaxed) > 10 {
                break;
            }
        }
        for round in 0..ROUNDS {
            work(&place, round, &mut seen);
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
    assert_eq!(fs::read(place.outside("beyond/file")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(place.outside("beyond")).unwrap().count(), 1);
}

#[test]
fn an_archive_unpacked_in_a_rename_race_reaches_nothing_outside() {
    let place = Scratch::new();
    lay(&place);
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
        scope.spawn(|| swap(&place, &stop, &swaps));
        for _ in 0..2000 {
            match unpack(place.root(), None, archive.as_slice(), limits) {
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
    assert_eq!(fs::read(place.outside("beyond/file")).unwrap(), CANARY);
    assert_eq!(fs::read_dir(place.outside("beyond")).unwrap().count(), 1);
}

#[test]
fn what_is_shown_of_a_file_is_what_its_digest_says_whatever_a_program_writes_meanwhile() {
    let place = Scratch::new();
    let texts = ["harmless\n", "dangerous\n"];
    for (name, text) in ["file", "other"].iter().zip(texts) {
        fs::write(place.path(name), text).unwrap();
    }
    let bounds = Bounds {
        entries: 10,
        depth: 1,
    };
    let compared = CompareBounds {
        read_bytes: 1000,
        text_bytes: 100,
        diff_bytes: 1000,
        shown: &crate::tree::as_it_is,
    };
    let stop = AtomicBool::new(false);
    let mut seen = [0; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (one, other) = (place.path("file"), place.path("other"));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..5000 {
            let live = Side::live(place.root(), bounds).unwrap();
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
