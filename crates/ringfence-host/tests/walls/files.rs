//! Access to files of the host by rule.

use crate::world::{SECRET, World, is_root, words};
use ringfence_host::{Access, Content, Ending, Outcome, Rules, Undo, UndoStore, Writing, load};
use ringfence_types::ErrorCode;
use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
};

const NOW: Writing = Writing::Now;

fn write(rules: &Rules, path: &Path, bytes: &[u8], write: Writing) -> Result<Undo, ErrorCode> {
    let content = Content { bytes, write };
    let written = rules.write_file("default", path, content, |_| Ok(()));
    written.map(|written| written.undo).map_err(|error| error.code)
}

/// claim: [HOST-5]
pub fn files_are_read_listed_and_written_by_rule() {
    let world = World::new("files");
    let at = |name: &str| world.directory.join(name);
    fs::write(at("f"), "content\n").unwrap();
    fs::create_dir(at("inner")).unwrap();
    fs::write(at("inner/g"), "deep\n").unwrap();
    let rules = world.rules();
    let read = |path: &Path| rules.read_file("default", path).map_err(|error| error.code);
    assert_eq!(read(&at("f")).unwrap().bytes, b"content\n");
    assert_eq!(read(&at("inner/g")).unwrap().bytes, b"deep\n");
    let (entries, is_cut) = rules.list_directory("default", &world.directory).unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!((names, is_cut), (vec!["bin", "evil", "f", "inner"], false));

    check_refused_paths(&world, &rules);
    check_access_rules(&world);
}

/// Links, hard links, `..`, special files and secret places and names are refused to reading, listing and writing.
fn check_refused_paths(world: &World, rules: &Rules) {
    let at = |name: &str| world.directory.join(name);
    let read = |path: &Path| rules.read_file("default", path).map_err(|error| error.code);
    let _socket = make_special_files(world);
    let up = at("../secret/secret");
    let names = [
        "link",
        "way/secret",
        "hard",
        "proc/self/environ",
        "fifo",
        "socket",
        ".env",
        "id_ed25519",
        "x.pem",
        "credentials.json",
        "plain-name",
        ".ssh/config",
    ];
    for path in names
        .iter()
        .map(|name| at(name))
        .chain([up, world.secret.clone(), "/etc/passwd".into()])
    {
        let before = fs::symlink_metadata(&path)
            .ok()
            .map(|found| (found.ino(), found.len()));
        let refused = read(&path).unwrap_err();
        assert!(
            [
                ErrorCode::PolicyDenied,
                ErrorCode::InvalidArgument,
                ErrorCode::NotFound
            ]
            .contains(&refused),
            "{path:?}: {refused}"
        );
        let refused = write(rules, &path, b"overwritten", NOW).unwrap_err();
        assert!(
            [
                ErrorCode::PolicyDenied,
                ErrorCode::InvalidArgument,
                ErrorCode::NotFound
            ]
            .contains(&refused),
            "{path:?}: {refused}"
        );
        assert_eq!(
            fs::symlink_metadata(&path)
                .ok()
                .map(|found| (found.ino(), found.len())),
            before,
            "{path:?}"
        );
    }
    assert_eq!(fs::read_to_string(&world.secret).unwrap(), format!("{SECRET}\n"));
    for path in [
        at("way"),
        at("proc"),
        at(".ssh"),
        "/etc".into(),
        world.base.clone(),
    ] {
        assert!(rules.list_directory("default", &path).is_err(), "{path:?}");
    }
}

/// Makes links, special files and secrets.
fn make_special_files(world: &World) -> UnixListener {
    let at = |name: &str| world.directory.join(name);
    symlink(&world.secret, at("link")).unwrap();
    symlink(world.secret.parent().unwrap(), at("way")).unwrap();
    fs::hard_link(&world.secret, at("hard")).unwrap();
    symlink("/proc", at("proc")).unwrap();
    let fifo = std::process::Command::new("mkfifo")
        .arg(at("fifo"))
        .status()
        .unwrap();
    assert!(fifo.success() && fs::metadata(at("fifo")).unwrap().file_type().is_fifo());
    for name in [".env", "id_ed25519", "x.pem", "credentials.json"] {
        fs::write(at(name), SECRET).unwrap();
    }
    fs::write(at("plain-name"), "x\n-----BEGIN RSA PRIVATE KEY-----\n").unwrap();
    fs::create_dir(at(".ssh")).unwrap();
    UnixListener::bind(at("socket")).unwrap()
}

/// Rules hold for their access and their namespaces only, and the longest rule counts.
fn check_access_rules(world: &World) {
    let at = |name: &str| world.directory.join(name);
    let text = world.fill(
        "default_rules: false\ndirectories:\n  - {path: $D, access: [read], namespaces: [team-*]}\n  - {path: $D/inner, access: [write]}\n",
    );
    let rules = load(Some((Path::new("rules"), &text))).unwrap();
    assert!(rules.read_file("team-a", &at("f")).is_ok());
    assert!(rules.read_file("default", &at("f")).is_err());
    assert!(rules.list_directory("team-a", &world.directory).is_err());
    let content = Content {
        bytes: b"x",
        write: NOW,
    };
    let keep = |_: &Undo| Ok(());
    assert!(rules.write_file("team-a", &at("f"), content, keep).is_err());
    assert!(
        rules
            .write_file("team-a", &at("inner/new"), content, keep)
            .is_ok()
    );
    for bad in ["/", "/proc/self", "relative", "/nonexistent-x"] {
        let text = format!("directories: [{{path: {bad}, access: [read]}}]");
        assert!(load(Some((Path::new("rules"), &text))).is_err(), "{bad}");
    }
}

/// claim: [HOST-6]
pub fn write_keeps_owner_and_mode_and_can_be_undone() {
    let world = World::new("undo");
    let path = world.directory.join("f");
    fs::write(&path, "one\ntwo\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&path, Some(12345), Some(23456)).unwrap();
    }
    let facts = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    let (before, rules) = (facts(&path), world.rules());
    let shown = rules
        .write_file(
            "default",
            &path,
            Content {
                bytes: b"one\n2\n",
                write: Writing::Preview,
            },
            |_| panic!("a preview changes nothing"),
        )
        .unwrap();
    let diff = shown.diff(|text| text.replace("one\n", "*\n").into());
    assert!(diff.contains("-two\n+2\n") && !diff.contains("one"), "{diff}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    let undo = write(&rules, &path, b"one\n2\n", NOW).unwrap();
    assert_eq!(
        (fs::read_to_string(&path).unwrap().as_str(), facts(&path)),
        ("one\n2\n", before)
    );
    assert_eq!(
        fs::read_dir(&world.directory).unwrap().count(),
        3,
        "a temporary file is left"
    );

    kept(&world, &undo);
    rules.undo_write("default", &undo).unwrap();
    assert_eq!(
        (fs::read_to_string(&path).unwrap().as_str(), facts(&path)),
        ("one\ntwo\n", before)
    );
    // A file that has changed since is not restored.
    let undo = write(&rules, &path, b"mine\n", NOW).unwrap();
    fs::write(&path, "theirs\n").unwrap();
    assert_eq!(
        rules.undo_write("default", &undo).unwrap_err().code,
        ErrorCode::Conflict
    );
    // A file that changes after its former content was kept is not written: undoing that would bring back older content.
    let content = Content {
        bytes: b"mine\n",
        write: NOW,
    };
    let change = |undo: &Undo| {
        assert_eq!(undo.before.as_deref(), Some(&b"theirs\n"[..]));
        fs::write(&path, "changed\n").unwrap();
        Ok(())
    };
    let refused = rules.write_file("default", &path, content, change).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert_eq!(fs::read_to_string(&path).unwrap(), "changed\n");
    // Undoing the write of a new file removes it.
    let new = world.directory.join("new");
    let undo = write(&rules, &new, b"x", NOW).unwrap();
    rules.undo_write("default", &undo).unwrap();
    assert!(!new.exists());
    assert!(write(&rules, &path, &vec![0; (1 << 20) + 1], NOW).is_err());
}

/// The undo store returns an entry to its namespace only, and is bounded.
fn kept(world: &World, undo: &Undo) {
    let store = UndoStore::below(&world.base);
    let id = store.keep("default", undo, 7).unwrap();
    assert_eq!(store.find("default", &id).unwrap(), *undo);
    for (namespace, id) in [
        ("other", id.as_str()),
        ("default", "00000008"),
        ("default", "../secret/secret"),
        ("default", ""),
    ] {
        assert_eq!(
            store.find(namespace, id).unwrap_err().code,
            ErrorCode::NotFound,
            "{id}"
        );
    }
    // The store is bounded.
    for number in 100..320 {
        store.keep("default", undo, number).unwrap();
    }
    let kept = fs::read_dir(world.base.join("host-undo/default")).unwrap();
    assert!(kept.count() <= 100);
}

/// Settings are not opened, a narrower rule takes rights away, a right to write does not include reading, and commands
/// are held to the same rules.
/// claim: [HOST-5]
pub fn directory_rules_are_not_bypassed() {
    let world = World::new("around");
    let at = |name: &str| world.directory.join(name);
    fs::create_dir_all(at("inner")).unwrap();
    fs::create_dir_all(at("only")).unwrap();
    for name in ["inner/f", "only/f", "config.yaml"] {
        fs::write(at(name), format!("{SECRET}\n")).unwrap();
    }
    fs::write(at("key"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    let mut rules = world.rules_with(
        "  - {path: $D/inner, access: [read], namespaces: [team-b]}\n  - {path: $D/only, access: [write]}\n",
    );
    rules.guard([at("config.yaml")], Access::Read);
    assert!(rules.read_file("default", &at("config.yaml")).is_err());
    assert!(write(&rules, &at("config.yaml"), b"x", NOW).is_err());
    assert!(rules.read_file("default", &at("inner/f")).is_err());
    assert!(write(&rules, &at("inner/f"), b"x", NOW).is_err());
    assert!(rules.read_file("team-b", &at("inner/f")).is_ok());
    let content = Content {
        bytes: b"",
        write: Writing::Preview,
    };
    let shown = rules
        .write_file("default", &at("only/f"), content, |_| Ok(()))
        .unwrap();
    let diff = shown.diff(|text| text.into());
    assert!(!diff.contains(SECRET), "{diff}");
    // A command would see the whole directory.
    let allowed = rules.judge(&words("git status")).unwrap();
    let error = world.run(&rules, &allowed, 5).unwrap_err();
    assert!(error.contains("which is not open here"), "{error}");
    check_operands();
}

/// Closed by the name of each link on the path, in a directory that a rule opens, and to a rule's effect. The control:
/// a file that is only closed to writing is read.
/// claim: [HOST-5]
pub fn server_files_are_closed_by_every_path() {
    let world = World::new("own");
    let at = |name: &str| world.directory.join(name);
    for directory in ["a", "b", "c", "free"] {
        fs::create_dir(at(directory)).unwrap();
    }
    fs::write(at("c/vault"), SECRET).unwrap();
    fs::write(at("free/schema"), "{}").unwrap();
    // `vault.path` names `a/one`, a link to `b/two`, which is a link to the vault.
    symlink("../b/two", at("a/one")).unwrap();
    symlink(at("c/vault"), at("b/two")).unwrap();
    let mut rules = world.rules();
    rules.guard([at("a/one")], Access::Read);
    rules.guard([at("free/schema")], Access::Write);
    for path in ["c/vault", "b/two", "a/one"] {
        assert!(rules.read_file("default", &at(path)).is_err(), "{path}");
        assert_eq!(
            write(&rules, &at(path), b"x", NOW),
            Err(ErrorCode::PolicyDenied),
            "{path}"
        );
    }
    assert_eq!(
        rules.read_file("default", &at("free/schema")).unwrap().bytes,
        b"{}"
    );
    assert_eq!(
        write(&rules, &at("free/schema"), b"x", NOW),
        Err(ErrorCode::PolicyDenied)
    );
    assert!(write(&rules, &at("free/other"), b"x", NOW).is_ok());
    check_links_to_directories(&world);
    let effect = |effect: &str, directory: &str| {
        let text = world.fill(&format!(
            "default_rules: false\ndirectories: [{{path: $D/{directory}, access: [read, write]}}]\nprograms:\n  - {{program: tee, why: a test, effect: {effect}, \
             forms: [{{rule: tee, operands: {{kind: text, max: 1}}, match: [tee], refuse: [tee -a]}}]}}\n"
        ));
        let mut rules = load(Some((Path::new("/nonexistent"), &text))).unwrap();
        rules.guard([at("a/one")], Access::Read);
        rules.guard([at("free/schema"), at("tree")], Access::Write);
        let allowed = rules.judge(&words("tee made")).unwrap();
        let inner = World {
            directory: at(directory),
            base: "/nonexistent".into(),
            marker: "".into(),
            secret: "".into(),
        };
        inner.run(&rules, &allowed, 10)
    };
    for (wanted, directory) in [
        ("{reads: [$D]}", "free"),
        ("{reads: [$D/b]}", "free"),
        ("{runs: [$D/c]}", "free"),
        ("{writes: [$D/free]}", "free"),
        ("{reads: [directory]}", "b"),
    ] {
        let refused = effect(wanted, directory).unwrap_err();
        assert!(
            refused.contains("server's own") || refused.contains("not open here"),
            "{wanted}: {refused}"
        );
    }
    // A directory that holds a path closed to writing, or lies in one, is not writable to a command.
    let code = |outcome: Result<Outcome, String>| outcome.unwrap().ending;
    let wanted = "{reads: [directory], writes: [directory], user: owner}";
    assert_eq!(code(effect(wanted, "free")), Ending::Code(1));
    assert!(!at("free/made").exists());
    fs::create_dir_all(at("tree/inner")).unwrap();
    assert_eq!(code(effect(wanted, "tree/inner")), Ending::Code(1));
    assert!(!at("tree/inner/made").exists());
    fs::create_dir(at("control")).unwrap();
    assert_eq!(code(effect(wanted, "control")), Ending::Code(0));
    assert!(at("control/made").exists());
}

/// A link on the way to a closed file, also to one that does not exist yet, does not close all of its target. If the
/// link changes, the file is closed behind its new target.
fn check_links_to_directories(world: &World) {
    let (at, mut rules) = (|name: &str| world.directory.join(name), world.rules());
    fs::create_dir(at("real")).unwrap();
    symlink("real", at("alias")).unwrap();
    rules.guard([at("alias/vault")], Access::Read);
    for target in ["real", "renewed"] {
        fs::create_dir_all(at(target)).unwrap();
        fs::remove_file(at("alias")).unwrap();
        symlink(target, at("alias")).unwrap();
        assert!(write(&rules, &at(target).join("other"), b"x", NOW).is_ok());
        let refused = write(&rules, &at(target).join("vault"), b"x", NOW);
        assert_eq!(refused, Err(ErrorCode::PolicyDenied), "{target}");
    }
}

/// The server's directory is closed where it is mounted elsewhere, and so are parts of it and file systems in it; also
/// in a chroot, whose root is in no list of mounts. The control: another directory that is mounted twice.
/// claim: [HOST-5]
pub fn server_files_are_closed_through_mounts() {
    const CHECK: &str = "server_files_are_closed_through_mounts";
    const ROOT: &str = "RINGFENCE_MOUNTED";
    let Ok(root) = std::env::var(ROOT) else {
        if !is_root() {
            println!("  not applicable: only root mounts directories");
            return;
        }
        let world = World::new("mounts");
        let script = "mount -t tmpfs x $D && mkdir $D/top && cd $D/top && mkdir -p own/part own/disk srv/all srv/part srv/disk srv/free free proc && \
            mount -t tmpfs x own/disk && echo secret | tee own/f own/part/f own/disk/f free/f && mount --rbind /proc proc && \
            mount --bind own srv/all && mount --bind own/part srv/part && mount --bind own/disk srv/disk && mount --bind free srv/free";
        let roots = [
            format!("{ROOT}=$D/top $SELF {CHECK}"),
            format!("{ROOT}=/ chroot $D/top /self {CHECK}"),
        ];
        let copy = "ldd $SELF | grep -o '/[^ ]*' | while read f; do mkdir -p .$(dirname $f); cp $f .$f; done; cp $SELF self";
        let all = format!("{script} && {{ {copy}; }} && {} && {}", roots[0], roots[1]);
        let all = all.replace("$SELF", &crate::world::binary().display().to_string());
        let ended = world.bare(
            &format!("unshare -m sh -ec '{}'", all.replace('\'', "'\\''")),
            "60",
        );
        assert!(ended.status.success(), "{ended:?}");
        return;
    };
    let at = |name: &str| Path::new(&root).join(name);
    let text = format!(
        "directories: [{{path: {}, access: [read, list, write]}}, {{path: {}, access: [write]}}]",
        at("srv").display(),
        at("free").display()
    );
    let mut rules = load(Some((Path::new("rules"), &text))).unwrap();
    rules.guard([at("own")], Access::Read);
    rules.guard([at("free/one"), at("srv/free/two")], Access::Write);
    for absent in "srv/free/one free/two srv/all/new srv/part/new srv/disk/new".split(' ') {
        let refused = write(&rules, &at(absent), b"x", NOW);
        assert_eq!(refused, Err(ErrorCode::PolicyDenied), "{absent}");
    }
    for name in ["all", "part", "disk"] {
        let path = at("srv").join(name);
        let code = rules.read_file("default", &path.join("f")).unwrap_err().code;
        assert_eq!(code, ErrorCode::PolicyDenied, "{path:?}");
        assert!(rules.list_directory("default", &path).is_err(), "{path:?}");
    }
    assert_eq!(
        rules.read_file("default", &at("srv/free/f")).unwrap().bytes,
        b"secret\n"
    );
    assert!(write(&rules, &at("srv/free/new"), b"x", NOW).is_ok() && at("free/new").exists());
    if root == "/" {
        return; // no program is there
    }
    let run = |directory: &str| {
        let allowed = rules.judge(&words("git diff")).unwrap();
        let world = World {
            directory: at(directory),
            base: "/nonexistent".into(),
            marker: "".into(),
            secret: "".into(),
        };
        world.run(&rules, &allowed, 10)
    };
    for directory in ["srv/part", "srv/disk", "srv"] {
        let refused = run(directory).unwrap_err();
        let is_closed = refused.contains("server's own") || refused.contains("not open here");
        assert!(is_closed, "{directory}: {refused}");
    }
    assert!(run("srv/free").is_ok());
}

/// Operands of commands are held to the same rules as the file tools.
fn check_operands() {
    let world = World::new("operands");
    let at = |name: &str| world.directory.join(name).display().to_string();
    fs::write(at("key"), "-----BEGIN PRIVATE KEY-----\n").unwrap();
    fs::write(at("f"), "content\n").unwrap();
    let mut rules = world.rules();
    let run = |rules: &Rules, command: String| {
        let allowed = rules.judge(&words(&command)).unwrap();
        world.run(rules, &allowed, 10)
    };
    assert_eq!(
        run(&rules, format!("cat {} {0}", at("f"))).unwrap().stdout.bytes,
        b"content\ncontent\n"
    );
    let refused = |rules: &Rules, command: String, why: &str| {
        let error = run(rules, command).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    };
    refused(&rules, format!("cat {}", at("key")), "private key");
    refused(&rules, format!("ls {} {}", at("."), at("bin")), "lies in another");
    refused(&rules, format!("cat {}", at("bin/../f")), "`..`");
    rules.guard([world.directory.join("f")], Access::Read);
    refused(&rules, format!("cat {}", at("f")), "not open here");
}
