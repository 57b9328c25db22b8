//! Two texts as one unified difference of bounded length.

use similar::TextDiff;
use std::{fmt, path::Path, time::Instant};

/// Instead of a difference.
pub(super) const BINARY: &str = "binary content differs\n";
/// Instead of a difference.
pub(super) const TOO_LARGE: &str = "content differs; it is too long to be shown\n";
/// Instead of a difference, when others have taken all the room.
pub(super) const NOT_SHOWN: &str = "content differs; there is too much in all to be shown\n";
const CUT: &str = "[the rest is not shown]\n";

/// None: there is no file on this side. After the deadline it is all old and all new lines. With it: was it cut.
pub(super) fn unified(
    path: &Path,
    old: Option<&str>,
    new: Option<&str>,
    deadline: Instant,
    bytes_max: usize,
) -> (String, bool) {
    let name = |side: &str, text: Option<&str>| match text {
        // As Rust prints it, so that a name with a line break does not look like two.
        Some(_) => format!("{side}/{}", path.to_string_lossy().escape_debug()),
        None => "/dev/null".to_owned(),
    };
    let header = (name("a", old), name("b", new));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let diff = TextDiff::configure().deadline(deadline).diff_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.header(&header.0, &header.1);
    let mut shown = Bounded {
        text: String::new(),
        bytes_max,
    };
    let cut = fmt::write(&mut shown, format_args!("{unified}")).is_err();
    if cut {
        shown.text.push_str(CUT);
    }
    (shown.text, cut)
}

struct Bounded {
    text: String,
    bytes_max: usize,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.text.len() + part.len() <= self.bytes_max {
            self.text.push_str(part);
            return Ok(());
        }
        let whole = self.text.rfind('\n').map_or(0, |end| end + 1);
        self.text.truncate(whole);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn diff(old: Option<&str>, new: Option<&str>, bytes_max: usize) -> (String, bool) {
        let deadline = Instant::now() + Duration::from_secs(5);
        unified(Path::new("d/f\n.txt"), old, new, deadline, bytes_max)
    }

    #[test]
    fn a_difference_is_unified_and_its_names_cannot_forge_a_header() {
        assert_eq!(
            diff(Some("a\nb\nc\n"), Some("a\nB\nc"), 1000).0,
            "--- a/d/f\\n.txt\n+++ b/d/f\\n.txt\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n"
        );
        assert!(
            diff(None, Some("a\n"), 1000)
                .0
                .starts_with("--- /dev/null\n+++ b/")
        );
    }

    #[test]
    fn a_long_difference_is_cut_at_a_line() {
        let long = "0123456789\n".repeat(100);
        let (cut, is_cut) = diff(None, Some(&long), 200);
        assert!(is_cut && !diff(None, Some(&long), 2000).1);
        assert!(cut.len() <= 200 + CUT.len(), "{}", cut.len());
        assert!(cut.ends_with(&format!("+0123456789\n{CUT}")), "{cut}");
    }

    #[test]
    fn texts_without_a_common_line_end_at_the_deadline() {
        let text = |start: u32| {
            (start..start + 40_000)
                .map(|n| format!("{n}\n"))
                .collect::<String>()
        };
        let start = Instant::now();
        let deadline = start + Duration::from_millis(100);
        unified(
            Path::new("f"),
            Some(&text(0)),
            Some(&text(20_001)),
            deadline,
            1000,
        );
        let shuffled = text(0).lines().rev().collect::<Vec<_>>().join("\n");
        unified(Path::new("f"), Some(&text(0)), Some(&shuffled), deadline, 1000);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
