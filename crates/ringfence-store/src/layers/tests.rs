//! A layer is what was installed: later changes are detected, and links of an installer that lead out are refused.

use super::*;
use crate::tests::TestDir;
use std::{
    fs::File,
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt, symlink},
    },
    time::Duration,
};

struct Scratch(TestDir);

impl Scratch {
    fn new() -> Self {
        let path = TestDir::new();
        fs::create_dir_all(path.join("from/python/pkg")).unwrap();
        fs::write(path.join("from/python/pkg/__init__.py"), "value = 1\n").unwrap();
        fs::create_dir_all(path.join("from/bin")).unwrap();
        fs::write(path.join("from/bin/tool"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(path.join("from/bin/tool"), fs::Permissions::from_mode(0o4711)).unwrap();
        Self(path)
    }

    fn layers(&self) -> Layers {
        Layers::open(
            self.0.join("kept"),
            Signer::load_or_create(&self.0.join("key")).unwrap(),
        )
        .unwrap()
    }

    fn from(&self) -> File {
        File::open(self.0.join("from")).unwrap()
    }

    fn put(&self, layers: &Layers, set: &SetName) -> Result<Layer, LayerError> {
        // A sweep holds the lock for a moment, to check if it is in use.
        let mut begun = (0..10_000).map(|_| layers.begin(set));
        let lock = begun.find_map(Result::transpose).unwrap()?;
        let package = Package {
            name: "pkg".to_owned(),
            version: "1".to_owned(),
            sha256: Some("00".to_owned()),
            integrity: None,
        };
        layers.put(&lock, self.from().as_fd(), vec![package], 1 << 20)
    }
}

fn set() -> SetName {
    SetName::of(&["python", "pkg"])
}

#[test]
fn set_is_found_by_another_server_with_normalized_modes() {
    let place = Scratch::new();
    let layers = place.layers();
    assert!(layers.find(&set()).unwrap().is_none());
    let made = place.put(&layers, &set()).unwrap();
    let found = place.layers().find(&set()).unwrap().unwrap();
    assert_eq!((found.name(), found.packages()), (made.name(), made.packages()));
    let path = Layers::below(&layers.directory).join(found.name());
    let mode = |name: &str| fs::metadata(path.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("bin/tool"), mode("python/pkg/__init__.py"), mode("python")),
        (0o755, 0o644, 0o755)
    );
    assert_ne!(SetName::of(&["python", "pkg"]), SetName::of(&["pythonpkg"]));
}

#[test]
fn sets_with_the_same_content_share_a_layer() {
    let place = Scratch::new();
    let layers = place.layers();
    let one = place.put(&layers, &set()).unwrap();
    let other = place.put(&layers, &SetName::of(&["python", "pkg>=1"])).unwrap();
    assert_eq!(one.name(), other.name());
}

#[test]
fn set_is_locked_while_it_is_installed() {
    let place = Scratch::new();
    let (here, there) = (place.layers(), place.layers());
    let making = here.begin(&set()).unwrap();
    assert!(making.is_some() && there.begin(&set()).unwrap().is_none());
    drop(making);
    assert!(there.begin(&set()).unwrap().is_some());
}

/// claim: [PKG-4]
#[test]
fn changed_byte_in_layer_is_detected_by_new_and_running_servers() {
    let place = Scratch::new();
    let layers = place.layers();
    let made = place.put(&layers, &set()).unwrap();
    let file = Layers::below(&layers.directory)
        .join(made.name())
        .join("python/pkg/__init__.py");
    assert!(layers.find(&set()).unwrap().is_some());
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "value = 2\n").unwrap();
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(before)
        .unwrap();
    for layers in [&layers, &place.layers()] {
        let error = layers.find(&set()).unwrap_err();
        assert!(matches!(&error, LayerError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("__init__.py"), "{error}");
    }
    // Installed again, it has its original contents.
    layers.forget(&set()).unwrap();
    drop(made);
    place.put(&layers, &set()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "value = 1\n");
}

/// claim: [PKG-4]
#[test]
fn changed_files_in_layer_and_forged_records_are_detected() {
    let check = |name: &str, tamper: &dyn Fn(&Layers, &Path)| {
        let place = Scratch::new();
        let made = place.put(&place.layers(), &set()).unwrap();
        let layers = place.layers();
        tamper(&layers, &Layers::below(&layers.directory).join(made.name()));
        assert!(
            matches!(layers.find(&set()), Err(LayerError::Damaged { .. })),
            "{name}"
        );
    };
    check("added", &|_, path| {
        fs::write(path.join("python/os.py"), "").unwrap()
    });
    check("removed", &|_, path| {
        fs::remove_file(path.join("bin/tool")).unwrap()
    });
    check("gone", &|_, path| fs::remove_dir_all(path).unwrap());
    check("executable", &|_, path| {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path.join("python/pkg/__init__.py"), mode).unwrap();
    });
    check("linked", &|_, path| {
        fs::remove_file(path.join("bin/tool")).unwrap();
        symlink("/bin/sh", path.join("bin/tool")).unwrap();
    });
    check("record", &|layers, _| {
        let path = layers.place(SETS, set().as_str());
        let text = fs::read_to_string(&path).unwrap().replace("pkg", "pgk");
        fs::write(path, text).unwrap();
    });
    check("manifest", &|layers, path| {
        let manifest = layers.place(MANIFESTS, path.file_name().unwrap().to_str().unwrap());
        let text = fs::read_to_string(&manifest).unwrap().replace("pkg", "pgk");
        fs::write(manifest, text).unwrap();
    });
}

#[test]
fn escaping_links_and_oversized_installer_output_are_refused() {
    let check = |name: &str, leave: &dyn Fn(&Path), expect: &str| {
        let place = Scratch::new();
        leave(&place.0.join("from"));
        let error = place.put(&place.layers(), &set()).unwrap_err().to_string();
        assert!(error.contains(expect), "{name}: {error}");
        assert_eq!(
            fs::read_dir(place.0.join("kept/making")).unwrap().count(),
            0,
            "{name}"
        );
        assert!(place.layers().find(&set()).unwrap().is_none());
    };
    check(
        "absolute",
        &|from| symlink("/etc/passwd", from.join("x")).unwrap(),
        "leads out",
    );
    check(
        "climbing",
        &|from| symlink("../../x", from.join("python/x")).unwrap(),
        "leads out",
    );
    // Each target is inside by its text; through the first link the second one leads above the layer.
    check(
        "chained",
        &|from| {
            symlink("..", from.join("python/up")).unwrap();
            symlink("up/../..", from.join("python/x")).unwrap();
        },
        "leads out",
    );
    check(
        "large",
        &|from| fs::write(from.join("x"), vec![0; 2 << 20]).unwrap(),
        "more than 1048576 bytes",
    );
    check(
        "socket",
        &|from| drop(std::os::unix::net::UnixListener::bind(from.join("x")).unwrap()),
        "neither file nor directory",
    );
    check(
        "deep",
        &|from| fs::create_dir_all(from.join("d/".repeat(70))).unwrap(),
        "more than 64 directories deep",
    );
    let place = Scratch::new();
    symlink("../python/pkg/__init__.py", place.0.join("from/bin/x")).unwrap();
    place.put(&place.layers(), &set()).unwrap();
}

#[test]
fn layer_over_the_limits_is_swept_but_not_while_in_use() {
    let place = Scratch::new();
    let layers = place.layers();
    let made = place.put(&layers, &set()).unwrap();
    let other = place.layers();
    assert_eq!(other.sweep(EVERYTHING).unwrap().removed, 0);
    assert!(other.find(&set()).unwrap().is_some());
    drop(made);
    let generous = LayerRetention {
        age: Duration::from_secs(60),
        bytes: 1 << 20,
    };
    assert_eq!(other.sweep(generous).unwrap().removed, 0);
    assert_eq!(
        other
            .sweep(LayerRetention { bytes: 1, ..generous })
            .unwrap()
            .removed,
        1
    );
    assert!(layers.find(&set()).unwrap().is_none());
    assert_eq!(fs::read_dir(place.0.join("kept/sets")).unwrap().count(), 0);
}

const EVERYTHING: LayerRetention = LayerRetention {
    age: Duration::ZERO,
    bytes: 0,
};

#[test]
fn new_layer_is_not_swept_before_it_is_locked() {
    let place = Scratch::new();
    let (here, there) = (place.layers(), place.layers());
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let put = |number: u32| {
        let made = place.put(&here, &SetName::of(&["python", &number.to_string()]))?;
        let path = Layers::below(&here.directory).join(made.name());
        Ok::<_, LayerError>(path.join("python/pkg/__init__.py").exists())
    };
    std::thread::scope(|scope| {
        let sweeping = scope.spawn(|| {
            let mut removed = 0;
            while !is_done.load(order) {
                removed += there.sweep(EVERYTHING).unwrap().removed;
            }
            removed
        });
        let putting = scope.spawn(|| {
            for number in 0..300 {
                let is_whole = put(number);
                assert!(matches!(is_whole, Ok(true)), "{number}: {is_whole:?}");
            }
        });
        let put = putting.join();
        is_done.store(true, order);
        put.unwrap();
        // The control: sweeps removed layers meanwhile.
        assert!(sweeping.join().unwrap() > 0);
    });
}

#[test]
fn lock_files_are_removed_with_their_set_or_layer() {
    let place = Scratch::new();
    let layers = place.layers();
    let locks = || {
        let mut names = layers.names(LOCKS).unwrap();
        names.retain(|name| name.len() == 64);
        names
    };
    let failed = SetName::of(&["python", "failed"]);
    let making = layers.begin(&failed).unwrap();
    assert_eq!(locks(), [failed.as_str()]);
    drop(making);
    let made = place.put(&layers, &set()).unwrap();
    assert_eq!(locks(), [made.name()]);
    // Locks of a killed server and of a running one.
    let left = SetName::of(&["python", "left"]);
    fs::write(layers.place(LOCKS, left.as_str()), "").unwrap();
    let making = layers.begin(&failed).unwrap();
    layers.sweep(EVERYTHING).unwrap();
    assert_eq!(locks().len(), 2);
    assert!(place.layers().begin(&failed).unwrap().is_none());
    drop((making, made));
    layers.sweep(EVERYTHING).unwrap();
    assert_eq!(locks(), Vec::<String>::new());
}

#[test]
fn clock_jump_removes_no_layer_for_its_age() {
    let place = Scratch::new();
    let layers = place.layers();
    drop(place.put(&layers, &set()).unwrap());
    fs::write(
        place.0.join("kept/clock.json"),
        r#"{"seen_ms":1,"jumped_ms":null}"#,
    )
    .unwrap();
    let old = LayerRetention {
        bytes: u64::MAX,
        ..EVERYTHING
    };
    assert_eq!(layers.sweep(old).unwrap().removed, 0);
    // The size limit still applies.
    assert_eq!(layers.sweep(EVERYTHING).unwrap().removed, 1);
}

#[test]
fn removed_and_recreated_lock_is_held_by_one_at_a_time() {
    let place = Scratch::new();
    let layers = place.layers();
    let holders = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held = 0;
                while held < 20 {
                    let Some(_lock) = layers.begin(&set()).unwrap() else {
                        continue;
                    };
                    assert_eq!(holders.fetch_add(1, order), 0);
                    held += 1;
                    // Lets the other threads run.
                    (0..20).for_each(|_| std::thread::yield_now());
                    holders.fetch_sub(1, order);
                }
            });
        }
    });
}

#[test]
fn leftovers_of_killed_server_are_swept_but_live_builds_are_not() {
    let place = Scratch::new();
    let layers = place.layers();
    let (left, live) = (SetName::of(&["left"]), SetName::of(&["live"]));
    let making = layers.begin(&live).unwrap();
    for set in [&left, &live] {
        fs::create_dir_all(layers.place(MAKING, set.as_str()).join("python")).unwrap();
        fs::write(layers.place(MAKING, set.as_str()).join("python/half"), "x").unwrap();
    }
    let text = layers.place(MAKING, &format!("{}.{SETS}", left.as_str()));
    fs::write(&text, "half").unwrap();
    let kept = LayerRetention {
        age: Duration::from_secs(3600),
        bytes: u64::MAX,
    };
    place.layers().sweep(kept).unwrap();
    assert_eq!(layers.names(MAKING).unwrap(), [live.as_str()]);
    drop(making);
    place.layers().sweep(kept).unwrap();
    assert_eq!(layers.names(MAKING).unwrap(), Vec::<String>::new());
}

#[test]
fn temporarily_unreadable_layer_is_not_treated_as_damaged() {
    let place = Scratch::new();
    let made = place.put(&place.layers(), &set()).unwrap();
    let layers = place.layers();
    let file = Layers::below(&layers.directory)
        .join(made.name())
        .join("bin/tool");
    let inode = || fs::metadata(&file).unwrap().ino();
    let before = inode();
    // A read that fails with EISDIR for every user.
    let (manifest, aside) = (layers.place(MANIFESTS, made.name()), place.0.join("aside"));
    fs::rename(&manifest, &aside).unwrap();
    fs::create_dir(&manifest).unwrap();
    let failed = place
        .put(&layers, &SetName::of(&["python", "other"]))
        .unwrap_err();
    assert!(matches!(failed, LayerError::Io(_)), "{failed}");
    assert_eq!(inode(), before, "a layer in use was removed");
    fs::remove_dir(&manifest).unwrap();
    fs::rename(&aside, &manifest).unwrap();
    assert!(layers.find(&set()).unwrap().is_some());
    // The control: real damage is repaired.
    fs::write(&file, "evil").unwrap();
    place.put(&layers, &SetName::of(&["python", "other"])).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "#!/bin/sh\n");
}

#[test]
fn newly_installed_layer_is_not_verified_again() {
    let place = Scratch::new();
    let layers = place.layers();
    let making = layers.place(MAKING, set().as_str());
    let manifest = tree::import(place.from().as_fd(), &making, 1 << 20).unwrap();
    layers.install(&manifest.name(), &making, &manifest).unwrap();
    let now = tree::stamps("", &layers.place(LAYERS, &manifest.name())).unwrap();
    assert_eq!(layers.checked().get(&manifest.name()), Some(&now));
}
