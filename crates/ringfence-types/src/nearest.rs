//! The nearest valid name for a mistyped one: a refusal with the probable name saves a round trip.

/// Words longer than all of our names are not compared.
const WORD_CHARS_MAX: usize = 64;

/// Returns the known name that `word` most likely stands for, if one is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let word_lower = word.to_ascii_lowercase();
    let scored = known
        .into_iter()
        .map(|name| (strsim::levenshtein(&word_lower, &name.to_ascii_lowercase()), name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may be wrong; more is another word.
    (distance <= (name.chars().count() / 3).max(1)).then_some(name)
}

/// Returns " Did you mean `x`?", or an empty text.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |name| format!(" Did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_found_and_a_distant_one_is_not() {
        let known = ["timeout_seconds", "language", "code", "files"];
        let check = |word: &str, expect: Option<&str>| assert_eq!(nearest(word, known), expect, "{word}");
        check("timeout_second", Some("timeout_seconds"));
        check("langauge", Some("language"));
        check("CODE", Some("code"));
        check("file", Some("files"));
        check("zebra", None);
        check("nope", None);
        check("", None);
        check(&"x".repeat(1000), None);
    }
}
