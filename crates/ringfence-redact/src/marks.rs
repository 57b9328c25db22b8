//! Writes a stage's output: kept text unchanged, and one mark for each run of touching finds.

use crate::REDACTED;

/// Replacement of finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// One [`REDACTED`] for each run.
    Mark,
    /// One `*` for each byte.
    Fill,
}

/// The part of a stream that a stage has at hand.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    /// Position of the first byte in the stream.
    pub(crate) origin: u64,
}

/// State of the output. Positions are those of the stage's input, from the start of the stream.
pub(crate) struct Marks {
    mask: Mask,
    /// Position up to which everything is written.
    settled: u64,
    /// True if a mark was written last.
    after_mark: bool,
    pub(crate) found: u64,
}

impl View<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.origin + self.bytes.len() as u64
    }

    /// Returns the index of a position in the bytes.
    pub(crate) fn index(&self, position: u64) -> usize {
        usize::try_from(position.saturating_sub(self.origin))
            .map_or(self.bytes.len(), |index| index.min(self.bytes.len()))
    }
}

impl Marks {
    pub(crate) fn new(mask: Mask) -> Self {
        Self {
            mask,
            settled: 0,
            after_mark: false,
            found: 0,
        }
    }

    /// Writes the text up to `position` that is not written yet, unchanged.
    pub(crate) fn keep(&mut self, view: View<'_>, position: u64, out: &mut Vec<u8>) {
        if position > self.settled {
            out.extend_from_slice(&view.bytes[view.index(self.settled)..view.index(position)]);
            self.settled = position;
            self.after_mark = false;
        }
    }

    /// Ends the text; the last find does not touch the text that follows.
    pub(crate) fn finish(&mut self, view: View<'_>, out: &mut Vec<u8>) {
        self.keep(view, view.end(), out);
        self.after_mark = false;
    }

    /// Writes the text before `start` unchanged, and a mark for the find from `start` to `end`.
    pub(crate) fn mark(&mut self, view: View<'_>, start: u64, end: u64, out: &mut Vec<u8>) {
        self.keep(view, start, out);
        if !self.after_mark {
            self.found += 1;
            self.after_mark = true;
            if self.mask == Mask::Mark {
                out.extend_from_slice(REDACTED.as_bytes());
            }
        }
        if end > self.settled {
            if self.mask == Mask::Fill {
                let stars = view.index(end) - view.index(self.settled);
                out.resize(out.len() + stars, b'*');
            }
            self.settled = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mask: Mask, finds: &[(u64, u64)]) -> (String, u64) {
        let view = View {
            bytes: b"0123456789",
            origin: 0,
        };
        let (mut marks, mut out) = (Marks::new(mask), Vec::new());
        for &(start, end) in finds {
            marks.mark(view, start, end, &mut out);
        }
        marks.keep(view, 10, &mut out);
        (String::from_utf8(out).unwrap(), marks.found)
    }

    #[test]
    fn touching_finds_become_one_mark() {
        assert_eq!(
            written(Mask::Mark, &[(2, 4), (4, 6), (5, 8)]),
            ("01***REDACTED***89".into(), 1)
        );
        assert_eq!(
            written(Mask::Mark, &[(2, 4), (5, 6)]),
            ("01***REDACTED***4***REDACTED***6789".into(), 2)
        );
    }

    #[test]
    fn filling_keeps_the_length() {
        assert_eq!(
            written(Mask::Fill, &[(2, 4), (4, 6), (5, 8)]),
            ("01******89".into(), 1)
        );
        assert_eq!(written(Mask::Fill, &[]), ("0123456789".into(), 0));
    }
}
