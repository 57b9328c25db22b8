//! The processes of a sandbox: what they do, and the deleted files that they hold.

use super::Until;
use crate::{kept_files::number, sample, tree};
use ringfence_sys::file::{self, Kind};
use ringfence_types::Tier;
use std::{
    collections::BTreeSet,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const DESCRIPTORS_MAX: usize = 100_000;
const MAPS_BYTES_MAX: u64 = 8 << 20;
const IO_BYTES_MAX: u64 = 4 << 10;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// Bytes that it has written to disks, if that is counted.
    pub(super) written: Option<u64>,
    pub(super) processor: Duration,
    /// A process is running now, which processor time shows only in hundredths of a second.
    pub(super) is_running: bool,
    /// A process does not show all of its files.
    pub(super) is_hidden: bool,
}

/// The processes that may hold files open that no longer have a name.
pub(crate) struct Holders<'a> {
    pub(super) proc: &'a OwnedFd,
    pub(super) pids: Vec<PathBuf>,
    /// Pid 1, which is ours.
    pub(super) init: PathBuf,
    /// The devices of their private disk and of their workspace.
    pub(super) devices: Vec<u64>,
}

/// Files that were deleted while a process of the tree held them.
#[derive(Default)]
pub(super) struct Unlinked {
    pub(super) bytes: u64,
    /// A process does not show all of its own.
    pub(super) is_hidden: bool,
    /// Inode and device of those that were counted.
    seen: BTreeSet<(u64, u64)>,
    /// Devices whose files do not count here: that of files that memfd_create(2) makes, which count as memory, and that
    /// of the sandbox's other directory.
    elsewhere: Vec<u64>,
}

impl Unlinked {
    fn add(&mut self, held: &file::Entry) {
        let (device, inode) = held.identity;
        let is_deleted = held.kind == Kind::File && held.links == 0 && !self.elsewhere.contains(&device);
        if is_deleted && self.seen.insert((inode, device)) {
            self.bytes += held.allocated;
        }
    }
}

impl<'a> Holders<'a> {
    /// Lists the processes of a sandbox, by its own `/proc` or, in a tier without one, by the host's. `disks`: its
    /// private disk and its workspace. `init`: pid 1, as the host numbers it.
    pub(crate) fn of(proc: &'a OwnedFd, disks: [Option<&OwnedFd>; 2], tier: Tier, init: i32) -> Option<Self> {
        let pids = tree::processes(proc, tier);
        let init = if tier == Tier::Landlock { init } else { 1 };
        let device = |disk: &OwnedFd| Some(file::identity(disk.as_fd()).ok()?.0);
        Some(Self {
            proc,
            pids,
            init: init.to_string().into(),
            devices: disks.into_iter().flatten().filter_map(device).collect(),
        })
    }

    pub(super) fn processor_time(&self) -> Duration {
        let (user, system) = sample::cpu(self.proc, &self.pids);
        user + system
    }

    pub(super) fn activity(&self) -> Activity {
        let written = self.pids.iter().map(|pid| {
            let text = file::read_small(self.proc.as_fd(), &pid.join("io"), IO_BYTES_MAX).ok()?;
            // proc_pid_io(5); includes children that were waited for.
            number(&text, "write_bytes: ")
        });
        Activity {
            written: written.flatten().reduce(|sum, bytes| sum + bytes),
            processor: self.processor_time(),
            is_running: sample::is_running(self.proc, &self.pids),
            is_hidden: false,
        }
    }

    /// Counts the files of this directory that were deleted while a process held them open or mapped, or ran them: no
    /// walk finds them. At the deadline the rest counts as hidden; an order leaves it to the next walk.
    pub(super) fn unlinked(&self, directory: BorrowedFd<'_>, until: &mut Until<'_>) -> Unlinked {
        let memory = file::memory_file("").and_then(|file| file.metadata());
        let own = file::identity(directory).map(|(device, _)| device).ok();
        let others = self.devices.iter().copied().filter(|device| Some(*device) != own);
        let mut found = Unlinked {
            elsewhere: others.chain(memory.map(|metadata| metadata.dev())).collect(),
            ..Unlinked::default()
        };
        let tasks = self.pids.iter().filter(|pid| **pid != self.init);
        let tasks = tasks.filter_map(|pid| sample::living_task(self.proc, pid));
        let tasks: Vec<PathBuf> = tasks.map(|(task, _)| task).collect();
        for task in &tasks {
            if until.is_over_now() {
                break;
            }
            self.add_held(
                task,
                file::stat_open_file(self.proc.as_fd(), &task.join("exe")),
                &mut found,
            );
            match file::open_listing(self.proc.as_fd(), &task.join("fd")) {
                Ok(listing) => {
                    for name in file::list_names(listing.as_fd(), DESCRIPTORS_MAX).unwrap_or_default() {
                        if until.is_over() {
                            break;
                        }
                        self.add_held(task, file::stat_open_file(listing.as_fd(), &name), &mut found);
                    }
                }
                Err(error) => found.is_hidden |= self.hides(task, &error),
            }
        }
        let mut mapped = BTreeSet::new();
        for task in &tasks {
            if until.is_over_now() {
                break;
            }
            match self.maps(task) {
                Ok(maps) => {
                    found.is_hidden |= maps.len() as u64 >= MAPS_BYTES_MAX;
                    let mut again = None;
                    for mapping in sample::deleted_mappings(&maps) {
                        if until.is_over() {
                            break;
                        }
                        // Unmapped here, it may be mapped by the next task.
                        if !mapped.contains(&mapping.file)
                            && self.add_mapping(task, &mapping, &mut found, &mut again)
                        {
                            mapped.insert(mapping.file);
                        }
                    }
                }
                Err(error) => found.is_hidden |= self.hides(task, &error),
            }
        }
        found.is_hidden |= until.is_over && Instant::now() >= until.deadline;
        found
    }

    fn add_held(&self, task: &Path, held: io::Result<file::Entry>, found: &mut Unlinked) {
        match held {
            Ok(held) => found.add(&held),
            Err(error) => found.is_hidden |= self.hides(task, &error),
        }
    }

    fn maps(&self, task: &Path) -> io::Result<String> {
        file::read_small(self.proc.as_fd(), &task.join("maps"), MAPS_BYTES_MAX)
    }

    /// Adds a mapped file by its size on the disk, which only root can query, or else by the length of its mapping. One
    /// that is mapped elsewhere by now may go on moving, and counts as hidden, too. False: it has been unmapped.
    /// `again`: the deleted files that the task maps, read when the first of its mappings is gone, and only then.
    pub(super) fn add_mapping(
        &self,
        task: &Path,
        mapping: &sample::Deleted,
        found: &mut Unlinked,
        again: &mut Option<BTreeSet<String>>,
    ) -> bool {
        if found.elsewhere.contains(&mapping.device) {
            return true;
        }
        // `/proc/[pid]/task/[tid]` has no `map_files`, but `/proc/[tid]` has it.
        let task_name = Path::new(task.file_name().unwrap_or_default());
        let path = task_name.join("map_files").join(&mapping.range);
        match file::stat_open_file(self.proc.as_fd(), &path) {
            Ok(held) => {
                found.add(&held);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(_) => {
                let files = again.get_or_insert_with(|| {
                    let maps = self.maps(task).unwrap_or_default();
                    sample::deleted_mappings(&maps).map(|other| other.file).collect()
                });
                if !files.contains(&mapping.file) {
                    return false;
                }
                found.is_hidden = true;
            }
        }
        let same = (mapping.inode, 0)..=(mapping.inode, u64::MAX);
        if found.seen.range(same).next().is_none() {
            found.bytes += mapping.length;
        }
        true
    }

    /// True if a task denies its files because it is not dumpable, and not because it is ending: it lives even now.
    fn hides(&self, task: &Path, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::PermissionDenied && sample::living_status(self.proc, task).is_some()
    }
}
