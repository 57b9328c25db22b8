//! Memory of a tree that no cgroup counts. Each sample adds up the private memory of the processes, what they share,
//! their page tables and kernel buffers, and the private disk. The next sample is due as soon as the rest of the limit
//! could be filled at full memory speed, so that a slow program costs nothing and a bomb is caught near its limit.

use crate::{kept_files::number, uncharged};
use ringfence_sys::{file, resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Speed at which one processor can fill fresh memory, in bytes per millisecond (4 GB/s).
const FILL_BYTES_PER_MS: u64 = 4_000_000;
const INTERVAL_MS_MIN: u64 = 4;
const INTERVAL_MS_MAX: u64 = 200;
/// The size of a list of 65,530 mappings (vm.max_map_count) with short names; a longer one counts as over any limit.
const MAPS_BYTES_MAX: u64 = 8 << 20;
/// Processor time that one sample may take; a tree that cannot be counted in that time hides something, too. On a busy
/// machine it also waits for its turn, but not forever.
const CPU_TIME_MAX: Duration = Duration::from_millis(500);
const WALL_TIME_MAX: Duration = Duration::from_secs(5);
/// Kernel memory that can be pinned by an open socket in both directions (twice net.core.wmem_max and rmem_max, as
/// socket(7) says), a pipe (its default size), the watches of an epoll instance, a thread's stack, a mapping.
const SOCKET_BYTES: u64 = 851_968;
const PIPE_BYTES: u64 = 65_536;
const EPOLL_BYTES: u64 = 200 << 10;
const THREAD_BYTES: u64 = 16 << 10;
const MAPPING_BYTES: u64 = 200;
const INODE_BYTES: u64 = 1 << 10;
/// The largest shared anonymous mapping that a program can make if no cgroup counts it.
const SHARED_BYTES: u64 = 1 << 20;
const FILES_MAX: u64 = 1 << 20;
/// The unit of time in `/proc` (USER_HZ), independent of the kernel's own clock rate.
const TICK_MS: u64 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u64,
    pub(crate) hidden: bool,
}

impl Sample {
    pub(crate) fn next_interval(self, limit_bytes: u64, processors: usize) -> Duration {
        let room = limit_bytes.saturating_sub(self.memory_bytes);
        let speed = FILL_BYTES_PER_MS * u64::try_from(processors).unwrap_or(1).max(1);
        Duration::from_millis((room / speed).clamp(INTERVAL_MS_MIN, INTERVAL_MS_MAX))
    }
}

/// Samples every process in the sandbox's own `/proc`. Processes that end meanwhile are not counted. The cheap sum
/// counts pages that a fork still shares twice; only when it is over the limit is the exact, slower one taken.
pub(crate) fn measure(proc: &OwnedFd, disk: Option<&OwnedFd>, limit_bytes: u64, until: Instant) -> Sample {
    let sockets = uncharged::sockets(proc);
    add_up(proc, &pids(proc), OwnMemory { disk, sockets }, limit_bytes, until)
}

pub(crate) fn measure_pids(proc: &OwnedFd, pids: &[i32], limit_bytes: u64, until: Instant) -> Sample {
    add_up(proc, &proc_names(pids), OwnMemory::default(), limit_bytes, until)
}

pub(crate) fn proc_names(pids: &[i32]) -> Vec<PathBuf> {
    pids.iter().map(|pid| PathBuf::from(pid.to_string())).collect()
}

/// Counts the processes and threads of a user on the whole host.
pub(crate) fn threads_of(uid: u32) -> u64 {
    let threads = |entry: fs::DirEntry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        // Selected by the real uid, the first, which is what the kernel counts.
        (field(&status, "Uid:") == u64::from(uid)).then(|| field(&status, "Threads:"))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |entry: &fs::DirEntry| is_number(&entry.file_name());
    entries.filter(is_process).filter_map(threads).sum()
}

/// User and kernel time of these and of those they have waited for (proc_pid_stat(5), fields 14 to 17), to 10 ms.
pub(crate) fn cpu(proc: &OwnedFd, pids: &[PathBuf]) -> (Duration, Duration) {
    let (mut user, mut system) = (0, 0);
    for pid in pids {
        let stat = after_name(proc, pid);
        let words = stat.split_whitespace().skip(11).take(4);
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        if let [own_user, own_system, waited_user, waited_system] = ticks[..] {
            user += own_user + waited_user;
            system += own_system + waited_system;
        }
    }
    (
        Duration::from_millis(user * TICK_MS),
        Duration::from_millis(system * TICK_MS),
    )
}

/// Returns what follows the name in `/proc/[pid]/stat`; the name may hold anything.
fn after_name(proc: &OwnedFd, pid: &Path) -> String {
    let stat = read(proc, pid, "stat", 4 << 10).unwrap_or_default();
    stat.rsplit_once(") ").map_or("", |(_, rest)| rest).to_owned()
}

/// True if one of them runs, or waits for a disk (states R and D).
pub(crate) fn is_running(proc: &OwnedFd, pids: &[PathBuf]) -> bool {
    pids.iter()
        .any(|pid| after_name(proc, pid).starts_with(['R', 'D']))
}

/// More than any limit.
const TOO_DEEP_BYTES: u64 = 1 << 50;

/// Returns the bytes of all files below a directory, links not followed, as far as they can be read. A program can make
/// directories deeper than a path may be long; their content counts as [`TOO_DEEP_BYTES`].
pub fn directory_bytes(directory: &Path) -> u64 {
    let mut waiting = vec![directory.to_owned()];
    let (mut bytes, mut seen) = (0, 0);
    while let Some(directory) = waiting.pop() {
        let listed = fs::read_dir(directory);
        if matches!(&listed, Err(error) if error.kind() == std::io::ErrorKind::InvalidFilename) {
            return TOO_DEEP_BYTES;
        }
        for entry in listed.into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += INODE_BYTES + std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
            seen += 1;
            if metadata.is_dir() && seen < FILES_MAX {
                waiting.push(entry.path());
            }
        }
    }
    bytes
}

#[derive(Default)]
struct OwnMemory<'a> {
    disk: Option<&'a OwnedFd>,
    sockets: u64,
}

/// `until`: the deadline of the run, at which the sample ends without a sum.
fn add_up(
    proc: &OwnedFd,
    pids: &[PathBuf],
    OwnMemory { disk, sockets }: OwnMemory<'_>,
    limit_bytes: u64,
    until: Instant,
) -> Sample {
    let (begun, own) = (Instant::now(), resource::own_processor_time());
    let spent = || {
        begun.elapsed() > WALL_TIME_MAX || resource::own_processor_time().saturating_sub(own) > CPU_TIME_MAX
    };
    let mut shared = BTreeMap::new();
    let mut buffers = Buffers::default();
    let disk = disk.and_then(|disk| resource::space_used(disk.as_fd()).ok());
    let mut common = disk.map_or(0, |(bytes, files)| bytes + files * INODE_BYTES);
    let mut sample = Sample::default();
    let (mut private, mut kernel, mut shared_resident) = (0, 0, 0);
    for pid in pids {
        if Instant::now() >= until {
            return sample;
        }
        let Some((task, status)) = living_task(proc, pid) else {
            continue;
        };
        let threads = field(&status, "Threads:");
        sample.processes += threads;
        private += 1024 * (field(&status, "RssAnon:") + field(&status, "VmSwap:"));
        kernel += 1024 * field(&status, "VmPTE:") + threads * THREAD_BYTES;
        shared_resident = shared_resident.max(1024 * field(&status, "RssShmem:"));
        let maps = read(proc, &task, "maps", MAPS_BYTES_MAX).unwrap_or_default();
        kernel += maps.bytes().filter(|byte| *byte == b'\n').count() as u64 * MAPPING_BYTES;
        shared_mappings(&maps, &mut shared);
        buffers.add(proc, &task);
        if maps.len() as u64 >= MAPS_BYTES_MAX || spent() {
            sample.hidden = true;
        }
        // Unlike its pages, the kernel memory of a process is shared with no other process: nothing can make this less.
        if sample.hidden || kernel > limit_bytes {
            break;
        }
    }
    common += shared.values().sum::<u64>().max(shared_resident) + buffers.bytes(sockets) + kernel;
    sample.memory_bytes = common + private;
    let is_over = sample.hidden || kernel > limit_bytes;
    if sample.memory_bytes > limit_bytes && !is_over && pids.len() > 1 && Instant::now() < until {
        let in_time = pids.iter().take_while(|_| Instant::now() < until);
        sample.memory_bytes = common + in_time.map(|pid| proportional(proc, pid)).sum::<u64>();
    }
    sample
}

/// Finds a task of the process that still has its memory and descriptors, and its status; a leader that has ended
/// before its threads has neither. All threads of a process share both ([`crate::seccomp`] ensures it).
pub(crate) fn living_task(proc: &OwnedFd, pid: &Path) -> Option<(PathBuf, String)> {
    if let Some(status) = living_status(proc, pid) {
        return Some((pid.to_owned(), status));
    }
    let tasks = file::open_listing(proc.as_fd(), &pid.join("task")).ok()?;
    let names = file::list_names(tasks.as_fd(), 100_000).ok()?;
    names.into_iter().find_map(|name| {
        let task = pid.join("task").join(name);
        let status = living_status(proc, &task)?;
        Some((task, status))
    })
}

/// Returns the status of a task that still has its memory.
pub(crate) fn living_status(proc: &OwnedFd, task: &Path) -> Option<String> {
    read(proc, task, "status", 8 << 10).filter(|status| status.contains("\nRssAnon:"))
}

/// Returns the memory of these processes that no other process shares.
pub(crate) fn unique_bytes(proc: &OwnedFd, pids: &[PathBuf]) -> u64 {
    let of_one = |pid: &PathBuf| match read(proc, pid, "smaps_rollup", 8 << 10) {
        Some(rollup) => 1024 * (field(&rollup, "Private_Clean:") + field(&rollup, "Private_Dirty:")),
        // Only a debugger may read more of a process of another user, or of one that is not dumpable.
        None => {
            let status = read(proc, pid, "status", 8 << 10).unwrap_or_default();
            1024 * field(&status, "RssAnon:")
        }
    };
    pids.iter().map(of_one).sum()
}

/// True if a process has memory that its forks could write, too, or a list of mappings that is unreadable or too long.
pub(crate) fn shares_memory(proc: &OwnedFd) -> bool {
    pids(proc).iter().filter(|pid| *pid != Path::new("1")).any(|pid| {
        let maps = read(proc, pid, "maps", MAPS_BYTES_MAX);
        maps.is_none_or(|maps| {
            let writable_shared = |line: &str| {
                let rights = line.split_whitespace().nth(1);
                rights.is_some_and(|rights| rights.contains("w") && rights.ends_with('s'))
            };
            maps.len() as u64 >= MAPS_BYTES_MAX || maps.lines().any(writable_shared)
        })
    })
}

pub(crate) fn pids(proc: &OwnedFd) -> Vec<PathBuf> {
    let entries = file::list_names(proc.as_fd(), 100_000).unwrap_or_default();
    let names = entries.into_iter().filter(|name| is_number(name.as_os_str()));
    names.collect()
}

fn is_number(name: &OsStr) -> bool {
    name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

fn read(proc: &OwnedFd, pid: &Path, what: &str, max: u64) -> Option<String> {
    file::read_small(proc.as_fd(), &pid.join(what), max).ok()
}

fn field(status: &str, label: &str) -> u64 {
    number(status, label).unwrap_or(0)
}

/// Adds shared anonymous memory by its size, once for all processes that map it: its pages stay when no process has
/// them mapped in, where no process's resident set shows them. A piece of it counts as at least the largest whole that
/// seccomp lets a program make without a cgroup ([`crate::seccomp`]), because the rest may be hidden by unmapping.
fn shared_mappings(maps: &str, found: &mut BTreeMap<String, u64>) {
    // A private mapping is not shared: `rwxp` follows the range.
    let is_shared = |rest: &str| rest.as_bytes().get(3) == Some(&b's');
    let may_be_shared = |line: &&str| line.split_once(' ').is_some_and(|(_, rest)| is_shared(rest));
    for line in maps.lines().filter(may_be_shared) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, _, _, device, inode, name, ..] = words[..] else {
            continue;
        };
        let anonymous = ["/dev/zero", "/memfd:", "/SYSV", "[anon_shmem:"];
        if !anonymous.iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        if let Some(bytes) = length(range) {
            let size = found.entry(format!("{device} {inode}")).or_insert(SHARED_BYTES);
            *size = (*size).max(bytes);
        }
    }
}

/// Returns the length of a range of addresses in hexadecimal digits, `from-to`.
fn length(range: &str) -> Option<u64> {
    let (from, to) = range.split_once('-')?;
    let address = |digits| u64::from_str_radix(digits, 16).ok();
    Some(address(to)?.saturating_sub(address(from)?))
}

/// A mapping of a file that was deleted.
pub(crate) struct Deleted {
    /// Its name in `/proc/[pid]/map_files`.
    pub(crate) range: String,
    /// Device and inode, as the list of mappings names them.
    pub(crate) file: String,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) length: u64,
}

/// Returns the mappings of files that were deleted.
pub(crate) fn deleted_mappings(maps: &str) -> impl Iterator<Item = Deleted> {
    // Anonymous memory has no path below a workspace, and is counted as memory.
    let anonymous = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/"];
    let lines = maps.lines().filter(|line| line.ends_with(" (deleted)"));
    lines.filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().take(6).collect();
        let [range, _, _, device, inode, name] = words[..] else {
            return None;
        };
        let (from, to) = range.split_once('-')?;
        (!anonymous.iter().any(|kind| name.starts_with(kind))).then_some(Deleted {
            range: [from, to].map(|digits| digits.trim_start_matches('0')).join("-"),
            file: format!("{device} {inode}"),
            device: device_of(device)?,
            inode: inode.parse().ok()?,
            length: length(range)?,
        })
    })
}

/// Returns the number of a device, `major:minor` in hexadecimal digits.
fn device_of(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    Some(libc::makedev(number(major)?, number(minor)?))
}

fn proportional(proc: &OwnedFd, pid: &Path) -> u64 {
    let Some((task, status)) = living_task(proc, pid) else {
        return 0;
    };
    let rollup = file::read_small(proc.as_fd(), &task.join("smaps_rollup"), 8 << 10);
    match rollup {
        Ok(rollup) => 1024 * (field(&rollup, "Pss_Anon:") + field(&rollup, "SwapPss:")),
        // It is not dumpable.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            1024 * (field(&status, "RssAnon:") + field(&status, "VmSwap:"))
        }
        Err(_) => 0,
    }
}

#[derive(Default)]
struct Buffers {
    sockets: BTreeSet<String>,
    pipes: BTreeSet<String>,
    epolls: u64,
}

impl Buffers {
    fn add(&mut self, proc: &OwnedFd, pid: &Path) {
        let Ok(directory) = file::open_listing(proc.as_fd(), &pid.join("fd")) else {
            return;
        };
        for name in file::list_names(directory.as_fd(), 100_000).unwrap_or_default() {
            let Ok(target) = file::read_link(directory.as_fd(), &name) else {
                continue;
            };
            if target.starts_with("socket:") {
                self.sockets.insert(target);
            } else if target.starts_with("pipe:") {
                self.pipes.insert(target);
            } else if target == "anon_inode:[eventpoll]" {
                self.epolls += 1;
            }
        }
    }

    /// `sockets`: a lower bound of their number.
    fn bytes(&self, sockets: u64) -> u64 {
        sockets.max(self.sockets.len() as u64) * SOCKET_BYTES
            + self.pipes.len() as u64 * PIPE_BYTES
            + self.epolls * EPOLL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_anonymous_memory_counts_once_and_by_size() {
        let maps = "7f0000000000-7f0000100000 rw-s 00000000 00:01 42 /dev/zero (deleted)\n\
                    7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n\
                    7f0000200000-7f0000201000 r-xp 00000000 08:01 7 /usr/lib/libc.so.6\n";
        let mut found = BTreeMap::new();
        shared_mappings(maps, &mut found);
        shared_mappings(maps, &mut found);
        assert_eq!(found.values().sum::<u64>(), 1 << 20);
    }

    #[test]
    fn sample_interval_shrinks_near_the_limit() {
        let check = |memory_bytes: u64, expect_ms: u64| {
            let sample = Sample {
                memory_bytes,
                processes: 1,
                hidden: false,
            };
            assert_eq!(
                sample.next_interval(512 << 20, 2),
                Duration::from_millis(expect_ms),
                "{memory_bytes}"
            );
        };
        check(0, 67);
        check(500 << 20, 4);
        check(600 << 20, 4);
    }

    #[test]
    fn absent_status_fields_are_zero() {
        let status = "Name:\tpython3\nThreads:\t3\nRssAnon:\t    1234 kB\n";
        assert_eq!(field(status, "RssAnon:"), 1234);
        assert_eq!(field(status, "Threads:"), 3);
        assert_eq!(field(status, "VmSwap:"), 0);
    }
}
