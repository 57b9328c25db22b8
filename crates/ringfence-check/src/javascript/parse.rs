//! Parses a program and reports what Node.js refuses before it runs: syntax errors, misplaced names, labels and words.

use super::{
    Setting, rules,
    visit::{range, visit},
};
use crate::{
    module::strip_types,
    rule::{Checked, Finding},
};
use oxc_allocator::Allocator;
use oxc_ast::{AstKind, ast::Program};
use oxc_codegen::Codegen;
use oxc_diagnostics::Diagnostics;
use oxc_parser::{ParseOptions, Parser, ParserReturn};
use oxc_semantic::{AstNodes, SemanticBuilder};
use oxc_span::{GetSpan, SourceType};
use oxc_transformer::TransformOptions;
use ringfence_types::Language;
use std::{ops::Range, path::Path};

/// Stack for the recursive parser and passes; a thread's own suffices for a quarter of the allowed depth.
const STACK_BYTES: usize = 64 << 20;

pub(super) fn read(code: &str, language: Language, setting: Setting) -> Checked {
    stacker::grow(STACK_BYTES, || {
        let mut attempt = attempts(code, language, setting);
        let broken = |(range, what)| Finding::new(&rules::SYNTAX, range, what);
        attempt.checked.findings.extend(attempt.error.map(broken));
        attempt.checked
    })
}

#[derive(Default)]
struct Attempt {
    error: Option<SyntaxError>,
    checked: Checked,
}

type SyntaxError = (Range<usize>, String);

fn attempts(code: &str, language: Language, setting: Setting) -> Attempt {
    let start = |attempt: &Attempt| attempt.error.as_ref().map_or(0, |(range, _)| range.start);
    let mut farthest: Option<Attempt> = None;
    for kind in kinds(code, language, setting) {
        let attempt = attempt(code, kind, setting);
        let Some((_, what)) = &attempt.error else {
            return attempt;
        };
        // It would be valid in the function that the next attempt puts around the code.
        let returns = setting == Setting::Call && what.contains("'return' statement");
        // The attempt that gets farther is the intended one; of two that get as far, the later.
        let begins = start(&attempt);
        if farthest.as_ref().is_none_or(|known| start(known) <= begins) {
            farthest = Some(attempt);
        }
        if returns {
            break;
        }
    }
    farthest.unwrap_or_default()
}

/// The kinds of source as which a text may be run. A program is valid if it is valid as one of them.
fn kinds(code: &str, language: Language, setting: Setting) -> Vec<SourceType> {
    let module = SourceType::ts().with_module(true);
    match (language, setting) {
        (Language::Node, Setting::Program) => vec![SourceType::cjs(), SourceType::mjs()],
        (Language::Node, Setting::Call) => {
            vec![SourceType::script(), SourceType::mjs(), SourceType::cjs()]
        }
        _ if code.contains("</") || code.contains("/>") => vec![module, module.with_jsx(true)],
        _ => vec![module],
    }
}

fn attempt(code: &str, kind: SourceType, setting: Setting) -> Attempt {
    let (begin, end) = match (kind.is_commonjs(), setting) {
        // A call with `await` that is not a module: `await` is valid only in an async function there.
        (true, Setting::Call) => ("(async () => {", "\n})"),
        _ => ("", ""),
    };
    let text = [begin, code, end].concat();
    let allocator = Allocator::default();
    let options = ParseOptions {
        allow_return_outside_function: kind.is_commonjs() && setting == Setting::Program,
        ..ParseOptions::default()
    };
    let mut parsed = Parser::new(&allocator, &text, kind).with_options(options).parse();
    let unread = || parsed.panicked.then(|| (0..0, "it cannot be read".to_owned()));
    let mut error = syntax_errors(&parsed.diagnostics).next().or_else(unread);
    if error.is_none()
        && let error @ Some(_) = misplaced(&parsed, kind, setting)
    {
        let checked = Checked::default();
        return Attempt { error, checked };
    }
    let typed = kind.is_typescript() && error.is_none();
    let (early, mut checked) = analyze(&parsed.program);
    error = error.or(early);
    // Node.js strips the types, so errors of types alone do not reach it.
    if typed && error.is_some() && runs_without_types(&allocator, &mut parsed.program, setting) {
        error = None;
    }
    let within = |place: &mut Range<usize>| {
        let at = |at: usize| at.saturating_sub(begin.len()).min(code.len());
        *place = at(place.start)..at(place.end);
    };
    let found = checked.findings.iter_mut().map(|finding| &mut finding.range);
    let error_range = error.iter_mut().map(|(place, _)| place);
    found.chain(error_range).for_each(within);
    Attempt { error, checked }
}

/// True if the program is valid for Node.js once its types are stripped.
fn runs_without_types<'a>(allocator: &'a Allocator, program: &mut Program<'a>, setting: Setting) -> bool {
    let (path, options) = (Path::new("main.ts"), TransformOptions::default());
    let diagnostics = strip_types(allocator, program, path, &options);
    if diagnostics.errors().next().is_some() {
        return false;
    }
    let plain = Codegen::new().build(program).code;
    let attempt = match setting {
        Setting::Program => attempt(&plain, SourceType::mjs(), setting),
        Setting::Call => attempts(&plain, Language::Node, setting),
    };
    attempt.error.is_none()
}

/// Returns the first syntax that only modules may have, in code that is not one.
fn misplaced(parsed: &ParserReturn<'_>, kind: SourceType, setting: Setting) -> Option<SyntaxError> {
    let record = &parsed.module_record;
    if !kind.is_module() && record.has_module_syntax {
        // The attempt as a module reports the rest.
        let what = "`import` and `export` stand at the top of a module alone";
        return Some((0..0, what.to_owned()));
    }
    // A session turns imports into calls; in TypeScript, exports of types vanish with the types.
    if setting == Setting::Program || !kind.is_module() || kind.is_typescript() {
        return None;
    }
    let local = record.local_export_entries.iter();
    let entries = local
        .chain(&record.indirect_export_entries)
        .chain(&record.star_export_entries);
    let exports = entries.map(|entry| (entry.statement_span, "export"));
    let metas = record.import_metas.iter().map(|span| (*span, "import.meta"));
    let (span, word) = exports.chain(metas).min_by_key(|(span, _)| span.start)?;
    Some((range(span), format!("`{word}` stands outside a module")))
}

/// Returns the first early error (accepted by the grammar, forbidden by the language), and the findings of the rules.
fn analyze(program: &Program<'_>) -> (Option<SyntaxError>, Checked) {
    let builder = SemanticBuilder::new().with_check_syntax_error(true);
    let built = builder.with_build_nodes(true).build(program);
    let jumps = jumps_out_of_arrows(built.semantic.nodes());
    let early = syntax_errors(&built.diagnostics)
        .chain(jumps)
        .min_by_key(|(range, _)| range.start);
    (early, visit(&built.semantic))
}

/// Finds a `break` or `continue` whose target is outside the arrow function around it, as in a callback within a loop.
fn jumps_out_of_arrows(nodes: &AstNodes<'_>) -> Option<SyntaxError> {
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
        let leaves = matches!(stop, Some(AstKind::ArrowFunctionExpression(_)));
        let what = || format!("`{word}` cannot leave a function");
        leaves.then(|| (range(node.kind().span()), what()))
    })
}

fn syntax_errors(diagnostics: &Diagnostics) -> impl Iterator<Item = SyntaxError> {
    diagnostics.errors().map(|error| {
        let what = error.message.trim_end_matches('.');
        // For a name declared twice, the first label is the other declaration.
        let place = match what.ends_with("already been declared") {
            true => error.labels.last(),
            false => error.labels.first(),
        };
        let within = |from: u32, bytes: u32| from as usize..(from + bytes) as usize;
        let range = place.map_or(0..0, |label| within(label.offset(), label.len()));
        (
            range,
            what.replace("are deprecated", "may not stand in strict code"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::javascript::check;
    use ringfence_types::Severity;

    #[track_caller]
    fn assert_refused(language: Language, setting: Setting, codes: &[&str]) {
        for code in codes {
            assert!(broken(code, language, setting).is_some(), "{code}");
        }
    }

    #[track_caller]
    fn assert_accepted(language: Language, setting: Setting, codes: &[&str]) {
        for code in codes {
            let found = broken(code, language, setting);
            assert!(found.is_none(), "{code}: {found:?}");
        }
    }

    fn broken(code: &str, language: Language, setting: Setting) -> Option<(Range<usize>, String)> {
        let findings = check(code, language, setting).findings;
        let found = findings
            .into_iter()
            .find(|finding| finding.rule.id == "javascript.syntax");
        found.map(|finding| (finding.range, finding.what))
    }

    #[rustfmt::skip]
    #[test]
    fn duplicate_declarations_are_refused() {
        let refused: &[&str] = &[
            "const a = 1; const a = 2;", "let a; let a;", "let a; var a;", "var a; let a;", "class A {} class A {}",
            "class A {} let A", "let f; function f() {}", "{ let f; function f() {} }", "{ function f() {} let f; }",
            "function f(a) { let a; }", "let a; { var a; }", "for (let i, i;;) {}",
            "switch (1) { case 1: let x; case 2: let x; }", "try {} catch (e) { let e; }",
            "import a from 'a'; import a from 'b';", "import a from 'a'; const a = 1;", "class A { #x; #x; }",
            "class A { f() { this.#y } }", "class A { constructor() {} constructor() {} }",
            "({__proto__: 1, __proto__: 2})",
        ];
        let accepted: &[&str] = &[
            "var a; var a;", "function f() {} function f() {}", "function f() {} var f;", "let a; { let a; }",
            "function f(a) { var a; }", "try {} catch (e) { var e; }", "if (x) { let a } else { let a }",
            "let a = 1; function f() { let a = 2; }", "switch (1) { case 1: { let x } case 2: { let x } }",
            "for (let i = 0; i < 1; i++) {} for (let i = 0; i < 1; i++) {}", "({__proto__: 1, ['__proto__']: 2})",
            "class A { get x() {} set x(v) {} }", "{ function f() {} function f() {} }",
        ];
        for setting in [Setting::Program, Setting::Call] {
            assert_accepted(Language::Node, setting, accepted);
            assert_refused(Language::Node, setting, refused);
        }
        let (place, what) = broken(
            "const a = 1;\nconst a = 2;",
            Language::Node,
            Setting::Program,
        )
        .unwrap();
        assert_eq!(
            (place, what.as_str()),
            (19..20, "Identifier `a` has already been declared")
        );
    }

    #[rustfmt::skip]
    #[test]
    fn break_and_continue_need_an_enclosing_target() {
        let refused: &[&str] = &[
            "break;", "continue;", "if (x) break;", "for (;;) { f(() => { break; }) }",
            "a: for (const x of y) x.map((z) => { if (z) continue a; })", "for (;;) { f(function () { break; }) }",
            "for (;;) { break there; }", "a: { continue a; }", "a: a: ;", "switch (1) { case 1: continue; }",
        ];
        let accepted: &[&str] = &[
            "for (;;) break;", "a: for (;;) { for (;;) continue a; }", "a: { break a; }",
            "switch (1) { case 1: break; }", "for (const x of y) switch (x) { case 1: continue; }", "a: ; a: ;",
            "f(() => { for (;;) { if (x) break; else continue; } })",
            "f(() => { a: { break a; } switch (x) { default: break; } })",
        ];
        for language in [Language::Node, Language::Typescript] {
            for setting in [Setting::Program, Setting::Call] {
                assert_refused(language, setting, refused);
                assert_accepted(language, setting, accepted);
            }
        }
    }

    #[rustfmt::skip]
    #[test]
    fn strict_mode_restrictions_are_applied() {
        let strict = |codes: &[&str]| -> Vec<String> {
            let plain = codes.iter().map(|code| format!("'use strict'; {code}"));
            let module = codes.iter().map(|code| format!("import 'a'; {code}"));
            let class = codes.iter().map(|code| format!("class A {{ f() {{ {code} }} }}"));
            plain.chain(module).chain(class).collect()
        };
        let codes: &[&str] = &[
            "with (a) {}", "x = 010;", "x = 09;", "x = '\\010';", "delete x;", "(function (a, a) {});", "eval = 1;",
            "arguments = 1;", "var yield = 1;", "var static;", "if (a) function f() {}",
        ];
        for code in strict(codes) {
            assert_refused(Language::Node, Setting::Program, &[&code]);
        }
        assert_accepted(Language::Node, Setting::Program, codes);
        assert_accepted(Language::Node, Setting::Call, codes);
        assert_accepted(
            Language::Node,
            Setting::Program,
            &[
                "'use strict'; delete x.y; x = 0o10; x = '\\0'; (a, b) => 1;", "yield = 2", "var let = 1",
                "a = 1 <!-- b",
            ],
        );
    }

    #[test]
    fn top_level_syntax_depends_on_the_setting() {
        let check = |code: &str, program: bool, call: bool| {
            let sound = |setting| broken(code, Language::Node, setting).is_none();
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

    #[rustfmt::skip]
    #[test]
    fn type_errors_that_node_ignores_are_not_reported() {
        let language = Language::Typescript;
        let refused: &[&str] = &[
            "let a: number = 1; let a: string = '';", "const a = 1 as number; class a<T> {}", "with (a) {}",
            "delete x;", "return 1;", "function f(): void { await g(); }", "class A { const x = 1 }",
        ];
        let accepted: &[&str] = &[
            "interface A { a: 1 } interface A { b: 2 }", "interface A {} class A {}", "type A = 1; const A = 1;",
            "function f(a: 1): 1; function f(a: 2): 2; function f(a: any) { return a }",
            "namespace N { export const a = 1 } namespace N { export const b = 2 }", "enum E { A } enum E { B = 1 }",
            "class A { x = 1; x = 2 }", "class D<in out T> {}", "class B { constructor(private a: number) {} }",
            "abstract class A { abstract f(): void }", "declare const a: number; declare function f(): void;",
            "function f(this: A) {}", "const x = <T,>(a: T) => a;", "let v = await import('x');",
            "const b = { a: 1 } satisfies A;",
        ];
        for setting in [Setting::Program, Setting::Call] {
            assert_accepted(language, setting, accepted);
        }
        assert_refused(language, Setting::Program, refused);
        let (_, what) = broken("class A { const x = 1 }", language, Setting::Program).unwrap();
        assert!(!what.ends_with('.'), "{what}");
    }

    #[test]
    fn code_that_parsers_disagree_on_gives_no_warning() {
        for (code, language) in [
            ("const f = () => { g() }\n[...a].forEach(f)", Language::Node),
            ("const f = () => {}\n(1, g)()", Language::Node),
            ("yield = 2", Language::Node),
            ("class D<in out T> {}", Language::Typescript),
        ] {
            let worse = check(code, language, Setting::Program)
                .findings
                .into_iter()
                .find(|finding| finding.severity > Severity::Info);
            assert!(worse.is_none(), "{code}: {worse:?}");
        }
    }

    #[test]
    fn long_chains_are_parsed_up_to_a_depth() {
        for (piece, times) in [(".a", 900), ("+ 'a'", 900), (" && a", 900), ("()", 450)] {
            let code = format!("x{}; break;", piece.repeat(times));
            assert!(
                broken(&code, Language::Node, Setting::Program).is_some(),
                "{piece}"
            );
            let code = format!("x{}; break;", piece.repeat(50 * times));
            assert!(
                broken(&code, Language::Node, Setting::Program).is_none(),
                "{piece}"
            );
        }
    }
}
