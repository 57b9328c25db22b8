//! The ratchet: the number of violations allowed for each crate or document and each fence. More are an error, and
//! fewer are one until the number is lowered; `tidy --bless` only lowers numbers.

use super::Finding;
use std::collections::BTreeMap;

/// File of the numbers.
pub const FILE: &str = "xtask/ratchet.json";

/// Numbers by owner (a crate, or a document's path), then by fence.
pub type Counts = BTreeMap<String, BTreeMap<String, usize>>;

/// Parses the file's content. A missing number is zero.
pub fn read(text: &str) -> Result<Counts, String> {
    serde_json::from_str(text).map_err(|error| format!("{FILE}: {error}"))
}

/// Returns the new content of the file: each number lowered to the remaining violations, and none raised.
pub fn lowered(found: &[Finding], allowed: &Counts) -> String {
    let mut counts = allowed.clone();
    let now = count(found);
    for (owner, fences) in &mut counts {
        for (fence, number) in fences.iter_mut() {
            *number = (*number).min(of(&now, owner, fence));
        }
        fences.retain(|_, number| *number > 0);
    }
    counts.retain(|_, fences| !fences.is_empty());
    let text = serde_json::to_string_pretty(&counts).unwrap_or_default();
    text + "\n"
}

/// Finds every number that differs from the file's. For a higher one, each violation is a finding, too.
pub fn check(found: &[Finding], allowed: &Counts) -> Vec<Finding> {
    let now = count(found);
    let keys = |counts: &Counts| -> Vec<(String, String)> {
        let pairs = counts
            .iter()
            .flat_map(|(owner, fences)| fences.keys().map(|fence| (owner.clone(), fence.clone())));
        pairs.collect()
    };
    let mut keys = [keys(&now), keys(allowed)].concat();
    keys.sort();
    keys.dedup();
    let mut findings = Vec::new();
    for (owner, fence) in keys {
        let (counted, most) = (of(&now, &owner, &fence), of(allowed, &owner, &fence));
        if counted < most {
            let what = format!(
                "{owner}: {fence}: lower the ratchet from {most} to {counted}: `cargo xtask tidy --bless`"
            );
            findings.push(Finding::new(FILE, 1, "ratchet", what));
        } else if counted > most {
            let what = format!(
                "{owner}: {fence}: {counted}, at most {most} are allowed; each is listed under its file"
            );
            findings.push(Finding::new(FILE, 1, "ratchet", what));
            let of_it = |one: &&Finding| one.rule == fence && owner_of(&one.path) == owner;
            findings.extend(found.iter().filter(of_it).cloned());
        }
    }
    findings
}

/// Counts violations by owner and fence.
pub fn count(found: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in found {
        let fences = counts.entry(owner_of(&finding.path).to_owned()).or_default();
        *fences.entry(finding.rule.to_owned()).or_default() += 1;
    }
    counts
}

/// Returns the number of an owner and a fence.
pub fn of(counts: &Counts, owner: &str, fence: &str) -> usize {
    counts
        .get(owner)
        .and_then(|fences| fences.get(fence))
        .copied()
        .unwrap_or(0)
}

/// Returns the owner of a path: the crate of a file, or the document's path.
fn owner_of(path: &str) -> &str {
    path.strip_prefix("crates/")
        .and_then(|inside| inside.split('/').next())
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: usize) -> Vec<Finding> {
        (1..=count)
            .map(|line| Finding::new("crates/x/src/a.rs", line, "words", "w"))
            .collect()
    }

    fn allowed(count: usize) -> Counts {
        read(&format!("{{\"x\": {{\"words\": {count}}}}}")).unwrap()
    }

    #[test]
    fn exactly_the_allowed_count_is_not_a_finding() {
        assert_eq!(check(&found(2), &allowed(2)), []);
        assert_eq!(check(&found(0), &Counts::new()), []);
    }

    #[test]
    fn violations_over_the_count_are_listed_also_without_an_entry() {
        assert_eq!(check(&found(3), &allowed(2)).len(), 1 + 3);
        assert_eq!(check(&found(1), &Counts::new()).len(), 1 + 1);
    }

    #[test]
    fn fewer_violations_ask_for_a_lower_count() {
        let findings = check(&found(1), &allowed(2));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("from 2 to 1"), "{}", findings[0]);
    }

    #[test]
    fn blessing_lowers_and_never_raises() {
        assert_eq!(read(&lowered(&found(1), &allowed(2))).unwrap(), allowed(1));
        assert_eq!(read(&lowered(&found(3), &allowed(2))).unwrap(), allowed(2));
        assert_eq!(lowered(&found(0), &allowed(2)), "{}\n");
        assert_eq!(lowered(&found(1), &Counts::new()), "{}\n");
    }

    #[test]
    fn owner_of_a_path_is_its_crate_or_the_document() {
        assert_eq!(owner_of("docs/guide.md"), "docs/guide.md");
        assert_eq!(owner_of("crates/ringfence-jail/src/a.rs"), "ringfence-jail");
    }
}
