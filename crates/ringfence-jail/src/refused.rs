//! System calls that a seccomp filter on this process refuses, and that the tier `full` can do without. Some filters
//! kill the process that makes the call, so the helper's binary is started to find out, and only if there is a filter.

use crate::visit::run_in_new;
use ringfence_sys::{
    identity, landlock, mount,
    process::{self, NamespaceKind},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::Read,
    os::fd::AsFd,
    path::Path,
    process::{Command, Stdio},
    sync::LazyLock,
};

pub const HELPER_WORD: &str = "__jail-helper";

/// The second argument of a process that only reports what is refused here.
pub(crate) const PROBE_WORD: &str = "probe";

/// True if there is a seccomp filter on this process. Used for each sandbox that fails, and once at the start.
pub(crate) fn is_filtered() -> bool {
    static FILTERED: LazyLock<bool> = LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
    });
    *FILTERED
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    pub landlock: bool,
    /// sethostname(2): the host's name is visible inside.
    pub host_name: bool,
    /// pivot_root(2): chroot(2) is used instead.
    pub pivot_root: bool,
    /// setns(2): nothing is forked from a template, and packages and egress are refused.
    pub setns: bool,
}

const REFUSALS: [Option<i32>; 3] = [Some(libc::EPERM), Some(libc::EACCES), Some(libc::ENOSYS)];

impl Refused {
    /// Starts the binary that will be the helper to find out. Without an answer, everything counts as refused.
    pub fn detect(helper: &Path) -> Self {
        if !is_filtered() {
            return Self::default();
        }
        let all = Self {
            landlock: true,
            host_name: true,
            pivot_root: true,
            setns: true,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the helper's binary, which a filter may end"
        )]
        let started = Command::new(helper)
            .args([HELPER_WORD, PROBE_WORD])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else { return all };
        let mut text = String::new();
        let answer = child.stdout.take();
        let read = answer.map(|mut answer| answer.read_to_string(&mut text));
        // If this process ignores SIGCHLD, there is nothing to wait for.
        drop(child.wait());
        match read {
            Some(Ok(_)) => serde_json::from_str(&text).unwrap_or(all),
            _ => all,
        }
    }

    /// Makes the calls, each in a child of this process, which must have one thread.
    pub(crate) fn probe() -> Self {
        use NamespaceKind::{Mount, User, Uts};
        let join = || process::join_namespace(File::open("/proc/self/ns/uts")?.as_fd());
        // For a root that is in its place already the kernel returns EBUSY or EINVAL, once it has allowed the call.
        let pivot = || match mount::pivot_to_current_directory() {
            Err(error) if REFUSALS.contains(&error.raw_os_error()) => Err(error),
            _ => Ok(()),
        };
        Self {
            landlock: run_in_new(&[], || landlock::version().map(drop).or(Ok(()))).is_err(),
            host_name: run_in_new(&[User, Uts], || identity::set_host_name("sandbox")).is_err(),
            pivot_root: run_in_new(&[User, Mount], pivot).is_err(),
            setns: run_in_new(&[User, Uts], join).is_err(),
        }
    }
}
