//! Python that a stranger sends: its answer comes in time, and a fix makes nothing worse.

use super::code;
use ringfence_types::Language;

/// One input.
pub fn run(bytes: &[u8]) {
    code::ask(Language::Python, bytes);
}
