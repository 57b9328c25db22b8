//! Programs that must pass under every profile that has their modules, and published evasions of such rules that must
//! not. They are files, because they also run in the sandbox.

use super::*;
use std::{fs, path::Path};

const ORDINARY_MIN: usize = 60;
const EVASIONS_MIN: usize = 80;

/// Returns the name, the profiles in the first line, and the code of each program.
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
            .unwrap_or_else(|| panic!("{path:?} does not begin with `{key}`"));
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
fn rules_with_strict_errors_are_marked_strict() {
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
    let is_declared = |id: &&str| {
        let rule = crate::rules().find(|rule| rule.id == *id).unwrap();
        rule.worst(Profile::Strict) == Severity::Error
    };
    let undeclared: Vec<_> = refused.iter().filter(|id| !is_declared(id)).collect();
    assert!(undeclared.is_empty(), "{undeclared:?}");
    // Rules of the list that these programs do not show are in it because of their weights.
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
                    report(code, *profile)
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
