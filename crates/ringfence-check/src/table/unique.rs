//! Values of `unique` columns; only a keyed hash of each is kept.

use crate::{keyed_hash::Keys, question::Unusable};
use std::collections::HashSet;

/// Maximum number of values in all columns together, which take about 150 MB.
const VALUES_MAX: usize = 4_000_000;

#[derive(Debug, Default)]
pub(super) struct Seen {
    keys: Keys,
    values: HashSet<[u64; 2]>,
}

impl Seen {
    /// Adds a value; returns true if it is new in its column.
    pub(super) fn is_new(&mut self, column: usize, value: &[u8]) -> Result<bool, Unusable> {
        let hash = self.keys.hash(&(column, value));
        if self.values.len() >= VALUES_MAX && !self.values.contains(&hash) {
            return Err(Unusable::new(
                format!("the columns that are `unique` have more than {VALUES_MAX} values."),
                "Check the table in parts, or without `unique`.",
            ));
        }
        Ok(self.values.insert(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_new_once_per_column() {
        let mut seen = Seen::default();
        let mut is_new = |column, value: &str| seen.is_new(column, value.as_bytes()).expect("room");
        assert!(is_new(0, "a"));
        assert!(is_new(1, "a"));
        assert!(is_new(0, "b"));
        assert!(!is_new(0, "a"));
        assert!(!is_new(1, "a"));
    }
}
