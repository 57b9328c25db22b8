//! Compares claims with tests: every claim of `SECURITY.md` names its tests, and each of these tests names the claim.
//!
//! In `SECURITY.md` a claim is `**[FS-1]** promise`, followed, before the next claim, by a line
//! ``tests: `name`, `name` ``. At a test it is a comment `claim: [FS-1]` (or `claim: [FS-1] [NET-2]`); the test is the
//! next function below. In the catalogue of attacks it is the second string of a row: `attack("C01", "FS-1", ...`.

use super::{Finding, text_of};
use crate::workspace::TextFile;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "SECURITY.md";
const MARK: &str = "claim: [";
const RULE: &str = "claims";
/// Maximum lines from a comment to its test.
const LINES_BELOW: usize = 8;

/// A promise of `SECURITY.md`.
struct Claim {
    id: String,
    line: usize,
    tests: BTreeSet<String>,
}

/// A test that names a claim.
struct ClaimedTest<'a> {
    claim: String,
    test: String,
    path: &'a str,
    line: usize,
}

/// Compares the document with the tests.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(document) = text_of(files, DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 1, RULE, "there is no such document")];
    };
    let (claims, mut findings) = read_claims(document);
    let mut seen: BTreeMap<(String, String), bool> = BTreeMap::new();
    for claim in &claims {
        if claim.tests.is_empty() {
            findings.push(Finding::new(
                DOCUMENT,
                claim.line,
                RULE,
                format!("[{}] names no test", claim.id),
            ));
        }
        seen.extend(
            claim
                .tests
                .iter()
                .map(|test| ((claim.id.clone(), test.clone()), false)),
        );
    }
    for claimed in files
        .iter()
        .filter(|file| may_hold_tests(&file.path))
        .flat_map(claimed_tests)
    {
        match seen.get_mut(&(claimed.claim.clone(), claimed.test.clone())) {
            Some(found) => *found = true,
            None => {
                let what = format!(
                    "`{}` names [{}], but {DOCUMENT} does not name the test there",
                    claimed.test, claimed.claim
                );
                findings.push(Finding::new(claimed.path, claimed.line, RULE, what));
            }
        }
    }
    for ((claim, test), _) in seen.iter().filter(|(_, found)| !**found) {
        let line = claims
            .iter()
            .find(|known| known.id == *claim)
            .map_or(1, |known| known.line);
        let what = format!("[{claim}] names `{test}`, but no test of that name has `{MARK}{claim}]`");
        findings.push(Finding::new(DOCUMENT, line, RULE, what));
    }
    findings
}

fn may_hold_tests(path: &str) -> bool {
    (path.starts_with("crates/") || path.starts_with("tests/"))
        && (path.ends_with(".rs") || path.ends_with(".py"))
}

fn read_claims(document: &str) -> (Vec<Claim>, Vec<Finding>) {
    let mut claims: Vec<Claim> = Vec::new();
    let mut findings = Vec::new();
    for (number, line) in document.lines().enumerate() {
        if let Some(id) = line
            .split_once("**[")
            .and_then(|(_, rest)| rest.split_once("]**"))
            .map(|(id, _)| id)
        {
            if !is_id(id) || claims.iter().any(|claim| claim.id == id) {
                let what = format!("[{id}] is not a new id of the form AREA-1");
                findings.push(Finding::new(DOCUMENT, number + 1, RULE, what));
            }
            claims.push(Claim {
                id: id.to_owned(),
                line: number + 1,
                tests: BTreeSet::new(),
            });
        }
        let names = line
            .trim_start()
            .strip_prefix("tests:")
            .or_else(|| line.trim_start().strip_prefix("test:"));
        if let (Some(names), Some(claim)) = (names, claims.last_mut()) {
            claim
                .tests
                .extend(names.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    (claims, findings)
}

fn is_id(id: &str) -> bool {
    id.split_once('-').is_some_and(|(area, number)| {
        let letters = !area.is_empty() && area.bytes().all(|b| b.is_ascii_uppercase());
        letters && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    })
}

fn claimed_tests(file: &TextFile) -> Vec<ClaimedTest<'_>> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let mut add = |claim: &str, test: &str| {
            let (claim, test) = (claim.to_owned(), test.to_owned());
            found.push(ClaimedTest {
                claim,
                test,
                path: &file.path,
                line: number + 1,
            });
        };
        if let Some((test, claim)) = row(line) {
            add(claim, test);
        } else if let Some((_, ids)) = line.split_once(MARK) {
            let below = lines.iter().skip(number + 1).take(LINES_BELOW);
            let test = below
                .filter(|line| !is_comment(line))
                .find_map(|line| test_name(line))
                .unwrap_or("nothing");
            ids.split(['[', ']'])
                .filter(|id| is_id(id))
                .for_each(|claim| add(claim, test));
        }
    }
    found
}

/// Reads test and claim of a row: `attack("C01", "FS-1", "...` or `fact("C01", "FS-1", "...`.
fn row(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.split_once("(\"")?;
    let mut words = rest.split('"');
    let (test, comma, claim) = (words.next()?, words.next()?, words.next()?);
    let is_row = before.ends_with("attack") || before.ends_with("fact");
    (is_row && comma == ", " && is_id(claim)).then_some((test, claim))
}

fn is_comment(line: &str) -> bool {
    ["//", "#", "@"]
        .iter()
        .any(|mark| line.trim_start().starts_with(mark))
}

/// Returns the name in `fn name(` or `def name(`.
fn test_name(line: &str) -> Option<&str> {
    let (_, rest) = ["fn ", "def "]
        .iter()
        .find_map(|keyword| line.split_once(keyword))?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    fn findings(document: &str, tests: &str) -> Vec<String> {
        let files = [
            file("SECURITY.md", document),
            file("crates/x/tests/all.rs", tests),
        ];
        check(&files).into_iter().map(|finding| finding.what).collect()
    }

    const CLAIM: &str = "- **[FS-1]** Nothing is seen.\n  tests: `nothing_is_seen`\n";
    const TEST: &str = "// claim: [FS-1]\n#[test]\nfn nothing_is_seen() {}\n";

    #[test]
    fn claim_and_test_that_name_each_other_have_no_findings() {
        assert!(findings(CLAIM, TEST).is_empty());
    }

    #[test]
    fn rows_of_the_attack_catalogue_count_as_tests() {
        let row = "    with(fact(\"nothing_is_seen\", \"FS-1\", \"nothing is seen\", \"\nprobe\"), RO),\n";
        assert!(findings(CLAIM, row).is_empty());
        assert_eq!(findings(CLAIM, &row.replace("FS-1", "FS-2")).len(), 2);
    }

    #[test]
    fn claim_without_a_test_is_found() {
        assert_eq!(findings("- **[FS-1]** Nothing is seen.\n", "").len(), 1);
        assert_eq!(findings(CLAIM, "").len(), 1);
    }

    #[test]
    fn test_name_mismatch_is_found_for_claim_and_test() {
        assert_eq!(
            findings(CLAIM, "// claim: [FS-1]\nfn something_else() {}\n").len(),
            2
        );
    }

    #[test]
    fn test_of_an_unknown_claim_is_found() {
        assert_eq!(
            findings(CLAIM, &format!("{TEST}// claim: [NET-9]\nfn other() {{}}\n")).len(),
            1
        );
    }

    #[test]
    fn duplicate_or_malformed_claim_id_is_found() {
        assert!(!findings(&format!("{CLAIM}{CLAIM}"), TEST).is_empty());
        assert!(!findings("- **[fs1]** x\n  test: `a`\n", "").is_empty());
    }

    #[test]
    fn missing_document_is_found() {
        assert_eq!(check(&[]).len(), 1);
    }
}
