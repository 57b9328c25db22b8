//! The golden table: the answer of each number, computed from the compiled filters. A changed verdict is a changed
//! line.

use crate::{
    FULL, FULL_UNCOUNTED, LANDLOCK, LANDLOCK_UNCOUNTED, arguments,
    describe::{Row, Verdict, describe},
    machine::{self, Answer, plain},
};
use ringfence_jail::seccomp::Profile;
use std::{collections::BTreeMap, fs, path::Path};

const NUMBER_MAX: i64 = 600;

fn is(row: &Row, answer: Answer) -> bool {
    match row.verdict {
        Verdict::Allow => answer == Answer::Allow,
        Verdict::Errno(errno) => answer == Answer::Errno(errno),
    }
}

/// Returns the line of an answer to a plain call, with name and reason. An answer that no row gives is an error of the
/// tables.
fn line(number: i64, answer: Answer, rows: &[Row]) -> String {
    let mut rows = rows.iter().filter(|row| row.number == number).peekable();
    if rows.peek().is_none() {
        assert_eq!(answer, Answer::Errno(libc::ENOSYS), "{number} is in no table");
        return format!("{number:<3} {:<24} {answer:<12} in no table", "-");
    }
    let mut agreeing: Vec<&Row> = rows.filter(|row| is(row, answer)).collect();
    agreeing.sort_by_key(|row| !row.when.is_empty());
    let row = agreeing
        .first()
        .unwrap_or_else(|| panic!("{number} answers {answer}, and no row says so"));
    let when = if row.when.is_empty() {
        String::new()
    } else {
        format!("{}: ", row.when)
    };
    format!("{number:<3} {:<24} {answer:<12} {when}{}", row.name, row.reason)
}

fn numbers(profile: Profile) -> Vec<String> {
    let rows = describe(profile);
    (0..=NUMBER_MAX)
        .map(|number| line(number, machine::answer(profile, plain(number)), &rows))
        .collect()
}

fn by_argument(profile: Profile) -> Vec<String> {
    let cases = arguments::cases();
    let mut lines: Vec<String> = cases
        .iter()
        .map(|case| format!("{:<60} {}", case.text, machine::answer(profile, case.call)))
        .collect();
    lines.dedup();
    lines
}

fn differing(lines: Vec<String>, from: &[String]) -> Vec<String> {
    lines
        .into_iter()
        .zip(from)
        .filter(|(line, other)| line != *other)
        .map(|(line, _)| line)
        .collect()
}

fn document() -> String {
    let (full, full_arguments) = (numbers(FULL), by_argument(FULL));
    let mut sections = vec![
        (
            "tier full, memory counted by a cgroup: plain calls, all arguments zero",
            full.clone(),
        ),
        ("the same: by argument", full_arguments.clone()),
    ];
    for (title, profile) in [
        ("tier full, no memory cgroup: what differs", FULL_UNCOUNTED),
        (
            "tier landlock, memory counted by a cgroup: what differs from the first",
            LANDLOCK,
        ),
        (
            "tier landlock, no memory cgroup: what differs from the first",
            LANDLOCK_UNCOUNTED,
        ),
    ] {
        let mut lines = differing(numbers(profile), &full);
        lines.extend(differing(by_argument(profile), &full_arguments));
        sections.push((title, lines));
    }
    let mut text = String::new();
    for (title, lines) in sections {
        text.push_str(&format!("# {title}\n{}\n\n", lines.join("\n")));
    }
    text
}

#[test]
fn golden_table_matches_the_filters() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/seccomp-x86_64.txt");
    let now = document();
    if std::env::var("RINGFENCE_BLESS").is_ok_and(|word| word == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &now).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<String> = changes(&golden, &now);
    assert!(
        changed.is_empty(),
        "`cargo xtask golden --bless`, if this is intended:\n{}",
        changed.join("\n")
    );
}

fn changes(golden: &str, now: &str) -> Vec<String> {
    let count = |text: &str| {
        let mut lines: BTreeMap<String, i32> = BTreeMap::new();
        text.lines()
            .for_each(|line| *lines.entry(line.to_owned()).or_default() += 1);
        lines
    };
    let (before, after) = (count(golden), count(now));
    let gone = before
        .iter()
        .filter(|(line, n)| after.get(*line) != Some(n))
        .map(|(line, _)| format!("- {line}"));
    let new = after
        .iter()
        .filter(|(line, n)| before.get(*line) != Some(n))
        .map(|(line, _)| format!("+ {line}"));
    gone.chain(new).collect()
}
