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
/// Maximum of remembered hosts. An owner has no more than what it leaves free: one alone gets half.
const HOSTS_MAX: usize = 2048;

/// Maximum wait for a turn; a later one is not reserved.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// End of the last reserved interval for each owner and host.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<String, Instant>>);

impl Pace {
    /// Waits for this owner's turn with this host. False: it is too far away.
    pub(crate) async fn wait(&self, owner: &str, host: &str, until: Instant) -> bool {
        let now = Instant::now();
        let Some(turn) = self.turn(owner, host, now, until.min(now + WAIT_MAX)) else {
            return false;
        };
        sleep_until(turn).await;
        true
    }

    /// Reserves the next request until `latest` and returns its time. Hosts of an owner beyond its share have one pace.
    /// `None`: the turn is too far away, or there is no room.
    fn turn(&self, owner: &str, host: &str, now: Instant, latest: Instant) -> Option<Instant> {
        let mut key = format!("{owner} {host}");
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS_MAX / 2 && !hosts.contains_key(&key) {
            hosts.retain(|_, reserved| *reserved > now);
            let shared = &key[..=owner.len()];
            let own = hosts.keys().filter(|key| key.starts_with(shared)).count();
            if own + hosts.len() >= HOSTS_MAX {
                key.truncate(owner.len() + 1);
            }
            if hosts.len() >= 2 * HOSTS_MAX && !hosts.contains_key(&key) {
                return None;
            }
        }
        let reserved = hosts.get(&key).copied().unwrap_or(now).max(now) + PAUSE;
        // A burst may run ahead of the interval.
        let turn = reserved.checked_sub(PAUSE * BURST).map_or(now, |at| at.max(now));
        if turn > latest {
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
        let turn = |host: &str, at: Instant| pace.turn("caller", host, at, at + WAIT_MAX);
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
        let turn = |owner: &str, host: &str| pace.turn(owner, host, now, now + WAIT_MAX);
        for number in 0..HOSTS_MAX / 2 {
            assert_eq!(turn("flood", &format!("{number}.test")), Some(now));
        }
        for number in 0..BURST {
            assert_eq!(turn("flood", &format!("more-{number}.test")), Some(now));
        }
        assert_eq!(turn("flood", "last.test"), Some(now + PAUSE));
        assert_eq!(turn("flood", "0.test"), Some(now), "its own pace");
        for number in 0..100 {
            assert_eq!(turn("other", &format!("{number}.test")), Some(now), "{number}");
        }
        for number in 0..2 * HOSTS_MAX {
            turn(&format!("caller-{number}"), "a.test");
        }
        assert!(pace.0.lock().unwrap().len() <= 2 * HOSTS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_request_reserves_nothing() {
        let (pace, now) = (Pace::default(), Instant::now());
        for _ in 0..BURST {
            assert!(pace.wait("caller", "a.test", now).await);
        }
        for _ in 0..100 {
            assert!(!pace.wait("caller", "a.test", now).await);
        }
        assert!(pace.wait("caller", "a.test", now + PAUSE).await);
    }
}
