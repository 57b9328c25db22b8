//! What a field has to look like to be of a type. One look at each byte, and nothing allocated.

use super::dates;

/// The types that a column can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    String,
    Integer,
    Float,
    Boolean,
    Date,
    Datetime,
    Email,
    Url,
    Uuid,
}

impl ColumnType {
    /// As they are asked for.
    pub(super) const WORDS: [&str; 9] = [
        "string", "integer", "float", "boolean", "date", "datetime", "email", "url", "uuid",
    ];

    /// Also by the names of Python and JSON Schema.
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "string" | "str" => Self::String,
            "integer" | "int" => Self::Integer,
            "float" | "number" => Self::Float,
            "boolean" | "bool" => Self::Boolean,
            "date" => Self::Date,
            "datetime" => Self::Datetime,
            "email" => Self::Email,
            "url" => Self::Url,
            "uuid" => Self::Uuid,
            _ => return None,
        })
    }

    /// What a field of it should be.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::String => "a text",
            Self::Integer => "an integer, as -12",
            Self::Float => "a number, as -1.5 or 2e10",
            Self::Boolean => "true, false, yes, no, 1 or 0",
            Self::Date => "a date, as 2024-02-29",
            Self::Datetime => "a date and time, as 2024-02-29T12:30:00Z",
            Self::Email => "an email address, as name@example.com",
            Self::Url => "a URL with http, https or ftp, as https://example.com/a",
            Self::Uuid => "a UUID, as 0190b1c2-7a4e-7cc3-8f00-1d2e3f405060",
        }
    }

    /// Spaces around it are no part of it.
    pub(super) fn is_trimmed(self) -> bool {
        self != Self::String
    }

    pub(super) fn fits(self, field: &[u8]) -> bool {
        match self {
            Self::String => true,
            Self::Integer => is_integer(field),
            Self::Float => is_float(field),
            Self::Boolean => is_boolean(field),
            Self::Date => dates::date(field).is_some(),
            Self::Datetime => dates::datetime(field).is_some(),
            Self::Email => is_email(field),
            Self::Url => is_url(field),
            Self::Uuid => is_uuid(field),
        }
    }
}

/// A sign, and digits: as many as there are.
fn is_integer(field: &[u8]) -> bool {
    let digits = field
        .strip_prefix(b"+")
        .or(field.strip_prefix(b"-"))
        .unwrap_or(field);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A sign, digits with a point before, between or after them, and an exponent. Neither infinite nor no number; nor one
/// that no double holds.
fn is_float(field: &[u8]) -> bool {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    field.iter().all(is_part) && double(field).is_some()
}

/// The double of a number, if there is one.
pub(super) fn double(field: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(field).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

fn is_boolean(field: &[u8]) -> bool {
    match field {
        [b'0' | b'1'] => true,
        _ => ["true", "false", "yes", "no"]
            .iter()
            .any(|word| field.eq_ignore_ascii_case(word.as_bytes())),
    }
}

fn is_uuid(field: &[u8]) -> bool {
    field.len() == 36
        && field.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

const EMAIL_BYTES_MAX: usize = 254;
const LOCAL_BYTES_MAX: usize = 64;

/// What mail is sent to in practice: a name of letters, digits, dots and a few marks, and a host with a dot. No quotes,
/// no comments, no literal addresses. Letters of all scripts.
fn is_email(field: &[u8]) -> bool {
    if field.len() > EMAIL_BYTES_MAX {
        return false;
    }
    let Some(at) = field.iter().position(|byte| *byte == b'@') else {
        return false;
    };
    let local = field.get(..at).unwrap_or_default();
    let host = field.get(at + 1..).unwrap_or_default();
    let is_part = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| in_local(*byte));
    local.len() <= LOCAL_BYTES_MAX
        && local.split(|byte| *byte == b'.').all(is_part)
        && host.contains(&b'.')
        && is_host(host)
}

fn in_local(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"!#$%&'*+/=?^_`{|}~-".contains(&byte)
}

const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Labels with dots between them.
fn is_host(host: &[u8]) -> bool {
    host.len() <= HOST_BYTES_MAX && host.split(|byte| *byte == b'.').all(is_label)
}

fn is_label(label: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || matches!(byte, b'-' | b'_');
    !label.is_empty()
        && label.len() <= LABEL_BYTES_MAX
        && label.first() != Some(&b'-')
        && label.last() != Some(&b'-')
        && label.iter().all(is_part)
}

/// With a scheme of the web, and a host: a name, or an address in brackets.
fn is_url(field: &[u8]) -> bool {
    let schemes: [&[u8]; 3] = [b"https://", b"http://", b"ftp://"];
    let after = |scheme: &&[u8]| {
        let (start, rest) = field.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let Some(rest) = schemes.iter().find_map(after) else {
        return false;
    };
    if rest
        .iter()
        .any(|byte| byte.is_ascii_control() || b" \"<>\\^`{|}".contains(byte))
    {
        return false;
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let authority = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let user_end = authority.iter().rposition(|byte| *byte == b'@');
    is_host_and_port(
        authority
            .get(user_end.map_or(0, |at| at + 1)..)
            .unwrap_or_default(),
    )
}

fn is_host_and_port(text: &[u8]) -> bool {
    let (is_known, port) = match text {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else {
                return false;
            };
            let address = rest.get(..end).unwrap_or_default();
            let address = std::str::from_utf8(address)
                .ok()
                .and_then(|text| text.parse().ok());
            let is_address = address.is_some_and(|_: std::net::Ipv6Addr| true);
            (is_address, rest.get(end + 1..).unwrap_or_default())
        }
        text => {
            let end = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
            let host = text.get(..end).unwrap_or_default();
            (
                is_host(host.strip_suffix(b".").unwrap_or(host)),
                text.get(end..).unwrap_or_default(),
            )
        }
    };
    is_known && is_port(port)
}

fn is_port(text: &[u8]) -> bool {
    match text {
        [] | [b':'] => true,
        [b':', number @ ..] => {
            let number = std::str::from_utf8(number)
                .ok()
                .filter(|text| !text.starts_with('+'));
            number.is_some_and(|text| text.parse::<u16>().is_ok())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: ColumnType, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(kind.fits(text.as_bytes()), "{kind:?} {text}");
        }
        for text in bad {
            assert!(!kind.fits(text.as_bytes()), "{kind:?} {text}");
        }
    }

    #[test]
    fn every_word_has_its_kind() {
        let kinds = ColumnType::WORDS.map(|word| ColumnType::of(word).unwrap());
        for (word, kind) in ColumnType::WORDS.iter().zip(kinds) {
            assert_eq!(format!("{kind:?}").to_lowercase(), *word);
        }
        let others = ["str", "int", "number", "bool"].map(|word| ColumnType::of(word).unwrap());
        assert_eq!(others, kinds[..4]);
        assert_eq!(ColumnType::of("text"), None);
    }

    #[test]
    fn numbers() {
        let long = "9".repeat(50);
        check(
            ColumnType::Integer,
            &["0", "-1", "+1", "007", &long],
            &["", "-", "1.0", "1e3", "0x1", "1_000", "1,000", "١", " 1", "--1"],
        );
        let (tiny, huge) = (format!("0.{}1", "0".repeat(400)), "9".repeat(400));
        check(
            ColumnType::Float,
            &["0", "-1.5", "+.5", "5.", "1e10", "1E-3", "1.5e+300", &tiny],
            &[
                "", ".", "-", "e5", "1e", "1e400", "inf", "nan", "NaN", "Infinity", "1.2.3", "1,5", "0x1p3",
                &huge,
            ],
        );
    }

    #[test]
    fn booleans() {
        check(
            ColumnType::Boolean,
            &["true", "FALSE", "Yes", "no", "1", "0"],
            &["", "t", "on", "2", "truee", "ja"],
        );
    }

    #[test]
    fn uuids() {
        let good = "0190b1c2-7a4e-7CC3-8f00-1d2e3f405060";
        let spaced = good.replace('-', " ");
        let plain = good.replace('-', "");
        let braced = format!("{{{good}}}");
        let foreign = good.replace('a', "g");
        check(
            ColumnType::Uuid,
            &[good],
            &["", &spaced, &plain, &braced, &foreign, &good[..35]],
        );
    }

    #[test]
    fn email_addresses() {
        let long = format!("{}@example.com", "a".repeat(65));
        check(
            ColumnType::Email,
            &[
                "a@b.co",
                "first.last+tag@sub.example.com",
                "o'neil@example.org",
                "ä@münchen.de",
                "a_b-c@x-y.io",
            ],
            &[
                "",
                "a",
                "@b.co",
                "a@",
                "a@b",
                "a b@c.de",
                "a..b@c.de",
                ".a@b.co",
                "a.@b.co",
                "a@b..co",
                "a@-b.co",
                "a@b.co.",
                "a@@b.co",
                "a@b@c.co",
                "\"a b\"@c.de",
                "a@[1.2.3.4]",
                "<a@b.co>",
                &long,
            ],
        );
    }

    #[test]
    fn urls() {
        check(
            ColumnType::Url,
            &[
                "http://example.com",
                "HTTPS://example.com/a?b=c#d",
                "ftp://user:pw@host:21/x",
                "http://localhost:8080",
                "http://[::1]:80/",
                "http://1.2.3.4",
                "https://münchen.de/straße",
                "http://example.com.",
                "http://a?b",
            ],
            &[
                "",
                "example.com",
                "http:/a",
                "http://",
                "http:///a",
                "file:///etc/passwd",
                "javascript:alert(1)",
                "http://a b",
                "http://a:b",
                "http://a:99999",
                "http://a:+1",
                "http://[::g]",
                "http://[::1",
                "http://.a",
                "http://a..b",
                "mailto:a@b.c",
                "http://a/\n",
                "http://-a",
            ],
        );
    }
}
