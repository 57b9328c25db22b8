//! The types of columns, and the syntax of their fields.

use super::dates;
use regex::bytes::Regex;
use std::{net::Ipv6Addr, sync::LazyLock};

#[derive(Debug)]
pub(super) struct ColumnType {
    pub(super) name: &'static str,
    /// The name in Python or JSON Schema.
    alias: &'static str,
    pub(super) expected: &'static str,
    pub(super) fits: fn(&[u8]) -> bool,
    pub(super) measured: Measured,
}

/// The quantity that `min` and `max` bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    Number,
    /// The length in characters.
    Length,
    Moment,
    Nothing,
}

#[rustfmt::skip]
pub(super) static KINDS: [ColumnType; 9] = {
    use Measured::{Length, Moment, Nothing, Number};
    [
        ColumnType { name: "string", alias: "str", expected: "a text", fits: |_| true, measured: Length },
        ColumnType { name: "integer", alias: "int", expected: "an integer, as -12", fits: is_integer, measured: Number },
        ColumnType { name: "float", alias: "number", expected: "a number, as -1.5 or 2e10", fits: is_float, measured: Number },
        ColumnType { name: "boolean", alias: "bool", expected: "true, false, yes, no, 1 or 0", fits: is_boolean,
            measured: Nothing },
        ColumnType { name: "date", alias: "date", expected: "a date, as 2024-02-29",
            fits: |field| dates::date(field).is_some(), measured: Moment },
        ColumnType { name: "datetime", alias: "datetime", expected: "a date and time, as 2024-02-29T12:30:00Z",
            fits: |field| dates::datetime(field).is_some(), measured: Moment },
        ColumnType { name: "email", alias: "email", expected: "an email address, as name@example.com", fits: is_email,
            measured: Length },
        ColumnType { name: "url", alias: "url", expected: "a URL with http, https or ftp, as https://example.com/a",
            fits: is_url, measured: Length },
        ColumnType { name: "uuid", alias: "uuid", expected: "a UUID, as 0190b1c2-7a4e-7cc3-8f00-1d2e3f405060",
            fits: is_uuid, measured: Nothing },
    ]
};

pub(super) fn named(name: &str) -> Option<&'static ColumnType> {
    KINDS.iter().find(|kind| kind.name == name || kind.alias == name)
}

/// True for an optional sign and any number of digits.
fn is_integer(field: &[u8]) -> bool {
    let ([b'+' | b'-', digits @ ..] | digits) = field;
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// True for digits with an optional sign, point (anywhere) and exponent; not `inf`, `nan`, or what overflows a double.
pub(super) fn is_float(field: &[u8]) -> bool {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let text = std::str::from_utf8(field).unwrap_or_default();
    field.iter().all(is_part) && text.parse().is_ok_and(f64::is_finite)
}

fn is_boolean(field: &[u8]) -> bool {
    let is = |word: &&str| field.eq_ignore_ascii_case(word.as_bytes());
    ["true", "false", "yes", "no", "1", "0"].iter().any(is)
}

fn is_uuid(field: &[u8]) -> bool {
    let is_right = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    field.len() == 36 && field.iter().enumerate().all(is_right)
}

/// A label of a host name, in any script.
const LABEL: &str = r"[\w\x80-\xff](?:[\w\x80-\xff-]{0,61}[\w\x80-\xff])?";
const HOST_BYTES_MAX: usize = 253;
const EMAIL_BYTES_MAX: usize = 254;
const LOCAL_BYTES_MAX: usize = 64;

/// Compiles one of this file's own patterns, which are valid.
fn pattern(text: &str) -> Option<Regex> {
    Regex::new(&text.replace("LABEL", LABEL)).ok()
}

/// True for email addresses as used in practice: a local part of letters (of any script), digits, dots and a few
/// marks, and a host with a dot. Quoted local parts, comments and literal IP addresses are not accepted.
fn is_email(field: &[u8]) -> bool {
    static EMAIL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        pattern(
            r"(?-u)^[\w!#$%&'*+/=?^`{|}~\x80-\xff-]+(?:\.[\w!#$%&'*+/=?^`{|}~\x80-\xff-]+)*@LABEL(?:\.LABEL)+$",
        )
    });
    let local = field.iter().position(|byte| *byte == b'@');
    field.len() <= EMAIL_BYTES_MAX
        && local.is_some_and(|bytes| bytes <= LOCAL_BYTES_MAX)
        && EMAIL.as_ref().is_some_and(|email| email.is_match(field))
}

/// True for a URL with the scheme `http`, `https` or `ftp`, and a host: a name, or an IPv6 address in brackets.
fn is_url(field: &[u8]) -> bool {
    static URL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        pattern(concat!(
            r"(?i-u)^(?:https?|ftp)://(?:[^/?#]*@)?(?:\[([^\]]*)\]|(LABEL(?:\.LABEL)*)\.?)",
            r"(?::([0-9]*))?(?:[/?#].*)?$"
        ))
    });
    let is_odd = |byte: &u8| byte.is_ascii_control() || b" \"<>\\^`{|}".contains(byte);
    // Most URLs have neither a port nor an IPv6 address; the match alone is enough for them.
    let is_plain = |field: &&[u8]| !field.iter().any(|byte| matches!(byte, b':' | b'['));
    if field.len() <= HOST_BYTES_MAX && field.get("ftp://".len()..).as_ref().is_some_and(is_plain) {
        return URL.as_ref().is_some_and(|url| url.is_match(field)) && !field.iter().any(is_odd);
    }
    let Some(parts) = URL.as_ref().and_then(|url| url.captures(field)) else {
        return false;
    };
    let part = |at| parts.get(at).map(|part| String::from_utf8_lossy(part.as_bytes()));
    part(1).is_none_or(|address| address.parse::<Ipv6Addr>().is_ok())
        && parts.get(2).is_none_or(|host| host.len() <= HOST_BYTES_MAX)
        && part(3).is_none_or(|port| port.is_empty() || port.parse::<u16>().is_ok())
        && !field.iter().any(is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, good: &[&str], bad: &[&str]) {
        let kind = named(name).unwrap();
        for text in good {
            assert!((kind.fits)(text.as_bytes()), "{name} {text}");
        }
        for text in bad {
            assert!(!(kind.fits)(text.as_bytes()), "{name} {text}");
        }
    }

    #[test]
    fn every_type_name_resolves() {
        for kind in &KINDS {
            assert_eq!(named(kind.name).unwrap().name, kind.name);
        }
        let others = ["str", "int", "number", "bool"].map(|alias| named(alias).unwrap().name);
        assert_eq!(others, ["string", "integer", "float", "boolean"]);
        assert!(named("text").is_none() && named("").is_none());
    }

    #[test]
    fn numbers_are_recognized() {
        let long = "9".repeat(50);
        check(
            "integer",
            &["0", "-1", "+1", "007", &long],
            &["", "-", "1.0", "1e3", "0x1", "1_000", "1,000", "١", " 1", "--1"],
        );
        let (tiny, huge) = (format!("0.{}1", "0".repeat(400)), "9".repeat(400));
        check(
            "float",
            &["0", "-1.5", "+.5", "5.", "1e10", "1E-3", "1.5e+300", &tiny],
            &[
                "", ".", "-", "e5", "1e", "1e400", "inf", "nan", "NaN", "Infinity", "1.2.3", "1,5", "0x1p3",
                &huge,
            ],
        );
    }

    #[test]
    fn booleans_are_recognized() {
        check(
            "boolean",
            &["true", "FALSE", "Yes", "no", "1", "0"],
            &["", "t", "on", "2", "truee", "ja"],
        );
    }

    #[test]
    fn uuids_are_recognized() {
        let good = "0190b1c2-7a4e-7CC3-8f00-1d2e3f405060";
        let spaced = good.replace('-', " ");
        let plain = good.replace('-', "");
        let braced = format!("{{{good}}}");
        let foreign = good.replace('a', "g");
        check(
            "uuid",
            &[good],
            &["", &spaced, &plain, &braced, &foreign, &good[..35]],
        );
    }

    #[test]
    fn email_addresses_are_recognized() {
        let long = format!("{}@example.com", "a".repeat(65));
        check(
            "email",
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
    fn urls_are_recognized() {
        check(
            "url",
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
