//! Kinds of option values and operands. A kind is a closed description with a name; there are no patterns, because a
//! pattern that is slightly too wide looks like a correct one.

use crate::secret_places;
use ringfence_types::nearest::suggestion;
use serde::Deserialize;
use std::{fmt, path::Path};

const VALUE_CHARS_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Kind {
    Count(u64, u64),
    OneOf(Vec<String>),
    /// The name of a container or an image.
    Container,
    Unit,
    /// A revision, or a range of them.
    Ref,
    Package,
    /// A point in time in a form that programs read.
    Date,
    /// `+` and a format of date(1).
    DateFormat,
    Text,
    /// A path below the directory of the call, by its spelling: relative, without `..`.
    Within,
    Read,
    List,
}

const NAMES: [(&str, Kind); 10] = [
    ("container", Kind::Container),
    ("unit", Kind::Unit),
    ("ref", Kind::Ref),
    ("package", Kind::Package),
    ("date", Kind::Date),
    ("date_format", Kind::DateFormat),
    ("text", Kind::Text),
    ("path_within", Kind::Within),
    ("path_read", Kind::Read),
    ("path_list", Kind::List),
];

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some((_, kind)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(kind.clone());
        }
        let inner = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(bounds) = inner("count") {
            let bounds = bounds.split_once("..").and_then(|(low, high)| {
                let (low, high) = (low.parse().ok()?, high.parse().ok()?);
                (low <= high).then_some(Self::Count(low, high))
            });
            return bounds.ok_or_else(|| format!("`{text}` is not count(LOW..HIGH)"));
        }
        if let Some(words) = inner("one_of") {
            let words: Vec<String> = words.split('|').map(str::to_owned).collect();
            if words.iter().any(String::is_empty) {
                return Err(format!("`{text}` is not one_of(A|B)"));
            }
            return Ok(Self::OneOf(words));
        }
        let hint = suggestion(&text, NAMES.iter().map(|(name, _)| *name));
        Err(format!("`{text}` is not a kind of value.{hint}"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(low, high) => write!(f, "a number from {low} to {high}"),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::Container => f.write_str("the name of a container"),
            Self::Unit => f.write_str("the name of a unit"),
            Self::Ref => f.write_str("a revision"),
            Self::Package => f.write_str("the name of a package"),
            Self::Date => f.write_str("a date"),
            Self::DateFormat => f.write_str("`+` and a format"),
            Self::Text => f.write_str("a text that does not begin with `-`"),
            Self::Within => f.write_str("a relative path without `..`"),
            Self::Read => f.write_str("a file that the directory rules let be read"),
            Self::List => f.write_str("a path that the directory rules let be listed"),
        }
    }
}

impl Kind {
    /// True if the directory rules decide on the value.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self, Self::Read | Self::List)
    }

    /// True if the text of the value is of this kind. The target of a path is checked later.
    pub(crate) fn admits(&self, value: &str) -> bool {
        if value.chars().count() > VALUE_CHARS_MAX || value.contains('\0') || value.starts_with('-') {
            return false;
        }
        let begins = |ok: fn(char) -> bool| value.chars().next().is_some_and(ok);
        let all = |extra: &str| {
            value
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
        };
        match self {
            Self::Count(low, high) => {
                let digits = value.bytes().all(|byte| byte.is_ascii_digit()) && value.len() <= 19;
                digits && value.parse().is_ok_and(|count| (*low..=*high).contains(&count))
            }
            Self::OneOf(words) => words.iter().any(|word| word == value),
            Self::Container => begins(|c| c.is_ascii_alphanumeric()) && all("_.-/:@"),
            Self::Unit => begins(|c| c.is_ascii_alphanumeric()) && all(":_.\\-@"),
            Self::Ref if value.split(':').skip(1).any(is_secret) => false,
            Self::Ref => begins(|c| c.is_ascii_alphanumeric() || c == '@') && all("_./-^~@{}:"),
            Self::Package => begins(|c| c.is_ascii_alphanumeric() || c == '@') && all("@_./-"),
            Self::Date => begins(|c| c.is_ascii_alphanumeric()) && all(" :.,+-/TZ"),
            Self::DateFormat => begins(|c| c == '+') && value.chars().all(|c| (' '..='~').contains(&c)),
            Self::Text => !value.chars().any(char::is_control),
            Self::Within => is_within(value) && !is_secret(value),
            Self::Read | Self::List => !value.is_empty() && !value.chars().any(char::is_control),
        }
    }
}

/// True if a relative path names a secret place.
fn is_secret(value: &str) -> bool {
    secret_places::in_path(Path::new(value)).is_some()
}

/// True for a relative path without `..` and globs. It does not begin with `:` either, as git's magic pathspecs do.
fn is_within(value: &str) -> bool {
    use std::path::Component;
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let chars = |c: char| !c.is_control() && !"*?[\\".contains(c);
    !value.is_empty()
        && !value.starts_with(':')
        && value.chars().all(chars)
        && Path::new(value).components().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        Kind::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn values_are_admitted_by_kind() {
        let check = |name: &str, good: &[&str], bad: &[&str]| {
            let kind = kind(name);
            for value in good {
                assert!(kind.admits(value), "{name} {value}");
            }
            for value in bad {
                assert!(!kind.admits(value), "{name} {value}");
            }
        };
        check(
            "count(1..1000)",
            &["1", "1000", "0010"],
            &["0", "1001", "-1", "+5", "1e3", "", "9999999999999999999999"],
        );
        check("one_of(short|full)", &["short"], &["shor", "", "Short"]);
        check(
            "container",
            &["web", "web_1", "repo/img:tag"],
            &["-v", "", "a b", "a;b", ".x", "unix:///x y"],
        );
        check(
            "unit",
            &["ssh.service", "a@b.service"],
            &["--host=x", "a/b", "", "a*"],
        );
        let plain = ["HEAD", "HEAD~3", "v1.0..v2.0", "@{1}", "a/b"];
        let secret = ["HEAD:.env", "HEAD^{/fix:}:.env"];
        check("ref", &plain, &secret);
        check("ref", &[], &["--output=x", "-n", "^x", "", "a b", "a\nb"]);
        check("package", &["numpy", "@types/node"], &["--log", "a b", ""]);
        check("date", &["2026-01-01", "2 weeks ago"], &["-1", "", "a;b"]);
        check(
            "date_format",
            &["+%s", "+%Y-%m-%d %T"],
            &["%s", "2026-01-01", "+\n", ""],
        );
        check("text", &["x", "a b"], &["-x", "a\u{1b}"]);
        check(
            "path_within",
            &["src", "./a/b", "a b"],
            &[
                "/etc",
                "../x",
                "a/../../b",
                ":(top)x",
                "a*",
                "-x",
                "",
                ".env",
                "a/.ssh/x",
            ],
        );
        for bad in [
            "count(5..1)",
            "count(a..b)",
            "one_of()",
            "one_of(a|)",
            "nmae",
            "ref(x)",
        ] {
            assert!(Kind::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
