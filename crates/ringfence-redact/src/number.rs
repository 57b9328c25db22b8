//! Personal numbers: phones, payment cards, US social security numbers.

use std::ops::Range;

const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// E.164 allows 15; with its country code, no number is shorter than 8.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;

/// Returns the next position where a number may start: a bracket, a plus sign, or a digit not after another digit.
pub(crate) fn next_start(text: &[u8], within: Range<usize>) -> Option<usize> {
    let mut starts = within;
    starts.find(|&at| match text[at] {
        b'+' | b'(' => true,
        b'0'..=b'9' => at == 0 || !text[at - 1].is_ascii_digit(),
        _ => false,
    })
}

/// Returns the end of the longest number that starts here.
pub(crate) fn end(text: &[u8], start: usize) -> Option<usize> {
    if !may_start(text, start) {
        return None;
    }
    let ends = [international_phone, us_phone, card, social_security].map(|shape| shape(text, start));
    ends.into_iter().flatten().max()
}

fn at(text: &[u8], index: usize) -> u8 {
    text.get(index).copied().unwrap_or(0)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// True unless the position is inside a word, a version, an identifier or a longer number.
fn may_start(text: &[u8], start: usize) -> bool {
    let before = |count: usize| start.checked_sub(count).map_or(0, |index| text[index]);
    let joined = matches!(before(1), b'.' | b'-') && is_word(before(2));
    !joined && !is_word(before(1))
}

fn may_end(text: &[u8], end: usize) -> bool {
    let joined = matches!(at(text, end), b'.' | b'-') && at(text, end + 1).is_ascii_digit();
    !joined && !is_word(at(text, end))
}

/// Returns the end of `count` digits, the first of which is not below `first`.
fn digits(text: &[u8], start: usize, count: usize, first: u8) -> Option<usize> {
    let group = text.get(start..start + count)?;
    (group.iter().all(u8::is_ascii_digit) && group[0] >= first).then_some(start + count)
}

fn run(text: &[u8], start: usize) -> usize {
    let rest = text[start.min(text.len())..].iter().take(20);
    rest.take_while(|byte| byte.is_ascii_digit()).count()
}

/// Matches `+`, a country code, then groups separated by spaces, dots, hyphens and brackets.
fn international_phone(text: &[u8], start: usize) -> Option<usize> {
    if at(text, start) != b'+' || !matches!(at(text, start + 1), b'1'..=b'9') {
        return None;
    }
    let (mut end, mut here, mut count) = (None, start + 1, 0);
    loop {
        let len = run(text, here);
        count += len;
        if len == 0 || count > *PHONE_DIGITS.end() {
            return end;
        }
        here += len;
        if count >= *PHONE_DIGITS.start() && !is_word(at(text, here)) {
            end = Some(here);
        }
        // at most `) ` or ` (` or one separator
        here += usize::from(at(text, here) == b')');
        here += usize::from(b" .-".contains(&at(text, here)));
        here += usize::from(at(text, here) == b'(');
    }
}

/// Matches `(NXX) NXX-XXXX`, `NXX-NXX-XXXX`, `NXX.NXX.XXXX`, with or without a `1` before. With only spaces between
/// them and no `1` or bracket, they could be any three numbers.
fn us_phone(text: &[u8], start: usize) -> Option<usize> {
    let separates = |index: usize| b" .-".contains(&at(text, index));
    let long = at(text, start) == b'1' && separates(start + 1);
    let area = start + 2 * usize::from(long);
    let bracket = at(text, area) == b'(';
    let mut here = digits(text, area + usize::from(bracket), 3, b'2')?;
    here += match bracket {
        true if at(text, here) == b')' => 1 + usize::from(separates(here + 1)),
        false if separates(here) => 1,
        _ => return None,
    };
    here = digits(text, here, 3, b'2')?;
    let is_certain = long || bracket || at(text, here) != b' ';
    if !separates(here) || !is_certain {
        return None;
    }
    digits(text, here + 1, 4, b'0').filter(|&end| may_end(text, end))
}

/// Matches 13 to 19 digits in one piece or in groups of four to six, in an issuer's range and with a valid Luhn sum.
fn card(text: &[u8], start: usize) -> Option<usize> {
    let mut number = [0_u8; 19];
    let (mut end, mut here, mut count) = (None, start, 0);
    let mut separator = 0;
    loop {
        let len = run(text, here);
        if len == 0 || count + len > *CARD_DIGITS.end() {
            return end;
        }
        number[count..count + len].copy_from_slice(&text[here..here + len]);
        (here, count) = (here + len, count + len);
        let number = &number[..count];
        if CARD_DIGITS.contains(&count) && may_end(text, here) && is_issued(number) && luhn(number) {
            end = Some(here);
        }
        let next = at(text, here);
        if !(4..=6).contains(&len) || !matches!(next, b' ' | b'-') || (separator != 0 && next != separator) {
            return end;
        }
        separator = next;
        here += 1;
    }
}

/// True for the ranges of the large card networks, which exclude milliseconds since 1970 and rows of years.
fn is_issued(number: &[u8]) -> bool {
    let digits = number[..4].iter();
    let first = digits.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    matches!(first, 2221..=2720 | 3000..=3099 | 3400..=3999 | 4000..=6999)
}

fn luhn(number: &[u8]) -> bool {
    let digits = number.iter().rev().enumerate();
    let values = digits.map(|(place, digit)| u32::from(digit - b'0') << (place % 2));
    let sum: u32 = values.map(|value| value / 10 + value % 10).sum();
    sum.is_multiple_of(10)
}

/// Matches `ddd-dd-dddd`, without the ranges that are never assigned.
fn social_security(text: &[u8], start: usize) -> Option<usize> {
    let area = digits(text, start, 3, b'0')?;
    let group = digits(text, area + 1, 2, b'0')?;
    let end = digits(text, group + 1, 4, b'0')?;
    let hyphens = text[area] == b'-' && text[group] == b'-';
    let is_assigned = !matches!(&text[start..area], b"000" | b"666") && text[start] != b'9';
    let whole = &text[area + 1..group] != b"00" && &text[group + 1..end] != b"0000";
    (hyphens && is_assigned && whole && may_end(text, end)).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let (mut at, mut finds) = (0, Vec::new());
        while let Some(start) = next_start(text.as_bytes(), at..text.len()) {
            at = start + 1;
            if let Some(end) = end(text.as_bytes(), start) {
                finds.push(&text[start..end]);
                at = end;
            }
        }
        finds
    }

    #[test]
    fn personal_numbers_are_found() {
        for number in [
            "+49 30 901820",
            "+4930901820",
            "+1 (415) 555-2671",
            "+44 (0)20 7946 0958",
            "(415) 555-2671",
            "(415)555-2671",
            "415-555-2671",
            "415.555.2671",
            "1-800-555-2671",
            "1 415 555 2671",
            "4111111111111111",
            "4111 1111 1111 1111",
            "4111-1111-1111-1111",
            "3782 822463 10005",
            "5500000000000004",
            "6011000990139424",
            "4222222222222",
            "123-45-6789",
        ] {
            for text in [
                number.to_owned(),
                format!("x={number}."),
                format!("call {number}, now"),
                format!("({number})"),
            ] {
                assert_eq!(found(&text), [number], "{text}");
            }
        }
    }

    #[test]
    fn other_numbers_are_kept() {
        for text in [
            "2024-01-15T10:00:00+0100",
            "2024-01-15 10:00:00,123",
            "192.168.100.200",
            "1.2.3-4",
            "1700000000000",
            "1700000000000000000",
            "1234567890",
            "2020 2021 2022 2023",
            "640 480 1024",
            "10 20 30 40 50 60 70 80",
            "4111111111111112",
            "41111111111111111111111",
            "x4111111111111111",
            "0.4111111111111111",
            "000-45-6789",
            "666-45-6789",
            "900-45-6789",
            "123-00-6789",
            "123-45-0000",
            "123-45-67890",
            "1123-45-6789",
            "550e8400-e29b-41d4-a716-446655440000",
            "1.0.0+20240115",
            "a + 12345678",
            "x+12345678",
            "+12 apples",
            "$1,234,567.89",
        ] {
            assert_eq!(found(text), Vec::<&str>::new(), "{text}");
        }
    }
}
