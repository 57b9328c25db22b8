//! The coding line. The interpreter decodes a file by it before it reads it, so with `utf-7` or `unicode_escape` a
//! comment becomes code.

use super::{ENCODING, Weight};
use crate::rule::Finding;
use ringfence_types::{Rules, Severity};

/// Under these the text means what it says.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "utf-8", "utf8", "utf-8-sig", "u8", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "iso8859-1",
    "iso-latin-1",
];

/// A coding line of the first two lines that means another text (PEP 263).
pub(crate) fn check(code: &str, rules: &Rules) -> Option<Finding> {
    let mut at = 0;
    for line in code.split_inclusive(['\n', '\r']).take(3) {
        let content = line
            .trim_start_matches(['\u{feff}', ' ', '\t', '\x0c'])
            .trim_end();
        if let Some(comment) = content.strip_prefix('#') {
            if let Some(name) = coding(comment) {
                let normal = name.to_ascii_lowercase().replace('_', "-");
                if PLAIN.contains(&normal.as_str()) {
                    return None;
                }
                let severity = if rules.restrict() {
                    Severity::Error
                } else {
                    Weight::GRAVE.under(rules.profile)?
                };
                return Some(Finding {
                    severity,
                    ..Finding::new(
                        &ENCODING,
                        at..at + line.trim_end().len(),
                        format!("the code says that it is written in `{name}`"),
                    )
                });
            }
        } else if !content.is_empty() {
            return None;
        }
        at += line.len();
    }
    None
}

/// `coding: name`, `coding=name`.
fn coding(comment: &str) -> Option<&str> {
    let mut rest = comment;
    while let Some(at) = rest.find("coding") {
        rest = rest.get(at + "coding".len()..)?;
        let Some(after) = rest.strip_prefix([':', '=']) else {
            continue;
        };
        let name = after.trim_start_matches([' ', '\t']);
        let end = name
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.')))
            .unwrap_or(name.len());
        if end > 0 {
            return name.get(..end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coding_line_that_means_another_text_is_found() {
        let check = |code: &str, found: bool| {
            assert_eq!(check(code, &Rules::unrestricted()).is_some(), found, "{code}");
        };
        check("# coding: utf-7\n", true);
        check("#!/usr/bin/python\n# -*- coding: unicode_escape -*-\n", true);
        check("# vim: set fileencoding=rot13 :\n", true);
        check("# coding: utf-8\n# coding: utf-7\n", false);
        check("# -*- coding: UTF_8 -*-\n", false);
        check("# coding: latin-1\n", false);
        check("x = 1\n# coding: utf-7\n", false);
        check("\n\n\n# coding: utf-7\n", false);
        check("# my coding style\n", false);
        check("\n#coding=gbk\n", true);
    }
}
