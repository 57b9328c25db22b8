//! Bytes that a search ignores.

/// Set of bytes that a search ignores, in needles and in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// CR and LF.
    LineBreaks,
    /// Also white space, and the characters around the lines of a diff, a quotation, a list, a table, a comment or a
    /// literal.
    Layout,
}

impl Ignored {
    #[inline]
    pub(crate) fn has(self, byte: u8) -> bool {
        match self {
            Self::LineBreaks => matches!(byte, b'\r' | b'\n'),
            Self::Layout => {
                matches!(byte, b'\t' | b'\n' | b'\r' | b' ' | b'"' | b'#' | b'\'')
                    | matches!(byte, b'*'..=b'-' | b'>' | b'\\' | b'`' | b'|')
            }
        }
    }

    /// Returns the longest run of ignored bytes inside a find; without a limit, a program could make us hold gigabytes.
    pub(crate) fn run_max(self) -> u32 {
        match self {
            Self::LineBreaks => crate::LINE_BREAKS_MAX,
            Self::Layout => crate::LAYOUT_MAX,
        }
    }
}
