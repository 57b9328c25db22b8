//! Hosts that code names in its texts: `https://api.example.com/v1`. Naming one grants no access; a person reviews the
//! list. Where two URL parsers disagree about the host (a backslash, a line break inside the URL), both are listed.

use crate::lists::LISTS;
use regex::Regex;
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

pub(crate) const HOSTS_MAX: usize = 1000;

/// Schemes after which URL parsers accept missing slashes: `https:example.com`.
const WEB_SCHEMES: &[&str] = &["http", "https", "ws", "wss", "ftp"];
/// Maximum length of a text that may be `git@host:path` or one URL broken over lines.
const BROKEN_BYTES_MAX: usize = 4096;
/// DNS, RFC 1035.
const HOST_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;

/// Adds the hosts of all URLs in a text, and of `git@host:path` if that is the whole text.
pub(crate) fn of(text: &str, into: &mut BTreeSet<String>) {
    urls(text, into);
    if let Some(joined) = joined_lines(text) {
        urls(&joined, into);
    }
    insert(copy_target(text).flatten(), into);
}

/// Adds the host of a text where a host, an address or a URL is expected: the first argument of `create_connection`,
/// `curl`. Not for arguments that may also be a path (`fetch('data.json')`): for these only [`of`] is reliable.
pub(crate) fn of_address(text: &str, into: &mut BTreeSet<String>) {
    let text = text.trim();
    if text.contains("://") || text.contains(":\\\\") {
        return of(text, into);
    }
    if let Some(host) = copy_target(text) {
        return insert(host, into);
    }
    if text.contains(char::is_whitespace) {
        return;
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if WEB_SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) => (true, rest),
        _ => (false, text),
    };
    let authority = rest.trim_start_matches(['/', '\\']);
    let slashes = rest.len() - authority.len();
    let rooted = rest.starts_with(['/', '\\', '.', '~', '-', '$', '@']);
    if !scheme && slashes < 2 && rooted {
        return;
    }
    let end = authority.find(['/', '\\', '?', '#']).unwrap_or(authority.len());
    let named = authority.get(..end).unwrap_or_default();
    if let Ok(address) = named.parse::<Ipv6Addr>() {
        let named = (!address.is_unspecified()).then(|| address.to_string());
        return insert(named, into);
    }
    let is_certain = scheme || slashes >= 2;
    let host = host_of(named).filter(|host| is_certain || !looks_like_a_file(host, named));
    let written = named.rsplit('@').next().unwrap_or_default();
    let is_number = written.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if scheme || !is_number || written.parse::<Ipv4Addr>().is_ok() {
        insert(host.filter(|host| host != "0.0.0.0"), into);
    }
}

fn insert(host: Option<String>, into: &mut BTreeSet<String>) {
    if into.len() < HOSTS_MAX {
        into.extend(host);
    }
}

fn urls(text: &str, into: &mut BTreeSet<String>) {
    /// A scheme, slashes, and the text up to the next slash. Some parsers treat a backslash as a slash (WHATWG), others
    /// as a part of the user name (RFC 3986).
    static URLS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let schemes: Vec<String> = LISTS.schemes.iter().map(|scheme| regex::escape(scheme)).collect();
        let part = r#"[^\s\x00-\x1f\x7f-\x9f/?#"<>`"#;
        let scheme = format!("(?:^|[^A-Za-z])(?i:{})", schemes.join("|"));
        Regex::new(&format!(r"{scheme}:[/\\]{{2,}}({part}\\]*)(\\{part}]*)?")).ok()
    });
    for found in URLS.iter().flat_map(|urls| urls.captures_iter(text)) {
        if into.len() >= HOSTS_MAX {
            return;
        }
        insert(host_of(&found[1]), into);
        let after_user = found.get(2).and_then(|rest| rest.as_str().rsplit_once('@'));
        insert(after_user.and_then(|(_, host)| host_of(host)), into);
    }
}

/// Returns a text that is a single URL without tabs and line breaks, which URL parsers drop: `https://exa\nmple.com/`.
fn joined_lines(text: &str) -> Option<String> {
    let text = text.trim();
    let breaks = |letter: char| matches!(letter, '\t' | '\r' | '\n');
    if text.len() > BROKEN_BYTES_MAX || !text.contains(breaks) || text.contains(' ') {
        return None;
    }
    let joined = text.replace(breaks, "");
    let colon = joined.find(':')?;
    let scheme = joined[..colon].to_ascii_lowercase();
    (LISTS.schemes.contains(scheme.as_str()) && joined.matches("://").count() == 1).then_some(joined)
}

/// Parses a whole text of the form `git@github.com:owner/name.git`; the inner option is its host, if the host is valid.
fn copy_target(text: &str) -> Option<Option<String>> {
    let text = text.trim();
    if text.len() > BROKEN_BYTES_MAX || text.contains(char::is_whitespace) {
        return None;
    }
    let (user, rest) = text.split_once('@')?;
    let (host, path) = rest.split_once(':')?;
    let is_user = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let is_target = !user.is_empty()
        && user.chars().all(is_user)
        && !path.is_empty()
        && !path.starts_with("//")
        && (host.contains('.') || user == "git");
    is_target.then(|| normal(host))
}

/// Returns the host of an authority: `user:password@host:port`.
fn host_of(authority: &str) -> Option<String> {
    let host = authority.rsplit('@').next().unwrap_or_default();
    if let Some(rest) = host.strip_prefix('[') {
        let (address, _) = rest.split_once(']')?;
        let address: Ipv6Addr = address.split('%').next()?.parse().ok()?;
        return Some(address.to_string());
    }
    let (name, rest) = name_and_rest(host);
    if !rest.starts_with(['{', '$', '%', '*']) {
        return normal(&name);
    }
    // `https://example.com{path}`: only if no part of a name can follow the placeholder.
    let whole = name.contains('.') && !name.ends_with('.') && after_placeholder(rest).is_empty();
    if whole { normal(&name) } else { None }
}

/// Returns the longest prefix that can be a name, percent-decoded, and the rest.
fn name_and_rest(host: &str) -> (String, &str) {
    let mut bytes = Vec::new();
    let mut rest = host;
    while let Some(letter) = rest.chars().next() {
        let encoded = rest.get(1..3).filter(|_| letter == '%');
        match encoded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = rest.get(3..).unwrap_or_default();
            }
            None if is_name(letter) => {
                bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            }
            None => break,
        }
    }
    (String::from_utf8(bytes).unwrap_or_default(), rest)
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.') || is_wide_dot(letter)
}

/// True for full stops of other scripts, which count as dots in host names (UTS 46).
fn is_wide_dot(letter: char) -> bool {
    matches!(letter, '\u{3002}' | '\u{ff0e}' | '\u{ff61}')
}

/// Returns the text after `{path}`, `${path}`, `$path`, `%s` or `*`.
fn after_placeholder(text: &str) -> &str {
    let text = text.trim_start_matches(['$', '%', '*']);
    match text.strip_prefix(['{', '(']) {
        Some(inner) => inner.split_once(['}', ')']).map_or("", |(_, after)| after),
        None => text.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_'),
    }
}

/// Returns a host name in lower case without its trailing dot, or `None` if it is not a host name.
fn normal(name: &str) -> Option<String> {
    let name = name.to_lowercase().replace(is_wide_dot, ".");
    let bare = name.strip_suffix('.').unwrap_or(&name);
    // `'https://api.' + region`: the rest of the name is unknown.
    if bare.len() < name.len() && !bare.contains('.') {
        return None;
    }
    let last = bare.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
        // Also in the forms that `inet_aton(3)` accepts: `2130706433`, `0x7f.1`, `0177.0.0.1`.
        let host = url::Host::parse(bare).ok()?;
        return matches!(host, url::Host::Ipv4(_)).then(|| host.to_string());
    }
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    let is_label = |label: &str| {
        (1..=LABEL_CHARS_MAX).contains(&label.chars().count())
            && !(label.starts_with('-') || label.ends_with('-'))
            && label.chars().all(is_part)
    };
    let good = bare.chars().count() <= HOST_CHARS_MAX && bare.split('.').all(is_label);
    good.then(|| bare.to_owned())
}

/// True for `main.py` and `data.json` without a port or a user.
fn looks_like_a_file(host: &str, written: &str) -> bool {
    let labels: Vec<&str> = host.split('.').collect();
    let last = labels.last().copied().unwrap_or_default();
    let ending = LISTS.file_endings.contains(&last) || (labels.len() == 2 && last == "py");
    labels.len() > 1 && ending && !written.contains([':', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: fn(&str, &mut BTreeSet<String>), cases: &[(&str, &[&str])]) {
        for (text, expected) in cases {
            let mut hosts = BTreeSet::new();
            found(text, &mut hosts);
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            assert_eq!(hosts, *expected, "of {text:?}");
        }
    }

    #[test]
    fn hosts_are_found_in_urls() {
        check(
            of,
            &[
                ("https://api.example.com/v1", &["api.example.com"]),
                (
                    "see http://A.example:8080/x, and wss://b.example.",
                    &["a.example", "b.example"],
                ),
                (
                    "(https://example.com/a) <ftp://files.example>",
                    &["example.com", "files.example"],
                ),
                ("postgresql://user:pass@db.internal:5432/x", &["db.internal"]),
                ("http://localhost:8000", &["localhost"]),
                (
                    "http://127.0.0.1:1/ http://[::1]:80/ http://[fe80::1%25eth0]/",
                    &["127.0.0.1", "::1", "fe80::1"],
                ),
                ("git@github.com:owner/name.git", &["github.com"]),
                ("git+ssh://git@host.example/x", &["host.example"]),
                ("jdbc:mysql://db.example/x", &["db.example"]),
                (
                    "url=https://q.example?x=https://r.example",
                    &["q.example", "r.example"],
                ),
            ],
        );
    }

    #[test]
    fn texts_without_a_valid_host_are_ignored() {
        check(
            of,
            &[
                ("1.2.3", &[]),
                ("main.py", &[]),
                ("os.path.join", &[]),
                ("example.com", &[]),
                ("file:///etc/passwd", &[]),
                ("https://", &[]),
                ("https://...", &[]),
                ("https://-x.example/", &[]),
                ("http://1.2.3.4.5/", &[]),
                ("http://999.1.1.1/", &[]),
                ("me@example.com: hello", &[]),
                ("a::b::c", &[]),
                ("://example.com", &[]),
                ("https://a..b/", &[]),
            ],
        );
    }

    #[test]
    fn host_name_with_a_placeholder_is_ignored() {
        check(
            of,
            &[
                ("https://{}/x", &[]),
                ("https://api.{}.example.com/", &[]),
                ("https://%s/x", &[]),
                ("https://${HOST}/x", &[]),
                ("https://api.", &[]),
                ("https://api{}", &[]),
                ("https://example.com{}", &["example.com"]),
                ("https://example.com{}.evil.test", &[]),
                ("https://example.com%s", &["example.com"]),
                ("https://example.com:{}/", &["example.com"]),
                ("https://*.example.com/", &[]),
            ],
        );
    }

    #[test]
    fn disguised_hosts_are_found() {
        check(
            of,
            &[
                ("https://allowed.example@evil.test/", &["evil.test"]),
                ("https://allowed.example:443@evil.test:8443/", &["evil.test"]),
                ("https://a@b@evil.test/", &["evil.test"]),
                (
                    "https://allowed.example\\@evil.test/",
                    &["allowed.example", "evil.test"],
                ),
                ("https:\\\\evil.test\\x", &["evil.test"]),
                ("https:////evil.test/", &["evil.test"]),
                ("https://%65vil.test/", &["evil.test"]),
                ("https://evil%2Etest/", &["evil.test"]),
                ("https://evil%00.test/", &[]),
                ("https://EVIL.TEST./", &["evil.test"]),
                ("https://xn--e1afmkfd.xn--p1ai/", &["xn--e1afmkfd.xn--p1ai"]),
                ("https://ПРИМЕР.рф/", &["пример.рф"]),
                ("https://evil\u{3002}test/", &["evil.test"]),
                ("https://ev\nil.test/", &["ev", "evil.test"]),
                ("https://evil.test\n", &["evil.test"]),
                ("HtTpS://evil.test#@allowed.example/", &["evil.test"]),
                (
                    "http://2130706433/ http://0x7f.1/ http://0177.0.0.2/",
                    &["127.0.0.1", "127.0.0.2"],
                ),
                ("https://evil.test?@allowed.example", &["evil.test"]),
            ],
        );
    }

    #[test]
    fn bare_host_is_an_address() {
        check(
            of_address,
            &[
                ("example.com", &["example.com"]),
                ("example.com:443", &["example.com"]),
                ("example.com/install.sh", &["example.com"]),
                ("redis", &["redis"]),
                ("redis:6379", &["redis"]),
                ("user@host.example", &["host.example"]),
                ("user@host.example:/srv/x", &["host.example"]),
                ("10.0.0.1", &["10.0.0.1"]),
                ("10.0.0.1:22", &["10.0.0.1"]),
                ("::1", &["::1"]),
                ("[2001:db8::1]:443", &["2001:db8::1"]),
                ("//cdn.example/x.js", &["cdn.example"]),
                ("https:evil.test", &["evil.test"]),
                ("https:/evil.test", &["evil.test"]),
                ("https://evil.test", &["evil.test"]),
            ],
        );
    }

    #[test]
    fn texts_that_are_not_addresses_are_ignored() {
        check(
            of_address,
            &[
                ("", &[]),
                ("1.2.3", &[]),
                ("8080", &[]),
                ("main.py", &[]),
                ("data.json", &[]),
                ("./run.sh", &[]),
                ("/run/docker.sock", &[]),
                ("-o", &[]),
                ("$HOST", &[]),
                ("@file", &[]),
                ("0.0.0.0", &[]),
                ("::", &[]),
                ("hello world", &[]),
                ("*", &[]),
            ],
        );
    }

    #[test]
    fn hostile_texts_take_linear_time_and_bounded_space() {
        let started = crate::processor_time::processor_time();
        for piece in [
            "https://",
            "https:\\\\",
            "https://a\\",
            "@",
            "https:\\\\@",
            ":",
            "http://x@",
            "[",
            "https://%",
            "a://",
        ] {
            let mut hosts = BTreeSet::new();
            of(&piece.repeat(100_000), &mut hosts);
            of_address(&piece.repeat(100_000), &mut hosts);
            assert!(hosts.len() < 10, "{piece}");
        }
        let many: String = (0..5000)
            .map(|number| format!("https://h{number}.example/ "))
            .collect();
        let mut hosts = BTreeSet::new();
        of(&many, &mut hosts);
        assert_eq!(hosts.len(), HOSTS_MAX);
        let took = crate::processor_time::processor_time() - started;
        assert!(took.as_secs() < 20, "{took:?}");
    }
}
