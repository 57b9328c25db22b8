//! Rate limit of requests to a host, at about the pace at which a person clicks.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Interval of requests to a host after the burst.
const PAUSE: Duration = Duration::from_millis(250);
/// Requests to a host that may be made at once.
const BURST: u32 = 8;
/// Maximum of remembered hosts.
const HOSTS_MAX: usize = 1024;

/// Maximum wait for a turn; a later one is not reserved.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// End of the last reserved interval for each owner and host.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<String, Instant>>);

impl Pace {
    /// Waits for this owner's turn with this host. False: it is too far away.
    pub(crate) async fn wait(&self, owner: &str, host: &str, until: Instant) -> bool {
        let now = Instant::now();
        let turn = self.turn(owner, host, now);
        match turn {
            Some(turn) if turn <= until => {
                sleep_until(turn).await;
                true
            }
            _ => false,
        }
    }

    /// Reserves the next request and returns its time. Hosts of an owner beyond the maximum share one pace. `None`: the
    /// turn is too far away, or there is no room.
    fn turn(&self, owner: &str, host: &str, now: Instant) -> Option<Instant> {
        let mut key = format!("{owner} {host}");
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, reserved| *reserved > now);
        }
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(&key) {
            key.truncate(owner.len() + 1);
            if hosts.len() >= 2 * HOSTS_MAX && !hosts.contains_key(&key) {
                return None;
            }
        }
        let reserved = hosts.get(&key).copied().unwrap_or(now).max(now) + PAUSE;
        // A burst may run ahead of the interval.
        let turn = reserved.checked_sub(PAUSE * BURST).map_or(now, |at| at.max(now));
        if turn > now + WAIT_MAX {
            return None;
        }
        hosts.insert(key, reserved);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_host_has_its_own_burst_and_pace() {
        let (pace, now) = (Pace::default(), Instant::now());
        let turn = |host: &str, at: Instant| pace.turn("caller", host, at);
        for _ in 0..BURST {
            assert_eq!(turn("a.test", now), Some(now));
        }
        assert_eq!(turn("a.test", now), Some(now + PAUSE));
        assert_eq!(turn("a.test", now), Some(now + 2 * PAUSE));
        assert_eq!(turn("b.test", now), Some(now));
        let later = now + PAUSE * 100;
        assert_eq!(turn("a.test", later), Some(later));
        while turn("c.test", now).is_some() {}
        assert_eq!(turn("c.test", now + PAUSE), Some(now + PAUSE + WAIT_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn caller_of_too_many_hosts_slows_only_itself() {
        let (pace, now) = (Pace::default(), Instant::now());
        for number in 0..HOSTS_MAX {
            assert_eq!(pace.turn("flood", &format!("{number}.test"), now), Some(now));
        }
        for number in 0..BURST {
            assert_eq!(pace.turn("flood", &format!("more-{number}.test"), now), Some(now));
        }
        assert_eq!(pace.turn("flood", "last.test", now), Some(now + PAUSE));
        assert_eq!(pace.turn("other", "last.test", now), Some(now));
        for number in 0..2 * HOSTS_MAX {
            pace.turn(&format!("caller-{number}"), "a.test", now);
        }
        assert!(pace.0.lock().unwrap().len() <= 2 * HOSTS_MAX);
    }
}
