//! Hints are written for callers that have every tool. A clause that names a tool which this caller lacks is removed.

use super::{Offer, tools};
use ringfence_types::{ExecutionResult, RequestError, Validation};

pub(super) fn of_error(mut error: RequestError, offer: &Offer) -> RequestError {
    in_error(&mut error).for_each(|hint| fit(hint, offer));
    error
}

pub(super) fn in_error(error: &mut RequestError) -> impl Iterator<Item = &mut String> {
    let found = error.validation.as_deref_mut();
    [&mut error.hint].into_iter().chain(in_validation(found))
}

fn in_validation(found: Option<&mut Validation>) -> impl Iterator<Item = &mut String> {
    let issues = found.into_iter().flat_map(|found| &mut found.issues);
    issues.map(|issue| &mut issue.hint)
}

pub(super) fn of_result(result: &mut ExecutionResult, offer: &Offer) {
    let denials = result.denials.iter_mut().chain(&mut result.security_events);
    let hints = denials.map(|denial| &mut denial.hint);
    let all = hints.chain(in_validation(result.validation.as_mut()));
    all.for_each(|hint| fit(hint, offer));
}

fn fit(hint: &mut String, offer: &Offer) {
    let Some(tool) = tools::missing_in(hint, offer) else {
        return;
    };
    let mut kept: Vec<&str> = clauses(hint);
    kept.retain(|clause| tools::missing_in(clause, offer).is_none());
    let left = kept.join("; ");
    let left = left.strip_prefix("or ").unwrap_or(&left).trim_end_matches('.');
    *hint = match left.char_indices().next() {
        None => format!("`{tool}` is for this, and not offered to you; ask the operator."),
        Some((_, first)) => {
            let rest = &left[first.len_utf8()..];
            format!("{}{rest}.", first.to_uppercase())
        }
    };
}

/// Splits a hint at these marks, outside quoted code.
fn clauses(hint: &str) -> Vec<&str> {
    const MARKS: [&str; 3] = ["; ", ". ", ", or "];
    let (mut clauses, mut begin, mut is_code) = (Vec::new(), 0, false);
    for (at, letter) in hint.char_indices() {
        is_code ^= letter == '`';
        let mark = MARKS.iter().find(|mark| hint[at..].starts_with(**mark));
        if let (false, Some(mark)) = (is_code || at < begin, mark) {
            clauses.push(&hint[begin..at]);
            begin = at + mark.len();
        }
    }
    clauses.push(&hint[begin..]);
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mcp::tests::offer, settings::Toolset};

    #[test]
    fn hint_names_only_tools_of_the_caller() {
        let check = |hint: &str, expect: &str| {
            let execute = Offer {
                toolsets: vec![Toolset::Execute],
                ..offer()
            };
            let (mut fitted, mut whole) = (hint.to_owned(), hint.to_owned());
            fit(&mut fitted, &execute);
            assert_eq!(fitted, expect);
            fit(&mut whole, &offer());
            assert_eq!(whole, hint);
        };
        let next = "next: execute_code {timeout_seconds: 120}, if the program ends by itself";
        check(next, next);
        check(
            "Call `request_egress {domain: \"a.test:81\"}`; or have the operator add `a.test:81` to `web.allow`.",
            "Have the operator add `a.test:81` to `web.allow`.",
        );
        check(
            "Call `request_egress {domain: \"a.test\"}`, then add it to `allowed_domains`.",
            "`request_egress` is for this, and not offered to you; ask the operator.",
        );
        check(
            "Give max_cpu_cores to `create_session`, or run the server where it has a cgroup.",
            "Run the server where it has a cgroup.",
        );
    }
}
