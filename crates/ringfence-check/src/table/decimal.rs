//! Decimal numbers of fields and bounds, of any length, compared exactly.

use std::cmp::Ordering;

/// The number 0.DIGITS times ten to the power of `exponent`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    exponent: i64,
    /// Without zeros at either end: none for zero.
    digits: Vec<u8>,
}

impl Decimal {
    /// Reads a text that fits a numeric type.
    pub(super) fn of(text: &[u8]) -> Self {
        let end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, power) = text.split_at(end.unwrap_or(text.len()));
        let power = std::str::from_utf8(power.get(1..).unwrap_or_default()).unwrap_or_default();
        let limit = match power.as_bytes() {
            [] => 0,
            [b'-', ..] => i64::MIN,
            _ => i64::MAX,
        };
        let ([b'+' | b'-', number @ ..] | number) = mantissa;
        let point = number
            .iter()
            .position(|byte| *byte == b'.')
            .unwrap_or(number.len());
        let digits = number.iter().filter(|byte| byte.is_ascii_digit()).copied();
        let mut digits: Vec<u8> = digits.collect();
        digits.truncate(
            digits
                .iter()
                .rposition(|digit| *digit != b'0')
                .map_or(0, |at| at + 1),
        );
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..zeros);
        Self {
            is_negative: mantissa.first() == Some(&b'-'),
            exponent: power
                .parse()
                .unwrap_or(limit)
                .saturating_add(point as i64 - zeros as i64),
            digits,
        }
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let size = (self.exponent, &self.digits).cmp(&(other.exponent, &other.digits));
        let by_size = match self.sign() {
            0 => Ordering::Equal,
            sign if sign > 0 => size,
            _ => size.reverse(),
        };
        self.sign().cmp(&other.sign()).then(by_size)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_exactly() {
        let groups: &[&[&str]] = &[
            &["-1e400", "-10e399"],
            &["-2"],
            &["-1.5", "-15e-1", "-01.50"],
            &["-1e-99999999999999999999"],
            &["0", "-0", "+0.0", "0e5", ".0", "-0e99999999999999999999"],
            &["1e-400"],
            &["0.1", ".1", "1e-1", "0.10"],
            &["0.10000000000000000001"],
            &["9007199254740992", "9007199254740992.0", "9.007199254740992E+15"],
            &["9007199254740992.5"],
            &["9007199254740993", "+9007199254740993."],
            &["340282366920938463463374607431768211457"],
            &["1e39"],
        ];
        for (at, one) in groups.iter().enumerate() {
            for (other_at, other) in groups.iter().enumerate() {
                for (one, other) in one
                    .iter()
                    .flat_map(|one| other.iter().map(move |other| (one, other)))
                {
                    let order = Decimal::of(one.as_bytes()).cmp(&Decimal::of(other.as_bytes()));
                    assert_eq!(order, at.cmp(&other_at), "{one} {other}");
                }
            }
        }
    }
}
