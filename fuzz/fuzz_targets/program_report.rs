//! The report that a program's driver sends on descriptor 3, and that the program itself can forge: reading it never
//! fails, and keeps at most what was sent.

use ringfence_engine::read_report;

/// A byte that is not UTF-8 becomes U+FFFD, which has three bytes.
const LOSSY_GROWTH: usize = 3;

/// One input.
pub fn run(bytes: &[u8]) {
    let report = read_report(bytes);
    let text = report.result_repr.as_ref().map_or(0, String::len)
        + report.variables.iter().map(String::len).sum::<usize>()
        + report.error.as_ref().map_or(0, |error| {
            error.kind.len() + error.message.len() + error.traceback.len()
        });
    assert!(
        text <= bytes.len() * LOSSY_GROWTH,
        "{text} bytes of text from {}",
        bytes.len()
    );
    assert!(report.error.is_none_or(|error| !error.kind.is_empty()));
}
