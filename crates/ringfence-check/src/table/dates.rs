//! Calendar dates and times of ISO 8601 and RFC 3339, as points on one line.

/// Seconds since 1970-01-01T00:00:00Z, and nanoseconds. A time without a zone is taken as UTC.
pub(super) type Moment = (i64, u32);

/// `2024-02-29`, if that day is in the calendar.
pub(super) fn date(text: &[u8]) -> Option<Moment> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else {
        return None;
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let in_calendar = (1..=12).contains(&month) && day >= 1 && day <= days_of(year, month);
    in_calendar.then(|| (days_before(year, month, day) * DAY, 0))
}

/// A date, `T` or a space, and a time: hours and minutes, perhaps seconds, a fraction of them, and a zone.
pub(super) fn datetime(text: &[u8]) -> Option<Moment> {
    let (day, rest) = text.split_at_checked(10)?;
    let (start, _) = date(day)?;
    let (b'T' | b't' | b' ', clock) = rest.split_first().map(|(first, rest)| (*first, rest))? else {
        return None;
    };
    let &[h1, h2, b':', m1, m2, ref rest @ ..] = clock else {
        return None;
    };
    let (hour, minute) = (two(h1, h2)?, two(m1, m2)?);
    let (second, nanos, rest) = seconds(rest)?;
    let offset = zone(rest)?;
    // A leap second is the last of its minute.
    let is_time = hour <= 23 && minute <= 59 && second <= 60;
    is_time.then(|| (start + hour * 3600 + minute * 60 + second - offset, nanos))
}

/// Of a time from after its minutes: seconds, nanoseconds, and what is left.
fn seconds(text: &[u8]) -> Option<(i64, u32, &[u8])> {
    let &[b':', s1, s2, ref rest @ ..] = text else {
        return Some((0, 0, text));
    };
    let second = two(s1, s2)?;
    let Some((b'.' | b',', fraction)) = rest.split_first() else {
        return Some((second, 0, rest));
    };
    let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let (digits, rest) = fraction.split_at_checked(digits)?;
    let places = digits.iter().chain(std::iter::repeat(&b'0')).take(9);
    let nanos = places.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    Some((second, nanos, rest))
}

/// Seconds east of UTC.
fn zone(text: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match text {
        [] | [b'Z' | b'z'] => return Some(0),
        &[sign @ (b'+' | b'-'), h1, h2] => (sign, two(h1, h2)?, 0),
        &[sign @ (b'+' | b'-'), h1, h2, m1, m2] | &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            (sign, two(h1, h2)?, two(m1, m2)?)
        }
        _ => return None,
    };
    let offset = hours * 3600 + minutes * 60;
    (hours <= 23 && minutes <= 59).then_some(if sign == b'-' { -offset } else { offset })
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
    is_number.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

const DAY: i64 = 86_400;

fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01. The year begins in March, so that the leap day is its last.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * months + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_one_of_the_calendar() {
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(
                date(text.as_bytes()).map(|(seconds, _)| seconds / DAY),
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
    fn every_day_is_one_after_the_day_before() {
        let mut expected = days_before(1600, 1, 1);
        for year in 1600..2400 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    assert_eq!(days_before(year, month, day), expected, "{year}-{month}-{day}");
                    expected += 1;
                }
            }
        }
    }

    #[test]
    fn a_time_is_a_moment() {
        let check =
            |text: &str, expect: Option<Moment>| assert_eq!(datetime(text.as_bytes()), expect, "{text}");
        check("1970-01-01T00:00:00Z", Some((0, 0)));
        check("1970-01-01 00:00", Some((0, 0)));
        check("1970-01-01T01:00:00+01:00", Some((0, 0)));
        check("1969-12-31t23:30:00-0030", Some((0, 0)));
        check("1970-01-01T05:00:00+05", Some((0, 0)));
        check("1970-01-01T00:00:01.5z", Some((1, 500_000_000)));
        check("1970-01-01T00:00:01.1234567891Z", Some((1, 123_456_789)));
        check("1998-12-31T23:59:60Z", Some((915_148_800, 0)));
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
