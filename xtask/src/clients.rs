//! Real clients and agent frameworks against the real server: what each has of the list of tools, results, a refusal, a
//! failing program and long output, and of resources, progress, cancelling and questions where it has these. A script of `tests/clients` per language prints a line for each; here is the table.
//! No model is asked.

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

/// How a client reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    /// With a token.
    Http,
}

/// A row of the table.
pub struct Client {
    pub name: &'static str,
    /// The script's word for it.
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

/// What is done with each, as `tests/clients/calls.json` says.
const CELLS: [&str; 6] = ["list", "call", "languages", "refusal", "failure", "long output"];
const RESOURCE: &str = "resource";
/// What else a client does beside calls. The stories of `tests/mcp_client` have that of the official client for Python.
const FEATURES: [&str; 3] = [RESOURCE, "progress, cancel", "question"];

impl Client {
    /// Whether it has something to do for this column.
    fn does(&self, cell: &str) -> bool {
        match self.word {
            "sdk-1" | "sdk-2" | "fastmcp" => true,
            "inspector" | "inspector-modern" => cell == RESOURCE || CELLS.contains(&cell),
            _ => CELLS.contains(&cell),
        }
    }
}
/// Of one client with all its calls.
const SECONDS_MAX: &str = "120";

/// A program and its script, for one library.
type Script = [PathBuf; 2];

/// Those that call over HTTP, but for the one that declares tasks and waits for their end.
pub fn over_http() -> impl Iterator<Item = &'static Client> {
    let waits = |client: &&Client| client.word == "inspector-modern";
    CLIENTS
        .iter()
        .filter(move |client| client.transport == Transport::Http && !waits(client))
}

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
    let names = || CELLS.into_iter().chain(FEATURES);
    let columns: String = names().map(|cell| format!("{cell:>18}")).collect();
    println!(
        "bytes, as the client gives them to its caller\n{:<26}{columns}",
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
            if !client.does(name) {
                row += &format!("{:>18}", "-");
                continue;
            }
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
            row += &format!("{shown:>18}");
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
fn cells(script: &Script, word: &str, server: [&Path; 2]) -> Vec<Value> {
    let mut client = command("timeout", [SECONDS_MAX]);
    client.args(script).args([word, "--"]).args(server);
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
            let directory = npm_directory(workspace, &scripts, "node-clients")?;
            return Ok(["node".into(), directory.join("node.mjs")]);
        }
        Library::Official(version) => mcp_client::environment(workspace, version)?,
        Library::Python(name, packages) => mcp_client::venv(workspace, name, packages)?,
    };
    Ok([python, scripts.join("frameworks.py")])
}

/// What npm installs by the lists in `scripts`. Modules are looked for beside a script, so all files there are copied to
/// where they are.
pub fn npm_directory(workspace: &Workspace, scripts: &Path, name: &str) -> Result<PathBuf, String> {
    let directory = workspace.target.join(name);
    let said = |error| format!("{}: {error}", directory.display());
    let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
    let before = read("package-lock.json");
    fs::create_dir_all(&directory).map_err(said)?;
    for file in fs::read_dir(scripts).map_err(said)?.flatten() {
        fs::copy(file.path(), directory.join(file.file_name())).map_err(said)?;
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
