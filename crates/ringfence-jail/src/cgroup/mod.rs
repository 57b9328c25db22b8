//! Limits for the whole tree by cgroup: version 2 where it is delegated to us, version 1 where we are root, else none.
//! No library is used, because it would be much code for a dozen writes to files.

mod v1;
mod v2;

use crate::kept_files::{KeptFiles, number};
use ringfence_sys::file;
use ringfence_types::Limits;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuShare {
    Quota,
    Affinity,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parent {
    /// A delegated directory of the unified hierarchy, with memory and pids (and perhaps cpu) enabled for children.
    V2 { directory: PathBuf, cpu: CpuShare },
    V1 {
        memory: PathBuf,
        pids: PathBuf,
        cpu: Option<PathBuf>,
    },
    /// No cgroup: limits are kept by per-user-namespace counts and by sampling the tree.
    None { reason: String },
}

impl Parent {
    /// Finds the best parent that this process may use. Changes nothing.
    pub fn find() -> Self {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let v2 = v2::find(&membership, &mounts);
        if let Ok(parent) = v2 {
            return parent;
        }
        match (v1::find(&membership, &mounts), v2) {
            (Ok(parent), _) => parent,
            (Err(v1), Err(v2)) => Self::None {
                reason: format!("version 2: {v2}; version 1: {v1}"),
            },
            (Err(reason), Ok(_)) => Self::None { reason },
        }
    }

    /// True if a tree can be given a share of the processors, and another one later.
    pub fn shares_processors(&self) -> bool {
        match self {
            Self::V2 { cpu, .. } => *cpu == CpuShare::Quota,
            Self::V1 { cpu, .. } => cpu.is_some(),
            Self::None { .. } => false,
        }
    }

    pub fn describe(&self) -> &'static str {
        match self {
            Self::V2 { .. } => "cgroup v2",
            Self::V1 { .. } => "cgroup v1",
            Self::None { .. } => "none",
        }
    }

    /// Removes the empty cgroups of supervisors that are gone; returns how many were removed, and how many remain. One
    /// that still holds a process cannot be removed, by the kernel's rule, so this needs no lock.
    pub fn sweep(&self) -> (usize, usize) {
        let roots = match self {
            Self::V2 { directory, .. } => [Some(directory), None, None],
            Self::V1 { memory, pids, cpu } => [Some(memory), Some(pids), cpu.as_ref()],
            Self::None { .. } => [None; 3],
        };
        let roots = roots.into_iter().flatten();
        let entries = roots
            .filter_map(|root| fs::read_dir(root).ok())
            .flatten()
            .flatten();
        let is_abandoned = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(owner_is_gone);
        let abandoned: Vec<_> = entries.filter(is_abandoned).collect();
        let removed = abandoned
            .iter()
            .filter(|entry| fs::remove_dir(entry.path()).is_ok());
        let gone = removed.count();
        (gone, abandoned.len() - gone)
    }
}

/// Prepares the parent for children; called once, by the server, before it starts other processes.
pub fn prepare(parent: &Parent) -> io::Result<()> {
    match parent {
        Parent::V2 { directory, cpu } => v2::prepare(directory, *cpu),
        Parent::V1 { .. } | Parent::None { .. } => Ok(()),
    }
}

/// Our own directory in a hierarchy, by our membership and the first mount whose kind and options `is_mount` accepts.
/// In a container the mount shows only a part of the hierarchy, whose path (`root`) is a prefix of our membership.
fn own_directory(membership: &str, mounts: &str, is_mount: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let (root, mount_point) = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        is_mount(kind).then(|| Some((place.next()?, place.next()?)))?
    })?;
    let below = membership.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
    Some(Path::new(mount_point).join(below.trim_start_matches('/')))
}

const CPU_PERIOD_US: u64 = 20_000;

fn cpu_quota_us(limits: &Limits) -> u64 {
    let quota = CPU_PERIOD_US * u64::from(limits.cpu_millicores) / 1000;
    quota.max(1000)
}

const PREFIX: &str = "ringfence-";

fn own_name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// True if the name is that of a supervisor which is gone. A zombie counts as gone: it owns nothing any more.
fn owner_is_gone(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
        stat.map_or(true, |stat| {
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
        })
    })
}

/// The cgroup of one sandbox; removed on drop, which needs the tree to be dead.
#[derive(Debug)]
pub struct Cgroup {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    V2(v2::GroupV2),
    V1(v1::GroupV1),
}

/// The way for pid 1 to join its cgroup; its children are then created inside.
#[derive(Debug)]
pub enum CgroupEntry {
    /// The directory into which it is forked (`CLONE_INTO_CGROUP`, clone(2)).
    AtClone(OwnedFd),
    /// The files into each of which it writes itself, as its first act.
    ByWrite(Vec<fs::File>),
}

impl CgroupEntry {
    pub fn enter(&self) -> io::Result<()> {
        match self {
            Self::AtClone(_) => Ok(()),
            Self::ByWrite(files) => files.iter().try_for_each(|mut file| file.write_all(b"0")),
        }
    }

    pub fn files(self) -> Vec<fs::File> {
        match self {
            Self::AtClone(_) => Vec::new(),
            Self::ByWrite(files) => files,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub memory_peak_bytes: u64,
    pub processes_peak: Option<u64>,
    pub cpu: Option<(Duration, Duration)>,
    pub out_of_memory: bool,
}

impl Cgroup {
    /// Creates the cgroup of the sandbox that this process supervises. `None` if the parent is `None`.
    pub fn create(parent: &Parent, limits: &Limits) -> io::Result<Option<Self>> {
        let kind = match parent {
            Parent::V2 { directory, cpu } => {
                Kind::V2(v2::GroupV2::create(directory, *cpu, &own_name(), limits)?)
            }
            Parent::V1 { memory, pids, cpu } => Kind::V1(v1::GroupV1::create(
                memory,
                pids,
                cpu.as_deref(),
                &own_name(),
                limits,
            )?),
            Parent::None { .. } => return Ok(None),
        };
        Ok(Some(Self { kind }))
    }

    /// Opens the entry for pid 1. The supervisor does so, because the kernel checks the permission of the opener.
    pub fn entry(&self) -> io::Result<CgroupEntry> {
        match &self.kind {
            Kind::V2(group) => group.entry(),
            Kind::V1(group) => group.entry(),
        }
    }

    /// Opens the entry for processes that are not forked by the supervisor.
    pub fn entry_by_write(&self) -> io::Result<CgroupEntry> {
        match &self.kind {
            Kind::V2(group) => group.entry_by_write(),
            Kind::V1(group) => group.entry(),
        }
    }

    /// Changes the limits; a value that stays is not written again.
    pub fn adjust(&self, from: &Limits, to: &Limits) -> io::Result<()> {
        match &self.kind {
            Kind::V2(group) => group.adjust(from, to),
            Kind::V1(group) => group.adjust(from, to),
        }
    }

    /// A descriptor that becomes readable when memory has run out; `None` if the kernel itself kills the whole tree.
    pub fn memory_alarm(&self) -> Option<&OwnedFd> {
        match &self.kind {
            Kind::V2(_) => None,
            Kind::V1(group) => Some(group.memory_alarm()),
        }
    }

    pub fn counted(&self) -> Counted {
        match &self.kind {
            Kind::V2(group) => group.counted(),
            Kind::V1(group) => group.counted(),
        }
    }
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// The directory, from which its files are opened: the whole path is long, and would be resolved at each call.
    open: OwnedFd,
    kept: KeptFiles,
}

impl Directory {
    fn create(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        match file::open_directory(file::current_directory(), &path) {
            Ok(open) => Ok(Self {
                path,
                open,
                kept: KeptFiles::default(),
            }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        file::write_small(self.open.as_fd(), Path::new(file), value).map_err(|error| {
            let what = format!("write {value:?} to {}/{file}: {error}", self.path.display());
            io::Error::new(error.kind(), what)
        })
    }

    fn set_if_present(&self, file: &str, value: &str) -> io::Result<()> {
        match self.set(file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            set => set,
        }
    }

    fn open_to_write(&self, file: &str) -> io::Result<fs::File> {
        file::open_to_write(self.open.as_fd(), Path::new(file))
    }

    fn number(&self, file: &'static str) -> Option<u64> {
        self.small(file)?.trim().parse().ok()
    }

    fn small(&self, file: &'static str) -> Option<String> {
        self.kept.read(self.open.as_fd(), file).ok()
    }

    /// Reads a value of a `key value` file such as `memory.events`.
    fn keyed(&self, file: &'static str, key: &str) -> Option<u64> {
        number(&self.small(file)?, &format!("{key} "))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn set(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = directory.join(file);
    fs::write(&path, value).map_err(|error| {
        let what = format!("write {value:?} to {}: {error}", path.display());
        io::Error::new(error.kind(), what)
    })
}

/// Subtracts pid 1, which is ours and not part of the caller's limit.
fn without_pid_1(processes: u64) -> u64 {
    processes.saturating_sub(1)
}

/// Removes an empty cgroup. The kernel may keep it busy for a moment after its last process was reaped; the wait is
/// bounded, and the sweep at the next start removes what is left.
fn remove(directory: &Path) {
    for _ in 0..50 {
        match fs::remove_dir(directory) {
            Err(error) if error.raw_os_error() == Some(16 /* EBUSY */) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => return,
        }
    }
}
