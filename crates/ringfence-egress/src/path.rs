//! Paths of requests, as rules compare them. A server may decode a path once more than its client did, or resolve `..`
//! after the check, so a path that could be read in two ways is below no prefix.

/// A path in normal form that permits itself and everything below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PathPrefix(String);

/// Reason why a text is not a prefix. `Display` completes a sentence that begins with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("has a query or a fragment")]
    Query,
    /// Some servers merge empty segments, others do not.
    #[error("has an empty segment (`//`)")]
    EmptySegment,
    /// `..`, an encoded slash and the like.
    #[error("can be read in more than one way")]
    Ambiguous,
}

impl PathPrefix {
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        if text.contains(['?', '#']) {
            return Err(PathError::Query);
        }
        if text.contains("//") {
            return Err(PathError::EmptySegment);
        }
        normalized(text).map(Self).ok_or(PathError::Ambiguous)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True if a request's target (`/path?query`) is the prefix or below it, segment by segment.
    pub(crate) fn permits(&self, target: &str) -> bool {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        normalized(path).is_some_and(|path| self.covers(&path))
    }

    /// True if this prefix permits everything that `narrower` permits.
    pub(crate) fn contains(&self, narrower: &Self) -> bool {
        self.covers(&narrower.0)
    }

    fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.0.as_str()) {
            Some(rest) => rest.is_empty() || self.0.ends_with('/') || rest.starts_with('/'),
            None => false,
        }
    }
}

/// The path with unreserved characters decoded (RFC 3986, 6.2.2) and without `.`; `None` if it could be read otherwise.
fn normalized(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') {
        return None;
    }
    let mut written = String::with_capacity(path.len());
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let decoded_byte = match byte {
            b'%' => {
                let value = hex_pair(bytes, at)?;
                at += 2;
                write_encoded(value, &mut written)?;
                value
            }
            b'\\' | b'#' => return None,
            0x21..=0x7e => {
                written.push(char::from(byte));
                byte
            }
            _ => return None,
        };
        decoded.push(decoded_byte);
    }
    // `%252e` is harmless unless a server decodes twice.
    let mut percents = (0..decoded.len()).filter(|at| decoded[*at] == b'%');
    if percents.any(|at| hex_pair(&decoded, at + 1).is_some()) {
        return None;
    }
    // Old decoders accept slashes and dots in overlong UTF-8.
    std::str::from_utf8(&decoded).ok()?;
    without_dots(&written)
}

fn hex_pair(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(at)? << 4 | digit(at + 1)?).ok()
}

/// Writes the normal form of `%XX`; `None` for slashes, backslashes and control characters.
fn write_encoded(value: u8, written: &mut String) -> Option<()> {
    match value {
        b'/' | b'\\' | 0..=0x1f | 0x7f => return None,
        b'-' | b'.' | b'_' | b'~' => written.push(char::from(value)),
        _ if value.is_ascii_alphanumeric() => written.push(char::from(value)),
        _ => written.push_str(&format!("%{value:02X}")),
    }
    Some(())
}

/// Removes `.` segments. Returns `None` for `..`, and for `.` or `..` with other characters before or after it in its
/// segment (`..;x`, `..%20`): some servers strip those characters, and others then do not see the dots.
fn without_dots(path: &str) -> Option<String> {
    let mut kept = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        match first_word(segment) {
            "." if segment == "." => {
                if segments.peek().is_none() {
                    kept.push("");
                }
            }
            "." | ".." => return None,
            _ => kept.push(segment),
        }
    }
    Some(kept.join("/"))
}

/// Returns the first run of unreserved characters in a segment, after any encoded and reserved characters before it.
fn first_word(segment: &str) -> &str {
    let mut rest = segment;
    loop {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let after = |bytes: usize| rest.get(bytes..).unwrap_or_default();
        match (end, rest.starts_with('%')) {
            (0, _) if rest.is_empty() => return rest,
            (0, true) => rest = after(3),
            (0, false) => rest = after(1),
            (end, _) => return &rest[..end],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(prefix: &str, target: &str) {
        assert!(
            PathPrefix::parse(prefix).unwrap().permits(target),
            "{prefix} {target:?}"
        );
    }

    fn refuses(prefix: &str, target: &str) {
        assert!(
            !PathPrefix::parse(prefix).unwrap().permits(target),
            "{prefix} {target:?}"
        );
    }

    #[test]
    fn prefix_matches_whole_segments() {
        permits("/v1", "/v1");
        permits("/v1", "/v1/");
        permits("/v1", "/v1/x");
        permits("/v1", "/v1?q=/../");
        permits("/v1", "/v1//x");
        refuses("/v1", "/v10");
        refuses("/v1", "/v1;x");
        refuses("/v1", "/V1");
        refuses("/v1", "/");
        refuses("/v1/", "/v1");
        permits("/v1/", "/v1/");
        permits("/v1/", "/v1/x?y");
        permits("/", "/");
        permits("/", "/x");
        refuses("/a/b", "/a//b");
    }

    #[test]
    fn equivalent_spellings_of_a_path_match() {
        permits("/v1", "/%76%31/x");
        permits("/%76%31", "/v1/x");
        permits("/v1", "/./v1/./x");
        permits("/v1/", "/v1/.");
        permits("/v1/", "/v1/%2e");
        permits("/a%3ab", "/a%3Ab");
        permits("/a%20b", "/a%20b/c");
        permits("/b%C3%BC", "/b%c3%bc");
        permits("/a|b", "/a|b/\"");
    }

    #[test]
    fn ambiguous_path_is_below_no_prefix() {
        for target in [
            "/v1/../admin",
            "/v1/x/../y",
            "/v1/..",
            "/v1/%2e%2e/admin",
            "/v1/.%2E/admin",
            "/v1/..;/admin",
            "/v1/..;x=1/admin",
            "/v1/.;/x",
            "/v1/..%3b/admin",
            "/v1/%2e%2e%3B/admin",
            "/v1/..%20/admin",
            "/v1/%20../admin",
            "/v1/..%23/admin",
            "/v1/..%3f/admin",
            "/v1/;../admin",
            "/v1/..%c3%bc/admin",
            "/v1/..%3b",
            "/v1/%2fadmin",
            "/v1%2Fx",
            "/v1/%5c..",
            "/v1/\\..",
            "/v1/%252e%252e/admin",
            "/v1/%25%32%65",
            "/v1/%c0%ae%c0%ae/",
            "/v1/%e0%80%af",
            "/v1/%00",
            "/v1/%0d%0a",
            "/v1/%",
            "/v1/%2",
            "/v1/%zz",
            "/v1/a b",
            "/v1/\u{fc}",
            "/v1/x#y",
            "/v1/\r\n",
            "v1/x",
            "*",
            "",
            "http://example.com/v1/x",
        ] {
            refuses("/v1", target);
            refuses("/", target);
        }
        permits("/v1", "/v1/50%25");
        permits("/v1", "/v1/50%25x");
        permits("/v1", "/v1/...");
        permits("/v1", "/v1/.well-known");
        permits("/v1", "/v1/a;b=../c%20d");
        permits("/v1", "/v1/%40scope%2e/..x");
    }

    #[test]
    fn ambiguous_prefix_is_refused() {
        let check = |text, expect| assert_eq!(PathPrefix::parse(text), Err(expect), "{text}");
        check("/a?b", PathError::Query);
        check("/a#b", PathError::Query);
        check("/a//b", PathError::EmptySegment);
        check("/a/../b", PathError::Ambiguous);
        check("/a%2fb", PathError::Ambiguous);
        check("a", PathError::Ambiguous);
    }
}
