//! Facts about this container from `/proc` and the cgroup's files. The program can write neither.

use std::{fs, time::Duration};

/// Clock ticks of `/proc/[pid]/stat` in a second: `USER_HZ`, which is part of the kernel's interface.
const TICKS: u64 = 100;

#[derive(Default)]
pub struct Tree {
    pub memory_bytes: u64,
    pub processes: u64,
}

pub struct ProcessorTime {
    pub user: Duration,
    pub system: Duration,
}

fn others() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != 1)
}

/// Returns the size of a page, of which some kernels have larger ones than 4 KiB (getauxval(3), `AT_PAGESZ`).
fn page_bytes() -> u64 {
    const AT_PAGESZ: u64 = 6;
    let vector = fs::read("/proc/self/auxv").unwrap_or_default();
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let found = words.chunks_exact(2).find(|pair| pair[0] == AT_PAGESZ);
    found.map_or(4096, |pair| pair[1])
}

/// Sums the resident memory, without pages shared with a file, of every process but this one, and counts them.
pub fn tree() -> Tree {
    let mut tree = Tree::default();
    let page_bytes = page_bytes();
    for pid in others() {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let mut pages = text.split(' ').filter_map(|word| word.parse::<u64>().ok());
        let resident = pages.nth(1).unwrap_or(0);
        let shared = pages.next().unwrap_or(0);
        tree.memory_bytes += resident.saturating_sub(shared) * page_bytes;
        tree.processes += 1;
    }
    tree
}

/// Sums the processor time of every process but this one, with that of the children that they have reaped.
pub fn processor_time() -> ProcessorTime {
    let ticks = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS);
    let (mut user, mut system) = (0, 0);
    for pid in others() {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name can contain any character, and ends with the last parenthesis.
        let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let words: Vec<u64> = rest
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        user += word(11) + word(13);
        system += word(12) + word(14);
    }
    ProcessorTime {
        user: ticks(user),
        system: ticks(system),
    }
}

fn field(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// Returns the mask of the signals for which a process has handlers.
pub fn caught_signals(pid: i32) -> u64 {
    field(pid, "SigCgt:")
        .and_then(|bits| u64::from_str_radix(&bits, 16).ok())
        .unwrap_or(0)
}

pub fn sleeps(pid: i32) -> bool {
    field(pid, "State:").is_some_and(|state| state.starts_with('S'))
}

/// Counts the processes of this cgroup that the kernel has killed for lack of memory. The second file is of cgroup v1.
pub fn kills_for_memory() -> u64 {
    [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ]
    .into_iter()
    .filter_map(|path| fs::read_to_string(path).ok())
    .filter_map(|text| number(&text, "oom_kill "))
    .max()
    .unwrap_or(0)
}

fn number(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Counts the packets without a route (RFC 4293, `ipSystemStatsOutNoRoutes`) so far.
pub fn unrouted() -> u64 {
    let old = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let mut lines = old.lines().filter_map(|line| line.strip_prefix("Ip:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let old = pairs
        .find(|(name, _)| *name == "OutNoRoutes")
        .and_then(|(_, value)| value.parse().ok());
    let new = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    let new = number(&new, "Ip6OutNoRoutes");
    old.unwrap_or(0_u64).saturating_add(new.unwrap_or(0))
}
