//! cgroup version 1 (kernel: admin-guide/cgroup-v1): one directory in each of the memory, pids and cpu hierarchies.
//! Only root can create them.

use super::{
    CPU_PERIOD_US, CgroupEntry, Counted, Directory, Parent, cpu_quota_us, own_directory, without_pid_1,
};
use crate::uncharged;
use ringfence_sys::file::{self, may_write};
use ringfence_types::Limits;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

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
    let directory = own_directory(inside, mounts, |kind| {
        let mut kind = kind.split(' ');
        let options = (kind.next() == Some("cgroup")).then(|| kind.nth(1)).flatten();
        options.is_some_and(|options| options.split(',').any(|option| option == controller))
    })?;
    directory.is_dir().then_some(directory)
}

#[derive(Debug)]
pub(super) struct GroupV1 {
    // Dropped in this order.
    alarm: OwnedFd,
    memory: Directory,
    pids: Directory,
    cpu: Option<Directory>,
}

impl GroupV1 {
    pub(super) fn create(
        memory: &Path,
        pids: &Path,
        cpu: Option<&Path>,
        name: &str,
        limits: &Limits,
    ) -> io::Result<Self> {
        let memory = Directory::create(memory.join(name))?;
        limit_memory(&memory, limits)?;
        let pids = Directory::create(pids.join(name))?;
        limit_processes(&pids, limits)?;
        let cpu = cpu.map(|cpu| Directory::create(cpu.join(name))).transpose()?;
        if let Some(cpu) = &cpu {
            cpu.set("cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
            limit_cpu(cpu, limits)?;
        }
        Ok(Self {
            alarm: alarm(&memory)?,
            memory,
            pids,
            cpu,
        })
    }

    /// Uses `tasks`, because a thread that moves itself there needs none of the locks for moving a process, one of
    /// which costs an RCU grace period, some ten milliseconds.
    pub(super) fn entry(&self) -> io::Result<CgroupEntry> {
        let directories = [&self.memory, &self.pids].into_iter().chain(&self.cpu);
        directories
            .map(|directory| directory.open_to_write("tasks"))
            .collect::<io::Result<_>>()
            .map(CgroupEntry::ByWrite)
    }

    pub(super) fn adjust(&self, from: &Limits, to: &Limits) -> io::Result<()> {
        if from.memory_bytes < to.memory_bytes {
            // The sum of memory and swap may not be below memory alone at any moment.
            let bytes = to.memory_bytes.to_string();
            self.memory
                .set_if_present("memory.memsw.limit_in_bytes", &bytes)?;
        }
        if from.memory_bytes != to.memory_bytes {
            limit_memory(&self.memory, to)?;
        }
        if from.processes != to.processes {
            limit_processes(&self.pids, to)?;
        }
        if let Some(cpu) = &self.cpu
            && from.cpu_millicores != to.cpu_millicores
        {
            limit_cpu(cpu, to)?;
        }
        Ok(())
    }

    pub(super) fn memory_alarm(&self) -> &OwnedFd {
        &self.alarm
    }

    pub(super) fn counted(&self) -> Counted {
        let kills = self.memory.keyed("memory.oom_control", "oom_kill");
        Counted {
            memory_peak_bytes: self.memory.number("memory.max_usage_in_bytes").unwrap_or(0),
            processes_peak: self.pids.number("pids.peak").map(without_pid_1),
            cpu: None,
            out_of_memory: kills.unwrap_or(0) > 0,
        }
    }
}

fn limit_memory(memory: &Directory, limits: &Limits) -> io::Result<()> {
    let bytes = limits.memory_bytes.to_string();
    memory.set("memory.limit_in_bytes", &bytes)?;
    memory.set_if_present("memory.memsw.limit_in_bytes", &bytes)?;
    // TCP buffers are counted apart from all other memory.
    let buffers = (limits.memory_bytes / uncharged::LIMIT_DIVISOR).to_string();
    memory.set_if_present("memory.kmem.tcp.limit_in_bytes", &buffers)
}

fn limit_processes(pids: &Directory, limits: &Limits) -> io::Result<()> {
    pids.set("pids.max", &(limits.processes + 1).to_string())
}

fn limit_cpu(cpu: &Directory, limits: &Limits) -> io::Result<()> {
    cpu.set("cpu.cfs_quota_us", &cpu_quota_us(limits).to_string())
}

/// Registers for out-of-memory events: `<eventfd> <fd of memory.oom_control>` (kernel: cgroup-v1/memory.rst, 10).
fn alarm(memory: &Directory) -> io::Result<OwnedFd> {
    let counter = file::event_counter()?;
    let control = file::open_to_read(memory.open.as_fd(), Path::new("memory.oom_control"))?;
    let pair = format!("{} {}", counter.as_raw_fd(), control.as_raw_fd());
    memory.set("cgroup.event_control", &pair)?;
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
    fn own_cgroup_is_found_below_a_partial_mount() {
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
