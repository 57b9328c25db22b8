//! One line of code as shown: tabs become spaces, harmful characters are spelled out, a long line is cut around the
//! marked range, and the carets account for the width of each character.

use crate::terminal::neutral;
use ringfence_types::Issue;
use std::ops::Range;
use unicode_width::UnicodeWidthStr;

const CELLS_MAX: usize = 120;
/// Characters of a long line that are shown before the marked range.
const CONTEXT: usize = 40;
const TAB: &str = "    ";
const CUT: char = '…';

/// Range of a finding within its first line, in characters from 0.
pub(super) fn range_of(issue: &Issue) -> Range<usize> {
    let index = |column: u32| usize::try_from(column).unwrap_or(usize::MAX).saturating_sub(1);
    let end = match issue.end_line > issue.line {
        true => usize::MAX,
        false => index(issue.end_column),
    };
    index(issue.column)..end
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownLine {
    pub(super) text: String,
    pub(super) before: usize,
    pub(super) marked: usize,
}

pub(super) fn shown(line: &str, range: &Range<usize>) -> ShownLine {
    let skipped = if line.len() > CELLS_MAX {
        range.start.saturating_sub(CONTEXT)
    } else {
        0
    };
    let (mut text, mut cells) = (String::new(), 0);
    if skipped > 0 {
        text.push(CUT);
        cells += 1;
    }
    let (mut before, mut end) = (None, cells);
    for (index, character) in line.chars().enumerate().skip(skipped) {
        let piece = match character {
            '\t' => TAB.to_owned(),
            other => neutral::line(other.encode_utf8(&mut [0; 4])),
        };
        let width = piece.width();
        if index == range.start {
            before = Some(cells);
        }
        if cells + width > CELLS_MAX {
            text.push(CUT);
            break;
        }
        text += &piece;
        cells += width;
        if index < range.end {
            end = cells;
        }
    }
    let before = before.unwrap_or(cells);
    ShownLine {
        text,
        before,
        marked: end.saturating_sub(before).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_align_with_wide_combining_and_escaped_characters() {
        let check = |line: &str, (from, to): (usize, usize), text: &str, before: usize, marked: usize| {
            let expect = ShownLine {
                text: text.to_owned(),
                before,
                marked,
            };
            assert_eq!(shown(line, &(from..to)), expect, "{line:?}");
        };
        check("abc", (1, 2), "abc", 1, 1);
        check("abc", (1, 1), "abc", 1, 1);
        check("abc", (3, 3), "abc", 3, 1);
        check("abc", (7, 9), "abc", 3, 1);
        check("\tab", (1, 3), "    ab", 4, 2);
        check("漢字x", (1, 2), "漢字x", 2, 2);
        check("e\u{301}x", (2, 3), "e\u{301}x", 1, 1);
        check("\u{202e}x", (1, 2), "<U+202E>x", 8, 1);
        check("a\u{0}b", (1, 2), "a␀b", 1, 1);
        check("", (0, 0), "", 0, 1);
    }

    #[test]
    fn long_line_is_cut_on_both_sides_of_the_range() {
        let line = format!("{}HERE{}", "a".repeat(500), "b".repeat(500));
        let shown = shown(&line, &(500..504));
        assert_eq!((shown.before, shown.marked), (41, 4));
        assert!(
            shown.text.starts_with('…') && shown.text.ends_with('…'),
            "{}",
            shown.text
        );
        assert_eq!(&shown.text.chars().skip(41).take(4).collect::<String>(), "HERE");
        assert!(shown.text.width() <= CELLS_MAX + 1);
    }
}
