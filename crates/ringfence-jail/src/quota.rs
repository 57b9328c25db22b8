//! The disk limit of a host directory that a program may write. No file system enforces it there, so it is measured
//! from outside: all of it now and then, and at once when the file system below has filled by more than half of what is
//! left. A program writes on while it is being measured; what it has written by then is the window that SECURITY.md
//! names. In a directory that several share, only the programs that write are killed, at twice the limit.

mod holders;

pub(crate) use holders::Holders;

use holders::{Activity, Unlinked};
use ringfence_sys::{
    file::{self, Kind},
    resource,
};
use ringfence_types::Limits;
use serde::{Deserialize, Serialize};
use std::{
    cell::Cell,
    fs::{File, TryLockError},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The meaning of the disk limit for a directory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quota {
    /// Everything in it: Ringfence keeps the directory for programs.
    Total,
    /// Additions during the run: the directory holds a user's work.
    Growth,
    /// Everything in it, which is the run's own: its private disk in the tier `landlock`.
    Own,
}

/// More entries than this are not counted again while the file system below shows that the limit is far away.
const FEW_ENTRIES: u64 = 256;
/// After so many walks that find the directory full and growing while the tree is at work, the tree is responsible.
const STRIKES_MAX: u8 = 2;
/// The longest interval between two walks of the whole directory, while anything happens.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The same, while the file system stays as full as it was and the tree has used no processor time.
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// A walk begins at the earliest this many times its duration after the last one.
const WALK_PAUSE_FACTOR: u32 = 5;
/// The interval between two checks of how full the file system is, which cost nothing.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(5);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Speed at which a file system takes bytes (2 GB/s).
const FILL_BYTES_PER_MS: u64 = 2_000_000;
/// Maximum files that one walk counts.
const ENTRIES_MAX: u64 = 1 << 20;
/// Maximum duration of a walk, and of the one before a run.
const WALK_TIME_MAX: Duration = Duration::from_secs(30);
const FIRST_WALK_TIME_MAX: Duration = Duration::from_secs(60);
/// The cost of a directory entry, beside the bytes of its file.
const ENTRY_BYTES: u64 = 1 << 10;
/// Directories inside each other that are open at once.
const LEVELS_OPEN_MAX: usize = 64;
/// Entries that a walk counts between two looks for an order of the server.
const ENTRIES_PER_LOOK: u32 = 256;
/// Time for which a write of the server excuses an excess; after that the excess counts as the program's.
const EXCUSED_MAX: Duration = Duration::from_secs(60);

pub fn files_max(disk_bytes: u64) -> u64 {
    (disk_bytes / 4096).clamp(4096, 1 << 20)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) bytes: u64,
    entries: u64,
    /// Directories that could not be listed, or were left out over the maximum.
    hidden: u64,
}

impl Contents {
    fn is_more_than(self, allowed: Self) -> bool {
        self.bytes > allowed.bytes || self.entries > allowed.entries || self.hidden > allowed.hidden
    }

    fn plus(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            entries: self.entries.saturating_add(more.entries),
            hidden: self.hidden.saturating_add(more.hidden),
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

/// The content of a workspace when it was counted, and how full the file system was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    bytes: u64,
    entries: u64,
    filled: (u64, u64),
}

/// Earlier knowledge of a workspace and of its file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub count: Option<Count>,
    /// Maximum bytes in use on the file system, by anyone; over it the programs that write are killed.
    pub filled_max: Option<u64>,
}

impl Count {
    /// Counts a directory. Errors: `TimedOut`, and those of the file system.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let until = Until::deadline(Instant::now() + FIRST_WALK_TIME_MAX);
        let filled = resource::space_used(directory)?;
        let found = usage(directory, Unlistable::Counted, until).map_err(timed_out)?;
        let count = found.count();
        Ok(Self { filled, ..count })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns an upper bound of the bytes when the file system is as full as this.
    pub fn bytes_at_most(self, space: Space) -> u64 {
        self.since(space.used, self.filled.1).bytes
    }

    /// Returns an upper bound of the content by now, as long as nothing else has made room.
    fn since(self, bytes: u64, entries: u64) -> Contents {
        Contents {
            bytes: self.bytes.saturating_add(bytes.saturating_sub(self.filled.0)),
            entries: self.entries.saturating_add(entries.saturating_sub(self.filled.1)),
            hidden: 0,
        }
    }
}

/// The usage of a file system, in bytes.
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

pub(crate) struct Watch {
    directory: OwnedFd,
    quota: Quota,
    limit: Contents,
    before: Contents,
    allowed: Contents,
    now: Contents,
    /// Bytes and files in use on the whole file system, when the directory was walked last.
    filled: (u64, u64),
    /// Bytes in use there, and counted here, when all files of the tree were seen last.
    filled_before: u64,
    bytes_before: u64,
    /// Processor time that the tree had used by then, if that is known.
    used: Option<Duration>,
    activity: Activity,
    strikes: u8,
    filled_max: u64,
    walked_at: Instant,
    walk_took: Duration,
    /// The last check of whether the tree is idle.
    activity_checked_at: Instant,
    /// The file that the server locks while it writes there, if it does.
    writing: Option<File>,
    /// Since when that has excused an excess.
    excused_since: Option<Instant>,
    next: Instant,
    deadline: Instant,
    orders: Option<Box<dyn Fn() -> Pending>>,
    /// The last walk was cut off; interrupts do not cut off the next one, too.
    was_cut: Cell<bool>,
    bytes_passed: u64,
}

impl Watch {
    pub(crate) fn begin(
        directory: &OwnedFd,
        quota: Quota,
        limits: &Limits,
        writing: Option<&Path>,
        known: Known,
    ) -> io::Result<Self> {
        // A run that only cleans up may begin in a directory that is too full, up to twice the limit; if more were
        // allowed, each run could add its excess.
        let begun = Instant::now();
        let until = Until::deadline(begun + FIRST_WALK_TIME_MAX);
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
                    None => usage(directory.as_fd(), Unlistable::Opened, until).map_err(timed_out)?,
                };
                (before, limit.plus(limit))
            }
            Quota::Growth => {
                let before = usage(directory.as_fd(), Unlistable::Counted, until).map_err(timed_out)?;
                (before, before.plus(limit))
            }
            Quota::Own => (Contents::default(), limit),
        };
        let now = Instant::now();
        let filled = resource::space_used(directory.as_fd())?;
        Ok(Self {
            directory: directory.try_clone()?,
            quota,
            limit,
            before,
            allowed,
            now: before,
            filled,
            filled_before: filled.0,
            bytes_before: before.bytes,
            used: None,
            activity: Activity::default(),
            strikes: 0,
            filled_max: known.filled_max.unwrap_or(u64::MAX),
            walked_at: now,
            activity_checked_at: now,
            writing: writing.map(File::open).transpose()?,
            excused_since: None,
            walk_took: begun.elapsed(),
            next: now + CHECK_INTERVAL_MIN,
            deadline: now + WALK_TIME_MAX,
            orders: None,
            was_cut: Cell::new(false),
            bytes_passed: 0,
        })
    }

    /// Lets walks end at an order of the server.
    pub(crate) fn heeding(self, orders: Box<dyn Fn() -> Pending>) -> Self {
        let orders = Some(orders);
        Self { orders, ..self }
    }

    /// True if a run may begin: the directory holds no more than it may at the end of the run.
    pub(crate) fn has_room(&self) -> bool {
        !self.before.is_more_than(self.allowed)
    }

    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Returns true if the limit is passed; checks only if a check is due. A walk ends at the run's own deadline: a
    /// program may have left so much to count that the walk would outlast it.
    pub(crate) fn is_passed<'a>(
        &mut self,
        deadline: Instant,
        holders: impl FnOnce() -> Option<Holders<'a>>,
    ) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.deadline = deadline.min(now + WALK_TIME_MAX);
        let (bytes, files) = resource::space_used(self.directory.as_fd()).unwrap_or(self.filled);
        let came = bytes.saturating_sub(self.filled.0);
        let room = self.allowed.bytes.saturating_sub(self.now.bytes);
        let room_for_files = self.allowed.entries.saturating_sub(self.now.entries);
        let is_filling = bytes > self.filled_max
            || came > room / 2
            || files.saturating_sub(self.filled.1) > room_for_files / 2;
        let since = now.duration_since(self.walked_at);
        let rested = since > self.walk_took * WALK_PAUSE_FACTOR;
        if rested && (is_filling || now.duration_since(self.activity_checked_at) > PAUSE_MAX) {
            self.activity_checked_at = now;
            let holders = holders();
            let used = holders.as_ref().map(Holders::processor_time);
            let is_idle = (bytes, files) == self.filled && used.is_some() && used == self.used;
            let most = if is_idle { IDLE_PAUSE_MAX } else { PAUSE_MAX };
            if is_filling || since > most {
                self.used = used;
                let is_passed = self.walk(holders);
                self.bytes_passed = if is_passed { self.bytes() } else { 0 };
                return is_passed;
            }
        }
        let left = Duration::from_millis(room.saturating_sub(came) / FILL_BYTES_PER_MS);
        self.next = now + left.clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
        false
    }

    fn until(&self) -> Until<'_> {
        Until {
            orders: self.orders.as_deref(),
            heeds_interrupts: !self.was_cut.get(),
            ..Until::deadline(self.deadline)
        }
    }

    /// Counts the directory now. `None` if the walk was cut off, and its count by then is no more than is allowed.
    fn count_now(&self) -> Option<Contents> {
        let hidden = self.now.hidden;
        let unlistable = match self.quota {
            Quota::Own => Unlistable::Opened,
            Quota::Total | Quota::Growth => Unlistable::Counted,
        };
        let counted = usage(self.directory.as_fd(), unlistable, self.until());
        self.was_cut.set(counted.is_err());
        match counted {
            Ok(now) => Some(now),
            Err(cut) => Some(Contents { hidden, ..cut }).filter(|cut| cut.is_more_than(self.allowed)),
        }
    }

    /// Walks the directory at once; otherwise as [`Self::is_passed`].
    fn walk(&mut self, holders: Option<Holders<'_>>) -> bool {
        let (begun, before) = (Instant::now(), self.now);
        // Read before the walk: the next one sees what is added meanwhile.
        let filled = resource::space_used(self.directory.as_fd()).unwrap_or(self.filled);
        let most = self.count().since(filled.0, filled.1);
        self.filled = filled;
        let heeds_interrupts = !self.was_cut.get();
        let Some(now) = self.count_now() else {
            let hidden = self.now.hidden;
            self.now = Contents { hidden, ..most };
            self.finish_walk(begun);
            return false;
        };
        self.now = now;
        let mut until = Until {
            heeds_interrupts,
            ..self.until()
        };
        // A count that was cut off is over the limit without them.
        let counted = holders.as_ref().filter(|_| !self.was_cut.get());
        let found = counted.map(|holders| holders.unlinked(self.directory.as_fd(), &mut until));
        let Unlinked { bytes, is_hidden, .. } = found.unwrap_or_default();
        self.was_cut.set(self.was_cut.get() || until.is_over);
        self.now.bytes += bytes;
        // Of a process that hides its files, as far as the file system has filled by more than what was found.
        let filled = self.filled.0 + self.bytes_before;
        let hidden = filled.saturating_sub(self.filled_before + self.now.bytes);
        let hidden = if is_hidden { hidden } else { 0 };
        self.now.bytes += hidden;
        if holders.is_some() && !is_hidden && !self.was_cut.get() {
            (self.filled_before, self.bytes_before) = (self.filled.0, self.now.bytes);
        }
        let unlinked = bytes + hidden;
        let is_over = self.filled.0 > self.filled_max;
        let is_passed = is_over || (self.now.is_more_than(self.allowed) && !self.is_excused(unlinked));
        if !self.now.is_more_than(self.allowed) {
            self.excused_since = None;
        }
        let is_responsible = holders.is_none_or(|holders| {
            let activity = holders.activity();
            self.is_responsible(
                before,
                Activity {
                    is_hidden,
                    ..activity
                },
            )
        });
        self.finish_walk(begun);
        is_passed && is_responsible
    }

    fn finish_walk(&mut self, begun: Instant) {
        self.walked_at = Instant::now();
        self.walk_took = begun.elapsed();
        self.next = self.walked_at + CHECK_INTERVAL_MIN;
    }

    /// True if a full directory, which others may share, is this tree's doing: it has written since the last walk, is
    /// at work and hides files, or is at work while the directory grows again and again.
    fn is_responsible(&mut self, before: Contents, activity: Activity) -> bool {
        let last = std::mem::replace(&mut self.activity, activity);
        let has_written = last.written.is_some() && activity.written > last.written;
        let is_full = self.filled.0 > self.filled_max || self.now.is_more_than(self.allowed);
        let is_growing = is_full && self.now.is_more_than(before);
        let is_active = activity.is_running || activity.processor > last.processor;
        self.strikes += u8::from(is_growing && is_active);
        let is_own = self.quota == Quota::Own;
        is_own || has_written || (is_active && activity.is_hidden) || self.strikes >= STRIKES_MAX
    }

    /// Checks at the end of a run, when nothing is left to be stopped: walks only where that adds to what is known.
    /// Returns true if a limit is passed that is the run's own.
    pub(crate) fn end(&mut self) -> bool {
        self.deadline = Instant::now() + WALK_TIME_MAX;
        if self.quota != Quota::Total {
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

    /// Counts the directory for an account. It changes nothing for the checks, which also find files without a name.
    pub(crate) fn account(&mut self) -> u64 {
        self.deadline = Instant::now() + WALK_TIME_MAX;
        self.count_now().map_or_else(|| self.bytes(), |now| now.bytes)
    }

    pub(crate) fn count(&self) -> Count {
        let filled = self.filled;
        Count {
            filled,
            ..self.now.count()
        }
    }

    /// True if a write of the server, whose file exists twice until it is complete, excuses an excess: up to the limit
    /// once more, for `EXCUSED_MAX`. If it has ended since the walk, another walk decides, during which the server
    /// waits.
    fn is_excused(&mut self, unlinked: u64) -> bool {
        let Some(writing) = &self.writing else {
            return false;
        };
        match writing.try_lock_shared() {
            Ok(()) => {
                let counted = self.count_now();
                // Closing it unlocks it, too; after a failure the server waits until then.
                drop(writing.unlock());
                let Some(now) = counted else { return true };
                self.now = now;
                self.now.bytes += unlinked;
                !self.now.is_more_than(self.allowed)
            }
            Err(TryLockError::WouldBlock) => {
                let since = *self.excused_since.get_or_insert_with(Instant::now);
                since.elapsed() < EXCUSED_MAX && !self.now.is_more_than(self.allowed.plus(self.limit))
            }
            Err(TryLockError::Error(_)) => false,
        }
    }

    /// Returns the bytes that count as this run's at the last walk, or when the limit was passed.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self.quota {
            Quota::Total | Quota::Own => self.now.bytes,
            Quota::Growth => self.now.bytes.saturating_sub(self.before.bytes),
        };
        bytes.max(self.bytes_passed)
    }
}

/// The treatment of a directory that its owner has closed to themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unlistable {
    /// It counts as hidden.
    Counted,
    /// It is ours: its owner may list it again, and it is counted.
    Opened,
}

/// The next order of the server.
#[derive(Clone, Copy)]
pub(crate) enum Pending {
    End,
    Interrupt,
    /// None, or one that can wait.
    Other,
}

/// The conditions that cut a walk off.
struct Until<'a> {
    deadline: Instant,
    orders: Option<&'a dyn Fn() -> Pending>,
    heeds_interrupts: bool,
    looks: u32,
    is_over: bool,
}

impl Until<'_> {
    fn deadline(deadline: Instant) -> Self {
        Self {
            deadline,
            orders: None,
            heeds_interrupts: false,
            looks: 0,
            is_over: false,
        }
    }

    /// As [`Self::is_over`], with a look for an order: what follows takes as long as many entries.
    fn is_over_now(&mut self) -> bool {
        self.looks = ENTRIES_PER_LOOK - 1;
        self.is_over()
    }

    fn is_over(&mut self) -> bool {
        self.looks += 1;
        let is_urgent = |orders: &dyn Fn() -> Pending| match orders() {
            Pending::End => true,
            Pending::Interrupt => self.heeds_interrupts,
            Pending::Other => false,
        };
        self.is_over |= Instant::now() >= self.deadline
            || (self.looks.is_multiple_of(ENTRIES_PER_LOOK) && self.orders.is_some_and(is_urgent));
        self.is_over
    }
}

fn timed_out(_: Contents) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Counts all below a directory, however deep; follows no link, crosses no mount. Error: the count when it was cut off.
fn usage(
    directory: BorrowedFd<'_>,
    unlistable: Unlistable,
    mut until: Until<'_>,
) -> Result<Contents, Contents> {
    let mut usage = Contents::default();
    let mut levels = Vec::new();
    match Level::open(directory, Path::new("."), unlistable) {
        Ok(top) => levels.push(usage.level(top, &mut until)),
        Err(_) => usage.hidden += 1,
    }
    while let Some(level) = levels.last_mut() {
        if until.is_over() {
            return Err(usage);
        }
        let Some((name, identity)) = level.below.pop() else {
            let left = levels.pop();
            if let (Some(left), Some(above)) = (left, levels.last_mut()) {
                above.reopen(left);
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
                let below = usage.level(below, &mut until);
                levels.push(Level { identity, ..below });
            }
            // A directory that was removed or replaced meanwhile has nothing in it.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
                ) => {}
            Err(_) => usage.hidden += 1,
        }
    }
    Ok(usage)
}

impl Contents {
    /// Counts the entries of a directory, and lists the directories in it.
    fn level(&mut self, directory: OwnedFd, until: &mut Until<'_>) -> Level {
        let left = usize::try_from(ENTRIES_MAX.saturating_sub(self.entries)).unwrap_or(0);
        let entries = file::list(directory.as_fd(), left, || until.is_over());
        let (entries, more) = entries.unwrap_or((Vec::new(), true));
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
    /// `None` if too many are open: it is opened again from the one below.
    open: Option<OwnedFd>,
    identity: (u64, u64),
    /// Directories in it that are still to be counted.
    below: Vec<(PathBuf, (u64, u64))>,
}

impl Level {
    fn open(above: BorrowedFd<'_>, name: &Path, unlistable: Unlistable) -> io::Result<OwnedFd> {
        match file::open_listing_beneath(above, name) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && unlistable == Unlistable::Opened =>
            {
                file::grant_owner_access_beneath(above, name)?;
                file::open_listing_beneath(above, name)
            }
            opened => opened,
        }
    }

    /// Opens it again from one that was in it. If that one has been moved meanwhile, the rest of this one stays hidden.
    fn reopen(&mut self, left: Self) {
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

#[cfg(test)]
mod tests;
