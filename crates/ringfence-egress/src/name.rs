//! A host name in canonical spelling, in which rules, queries, certificates and headers are compared. Text that some
//! programs read as an address (`127.1`, `0x7f.1`, `2130706433`) is not a name.

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use std::{fmt, str::FromStr};

/// Maximum length of a name, without the dot at its end (RFC 1035, less the length of the first label and the root).
pub const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Maximum length of a text that is parsed; no name in any alphabet is longer.
const TEXT_BYTES_MAX: usize = 1024;

/// A DNS name: lower-case ASCII (A-labels), no dot at its end, never an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Reason why a text is not a host name. `Display` completes a sentence that begins with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("is empty")]
    Empty,
    #[error("is longer than {} bytes", NAME_BYTES_MAX)]
    Length,
    #[error("has a label that is empty or longer than {} bytes", LABEL_BYTES_MAX)]
    Label,
    #[error("contains {0:?}, which no host name does")]
    Character(char),
    #[error("has a label that begins or ends with a hyphen")]
    Hyphen,
    /// Its last label is a number.
    #[error("is an address, or what some programs take for one")]
    Address,
    /// Also a second spelling of another name.
    #[error("is not a valid internationalised name")]
    Idna,
    /// `ß`, `ς`, joiners.
    #[error("contains {0:?}, which not all programs treat alike")]
    Deviation(char),
}

impl HostName {
    /// Reads a name from a protocol in which only ASCII is a name: a query, a header, an SNI.
    pub fn from_ascii(text: &str) -> Result<Self, NameError> {
        match text.chars().find(|c| !c.is_ascii()) {
            Some(c) => Err(NameError::Character(c)),
            None => text.parse(),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its labels, the most specific first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Returns the name without its first label; `None` for a single label.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_once('.')?;
        Some(Self(rest.to_owned()))
    }

    /// True if this is a subdomain of `apex`, at any depth; a name is not below itself.
    pub fn is_below(&self, apex: &Self) -> bool {
        let before = self.0.strip_suffix(&apex.0);
        before.is_some_and(|before| before.ends_with('.'))
    }

    /// True for `localhost` and names below it: always the machine that asks (RFC 6761).
    pub fn is_local(&self) -> bool {
        self.labels().next_back() == Some("localhost")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for HostName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(NameError::Length);
        }
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_ascii() {
            return ascii(bare.to_ascii_lowercase());
        }
        if let Some(c) = bare.chars().find(|c| is_refused(*c)) {
            return Err(NameError::Character(c));
        }
        if let Some(c) = bare.chars().find(|c| is_deviation(*c)) {
            return Err(NameError::Deviation(c));
        }
        let mapped = to_ascii(bare)?;
        // The dot at the end may have been one of the ideographic ones.
        match mapped.strip_suffix('.') {
            Some(bare) if !text.ends_with('.') => ascii(bare.to_owned()),
            _ => ascii(mapped),
        }
    }
}

/// Checks a name that is lower-case ASCII already.
fn ascii(text: String) -> Result<HostName, NameError> {
    if let Some(c) = text.chars().find(|c| is_refused(*c)) {
        return Err(NameError::Character(c));
    }
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::Length);
    }
    for label in text.split('.') {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(NameError::Label);
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(NameError::Hyphen);
        }
    }
    if ends_in_a_number(&text) {
        return Err(NameError::Address);
    }
    if text.split('.').any(|label| label.starts_with("xn--")) && !round_trips(&text) {
        return Err(NameError::Idna);
    }
    Ok(HostName(text))
}

/// True for ASCII that is in no name; names have letters, digits, hyphens, dots, and underscores (for services).
fn is_refused(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.' | '_')
}

/// True for a character on which IDNA 2003 and 2008 disagree. The A-label can be written instead.
fn is_deviation(c: char) -> bool {
    matches!(c, 'ß' | 'ẞ' | 'ς' | '\u{200c}' | '\u{200d}')
}

/// True if the text "ends in a number" (WHATWG): URL parsers take it for an IPv4 address, valid or not.
fn ends_in_a_number(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or(text);
    last.bytes().all(|c| c.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()))
}

/// The ASCII characters that STD 3 refuses, except the underscore.
const REFUSED: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

fn to_ascii(text: &str) -> Result<String, NameError> {
    Uts46::new()
        .to_ascii(
            text.as_bytes(),
            REFUSED,
            Hyphens::CheckFirstLast,
            DnsLength::Ignore,
        )
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| NameError::Idna)
}

/// True if each A-label is the encoding of its own U-label; anything else is a second spelling.
fn round_trips(text: &str) -> bool {
    let (unicode, read) = Uts46::new().to_unicode(text.as_bytes(), REFUSED, Hyphens::CheckFirstLast);
    read.is_ok() && to_ascii(&unicode).is_ok_and(|again| again == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use NameError as E;
    use proptest::prelude::*;

    fn check(text: &str, expect: Result<&str, NameError>) {
        let name = text.parse::<HostName>();
        assert_eq!(
            name.as_ref().map(HostName::as_str).map_err(|error| *error),
            expect,
            "{text:?}"
        );
    }

    #[test]
    fn name_has_one_canonical_spelling() {
        check("example.com", Ok("example.com"));
        check("Example.COM", Ok("example.com"));
        check("example.com.", Ok("example.com"));
        check("localhost", Ok("localhost"));
        check("_acme-challenge.example.com", Ok("_acme-challenge.example.com"));
        check("1and1.com", Ok("1and1.com"));
        check("1.2.3.4.example", Ok("1.2.3.4.example"));
        check("0xcafe.example", Ok("0xcafe.example"));
        // registered long ago and in use: not IDNA, but not a second spelling of another name either
        check("r3---sn-4g5e6n.example.com", Ok("r3---sn-4g5e6n.example.com"));
        check("bücher.example", Ok("xn--bcher-kva.example"));
        check("BÜCHER.example.", Ok("xn--bcher-kva.example"));
        check("XN--BCHER-KVA.example", Ok("xn--bcher-kva.example"));
        check("例え。テスト", Ok("xn--r8jz45g.xn--zckzah"));
        check("例え.テスト。", Ok("xn--r8jz45g.xn--zckzah"));
        check("ｅｘａｍｐｌｅ.com", Ok("example.com"));
        // Cyrillic `а`: looks like apple.com, but is another name
        check("аpple.com", Ok("xn--pple-43d.com"));
        check("xn--fa-hia.example", Ok("xn--fa-hia.example"));
        check(
            &format!("{}.example", "a".repeat(63)),
            Ok(&format!("{}.example", "a".repeat(63))),
        );
        let longest = format!("{}com", "a.".repeat(125));
        assert_eq!(longest.len(), 253);
        check(&longest, Ok(&longest));
    }

    #[test]
    fn invalid_name_is_refused() {
        check("", Err(E::Empty));
        check(".", Err(E::Empty));
        check("..", Err(E::Label));
        check("example.com..", Err(E::Label));
        check(".example.com", Err(E::Label));
        check("a..b", Err(E::Label));
        check(&format!("{}.com", "a".repeat(64)), Err(E::Label));
        check(&format!("{}comx", "a.".repeat(125)), Err(E::Length));
        check(&"ü".repeat(600), Err(E::Length));
        check("-a.com", Err(E::Hyphen));
        check("a-.com", Err(E::Hyphen));
        check("-ü.com", Err(E::Idna));
        check("xn--a.com", Err(E::Idna));
        check("xn--abc-.com", Err(E::Hyphen));
        check("xn--.com", Err(E::Hyphen));
        check("xn--ab-c-.com", Err(E::Hyphen));
        check("xn--BCHER-KVB.example", Err(E::Idna));
        check("straße.example", Err(E::Deviation('ß')));
        check("a\u{200d}b.example", Err(E::Deviation('\u{200d}')));
        check("a\u{202e}b.example", Err(E::Idna));
        check("a\u{fffd}.example", Err(E::Idna));
        check("\u{0301}a.example", Err(E::Idna));
    }

    #[test]
    fn name_with_special_characters_is_refused() {
        for (text, c) in [
            ("a b.com", ' '),
            ("a.com\r\nHost: b", '\r'),
            ("a.com\n", '\n'),
            ("a.com\0", '\0'),
            ("a\tb", '\t'),
            ("a.com\u{7f}", '\u{7f}'),
            ("allowed@evil", '@'),
            ("a.com:443", ':'),
            ("a.com/x", '/'),
            ("a.com\\x", '\\'),
            ("[::1]", '['),
            ("::1", ':'),
            ("::ffff:1.2.3.4%x.allowed.test", ':'),
            ("a%2ecom", '%'),
            ("*.com", '*'),
            ("ü:443", ':'),
        ] {
            check(text, Err(E::Character(c)));
        }
        // full-width forms are mapped to ASCII characters, which are then refused
        check("ａ＠evil", Err(E::Idna));
        check("ａ／b", Err(E::Idna));
        check("a\u{a0}ü", Err(E::Idna));
    }

    #[test]
    fn address_in_any_spelling_is_not_a_name() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "017700000001",
            "0x7f000001",
            "0X7F.1",
            "0x7f.0.0.0x1",
            "0x",
            "1.0x",
            "256.256.256.256",
            "a.b.1",
            "0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "①.0.0.1",
        ] {
            check(text, Err(E::Address));
        }
    }

    #[test]
    fn only_subdomains_are_below_their_apex() {
        let name = |text: &str| text.parse::<HostName>().unwrap();
        let apex = name("example.com");
        assert!(name("a.example.com").is_below(&apex));
        assert!(name("a.b.example.com").is_below(&apex));
        assert!(!apex.is_below(&apex));
        assert!(!name("evilexample.com").is_below(&apex));
        assert!(!name("example.com.evil.com").is_below(&apex));
        assert!(!name("com").is_below(&apex));
        assert_eq!(name("a.b.c").parent(), Some(name("b.c")));
        assert_eq!(name("c").parent(), None);
        assert!(name("x.localhost").is_local() && !name("localhost.com").is_local());
    }

    #[test]
    fn names_from_protocols_are_ascii_only() {
        assert!(HostName::from_ascii("Example.com").is_ok());
        assert_eq!(HostName::from_ascii("bücher.example"), Err(E::Character('ü')));
    }

    proptest! {
        #[test]
        fn canonical_name_parses_to_itself(text in "\\PC{0,40}(\\.[a-zA-ZäßяあA-Z-]{0,9}){0,3}") {
            if let Ok(name) = text.parse::<HostName>() {
                prop_assert_eq!(HostName::from_ascii(name.as_str()), Ok(name.clone()));
                prop_assert!(name.as_str().len() <= NAME_BYTES_MAX);
            }
        }
    }
}
