//! The rules of all languages: their texts are in a file, and code refers to them by name.

use crate::rule::Rule;
use ringfence_types::{Profile, Severity};
use serde::{Deserialize, Deserializer, de::Error};
use std::sync::LazyLock;

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| crate::lists::embedded(include_str!("rules.json")));

/// Returns all rules, ordered by language.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    RULES.iter()
}

/// Finds a rule by its id, without regard to case.
pub(crate) fn find(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id.eq_ignore_ascii_case(id))
}

impl Rule {
    /// Returns the highest severity of the rule's findings under a profile that allows the module.
    pub fn worst(&self, profile: Profile) -> Severity {
        let is_strict = profile == Profile::Strict && self.is_strict;
        if is_strict { Severity::Error } else { self.severity }
    }
}

/// Reads a rule by its id, in the tables that refer to rules.
impl<'de> Deserialize<'de> for &'static Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        find(&id).ok_or_else(|| D::Error::custom(id))
    }
}

/// Defines a module for each language with the rules that code reports: `python::SYNTAX` is `python.syntax`.
macro_rules! rules_of {
    ($($language:ident: $($name:ident)*;)*) => {$(
        pub(crate) mod $language {
            use super::{LazyLock, RULES, Rule, find};

            $(pub(crate) static $name: LazyLock<&Rule> = LazyLock::new(|| {
                find(concat!(stringify!($language), ".", stringify!($name))).unwrap_or(&RULES[0])
            });)*

            #[cfg(test)]
            pub(super) const NAMES: &[&str] =
                &[$(concat!(stringify!($language), ".", stringify!($name))),*];
        }
    )*};
}

rules_of! {
    python:
        SYNTAX NESTING INTRICATE ENCODING UNDEFINED_NAME DYNAMIC_EXECUTION SHELL_TRUE UNSAFE_LOAD REFLECTION
        PRIVATE_ATTRIBUTE FORMAT_ATTRIBUTE BUILTINS_WRITE FILE_ACCESS FILE_DELETION CREDENTIAL_PATH
        OBFUSCATED_NAME BIDIRECTIONAL_TEXT OBFUSCATED_CODE;
    profile:
        IMPORT MODULE_ATTRIBUTE;
    javascript:
        SYNTAX UNPARSED LINE_END DYNAMIC_EXECUTION DYNAMIC_REQUIRE CHILD_PROCESS NATIVE WORKER_THREADS
        NETWORK FILE_DELETION CREDENTIAL_PATH PROTOTYPE_POLLUTION OBFUSCATION REVERSE_SHELL
        KILL_ALL;
    shell:
        SYNTAX UNPARSED REMOVE_ROOT FILE_DELETION DEVICE_WRITE FORMAT_DEVICE FORK_BOMB DOWNLOAD_AND_RUN
        ENCODED_RUN REVERSE_SHELL PERMISSIONS SCHEDULE POWER HISTORY STARTUP_FILES CREDENTIAL_PATH
        EXFILTRATION LOADER SYSTEM_SETTINGS DYNAMIC_EXECUTION NETWORK CARRIAGE_RETURN HERE_DOCUMENT BRACKET;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_rule() {
        let names = [python::NAMES, profile::NAMES, javascript::NAMES, shell::NAMES].concat();
        let unknown: Vec<&&str> = names.iter().filter(|name| find(name).is_none()).collect();
        assert!(unknown.is_empty() && rules().count() > names.len(), "{unknown:?}");
    }
}
