//! Bytes that are read as if they were not there.

/// Which bytes a search passes over, in needles and in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// CR and LF.
    LineBreaks,
    /// Also white space, and what stands around the lines of a diff, a quotation, a list, a table, a comment or a
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

    /// So many in a row may stand inside a find. Without a limit, a program could make us hold back gigabytes.
    pub(crate) fn run_max(self) -> u32 {
        match self {
            Self::LineBreaks => crate::LINE_BREAKS_MAX,
            Self::Layout => crate::LAYOUT_MAX,
        }
    }
}
