//! cgroup version 1 (kernel: admin-guide/cgroup-v1): one directory in each of the memory, pids and cpu hierarchies.
//! Only root can make them.

use super::{Counted, Entrance, Parent, keyed, number, remove, set, without_pid_1};
use ringfence_sys::file::may_write;
use ringfence_types::Limits;
use std::{
    fs::{self, OpenOptions},
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

const CPU_PERIOD_US: u64 = 20_000;

/// Finds our own directory in each hierarchy, from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
pub(super) fn find(membership: &str, mounts: &str) -> Result<Parent, String> {
    let memory = hierarchy(membership, mounts, "memory").ok_or("no memory hierarchy is mounted")?;
    let pids = hierarchy(membership, mounts, "pids").ok_or("no pids hierarchy is mounted")?;
    let cpu = hierarchy(membership, mounts, "cpu").filter(|directory| may_write(directory));
    for directory in [&memory, &pids] {
        if !may_write(directory) {
            return Err(format!("{} is not writable for this user", directory.display()));
        }
    }
    Ok(Parent::V1 { memory, pids, cpu })
}

fn hierarchy(membership: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let inside = membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let has = controllers.split(',').any(|name| name == controller);
        has.then(|| parts.next())?
    })?;
    let (root, mount_point) = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_v1 = kind.next()? == "cgroup";
        let has = is_v1 && kind.nth(1)?.split(',').any(|option| option == controller);
        let mut place = place.split(' ').skip(3);
        has.then(|| Some((place.next()?, place.next()?)))?
    })?;
    // In a container the mount shows only a part of the hierarchy, whose path (`root`) is a prefix of our membership.
    let below = inside.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
    let directory = Path::new(mount_point).join(below.trim_start_matches('/'));
    directory.is_dir().then_some(directory)
}

#[derive(Debug)]
pub(super) struct GroupV1 {
    memory: PathBuf,
    others: Vec<PathBuf>,
    alarm: Option<OwnedFd>,
}

impl Drop for GroupV1 {
    fn drop(&mut self) {
        self.alarm = None;
        remove(&self.memory);
        self.others.iter().for_each(|directory| remove(directory));
    }
}

impl GroupV1 {
    pub(super) fn create(
        memory: &Path,
        pids: &Path,
        cpu: Option<&Path>,
        name: &str,
        limits: &Limits,
    ) -> io::Result<Self> {
        let mut group = Self {
            memory: memory.join(name),
            others: Vec::new(),
            alarm: None,
        };
        fs::create_dir(&group.memory)?;
        group.limit_memory(limits.memory_bytes)?;
        let in_pids = pids.join(name);
        fs::create_dir(&in_pids)?;
        group.others.push(in_pids.clone());
        limit_processes(&in_pids, limits)?;
        if let Some(cpu) = cpu {
            let in_cpu = cpu.join(name);
            fs::create_dir(&in_cpu)?;
            group.others.push(in_cpu.clone());
            set(&in_cpu, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
            limit_cpu(&in_cpu, limits)?;
        }
        group.alarm = Some(alarm(&group.memory)?);
        Ok(group)
    }

    /// By `tasks`, because a thread that moves itself there needs none of the locks that moving a process needs, of
    /// which one costs an RCU grace period, some ten milliseconds.
    pub(super) fn entrance(&self) -> io::Result<Entrance> {
        let directories = std::iter::once(&self.memory).chain(&self.others);
        let open = |directory: &PathBuf| OpenOptions::new().write(true).open(directory.join("tasks"));
        directories
            .map(open)
            .collect::<io::Result<_>>()
            .map(Entrance::Walk)
    }

    pub(super) fn adjust(&self, from: &Limits, to: &Limits) -> io::Result<()> {
        if from.memory_bytes < to.memory_bytes {
            // The sum of memory and swap may not be below memory alone at any moment.
            let bytes = to.memory_bytes.to_string();
            set_if_present(&self.memory, "memory.memsw.limit_in_bytes", &bytes)?;
        }
        if from.memory_bytes != to.memory_bytes {
            self.limit_memory(to.memory_bytes)?;
        }
        let mut others = self.others.iter();
        if let Some(pids) = others.next()
            && from.processes != to.processes
        {
            limit_processes(pids, to)?;
        }
        if let Some(cpu) = others.next()
            && from.cpu_millicores != to.cpu_millicores
        {
            limit_cpu(cpu, to)?;
        }
        Ok(())
    }

    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.to_string();
        set(&self.memory, "memory.limit_in_bytes", &bytes)?;
        set_if_present(&self.memory, "memory.memsw.limit_in_bytes", &bytes)?;
        set_if_present(&self.memory, "memory.kmem.tcp.limit_in_bytes", &bytes)
    }

    pub(super) fn memory_alarm(&self) -> Option<&OwnedFd> {
        self.alarm.as_ref()
    }

    pub(super) fn counted(&self) -> Counted {
        let peak = self.others.first().and_then(|pids| number(pids, "pids.peak"));
        Counted {
            memory_peak_bytes: number(&self.memory, "memory.max_usage_in_bytes").unwrap_or(0),
            processes_peak: peak.map(without_pid_1),
            cpu: None,
            out_of_memory: keyed(&self.memory, "memory.oom_control", "oom_kill").unwrap_or(0) > 0,
        }
    }
}

fn limit_processes(pids: &Path, limits: &Limits) -> io::Result<()> {
    set(pids, "pids.max", &(limits.processes + 1).to_string())
}

fn limit_cpu(cpu: &Path, limits: &Limits) -> io::Result<()> {
    let quota = CPU_PERIOD_US * u64::from(limits.cpu_millicores) / 1000;
    set(cpu, "cpu.cfs_quota_us", &quota.max(1000).to_string())
}

fn set_if_present(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    match directory.join(file).exists() {
        true => set(directory, file, value),
        false => Ok(()),
    }
}

/// Registers for out-of-memory events: `<eventfd> <fd of memory.oom_control>` (kernel: cgroup-v1/memory.rst, 10).
fn alarm(memory: &Path) -> io::Result<OwnedFd> {
    let counter = ringfence_sys::file::event_counter()?;
    let control = fs::File::open(memory.join("memory.oom_control"))?;
    let pair = format!("{} {}", counter.as_raw_fd(), control.as_raw_fd());
    set(memory, "cgroup.event_control", &pair)?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 29 0:26 / /proc rw,relatime - proc proc rw
31 30 0:27 / / rw - tmpfs tmpfs rw,mode=755
32 31 0:28 /docker/ab /proc/self rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct";

    #[test]
    fn the_own_directory_is_found_below_a_partial_mount() {
        let check = |membership: &str, controller: &str, expect: Option<&str>| {
            assert_eq!(
                hierarchy(membership, MOUNTS, controller).as_deref(),
                expect.map(Path::new),
                "{membership}"
            );
        };
        check("5:cpu,cpuacct:/docker/ab/fd", "cpu", Some("/proc/self/fd"));
        check("5:cpu,cpuacct:/docker/ab", "cpuacct", Some("/proc/self"));
        check("5:cpuset:/docker/ab", "cpu", None);
        check("5:memory:/docker/ab", "memory", None);
        check("garbage", "memory", None);
    }
}
