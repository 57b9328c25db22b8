//! Root acting as the owner of a directory, on this thread only.
//!
//! What root makes in a sandbox's own memory would have an owner that the sandbox's user namespace does not know, and
//! the kernel refuses that (`EOVERFLOW`). And what the owner could not do there, root does not do for a caller.

use super::TreeError;
use rustix::{
    fs::{Gid, Uid},
    thread::{set_thread_res_gid, set_thread_res_uid},
};
use std::{marker::PhantomData, os::fd::BorrowedFd};

/// Dropped, the thread is root again. Not to be sent to another.
pub(crate) struct AsOwner {
    changed: bool,
    thread: PhantomData<*const ()>,
}

impl AsOwner {
    /// Of this directory. Nothing changes for who is not root, nor for root's own directories.
    pub(crate) fn of(root: BorrowedFd<'_>) -> Result<Self, TreeError> {
        let mut acting = Self {
            changed: false,
            thread: PhantomData,
        };
        let failed = || TreeError::of("act as the owner of", ".");
        let stat = rustix::fs::fstat(root).map_err(failed())?;
        if stat.st_uid == 0 || !rustix::process::geteuid().is_root() {
            return Ok(acting);
        }
        // From here on a failure, too, is followed by the way back.
        acting.changed = true;
        set_thread_res_gid(None, Gid::from_raw(stat.st_gid), None).map_err(failed())?;
        set_thread_res_uid(None, Uid::from_raw(stat.st_uid), None).map_err(failed())?;
        Ok(acting)
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        if !self.changed {
            return;
        }
        // The user first: only root may choose its group.
        let back = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, rustix::process::getgid(), None));
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
