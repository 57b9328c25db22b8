//! An untrusted schema and JSON, in two lines: the answer is in time and consistent, and every path exists in the JSON.

use ringfence_check::{Answer, JsonQuestion, Question, answer, check_schema};
use ringfence_types::ISSUES_MAX;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Inputs up to this size are answered within [`TIME_MAX`].
const BYTES_MAX: usize = 64 << 10;
const TIME_MAX: Duration = Duration::from_secs(2);

/// One input.
pub fn run(bytes: &[u8]) {
    let (line, body) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &b"null"[..]),
    };
    let Ok(schema) = serde_json::from_slice::<Value>(line) else {
        return;
    };
    let begun = Instant::now();
    let usable = check_schema(&schema).is_ok();
    let question = Question::Json(JsonQuestion {
        name: "inline".to_owned(),
        schema,
    });
    let answer = answer(&question, body);
    let took = begun.elapsed();
    assert!(
        bytes.len() > BYTES_MAX || took < TIME_MAX,
        "{took:?} for {} bytes",
        bytes.len()
    );
    let report = match answer {
        Answer::Json(report) => report,
        Answer::Refused { message, hint } => {
            assert!(!message.is_empty() && !hint.is_empty());
            return;
        }
        other => panic!("{other:?}"),
    };
    assert!(usable);
    assert_eq!(report.valid, report.errors_total == 0);
    assert!(report.errors.len() as u64 <= report.errors_total && report.errors.len() <= ISSUES_MAX);
    let text = std::str::from_utf8(body).map_or("", |text| text.strip_prefix('\u{feff}').unwrap_or(text));
    match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            for error in &report.errors {
                assert!(value.pointer(&error.path).is_some(), "{error:?}");
            }
        }
        Err(_) => assert!(!report.valid && report.errors_total == 1),
    }
}
