//! Measures how deeply code is nested, from its tokens. Parsing, walking and dropping a tree recurse, so code that is
//! nested more deeply than the interpreter itself would compile is refused before there is a tree.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// Maximum depth of brackets: the interpreter's tokenizer refuses more (`MAXLEVEL`).
const BRACKETS_MAX: u32 = 200;
/// Maximum depth of blocks: the interpreter's tokenizer refuses more (`MAXINDENT`).
const BLOCKS_MAX: u32 = 100;
/// Maximum depth of brackets, blocks and expressions that nest to the right without a bracket: `not not x`,
/// `a ** b ** c`, `lambda: lambda: 0`, `a if b else c if d else e`.
const LEVELS_MAX: u32 = 500;
/// Maximum height of the whole tree. Expressions that nest to the left (`a + b + c`, `a.b().c()`) are walked by loops
/// and count only here. Twice as many terms as Python 3.13 compiles.
const HEIGHT_MAX: u32 = 10_000;

/// Returns an upper bound on the height of the code's tree, or `None` if code or tree are nested too deeply.
pub(crate) fn height_bound(code: &str) -> Option<u32> {
    let mut lexer = lexer::lex(code, Mode::Module);
    let mut scanner = Scanner::default();
    loop {
        let kind = lexer.next_token();
        if kind == TokenKind::EndOfFile {
            scanner.end_statement();
            return (scanner.height <= HEIGHT_MAX).then_some(scanner.height);
        }
        scanner.token(kind);
        if scanner.is_too_deep() {
            return None;
        }
    }
}

/// State of the expressions inside one pair of brackets: open constructs and heights.
#[derive(Clone, Copy, Default)]
struct Level {
    around: u32,
    /// Height of the highest finished expression.
    finished: u32,
    /// Height of the expression to the left of the last binary operator.
    left: u32,
    /// Height of the operand to the right of it.
    operand: u32,
    /// Number of signs and powers of the operand.
    signs: u32,
    /// Number of `not`s since the last `and` or `or`.
    nots: u32,
    /// Number of `lambda`s and `else`s since the last comma.
    tails: u32,
    /// Number of `lambda`s before their colon.
    parameters: u32,
}

impl Level {
    fn right_levels(&self) -> u32 {
        self.signs + self.nots + self.tails + self.parameters
    }

    fn height(&self) -> u32 {
        let open = self.left.max(self.operand + self.signs) + self.nots + self.tails + self.parameters;
        self.finished.max(open)
    }

    fn next_expression(&mut self) {
        *self = Self {
            around: self.around,
            finished: self.height(),
            ..Self::default()
        };
    }
}

#[derive(Default)]
struct Scanner {
    outer: Vec<Level>,
    level: Level,
    blocks: u32,
    height: u32,
    /// The last token ended an operand, so that a sign after it is a binary operator.
    after_operand: bool,
}

impl Scanner {
    fn is_too_deep(&self) -> bool {
        let brackets = u32::try_from(self.outer.len()).unwrap_or(u32::MAX);
        brackets > BRACKETS_MAX
            || self.blocks > BLOCKS_MAX
            || self.blocks + brackets + self.level.around + self.level.right_levels() > LEVELS_MAX
            || self.level.height().max(self.height) > HEIGHT_MAX
    }

    fn token(&mut self, kind: TokenKind) {
        use TokenKind as T;
        match kind {
            T::Comment | T::NonLogicalNewline => return,
            T::Lpar | T::Lsqb | T::Lbrace | T::FStringStart | T::TStringStart => self.open(),
            T::Rpar | T::Rsqb | T::Rbrace | T::FStringEnd | T::TStringEnd => self.close(),
            T::Newline | T::Semi => self.end_statement(),
            T::Indent => self.blocks += 1,
            T::Dedent => self.blocks = self.blocks.saturating_sub(1),
            T::Comma if self.level.parameters == 0 => self.level.next_expression(),
            T::Colon if self.level.parameters > 0 => {
                self.level.parameters -= 1;
                self.level.tails += 1;
            }
            T::Colon => self.level.next_expression(),
            T::Lambda => self.level.parameters += 1,
            T::Else => self.level.tails += 1,
            T::Not => self.level.nots += 1,
            T::And | T::Or => {
                self.operator(0);
                self.level.nots = 0;
            }
            T::Dot => self.level.operand += 1,
            T::DoubleStar | T::Await | T::Tilde => self.level.signs += 1,
            T::Plus | T::Minus | T::Star if !self.after_operand => self.level.signs += 1,
            _ if kind.as_binary_operator().is_some() => self.operator(1),
            _ if is_comparison(kind) => self.operator(0),
            _ => {}
        }
        self.after_operand = ends_operand(kind);
    }

    fn operator(&mut self, higher: u32) {
        let level = &mut self.level;
        level.left = level.left.max(level.operand + level.signs) + higher;
        level.operand = 0;
        level.signs = 0;
    }

    fn open(&mut self) {
        let around = self.level.around + self.level.right_levels();
        self.outer.push(self.level);
        self.level = Level {
            around,
            ..Level::default()
        };
    }

    fn close(&mut self) {
        let inner = self.level.height();
        if let Some(level) = self.outer.pop() {
            self.level = level;
            self.level.operand = self.level.operand.max(inner) + 1;
        }
    }

    fn end_statement(&mut self) {
        while !self.outer.is_empty() {
            self.close();
        }
        self.height = self.height.max(self.level.height() + self.blocks);
        self.level = Level::default();
    }
}

fn is_comparison(kind: TokenKind) -> bool {
    use TokenKind as T;
    matches!(
        kind,
        T::EqEqual | T::NotEqual | T::Less | T::LessEqual | T::Greater | T::GreaterEqual | T::In | T::Is
    )
}

#[rustfmt::skip]
fn ends_operand(kind: TokenKind) -> bool {
    use TokenKind as T;
    matches!(
        kind,
        T::Name | T::Int | T::Float | T::Complex | T::String | T::FStringEnd | T::TStringEnd | T::Rpar | T::Rsqb
            | T::Rbrace | T::Ellipsis | T::None | T::True | T::False | T::Case | T::Lazy | T::Match | T::Type
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_that_of_the_tree() {
        let check = |code: &str, accepted: bool| {
            let short: String = code.chars().take(60).collect();
            assert_eq!(height_bound(code).is_some(), accepted, "{short}");
        };
        check(&format!("{}1{}", "(".repeat(200), ")".repeat(200)), true);
        check(&format!("{}1{}", "(".repeat(201), ")".repeat(201)), false);
        check(&format!("x = '{}'", "(".repeat(5000)), true);
        check(&format!("# {}", "[".repeat(5000)), true);
        check(&vec!["a"; 5000].join(" + "), true);
        check(&vec!["-a"; 5000].join(" * "), true);
        check(&vec!["a"; 20_000].join(" + "), false);
        check(&vec!["not a"; 20_000].join(" and "), true);
        check(&vec!["a"; 20_000].join(" < "), true);
        check(&vec!["a ** 2"; 5000].join(" + "), true);
        check(&vec!["a"; 600].join(" ** "), false);
        check(&format!("{}a", "not ".repeat(501)), false);
        check(&format!("{}a", "- ".repeat(501)), false);
        check(&format!("{}1", "lambda a, b: ".repeat(501)), false);
        check(&format!("x = [{}]", "lambda a, b: 1, ".repeat(5000)), true);
        check(&format!("{}1", "1 if a else ".repeat(501)), false);
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
    fn heights_of_nested_levels_are_added() {
        let sum = vec!["a"; 100].join("+");
        let mut code = "a".to_owned();
        for _ in 0..50 {
            code = format!("({code})+{sum}");
        }
        assert!(height_bound(&code).unwrap() > 5000);
        for _ in 0..60 {
            code = format!("({code})+{sum}");
        }
        assert_eq!(height_bound(&code), None);
    }
}
