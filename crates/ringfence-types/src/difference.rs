//! The unified difference of two texts, in bounded time and length.

use similar::TextDiff;
use std::time::Instant;

const CUT: &str = "[the rest is not shown]\n";

/// Returns the difference, and true if it was cut. Lines not compared by `until` are shown as all old and all new.
pub fn unified_diff(names: [&str; 2], texts: [&str; 2], until: Instant, bytes_max: usize) -> (String, bool) {
    let mut configuration = TextDiff::configure();
    let diff = configuration.deadline(until).diff_lines(texts[0], texts[1]);
    let mut text = diff.unified_diff().header(names[0], names[1]).to_string();
    let is_cut = text.len() > bytes_max;
    if is_cut {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        text.push_str(CUT);
    }
    (text, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn diff(old: &str, new: &str, bytes_max: usize) -> (String, bool) {
        unified_diff(
            ["a", "b"],
            [old, new],
            Instant::now() + Duration::from_secs(5),
            bytes_max,
        )
    }

    #[test]
    fn difference_of_two_texts_is_unified() {
        let expect = "--- a\n+++ b\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n";
        assert_eq!(diff("a\nb\nc\n", "a\nB\nc", 1000), (expect.to_owned(), false));
        assert_eq!(diff("a\n", "a\n", 1000), (String::new(), false));
    }

    #[test]
    fn long_difference_is_cut_at_a_line() {
        let long = "0123456789\u{e9}\n".repeat(100);
        let (cut, is_cut) = diff("", &long, 200);
        assert!(is_cut && !diff("", &long, 2000).1);
        assert!(cut.len() <= 200 + CUT.len(), "{}", cut.len());
        assert!(cut.ends_with(&format!("+0123456789\u{e9}\n{CUT}")), "{cut}");
        assert_eq!(diff("", "x", 0), (CUT.to_owned(), true));
    }

    #[test]
    fn texts_without_a_common_line_end_at_the_deadline() {
        let text = |start: u32| -> String { (start..start + 40_000).map(|n| format!("{n}\n")).collect() };
        let start = Instant::now();
        let deadline = start + Duration::from_millis(100);
        unified_diff(["a", "b"], [&text(0), &text(20_001)], deadline, 1000);
        let reversed: String = text(0).lines().rev().flat_map(|line| [line, "\n"]).collect();
        unified_diff(["a", "b"], [&text(0), &reversed], deadline, 1000);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
