//! Which modules a profile lets a program reach, whichever way it goes: by an import, by a text, or as an attribute of
//! another module.

use super::{PROFILE_IMPORT, PROFILE_MODULE_ATTRIBUTE};
use crate::{
    python::profile,
    rule::{Finding, Rule},
};
use ringfence_types::{ModuleName, Profile, Rules, Severity};
use ruff_text_size::TextRange;
use std::collections::BTreeSet;

/// What a list of modules says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    Yes,
    /// Something below it is, so that it may stand on the way there.
    OnTheWay,
    No,
}

/// What may be imported.
pub(super) struct Imports<'q> {
    profile: Profile,
    /// With the local ones; none: all there are.
    names: Option<BTreeSet<&'q str>>,
    local: &'q BTreeSet<String>,
}

impl<'q> Imports<'q> {
    pub(super) fn of(rules: &'q Rules, local: &'q BTreeSet<String>) -> Self {
        Self {
            profile: rules.profile,
            names: rules.imports.as_ref().map(|set| {
                let local = local.iter().map(String::as_str);
                set.iter().map(ModuleName::as_str).chain(local).collect()
            }),
            local,
        }
    }

    /// Is there a list at all.
    pub(super) fn are_restricted(&self) -> bool {
        self.names.is_some()
    }

    /// May a module be imported, or something of it be used: `os.path.join` under `os.path`.
    pub(super) fn allow(&self, path: &str) -> Allowed {
        let Some(names) = &self.names else {
            return Allowed::Yes;
        };
        let mut ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        if ends.any(|end| path.get(..end).is_some_and(|name| names.contains(name))) {
            return Allowed::Yes;
        }
        let below = format!("{path}.");
        let next = names.range(below.as_str()..).next();
        if next.is_some_and(|name| name.starts_with(&below)) {
            return Allowed::OnTheWay;
        }
        Allowed::No
    }

    /// Does it come with the code.
    pub(super) fn is_local(&self, module: &str) -> bool {
        let root = module.split('.').next().unwrap_or(module);
        self.names.is_none() || self.local.contains(root) || self.local.contains(module)
    }

    /// `import os` where `os` is not allowed.
    pub(super) fn refused(&self, module: &str, what: String, range: TextRange) -> Finding {
        self.finding(&PROFILE_IMPORT, module, what, range)
    }

    /// `uuid.os` where `os` is not allowed.
    pub(super) fn refused_attribute(&self, module: &str, what: String, range: TextRange) -> Finding {
        self.finding(&PROFILE_MODULE_ATTRIBUTE, module, what, range)
    }

    fn finding(&self, rule: &'static Rule, module: &str, what: String, range: TextRange) -> Finding {
        let owner = [
            Profile::Basic,
            Profile::DataScience,
            Profile::Network,
            Profile::Filesystem,
        ]
        .into_iter()
        .find(|profile| has(*profile, module));
        let add = format!("`allowed_imports: [\"{module}\"]`");
        let hint = match owner {
            Some(profile) if profile != self.profile => {
                format!(
                    "The profile `{}` has `{module}`; or add it alone by {add}.",
                    profile.as_str()
                )
            }
            _ => format!("No restricting profile has `{module}`; where it is needed, add it by {add}."),
        };
        Finding {
            range: range.start().to_usize()..range.end().to_usize(),
            rule,
            severity: Severity::Error,
            what: match self.profile {
                Profile::Unrestricted => format!("{what} beside `allowed_imports`"),
                profile => format!("{what} under the profile `{}`", profile.as_str()),
            },
            hint: Some(hint),
        }
    }
}

fn has(profile: Profile, module: &str) -> bool {
    profile::BASIC
        .iter()
        .chain(profile::additions(profile))
        .any(|name| {
            module == *name
                || module
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_brings_what_lies_below_it_and_not_what_lies_above() {
        let rules = Rules {
            profile: Profile::Filesystem,
            imports: profile::modules(Profile::Filesystem),
        };
        let local = BTreeSet::from(["mine".to_owned()]);
        let imports = Imports::of(&rules, &local);
        let check = |path: &str, expect: Allowed| assert_eq!(imports.allow(path), expect, "{path}");
        check("json", Allowed::Yes);
        check("json.decoder", Allowed::Yes);
        check("os.path", Allowed::Yes);
        check("os.path.join", Allowed::Yes);
        check("os", Allowed::OnTheWay);
        check("os.system", Allowed::No);
        check("xml.etree", Allowed::OnTheWay);
        check("sys", Allowed::No);
        check("jsonx", Allowed::No);
        check("mine", Allowed::Yes);
        check("mine.part", Allowed::Yes);
        check("", Allowed::No);
    }

    #[test]
    fn a_refusal_names_the_smallest_change() {
        let rules = Rules {
            profile: Profile::Basic,
            imports: profile::modules(Profile::Basic),
        };
        let local = BTreeSet::new();
        let imports = Imports::of(&rules, &local);
        let hint = |module: &str| {
            imports
                .refused(module, String::new(), TextRange::default())
                .hint
                .unwrap()
        };
        assert_eq!(
            hint("numpy.linalg"),
            "The profile `data_science` has `numpy.linalg`; or add it alone by `allowed_imports: [\"numpy.linalg\"]`."
        );
        assert!(hint("subprocess").starts_with("No restricting profile"));
    }
}
