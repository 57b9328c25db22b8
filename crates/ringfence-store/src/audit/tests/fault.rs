//! Faults of the disk and between processes: nothing is lost silently.

use crate::audit::{
    Audit, AuditError, Durability, Query, Storage,
    chain::Writer,
    entry::Encoded,
    open_chain::OpenChain,
    query,
    tests::fixture::{self, Directory},
    verify,
};
use serde_json::Value;
use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::Barrier,
    thread,
    time::Duration,
};

fn chain(directory: &Directory) -> OpenChain {
    let writer = Writer {
        signer: directory.signer.clone(),
        public_key: directory.signer.public_key(),
        server_id: "server".to_owned(),
        durability: Durability::Process,
    };
    OpenChain::open(Storage::File(directory.database()), writer).unwrap()
}

fn batch(count: u64) -> Vec<Encoded> {
    (0..count)
        .map(|number| fixture::entry(number).encoded().unwrap())
        .collect()
}

/// The details of one record.
fn details(directory: &Directory, seq: u64) -> Value {
    let one = Query {
        after_seq: Some(seq - 1),
        limit: 1,
        ..Query::default()
    };
    serde_json::from_str(&query(&directory.database(), &one).unwrap().records[0].details).unwrap()
}

/// The details of the first record in the file.
fn first_details(directory: &Directory) -> Value {
    let first = query(&directory.database(), &Query::default()).unwrap();
    serde_json::from_str(&first.records[0].details).unwrap()
}

#[test]
fn new_file_records_its_reason_and_an_existing_one_is_continued() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    assert_eq!(details(&directory, 1)["reason"], "new");
    let receipt = audit.append_and_wait(fixture::entry(1)).unwrap();
    drop(audit);
    let audit = directory.open(Durability::Process);
    assert_eq!((audit.head().seq, audit.head().hash), (2, receipt.hash));
    drop(audit);
    directory.assert_whole(2);
}

#[test]
fn files_are_private_to_their_owner() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Process);
    for name in [
        "audit.db",
        "audit.db-wal",
        "audit.db-shm",
        "audit.open.lock",
        "audit.server.alive",
    ] {
        let mode = fs::metadata(directory.path.join(name)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(audit);
    fs::set_permissions(directory.database(), fs::Permissions::from_mode(0o666)).unwrap();
    drop(directory.open(Durability::Process));
    assert_eq!(fs::metadata(directory.database()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn symlink_in_place_of_the_database_is_not_followed() {
    let directory = Directory::filled(1);
    let real = directory.path.join("elsewhere.db");
    fs::rename(directory.database(), &real).unwrap();
    std::os::unix::fs::symlink(&real, directory.database()).unwrap();
    assert!(matches!(
        directory.try_open().err().unwrap(),
        AuditError::Io { .. }
    ));
    assert!(query(&directory.database(), &Query::default()).is_err());
}

#[test]
fn empty_file_begins_a_chain_and_an_unusable_path_is_refused() {
    // as after a crash while it was created
    let directory = Directory::new();
    fs::write(directory.database(), b"").unwrap();
    drop(directory.open(Durability::Process));
    assert_eq!(first_details(&directory)["reason"], "new");
    let place = |name: &str| Storage::File(directory.path.join(name));
    let refused = Audit::open(
        place(""),
        Durability::Process,
        directory.signer.clone(),
        String::new(),
    );
    assert!(refused.is_err());
    fs::create_dir(directory.path.join("directory.db")).unwrap();
    let refused = Audit::open(
        place("directory.db"),
        Durability::Process,
        directory.signer.clone(),
        String::new(),
    );
    assert!(matches!(refused.err().unwrap(), AuditError::Io { .. }));
}

#[test]
fn missing_directory_is_an_error() {
    let directory = Directory::new();
    fs::remove_dir_all(&directory.path).unwrap();
    assert_eq!(
        directory.try_open().err().unwrap(),
        AuditError::Gone(directory.path.to_path_buf())
    );
}

#[test]
fn full_disk_is_reported_and_the_chain_continues_when_there_is_space() {
    let directory = Directory::filled(3);
    let mut chain = chain(&directory);
    let pages = |chain: &OpenChain, count: i64| {
        let connection = chain.connection().unwrap();
        connection
            .pragma_update_and_check(None, "max_page_count", count, |_| Ok(()))
            .unwrap();
    };
    pages(&chain, 1);
    let full = loop {
        match chain.append(&batch(50)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full, AuditError::DiskFull(directory.database()));
    assert_eq!(chain.append(&batch(50)).unwrap_err(), full);
    pages(&chain, 1 << 20);
    let before = chain.head.seq;
    let receipts = chain.append(&batch(2)).unwrap();
    assert_eq!(
        receipts.iter().map(|receipt| receipt.seq).collect::<Vec<_>>(),
        [before + 1, before + 2]
    );
    drop(chain);
    directory.assert_whole(before + 2);
}

#[test]
fn read_only_database_is_reported() {
    let directory = Directory::filled(3);
    let mut chain = chain(&directory);
    chain
        .connection()
        .unwrap()
        .pragma_update(None, "query_only", true)
        .unwrap();
    assert_eq!(
        chain.append(&batch(1)).unwrap_err(),
        AuditError::ReadOnly(directory.database())
    );
    chain
        .connection()
        .unwrap()
        .pragma_update(None, "query_only", false)
        .unwrap();
    assert_eq!(chain.append(&batch(1)).unwrap()[0].seq, 5);
}

#[test]
fn locked_database_is_reported_and_then_continued() {
    let directory = Directory::filled(3);
    let mut chain = chain(&directory);
    chain
        .connection()
        .unwrap()
        .busy_timeout(Duration::from_millis(20))
        .unwrap();
    let other = directory.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(
        chain.append(&batch(1)).unwrap_err(),
        AuditError::Locked(directory.database())
    );
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(chain.append(&batch(1)).unwrap()[0].seq, 5);
    drop(chain);
    directory.assert_whole(5);
}

#[test]
fn damaged_file_is_moved_aside_and_recorded_in_the_new_chain() {
    type Damage = (&'static str, fn(&Directory));
    let damages: [Damage; 7] = [
        ("not a database", |directory| {
            fs::write(directory.database(), vec![b'x'; 9000]).unwrap();
        }),
        ("cut in the middle", |directory| {
            let file = fs::File::options()
                .write(true)
                .open(directory.database())
                .unwrap();
            file.set_len(4096 + 100).unwrap();
        }),
        ("first page overwritten", |directory| {
            let mut file = fs::File::options()
                .write(true)
                .open(directory.database())
                .unwrap();
            file.seek(SeekFrom::Start(100)).unwrap();
            file.write_all(&[0xff; 2000]).unwrap();
        }),
        ("schema", |directory| {
            directory.tamper("DROP INDEX record_of_time")
        }),
        ("cut tail", |directory| {
            directory.tamper("DELETE FROM record WHERE seq = 4")
        }),
        ("head", |directory| directory.tamper("DELETE FROM head")),
        ("last record", |directory| {
            directory.tamper("UPDATE record SET caller = 'x' WHERE seq = 4")
        }),
    ];
    for (what, damage) in damages {
        let directory = Directory::filled(3);
        damage(&directory);
        let audit = directory.open(Durability::Process);
        let aside = directory.aside();
        assert_eq!(aside.len(), 1, "{what}");
        let began = first_details(&directory);
        assert_ne!(began["damage"], "", "{what}");
        assert_eq!(began["reason"], "damaged", "{what}");
        assert_eq!(began["moved_to"], aside[0].to_str().unwrap(), "{what}");
        let mut first = 1;
        if matches!(what, "cut tail" | "last record") {
            assert_eq!(began["previous_head_seq"], 4, "{what}");
            assert!(began["previous_head_hash"].is_string(), "{what}");
            first = 5;
        }
        audit.append_and_wait(fixture::entry(1)).unwrap();
        drop(audit);
        directory.assert_whole(2);
        assert_eq!(directory.verdict().breaks, [first], "{what}");
    }
}

#[test]
fn files_damaged_within_a_second_get_different_names() {
    let directory = Directory::filled(1);
    for _ in 0..3 {
        directory.tamper("DELETE FROM head");
        drop(directory.open(Durability::Process));
    }
    assert_eq!(directory.aside().len(), 3);
}

#[test]
fn chain_of_another_key_is_moved_aside_and_not_continued() {
    let mut directory = Directory::filled(1);
    directory.signer = crate::Signer::in_memory().unwrap();
    drop(directory.open(Durability::Process));
    assert_eq!(first_details(&directory)["reason"], "damaged");
    directory.assert_whole(1);
}

#[test]
fn damaged_file_open_in_another_server_is_moved_aside_and_both_continue() {
    let directory = Directory::filled(1);
    let first = directory.open(Durability::Process);
    directory.tamper("DELETE FROM head");
    let second = directory.open(Durability::Process);
    assert_eq!(first_details(&directory)["reason"], "damaged");
    second.append_and_wait(fixture::entry(1)).unwrap();
    assert!(matches!(
        first.append_and_wait(fixture::entry(2)),
        Err(AuditError::Replaced(_))
    ));
    first.append_and_wait(fixture::entry(3)).unwrap();
    assert_eq!(directory.aside().len(), 1);
    drop((first, second));
    assert_eq!(directory.verdict().bad, None);
}

#[test]
fn newer_schema_is_refused_and_left_unchanged() {
    let directory = Directory::filled(1);
    directory.tamper("PRAGMA user_version = 2; ALTER TABLE head ADD COLUMN later TEXT");
    let refused = directory.try_open().err().unwrap();
    assert!(
        matches!(refused, AuditError::NewerSchema { version: 2, .. }),
        "{refused}"
    );
    assert!(directory.aside().is_empty());
    let refused = verify(&directory.database(), None, None, &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused, AuditError::NewerSchema { version: 2, .. }));
}

#[test]
fn file_damaged_under_a_running_server_is_moved_aside_and_recorded() {
    for damage in [
        "DELETE FROM record WHERE seq = 4",
        "UPDATE head SET signature = zeroblob(64), seq = 3",
        "DELETE FROM head",
        "INSERT INTO record SELECT seq + 1, time_us, server_id, action, outcome, namespace, execution_id, caller, \
         details, prev_hash, hash, signature FROM record WHERE seq = 4",
    ] {
        let directory = Directory::filled(3);
        let audit = directory.open(Durability::Process);
        directory.tamper(damage);
        // The chain continues with the number after the last one that this server wrote.
        assert_eq!(
            audit.append_and_wait(fixture::entry(1)).unwrap().seq,
            6,
            "{damage}"
        );
        let began = first_details(&directory);
        assert_eq!(
            (&began["reason"], &began["previous_head_seq"]),
            (&"damaged".into(), &4.into())
        );
        assert_eq!(directory.aside().len(), 1, "{damage}");
        drop(audit);
        directory.assert_whole(2);
    }
}

#[test]
fn older_valid_state_put_back_under_a_running_server_is_detected() {
    let directory = Directory::filled(3);
    let audit = directory.open(Durability::Process);
    let raw = directory.raw();
    raw.execute_batch("ATTACH ':memory:' AS kept; CREATE TABLE kept.head AS SELECT * FROM main.head")
        .unwrap();
    audit.append_and_wait(fixture::entry(1)).unwrap();
    raw.execute_batch(
        "DELETE FROM main.record WHERE seq > 4; REPLACE INTO main.head SELECT * FROM kept.head",
    )
    .unwrap();
    directory.assert_whole(4);
    audit.append_and_wait(fixture::entry(2)).unwrap();
    let damage = first_details(&directory)["damage"].to_string();
    assert!(damage.contains("set back"), "{damage}");
    assert_eq!(directory.aside().len(), 1);
}

#[test]
fn file_deleted_under_a_running_server_is_reported_and_begun_anew() {
    let directory = Directory::filled(3);
    let audit = directory.open(Durability::Process);
    let last = audit.append_and_wait(fixture::entry(1)).unwrap();
    fs::remove_file(directory.database()).unwrap();
    assert_eq!(
        audit.append_and_wait(fixture::entry(2)),
        Err(AuditError::Replaced(directory.database()))
    );
    assert_eq!(
        audit.append_and_wait(fixture::entry(3)).unwrap().seq,
        last.seq + 2
    );
    let began = first_details(&directory);
    assert_eq!(
        (&began["reason"], &began["previous_head_seq"]),
        (&"replaced".into(), &last.seq.into())
    );
    drop(audit);
    directory.assert_whole(2);
}

#[test]
fn older_copy_in_place_of_the_file_is_recorded_in_the_chain() {
    let directory = Directory::filled(3);
    let copy = directory.path.join("copy.db");
    fs::copy(directory.database(), &copy).unwrap();
    let audit = directory.open(Durability::Process);
    audit.append_and_wait(fixture::entry(1)).unwrap();
    fs::rename(&copy, directory.database()).unwrap();
    for end in ["-wal", "-shm"] {
        fs::remove_file(directory.path.join(format!("audit.db{end}"))).unwrap();
    }
    assert!(matches!(
        audit.append_and_wait(fixture::entry(2)),
        Err(AuditError::Replaced(_))
    ));
    assert_eq!(audit.append_and_wait(fixture::entry(3)).unwrap().seq, 6);
    assert_eq!(details(&directory, 5)["reason"], "replaced");
    drop(audit);
    directory.assert_whole(6);
    assert_eq!(directory.verdict().breaks, [5]);
}

#[test]
fn log_deleted_under_a_running_server_is_detected() {
    for end in ["-wal", "-shm"] {
        let directory = Directory::filled(3);
        let audit = directory.open(Durability::Process);
        audit.append_and_wait(fixture::entry(1)).unwrap();
        fs::remove_file(directory.path.join(format!("audit.db{end}"))).unwrap();
        assert!(
            matches!(
                audit.append_and_wait(fixture::entry(2)),
                Err(AuditError::Replaced(_))
            ),
            "{end}"
        );
        audit.append_and_wait(fixture::entry(3)).unwrap();
        drop(audit);
        assert_eq!(directory.verdict().bad, None, "{end}");
    }
}

#[test]
fn log_without_its_database_is_kept_and_not_merged_into_the_new_one() {
    let directory = Directory::filled(3);
    fs::remove_file(directory.database()).unwrap();
    fs::write(directory.path.join("audit.db-wal"), b"a log").unwrap();
    drop(directory.open(Durability::Process));
    let kept: Vec<_> = fs::read_dir(&directory.path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".damaged.db-wal"))
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::read(&kept[0]).unwrap(), b"a log");
}

#[test]
fn removed_directory_is_reported_each_time_until_it_is_back() {
    let directory = Directory::filled(3);
    let audit = directory.open(Durability::Process);
    fs::remove_dir_all(&directory.path).unwrap();
    for _ in 0..3 {
        assert!(audit.append_and_wait(fixture::entry(1)).is_err());
    }
    fs::create_dir(&directory.path).unwrap();
    audit.append_and_wait(fixture::entry(1)).unwrap();
    drop(audit);
    directory.assert_whole(2);
}

#[test]
fn servers_on_one_file_write_one_chain_beside_readers() {
    let directory = Directory::filled(0);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let audit = directory.open(Durability::Process);
                start.wait();
                for number in 0..100 {
                    audit.append_and_wait(fixture::entry(number)).unwrap();
                }
            });
        }
        start.wait();
        let mut seen = 0;
        while seen < 301 {
            let verdict = directory.verdict();
            assert_eq!(verdict.bad, None);
            assert!(verdict.records >= seen);
            seen = verdict.records;
            let newest = Query {
                newest_first: true,
                limit: 1,
                ..Query::default()
            };
            assert!(query(&directory.database(), &newest).unwrap().records[0].seq >= seen);
        }
    });
    directory.assert_whole(301);
}

#[test]
fn servers_starting_at_once_without_a_file_share_one_chain() {
    for _ in 0..10 {
        let directory = Directory::new();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    directory
                        .open(Durability::Process)
                        .append_and_wait(fixture::entry(0))
                        .unwrap();
                });
            }
        });
        directory.assert_whole(5);
        assert!(directory.aside().is_empty());
    }
}

#[test]
fn servers_starting_at_once_move_a_damaged_file_aside_once() {
    for _ in 0..10 {
        let directory = Directory::filled(1);
        directory.tamper("DELETE FROM head");
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    directory
                        .open(Durability::Process)
                        .append_and_wait(fixture::entry(0))
                        .unwrap();
                });
            }
        });
        directory.assert_whole(5);
        assert_eq!(directory.aside().len(), 1);
    }
}

#[test]
fn chain_on_disk_is_complete_after_each_commit() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let copy = Directory::new();
    for number in 0..20 {
        let receipt = audit.append_and_wait(fixture::entry(number)).unwrap();
        // as after a killed process: the database and its log, without the index of the log
        for end in ["", "-wal"] {
            let name = format!("audit.db{end}");
            fs::copy(directory.path.join(&name), copy.path.join(&name)).unwrap();
        }
        let key = directory.signer.public_key();
        let expected = Some((receipt.seq, receipt.hash));
        let verdict = verify(&copy.database(), Some(&key), expected, &mut |_, _| {}).unwrap();
        assert_eq!((verdict.bad, verdict.records), (None, receipt.seq));
        for end in ["", "-wal", "-shm"] {
            fs::remove_file(copy.path.join(format!("audit.db{end}"))).unwrap_or_default();
        }
    }
}
