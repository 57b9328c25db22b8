//! False positives and broken fixes, measured on code known to be good: the interpreter's own standard library. A
//! module is accepted if and only if the interpreter compiles it, auto-fix changes only the modules in [`LACKING`],
//! and the hits of each rule are pinned in `tests/corpus/`. `RINGFENCE_BLESS=1` writes the pinned file; with
//! `RINGFENCE_REQUIRE=corpus` the test fails if python3 is missing or its library is not a pinned one.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test runs the interpreter, reads its environment, and fails by panicking"
)]

use ringfence_check::{Answer, CodeAnswer, CodeQuestion, Question, answer};
use ringfence_types::{Language, Rules, Severity};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

/// Modules on which the parser and the interpreter disagree, with the reasons.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "test/tokenizedata/bad_coding.py",
        "it declares an unknown encoding; the code that is checked is UTF-8 text in any case",
    ),
    (
        "test/tokenizedata/bad_coding2.py",
        "it declares another encoding than its byte-order mark; the code that is checked is UTF-8 text in any case",
    ),
];

/// Modules that really lack an import, so that a run of the line raises NameError: path, added statement and place.
const LACKING: &[(&str, &str, &str)] = &[
    (
        "distutils/tests/test_versionpredicate.py",
        "import unittest",
        "`unittest.main()` in a module that never imports unittest",
    ),
    (
        "test/ann_module.py", // until 3.11.3
        "from typing import List",
        "`List[str]` in the annotation of a function that is defined in another",
    ),
    (
        "test/typinganndata/ann_module.py",
        "from typing import List",
        "`List[str]` in the annotation of a function that is defined in another",
    ),
];

/// Compiles the interpreter's own library. `compile` and not `ast.parse`, because code that does not compile does not
/// run.
const COMPILE_LIBRARY: &str = r#"
import json, os, sys, sysconfig, warnings
warnings.simplefilter("ignore")
root = sysconfig.get_path("stdlib")
modules = []
for directory, below, files in os.walk(root):
    below[:] = sorted(name for name in below if name not in ("__pycache__", "site-packages", "dist-packages"))
    for file in sorted(files):
        if not file.endswith(".py"):
            continue
        path = os.path.join(directory, file)
        with open(path, "rb") as source:
            code = source.read()
        try:
            compile(code, path, "exec", dont_inherit=True)
            error = None
        except (SyntaxError, ValueError) as problem:
            error = str(problem)
        modules.append({"path": os.path.relpath(path, root), "error": error})
json.dump({"version": list(sys.version_info[:3]), "root": root, "modules": modules}, sys.stdout)
"#;

#[derive(Deserialize)]
struct Library {
    version: (u8, u8, u8),
    root: PathBuf,
    modules: Vec<Module>,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    error: Option<String>,
}

impl Module {
    fn is_test(&self) -> bool {
        let names = ["test", "tests", "idle_test"];
        Path::new(&self.path)
            .iter()
            .any(|part| names.iter().any(|name| part == *name))
    }
}

/// Results for all modules.
#[derive(Default)]
struct Found {
    modules: usize,
    lines: u64,
    not_text: BTreeSet<String>,
    /// Modules accepted here and refused by the interpreter, or the reverse, with both verdicts.
    disputed: BTreeMap<String, String>,
    changed: Vec<String>,
    /// Number of modules that are not tests, whose lines and hits are pinned.
    pinned_modules: usize,
    pinned_lines: u64,
    hits: BTreeMap<String, u64>,
}

impl Found {
    fn add(mut self, other: Self) -> Self {
        self.modules += other.modules;
        self.lines += other.lines;
        self.not_text.extend(other.not_text);
        self.disputed.extend(other.disputed);
        self.changed.extend(other.changed);
        self.pinned_modules += other.pinned_modules;
        self.pinned_lines += other.pinned_lines;
        for (rule, count) in other.hits {
            *self.hits.entry(rule).or_default() += count;
        }
        self
    }

    fn read(&mut self, library: &Library, module: &Module) {
        let code = std::fs::read(library.root.join(&module.path)).unwrap();
        self.modules += 1;
        let Answer::Code(answer) = answer(&question(library), &code) else {
            assert!(std::str::from_utf8(&code).is_err(), "{} is text", module.path);
            self.not_text.insert(module.path.clone());
            return;
        };
        let CodeAnswer { validation, patches } = *answer;
        self.lines += u64::from(validation.analysis.line_count);
        let error = validation
            .issues
            .iter()
            .find(|issue| issue.severity == Severity::Error);
        if error.is_some() != module.error.is_some() {
            let ours = error.map_or("accepted".to_owned(), |issue| {
                format!("line {}: {}", issue.line, issue.message)
            });
            let theirs = module.error.as_deref().unwrap_or("accepted");
            self.disputed.insert(
                module.path.clone(),
                format!("here: {ours}; the interpreter: {theirs}"),
            );
        }
        let lacks = LACKING.iter().find(|(path, ..)| *path == module.path);
        let expected: Vec<&str> = lacks.iter().map(|(_, statement, _)| *statement).collect();
        if validation.fixes_applied != expected || validation.fixed_code.is_some() == patches.is_empty() {
            self.changed
                .push(format!("{}: {:?}", module.path, validation.fixes_applied));
        }
        if !module.is_test() && module.error.is_none() {
            self.pinned_modules += 1;
            self.pinned_lines += u64::from(validation.analysis.line_count);
            for issue in &validation.issues {
                *self.hits.entry(issue.rule.clone()).or_default() += 1;
            }
        }
    }

    fn golden(&self, library: &Library) -> String {
        let (major, minor, patch) = library.version;
        let mut text = format!(
            "# Hits of each rule in the standard library without its tests.\npython {major}.{minor}.{patch}\nmodules {}\nlines {}\n",
            self.pinned_modules, self.pinned_lines
        );
        for (rule, count) in &self.hits {
            writeln!(text, "{rule} {count}").unwrap();
        }
        text
    }
}

fn question(library: &Library) -> Question {
    Question::Code(CodeQuestion {
        auto_fix: true,
        python: Some((library.version.0, library.version.1)),
        ..CodeQuestion::of(Language::Python, Rules::unrestricted())
    })
}

fn library() -> Option<Library> {
    let output = Command::new("python3")
        .args(["-I", "-c", COMPILE_LIBRARY])
        .output();
    match output {
        Ok(output) if output.status.success() => Some(serde_json::from_slice(&output.stdout).unwrap()),
        Ok(output) => panic!(
            "python3 cannot compile its library: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(problem) => {
            skip(&format!("there is no python3: {problem}"));
            None
        }
    }
}

/// Prints that a part is skipped; panics if it is required.
fn skip(what: &str) {
    eprintln!("SKIPPED: {what}");
    let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == "corpus"),
        "RINGFENCE_REQUIRE asks for corpus: {what}"
    );
}

/// Checks every module, in one thread per processor, each with the stack of a worker.
fn read_all(library: &Library) -> Found {
    let next = AtomicUsize::new(0);
    let read = || {
        let mut found = Found::default();
        while let Some(module) = library.modules.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.read(library, module);
        }
        found
    };
    let readers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let spawn = |_| {
            std::thread::Builder::new()
                .stack_size(8 << 20)
                .spawn_scoped(scope, read)
                .unwrap()
        };
        let threads: Vec<_> = (0..readers).map(spawn).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold(Found::default(), Found::add)
    })
}

#[test]
fn standard_library_is_accepted_as_by_the_interpreter_and_unchanged() {
    let Some(library) = library() else { return };
    let started = Instant::now();
    let found = read_all(&library);
    eprintln!(
        "corpus: {} modules, {} lines, {:.1} s; {} not UTF-8; hits without tests: {}",
        found.modules,
        found.lines,
        started.elapsed().as_secs_f64(),
        found.not_text.len(),
        found.hits.values().sum::<u64>()
    );
    // A distribution may omit the tests, but not the library.
    assert!(
        found.pinned_modules > 300 && found.pinned_lines > 100_000,
        "{} modules",
        found.pinned_modules
    );
    assert_eq!(found.changed, Vec::<String>::new(), "changed by auto-fix");
    let known = |path: &String| EXCEPTIONS.iter().any(|(name, _)| name == path);
    let disputed: BTreeMap<_, _> = found.disputed.iter().filter(|(path, _)| !known(path)).collect();
    assert!(disputed.is_empty(), "{disputed:#?}");
    for (name, reason) in EXCEPTIONS {
        let there = library.modules.iter().any(|module| module.path == *name);
        assert!(
            !there || found.disputed.contains_key(*name),
            "{name} is no longer an exception: {reason}"
        );
    }
    compare(&library, &found);
}

fn compare(library: &Library, found: &Found) {
    let (major, minor, patch) = library.version;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/python-{major}.{minor}.txt"));
    let new = found.golden(library);
    if std::env::var_os("RINGFENCE_BLESS").is_some() {
        return std::fs::write(&path, new).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap_or_default();
    let same_library = pinned.lines().take(4).eq(new.lines().take(4));
    if !same_library {
        let has: Vec<&str> = pinned.lines().skip(1).take(3).collect();
        return skip(&format!(
            "hits of rules are not pinned for python {major}.{minor}.{patch} with {} modules and {} lines (pinned: {has:?}); \
             only what holds for all versions was checked",
            found.pinned_modules, found.pinned_lines
        ));
    }
    assert_eq!(pinned, new, "RINGFENCE_BLESS=1 writes the new file");
}
