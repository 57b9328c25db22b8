//! The configuration file, which an operator writes and an attacker may have touched: it is read or refused with a
//! reason, in bounded time and memory, and never with a panic.

/// One input.
pub fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(ringfence::parse_config(text));
    }
}
