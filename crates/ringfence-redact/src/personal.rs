//! The second stage of a stream: takes out what identifies a person, as far as its shape tells.
//!
//! Whether something is found depends only on the bytes near it, so the stage holds back a bounded tail: the last run
//! of bytes that could still become part of a find.

use crate::{
    contact,
    marks::{Marks, Mask, View},
    number,
    wiped::Wiped,
};

/// Bytes after the start of a find that decide about it: the longest address and a little.
const AHEAD: usize = 256;

/// Bytes before a position that tell whether a find may begin there.
const BEHIND: usize = 2;

/// Finds personal words in a stream.
pub(crate) struct PersonalWords {
    marks: Marks,
    /// The end of the stream so far: some that is settled, then what is not.
    held: Wiped,
    /// Where in the stream `held` begins.
    origin: u64,
    /// Index in `held`: every find that begins before is written.
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
        let gone = self.settled.saturating_sub(BEHIND);
        self.held.drop_front(gone);
        self.origin += gone as u64;
        self.settled -= gone;
    }

    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.settle(self.held.len(), out);
        let view = View {
            bytes: self.held.as_slice(),
            origin: self.origin,
        };
        self.marks.finish(view, out);
        // what comes next is another text
        self.origin += self.held.len() as u64;
        self.held.drop_front(self.held.len());
        self.settled = 0;
    }

    /// Writes everything that begins before an index.
    fn settle(&mut self, until: usize, out: &mut Vec<u8>) {
        let view = View {
            bytes: self.held.as_slice(),
            origin: self.origin,
        };
        let mut found = |start: usize, end: usize, marks: &mut Marks| {
            marks.mark(view, view.origin + start as u64, view.origin + end as u64, out);
        };
        // an address is known by its `@`, which may stand a good way behind its start
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

/// How many of the last bytes may still become part of a find, or decide about one.
fn open_tail(text: &[u8]) -> usize {
    let mut at = text.len();
    while at > 0 && text.len() - at < AHEAD {
        let part = match text[at - 1] {
            b' ' => {
                let opens = text
                    .get(at)
                    .is_none_or(|next| next.is_ascii_digit() || *next == b'(');
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
