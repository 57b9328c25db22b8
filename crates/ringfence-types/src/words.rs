//! Untrusted names and texts, checked once: a value of these types is safe for the use that its type names.

use serde::{Deserialize, Serialize};

/// A tenant's name: 1 to 64 of `[A-Za-z0-9_.-]`, not starting with a dot or a dash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Namespace(String);

/// The name of the code in tracebacks; one path component, 1 to 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScriptName(String);

/// A path below the workspace: relative, no `..`, no NUL, no empty or over-long part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspacePath(String);

/// The name of a directory that the operator has listed: as for a namespace, but neither `private` nor `namespace`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkspaceName(String);

/// A command-line argument: no NUL, at most 128 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Argument(String);

/// The name of a variable: `[A-Za-z_][A-Za-z0-9_]*`, at most 256 bytes, not one of ours (`RINGFENCE_*`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct EnvName(String);

/// The value of a variable: no NUL, at most 128 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct EnvValue(String);

/// Maximum length of a workspace path, in bytes (PATH_MAX less room for the prefix).
const PATH_BYTES_MAX: usize = 1024;
const PATH_PART_BYTES_MAX: usize = 255;
const PATH_DEPTH_MAX: usize = 32;
/// Maximum length of an argument and of a variable's value, in bytes.
const WORD_BYTES_MAX: usize = 128 << 10;

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(is_name_char) && !text.starts_with(['.', '-'])
}

impl Namespace {
    /// Returns the namespace of a caller who names none.
    pub fn default_name() -> Self {
        Self("default".to_owned())
    }
}

impl TryFrom<String> for Namespace {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if is_name(&text) {
            Ok(Self(text))
        } else {
            Err("a namespace is 1 to 64 letters, digits, `_`, `.` or `-`".to_owned())
        }
    }
}

impl TryFrom<String> for ScriptName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let good = (1..=128).contains(&text.len())
            && text.chars().all(|c| is_name_char(c) || c == ' ' || c == '+')
            && !text.starts_with(['.', '-', ' ']);
        if good {
            Ok(Self(text))
        } else {
            Err("a script's name is one plain file name".to_owned())
        }
    }
}

impl TryFrom<String> for WorkspaceName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if !is_name(&text) {
            Err("a workspace's name is 1 to 64 letters, digits, `_`, `.` or `-`".to_owned())
        } else if matches!(text.as_str(), "private" | "namespace") {
            Err(format!("`{text}` means a workspace that every namespace has"))
        } else {
            Ok(Self(text))
        }
    }
}

impl TryFrom<String> for WorkspacePath {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let relative = text.strip_prefix("/workspace/").unwrap_or(&text);
        let reason = if relative.is_empty() {
            "is empty"
        } else if relative.len() > PATH_BYTES_MAX {
            "is longer than 1024 bytes"
        } else if relative.contains('\0') {
            "holds a NUL byte"
        } else if relative.starts_with('/') {
            "is absolute and not below /workspace"
        } else if relative.ends_with('/') {
            "ends with a slash"
        } else if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
            "has an empty, `.` or `..` part"
        } else if relative.split('/').any(|part| part.len() > PATH_PART_BYTES_MAX) {
            "has a part longer than 255 bytes"
        } else if relative.split('/').count() > PATH_DEPTH_MAX {
            "is more than 32 parts deep"
        } else {
            return Ok(Self(relative.to_owned()));
        };
        Err(format!("the path {:?} {reason}", shorten(&text)))
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The error of a text that is not one of these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is one of {}", .0.join(", "))]
pub struct UnknownWord(pub &'static [&'static str]);

/// Implements a closed set of words for an enum: the list of all, and formatting and parsing of each. The enum itself
/// is defined here, each word beside its variant, or elsewhere.
#[macro_export]
macro_rules! closed_words {
    ($(#[$about:meta])* pub enum $kind:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        pub enum $kind {
            $($(#[$doc])* $variant,)*
        }
        $crate::closed_words!($kind: $($variant = $word),*);
    };
    ($kind:ident: $($variant:ident = $word:literal),* $(,)?) => {
        impl $kind {
            /// All variants, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The words, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// Returns the word of a variant.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $crate::UnknownWord;
            fn from_str(text: &str) -> Result<Self, $crate::UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err($crate::UnknownWord(Self::WORDS)),
                }
            }
        }
    };
}

/// Implements access, parsing and the schema of any string for a type that wraps a checked text.
macro_rules! text_of {
    ($($word:ident),*) => {$(
        impl $word {
            /// The checked text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl std::str::FromStr for $word {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                Self::try_from(text.to_owned())
            }
        }
        impl schemars::JsonSchema for $word {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <String as schemars::JsonSchema>::schema_name()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <String as schemars::JsonSchema>::json_schema(generator)
            }
        }
    )*};
}

/// Implements [`text_of`] and conversion to text for a type whose text may be shown.
macro_rules! text_word {
    ($($word:ident),*) => {$(
        $crate::words::text_of!($word);
        impl std::ops::Deref for $word {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl From<$word> for String {
            fn from(word: $word) -> String {
                word.0
            }
        }
        impl std::fmt::Display for $word {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
pub(crate) use {text_of, text_word};

text_word!(Namespace, ScriptName, WorkspaceName, WorkspacePath);

/// Checks a text for execve(2): `value` names the text, `whole` the string that it is part of.
fn check_word(text: &str, value: &str, whole: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err(format!("{value} holds a NUL byte"));
    }
    match text.len() > WORD_BYTES_MAX {
        true => Err(format!("{whole} is longer than 128 KiB")),
        false => Ok(()),
    }
}

impl TryFrom<String> for Argument {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        check_word(&text, "an argument", "an argument")?;
        Ok(Self(text))
    }
}

impl TryFrom<String> for EnvValue {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        check_word(&text, "a variable's value", "a variable")?;
        Ok(Self(text))
    }
}

impl TryFrom<String> for EnvName {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let mut chars = text.chars();
        let starts_well = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') || text.len() > 256 {
            return Err("a variable's name is letters, digits and `_`, begins with no digit, and has at most 256 bytes".to_owned());
        }
        if text.starts_with("RINGFENCE_") {
            return Err("variables named RINGFENCE_* are set by the sandbox itself".to_owned());
        }
        Ok(Self(text))
    }
}

text_of!(Argument, EnvName, EnvValue);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_paths_stay_below_the_workspace() {
        let check = |text: &str, good: bool| {
            assert_eq!(WorkspacePath::try_from(text.to_owned()).is_ok(), good, "{text:?}");
        };
        check("a.txt", true);
        check("a/b/c.txt", true);
        check("/workspace/a", true);
        check("..hidden", true);
        check("~/x", true);
        check("%2e%2e/x", true);
        check("", false);
        check("..", false);
        check("a/../b", false);
        check("./a", false);
        check("a//b", false);
        check("a/", false);
        check("/etc/passwd", false);
        check("/workspace/../etc/passwd", false);
        check("a\0b", false);
        check(&"x".repeat(256), false);
        check(&"x/".repeat(40), false);
        check(&"a".repeat(4097), false);
    }

    #[test]
    fn namespaces_are_plain_names() {
        let check = |text: &str, good: bool| {
            assert_eq!(Namespace::try_from(text.to_owned()).is_ok(), good, "{text:?}")
        };
        check("default", true);
        check("team-1.prod_x", true);
        check("", false);
        check("../x", false);
        check("-rf", false);
        check("a b", false);
        check(&"n".repeat(65), false);
    }
}
