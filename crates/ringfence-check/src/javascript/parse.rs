//! Reads a program, and tells what Node.js refuses before it runs anything: what its grammar does not know, and names,
//! labels and words where they may not stand.

use super::{Dialect, Setting, look::look, rules};
use crate::rule::{Checked, Finding};
use oxc_allocator::Allocator;
use oxc_ast::{AstKind, ast::Program};
use oxc_codegen::Codegen;
use oxc_parser::{ParseOptions, Parser, ParserReturn};
use oxc_semantic::{AstNodes, SemanticBuilder};
use oxc_span::{GetSpan, SourceType};
use oxc_transformer::{TransformOptions, Transformer};
use std::{borrow::Cow, ops::Range, path::Path};

/// For what recurses; a thread's own would do for a quarter of what is allowed.
const STACK_BYTES: usize = 64 << 20;

/// A way in which a text may be run. A program is sound if it is so in one of them.
#[derive(Clone, Copy)]
struct Reading {
    kind: SourceType,
    top: Top,
}

/// What may stand outside of all functions, beside what always may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    /// `return`, as in CommonJS.
    Returns,
    Plain,
    /// Nothing that only a module has, but for imports, which the session makes calls of.
    Imports,
    /// `await`, though it is no module: it is put into a function to be read.
    Awaits,
}

const FUNCTION_BEGIN: &str = "(async () => {";
const FUNCTION_END: &str = "\n})";

/// What is found of a program, with what is broken in it.
pub(super) fn read(code: &str, dialect: Dialect, setting: Setting) -> Checked {
    stacker::grow(STACK_BYTES, || {
        let mut told = attempts(code, dialect, setting);
        if let Some((range, what)) = told.objection {
            told.checked
                .findings
                .push(Finding::new(&rules::SYNTAX, range, what));
        }
        told.checked
    })
}

/// What a reading leads to.
#[derive(Default)]
struct Attempt {
    /// Where it stops, and why.
    objection: Option<Objection>,
    checked: Checked,
}

type Objection = (Range<usize>, String);

fn attempts(code: &str, dialect: Dialect, setting: Setting) -> Attempt {
    let start = |told: &Attempt| told.objection.as_ref().map_or(0, |(range, _)| range.start);
    let mut farthest: Option<Attempt> = None;
    for reading in readings(code, dialect, setting) {
        let told = attempt(code, reading, setting);
        let Some((_, what)) = &told.objection else {
            return told;
        };
        // Within the function that the next reading adds it would be right.
        let returns = setting == Setting::Call && what.contains("'return' statement");
        // The reading that gets farther is the one that was meant, or else the later one.
        if farthest.as_ref().is_none_or(|known| start(known) <= start(&told)) {
            farthest = Some(told);
        }
        if returns {
            break;
        }
    }
    farthest.unwrap_or_default()
}

fn readings(code: &str, dialect: Dialect, setting: Setting) -> Vec<Reading> {
    let reading = |kind, top| Reading { kind, top };
    let module = SourceType::ts().with_module(true);
    match (dialect, setting) {
        (Dialect::JavaScript, Setting::Program) => vec![
            reading(SourceType::cjs(), Top::Returns),
            reading(SourceType::mjs(), Top::Plain),
        ],
        (Dialect::JavaScript, Setting::Call) => vec![
            reading(SourceType::script(), Top::Plain),
            reading(SourceType::mjs(), Top::Imports),
            reading(SourceType::cjs(), Top::Awaits),
        ],
        (Dialect::TypeScript, _) if code.contains("</") || code.contains("/>") => vec![
            reading(module, Top::Plain),
            reading(module.with_jsx(true), Top::Plain),
        ],
        (Dialect::TypeScript, _) => vec![reading(module, Top::Plain)],
    }
}

fn attempt(code: &str, reading: Reading, setting: Setting) -> Attempt {
    let (text, moved) = match reading.top {
        Top::Awaits => (
            Cow::from(format!("{FUNCTION_BEGIN}{code}{FUNCTION_END}")),
            FUNCTION_BEGIN.len(),
        ),
        _ => (Cow::from(code), 0),
    };
    let allocator = Allocator::default();
    let options = ParseOptions {
        allow_return_outside_function: reading.top == Top::Returns,
        ..ParseOptions::default()
    };
    let mut parsed = Parser::new(&allocator, &text, reading.kind)
        .with_options(options)
        .parse();
    let of_parser = of_parser(&parsed);
    let misplaced = misplaced(&parsed, reading);
    // The reading as a module tells the rest.
    if of_parser.is_none() && misplaced.is_some() {
        return Attempt {
            objection: misplaced,
            ..Attempt::default()
        };
    }
    let typed = reading.kind.is_typescript() && of_parser.is_none();
    let (early, mut checked) = looked_at(&parsed.program);
    let mut objection = of_parser.or(early);
    // Of what is wrong with types alone Node.js does not hear.
    if typed && objection.is_some() && runs_without_types(&allocator, &mut parsed.program, setting) {
        objection = None;
    }
    let within = |place: &Range<usize>| {
        place.start.saturating_sub(moved).min(code.len())..place.end.saturating_sub(moved).min(code.len())
    };
    for finding in &mut checked.findings {
        finding.range = within(&finding.range);
    }
    let objection = objection.map(|(place, what)| (within(&place), what));
    Attempt { objection, checked }
}

/// Is it a program for Node.js as soon as its types are gone.
fn runs_without_types<'a>(allocator: &'a Allocator, program: &mut Program<'a>, setting: Setting) -> bool {
    let reading = Reading {
        kind: SourceType::mjs(),
        top: Top::Plain,
    };
    let Some(plain) = without_types(allocator, program) else {
        return false;
    };
    let told = match setting {
        Setting::Program => attempt(&plain, reading, setting),
        Setting::Call => attempts(&plain, Dialect::JavaScript, setting),
    };
    told.objection.is_none()
}

/// What the grammar does not know.
fn of_parser(parsed: &ParserReturn<'_>) -> Option<Objection> {
    let objection = parsed.diagnostics.errors().next().map(|error| {
        let places = error.labels.iter().map(|label| (label.offset(), label.len()));
        told(&error.message, places)
    });
    objection.or_else(|| parsed.panicked.then(|| (0..0, "it cannot be read".to_owned())))
}

/// What belongs to modules alone.
fn misplaced(parsed: &ParserReturn<'_>, reading: Reading) -> Option<Objection> {
    let record = &parsed.module_record;
    if !reading.kind.is_module() && record.has_module_syntax {
        // The reading as a module will tell more.
        return Some((
            0..0,
            "`import` and `export` stand at the top of a module alone".to_owned(),
        ));
    }
    if reading.top != Top::Imports {
        return None;
    }
    let exports = record
        .local_export_entries
        .iter()
        .chain(&record.indirect_export_entries)
        .chain(&record.star_export_entries);
    let spans = exports
        .map(|entry| (entry.statement_span, "`export` stands outside a module"))
        .chain(
            record
                .import_metas
                .iter()
                .map(|span| (*span, "`import.meta` stands outside a module")),
        );
    let first = spans.min_by_key(|(span, _)| span.start)?;
    Some((first.0.start as usize..first.0.end as usize, first.1.to_owned()))
}

/// What the grammar knows and the language forbids, the first in the text; and what the rules find.
fn looked_at(program: &Program<'_>) -> (Option<Objection>, Checked) {
    let built = SemanticBuilder::new()
        .with_check_syntax_error(true)
        .with_build_nodes(true)
        .build(program);
    let objections = built.diagnostics.errors().map(|error| {
        let places = error.labels.iter().map(|label| (label.offset(), label.len()));
        told(&error.message, places)
    });
    let early = objections
        .chain(jumps_out_of_arrows(built.semantic.nodes()))
        .min_by_key(|(range, _)| range.start);
    (early, look(&built.semantic))
}

/// `break` and `continue` for which there is nothing but outside of an arrow function, as in a callback within a loop.
fn jumps_out_of_arrows(nodes: &AstNodes<'_>) -> Option<Objection> {
    nodes.iter().find_map(|node| {
        let (label, word) = match node.kind() {
            AstKind::BreakStatement(jump) => (&jump.label, "break"),
            AstKind::ContinueStatement(jump) => (&jump.label, "continue"),
            _ => return None,
        };
        let name = label.as_ref().map(|label| label.name);
        let stops = |kind: &AstKind<'_>| match kind {
            AstKind::ArrowFunctionExpression(_) | AstKind::Function(_) | AstKind::StaticBlock(_) => true,
            AstKind::LabeledStatement(around) => Some(around.label.name) == name,
            AstKind::SwitchStatement(_) => name.is_none() && word == "break",
            kind => name.is_none() && kind.is_iteration_statement(),
        };
        let stop = nodes.ancestor_kinds(node.id()).find(stops);
        matches!(stop, Some(AstKind::ArrowFunctionExpression(_))).then(|| {
            let span = node.kind().span();
            let what = format!("`{word}` cannot leave a function");
            (span.start as usize..span.end as usize, what)
        })
    })
}

fn told(message: &str, places: impl Iterator<Item = (u32, u32)>) -> Objection {
    let what = message.trim_end_matches('.');
    let places: Vec<(u32, u32)> = places.collect();
    // The first place of a name that is declared twice is that of the other declaration.
    let place = match what.ends_with("already been declared") {
        true => places.last(),
        false => places.first(),
    };
    let range = place.map_or(0..0, |(start, length)| {
        *start as usize..(*start + *length) as usize
    });
    (
        range,
        what.replace("are deprecated", "may not stand in strict code"),
    )
}

/// As it is run.
fn without_types<'a>(allocator: &'a Allocator, program: &mut Program<'a>) -> Option<String> {
    let scoping = SemanticBuilder::new()
        .with_enum_eval(true)
        .build(program)
        .semantic
        .into_scoping();
    let options = TransformOptions::default();
    let transformed =
        Transformer::new(allocator, Path::new("main.ts"), &options).build_with_scoping(scoping, program);
    match transformed.diagnostics.errors().next() {
        Some(_) => None,
        None => Some(Codegen::new().build(program).code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::javascript::check;
    use ringfence_types::Severity;

    #[track_caller]
    fn refused(dialect: Dialect, setting: Setting, codes: &[&str]) {
        for code in codes {
            assert!(broken(code, dialect, setting).is_some(), "{code}");
        }
    }

    #[track_caller]
    fn taken(dialect: Dialect, setting: Setting, codes: &[&str]) {
        for code in codes {
            let found = broken(code, dialect, setting);
            assert!(found.is_none(), "{code}: {found:?}");
        }
    }

    fn broken(code: &str, dialect: Dialect, setting: Setting) -> Option<(Range<usize>, String)> {
        let findings = check(code, dialect, setting).findings;
        let found = findings
            .into_iter()
            .find(|finding| finding.rule.id == "javascript.syntax");
        found.map(|finding| (finding.range, finding.what))
    }

    #[test]
    fn names_are_declared_once_in_a_scope() {
        let refuse: &[&str] = &[
            "const a = 1; const a = 2;",
            "let a; let a;",
            "let a; var a;",
            "var a; let a;",
            "class A {} class A {}",
            "class A {} let A",
            "let f; function f() {}",
            "{ let f; function f() {} }",
            "{ function f() {} let f; }",
            "function f(a) { let a; }",
            "let a; { var a; }",
            "for (let i, i;;) {}",
            "switch (1) { case 1: let x; case 2: let x; }",
            "try {} catch (e) { let e; }",
            "import a from 'a'; import a from 'b';",
            "import a from 'a'; const a = 1;",
            "class A { #x; #x; }",
            "class A { f() { this.#y } }",
            "class A { constructor() {} constructor() {} }",
            "({__proto__: 1, __proto__: 2})",
        ];
        let take: &[&str] = &[
            "var a; var a;",
            "function f() {} function f() {}",
            "function f() {} var f;",
            "let a; { let a; }",
            "function f(a) { var a; }",
            "try {} catch (e) { var e; }",
            "if (x) { let a } else { let a }",
            "let a = 1; function f() { let a = 2; }",
            "switch (1) { case 1: { let x } case 2: { let x } }",
            "for (let i = 0; i < 1; i++) {} for (let i = 0; i < 1; i++) {}",
            "({__proto__: 1, ['__proto__']: 2})",
            "class A { get x() {} set x(v) {} }",
            "{ function f() {} function f() {} }",
        ];
        for setting in [Setting::Program, Setting::Call] {
            taken(Dialect::JavaScript, setting, take);
            refused(Dialect::JavaScript, setting, refuse);
        }
        let (place, what) = broken(
            "const a = 1;\nconst a = 2;",
            Dialect::JavaScript,
            Setting::Program,
        )
        .unwrap();
        assert_eq!(
            (place, what.as_str()),
            (19..20, "Identifier `a` has already been declared")
        );
    }

    #[test]
    fn jumps_lead_to_what_is_around_them() {
        let refuse: &[&str] = &[
            "break;",
            "continue;",
            "if (x) break;",
            "for (;;) { f(() => { break; }) }",
            "a: for (const x of y) x.map((z) => { if (z) continue a; })",
            "for (;;) { f(function () { break; }) }",
            "for (;;) { break there; }",
            "a: { continue a; }",
            "a: a: ;",
            "switch (1) { case 1: continue; }",
        ];
        let take: &[&str] = &[
            "for (;;) break;",
            "a: for (;;) { for (;;) continue a; }",
            "a: { break a; }",
            "switch (1) { case 1: break; }",
            "for (const x of y) switch (x) { case 1: continue; }",
            "a: ; a: ;",
            "f(() => { for (;;) { if (x) break; else continue; } })",
            "f(() => { a: { break a; } switch (x) { default: break; } })",
        ];
        for dialect in [Dialect::JavaScript, Dialect::TypeScript] {
            for setting in [Setting::Program, Setting::Call] {
                refused(dialect, setting, refuse);
                taken(dialect, setting, take);
            }
        }
    }

    #[test]
    fn strict_code_has_less_words() {
        let strict = |codes: &[&str]| -> Vec<String> {
            let plain = codes.iter().map(|code| format!("'use strict'; {code}"));
            let module = codes.iter().map(|code| format!("import 'a'; {code}"));
            let class = codes.iter().map(|code| format!("class A {{ f() {{ {code} }} }}"));
            plain.chain(module).chain(class).collect()
        };
        let codes: &[&str] = &[
            "with (a) {}",
            "x = 010;",
            "x = 09;",
            "x = '\\010';",
            "delete x;",
            "(function (a, a) {});",
            "eval = 1;",
            "arguments = 1;",
            "var yield = 1;",
            "var static;",
            "if (a) function f() {}",
        ];
        for code in strict(codes) {
            refused(Dialect::JavaScript, Setting::Program, &[&code]);
        }
        taken(Dialect::JavaScript, Setting::Program, codes);
        taken(Dialect::JavaScript, Setting::Call, codes);
        taken(
            Dialect::JavaScript,
            Setting::Program,
            &[
                "'use strict'; delete x.y; x = 0o10; x = '\\0'; (a, b) => 1;",
                "yield = 2",
                "var let = 1",
                "a = 1 <!-- b",
            ],
        );
    }

    #[test]
    fn what_may_stand_at_the_top_depends_on_how_it_runs() {
        let check = |code: &str, program: bool, call: bool| {
            let sound = |setting| broken(code, Dialect::JavaScript, setting).is_none();
            assert_eq!(sound(Setting::Program), program, "a program: {code}");
            assert_eq!(sound(Setting::Call), call, "a call: {code}");
        };
        check("return 1", true, false);
        check("import 'a'; return 1", false, false);
        check("await f()", true, true);
        check("await f(); x = 010;", false, true);
        check("function f() { await g() }", false, false);
        check("[1].map((x) => { await x })", false, false);
        check("for await (const x of y) {}", true, true);
        check("import a from 'a'; a()", true, true);
        check("export const a = 1;", true, false);
        check("import.meta.url", true, false);
        check("if (x) { import a from 'a' }", false, false);
        check("function f() { export const a = 1 }", false, false);
        check("export {a}", false, false);
        check("import('a')", true, true);
        check("function* f() { yield 1 }", true, true);
        check("class A { constructor() { super() } }", false, false);
        check("#!/usr/bin/env node\nf()", true, true);
        check("const {a} = await f(); const b = 1;", true, true);
        check("const {a} = await f(); const a = 1;", false, false);
    }

    #[test]
    fn of_types_only_what_node_hears_is_told() {
        let dialect = Dialect::TypeScript;
        let refuse: &[&str] = &[
            "let a: number = 1; let a: string = '';",
            "const a = 1 as number; class a<T> {}",
            "with (a) {}",
            "delete x;",
            "return 1;",
            "function f(): void { await g(); }",
            "class A { const x = 1 }",
        ];
        let take: &[&str] = &[
            "interface A { a: 1 } interface A { b: 2 }",
            "interface A {} class A {}",
            "type A = 1; const A = 1;",
            "function f(a: 1): 1; function f(a: 2): 2; function f(a: any) { return a }",
            "namespace N { export const a = 1 } namespace N { export const b = 2 }",
            "enum E { A } enum E { B = 1 }",
            "class A { x = 1; x = 2 }",
            "class D<in out T> {}",
            "class B { constructor(private a: number) {} }",
            "abstract class A { abstract f(): void }",
            "declare const a: number; declare function f(): void;",
            "function f(this: A) {}",
            "const x = <T,>(a: T) => a;",
            "let v = await import('x');",
            "const b = { a: 1 } satisfies A;",
        ];
        for setting in [Setting::Program, Setting::Call] {
            taken(dialect, setting, take);
        }
        refused(dialect, Setting::Program, refuse);
        let (_, what) = broken("class A { const x = 1 }", dialect, Setting::Program).unwrap();
        assert!(!what.ends_with('.'), "{what}");
    }

    #[test]
    fn what_only_one_parser_understands_is_a_note() {
        for (code, dialect) in [
            ("const f = () => { g() }\n[...a].forEach(f)", Dialect::JavaScript),
            ("const f = () => {}\n(1, g)()", Dialect::JavaScript),
            ("yield = 2", Dialect::JavaScript),
            ("class D<in out T> {}", Dialect::TypeScript),
        ] {
            let worse = check(code, dialect, Setting::Program)
                .findings
                .into_iter()
                .find(|finding| finding.severity > Severity::Info);
            assert!(worse.is_none(), "{code}: {worse:?}");
        }
    }

    #[test]
    fn chains_are_followed_down_to_a_depth() {
        for (piece, times) in [(".a", 900), ("+ 'a'", 900), (" && a", 900), ("()", 450)] {
            let code = format!("x{}; break;", piece.repeat(times));
            assert!(
                broken(&code, Dialect::JavaScript, Setting::Program).is_some(),
                "{piece}"
            );
            let code = format!("x{}; break;", piece.repeat(50 * times));
            assert!(
                broken(&code, Dialect::JavaScript, Setting::Program).is_none(),
                "{piece}"
            );
        }
    }
}
