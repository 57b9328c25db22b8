//! The deadline of one run: first the program is asked to end, and after a grace period it is killed.

use crate::Claim;
use std::time::{Duration, Instant};

pub(crate) struct Deadline {
    polite: Instant,
    last: Instant,
    asked: bool,
}

pub(crate) enum Passed {
    Nothing,
    Polite,
    Final,
}

impl Deadline {
    pub(crate) fn new(claim: &Claim) -> Self {
        let polite = Instant::now() + Duration::from_millis(claim.limits.timeout_ms);
        Self {
            polite,
            last: polite + Duration::from_millis(claim.grace_ms),
            asked: false,
        }
    }

    pub(crate) fn passed(&mut self, now: Instant) -> Passed {
        if now >= self.last {
            Passed::Final
        } else if now >= self.polite && !self.asked {
            self.asked = true;
            Passed::Polite
        } else {
            Passed::Nothing
        }
    }

    pub(crate) fn next(&self) -> Instant {
        if self.asked { self.last } else { self.polite }
    }

    pub(crate) fn began(&self) -> bool {
        self.asked
    }
}
