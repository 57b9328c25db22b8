//! Inputs made from seeds. They are always the same: without coverage to guide them, results must not depend on luck.

/// Bytes that are special to parsers.
const MARKS: &[u8] = b"\0\n\r \"'\\(){}[]<>,;:=/%#-0\x7f\x80\xff";
/// Maximum number of bytes that one change inserts, removes or copies.
const RUN_MAX: usize = 64;
/// Maximum number of changes to one seed.
const CHANGES_MAX: usize = 4;

/// Makes inputs.
pub struct Mutation {
    seeds: Vec<Vec<u8>>,
    state: u64,
}

impl Mutation {
    /// Takes the seeds, and adds the empty input.
    pub fn new(mut seeds: Vec<Vec<u8>>) -> Self {
        seeds.sort();
        seeds.push(Vec::new());
        Self { seeds, state: 1 }
    }

    /// Returns the input of this number: first the unchanged seeds, then inputs made from them.
    pub fn input(&mut self, number: usize) -> Vec<u8> {
        if let Some(seed) = self.seeds.get(number) {
            return seed.clone();
        }
        let mut bytes = self.seed();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut bytes);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let end = bytes.len().min(at + 1 + self.below(RUN_MAX));
        match self.below(6) {
            0 if at < end => bytes[at] ^= 1 << self.below(8),
            1 if at < end => bytes[at] = MARKS[self.below(MARKS.len())],
            2 => drop(bytes.drain(at..end)),
            3 => {
                let to = self.below(bytes.len() + 1);
                let copy = bytes[at..end].to_vec();
                bytes.splice(to..to, copy);
            }
            4 => {
                let other = self.seed();
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let mark = MARKS[self.below(MARKS.len())];
                let count = 1 + self.below(RUN_MAX);
                bytes.splice(at..at, vec![mark; count]);
            }
        }
    }

    fn seed(&mut self) -> Vec<u8> {
        let chosen = self.below(self.seeds.len());
        self.seeds[chosen].clone()
    }

    /// Returns a pseudorandom number below `end` (xorshift64*).
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let high = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        usize::try_from(high).map_or(0, |high| high % end)
    }
}
