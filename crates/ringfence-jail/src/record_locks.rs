//! Record locks (`F_SETLK`, fcntl(2)): kernel memory that no cgroup counts, in a list that each close of the file
//! walks, the host's too. The kernel has no limit for them, so the supervisor counts them in `/proc/[pid]/fdinfo`.

use crate::sample;
use ringfence_sys::{file, resource};
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
/// Processor time of a count, which stops there: a sandbox is over the limit if its list takes longer to read.
const CPU_TIME_MAX: Duration = Duration::from_secs(1);
const DESCRIPTORS_MAX: usize = 100_000;
/// A longer list has more locks than the maximum.
const LIST_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct RecordLocks {
    count: usize,
    next: Option<Instant>,
}

impl RecordLocks {
    /// Returns true if the processes hold more than they may; counts only if a count is due. At the deadline of the run
    /// a count ends without a result.
    pub(crate) fn are_too_many(
        &mut self,
        proc: &OwnedFd,
        deadline: Instant,
        pids: impl FnOnce() -> Vec<PathBuf>,
    ) -> bool {
        let begun = Instant::now();
        if begun < *self.next.get_or_insert(begun + INTERVAL_OF_MORE) {
            return false;
        }
        let count = count(proc, deadline, &pids());
        let has_grown = count > std::mem::replace(&mut self.count, count);
        let interval = if has_grown { INTERVAL_OF_MORE } else { INTERVAL };
        self.next = Some(Instant::now() + interval);
        count > LOCKS_MAX
    }
}

/// Counts the locks of processes, at least until there are more than the maximum.
fn count(proc: &OwnedFd, deadline: Instant, pids: &[PathBuf]) -> usize {
    let (mut count, begun) = (0, resource::own_processor_time());
    for (task, _) in pids.iter().filter_map(|pid| sample::living_task(proc, pid)) {
        // An error means that it has ended, or does not show its descriptors.
        let Ok(listing) = file::open_listing(proc.as_fd(), &task.join("fdinfo")) else {
            continue;
        };
        for name in file::list_names(listing.as_fd(), DESCRIPTORS_MAX).unwrap_or_default() {
            if Instant::now() >= deadline {
                return count;
            }
            if resource::own_processor_time().saturating_sub(begun) > CPU_TIME_MAX {
                return usize::MAX;
            }
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

    fn proc() -> OwnedFd {
        file::open_directory(file::current_directory(), std::path::Path::new("/proc")).unwrap()
    }

    /// Runs a Python program that prints a line once it holds what is to be counted.
    fn with_holder<T>(arguments: &[&str], look: impl FnOnce(Vec<PathBuf>) -> T) -> T {
        #[expect(clippy::disallowed_methods, reason = "a process that holds locks")]
        let mut holder = Command::new("python3");
        let holder = holder.arg("-c").args(arguments);
        let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let seen = look(vec![PathBuf::from(holder.id().to_string())]);
        holder.kill().unwrap();
        holder.wait().unwrap();
        seen
    }

    /// claim: [RES-12]
    #[test]
    fn locks_of_a_process_are_counted() {
        const CODE: &str = "
import fcntl, sys, tempfile
file = tempfile.TemporaryFile()
for number in range(int(sys.argv[1])): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * number)
print(flush=True)
input()";
        let proc = proc();
        for made in [0, LOCKS_MAX, LOCKS_MAX + 9] {
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut locks = RecordLocks::default();
            let (counted, late, are_too_many) = with_holder(&[CODE, &made.to_string()], |pids| {
                let counted = count(&proc, deadline, &pids);
                let late = count(&proc, Instant::now(), &pids);
                assert!(!locks.are_too_many(&proc, deadline, || panic!("no count is due")));
                locks.next = Some(Instant::now());
                (counted, late, locks.are_too_many(&proc, deadline, || pids))
            });
            let until_next = locks.next.unwrap().saturating_duration_since(Instant::now());
            assert_eq!((counted, late), (made, 0));
            assert_eq!(are_too_many, made > LOCKS_MAX, "{made}");
            assert_eq!(until_next > INTERVAL_OF_MORE, made == 0, "{made}: {until_next:?}");
        }
    }

    /// The kernel lists each of the files that an epoll descriptor watches, again for each duplicate of the descriptor.
    /// claim: [RES-12]
    #[test]
    fn list_that_takes_too_long_to_read_is_over_the_limit() {
        const CODE: &str = "
import os, resource, select
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)
watched, (end, _) = select.epoll(), os.pipe()
high = os.dup(end)
for number in range(20_000):
    number = os.dup2(end, high + 1 + number % 500)
    watched.register(number, select.EPOLLIN)
    if number == high + 500: end, _ = os.pipe()
for _ in range(400): os.dup(watched.fileno())
print(flush=True)
input()";
        let (counted, spent) = with_holder(&[CODE], |pids| {
            let begun = resource::own_processor_time();
            let counted = count(&proc(), Instant::now() + Duration::from_secs(60), &pids);
            (counted, resource::own_processor_time() - begun)
        });
        assert_eq!(counted, usize::MAX);
        assert!(spent < 2 * CPU_TIME_MAX, "{spent:?}");
    }
}
