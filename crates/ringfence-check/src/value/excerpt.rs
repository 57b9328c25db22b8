//! Excerpts of values: an answer repeats a wrong value, but only its beginning if it is long.

use serde::Serialize;
use serde_json::Value;

/// Maximum length of the JSON text of a value in an answer; of a longer one the answer has the beginning, as a string.
pub(super) const VALUE_BYTES_MAX: usize = 1024;
/// Maximum length of a value inside a sentence.
pub(super) const WORD_BYTES_MAX: usize = 80;
pub(super) const NAME_BYTES_MAX: usize = 200;
pub(super) const MESSAGE_BYTES_MAX: usize = 600;

/// Returns a value, or its beginning as a string if it is long; `text` is its text if it is a string.
pub(super) fn of(value: &impl Serialize, text: Option<&str>) -> Value {
    if let Some(text) = text {
        return Value::String(cut(text, VALUE_BYTES_MAX));
    }
    let text = beginning(value, VALUE_BYTES_MAX);
    match serde_json::from_str(&text) {
        Ok(whole) => whole,
        Err(_) => Value::String(text),
    }
}

/// Returns the beginning of the JSON text of a value, with an ellipsis if there is more.
pub(super) fn beginning(value: &impl Serialize, bytes_max: usize) -> String {
    let mut buffer = vec![0; bytes_max];
    // The writer fails at the end of the buffer.
    let mut rest = buffer.as_mut_slice();
    let ended = serde_json::to_writer(&mut rest, value).is_ok();
    let taken = bytes_max - rest.len();
    let text = String::from_utf8_lossy(buffer.get(..taken).unwrap_or_default());
    if ended {
        text.into_owned()
    } else {
        format!("{}…", text.trim_end_matches('\u{fffd}'))
    }
}

pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end));
    format!("{}…", text.get(..end.unwrap_or(0)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn short_values_are_kept_and_long_ones_truncated() {
        let of_value = |value: Value| of(&value, value.as_str());
        assert_eq!(of_value(json!({"a": [1, "b"]})), json!({"a": [1, "b"]}));
        assert_eq!(
            of_value(json!("b".repeat(2000))),
            json!(format!("{}…", "b".repeat(1024)))
        );
        let list = of_value(json!(vec!["é"; 1000]));
        let text = list.as_str().expect("text");
        assert!(text.starts_with("[\"é\",\"é\"") && text.ends_with('…'), "{text}");
        assert!(text.len() <= VALUE_BYTES_MAX + '…'.len_utf8());
        assert!(!text.contains('\u{fffd}'));
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("äöü", 6), "äöü");
        assert_eq!(cut("äöü", 5), "äö…");
        assert_eq!(cut("äöü", 0), "…");
    }
}
