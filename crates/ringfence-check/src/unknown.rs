//! Texts of which a part only a run can tell, and beginnings of texts.

/// Stands for that part.
pub(crate) const UNKNOWN: char = '\u{FFFD}';

/// Whether every part of it is known.
pub(crate) fn is_known(text: &str) -> bool {
    !text.contains(UNKNOWN)
}

/// Such a text as a caller may read it.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    cut(text, SHOWN_MAX).replace(UNKNOWN, "…")
}

/// The first characters of a text, with an ellipsis if there are more.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
