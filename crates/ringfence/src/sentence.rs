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

/// Removes the numbers of errors (` (os error 2)`) behind their texts.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        text + rest.strip_prefix(')').unwrap_or(rest)
    })
}

/// `1 file`, `2 files`.
pub(crate) fn counted<N: std::fmt::Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_removed_from_their_texts() {
        let text = "a: No such file (os error 2), so b (Denied (os error 13)).";
        assert_eq!(without_numbers(text), "a: No such file, so b (Denied).");
        assert_eq!(without_numbers("(os error"), "(os error");
    }
}
