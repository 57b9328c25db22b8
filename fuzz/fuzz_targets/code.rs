//! The question of all targets for code, and the assertions about every answer.

use ringfence_check::{Answer, CodeAnswer, CodeQuestion, Question, answer, profile};
use ringfence_types::{ISSUES_MAX, Language, Profile, Rules, Verdict};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Inputs up to this size are answered within [`TIME_MAX`].
const BYTES_MAX: usize = 64 << 10;
const TIME_MAX: Duration = Duration::from_secs(2);

/// Checks one input. Its first byte selects the profile and automatic fixes; the rest is the code.
pub fn check(language: Language, bytes: &[u8]) {
    let Some((choice, code)) = bytes.split_first() else {
        return;
    };
    let profile = Profile::ALL[usize::from(choice >> 1) % Profile::ALL.len()];
    let request = CodeQuestion {
        language,
        rules: Rules {
            profile,
            imports: profile::modules(profile),
        },
        auto_fix: choice & 1 == 1,
        is_fragment: false,
        has_workspace: false,
        python: None,
        known_imports: BTreeMap::from([("np".to_owned(), "import numpy as np".to_owned())]),
        local_modules: BTreeSet::from(["helpers".to_owned()]),
    };
    let question = Question::Code(request);
    let Some(first) = checked_answer(&question, code) else {
        return;
    };
    let Some(fixed) = &first.validation.fixed_code else {
        assert!(first.patches.is_empty() && first.validation.verdict != Verdict::Fixed);
        return;
    };
    assert!(!first.patches.is_empty() && choice & 1 == 1);
    let second = checked_answer(&question, fixed.as_bytes()).expect("the fixed code is text");
    assert!(second.validation.fixed_code.is_none(), "{fixed:?} is fixed again");
    assert!(
        second.validation.valid || !first.validation.valid,
        "a fix has made the code worse: {fixed:?}"
    );
}

/// Returns the answer, after checking that it is in time and consistent; `None` if the code is not text.
fn checked_answer(question: &Question, code: &[u8]) -> Option<CodeAnswer> {
    let begun = Instant::now();
    let answer = answer(question, code);
    let took = begun.elapsed();
    assert!(
        code.len() > BYTES_MAX || took < TIME_MAX,
        "{took:?} for {} bytes",
        code.len()
    );
    let Answer::Code(answer) = answer else {
        let is_refused = matches!(answer, Answer::Refused { .. });
        assert!(is_refused && std::str::from_utf8(code).is_err(), "{answer:?}");
        return None;
    };
    let validation = &answer.validation;
    assert_eq!(validation.valid, validation.verdict != Verdict::Reject);
    // Of many similar issues, some are only counted.
    let total = validation.issues_total as usize;
    assert!(validation.issues.len() <= ISSUES_MAX.min(total) && validation.issues.is_empty() == (total == 0));
    assert_eq!(validation.fixes_applied.len(), answer.patches.len());
    for issue in &validation.issues {
        let (start, end) = ((issue.line, issue.column), (issue.end_line, issue.end_column));
        assert!(issue.line >= 1 && issue.column >= 1 && start <= end, "{issue:?}");
    }
    Some(*answer)
}
