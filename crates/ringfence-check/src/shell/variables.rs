//! Values of the variables of a shell script.

use crate::unknown::UNKNOWN;
use std::collections::HashMap;

/// Maximum length of a variable's values; longer ones are unknown.
const VALUE_BYTES_MAX: usize = 4096;
/// Maximum length of all values that are expanded, together; later ones are unknown.
const EXPANDED_BYTES_MAX: usize = 1024 * 1024;

/// Variables with their values at the position of the reader. A loop variable has several.
#[derive(Debug)]
pub(super) struct Variables {
    values: HashMap<String, Vec<String>>,
    expanded_bytes: usize,
}

impl Default for Variables {
    /// Variables that are set in every script.
    fn default() -> Self {
        let shell = "/bin/bash";
        // `$0` is kept as it is, so that a script that starts itself is recognized.
        let known = [
            ("HOME", "~"),
            ("IFS", " \t\n"),
            ("PWD", "."),
            ("SHELL", shell),
            ("BASH", shell),
            ("0", "$0"),
        ];
        let values = known.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
        Self {
            values: values.into(),
            expanded_bytes: 0,
        }
    }
}

impl Variables {
    pub(super) fn set(&mut self, name: &str, mut values: Vec<String>) {
        let bytes: usize = values.iter().map(String::len).sum();
        if values.is_empty() || bytes > VALUE_BYTES_MAX {
            values = vec![UNKNOWN.to_string()];
        }
        self.values.insert(name.to_owned(), values);
    }

    pub(super) fn get(&mut self, name: &str) -> Option<Vec<String>> {
        let values = self.values.get(name)?;
        self.expanded_bytes += values.iter().map(String::len).sum::<usize>();
        match self.expanded_bytes > EXPANDED_BYTES_MAX {
            true => Some(vec![UNKNOWN.to_string()]),
            false => Some(values.clone()),
        }
    }
}
