//! Kills every process below this one if no pid namespace does (tier `landlock`). Orphans return to a subreaper, so
//! killing children until no child is left reaches every process, however it hid.

use crate::sample;
use ringfence_sys::{
    process::{self, Kill},
    wait::{self, Child},
};
use ringfence_types::Tier;
use std::{
    fs, io,
    os::fd::OwnedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Kills and reaps everything below this process, a subreaper. Returns false if something is left at the deadline.
pub fn kill_descendants(timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        for pid in descendants() {
            // An error means that it has ended meanwhile.
            drop(process::kill(pid, Kill::Kill));
        }
        while let Ok(Some(_)) = wait::wait_nonblocking(Child::Any) {}
        match wait::wait_nonblocking(Child::Any) {
            Ok(None) if children(std::process::id()).is_empty() => return true,
            _ if Instant::now() > deadline => return false,
            _ => std::thread::yield_now(),
        }
    }
}

pub(crate) fn descendants() -> Vec<i32> {
    let mut found: Vec<i32> = children(std::process::id());
    let mut next = 0;
    while next < found.len() && found.len() < 100_000 {
        let pid = found[next].unsigned_abs();
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Returns the processes of a sandbox by their names in its `/proc`, which without a root of its own is the host's.
pub(crate) fn processes(proc: &OwnedFd, tier: Tier) -> Vec<PathBuf> {
    match tier {
        Tier::Full | Tier::Gvisor | Tier::Container => sample::pids(proc),
        Tier::Landlock => sample::proc_names(&descendants()),
    }
}

/// Returns the threads of a process; 0: this one, which has one.
pub(crate) fn threads(pid: i32) -> io::Result<Vec<i32>> {
    if pid == 0 {
        return Ok(vec![0]);
    }
    let names = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let numbers = names.filter_map(|task| task.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}

/// Returns the children of all threads of a process (`/proc/[pid]/task/[tid]/children`, proc(5)).
fn children(pid: u32) -> Vec<i32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    found
}
