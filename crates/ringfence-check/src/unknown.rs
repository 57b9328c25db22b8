//! Texts of which a part only a run can tell.

/// Stands for that part.
pub(crate) const UNKNOWN: char = '\u{FFFD}';

/// Such a text as a caller may read it.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown: String = text
        .chars()
        .take(SHOWN_MAX)
        .map(|c| if c == UNKNOWN { '…' } else { c })
        .collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}
