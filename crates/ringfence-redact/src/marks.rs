//! Writes a stage's output: what is kept as it is, what was found as one mark per run of touching finds.

use crate::REDACTED;

/// What stands where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    /// One [`REDACTED`] for each run.
    Mark,
    /// One `*` for each byte.
    Fill,
}

/// The part of a stream that a stage looks at.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where in the stream the first of them stands.
    pub(crate) origin: u64,
}

/// Where the output ends. Positions are those of the stage's input, from the start of the stream.
pub(crate) struct Marks {
    mask: Mask,
    /// Everything before is written.
    settled: u64,
    /// The last thing written was a mark.
    after_mark: bool,
    pub(crate) found: u64,
}

impl View<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.origin + self.bytes.len() as u64
    }

    /// The place of a position among the bytes.
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

    /// Everything up to `position` that is not yet written was not found.
    pub(crate) fn keep(&mut self, view: View<'_>, position: u64, out: &mut Vec<u8>) {
        if position > self.settled {
            out.extend_from_slice(&view.bytes[view.index(self.settled)..view.index(position)]);
            self.settled = position;
            self.after_mark = false;
        }
    }

    /// The text ends; what was found last touches nothing that follows.
    pub(crate) fn finish(&mut self, view: View<'_>, out: &mut Vec<u8>) {
        self.keep(view, view.end(), out);
        self.after_mark = false;
    }

    /// What stands between was found; what stands before it was not.
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
    fn finds_that_touch_are_one_mark() {
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
