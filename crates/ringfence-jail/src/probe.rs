//! Tries what the kernel allows, in a process of its own.

use ringfence_sys::{
    process::{self, Fork, NamespaceKind},
    wait::{self, Child},
};
use std::{fs, io, os::unix::process::ExitStatusExt, sync::LazyLock};

/// The first word of the helper's command line.
pub const HELPER_WORD: &str = "__jail-helper";

/// The second word of a process that only says what is refused here.
pub(crate) const PROBE_WORD: &str = "probe";

/// Whether there is a system call filter on this process. Asked for each sandbox that fails, and once at the start.
pub(crate) fn is_filtered() -> bool {
    static FILTERED: LazyLock<bool> = LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        status
            .lines()
            .any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
    });
    *FILTERED
}

/// Runs `act` in a process with these namespaces and gives back its error.
pub(crate) fn attempt(namespaces: &[NamespaceKind], act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match process::fork_into(namespaces)? {
        Fork::Child => process::exit_now(match act() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(1),
        }),
        Fork::Parent(pid) => {
            let ended =
                wait::wait(Child::Pid(pid))?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            match (ended.status.code(), ended.status.signal()) {
                (Some(0), _) => Ok(()),
                (Some(errno), _) => Err(io::Error::from_raw_os_error(errno)),
                (None, signal) => Err(io::Error::other(format!(
                    "ended by signal {}",
                    signal.unwrap_or_default()
                ))),
            }
        }
    }
}
