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
            Self::Layout => b"\r\n \t+->|*#,\"'`\\".contains(&byte),
        }
    }

    /// So many in a row may stand inside a find. Without a limit, a program could make us hold back gigabytes.
    pub(crate) fn run_max(self) -> u32 {
        match self {
            Self::LineBreaks => crate::LINE_BREAKS_MAX,
            Self::Layout => crate::LAYOUT_MAX,
        }
    }

    /// Whether one of eight bytes is ignored; it may be wrong when it says yes.
    #[inline]
    pub(crate) fn is_among(self, block: u64) -> bool {
        match self {
            Self::LineBreaks => has_break(block),
            Self::Layout => block.to_le_bytes().into_iter().any(|byte| self.has(byte)),
        }
    }
}

#[inline]
fn has_break(block: u64) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let (lf, cr) = (block ^ (ONES * 10), block ^ (ONES * 13));
    (lf.wrapping_sub(ONES) & !lf | cr.wrapping_sub(ONES) & !cr) & (ONES << 7) != 0
}
