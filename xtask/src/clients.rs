//! Real clients and agent frameworks against the real server: what each passes on of the list of tools, results, a
//! refusal, a failing program and long output, and of resources, progress, cancelling and questions where it supports
//! these. A script of `tests/clients` for each language prints a line for each; this module prints the table. No model
//! is called.

use crate::{
    command::{capture, command, show},
    http_server::HttpServer,
    mcp_client,
    tally::Tally,
    workspace::Workspace,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Installation of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// By npm, as `tests/clients/package-lock.json` says.
    Node,
    /// By pip, into the virtual environment of the official client of this version.
    Official(&'static str),
    /// By pip, into a virtual environment of this name with these packages.
    Python(&'static str, &'static [&'static str]),
}

/// Connection of a client to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    /// With a token.
    Http,
}

/// A row of the table.
pub struct Client {
    pub name: &'static str,
    /// Name of the client in the script's arguments.
    pub word: &'static str,
    pub library: Library,
    transport: Transport,
}

const FRAMEWORKS: Library = Library::Python(
    "venv-frameworks",
    &[
        "fastmcp==4.1.2",
        "openai-agents==0.24.0",
        "pydantic-ai-slim[mcp]==2.68.0",
    ],
);

/// The adapters require the official client before version 2.
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
const CLIENTS: [Client; 18] = [
    Client { name: "TypeScript 1.32", word: "sdk-1", library: Library::Node, transport: Transport::Stdio },
    Client { name: "TypeScript 2.4", word: "sdk-2", library: Library::Node, transport: Transport::Stdio },
    Client { name: "Inspector 2.12, --strict", word: "inspector", library: Library::Node, transport: Transport::Stdio },
    Client { name: "Python 1.30", word: "mcp", library: Library::Official("1.30"), transport: Transport::Stdio },
    Client { name: "Python 2.3", word: "mcp", library: Library::Official("2.3"), transport: Transport::Stdio },
    Client { name: "fastmcp 4.1.2", word: "fastmcp", library: FRAMEWORKS, transport: Transport::Stdio },
    Client { name: "OpenAI Agents", word: "openai-agents", library: FRAMEWORKS, transport: Transport::Stdio },
    Client { name: "PydanticAI", word: "pydantic-ai", library: FRAMEWORKS, transport: Transport::Stdio },
    Client { name: "LangChain, OpenAI", word: "langchain-openai", library: LANGCHAIN, transport: Transport::Stdio },
    Client { name: "LangChain, Anthropic", word: "langchain-anthropic", library: LANGCHAIN, transport: Transport::Stdio },
    Client { name: "LangChain, Gemini", word: "langchain-gemini", library: LANGCHAIN, transport: Transport::Stdio },
    Client { name: "TypeScript 1.32, HTTP", word: "sdk-1", library: Library::Node, transport: Transport::Http },
    Client { name: "TypeScript 2.4, HTTP", word: "sdk-2", library: Library::Node, transport: Transport::Http },
    Client { name: "Inspector 2.12, HTTP", word: "inspector", library: Library::Node, transport: Transport::Http },
    Client { name: "Inspector, HTTP, modern", word: "inspector-modern", library: Library::Node, transport: Transport::Http },
    Client { name: "Python 1.30, HTTP", word: "mcp", library: Library::Official("1.30"), transport: Transport::Http },
    Client { name: "Python 2.3, HTTP", word: "mcp", library: Library::Official("2.3"), transport: Transport::Http },
    Client { name: "fastmcp 4.1.2, HTTP", word: "fastmcp", library: FRAMEWORKS, transport: Transport::Http },
];

/// Calls of every client, defined in `tests/clients/calls.json`.
const CELLS: [&str; 6] = ["list", "call", "languages", "refusal", "failure", "long output"];
const RESOURCE: &str = "resource";
/// Features of clients beside calls. Those of the official Python client are tested by the stories of
/// `tests/mcp_client`.
const FEATURES: [&str; 3] = [RESOURCE, "progress, cancel", "question"];

impl Client {
    /// Returns true if the client is tested in this column.
    fn has(&self, cell: &str) -> bool {
        match self.word {
            "sdk-1" | "sdk-2" | "fastmcp" => true,
            "inspector" | "inspector-modern" => cell == RESOURCE || CELLS.contains(&cell),
            _ => CELLS.contains(&cell),
        }
    }
}
/// Time limit of one client with all its calls.
const SECONDS_MAX: &str = "120";

/// A program and its script, for one library.
type Script = [PathBuf; 2];

/// Returns the clients that call over HTTP, except the one that declares tasks and waits for their end.
pub fn over_http() -> impl Iterator<Item = &'static Client> {
    let waits = |client: &&Client| client.word == "inspector-modern";
    CLIENTS
        .iter()
        .filter(move |client| client.transport == Transport::Http && !waits(client))
}

/// Prints the table of the clients whose name contains `part`; an error or a warning in any cell is a failure.
pub fn run(workspace: &Workspace, binary: &Path, part: &str) -> Result<(), String> {
    let tally = table(workspace, binary, |client| client.name.contains(part))?;
    match tally {
        Tally {
            failed: 0, passed: 0, ..
        } => Err(format!("no client's name contains `{part}`")),
        Tally { failed: 0, .. } => Ok(()),
        Tally { failed, .. } => Err(format!("{failed} cells have an error or a warning")),
    }
}

/// Prints the table of the clients that npm installs. The official Python client has CI steps of its own.
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
    let names = || CELLS.into_iter().chain(FEATURES);
    let columns: String = names().map(|cell| format!("{cell:>18}")).collect();
    println!(
        "bytes that the client passes to its caller\n{:<26}{columns}",
        "client"
    );
    let server = HttpServer::product(binary)?;
    let token = server.token(binary, "clients")?;
    for client in CLIENTS.iter().filter(|client| wanted(client)) {
        let script = installed(workspace, client.library)?;
        let cells = match client.transport {
            Transport::Stdio => cells(&script, client.word, [binary, Path::new("serve")]),
            Transport::Http => {
                let (url, token) = (Path::new(&server.url), Path::new(&token));
                cells(&script, client.word, [url, token])
            }
        };
        let mut row = format!("{:<26}", client.name);
        for name in names() {
            if !client.has(name) {
                row += &format!("{:>18}", "-");
                continue;
            }
            let cell = cells.iter().find(|cell| cell["cell"] == name);
            let wrong = cell.map_or_else(|| vec!["no answer".to_owned()], faults);
            tally.add(Tally {
                passed: u64::from(wrong.is_empty()),
                failed: u64::from(!wrong.is_empty()),
                retried: 0,
            });
            let text = match cell {
                Some(cell) if wrong.is_empty() => cell["bytes"].to_string(),
                _ => "FAILED".to_owned(),
            };
            row += &format!("{text:>18}");
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

/// Returns the bad outcome and the warnings of a cell.
fn faults(cell: &Value) -> Vec<String> {
    let outcome = cell["outcome"].as_str().filter(|outcome| *outcome != "ok");
    let warnings = cell["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.map(|warning| format!("warning: {}", warning.as_str().unwrap_or_default()));
    outcome.map(str::to_owned).into_iter().chain(warnings).collect()
}

/// Runs the client and returns the lines of its script. The error of a client that failed is printed above its row.
fn cells(script: &Script, word: &str, server: [&Path; 2]) -> Vec<Value> {
    let mut client = command("timeout", [SECONDS_MAX]);
    client.args(script).args([word, "--"]).args(server);
    client.env("PYTHONDONTWRITEBYTECODE", "1");
    let output = capture(client).unwrap_or_else(|error| {
        println!("{error}");
        String::new()
    });
    output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Returns the library's interpreter and script, and installs the library first if it is missing.
pub fn installed(workspace: &Workspace, library: Library) -> Result<Script, String> {
    let scripts = workspace.root.join("tests/clients");
    let python = match library {
        Library::Node => {
            let directory = npm_directory(workspace, &scripts, "node-clients")?;
            return Ok(["node".into(), directory.join("node.mjs")]);
        }
        Library::Official(version) => mcp_client::environment(workspace, version)?,
        Library::Python(name, packages) => mcp_client::venv(workspace, name, packages)?,
    };
    Ok([python, scripts.join("frameworks.py")])
}

/// Returns a directory with all files of `scripts` and the modules that npm installs by the lists there. Node.js looks
/// for modules beside a script, so the scripts are copied to the modules.
pub fn npm_directory(workspace: &Workspace, scripts: &Path, name: &str) -> Result<PathBuf, String> {
    let directory = workspace.target.join(name);
    let failed = |error| format!("{}: {error}", directory.display());
    let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
    let before = read("package-lock.json");
    fs::create_dir_all(&directory).map_err(failed)?;
    for file in fs::read_dir(scripts).map_err(failed)?.flatten() {
        fs::copy(file.path(), directory.join(file.file_name())).map_err(failed)?;
    }
    // npm writes this file last.
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
