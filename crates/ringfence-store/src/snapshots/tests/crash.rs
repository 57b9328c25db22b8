//! Crashes, full disks and hostile programs: the workspace is in the old or the new state, and nothing outside is
//! changed.

use crate::{
    snapshots::{
        tests::fixture::{
            LIMITS, Scratch, State, about, chmod, namespace, noise, populate, set_mtime, state,
        },
        *,
    },
    tests::TestDir,
};
use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

/// Changes the workspace in every way that a restore has to undo.
fn ruin(scratch: &Scratch) {
    fs::remove_dir_all(scratch.path("")).unwrap();
    fs::create_dir(scratch.path("")).unwrap();
    scratch.write("plain.txt", "other words\n");
    scratch.write("deep", "a file");
    scratch.write("empty/in/a directory", "x");
    scratch.write("nothing in it/something", "y");
    scratch.write("script.sh", "#!/bin/sh\n");
    chmod(&scratch.path("script.sh"), 0o600);
    symlink("elsewhere", scratch.path("in")).unwrap();
    symlink("/etc", scratch.path("sparse")).unwrap();
    scratch.write("unwanted/1/2/3", "z");
    set_mtime(&scratch.path("unwanted"), 5, 5);
    set_mtime(&scratch.path(""), 6, 6);
}

/// Starts this test binary in the directory of the scratch; it kills itself at the step of this number.
fn child(scratch: &Scratch, test: &str, step: u64) -> Child {
    #![expect(clippy::disallowed_methods, reason = "a test starts itself, to kill it")]
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            &format!("snapshots::tests::crash::{test}"),
        ])
        .env("RINGFENCE_TEST_STEPS", step.to_string())
        .current_dir(&scratch.base)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn journals(scratch: &Scratch) -> usize {
    fs::read_dir(scratch.base.join("store/journals")).unwrap().count()
}

#[test]
fn restore_killed_at_any_step_leaves_old_or_new_state() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let new = scratch.state();
    let id = scratch.create(&store).id;
    let (mut undone, mut done, mut killed_twice) = (0, 0, 0);
    for step in 0..200 {
        ruin(&scratch);
        let old = scratch.state();
        let status = child(&scratch, "restores", step).wait().unwrap();
        if status.success() {
            assert_eq!(scratch.state(), new);
            assert!(
                undone > 2 && done > 9 && killed_twice > 5,
                "{undone} {done} {killed_twice}"
            );
            return;
        }
        // Killed again while it resumes.
        if !child(&scratch, "resumes", step / 2).wait().unwrap().success() {
            killed_twice += 1;
        }
        match store.resume(scratch.root().as_fd()).unwrap() {
            Some(Resumed::Done(of, _)) => {
                assert_eq!(of, id);
                assert_eq!(scratch.state(), new, "step {step}");
                done += 1;
            }
            Some(Resumed::Undone(of)) => {
                assert_eq!((of, scratch.state() == old), (id, true), "step {step}");
                undone += 1;
            }
            None => {
                let state = scratch.state();
                assert!(state == old || state == new, "step {step}");
            }
        }
        assert_eq!(journals(&scratch), 0);
        assert_eq!(store.resume(scratch.root().as_fd()).unwrap(), None);
    }
    panic!("a restore has fewer steps");
}

/// The child process of the test above.
#[test]
#[ignore = "is started and killed by the test above"]
fn restores() {
    let scratch = Scratch::at(TestDir::at(std::env::current_dir().unwrap()));
    let scratch = std::mem::ManuallyDrop::new(scratch);
    let store = scratch.store();
    let id = store.list(&namespace("ours")).unwrap()[0].id;
    scratch.restore(&store, id);
}

/// Another child process of the test above.
#[test]
#[ignore = "is started and killed by the test above"]
fn resumes() {
    let scratch = Scratch::at(TestDir::at(std::env::current_dir().unwrap()));
    let scratch = std::mem::ManuallyDrop::new(scratch);
    scratch.store().resume(scratch.root().as_fd()).unwrap();
}

#[test]
fn snapshot_of_decided_restore_cannot_be_deleted() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let mut id = scratch.create(&store).id;
    let mut step = 0;
    loop {
        ruin(&scratch);
        assert!(
            !child(&scratch, "restores", step).wait().unwrap().success(),
            "some step is decided"
        );
        let deleted = store.delete(id, &namespace("ours"));
        if deleted.is_err() {
            assert!(matches!(deleted, Err(SnapshotError::InUse(of)) if of == id));
            break;
        }
        // It was not decided, so its snapshot could be deleted. Repeat with one more step.
        assert!(matches!(
            store.resume(scratch.root().as_fd()),
            Ok(Some(Resumed::Undone(_)) | None)
        ));
        fs::remove_dir_all(scratch.path("")).unwrap();
        fs::create_dir(scratch.path("")).unwrap();
        populate(&scratch);
        id = scratch.create(&store).id;
        step += 1;
    }
}

/// claim: [SNAP-4]
#[test]
fn decided_restore_of_damaged_snapshot_is_replaced_or_abandoned() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let ours = namespace("ours");
    for gives_way_to_another in [true, false] {
        let good = scratch.create(&store).id;
        let state = scratch.state();
        scratch.write("more", "only the damaged one has this");
        let bad = scratch.create(&store).id;
        let list = store.list(&ours).unwrap();
        for step in 0.. {
            ruin(&scratch);
            // The child restores the first snapshot of the list.
            list_only(&store, &list, bad);
            assert!(!child(&scratch, "restores", step).wait().unwrap().success());
            if restore::expect_unused(&store.layout.journals, bad).is_err() {
                break;
            }
            store.resume(scratch.root().as_fd()).unwrap();
        }
        list_only(&store, &list, good);
        let lost = store.resume(scratch.root().as_fd()).unwrap_err();
        assert!(lost.to_string().contains(&bad.to_string()), "{lost}");
        let again = store.restore(&Source::Namespace, bad, &ours, scratch.root().as_fd());
        assert!(matches!(again, Err(SnapshotError::Unfinished { id, .. }) if id == bad));
        if gives_way_to_another {
            store
                .restore(&Source::Namespace, good, &ours, scratch.root().as_fd())
                .unwrap();
            assert_eq!(scratch.state(), state);
        } else {
            store.settle(scratch.root().as_fd()).unwrap();
            assert!(
                scratch
                    .state()
                    .keys()
                    .all(|path| !path.to_string_lossy().contains(".ringfence"))
            );
        }
        assert_eq!(
            (journals(&scratch), store.resume(scratch.root().as_fd()).unwrap()),
            (0, None)
        );
        store.delete(good, &ours).unwrap();
        fs::remove_dir_all(scratch.path("")).unwrap();
        fs::create_dir(scratch.path("")).unwrap();
        populate(&scratch);
    }
}

/// claim: [SNAP-4]
#[test]
fn restore_cut_off_before_its_store_was_copied_is_completed_in_the_copy() {
    #![expect(
        clippy::disallowed_methods,
        reason = "a test copies a directory with its times"
    )]
    let scratch = Scratch::new();
    populate(&scratch);
    let (store, ours, new) = (scratch.store(), namespace("ours"), scratch.state());
    let id = scratch.create(&store).id;
    for step in 0.. {
        ruin(&scratch);
        assert!(!child(&scratch, "restores", step).wait().unwrap().success());
        if restore::expect_unused(&store.layout.journals, id).is_err() {
            break;
        }
        store.resume(scratch.root().as_fd()).unwrap();
    }
    let copy = TestDir::new();
    let copied = Command::new("cp")
        .arg("-a")
        .arg(scratch.base.join("."))
        .arg(&*copy)
        .status();
    assert!(copied.unwrap().success());
    let copy = Scratch::at(copy);
    let resumed = copy.store().resume(copy.root().as_fd()).unwrap();
    assert!(matches!(resumed, Some(Resumed::Done(of, _)) if of == id));
    assert_eq!((copy.state(), journals(&copy)), (new, 0));
    // A workspace that was replaced: the restore ends when its snapshot is deleted.
    fs::rename(scratch.path(""), scratch.base.join("aside")).unwrap();
    fs::create_dir(scratch.path("")).unwrap();
    assert!(matches!(store.delete(id, &ours), Err(SnapshotError::InUse(of)) if of == id));
    store.abandon(id).unwrap();
    store.delete(id, &ours).unwrap();
}

/// Rewrites the list with only this one of the snapshots.
fn list_only(store: &SnapshotStore, all: &[ListedSnapshot], id: SnapshotId) {
    let ours = namespace("ours");
    let one: Vec<_> = all.iter().filter(|listed| listed.id == id).cloned().collect();
    let dir = store.namespace_dir(id, &ours).unwrap();
    list::write(&dir, &store.signer, &one).unwrap();
}

/// The child process of the test below: restores the workspace of a session.
#[test]
#[ignore = "is started and killed by the test below"]
fn restores_a_session() {
    let scratch = std::mem::ManuallyDrop::new(Scratch::at(TestDir::at(std::env::current_dir().unwrap())));
    let store = scratch.store();
    let id = store.list(&namespace("ours")).unwrap()[0].id;
    let session = Source::Session("s1".to_owned());
    let restored = store.restore(&session, id, &namespace("ours"), scratch.root().as_fd());
    restored.unwrap();
}

#[test]
fn snapshot_is_not_kept_for_restore_of_session_that_ended_with_its_server() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    for (test, is_kept) in [("restores", true), ("restores_a_session", false)] {
        let id = scratch.create(&store).id;
        for step in 0.. {
            ruin(&scratch);
            assert!(
                !child(&scratch, test, step).wait().unwrap().success(),
                "some step is decided"
            );
            if restore::expect_unused(&store.layout.journals, id).is_err() {
                break;
            }
            store.resume(scratch.root().as_fd()).unwrap();
        }
        assert_eq!(
            scratch.store().delete(id, &namespace("ours")).is_err(),
            is_kept,
            "{test}"
        );
        assert_eq!(journals(&scratch), usize::from(is_kept));
        if is_kept {
            store.resume(scratch.root().as_fd()).unwrap();
            store.delete(id, &namespace("ours")).unwrap();
        }
    }
}

#[test]
fn store_survives_concurrent_processes_collection_and_a_killed_process() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let state = scratch.state();
    for round in 0..4 {
        let mut other = child(&scratch, "saves", u64::MAX);
        let listed = || store.list(&namespace("ours")).unwrap().len();
        let begun = std::time::Instant::now();
        let wanted = listed() + 3 + round;
        while listed() < wanted {
            store.create(scratch.root().as_fd(), about("ours")).unwrap();
            store.collect(&namespace("ours")).unwrap();
            assert!(begun.elapsed().as_secs() < 30, "no process saves a snapshot");
            assert!(other.try_wait().unwrap().is_none(), "the child ended by itself");
        }
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(
            !store.collect(&namespace("ours")).unwrap().busy,
            "a killed process holds no lock"
        );
        let unfinished = |path: &PathBuf| path.extension().is_some_and(|end| end == "new");
        assert!(
            !scratch.stored().iter().any(unfinished),
            "a collection removes what is half written"
        );
    }
    let list = store.list(&namespace("ours")).unwrap();
    for listed in list {
        if listed.source == Source::Namespace {
            scratch.restore(&store, listed.id);
            assert_eq!(scratch.state(), state);
        } else {
            let manifest = store.manifest(listed.id, &namespace("ours")).unwrap();
            assert_eq!(
                store.read(&manifest, Path::new("file"), 1 << 20).unwrap().len(),
                300_000
            );
        }
    }
}

/// The child process of the test above.
#[test]
#[ignore = "is started and killed by the test above"]
fn saves() {
    let scratch = std::mem::ManuallyDrop::new(Scratch::at(TestDir::at(std::env::current_dir().unwrap())));
    let store = scratch.store();
    // Within the directory of the parent, which removes it.
    let own = scratch.base.join(format!("own-{}", std::process::id()));
    fs::create_dir_all(own.join("inside")).unwrap();
    let own = std::mem::ManuallyDrop::new(Scratch::at(TestDir::at(own)));
    // Bounded, in case no parent is left to kill it.
    for round in 0..500 {
        own.write("file", noise(300_000, round));
        let source = Source::Session("other".to_owned());
        let made = store.create(
            own.root().as_fd(),
            About {
                source,
                ..about("ours")
            },
        );
        made.unwrap();
    }
}

#[test]
fn full_disk_leaves_old_state() {
    #![expect(clippy::disallowed_methods, reason = "a test asks what it must not skip")]
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let scratch = Scratch::new();
    scratch.write("a", noise(400_000, 1));
    scratch.write("b", noise(400_000, 2));
    let store = scratch.store();
    let id = scratch.create(&store).id;
    let new = scratch.state();
    let small = scratch.base.join("small");
    fs::create_dir(&small).unwrap();
    if let Err(error) = mount("none", &small, "tmpfs", MountFlags::empty(), Some(c"size=1m")) {
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|word| word.trim() == "root"),
            "RINGFENCE_REQUIRE asks for root"
        );
        eprintln!("not run, because it needs root to mount a small file system: {error}");
        return;
    }
    let ended = std::panic::catch_unwind(|| {
        fs::write(small.join("old"), noise(600_000, 3)).unwrap();
        fs::create_dir(small.join("a")).unwrap();
        set_mtime(&small, 7, 7);
        let mode = || fs::metadata(&small).unwrap().mode() & 0o7777;
        fs::set_permissions(&small, fs::Permissions::from_mode(0o755)).unwrap();
        let old = state(&small);
        let root = File::open(&small).unwrap();
        let full = store
            .restore(&Source::Namespace, id, &namespace("ours"), root.as_fd())
            .unwrap_err();
        assert!(full.is_no_space(), "{full}");
        assert_eq!((state(&small), mode()), (old, 0o755));
        assert_eq!(store.resume(root.as_fd()).unwrap(), None);
        // Control: with enough space it is restored.
        fs::remove_file(small.join("old")).unwrap();
        store
            .restore(&Source::Namespace, id, &namespace("ours"), root.as_fd())
            .unwrap();
        assert_eq!(state(&small), new);
    });
    unmount(&small, UnmountFlags::DETACH).unwrap();
    ended.unwrap();
}

#[test]
fn full_store_keeps_its_snapshots() {
    let scratch = Scratch::new();
    populate(&scratch);
    let kept = scratch.create(&scratch.store());
    scratch.write("more", noise(2_000_000, 9));
    let tight = scratch.store_with(SnapshotLimits {
        stored_bytes: 1_500_000,
        ..LIMITS
    });
    let refused = tight.create(scratch.root().as_fd(), about("ours"));
    assert!(matches!(refused, Err(SnapshotError::Full { limit: 1_500_000 })));
    assert_eq!(tight.list(&namespace("ours")).unwrap().len(), 1);
    scratch.restore(&tight, kept.id);
}

#[test]
fn restore_during_directory_symlink_swaps_changes_nothing_outside() {
    let scratch = Scratch::new();
    for number in 0..20 {
        scratch.write(&format!("d/e/{number}"), format!("{number}"));
    }
    let store = scratch.store();
    let id = scratch.create(&store).id;
    let outside = scratch.base.join("outside");
    fs::create_dir_all(outside.join("e")).unwrap();
    for number in 0..30 {
        fs::write(outside.join(format!("e/{number}")), "canary").unwrap();
        chmod(&outside.join(format!("e/{number}")), 0o640);
    }
    let canary: State = state(&outside);
    // Control: an access by path reaches the outside.
    fs::rename(scratch.path("d"), scratch.path("aside")).unwrap();
    symlink(&outside, scratch.path("d")).unwrap();
    assert_eq!(fs::read(scratch.path("d/e/1")).unwrap(), b"canary");
    fs::remove_file(scratch.path("d")).unwrap();
    fs::rename(scratch.path("aside"), scratch.path("d")).unwrap();
    let done = AtomicBool::new(false);
    let (mut restored, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            let mut swaps = 0u32;
            while !done.load(Ordering::Relaxed) {
                // Each of these may fail, because a restore is running.
                let moved = fs::rename(scratch.path("d"), scratch.path("aside")).is_ok();
                let linked = symlink(&outside, scratch.path("d")).is_ok();
                let inner = fs::rename(scratch.path("aside/e/3"), scratch.path("aside/e/x")).is_ok();
                let outer = symlink(outside.join("e/3"), scratch.path("aside/e/3")).is_ok();
                let back = fs::remove_file(scratch.path("d")).is_ok()
                    && fs::rename(scratch.path("aside"), scratch.path("d")).is_ok();
                swaps += u32::from(moved && linked && back && (inner || outer));
            }
            swaps
        });
        for round in 0..150 {
            // In each round, entries to write, to touch and to remove.
            scratch.write(&format!("unwanted {round}/file"), "x");
            set_mtime(&scratch.path(""), 1, round);
            match store.restore(&Source::Namespace, id, &namespace("ours"), scratch.root().as_fd()) {
                Ok(_) => restored += 1,
                Err(SnapshotError::Changed { .. } | SnapshotError::Io(_) | SnapshotError::InUse(_)) => {
                    refused += 1;
                }
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        println!("{} swaps", hostile.join().unwrap());
    });
    assert_eq!(state(&outside), canary);
    println!("{restored} restored, {refused} refused");
    scratch.restore(&store, id);
    assert_eq!(scratch.state().len(), 23);
}

/// With `RINGFENCE_TEST_STEPS=n` set by a test, call number n (counted from 0) kills the process, as in a crash.
pub(in crate::snapshots) fn reached() {
    #![expect(clippy::disallowed_methods, reason = "a test tells its child when to die")]
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::atomic::{AtomicU64, Ordering};
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let Some(last) = std::env::var("RINGFENCE_TEST_STEPS").ok() else {
        return;
    };
    if REACHED.fetch_add(1, Ordering::Relaxed) == last.parse::<u64>().unwrap() {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}
