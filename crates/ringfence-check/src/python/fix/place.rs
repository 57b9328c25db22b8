//! Inserts imports into code, and verifies that no other code changes.

use ruff_python_ast::{ModModule, Stmt, token::TokenKind};
use ruff_python_parser::{Parsed, parse_module};
use ruff_text_size::Ranged;

/// Number of lines in which the interpreter looks for an encoding.
const CODING_LINES: usize = 2;

/// Returns the code with the statements, each on its own line if possible, after the parts that must come first (a byte
/// order mark, `#!`, the encoding, the docstring, `from __future__`); `None` if that would change other code.
pub(super) fn insert(code: &str, parsed: &Parsed<ModModule>, statements: &[&str]) -> Option<String> {
    let first = first_movable(parsed.suite());
    let (offset, ends) = match first.checked_sub(1).and_then(|last| parsed.suite().get(last)) {
        None => (after_header(code), Ends::After),
        Some(last) => after_statement(code, parsed, last, parsed.suite().get(first)?)?,
    };
    let (before, after) = code.split_at_checked(offset)?;
    let line_end = line_end_of(code);
    let added = match ends {
        Ends::After => statements.join(line_end) + line_end,
        Ends::Around => [line_end, &statements.join(line_end), line_end].concat(),
        Ends::Semicolons => statements.join("; ") + "; ",
    };
    let fixed = [before, &added, after].concat();
    changes_nothing_else(code, parsed.suite(), &fixed, first, statements).then_some(fixed)
}

/// Separators around the inserted statements.
enum Ends {
    /// A line end after each statement, at the beginning of a line.
    After,
    /// A line end also before all of them, between two statements on one line.
    Around,
    /// Semicolons, where the line cannot be broken.
    Semicolons,
}

/// Returns the number of statements that must stay first: the docstring, and directives to the compiler.
fn first_movable(body: &[Stmt]) -> usize {
    let documents =
        |statement: &Stmt| matches!(statement, Stmt::Expr(text) if text.value.is_string_literal_expr());
    let directs = |statement: &&Stmt| {
        matches!(statement, Stmt::ImportFrom(from)
            if from.level == 0 && from.module.as_ref().is_some_and(|module| module.as_str() == "__future__"))
    };
    let docstring = usize::from(body.first().is_some_and(documents));
    docstring + body.iter().skip(docstring).take_while(directs).count()
}

/// Returns the offset after `#!`, an encoding line, and a first paragraph of comments that ends with an empty line.
fn after_header(code: &str) -> usize {
    let start = code.len() - code.trim_start_matches('\u{feff}').len();
    let (mut end, mut offset, mut is_heading) = (start, start, true);
    for (number, line) in code[start..].split_inclusive('\n').enumerate() {
        let text = line.trim();
        if !text.is_empty() && !text.starts_with('#') {
            break;
        }
        if text.is_empty() && is_heading && number > 0 {
            end = offset;
        }
        is_heading &= !text.is_empty();
        offset += line.len();
        let is_coding = text.contains("coding") && number < CODING_LINES;
        if is_coding || text.starts_with("#!") && number == 0 {
            end = offset;
        }
    }
    end
}

/// Returns the offset after the line of a statement, or between two statements on one line.
fn after_statement(
    code: &str,
    parsed: &Parsed<ModModule>,
    last: &Stmt,
    next: &Stmt,
) -> Option<(usize, Ends)> {
    let tokens = parsed.tokens();
    let from = tokens.partition_point(|token| token.start() < last.end());
    let mut rest = tokens.get(from..)?.iter();
    let line = rest.find(|token| token.kind() == TokenKind::Newline)?;
    if line.start() < next.start() {
        return Some((line.end().to_usize(), Ends::After));
    }
    let offset = next.start().to_usize();
    let between = code.get(last.end().to_usize()..offset)?;
    let ends = match between.contains('\\') {
        true => Ends::Semicolons,
        false => Ends::Around,
    };
    Some((offset, ends))
}

/// Returns the line end of the first line, which the added lines use too.
fn line_end_of(code: &str) -> &'static str {
    match code.find(['\n', '\r']).and_then(|at| code.get(at..)) {
        Some(rest) if rest.starts_with("\r\n") => "\r\n",
        Some(rest) if rest.starts_with('\r') => "\r",
        _ => "\n",
    }
}

/// True if the fixed code, parsed again, is the original code plus the statements.
fn changes_nothing_else(code: &str, before: &[Stmt], fixed: &str, first: usize, statements: &[&str]) -> bool {
    let Ok(parsed) = parse_module(fixed) else {
        return false;
    };
    let mut expected = texts(code, before);
    expected.splice(first..first, statements.iter().copied());
    texts(fixed, parsed.suite()) == expected
}

fn texts<'c>(code: &'c str, statements: &[Stmt]) -> Vec<&'c str> {
    let text = |statement: &Stmt| &code[statement.range()];
    statements.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inserted(code: &str) -> String {
        insert(code, &parse_module(code).unwrap(), &["import a", "import b"]).unwrap()
    }

    #[test]
    fn imports_follow_the_parts_that_must_be_first() {
        for (code, expected) in [
            ("x", "@x"),
            ("\n\nx\n", "@\n\nx\n"),
            ("#!/bin/python\nx\n", "#!/bin/python\n@x\n"),
            (
                "#!/bin/python\n# coding: utf-8\nx\n",
                "#!/bin/python\n# coding: utf-8\n@x\n",
            ),
            ("\n# coding: utf-8\nx\n", "\n# coding: utf-8\n@x\n"),
            ("# about x\nx\n", "@# about x\nx\n"),
            ("# licence\n# more\n\nx\n", "# licence\n# more\n@\nx\n"),
            ("# licence\n\n# about x\nx\n", "# licence\n@\n# about x\nx\n"),
            ("\u{feff}x\n", "\u{feff}@x\n"),
            ("\u{feff}#!/bin/python\nx\n", "\u{feff}#!/bin/python\n@x\n"),
            ("'''doc'''\nx", "'''doc'''\n@x"),
            ("('doc')\nx", "('doc')\n@x"),
            ("'a' 'b' # c\n\nx", "'a' 'b' # c\n@\nx"),
            (
                "'doc'\nfrom __future__ import c\n\nx",
                "'doc'\nfrom __future__ import c\n@\nx",
            ),
            (
                "from __future__ import (\n c,\n)\nx",
                "from __future__ import (\n c,\n)\n@x",
            ),
            ("'doc';\nx", "'doc';\n@x"),
            ("x=1; y=2\n", "@x=1; y=2\n"),
            ("import c\nx\n", "@import c\nx\n"),
            ("'''a\nb''' # c\nx", "'''a\nb''' # c\n@x"),
            ("f'no docstring'\nx", "@f'no docstring'\nx"),
            ("b'no docstring'\nx", "@b'no docstring'\nx"),
            ("\\\nx", "@\\\nx"),
            ("\u{c}x", "@\u{c}x"),
        ] {
            let expected = expected.replace('@', "import a\nimport b\n");
            assert_eq!(inserted(code), expected, "of {code:?}");
        }
    }

    #[test]
    fn statements_on_one_line_are_split() {
        assert_eq!(inserted("'doc'; x"), "'doc'; \nimport a\nimport b\nx");
        assert_eq!(
            inserted("from __future__ import a; print(1)\n"),
            "from __future__ import a; \nimport a\nimport b\nprint(1)\n"
        );
        assert_eq!(inserted("'doc'; \\\nx"), "'doc'; \\\nimport a; import b; x");
    }

    #[test]
    fn line_ends_are_those_of_the_file() {
        assert_eq!(inserted("x\r\ny\r\n"), "import a\r\nimport b\r\nx\r\ny\r\n");
        assert_eq!(
            inserted("'doc'\r\nx\r\n"),
            "'doc'\r\nimport a\r\nimport b\r\nx\r\n"
        );
        assert_eq!(
            inserted("#!x\r\n\r\nx\r\n"),
            "#!x\r\nimport a\r\nimport b\r\n\r\nx\r\n"
        );
        assert_eq!(
            inserted("#!x\r\n# coding: utf-8\r\nx\r\n"),
            "#!x\r\n# coding: utf-8\r\nimport a\r\nimport b\r\nx\r\n"
        );
        assert_eq!(
            inserted("# licence\r\n\r\nx"),
            "# licence\r\nimport a\r\nimport b\r\n\r\nx"
        );
        assert_eq!(inserted("x\ry\r"), "import a\rimport b\rx\ry\r");
    }

    #[test]
    fn fix_that_changes_other_code_is_dropped() {
        let code = "x = 1\n";
        let before = parse_module(code).unwrap();
        let same = |fixed: &str| changes_nothing_else(code, before.suite(), fixed, 0, &["import a"]);
        assert!(same("import a\nx = 1\n"));
        for other in [
            "import a\nx = 2\n",
            "import a\nx = 1\ny = 2\n",
            "import b\nx = 1\n",
            "import a\nx =\n",
            "x = 1\nimport a\n",
            "a = 1\nx = 1\n",
            "import a\nx  = 1\n",
        ] {
            assert!(!same(other), "{other}");
        }
    }

    #[test]
    fn insertion_into_a_high_tree_needs_no_stack() {
        let code = format!("x = {}\n", vec!["1"; 9000].join(" + "));
        assert_eq!(inserted(&code), format!("import a\nimport b\n{code}"));
    }
}
