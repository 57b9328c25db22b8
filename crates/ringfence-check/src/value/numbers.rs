//! What a JSON parser does not tell: which numbers it rounds. The result has no meaning for text that is not JSON.

/// A number that would become another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded<'a> {
    /// How many numbers come before it.
    pub(super) ordinal: usize,
    pub(super) digits: &'a str,
}

/// Numbers that a double cannot hold as they are written, in their order.
pub(super) fn rounded(text: &str) -> Vec<Rounded<'_>> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let (mut at, mut ordinal) = (0, 0);
    let mut found = Vec::new();
    while let Some((first, rest)) = text.as_bytes().get(at..).and_then(<[u8]>::split_first) {
        let start = at;
        at += 1;
        match first {
            b'"' => at += after_string(rest),
            b'-' | b'0'..=b'9' => {
                at += rest.iter().take_while(|byte| is_part(byte)).count();
                let digits = text.get(start..at).unwrap_or_default();
                found.extend((!is_kept(digits)).then_some(Rounded { ordinal, digits }));
                ordinal += 1;
            }
            _ => {}
        }
    }
    found
}

/// The length of the rest of a string, with the quote that ends it.
fn after_string(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = rest.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |end| end + 1)
}

/// So many digits fit into 64 bits, whatever they are.
const DIGITS_SAFE: usize = 18;

/// Is a number the same in 64 bits. Decimal fractions are taken as everybody takes them, as the nearest double; an
/// integer has to stay itself, and what is not zero must not become zero.
fn is_kept(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        let fits =
            number.len() <= DIGITS_SAFE || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
        // A double of this size is an integer, and is printed with all its digits.
        return fits
            || number
                .parse::<f64>()
                .is_ok_and(|double| format!("{double:.0}") == number);
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
            let digits: Vec<&str> = rounded(text).into_iter().map(|number| number.digits).collect();
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
        assert_eq!(found[0].ordinal, 2);
    }
}
