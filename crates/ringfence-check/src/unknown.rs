//! Strings with parts that are known only at run time, and prefixes of strings.

pub(crate) const UNKNOWN: char = '\u{FFFD}';

pub(crate) fn is_known(text: &str) -> bool {
    !text.contains(UNKNOWN)
}

/// Returns such a string for display: shortened, with an ellipsis for each unknown part.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    cut(text, SHOWN_MAX).replace(UNKNOWN, "…")
}

/// Returns the first characters of a text, with an ellipsis if there are more.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
