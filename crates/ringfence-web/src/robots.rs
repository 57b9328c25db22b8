//! The robots exclusion protocol (RFC 9309): groups, the longest match, `*` and `$`.

/// The part of the user agent's name that groups are looked up by.
pub(crate) const PRODUCT: &str = "ringfence";
/// Section 2.5: at least 500 KiB are read.
pub(crate) const ROBOTS_BYTES_MAX: usize = 512 << 10;
/// Rules that are kept; more than any honest site has.
const RULES_MAX: usize = 10_000;
/// A pattern with more stars than this matches nothing; each costs a scan of the path.
const STARS_MAX: usize = 32;
/// A longer pattern is passed over.
const PATTERN_BYTES_MAX: usize = 2048;
/// Of all patterns that are kept of a site.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The rules of one site that are about us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RobotRules(Vec<RobotRule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct RobotRule {
    allows: bool,
    pattern: String,
}

impl RobotRules {
    /// Everything is refused: the site could not say what it allows (section 2.3.1.4).
    pub(crate) fn deny_all() -> Self {
        Self(vec![RobotRule {
            allows: false,
            pattern: "/".to_owned(),
        }])
    }

    /// Reads a robots.txt. What is not understood is passed over.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(ROBOTS_BYTES_MAX)]);
        let (mut ours, mut everybodys) = (Vec::new(), Vec::new());
        let (mut is_ours, mut is_everybodys, mut begins) = (false, false, true);
        let mut has_ours = false;
        let mut kept = 0;
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    // Lines of agents that follow each other share a group.
                    if !begins {
                        (is_ours, is_everybodys) = (false, false);
                    }
                    begins = true;
                    is_everybodys |= value == "*";
                    is_ours |= product(value).eq_ignore_ascii_case(PRODUCT);
                    has_ours |= is_ours;
                }
                "allow" | "disallow" => {
                    begins = false;
                    let is_too_much = value.len() > PATTERN_BYTES_MAX || kept > KEPT_BYTES_MAX;
                    if value.is_empty() || is_too_much || ours.len() + everybodys.len() >= RULES_MAX {
                        continue;
                    }
                    let rule = RobotRule {
                        allows: key == "allow",
                        pattern: normal(value),
                    };
                    if is_ours || is_everybodys {
                        kept += rule.pattern.len();
                    }
                    if is_ours {
                        ours.push(rule.clone());
                    }
                    if is_everybodys {
                        everybodys.push(rule);
                    }
                }
                _ => {}
            }
        }
        Self(if has_ours { ours } else { everybodys })
    }

    /// Whether a path with its query may be fetched: the longest pattern says it, and of two the one that allows.
    pub(crate) fn allow(&self, path_and_query: &str) -> bool {
        let path = normal(path_and_query);
        let matching = self.0.iter().filter(|rule| matches(&rule.pattern, &path));
        let longest = matching.max_by_key(|rule| (rule.pattern.len(), rule.allows));
        longest.is_none_or(|rule| rule.allows)
    }
}

/// `Ringfence/1.0` and `ringfence-bot` name the products `Ringfence` and `ringfence-bot`.
fn product(agent: &str) -> &str {
    let end = agent.find(|c: char| !(c.is_ascii_alphabetic() || matches!(c, '-' | '_')));
    &agent[..end.unwrap_or(agent.len())]
}

/// With percent-encoding in one form: what needs none has none, and the rest is in capitals (section 2.2.2).
fn normal(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
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
            true => normal.push(char::from(byte)),
            false => normal.push_str(&format!("%{byte:02X}")),
        }
        at += length;
    }
    normal
}

/// From the beginning; `*` is any run of characters, `$` at the end is the end.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let parts: Vec<&str> = parts.collect();
    let Some(mut rest) = path.strip_prefix(first) else {
        return false;
    };
    if parts.len() > STARS_MAX {
        return false;
    }
    let Some((last, middle)) = parts.split_last() else {
        return !is_whole || rest.is_empty();
    };
    for part in middle {
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
    fn the_longest_rule_says_it() {
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
    fn our_group_is_the_only_one_that_counts_where_there_is_one() {
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
    fn a_hostile_pattern_is_answered_at_once() {
        let pattern = format!("User-agent: *\nDisallow: /{}b$", "*a".repeat(5000));
        let path = format!("/{}", "a".repeat(100_000));
        assert!(RobotRules::parse(pattern.as_bytes()).allow(&path));
        assert!(!RobotRules::deny_all().allow("/"));
    }
}
