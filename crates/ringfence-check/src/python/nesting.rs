//! How deeply a text is nested, told from its tokens before the parser makes a tree of it. Walking and dropping a tree
//! recurse, so what is nested deeper than the interpreter itself would compile is refused before there is a tree.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// Brackets in brackets: the interpreter's tokenizer refuses more (`MAXLEVEL`).
const BRACKETS_MAX: usize = 200;
/// Blocks in blocks: the interpreter's tokenizer refuses more (`MAXINDENT`).
const BLOCKS_MAX: usize = 100;
/// The whole tree: twice as many terms of a sum as Python 3.13 compiles.
const HEIGHT_MAX: usize = 10_000;

/// What nests in one pair of brackets, as much as it may at most.
#[derive(Default)]
struct Level {
    /// Since the last comma or colon.
    here: usize,
    /// Before it.
    highest: usize,
    /// `lambda`s whose colon has not come.
    lambdas: usize,
}

impl Level {
    fn next_expression(&mut self) {
        self.highest = self.highest.max(self.here);
        self.here = 0;
    }
}

/// Whether the tree of a text may become too high.
pub(crate) fn is_deep(code: &str) -> bool {
    use TokenKind as T;
    let mut lexer = lexer::lex(code, Mode::Module);
    let (mut outer, mut above, mut blocks) = (Vec::new(), 0_usize, 0_usize);
    let mut level = Level::default();
    loop {
        match lexer.next_token() {
            T::EndOfFile => return false,
            T::Lpar | T::Lsqb | T::Lbrace | T::FStringStart | T::TStringStart => {
                above += level.here + 1;
                outer.push(std::mem::take(&mut level));
            }
            T::Rpar | T::Rsqb | T::Rbrace | T::FStringEnd | T::TStringEnd => {
                if let Some(around) = outer.pop() {
                    above -= around.here + 1;
                    let inner = level.highest.max(level.here);
                    level = around;
                    level.here += inner + 1;
                }
            }
            T::Newline | T::Semi => {
                outer.clear();
                (above, level) = (0, Level::default());
            }
            T::Indent => blocks += 1,
            T::Dedent => blocks = blocks.saturating_sub(1),
            T::Colon if level.lambdas > 0 => level.lambdas -= 1,
            T::Comma if level.lambdas > 0 => {}
            T::Colon | T::Comma => level.next_expression(),
            T::Lambda => {
                level.lambdas += 1;
                level.here += 1;
            }
            T::Dot | T::Else | T::Not | T::Await | T::Tilde => level.here += 1,
            kind => level.here += usize::from(kind.as_binary_operator().is_some()),
        }
        if outer.len() > BRACKETS_MAX || blocks > BLOCKS_MAX || blocks + above + level.here > HEIGHT_MAX {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_that_of_the_tree_and_not_of_the_text() {
        let check = |code: &str, accepted: bool| {
            let short: String = code.chars().take(60).collect();
            assert_eq!(!is_deep(code), accepted, "{short}");
        };
        check(&format!("{}1{}", "(".repeat(200), ")".repeat(200)), true);
        check(&format!("{}1{}", "(".repeat(201), ")".repeat(201)), false);
        check(&format!("x = '{}'", "(".repeat(5000)), true);
        check(&format!("# {}", "[".repeat(5000)), true);
        check(&vec!["a"; 5000].join(" + "), true);
        check(&vec!["-a"; 5000].join(" * "), true);
        check(&vec!["a"; 20_000].join(" + "), false);
        check(&vec!["not a"; 9000].join(" and "), true);
        check(&vec!["a"; 20_000].join(" < "), true);
        check(&vec!["a ** 2"; 5000].join(" + "), true);
        check(&vec!["a"; 20_000].join(" ** "), false);
        check(&format!("{}a", "not ".repeat(10_001)), false);
        check(&format!("{}a", "- ".repeat(10_001)), false);
        check(&format!("{}1", "lambda a, b: ".repeat(10_001)), false);
        check(&format!("x = [{}]", "lambda a, b: 1, ".repeat(5000)), true);
        check(&format!("{}1", "1 if a else ".repeat(10_001)), false);
        check(&format!("f({})", "1 if a else 2, ".repeat(5000)), true);
        check(&format!("a{}", ".b".repeat(9000)), true);
        check(&format!("a{}", "()".repeat(9000)), true);
        check(&format!("a{}", "[0].b".repeat(9000)), false);
        check(&"if a:\n  b\nelse:\n  c\n".repeat(5000), true);
        check(&format!("if a: b\n{}", "elif a: b\n".repeat(50_000)), true);
        let blocks: String = (0..101)
            .map(|depth| format!("{}if a:\n", " ".repeat(depth)))
            .collect();
        check(&format!("{blocks}{}b\n", " ".repeat(101)), false);
    }

    #[test]
    fn what_is_high_on_many_levels_is_added_up() {
        let sum = vec!["a"; 100].join("+");
        let mut code = "a".to_owned();
        for _ in 0..50 {
            code = format!("({code})+{sum}");
        }
        assert!(!is_deep(&code));
        for _ in 0..60 {
            code = format!("({code})+{sum}");
        }
        assert!(is_deep(&code));
    }
}
