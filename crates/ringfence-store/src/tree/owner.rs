//! A server that runs as root acts as the owner of a directory, on one thread only.
//!
//! A file that root creates in a sandbox's tmpfs would have an owner that the sandbox's user namespace does not map,
//! and the kernel refuses that (`EOVERFLOW`). And root must not do for a caller what the owner could not read or do.

use super::TreeError;
use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    thread::{CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{marker::PhantomData, os::fd::BorrowedFd};

/// Capabilities that let a process do with a file what its user may not (capabilities(7)).
const FILE_CAPS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// A guard; when it is dropped, the thread is root again. It cannot be sent to another thread. A guard within one that
/// took effect changes nothing: the thread is no longer root.
pub struct AsOwner {
    /// Root's groups; None if nothing was changed.
    before: Option<Groups>,
    thread: PhantomData<*const ()>,
}

struct Groups {
    effective: Gid,
    supplementary: Vec<Gid>,
}

impl AsOwner {
    /// Makes the thread act as the owner of this directory, with the directory's group and no other. Changes nothing if
    /// the process is not root, or if root owns the directory. Errors: `Owner` if root lacks the capabilities to become
    /// another user, or is root only in a user namespace that does not map the owner or forbids setgroups(2).
    pub fn of(root: BorrowedFd<'_>) -> Result<Self, TreeError> {
        let mut acting = Self {
            before: None,
            thread: PhantomData,
        };
        let stat = rustix::fs::fstat(root).map_err(TreeError::of("look at", "."))?;
        if stat.st_uid == 0 || !rustix::process::geteuid().is_root() {
            return Ok(acting);
        }
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let before = Groups {
            effective: rustix::process::getegid(),
            supplementary: rustix::process::getgroups().map_err(refused(user))?,
        };
        // The C library would do this for every thread of the process; the bare system call does it for this one.
        if !before.supplementary.is_empty() {
            set_thread_groups(&[]).map_err(refused(user))?;
        }
        // From here on the ids are restored after a failure too.
        acting.before = Some(before);
        set_thread_res_gid(None, group, None).map_err(refused(user))?;
        // The file system ids follow the effective ones, and no capability stays effective (credentials(7)).
        set_thread_res_uid(None, user, None).map_err(refused(user))?;
        match is_only(user, group).map_err(refused(user))? {
            true => Ok(acting),
            // For example, securebits may keep the capabilities.
            false => Err(refused(user)(Errno::PERM)),
        }
    }
}

fn refused(user: Uid) -> impl FnOnce(Errno) -> TreeError {
    let uid = user.as_raw();
    move |error| TreeError::Owner { uid, error }
}

/// True if this thread has the rights of this user and group, and no others.
fn is_only(user: Uid, group: Gid) -> rustix::io::Result<bool> {
    let ids = (rustix::process::geteuid(), rustix::process::getegid());
    let effective = capabilities(None)?.effective;
    Ok(ids == (user, group) && rustix::process::getgroups()?.is_empty() && !effective.intersects(FILE_CAPS))
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        // The user first: only root may set its groups.
        let back = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, before.effective, None))
            .and_then(|()| match before.supplementary.as_slice() {
                [] => Ok(()),
                groups => set_thread_groups(groups),
            });
        if let Err(error) = back {
            tracing::error!(%error, "a thread cannot be root again after it acted for a workspace's owner");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Bounds, CompareBounds, EntryKind, ListBounds, LowerState, PackLimits, Side,
            archive::{Limits, unpack},
            compare, get, list, open_file, overlay, pack, put,
            tests::fixture::Scratch,
            walk,
        },
        *,
    };
    use std::{
        fs::{self, File},
        io::{BufRead, BufReader},
        os::{
            fd::AsFd,
            unix::{
                fs::{MetadataExt, PermissionsExt, chown},
                process::CommandExt,
            },
        },
        path::Path,
        process::{Command, Stdio},
        thread,
    };

    const USER: u32 = 123_456;
    const OTHER: u32 = 123_457;
    const BOUNDS: Bounds = Bounds {
        entries: 99,
        depth: 9,
    };
    const COMPARED: CompareBounds<'static> = CompareBounds {
        read_bytes: 1 << 20,
        text_bytes: 1 << 10,
        diff_bytes: 1 << 10,
        redact: &crate::tree::unredacted,
    };

    /// True if the tests run as root: other users cannot act as an owner.
    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("not run: only root acts as an owner");
        }
        is_root
    }

    /// Writes a file of this owner and mode into a directory that root still owns.
    fn write_owned(scratch: &Scratch, name: &str, uid: u32, mode: u32) {
        fs::write(scratch.path(name), "canary").unwrap();
        chown(scratch.path(name), Some(uid), Some(uid)).unwrap();
        fs::set_permissions(scratch.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_closed(result: Result<impl Sized, TreeError>) -> bool {
        result.is_err_and(|error| error.is_permission_denied())
    }

    fn packed(scratch: &Scratch) -> Result<Vec<u8>, TreeError> {
        let limits = PackLimits {
            walk: BOUNDS,
            bytes: 99,
        };
        let mut archive = Vec::new();
        match pack(scratch.root(), None, &mut archive, limits, |bytes| bytes.into()) {
            Ok(_) => Ok(archive),
            Err(super::super::archive::ArchiveError::Tree(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    /// claim: [WS-8]
    #[test]
    fn root_reads_no_file_that_workspace_owner_cannot_read() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        write_owned(&scratch, "of_root", 0, 0o600);
        write_owned(&scratch, "of_another", OTHER, 0o600);
        write_owned(&scratch, "of_the_owner", USER, 0o600);
        write_owned(&scratch, "for_all", 0, 0o644);
        let read = |name: &str| get(scratch.root(), &name.parse().unwrap(), 9);
        let listed = || {
            let bounds = ListBounds {
                walk: BOUNDS,
                hashed_bytes: 99,
            };
            let listed = list(scratch.root(), None, bounds).unwrap();
            let told = listed.iter().filter(|one| one.sha256.is_some());
            told.map(|one| one.entry.path.clone()).collect::<Vec<_>>()
        };
        let compared = || {
            let side = Side::live(scratch.root(), BOUNDS)?;
            compare(&Side::empty(), &side, COMPARED)
        };
        let upper = Scratch::new();
        fs::write(upper.path("of_root"), "new").unwrap();
        let overlaid = || overlay::read(upper.root(), scratch.root(), BOUNDS, COMPARED);
        // Control: in a directory of its own, root reads all of them.
        for name in ["of_root", "of_another", "of_the_owner", "for_all"] {
            assert_eq!(read(name).unwrap().bytes, b"canary", "{name}");
        }
        assert_eq!(listed().len(), 4);
        assert!(packed(&scratch).is_ok() && compared().is_ok() && overlaid().is_ok());
        chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
        for name in ["of_root", "of_another"] {
            assert!(is_closed(read(name)), "{name}");
            assert!(is_closed(open_file(scratch.root(), Path::new(name))), "{name}");
        }
        for name in ["of_the_owner", "for_all"] {
            assert_eq!(read(name).unwrap().bytes, b"canary", "{name}");
        }
        assert_eq!(listed(), [Path::new("for_all"), Path::new("of_the_owner")]);
        assert!(is_closed(packed(&scratch)) && is_closed(compared()) && is_closed(overlaid()));
        assert!(rustix::process::geteuid().is_root(), "the thread is root again");
    }

    /// claim: [WS-8]
    #[test]
    fn root_enters_no_directory_that_workspace_owner_cannot_enter() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("shut")).unwrap();
        write_owned(&scratch, "shut/file", 0, 0o644);
        fs::set_permissions(scratch.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
        let path = "shut/file".parse().unwrap();
        let walked = || walk(scratch.root(), BOUNDS);
        let state = || LowerState::of(scratch.root(), BOUNDS);
        assert_eq!(walked().unwrap().len(), 2, "the control");
        assert!(get(scratch.root(), &path, 9).is_ok() && state().is_ok());
        chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
        assert!(is_closed(walked()) && is_closed(state()));
        assert!(is_closed(get(scratch.root(), &path, 9)));
        assert!(is_closed(put(scratch.root(), &path, b"x", None, 9)));
        let below = "shut/new".parse().unwrap();
        assert!(is_closed(put(scratch.root(), &below, b"x", None, 9)));
        assert_eq!(fs::read(scratch.path("shut/file")).unwrap(), b"canary");
    }

    /// claim: [WS-8]
    #[test]
    fn supplementary_groups_of_server_give_no_access_to_workspace() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        write_owned(&scratch, "of_a_group", OTHER, 0o640);
        chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
        // On a separate thread, because groups are set per thread.
        let test = || {
            let own = [Gid::from_raw(OTHER)];
            set_thread_groups(&own).unwrap();
            // Control: another user with root's groups can read the file.
            set_thread_res_uid(None, Uid::from_raw(USER), None).unwrap();
            let found = fs::read(scratch.path("of_a_group"));
            set_thread_res_uid(None, Uid::ROOT, None).unwrap();
            assert_eq!(found.unwrap(), b"canary");
            assert!(is_closed(get(scratch.root(), &"of_a_group".parse().unwrap(), 9)));
            assert_eq!(rustix::process::getgroups().unwrap(), own, "they come back");
        };
        thread::scope(|scope| scope.spawn(test).join().unwrap());
        assert!(
            rustix::process::getgroups()
                .unwrap()
                .iter()
                .all(|own| own.as_raw() != OTHER)
        );
    }

    /// claim: [WS-8]
    #[test]
    fn root_unable_to_become_owner_is_refused_and_unchanged() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        write_owned(&scratch, "file", USER, 0o644);
        let path = "file".parse().unwrap();
        chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
        let without = |lost: CapabilitySet, groups: &[Gid]| {
            thread::scope(|scope| {
                let test = || {
                    set_thread_groups(groups).unwrap();
                    assert!(get(scratch.root(), &path, 9).is_ok(), "the control");
                    let mut left = capabilities(None).unwrap();
                    left.effective.remove(lost);
                    left.permitted.remove(lost);
                    rustix::thread::set_capabilities(None, left).unwrap();
                    let refused = get(scratch.root(), &path, 9);
                    assert!(
                        matches!(refused, Err(TreeError::Owner { uid: USER, .. })),
                        "{refused:?}"
                    );
                    assert!(rustix::process::geteuid().is_root());
                    assert_eq!(rustix::process::getegid(), rustix::process::getgid());
                    assert_eq!(rustix::process::getgroups().unwrap(), groups);
                };
                scope.spawn(test).join().unwrap();
            });
        };
        let groups = [Gid::from_raw(OTHER)];
        without(CapabilitySet::SETGID, &groups);
        without(CapabilitySet::SETGID, &[]);
        without(CapabilitySet::SETUID, &groups);
    }

    #[test]
    fn owner_guard_is_per_thread_and_nested_guard_changes_nothing() {
        if !is_root() {
            return;
        }
        let (scratch, other) = (Scratch::new(), Scratch::new());
        chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
        chown(other.path(""), Some(OTHER), Some(OTHER)).unwrap();
        let user = || rustix::process::geteuid().as_raw();
        let (acts, acting) = std::sync::mpsc::channel::<()>();
        let beside = thread::spawn(move || {
            acting.recv().unwrap();
            user()
        });
        let outer = AsOwner::of(scratch.root()).unwrap();
        let inner = AsOwner::of(other.root()).unwrap();
        assert_eq!(user(), USER);
        acts.send(()).unwrap();
        assert_eq!(beside.join().unwrap(), 0);
        drop(inner);
        assert_eq!(user(), USER);
        drop(outer);
        assert_eq!(user(), 0);
    }

    #[test]
    fn root_commits_layer_of_one_user_into_directory_of_another() {
        if !is_root() {
            return;
        }
        let (lower, upper) = (Scratch::new(), Scratch::new());
        write_owned(&lower, "old", OTHER, 0o600);
        chown(lower.path(""), Some(OTHER), Some(OTHER)).unwrap();
        for name in ["old", "new"] {
            write_owned(&upper, name, USER, 0o600);
        }
        for (scratch, user) in [(&lower, OTHER), (&upper, USER)] {
            chown(scratch.path(""), Some(user), Some(user)).unwrap();
            fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::write(upper.path("old"), "changed").unwrap();
        let changes = overlay::read(upper.root(), lower.root(), BOUNDS, COMPARED).unwrap();
        let done = overlay::commit(upper.root(), lower.root(), &changes).unwrap();
        assert_eq!(done.written, 2, "{done:?}");
        for name in ["old", "new"] {
            let made = fs::metadata(lower.path(name)).unwrap();
            assert_eq!((made.uid(), made.gid()), (OTHER, OTHER), "{name}");
        }
        let left = walk(lower.root(), BOUNDS).unwrap();
        assert!(left.len() == 2 && left.iter().all(|entry| entry.kind == EntryKind::File));
    }

    #[test]
    fn root_acts_as_sandbox_user_in_sandbox_tmpfs() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        let script = format!(
            "mount -t tmpfs layer {0} && mkdir {0}/w && echo ready && read end",
            scratch.path("").display()
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "a user namespace needs a process of its own"
        )]
        let mut child = Command::new("unshare")
            .args(["-Urm", "sh", "-c", &script])
            .uid(USER)
            .gid(USER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if line == "ready\n" {
            work(&format!(
                "/proc/{}/root{}/w",
                child.id(),
                scratch.path("").display()
            ));
        } else {
            eprintln!("no tmpfs in a user namespace on this machine");
            #[expect(
                clippy::disallowed_methods,
                reason = "who runs the tests says what the machine must have"
            )]
            let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
            assert!(!required.contains("userns"), "RINGFENCE_REQUIRE asks for userns");
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    fn work(memory: &str) {
        // Control: root itself is refused.
        let refused = File::create(format!("{memory}/control")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::OVERFLOW.raw_os_error()));
        let root = File::open(memory).unwrap();
        let path = "a/b".parse().unwrap();
        put(root.as_fd(), &path, b"x", None, 9).unwrap();
        put(root.as_fd(), &path, b"y", None, 9).unwrap();
        assert_eq!(get(root.as_fd(), &path, 9).unwrap().bytes, b"y");
        let limits = Limits {
            entries: 9,
            bytes: 99,
        };
        let packed = PackLimits {
            walk: Bounds { entries: 9, depth: 9 },
            bytes: 99,
        };
        let mut archive = Vec::new();
        pack(root.as_fd(), None, &mut archive, packed, |bytes| bytes.into()).unwrap();
        let below = "c".parse().unwrap();
        unpack(root.as_fd(), Some(&below), archive.as_slice(), limits).unwrap();
        for made in ["a", "a/b", "c", "c/a/b"] {
            let made = fs::metadata(format!("{memory}/{made}")).unwrap();
            assert_eq!((made.uid(), made.gid()), (USER, USER));
        }
        assert!(rustix::process::geteuid().is_root(), "the thread is root again");
        assert_eq!(rustix::process::getegid(), rustix::process::getgid());
    }
}
