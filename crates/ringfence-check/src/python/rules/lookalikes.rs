//! Confusable letters: Cyrillic and Greek letters in place of Latin ones (Unicode TR 39).

use crate::{lists::LISTS, python::profile::is_standard};

/// Letters that look the same.
const SAME: [&str; 2] = [
    "аеорсухѕіјһԁԛԝӏАВЕКМНОРСТХЅІЈҮԌԚԜοΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxsijhdqwlABEKMHOPCTXSIJYGQWoABEZHIKMNOPTYX",
];

/// Letters of formulas, which are misleading only in a well-known word.
const SIMILAR: [&str; 2] = ["αγικνρτυχ", "ayikvptux"];

/// Returns the name as it reads, if it reads as a different one.
pub(super) fn reads_as(name: &str) -> Option<String> {
    if name.is_ascii() {
        return None;
    }
    let plain: String = name.chars().map(same).collect();
    let is_latin = |letter: char| letter.is_ascii_alphabetic() || ('\u{c0}'..='\u{24f}').contains(&letter);
    let has_latin = name.chars().any(is_latin);
    let misleads = |word: &str| {
        let confusable = word.chars().filter(|letter| same(*letter) != *letter).count();
        let is_mixed = word.chars().any(is_latin);
        let is_whole = confusable == word.chars().count() && (has_latin || confusable > 1);
        confusable > 0 && (is_mixed || is_whole)
    };
    let mut words = name.split(|letter: char| letter == '_' || letter.is_numeric());
    if (has_latin || plain.is_ascii()) && words.any(misleads) {
        return Some(plain);
    }
    let similar = |letter: char| look_up(SIMILAR, letter).unwrap_or(letter);
    let known: String = plain.chars().map(similar).collect();
    let misleads = LISTS.builtins.contains(known.as_str()) || is_standard(&known);
    misleads.then_some(known)
}

fn same(letter: char) -> char {
    look_up(SAME, letter).unwrap_or(letter)
}

fn look_up([odd, plain]: [&str; 2], letter: char) -> Option<char> {
    plain.chars().nth(odd.chars().position(|one| one == letter)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misleading_names_are_detected() {
        for (name, plain) in [
            ("рrint", "print"),
            ("оs", "os"),
            ("оѕ", "os"),
            ("оs_path", "os_path"),
            ("pаssword", "password"),
            ("сору", "copy"),
            ("Αdmin", "Admin"),
            ("ΟΚ", "OK"),
            ("max_с", "max_c"),
            ("ρrint", "print"),
        ] {
            assert_eq!(reads_as(name).as_deref(), Some(plain), "{name}");
        }
        for name in [
            "имя",
            "数量",
            "größe",
            "naïve",
            "β",
            "Δx",
            "σ2",
            "μ_0",
            "sigma_β",
            "ρ_max",
            "νe",
            "α1",
            "данные_df",
            "х",
            "список",
            "λ",
            "θ_x",
            "Ω",
            "π2",
            "été",
            "변수",
            "אבג",
        ] {
            assert_eq!(reads_as(name), None, "{name}");
        }
    }
}
