//! The configuration file, which an operator writes and an attacker may have touched: it is read or refused with a
//! reason, in bounded time and memory, and never with a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(ringfence::parse_config(text));
    }
});
