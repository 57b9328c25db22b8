//! Changes by automatic fixes, as a unified difference.

use super::{Style, StyledText};
use crate::terminal::neutral;
use ringfence_types::unified_diff;
use std::time::{Duration, Instant};

const LINES_MAX: usize = 400;
const LINE_CHARS_MAX: usize = 500;

pub(crate) fn difference(name: &str, old: &str, new: &str) -> StyledText {
    let name = neutral::line(name);
    let fixed = format!("{name} (fixed)");
    let deadline = Instant::now() + Duration::from_secs(3);
    let (text, _) = unified_diff([&name, &fixed], [old, new], deadline, LINES_MAX * LINE_CHARS_MAX);
    let mut styled = StyledText::default();
    for line in text.split_terminator('\n').take(LINES_MAX) {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::Added,
            Some(b'-') => Style::Removed,
            Some(b'@') => Style::Info,
            Some(b'\\') => Style::Guide,
            _ => Style::Plain,
        };
        let line = line.strip_suffix('\r').unwrap_or(line);
        styled.line(style, &neutral::text(&super::beginning(line, LINE_CHARS_MAX)));
    }
    styled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_line_is_shown_with_its_context() {
        let check = |old: &str, new: &str, expect: &str| {
            assert_eq!(difference("a.py", old, new).plain(), expect, "{old:?}");
        };
        check("x\n", "x\n", "");
        check(
            "'doc'\na\nb\nc\nd\n",
            "'doc'\nimport json\na\nb\nc\nd\n",
            "--- a.py\n+++ a.py (fixed)\n@@ -1,4 +1,5 @@\n 'doc'\n+import json\n a\n b\n c\n",
        );
        check(
            "x",
            "import x\nx",
            "--- a.py\n+++ a.py (fixed)\n@@ -1 +1,2 @@\n+import x\n x\n\\ No newline at end of file\n",
        );
        check("", "x\n", "--- a.py\n+++ a.py (fixed)\n@@ -0,0 +1 @@\n+x\n");
        check(
            "a\r\nb\r\n",
            "a\r\nc\r\nb\r\n",
            "--- a.py\n+++ a.py (fixed)\n@@ -1,2 +1,3 @@\n a\n+c\n b\n",
        );
    }
}
