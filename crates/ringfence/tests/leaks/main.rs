//! Many runs leave nothing behind: the kernel's counts before and after are equal. A binary of its own, because the
//! counts would include other tests.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment and panics on surprises"
)]

#[path = "../client/mod.rs"]
#[expect(dead_code, unused_imports, reason = "helpers shared by all test binaries")]
mod client;
mod soak;

use crate::client::*;
use std::{
    collections::HashSet,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Number of ready sandboxes per language, at least and at most.
const READY: u64 = 2;

/// Lets one test run at a time, because the counts are of the whole machine.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Debug, PartialEq, Eq)]
struct Counts {
    processes: usize,
    mounts: usize,
    cgroups: usize,
    /// Distinct namespaces of all processes of this machine.
    namespaces: usize,
    descriptors: usize,
    helper_descriptors: usize,
    directories: usize,
}

fn count(server: u32) -> Counts {
    let entries = |path: &str| fs::read_dir(path).map_or(0, |entries| entries.flatten().count());
    // Other programs have files there, too; the names of our files begin with `ringfence`.
    let named = |path: &str| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().as_bytes().starts_with(b"ringfence"))
            .count()
    };
    let ours = running_processes().into_iter().filter(|pid| {
        let name = comm_of(*pid);
        name.starts_with("ringfence-super") || name.starts_with("ringfence-init")
    });
    let helper = children(server);
    let groups = directories_below(Path::new("/sys/fs/cgroup"), 6).into_iter();
    Counts {
        processes: ours.count(),
        mounts: fs::read_to_string("/proc/self/mounts").unwrap().lines().count(),
        cgroups: groups.filter(|name| name.starts_with("ringfence-")).count(),
        namespaces: namespaces(),
        descriptors: entries(&format!("/proc/{server}/fd")),
        helper_descriptors: helper.iter().map(|pid| entries(&format!("/proc/{pid}/fd"))).sum(),
        directories: ["/tmp", "/dev/shm", "/run"].into_iter().map(named).sum::<usize>()
            + entries(&state_dir().join("runs").display().to_string()),
    }
}

/// All processes except zombies; after a killed helper, the machine's init reaps those.
fn running_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_running(*pid)).collect()
}

fn namespaces() -> usize {
    let links = running_processes()
        .into_iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/ns")).ok())
        .flat_map(|links| links.flatten())
        // The next child of a template gets other namespaces than the last one.
        .filter(|link| !link.file_name().to_string_lossy().ends_with("_for_children"))
        .filter_map(|link| fs::read_link(link.path()).ok());
    links.collect::<HashSet<_>>().len()
}

/// Returns the counts when all sandboxes are ready and the counts have stopped changing. Two runs start the adviser,
/// too.
fn settled(server: &mut Server) -> Counts {
    server.execute("shell", "true");
    server.execute("shell", "true");
    eventually(|| server.runtimes().iter().all(|runtime| runtime["ready"] == READY));
    let mut last = count(server.child.id());
    let mut since = Instant::now();
    becomes_true_within(Duration::from_secs(20), || {
        let now = count(server.child.id());
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    });
    count(server.child.id())
}

/// claim: [PROC-7]
///
/// Makes 200 runs, or as many as `RINGFENCE_LEAK_RUNS` says.
#[test]
fn many_runs_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = env_number("RINGFENCE_LEAK_RUNS").unwrap_or(200);
    // The pools keep their size.
    let mut server = Server::with_config("warm: {ready: 2, ready_max: 2}\n");
    let turn = |server: &mut Server, number: usize| {
        let (language, code) = match number % 20 {
            0 => (
                "python",
                "import os\nif os.fork() == 0: os.setsid(); import time; time.sleep(60)\nprint(1)",
            ),
            1 => ("node", "1 + 1"),
            2 => ("shell", "mkdir d; echo x > d/f; sleep 60 & exit 3"),
            _ => ("shell", "echo ok"),
        };
        let result = server.execute(language, code);
        assert!(result["exit"]["kind"] == "code", "{result}");
    };
    for number in 0..40 {
        turn(&mut server, number);
    }
    // Soon after the last run, the pools are full again and ended sandboxes are gone.
    let (before, memory_before) = (settled(&mut server), proc_status_kib(server.child.id(), "VmRSS"));
    for number in 0..runs {
        turn(&mut server, number);
    }
    becomes_true_within(Duration::from_secs(60), || count(server.child.id()) == before);
    let (after, memory_after) = (
        count(server.child.id()),
        proc_status_kib(server.child.id(), "VmRSS"),
    );
    println!(
        "{runs} runs\nbefore {before:?}, server {memory_before} KiB\nafter  {after:?}, server {memory_after} KiB"
    );
    assert_eq!(before, after);
    assert!(
        memory_after < memory_before + 2048,
        "{memory_before} KiB became {memory_after} KiB"
    );
}
