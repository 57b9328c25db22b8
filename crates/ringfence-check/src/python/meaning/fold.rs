//! Texts that are put together from constants: `'sys' + 'tem'`, `'%s.%s' % ('a', 'b')`, `''.join(map(chr, [111, 115]))`.

use super::{Meaning, Meanings, TEXT_BYTES_MAX};
use base64::{Engine, alphabet, engine};
use ruff_python_ast::{self as ast, Arguments, Expr, Operator};

/// So many characters or numbers are looked at.
const ITEMS_MAX: usize = 10_000;

impl<'a> Meanings<'a, '_> {
    pub(super) fn binary(&self, left: &Meaning<'a>, binary: &'a ast::ExprBinOp) -> Meaning<'a> {
        if let (Meaning::Text(format), Operator::Mod) = (left, binary.op) {
            return self.percent(format, &binary.right);
        }
        let right = self.of(&binary.right);
        match (left, &right, binary.op) {
            (Meaning::Text(a), Meaning::Text(b), Operator::Add) => Meaning::text(&format!("{a}{b}")),
            (Meaning::Bytes(a), Meaning::Bytes(b), Operator::Add) => {
                Meaning::bytes(&[&a[..], &b[..]].concat())
            }
            (Meaning::Text(text), Meaning::Number(times), Operator::Mult) => repeated(text, *times),
            (Meaning::Number(a), Meaning::Number(b), op) => calculated(*a, *b, op),
            _ => Meaning::Unknown,
        }
    }

    /// `'%s.%s' % (a, b)` with texts alone.
    fn percent(&self, format: &str, right: &'a Expr) -> Meaning<'a> {
        let values: Vec<Meaning<'a>> = match right {
            Expr::Tuple(tuple) => tuple
                .elts
                .iter()
                .take(ITEMS_MAX)
                .map(|expr| self.of(expr))
                .collect(),
            _ => vec![self.of(right)],
        };
        let mut values = values.iter();
        let mut text = String::new();
        let mut parts = format.split('%');
        text.push_str(parts.next().unwrap_or_default());
        while let Some(part) = parts.next() {
            match part.chars().next() {
                Some('s') => match values.next() {
                    Some(Meaning::Text(value)) => text.push_str(value),
                    _ => return Meaning::Unknown,
                },
                Some('c') => match values.next() {
                    Some(Meaning::Text(value)) => text.push_str(value),
                    Some(Meaning::Number(number)) => match character(*number) {
                        Meaning::Text(value) => text.push_str(&value),
                        _ => return Meaning::Unknown,
                    },
                    _ => return Meaning::Unknown,
                },
                None => {
                    text.push('%');
                    text.push_str(parts.next().unwrap_or_default());
                    continue;
                }
                Some(_) => return Meaning::Unknown,
            }
            text.push_str(part.get(1..).unwrap_or_default());
            if text.len() > TEXT_BYTES_MAX {
                return Meaning::Unknown;
            }
        }
        Meaning::text(&text)
    }

    pub(super) fn slice(&self, text: &str, slice: &'a Expr) -> Meaning<'a> {
        if !self.spend(text.len() / 4) {
            return Meaning::Unknown;
        }
        let bound = |expr: &'a Option<Box<Expr>>| match expr {
            None => Some(None),
            Some(expr) => match self.of(expr) {
                Meaning::Number(number) => Some(Some(number)),
                _ => None,
            },
        };
        let letters: Vec<char> = text.chars().collect();
        if let Expr::Slice(slice) = slice {
            let (Some(lower), Some(upper), Some(step)) =
                (bound(&slice.lower), bound(&slice.upper), bound(&slice.step))
            else {
                return Meaning::Unknown;
            };
            return sliced(&letters, lower, upper, step.unwrap_or(1));
        }
        let Meaning::Number(at) = self.of(slice) else {
            return Meaning::Unknown;
        };
        let length = i64::try_from(letters.len()).unwrap_or(i64::MAX);
        let at = if at < 0 { at.saturating_add(length) } else { at };
        let letter = usize::try_from(at).ok().and_then(|at| letters.get(at));
        letter.map_or(Meaning::Unknown, |letter| Meaning::text(&letter.to_string()))
    }

    pub(super) fn call_method(
        &self,
        value: &Meaning<'a>,
        name: &str,
        arguments: &'a Arguments,
    ) -> Meaning<'a> {
        match value {
            Meaning::Text(text) => self.call_text_method(text, name, arguments),
            Meaning::Bytes(bytes) => match name {
                "decode" => match self.argument(arguments, 0) {
                    Meaning::Text(name) => codec(bytes, &name),
                    _ => decoded(bytes),
                },
                "hex" => Meaning::text(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
                _ => Meaning::Unknown,
            },
            _ => Meaning::Unknown,
        }
    }

    fn call_text_method(&self, text: &str, name: &str, arguments: &'a Arguments) -> Meaning<'a> {
        if !self.spend(text.len() / 4) {
            return Meaning::Unknown;
        }
        let plain = arguments.is_empty();
        match name {
            "join" => arguments
                .args
                .first()
                .and_then(|items| self.joined(text, items))
                .unwrap_or(Meaning::Unknown),
            "replace" => match (self.argument(arguments, 0), self.argument(arguments, 1)) {
                (Meaning::Text(from), Meaning::Text(to)) if !from.is_empty() && replaced_fits(text, &to) => {
                    Meaning::text(&text.replace(&*from, &to))
                }
                _ => Meaning::Unknown,
            },
            "format" => self.formatted(text, arguments),
            "encode" => Meaning::bytes(text.as_bytes()),
            "lower" | "casefold" if plain => Meaning::text(&text.to_lowercase()),
            "upper" if plain => Meaning::text(&text.to_uppercase()),
            "strip" if plain => Meaning::text(text.trim()),
            "lstrip" if plain => Meaning::text(text.trim_start()),
            "rstrip" if plain => Meaning::text(text.trim_end()),
            "swapcase" if plain => Meaning::text(&swapped(text)),
            "__add__" => match self.argument(arguments, 0) {
                Meaning::Text(more) => Meaning::text(&format!("{text}{more}")),
                _ => Meaning::Unknown,
            },
            _ => Meaning::Unknown,
        }
    }

    /// `'{}{0}{name}'.format(...)` with texts alone.
    fn formatted(&self, format: &str, arguments: &'a Arguments) -> Meaning<'a> {
        let mut text = String::new();
        let mut rest = format;
        let mut next = 0;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(rest.get(..at).unwrap_or_default());
            let after = rest.get(at + 1..).unwrap_or_default();
            let brace = rest.get(at..=at).unwrap_or_default();
            if after.starts_with(brace) {
                text.push_str(brace);
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            let Some((field, tail)) = after.split_once('}') else {
                return Meaning::Unknown;
            };
            let value = match field.parse::<usize>() {
                _ if field.is_empty() => {
                    next += 1;
                    self.argument(arguments, next - 1)
                }
                Ok(at) => self.argument(arguments, at),
                Err(_) => match arguments.find_keyword(field) {
                    Some(keyword) => self.of(&keyword.value),
                    None => Meaning::Unknown,
                },
            };
            let Meaning::Text(value) = value else {
                return Meaning::Unknown;
            };
            text.push_str(&value);
            if text.len() > TEXT_BYTES_MAX {
                return Meaning::Unknown;
            }
            rest = tail;
        }
        text.push_str(rest);
        Meaning::text(&text)
    }

    fn joined(&self, separator: &str, items: &'a Expr) -> Option<Meaning<'a>> {
        let mut text = String::new();
        for (at, item) in self.items(items)?.iter().enumerate() {
            if at > 0 {
                text.push_str(separator);
            }
            text.push_str(item.as_text()?);
            if text.len() > TEXT_BYTES_MAX {
                return None;
            }
        }
        Some(Meaning::text(&text))
    }

    /// What a loop over an expression would see.
    fn items(&self, expr: &'a Expr) -> Option<Vec<Meaning<'a>>> {
        let all = |exprs: &'a [Expr]| {
            let few = exprs.len() <= ITEMS_MAX;
            few.then(|| exprs.iter().map(|expr| self.of(expr)).collect())
        };
        match expr {
            Expr::List(list) => all(&list.elts),
            Expr::Tuple(tuple) => all(&tuple.elts),
            Expr::ListComp(of) => self.comprehended(&of.elt, &of.generators),
            Expr::Generator(of) => self.comprehended(&of.elt, &of.generators),
            Expr::Call(call) => match self.of(&call.func) {
                Meaning::Builtin("reversed") => {
                    let mut items = self.items(call.arguments.args.first()?)?;
                    items.reverse();
                    Some(items)
                }
                Meaning::Builtin("list" | "tuple" | "iter") => self.items(call.arguments.args.first()?),
                Meaning::Builtin("map") => {
                    let Meaning::Builtin("chr") = self.argument(&call.arguments, 0) else {
                        return None;
                    };
                    let numbers = self.items(call.arguments.args.get(1)?)?;
                    numbers.iter().map(|number| as_character(number)).collect()
                }
                _ => self.items_of(&self.of(expr)),
            },
            _ => self.items_of(&self.of(expr)),
        }
    }

    fn items_of(&self, meaning: &Meaning<'a>) -> Option<Vec<Meaning<'a>>> {
        match meaning {
            Meaning::Text(text) if text.len() <= ITEMS_MAX && self.spend(text.len()) => {
                let mut buffer = [0; 4];
                Some(
                    text.chars()
                        .map(|letter| Meaning::text(letter.encode_utf8(&mut buffer)))
                        .collect(),
                )
            }
            Meaning::Bytes(bytes) if bytes.len() <= ITEMS_MAX && self.spend(bytes.len()) => Some(
                bytes
                    .iter()
                    .map(|byte| Meaning::Number(i64::from(*byte)))
                    .collect(),
            ),
            _ => None,
        }
    }

    /// `chr(c ^ 3) for c in items`.
    fn comprehended(
        &self,
        element: &'a Expr,
        generators: &'a [ast::Comprehension],
    ) -> Option<Vec<Meaning<'a>>> {
        let [generator] = generators else {
            return None;
        };
        let (Expr::Name(target), []) = (&generator.target, &generator.ifs[..]) else {
            return None;
        };
        let items = self.items(&generator.iter)?;
        if !self.spend(items.len() * 4) {
            return None;
        }
        items
            .iter()
            .map(|item| self.element(element, target.id.as_str(), item, 0))
            .collect()
    }

    /// An expression in which one name stands for an item; small ones alone.
    fn element(&self, expr: &'a Expr, name: &str, item: &Meaning<'a>, depth: u32) -> Option<Meaning<'a>> {
        let inner = |expr: &'a Expr| {
            (depth < 8)
                .then(|| self.element(expr, name, item, depth + 1))
                .flatten()
        };
        match expr {
            Expr::Name(read) if read.id.as_str() == name => Some(item.clone()),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Some(self.of_innermost(expr)),
            Expr::BinOp(binary) => match (inner(&binary.left)?, inner(&binary.right)?) {
                (Meaning::Number(a), Meaning::Number(b)) => Some(calculated(a, b, binary.op)),
                (Meaning::Text(a), Meaning::Text(b)) if binary.op == Operator::Add => {
                    Some(Meaning::text(&format!("{a}{b}")))
                }
                _ => None,
            },
            Expr::Call(call) => {
                let [argument] = &*call.arguments.args else {
                    return None;
                };
                match (self.of(&call.func), inner(argument)?) {
                    (Meaning::Builtin("chr"), Meaning::Number(number)) => Some(character(number)),
                    (Meaning::Builtin("ord"), Meaning::Text(text)) => Some(code_point(&text)),
                    (Meaning::Builtin("str"), Meaning::Text(text)) => Some(Meaning::Text(text)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    pub(super) fn bytes_of(&self, expr: &'a Expr) -> Meaning<'a> {
        match self.of(expr) {
            Meaning::Text(text) => return Meaning::bytes(text.as_bytes()),
            bytes @ Meaning::Bytes(_) => return bytes,
            _ => {}
        }
        let Some(items) = self.items(expr) else {
            return Meaning::Unknown;
        };
        let bytes: Option<Vec<u8>> = items
            .iter()
            .map(|item| match item {
                Meaning::Number(number) => u8::try_from(*number).ok(),
                _ => None,
            })
            .collect();
        bytes.map_or(Meaning::Unknown, |bytes| Meaning::bytes(&bytes))
    }
}

fn as_character<'a>(meaning: &Meaning<'a>) -> Option<Meaning<'a>> {
    match meaning {
        Meaning::Number(number) => Some(character(*number)),
        _ => None,
    }
}

fn replaced_fits(text: &str, to: &str) -> bool {
    text.len().saturating_mul(to.len().max(1)) <= TEXT_BYTES_MAX * 16
}

fn swapped(text: &str) -> String {
    text.chars()
        .flat_map(|letter| {
            let swapped: Vec<char> = if letter.is_uppercase() {
                letter.to_lowercase().collect()
            } else {
                letter.to_uppercase().collect()
            };
            swapped
        })
        .collect()
}

fn repeated<'a>(text: &str, times: i64) -> Meaning<'a> {
    match usize::try_from(times.max(0)) {
        Ok(times) if text.len().saturating_mul(times) <= TEXT_BYTES_MAX => Meaning::text(&text.repeat(times)),
        _ => Meaning::Unknown,
    }
}

fn calculated<'a>(a: i64, b: i64, op: Operator) -> Meaning<'a> {
    let small = |shift: i64| u32::try_from(shift).ok().filter(|shift| *shift < 63);
    let value = match op {
        Operator::Add => a.checked_add(b),
        Operator::Sub => a.checked_sub(b),
        Operator::Mult => a.checked_mul(b),
        Operator::FloorDiv => a.checked_div_euclid(b).filter(|_| b > 0),
        Operator::Mod => a.checked_rem_euclid(b).filter(|_| b > 0),
        Operator::BitXor => Some(a ^ b),
        Operator::BitOr => Some(a | b),
        Operator::BitAnd => Some(a & b),
        Operator::RShift => small(b).and_then(|shift| a.checked_shr(shift)),
        Operator::LShift => small(b).and_then(|shift| a.checked_mul(1 << shift)),
        Operator::Pow => u32::try_from(b).ok().and_then(|power| a.checked_pow(power)),
        Operator::Div | Operator::MatMult => None,
    };
    value.map_or(Meaning::Unknown, Meaning::Number)
}

fn sliced<'a>(letters: &[char], lower: Option<i64>, upper: Option<i64>, step: i64) -> Meaning<'a> {
    let length = i64::try_from(letters.len()).unwrap_or(i64::MAX);
    let (first, last) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |bound: i64| {
        let bound = if bound < 0 {
            bound.saturating_add(length)
        } else {
            bound
        };
        bound.clamp(first, last)
    };
    let (from, to) = if step > 0 {
        (lower.map_or(0, bound), upper.map_or(length, bound))
    } else {
        (lower.map_or(length - 1, bound), upper.map_or(-1, bound))
    };
    if step == 0 {
        return Meaning::Unknown;
    }
    let mut text = String::new();
    let mut at = from;
    while (step > 0 && at < to) || (step < 0 && at > to) {
        text.extend(usize::try_from(at).ok().and_then(|at| letters.get(at)));
        at = at.saturating_add(step);
    }
    Meaning::text(&text)
}

pub(super) fn character<'a>(number: i64) -> Meaning<'a> {
    let letter = u32::try_from(number).ok().and_then(char::from_u32);
    letter.map_or(Meaning::Unknown, |letter| Meaning::text(&letter.to_string()))
}

pub(super) fn code_point<'a>(text: &str) -> Meaning<'a> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Meaning::Number(i64::from(u32::from(letter))),
        _ => Meaning::Unknown,
    }
}

pub(super) fn decoded<'a>(bytes: &[u8]) -> Meaning<'a> {
    std::str::from_utf8(bytes).map_or(Meaning::Unknown, Meaning::text)
}

pub(super) fn hex<'a>(text: &[u8]) -> Meaning<'a> {
    let digits: Option<Vec<u8>> = text
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| {
            char::from(*byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        })
        .collect();
    let Some(digits) = digits.filter(|digits| digits.len() % 2 == 0) else {
        return Meaning::Unknown;
    };
    let bytes: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    Meaning::bytes(&bytes)
}

/// Like Python's, which skips what is not in the alphabet.
pub(super) fn base64<'a>(text: &[u8]) -> Meaning<'a> {
    let clean: Vec<u8> = text
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
        .collect();
    let config = engine::GeneralPurposeConfig::new()
        .with_decode_padding_mode(engine::DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let engine = engine::GeneralPurpose::new(&alphabet::STANDARD, config);
    engine
        .decode(clean)
        .map_or(Meaning::Unknown, |bytes| Meaning::bytes(&bytes))
}

pub(super) fn codec<'a>(bytes: &[u8], name: &str) -> Meaning<'a> {
    match name.to_ascii_lowercase().replace('_', "-").as_str() {
        "rot13" | "rot-13" => {
            let turned: String = bytes.iter().map(|byte| char::from(turned(*byte))).collect();
            Meaning::text(&turned)
        }
        "hex" | "hex-codec" => hex(bytes),
        "base64" | "base64-codec" | "base-64" => base64(bytes),
        "utf-8" | "utf8" | "ascii" | "latin-1" | "latin1" | "us-ascii" => decoded(bytes),
        _ => Meaning::Unknown,
    }
}

fn turned(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
        b'A'..=b'Z' => (byte - b'A' + 13) % 26 + b'A',
        other => other,
    }
}
