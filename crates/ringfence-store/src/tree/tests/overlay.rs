//! Overlay workspaces, with upper layers written by the kernel or by a test.

use crate::tree::{
    Bounds, Change, Changes, CompareBounds, TreeError,
    overlay::{Committed, commit, commit_after, read},
    tests::fixture::Scratch,
};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    process::{Child, Command, Stdio},
};

const WALK: Bounds = Bounds {
    entries: 10_000,
    depth: 32,
};
const COMPARE: CompareBounds<'static> = CompareBounds {
    read_bytes: 1 << 20,
    text_bytes: 1 << 16,
    diff_bytes: 1 << 16,
    redact: &crate::tree::unredacted,
};

/// A process in its own user and mount namespace that has mounted an overlay over the directory; it ends when this is
/// dropped.
struct Mounted {
    child: Child,
    upper: File,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// Mounts an overlay as a sandbox does (tmpfs, `userxattr`), runs the script in it, and keeps the layer. None if the
/// machine cannot.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's own overlay is what is tested against"
)]
fn overlay(scratch: &Scratch, script: &str) -> Option<Mounted> {
    let layer = scratch.outside("layer");
    fs::create_dir(&layer).unwrap();
    let all = format!(
        "set -e; cd {layer}; mount -t tmpfs layer .; cd {layer}; mkdir upper work merged; \
         mount -t overlay overlay -o lowerdir={lower},upperdir=upper,workdir=work,userxattr merged; \
         (cd merged; {script}); echo ready; read end || true",
        layer = layer.display(),
        lower = scratch.path("").display(),
    );
    let mut child = Command::new("unshare")
        .args(["-Urm", "sh", "-c", &all])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    if line != "ready\n" {
        child.wait().unwrap();
        eprintln!("no overlay in a user namespace on this machine: {script}");
        #[expect(
            clippy::disallowed_methods,
            reason = "who runs the tests says what the machine must have"
        )]
        let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
        assert!(!required.contains("userns"), "RINGFENCE_REQUIRE asks for userns");
        return None;
    }
    let upper = format!("/proc/{}/root{}/upper", child.id(), layer.display());
    let upper = File::open(upper).unwrap();
    Some(Mounted { child, upper })
}

fn changes(mounted: &Mounted, scratch: &Scratch) -> Changes {
    read(mounted.upper.as_fd(), scratch.root(), WALK, COMPARE).unwrap()
}

fn said(changes: &Changes) -> Vec<String> {
    let one = |change: &Change| {
        let rules: Vec<&str> = change.risks.iter().map(|risk| risk.rule).collect();
        format!("{:?} {} {}", change.kind, change.path.display(), rules.join(" "))
            .trim_end()
            .to_owned()
    };
    changes.list.iter().map(one).collect()
}

fn set_up(scratch: &Scratch) {
    fs::create_dir_all(scratch.path("src/deep")).unwrap();
    fs::create_dir_all(scratch.path("old/inner")).unwrap();
    fs::write(scratch.path("src/main.py"), "print(1)\n").unwrap();
    fs::write(scratch.path("src/same.py"), "same\n").unwrap();
    fs::write(scratch.path("src/deep/gone"), "gone\n").unwrap();
    fs::write(scratch.path("old/inner/file"), "old\n").unwrap();
    fs::write(scratch.path("becomes_directory"), "file\n").unwrap();
    fs::create_dir(scratch.path("becomes_file")).unwrap();
    fs::write(scratch.path("becomes_file/x"), "x\n").unwrap();
    fs::write(scratch.path("script"), "#!/bin/sh\n").unwrap();
}

const SCRIPT: &str = "
    echo 'print(2)' > src/main.py; touch -d @1000000000.5 src/main.py
    echo tmp >> src/same.py; echo same > src/same.py
    rm src/deep/gone; mkdir -p .git/hooks; echo '#!/bin/sh' > .git/hooks/pre-commit; chmod 4755 .git/hooks/pre-commit
    rm -r old; mkdir old; echo new > old/file
    rm becomes_directory; mkdir becomes_directory; echo in > becomes_directory/in
    rm -r becomes_file; echo file > becomes_file
    chmod +x script; ln -s /etc/passwd link; mkfifo fifo; echo x > one; ln one two
    mkdir closed; echo x > closed/x; chmod 555 closed";

#[test]
fn overlay_changes_are_shown_and_written_only_by_commit() {
    let scratch = Scratch::new();
    set_up(&scratch);
    let Some(mounted) = overlay(&scratch, SCRIPT) else {
        return;
    };
    assert_eq!(
        fs::read(scratch.path("src/main.py")).unwrap(),
        b"print(1)\n",
        "before the commit"
    );
    assert!(!scratch.path(".git").exists(), "before the commit");
    let changes = changes(&mounted, &scratch);
    assert_eq!(
        said(&changes),
        [
            "Added .git git.directory",
            "Added .git/hooks git.directory",
            "Added .git/hooks/pre-commit executable git.directory program set-id",
            "Changed becomes_directory",
            "Added becomes_directory/in",
            "Changed becomes_file",
            "Deleted becomes_file/x",
            "Added closed",
            "Added closed/x",
            "Added fifo special",
            "Added link link.outside",
            "Added old/file",
            "Deleted old/inner",
            "Deleted old/inner/file",
            "Added one special",
            "Changed script executable program",
            "Deleted src/deep/gone",
            "Changed src/main.py",
            "Added two special",
        ]
    );
    let main = changes
        .list
        .iter()
        .find(|change| change.path == Path::new("src/main.py"))
        .unwrap();
    assert!(main.diff.as_ref().unwrap().ends_with("-print(1)\n+print(2)\n"));
    assert_committed(&scratch, &mounted, &changes);
}

fn assert_committed(scratch: &Scratch, mounted: &Mounted, changes: &Changes) {
    let done = commit(mounted.upper.as_fd(), scratch.root(), changes).unwrap();
    assert_eq!(done.skipped, ["fifo", "one", "two"].map(Path::new));
    assert!(done.kept.is_empty());
    let text = |path: &str| fs::read_to_string(scratch.path(path)).unwrap();
    assert_eq!(text("src/main.py"), "print(2)\n");
    let main = fs::metadata(scratch.path("src/main.py")).unwrap();
    assert_eq!((main.mtime(), main.mtime_nsec()), (1_000_000_000, 500_000_000));
    assert_eq!(
        (text("old/file"), text("becomes_directory/in")),
        ("new\n".to_owned(), "in\n".to_owned())
    );
    assert_eq!(
        (text("becomes_file"), text("closed/x")),
        ("file\n".to_owned(), "x\n".to_owned())
    );
    let mode = |path: &str| fs::metadata(scratch.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(".git/hooks/pre-commit"), mode("closed")), (0o755, 0o555));
    // For the cleanup: an ordinary user could not remove its entries.
    fs::set_permissions(scratch.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        fs::read_link(scratch.path("link")).unwrap(),
        Path::new("/etc/passwd")
    );
    for gone in ["src/deep/gone", "old/inner", "fifo", "one"] {
        assert!(fs::symlink_metadata(scratch.path(gone)).is_err(), "{gone}");
    }
    // Only changes that are never committed are left, and no staging directory.
    let after = read(mounted.upper.as_fd(), scratch.root(), WALK, COMPARE).unwrap();
    let left: Vec<String> = said(&after);
    assert_eq!(
        left,
        [
            "Changed .git/hooks/pre-commit git.directory program set-id",
            "Changed closed",
            "Added fifo special",
            "Added one special",
            "Added two special"
        ]
    );
}

#[test]
fn commit_of_stale_changes_changes_nothing() {
    let scratch = Scratch::new();
    set_up(&scratch);
    let Some(mounted) = overlay(&scratch, "echo 2 > src/main.py; rm script; echo new > new") else {
        return;
    };
    let changes = changes(&mounted, &scratch);
    let stale = |path: &str, spoil: &dyn Fn(), mend: &dyn Fn()| {
        spoil();
        let refused = commit(mounted.upper.as_fd(), scratch.root(), &changes);
        assert!(
            matches!(&refused, Err(TreeError::Stale(named)) if named == Path::new(path)),
            "{refused:?}"
        );
        mend();
        assert_eq!(fs::read(scratch.path("src/main.py")).unwrap(), b"print(1)\n");
        assert!(scratch.path("script").exists());
    };
    let upper = format!(
        "/proc/{}/root{}/upper",
        mounted.child.id(),
        scratch.outside("layer").display()
    );
    let host = |path: &str, text: &str| fs::write(scratch.path(path), text).unwrap();
    stale("script", &|| host("script", "the host's"), &|| {
        host("script", "#!/bin/sh\n")
    });
    stale("new", &|| host("new", "the host's"), &|| {
        fs::remove_file(scratch.path("new")).unwrap()
    });
    // A file of the upper layer that is written again with the shown content is as shown.
    let program = |text: &str| fs::write(format!("{upper}/new"), text).unwrap();
    stale("new", &|| program("evil"), &|| program("new\n"));
    stale("new", &|| program("newer and longer"), &|| program("new\n"));
    let names: Vec<_> = fs::read_dir(scratch.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".ringfence")),
        "{names:?}"
    );
    let done = commit(mounted.upper.as_fd(), scratch.root(), &changes).unwrap();
    assert_eq!((done.written, done.deleted), (2, 1));
}

/// Copying takes long; the host's writes meanwhile are not lost.
#[test]
fn host_edit_during_commit_copy_makes_commit_stale() {
    let scratch = Scratch::new();
    set_up(&scratch);
    let Some(mounted) = overlay(
        &scratch,
        "head -c 100000000 /dev/zero > big; echo 2 > src/main.py; rm script",
    ) else {
        return;
    };
    let bounds = CompareBounds {
        read_bytes: 1 << 30,
        ..COMPARE
    };
    let changes = read(mounted.upper.as_fd(), scratch.root(), WALK, bounds).unwrap();
    for (path, text) in [("src/main.py", "the host's"), ("script", "the host's too")] {
        let before = fs::read(scratch.path(path)).unwrap();
        let copying = || {
            let mut names = fs::read_dir(scratch.path("")).unwrap().flatten();
            names.any(|entry| entry.file_name().to_string_lossy().starts_with(".ringfence"))
        };
        let refused = std::thread::scope(|scope| {
            let host = scope.spawn(|| {
                while !copying() {
                    std::thread::yield_now();
                }
                fs::write(scratch.path(path), text).unwrap();
            });
            let refused = commit(mounted.upper.as_fd(), scratch.root(), &changes);
            host.join().unwrap();
            refused
        });
        assert!(
            matches!(&refused, Err(TreeError::Stale(named)) if named == Path::new(path)),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(scratch.path(path)).unwrap(), text);
        assert!(!scratch.path("big").exists());
        fs::write(scratch.path(path), before).unwrap();
    }
    commit(mounted.upper.as_fd(), scratch.root(), &changes).unwrap();
}

#[test]
fn commit_of_chosen_changes_leaves_the_others() {
    let scratch = Scratch::new();
    set_up(&scratch);
    let Some(mounted) = overlay(
        &scratch,
        "mkdir -p a/b; echo 1 > a/b/c; echo 2 > src/main.py; rm -r old",
    ) else {
        return;
    };
    let mut changes = changes(&mounted, &scratch);
    changes.list.retain(|change| {
        ["a/b/c", "old", "old/inner"]
            .map(Path::new)
            .contains(&change.path.as_path())
    });
    let done = commit(mounted.upper.as_fd(), scratch.root(), &changes).unwrap();
    let expected = Committed {
        conflicts: Vec::new(),
        written: 1,
        deleted: 0,
        skipped: vec![],
        kept: vec!["old/inner".into(), "old".into()],
    };
    assert_eq!(done, expected);
    assert_eq!(fs::read(scratch.path("a/b/c")).unwrap(), b"1\n");
    assert_eq!(fs::read(scratch.path("src/main.py")).unwrap(), b"print(1)\n");
}

#[test]
fn commit_follows_no_symlink_created_meanwhile() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("d")).unwrap();
    let upper = Scratch::new();
    fs::create_dir(upper.path("d")).unwrap();
    fs::write(upper.path("d/new"), "x").unwrap();
    let changes = read(upper.root(), scratch.root(), WALK, COMPARE).unwrap();
    assert_eq!(said(&changes), ["Added d/new"]);
    fs::create_dir(scratch.outside("beyond")).unwrap();
    fs::remove_dir(scratch.path("d")).unwrap();
    symlink(scratch.outside("beyond"), scratch.path("d")).unwrap();
    assert!(commit(upper.root(), scratch.root(), &changes).is_err());
    assert_eq!(fs::read_dir(scratch.outside("beyond")).unwrap().count(), 0);
    // Nor through one in the upper layer.
    fs::remove_file(scratch.path("d")).unwrap();
    fs::create_dir(scratch.path("d")).unwrap();
    fs::write(scratch.outside("canary"), "x").unwrap();
    fs::remove_file(upper.path("d/new")).unwrap();
    symlink(scratch.outside("canary"), upper.path("d/new")).unwrap();
    assert!(commit(upper.root(), scratch.root(), &changes).is_err());
    assert_eq!(fs::read_dir(scratch.path("d")).unwrap().count(), 0);
}

#[test]
fn upper_layer_with_redirect_attribute_is_refused() {
    let (scratch, upper) = (Scratch::new(), Scratch::new());
    fs::create_dir(scratch.path("d")).unwrap();
    fs::create_dir(upper.path("d")).unwrap();
    let directory = File::open(upper.path("d")).unwrap();
    let set = rustix::fs::fsetxattr(
        &directory,
        "user.overlay.redirect",
        b"/etc",
        rustix::fs::XattrFlags::empty(),
    );
    set.unwrap();
    let refused = read(upper.root(), scratch.root(), WALK, COMPARE);
    assert!(matches!(refused, Err(TreeError::Refused { .. })), "{refused:?}");
}

#[test]
fn files_committed_by_root_belong_to_directory_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: what is committed belongs to this user anyway");
        return;
    }
    let (scratch, upper) = (Scratch::new(), Scratch::new());
    std::os::unix::fs::chown(scratch.path(""), Some(1234), Some(2345)).unwrap();
    fs::create_dir(upper.path("d")).unwrap();
    File::create(upper.path("d/f")).unwrap().write_all(b"x").unwrap();
    symlink("f", upper.path("d/link")).unwrap();
    let changes = read(upper.root(), scratch.root(), WALK, COMPARE).unwrap();
    commit(upper.root(), scratch.root(), &changes).unwrap();
    for path in ["d", "d/f", "d/link"] {
        let found = fs::symlink_metadata(scratch.path(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 2345), "{path}");
    }
}

/// claim: [WS-4]
#[test]
fn commit_removes_only_leftovers_of_killed_commits() {
    let (scratch, upper) = (Scratch::new(), Scratch::new());
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    let set_up = |digits: &str, files: &[&str]| {
        let path = scratch.path(format!(".ringfence-{digits}"));
        fs::create_dir(&path).unwrap();
        for file in files {
            fs::write(path.join(file), "x").unwrap();
        }
        let opened = File::open(&path).unwrap();
        opened.set_modified(long_ago).unwrap();
        (path, opened)
    };
    let (left, _) = set_up("0123456789abcdef", &["1", "2"]);
    let (foreign, _) = set_up("0123456789abcde0", &["notes.txt"]);
    let (named, _) = set_up("mine", &["1"]);
    let (live, lock) = set_up("0123456789abcde1", &["1"]);
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (young, opened) = set_up("0123456789abcde2", &["1"]);
    opened.set_modified(std::time::SystemTime::now()).unwrap();
    fs::write(upper.path("new"), "x").unwrap();
    let changes = read(upper.root(), scratch.root(), WALK, COMPARE).unwrap();
    commit(upper.root(), scratch.root(), &changes).unwrap();
    assert!(!left.exists() && scratch.path("new").exists());
    for stays in [
        foreign.join("notes.txt"),
        named.join("1"),
        live.join("1"),
        young.join("1"),
    ] {
        assert!(stays.exists(), "{stays:?}");
    }
}

#[test]
fn commit_of_many_changes_syncs_whole_file_system() {
    let (scratch, upper) = (Scratch::new(), Scratch::new());
    for number in 0..70 {
        fs::create_dir(upper.path(format!("d{number}"))).unwrap();
        fs::write(upper.path(format!("d{number}/f")), "x").unwrap();
    }
    let changes = read(upper.root(), scratch.root(), WALK, COMPARE).unwrap();
    assert_eq!(
        commit(upper.root(), scratch.root(), &changes).unwrap().written,
        140
    );
    assert_eq!(fs::read(scratch.path("d69/f")).unwrap(), b"x");
}

/// An edit after the last check is neither lost nor half replaced.
#[test]
fn host_edit_during_placement_is_kept_as_conflict() {
    type Edit = fn(&Scratch);
    let edits: [(&str, Edit); 5] = [
        ("src/main.py", |scratch| {
            fs::write(scratch.path("src/main.py"), "the host's").unwrap();
        }),
        ("src/main.py", |scratch| {
            fs::write(scratch.path("other"), "the host's").unwrap();
            fs::rename(scratch.path("other"), scratch.path("src/main.py")).unwrap();
        }),
        ("src/main.py", |scratch| {
            fs::remove_file(scratch.path("src/main.py")).unwrap();
        }),
        ("new", |scratch| {
            fs::write(scratch.path("new"), "the host's").unwrap()
        }),
        ("script", |scratch| {
            fs::write(scratch.path("script"), "the host's").unwrap();
        }),
    ];
    for (path, edit) in edits {
        let scratch = Scratch::new();
        set_up(&scratch);
        let Some(mounted) = overlay(&scratch, "echo 2 > src/main.py; echo 1 > new; rm script") else {
            return;
        };
        let changes = changes(&mounted, &scratch);
        let done = commit_after(mounted.upper.as_fd(), scratch.root(), &changes, || edit(&scratch)).unwrap();
        assert_eq!(done.conflicts, [Path::new(path)], "{path}");
        let (written, deleted) = if path == "script" { (2, 0) } else { (1, 1) };
        assert_eq!((done.written, done.deleted), (written, deleted), "{path}");
        let text = fs::read_to_string(scratch.path(path)).unwrap_or_default();
        assert!(["the host's", ""].contains(&text.as_str()), "{path}: {text}");
        let others = [("src/main.py", "2\n"), ("new", "1\n")];
        for (other, text) in others.into_iter().filter(|(other, _)| *other != path) {
            assert_eq!(fs::read_to_string(scratch.path(other)).unwrap(), text);
        }
        let mut names = fs::read_dir(scratch.path("")).unwrap().flatten();
        assert!(!names.any(|entry| entry.file_name().to_string_lossy().starts_with(".ringfence")));
    }
}
