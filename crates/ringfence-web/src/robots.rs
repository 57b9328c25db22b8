//! The robots exclusion protocol (RFC 9309): groups, the longest match, `*` and `$`.

/// The product token by which groups are matched.
pub(crate) const PRODUCT: &str = "ringfence";
/// Maximum bytes that are read; section 2.5 requires at least 500 KiB.
pub(crate) const ROBOTS_BYTES_MAX: usize = 512 << 10;
/// Maximum of `*` in a pattern, because each costs a scan of the path. A pattern with more matches nothing.
const STARS_MAX: usize = 32;
/// Maximum bytes of a pattern; a longer one is ignored.
const PATTERN_BYTES_MAX: usize = 2048;
/// The rules of a site for our product token: lines of `+` or `-` and a pattern, which contains no line break.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RobotRules(String);

impl RobotRules {
    /// Denies everything, because robots.txt cannot be read (section 2.3.1.4).
    pub(crate) fn deny_all() -> Self {
        Self("-/\n".to_owned())
    }

    /// Size in units of 64 KiB, at least one.
    pub(crate) fn weight(&self) -> usize {
        1 + self.0.len() / (64 << 10)
    }

    /// Reads a robots.txt; lines that are not understood are ignored.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(ROBOTS_BYTES_MAX)]);
        let (mut own, mut wildcard) = (String::new(), String::new());
        let (mut is_own, mut is_wildcard, mut in_agent_lines) = (false, false, true);
        let mut has_own = false;
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    // Consecutive user-agent lines start one group.
                    if !in_agent_lines {
                        (is_own, is_wildcard) = (false, false);
                    }
                    in_agent_lines = true;
                    is_wildcard |= value == "*";
                    is_own |= product(value).eq_ignore_ascii_case(PRODUCT);
                    has_own |= is_own;
                }
                "allow" | "disallow" => {
                    in_agent_lines = false;
                    if value.is_empty() || value.len() > PATTERN_BYTES_MAX {
                        continue;
                    }
                    let sign = if key == "allow" { '+' } else { '-' };
                    let rule = format!("{sign}{}\n", normalised(value));
                    if is_own {
                        own.push_str(&rule);
                    }
                    if is_wildcard {
                        wildcard.push_str(&rule);
                    }
                }
                _ => {}
            }
        }
        Self(if has_own { own } else { wildcard })
    }

    /// True if a path with its query may be fetched: the longest matching pattern decides, and `allow` wins a tie.
    pub(crate) fn allow(&self, path_and_query: &str) -> bool {
        let path = normalised(path_and_query);
        let matching = self.0.lines().filter(|rule| matches(&rule[1..], &path));
        let longest = matching.max_by_key(|rule| (rule.len(), rule.starts_with('+')));
        longest.is_none_or(|rule| rule.starts_with('+'))
    }
}

/// Returns the product token: `Ringfence` of `Ringfence/1.0`, `ringfence-bot` of `ringfence-bot`.
fn product(agent: &str) -> &str {
    let end = agent.find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '-' | '_')));
    &agent[..end.unwrap_or(agent.len())]
}

/// Normalises percent-encoding: unreserved characters are decoded, the rest has upper-case digits (section 2.2.2).
fn normalised(path: &str) -> String {
    let mut normalised = String::with_capacity(path.len());
    let bytes = path.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let coded = (bytes[at] == b'%')
            .then(|| path.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, length) = coded.map_or((bytes[at], 1), |byte| (byte, 3));
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        match is_plain || (coded.is_none() && byte.is_ascii_graphic()) {
            true => normalised.push(char::from(byte)),
            false => normalised.push_str(&format!("%{byte:02X}")),
        }
        at += length;
    }
    normalised
}

/// Matches from the start of the path; `*` matches any characters, and a final `$` the end of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else {
        return false;
    };
    if pattern.matches('*').count() > STARS_MAX {
        return false;
    }
    let Some(last) = parts.next_back() else {
        return !is_whole || rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    match is_whole {
        true => rest.ends_with(last),
        false => rest.contains(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_matching_rule_decides() {
        let check = |robots: &str, path: &str, expect: bool| {
            assert_eq!(
                RobotRules::parse(robots.as_bytes()).allow(path),
                expect,
                "{robots:?} {path}"
            );
        };
        check("", "/x", true);
        check("User-agent: *\nDisallow: /", "/x", false);
        check("User-agent: *\nDisallow:", "/x", true);
        check("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", true);
        check("User-agent: *\nDisallow: /a/b\nAllow: /a", "/a/b/c", false);
        check("User-agent: *\nDisallow: /a\nAllow: /a", "/a", true);
        check("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf", false);
        check("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf?z", true);
        check("User-agent: *\nDisallow: /*?", "/x?y", false);
        check("User-agent: *\nDisallow: /a*c*e$", "/abcdee", false);
        check("User-agent: *\nDisallow: /caf%C3%A9", "/café", false);
        check("User-agent: *\nDisallow: /%7Ex", "/~x", false);
        check("Disallow: /", "/x", true);
        check("\u{feff}user-AGENT : * # all\r\n disallow : /a # b", "/a", false);
    }

    #[test]
    fn own_group_replaces_the_wildcard_group() {
        let check = |robots: &str, expect: bool| {
            assert_eq!(
                RobotRules::parse(robots.as_bytes()).allow("/x"),
                expect,
                "{robots}"
            );
        };
        check(
            "User-agent: *\nDisallow: /\n\nUser-agent: Ringfence\nAllow: /",
            true,
        );
        check(
            "User-agent: ringfence/2.0\nDisallow: /\nUser-agent: *\nAllow: /",
            false,
        );
        check("User-agent: other\nUser-agent: RINGFENCE\nDisallow: /", false);
        check("User-agent: ringfence-bot\nDisallow: /", true);
        check(
            "User-agent: ringfence\nCrawl-delay: 1\nUser-agent: other\nDisallow: /",
            false,
        );
        check(
            "User-agent: ringfence\nAllow: /a\nUser-agent: other\nDisallow: /",
            true,
        );
    }

    #[test]
    fn rules_of_the_first_500_kib_are_all_kept() {
        let many: String = (0..60_000).map(|number| format!("allow:/{number}\n")).collect();
        let robots = format!("User-agent: *\n{}\nDisallow: /x", &many[..500 << 10]);
        let rules = RobotRules::parse(robots.as_bytes());
        assert!(!rules.allow("/x") && rules.allow("/y"));
        assert!(rules.weight() <= 8, "{}", rules.weight());
    }

    #[test]
    fn overlong_pattern_is_ignored() {
        let pattern = format!("User-agent: *\nDisallow: /{}b$", "*a".repeat(5000));
        let path = format!("/{}", "a".repeat(100_000));
        assert!(RobotRules::parse(pattern.as_bytes()).allow(&path));
        assert!(!RobotRules::deny_all().allow("/"));
    }
}
