//! Rules for single files.

use super::{
    Finding,
    budgets::{EMPTY_WORDS, NAME_END, NAMES},
};
use crate::{
    scan::{code_only, words},
    workspace::TextFile,
};
use std::path::Path;

/// Maximum lines of a file without its tests.
const LINES_MAX: usize = 700;

/// The only crate that may use `Helper`: the helper is a process of the design.
const HELPER_CRATE: &str = "crates/ringfence-jail/src/";

/// The only crate that may use `unsafe`.
const UNSAFE_CRATE: &str = "crates/ringfence-sys/src/";

/// Text of a comment on the line or on the line above that permits a machine's path, followed by the reason.
const PATH_EXCUSE: &str = "tidy: machine path, because ";

/// Directories of a single machine; `{}` stands for a name.
// tidy: machine path, because this is the rule
const MACHINE_PATHS: [&str; 3] = ["/work/", "/root/", "/home/{}"];

/// Names below `/home` that do not belong to a person: the sandbox's home, the person of examples, Homebrew's fixed
/// directory.
const HOMES: [&str; 3] = ["sandbox", "alice", "linuxbrew"];

/// Applies every rule to every file.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(machine_paths(file));
        if file.path.ends_with(".rs") {
            let code = code_only(&file.text);
            findings.extend(opening(file));
            findings.extend(length(file));
            findings.extend(file_name(file));
            findings.extend(type_names(file, &code));
            findings.extend(unsafe_place(file, &code));
        }
    }
    findings
}

fn opening(file: &TextFile) -> Option<Finding> {
    let first = file.text.lines().next().unwrap_or("");
    let has_header = first
        .strip_prefix("//!")
        .is_some_and(|words| words.trim().len() > 10);
    (!has_header).then(|| {
        Finding::new(
            &file.path,
            1,
            "opening",
            "a file begins with `//!` and a sentence about its purpose",
        )
    })
}

/// Checks the length. Files of `tests/` are tests as a whole; in other files the tests are at the end.
fn length(file: &TextFile) -> Option<Finding> {
    if file.path.contains("/tests/") {
        return None;
    }
    let lines: Vec<&str> = file.text.lines().collect();
    let is_tail = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ");
    let counted = lines.windows(2).position(is_tail).unwrap_or(lines.len());
    let what = format!("{counted} lines without tests, at most {LINES_MAX}: a file is one idea");
    (counted > LINES_MAX).then(|| Finding::new(&file.path, LINES_MAX, "length", what))
}

fn excused(path: &str, word: &str) -> bool {
    word == "Helper" && path.starts_with(HELPER_CRATE)
}

fn file_name(file: &TextFile) -> Option<Finding> {
    let parts = Path::new(&file.path).iter().filter_map(|part| part.to_str());
    let stems: Vec<String> = parts
        .map(|part| capitalised(part.trim_end_matches(".rs")))
        .collect();
    let banned = stems
        .iter()
        .find(|stem| EMPTY_WORDS.contains(&stem.as_str()) && !excused(&file.path, stem))?;
    let what = format!(
        "`{}` says nothing about the file's subject",
        banned.to_lowercase()
    );
    Some(Finding::new(&file.path, 1, "file name", what))
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn type_names(file: &TextFile, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, name) in declared_types(code) {
        let is_empty = |part: &&str| EMPTY_WORDS.contains(part) && !excused(&file.path, part);
        if let Some(part) = camel_words(name).find(is_empty) {
            let what = format!("`{name}`: `{part}` says nothing about the type");
            findings.push(Finding::new(&file.path, line, "type name", what));
        }
    }
    findings
}

/// Types with a banned name.
pub const NAME: &str = "name";

/// Finds types of the crates that have a banned name.
pub fn names(files: &[TextFile]) -> Vec<Finding> {
    let sources = files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs"));
    let mut findings = Vec::new();
    for file in sources {
        let code = code_only(&file.text);
        let unusual = |name: &str| NAMES.contains(&name) || camel_words(name).last() == Some(NAME_END);
        let declared = declared_types(&code).filter(|(_, name)| unusual(name));
        findings.extend(declared.map(|(line, name)| {
            Finding::new(
                &file.path,
                line,
                NAME,
                format!("`{name}`: use the standard term of the field"),
            )
        }));
    }
    findings
}

/// Returns the names of types declared in code, each with its line.
fn declared_types(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let pairs = words(code).zip(words(code).skip(1));
    pairs.filter_map(|((_, before), word)| {
        matches!(before, "struct" | "enum" | "trait" | "type" | "union").then_some(word)
    })
}

fn camel_words(name: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = name
        .char_indices()
        .filter(|(_, c)| c.is_uppercase())
        .map(|(at, _)| at)
        .collect();
    let ends = starts
        .iter()
        .copied()
        .skip(1)
        .chain([name.len()])
        .collect::<Vec<_>>();
    starts.into_iter().zip(ends).map(|(from, to)| &name[from..to])
}

fn unsafe_place(file: &TextFile, code: &str) -> Vec<Finding> {
    if file.path.starts_with(UNSAFE_CRATE) {
        return Vec::new();
    }
    let found = words(code).filter(|(_, word)| *word == "unsafe");
    found
        .map(|(line, _)| Finding::new(&file.path, line, "unsafe", "only ringfence-sys may use it"))
        .collect()
}

fn machine_paths(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut above = "";
    for (number, line) in file.text.lines().enumerate() {
        let excuse = [line, above].iter().any(|line| line.contains(PATH_EXCUSE));
        if let Some(path) = machine_path(line).filter(|_| !excuse) {
            let what = format!(
                "`{path}` is a directory of one machine (to permit it, write `{PATH_EXCUSE}...` in a comment)"
            );
            findings.push(Finding::new(&file.path, number + 1, "machine path", what));
        }
        above = line;
    }
    findings
}

fn machine_path(line: &str) -> Option<&'static str> {
    MACHINE_PATHS.into_iter().find(|pattern| {
        let fixed = pattern.trim_end_matches("{}");
        line.match_indices(fixed).any(|(at, _)| {
            let begins = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}>)*/]".contains(c));
            begins && (*pattern == fixed || is_home(&line[at + fixed.len()..]))
        })
    })
}

fn is_home(rest: &str) -> bool {
    let name: &str = rest
        .split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c)))
        .next()
        .unwrap_or("");
    // A single letter is not a person's name.
    name.len() > 1 && !HOMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    /// Returns the rules that a file breaks.
    fn broken(path: &str, text: &str) -> Vec<&'static str> {
        check(&[file(path, text)])
            .into_iter()
            .map(|finding| finding.rule)
            .collect()
    }

    const GOOD: &str = "//! Why this file exists.\n";

    #[test]
    fn good_file_breaks_no_rule() {
        assert!(
            broken(
                "crates/ringfence-types/src/good.rs",
                &format!("{GOOD}pub struct Grant;\n")
            )
            .is_empty()
        );
    }

    #[test]
    fn file_without_a_header_comment_is_found() {
        assert_eq!(broken("crates/x/src/a.rs", "use std::io;\n"), ["opening"]);
        assert_eq!(broken("crates/x/src/a.rs", "//!\nuse std::io;\n"), ["opening"]);
        assert_eq!(broken("crates/x/src/a.rs", ""), ["opening"]);
    }

    #[test]
    fn file_over_the_line_limit_is_found_and_its_tests_do_not_count() {
        let long = format!("{GOOD}{}", "// line\n".repeat(700));
        assert_eq!(broken("crates/x/src/a.rs", &long), ["length"]);
        let tested = format!(
            "{GOOD}{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// l\n".repeat(600),
            "// t\n".repeat(600)
        );
        assert!(broken("crates/x/src/a.rs", &tested).is_empty());
        assert!(broken("crates/x/tests/all.rs", &long).is_empty());
    }

    #[test]
    fn empty_word_in_a_file_name_is_found() {
        assert_eq!(broken("crates/x/src/utils.rs", GOOD), ["file name"]);
        assert_eq!(broken("crates/x/src/common/mod.rs", GOOD), ["file name"]);
        assert_eq!(broken("crates/x/src/helper.rs", GOOD), ["file name"]);
        assert!(broken("crates/ringfence-jail/src/helper.rs", GOOD).is_empty());
    }

    #[test]
    fn empty_word_in_a_type_name_is_found() {
        let check = |line: &str, expect: &[&str]| {
            assert_eq!(
                broken("crates/x/src/a.rs", &format!("{GOOD}{line}\n")),
                expect,
                "{line}"
            )
        };
        check("struct PoolUtils;", &["type name"]);
        check("pub enum CommonKind { A }", &["type name"]);
        check("trait Helper {}", &["type name"]);
        check("// struct PoolUtils", &[]);
        check("struct PoolManager;", &[]);
        check("use rmcp::ServiceExt;", &[]);
        check("struct Commonwealth;", &[]);
    }

    #[test]
    fn banned_type_name_is_found() {
        let found = |path: &str, text: &str| names(&[file(path, text)]).len();
        assert_eq!(
            found(
                "crates/x/src/a.rs",
                "pub struct House; enum LimitWish {} struct Greenhouse;"
            ),
            2
        );
        assert_eq!(
            found("crates/x/src/a.rs", "// struct House\nfn f(house: House) {}"),
            0
        );
        assert_eq!(found("xtask/src/a.rs", "struct House;"), 0);
    }

    #[test]
    fn unsafe_outside_ringfence_sys_is_found() {
        let text = format!("{GOOD}fn f() {{ unsafe {{ g() }} }}\n");
        assert_eq!(broken("crates/ringfence-jail/src/a.rs", &text), ["unsafe"]);
        assert!(broken("crates/ringfence-sys/src/a.rs", &text).is_empty());
        assert!(
            broken(
                "crates/x/src/a.rs",
                &format!("{GOOD}#![forbid(unsafe_code)] // unsafe\n")
            )
            .is_empty()
        );
    }

    #[test]
    fn path_of_one_machine_is_found_unless_excused() {
        let check = |line: &str, bad: bool| {
            let expect: &[&str] = if bad { &["machine path"] } else { &[] };
            assert_eq!(broken("docs/a.md", line), expect, "{line}");
        };
        check("see /work/main", true); // tidy: machine path, because the rule is tried on it
        check("`/root/.cargo`", true); // tidy: machine path, because the rule is tried on it
        check("HOME=/home/anna", true); // tidy: machine path, because the rule is tried on it
        check("/home/sandbox and /home/NAME and /home/a", false);
        check("/workspace/a, /proc/<pid>/root/etc, crates/x/root/", false);
        check(
            "# tidy: machine path, because it is the target of an attack: /root/.ssh",
            false,
        );
        assert!(broken("docs/a.md", "# tidy: machine path, because of X\n/root/.ssh\n").is_empty());
    }
}
