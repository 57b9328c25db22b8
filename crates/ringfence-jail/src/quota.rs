//! The limit of a host directory that a program may write. No file system enforces it there, so it is measured from
//! outside: all of it now and then, and at once when the file system below has filled by about as much as is left. A
//! program writes on while it is being measured; what it has written by then is the window that SECURITY.md names. In a
//! directory that several share, only the programs that write are ended, at twice the limit.

use crate::{kept_files::number, sample, tree};
use ringfence_sys::{
    file::{self, Kind},
    resource,
};
use ringfence_types::{Limits, Tier};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs::{File, TryLockError},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What the limit of the disk means for a directory of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quota {
    /// All that lies in it: it is kept for programs, by us.
    Total,
    /// What comes to it during the run: it is somebody's work.
    Growth,
}

/// So few entries are counted whenever that is of use; more are taken to be what they were, while the file system below
/// shows that the limit is far away.
const FEW_ENTRIES: u64 = 256;
/// A directory that grows past its limit and has one tree alone at work in it, whose writes are not counted.
const STRIKES_MAX: u8 = 2;
/// The longest without a look at the whole directory, while anything happens.
const WALK_MAX: Duration = Duration::from_secs(1);
/// The same, while the file system stays as full as it was and the tree has used no processor time.
const STILL_MAX: Duration = Duration::from_secs(30);
/// Looks take at most this part of the time.
const WALK_SHARE: u32 = 5;
/// Between two looks at how full the file system is, which cost nothing.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How fast a file system takes bytes (2 GB/s).
const FILL_BYTES_PER_MS: u64 = 2_000_000;
/// The most files that one look counts.
const ENTRIES_MAX: u64 = 1 << 20;
/// The longest that one look takes, and the one before a run.
const TIME_MAX: Duration = Duration::from_secs(30);
const FIRST_TIME_MAX: Duration = Duration::from_secs(60);
/// What a name costs that has no bytes.
const ENTRY_BYTES: u64 = 1 << 10;
/// Directories inside each other that are open at once.
const LEVELS_OPEN_MAX: usize = 64;
const DESCRIPTORS_MAX: usize = 100_000;
const MAPS_BYTES_MAX: u64 = 8 << 20;
const IO_BYTES_MAX: u64 = 4 << 10;
/// How long the server may be writing before what is too much is the program's all the same.
const EXCUSED_MAX: Duration = Duration::from_secs(60);

/// How many files a disk of this size may hold.
pub fn files_max(disk_bytes: u64) -> u64 {
    (disk_bytes / 4096).clamp(4096, 1 << 20)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) bytes: u64,
    entries: u64,
    /// Directories that could not be listed, and what was left out past the most.
    hidden: u64,
}

impl Contents {
    fn is_more_than(self, allowed: Self) -> bool {
        self.bytes > allowed.bytes || self.entries > allowed.entries || self.hidden > allowed.hidden
    }

    fn twice(self) -> Self {
        Self {
            bytes: self.bytes.saturating_mul(2),
            entries: self.entries.saturating_mul(2),
            hidden: self.hidden,
        }
    }

    fn count(self) -> Count {
        Count {
            bytes: self.bytes,
            entries: self.entries,
            filled: (0, 0),
        }
    }
}

/// What a workspace held when it was counted, and how full the file system was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    bytes: u64,
    entries: u64,
    filled: (u64, u64),
}

/// What is known of a workspace, and of the file system on which it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub count: Option<Count>,
    /// The most bytes that the file system may be filled with, by whomever; then those who write are ended.
    pub filled_max: Option<u64>,
}

impl Count {
    /// Errors: `TimedOut`, and those of the file system.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let deadline = Instant::now() + FIRST_TIME_MAX;
        let filled = resource::space_used(directory)?;
        let found = usage(directory, Unlistable::Counted, deadline).map_err(late)?;
        let count = found.count();
        Ok(Self { filled, ..count })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most that there can be when the file system is as full as this.
    pub fn bytes_at_most(self, space: Space) -> u64 {
        self.since(space.used, self.filled.1).bytes
    }

    /// The most that there can be by now, as long as nothing else has made room.
    fn since(self, bytes: u64, entries: u64) -> Contents {
        Contents {
            bytes: self.bytes.saturating_add(bytes.saturating_sub(self.filled.0)),
            entries: self.entries.saturating_add(entries.saturating_sub(self.filled.1)),
            hidden: 0,
        }
    }
}

/// How full a file system is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub used: u64,
    pub free: u64,
}

impl Space {
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            used: resource::space_used(directory)?.0,
            free: resource::space_free(directory)?,
        })
    }
}

/// What a tree has done by some look.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Bytes that it has written to disks, where that is counted.
    written: Option<u64>,
    processor: Duration,
    /// Somebody is at it now, which processor time shows in hundredths of a second alone.
    is_running: bool,
}

/// Looks after one directory during one run.
pub(crate) struct Watch {
    directory: OwnedFd,
    quota: Quota,
    before: Contents,
    allowed: Contents,
    now: Contents,
    /// Of the whole file system, when the directory was looked at last.
    filled: (u64, u64),
    /// What the tree had used of the processors by then, where that is known.
    used: Option<Duration>,
    work: Work,
    strikes: u8,
    filled_max: u64,
    walked: Instant,
    walk_took: Duration,
    /// When it was last asked whether the tree is still.
    asked: Instant,
    /// Locked by the server while it writes there, where it does.
    writing: Option<File>,
    /// Since when that has been the excuse.
    excused: Option<Instant>,
    next: Instant,
    /// Of the next look.
    deadline: Instant,
}

/// Who may hold files open that have no name any more.
pub(crate) struct Holders<'a> {
    proc: &'a OwnedFd,
    pids: Vec<PathBuf>,
}

impl Watch {
    pub(crate) fn begin(
        directory: &OwnedFd,
        quota: Quota,
        limits: &Limits,
        writing: Option<&Path>,
        known: Known,
    ) -> io::Result<Self> {
        // A run that only tidies up is welcome in a directory that is too full, up to twice the limit; more would let
        // each run add what it gets away with.
        let begun = Instant::now();
        let deadline = begun + FIRST_TIME_MAX;
        let limit = Contents {
            bytes: limits.disk_bytes,
            entries: files_max(limits.disk_bytes),
            hidden: 0,
        };
        let (before, allowed) = match quota {
            Quota::Total => {
                let filled = resource::space_used(directory.as_fd())?;
                let count = known.count.map(|known| known.since(filled.0, filled.1));
                let count = count.filter(|now| now.entries > FEW_ENTRIES && !now.is_more_than(limit));
                let before = match count {
                    Some(count) => count,
                    None => usage(directory.as_fd(), Unlistable::Opened, deadline).map_err(late)?,
                };
                (before, limit.twice())
            }
            Quota::Growth => {
                let before = usage(directory.as_fd(), Unlistable::Counted, deadline).map_err(late)?;
                let allowed = Contents {
                    bytes: before.bytes.saturating_add(limit.bytes),
                    entries: before.entries.saturating_add(limit.entries),
                    hidden: before.hidden,
                };
                (before, allowed)
            }
        };
        let now = Instant::now();
        Ok(Self {
            directory: directory.try_clone()?,
            quota,
            before,
            allowed,
            now: before,
            filled: resource::space_used(directory.as_fd())?,
            used: None,
            work: Work::default(),
            strikes: 0,
            filled_max: known.filled_max.unwrap_or(u64::MAX),
            walked: now,
            asked: now,
            writing: writing.map(File::open).transpose()?,
            excused: None,
            walk_took: begun.elapsed(),
            next: now + LOOK_MIN,
            deadline: now + TIME_MAX,
        })
    }

    /// Whether a run may begin: there is not more in it than it may have at its end.
    pub(crate) fn has_room(&self) -> bool {
        !self.before.is_more_than(self.allowed)
    }

    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Whether the limit is passed, as far as it is time to look. A look ends at the run's own deadline: a program may
    /// have left so much to look at that it would outlive it.
    pub(crate) fn is_passed<'a>(
        &mut self,
        deadline: Instant,
        holders: impl FnOnce() -> Option<Holders<'a>>,
    ) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.deadline = deadline.min(now + TIME_MAX);
        let (bytes, files) = resource::space_used(self.directory.as_fd()).unwrap_or(self.filled);
        let came = bytes.saturating_sub(self.filled.0);
        let room = self.allowed.bytes.saturating_sub(self.now.bytes);
        let room_for_files = self.allowed.entries.saturating_sub(self.now.entries);
        let is_filling = bytes > self.filled_max
            || came > room / 2
            || files.saturating_sub(self.filled.1) > room_for_files / 2;
        let since = now.duration_since(self.walked);
        let rested = since > self.walk_took * WALK_SHARE;
        if rested && (is_filling || now.duration_since(self.asked) > WALK_MAX) {
            self.asked = now;
            let holders = holders();
            let used = holders.as_ref().map(Holders::processor_time);
            let is_still = (bytes, files) == self.filled && used.is_some() && used == self.used;
            let most = if is_still { STILL_MAX } else { WALK_MAX };
            if is_filling || since > most {
                self.used = used;
                return self.walk(holders);
            }
        }
        let left = Duration::from_millis(room.saturating_sub(came) / FILL_BYTES_PER_MS);
        self.next = now + left.clamp(LOOK_MIN, LOOK_MAX);
        false
    }

    /// What lies there now. None: the look was cut off, and what it has counted by then is no more than is allowed.
    fn look(&self) -> Option<Contents> {
        let hidden = self.now.hidden;
        match usage(self.directory.as_fd(), Unlistable::Counted, self.deadline) {
            Ok(now) => Some(now),
            Err(cut) => Some(Contents { hidden, ..cut }).filter(|cut| cut.is_more_than(self.allowed)),
        }
    }

    /// The same, at once.
    fn walk(&mut self, holders: Option<Holders<'_>>) -> bool {
        let (begun, before) = (Instant::now(), self.now);
        // Before the walk: what comes meanwhile is seen by the next.
        let filled = resource::space_used(self.directory.as_fd()).unwrap_or(self.filled);
        let most = self.count().since(filled.0, filled.1);
        self.filled = filled;
        let Some(now) = self.look() else {
            let hidden = self.now.hidden;
            self.now = Contents { hidden, ..most };
            self.walked(begun);
            return false;
        };
        self.now = now;
        let nameless = holders.as_ref().map_or(0, Holders::nameless_bytes);
        self.now.bytes += nameless;
        let is_over = self.filled.0 > self.filled_max;
        let is_passed = is_over || (self.now.is_more_than(self.allowed) && !self.is_excused(nameless));
        if !self.now.is_more_than(self.allowed) {
            self.excused = None;
        }
        let is_at_work = holders.is_none_or(|holders| self.is_at_work(before, holders.work()));
        self.walked(begun);
        is_passed && is_at_work
    }

    fn walked(&mut self, begun: Instant) {
        self.walked = Instant::now();
        self.walk_took = begun.elapsed();
        self.next = self.walked + LOOK_MIN;
    }

    /// Others may share the directory: that it is full is this tree's doing if it has written since the last look, or
    /// is at work while the directory grows again and again.
    fn is_at_work(&mut self, before: Contents, work: Work) -> bool {
        let last = std::mem::replace(&mut self.work, work);
        let has_written = last.written.is_some() && work.written > last.written;
        let is_full = self.filled.0 > self.filled_max || self.now.is_more_than(self.allowed);
        let is_growing = is_full && self.now.is_more_than(before);
        self.strikes += u8::from(is_growing && (work.is_running || work.processor > last.processor));
        has_written || self.strikes >= STRIKES_MAX
    }

    /// The same for the end of a run, which leaves nothing to be stopped: a look only where it tells more than is
    /// known. Is a limit passed that is the run's own.
    pub(crate) fn end(&mut self) -> bool {
        self.deadline = Instant::now() + TIME_MAX;
        if self.quota == Quota::Growth {
            return self.walk(None);
        }
        let filled = resource::space_used(self.directory.as_fd()).unwrap_or(self.filled);
        let most = self.count().since(filled.0, filled.1);
        let is_far = most.bytes <= self.allowed.bytes / 2 && most.entries <= self.allowed.entries / 2;
        if self.now.entries > FEW_ENTRIES && is_far {
            let hidden = self.now.hidden;
            self.now = Contents { hidden, ..most };
            self.filled = filled;
        } else {
            self.walk(None);
        }
        false
    }

    pub(crate) fn count(&self) -> Count {
        let filled = self.filled;
        Count {
            filled,
            ..self.now.count()
        }
    }

    /// What the server writes lies there twice until it is whole: while it does, up to twice the limit is borne, for a
    /// while. It may have ended since the look: then another, during which it waits, decides.
    fn is_excused(&mut self, nameless: u64) -> bool {
        let Some(writing) = &self.writing else {
            return false;
        };
        match writing.try_lock_shared() {
            Ok(()) => {
                let looked = self.look();
                // Closing it unlocks it, too; a failure leaves the server waiting until then.
                drop(writing.unlock());
                let Some(now) = looked else { return true };
                self.now = now;
                self.now.bytes += nameless;
                !self.now.is_more_than(self.allowed)
            }
            Err(TryLockError::WouldBlock) => {
                let since = *self.excused.get_or_insert_with(Instant::now);
                since.elapsed() < EXCUSED_MAX && !self.now.is_more_than(self.allowed.twice())
            }
            Err(TryLockError::Error(_)) => false,
        }
    }

    /// What counts as this run's at the last look.
    pub(crate) fn bytes(&self) -> u64 {
        match self.quota {
            Quota::Total => self.now.bytes,
            Quota::Growth => self.now.bytes.saturating_sub(self.before.bytes),
        }
    }
}

/// What happens to a directory that its owner has closed to themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unlistable {
    /// It hides something.
    Counted,
    /// It is ours, and opened again.
    Opened,
}

fn late(_: Contents) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Everything below a directory, no link followed, no mount crossed, and deeper than any path goes. Error: what was
/// counted until the deadline.
fn usage(directory: BorrowedFd<'_>, unlistable: Unlistable, deadline: Instant) -> Result<Contents, Contents> {
    let mut usage = Contents::default();
    let mut levels = Vec::new();
    match Level::open(directory, Path::new("."), unlistable) {
        Ok(top) => levels.push(usage.level(top, deadline)),
        Err(_) => usage.hidden += 1,
    }
    while let Some(level) = levels.last_mut() {
        if Instant::now() >= deadline {
            return Err(usage);
        }
        let Some((name, identity)) = level.below.pop() else {
            let left = levels.pop();
            if let (Some(left), Some(above)) = (left, levels.last_mut()) {
                above.open_again(left);
            }
            continue;
        };
        let Some(open) = level.open.as_ref().filter(|_| usage.entries < ENTRIES_MAX) else {
            usage.hidden += 1;
            level.below.clear();
            continue;
        };
        match Level::open(open.as_fd(), &name, unlistable) {
            Ok(below) => {
                if levels.len() >= LEVELS_OPEN_MAX
                    && let Some(level) = levels.last_mut()
                {
                    level.open = None;
                }
                let below = usage.level(below, deadline);
                levels.push(Level { identity, ..below });
            }
            // One that has gone meanwhile has nothing in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => usage.hidden += 1,
        }
    }
    Ok(usage)
}

impl Contents {
    /// Counts what lies in a directory, and names the directories in it.
    fn level(&mut self, directory: OwnedFd, deadline: Instant) -> Level {
        let left = usize::try_from(ENTRIES_MAX.saturating_sub(self.entries)).unwrap_or(0);
        let (entries, more) = file::list(directory.as_fd(), left, deadline).unwrap_or((Vec::new(), true));
        self.hidden += u64::from(more);
        self.entries += entries.len() as u64;
        let bytes = entries.iter().map(|entry| ENTRY_BYTES + entry.allocated);
        self.bytes += bytes.sum::<u64>();
        let directories = entries.into_iter().filter(|entry| entry.kind == Kind::Directory);
        Level {
            below: directories.map(|entry| (entry.name, entry.identity)).collect(),
            open: Some(directory),
            identity: (0, 0),
        }
    }
}

struct Level {
    /// None: it is opened again from the one below, for there are too many.
    open: Option<OwnedFd>,
    identity: (u64, u64),
    /// Directories in it that are still to be looked at.
    below: Vec<(PathBuf, (u64, u64))>,
}

impl Level {
    fn open(above: BorrowedFd<'_>, name: &Path, unlistable: Unlistable) -> io::Result<OwnedFd> {
        match file::open_listing_beneath(above, name) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && unlistable == Unlistable::Opened =>
            {
                file::open_up_beneath(above, name)?;
                file::open_listing_beneath(above, name)
            }
            opened => opened,
        }
    }

    /// From one that was in it. When that has been moved meanwhile, the rest of this one stays hidden.
    fn open_again(&mut self, left: Self) {
        if self.open.is_some() {
            return;
        }
        let above = |left: OwnedFd| file::open_listing(left.as_fd(), Path::new("..")).ok();
        let above = left.open.and_then(above).map(File::from);
        let is_this = |above: &File| {
            let metadata = above.metadata();
            metadata.is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity)
        };
        self.open = above.filter(is_this).map(OwnedFd::from);
    }
}

impl<'a> Holders<'a> {
    /// The processes of a sandbox, by its own `/proc` or, where it has none, by the host's.
    pub(crate) fn of(proc: &'a OwnedFd, tier: Tier) -> Option<Self> {
        let pids = tree::processes(proc, tier);
        Some(Self { proc, pids })
    }

    fn processor_time(&self) -> Duration {
        let (user, system) = sample::cpu(self.proc, &self.pids);
        user + system
    }

    fn work(&self) -> Work {
        let written = self.pids.iter().map(|pid| {
            let text = file::read_small(self.proc.as_fd(), &pid.join("io"), IO_BYTES_MAX).ok()?;
            // proc_pid_io(5); of children that were waited for, too.
            number(&text, "write_bytes: ")
        });
        Work {
            written: written.flatten().reduce(|sum, bytes| sum + bytes),
            processor: self.processor_time(),
            is_running: sample::is_running(self.proc, &self.pids),
        }
    }

    /// Files that were deleted while somebody held them open or had them mapped: no walk finds them.
    fn nameless_bytes(&self) -> u64 {
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for pid in &self.pids {
            let Ok(listing) = file::open_listing(self.proc.as_fd(), &pid.join("fd")) else {
                continue;
            };
            for name in file::list_names(listing.as_fd(), DESCRIPTORS_MAX).unwrap_or_default() {
                if let Ok(held) = file::behind(listing.as_fd(), &name)
                    && held.kind == Kind::File
                    && held.links == 0
                    && seen.insert(held.identity.1)
                {
                    bytes += held.allocated;
                }
            }
            let maps = file::read_small(self.proc.as_fd(), &pid.join("maps"), MAPS_BYTES_MAX);
            bytes += sample::deleted_mappings(&maps.unwrap_or_default(), &mut seen);
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
