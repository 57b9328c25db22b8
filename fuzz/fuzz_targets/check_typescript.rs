//! TypeScript that a stranger sends: its answer comes in time.
#![no_main]

mod code;

use libfuzzer_sys::fuzz_target;
use ringfence_types::Language;

fuzz_target!(|bytes: &[u8]| code::ask(Language::Typescript, bytes));
