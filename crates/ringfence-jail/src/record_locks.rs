//! Record locks (`F_SETLK`, fcntl(2)): kernel memory that no cgroup counts, in a list that each close of the file
//! walks, the host's too. The kernel has no limit for them, so the supervisor counts them in `/proc/[pid]/fdinfo`.

use crate::sample;
use ringfence_sys::file;
use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Maximum locks of a sandbox. A program that locks databases has some dozens.
const LOCKS_MAX: usize = 4096;
/// Between two counts, if there were no more than before, and if there were; the first is made after the shorter one.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL_OF_MORE: Duration = Duration::from_millis(100);
/// A count begins at the earliest this many times its duration after the last one.
const PAUSE_FACTOR: u32 = 4;
const DESCRIPTORS_MAX: usize = 100_000;
/// A longer list has more locks than the maximum.
const LIST_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct RecordLocks {
    count: usize,
    next: Option<Instant>,
}

impl RecordLocks {
    /// Returns true if the processes hold more than they may; counts only if a count is due.
    pub(crate) fn are_too_many(&mut self, proc: &OwnedFd, pids: impl FnOnce() -> Vec<PathBuf>) -> bool {
        let begun = Instant::now();
        if begun < *self.next.get_or_insert(begun + INTERVAL_OF_MORE) {
            return false;
        }
        let count = count(proc, &pids());
        let has_grown = count > std::mem::replace(&mut self.count, count);
        let interval = if has_grown { INTERVAL_OF_MORE } else { INTERVAL };
        self.next = Some(Instant::now() + interval.max(PAUSE_FACTOR * begun.elapsed()));
        count > LOCKS_MAX
    }
}

/// Counts the locks of processes, at least until there are more than the maximum.
fn count(proc: &OwnedFd, pids: &[PathBuf]) -> usize {
    let mut count = 0;
    for (task, _) in pids.iter().filter_map(|pid| sample::living_task(proc, pid)) {
        // An error means that it has ended, or does not show its descriptors.
        let Ok(listing) = file::open_listing(proc.as_fd(), &task.join("fdinfo")) else {
            continue;
        };
        for name in file::list_names(listing.as_fd(), DESCRIPTORS_MAX).unwrap_or_default() {
            let list = file::read_small(listing.as_fd(), &name, LIST_BYTES_MAX).unwrap_or_default();
            let is_lock = |line: &&str| line.starts_with("lock:") && line.contains(" POSIX ");
            count += list.lines().filter(is_lock).count();
            if count > LOCKS_MAX {
                return count;
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Read,
        process::{Command, Stdio},
    };

    const CODE: &str = "
import fcntl, sys, tempfile
file = tempfile.TemporaryFile()
for number in range(int(sys.argv[1])): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * number)
print(flush=True)
input()";

    /// claim: [RES-12]
    #[test]
    fn locks_of_a_process_are_counted() {
        let proc = file::open_directory(file::current_directory(), std::path::Path::new("/proc")).unwrap();
        for made in [0, LOCKS_MAX, LOCKS_MAX + 9] {
            #[expect(clippy::disallowed_methods, reason = "a process that holds locks")]
            let mut holder = Command::new("python3");
            let holder = holder.args(["-c", CODE, &made.to_string()]);
            let mut holder = holder
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let pids = vec![PathBuf::from(holder.id().to_string())];
            let counted = count(&proc, &pids);
            let mut locks = RecordLocks::default();
            assert!(!locks.are_too_many(&proc, || panic!("no count is due")));
            locks.next = Some(Instant::now());
            let are_too_many = locks.are_too_many(&proc, || pids);
            let until_next = locks.next.unwrap().saturating_duration_since(Instant::now());
            holder.kill().unwrap();
            holder.wait().unwrap();
            assert_eq!(counted, made);
            assert_eq!(are_too_many, made > LOCKS_MAX, "{made}");
            assert_eq!(until_next > INTERVAL_OF_MORE, made == 0, "{made}: {until_next:?}");
        }
    }
}
