//! Python that a stranger sends: its answer comes in time, and a fix makes nothing worse.
#![no_main]

mod code;

use libfuzzer_sys::fuzz_target;
use ringfence_types::Language;

fuzz_target!(|bytes: &[u8]| code::ask(Language::Python, bytes));
