//! Real clients and agent frameworks against the real server: what each has of the list of tools, a result, a refusal, a
//! failing program and long output. A script of `tests/clients` per language prints a line for each; here is the table.
//! No model is asked.

use crate::{
    command::{capture, command, show},
    mcp_client,
    tally::Tally,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// How a client is installed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// By npm, as `tests/clients/package-lock.json` says.
    Node,
    /// By pip, into the virtual environment of the official client of this version.
    Official(&'static str),
    /// By pip, into one of this name with these packages.
    Python(&'static str, &'static [&'static str]),
}

/// A row of the table.
struct Client {
    name: &'static str,
    /// The script's word for it.
    word: &'static str,
    library: Library,
}

const FRAMEWORKS: Library = Library::Python(
    "venv-frameworks",
    &[
        "fastmcp==4.1.2",
        "openai-agents==0.24.0",
        "pydantic-ai-slim[mcp]==2.68.0",
    ],
);

/// The adapters want the official client before 2.
const LANGCHAIN: Library = Library::Python(
    "venv-langchain",
    &[
        "mcp==1.30.*",
        "langchain-mcp-adapters==0.3.1",
        "langchain-openai==1.7.3",
        "langchain-anthropic==1.7.7",
        "langchain-google-genai==4.4.2",
    ],
);

#[rustfmt::skip]
const CLIENTS: [Client; 11] = [
    Client { name: "TypeScript 1.32", word: "sdk-1", library: Library::Node },
    Client { name: "TypeScript 2.4", word: "sdk-2", library: Library::Node },
    Client { name: "Inspector 2.12, --strict", word: "inspector", library: Library::Node },
    Client { name: "Python 1.30", word: "mcp", library: Library::Official("1.30") },
    Client { name: "Python 2.3", word: "mcp", library: Library::Official("2.3") },
    Client { name: "fastmcp 4.1.2", word: "fastmcp", library: FRAMEWORKS },
    Client { name: "OpenAI Agents", word: "openai-agents", library: FRAMEWORKS },
    Client { name: "PydanticAI", word: "pydantic-ai", library: FRAMEWORKS },
    Client { name: "LangChain, OpenAI", word: "langchain-openai", library: LANGCHAIN },
    Client { name: "LangChain, Anthropic", word: "langchain-anthropic", library: LANGCHAIN },
    Client { name: "LangChain, Gemini", word: "langchain-gemini", library: LANGCHAIN },
];

/// What is done with each, as `tests/clients/calls.json` says.
const CELLS: [&str; 5] = ["list", "call", "refusal", "failure", "long output"];
/// Of one client with all its calls.
const SECONDS_MAX: &str = "120";

/// A program and its script, for one library.
type Script = [PathBuf; 2];

/// Prints the table of the clients whose name holds `part`; an error or a warning anywhere is a failure.
pub fn run(workspace: &Workspace, binary: &Path, part: &str) -> Result<(), String> {
    let tally = table(workspace, binary, |client| client.name.contains(part))?;
    match tally {
        Tally {
            failed: 0, passed: 0, ..
        } => Err(format!("no client's name holds `{part}`")),
        Tally { failed: 0, .. } => Ok(()),
        Tally { failed, .. } => Err(format!("{failed} cells have an error or a warning")),
    }
}

/// The same of those that npm installs. The official client of Python has steps of its own.
pub fn node(workspace: &Workspace) -> (Tally, Result<(), String>) {
    match table(workspace, &workspace.binary(), |client| {
        client.library == Library::Node
    }) {
        Ok(tally) => (tally, Ok(())),
        Err(reason) => (Tally::default(), Err(reason)),
    }
}

fn table(workspace: &Workspace, binary: &Path, wanted: impl Fn(&Client) -> bool) -> Result<Tally, String> {
    let (mut tally, mut notes) = (Tally::default(), Vec::new());
    let columns = CELLS.map(|cell| format!("{cell:>13}")).concat();
    println!(
        "bytes, as the client gives them to its caller\n{:<26}{columns}",
        "client"
    );
    for client in CLIENTS.iter().filter(|client| wanted(client)) {
        let script = installed(workspace, client.library)?;
        let cells = cells(&script, client.word, binary);
        let mut row = format!("{:<26}", client.name);
        for name in CELLS {
            let cell = cells.iter().find(|cell| cell["cell"] == name);
            let wrong = cell.map_or_else(|| vec!["no answer".to_owned()], wrong_with);
            tally.add(Tally {
                passed: u64::from(wrong.is_empty()),
                failed: u64::from(!wrong.is_empty()),
                second: 0,
            });
            let shown = match cell {
                Some(cell) if wrong.is_empty() => cell["bytes"].to_string(),
                _ => "FAILED".to_owned(),
            };
            row += &format!("{shown:>13}");
            notes.extend(
                wrong
                    .into_iter()
                    .map(|text| format!("{}, {name}: {text}", client.name)),
            );
        }
        println!("{row}");
    }
    println!(
        "{}{} passed, {} failed",
        notes.join("\n") + "\n",
        tally.passed,
        tally.failed
    );
    Ok(tally)
}

/// What a cell has beside its bytes.
fn wrong_with(cell: &Value) -> Vec<String> {
    let outcome = cell["outcome"].as_str().filter(|outcome| *outcome != "ok");
    let warnings = cell["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.map(|warning| format!("warning: {}", warning.as_str().unwrap_or_default()));
    outcome.map(str::to_owned).into_iter().chain(warnings).collect()
}

/// A line each; what a client that failed said stands above the table's row.
fn cells(script: &Script, word: &str, binary: &Path) -> Vec<Value> {
    let mut client = command("timeout", [SECONDS_MAX]);
    client.args(script).args([word, "--"]).arg(binary).arg("serve");
    client.env("PYTHONDONTWRITEBYTECODE", "1");
    let said = capture(client).unwrap_or_else(|error| {
        println!("{error}");
        String::new()
    });
    said.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The library's interpreter and script; installed where it is not.
pub fn installed(workspace: &Workspace, library: Library) -> Result<Script, String> {
    let scripts = workspace.root.join("tests/clients");
    let python = match library {
        Library::Node => {
            let directory = node_directory(workspace, &scripts)?;
            return Ok(["node".into(), directory.join("node.mjs")]);
        }
        Library::Official(version) => mcp_client::environment(workspace, version)?,
        Library::Python(name, packages) => mcp_client::venv(workspace, name, packages)?,
    };
    Ok([python, scripts.join("frameworks.py")])
}

/// Modules are looked for beside the script, so that is copied to where they are.
fn node_directory(workspace: &Workspace, scripts: &Path) -> Result<PathBuf, String> {
    let directory = workspace.target.join("node-clients");
    let said = |error| format!("{}: {error}", directory.display());
    let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
    let before = read("package-lock.json");
    fs::create_dir_all(&directory).map_err(said)?;
    for name in ["package.json", "package-lock.json", "node.mjs", "calls.json"] {
        fs::copy(scripts.join(name), directory.join(name)).map_err(said)?;
    }
    // npm writes this one last.
    let is_whole = directory.join("node_modules/.package-lock.json").is_file();
    if !is_whole || before != read("package-lock.json") {
        let words = [
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ];
        let mut npm = command("npm", words);
        npm.current_dir(&directory);
        show(npm)?;
    }
    Ok(directory)
}
