//! Many runs, and nothing left: counted before and after, from the kernel. A binary of its own, because what it counts
//! would count other tests too.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment and ends where it is surprised"
)]

#[path = "../stories/client.rs"]
#[expect(
    dead_code,
    reason = "the vocabulary of the stories, of which this one needs the server"
)]
mod client;
mod soak;

use client::Server;
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// For each language, and not more.
const READY: u64 = 2;

/// One test at a time: what one counts is the whole machine's.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Debug, PartialEq, Eq)]
struct Counts {
    processes: usize,
    mounts: usize,
    cgroups: usize,
    /// Different ones that any process of this machine is in.
    namespaces: usize,
    descriptors: usize,
    helper_descriptors: usize,
    directories: usize,
}

fn count(server: u32) -> Counts {
    let entries = |path: &str| fs::read_dir(path).map_or(0, |entries| entries.flatten().count());
    let ours = living().into_iter().filter(|process| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        name.starts_with("ringfence-super") || name.starts_with("ringfence-init")
    });
    let helper = children(server);
    Counts {
        processes: ours.count(),
        mounts: fs::read_to_string("/proc/self/mounts").unwrap().lines().count(),
        cgroups: cgroups(Path::new("/sys/fs/cgroup"), 6),
        namespaces: namespaces(),
        descriptors: entries(&format!("/proc/{server}/fd")),
        helper_descriptors: helper.iter().map(|pid| entries(&format!("/proc/{pid}/fd"))).sum(),
        directories: ["/tmp", "/dev/shm", "/run"]
            .into_iter()
            .map(entries)
            .sum::<usize>()
            + entries(&client::state_dir().join("runs").display().to_string()),
    }
}

/// All processes but the dead, which are their parent's to bury; after a killed helper that is the machine's init.
fn living() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let lives = |process: &PathBuf| {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    processes.filter(lives).collect()
}

fn namespaces() -> usize {
    let links = living()
        .into_iter()
        .filter_map(|process| fs::read_dir(process.join("ns")).ok())
        .flat_map(|links| links.flatten())
        // A template's next child will be elsewhere than its last one.
        .filter(|link| !link.file_name().to_string_lossy().ends_with("_for_children"))
        .filter_map(|link| fs::read_link(link.path()).ok());
    links.collect::<HashSet<_>>().len()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Directories named after us in any hierarchy.
fn cgroups(directory: &Path, depth: usize) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories
        .map(|entry| {
            let ours = entry.file_name().to_string_lossy().starts_with("ringfence-");
            usize::from(ours)
                + if depth > 0 {
                    cgroups(&entry.path(), depth - 1)
                } else {
                    0
                }
        })
        .sum()
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The counts once everything stands ready and they have stopped changing.
fn settled(server: &mut Server) -> Counts {
    let ready = client::within(Duration::from_secs(60), || {
        let listed = server.call("list_runtimes", serde_json::json!({}));
        let runtimes = listed["structuredContent"]["runtimes"]
            .as_array()
            .unwrap()
            .clone();
        runtimes.iter().all(|runtime| runtime["ready"] == READY)
    });
    assert!(ready, "the pools are not full after a minute");
    let mut last = count(server.child.id());
    let mut since = Instant::now();
    client::within(Duration::from_secs(20), || {
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
/// 200 runs unless `RINGFENCE_LEAK_RUNS` asks for more.
#[test]
fn many_runs_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = std::env::var("RINGFENCE_LEAK_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200);
    // The pools stay as large as they are.
    let directory = client::TempDir::new("leaks");
    let config = directory.file("config.yaml", "warm: {ready: 2, ready_max: 2}\n");
    let mut server = Server::start_with(&["--config", &config]);
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
    // What stands ready is made good, and what is taken down is gone, soon after the last run.
    let (before, memory_before) = (settled(&mut server), resident_kib(server.child.id()));
    for number in 0..runs {
        turn(&mut server, number);
    }
    let patience = Duration::from_secs(10);
    client::within(patience, || count(server.child.id()) == before);
    let (after, memory_after) = (count(server.child.id()), resident_kib(server.child.id()));
    println!(
        "{runs} runs\nbefore {before:?}, server {memory_before} KiB\nafter  {after:?}, server {memory_after} KiB"
    );
    assert_eq!(before, after);
    assert!(
        memory_after < memory_before + 2048,
        "{memory_before} KiB became {memory_after} KiB"
    );
}
