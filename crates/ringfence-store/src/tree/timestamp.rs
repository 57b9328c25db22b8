//! The times of a file.

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};
use serde::{Deserialize, Serialize};

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64, pub u32);

impl Timestamp {
    /// Of the last change of content, which a program can set.
    pub(crate) fn of_content(stat: &Stat) -> Self {
        Self(stat.st_mtime, nanoseconds(stat.st_mtime_nsec))
    }

    /// Of the last change of content or attributes, which a program cannot set.
    pub(crate) fn of_change(stat: &Stat) -> Self {
        Self(stat.st_ctime, nanoseconds(stat.st_ctime_nsec))
    }

    /// For futimens(2): the last change of content; the last access is left.
    pub(crate) fn to_set(self) -> Timestamps {
        Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: self.0,
                tv_nsec: self.1.into(),
            },
        }
    }
}

/// The kernel gives less than a second.
fn nanoseconds(part: impl TryInto<u32>) -> u32 {
    part.try_into().unwrap_or(0)
}
