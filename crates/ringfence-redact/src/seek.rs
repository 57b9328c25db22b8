//! A stage of a stream that finds the needles of an automaton and redacts them.
//!
//! The stage has two modes. While it skips, no needle can have begun more than three bytes ago, and a window of four
//! bytes slides over the text. Once a needle has begun, the automaton follows it, until it is back at a depth of three
//! or less. Bytes that the automaton ignores, at least CR and LF, do not count.

use crate::{
    automaton::{Automaton, NOWHERE, ROOT, WINDOW},
    ignored::Ignored,
    marks::{Marks, Mask, View},
    wiped::Wiped,
};
use std::{collections::VecDeque, sync::Arc};
use zeroize::Zeroize;

/// A window without text.
const NO_WINDOW: u32 = u32::from_le_bytes([NOWHERE; 4]);

/// Number of buffered finds at which writing is attempted.
const FINDS_MANY: usize = 64;

pub(crate) struct Seek {
    automaton: Arc<Automaton>,
    ignored: Ignored,
    marks: Marks,
    /// End of the stream so far, from the first byte of a needle that may have begun.
    held: Wiped,
    /// Position of `held` in the stream.
    origin: u64,
    /// The last four bytes that are not ignored, the oldest the lowest.
    window: u32,
    /// Consecutive ignored bytes since then, called breaks here.
    breaks: u32,
    follow: Follow,
    /// True in the following mode, false in the skipping mode.
    follows: bool,
}

/// A needle that has begun.
#[derive(Default)]
struct Follow {
    state: u32,
    /// Position of the first byte that was read in this mode.
    start: u64,
    /// Bytes read since then, without breaks.
    read: u64,
    /// Runs of breaks since then that still matter: the count of bytes before each run, and of breaks up to its end.
    breaks: VecDeque<(u64, u64)>,
    /// Breaks before the first of `breaks`.
    breaks_before: u64,
    /// Finds that do not touch, in order.
    finds: VecDeque<(u64, u64)>,
}

impl Seek {
    pub(crate) fn new(automaton: Arc<Automaton>, mask: Mask) -> Self {
        Self {
            ignored: automaton.ignored,
            automaton,
            marks: Marks::new(mask),
            held: Wiped::default(),
            origin: 0,
            window: NO_WINDOW,
            breaks: 0,
            follow: Follow::default(),
            follows: false,
        }
    }

    pub(crate) fn found(&self) -> u64 {
        self.marks.found
    }

    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut held = std::mem::take(&mut self.held);
        let live = if held.len() == 0 {
            let live = self.read(bytes, 0, out);
            held.extend(&bytes[live..]);
            live
        } else {
            let from = held.len();
            held.extend(bytes);
            let live = self.read(held.as_slice(), from, out);
            held.drop_front(live);
            live
        };
        self.origin += live as u64;
        self.held = held;
    }

    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        let view = View {
            bytes: held.as_slice(),
            origin: self.origin,
        };
        self.follow.settle(&mut self.marks, view, view.end(), out);
        self.follows = false;
        self.marks.finish(view, out);
        self.origin = view.end();
        self.window = NO_WINDOW;
        self.breaks = 0;
    }

    /// Reads from an index on. Returns the index from which on the bytes must be held.
    fn read(&mut self, bytes: &[u8], from: usize, out: &mut Vec<u8>) -> usize {
        let view = View {
            bytes,
            origin: self.origin,
        };
        let mut at = from;
        while at < bytes.len() {
            at = if self.follows {
                self.follow(view, at, out)
            } else {
                self.skip(view, at)
            };
        }
        if self.follows {
            let live = self.follow.live(&self.automaton);
            self.follow.settle(&mut self.marks, view, live, out);
            return view.index(live);
        }
        let depth = self.automaton.depth(self.state_after(3));
        let live = index_from_end(self.ignored, bytes, depth);
        self.marks.keep(view, self.origin + live as u64, out);
        live
    }

    /// Returns the state after the last `count` bytes of the window.
    fn state_after(&self, count: usize) -> u32 {
        let last = &self.window.to_le_bytes()[4 - count..];
        last.iter()
            .fold(ROOT, |state, &byte| self.automaton.advance(state, byte))
    }

    /// Slides the window until a needle begins, or to the end of the bytes. Returns the index after the last byte read.
    fn skip(&mut self, view: View<'_>, mut at: usize) -> usize {
        while at < view.bytes.len() {
            let rest = &view.bytes[at..];
            if rest.first_chunk().is_some_and(|block| self.skip_block(*block)) {
                at += 8;
                continue;
            }
            for &byte in rest.iter().take(8) {
                at += 1;
                if self.slide(byte) && self.enter(view, at) {
                    return at;
                }
            }
        }
        at
    }

    /// Slides over eight bytes. Returns false, without a change, if they must be read one by one.
    #[inline]
    fn skip_block(&mut self, block: [u8; 8]) -> bool {
        if self.ignored == Ignored::Layout {
            return self.skip_layout(block);
        }
        const ONES: u64 = u64::from_le_bytes([1; 8]);
        let block = u64::from_le_bytes(block);
        let (lf, cr) = (block ^ (ONES * 10), block ^ (ONES * 13));
        // True if a break is among them, and sometimes if none is.
        if (lf.wrapping_sub(ONES) & !lf | cr.wrapping_sub(ONES) & !cr) & (ONES << 7) != 0 {
            return false;
        }
        let both = u128::from(self.window) | u128::from(block) << 32;
        let mut hit = false;
        for end in 1..=8 {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the lowest four bytes are the window"
            )]
            let window = (both >> (8 * end)) as u32;
            hit |= self.automaton.may_begin(window);
        }
        if !hit {
            self.window = (block >> 32) as u32;
            self.breaks = 0;
        }
        !hit
    }

    /// The same for layout, in which many bytes are ignored; without branches, which would be mispredicted.
    #[inline]
    fn skip_layout(&mut self, block: [u8; 8]) -> bool {
        if self.breaks + 8 > self.ignored.run_max() {
            return false;
        }
        let (mut window, mut breaks, mut hit) = (self.window, self.breaks, false);
        for byte in block {
            let ignored = self.ignored.has(byte);
            let slid = window >> 8 | u32::from(byte) << 24;
            window = if ignored { window } else { slid };
            breaks = if ignored { breaks + 1 } else { 0 };
            hit |= !ignored & self.automaton.may_begin(window);
        }
        if !hit {
            (self.window, self.breaks) = (window, breaks);
        }
        !hit
    }

    /// Slides over a byte. Returns true if a needle may begin with the window.
    #[inline]
    fn slide(&mut self, byte: u8) -> bool {
        if self.ignored.has(byte) {
            self.breaks += u32::from(self.breaks <= self.ignored.run_max());
            if self.breaks > self.ignored.run_max() {
                self.window = NO_WINDOW;
            }
            return false;
        }
        self.breaks = 0;
        self.window = self.window >> 8 | u32::from(byte) << 24;
        self.automaton.may_begin(self.window)
    }

    /// Starts to follow if a needle really begins with the window, which ends before `at`.
    fn enter(&mut self, view: View<'_>, at: usize) -> bool {
        if self.automaton.depth(self.state_after(4)) < WINDOW {
            return false;
        }
        let first = index_from_end(self.ignored, &view.bytes[..at], WINDOW);
        self.follow.begin(view.origin + first as u64);
        for &byte in &view.bytes[first..at] {
            self.follow.read(&self.automaton, byte);
        }
        self.follows = true;
        true
    }

    /// Follows needles until none is under way, or to the end of the bytes. Returns the index after the last byte read.
    fn follow(&mut self, view: View<'_>, mut at: usize, out: &mut Vec<u8>) -> usize {
        let (automaton, follow) = (&*self.automaton, &mut self.follow);
        while automaton.depth(follow.state) >= WINDOW {
            let Some(&byte) = view.bytes.get(at) else {
                return at;
            };
            at += 1;
            if self.ignored.has(byte) {
                self.breaks += 1;
                if self.breaks > self.ignored.run_max() {
                    self.window = NO_WINDOW;
                    follow.state = ROOT;
                    break;
                }
            } else {
                self.breaks = 0;
                self.window = self.window >> 8 | u32::from(byte) << 24;
            }
            follow.read(automaton, byte);
            if follow.finds.len() >= FINDS_MANY {
                follow.settle(&mut self.marks, view, follow.live(automaton), out);
            }
        }
        follow.settle(&mut self.marks, view, follow.live(automaton), out);
        self.follows = false;
        at
    }
}

impl Drop for Seek {
    fn drop(&mut self) {
        self.window.zeroize();
    }
}

impl Follow {
    /// Resets the state; earlier finds are already written.
    fn begin(&mut self, start: u64) {
        (self.state, self.start, self.read, self.breaks_before) = (ROOT, start, 0, 0);
        self.breaks.clear();
        self.finds.clear();
    }

    #[inline]
    fn read(&mut self, automaton: &Automaton, byte: u8) {
        if automaton.ignored.has(byte) {
            let total = 1 + self.breaks.back().map_or(self.breaks_before, |last| last.1);
            match self.breaks.back_mut() {
                Some(last) if last.0 == self.read => last.1 = total,
                _ => self.breaks.push_back((self.read, total)),
            }
            return;
        }
        self.state = automaton.advance(self.state, byte);
        self.read += 1;
        if let Some(len) = automaton.ending(self.state) {
            let start = self.position(self.read - u64::from(len));
            self.add(start, self.position(self.read - 1) + 1);
        }
        self.state = automaton.nearest_open(self.state);
    }

    /// Returns the position in the stream of the byte with this count.
    fn position(&self, count: u64) -> u64 {
        let before = self.breaks.partition_point(|entry| entry.0 <= count);
        let breaks = before
            .checked_sub(1)
            .map_or(self.breaks_before, |last| self.breaks[last].1);
        self.start + count + breaks
    }

    /// Returns the position of the first byte that may belong to an unfinished needle.
    fn live(&self, automaton: &Automaton) -> u64 {
        match automaton.depth(self.state) {
            0 => self.start + self.read + self.breaks.back().map_or(self.breaks_before, |last| last.1),
            depth => self.position(self.read - u64::from(depth)),
        }
    }

    /// Adds a find, merging it with those that it touches. Finds come in the order of their ends.
    fn add(&mut self, mut start: u64, end: u64) {
        while let Some(last) = self.finds.pop_back_if(|last| last.1 >= start) {
            start = start.min(last.0);
        }
        self.finds.push_back((start, end));
    }

    /// Writes everything that can no longer change, because no unfinished needle begins before `live`.
    fn settle(&mut self, marks: &mut Marks, view: View<'_>, live: u64, out: &mut Vec<u8>) {
        while let Some((start, end)) = self.finds.pop_front_if(|find| find.0 <= live) {
            marks.mark(view, start, end, out);
        }
        marks.keep(view, live, out);
        while let Some(gone) = self
            .breaks
            .pop_front_if(|entry| self.start + entry.0 + entry.1 < live)
        {
            self.breaks_before = gone.1;
        }
    }
}

/// Returns the index of the first of the last `count` bytes that are not ignored.
fn index_from_end(ignored: Ignored, bytes: &[u8], mut count: u32) -> usize {
    let mut at = bytes.len();
    while count > 0 && at > 0 {
        at -= 1;
        count -= u32::from(!ignored.has(bytes[at]));
    }
    at
}
