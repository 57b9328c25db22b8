//! Root acting as the owner of a directory, on this thread only.
//!
//! What root makes in a sandbox's own memory would have an owner that the sandbox's user namespace does not know, and
//! the kernel refuses that (`EOVERFLOW`). And what the owner could not read or do there, root does not do for a caller.

use super::TreeError;
use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    thread::{CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{marker::PhantomData, os::fd::BorrowedFd};

/// With one of these a process does with a file what its user may not (capabilities(7)).
const OVER_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Dropped, the thread is root again. Not to be sent to another.
///
/// Inside another of its kind it changes nothing: the outer one decides.
pub struct AsOwner {
    /// None: nothing has changed.
    before: Option<Groups>,
    thread: PhantomData<*const ()>,
}

/// What root had.
struct Groups {
    effective: Gid,
    supplementary: Vec<Gid>,
}

impl AsOwner {
    /// Of this directory, with its group and no other. Nothing changes for who is not root, nor for root's own
    /// directories. Errors: `Owner` where root lacks the capabilities to become another user, or is root only in a user
    /// namespace that does not know the owner or forbids setgroups(2).
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
        // The C library would do this to every thread of the process; the bare call does it to this one.
        if !before.supplementary.is_empty() {
            set_thread_groups(&[]).map_err(refused(user))?;
        }
        // From here on a failure, too, is followed by the way back.
        acting.before = Some(before);
        set_thread_res_gid(None, group, None).map_err(refused(user))?;
        // The ids for files follow the effective ones, and no capability stays effective (credentials(7)).
        set_thread_res_uid(None, user, None).map_err(refused(user))?;
        match is_only(user, group).map_err(refused(user))? {
            true => Ok(acting),
            // Securebits keep the capabilities, for example.
            false => Err(refused(user)(Errno::PERM)),
        }
    }
}

fn refused(user: Uid) -> impl FnOnce(Errno) -> TreeError {
    move |error| TreeError::Owner {
        uid: user.as_raw(),
        error,
    }
}

/// Whether this thread has the rights of this user and group, and no others.
fn is_only(user: Uid, group: Gid) -> rustix::io::Result<bool> {
    let ids = (rustix::process::geteuid(), rustix::process::getegid());
    let effective = capabilities(None)?.effective;
    Ok(ids == (user, group) && rustix::process::getgroups()?.is_empty() && !effective.intersects(OVER_FILES))
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        // The user first: only root may choose its groups.
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
        shown: &crate::tree::as_it_is,
    };

    /// Who is not root has nobody else's rights to give up.
    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("not root: nobody else has to act as an owner");
        }
        is_root
    }

    /// Of another user than the directory, which is still root's.
    fn lay(place: &Scratch, name: &str, uid: u32, mode: u32) {
        fs::write(place.path(name), "canary").unwrap();
        chown(place.path(name), Some(uid), Some(uid)).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_closed(result: Result<impl Sized, TreeError>) -> bool {
        result.is_err_and(|error| error.is_permission_denied())
    }

    fn packed(place: &Scratch) -> Result<Vec<u8>, TreeError> {
        let limits = PackLimits {
            walk: BOUNDS,
            bytes: 99,
        };
        let mut archive = Vec::new();
        match pack(place.root(), None, &mut archive, limits, |bytes| bytes.into()) {
            Ok(_) => Ok(archive),
            Err(super::super::archive::ArchiveError::Tree(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    /// claim: [WS-8]
    #[test]
    fn root_gives_out_nothing_that_the_owner_of_a_workspace_could_not_read() {
        if !is_root() {
            return;
        }
        let place = Scratch::new();
        lay(&place, "of_root", 0, 0o600);
        lay(&place, "of_another", OTHER, 0o600);
        lay(&place, "of_the_owner", USER, 0o600);
        lay(&place, "for_all", 0, 0o644);
        let read = |name: &str| get(place.root(), &name.parse().unwrap(), 9);
        let listed = || {
            let bounds = ListBounds {
                walk: BOUNDS,
                hashed_bytes: 99,
            };
            let listed = list(place.root(), None, bounds).unwrap();
            let told = listed.iter().filter(|one| one.sha256.is_some());
            told.map(|one| one.entry.path.clone()).collect::<Vec<_>>()
        };
        let compared = || {
            let side = Side::live(place.root(), BOUNDS)?;
            compare(&Side::empty(), &side, COMPARED)
        };
        let upper = Scratch::new();
        fs::write(upper.path("of_root"), "new").unwrap();
        let overlaid = || overlay::read(upper.root(), place.root(), BOUNDS, COMPARED);
        // The control: in its own directory root reads all of them.
        for name in ["of_root", "of_another", "of_the_owner", "for_all"] {
            assert_eq!(read(name).unwrap().bytes, b"canary", "{name}");
        }
        assert_eq!(listed().len(), 4);
        assert!(packed(&place).is_ok() && compared().is_ok() && overlaid().is_ok());
        chown(place.path(""), Some(USER), Some(USER)).unwrap();
        for name in ["of_root", "of_another"] {
            assert!(is_closed(read(name)), "{name}");
            assert!(is_closed(open_file(place.root(), Path::new(name))), "{name}");
        }
        for name in ["of_the_owner", "for_all"] {
            assert_eq!(read(name).unwrap().bytes, b"canary", "{name}");
        }
        assert_eq!(listed(), [Path::new("for_all"), Path::new("of_the_owner")]);
        assert!(is_closed(packed(&place)) && is_closed(compared()) && is_closed(overlaid()));
        assert!(rustix::process::geteuid().is_root(), "the thread is root again");
    }

    /// claim: [WS-8]
    #[test]
    fn root_enters_no_directory_of_a_workspace_that_its_owner_could_not_enter() {
        if !is_root() {
            return;
        }
        let place = Scratch::new();
        fs::create_dir(place.path("shut")).unwrap();
        lay(&place, "shut/file", 0, 0o644);
        fs::set_permissions(place.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
        let path = "shut/file".parse().unwrap();
        let walked = || walk(place.root(), BOUNDS);
        let state = || LowerState::of(place.root(), BOUNDS);
        assert_eq!(walked().unwrap().len(), 2, "the control");
        assert!(get(place.root(), &path, 9).is_ok() && state().is_ok());
        chown(place.path(""), Some(USER), Some(USER)).unwrap();
        assert!(is_closed(walked()) && is_closed(state()));
        assert!(is_closed(get(place.root(), &path, 9)));
        assert!(is_closed(put(place.root(), &path, b"x", None, 9)));
        let below = "shut/new".parse().unwrap();
        assert!(is_closed(put(place.root(), &below, b"x", None, 9)));
        assert_eq!(fs::read(place.path("shut/file")).unwrap(), b"canary");
    }

    /// claim: [WS-8]
    #[test]
    fn the_servers_own_groups_open_nothing_in_a_workspace_either() {
        if !is_root() {
            return;
        }
        let place = Scratch::new();
        lay(&place, "of_a_group", OTHER, 0o640);
        chown(place.path(""), Some(USER), Some(USER)).unwrap();
        // On a thread of its own, for the groups are the thread's.
        let test = || {
            let own = [Gid::from_raw(OTHER)];
            set_thread_groups(&own).unwrap();
            // The control: another user with root's groups.
            set_thread_res_uid(None, Uid::from_raw(USER), None).unwrap();
            let found = fs::read(place.path("of_a_group"));
            set_thread_res_uid(None, Uid::ROOT, None).unwrap();
            assert_eq!(found.unwrap(), b"canary");
            assert!(is_closed(get(place.root(), &"of_a_group".parse().unwrap(), 9)));
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
    fn root_that_cannot_become_the_owner_is_refused_and_stays_what_it_was() {
        if !is_root() {
            return;
        }
        let place = Scratch::new();
        lay(&place, "file", USER, 0o644);
        let path = "file".parse().unwrap();
        chown(place.path(""), Some(USER), Some(USER)).unwrap();
        let without = |lost: CapabilitySet, groups: &[Gid]| {
            thread::scope(|scope| {
                let test = || {
                    set_thread_groups(groups).unwrap();
                    assert!(get(place.root(), &path, 9).is_ok(), "the control");
                    let mut left = capabilities(None).unwrap();
                    left.effective.remove(lost);
                    left.permitted.remove(lost);
                    rustix::thread::set_capabilities(None, left).unwrap();
                    let refused = get(place.root(), &path, 9);
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
    fn another_thread_stays_root_and_a_second_guard_changes_nothing() {
        if !is_root() {
            return;
        }
        let (place, other) = (Scratch::new(), Scratch::new());
        chown(place.path(""), Some(USER), Some(USER)).unwrap();
        chown(other.path(""), Some(OTHER), Some(OTHER)).unwrap();
        let user = || rustix::process::geteuid().as_raw();
        let (acts, acting) = std::sync::mpsc::channel::<()>();
        let beside = thread::spawn(move || {
            acting.recv().unwrap();
            user()
        });
        let outer = AsOwner::of(place.root()).unwrap();
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
    fn root_commits_from_one_users_layer_into_another_users_directory() {
        if !is_root() {
            return;
        }
        let (lower, upper) = (Scratch::new(), Scratch::new());
        lay(&lower, "old", OTHER, 0o600);
        chown(lower.path(""), Some(OTHER), Some(OTHER)).unwrap();
        for name in ["old", "new"] {
            lay(&upper, name, USER, 0o600);
        }
        for (place, user) in [(&lower, OTHER), (&upper, USER)] {
            chown(place.path(""), Some(user), Some(user)).unwrap();
            fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o700)).unwrap();
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
    fn root_works_in_a_sandboxes_own_memory_as_the_sandboxes_user() {
        if !is_root() {
            return;
        }
        let place = Scratch::new();
        let script = format!(
            "mount -t tmpfs layer {0} && mkdir {0}/w && echo ready && read end",
            place.path("").display()
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
                place.path("").display()
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
        // The control: root as root is refused.
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
