//! An Aho-Corasick automaton for all needles in a compact form of nine bytes a state.
//!
//! States are numbered along chains: the first child of a state is the next number. Most transitions are therefore one
//! comparison of one byte, and only states with several children need the hash table. The time per byte of text is
//! constant on average over the text, for any needles.
//!
//! A filter precedes the automaton: a bitmap of hashes of the first four bytes of every needle, which ordinary text
//! passes much faster than the automaton could follow it.

use crate::{forms::Needles, ignored::Ignored};
use std::collections::HashMap;
use zeroize::Zeroize;

/// Initial state, with depth 0.
pub(crate) const ROOT: u32 = 0;

/// Bytes of text that the filter checks; no needle is shorter.
pub(crate) const WINDOW: u32 = 4;

/// A byte that no needle contains and no state is labelled with.
pub(crate) const NOWHERE: u8 = b'\r';

/// Label of a state that does not follow the one before it. No needle contains it.
const CHAIN_START: u8 = b'\n';

/// Flag: a needle ends at this state.
const END: u32 = 1 << 31;
/// Flag: only a shorter needle ends at this state; `inner` has its length.
const INNER: u32 = 1 << 30;
/// Flag: the state has children other than the next state.
const BRANCH: u32 = 1 << 29;
const DEPTH: u32 = BRANCH - 1;

const FILTER_BITS: u32 = 20;

pub(crate) struct Automaton {
    pub(crate) ignored: Ignored,
    /// The byte that leads to each state, and a `CHAIN_START` at the end.
    labels: Vec<u8>,
    links: Vec<Link>,
    /// Children that are not the next state.
    edges: Edges,
    /// Children of the root, by byte.
    roots: [u32; 256],
    inner: HashMap<u32, u32>,
    filter: Box<[u64; 1 << (FILTER_BITS - 6)]>,
}

#[derive(Clone, Copy, Default)]
struct Link {
    /// The state of the longest proper suffix.
    fail: u32,
    /// Depth and flags.
    word: u32,
}

/// An open hash table, at most half full.
struct Edges {
    slots: Vec<Edge>,
    shift: u32,
}

#[derive(Clone, Copy, Default)]
struct Edge {
    from: u32,
    /// The root, which is not a child of any state, marks a free slot.
    to: u32,
    byte: u8,
}

/// States in a row: each the parent of the next.
struct Chain {
    /// Depth of the first state.
    depth: u32,
    first: u32,
    len: u32,
    parent: u32,
    byte: u8,
}

impl Automaton {
    /// Builds the automaton. `None`: there are no needles.
    pub(crate) fn new(needles: &mut Needles) -> Option<Self> {
        let ignored = needles.ignored;
        let (mut automaton, mut chains) = build_trie(needles.sorted(), ignored)?;
        for byte in 0..=u8::MAX {
            automaton.roots[usize::from(byte)] = automaton.child(ROOT, byte).unwrap_or(ROOT);
        }
        automaton.link(&mut chains);
        Some(automaton)
    }

    pub(crate) fn states(&self) -> usize {
        self.links.len()
    }

    /// Returns the state after another byte, not an ignored one: the longest suffix of the text that begins a needle.
    #[inline]
    pub(crate) fn advance(&self, mut state: u32, byte: u8) -> u32 {
        while state != ROOT {
            if let Some(next) = self.child(state, byte) {
                return next;
            }
            state = self.links[state as usize].fail;
        }
        self.roots[usize::from(byte)]
    }

    /// Returns the number of bytes of text that the state stands for.
    #[inline]
    pub(crate) fn depth(&self, state: u32) -> u32 {
        self.links[state as usize].word & DEPTH
    }

    /// Returns the length of the longest needle that ends at the state.
    #[inline]
    pub(crate) fn ending(&self, state: u32) -> Option<u32> {
        let word = self.links[state as usize].word;
        if word & (END | INNER) == 0 {
            None
        } else if word & END != 0 {
            Some(word & DEPTH)
        } else {
            self.inner.get(&state).copied()
        }
    }

    /// Follows fail links from a state without children to one with children or the root: nothing longer is under way.
    #[inline]
    pub(crate) fn nearest_open(&self, mut state: u32) -> u32 {
        while state != ROOT
            && self.labels[state as usize + 1] == CHAIN_START
            && self.links[state as usize].word & BRANCH == 0
        {
            state = self.links[state as usize].fail;
        }
        state
    }

    /// False if no needle begins with these bytes, the oldest the lowest. True may be wrong.
    #[inline]
    pub(crate) fn may_begin(&self, window: u32) -> bool {
        let (word, bit) = slot(window);
        self.filter[word] >> bit & 1 != 0
    }

    #[inline]
    fn child(&self, state: u32, byte: u8) -> Option<u32> {
        let at = state as usize;
        if self.labels[at + 1] == byte {
            return Some(state + 1);
        }
        if self.links[at].word & BRANCH == 0 {
            return None;
        }
        self.edges.get(state, byte)
    }

    /// Sets the fail link of each state, in the order of depth.
    fn link(&mut self, chains: &mut [Chain]) {
        chains.sort_by_key(|chain| chain.depth);
        let mut remaining = chains.iter().peekable();
        let mut active: Vec<&Chain> = Vec::new();
        for depth in 1.. {
            while let Some(chain) = remaining.next_if(|chain| chain.depth <= depth) {
                active.push(chain);
            }
            active.retain(|chain| depth - chain.depth < chain.len);
            if active.is_empty() {
                return;
            }
            for chain in &active {
                let state = chain.first + depth - chain.depth;
                if state == chain.first {
                    self.set_fail_link(state, chain.parent, chain.byte);
                } else {
                    self.set_fail_link(state, state - 1, self.labels[state as usize]);
                }
            }
        }
    }

    fn set_fail_link(&mut self, state: u32, parent: u32, byte: u8) {
        let fail = match parent {
            ROOT => ROOT,
            _ => self.advance(self.links[parent as usize].fail, byte),
        };
        let shorter = self.ending(fail);
        let link = &mut self.links[state as usize];
        link.fail = fail;
        if let Some(len) = shorter.filter(|_| link.word & END == 0) {
            link.word |= INNER;
            self.inner.insert(state, len);
        }
    }
}

impl Drop for Automaton {
    fn drop(&mut self) {
        self.labels.zeroize();
        self.links.fill(Link::default());
        self.edges.slots.fill(Edge::default());
        self.roots.zeroize();
        self.filter.zeroize();
        // so that the compiler does not remove the plain writes
        std::hint::black_box((&self.links, &self.edges.slots));
    }
}

/// Builds the trie of sorted needles, without fail links.
fn build_trie<'a>(
    needles: impl Iterator<Item = &'a [u8]> + Clone,
    ignored: Ignored,
) -> Option<(Automaton, Vec<Chain>)> {
    let mut filter = Box::new([0; 1 << (FILTER_BITS - 6)]);
    let (mut states, mut longest) = (1, 0);
    for (needle, shared) in with_shared(needles.clone()) {
        states += needle.len() - shared;
        longest = longest.max(needle.len());
        let (word, bit) = slot(u32::from_le_bytes(*needle.first_chunk()?));
        filter[word] |= 1 << bit;
    }
    if longest == 0 {
        return None;
    }
    // allocated in full at once, because growing would leave copies behind
    let mut labels = Vec::with_capacity(states + 1);
    let mut links = Vec::with_capacity(states);
    let mut path = Vec::with_capacity(longest + 1);
    labels.push(CHAIN_START);
    links.push(Link::default());
    path.push(ROOT);
    let mut chains = vec![Chain::new(0, ROOT, ROOT, 0)];
    for (needle, shared) in with_shared(needles) {
        path.truncate(shared + 1);
        for &byte in &needle[shared..] {
            let (state, parent, depth) = (u32::try_from(links.len()).ok()?, *path.last()?, path.len());
            if parent + 1 == state {
                labels.push(byte);
                chains.last_mut()?.len += 1;
            } else {
                labels.push(CHAIN_START);
                links[parent as usize].word |= BRANCH;
                chains.push(Chain::new(u32::try_from(depth).ok()?, state, parent, byte));
            }
            links.push(Link {
                fail: ROOT,
                word: u32::try_from(depth).ok()?,
            });
            path.push(state);
        }
        links[*path.last()? as usize].word |= END;
    }
    labels.push(CHAIN_START);
    let automaton = Automaton {
        ignored,
        labels,
        links,
        edges: Edges::new(&chains),
        roots: [ROOT; 256],
        inner: HashMap::new(),
        filter,
    };
    Some((automaton, chains))
}

impl Edges {
    /// Builds the table; the first chain is the root's and has no parent.
    fn new(chains: &[Chain]) -> Self {
        let count = (2 * chains.len()).next_power_of_two();
        let mut edges = Self {
            slots: vec![Edge::default(); count],
            shift: u64::BITS - count.trailing_zeros(),
        };
        for chain in &chains[1..] {
            let free = edges
                .probe(chain.parent, chain.byte)
                .find(|&slot| edges.slots[slot].to == ROOT);
            if let Some(slot) = free {
                edges.slots[slot] = Edge {
                    from: chain.parent,
                    to: chain.first,
                    byte: chain.byte,
                };
            }
        }
        edges
    }

    #[inline]
    fn get(&self, from: u32, byte: u8) -> Option<u32> {
        for slot in self.probe(from, byte) {
            let edge = self.slots[slot];
            if edge.to == ROOT {
                return None;
            }
            if edge.from == from && edge.byte == byte {
                return Some(edge.to);
            }
        }
        None
    }

    #[inline]
    fn probe(&self, from: u32, byte: u8) -> impl Iterator<Item = usize> + use<> {
        let key = u64::from(from) << 8 | u64::from(byte);
        #[expect(clippy::cast_possible_truncation, reason = "as many bits as the table has")]
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        let last = self.slots.len() - 1;
        (0..=last).map(move |step| (first + step) & last)
    }
}

impl Chain {
    fn new(depth: u32, first: u32, parent: u32, byte: u8) -> Self {
        Self {
            depth,
            first,
            len: 1,
            parent,
            byte,
        }
    }
}

/// Returns each needle with the length of the prefix that it shares with the one before.
fn with_shared<'a>(needles: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = (&'a [u8], usize)> {
    needles.scan(&[][..], |before, needle| {
        let both = before.iter().zip(needle);
        let shared = both.take_while(|(one, other)| one == other).count();
        *before = needle;
        Some((needle, shared))
    })
}

fn slot(window: u32) -> (usize, u32) {
    let hash = window.wrapping_mul(0x9E37_79B1) >> (32 - FILTER_BITS);
    ((hash >> 6) as usize, hash & 63)
}
