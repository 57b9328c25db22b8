//! The modules that a profile allows a program to reach: by an import, a string, or as an attribute of another module.

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

/// Result of looking up a module in the list of allowed modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    Yes,
    /// Only a module below it is allowed, so that it may occur in that module's path.
    AsParent,
    No,
}

pub(super) struct Imports<'q> {
    question: &'q CodeQuestion,
    /// Allowed modules, with the local ones; `None` for all modules.
    names: Option<BTreeSet<&'q str>>,
}

impl<'q> Imports<'q> {
    pub(super) fn of(question: &'q CodeQuestion) -> Self {
        let local = question.local_modules.iter().map(String::as_str);
        let imports = question.rules.imports.as_ref();
        let names = imports.map(|set| set.iter().map(ModuleName::as_str).chain(local).collect());
        Self { question, names }
    }

    pub(super) fn are_restricted(&self) -> bool {
        self.names.is_some()
    }

    /// Looks up a module or a name in it: `os.path.join` is allowed by `os.path`.
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
            return Allowed::AsParent;
        }
        match self.may_be_workspace_file(path) {
            true => Allowed::Yes,
            false => Allowed::No,
        }
    }

    fn may_be_workspace_file(&self, path: &str) -> bool {
        let root = path.split('.').next().unwrap_or(path);
        let is_known = profile::is_standard(root) || Profile::ALL.iter().any(|profile| has(*profile, root));
        self.question.has_workspace && !root.is_empty() && !is_known
    }

    pub(super) fn is_local(&self, module: &str) -> bool {
        let root = module.split('.').next().unwrap_or(module);
        let local = &self.question.local_modules;
        self.names.is_none() || local.contains(root) || local.contains(module)
    }

    /// True if the path begins with a module in the list of those that come with the code.
    pub(super) fn is_own(&self, path: &str) -> bool {
        let root = path.split(['.', '(']).next().unwrap_or(path);
        self.question.local_modules.contains(root)
    }

    pub(super) fn refused(&self, rule: &'static Rule, path: &str, what: String, range: TextRange) -> Finding {
        let what = match self.question.rules.profile {
            Profile::Unrestricted => not_listed(&what),
            profile => format!("{what} under the profile `{}`", profile.as_str()),
        };
        let finding = Finding::new(rule, range.to_std_range(), what).with_severity(Severity::Error);
        finding.with_hint(self.hint(module_of(path)))
    }

    /// Returns the finding for `from .a import b`.
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
        if self.question.rules.profile == Profile::Unrestricted {
            return format!("Where it is needed, add `{module}` to `allowed_imports`.");
        }
        let restricts = |known: &&Profile| **known != Profile::Unrestricted;
        let mut restricting = Profile::ALL.iter().filter(restricts);
        let owner = restricting.find(|profile| has(**profile, module));
        let add = format!("`allowed_imports: [\"{module}\"]`");
        match owner {
            Some(profile) if *profile != self.question.rules.profile => {
                let profile = profile.as_str();
                format!("The profile `{profile}` has `{module}`; or add it alone by {add}.")
            }
            _ => format!("No restricting profile has `{module}`; where it is needed, add it by {add}."),
        }
    }
}

/// Returns the text for a list without a profile.
fn not_listed(what: &str) -> String {
    let what = what.strip_suffix(", which is not allowed").unwrap_or(what);
    match what.ends_with("is imported") {
        true => format!("{what} and is not in `allowed_imports`"),
        false => format!("{what}, which is not in `allowed_imports`"),
    }
}

/// Returns the module that has to be allowed for a path: `os` for `os.environ`.
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
    use crate::python::tests::question;

    #[test]
    fn allowed_module_includes_its_submodules_and_not_its_parent() {
        let mut question = question(Profile::Filesystem);
        question.local_modules = BTreeSet::from(["mine".to_owned()]);
        let imports = Imports::of(&question);
        let check = |path: &str, expect: Allowed| assert_eq!(imports.allow(path), expect, "{path}");
        check("json", Allowed::Yes);
        check("json.decoder", Allowed::Yes);
        check("os.path", Allowed::Yes);
        check("os.path.join", Allowed::Yes);
        check("os", Allowed::AsParent);
        check("os.system", Allowed::No);
        check("xml.etree", Allowed::AsParent);
        check("sys", Allowed::No);
        check("jsonx", Allowed::No);
        check("mine", Allowed::Yes);
        check("mine.part", Allowed::Yes);
        check("", Allowed::No);
    }

    #[test]
    fn unknown_module_may_be_a_file_of_the_workspace() {
        let mut question = question(Profile::Basic);
        question.has_workspace = true;
        let imports = Imports::of(&question);
        let check = |path: &str, expect: Allowed| assert_eq!(imports.allow(path), expect, "{path}");
        check("helper", Allowed::Yes);
        check("helper.part", Allowed::Yes);
        check("os", Allowed::No);
        check("numpy", Allowed::No);
        check("", Allowed::No);
    }
}
