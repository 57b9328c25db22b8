//! Sweeps: removal, retention and locking.

use super::{tests::*, *};
use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

#[test]
fn unpublished_content_is_swept_unless_it_is_pinned() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let held = put(&store, b"held");
    drop(put(&store, b"dropped"));
    // As if the process had died: its pin remains.
    std::mem::forget(put(&store, b"crashed"));
    store.set_retention(NOTHING);
    let swept = store.sweep().unwrap();
    assert_eq!((swept.blobs, swept.bytes, swept.held_bytes), (1, 4096, 2 * 4096));
    let item = Item {
        name: "out.txt".to_owned(),
        mime: String::new(),
        content: held,
    };
    store.set_retention(LARGE);
    store
        .publish(published("one", SystemTime::now()), vec![item])
        .unwrap();
    assert_eq!(
        store
            .sweep_with(Some(SystemTime::now() + 2 * HOUR))
            .unwrap()
            .blobs,
        1
    );
    assert!(!scratch.blob(b"crashed").exists());
    assert_eq!(read(&store, "one").unwrap().unwrap(), b"held");
    assert_eq!(scratch.files().len(), 3);
}

#[test]
fn hard_link_backup_does_not_keep_content_in_the_store() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    let backup = scratch.path.join("backup");
    fs::hard_link(scratch.blob(b"words"), &backup).unwrap();
    store.set_retention(NOTHING);
    let swept = store.sweep().unwrap();
    assert_eq!((swept.blobs, swept.held_bytes), (1, 0));
    assert_eq!(fs::read(backup).unwrap(), b"words");
}

#[test]
fn withdrawn_execution_is_removed_and_its_content_is_swept() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    assert!(store.withdraw("one").unwrap() && !store.withdraw("one").unwrap());
    assert!(read(&store, "one").unwrap().is_none());
    assert!(store.withdraw("../one").is_err());
    assert_eq!(store.sweep().unwrap().blobs, 1);
}

#[test]
fn publish_fails_if_content_with_an_expired_pin_was_swept() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let items = vec![item(&store, "out.txt", b"words")];
    assert_eq!(
        store
            .sweep_with(Some(SystemTime::now() + 2 * HOUR))
            .unwrap()
            .blobs,
        1
    );
    let late = store.publish(published("one", SystemTime::now()), items);
    assert!(matches!(late, Err(ArtifactError::Gone(name)) if name == "out.txt"));
    assert_eq!(scratch.files(), ["lock"]);
}

#[test]
fn same_content_added_concurrently_is_stored_once() {
    let scratch = Scratch::new();
    let signer = Signer::in_memory().unwrap();
    let stores = [scratch.open(&signer, LARGE), scratch.open(&signer, LARGE)];
    thread::scope(|scope| {
        for worker in 0..8 {
            let store = &stores[worker % 2];
            scope.spawn(move || {
                for round in 0..25 {
                    publish(
                        store,
                        &format!("{worker}-{round}"),
                        format!("words {round}").as_bytes(),
                    );
                }
            });
        }
    });
    for round in 0..25 {
        let blob = fs::metadata(scratch.blob(format!("words {round}").as_bytes())).unwrap();
        assert_eq!(blob.nlink(), 1);
    }
    assert_eq!(scratch.files().len(), 25 + 8 * 25 + 1);
    assert_eq!(read(&stores[0], "7-24").unwrap().unwrap(), b"words 24");
}

#[test]
fn concurrent_sweep_does_not_damage_a_publish() {
    let scratch = Scratch::new();
    let signer = Signer::in_memory().unwrap();
    let adding = scratch.open(&signer, NOTHING);
    let sweeping = scratch.open(&signer, NOTHING);
    let swept = AtomicU64::new(0);
    let published: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (adding, swept) = (&adding, &swept);
                scope.spawn(move || {
                    let mut round = 0;
                    // Until a sweep has removed something.
                    while round < 50 || (round < 50_000 && swept.load(Ordering::Relaxed) == 0) {
                        let execution_id = format!("{worker}-{round}");
                        publish(adding, &execution_id, b"shared words");
                        // Whole, or swept since; never partial.
                        let bytes = read(adding, &execution_id).unwrap();
                        assert!(bytes.is_none_or(|bytes| bytes == b"shared words"));
                        round += 1;
                    }
                    round
                })
            })
            .collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            swept.fetch_add(sweeping.sweep().unwrap().executions, Ordering::Relaxed);
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let swept = swept.into_inner();
    assert!(swept > 0, "no sweep removed anything");
    let last = sweeping.sweep().unwrap();
    assert_eq!(swept + last.executions, published);
    assert_eq!(last.held_bytes, 0);
    assert_eq!(scratch.files(), ["lock"]);
}

#[test]
fn executions_over_age_or_size_are_removed_oldest_first() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let now = SystemTime::now();
    publish_at(&store, "ancient", b"a", now - 31 * DAY);
    publish_at(&store, "b-older", b"b", now - 3 * DAY);
    publish_at(&store, "a-newer", b"c", now - 2 * DAY);
    publish_at(&store, "shared", b"b", now - DAY);
    let ids = || -> Vec<String> {
        let listed = store.executions(&namespace("ours"), 10).unwrap();
        listed.into_iter().map(|one| one.execution_id).collect()
    };
    assert_eq!(store.sweep().unwrap().executions, 1);
    assert_eq!(ids(), ["shared", "a-newer", "b-older"]);
    // Two blobs and three manifests. Without the oldest manifest they fit; the newest has the same content.
    store.set_retention(Retention {
        bytes: 4 * 4096,
        ..LARGE
    });
    let swept = store.sweep().unwrap();
    assert_eq!((swept.executions, swept.blobs, swept.bytes), (1, 0, 4096));
    assert_eq!(swept.held_bytes, 4 * 4096);
    store.set_retention(Retention {
        bytes: 4 * 4096 - 1,
        ..LARGE
    });
    let swept = store.sweep().unwrap();
    assert_eq!(
        (swept.executions, swept.blobs, swept.held_bytes),
        (1, 1, 2 * 4096)
    );
    assert_eq!(ids(), ["shared"]);
    assert_eq!(read(&store, "shared").unwrap().unwrap(), b"b");
}

/// claim: [ART-4]
#[test]
fn only_the_largest_namespace_loses_its_oldest_execution() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let now = SystemTime::now();
    publish_at(&store, "ours", b"ours", now - 2 * DAY);
    for number in 0..4_u32 {
        let flood = Published {
            namespace: namespace("theirs"),
            ..published(&format!("theirs-{number}"), now - DAY + number * HOUR)
        };
        let content = item(&store, "out.txt", &number.to_le_bytes());
        store.publish(flood, vec![content]).unwrap();
    }
    let count = |name: &str| store.executions(&namespace(name), 10).unwrap().len();
    for (files, expect) in [(6, (1, 2)), (4, (1, 1)), (2, (0, 1))] {
        store.set_retention(Retention {
            bytes: files * 4096,
            ..LARGE
        });
        store.sweep().unwrap();
        assert_eq!(
            (count("ours"), count("theirs")),
            expect,
            "{files}: among equals the oldest is removed"
        );
    }
    assert_eq!(
        store.executions(&namespace("theirs"), 10).unwrap()[0].execution_id,
        "theirs-3"
    );
}

#[test]
fn future_dated_executions_are_removed_only_for_size() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let now = SystemTime::now();
    publish_at(&store, "soon", b"a", now + HOUR);
    publish_at(&store, "far", b"b", now + 31 * DAY);
    for (execution_id, time_unix_ms) in [("end", u64::MAX), ("start", 0)] {
        let published = Published {
            time_unix_ms,
            ..published(execution_id, now)
        };
        store
            .publish(published, vec![item(&store, "out.txt", b"c")])
            .unwrap();
    }
    assert_eq!(
        store.executions(&namespace("ours"), 10).unwrap()[0].execution_id,
        "end"
    );
    assert_eq!(store.sweep().unwrap().executions, 1);
    assert!(read(&store, "soon").unwrap().is_some());
    // The clock is set back, then very far back.
    assert_eq!(store.sweep_with(Some(now - 10 * DAY)).unwrap().executions, 0);
    assert_eq!(
        store.sweep_with(Some(SystemTime::UNIX_EPOCH)).unwrap().executions,
        0
    );
    store.set_retention(NOTHING);
    assert_eq!(store.sweep_with(Some(now)).unwrap().executions, 3);
}

#[test]
fn damaged_manifest_ages_by_mtime_and_foreign_files_are_kept() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    publish(&store, "two", b"others");
    overwrite(&scratch.manifest("two"), b"{");
    let outside = Scratch::new();
    fs::create_dir(&outside.path).unwrap();
    let hex = digest(&b"outside"[..]).unwrap().0;
    fs::write(outside.path.join(&hex), b"outside").unwrap();
    symlink(&outside.path, scratch.path.join("blobs/zz")).unwrap();
    symlink(
        outside.path.join(&hex),
        scratch.blob(b"words").with_file_name(&hex),
    )
    .unwrap();
    fs::create_dir(scratch.path.join("executions/three.json")).unwrap();
    fs::write(scratch.path.join("executions/note"), b"").unwrap();

    let swept = store.sweep().unwrap();
    assert_eq!(
        (swept.executions, swept.blobs),
        (0, 1),
        "no manifest names its content"
    );
    assert_eq!(read(&store, "one").unwrap().unwrap(), b"words");
    let old = File::open(scratch.manifest("two")).unwrap();
    old.set_modified(SystemTime::now() - 31 * DAY).unwrap();
    assert_eq!(store.sweep().unwrap().executions, 1);
    assert!(!scratch.manifest("two").exists());
    assert_eq!(fs::read(outside.path.join(&hex)).unwrap(), b"outside");
    assert!(scratch.path.join("executions/note").exists());
}

#[test]
fn sweep_does_not_wait_and_reports_busy() {
    let scratch = Scratch::new();
    let store = scratch.store();
    publish(&store, "one", b"words");
    store.set_retention(NOTHING);
    let adding = store.layout.lock_shared().unwrap();
    let swept = store.sweep().unwrap();
    assert_eq!(
        swept,
        Swept {
            busy: true,
            ..Swept::default()
        }
    );
    assert!(store.sweep_is_due(), "it is still due");
    drop(adding);
    assert_eq!(store.sweep().unwrap().executions, 1);
}

#[test]
fn directory_open_to_others_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(&scratch.path).unwrap();
    fs::set_permissions(&scratch.path, fs::Permissions::from_mode(0o750)).unwrap();
    let signer = Signer::in_memory().unwrap();
    let refused = ArtifactStore::open(scratch.path.clone(), signer.clone(), LARGE).unwrap_err();
    assert!(refused.to_string().contains("chmod"), "{refused}");
    fs::set_permissions(&scratch.path, fs::Permissions::from_mode(0o700)).unwrap();
    ArtifactStore::open(scratch.path.clone(), signer, LARGE).unwrap();
}

#[test]
fn sweep_is_due_by_size_age_or_unreadable_count() {
    let scratch = Scratch::new();
    let signer = Signer::in_memory().unwrap();
    let retention = Retention {
        bytes: 4 * 4096,
        ..LARGE
    };
    let store = scratch.open(&signer, retention);
    assert!(!store.sweep_is_due(), "a new store holds nothing");
    for execution_id in ["one", "two"] {
        publish(&store, execution_id, execution_id.as_bytes());
    }
    assert!(!store.sweep_is_due(), "not beyond");
    publish(&store, "three", b"three");
    assert!(store.sweep_is_due());
    assert_eq!(store.sweep().unwrap().executions, 1);
    assert!(!store.sweep_is_due());
    let other = scratch.open(&signer, retention);
    assert_eq!((other.bytes(), other.sweep_is_due()), (4 * 4096, false));
    other.set_retention(Retention { bytes: 4096, ..LARGE });
    assert!(other.sweep_is_due());
    assert_eq!(other.sweep().unwrap().executions, 2);
    assert!(!store.sweep_is_due());
    assert_eq!(store.bytes(), 0, "what another process counted");
    let lock = File::open(scratch.path.join("lock")).unwrap();
    for off in [SystemTime::now() - 2 * HOUR, SystemTime::now() + 2 * HOUR] {
        lock.set_modified(off).unwrap();
        assert!(store.sweep_is_due());
    }
    overwrite(&scratch.path.join("lock"), b"no count");
    assert!(store.sweep_is_due());
    assert!(!store.sweep().unwrap().busy);
    assert!(!store.sweep_is_due());
}

#[test]
fn sweep_is_due_by_what_ended_processes_have_added() {
    let scratch = Scratch::new();
    let signer = Signer::in_memory().unwrap();
    let retention = Retention {
        bytes: 4 * 4096,
        ..LARGE
    };
    for execution_id in ["one", "two", "three"] {
        let store = scratch.open(&signer, retention);
        publish(&store, execution_id, execution_id.as_bytes());
        assert_eq!(store.sweep_is_due(), execution_id == "three");
        store.note_added().unwrap();
    }
    let store = scratch.open(&signer, retention);
    assert!(store.sweep_is_due());
    store.sweep().unwrap();
    let store = scratch.open(&signer, retention);
    assert_eq!((store.bytes(), store.sweep_is_due()), (4 * 4096, false));
}

#[test]
fn list_is_newest_first_limited_and_omits_damaged_manifests() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let now = SystemTime::now();
    for (execution_id, age) in [("b", 2), ("a", 1), ("c", 3), ("d", 0)] {
        publish_at(&store, execution_id, b"words", now - age * HOUR);
    }
    overwrite(&scratch.manifest("d"), b"[]");
    let listed = store.executions(&namespace("ours"), 2).unwrap();
    let ids: Vec<&str> = listed.iter().map(|one| one.execution_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!((listed[0].artifacts, listed[0].size_bytes), (1, 5));
    assert_eq!(listed[0].created_unix_ms, unix_ms(now - HOUR));
}

#[test]
fn killed_process_leaves_complete_executions_only() {
    #![expect(clippy::disallowed_methods, reason = "a test starts itself, to kill it")]
    let scratch = Scratch::new();
    let store = scratch.store();
    let mut survived = 0;
    for round in 0..6 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "artifacts::sweep_tests::publishes_until_killed",
            ])
            .current_dir(&scratch.path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        let executions = || fs::read_dir(scratch.path.join("executions")).unwrap().count();
        while executions() < survived + 3 + round {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "the child publishes nothing"
            );
            assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        survived = executions();
    }
    for entry in fs::read_dir(scratch.path.join("executions")).unwrap() {
        let manifest: Manifest = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        verify_manifest(&manifest, None).unwrap();
        assert_eq!(manifest.artifacts.len(), 3);
        for item in manifest.artifacts {
            let blob = scratch
                .path
                .join("blobs")
                .join(&item.sha256[..2])
                .join(&item.sha256);
            assert_eq!(
                digest(File::open(blob).unwrap()).unwrap(),
                (item.sha256, item.size_bytes)
            );
        }
    }
    let swept = store.sweep_with(Some(SystemTime::now() + 2 * HOUR)).unwrap();
    assert_eq!(
        (swept.busy, swept.executions),
        (false, 0),
        "dead processes hold no lock"
    );
    assert_eq!(fs::read_dir(scratch.path.join("incoming")).unwrap().count(), 0);
}

/// Child process of the test above; its working directory is the store. Bounded, in case the parent does not kill it.
#[test]
#[ignore = "is started and killed by the test above"]
fn publishes_until_killed() {
    let here = std::env::current_dir().unwrap();
    assert!(here.join("lock").exists(), "only as the child of the test above");
    let store = ArtifactStore::open(here, Signer::in_memory().unwrap(), LARGE).unwrap();
    for round in 0..5000 {
        let execution_id = format!("{}-{round}", std::process::id());
        let mut items = vec![item(&store, "shared", b"shared words")];
        for name in ["a", "b"] {
            items.push(item(
                &store,
                name,
                format!("{execution_id} {name}").repeat(1000).as_bytes(),
            ));
        }
        store
            .publish(published(&execution_id, SystemTime::now()), items)
            .unwrap();
    }
}

#[test]
fn clock_jump_removes_nothing_for_its_age() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let days = |count: u32| 24 * count * HOUR;
    // Clock set back by more than the retention age: existing executions are dated in the future.
    let in_future = SystemTime::now() + days(400);
    store.publish(published("future", in_future), Vec::new()).unwrap();
    let in_past = SystemTime::now() - days(400);
    store.publish(published("past", in_past), Vec::new()).unwrap();
    store.set_retention(Retention {
        age: days(7),
        ..LARGE
    });
    // Clock set forward by more than that: the last time seen was long ago.
    let seen = (SystemTime::now() - days(300)).duration_since(SystemTime::UNIX_EPOCH);
    let clock = scratch.path.with_file_name("clock.json");
    let text = format!("{{\"seen_ms\":{},\"jumped_ms\":null}}", seen.unwrap().as_millis());
    fs::write(&clock, text).unwrap();
    assert_eq!(store.sweep().unwrap().executions, 0);
    fs::remove_file(&clock).unwrap();
    assert_eq!(store.sweep().unwrap().executions, 1);
    assert!(scratch.manifest("future").exists() && !scratch.manifest("past").exists());
}
