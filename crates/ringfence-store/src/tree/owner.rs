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
    Ok(ids == (user, group)
        && rustix::process::getgroups()?.is_empty()
        && !effective.intersects(OVER_FILES))
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
    use super::super::{
        Bounds, PackLimits,
        archive::{Limits, unpack},
        get, pack, put,
        tests::fixture::Scratch,
    };
    use std::{
        fs::{self, File},
        io::{BufRead, BufReader},
        os::{
            fd::AsFd,
            unix::{fs::MetadataExt, process::CommandExt},
        },
        process::{Command, Stdio},
    };

    const USER: u32 = 123_456;

    #[test]
    fn root_works_in_a_sandboxes_own_memory_as_the_sandboxes_user() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: nobody else has to act as an owner");
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
        assert_eq!(
            refused.raw_os_error(),
            Some(rustix::io::Errno::OVERFLOW.raw_os_error())
        );
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
