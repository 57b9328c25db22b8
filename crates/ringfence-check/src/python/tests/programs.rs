//! Programs that must pass under every profile that has their modules, and published ways around such rules that must not.
//! They lie in files, because they are run in the sandbox, too.

use super::*;
use std::{fs, path::Path};

const ORDINARY_MIN: usize = 60;
const EVASIONS_MIN: usize = 80;

/// Name, profiles of the first line, text.
fn programs(kind: &str, key: &str) -> Vec<(String, Vec<Profile>, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(kind);
    let mut programs = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let code = fs::read_to_string(&path).unwrap();
        let first = code.lines().next().unwrap();
        let list = first
            .strip_prefix(key)
            .unwrap_or_else(|| panic!("{path:?} begins with no `{key}`"));
        let profiles = list.split(", ").map(|word| word.parse().unwrap()).collect();
        programs.push((
            path.file_stem().unwrap().to_str().unwrap().to_owned(),
            profiles,
            code,
        ));
    }
    programs.sort();
    programs
}

#[test]
fn ordinary_programs_pass_every_profile_that_has_their_modules() {
    let programs = programs("ordinary", "# profiles: ");
    let mut passed = 0;
    let mut wrong = Vec::new();
    for (name, profiles, code) in &programs {
        for profile in profiles.iter().copied().chain([Profile::Unrestricted]) {
            passed += 1;
            for error in errors(code, profile) {
                wrong.push(format!("{name} under {}: {error}", profile.as_str()));
            }
        }
    }
    println!(
        "{} ordinary programs, {passed} times under a profile",
        programs.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(programs.len() >= ORDINARY_MIN);
}

#[test]
fn what_strict_refuses_is_said_of_its_rule() {
    let mut refused = BTreeSet::new();
    for (_, profiles, code) in programs("evasions", "# refused: ") {
        if profiles.contains(&Profile::Strict) {
            let errors = found(&code, Profile::Strict).into_iter();
            refused.extend(
                errors
                    .filter(|finding| finding.severity == Severity::Error)
                    .map(|finding| finding.rule.id),
            );
        }
    }
    let said = |id: &&str| {
        let rule = crate::rules().find(|rule| rule.id == *id).unwrap();
        rule.worst(Profile::Strict) == Severity::Error
    };
    let unsaid: Vec<_> = refused.iter().filter(|id| !said(id)).collect();
    assert!(unsaid.is_empty(), "{unsaid:?}");
    // Where the list says more than these programs show, it is by the weights of the rule.
    assert!(refused.len() > 15, "{refused:?}");
}

#[test]
fn published_evasions_are_refused() {
    let programs = programs("evasions", "# refused: ");
    let (mut strict, mut basic) = (0, 0);
    let mut wrong = Vec::new();
    for (name, profiles, code) in &programs {
        for profile in profiles {
            *(if *profile == Profile::Strict {
                &mut strict
            } else {
                &mut basic
            }) += 1;
            let errors = errors(code, *profile);
            if errors.is_empty() || errors.iter().any(|error| error.contains("python.syntax")) {
                wrong.push(format!(
                    "{name} under {}: {:?}",
                    profile.as_str(),
                    told(code, *profile)
                ));
            }
        }
    }
    println!(
        "{} evasions: {strict} refused under strict, {basic} under basic",
        programs.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(strict >= EVASIONS_MIN && strict == programs.len());
}
