//! Points in time as users write them: RFC 3339, a date, or a time before now (`15m`, `2h`, `7d`).

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the Unix microseconds of `2026-01-31T12:00:00Z`, of `2026-01-31` (UTC), or of a duration before now.
pub(crate) fn read(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let refused = || {
        let shown: String = text.chars().take(64).collect();
        format!(
            "`{shown}` is not a time; write 2026-01-31T12:00:00Z, 2026-01-31, or a duration before now such as 15m, 2h or 7d"
        )
    };
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_microsecond());
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| refused())?;
        return Ok(midnight.timestamp().as_microsecond());
    }
    let ago = length(text).ok_or_else(refused)?;
    let then = Timestamp::now().checked_sub(ago).map_err(|_| refused())?;
    Ok(then.as_microsecond())
}

/// Reads a duration: `90` (seconds), `90s`, `15m`, `2h`, `7d`.
pub(crate) fn length(text: &str) -> Option<SignedDuration> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return None,
    };
    let number: i64 = digits.parse().ok()?;
    Some(SignedDuration::from_secs(number.checked_mul(seconds)?))
}

/// Converts seconds to milliseconds. None: less than a millisecond, or more than `most`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be between 0 and what fits by far"
)]
pub(crate) fn milliseconds(seconds: f64, most: f64) -> Option<u64> {
    const LEAST: f64 = 0.001;
    (seconds >= LEAST && seconds <= most).then(|| (seconds * 1000.0).round() as u64)
}

/// Like [`milliseconds`], but 0 is allowed.
pub(crate) fn milliseconds_or_zero(seconds: f64, most: f64) -> Option<u64> {
    match seconds == 0.0 {
        true => Some(0),
        false => milliseconds(seconds, most),
    }
}

/// Returns milliseconds, to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "no call takes centuries")]
pub(crate) fn in_milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Maximum of the time after which a call is detached, in seconds.
pub(crate) const DETACH_SECONDS_MAX: f64 = 86_400.0;

/// RFC 3339, to the millisecond.
pub(crate) fn write(unix_us: i64) -> String {
    match Timestamp::from_millisecond(unix_us.div_euclid(1000)) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => format!("{unix_us} us"),
    }
}

pub(crate) fn write_milliseconds(unix_ms: u64) -> String {
    write(i64::try_from(unix_ms).unwrap_or(i64::MAX).saturating_mul(1000))
}

pub(crate) fn now_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Formats a duration in its largest unit, rounded down.
pub(crate) fn span(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// RFC 3339, to the second.
pub(crate) fn write_seconds(unix_s: u64) -> String {
    let time = i64::try_from(unix_s)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{unix_s} s"), |time| time.to_string())
}

pub(crate) fn seconds_left(until_unix_ms: u64) -> u64 {
    until_unix_ms.saturating_sub(now_milliseconds()) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_each_form_and_others_are_refused() {
        assert_eq!(read("1970-01-01T00:00:01Z"), Ok(1_000_000));
        assert_eq!(read("1970-01-02"), Ok(86_400_000_000));
        assert_eq!(read("1970-01-01T01:00:00+01:00"), Ok(0));
        let (now, before) = (read("0s").unwrap(), read("2h").unwrap());
        assert!((7_199_000_000..7_201_000_000).contains(&(now - before)));
        for text in [
            "",
            "yesterday",
            "5y",
            "-1h",
            "1.5h",
            "99999999999999999999d",
            "9223372036854775807d",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_are_written_as_rfc_3339() {
        assert_eq!(write(1_500_000), "1970-01-01T00:00:01.500Z");
        assert_eq!(write_seconds(86_400), "1970-01-02T00:00:00Z");
        assert_eq!(write(i64::MAX), format!("{} us", i64::MAX));
    }
}
