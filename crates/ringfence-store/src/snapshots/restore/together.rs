//! Bringing a few files and directories to the disk at the same time: a file system that keeps a journal then writes
//! it once or twice, and not once for each of them.

use rustix::io::Errno;
use std::{
    os::fd::{AsFd, OwnedFd},
    thread,
};

/// Each waits for the disk and does nothing else.
const THREADS_MAX: usize = 16;

/// Everything is on the disk when this returns without an error.
pub(super) fn sync(opened: &[OwnedFd]) -> rustix::io::Result<()> {
    let share = opened.len().div_ceil(THREADS_MAX).max(1);
    thread::scope(|scope| {
        let each = |share: &[OwnedFd]| share.iter().try_for_each(|one| rustix::fs::fsync(one.as_fd()));
        let mut results = Vec::new();
        for share in opened.chunks(share) {
            // No thread to be had is no reason to fail.
            match thread::Builder::new().spawn_scoped(scope, move || each(share)) {
                Ok(begun) => results.push(begun),
                Err(_) => each(share)?,
            }
        }
        let mut joined = results.into_iter().map(|begun| begun.join());
        joined.try_for_each(|result| result.unwrap_or(Err(Errno::IO)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn one_that_cannot_be_brought_to_the_disk_is_told() {
        let good = || OwnedFd::from(tempfile());
        let bad = || OwnedFd::from(std::io::pipe().unwrap().0);
        let check = |opened: Vec<OwnedFd>, expect| assert_eq!(sync(&opened).is_ok(), expect, "{opened:?}");
        check(Vec::new(), true);
        check((0..40).map(|_| good()).collect(), true);
        check(
            (0..40).map(|n| if n == 39 { bad() } else { good() }).collect(),
            false,
        );
    }

    fn tempfile() -> File {
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        rustix::fs::open(
            std::env::temp_dir(),
            flags,
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .unwrap()
        .into()
    }
}
