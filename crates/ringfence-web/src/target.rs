//! Validation of URLs: a URL is parsed once, by the standard of browsers (WHATWG), and refused beforehand if two
//! parsers could read it differently. The parsed URL is the one that is judged, and the judged one is dialled.

use std::fmt;
use url::{Host, Url};

pub const URL_BYTES_MAX: usize = 4096;

/// An HTTP or HTTPS URL with a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Url);

/// The reason why a URL is refused; the text ends a sentence that begins with the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("is empty, or longer than {URL_BYTES_MAX} bytes")]
    Length,
    #[error("holds a control character, a space or a backslash, which programs read differently")]
    Character,
    #[error("has a user name or a password in it")]
    UserInfo,
    #[error("is neither `http` nor `https`")]
    Scheme,
    #[error("has no host that can be read in one way")]
    Host,
}

impl Target {
    /// Reads a URL of a caller or a page.
    pub fn read(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() || text.len() > URL_BYTES_MAX {
            return Err(TargetError::Length);
        }
        if text.chars().any(is_ambiguous) {
            return Err(TargetError::Character);
        }
        Self::of(Url::parse(text).map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => TargetError::Scheme,
            _ => TargetError::Host,
        })?)
    }

    /// Reads the URL reference of a redirect, link or search result, relative to this URL.
    pub fn join(&self, text: &str) -> Result<Self, TargetError> {
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError::Length);
        }
        if text.chars().any(is_ambiguous) {
            return Err(TargetError::Character);
        }
        Self::of(self.0.join(text).map_err(|_| TargetError::Host)?)
    }

    fn of(mut url: Url) -> Result<Self, TargetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::UserInfo);
        }
        match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() && !name.contains('%') => {}
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => {}
            _ => return Err(TargetError::Host),
        }
        if url.port_or_known_default().is_none_or(|port| port == 0) {
            return Err(TargetError::Host);
        }
        url.set_fragment(None);
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(TargetError::Length);
        }
        Ok(Self(url))
    }

    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns the parsed host; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    pub fn authority(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    /// Returns the `Host` header, without the default port of the scheme.
    pub fn host_header(&self) -> String {
        match self.0.port() {
            Some(port) => format!("{}:{port}", self.host()),
            None => self.host().to_owned(),
        }
    }

    /// Returns path and query as they are sent.
    pub fn path_and_query(&self) -> String {
        match self.0.query() {
            Some(query) => format!("{}?{query}", self.0.path()),
            None => self.0.path().to_owned(),
        }
    }

    pub fn as_url(&self) -> &Url {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// True for characters that parsers strip, fold or treat as a slash in different ways.
fn is_ambiguous(c: char) -> bool {
    c.is_control()
        || c.is_whitespace()
        || c == '\\'
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_read_unambiguously_or_refused() {
        let check = |text: &str, expect: Result<&str, TargetError>| {
            let read = Target::read(text);
            assert_eq!(
                read.as_ref().map(Target::as_str).map_err(|error| *error),
                expect,
                "{text:?}"
            );
        };
        check("http://example.com", Ok("http://example.com/"));
        check("HTTPS://EXAMPLE.com:443/a?b#c", Ok("https://example.com/a?b"));
        check("http://bücher.example/", Ok("http://xn--bcher-kva.example/"));
        check("http://2130706433/", Ok("http://127.0.0.1/"));
        check("http://0x7f.1/", Ok("http://127.0.0.1/"));
        check("http://①②⑦.0.0.1/", Ok("http://127.0.0.1/"));
        check("http://[::ffff:127.0.0.1]/", Ok("http://[::ffff:7f00:1]/"));
        check("http://ok.test\\@127.0.0.1/", Err(TargetError::Character));
        check("http://127.0.0.1\\@ok.test/", Err(TargetError::Character));
        check("http://ok.test\t/", Err(TargetError::Character));
        check(" http://ok.test/", Err(TargetError::Character));
        check("http://ok.test/\u{0}", Err(TargetError::Character));
        check("http://user@ok.test/", Err(TargetError::UserInfo));
        check("http://:secret@ok.test/", Err(TargetError::UserInfo));
        check("ftp://ok.test/", Err(TargetError::Scheme));
        check("file:///etc/passwd", Err(TargetError::Scheme));
        check("gopher://ok.test/", Err(TargetError::Scheme));
        check("ok.test/", Err(TargetError::Scheme));
        check("http://ok.test:0/", Err(TargetError::Host));
        check("http://ok.test:99999/", Err(TargetError::Host));
        check("http://%31%32%37.0.0.1/", Ok("http://127.0.0.1/"));
        check("http://[fe80::1%25eth0]/", Err(TargetError::Host));
        check("http:///", Err(TargetError::Host));
        check("", Err(TargetError::Length));
        check(
            &format!("http://ok.test/{}", "a".repeat(5000)),
            Err(TargetError::Length),
        );
    }

    #[test]
    fn redirect_target_is_held_to_the_same_rules() {
        let from = Target::read("https://ok.test/a/b").unwrap();
        assert_eq!(from.join("../c?d").unwrap().as_str(), "https://ok.test/c?d");
        assert_eq!(
            from.join("//other.test/").unwrap().as_str(),
            "https://other.test/"
        );
        assert_eq!(from.join("javascript:alert(1)"), Err(TargetError::Scheme));
        assert_eq!(from.join("file:///etc/passwd"), Err(TargetError::Scheme));
        assert_eq!(from.join("\\\\127.0.0.1\\x"), Err(TargetError::Character));
        assert_eq!(from.join("https://u:p@ok.test/"), Err(TargetError::UserInfo));
    }
}
