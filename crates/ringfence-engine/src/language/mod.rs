//! How each language is started, and how its driver inside tells what became of the program. A driver is text that the
//! interpreter is given; it shares the process with the program, so that whatever it reports is the program's word.

mod prepared;
mod report;
pub(crate) mod session;

pub(crate) use prepared::{Prepared, SESSION, read_outcome};
pub use report::{Blocked, ProgramReport, read_report};

use ringfence_check::profile;
use ringfence_jail::client;
use ringfence_types::Language;
use serde::Serialize;
use std::{collections::BTreeMap, path::Path, sync::LazyLock};

/// The driver, with the parts that few programs need as literals, because compiling them costs half a millisecond.
static PYTHON_DRIVER: LazyLock<String> = LazyLock::new(|| {
    include_str!("python_driver.py")
        .replace("EXPLAIN", &literal(include_str!("python_explain.py")))
        .replace("DISPLAY", &literal(include_str!("python_display.py")))
        .replace("BRIDGE", &literal(include_str!("python_bridge.py")))
        .replace("IMPORTS", &literal(include_str!("python_imports.py")))
        .replace("FORKED", &literal(include_str!("python_forked.py")))
});
static PYTHON_PROGRAM: LazyLock<String> = LazyLock::new(|| python_program("None"));
/// A template forks children that go on as drivers, or goes on as one itself.
static PYTHON_TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let session = literal(include_str!("python_session.py"));
    let imports = literal(include_str!("python_imports.py"));
    let compiled = [session, imports].map(|text| format!("compile({text}, '<ringfence>', 'exec')"));
    let end = format!(
        "import os, sys\n_ringfence_template(os, sys, _ringfence, {})\n",
        compiled.join(", ")
    );
    let template = include_str!("python_template.py");
    executed(&format!("{}{template}{PYTHON_APART}{end}", *PYTHON_DRIVER))
});
/// Names of a program, `len = 3`, must not become the driver's: it is given a namespace of its own.
const PYTHON_APART: &str = "_ringfence = type(_ringfence)(_ringfence.__code__, \
    {'__builtins__': dict(vars(__import__('builtins')))})\n";
const NODE_DRIVER: &str = include_str!("node_driver.cjs");
/// One that is started ahead may become a session.
static NODE_AHEAD: LazyLock<String> = LazyLock::new(|| {
    let session = include_str!("node_session.cjs").trim_end();
    NODE_DRIVER.replace("})(null);", &format!("}})({session});"))
});

/// The driver as a program of its own; `session`: the code that serves calls.
fn python_program(session: &str) -> String {
    let end = "if _ringfence_status:\n    \
        raise _ringfence_status if isinstance(_ringfence_status, SystemExit) else SystemExit(_ringfence_status)\n";
    let call = format!("import sys\n_ringfence_status = _ringfence(sys, False, {session}, None)\n");
    executed(&format!("{}{PYTHON_APART}{call}{end}", *PYTHON_DRIVER))
}

fn literal(text: &str) -> String {
    format!("r'''{text}'''")
}

/// The interpreter keeps the syntax tree of what `-c` brings for as long as that runs: of a driver 1.5 MB. A stack that
/// the program prints shows the line that runs (since Python 3.13), so the text is in another.
fn executed(text: &str) -> String {
    let text = text
        .replace('\\', "\\\\")
        .replace('\'', "\\'")
        .replace('\n', "\\n");
    format!("_ringfence = '{text}'\nexec(compile(_ringfence, '<string>', 'exec'))\n")
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) argv: Vec<String>,
    /// What the language needs in its environment.
    pub(crate) env: Vec<(String, String)>,
    /// Whether a driver reports on descriptor 3.
    pub(crate) report_fd: bool,
}

impl Launch {
    fn of<'a>(argv: impl IntoIterator<Item = &'a str>, env: &[(&str, &str)]) -> Self {
        let env = env.iter();
        Self {
            argv: argv.into_iter().map(str::to_owned).collect(),
            env: env
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            report_fd: true,
        }
    }
}

/// What a run of Python is held to inside, beside the kernel's walls. Without checks it costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Checks {
    /// Modules that the program may import, each with what lies below it; none: all.
    pub(crate) imports: Option<Vec<String>>,
    /// Names and the statements that import them, done before the program for those that are not defined.
    pub(crate) patches: Vec<(String, String)>,
    /// Whose modules these are, for messages.
    pub(crate) profile: &'static str,
}

impl Checks {
    /// For the environment of an interpreter, where one variable has at most 128 KiB (execve(2)).
    fn variables(&self) -> Vec<(String, String)> {
        // Text and lists of text: there is nothing that could fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        let (mut rest, mut name, mut variables) = (text.as_str(), CHECKS.to_owned(), Vec::new());
        while !rest.is_empty() {
            let part = rest.split_at(rest.floor_char_boundary(VARIABLE_BYTES_MAX));
            variables.push((name.clone(), part.0.to_owned()));
            name.push('_');
            rest = part.1;
        }
        variables
    }
}

/// Read, and removed, by the driver. What does not fit goes on in a variable with one underscore more.
const CHECKS: &str = "RINGFENCE_CHECKS";
const VARIABLE_BYTES_MAX: usize = 64 << 10;

/// What a template is, and has imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateOf {
    Python(Imports),
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imports {
    Basic,
    /// And those of `warm.preload_python`.
    Data,
}

/// What a Python imports that serves one program: all of the profile `basic` would cost each of them 45 ms of CPU time.
const COMMON: [&str; 6] = ["collections", "datetime", "json", "math", "random", "re"];

/// A Python that waits for what it is to run.
pub(crate) fn python_ahead(interpreter: &str) -> Launch {
    importing(interpreter, &COMMON)
}

pub(crate) fn template(interpreter: &str, imports: Imports, data: &[String]) -> Launch {
    let more = match imports {
        Imports::Basic => &[],
        Imports::Data => data,
    };
    let basic = profile::BASIC.iter().copied();
    let modules: Vec<&str> = basic.chain(more.iter().map(String::as_str)).collect();
    importing(interpreter, &modules)
}

/// The template's program, which goes on as a driver itself where a pipe is its descriptor 4.
fn importing(interpreter: &str, modules: &[&str]) -> Launch {
    Launch::of(
        [interpreter, "-c", &PYTHON_TEMPLATE],
        &[
            ("PYTHONDONTWRITEBYTECODE", "1"),
            // Before anybody has imported a plotting library: there is no display.
            ("MPLBACKEND", "Agg"),
            // Once here, instead of page by page in each fork.
            ("LD_BIND_NOW", "1"),
            (PRELOAD, &modules.join(",")),
        ],
    )
}

/// A Node.js that waits for what it is to run.
pub(crate) fn node_ahead(interpreter: &str, modules: &[String]) -> Launch {
    Launch::of([interpreter, "-e", &NODE_AHEAD], &[(PRELOAD, &modules.join(","))])
}

/// One that is forked, without the threads of V8, which a fork would lack. The forker is preloaded for the threads that
/// are left.
pub(crate) fn node_template(interpreter: &str, modules: &[String]) -> Launch {
    Launch::of(
        [
            interpreter,
            "--single-threaded",
            "--v8-pool-size=1",
            "-e",
            &NODE_AHEAD,
        ],
        &[
            (PRELOAD, &modules.join(",")),
            ("LD_PRELOAD", "/proc/self/fd/6"),
            ("LD_BIND_NOW", "1"),
        ],
    )
}

/// Read, and removed, by the driver.
const PRELOAD: &str = "RINGFENCE_PRELOAD";

/// What an interpreter that was started ahead reads from descriptor 4.
#[derive(Serialize)]
pub(crate) struct Go<'a> {
    pub(crate) script: &'a str,
    pub(crate) source_maps: bool,
    pub(crate) module: Option<&'a str>,
    pub(crate) args: Vec<&'a str>,
    /// Serve calls, instead of running the script.
    pub(crate) session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checks: Option<&'a Checks>,
    /// Where the claim has put a directory of the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<&'a Path>,
    pub(crate) env: BTreeMap<&'a str, &'a str>,
}

/// The environment without the checks, which have a field of their own.
pub(crate) fn by_name(environment: &[(String, String)]) -> BTreeMap<&str, &str> {
    environment
        .iter()
        .filter(|(name, _)| !name.starts_with(CHECKS))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

pub(crate) fn word(go: &Go<'_>) -> Vec<u8> {
    // Text and maps of text: there is nothing that could fail.
    client::to_json(go).unwrap_or_default()
}

/// Variables that the loader, the C library, an interpreter or a library that is imported ahead reads when it starts,
/// and never again.
pub(crate) fn decides_at_start(name: &str) -> bool {
    const PREFIXES: [&str; 19] = [
        "BLIS_",
        "GLIBC_",
        "GOTO_",
        "KMP_",
        "LANG",
        "LC_",
        "LD_",
        "MALLOC_",
        "MATPLOTLIB",
        "MKL_",
        "MPL",
        "NODE_",
        "NPY_",
        "NUMEXPR_",
        "OMP_",
        "OPENBLAS_",
        "OPENSSL_",
        "PYTHON",
        "UV_",
    ];
    name == "HOME" || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the code must pass the parser first: TypeScript always; JavaScript when it may be a module. One too many
/// costs a few milliseconds, so a look at the text is enough.
pub(crate) fn needs_preparation(language: Language, code: &str, name: &str) -> bool {
    match language {
        Language::Typescript => true,
        Language::Node => {
            name.ends_with(".mjs")
                || ["import", "export", "await"]
                    .iter()
                    .any(|word| code.contains(word))
        }
        Language::Python | Language::Shell => false,
    }
}

#[cfg(test)]
mod tests;

pub(crate) const PREPARE: &str = "prepare-javascript";
