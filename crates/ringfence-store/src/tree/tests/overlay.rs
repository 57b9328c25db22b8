//! Overlay workspaces, through upper layers that the kernel wrote and such that a test wrote.

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
    shown: &crate::tree::as_it_is,
};

/// A process in a user and mount namespace of its own that has mounted an overlay over the place; it ends with this.
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

/// Mounts an overlay as a sandbox does (tmpfs, `userxattr`), runs the script in it, and keeps the layer.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's own overlay is what is tested against"
)]
fn overlay(place: &Scratch, script: &str) -> Option<Mounted> {
    let layer = place.outside("layer");
    fs::create_dir(&layer).unwrap();
    let all = format!(
        "set -e; cd {layer}; mount -t tmpfs layer .; cd {layer}; mkdir upper work merged; \
         mount -t overlay overlay -o lowerdir={lower},upperdir=upper,workdir=work,userxattr merged; \
         (cd merged; {script}); echo ready; read end || true",
        layer = layer.display(),
        lower = place.path("").display(),
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

fn changes(mounted: &Mounted, place: &Scratch) -> Changes {
    read(mounted.upper.as_fd(), place.root(), WALK, COMPARE).unwrap()
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

fn lay(place: &Scratch) {
    fs::create_dir_all(place.path("src/deep")).unwrap();
    fs::create_dir_all(place.path("old/inner")).unwrap();
    fs::write(place.path("src/main.py"), "print(1)\n").unwrap();
    fs::write(place.path("src/same.py"), "same\n").unwrap();
    fs::write(place.path("src/deep/gone"), "gone\n").unwrap();
    fs::write(place.path("old/inner/file"), "old\n").unwrap();
    fs::write(place.path("becomes_directory"), "file\n").unwrap();
    fs::create_dir(place.path("becomes_file")).unwrap();
    fs::write(place.path("becomes_file/x"), "x\n").unwrap();
    fs::write(place.path("script"), "#!/bin/sh\n").unwrap();
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
fn what_a_program_did_in_an_overlay_is_shown_and_committed_and_nothing_before() {
    let place = Scratch::new();
    lay(&place);
    let Some(mounted) = overlay(&place, SCRIPT) else {
        return;
    };
    assert_eq!(
        fs::read(place.path("src/main.py")).unwrap(),
        b"print(1)\n",
        "before the commit"
    );
    assert!(!place.path(".git").exists(), "before the commit");
    let changes = changes(&mounted, &place);
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
    assert_committed(&place, &mounted, &changes);
}

fn assert_committed(place: &Scratch, mounted: &Mounted, changes: &Changes) {
    let done = commit(mounted.upper.as_fd(), place.root(), changes).unwrap();
    assert_eq!(done.skipped, ["fifo", "one", "two"].map(Path::new));
    assert!(done.kept.is_empty());
    let text = |path: &str| fs::read_to_string(place.path(path)).unwrap();
    assert_eq!(text("src/main.py"), "print(2)\n");
    let main = fs::metadata(place.path("src/main.py")).unwrap();
    assert_eq!((main.mtime(), main.mtime_nsec()), (1_000_000_000, 500_000_000));
    assert_eq!(
        (text("old/file"), text("becomes_directory/in")),
        ("new\n".to_owned(), "in\n".to_owned())
    );
    assert_eq!(
        (text("becomes_file"), text("closed/x")),
        ("file\n".to_owned(), "x\n".to_owned())
    );
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(".git/hooks/pre-commit"), mode("closed")), (0o755, 0o555));
    // An ordinary user could not clear it away.
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        fs::read_link(place.path("link")).unwrap(),
        Path::new("/etc/passwd")
    );
    for gone in ["src/deep/gone", "old/inner", "fifo", "one"] {
        assert!(fs::symlink_metadata(place.path(gone)).is_err(), "{gone}");
    }
    // Only what is never committed is left, and no staging directory.
    let after = read(mounted.upper.as_fd(), place.root(), WALK, COMPARE).unwrap();
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
fn a_commit_of_what_is_no_longer_there_changes_nothing() {
    let place = Scratch::new();
    lay(&place);
    let Some(mounted) = overlay(&place, "echo 2 > src/main.py; rm script; echo new > new") else {
        return;
    };
    let changes = changes(&mounted, &place);
    let stale = |path: &str, spoil: &dyn Fn(), mend: &dyn Fn()| {
        spoil();
        let refused = commit(mounted.upper.as_fd(), place.root(), &changes);
        assert!(
            matches!(&refused, Err(TreeError::Stale(named)) if named == Path::new(path)),
            "{refused:?}"
        );
        mend();
        assert_eq!(fs::read(place.path("src/main.py")).unwrap(), b"print(1)\n");
        assert!(place.path("script").exists());
    };
    let upper = format!(
        "/proc/{}/root{}/upper",
        mounted.child.id(),
        place.outside("layer").display()
    );
    let host = |path: &str, text: &str| fs::write(place.path(path), text).unwrap();
    stale("script", &|| host("script", "the host's"), &|| {
        host("script", "#!/bin/sh\n")
    });
    stale("new", &|| host("new", "the host's"), &|| {
        fs::remove_file(place.path("new")).unwrap()
    });
    // What is mended is by its content what was shown.
    let program = |text: &str| fs::write(format!("{upper}/new"), text).unwrap();
    stale("new", &|| program("evil"), &|| program("new\n"));
    stale("new", &|| program("newer and longer"), &|| program("new\n"));
    let names: Vec<_> = fs::read_dir(place.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".ringfence")),
        "{names:?}"
    );
    let done = commit(mounted.upper.as_fd(), place.root(), &changes).unwrap();
    assert_eq!((done.written, done.deleted), (2, 1));
}

/// Copying takes long, and what the host writes meanwhile is not lost.
#[test]
fn what_the_host_writes_while_a_commit_copies_stays() {
    let place = Scratch::new();
    lay(&place);
    let Some(mounted) = overlay(
        &place,
        "head -c 100000000 /dev/zero > big; echo 2 > src/main.py; rm script",
    ) else {
        return;
    };
    let bounds = CompareBounds {
        read_bytes: 1 << 30,
        ..COMPARE
    };
    let changes = read(mounted.upper.as_fd(), place.root(), WALK, bounds).unwrap();
    for (path, text) in [("src/main.py", "the host's"), ("script", "the host's too")] {
        let before = fs::read(place.path(path)).unwrap();
        let copying = || {
            let mut names = fs::read_dir(place.path("")).unwrap().flatten();
            names.any(|entry| entry.file_name().to_string_lossy().starts_with(".ringfence"))
        };
        let refused = std::thread::scope(|scope| {
            let host = scope.spawn(|| {
                while !copying() {
                    std::thread::yield_now();
                }
                fs::write(place.path(path), text).unwrap();
            });
            let refused = commit(mounted.upper.as_fd(), place.root(), &changes);
            host.join().unwrap();
            refused
        });
        assert!(
            matches!(&refused, Err(TreeError::Stale(named)) if named == Path::new(path)),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(place.path(path)).unwrap(), text);
        assert!(!place.path("big").exists());
        fs::write(place.path(path), before).unwrap();
    }
    commit(mounted.upper.as_fd(), place.root(), &changes).unwrap();
}

#[test]
fn a_part_of_the_changes_can_be_chosen() {
    let place = Scratch::new();
    lay(&place);
    let Some(mounted) = overlay(
        &place,
        "mkdir -p a/b; echo 1 > a/b/c; echo 2 > src/main.py; rm -r old",
    ) else {
        return;
    };
    let mut changes = changes(&mounted, &place);
    changes.list.retain(|change| {
        ["a/b/c", "old", "old/inner"]
            .map(Path::new)
            .contains(&change.path.as_path())
    });
    let done = commit(mounted.upper.as_fd(), place.root(), &changes).unwrap();
    let expected = Committed {
        conflicts: Vec::new(),
        written: 1,
        deleted: 0,
        skipped: vec![],
        kept: vec!["old/inner".into(), "old".into()],
    };
    assert_eq!(done, expected);
    assert_eq!(fs::read(place.path("a/b/c")).unwrap(), b"1\n");
    assert_eq!(fs::read(place.path("src/main.py")).unwrap(), b"print(1)\n");
}

#[test]
fn a_commit_goes_through_no_link_that_was_laid_meanwhile() {
    let place = Scratch::new();
    fs::create_dir(place.path("d")).unwrap();
    let upper = Scratch::new();
    fs::create_dir(upper.path("d")).unwrap();
    fs::write(upper.path("d/new"), "x").unwrap();
    let changes = read(upper.root(), place.root(), WALK, COMPARE).unwrap();
    assert_eq!(said(&changes), ["Added d/new"]);
    fs::create_dir(place.outside("beyond")).unwrap();
    fs::remove_dir(place.path("d")).unwrap();
    symlink(place.outside("beyond"), place.path("d")).unwrap();
    assert!(commit(upper.root(), place.root(), &changes).is_err());
    assert_eq!(fs::read_dir(place.outside("beyond")).unwrap().count(), 0);
    // And none of the upper layer's.
    fs::remove_file(place.path("d")).unwrap();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.outside("canary"), "x").unwrap();
    fs::remove_file(upper.path("d/new")).unwrap();
    symlink(place.outside("canary"), upper.path("d/new")).unwrap();
    assert!(commit(upper.root(), place.root(), &changes).is_err());
    assert_eq!(fs::read_dir(place.path("d")).unwrap().count(), 0);
}

#[test]
fn what_no_overlay_of_ours_writes_is_refused() {
    let (place, upper) = (Scratch::new(), Scratch::new());
    fs::create_dir(place.path("d")).unwrap();
    fs::create_dir(upper.path("d")).unwrap();
    let directory = File::open(upper.path("d")).unwrap();
    let set = rustix::fs::fsetxattr(
        &directory,
        "user.overlay.redirect",
        b"/etc",
        rustix::fs::XattrFlags::empty(),
    );
    set.unwrap();
    let refused = read(upper.root(), place.root(), WALK, COMPARE);
    assert!(matches!(refused, Err(TreeError::Refused { .. })), "{refused:?}");
}

#[test]
fn what_root_commits_belongs_to_the_owner_of_the_directory() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: what is committed belongs to this user anyway");
        return;
    }
    let (place, upper) = (Scratch::new(), Scratch::new());
    std::os::unix::fs::chown(place.path(""), Some(1234), Some(2345)).unwrap();
    fs::create_dir(upper.path("d")).unwrap();
    File::create(upper.path("d/f")).unwrap().write_all(b"x").unwrap();
    symlink("f", upper.path("d/link")).unwrap();
    let changes = read(upper.root(), place.root(), WALK, COMPARE).unwrap();
    commit(upper.root(), place.root(), &changes).unwrap();
    for path in ["d", "d/f", "d/link"] {
        let found = fs::symlink_metadata(place.path(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 2345), "{path}");
    }
}

/// claim: [WS-4]
#[test]
fn a_commit_removes_what_a_killed_one_has_left_and_nothing_else() {
    let (place, upper) = (Scratch::new(), Scratch::new());
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    let lay = |digits: &str, files: &[&str]| {
        let path = place.path(format!(".ringfence-{digits}"));
        fs::create_dir(&path).unwrap();
        for file in files {
            fs::write(path.join(file), "x").unwrap();
        }
        let opened = File::open(&path).unwrap();
        opened.set_modified(long_ago).unwrap();
        (path, opened)
    };
    let (left, _) = lay("0123456789abcdef", &["1", "2"]);
    let (foreign, _) = lay("0123456789abcde0", &["notes.txt"]);
    let (named, _) = lay("mine", &["1"]);
    let (live, lock) = lay("0123456789abcde1", &["1"]);
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (young, opened) = lay("0123456789abcde2", &["1"]);
    opened.set_modified(std::time::SystemTime::now()).unwrap();
    fs::write(upper.path("new"), "x").unwrap();
    let changes = read(upper.root(), place.root(), WALK, COMPARE).unwrap();
    commit(upper.root(), place.root(), &changes).unwrap();
    assert!(!left.exists() && place.path("new").exists());
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
fn more_changes_than_are_brought_to_the_disk_one_by_one_are_committed_too() {
    let (place, upper) = (Scratch::new(), Scratch::new());
    for number in 0..70 {
        fs::create_dir(upper.path(format!("d{number}"))).unwrap();
        fs::write(upper.path(format!("d{number}/f")), "x").unwrap();
    }
    let changes = read(upper.root(), place.root(), WALK, COMPARE).unwrap();
    assert_eq!(commit(upper.root(), place.root(), &changes).unwrap().written, 140);
    assert_eq!(fs::read(place.path("d69/f")).unwrap(), b"x");
}

/// An edit that comes after the last look is neither lost nor half replaced.
#[test]
fn what_the_host_writes_while_files_are_put_in_place_is_kept_as_a_conflict() {
    type Edit = fn(&Scratch);
    let edits: [(&str, Edit); 5] = [
        ("src/main.py", |place| {
            fs::write(place.path("src/main.py"), "the host's").unwrap();
        }),
        ("src/main.py", |place| {
            fs::write(place.path("other"), "the host's").unwrap();
            fs::rename(place.path("other"), place.path("src/main.py")).unwrap();
        }),
        ("src/main.py", |place| {
            fs::remove_file(place.path("src/main.py")).unwrap();
        }),
        ("new", |place| fs::write(place.path("new"), "the host's").unwrap()),
        ("script", |place| {
            fs::write(place.path("script"), "the host's").unwrap();
        }),
    ];
    for (path, edit) in edits {
        let place = Scratch::new();
        lay(&place);
        let Some(mounted) = overlay(&place, "echo 2 > src/main.py; echo 1 > new; rm script") else {
            return;
        };
        let changes = changes(&mounted, &place);
        let done = commit_after(mounted.upper.as_fd(), place.root(), &changes, || edit(&place)).unwrap();
        assert_eq!(done.conflicts, [Path::new(path)], "{path}");
        let (written, deleted) = if path == "script" { (2, 0) } else { (1, 1) };
        assert_eq!((done.written, done.deleted), (written, deleted), "{path}");
        let text = fs::read_to_string(place.path(path)).unwrap_or_default();
        assert!(["the host's", ""].contains(&text.as_str()), "{path}: {text}");
        let others = [("src/main.py", "2\n"), ("new", "1\n")];
        for (other, text) in others.into_iter().filter(|(other, _)| *other != path) {
            assert_eq!(fs::read_to_string(place.path(other)).unwrap(), text);
        }
        let mut names = fs::read_dir(place.path("")).unwrap().flatten();
        assert!(!names.any(|entry| entry.file_name().to_string_lossy().starts_with(".ringfence")));
    }
}
