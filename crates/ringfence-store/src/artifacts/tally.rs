//! How much the store holds, by the last count and what was added since, and whether it is time to sweep.

use super::layout::{Count, disk_bytes};
use std::time::{Duration, SystemTime};

/// What may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// An execution older than this is removed, unless the clock has jumped lately.
    pub age: Duration,
    /// More than this is removed, oldest executions first. Counted in whole blocks of 4 KiB, manifests too.
    pub bytes: u64,
}

/// Between two sweeps.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// A sweep for size pays off after this part of the size.
const SLACK: u64 = 16;

#[derive(Debug)]
pub(super) struct Tally {
    retention: Retention,
    /// No sweep has followed it yet.
    retention_is_new: bool,
    last: Option<Count>,
    added: u64,
}

impl Tally {
    pub(super) fn new(retention: Retention, last: Option<Count>) -> Self {
        Self {
            retention,
            retention_is_new: true,
            last,
            added: 0,
        }
    }

    /// One more file.
    pub(super) fn add(&mut self, size_bytes: u64) {
        self.added = self.added.saturating_add(disk_bytes(size_bytes));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.last
            .map_or(0, |count| count.bytes)
            .saturating_add(self.added)
    }

    pub(super) fn retention(&self) -> Retention {
        self.retention
    }

    pub(super) fn set_retention(&mut self, retention: Retention) {
        self.retention = retention;
        self.retention_is_new = true;
    }

    /// A sweep with this retention counted so much.
    pub(super) fn swept(&mut self, with: Retention, count: Option<Count>) {
        self.retention_is_new &= self.retention != with;
        self.count(count);
    }

    /// What another process counted includes what this one added.
    fn count(&mut self, last: Option<Count>) {
        if self.last != last {
            self.last = last;
            self.added = 0;
        }
    }

    pub(super) fn is_due(&mut self, last: Option<Count>, now: SystemTime) -> bool {
        self.count(last);
        let Some(last) = self.last else { return true };
        let interval = (self.retention.age / 8).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let bytes = self.retention.bytes;
        apart(last.at, now) >= interval
            || (self.retention_is_new && last.bytes > bytes)
            || (self.added > bytes / SLACK && self.bytes() > bytes)
    }
}

/// Either way: a count that is dated ahead of the clock is as old as one dated behind it.
fn apart(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}
