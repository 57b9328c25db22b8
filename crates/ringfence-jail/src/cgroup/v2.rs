//! cgroup version 2 (kernel: admin-guide/cgroup-v2.rst). Usable if our own cgroup was delegated to us: we may write it,
//! it has the memory and pids controllers, and we can move to a leaf, so that the "no internal processes" rule holds.

use super::{
    CPU_PERIOD_US, CgroupEntry, Counted, CpuShare, Directory, Parent, cpu_quota_us, own_directory, set,
    without_pid_1,
};
use ringfence_sys::{file::may_write, process};
use ringfence_types::Limits;
use std::{fs, io, path::Path, time::Duration};

/// The cgroup of the server itself, so that its old cgroup may enable controllers for its children.
const LEAF: &str = "ringfence-server";

/// Checks our own cgroup, from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
pub(super) fn find(membership: &str, mounts: &str) -> Result<Parent, String> {
    let inside = membership.lines().find_map(|line| line.strip_prefix("0::"));
    let inside = inside.ok_or("not in a unified hierarchy")?;
    let own = own_directory(inside, mounts, is_unified);
    let mut own = own.ok_or("no unified hierarchy is mounted")?;
    if own.ends_with(LEAF) {
        own.pop();
    }
    candidate(&own)
}

fn is_unified(kind: &str) -> bool {
    kind.starts_with("cgroup2 ")
}

/// Returns `own` as a parent, or the reason why it cannot hold cgroups of ours.
fn candidate(own: &Path) -> Result<Parent, String> {
    let controllers =
        fs::read_to_string(own.join("cgroup.controllers")).map_err(|error| error.to_string())?;
    let names = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
    let shown = own.display();
    for needed in ["memory", "pids"] {
        if !names(&controllers, needed) {
            return Err(format!("the {needed} controller is not delegated to {shown}"));
        }
    }
    let enabled = fs::read_to_string(own.join("cgroup.subtree_control")).unwrap_or_default();
    let already = ["memory", "pids"].iter().all(|name| names(&enabled, name));
    if !already && has_other_processes(own) {
        let what = "holds processes of others; start the server in a cgroup of its own";
        return Err(format!("{shown} {what}"));
    }
    if !may_write(&own.join("cgroup.subtree_control")) {
        return Err(format!("{shown} is not delegated to this user"));
    }
    let has_cpu = names(&controllers, "cpu");
    Ok(Parent::V2 {
        directory: own.to_owned(),
        cpu: if has_cpu {
            CpuShare::Quota
        } else {
            CpuShare::Affinity
        },
    })
}

fn has_other_processes(directory: &Path) -> bool {
    let own = std::process::id().to_string();
    let pids = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    pids.lines().any(|pid| pid != own)
}

/// Moves this process to a leaf and enables the controllers for our children.
pub(super) fn prepare(directory: &Path, cpu: CpuShare) -> io::Result<()> {
    let leaf = directory.join(LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    set(&leaf, "cgroup.procs", &std::process::id().to_string())?;
    let controllers = match cpu {
        CpuShare::Quota => "+memory +pids +cpu",
        CpuShare::Affinity => "+memory +pids",
    };
    set(directory, "cgroup.subtree_control", controllers)
}

#[derive(Debug)]
pub(super) struct GroupV2 {
    directory: Directory,
    cpu: CpuShare,
}

impl Drop for GroupV2 {
    fn drop(&mut self) {
        // Kills what a dying supervisor could not. A kernel older than 5.14 has no such file and needs none: the end of
        // pid 1 has killed the tree already. The sweep at the next start removes a cgroup that is still busy.
        drop(self.directory.set_if_present("cgroup.kill", "1"));
    }
}

impl GroupV2 {
    pub(super) fn create(parent: &Path, cpu: CpuShare, name: &str, limits: &Limits) -> io::Result<Self> {
        Self::limited(Directory::create(parent.join(name))?, cpu, limits)
    }

    fn limited(directory: Directory, cpu: CpuShare, limits: &Limits) -> io::Result<Self> {
        let group = Self { directory, cpu };
        group.limit_memory(limits)?;
        group.directory.set_if_present("memory.swap.max", "0")?;
        group.directory.set("memory.oom.group", "1")?;
        group.limit_processes(limits)?;
        if cpu == CpuShare::Quota {
            group.limit_cpu(limits)?;
        }
        Ok(group)
    }

    pub(super) fn adjust(&self, from: &Limits, to: &Limits) -> io::Result<()> {
        if from.memory_bytes != to.memory_bytes {
            self.limit_memory(to)?;
        }
        if from.processes != to.processes {
            self.limit_processes(to)?;
        }
        if from.cpu_millicores != to.cpu_millicores && self.cpu == CpuShare::Quota {
            self.limit_cpu(to)?;
        }
        Ok(())
    }

    fn limit_memory(&self, limits: &Limits) -> io::Result<()> {
        self.directory.set("memory.max", &limits.memory_bytes.to_string())
    }

    fn limit_processes(&self, limits: &Limits) -> io::Result<()> {
        self.directory
            .set("pids.max", &(limits.processes + 1).to_string())
    }

    fn limit_cpu(&self, limits: &Limits) -> io::Result<()> {
        let value = format!("{} {CPU_PERIOD_US}", cpu_quota_us(limits));
        self.directory.set("cpu.max", &value)
    }

    pub(super) fn entry(&self) -> io::Result<CgroupEntry> {
        if process::has_clone3() {
            return Ok(CgroupEntry::AtClone(fs::File::open(&self.directory.path)?.into()));
        }
        self.entry_by_write()
    }

    pub(super) fn entry_by_write(&self) -> io::Result<CgroupEntry> {
        Ok(CgroupEntry::ByWrite(vec![
            self.directory.open_to_write("cgroup.procs")?,
        ]))
    }

    pub(super) fn counted(&self) -> Counted {
        let directory = &self.directory;
        let time = |key| directory.keyed("cpu.stat", key).map(Duration::from_micros);
        Counted {
            memory_peak_bytes: directory.number("memory.peak").unwrap_or(0),
            processes_peak: directory.number("pids.peak").map(without_pid_1),
            cpu: time("user_usec").zip(time("system_usec")),
            out_of_memory: directory.keyed("memory.events", "oom_kill").unwrap_or(0) > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory that looks like a delegated cgroup; the kernel's reactions are not imitated.
    fn delegated(name: &str, controllers: &str, processes: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("ringfence-v2-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.controllers"), controllers).unwrap();
        fs::write(directory.join("cgroup.subtree_control"), "").unwrap();
        fs::write(directory.join("cgroup.procs"), processes).unwrap();
        directory
    }

    #[test]
    fn delegated_cgroup_needs_memory_pids_and_no_other_processes() {
        let own = std::process::id().to_string();
        let check = |name: &str, controllers: &str, processes: &str, expect: Result<CpuShare, &str>| {
            let directory = delegated(name, controllers, processes);
            let found = candidate(&directory);
            fs::remove_dir_all(&directory).unwrap();
            match (found, expect) {
                (Ok(Parent::V2 { cpu, .. }), Ok(expected)) => assert_eq!(cpu, expected),
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
                (found, expect) => panic!("{name}: {found:?}, expected {expect:?}"),
            }
        };
        check("full", "cpuset cpu io memory pids", &own, Ok(CpuShare::Quota));
        check("nocpu", "memory pids", "", Ok(CpuShare::Affinity));
        check("nomem", "cpu pids", &own, Err("memory controller"));
        check("nopids", "cpu memory", &own, Err("pids controller"));
        check(
            "strangers",
            "cpu memory pids",
            "1\n2\n",
            Err("processes of others"),
        );
    }

    #[test]
    fn limits_are_written_in_kernel_units() {
        let parent = delegated("write", "cpu memory pids", "");
        let limits = Limits {
            memory_bytes: 64 << 20,
            cpu_millicores: 500,
            timeout_ms: 1000,
            processes: 8,
            output_bytes: 1,
            disk_bytes: 1,
        };
        let directory = Directory::create(parent.join("g")).unwrap();
        for file in ["memory.max", "memory.oom.group", "pids.max", "cpu.max"] {
            fs::write(directory.path.join(file), "").unwrap(); // as the kernel makes them
        }
        let group = GroupV2::limited(directory, CpuShare::Quota, &limits).unwrap();
        let read = |file: &str| fs::read_to_string(group.directory.path.join(file)).unwrap();
        assert_eq!(read("memory.max"), (64 << 20).to_string());
        assert_eq!(read("memory.oom.group"), "1");
        assert_eq!(read("pids.max"), "9");
        assert_eq!(read("cpu.max"), "10000 20000");
        drop(group);
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn unified_mount_is_recognised() {
        let line = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        let found = |line| own_directory("/", line, is_unified);
        assert_eq!(found(line).as_deref(), Some(Path::new("/sys/fs/cgroup/")));
        assert_eq!(
            found("35 24 0:30 / /sys/fs/cgroup rw - cgroup cgroup rw,memory"),
            None
        );
    }
}
