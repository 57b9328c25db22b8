//! The start of each language's interpreter, and the driver that reports on the program. A driver is source text that
//! the interpreter runs; it shares the process with the program, so its reports are only as trustworthy as the program.

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

/// The driver. Parts that few programs need are literals, because compiling them costs half a millisecond.
static PYTHON_DRIVER: LazyLock<String> = LazyLock::new(|| {
    include_str!("python_driver.py")
        .replace("EXPLAIN", &literal(include_str!("python_explain.py")))
        .replace("DISPLAY", &literal(include_str!("python_display.py")))
        .replace("BRIDGE", &literal(include_str!("python_bridge.py")))
        .replace("IMPORTS", &literal(include_str!("python_imports.py")))
        .replace("FORKED", &literal(include_str!("python_forked.py")))
});
static PYTHON_PROGRAM: LazyLock<String> = LazyLock::new(|| python_program("None"));
/// A template, which forks children that continue as drivers, or continues as a driver itself.
static PYTHON_TEMPLATE: LazyLock<String> = LazyLock::new(|| {
    let session = literal(include_str!("python_session.py"));
    let imports = literal(include_str!("python_imports.py"));
    let compiled = [session, imports].map(|text| format!("compile({text}, '<ringfence>', 'exec')"));
    let end = format!(
        "import os, sys\n_ringfence_template(os, sys, _ringfence, {})\n",
        compiled.join(", ")
    );
    let template = include_str!("python_template.py");
    executed(&format!("{}{template}{PYTHON_ISOLATED}{end}", *PYTHON_DRIVER))
});
/// Gives the driver a namespace of its own, so that a program that assigns `len = 3` does not change the driver's.
const PYTHON_ISOLATED: &str = "_ringfence = type(_ringfence)(_ringfence.__code__, \
    {'__builtins__': dict(vars(__import__('builtins')))})\n";
const NODE_DRIVER: &str = include_str!("node_driver.cjs");
/// The driver of a Node.js that is started ahead, which may become a session.
static NODE_AHEAD: LazyLock<String> = LazyLock::new(|| {
    let session = include_str!("node_session.cjs").trim_end();
    NODE_DRIVER.replace("})(null);", &format!("}})({session});"))
});

/// Returns the driver as a program of its own. `session`: the code that serves calls, or `None`.
fn python_program(session: &str) -> String {
    let end = "if _ringfence_status:\n    \
        raise _ringfence_status if isinstance(_ringfence_status, SystemExit) else SystemExit(_ringfence_status)\n";
    let call = format!("import sys\n_ringfence_status = _ringfence(sys, False, {session}, None)\n");
    executed(&format!("{}{PYTHON_ISOLATED}{call}{end}", *PYTHON_DRIVER))
}

fn literal(text: &str) -> String {
    format!("r'''{text}'''")
}

/// Returns a program that compiles `text` separately: CPython keeps the syntax tree of a `-c` program while that runs
/// (1.5 MB for a driver), and a traceback that the program prints shows the running line (since Python 3.13).
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
    pub(crate) env: Vec<(String, String)>,
    /// True if a driver reports on descriptor 3.
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

/// Restrictions on a Python program inside the interpreter, beside the kernel's walls. Without them there is no cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Checks {
    /// Modules that the program may import, with all their submodules; `None`: all.
    pub(crate) imports: Option<Vec<String>>,
    /// Names and the statements that import them, run before the program for names that are not defined.
    pub(crate) patches: Vec<(String, String)>,
    /// The profile of these modules, for messages.
    pub(crate) profile: &'static str,
}

impl Checks {
    /// Returns the checks as environment variables, several because one has at most 128 KiB (execve(2)).
    fn variables(&self) -> Vec<(String, String)> {
        // Cannot fail: text and lists of text.
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

/// Read and removed by the driver. What does not fit continues in a variable with one more underscore.
const CHECKS: &str = "RINGFENCE_CHECKS";
const VARIABLE_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateOf {
    Python(Imports),
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imports {
    Basic,
    /// The basic modules and those of `warm.preload_python`.
    Data,
}

/// Modules that a Python for one program imports: all of the profile `basic` would cost each 45 ms of CPU time.
const COMMON: [&str; 6] = ["collections", "datetime", "json", "math", "random", "re"];

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

/// The template's program. If its descriptor 4 is a pipe, it continues as a driver itself.
fn importing(interpreter: &str, modules: &[&str]) -> Launch {
    Launch::of(
        [interpreter, "-c", &PYTHON_TEMPLATE],
        &[
            ("PYTHONDONTWRITEBYTECODE", "1"),
            // Read when a plotting library is imported: there is no display.
            ("MPLBACKEND", "Agg"),
            // Symbols are bound once here, instead of page by page in each fork.
            ("LD_BIND_NOW", "1"),
            (PRELOAD, &modules.join(",")),
        ],
    )
}

pub(crate) fn node_ahead(interpreter: &str, modules: &[String]) -> Launch {
    Launch::of([interpreter, "-e", &NODE_AHEAD], &[(PRELOAD, &modules.join(","))])
}

/// The command of a Node.js that is forked: without V8's worker threads, which a fork would lack. The preloaded forker
/// handles the remaining threads.
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

/// Read and removed by the driver.
const PRELOAD: &str = "RINGFENCE_PRELOAD";

/// The message that an interpreter that was started ahead reads from descriptor 4.
#[derive(Serialize)]
pub(crate) struct Go<'a> {
    pub(crate) script: &'a str,
    pub(crate) source_maps: bool,
    pub(crate) module: Option<&'a str>,
    pub(crate) args: Vec<&'a str>,
    /// True to serve calls instead of running the script.
    pub(crate) session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checks: Option<&'a Checks>,
    /// The path at which the claim has mounted a directory of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<&'a Path>,
    pub(crate) env: BTreeMap<&'a str, &'a str>,
}

/// Returns the environment without the checks, which have a field of their own.
pub(crate) fn by_name(environment: &[(String, String)]) -> BTreeMap<&str, &str> {
    environment
        .iter()
        .filter(|(name, _)| !name.starts_with(CHECKS))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

pub(crate) fn encode_go(go: &Go<'_>) -> Vec<u8> {
    // Cannot fail: text and maps of text.
    client::to_json(go).unwrap_or_default()
}

/// True for variables that the loader, the C library, an interpreter or a library imported ahead reads only at start.
pub(crate) fn is_read_at_start(name: &str) -> bool {
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

/// True if the code must pass the parser first: TypeScript always; JavaScript if it may be a module. A needless pass
/// costs a few milliseconds, so searching the text for keywords is enough.
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
