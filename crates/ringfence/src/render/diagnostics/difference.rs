//! What fixes have changed, as a unified difference. Imports are added in one place, so what is between the lines that
//! both begin with and those that both end with is the difference.

use super::{Style, StyledText};
use crate::terminal::neutral;

const CONTEXT: usize = 3;
const LINES_MAX: usize = 400;
const LINE_CHARS_MAX: usize = 500;

/// From one text to the other; nothing where they are the same.
pub(crate) fn difference(name: &str, old: &str, new: &str) -> StyledText {
    let mut painting = StyledText::default();
    if old == new {
        return painting;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (
        old.split_inclusive('\n').collect(),
        new.split_inclusive('\n').collect(),
    );
    let (head, tail) = common(&old, &new);
    let begin = head.saturating_sub(CONTEXT);
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let after = tail.min(CONTEXT);
    let name = neutral::line(name);
    painting.line(Style::Removed, &format!("--- {name}"));
    painting.line(Style::Added, &format!("+++ {name} (fixed)"));
    painting.line(
        Style::Info,
        &format!(
            "@@ -{} +{} @@",
            span(begin, old_end + after),
            span(begin, new_end + after)
        ),
    );
    let changed = old[begin..head].iter().map(|line| (Style::Plain, ' ', line));
    let changed = changed.chain(old[head..old_end].iter().map(|line| (Style::Removed, '-', line)));
    let changed = changed.chain(new[head..new_end].iter().map(|line| (Style::Added, '+', line)));
    let changed = changed.chain(
        old[old_end..old_end + after]
            .iter()
            .map(|line| (Style::Plain, ' ', line)),
    );
    for (ink, sign, line) in changed.take(LINES_MAX) {
        let whole = line.strip_suffix('\n');
        let text = whole.unwrap_or(line);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let text = neutral::text(&super::beginning(text, LINE_CHARS_MAX)).replace('\n', "");
        painting.line(ink, &format!("{sign}{text}"));
        if whole.is_none() {
            painting.line(Style::Guide, "\\ No newline at end of file");
        }
    }
    painting
}

/// How many lines both begin with, and how many of the others both end with.
pub(crate) fn common(old: &[&str], new: &[&str]) -> (usize, usize) {
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = old.iter().zip(new).take_while(same).count();
    let rest = old.len().min(new.len()) - head;
    let ends = old.iter().rev().zip(new.iter().rev());
    (head, ends.take(rest).take_while(same).count())
}

/// `FIRST,COUNT` of lines; of none, the line before.
fn span(begin: usize, end: usize) -> String {
    let first = if begin == end { begin } else { begin + 1 };
    format!("{first},{}", end - begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_added_stands_between_those_around_it() {
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
            "--- a.py\n+++ a.py (fixed)\n@@ -1,1 +1,2 @@\n+import x\n x\n\\ No newline at end of file\n",
        );
        check("", "x\n", "--- a.py\n+++ a.py (fixed)\n@@ -0,0 +1,1 @@\n+x\n");
        check(
            "a\r\nb\r\n",
            "a\r\nc\r\nb\r\n",
            "--- a.py\n+++ a.py (fixed)\n@@ -1,2 +1,3 @@\n a\n+c\n b\n",
        );
    }
}
