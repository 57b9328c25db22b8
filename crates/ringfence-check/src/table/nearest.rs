//! The nearest valid word for a mistyped one.

/// Longer words than any of ours are not worth comparing.
const WORD_BYTES_MAX: usize = 32;

/// " Did you mean `x`?", or nothing.
pub(super) fn suggestion(word: &str, known: &[&str]) -> String {
    let word = word.to_ascii_lowercase();
    let scored = known.iter().map(|name| (distance(&word, name), *name));
    match scored.min_by_key(|(distance, _)| *distance) {
        // A third of the letters may be wrong; more is another word.
        Some((distance, name)) if word.len() <= WORD_BYTES_MAX && distance <= name.len().div_ceil(3) => {
            format!(" Did you mean `{name}`?")
        }
        _ => String::new(),
    }
}

/// Levenshtein's distance, of bytes: one row of the table at a time.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, l) in left.bytes().take(WORD_BYTES_MAX).enumerate() {
        let mut diagonal = at;
        let mut before = at + 1;
        if let Some(first) = row.first_mut() {
            *first = before;
        }
        for (cell, r) in row.iter_mut().skip(1).zip(right.bytes()) {
            let replaced = diagonal + usize::from(l != r);
            diagonal = *cell;
            before = replaced.min(before + 1).min(diagonal + 1);
            *cell = before;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_stranger_is_not() {
        let known = ["type", "required", "pattern", "unique"];
        let check = |word: &str, expect: &str| {
            let told = suggestion(word, &known);
            let expect = if expect.is_empty() {
                String::new()
            } else {
                format!(" Did you mean `{expect}`?")
            };
            assert_eq!(told, expect, "{word}");
        };
        check("requird", "required");
        check("Type", "type");
        check("patern", "pattern");
        check("uniq", "unique");
        check("zebra", "");
        check("", "");
        check(&"x".repeat(1000), "");
    }

    #[test]
    fn distances_are_levenshteins() {
        for (left, right, expect) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(left, right), expect, "{left} {right}");
        }
    }
}
