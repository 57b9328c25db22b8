//! What a text in the code gives away: places of secrets, format fields that read attributes, names in letters that
//! only look like others.

use crate::credentials;

/// Longer texts are no paths.
const PATH_BYTES_MAX: usize = 4096;

/// The place of secrets that a path in the text leads to; each begins at a separator or at the beginning, and ends at
/// one or at the end.
pub(super) fn secret_place(text: &str) -> Option<&'static str> {
    // Each of them has one of these, and most texts have none.
    let may_be = |byte: u8| matches!(byte, b'.' | b'_' | b'/');
    if text.len() > PATH_BYTES_MAX || !text.bytes().any(may_be) || text.contains('\n') {
        return None;
    }
    let ends = |at: usize| {
        matches!(
            text.as_bytes().get(at),
            None | Some(b'/' | b'\\' | b'"' | b'\'' | b' ')
        )
    };
    let begins = |at: usize| at == 0 || ends(at - 1) || text.as_bytes().get(at - 1) == Some(&b'~');
    credentials::places().find(|place| {
        let mut found = text.match_indices(place);
        found.any(|(at, _)| begins(at) && (ends(at + place.len()) || text[at..].starts_with("id_")))
    })
}

/// The attribute with underscores that a field of a format string reads: `__class__` of `{0.__class__}`.
pub(super) fn format_attribute(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        rest = rest.get(at + 1..)?;
        let end = rest.find(['}', '{', '!', ':', ' ', '\n']).unwrap_or(rest.len());
        let field = rest.get(..end).unwrap_or_default();
        let steps = field.match_indices(['.', '[']);
        for (step, _) in steps {
            let name = field.get(step + 1..).unwrap_or_default();
            let name = name.split(['.', '[', ']']).next().unwrap_or_default();
            if name.starts_with("__")
                || name.starts_with("f_")
                || name.starts_with("gi_")
                || name.starts_with("tb_")
            {
                return Some(name);
            }
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    None
}

/// A name whose letters a reader cannot tell apart: `lIlIIl1l`.
pub(super) fn is_unreadable(name: &str) -> bool {
    let letters = |byte: u8| matches!(byte, b'l' | b'I' | b'1' | b'O' | b'0' | b'o' | b'_');
    let kinds = |of: &[u8]| {
        of.iter()
            .filter(|letter| name.as_bytes().contains(letter))
            .count()
    };
    name.len() >= 6
        && name.bytes().all(letters)
        && (kinds(b"lI1") >= 2 || kinds(b"O0o") >= 2)
        && name.bytes().filter(|byte| *byte != b'_').count() >= 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_secrets_are_known_in_whole_parts_of_a_path() {
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
    fn no_place_is_passed_over_at_first_sight() {
        for place in credentials::places() {
            assert!(secret_place(place).is_some(), "{place}");
        }
    }

    #[test]
    fn fields_that_read_attributes_with_underscores_are_found() {
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
    fn unreadable_names_are_runs_of_letters_that_look_alike() {
        assert!(is_unreadable("lIlIIl1l") && is_unreadable("O0O0O0O0") && is_unreadable("_lIlIlIl_"));
        assert!(
            !is_unreadable("lll")
                && !is_unreadable("loo_lol")
                && !is_unreadable("IIIIIIII")
                && !is_unreadable("ooooooo")
        );
    }
}
