//! Places at which a test lets the process die.

/// In a test with `RINGFENCE_TEST_STEPS=n`, the n-th call ends the process as a crash would.
#[cfg(test)]
pub(super) fn reached() {
    #![expect(clippy::disallowed_methods, reason = "a test tells its child when to die")]
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::atomic::{AtomicU64, Ordering};
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let Some(last) = std::env::var("RINGFENCE_TEST_STEPS").ok() else {
        return;
    };
    if REACHED.fetch_add(1, Ordering::Relaxed) == last.parse::<u64>().unwrap() {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

#[cfg(not(test))]
pub(super) fn reached() {}
