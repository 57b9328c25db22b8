//! Hashes that represent values in a search for duplicates. Without the keys, two values with the same hash cannot be
//! constructed; by chance a collision occurs once in 10^25 tables of the largest size.

use std::hash::{BuildHasher, Hash, RandomState};

/// A pair of keys, different in each instance.
#[derive(Debug, Default)]
pub(crate) struct Keys([RandomState; 2]);

impl Keys {
    pub(crate) fn hash(&self, value: &(impl Hash + ?Sized)) -> [u64; 2] {
        self.0.each_ref().map(|key| key.hash_one(value))
    }
}
