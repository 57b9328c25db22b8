//! Which modules a profile lets a program reach, whichever way it goes: by an import, by a text, or as an attribute of
//! another module.

use crate::{
    CodeQuestion,
    lists::{LISTS, is_within},
    python::profile,
    registry::profile as profile_rules,
    rule::{Finding, Rule},
};
use ringfence_types::{ModuleName, Profile, Severity};
use ruff_python_ast::StmtImportFrom;
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

pub(super) struct Imports<'q> {
    asked: &'q CodeQuestion,
    /// With the local ones; none: all there are.
    names: Option<BTreeSet<&'q str>>,
}

impl<'q> Imports<'q> {
    pub(super) fn of(asked: &'q CodeQuestion) -> Self {
        let local = asked.local_modules.iter().map(String::as_str);
        let imports = asked.rules.imports.as_ref();
        let names = imports.map(|set| set.iter().map(ModuleName::as_str).chain(local).collect());
        Self { asked, names }
    }

    pub(super) fn are_restricted(&self) -> bool {
        self.names.is_some()
    }

    /// Whether a module may be imported, or something of it be used: `os.path.join` under `os.path`.
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
        match self.may_be_own(path) {
            true => Allowed::Yes,
            false => Allowed::No,
        }
    }

    /// Whether it can be a file beside the code.
    fn may_be_own(&self, path: &str) -> bool {
        let root = path.split('.').next().unwrap_or(path);
        let is_known = profile::is_standard(root) || Profile::ALL.iter().any(|profile| has(*profile, root));
        self.asked.has_workspace && !root.is_empty() && !is_known
    }

    pub(super) fn is_local(&self, module: &str) -> bool {
        let root = module.split('.').next().unwrap_or(module);
        let local = &self.asked.local_modules;
        self.names.is_none() || local.contains(root) || local.contains(module)
    }

    /// Whether it is one of the modules that come with the code, by their list.
    pub(super) fn is_own(&self, path: &str) -> bool {
        let root = path.split(['.', '(']).next().unwrap_or(path);
        self.asked.local_modules.contains(root)
    }

    /// A module that is not allowed.
    pub(super) fn refused(&self, rule: &'static Rule, path: &str, what: String, range: TextRange) -> Finding {
        let what = match self.asked.rules.profile {
            Profile::Unrestricted => not_listed(&what),
            profile => format!("{what} under the profile `{}`", profile.as_str()),
        };
        let finding = Finding::new(rule, range.to_std_range(), what).with_severity(Severity::Error);
        finding.with_hint(self.hint(module_of(path)))
    }

    /// `from .a import b`.
    pub(super) fn relative(written: &str, import: &StmtImportFrom) -> Finding {
        let hint = match (&import.module, import.names.as_slice()) {
            (Some(module), _) => format!("Name the module without the dots: `from {module} import ...`."),
            (None, [alias]) => format!("Name the module without the dots: `import {}`.", alias.name),
            (None, _) => "Name the modules without the dots.".to_owned(),
        };
        let what = format!("`{written}` is relative, and a program is one file in no package");
        let finding = Finding::new(&profile_rules::IMPORT, import.range.to_std_range(), what);
        finding.with_severity(Severity::Error).with_hint(hint)
    }

    fn hint(&self, module: &str) -> String {
        if self.asked.rules.profile == Profile::Unrestricted {
            return format!("Where it is needed, add `{module}` to `allowed_imports`.");
        }
        let restricts = |known: &&Profile| **known != Profile::Unrestricted;
        let mut restricting = Profile::ALL.iter().filter(restricts);
        let owner = restricting.find(|profile| has(**profile, module));
        let add = format!("`allowed_imports: [\"{module}\"]`");
        match owner {
            Some(profile) if *profile != self.asked.rules.profile => {
                let profile = profile.as_str();
                format!("The profile `{profile}` has `{module}`; or add it alone by {add}.")
            }
            _ => format!("No restricting profile has `{module}`; where it is needed, add it by {add}."),
        }
    }
}

/// What is said where there is a list and no profile.
fn not_listed(what: &str) -> String {
    let what = what.strip_suffix(", which is not allowed").unwrap_or(what);
    match what.ends_with("is imported") {
        true => format!("{what} and is not in `allowed_imports`"),
        false => format!("{what}, which is not in `allowed_imports`"),
    }
}

/// The module that has to be allowed for something in it: `os` for `os.environ`.
fn module_of(path: &str) -> &str {
    let root = path.split('.').next().unwrap_or(path);
    let is_module = profile::is_standard(root) && !LISTS.packages.contains(&root);
    match (is_module, is_within(path, "os.path")) {
        (true, true) => "os.path",
        (true, false) => root,
        _ => path,
    }
}

fn has(profile: Profile, module: &str) -> bool {
    let mut names = profile::BASIC.iter().chain(profile::additions(profile));
    names.any(|name| is_within(module, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::tests::asked;

    #[test]
    fn a_module_brings_what_lies_below_it_and_not_what_lies_above() {
        let mut asked = asked(Profile::Filesystem);
        asked.local_modules = BTreeSet::from(["mine".to_owned()]);
        let imports = Imports::of(&asked);
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
    fn what_is_nobodys_may_be_a_file_of_the_workspace() {
        let mut asked = asked(Profile::Basic);
        asked.has_workspace = true;
        let imports = Imports::of(&asked);
        let check = |path: &str, expect: Allowed| assert_eq!(imports.allow(path), expect, "{path}");
        check("helper", Allowed::Yes);
        check("helper.part", Allowed::Yes);
        check("os", Allowed::No);
        check("numpy", Allowed::No);
        check("", Allowed::No);
    }
}
