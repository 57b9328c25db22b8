//! Ends of lines that only some see: a text may look like one long comment, and Node.js run the rest of it.

use super::rules;
use crate::rule::Finding;

/// The first of them.
pub(super) fn odd(code: &str) -> Option<Finding> {
    if !code.contains(['\r', '\u{2028}', '\u{2029}']) {
        return None;
    }
    let mut characters = code.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let is_alone = characters.peek().is_none_or(|(_, next)| *next != '\n');
        let is_odd = match character {
            '\u{2028}' | '\u{2029}' => true,
            '\r' => is_alone,
            _ => false,
        };
        if is_odd {
            let what = format!("a line ends in U+{:04X}", u32::from(character));
            return Some(Finding::new(
                &rules::LINE_END,
                at..at + character.len_utf8(),
                what,
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, Setting, check};

    #[test]
    fn ends_of_lines_that_hide_code_are_told() {
        let is_told = |code: &str| {
            let found = check(code, Dialect::JavaScript, Setting::Program).findings;
            found
                .iter()
                .any(|finding| finding.rule.id == "javascript.line_end")
        };
        for code in [
            "#!x\rconsole.log(1)",
            "#!x\u{2028}console.log(1)",
            "<!-- c\rconsole.log(1)",
            "x = 1\n/* \r */ --> y\rconsole.log(1)",
            "// c\u{2029}console.log(1)",
        ] {
            assert!(is_told(code), "{code:?}");
        }
        for code in ["const a = 1;\r\nconst b = 2;\r\n", "const a = '\\u2028\\r';\n"] {
            assert!(!is_told(code), "{code:?}");
        }
    }
}
