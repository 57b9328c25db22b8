//! The values of settings: each is read from a text form (flag, environment) and a YAML form, checked in both by the
//! same code, and written back as JSON.

use ringfence_engine::OnFailure;
use ringfence_store::audit::Durability;
use ringfence_types::{
    Backend, Profile, Tier, WorkspaceMode,
    nearest::suggestion,
    yaml::{Fault, Node},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    ops::{Deref, RangeInclusive},
    time::Duration,
};

pub(crate) trait SettingValue: Sized + Clone + 'static {
    /// Separator of the items of a list in a flag or a variable.
    const SEPARATOR: char = ',';
    /// The items that `all` stands for instead of a list; empty: `all` is not accepted.
    const ALL_MEANS: &'static [Self] = &[];
    const ITEMS: RangeInclusive<usize> = 0..=64;

    fn read(text: &str) -> Result<Self, String>;
    /// Reads the value from a file: from the same text, unless the value has another form there.
    fn of(node: &Node) -> Result<Self, Fault> {
        Self::read(node.text()?).map_err(|reason| node.fault(reason))
    }
    /// Returns the value as it is shown, and as a file would contain it.
    fn json(&self) -> Value;
    /// Returns the JSON Schema of the value in a file; by default, a text of bounded length.
    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 1024})
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeNumber<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> WholeNumber<MIN, MAX> {
    pub(crate) fn get(self) -> u64 {
        self.0
    }

    pub(crate) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub(crate) fn bytes(self) -> u64 {
        self.0 << 20
    }

    /// Converts a number of units, of `each` seconds, to a duration.
    pub(crate) fn of_seconds(self, each: u64) -> Duration {
        Duration::from_secs(each * self.0)
    }

    pub(crate) fn clamped(number: u64) -> Self {
        Self(number.clamp(MIN, MAX))
    }

    fn checked(number: u64) -> Result<Self, String> {
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("{number} is outside {MIN}..={MAX}"))
        }
    }
}

impl<const MIN: u64, const MAX: u64> SettingValue for WholeNumber<MIN, MAX> {
    fn read(text: &str) -> Result<Self, String> {
        let number = text.parse();
        Self::checked(number.map_err(|_| format!("`{text}` is not a whole number in {MIN}..={MAX}"))?)
    }
    fn of(node: &Node) -> Result<Self, Fault> {
        Self::checked(node.whole_number()?).map_err(|reason| node.fault(reason))
    }
    fn json(&self) -> Value {
        json!(self.0)
    }
    fn schema() -> Value {
        json!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// A number with a fraction; `MIN` and `MAX` are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Fraction<const MIN: u32, const MAX: u32>(f64);

pub(crate) type Cores = Fraction<10, 4_096_000>;
pub(crate) type Seconds = Fraction<100, 86_400_000>;
/// 0: never.
pub(crate) type SecondsOrNever = Fraction<0, 86_400_000>;

impl<const MIN: u32, const MAX: u32> Fraction<MIN, MAX> {
    fn bounds() -> (f64, f64) {
        (f64::from(MIN) / 1000.0, f64::from(MAX) / 1000.0)
    }

    pub(crate) fn get(self) -> f64 {
        self.0
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded at construction"
    )]
    pub(crate) fn thousandths(self) -> u64 {
        (self.0 * 1000.0).round() as u64
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.thousandths())
    }

    pub(crate) fn clamped(number: f64) -> Self {
        let (least, most) = Self::bounds();
        Self(number.clamp(least, most))
    }

    fn checked(number: f64) -> Result<Self, String> {
        let (least, most) = Self::bounds();
        // A NaN is in no range.
        if (least..=most).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!("{number} is outside {least}..={most}"))
        }
    }
}

impl<const MIN: u32, const MAX: u32> SettingValue for Fraction<MIN, MAX> {
    fn read(text: &str) -> Result<Self, String> {
        let number = text.parse();
        Self::checked(number.map_err(|_| format!("`{text}` is not a number"))?)
    }
    fn of(node: &Node) -> Result<Self, Fault> {
        Self::checked(node.number()?).map_err(|reason| node.fault(reason))
    }
    fn json(&self) -> Value {
        match self.0.fract() == 0.0 {
            true => json!(self.thousandths() / 1000),
            false => json!(self.0),
        }
    }
    fn schema() -> Value {
        let (least, most) = Self::bounds();
        json!({"type": "number", "minimum": least, "maximum": most})
    }
}

impl SettingValue for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(format!("`{text}` is neither true nor false")),
        }
    }
    fn of(node: &Node) -> Result<Self, Fault> {
        node.boolean()
    }
    fn json(&self) -> Value {
        json!(self)
    }
    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

/// Implements [`SettingValue`] for a closed set of words: a new enum, or an existing one.
macro_rules! choice {
    (
        $(#[$meta:meta])* enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? }
        $($of_list:item)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$doc])* $variant),+ }

        ringfence_types::closed_words!($name: $($variant = $text),+);
        $crate::settings::words::choice!($name { $($of_list)* });
    };
    ($($name:ty $({ $($of_list:item)* })?),+ $(,)?) => {$(
        impl SettingValue for $name {
            $($($of_list)*)?
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| $crate::settings::words::unknown(text, Self::WORDS))
            }
            fn json(&self) -> Value {
                json!(self.as_str())
            }
            fn schema() -> Value {
                json!({"enum": Self::WORDS})
            }
        }
    )+};
}

pub(super) use choice;

pub(super) fn unknown(text: &str, names: &[&str]) -> String {
    let near = suggestion(text, names.iter().copied());
    format!("`{text}` is not one of {}.{near}", names.join(", "))
}

choice!(
    Backend,
    Tier,
    WorkspaceMode,
    Durability,
    OnFailure,
    Profile {
        const ALL_MEANS: &'static [Self] = Profile::ALL;
    }
);

/// Declares a newtype of a text: its check, the refusal of other texts, and its schema.
macro_rules! text {
    ($(#[$about:meta])* $name:ident, $is_good:expr, $refused:expr, $schema:tt) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) String);

        impl SettingValue for $name {
            fn read(text: &str) -> Result<Self, String> {
                let is_good: fn(&str) -> bool = $is_good;
                let refused: fn(&str) -> String = $refused;
                is_good(text).then(|| Self(text.to_owned())).ok_or_else(|| refused(text))
            }
            fn json(&self) -> Value {
                json!(self.0)
            }
            fn schema() -> Value {
                json!($schema)
            }
        }
    };
}

pub(super) use text;

fn is_path_like(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.:@/-".contains(c))
}

text! {
    /// A container image: the argument of `docker pull`.
    ImageName,
    |text| text.len() <= 512 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && is_path_like(text),
    |_| "that is not the name of a container image".to_owned(),
    {"type": "string", "maxLength": 512, "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:@/-]*$"}
}

text! {
    ModuleName,
    |text| {
        let begins = |c: char| c.is_ascii_alphabetic() || "_@/".contains(c);
        text.len() <= 128 && text.starts_with(begins) && is_path_like(text)
    },
    |text| format!("`{text}` is not the name of a module"),
    {"type": "string", "maxLength": 128, "pattern": "^[A-Za-z_@/][A-Za-z0-9_.:@/-]*$"}
}

choice! {
    /// The lowest level of log lines that are written.
    enum LogLevel {
        Off = "off",
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

choice! {
    /// The fate of a program whose caller no longer waits for it.
    enum OnHangUp {
        Cancel = "cancel",
        Detach = "detach",
    }
}

choice! {
    enum Toolset {
        Execute = "execute",
        Sessions = "sessions",
        Observe = "observe",
        Vault = "vault",
        Snapshots = "snapshots",
        Data = "data",
        Egress = "egress",
        Host = "host",
        Web = "web",
    }
    /// Without `host`, which `host.enabled` adds.
    const ALL_MEANS: &'static [Self] = &[
        Self::Execute,
        Self::Sessions,
        Self::Snapshots,
        Self::Data,
        Self::Observe,
        Self::Vault,
        Self::Egress,
        Self::Web,
    ];
    const ITEMS: RangeInclusive<usize> = 1..=64;
}

/// A directory or file of the host: absolute, or below the home directory (`~/...`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct HostPath(String);

impl HostPath {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn ours(path: &std::path::Path) -> Self {
        Self(path.to_string_lossy().into_owned())
    }
}

impl TryFrom<String> for HostPath {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text.contains('\0') {
            Err("a path holds a NUL byte".to_owned())
        } else if text.starts_with('/') || text.starts_with("~/") {
            Ok(Self(text))
        } else {
            Err(format!(
                "the path `{text}` is relative; write it from `/` or from `~/`"
            ))
        }
    }
}

impl SettingValue for HostPath {
    const SEPARATOR: char = ':';

    fn read(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
    fn json(&self) -> Value {
        json!(self.0)
    }
    fn schema() -> Value {
        json!({"type": "string", "pattern": "^(/|~/)"})
    }
}

/// Declares an optional value, whose absence is written as a word.
macro_rules! optional {
    ($(#[$about:meta])* $name:ident($value:ty), $word:literal, $schema:tt) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) Option<$value>);

        impl SettingValue for $name {
            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $word => Ok(Self(None)),
                    text => <$value>::read(text).map(|value| Self(Some(value))),
                }
            }
            fn json(&self) -> Value {
                self.0.as_ref().map_or(json!($word), SettingValue::json)
            }
            fn schema() -> Value {
                json!($schema)
            }
        }
    };
}

pub(super) use optional;

optional! {
    /// A file or directory of the host, or `auto` for the default.
    Location(HostPath), "auto", {"type": "string", "pattern": "^(auto$|/|~/)"}
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List<T>(Vec<T>);

const ALL: &str = "all";

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: SettingValue> List<T> {
    pub(crate) fn of(items: Vec<T>) -> Self {
        Self(items)
    }

    fn check(items: usize) -> Result<(), String> {
        let (least, most) = T::ITEMS.into_inner();
        match items {
            _ if items > most => Err(format!("more than {most} items")),
            _ if items < least => Err("an empty list".to_owned()),
            _ => Ok(()),
        }
    }

    fn is_all(text: &str) -> bool {
        !T::ALL_MEANS.is_empty() && text == ALL
    }
}

impl<T: SettingValue> SettingValue for List<T> {
    fn read(text: &str) -> Result<Self, String> {
        let words = text.split(T::SEPARATOR).map(str::trim);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        if matches!(words[..], [word] if Self::is_all(word)) {
            return Ok(Self(T::ALL_MEANS.to_vec()));
        }
        Self::check(words.len())?;
        words.into_iter().map(T::read).collect::<Result<_, _>>().map(Self)
    }
    fn of(node: &Node) -> Result<Self, Fault> {
        let is_all = |node: &Node| node.text().is_ok_and(Self::is_all);
        match node.items() {
            Ok([item]) if is_all(item) => Ok(Self(T::ALL_MEANS.to_vec())),
            Ok(items) => {
                Self::check(items.len()).map_err(|reason| node.fault(reason))?;
                items.iter().map(T::of).collect::<Result<_, _>>().map(Self)
            }
            Err(_) if is_all(node) => Ok(Self(T::ALL_MEANS.to_vec())),
            Err(fault) if T::ALL_MEANS.is_empty() => Err(fault),
            Err(_) => Err(node.mismatch(&format!("a list or `{ALL}`"))),
        }
    }
    fn json(&self) -> Value {
        Value::Array(self.0.iter().map(SettingValue::json).collect())
    }
    fn schema() -> Value {
        let (least, most) = T::ITEMS.into_inner();
        let list = json!({"type": "array", "items": T::schema(), "minItems": least, "maxItems": most});
        match T::ALL_MEANS {
            [] => list,
            _ => json!({"anyOf": [{"const": ALL}, list]}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        let whole = |text: &str| WholeNumber::<16, 8192>::read(text).is_ok();
        assert!(whole("16") && whole("8192"));
        assert!(!whole("0") && !whole("15") && !whole("8193") && !whole("-1") && !whole("1.5") && !whole(""));
        assert!(!whole("99999999999999999999999"));
        let cores = |text: &str| Cores::read(text).is_ok();
        assert!(cores("0.5") && cores("1"));
        assert!(!cores("0") && !cores("NaN") && !cores("inf") && !cores("-1") && !cores("1e99"));
    }

    #[test]
    fn toolsets_are_a_list_or_all() {
        assert_eq!(List::<Toolset>::read("all").unwrap().0, Toolset::ALL_MEANS);
        assert_eq!(List::<Toolset>::read("execute").unwrap().0, [Toolset::Execute]);
        assert!(List::<Toolset>::read("").is_err());
        let two = [Toolset::Execute, Toolset::Host];
        assert_eq!(List::<Toolset>::read("execute,host").unwrap().0, two);
        assert!(
            List::<Toolset>::read("exekute")
                .unwrap_err()
                .contains("Did you mean `execute`?")
        );
    }

    #[test]
    fn paths_are_absolute_or_below_home() {
        let check = |text: &str, good: bool| assert_eq!(HostPath::read(text).is_ok(), good, "{text:?}");
        check("/opt/python", true);
        check("~/x", true);
        check("relative", false);
        check("", false);
        check("/a\0b", false);
        assert_eq!(List::<HostPath>::read("/a:/b").unwrap().len(), 2);
    }
}
