//! The order of a crate's modules: each lies on a floor, imports go to its own floor or down, and there are no circles
//! of imports.

use super::{
    Finding,
    budgets::Budget,
    structure::{Module, ModulePath, Modules},
};
use std::collections::{BTreeMap, BTreeSet};

/// Files in a circle of imports.
pub const CIRCLE: &str = "circle";
/// Imports from a higher floor.
pub const UP: &str = "arrow up";

/// The modules that each module imports from.
type Arrows<'a> = BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>;

/// Finds circles, arrows up, and modules without a floor.
pub fn check(modules: &Modules, budget: &Budget) -> Vec<Finding> {
    let arrows = arrows(modules);
    let mut findings = Vec::new();
    for circle in circles(&arrows) {
        for member in &circle {
            let what = format!(
                "is in a circle of {} files with `{}`",
                circle.len(),
                circle[0].join("::")
            );
            findings.push(Finding::new(&modules[*member].path, 1, CIRCLE, what));
        }
    }
    for (place, targets) in &arrows {
        let Some(top) = place.first().filter(|top| *top != "main") else {
            continue;
        };
        let Some(floor) = floor(budget, top) else {
            let what = format!("`{top}` has no floor in xtask/src/tidy/budgets.rs");
            findings.push(Finding::new(&modules[*place].path, 1, UP, what));
            continue;
        };
        let is_up =
            |target: &&&ModulePath| target.first().and_then(|top| self::floor(budget, top)) > Some(floor);
        for target in targets.iter().filter(is_up) {
            let what = format!("`{}` is above `{top}`", target.join("::"));
            findings.push(Finding::new(&modules[*place].path, 1, UP, what));
        }
    }
    findings
}

fn floor(budget: &Budget, module: &str) -> Option<usize> {
    budget
        .floors
        .iter()
        .position(|floor| floor.split_whitespace().any(|name| name == module))
}

/// Collects the arrows. Imports from a module's own parent are not arrows: the parent has the shared definitions of its
/// children.
fn arrows(modules: &Modules) -> Arrows<'_> {
    let targets = |place: &ModulePath, module: &Module| {
        let targets = module.uses.iter().filter_map(|path| defining(modules, path));
        targets.filter(|target| !place.starts_with(target)).collect()
    };
    modules
        .iter()
        .map(|(place, module)| (place, targets(place, module)))
        .collect()
}

/// Finds groups of files in which each reaches every other by imports.
fn circles<'a>(arrows: &Arrows<'a>) -> Vec<Vec<&'a ModulePath>> {
    let reached: Arrows<'_> = arrows
        .keys()
        .map(|place| (*place, reachable(arrows, place)))
        .collect();
    let mut found: Vec<Vec<&ModulePath>> = Vec::new();
    for (place, targets) in &reached {
        if targets.contains(place) && !found.iter().flatten().any(|member| member == place) {
            let comes_back = |other: &&&ModulePath| reached[**other].contains(place);
            found.push(targets.iter().filter(comes_back).copied().collect());
        }
    }
    found
}

fn reachable<'a>(arrows: &Arrows<'a>, from: &'a ModulePath) -> BTreeSet<&'a ModulePath> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(place) = waiting.pop() {
        let fresh = arrows[place].iter().filter(|target| found.insert(**target));
        waiting.extend(fresh.copied().collect::<Vec<_>>());
    }
    found
}

/// Returns the module that defines the item of a path, following re-exports.
fn defining<'a>(modules: &'a Modules, path: &[String]) -> Option<&'a ModulePath> {
    let mut path = path.to_vec();
    // A longer chain of imports is a circle itself.
    for _ in 0..16 {
        let depth = (0..=path.len())
            .rev()
            .find(|depth| modules.contains_key(&path[..*depth]))?;
        let (place, module) = modules.get_key_value(&path[..depth])?;
        let Some(onward) = path.get(depth).and_then(|name| module.imported.get(name)) else {
            return Some(place);
        };
        let rest = path[depth + 1..].to_vec();
        let next = [onward.clone(), rest].concat();
        if next == path {
            return Some(place);
        }
        path = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{
        super::{file, structure::modules_of},
        *,
    };

    const BUDGET: Budget = Budget {
        name: "ringfence-types",
        lines: 10,
        floors: &["a b", "c"],
    };

    fn broken(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let path = |name: &str| format!("crates/ringfence-types/src/{name}.rs");
        let files: Vec<_> = files.iter().map(|(name, text)| file(&path(name), text)).collect();
        let found = check(&modules_of(&files, "ringfence-types").unwrap(), &BUDGET);
        found
            .into_iter()
            .map(|finding| (finding.rule, finding.path.rsplit('/').next().unwrap().to_owned()))
            .collect()
    }

    fn expect(rule: &'static str, name: &str) -> (&'static str, String) {
        (rule, name.to_owned())
    }

    #[test]
    fn mutual_imports_are_a_circle_also_through_a_reexport() {
        let found = broken(&[
            ("lib", "mod a; mod b; mod c; pub use b::B;"),
            ("a", "use crate::B; pub struct A;"),
            ("b", "pub struct B; fn f(a: crate::a::A) {}"),
            ("c", "use crate::a::A;"),
        ]);
        assert_eq!(found, [expect(CIRCLE, "a.rs"), expect(CIRCLE, "b.rs")]);
    }

    #[test]
    fn import_from_a_higher_floor_is_found() {
        assert_eq!(
            broken(&[
                ("a", "use crate::b::B;"),
                ("b", "pub struct B;"),
                ("c", "use crate::a;")
            ]),
            []
        );
        let found = broken(&[
            ("a", "pub struct A;"),
            ("b", "fn f() -> crate::c::C {}"),
            ("c", "pub struct C;"),
        ]);
        assert_eq!(found, [expect(UP, "b.rs")]);
    }

    #[test]
    fn files_of_a_module_lie_on_its_floor() {
        let found = broken(&[
            ("a", "pub struct A;"),
            ("a/inner", "use crate::c::C;"),
            ("c", "pub struct C;"),
        ]);
        assert_eq!(found, [expect(UP, "inner.rs")]);
        assert_eq!(
            broken(&[
                ("c", "pub struct C;"),
                ("c/inner", "use super::C; use crate::a;"),
                ("a", "")
            ]),
            []
        );
    }

    #[test]
    fn module_without_a_floor_is_found_except_main() {
        assert_eq!(broken(&[("new", "")]), [expect(UP, "new.rs")]);
        assert_eq!(
            broken(&[("main", "fn main() {}"), ("lib", "mod a;"), ("a", "")]),
            []
        );
    }
}
