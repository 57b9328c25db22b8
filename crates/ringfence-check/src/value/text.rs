//! What a JSON parser does not tell: how deeply a text is nested before it is followed, and which numbers it rounds.
//! One look at the bytes, without a stack; what it says of a text that is no JSON means nothing.

/// Levels of arrays and objects: what serde_json follows before it refuses.
pub(super) const DEPTH_MAX: usize = 127;

/// What is odd about a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// Where the nesting becomes too deep.
    pub(super) too_deep: Option<usize>,
    /// Where the first number is that a double cannot hold at all.
    pub(super) too_large: Option<usize>,
    /// Numbers that a double cannot hold as they are written.
    pub(super) rounded: Vec<Rounded>,
}

/// A number that would become another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    /// How many numbers come before it.
    pub(super) ordinal: u32,
    /// Its first byte.
    pub(super) start: u32,
    pub(super) bytes: u32,
}

impl Oddities {
    pub(super) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut found = Self::default();
        let (mut at, mut depth, mut numbers) = (0, 0_usize, 0_u32);
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    at = after_string(bytes, at + 1);
                    continue;
                }
                b'[' | b'{' => {
                    depth += 1;
                    if depth > DEPTH_MAX && found.too_deep.is_none() {
                        found.too_deep = Some(at);
                    }
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b'-' | b'0'..=b'9' => {
                    let end = after_number(bytes, at);
                    found.judge(text, at, end, numbers);
                    numbers = numbers.saturating_add(1);
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        found
    }

    fn judge(&mut self, text: &str, start: usize, end: usize, ordinal: u32) {
        let number = text.get(start..end).unwrap_or_default();
        match kept(number) {
            Kept::Same => {}
            Kept::Rounded => {
                let size = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
                self.rounded.push(Rounded {
                    ordinal,
                    start: size(start),
                    bytes: size(end - start),
                });
            }
            Kept::NotAtAll => {
                self.too_large.get_or_insert(start);
            }
        }
    }
}

fn after_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn after_number(bytes: &[u8], start: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let rest = bytes.get(start..).unwrap_or_default();
    start + rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len())
}

enum Kept {
    Same,
    Rounded,
    NotAtAll,
}

/// So many digits fit into 64 bits, whatever they are.
const DIGITS_SAFE: usize = 18;

/// What becomes of a number in 64 bits. Decimal fractions are taken as everybody takes them, as the nearest double; an
/// integer has to stay itself, and what is not zero must not become zero.
fn kept(number: &str) -> Kept {
    let integral = !number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    if integral && (number.len() <= DIGITS_SAFE || fits(number)) {
        return Kept::Same;
    }
    let Ok(double) = number.parse::<f64>() else {
        return Kept::Same;
    };
    if double.is_infinite() {
        Kept::NotAtAll
    } else if integral {
        // A double of this size is an integer, and is printed with all its digits.
        if format!("{double:.0}") == number {
            Kept::Same
        } else {
            Kept::Rounded
        }
    } else if double == 0.0 && has_value(number) {
        Kept::Rounded
    } else {
        Kept::Same
    }
}

fn fits(integer: &str) -> bool {
    integer.parse::<i64>().is_ok() || integer.parse::<u64>().is_ok()
}

/// Is a digit before the exponent other than zero.
fn has_value(number: &str) -> bool {
    let is_exponent = |byte: &u8| matches!(byte, b'e' | b'E');
    let mut digits = number.bytes().take_while(|byte| !is_exponent(byte));
    digits.any(|byte| matches!(byte, b'1'..=b'9'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_would_become_others_are_found() {
        let check = |text: &str, expect: &[&str]| {
            let found = Oddities::of(text);
            let told: Vec<&str> = found
                .rounded
                .iter()
                .map(|number| &text[number.start as usize..(number.start + number.bytes) as usize])
                .collect();
            assert_eq!(told, expect, "{text}");
            assert_eq!(found.too_large, None, "{text}");
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
    fn a_number_beyond_every_double_and_a_nesting_beyond_the_parser_have_a_place() {
        assert_eq!(Oddities::of("[1, 1e400]").too_large, Some(4));
        assert_eq!(Oddities::of(&"9".repeat(400)).too_large, Some(0));
        assert_eq!(Oddities::of(&"[".repeat(DEPTH_MAX)).too_deep, None);
        assert_eq!(Oddities::of(&"[".repeat(DEPTH_MAX + 1)).too_deep, Some(DEPTH_MAX));
        assert_eq!(Oddities::of(&"[]".repeat(1000)).too_deep, None);
        assert_eq!(Oddities::of(&format!("\"{}\"", "[".repeat(1000))).too_deep, None);
    }

    #[test]
    fn an_ordinal_counts_the_numbers_before() {
        let found = Oddities::of(r#"{"a": 1, "2": [3, 18446744073709551617]}"#);
        assert_eq!(found.rounded[0].ordinal, 2);
    }
}
