//! The deadlines of one run: at the soft one the program gets SIGTERM, and a grace period later it is killed.

use crate::Claim;
use std::time::{Duration, Instant};

pub(crate) struct Deadline {
    soft: Instant,
    hard: Instant,
    is_due: bool,
}

pub(crate) enum Passed {
    Nothing,
    Terminate,
    Kill,
}

impl Deadline {
    pub(crate) fn new(claim: &Claim) -> Self {
        let soft = Instant::now() + Duration::from_millis(claim.limits.timeout_ms);
        Self {
            soft,
            hard: soft + Duration::from_millis(claim.grace_ms),
            is_due: false,
        }
    }

    pub(crate) fn passed(&mut self, now: Instant) -> Passed {
        if now >= self.hard {
            Passed::Kill
        } else if now >= self.soft && !self.is_due {
            self.is_due = true;
            Passed::Terminate
        } else {
            Passed::Nothing
        }
    }

    pub(crate) fn next(&self) -> Instant {
        if self.is_due { self.hard } else { self.soft }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }
}
