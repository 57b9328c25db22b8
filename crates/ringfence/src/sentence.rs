//! Sentences composed of parts that may end with a mark of their own.

/// Ends a text with one mark: its own `?` or `!`, else a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim_end().trim_end_matches('.');
    if text.ends_with(['?', '!']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

/// `1 file`, `2 files`.
pub(crate) fn counted<N: std::fmt::Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{end}")
}
