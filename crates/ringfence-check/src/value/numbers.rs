//! Finds the numbers that a JSON parser rounds silently. The result has no meaning for text that is not JSON.

use regex::Regex;
use std::sync::LazyLock;

/// Returns the numbers that would change, in order, each with the number of numbers before it.
pub(super) fn rounded(text: &str) -> Vec<(usize, &str)> {
    /// A string, which may contain digits, or a number. An unterminated string takes the rest: the search is linear.
    static TOKENS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?s)"(?:[^"\\]|\\.)*"?|[-0-9][-+.0-9eE]*"#).ok());
    let tokens = TOKENS.iter().flat_map(|tokens| tokens.find_iter(text));
    let texts = tokens.map(|token| token.as_str());
    let numbers = texts.filter(|token| !token.starts_with('"')).enumerate();
    numbers.filter(|(_, digits)| !is_kept(digits)).collect()
}

/// Length up to which any integer fits into 64 bits.
const DIGITS_SAFE: usize = 18;

/// True if 64 bits hold a number. A decimal fraction may become the nearest double, as usual; an integer must be held
/// exactly, and a number other than zero must not become zero.
fn is_kept(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        let fits =
            number.len() <= DIGITS_SAFE || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
        // A double of this size is an integer, and is printed with all its digits.
        let is_printed = |double: f64| format!("{double:.0}") == number;
        return fits || number.parse().is_ok_and(is_printed);
    }
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !mantissa.contains(|digit| matches!(digit, '1'..='9'));
    is_zero || number.parse::<f64>().is_ok_and(|double| double != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inexact_numbers_are_found() {
        let check = |text: &str, expect: &[&str]| {
            let digits: Vec<&str> = rounded(text).into_iter().map(|(_, digits)| digits).collect();
            assert_eq!(digits, expect, "{text}");
        };
        check("[0, -0, 1.5, 0.1, 1e3, 9223372036854775807]", &[]);
        check("[18446744073709551615, -9223372036854775808]", &[]);
        // 2^70 is a double; its neighbour is not.
        check("[1180591620717411303424]", &[]);
        check("[1180591620717411303425]", &["1180591620717411303425"]);
        check(
            "[18446744073709551616, 18446744073709551617]",
            &["18446744073709551617"],
        );
        check("[-9223372036854775809]", &["-9223372036854775809"]);
        check("[1e-400, 0e-400, 0.0]", &["1e-400"]);
        check(r#"{"18446744073709551617": "\"18446744073709551617"}"#, &[]);
        check(r#"["\\", 18446744073709551617]"#, &["18446744073709551617"]);
    }

    #[test]
    fn ordinal_counts_the_numbers_before() {
        let found = rounded(r#"{"a": 1, "2": [3, 18446744073709551617]}"#);
        assert_eq!(found[0].0, 2);
    }
}
