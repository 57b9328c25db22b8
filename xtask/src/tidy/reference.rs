//! Compares the error codes and the command line's flags in `docs/reference.md` with those of the code, in both
//! directions.

use super::{Finding, text_of};
use crate::workspace::TextFile;
use std::collections::BTreeSet;

const REFERENCE: &str = "docs/reference.md";
const ERRORS: &str = "crates/ringfence-types/src/error.rs";
const RULE: &str = "reference";
/// Directory of the `--help` texts of the golden tests.
const GOLDEN: &str = "crates/ringfence/tests/golden/";
/// Heading of the table of error codes.
const ERRORS_HEADING: &str = "error codes";
/// Flags of other programs in the reference.
const OTHERS_FLAGS: [&str; 3] = ["--bless", "--release", "--security-opt"];

/// Compares the reference with codes and flags.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(reference) = text_of(files, REFERENCE) else {
        return vec![Finding::new(REFERENCE, 1, RULE, "there is no such document")];
    };
    let mut findings = Vec::new();
    let codes = text_of(files, ERRORS).map(error_codes).unwrap_or_default();
    findings.extend(compare(
        "error code",
        ERRORS,
        &codes,
        &documented_codes(reference),
    ));
    let helps = files
        .iter()
        .filter(|file| file.path.starts_with(GOLDEN) && file.path.contains("help"));
    let flags: BTreeSet<String> = helps.flat_map(|file| flags(&file.text)).collect();
    let documented: BTreeSet<String> = flags_of_reference(reference);
    findings.extend(compare("flag", GOLDEN, &flags, &documented));
    findings
}

fn compare(kind: &str, source: &str, real: &BTreeSet<String>, documented: &BTreeSet<String>) -> Vec<Finding> {
    if real.is_empty() {
        return vec![Finding::new(
            source,
            1,
            RULE,
            format!("no {kind} was found here to compare the reference with"),
        )];
    }
    let missing = real
        .difference(documented)
        .map(|name| format!("the {kind} `{name}` is not in {REFERENCE}"));
    let invented = documented
        .difference(real)
        .map(|name| format!("the {kind} `{name}` is documented and does not exist"));
    let missing = missing.map(|what| Finding::new(source, 1, RULE, what));
    missing
        .chain(invented.map(|what| Finding::new(REFERENCE, 1, RULE, what)))
        .collect()
}

/// Reads the codes of `pub enum ErrorCode { Busy = "busy", ... }`: every second part between quotes.
fn error_codes(source: &str) -> BTreeSet<String> {
    let list = source.split_once("pub enum ErrorCode {");
    let list = list.and_then(|(_, list)| list.split_once('}'));
    let parts = list.into_iter().flat_map(|(list, _)| list.split('"'));
    parts.skip(1).step_by(2).map(str::to_owned).collect()
}

/// Reads the first cells of the table below the heading.
fn documented_codes(reference: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut codes = BTreeSet::new();
    for line in reference.lines() {
        if line.starts_with('#') {
            inside = line.to_lowercase().contains(ERRORS_HEADING);
        }
        if let Some(code) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once('`'))
            .filter(|_| inside)
        {
            codes.insert(code.0.to_owned());
        }
    }
    codes
}

/// Reads the long flags that a help text defines: those at the start of a line or after a short form there.
fn flags(help: &str) -> BTreeSet<String> {
    let lines = help
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'));
    lines
        .filter_map(|line| line.split_once("--"))
        .filter_map(|(_, rest)| flag(rest))
        .collect()
}

fn flags_of_reference(reference: &str) -> BTreeSet<String> {
    let all = reference
        .match_indices("--")
        .filter(|(at, _)| !reference[..*at].ends_with(['-', '|']));
    let named = all.filter_map(|(at, _)| flag(&reference[at + 2..]));
    named
        .filter(|flag| !OTHERS_FLAGS.contains(&flag.as_str()))
        .collect()
}

fn flag(rest: &str) -> Option<String> {
    let name: String = rest
        .chars()
        .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
        .collect();
    name.starts_with(|c: char| c.is_ascii_lowercase())
        .then(|| format!("--{}", name.trim_end_matches('-')))
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    const CODE: &str = "pub enum ErrorCode {\n    Busy = \"busy\",\n}\n";
    const HELP: &str = "Options:\n  -l, --language <L>  not --this\n      --json\n";
    const BOOK: &str = "# Reference\n`--language`, `--json`\n|---|---|\n## Error codes\n| `busy` | full |\n## Else\n| `x` | y |\n";

    fn findings(reference: &str, code: &str, help: &str) -> Vec<String> {
        let files = [
            file(REFERENCE, reference),
            file(ERRORS, code),
            file(&format!("{GOLDEN}help-run.txt"), help),
        ];
        check(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn complete_reference_has_no_findings() {
        assert_eq!(findings(BOOK, CODE, HELP), [""; 0]);
    }

    #[test]
    fn undocumented_and_nonexistent_error_codes_are_found() {
        assert_eq!(findings(&BOOK.replace("`busy`", "`tired`"), CODE, HELP).len(), 2);
    }

    #[test]
    fn undocumented_and_nonexistent_flags_are_found() {
        assert_eq!(findings(&BOOK.replace("--json", "--xml"), CODE, HELP).len(), 2);
        assert_eq!(findings(BOOK, CODE, &format!("{HELP}  --fast\n")).len(), 1);
    }

    #[test]
    fn missing_reference_codes_and_flags_are_found() {
        assert_eq!(findings("# Reference\n", "", "").len(), 2);
        assert_eq!(check(&[]).len(), 1);
    }
}
