//! Every known way to falsify the record, each tried on a whole file: without the change, the same file verifies.

use crate::Signer;
use crate::audit::{
    Audit, Durability, Fault, Query, Record, Storage, query,
    record::COLUMNS,
    tests::fixture::{self, Directory},
    verify,
};
use rusqlite::params;
use std::fs;

/// A closed, valid chain of eleven records.
fn eleven() -> Directory {
    let directory = Directory::filled(10);
    let verdict = directory.verdict();
    assert_eq!(
        (verdict.bad, verdict.records, verdict.first_seq),
        (None, 11, Some(1))
    );
    assert_eq!(verdict.head.unwrap().seq, 11);
    directory
}

fn record(directory: &Directory, seq: u64) -> Record {
    let query_of = Query {
        after_seq: Some(seq - 1),
        limit: 1,
        ..Query::default()
    };
    query(&directory.database(), &query_of).unwrap().records.remove(0)
}

fn insert(directory: &Directory, record: &Record) {
    let sql = format!("INSERT INTO record({COLUMNS}) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)");
    let values = params![
        record.seq.cast_signed(),
        record.time_us,
        record.server_id,
        record.action,
        record.outcome,
        record.namespace,
        record.execution_id,
        record.caller,
        record.details,
        record.prev_hash,
        record.hash,
        record.signature,
    ];
    directory.raw().execute(&sql, values).unwrap();
}

/// Recomputes the chain from this record on, as an attacker without the key would.
fn recompute(directory: &Directory, from: u64, forger: &Signer) {
    let count = 11;
    let mut prev_hash = if from == 1 {
        [0; 32]
    } else {
        record(directory, from - 1).hash
    };
    for seq in from..=count {
        let mut record = record(directory, seq);
        record.prev_hash = prev_hash;
        record.hash = record.computed_hash();
        record.signature =
            forger.sign(&[b"ringfence audit signature v1\0".as_slice(), &record.hash].concat());
        prev_hash = record.hash;
        directory.tamper(&format!("DELETE FROM record WHERE seq = {seq}"));
        insert(directory, &record);
    }
    let head = record(directory, count).head();
    directory
        .raw()
        .execute(
            "UPDATE head SET hash = ?1, signature = ?2",
            params![head.hash, forger.sign(&head.signed_bytes())],
        )
        .unwrap();
}

/// claim: [REC-3]
#[test]
fn edit_of_any_column_is_reported() {
    for change in [
        "time_us = time_us + 1",
        "server_id = 'other'",
        "action = 'execution.completed'",
        "action = 'no.action'",
        "outcome = 'denied'",
        "namespace = 'other'",
        "execution_id = 'e'",
        "execution_id = ''",
        "caller = 'other'",
        "details = '{\"number\": 4}'",
        "details = details || char(0)",
        "prev_hash = zeroblob(32)",
        "hash = zeroblob(32)",
    ] {
        let directory = eleven();
        directory.tamper(&format!("UPDATE record SET {change} WHERE seq = 6"));
        directory.assert_bad(6, Fault::Edited);
    }
}

#[test]
fn changed_or_swapped_signature_is_reported() {
    for change in [
        "UPDATE record SET signature = zeroblob(64) WHERE seq = 6",
        "UPDATE record SET signature = (SELECT signature FROM record WHERE seq = 7) WHERE seq = 6",
        "UPDATE record SET signature = (SELECT signature FROM head) WHERE seq = 6",
    ] {
        let directory = eleven();
        directory.tamper(change);
        directory.assert_bad(6, Fault::Forged);
    }
}

#[test]
fn column_of_wrong_size_or_encoding_is_reported_as_a_bad_record() {
    for change in [
        "hash = zeroblob(31)",
        "signature = zeroblob(0)",
        "details = CAST(x'ff' AS TEXT)",
    ] {
        let directory = eleven();
        directory.tamper(&format!("UPDATE record SET {change} WHERE seq = 6"));
        let bad = directory.verdict().bad.unwrap();
        assert_eq!(bad.seq, 6, "{change}");
        assert!(matches!(bad.what, Fault::Unreadable(_)), "{change}: {bad}");
    }
}

/// claim: [REC-3]
#[test]
fn deleted_record_is_reported_at_any_position() {
    for seq in [1, 2, 6, 10] {
        let directory = eleven();
        directory.tamper(&format!("DELETE FROM record WHERE seq = {seq}"));
        directory.assert_bad(seq, Fault::Missing);
    }
    let directory = eleven();
    directory.tamper("DELETE FROM record WHERE seq = 6; UPDATE record SET seq = seq - 1 WHERE seq > 6");
    directory.assert_bad(6, Fault::Edited);
}

/// claim: [REC-3]
#[test]
fn record_inserted_in_the_middle_is_reported() {
    let directory = eleven();
    let mut inserted = record(&directory, 6);
    directory
        .tamper("UPDATE record SET seq = -seq WHERE seq >= 6; UPDATE record SET seq = 1 - seq WHERE seq < 0");
    inserted.caller = "other".to_owned();
    insert(&directory, &inserted);
    directory.assert_bad(6, Fault::Edited);
    // the same with a correct hash
    directory.tamper("DELETE FROM record WHERE seq = 6");
    inserted.hash = inserted.computed_hash();
    insert(&directory, &inserted);
    directory.assert_bad(6, Fault::Forged);
}

#[test]
fn record_before_the_first_is_reported() {
    for seq in ["0", "-5"] {
        let directory = eleven();
        directory.tamper(&format!("UPDATE record SET seq = {seq} WHERE seq = 3"));
        assert!(directory.verdict().bad.is_some_and(|bad| bad.seq <= 1), "{seq}");
    }
}

#[test]
fn record_after_the_head_is_reported() {
    let directory = eleven();
    let mut appended = record(&directory, 11);
    appended.seq = 12;
    appended.prev_hash = appended.hash;
    appended.hash = appended.computed_hash();
    insert(&directory, &appended);
    directory.assert_bad(12, Fault::Forged);
    // even with a valid signature, as of a record that was cut off before
    directory.tamper("DELETE FROM record WHERE seq = 12");
    appended.signature = directory
        .signer
        .sign(&[b"ringfence audit signature v1\0".as_slice(), &appended.hash].concat());
    insert(&directory, &appended);
    directory.assert_bad(12, Fault::BehindHead);
}

/// claim: [REC-3]
#[test]
fn swapped_records_are_reported() {
    let directory = eleven();
    directory.tamper(
        "UPDATE record SET seq = -1 WHERE seq = 5; UPDATE record SET seq = 5 WHERE seq = 6; \
         UPDATE record SET seq = 6 WHERE seq = -1",
    );
    directory.assert_bad(5, Fault::Edited);
}

#[test]
fn record_of_another_chain_of_the_same_key_is_reported() {
    let directory = eleven();
    let foreign = record(&directory, 6);
    fs::rename(directory.database(), directory.path.join("first.db")).unwrap();
    let audit = directory.open(Durability::Process);
    for number in 0..10 {
        audit.append_and_wait(fixture::entry(number)).unwrap();
    }
    drop(audit);
    assert_eq!(directory.verdict().bad, None);
    directory.tamper("DELETE FROM record WHERE seq = 6");
    insert(&directory, &foreign);
    directory.assert_bad(6, Fault::Unlinked);
}

/// claim: [REC-3]
#[test]
fn truncated_tail_is_reported() {
    let directory = eleven();
    directory.tamper("DELETE FROM record WHERE seq > 8");
    directory.assert_bad(9, Fault::Cut);
    let directory = eleven();
    directory.tamper("DELETE FROM record");
    directory.assert_bad(1, Fault::Cut);
    let directory = eleven();
    directory.tamper("DELETE FROM record; DELETE FROM head");
    directory.assert_bad(0, Fault::HeadMissing);
}

#[test]
fn missing_or_replaced_head_is_reported() {
    let cut = "DELETE FROM record WHERE seq > 8;";
    let moved =
        "UPDATE head SET (seq, time_us, hash) = (SELECT seq, time_us, hash FROM record WHERE seq = 8)";
    for (change, what) in [
        (format!("{cut} DELETE FROM head"), Fault::HeadMissing),
        (format!("{cut} {moved}"), Fault::HeadForged),
        (
            format!(
                "{cut} {moved}; UPDATE head SET signature = (SELECT signature FROM record WHERE seq = 8)"
            ),
            Fault::HeadForged,
        ),
        (
            format!("{cut} UPDATE head SET hash = zeroblob(3)"),
            Fault::HeadForged,
        ),
    ] {
        let directory = eleven();
        directory.tamper(&change);
        directory.assert_bad(8, what);
        assert_eq!(directory.verdict().head, None);
    }
}

/// claim: [REC-3]
#[test]
fn chain_recomputed_without_the_key_is_reported_at_its_first_record() {
    let forger = Signer::in_memory().unwrap();
    let directory = eleven();
    directory.tamper("UPDATE record SET outcome = 'denied' WHERE seq = 4");
    recompute(&directory, 4, &forger);
    directory.assert_bad(4, Fault::Forged);
    // with the forger's key, the first record fails; without a key, the chain is consistent
    let unsigned = verify(&directory.database(), None, None, &mut |_, _| {}).unwrap();
    assert_eq!(unsigned.bad, None);
    let theirs = verify(
        &directory.database(),
        Some(&forger.public_key()),
        None,
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(theirs.bad.unwrap().seq, 1);
}

/// claim: [REC-5]
#[test]
fn older_copy_of_the_file_does_not_contain_the_expected_head() {
    let directory = eleven();
    let older = fs::read(directory.database()).unwrap();
    let audit = directory.open(Durability::Process);
    let noted = audit.append_and_wait(fixture::entry(0)).unwrap();
    audit.append_and_wait(fixture::entry(1)).unwrap();
    audit.checkpoint(0);
    drop(audit);
    let check = |expected| {
        let key = directory.signer.public_key();
        verify(&directory.database(), Some(&key), Some(expected), &mut |_, _| {})
            .unwrap()
            .bad
    };
    assert_eq!(check((noted.seq, noted.hash)), None);
    assert_eq!(check((noted.seq, [1; 32])).unwrap().what, Fault::ExpectedDiffers);
    assert_eq!(check((0, [0; 32])).unwrap().what, Fault::ExpectedMissing);
    fs::write(directory.database(), older).unwrap();
    assert_eq!(directory.verdict().bad, None);
    let bad = check((noted.seq, noted.hash)).unwrap();
    assert_eq!((bad.seq, bad.what), (noted.seq, Fault::ExpectedMissing));
}

#[test]
fn index_that_hides_a_record_is_reported() {
    let directory = eleven();
    let rewrite = |from: &str, to: &str| {
        directory.tamper(&format!(
            "PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}') WHERE name = 'record_of_namespace'"
        ));
    };
    let (whole, nothing) = ("(namespace)", "(namespace) WHERE namespace IS NULL");
    rewrite(whole, nothing);
    directory.tamper("REINDEX record_of_namespace");
    rewrite(nothing, whole);
    let hidden = Query {
        namespace: Some("default".to_owned()),
        ..Query::default()
    };
    let seen = query(&directory.database(), &hidden).map(|page| page.records.len());
    assert_eq!(seen, Ok(0));
    assert!(matches!(directory.verdict().bad.unwrap().what, Fault::Index(_)));
}

#[test]
fn flipped_byte_is_reported_or_changes_no_record() {
    let directory = Directory::filled(2);
    let whole = fs::read(directory.database()).unwrap();
    let all = Query::default();
    let expect = query(&directory.database(), &all).unwrap();
    let key = directory.signer.public_key();
    let mut named = 0;
    for at in (0..whole.len()).step_by(61) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x11;
        fs::write(directory.database(), flipped).unwrap();
        match verify(&directory.database(), Some(&key), None, &mut |_, _| {}) {
            Ok(verdict) if verdict.bad.is_none() => {
                assert_eq!(query(&directory.database(), &all).unwrap(), expect, "byte {at}");
            }
            _ => named += 1,
        }
        for end in ["-wal", "-shm"] {
            fs::remove_file(directory.path.join(format!("audit.db{end}"))).unwrap_or_default();
        }
    }
    // records, signatures and schema are some thousand bytes
    assert!(named > 20, "{named}");
}

#[test]
fn extended_schema_is_refused_by_every_reader() {
    let directory = eleven();
    directory.tamper("CREATE TRIGGER forget AFTER INSERT ON record BEGIN DELETE FROM record; END");
    assert!(verify(&directory.database(), None, None, &mut |_, _| {}).is_err());
    assert!(query(&directory.database(), &Query::default()).is_err());
}

#[test]
fn clock_set_back_and_breaks_are_counted_but_are_not_faults() {
    let directory = eleven();
    assert_eq!(
        (directory.verdict().set_back, directory.verdict().breaks),
        (0, vec![])
    );
    // A chain dated ahead, then continued with the current time.
    let directory = Directory::new();
    let ahead = i64::MAX / 2;
    let audit = directory.open(Durability::Process);
    drop(audit);
    let mut first = record(&directory, 1);
    first.time_us = ahead;
    first.details = r#"{"reason":"damaged"}"#.to_owned();
    first.hash = first.computed_hash();
    first.signature = directory
        .signer
        .sign(&[b"ringfence audit signature v1\0".as_slice(), &first.hash].concat());
    directory.tamper("DELETE FROM record");
    insert(&directory, &first);
    let head = first.head();
    directory
        .raw()
        .execute(
            "UPDATE head SET time_us = ?1, hash = ?2, signature = ?3",
            params![ahead, head.hash, directory.signer.sign(&head.signed_bytes())],
        )
        .unwrap();
    directory
        .open(Durability::Process)
        .append_and_wait(fixture::entry(0))
        .unwrap();
    let verdict = directory.verdict();
    assert_eq!(
        (verdict.bad, verdict.set_back, verdict.breaks),
        (None, 1, vec![1])
    );
}

#[test]
fn first_bad_record_is_reported_across_chunks_and_threads() {
    let directory = Directory::filled(0);
    let audit = directory.open(Durability::Process);
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..1200 {
        let sender = sender.clone();
        audit.append(fixture::entry(number), move |result| {
            sender.send(result.is_ok()).unwrap()
        });
        // never more queued than the queue takes
        if number >= 1000 {
            assert!(receiver.recv().unwrap());
        }
    }
    drop(audit);
    let mut progress = Vec::new();
    let key = directory.signer.public_key();
    let whole = verify(&directory.database(), Some(&key), None, &mut |done, of| {
        progress.push((done, of))
    })
    .unwrap();
    assert_eq!((whole.bad, whole.records), (None, 1201));
    assert_eq!(progress.last(), Some(&(1201, 1201)));
    assert!(progress.len() > 2 && progress.is_sorted());
    directory.tamper(
        "UPDATE record SET signature = zeroblob(64) WHERE seq IN (700, 1100, 1150); \
         UPDATE record SET caller = 'x' WHERE seq IN (701, 1190)",
    );
    directory.assert_bad(700, Fault::Forged);
}

#[test]
fn in_memory_record_is_read_through_its_audit() {
    let signer = Signer::in_memory().unwrap();
    let audit = Audit::open(Storage::Memory, Durability::Power, signer, "server".to_owned()).unwrap();
    let receipt = audit.append_and_wait(fixture::entry(3)).unwrap();
    let page = audit.query(&Query::default()).unwrap();
    assert_eq!(page.records.len(), 2);
    assert_eq!(
        (page.records[1].seq, page.records[1].hash),
        (receipt.seq, receipt.hash)
    );
    assert_eq!(audit.head().seq, 2);
}
