//! Dates and times of ISO 8601 and RFC 3339, as points in time.

use jiff::{
    SignedDuration,
    civil::{DateTime, Time},
    fmt::temporal::{DateTimeParser, PiecesOffset},
    tz::Offset,
};

/// A point in time in UTC; a time without a zone is taken as UTC.
pub(super) type Moment = DateTime;

static PARSER: DateTimeParser = DateTimeParser::new();

/// Parses a date such as `2024-02-29`, if it is in the calendar.
pub(super) fn date(text: &[u8]) -> Option<Moment> {
    let day = is_day(text).then(|| PARSER.parse_date(text).ok())??;
    Some(day.to_datetime(Time::midnight()))
}

fn is_day(text: &[u8]) -> bool {
    matches!(text, [_, _, _, _, b'-', _, _, b'-', _, _])
}

/// Parses a date, `T` or a space, and a time: hours and minutes, optionally seconds, a fraction of them, and a zone.
pub(super) fn datetime(text: &[u8]) -> Option<Moment> {
    let (day, clock) = text.split_at_checked(10)?;
    let is_clock = matches!(clock, [b'T' | b't' | b' ', _, _, b':', _, _, ..]) && !clock.contains(&b'[');
    (is_day(day) && is_clock).then(|| moment(text)).flatten()
}

fn moment(text: &[u8]) -> Option<Moment> {
    let pieces = PARSER.parse_pieces(text).ok()?;
    let offset = match pieces.offset() {
        Some(PiecesOffset::Numeric(offset)) => offset.offset(),
        _ => Offset::UTC,
    };
    let is_zone = offset.seconds().abs() < 86_400 && offset.seconds() % 60 == 0;
    let time = pieces.time().unwrap_or(Time::midnight());
    let at = pieces.date().to_datetime(time);
    is_zone.then(|| at.saturating_sub(SignedDuration::from_secs(offset.seconds().into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(moment: Moment) -> i64 {
        let from = DateTime::constant(1970, 1, 1, 0, 0, 0, moment.subsec_nanosecond());
        moment.duration_since(from).as_secs()
    }

    #[test]
    fn only_calendar_dates_are_accepted() {
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(
                date(text.as_bytes()).map(|moment| seconds(moment).div_euclid(86_400)),
                expect,
                "{text}"
            );
        };
        check("1970-01-01", Some(0));
        check("1969-12-31", Some(-1));
        check("2000-02-29", Some(11_016));
        check("2024-02-29", Some(19_782));
        check("2024-12-31", Some(20_088));
        check("0000-02-29", Some(-719_469));
        check("9999-12-31", Some(2_932_896));
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-04-31",
            "2024-01-00",
            "2024-01-32",
            "2024-1-1",
            "24-01-01",
            "2024/01/01",
            "20240101",
            "2024-01-01 ",
            "2024-01-0a",
            "",
            "-024-01-01",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn datetimes_are_parsed_to_utc() {
        let check = |text: &str, expect: Option<(i64, i32)>| {
            let parsed = datetime(text.as_bytes());
            let parsed = parsed.map(|moment| (seconds(moment), moment.subsec_nanosecond()));
            assert_eq!(parsed, expect, "{text}");
        };
        check("1970-01-01T00:00:00Z", Some((0, 0)));
        check("1970-01-01 00:00", Some((0, 0)));
        check("1970-01-01T01:00:00+01:00", Some((0, 0)));
        check("1969-12-31t23:30:00-0030", Some((0, 0)));
        check("1970-01-01T05:00:00+05", Some((0, 0)));
        check("1970-01-01T00:00:01.5z", Some((1, 500_000_000)));
        check("1970-01-01T00:00:01.123456789Z", Some((1, 123_456_789)));
        // A leap second counts as the second before it.
        check("1998-12-31T23:59:60Z", Some((915_148_799, 0)));
        for text in [
            "1970-01-01",
            "1970-01-01T",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:61Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+1",
            "1970-01-01T00:00:00 Z",
            "1970-01-01T00",
            "1970-02-30T00:00:00Z",
            "1970-01-01x00:00:00Z",
            "1970-01-01T00:00:0Z",
            "1970-01-01T00:00:00ZZ",
            "",
            "ä970-01-01T00:00:00Z",
        ] {
            check(text, None);
        }
    }
}
