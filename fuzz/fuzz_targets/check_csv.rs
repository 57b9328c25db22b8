//! An untrusted table, with constraints in its first line: the answer is in time and consistent.

use ringfence_check::{Answer, CsvQuestion, Question, answer};
use ringfence_types::ISSUES_MAX;
use std::time::{Duration, Instant};

/// Inputs up to this size are answered within [`TIME_MAX`].
const BYTES_MAX: usize = 64 << 10;
const TIME_MAX: Duration = Duration::from_secs(2);

/// One input.
pub fn run(bytes: &[u8]) {
    let (line, body) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&b""[..], bytes),
    };
    // If the line is not a question, ask one about a column by its name.
    let question = serde_json::from_slice(line).unwrap_or_else(|_| CsvQuestion {
        required_headers: vec!["a".to_owned()],
        delimiter: line.first().map(|byte| char::from(*byte)),
        ..CsvQuestion::default()
    });
    let begun = Instant::now();
    let answer = answer(&Question::Csv(question.clone()), body);
    let took = begun.elapsed();
    assert!(
        bytes.len() > BYTES_MAX || took < TIME_MAX,
        "{took:?} for {} bytes",
        bytes.len()
    );
    let report = match answer {
        Answer::Csv(report) => report,
        Answer::Refused { message, hint } => {
            assert!(!message.is_empty() && !hint.is_empty());
            return;
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(report.valid, report.errors_total == 0);
    assert!(report.errors_total >= report.missing_headers.len() as u64);
    assert_eq!(
        report.errors.len() as u64,
        report.errors_total.min(ISSUES_MAX as u64)
    );
    assert!(report.errors.iter().all(|error| error.row <= report.row_count));
    assert!(report.errors.is_sorted_by_key(|error| error.row));
    assert!(report.row_count <= body.len() as u64 && report.column_count == report.headers.len() as u64);
    for name in &report.missing_headers {
        assert!(
            report.headers.iter().all(|known| known.trim() != name.trim()),
            "{name}"
        );
    }
}
