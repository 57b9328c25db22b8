//! E-mail addresses: a local part, `@`, and a domain with a top level of letters.

use std::ops::Range;

/// Maximum bytes of a local part (RFC 5321, 4.5.3.1.1).
pub(crate) const LOCAL_MAX: usize = 64;

/// Maximum bytes of a domain: an address has 254 bytes at most (RFC 5321, 4.5.3.1.3, without the angle brackets).
const DOMAIN_MAX: usize = 254 - 1 - LOCAL_MAX;

/// True for the characters of a local part that occur in practice; RFC 5322 allows more.
pub(crate) fn is_local(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._%+-".contains(&byte)
}

/// Returns the addresses that start in a part of the text, in order.
pub(crate) fn starting_in(text: &[u8], starts: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let farthest = text.len().min(starts.end + LOCAL_MAX + 1);
    let signs = (starts.start..farthest).filter(|&at| text[at] == b'@');
    signs.filter_map(move |sign| {
        let nearest = sign.saturating_sub(LOCAL_MAX);
        let before = text[nearest..sign].iter().rev();
        let local = before.take_while(|byte| is_local(**byte)).count();
        let start = sign - local;
        if local == 0 || !starts.contains(&start) {
            return None;
        }
        Some(start..domain_end(text, sign + 1)?)
    })
}

/// Returns the end of the longest domain that starts here.
fn domain_end(text: &[u8], start: usize) -> Option<usize> {
    let limit = text.len().min(start + DOMAIN_MAX);
    let mut end = None;
    let mut label = start;
    loop {
        let rest = &text[label..limit];
        let is_inside = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'-';
        let len = rest.iter().take_while(is_inside).count();
        let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let cut_by_digit = rest.get(letters).is_some_and(u8::is_ascii_digit);
        if label > start && letters >= 2 && !cut_by_digit {
            end = Some(label + letters);
        }
        if len == 0 || rest.get(len) != Some(&b'.') {
            return end;
        }
        label += len + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let found: Vec<&str> = starting_in(text.as_bytes(), 0..text.len())
            .map(|find| &text[find])
            .collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn whole_addresses_are_found() {
        check("mail alice@example.com now", &["alice@example.com"]);
        check("<a.b+tag@mail.example.co.uk>.", &["a.b+tag@mail.example.co.uk"]);
        check("alice@example.com.", &["alice@example.com"]);
        check("alice@example.com-", &["alice@example.com"]);
        check("a@b.cc,d@e.ff", &["a@b.cc", "d@e.ff"]);
        check("ssh git@host-1.example.org:x/y", &["git@host-1.example.org"]);
    }

    #[test]
    fn at_sign_without_an_address_is_kept() {
        for text in [
            "@decorator",
            "user@localhost",
            "a@1.2.3.4",
            "x @ y.com",
            "a@b..com",
            "@",
            "a@",
            "pkg@1.2.3",
        ] {
            check(text, &[]);
        }
    }

    #[test]
    fn local_part_is_limited() {
        let text = format!("{}@example.com", "a".repeat(100));
        let found: Vec<_> = starting_in(text.as_bytes(), 0..text.len()).collect();
        assert_eq!(
            (found.len(), found[0].start, found[0].end),
            (1, 100 - LOCAL_MAX, text.len())
        );
    }
}
