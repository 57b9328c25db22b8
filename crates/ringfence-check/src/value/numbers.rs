//! What a JSON parser does not tell: which numbers it rounds. The result has no meaning for text that is not JSON.

use regex::Regex;
use std::sync::LazyLock;

/// Numbers that would become other ones, in their order, each behind how many numbers come before it.
pub(super) fn rounded(text: &str) -> Vec<(usize, &str)> {
    /// A string, which may look like a number inside, or a number. A string that does not end goes up to the end of
    /// the text, which keeps the search linear.
    static TOKENS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?s)"(?:[^"\\]|\\.)*"?|[-0-9][-+.0-9eE]*"#).ok());
    let tokens = TOKENS.iter().flat_map(|tokens| tokens.find_iter(text));
    let texts = tokens.map(|token| token.as_str());
    let numbers = texts.filter(|token| !token.starts_with('"')).enumerate();
    numbers.filter(|(_, digits)| !is_kept(digits)).collect()
}

/// So many digits fit into 64 bits, whatever they are.
const DIGITS_SAFE: usize = 18;

/// Whether a number is the same in 64 bits. Decimal fractions are taken as usual, as the nearest double; an
/// integer has to stay itself, and what is not zero must not become zero.
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
    fn numbers_that_would_become_others_are_found() {
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
    fn an_ordinal_counts_the_numbers_before() {
        let found = rounded(r#"{"a": 1, "2": [3, 18446744073709551617]}"#);
        assert_eq!(found[0].0, 2);
    }
}
