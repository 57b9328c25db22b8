//! The last stage of a stream: redacts personal addresses and numbers, by their shape.
//!
//! A find depends only on the bytes near it, so the stage holds back a bounded tail: the last run of bytes that could
//! still become part of a find.

use crate::{
    contact,
    marks::{Marks, Mask, View},
    number,
    wiped::Wiped,
};

/// Bytes after the start of a find that decide on it: the longest address and a little more.
const AHEAD: usize = 256;

/// Bytes before a position that decide if a find may begin there.
const BEHIND: usize = 2;

pub(crate) struct PersonalWords {
    marks: Marks,
    /// End of the stream so far: the last settled bytes, then those that are not settled.
    held: Wiped,
    /// Position of `held` in the stream.
    origin: u64,
    /// Index in `held`; every find that begins before it is written.
    settled: usize,
}

impl PersonalWords {
    pub(crate) fn new(mask: Mask) -> Self {
        Self {
            marks: Marks::new(mask),
            held: Wiped::default(),
            origin: 0,
            settled: 0,
        }
    }

    pub(crate) fn found(&self) -> u64 {
        self.marks.found
    }

    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.held.extend(bytes);
        let text = self.held.as_slice();
        let tail = open_tail(&text[self.settled..]);
        self.settle(text.len() - tail, out);
        let dropped = self.settled.saturating_sub(BEHIND);
        self.held.drop_front(dropped);
        self.origin += dropped as u64;
        self.settled -= dropped;
    }

    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.settle(self.held.len(), out);
        let view = View {
            bytes: self.held.as_slice(),
            origin: self.origin,
        };
        self.marks.finish(view, out);
        // the next bytes are a new text
        self.origin += self.held.len() as u64;
        self.held.drop_front(self.held.len());
        self.settled = 0;
    }

    /// Writes the text before an index, and every find that begins there.
    fn settle(&mut self, until: usize, out: &mut Vec<u8>) {
        let view = View {
            bytes: self.held.as_slice(),
            origin: self.origin,
        };
        let mut found = |start: usize, end: usize, marks: &mut Marks| {
            marks.mark(view, view.origin + start as u64, view.origin + end as u64, out);
        };
        // addresses are searched apart, because an `@` may be far after the start of its address
        let mut addresses = contact::starting_in(view.bytes, self.settled..until);
        let mut address = addresses.next();
        let mut at = self.settled;
        while let Some(start) = number::next_start(view.bytes, at..until) {
            while let Some(find) = address.clone().filter(|find| find.start <= start) {
                found(find.start, find.end, &mut self.marks);
                address = addresses.next();
            }
            if let Some(end) = number::end(view.bytes, start) {
                found(start, end, &mut self.marks);
            }
            at = start + 1;
        }
        for find in address.into_iter().chain(addresses) {
            found(find.start, find.end, &mut self.marks);
        }
        self.marks.keep(view, view.origin + until as u64, out);
        self.settled = until;
    }
}

/// Returns the number of bytes at the end that may still become part of a find, or decide on one.
fn open_tail(text: &[u8]) -> usize {
    let mut at = text.len();
    while at > 0 && text.len() - at < AHEAD {
        let part = match text[at - 1] {
            b' ' => {
                let next = text.get(at);
                let opens = next.is_none_or(|next| next.is_ascii_digit() || *next == b'(');
                opens && at > 1 && (text[at - 2].is_ascii_digit() || text[at - 2] == b')')
            }
            b'@' | b'(' | b')' => true,
            byte => contact::is_local(byte),
        };
        if !part {
            break;
        }
        at -= 1;
    }
    text.len() - at
}
