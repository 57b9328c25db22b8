//! Closed segments: the chain spans them, each removal is recorded, and damage to one leaves the others readable.

use crate::audit::{
    Action, Audit, AuditError, Durability, Fault, Keep, Outcome, Query, Records, Storage, query, segments,
    tests::fixture::{self, Directory},
};
use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    path::Path,
    time::{Duration, SystemTime},
};

pub(super) fn write(audit: &Audit, count: u64) {
    for number in 0..count {
        audit.append_and_wait(fixture::entry(number)).unwrap();
    }
}

/// Three closed segments and an open one.
pub(super) fn segmented() -> (Directory, Audit) {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    for _ in 0..3 {
        write(&audit, 10);
        audit.archive().unwrap().unwrap();
    }
    write(&audit, 5);
    (directory, audit)
}

pub(super) fn files(directory: &Directory) -> Vec<std::path::PathBuf> {
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
fn chain_spans_closed_segments() {
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
    // It is continued unchanged.
    let audit = directory.open(Durability::Process);
    assert_eq!(audit.head(), head);
}

#[test]
fn edited_truncated_replaced_or_removed_segment_is_reported() {
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
    // Written anew without the key.
    let (directory, audit) = segmented();
    drop(audit);
    let (other, _other) = segmented();
    assert_ne!(key(&directory), key(&other));
    fs::copy(&files(&other)[0], &files(&directory)[0]).unwrap();
    assert_eq!(directory.verdict().bad.unwrap().seq, 1);
}

#[test]
fn segment_without_its_last_records_is_reported_by_a_query() {
    let (directory, audit) = segmented();
    let path = &files(&directory)[1];
    let text = zstd::stream::decode_all(fs::File::open(path).unwrap()).unwrap();
    let lines = text.split_inclusive(|byte| *byte == b'\n').take(5);
    let cut: Vec<u8> = lines.flatten().copied().collect();
    fs::write(path, zstd::stream::encode_all(&*cut, 1).unwrap()).unwrap();
    let page = audit.query(&Query::default()).unwrap();
    let expect = format!("{}: its last record is missing", path.display());
    assert_eq!(page.damaged, [expect]);
}

#[test]
fn damage_to_closed_segment_is_reported_and_other_records_are_returned() {
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
fn segments_are_closed_by_size_and_removed_by_total_size_on_record() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    audit.set_keep(Keep {
        segment_bytes: 1 << 20,
        total_bytes: 2 << 20,
        age: Duration::ZERO,
    });
    let mut large = fixture::entry(0);
    // Incompressible text.
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
    // Up to 256 records are written between two checks of the size.
    assert!(kept <= 2 << 20, "{kept}");
    let database = fs::metadata(directory.database()).unwrap().len();
    assert!(database < 5 << 20, "{database}");
    // A removal without a record is detected.
    fs::remove_file(&files(&directory)[0]).unwrap();
    assert_eq!(directory.verdict().bad.unwrap().what, Fault::Missing);
}

#[test]
fn segments_are_removed_by_age_but_not_after_a_clock_jump() {
    let (directory, audit) = segmented();
    let keep = |age| Keep {
        age,
        ..Keep::default()
    };
    // The time of their last record counts, not that of the files.
    files(&directory)
        .iter()
        .for_each(|path| set_time(path, SystemTime::UNIX_EPOCH));
    audit.set_keep(keep(Duration::from_secs(3600)));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 3);
    let clock = directory.database().with_file_name("clock.json");
    fs::write(&clock, "{\"seen_ms\":1000,\"jumped_ms\":null}").unwrap();
    audit.set_keep(keep(Duration::from_micros(1)));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 3);
    fs::remove_file(&clock).unwrap();
    // One with a new file is not looked at, nor those behind it.
    set_time(
        &files(&directory)[0],
        SystemTime::now() + Duration::from_secs(3600),
    );
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 3);
    set_time(&files(&directory)[0], SystemTime::UNIX_EPOCH);
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 0);
    drop(audit);
    assert_eq!(directory.verdict().bad, None);
}

fn set_time(path: &Path, time: SystemTime) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// claim: [REC-8]
#[test]
fn inflated_or_damaged_segment_and_edited_size_remove_nothing() {
    let (directory, audit) = segmented();
    let keep = Keep {
        segment_bytes: 1 << 20,
        total_bytes: 1 << 20,
        age: Duration::ZERO,
    };
    audit.set_keep(keep);
    let inflated = fs::File::options()
        .write(true)
        .open(&files(&directory)[1])
        .unwrap();
    inflated.set_len(8 << 20).unwrap();
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 3, "the record knows the size");
    let edit = |from: &str, to: &str| {
        let newest = "seq = (SELECT max(seq) FROM record WHERE action = 'audit.archived')";
        directory.tamper(&format!(
            "UPDATE record SET details = replace(details, '{from}', '{to}') WHERE {newest}"
        ));
    };
    edit("\"closed_bytes\":", "\"closed_bytes\":999999");
    assert!(matches!(audit.tidy_now(), Err(AuditError::Damaged { .. })));
    assert_eq!(files(&directory).len(), 3, "the size was edited");
    edit("\"closed_bytes\":999999", "\"closed_bytes\":");
    // Two are over the limit of age; the damaged one remains.
    files(&directory)
        .iter()
        .for_each(|path| set_time(path, SystemTime::UNIX_EPOCH));
    audit.set_keep(Keep {
        age: Duration::from_micros(1),
        ..keep
    });
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 1);
    // A file that comes back is removed without a second entry.
    let path = directory
        .path
        .join(format!("audit-{:020}-{:020}.jsonl.zst", 23, 33));
    fs::write(&path, b"left by a crash").unwrap();
    set_time(&path, SystemTime::UNIX_EPOCH);
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 1, "the damaged one");
    let removed = Query {
        actions: Some(crate::audit::Actions::One(Action::AuditRemoved)),
        ..Query::default()
    };
    assert_eq!(audit.query(&removed).unwrap().records.len(), 2);
}

/// claim: [REC-8]
#[test]
fn damaged_segment_makes_no_other_be_removed_for_its_size() {
    let (directory, audit) = segmented();
    let size = |path: &std::path::PathBuf| fs::metadata(path).unwrap().len();
    let (all, total) = (files(&directory), files(&directory).iter().map(size).sum::<u64>());
    // The database does not count.
    let keep = |total_bytes| Keep {
        total_bytes,
        ..Keep::default()
    };
    audit.set_keep(keep(total - 1));
    let mut file = fs::File::options().write(true).open(&all[0]).unwrap();
    file.write_all(&[0x55; 60]).unwrap();
    audit.set_keep(keep(total - 1));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory), all, "the others are not over the limit");
    audit.set_keep(keep(1));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory), [all[0].clone(), all[2].clone()]);
}

/// claim: [REC-8]
#[test]
fn segments_without_a_size_on_record_are_removed_for_size_only_once_later_ones_are_over() {
    let (directory, audit) = segmented();
    drop(audit);
    for name in ["audit.db", "audit.db-wal", "audit.db-shm"] {
        drop(fs::remove_file(directory.path.join(name)));
    }
    let audit = directory.open(Durability::Process);
    let keep = |total_bytes| Keep {
        total_bytes,
        ..Keep::default()
    };
    audit.set_keep(keep(1));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 3);
    write(&audit, 10);
    let closed = audit.archive().unwrap().unwrap();
    let size = fs::metadata(&closed).unwrap().len();
    audit.set_keep(keep(size));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory).len(), 4);
    audit.set_keep(keep(1));
    audit.tidy_now().unwrap();
    assert_eq!(files(&directory), [closed]);
    let removed = Query {
        actions: Some(crate::audit::Actions::One(Action::AuditRemoved)),
        ..Query::default()
    };
    let removed = audit.query(&removed).unwrap().records;
    let noted = format!("\"closed_bytes\":{size}");
    assert!(
        removed.len() == 3 && removed.iter().all(|record| record.details.contains(&noted)),
        "{removed:?}"
    );
}

#[test]
fn reading_moves_a_damaged_database_aside_and_the_server_continues() {
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
    // The page has the closed segment and the new file.
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
    // The segment that was closed before is still required.
    fs::remove_file(&files(&directory)[0]).unwrap();
    directory.assert_bad(1, Fault::Missing);
}

#[test]
fn segment_left_by_a_crash_is_rewritten() {
    let (directory, audit) = segmented();
    let copy = Directory::new();
    let leftovers = files(&directory);
    drop(audit);
    fs::copy(directory.database(), copy.database()).unwrap();
    // As if the last file had been moved into place, but the commit had not happened.
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
fn open_operations_of_dead_servers_are_found_and_those_of_running_ones_are_not() {
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
    dead.note_open_operation();
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
    living.note_open_operation();
    drop(living);
    assert_eq!(abandoned(&next), ["running"]);
}

/// claim: [REC-8]
#[test]
fn segment_ends_before_the_first_open_operation() {
    let directory = Directory::new();
    let audit = directory.open_as("living");
    write(&audit, 10);
    let mut entry = fixture::entry(0);
    entry.action = Action::ExecutionStarted;
    entry.outcome = Outcome::Pending;
    entry.execution_id = Some("open".to_owned());
    let start = audit.append_and_wait(entry.clone()).unwrap().seq;
    write(&audit, 10);
    let last = || {
        segments::list(&directory.database(), u64::MAX)
            .unwrap()
            .pop()
            .unwrap()
            .last
    };
    audit.archive().unwrap().unwrap();
    assert_eq!(last(), start - 1);
    assert!(audit.archive().unwrap().is_none(), "there is nothing before it");
    // Its server dies: the next one finds the operation, although a segment was closed while it ran.
    audit.note_open_operation();
    drop(audit);
    let next = directory.open_as("next");
    let lost = next.lost().unwrap().unwrap();
    assert_eq!(lost.records.len(), 1);
    drop(lost);
    entry.action = Action::ExecutionFailed;
    entry.outcome = Outcome::Lost;
    let end = next.append_and_wait(entry).unwrap().seq;
    next.archive().unwrap().unwrap();
    assert!(last() >= end);
    assert_eq!(directory.verdict().bad, None);
}

#[test]
fn large_database_is_closed_despite_an_open_operation() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    let mut entry = fixture::entry(0);
    entry.action = Action::ExecutionStarted;
    entry.outcome = Outcome::Pending;
    entry.execution_id = Some("open".to_owned());
    audit.append_and_wait(entry).unwrap();
    let segment_bytes = 256 << 10;
    audit.set_keep(Keep {
        segment_bytes,
        ..Keep::default()
    });
    let used = || fs::metadata(directory.database()).unwrap().len();
    let large = |count: u64| {
        for number in 0..count {
            let mut entry = fixture::entry(number);
            let text = "x".repeat(8 << 10);
            entry.details.insert("large".to_owned(), text.into());
            audit.append_and_wait(entry).unwrap();
        }
        audit.checkpoint(0);
        audit.tidy_now().unwrap();
    };
    // Left by a crash before the commit: it is removed, although no segment is closed.
    let stray = format!("audit-{:020}-{:020}.jsonl.zst", 1, 2);
    fs::write(directory.path.join(stray), b"half").unwrap();
    large(40);
    assert!((segment_bytes..2 * segment_bytes).contains(&used()), "{}", used());
    assert!(files(&directory).is_empty());
    large(40);
    assert!(!files(&directory).is_empty());
}

#[test]
fn dead_server_is_found_by_its_file_and_closed_by_one_server() {
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
    // As a killed server does, or one whose last entry could not be written to the disk.
    dying.note_open_operation();
    drop(dying);
    let left = directory.path.join("audit.killed.alive");
    let died = || audit.lost().unwrap().unwrap();
    assert_eq!(died().records.len(), 1);
    assert!(left.exists(), "its operations were not closed");
    let lost = died();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| beside.lost().unwrap().is_none());
        lost.closed();
        assert!(late.join().unwrap(), "two servers close it");
    });
    assert!(!left.exists());
}

#[test]
fn removed_directory_is_reported() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    fs::remove_dir_all(&directory.path).unwrap();
    let fail = || audit.append_and_wait(fixture::entry(0)).unwrap_err();
    fail();
    let last = fail();
    assert_eq!(last, AuditError::Gone(directory.path.to_path_buf()));
    assert!(last.to_string().contains("does not exist"), "{last}");
}

#[test]
fn log_is_empty_after_the_final_checkpoint() {
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
fn short_log_is_left_to_the_next_server_but_a_long_one_is_not() {
    let directory = Directory::new();
    let log = || fs::metadata(directory.path.join("audit.db-wal")).unwrap().len();
    let mut longest = 0;
    // One record and an end, as many short commands do.
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
fn servers_closing_segments_concurrently_write_one_chain() {
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
        // Readers see a chain without gaps meanwhile.
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
