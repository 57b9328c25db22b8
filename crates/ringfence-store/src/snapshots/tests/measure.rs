//! The figures of SPECIFICATION.md: `cargo test --release -p ringfence-store -- --ignored --nocapture ten_thousand`.

use crate::snapshots::tests::fixture::{Scratch, noise, settle};
use std::{
    fs,
    time::{Duration, Instant},
};

/// 9,000 files of 12 KiB, 900 of 300 KiB, 100 of 6 MiB; half of each is text, half is noise.
fn fill(scratch: &Scratch) -> u64 {
    let mut bytes = 0;
    for number in 0..10_000u64 {
        let size = match number % 100 {
            0 => 6 << 20,
            1..10 => 300 << 10,
            _ => 12 << 10,
        };
        let content = if number % 2 == number / 100 % 2 {
            noise(size, number)
        } else {
            let line = format!("{number} the quick brown fox jumps over the lazy dog\n");
            let mut text: Vec<u8> = noise(size / 8, number)
                .iter()
                .flat_map(|byte| line.as_bytes()[usize::from(*byte) % 30..][..8].to_vec())
                .collect();
            text.resize(size, b' ');
            text
        };
        bytes += content.len() as u64;
        scratch.write(&format!("{}/{}/{number}", number % 10, number / 100), content);
    }
    bytes
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "writes a gigabyte; meant for a release build"]
fn ten_thousand_files_of_a_gigabyte() {
    let scratch = Scratch::new();
    let bytes = fill(&scratch);
    settle(&scratch);
    // The pending writes of the test data must not be measured.
    rustix::fs::syncfs(scratch.root()).unwrap();
    let store = scratch.store();
    let memory_before = peak_kib();
    let timed = |what: &str, act: &dyn Fn() -> String| {
        let begun = Instant::now();
        let said = act();
        println!("{what}: {:?} {said}", begun.elapsed());
        begun.elapsed()
    };
    timed("first snapshot", &|| {
        format!("of {bytes} bytes: {:?}", scratch.create(&store))
    });
    println!("peak memory {} KiB, before {memory_before} KiB", peak_kib());
    let stored: u64 = scratch
        .stored()
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    println!("the store takes {stored} bytes");
    let second = timed("second snapshot", &|| format!("{:?}", scratch.create(&store)));
    let id = store
        .list(&crate::snapshots::tests::fixture::namespace("ours"))
        .unwrap()[1]
        .id;
    for number in [0, 5, 50, 51, 52, 53, 54, 55, 56, 57] {
        scratch.write(&format!("{}/{}/{number}", number % 10, number / 100), "changed");
    }
    let restored = timed("restore of ten changed files", &|| {
        format!("{:?}", scratch.restore(&store, id))
    });
    fs::remove_dir_all(scratch.path("")).unwrap();
    fs::create_dir(scratch.path("")).unwrap();
    timed("restore of everything", &|| {
        format!("{:?}", scratch.restore(&store, id))
    });
    timed("restore of nothing, by content", &|| {
        format!("{:?}", scratch.restore(&store, id))
    });
    timed("collection", &|| {
        format!(
            "{:?}",
            store
                .collect(&crate::snapshots::tests::fixture::namespace("ours"))
                .unwrap()
        )
    });
    println!("peak memory {} KiB", peak_kib());
    assert!(second <= Duration::from_secs(1) && restored <= Duration::from_millis(500));
}
