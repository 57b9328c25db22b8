//! Closed segments: the chain goes over them, nothing goes without a word, and damage to one leaves the others.

use crate::audit::{
    Action, Audit, Durability, Fault, Keep, Outcome, Query, Records, Storage, query, segments,
    tests::fixture::{self, Directory},
};
use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    time::Duration,
};

fn write(audit: &Audit, count: u64) {
    for number in 0..count {
        audit.append_and_wait(fixture::entry(number)).unwrap();
    }
}

/// Three closed segments and an open one.
fn segmented() -> (Directory, Audit) {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    for _ in 0..3 {
        write(&audit, 10);
        audit.archive().unwrap().unwrap();
    }
    write(&audit, 5);
    (directory, audit)
}

fn files(directory: &Directory) -> Vec<std::path::PathBuf> {
    let listed = segments::list(&directory.database(), u64::MAX).unwrap();
    listed.into_iter().map(|segment| segment.path).collect()
}

fn seqs(directory: &Directory, query: Query) -> Vec<u64> {
    let mut records = Records::of(&directory.database(), query);
    let seqs = records.by_ref().map(|record| record.unwrap().seq).collect();
    assert!(records.damaged().is_empty());
    seqs
}

#[test]
fn the_chain_goes_over_closed_segments() {
    let (directory, audit) = segmented();
    let head = audit.head();
    drop(audit);
    let verdict = directory.verdict();
    assert_eq!(
        (verdict.bad, verdict.records, verdict.head),
        (None, head.seq, Some(head))
    );
    assert_eq!(files(&directory).len(), 3);
    let all: Vec<u64> = (1..=head.seq).collect();
    for limit in [1, 3, 7, 11, 100] {
        let query = |newest_first| Query {
            limit,
            newest_first,
            ..Query::default()
        };
        assert_eq!(seqs(&directory, query(false)), all, "{limit}");
        let mut back = seqs(&directory, query(true));
        back.reverse();
        assert_eq!(back, all, "{limit}");
    }
    let archived = Query {
        actions: Some("audit.archived".parse().unwrap()),
        ..Query::default()
    };
    assert_eq!(seqs(&directory, archived), [12, 23, 34]);
    let between = Query {
        after_seq: Some(9),
        before_seq: Some(14),
        ..Query::default()
    };
    assert_eq!(seqs(&directory, between), [10, 11, 12, 13]);
    // It is continued as it is.
    let audit = directory.open(Durability::Process);
    assert_eq!(audit.head(), head);
}

#[test]
fn a_closed_segment_that_was_edited_cut_exchanged_or_taken_away_is_named() {
    let key = |directory: &Directory| directory.signer.public_key();
    let edit = |directory: &Directory, at: usize, change: &dyn Fn(String) -> String| {
        let path = &files(directory)[at];
        let text = zstd::stream::decode_all(fs::File::open(path).unwrap()).unwrap();
        let text = change(String::from_utf8(text).unwrap());
        fs::write(path, zstd::stream::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    };
    let (directory, _audit) = segmented();
    edit(&directory, 1, &|text| {
        text.replacen("\"number\":3", "\"number\":4", 1)
    });
    let bad = directory.verdict().bad.unwrap();
    assert_eq!((bad.seq, bad.what), (16, Fault::Edited));
    let (directory, _audit) = segmented();
    edit(&directory, 1, &|text| {
        text.lines().take(5).map(|line| format!("{line}\n")).collect()
    });
    directory.assert_bad(17, Fault::Missing);
    for (at, seq) in [(0, 1), (1, 12), (2, 23)] {
        let (directory, _audit) = segmented();
        fs::remove_file(&files(&directory)[at]).unwrap();
        let bad = directory.verdict().bad.unwrap();
        assert_eq!((bad.seq, bad.what), (seq, Fault::Missing), "{at}");
    }
    let (directory, _audit) = segmented();
    for path in files(&directory) {
        fs::remove_file(path).unwrap();
    }
    directory.assert_bad(1, Fault::Missing);
    // Made anew by somebody without the key.
    let (directory, audit) = segmented();
    drop(audit);
    let (other, _other) = segmented();
    assert_ne!(key(&directory), key(&other));
    fs::copy(&files(&other)[0], &files(&directory)[0]).unwrap();
    assert_eq!(directory.verdict().bad.unwrap().seq, 1);
}

#[test]
fn damage_to_a_closed_segment_is_told_and_the_rest_is_given() {
    let (directory, audit) = segmented();
    let path = files(&directory)[1].clone();
    let size = fs::metadata(&path).unwrap().len();
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(size / 2)).unwrap();
    file.write_all(&[0x55; 60]).unwrap();
    for newest_first in [false, true] {
        let query = Query {
            newest_first,
            limit: 1000,
            ..Query::default()
        };
        let page = audit.query(&query).unwrap();
        assert_eq!(page.damaged.len(), 1);
        assert!(
            page.damaged[0].contains(path.to_str().unwrap()),
            "{:?}",
            page.damaged
        );
        let found: Vec<u64> = page.records.iter().map(|record| record.seq).collect();
        assert!([1, 11, 23, 39].iter().all(|seq| found.contains(seq)), "{found:?}");
    }
    let bad = directory.verdict().bad.unwrap();
    assert!((12..=22).contains(&bad.seq), "{bad:?}");
    assert!(bad.to_string().contains("jsonl.zst"), "{bad}");
    write(&audit, 3);
}

#[test]
fn segments_close_by_size_and_go_by_the_size_of_all_with_a_record_of_each() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    audit.set_keep(Keep {
        segment_bytes: 1 << 20,
        total_bytes: 2 << 20,
        age: Duration::ZERO,
    });
    let mut large = fixture::entry(0);
    // What no compression makes small.
    let mut noise = vec![0; 1500];
    for _ in 0..3000 {
        getrandom::fill(&mut noise).unwrap();
        let text: String = noise.iter().map(|byte| format!("{byte:02x}")).collect();
        large.details.insert("noise".to_owned(), text.into());
        audit.append_and_wait(large.clone()).unwrap();
    }
    drop(audit);
    let of = |action| Query {
        actions: Some(crate::audit::Actions::One(action)),
        limit: 1000,
        ..Query::default()
    };
    let removed = query(&directory.database(), &of(Action::AuditRemoved))
        .unwrap()
        .records;
    assert!(!removed.is_empty());
    assert!(
        removed
            .iter()
            .all(|record| record.details.contains("\"why\":\"size\""))
    );
    let verdict = directory.verdict();
    assert_eq!(verdict.bad, None);
    assert!(verdict.first_seq.unwrap() > 1);
    let kept: u64 = files(&directory)
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    // Between two looks at it come 256 records.
    assert!(kept <= 2 << 20, "{kept}");
    let database = fs::metadata(directory.database()).unwrap().len();
    assert!(database < 5 << 20, "{database}");
    // What was removed and has no record is missed.
    fs::remove_file(&files(&directory)[0]).unwrap();
    assert_eq!(directory.verdict().bad.unwrap().what, Fault::Missing);
}

#[test]
fn segments_go_by_age_and_not_by_a_clock_that_has_jumped() {
    let (directory, audit) = segmented();
    let keep = Keep {
        segment_bytes: 0,
        total_bytes: 0,
        age: Duration::from_secs(3600),
    };
    // Two of them are of last month, by the time of their last record.
    let old = std::time::SystemTime::now() - Duration::from_secs(30 * 86_400);
    for path in &files(&directory)[..2] {
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    let clock = directory.database().with_file_name("clock.json");
    fs::write(&clock, "{\"seen_ms\":1000,\"jumped_ms\":null}").unwrap();
    audit.set_keep(keep);
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 3);
    fs::remove_file(&clock).unwrap();
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 1);
    drop(audit);
    assert_eq!(directory.verdict().bad, None);
}

#[test]
fn a_database_damaged_in_the_middle_is_moved_aside_by_who_reads_it_and_the_server_goes_on() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    write(&audit, 20);
    audit.archive().unwrap().unwrap();
    write(&audit, 300);
    audit.checkpoint(0);
    let head = audit.head();
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .open(directory.database())
        .unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    for page in pages / 3..pages / 2 {
        file.seek(SeekFrom::Start(page * 4096)).unwrap();
        file.write_all(&[0xa5; 60]).unwrap();
    }
    drop(file);
    let all = Query {
        limit: 1000,
        ..Query::default()
    };
    let page = audit.query(&all).unwrap();
    assert_eq!(directory.aside().len(), 1);
    // The closed segment, and the new one.
    let first = page
        .records
        .iter()
        .find(|record| record.seq == head.seq + 1)
        .unwrap();
    assert!(
        first.details.contains("\"reason\":\"damaged\""),
        "{}",
        first.details
    );
    assert_eq!(page.records[0].seq, 1);
    write(&audit, 3);
    drop(audit);
    let verdict = directory.verdict();
    assert_eq!((verdict.bad, verdict.breaks), (None, vec![head.seq + 1]));
    // But not without the segment that was closed before.
    fs::remove_file(&files(&directory)[0]).unwrap();
    directory.assert_bad(1, Fault::Missing);
}

#[test]
fn what_a_death_leaves_of_a_segment_is_made_anew() {
    let (directory, audit) = segmented();
    let copy = Directory::new();
    let leftovers = files(&directory);
    drop(audit);
    fs::copy(directory.database(), copy.database()).unwrap();
    // As if the last file had come to its place, and the commit had not.
    for path in &leftovers {
        fs::copy(path, copy.path.join(path.file_name().unwrap())).unwrap();
    }
    fs::write(directory.path.join("audit.segment"), b"half").unwrap();
    let stray = format!("audit-{:020}-{:020}.jsonl.zst", 34, 36);
    fs::write(directory.path.join(stray), b"half").unwrap();
    assert_eq!(directory.verdict().bad, None);
    let audit = directory.open(Durability::Process);
    write(&audit, 1);
    audit.archive().unwrap().unwrap();
    assert_eq!(directory.verdict().bad, None);
}

#[test]
fn what_a_dead_server_has_begun_is_abandoned_and_what_a_living_one_has_is_not() {
    let directory = Directory::new();
    let begin = |audit: &Audit, id: &str| {
        let mut entry = fixture::entry(0);
        entry.action = Action::ExecutionStarted;
        entry.outcome = Outcome::Pending;
        entry.execution_id = Some(id.to_owned());
        audit.append_and_wait(entry).unwrap();
    };
    let open = |id| directory.open_as(id);
    let pending = Query {
        outcome: Some(Outcome::Pending),
        ..Query::default()
    };
    let dead = open("dead");
    begin(&dead, "cut");
    begin(&dead, "done");
    let mut end = fixture::entry(0);
    end.action = Action::ExecutionCompleted;
    end.execution_id = Some("done".to_owned());
    dead.append_and_wait(end).unwrap();
    dead.leaves_open();
    drop(dead);
    let living = open("living");
    begin(&living, "running");
    let next = open("next");
    let ids = |records: &[crate::audit::Record]| -> Vec<String> {
        let ids = records.iter().map(|record| record.execution_id.clone());
        ids.map(Option::unwrap).collect()
    };
    let all = |audit: &Audit| ids(&audit.query(&pending).unwrap().records);
    let abandoned = |audit: &Audit| ids(&audit.lost().unwrap().unwrap().records);
    assert_eq!(all(&next), ["cut", "running"]);
    assert_eq!(abandoned(&next), ["cut"]);
    let mut lost = fixture::entry(0);
    lost.action = Action::ExecutionFailed;
    lost.outcome = Outcome::Lost;
    lost.execution_id = Some("cut".to_owned());
    next.append_and_wait(lost).unwrap();
    assert_eq!(abandoned(&next), [""; 0]);
    assert_eq!(all(&next), ["running"]);
    living.leaves_open();
    drop(living);
    assert_eq!(abandoned(&next), ["running"]);
}

#[test]
fn a_server_that_died_is_seen_by_its_file_and_looked_after_by_one() {
    let directory = Directory::new();
    let open = |id| directory.open_as(id);
    let (audit, beside) = (open("one"), open("beside"));
    let mut entry = fixture::entry(0);
    entry.action = Action::ExecutionStarted;
    entry.outcome = Outcome::Pending;
    entry.execution_id = Some("cut".to_owned());
    let dying = open("killed");
    dying.append_and_wait(entry).unwrap();
    assert!(audit.lost().unwrap().is_none());
    // As one that is killed, and one whose last entry the disk did not take.
    dying.leaves_open();
    drop(dying);
    let left = directory.path.join("audit.killed.alive");
    let died = || audit.lost().unwrap().unwrap();
    assert_eq!(died().records.len(), 1);
    assert!(left.exists(), "it was not closed");
    let lost = died();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| beside.lost().unwrap().is_none());
        lost.closed();
        assert!(late.join().unwrap(), "two close it");
    });
    assert!(!left.exists());
}

#[test]
fn a_record_whose_directory_was_removed_says_so() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    fs::remove_dir_all(&directory.path).unwrap();
    let fail = || audit.append_and_wait(fixture::entry(0)).unwrap_err();
    fail();
    let last = fail();
    assert_eq!(last, crate::audit::AuditError::Gone(directory.path.to_path_buf()));
    assert!(last.to_string().contains("start the server again"), "{last}");
}

#[test]
fn a_log_is_empty_after_a_checkpoint_at_the_end() {
    for name in ["audit.db", "own.sqlite", "own"] {
        let directory = Directory::new();
        let place = Storage::File(directory.path.join(name));
        let audit = Audit::open(
            place,
            Durability::Process,
            directory.signer.clone(),
            "s".to_owned(),
        )
        .unwrap();
        write(&audit, 10);
        let log = || {
            fs::metadata(directory.path.join(format!("{name}-wal")))
                .unwrap()
                .len()
        };
        assert!(log() > 0);
        audit.checkpoint(0);
        assert_eq!(log(), 0, "{name}");
    }
}

#[test]
fn a_short_log_is_left_to_the_next_server_and_a_long_one_is_not() {
    let directory = Directory::new();
    let log = || fs::metadata(directory.path.join("audit.db-wal")).unwrap().len();
    let mut longest = 0;
    // One record and an end, as of many commands.
    let ended: Vec<u64> = (0..100)
        .map(|_| {
            let audit = directory.open(Durability::Process);
            write(&audit, 1);
            longest = longest.max(log());
            audit.checkpoint(1 << 20);
            drop(audit);
            log()
        })
        .collect();
    assert!(ended.iter().filter(|left| **left > 0).count() > 80, "{ended:?}");
    assert!(ended.contains(&0), "{ended:?}");
    assert!(longest < 2 << 20, "{longest}");
    assert_eq!(seqs(&directory, Query::default()).len(), 101);
}

#[test]
fn servers_that_close_segments_beside_each_other_make_one_chain() {
    let directory = Directory::new();
    let audits = ["a", "b", "c"].map(|id| directory.open_as(id));
    std::thread::scope(|scope| {
        for audit in &audits {
            scope.spawn(|| {
                for _ in 0..10 {
                    write(audit, 5);
                    audit.archive().unwrap();
                }
            });
        }
        // Whoever reads meanwhile sees a chain without holes.
        for _ in 0..20 {
            let seen = seqs(&directory, Query::default());
            let whole: Vec<u64> = (1..=seen.len() as u64).collect();
            assert_eq!(seen, whole);
            assert_eq!(directory.verdict().bad, None);
        }
    });
    drop(audits);
    let verdict = directory.verdict();
    assert_eq!((verdict.bad, verdict.breaks), (None, Vec::new()));
    assert_eq!(seqs(&directory, Query::default()).len() as u64, verdict.records);
    assert!(verdict.records > 3 * 50);
}
