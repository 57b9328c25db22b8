//! Politeness: a host is not asked faster than a person would click.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Between two requests to one host, once the first few are spent.
const PAUSE: Duration = Duration::from_millis(250);
/// Requests to a host that follow each other at once.
const BURST: u32 = 8;
/// Hosts that are remembered.
const HOSTS_MAX: usize = 1024;

/// A turn that is further away is not waited for, and not taken.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// When each caller may ask each host again.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<String, Instant>>);

impl Pace {
    /// Waits for this caller's turn with this host; false: it is too far away.
    pub(crate) async fn wait(&self, owner: &str, host: &str, until: Instant) -> bool {
        let now = Instant::now();
        let turn = self.turn(&format!("{owner} {host}"), now);
        match turn {
            Some(turn) if turn <= until => {
                sleep_until(turn).await;
                true
            }
            _ => false,
        }
    }

    /// The moment of the next request, which is taken.
    fn turn(&self, key: &str, now: Instant) -> Option<Instant> {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, paid| *paid > now);
        }
        if hosts.len() >= HOSTS_MAX {
            // The number of hosts is no reason to refuse one; it is not slowed down.
            return Some(now);
        }
        let paid = hosts.get(key).copied().unwrap_or(now).max(now) + PAUSE;
        // Up to a burst is paid for later.
        let turn = paid.checked_sub(PAUSE * BURST).map_or(now, |turn| turn.max(now));
        if turn > now + WAIT_MAX {
            return None;
        }
        hosts.insert(key.to_owned(), paid);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_has_a_burst_and_then_a_pace_of_its_own() {
        let (pace, now) = (Pace::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(pace.turn("a.test", now), Some(now));
        }
        assert_eq!(pace.turn("a.test", now), Some(now + PAUSE));
        assert_eq!(pace.turn("a.test", now), Some(now + 2 * PAUSE));
        assert_eq!(pace.turn("b.test", now), Some(now));
        let later = now + PAUSE * 100;
        assert_eq!(pace.turn("a.test", later), Some(later));
        while pace.turn("c.test", now).is_some() {}
        assert_eq!(pace.turn("c.test", now + PAUSE), Some(now + PAUSE + WAIT_MAX));
    }
}
