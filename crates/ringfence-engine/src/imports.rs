//! The modules that a Python program may import: the caller's request, within the operator's offer. Pure policy.

use crate::{error::Result, settings::CheckSettings};
use ringfence_check::profile;
use ringfence_types::{InputFile, Language, ModuleName, Profile, RequestError, Rules};
use std::{collections::BTreeSet, str::FromStr};

pub(crate) fn rules(
    check: &CheckSettings,
    language: Language,
    profile: Option<Profile>,
    named: Option<&BTreeSet<ModuleName>>,
) -> Result<Rules> {
    if language != Language::Python {
        return match (profile, named) {
            (None | Some(Profile::Unrestricted), None) => Ok(Rules::unrestricted()),
            _ => Err(RequestError::invalid(
                "profiles and `allowed_imports` are lists of Python modules.",
                "Leave them out; `validate: \"strict\"` refuses what is risky in every language.",
            )),
        };
    }
    let chosen = check.choose(profile)?;
    let mut modules = named.into_iter().flatten();
    if let Some(module) = modules.find(|module| !is_offered(check, module)) {
        return Err(RequestError::denied(
            format!("the module `{module}` is in no profile that is offered here."),
            format!("Have the operator add `{module}` to `check.allowed_imports`."),
        ));
    }
    let imports = match (check.modules(chosen), named) {
        (None, None) => None,
        (None, Some(named)) => Some(directives().chain(named.iter().cloned()).collect()),
        (Some(modules), named) => Some(
            modules
                .into_iter()
                .chain(named.into_iter().flatten().cloned())
                .collect(),
        ),
    };
    Ok(Rules {
        profile: chosen,
        imports,
    })
}

impl CheckSettings {
    /// Returns the modules that a program may import under a profile; `None`: all.
    pub fn modules(&self, profile: Profile) -> Option<BTreeSet<ModuleName>> {
        let own = profile::modules(profile)?;
        let is_replaced = self.only_allowed_imports && matches!(profile, Profile::Basic | Profile::Strict);
        let own = if is_replaced { directives().collect() } else { own };
        Some(
            own.into_iter()
                .chain(self.allowed_imports.iter().cloned())
                .collect(),
        )
    }

    /// Returns the profile of a request that names this one, or none.
    pub fn choose(&self, named: Option<Profile>) -> Result<Profile> {
        let chosen = named.unwrap_or(self.profile);
        if self.offered().any(|profile| profile == chosen) {
            return Ok(chosen);
        }
        let offered: Vec<&str> = self.offered().map(Profile::as_str).collect();
        let offered = offered.join(", ");
        Err(RequestError::denied(
            format!("the profile `{chosen}` is not offered here."),
            format!("Offered: {offered}. The operator says so in `check.profiles`."),
        ))
    }

    /// Returns the profiles that callers may choose, and the default profile.
    pub fn offered(&self) -> impl Iterator<Item = Profile> {
        let is_offered = |profile: &Profile| *profile == self.profile || self.profiles.contains(profile);
        Profile::ALL.iter().copied().filter(is_offered)
    }
}

/// True if a caller may name this module: `unrestricted` is offered, or the module or a package around it is offered.
fn is_offered(check: &CheckSettings, module: &ModuleName) -> bool {
    let all = check.offered().any(|profile| profile == Profile::Unrestricted);
    let covers = |other: &ModuleName| {
        let below = module.as_str().strip_prefix(other.as_str());
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    all || check.allowed_imports.iter().any(covers)
        || check
            .offered()
            .filter_map(|profile| check.modules(profile))
            .flatten()
            .any(|other| covers(&other))
}

fn directives() -> impl Iterator<Item = ModuleName> {
    profile::DIRECTIVES.iter().filter_map(|name| name.parse().ok())
}

/// Modules that come with a request, as files of its workspace.
pub(crate) fn local(files: &[InputFile]) -> impl Iterator<Item = ModuleName> {
    let names = of_files(files.iter().map(|file| file.path.as_str()));
    names.into_iter().filter_map(|name| name.parse().ok())
}

/// Returns the top-level module names of these files, without standard ones: `import os` finds no local `os.py`.
pub(crate) fn of_files<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let names = paths.filter_map(|path| {
        let stem = path.strip_suffix(".py")?;
        let name = stem.split_once('/').map_or(stem, |(first, _)| first);
        let is_standard = profile::is_standard(name);
        (!is_standard && ModuleName::from_str(name).is_ok()).then(|| name.to_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;
    use std::collections::BTreeMap;

    fn modules(names: &[&str]) -> BTreeSet<ModuleName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn operator(profile: Profile, profiles: &[Profile], allowed: &[&str]) -> CheckSettings {
        CheckSettings {
            profile,
            profiles: profiles.iter().copied().collect(),
            allowed_imports: modules(allowed),
            only_allowed_imports: false,
            known_imports: BTreeMap::new(),
            schemas: BTreeMap::new(),
        }
    }

    #[test]
    fn named_modules_are_added_to_the_profile() {
        let all = operator(Profile::Unrestricted, Profile::ALL, &[]);
        let of = |profile, named: Option<&[&str]>| {
            let named = named.map(modules);
            rules(&all, Language::Python, profile, named.as_ref())
                .unwrap()
                .imports
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some(&["os"])), Some(modules(&["__future__", "os"])));
        let basic = of(Some(Profile::Basic), None).unwrap();
        assert!(basic.contains(&"json".parse().unwrap()) && !basic.contains(&"numpy".parse().unwrap()));
        let more = of(Some(Profile::Basic), Some(&["numpy.linalg"])).unwrap();
        assert_eq!(more.len(), basic.len() + 1);
        assert!(of(Some(Profile::DataScience), None).unwrap().is_superset(&basic));
        assert_eq!(of(Some(Profile::Strict), None).unwrap(), basic);
    }

    /// claim: [CHK-3]
    #[test]
    fn modules_beyond_the_operators_offer_are_denied() {
        let bound = operator(Profile::Basic, &[Profile::Basic, Profile::DataScience], &["yaml"]);
        let check = |profile, named: &[&str], expect: Option<ErrorCode>| {
            let named = (!named.is_empty()).then(|| modules(named));
            let got = rules(&bound, Language::Python, profile, named.as_ref());
            assert_eq!(got.err().map(|error| error.code), expect, "{profile:?} {named:?}");
        };
        let denied = Some(ErrorCode::PolicyDenied);
        check(None, &[], None);
        check(Some(Profile::DataScience), &[], None);
        check(Some(Profile::Unrestricted), &[], denied);
        check(Some(Profile::Filesystem), &[], denied);
        check(None, &["yaml.nodes"], None);
        check(None, &["numpy.linalg"], None); // in another profile that is offered
        check(None, &["os"], denied);
        check(None, &["yamlish"], denied);
        check(None, &["xml"], denied); // only submodules of it are offered
        let rules = rules(&bound, Language::Python, None, None).unwrap();
        assert!(rules.imports.unwrap().contains(&"yaml".parse().unwrap()));
    }

    #[test]
    fn profiles_apply_to_python_only() {
        let all = operator(Profile::Basic, Profile::ALL, &[]);
        for language in [Language::Node, Language::Typescript, Language::Shell] {
            assert_eq!(rules(&all, language, None, None).unwrap(), Rules::unrestricted());
            assert!(rules(&all, language, Some(Profile::Basic), None).is_err());
            assert!(rules(&all, language, None, Some(&modules(&["os"]))).is_err());
        }
    }

    /// claim: [CHK-3]
    #[test]
    fn input_files_are_importable_modules() {
        let file = |path: &str| InputFile {
            path: path.parse().unwrap(),
            bytes: Vec::new(),
        };
        let files = [
            "tools.py",
            "data/x.csv",
            "pack/__init__.py",
            "no-name.py",
            "os.py",
            "sys/a.py",
        ]
        .map(file);
        assert_eq!(
            local(&files).collect::<BTreeSet<_>>(),
            modules(&["pack", "tools"])
        );
    }
}
