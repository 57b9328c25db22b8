//! The clock for retention. Removal by age is final, so a clock that jumps removes nothing: the last accepted time is
//! stored on disk, and a time more than a day away from it is accepted only after the clock has run on from there for a
//! day. A pause of more than a day is treated the same way, because the two cannot be told apart.

use crate::whole_file::{Directory, IfExists};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The largest accepted distance from the last time seen.
const STEP_MS: u64 = 24 * 60 * 60 * 1000;
/// A clock further than this from the time it jumped to has not run on from there, but jumped again.
const STABLE_MS_MAX: u64 = 14 * STEP_MS;
const WRITE_MS: u64 = 60 * 1000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ClockState {
    /// The last time accepted for retention, since 1970.
    seen_ms: u64,
    jumped_ms: Option<u64>,
}

impl ClockState {
    fn settled(seen_ms: u64) -> Self {
        let jumped_ms = None;
        Self { seen_ms, jumped_ms }
    }

    /// Returns true if `now` is accepted, and the new state.
    fn after(self, now_ms: u64) -> (bool, Self) {
        let settled = Self::settled(now_ms);
        let since_jump = self.jumped_ms.and_then(|jumped| now_ms.checked_sub(jumped));
        match since_jump {
            _ if now_ms.abs_diff(self.seen_ms) <= STEP_MS => (true, settled),
            Some(0..STEP_MS) => (false, self),
            Some(STEP_MS..=STABLE_MS_MAX) => (true, settled),
            _ => {
                let jumped_ms = Some(now_ms);
                (false, Self { jumped_ms, ..self })
            }
        }
    }
}

/// `None` after a clock jump, or if the time cannot be stored: the store of this path then removes nothing for its age.
pub(crate) fn for_retention(store: &Path, now: SystemTime) -> Option<SystemTime> {
    let file = &store.with_file_name("clock.json");
    let now_ms = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let now_ms = u64::try_from(now_ms.as_millis()).unwrap_or(u64::MAX);
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return write(file, ClockState::settled(now_ms)).then_some(now);
        }
        text => text.unwrap_or_default(),
    };
    // A file that cannot be read, after a loss of power, counts as a jump.
    let seen = serde_json::from_str::<ClockState>(&text).unwrap_or_default();
    let (counts, after) = seen.after(now_ms);
    let is_new = seen.jumped_ms != after.jumped_ms;
    if !counts && is_new {
        tracing::warn!(
            seen_ms = seen.seen_ms,
            now_ms,
            "the clock has jumped by more than a day, or no server ran; nothing is removed for its age for a day"
        );
    }
    let is_known = !is_new && seen.seen_ms.abs_diff(after.seen_ms) < WRITE_MS;
    let written = is_known || write(file, after);
    (counts && written).then_some(now)
}

fn write(file: &Path, seen: ClockState) -> bool {
    let text = serde_json::to_string(&seen).unwrap_or_default();
    let written = Directory::of_file(file)
        .and_then(|(directory, name)| directory.write_unsynced(&name, text.as_bytes(), IfExists::Replace));
    if let Err(error) = &written {
        tracing::warn!(%error, "the time for retention cannot be stored; nothing is removed for its age");
    }
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = STEP_MS;

    #[test]
    fn jumped_clock_is_accepted_after_running_on_for_a_day() {
        let begun = ClockState {
            seen_ms: 100 * DAY,
            jumped_ms: None,
        };
        // Times of the clock, in days; true if accepted.
        let check = |times: &[(f64, bool)]| {
            let mut seen = begun;
            for (days, expect) in times {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a few days"
                )]
                let now = (days * 24.0 * 60.0) as u64 * 60_000;
                let (counts, after) = seen.after(now);
                assert_eq!(counts, *expect, "{times:?} at {days}");
                seen = after;
            }
        };
        check(&[(100.5, true), (101.4, true), (102.0, true)]);
        // ahead, then corrected
        check(&[(500.0, false), (500.9, false), (100.1, true), (100.2, true)]);
        // ahead permanently
        check(&[(130.0, false), (130.5, false), (131.0, true), (131.1, true)]);
        // back, then running on from there
        check(&[(3.0, false), (3.5, false), (4.0, true)]);
        // from one wrong time to another
        check(&[
            (500.0, false),
            (90.0, false),
            (90.5, false),
            (500.1, false),
            (501.2, true),
        ]);
    }

    #[test]
    fn last_time_seen_is_stored_on_disk() {
        let directory = crate::tests::TestDir::new();
        let file = directory.join("audit.db");
        let at = |days: u64| UNIX_EPOCH + Duration::from_millis(days * DAY);
        assert_eq!(for_retention(&file, at(100)), Some(at(100)));
        assert_eq!(for_retention(&file, at(400)), None);
        assert_eq!(for_retention(&file, at(100)), Some(at(100)));
        assert_eq!(for_retention(&file, at(101)), Some(at(101)));
        for damaged in ["", "{"] {
            fs::write(directory.join("clock.json"), damaged).unwrap();
            assert_eq!(for_retention(&file, at(400)), None);
            assert_eq!(for_retention(&file, at(101)), None);
            assert_eq!(for_retention(&file, at(102)), Some(at(102)));
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(for_retention(&file, at(101)), None);
    }
}
