//! Files that have the name of a segment and are none stop neither writing, verifying nor removing.

use super::segment::{files, segmented, write};
use crate::audit::{Durability, Keep, Query, Records, tests::fixture::Directory};
use rustix::fs::Mode;
use std::{fs, os::unix::fs::symlink, path::Path};

#[test]
fn directory_link_or_pipe_with_the_name_of_a_segment_stops_neither_writing_nor_verifying() {
    let (directory, audit) = segmented();
    let name = |first: u64, last: u64| {
        directory
            .path
            .join(format!("audit-{first:020}-{last:020}.jsonl.zst"))
    };
    let [inside, link, pipe, later] = [name(3, 7), name(4, 7), name(5, 7), name(1000, 2000)];
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&later).unwrap();
    symlink(&files(&directory)[0], &link).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).unwrap();
    for (first, last) in [(0, 7), (7, 3)] {
        fs::write(name(first, last), "").unwrap();
    }
    audit.archive().unwrap().unwrap();
    write(&audit, 3);
    assert_eq!(
        files(&directory).len(),
        5,
        "with the one after the database's first record"
    );
    let records = audit.head().seq;
    let query = Query {
        limit: 1000,
        ..Query::default()
    };
    let page = audit.query(&query).unwrap();
    assert_eq!(page.records.len() as u64, records);
    let named = |path: &Path| {
        page.damaged
            .iter()
            .any(|what| what.contains(path.to_str().unwrap()))
    };
    assert!(
        [&inside, &link, &pipe].into_iter().all(|path| named(path)),
        "{:?}",
        page.damaged
    );
    directory.assert_whole(records);
    // Old segments are removed as before.
    audit.set_keep(Keep {
        total_bytes: 1,
        ..Keep::default()
    });
    audit.tidy_now().unwrap();
    assert_eq!(directory.verdict().bad, None);
    assert_eq!(directory.verdict().first_seq, Some(34));
    assert!(inside.is_dir() && later.is_dir());
    // So are the next, although the others now come before them: one is read at a time.
    write(&audit, 10);
    audit.archive().unwrap().unwrap();
    write(&audit, 10);
    audit.archive().unwrap().unwrap();
    for _ in 0..4 {
        audit.tidy_now().unwrap();
    }
    assert_eq!(directory.verdict().bad, None);
    assert!(directory.verdict().first_seq > Some(34));
}

#[test]
fn directory_with_the_name_of_a_segment_makes_no_new_record_a_replaced_one() {
    let directory = Directory::new();
    let name = format!("audit-{:020}-{:020}.jsonl.zst", 1, 2);
    fs::create_dir(directory.path.join(name)).unwrap();
    // The number of a record is signed.
    let name = format!("audit-{:020}-{:020}.jsonl.zst", 1, 1_u64 << 63);
    fs::write(directory.path.join(name), "").unwrap();
    drop(directory.open(Durability::Process));
    let first = Records::of(&directory.database(), Query::default())
        .next()
        .unwrap()
        .unwrap();
    assert!(first.details.contains("\"reason\":\"new\""), "{}", first.details);
}
