//! What `docs/reference.md` says is what the code has: error codes and the command line's flags, both ways.

use super::{Finding, text_of};
use crate::workspace::TextFile;
use std::collections::BTreeSet;

const REFERENCE: &str = "docs/reference.md";
const ERRORS: &str = "crates/ringfence-types/src/error.rs";
const RULE: &str = "reference";
/// The `--help` texts as the golden tests keep them.
const GOLDEN: &str = "crates/ringfence/tests/golden/";
/// The heading of the table of error codes.
const ERRORS_HEADING: &str = "error codes";
/// Flags in the reference that are other programs'.
const OTHERS_FLAGS: [&str; 3] = ["--bless", "--release", "--security-opt"];

/// Holds reference, codes and flags together.
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
            format!("no {kind} was found here, so the reference cannot be held to it"),
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

/// `pub enum ErrorCode { Busy = "busy", ... }`: every second part between quotes.
fn error_codes(source: &str) -> BTreeSet<String> {
    let list = source.split_once("pub enum ErrorCode {");
    let list = list.and_then(|(_, list)| list.split_once('}'));
    let parts = list.into_iter().flat_map(|(list, _)| list.split('"'));
    parts.skip(1).step_by(2).map(str::to_owned).collect()
}

/// First cells of the table below the heading.
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

/// Long flags that a help text defines: those that begin a line, after their short form.
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
    fn a_reference_that_says_what_is_has_no_findings() {
        assert_eq!(findings(BOOK, CODE, HELP), [""; 0]);
    }

    #[test]
    fn a_code_must_be_documented_and_a_documented_code_must_exist() {
        assert_eq!(findings(&BOOK.replace("`busy`", "`tired`"), CODE, HELP).len(), 2);
    }

    #[test]
    fn a_flag_must_be_documented_and_a_documented_flag_must_exist() {
        assert_eq!(findings(&BOOK.replace("--json", "--xml"), CODE, HELP).len(), 2);
        assert_eq!(findings(BOOK, CODE, &format!("{HELP}  --fast\n")).len(), 1);
    }

    #[test]
    fn nothing_to_compare_with_is_a_finding_and_not_a_pass() {
        assert_eq!(findings("# Reference\n", "", "").len(), 2);
        assert_eq!(check(&[]).len(), 1);
    }
}
