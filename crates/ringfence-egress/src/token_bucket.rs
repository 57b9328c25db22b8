//! A rate limit: a token bucket that the clock refills. A program may send requests at any rate; only so many are
//! answered and reported.

use std::time::{Duration, Instant};

/// Allows `burst` at once, and `per_second` after that.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    left: f64,
    burst: f64,
    per_second: f64,
    last: Instant,
}

impl TokenBucket {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let burst = f64::from(burst);
        Self {
            left: burst,
            burst,
            per_second: f64::from(per_second),
            last: Instant::now(),
        }
    }

    pub(crate) fn allows(&mut self) -> bool {
        let now = Instant::now();
        let passed = now
            .saturating_duration_since(self.last)
            .min(Duration::from_secs(3600));
        self.last = now;
        self.left = (self.left + passed.as_secs_f64() * self.per_second).min(self.burst);
        let allowed = self.left >= 1.0;
        if allowed {
            self.left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_allowed_and_then_only_the_rate() {
        let mut rate_limit = TokenBucket::new(3, 1000);
        assert!((0..3).all(|_| rate_limit.allows()));
        let mut slow = TokenBucket::new(2, 0);
        assert!(slow.allows() && slow.allows() && !slow.allows());
        std::thread::sleep(Duration::from_millis(20));
        assert!(rate_limit.allows(), "time fills it again");
        assert!(!slow.allows());
    }
}
