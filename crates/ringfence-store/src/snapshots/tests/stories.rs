//! A workspace is saved, changed and restored.

use crate::snapshots::{
    tests::fixture::{
        EntryContent, LIMITS, Scratch, about, chmod, namespace, noise, populate, set_mtime, settle,
    },
    *,
};
use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt, chown, symlink},
    },
    path::Path,
};

#[test]
fn workspace_is_fully_restored_after_any_change() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let before = scratch.state();
    let created = scratch.create(&store);
    assert_eq!((created.files, created.left_out.len()), (7, 0));
    assert_eq!(scratch.state(), before, "making a snapshot changes nothing");
    // A restore of an unchanged workspace.
    let restored = scratch.restore(&store, created.id);
    assert_eq!(
        (restored.written, restored.deleted, restored.unchanged),
        (0, 0, 12)
    );
    assert_eq!(scratch.state(), before);
    // A restore after every kind of change.
    scratch.write("plain.txt", "other\n");
    set_mtime(&scratch.path("plain.txt"), 1_000_000_002, 999_999_999);
    fs::remove_dir_all(scratch.path("deep")).unwrap();
    scratch.write("deep", "a file where a directory was");
    fs::remove_file(scratch.path("empty")).unwrap();
    scratch.write("empty/now/a directory", "x");
    fs::remove_file(scratch.path("in")).unwrap();
    symlink("/etc/passwd", scratch.path("in")).unwrap();
    fs::remove_file(scratch.path("script.sh")).unwrap();
    symlink("/etc/shadow", scratch.path("script.sh")).unwrap();
    chmod(&scratch.path("nothing in it"), 0o755);
    scratch.write("nothing in it/something", "");
    scratch.write("new/tree/of/files", "x");
    fs::remove_file(scratch.path("sparse")).unwrap();
    let restored = scratch.restore(&store, created.id);
    assert_eq!(scratch.state(), before);
    assert!(restored.written >= 10 && restored.deleted >= 7, "{restored:?}");
    // Holes are still holes.
    assert!(fs::metadata(scratch.path("sparse")).unwrap().blocks() * 512 < 1 << 20);
    assert_eq!(scratch.restore(&store, created.id).written, 0);
}

#[test]
fn only_changed_files_are_read_again() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    settle(&scratch);
    let first = scratch.create(&store);
    // No file is read, so no chunk is new.
    let second = scratch.create(&store);
    assert_eq!((second.new_bytes, second.bytes), (0, first.bytes));
    let manifest = |created: &Created| store.manifest(created.id, &namespace("ours")).unwrap();
    assert_eq!(manifest(&first).entries, manifest(&second).entries);
    // The same size and mtime: only the ctime shows the change.
    let time = |path: &str| fs::metadata(scratch.path(path)).unwrap();
    let was = time("plain.txt");
    scratch.write("plain.txt", "WORDS\n");
    set_mtime(&scratch.path("plain.txt"), was.mtime(), was.mtime_nsec());
    assert_eq!(
        (time("plain.txt").mtime(), time("plain.txt").len()),
        (was.mtime(), was.len())
    );
    let third = scratch.create(&store);
    assert_eq!(third.new_bytes, 6);
    let ours = |created: &Created| {
        let read = store.read(&manifest(created), Path::new("plain.txt"), 100);
        String::from_utf8(read.unwrap()).unwrap()
    };
    assert_eq!(
        (ours(&second), ours(&third)),
        ("words\n".to_owned(), "WORDS\n".to_owned())
    );
    // An insertion into a file: few new chunks.
    let mut long = noise(3_000_000, 5);
    scratch.write("long", &long);
    scratch.create(&store);
    long.splice(1_500_000..1_500_000, *b"inserted");
    scratch.write("long", &long);
    assert!(scratch.create(&store).new_bytes < 800_000);
}

#[test]
fn namespaces_see_and_share_no_snapshots_of_others() {
    let scratch = Scratch::new();
    populate(&scratch);
    let store = scratch.store();
    let ours = scratch.create(&store);
    let theirs = namespace("theirs");
    let not_found = |error: SnapshotError| matches!(error, SnapshotError::NotFound(_));
    assert!(not_found(store.manifest(ours.id, &theirs).unwrap_err()));
    assert!(not_found(
        store
            .restore(&Source::Namespace, ours.id, &theirs, scratch.root().as_fd())
            .unwrap_err()
    ));
    assert!(not_found(store.delete(ours.id, &theirs).unwrap_err()));
    assert!(not_found(store.export(ours.id, &theirs, 1 << 30).unwrap_err()));
    assert!(store.list(&theirs).unwrap().is_empty());
    assert!(
        !scratch.base.join("store/namespaces/theirs").exists(),
        "a lookup creates nothing"
    );
    // The same content is new in the other namespace: the chunks of others do not show.
    let made = store.create(scratch.root().as_fd(), about("theirs")).unwrap();
    assert_eq!(made.new_bytes, ours.new_bytes);
    assert!(not_found(
        store.manifest(made.id, &namespace("ours")).unwrap_err()
    ));
    let listed = store.list(&namespace("ours")).unwrap();
    assert_eq!((listed.len(), listed[0].id, listed[0].files), (1, ours.id, 7));
}

#[test]
fn special_files_are_left_out_and_outside_hard_links_refused() {
    let scratch = Scratch::new();
    let store = scratch.store();
    scratch.write("a", "same");
    let root = scratch.root();
    rustix::fs::mkfifoat(&root, "fifo", rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(scratch.path("socket")).unwrap();
    fs::hard_link(scratch.path("a"), scratch.path("b")).unwrap();
    chmod(&scratch.path("a"), 0o4755);
    let created = scratch.create(&store);
    let names: Vec<&Path> = created.left_out.iter().map(|one| one.path.as_path()).collect();
    assert_eq!(names, [Path::new("fifo"), Path::new("socket")]);
    drop(socket);
    scratch.restore(&store, created.id);
    let state = scratch.state();
    // Two files now, and without the set-id bit.
    for name in ["a", "b"] {
        let (mode, _, thing) = &state[Path::new(name)];
        assert_eq!((*mode, thing), (0o755, &EntryContent::of(b"same")));
        assert_eq!(fs::metadata(scratch.path(name)).unwrap().nlink(), 1);
    }
    assert_eq!(state.len(), 3);
    let canary = scratch.base.join("canary");
    fs::write(&canary, "outside").unwrap();
    fs::hard_link(&canary, scratch.path("c")).unwrap();
    let refused = store.create(root.as_fd(), about("ours"));
    assert!(matches!(refused, Err(SnapshotError::Linked { path }) if path == Path::new("c")));
    // A restore does not write through the other hard link.
    fs::remove_file(scratch.path("a")).unwrap();
    fs::hard_link(&canary, scratch.path("a")).unwrap();
    fs::write(&canary, "same").unwrap();
    chmod(&canary, 0o600);
    scratch.restore(&store, created.id);
    assert_eq!(fs::metadata(&canary).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(&canary).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(scratch.path("a")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn chunks_of_failed_snapshot_are_collected() {
    let scratch = Scratch::new();
    scratch.write("a", noise(50_000, 1));
    let elsewhere = scratch.store().create(scratch.root().as_fd(), about("theirs"));
    let tight = scratch.store_with(SnapshotLimits {
        // Enough space for the chunks, but not for the manifest.
        stored_bytes: elsewhere.unwrap().stored_bytes - 100,
        ..LIMITS
    });
    let create = || tight.create(scratch.root().as_fd(), about("ours"));
    let packs = || {
        let packs = fs::read_dir(scratch.base.join("store/namespaces/ours/packs"));
        packs.unwrap().count()
    };
    assert!(matches!(create(), Err(SnapshotError::Full { .. })));
    assert_eq!(packs(), 0);
    // With a reader at the same time, it is removed when the next snapshot needs the space.
    let ours = tight.layout.find(&namespace("ours")).unwrap().unwrap();
    let reader = ours.lock_shared().unwrap();
    assert!(matches!(create(), Err(SnapshotError::Full { .. })));
    drop(reader);
    assert_eq!(packs(), 1);
    scratch.write("a", noise(40_000, 2));
    assert_eq!(create().unwrap().new_bytes, 40_000);
    assert_eq!(packs(), 1);
}

#[test]
fn total_limit_of_all_namespaces_is_enforced() {
    let scratch = Scratch::new();
    scratch.write("a", noise(50_000, 1));
    let store = scratch.store_with(SnapshotLimits {
        total_bytes: 160_000,
        ..LIMITS
    });
    let create = |name: &str| store.create(scratch.root().as_fd(), about(name));
    let created: Vec<_> = ["one", "two", "three"].map(create).into_iter().collect();
    let stored: Vec<u64> = created
        .iter()
        .map(|one| one.as_ref().unwrap().stored_bytes)
        .collect();
    assert!(
        stored.iter().all(|bytes| *bytes > 50_000),
        "the control: {stored:?}"
    );
    assert!(matches!(
        create("four"),
        Err(SnapshotError::StoreFull { limit: 160_000 })
    ));
    assert!(store.list(&namespace("four")).unwrap().is_empty());
    assert_eq!(store.stored_bytes(&namespace("four")).unwrap(), 0);
    // A deletion makes room for the next snapshot.
    let second = created[1].as_ref().unwrap().id;
    store.delete(second, &namespace("two")).unwrap();
    create("four").unwrap();
    assert!(matches!(create("two"), Err(SnapshotError::StoreFull { .. })));
}

#[test]
fn concurrent_namespaces_do_not_exceed_total_limit() {
    let scratch = Scratch::new();
    scratch.write("a", noise(50_000, 1));
    let store = scratch.store_with(SnapshotLimits {
        total_bytes: 160_000,
        ..LIMITS
    });
    let (store, scratch) = (&store, &scratch);
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let made = store.create(scratch.root().as_fd(), about(&format!("n{number}")));
                assert!(
                    matches!(made, Ok(_) | Err(SnapshotError::StoreFull { .. })),
                    "{made:?}"
                );
            });
        }
    });
    let bytes = (0..8).map(|number| store.stored_bytes(&namespace(&format!("n{number}"))).unwrap());
    assert!(bytes.sum::<u64>() <= 160_000);
}

#[test]
fn limits_give_typed_errors_and_delete_nothing() {
    let scratch = Scratch::new();
    scratch.write("a", noise(50_000, 1));
    scratch.write("b", noise(50_000, 2));
    let refused = |limits| {
        let store = scratch.store_with(limits);
        store.create(scratch.root().as_fd(), about("ours")).unwrap_err()
    };
    let entries = SnapshotLimits { entries: 1, ..LIMITS };
    assert!(matches!(
        refused(entries),
        SnapshotError::TooMany { limit: 1, .. }
    ));
    let bytes = SnapshotLimits {
        bytes: 99_999,
        ..LIMITS
    };
    assert!(matches!(
        refused(bytes),
        SnapshotError::TooLarge { limit: 99_999, .. }
    ));
    let stored_bytes = SnapshotLimits {
        stored_bytes: 60_000,
        ..LIMITS
    };
    assert!(matches!(
        refused(stored_bytes),
        SnapshotError::Full { limit: 60_000 }
    ));
    assert!(scratch.store().list(&namespace("ours")).unwrap().is_empty());
    let packs = scratch.base.join("store/namespaces/ours/packs");
    assert_eq!(fs::read_dir(packs).unwrap().count(), 0);
    let kept = scratch.create(&scratch.store());
    let one = SnapshotLimits {
        snapshots: 1,
        ..LIMITS
    };
    assert!(matches!(refused(one), SnapshotError::TooMany { limit: 1, .. }));
    assert_eq!(scratch.store().list(&namespace("ours")).unwrap()[0].id, kept.id);
    // A terabyte of holes counts as a terabyte.
    File::create(scratch.path("holes"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    assert!(matches!(refused(LIMITS), SnapshotError::TooLarge { .. }));
    let long = About {
        description: "x".repeat(1025),
        ..about("ours")
    };
    let refused = scratch.store().create(scratch.root().as_fd(), long);
    assert!(matches!(refused, Err(SnapshotError::Refused(_))));
    for id in ["", "../list", "a/b"] {
        let bad = About {
            source: Source::Session(id.to_owned()),
            ..about("ours")
        };
        let refused = scratch.store().create(scratch.root().as_fd(), bad);
        assert!(matches!(refused, Err(SnapshotError::Refused(_))), "{id}");
    }
}

#[test]
fn collection_removes_only_unneeded_data() {
    let scratch = Scratch::new();
    let store = scratch.store();
    scratch.write("shared", noise(400_000, 1));
    scratch.write("only first", noise(900_000, 2));
    let first = scratch.create(&store);
    let first_state = scratch.state();
    scratch.write("only first", "");
    scratch.write("only second", noise(300_000, 3));
    let second = scratch.create(&store);
    let second_state = scratch.state();
    let bytes = |scratch: &Scratch| -> u64 {
        scratch
            .stored()
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum()
    };
    let both = bytes(&scratch);
    store.delete(first.id, &namespace("ours")).unwrap();
    assert!(bytes(&scratch) < both - 800_000);
    assert!(matches!(
        store.manifest(first.id, &namespace("ours")),
        Err(SnapshotError::NotFound(_))
    ));
    fs::remove_dir_all(scratch.path("")).unwrap();
    fs::create_dir(scratch.path("")).unwrap();
    scratch.restore(&store, second.id);
    assert_eq!(scratch.state(), second_state);
    assert_ne!(first_state, second_state);
    // While a snapshot is read or created, nothing is collected.
    let dir = store.layout.find(&namespace("ours")).unwrap().unwrap();
    let lock = dir.lock_shared().unwrap();
    assert!(store.collect(&namespace("ours")).unwrap().busy);
    drop(lock);
    store.delete(second.id, &namespace("ours")).unwrap();
    let collected = store.collect(&namespace("ours")).unwrap();
    assert_eq!(
        (collected.busy, collected.packs),
        (false, 0),
        "the deletion collected already"
    );
    let packs = scratch.base.join("store/namespaces/ours/packs");
    assert_eq!(fs::read_dir(packs).unwrap().count(), 0);
}

#[test]
fn concurrent_collections_and_snapshots_lose_nothing() {
    let scratch = Scratch::new();
    populate(&scratch);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            let store = scratch.store();
            let mut collections = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                collections += u32::from(!store.collect(&namespace("ours")).unwrap().busy);
            }
            collections
        });
        let makers: Vec<_> = (0..2)
            .map(|maker: u64| {
                let scratch = &scratch;
                scope.spawn(move || {
                    let other = Scratch::new();
                    let store = scratch.store();
                    let mut last = None;
                    for round in 0..8 {
                        other.write("file", noise(200_000, maker << 32 | round));
                        let made = store.create(other.root().as_fd(), about("ours")).unwrap();
                        let state = other.state();
                        if let Some(old) = last.replace(made.id) {
                            store.delete(old, &namespace("ours")).unwrap();
                        }
                        other.write("file", "ruined");
                        store
                            .restore(
                                &Source::Namespace,
                                made.id,
                                &namespace("ours"),
                                other.root().as_fd(),
                            )
                            .unwrap();
                        assert_eq!(other.state(), state);
                    }
                })
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(
            collecting.join().unwrap() > 0,
            "the control: there were collections"
        );
        made.into_iter().for_each(|maker| maker.unwrap());
    });
    assert_eq!(scratch.store().list(&namespace("ours")).unwrap().len(), 2);
}

#[test]
fn export_has_documented_format() {
    let scratch = Scratch::new();
    populate(&scratch);
    scratch.write("binary", [0, 159, 146, 150]);
    let store = scratch.store();
    let source = Source::Session("0190-a".to_owned());
    let created = store
        .create(
            scratch.root().as_fd(),
            About {
                source,
                ..about("ours")
            },
        )
        .unwrap();
    let json = store.export(created.id, &namespace("ours"), 1 << 30).unwrap();
    let file = &json["files"]["plain.txt"];
    assert_eq!(
        (file["content"].as_str(), file["size"].as_u64()),
        (Some("words\n"), Some(6))
    );
    assert_eq!(file["mtime_ns"].as_i64(), Some(1_000_000_002_999_999_999));
    assert_eq!(file["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(json["files"]["binary"]["content_b64"], "AJ+Slg==");
    assert_eq!(json["files"]["script.sh"]["mode"], 0o755);
    assert!(json["directories"]["nothing in it"].is_object());
    assert_eq!(json["links"]["deep/out"]["target"], "../../etc/passwd");
    assert_eq!(json["other_names"][0]["path_b64"], "ZGVlcC///iBubyB0ZXh0");
    assert_eq!(json["source"]["session"], "0190-a");
    assert_eq!(json["id"], created.id.to_string());
    let refused = store.export(created.id, &namespace("ours"), 1000);
    assert!(matches!(
        refused,
        Err(SnapshotError::TooLarge { limit: 1000, .. })
    ));
    let manifest = store.manifest(created.id, &namespace("ours")).unwrap();
    let read = |path: &str, max| store.read(&manifest, Path::new(path), max);
    assert_eq!(
        read("sparse", 20_000_000).unwrap(),
        fs::read(scratch.path("sparse")).unwrap()
    );
    assert!(matches!(read("sparse", 100), Err(SnapshotError::TooLarge { .. })));
    for path in ["nowhere", "deep", "in"] {
        assert!(matches!(read(path, 100), Err(SnapshotError::NoFile(_))), "{path}");
    }
}

#[test]
fn constantly_written_file_is_reported() {
    let scratch = Scratch::new();
    scratch.write("busy", noise(30_000_000, 1));
    let store = scratch.store();
    let done = std::sync::atomic::AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(scratch.path("busy")).unwrap();
            for round in 0u64.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                file.write_all_at(&round.to_le_bytes(), round % 1_000_000)
                    .unwrap();
            }
        });
        let made = store.create(scratch.root().as_fd(), about("ours"));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        made
    });
    assert!(matches!(made, Err(SnapshotError::Changed { path }) if path == Path::new("busy")));
    assert_eq!(scratch.create(&store).files, 1);
}

#[test]
fn trees_deeper_than_path_max_are_removed() {
    let scratch = Scratch::new();
    scratch.write("keep", "x");
    let store = scratch.store();
    let created = scratch.create(&store);
    let before = scratch.state();
    let mode = rustix::fs::Mode::from_raw_mode(0o700);
    let mut at: std::os::fd::OwnedFd = scratch.root().into();
    let name = "a name of twenty bytes";
    for _ in 0..300 {
        rustix::fs::mkdirat(&at, name, mode).unwrap();
        rustix::fs::mkdirat(&at, "e", mode).unwrap();
        at = crate::tree::open_listing(at.as_fd(), Path::new(name)).unwrap();
    }
    drop(at);
    // A snapshot of it exceeds the depth limit.
    let refused = store.create(scratch.root().as_fd(), about("ours"));
    assert!(matches!(refused, Err(SnapshotError::TooMany { .. })));
    let restored = scratch.restore(&store, created.id);
    assert_eq!(restored.deleted, 600);
    assert_eq!(scratch.state(), before);
}

/// claim: [WS-8]
#[test]
fn snapshot_by_root_leaves_out_files_unreadable_to_workspace_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root acts as an owner");
        return;
    }
    const USER: u32 = 123_456;
    let scratch = Scratch::new();
    let store = scratch.store();
    scratch.write("closed", "canary");
    chmod(&scratch.path("closed"), 0o600);
    scratch.write("open", "x");
    let control = scratch.create(&store);
    assert_eq!(
        (control.files, control.left_out.len()),
        (2, 0),
        "its own directory"
    );
    // A new ctime, so that the content of the first snapshot is not reused.
    chown(scratch.path("closed"), Some(0), Some(0)).unwrap();
    chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
    settle(&scratch);
    let created = scratch.create(&store);
    assert_eq!(created.files, 1);
    let left_out = &created.left_out[0];
    assert_eq!(left_out.path, Path::new("closed"));
    assert!(
        matches!(left_out.reason, LeftOutReason::Unreadable),
        "{left_out:?}"
    );
}
