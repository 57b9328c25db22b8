//! Hashes that stand for values in a search for equal ones. Without the keys two values cannot be made to share one; by
//! chance it happens once in 10^25 tables of the largest size.

use std::hash::{BuildHasher, Hash, RandomState};

/// Each pair is chosen anew.
#[derive(Debug, Default)]
pub(crate) struct Keys([RandomState; 2]);

impl Keys {
    /// Of 128 bits.
    pub(crate) fn hash(&self, value: &(impl Hash + ?Sized)) -> [u64; 2] {
        self.0.each_ref().map(|key| key.hash_one(value))
    }
}
