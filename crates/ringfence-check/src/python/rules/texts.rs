//! Checks of strings, names and characters: paths of secrets, format fields that read attributes, names with confusable
//! letters, characters that change the direction of text, a coding line.

use super::{Walk, lookalikes::reads_as};
use crate::{
    credentials,
    lists::LISTS,
    python::weight::Weight,
    registry::python::{BIDIRECTIONAL_TEXT, CREDENTIAL_PATH, ENCODING, FORMAT_ATTRIBUTE, OBFUSCATED_NAME},
    rule::Finding,
};
use regex::Regex;
use ringfence_types::{Rules, Severity};
use ruff_text_size::TextRange;
use std::sync::LazyLock;

const PATH_BYTES_MAX: usize = 4096;
/// Maximum number of names with confusable letters reported for one program.
const UNREADABLE_MAX: usize = 20;

impl<'a> Walk<'a, '_, '_> {
    /// Checks that a name is what it looks like.
    pub(super) fn identifier(&mut self, name: &'a str, range: TextRange) {
        let is_plain = |text: &str| !text.contains(['.', '\\']);
        let written = self.written(range);
        let (weight, what) = if name.is_ascii() && !written.is_ascii() && is_plain(written) {
            let what = format!("`{written}` is `{name}` to the interpreter");
            return self.report(&OBFUSCATED_NAME, Weight::Grave, range, what);
        } else if let Some(plain) = reads_as(name) {
            let what = format!("`{name}` has letters of another alphabet and reads as `{plain}`");
            (Weight::Grave, what)
        } else if is_unreadable(name) {
            let what = format!("the letters of `{name}` cannot be told apart");
            (Weight::Warned, what)
        } else {
            return;
        };
        if self.unreadable.len() < UNREADABLE_MAX && self.unreadable.insert(name) {
            self.report(&OBFUSCATED_NAME, weight, range, what);
        }
    }

    pub(super) fn secret_place(&mut self, text: &str, range: TextRange) {
        if let Some(place) = secret_place(text) {
            let what = format!("`{place}` is a place where secrets are kept");
            self.report(&CREDENTIAL_PATH, Weight::Warned, range, what);
        }
    }

    pub(super) fn check_format_string(&mut self, text: &str, range: TextRange) {
        if let Some(name) = format_attribute(text) {
            let what = format!("a format string reads the attribute `{name}`");
            self.report(&FORMAT_ATTRIBUTE, Weight::Grave, range, what);
        }
    }
}

/// Returns the place of secrets to which a path in the text leads. A place begins at a separator or at the beginning,
/// and ends at a separator or at the end; key names such as `id_rsa` may continue.
fn secret_place(text: &str) -> Option<&'static str> {
    // Every place has one of these bytes, and most texts have none.
    let may_be = |byte: u8| matches!(byte, b'.' | b'_' | b'/');
    if text.len() > PATH_BYTES_MAX || !text.bytes().any(may_be) || text.contains('\n') {
        return None;
    }
    let byte = |at: usize| text.as_bytes().get(at);
    let ends = |at: usize| matches!(byte(at), None | Some(b'/' | b'\\' | b'"' | b'\'' | b' '));
    let begins = |at: usize| at == 0 || ends(at - 1) || byte(at - 1) == Some(&b'~');
    credentials::places().find(|place| {
        let mut found = text.match_indices(place);
        found.any(|(at, _)| begins(at) && (ends(at + place.len()) || text[at..].starts_with("id_")))
    })
}

/// Returns the internal attribute that a field of a format string reads: `__class__` of `{0.__class__}`.
fn format_attribute(text: &str) -> Option<&str> {
    static FIELD: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\{[^{}!: \n.\[]*(?:[.\[\]][^{}!: \n.\[\]]*)*?[.\[\]]((?:__|f_|gi_|tb_)[^{}!: \n.\[\]]*)")
            .ok()
    });
    // Compiling the regular expression takes longer than the check of most programs.
    if !text.contains('{') || !text.contains('_') {
        return None;
    }
    let found = FIELD.as_ref()?.captures(text)?;
    found.get(1).map(|name| name.as_str())
}

/// True for a name whose letters a reader cannot distinguish: `lIlIIl1l`.
fn is_unreadable(name: &str) -> bool {
    let has = |letter: &&u8| name.as_bytes().contains(letter);
    let kinds = |of: &[u8]| of.iter().filter(has).count();
    name.len() >= 6
        && name.bytes().all(|byte| b"lI1O0o_".contains(&byte))
        && (kinds(b"lI1") >= 2 || kinds(b"O0o") >= 2)
        && name.bytes().filter(|byte| *byte != b'_').count() >= 6
}

/// Finds characters that embed, override or isolate a direction, anywhere in the code: the text is displayed in a
/// different order than it is parsed (CVE-2021-42574).
pub(crate) fn check_direction(code: &str, rules: &Rules) -> Vec<Finding> {
    let Some(severity) = Weight::Grave.under(rules.profile).filter(|_| !code.is_ascii()) else {
        return Vec::new();
    };
    let turns = |letter: char| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let found = code.match_indices(turns).map(|(at, letter)| {
        let number = letter.chars().next().map_or(0, u32::from);
        let what = format!("the invisible character U+{number:04X} changes the order in which text is shown");
        Finding::new(&BIDIRECTIONAL_TEXT, at..at + letter.len(), what).with_severity(severity)
    });
    found.collect()
}

/// Finds a coding line in the first two lines that changes the meaning of the code (PEP 263). The interpreter decodes a
/// file by it before it parses the file, so with `utf-7` or `unicode_escape` a comment becomes code.
pub(crate) fn check_encoding(code: &str, rules: &Rules) -> Option<Finding> {
    /// A first line without code, if any, and the comment with the name of the encoding.
    static CODING: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let blank = r"[\x{feff} \t\x0c]*";
        let before = format!(r"(?:{blank}(?:#[^\r\n]*)?(?:\r\n?|\n))??");
        let comment = r"#[^\r\n]*?coding[:=][ \t]*([-_.A-Za-z0-9]+)[^\r\n]*";
        Regex::new(&format!("^{before}{blank}({comment})")).ok()
    });
    if !code.contains("coding") {
        return None;
    }
    let found = CODING.as_ref()?.captures(code)?;
    let (line, name) = (found.get(1)?, &found[2]);
    let normal = name.to_ascii_lowercase().replace('_', "-");
    let severity = match rules.restrict() {
        true => Severity::Error,
        false => Weight::Grave.under(rules.profile)?,
    };
    let what = format!("the code says that it is written in `{name}`");
    let finding = Finding::new(&ENCODING, line.range(), what).with_severity(severity);
    Some(finding).filter(|_| !LISTS.plain_encodings.contains(&normal.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_places_match_whole_parts_of_a_path() {
        let check = |text: &str, found: bool| assert_eq!(secret_place(text).is_some(), found, "{text}");
        check("~/.ssh/config", true);
        check("/root/.ssh", true); // tidy: machine path, because it is where secrets lie
        check("id_rsa.pub", true);
        check("/etc/shadow", true);
        check(".env", true);
        check("/app/.env", true);
        check("cat /etc/shadow", true);
        check("/proc/self/environ", true);
        check("venv/.environment", false);
        check("valid_rsa", false);
        check("my.env.txt", false);
        check("/etc/shadows", false);
        check("grid_rsa", false);
        check("data.csv", false);
    }

    #[test]
    fn quick_filter_lets_every_secret_place_pass() {
        for place in credentials::places() {
            assert!(secret_place(place).is_some(), "{place}");
        }
    }

    #[test]
    fn format_fields_that_read_internal_attributes_are_found() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(format_attribute(text), expect, "{text}");
        check("{0.__class__}", Some("__class__"));
        check("a {{ {x[0].__init__.y} }}", Some("__init__"));
        check("{.__class__}", Some("__class__"));
        check("{0[__globals__]}", Some("__globals__"));
        check("{0.gi_frame}", Some("gi_frame"));
        check("{0.name:>{width}}", None);
        check("{x.y.z!r}", None);
        check("{__name__}", None);
        check("{", None);
        check("{'a': b.__c__}", None);
    }

    #[test]
    fn runs_of_similar_letters_are_unreadable_names() {
        assert!(is_unreadable("lIlIIl1l") && is_unreadable("O0O0O0O0") && is_unreadable("_lIlIlIl_"));
        assert!(
            !is_unreadable("lll")
                && !is_unreadable("loo_lol")
                && !is_unreadable("IIIIIIII")
                && !is_unreadable("ooooooo")
        );
    }

    #[test]
    fn bidirectional_characters_are_found_anywhere() {
        let count = |code: &str| check_direction(code, &Rules::unrestricted()).len();
        assert_eq!(count("x = '\u{202e}abc\u{202c}'"), 2);
        assert_eq!(count("# \u{2066}comment\u{2069}\n"), 2);
        assert_eq!(count("x = 'שלום'  # עברית \u{200f}"), 0);
    }

    #[test]
    fn coding_line_that_changes_the_code_is_found() {
        let check = |code: &str, found: bool| {
            assert_eq!(
                check_encoding(code, &Rules::unrestricted()).is_some(),
                found,
                "{code}"
            );
        };
        check("# coding: utf-7\n", true);
        check("#!/usr/bin/python\n# -*- coding: unicode_escape -*-\n", true);
        check("# vim: set fileencoding=rot13 :\n", true);
        check("# coding: utf-8\n# coding: utf-7\n", false);
        check("# -*- coding: UTF_8 -*-\n", false);
        check("# coding: latin-1\n", false);
        check("x = 1\n# coding: utf-7\n", false);
        check("#\r\n# coding: utf-7\n", true);
        for before in ["\n\n", "#\r\n#\r\n", "#\r#\r", "\n\n\n"] {
            check(&format!("{before}# coding: utf-7\n"), false);
        }
        check("# my coding style\n", false);
        check("\n#coding=gbk\n", true);
    }
}
