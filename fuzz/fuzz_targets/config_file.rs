//! The configuration file, which an operator writes and an attacker may have changed: it is accepted or refused with a
//! reason, in bounded time and memory, and without a panic.

/// One input.
pub fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let faults = ringfence::parse_config(text).err().unwrap_or_default();
        assert!(faults.len() <= 20, "{faults:?}");
        for line in faults.iter().filter_map(|fault| fault.line) {
            // YAML has line breaks that Rust's `lines` does not count.
            let last = text.split(['\n', '\r']).count() as u64;
            assert!((1..=last).contains(&line), "line {line} of {last}: {faults:?}");
        }
    }
}
