//! The structure of each crate, read from its source: lines without tests against a budget, the order of its modules,
//! type names defined twice, and functions with too many or with tuple arguments.

use super::{
    Finding,
    budgets::{ARGUMENTS_MAX, BUDGETS, Budget, LINES_STEP},
    order, ratchet,
};
use crate::workspace::TextFile;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Attribute, FnArg, Item, Signature, Type, UseTree, Visibility, visit::Visit};

/// Lines over the budget, in steps.
pub const LINES: &str = "lines";
/// Type names that the crate defines more than once.
pub const TWICE: &str = "defined twice";
/// Functions with too many or with tuple arguments.
pub const ARGUMENTS: &str = "arguments";

/// Path of a module from the crate's root: `["session", "registry"]`.
pub type ModulePath = Vec<String>;

/// The modules of a crate.
pub type Modules = BTreeMap<ModulePath, Module>;

/// Declarations and uses of one source file.
#[derive(Default)]
pub struct Module {
    /// Path of its file from the checkout's root.
    pub path: String,
    /// Paths used in code, absolute within the crate.
    pub uses: BTreeSet<Vec<String>>,
    /// Names that are imported into this module, with their sources.
    pub imported: BTreeMap<String, Vec<String>>,
    /// Types that are visible to other modules, with their lines.
    types: Vec<(String, usize)>,
    wide: Vec<Finding>,
}

/// Figures of one crate.
pub struct Shape {
    budget: &'static Budget,
    lines: usize,
    test_lines: usize,
    /// Violations of fences.
    pub findings: Vec<Finding>,
}

/// Measures the sources of every crate.
pub fn measure(files: &[TextFile]) -> Result<Vec<Shape>, String> {
    BUDGETS.iter().map(|budget| shape(files, budget)).collect()
}

/// Columns of the report after the lines: heading and fence.
const COLUMNS: [(&str, &str); 7] = [
    ("in circle", order::CIRCLE),
    ("up", order::UP),
    ("twice", TWICE),
    ("wide", ARGUMENTS),
    ("names", super::source::NAME),
    ("columns", super::prose::COLUMNS),
    ("words", super::prose::WORDS),
];

/// Returns the table of `tidy --report`, with rows for each crate and for all documents. `found` are all violations of
/// fences.
pub fn report(shapes: &[Shape], found: &[Finding]) -> String {
    let counts = ratchet::count(found);
    let heads = COLUMNS.map(|(head, _)| format!("{head:>10}")).concat();
    let mut text = format!(
        "{:<18}{:>8}{:>8}{:>8}{heads}\n",
        "crate", "lines", "budget", "tests"
    );
    let row = |name: &str, lines: [usize; 3], owners: &[&str]| {
        let [lines, budget, tests] = lines.map(|lines| format!("{lines:>8}"));
        let cell = |(_, fence)| -> usize {
            owners
                .iter()
                .map(|owner| ratchet::of(&counts, owner, fence))
                .sum()
        };
        let cells = COLUMNS.map(|column| format!("{:>10}", cell(column))).concat();
        format!("{name:<18}{lines}{budget}{tests}{cells}\n")
    };
    for shape in shapes {
        let lines = [shape.lines, shape.budget.lines, shape.test_lines];
        text += &row(shape.budget.name, lines, &[shape.budget.name]);
    }
    let all = |of: fn(&Shape) -> usize| shapes.iter().map(of).sum();
    let lines = [
        all(|shape| shape.lines),
        all(|shape| shape.budget.lines),
        all(|shape| shape.test_lines),
    ];
    let crates: Vec<&str> = shapes.iter().map(|shape| shape.budget.name).collect();
    let is_document = |owner: &&str| !crates.contains(owner);
    let documents: Vec<&str> = counts.keys().map(String::as_str).filter(is_document).collect();
    text += &row("documents", [0; 3], &documents);
    text += &row("all", lines, &[crates.clone(), documents].concat());
    text
}

fn shape(files: &[TextFile], budget: &'static Budget) -> Result<Shape, String> {
    let root = format!("crates/{}/", budget.name);
    let (mut lines, mut test_lines) = (0, 0);
    for file in files
        .iter()
        .filter(|file| file.path.starts_with(&root) && file.path.ends_with(".rs"))
    {
        let counted = if is_test(&file.path) {
            0
        } else {
            code_lines(&file.text)
        };
        lines += counted;
        test_lines += file.text.lines().count() - counted;
    }
    let modules = modules_of(files, budget.name)?;
    let mut findings = defined_twice(&modules);
    findings.extend(order::check(&modules, budget));
    findings.extend(modules.into_values().flat_map(|module| module.wide));
    let what = format!("more than the {} lines of its budget", budget.lines);
    let steps = lines.saturating_sub(budget.lines).div_ceil(LINES_STEP);
    findings.extend(vec![Finding::new(&root, 1, LINES, what); steps]);
    Ok(Shape {
        budget,
        lines,
        test_lines,
        findings,
    })
}

/// Reads the modules of a crate without its tests.
pub fn modules_of(files: &[TextFile], name: &str) -> Result<Modules, String> {
    let source = format!("crates/{name}/src/");
    let read = |file: &TextFile| {
        let inside = file
            .path
            .strip_prefix(&source)
            .filter(|inside| inside.ends_with(".rs") && !is_test(&file.path))?;
        let place = module_path(inside);
        Some(read(file, place.clone()).map(|module| (place, module)))
    };
    files.iter().filter_map(read).collect()
}

/// Finds every definition of a name except the first.
fn defined_twice(modules: &Modules) -> Vec<Finding> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for module in modules.values() {
        for (name, line) in &module.types {
            if let Some(elsewhere) = first.get(name.as_str()) {
                let what = format!("`{name}` is also a type of {elsewhere}");
                findings.push(Finding::new(&module.path, *line, TWICE, what));
            } else {
                first.insert(name, &module.path);
            }
        }
    }
    findings
}

/// Returns true for a file that consists of tests or of an example.
pub fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.contains("/examples/") || path.ends_with("tests.rs")
}

/// Counts the lines before the tests at the end of a file.
pub fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && !pair[1].ends_with(';'));
    tail.unwrap_or(lines.len())
}

fn module_path(inside: &str) -> ModulePath {
    let mut parts: ModulePath = inside
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

fn read(file: &TextFile, place: ModulePath) -> Result<Module, String> {
    let parsed = syn::parse_file(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
    let mut reader = Reader {
        place,
        is_reexport: false,
        module: Module {
            path: file.path.clone(),
            ..Module::default()
        },
    };
    reader.visit_file(&parsed);
    Ok(reader.module)
}

/// Collects the declarations and uses of a file without its test modules.
struct Reader {
    place: ModulePath,
    /// True while reading a re-export (`pub use`).
    is_reexport: bool,
    module: Module,
}

impl Reader {
    /// Makes a path of this crate absolute. Returns `None` for other paths.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut from = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.place.clone(),
            _ => return None,
        };
        let ups = path.iter().take_while(|part| *part == "super").count();
        from.truncate(from.len().saturating_sub(ups));
        from.extend(path.iter().skip(ups.max(1)).cloned());
        Some(from)
    }

    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        let name = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
                return;
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(name) => (name.ident.to_string(), name.rename.to_string()),
            UseTree::Glob(_) => ("self".to_owned(), "*".to_owned()),
        };
        let (name, alias) = name;
        let mut path = before.clone();
        let alias = if name == "self" {
            before.last().cloned().unwrap_or(alias)
        } else {
            alias
        };
        path.extend((name != "self").then_some(name));
        let target = self
            .absolute(&path)
            .unwrap_or_else(|| [self.place.clone(), path].concat());
        if !self.is_reexport {
            self.module.uses.insert(target.clone());
        }
        self.module.imported.insert(alias, target);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, visible) = match item {
            Item::Mod(item) => (&item.attrs, None),
            Item::Fn(item) => (&item.attrs, None),
            Item::Impl(item) => (&item.attrs, None),
            Item::Struct(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Enum(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Trait(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Type(item) => (&item.attrs, Some((&item.vis, &item.ident))),
            Item::Use(item) => {
                self.is_reexport = !matches!(item.vis, Visibility::Inherited);
                return self.import(&item.tree, &mut Vec::new());
            }
            _ => return syn::visit::visit_item(self, item),
        };
        if attributes.iter().any(is_test_only) {
            return;
        }
        if let Some((_, name)) = visible.filter(|(seen, _)| !matches!(seen, Visibility::Inherited)) {
            self.module
                .types
                .push((name.to_string(), name.span().start().line));
        }
        syn::visit::visit_item(self, item);
    }

    /// Skips foreign declarations: their arguments are given.
    fn visit_item_foreign_mod(&mut self, _: &'ast syn::ItemForeignMod) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if let Some(path) = self.absolute(&words).filter(|_| words.len() > 1) {
            self.module.uses.insert(path);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        let name = &signature.ident;
        let mut wide = |what: String| {
            let line = name.span().start().line;
            self.module
                .wide
                .push(Finding::new(&self.module.path, line, ARGUMENTS, what));
        };
        let count = signature.inputs.len();
        if count > ARGUMENTS_MAX {
            wide(format!(
                "`{name}` takes {count} arguments, at most {ARGUMENTS_MAX} are allowed"
            ));
        }
        let is_tuple = |argument: &FnArg| matches!(argument, FnArg::Typed(typed) if is_tuple(&typed.ty));
        if signature.inputs.iter().any(is_tuple) {
            wide(format!(
                "`{name}` takes a tuple; use a struct, whose fields have names"
            ));
        }
        syn::visit::visit_signature(self, signature);
    }
}

fn is_tuple(kind: &Type) -> bool {
    match kind {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

fn is_test_only(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .meta
            .require_list()
            .is_ok_and(|list| list.tokens.to_string() == "test")
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    const BUDGET: Budget = Budget {
        name: "ringfence-types",
        lines: 10,
        floors: &["a", "b"],
    };

    fn only(files: &[TextFile]) -> Shape {
        shape(files, &BUDGET).unwrap()
    }

    fn rules(shape: &Shape) -> Vec<&str> {
        shape.findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn imports_of_tests_are_not_counted() {
        let found = only(&[
            file(
                "crates/ringfence-types/src/a.rs",
                "pub struct A;\n#[cfg(test)]\nmod tests {\nuse crate::b::B;\n}",
            ),
            file(
                "crates/ringfence-types/src/b.rs",
                "use crate::a::A;\npub struct B;\n",
            ),
            file("crates/ringfence-types/src/b/tests.rs", "pub struct A;\n"),
        ]);
        assert_eq!(rules(&found), [""; 0]);
        assert_eq!((found.lines, found.test_lines), (3, 5));
    }

    #[test]
    fn duplicate_types_and_wide_functions_are_counted() {
        let found = only(&[
            file(
                "crates/ringfence-types/src/a.rs",
                "pub struct X; fn f(a: (u8, u8)) {} struct Y; fn g(a: &u8) {}",
            ),
            file(
                "crates/ringfence-types/src/b.rs",
                "pub(crate) enum X {} fn g(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {} struct Y; \
                 unsafe extern \"C\" { fn h(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8); }",
            ),
        ]);
        assert_eq!(rules(&found), [TWICE, ARGUMENTS, ARGUMENTS]);
    }

    #[test]
    fn lines_over_the_budget_are_counted_in_steps() {
        let lines = |count| only(&[file("crates/ringfence-types/src/a.rs", &"\n".repeat(count))]);
        assert_eq!(rules(&lines(10)), [""; 0]);
        assert_eq!(rules(&lines(11)), [LINES]);
        assert_eq!(rules(&lines(110)), [LINES]);
        assert_eq!(rules(&lines(111)), [LINES; 2]);
    }

    #[test]
    fn report_has_a_row_for_each_crate_for_documents_and_for_all() {
        let shape = only(&[file("crates/ringfence-types/src/a.rs", "fn f(a: (u8, u8)) {}")]);
        let text = report(
            &[shape],
            &[Finding::new("docs/a.md", 1, super::super::prose::WORDS, "w")],
        );
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(text.lines().count(), 4);
        assert_eq!(last, ["all", "1", "10", "0", "0", "0", "0", "0", "0", "0", "1"]);
    }
}
