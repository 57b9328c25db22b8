//! The tools: names, descriptions that tell a model when to use which, and hints for the client.

use super::{
    Offer, check_schemas, egress_schemas, package_schemas, schemas, session_schemas, workspace_schemas,
};
use crate::settings::Toolset;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(super) const EXECUTE_CODE: &str = "execute_code";
pub(super) const INSTALL_PACKAGE: &str = "install_package";
pub(super) const LIST_RUNTIMES: &str = "list_runtimes";
pub(super) const GET_SANDBOX_INFO: &str = "get_sandbox_info";
pub(super) const CREATE_SESSION: &str = "create_session";
pub(super) const LIST_SESSIONS: &str = "list_sessions";
pub(super) const TERMINATE_SESSION: &str = "terminate_session";
pub(super) const INTERRUPT_SESSION: &str = "interrupt_session";
pub(super) const BRIDGE_DATA: &str = "bridge_data";
pub(super) const GET_ARTIFACTS: &str = "get_artifacts";
pub(super) const SET_RESOURCE_LIMITS: &str = "set_resource_limits";
pub(super) const SANDBOX_STATS: &str = "sandbox_stats";
pub(super) const GET_SANDBOX_METRICS: &str = "get_sandbox_metrics";
pub(super) const INSPECT_STATE: &str = "inspect_state";
pub(super) const AUDIT_EXECUTION: &str = "audit_execution";
pub(super) const VAULT_LIST: &str = "vault_list";
pub(super) const VAULT_DELETE: &str = "vault_delete";
pub(super) const RUN_SANDBOX_CODE: &str = "run_sandbox_code";
pub(super) const PUT_FILE: &str = "put_file";
pub(super) const GET_FILE: &str = "get_file";
pub(super) const LIST_FILES: &str = "list_files";
pub(super) const CREATE_STATE_SNAPSHOT: &str = "create_state_snapshot";
pub(super) const RESTORE_STATE_SNAPSHOT: &str = "restore_state_snapshot";
pub(super) const LIST_STATE_SNAPSHOTS: &str = "list_state_snapshots";
pub(super) const DELETE_STATE_SNAPSHOT: &str = "delete_state_snapshot";
pub(super) const DIFF_WORKSPACE: &str = "diff_workspace";

pub(super) const REQUEST_EGRESS: &str = "request_egress";

pub(super) const VALIDATE_CODE: &str = "validate_code";
pub(super) const VALIDATE_JSON: &str = "validate_json_data";
pub(super) const VALIDATE_CSV: &str = "validate_csv_data";

const ALL: [&str; 30] = [
    EXECUTE_CODE,
    INSTALL_PACKAGE,
    LIST_RUNTIMES,
    GET_SANDBOX_INFO,
    CREATE_SESSION,
    LIST_SESSIONS,
    TERMINATE_SESSION,
    INTERRUPT_SESSION,
    BRIDGE_DATA,
    GET_ARTIFACTS,
    SET_RESOURCE_LIMITS,
    SANDBOX_STATS,
    GET_SANDBOX_METRICS,
    INSPECT_STATE,
    AUDIT_EXECUTION,
    VAULT_LIST,
    VAULT_DELETE,
    RUN_SANDBOX_CODE,
    PUT_FILE,
    GET_FILE,
    LIST_FILES,
    CREATE_STATE_SNAPSHOT,
    RESTORE_STATE_SNAPSHOT,
    LIST_STATE_SNAPSHOTS,
    DELETE_STATE_SNAPSHOT,
    DIFF_WORKSPACE,
    REQUEST_EGRESS,
    VALIDATE_CODE,
    VALIDATE_JSON,
    VALIDATE_CSV,
];

const ABOUT_EXECUTE_CODE: &str = "Run a complete program in Python, JavaScript or TypeScript (Node.js) or bash, in a \
    fresh sandbox that the Linux kernel enforces. Use it to calculate, to transform data, to try code out, to make files. \
    It reaches no host but those that the operator lets it (`allowed_domains` narrows them), nothing of the host is visible, and nothing is kept between calls but in a session (`session_id`): name what it imports in \
    `packages`, send input as `files` or \
    `stdin`, and write results to stdout or to files in the working directory (/workspace) or in $RINGFENCE_OUTPUT_DIR; \
    files come back as artifacts. In Python the value of the last expression comes back as `result`. A program that fails \
    or runs out of time or memory is a result with success = false, its output so far, and the reason in `exit` or \
    `error`.";
const ABOUT_INSTALL: &str = "Install packages from the operator's index (PyPI, npm) ahead of the program that imports them: \
    wheels only, no scripts are run, hashes are recorded. A set is installed once for all; a program has it when its \
    execute_code names the same `packages`. Use it to have the wait for a download before the program, or to learn which \
    versions fit.";
const ABOUT_LIST_RUNTIMES: &str = "List the languages that execute_code can run on this server, with their versions and \
    the reason for each that is missing. Use it before relying on a language or a version.";
const ABOUT_SANDBOX_INFO: &str = "Tell how programs are isolated on this server (tier and every layer) and which limits \
    apply by default and at most. Use it to decide what to ask for in resource_limits, or to report how safe a run is.";
const ABOUT_ARTIFACTS: &str = "List the files that an earlier execution left, with size, type, SHA-256 digest, Ed25519 \
    signature and the address at which each can be read as a resource. Use it with the execution_id of a result when its \
    files are needed again or are to be verified.";
const ABOUT_LIMITS: &str = "Narrow what the programs of this namespace may use from now on: memory, processors, time, \
    processes, output, disk. Limits can be narrowed and never widened, and never pass the operator's caps. Use it before \
    running code that should be kept on a short leash.";
const ABOUT_STATS: &str = "Tell what this server does at this moment: programs that run and wait, sandboxes that stand \
    ready for each language, the memory that they and the server take, and how much room artifacts take. Use it to find \
    out why calls are slow or refused as busy.";
const ABOUT_METRICS: &str = "Tell what was counted since the server started: executions by language and outcome, \
    durations (p50, p90, p99), refusals by code, limits that were passed, processor time, secrets that were taken out of \
    output. Use it to report on a longer piece of work.";
const ABOUT_INSPECT: &str = "Tell the state of one namespace: its requests that run and wait, its limits, the names of its \
    secrets, and what happened in it lately. Use it to find out what is going on before starting or blaming a program.";
const ABOUT_AUDIT: &str = "Read the audit record of this namespace, newest first: executions with code digest, limits and \
    outcome, use of secrets, refusals. The record is hash-chained and signed and cannot be changed from here. Use it to \
    find out what was run, when and by whom.";
const ABOUT_VAULT_LIST: &str = "List the names of this namespace's secrets, never their values. A program gets a secret as an \
    environment variable when execute_code names it in `secrets`. Use it before asking a person for a credential that \
    may be there already.";
const ABOUT_VAULT_DELETE: &str = "Forget a secret of this namespace. It cannot be brought back from here; a person has to \
    enter it again. Use it when a credential is no longer needed or has been revoked.";

const ABOUT_RUN_SANDBOX_CODE: &str = "Run a complete Python program in a fresh sandbox, in the working directory that is kept \
    for the namespace: files that earlier calls left are there, and what this one leaves stays for the next. Variables are not \
    kept. The code is read strictly first: with a warning it is refused, and the refusal says what to change. Use it for a short \
    step of work on files; execute_code has every option.";
const ABOUT_VALIDATE_CODE: &str = "Read a program without running it: syntax, what it reaches for (processes, network, files, \
    dynamic execution, reflection), what a profile forbids, the hosts that it names, how complex it is. Missing imports of Python \
    are added in fixed_code; nothing else is changed. Use it before running code that somebody else wrote, to mend code that was \
    refused, or to learn what a profile allows. A pass is advice and no promise: the sandbox's walls are the kernel's.";
const ABOUT_VALIDATE_JSON: &str = "Say whether JSON is what a JSON Schema wants, with every error by JSON Pointer: a registered \
    schema by its name (config, user, dataset and the operator's own; the resource sandbox://schemas has them), or one sent along. \
    References lead nowhere but into the schema itself. Use it before relying on data, or to check what you have written.";
const ABOUT_VALIDATE_CSV: &str = "Say whether a table of comma-separated values is whole and has the columns and types that are \
    wanted, with every error by row and column: quoting, ragged rows, encoding, types, ranges, patterns, duplicates. Use it \
    before computing with a table that somebody else made.";
const ABOUT_PUT_FILE: &str = "Write one file into a workspace without running a program: the one that is kept for the \
    namespace, or a session's. Directories above it are made; a plain file in its place is replaced. With archive, a directory \
    that comes as a tar archive. Use it to give programs their input, or to edit what they made. A program finds what was put without \
    session_id only if its execute_code says workspace: \"namespace\".";
const ABOUT_GET_FILE: &str = "Read one file of a workspace without running a program: the one that is kept for the namespace, \
    or a session's. Text comes as text, anything else as base64, at most 4 MiB. With archive, a directory comes as a tar \
    archive. Use it to look at what a program left; large files are better looked at by a program.";
const ABOUT_LIST_FILES: &str = "List the files of a workspace with size, time, permissions and SHA-256 digest: of the one that \
    is kept for the namespace, or a session's. Use it to find out what is there before reading or running anything.";
const ABOUT_CREATE_SNAPSHOT: &str = "Save the files of a workspace as they are now: of the one that is kept for the namespace, or \
    a session's. Contents that did not change cost nothing. Use it before a program is allowed to change much, or when a piece \
    of work is done.";
const ABOUT_RESTORE_SNAPSHOT: &str = "Put a workspace back to what it was when the snapshot was taken: files that came since are \
    deleted, changed ones are written, deleted ones come back. What is in the memory of a session stays as it is. Use it when a \
    program has ruined its files.";
const ABOUT_LIST_SNAPSHOTS: &str = "List the saved workspaces of this namespace, oldest first, with time, size, description and \
    whose workspace each was. Use it to find the state to go back to.";
const ABOUT_DELETE_SNAPSHOT: &str = "Forget a saved workspace and give back the room that only it takes. It cannot be brought \
    back. Use it when a state is no longer needed, or when the namespace has too many.";
const ABOUT_CREATE_SESSION: &str = "Start an interpreter (Python, Node.js, TypeScript or bash) that stays alive in a sandbox of \
    its own, as a notebook's does: variables, imports, functions, open files, the working directory and files are kept \
    between calls of execute_code with its session_id. Use it for work in several steps, or when loading data takes long. \
    It ends by itself when it is not used.";
const ABOUT_LIST_SESSIONS: &str = "List the sessions of this namespace that live, with their language, what they do now, how often \
    they were used, and when they end. Use it to find a session again, or to see which ones can be terminated.";
const ABOUT_TERMINATE_SESSION: &str = "End a session with everything that runs in it. What it held in memory and in its private \
    workspace is gone for good. Use it when the work is done, or when a session is in a state that cannot be mended.";
const ABOUT_INTERRUPT_SESSION: &str = "Interrupt the call that runs in a session, as Ctrl-C does. The call ends with an error of its \
    language, and the session's state is kept. Use it when a call takes too long and the session is worth keeping.";
const ABOUT_BRIDGE_DATA: &str = "Give a session a variable: a JSON value, or the value of a variable in another session, across \
    languages (Python, Node.js, bash). Dates, bytes, large integers and NaN keep their kind; a time without a zone is a \
    text in Node.js, and a table of pandas becomes a list of records. Use it to hand a result over without printing and parsing it.";

const ABOUT_DIFF: &str = "Tell what has changed in a workspace since a snapshot of it: files that were added, changed and \
    deleted, with unified diffs, and flags on what the host may later run (git hooks, CI files, editor tasks, executables and \
    others). Use it to review what programs did before relying on it, or before putting a state back.";

const ABOUT_REQUEST_EGRESS: &str = "Ask a person whether programs may reach a host on the network. The call waits for the answer; \
    without one it is denied after a while. Use it when a program cannot do without a host that it was refused, with a reason \
    that a person can judge; a denial is final for a minute, and is to be worked around.";

/// The name of a tool, for good.
pub(super) fn name(text: &str) -> Option<&'static str> {
    ALL.into_iter().find(|name| *name == text)
}

/// The tools of the toolsets that the operator offers.
pub(super) fn list(offer: &Offer) -> Vec<Tool> {
    let of_toolset = |toolset: &Toolset| match toolset {
        Toolset::Execute => vec![
            execute_code(offer),
            run_sandbox_code(offer),
            validate_code(offer),
            install_package(offer),
            list_runtimes(offer),
            sandbox_info(offer),
        ],
        Toolset::Sessions => [sessions(offer), files(offer)].concat(),
        Toolset::Snapshots => snapshots(offer),
        Toolset::Data => data(offer),
        Toolset::Observe => observe(offer),
        Toolset::Vault => vault(offer),
        Toolset::Egress => vec![request_egress(offer)],
    };
    offer.toolsets.iter().flat_map(of_toolset).collect()
}

fn sessions(offer: &Offer) -> Vec<Tool> {
    let makes = || changes().idempotent(false);
    vec![
        tool(
            CREATE_SESSION,
            "Keep an interpreter alive",
            ABOUT_CREATE_SESSION,
            makes(),
        )
        .with_schemas(session_schemas::create_session(offer), session_schemas::created()),
        tool(LIST_SESSIONS, "List sessions", ABOUT_LIST_SESSIONS, reads())
            .with_schemas(schemas::nothing(offer), session_schemas::sessions()),
        tool(
            INTERRUPT_SESSION,
            "Interrupt a session's call",
            ABOUT_INTERRUPT_SESSION,
            makes(),
        )
        .with_schemas(
            session_schemas::one_session(offer),
            session_schemas::interrupted(),
        ),
        tool(
            TERMINATE_SESSION,
            "End a session",
            ABOUT_TERMINATE_SESSION,
            changes().destructive(true),
        )
        .with_schemas(session_schemas::one_session(offer), session_schemas::terminated()),
        tool(BRIDGE_DATA, "Give a session a value", ABOUT_BRIDGE_DATA, makes())
            .with_schemas(session_schemas::bridge_data(offer), session_schemas::bridged()),
    ]
}

fn observe(offer: &Offer) -> Vec<Tool> {
    vec![
        tool(
            GET_ARTIFACTS,
            "List what an execution left",
            ABOUT_ARTIFACTS,
            reads(),
        )
        .with_schemas(schemas::get_artifacts(offer), schemas::artifacts()),
        tool(SET_RESOURCE_LIMITS, "Narrow limits", ABOUT_LIMITS, changes())
            .with_schemas(schemas::set_limits(offer), schemas::limits_now()),
        tool(SANDBOX_STATS, "Describe the server's state", ABOUT_STATS, reads())
            .with_schemas(schemas::nothing(offer), schemas::stats()),
        tool(GET_SANDBOX_METRICS, "Count what was done", ABOUT_METRICS, reads())
            .with_schemas(schemas::nothing(offer), schemas::metrics()),
        tool(INSPECT_STATE, "Describe a namespace", ABOUT_INSPECT, reads())
            .with_schemas(schemas::nothing(offer), schemas::inspection()),
        tool(AUDIT_EXECUTION, "Read the audit record", ABOUT_AUDIT, reads())
            .with_schemas(schemas::audit_execution(offer), schemas::records()),
    ]
}

fn vault(offer: &Offer) -> Vec<Tool> {
    vec![
        tool(VAULT_LIST, "List secrets", ABOUT_VAULT_LIST, reads())
            .with_schemas(schemas::nothing(offer), schemas::secrets()),
        tool(
            VAULT_DELETE,
            "Forget a secret",
            ABOUT_VAULT_DELETE,
            changes().destructive(true),
        )
        .with_schemas(schemas::vault_delete(offer), schemas::deleted()),
    ]
}

fn request_egress(offer: &Offer) -> Tool {
    // The same again is the same question, and what it opens is the network.
    let hints = changes().open_world(true);
    tool(REQUEST_EGRESS, "Ask to reach a host", ABOUT_REQUEST_EGRESS, hints)
        .with_schemas(egress_schemas::request_egress(offer), egress_schemas::decided())
}

/// The same again changes nothing more.
fn changes() -> ToolAnnotations {
    reads().read_only(false)
}

fn execute_code(offer: &Offer) -> Tool {
    // What a program does stays in its sandbox: nothing is destroyed, nobody is reached.
    let hints = ToolAnnotations::new()
        .read_only(false)
        .destructive(false)
        .idempotent(false)
        .open_world(false);
    tool(EXECUTE_CODE, "Run code in a sandbox", ABOUT_EXECUTE_CODE, hints)
        .with_schemas(schemas::execute_code(offer), schemas::execution_result())
}

fn run_sandbox_code(offer: &Offer) -> Tool {
    // What it leaves may replace what others have left.
    let hints = ToolAnnotations::new()
        .read_only(false)
        .destructive(true)
        .idempotent(false)
        .open_world(false);
    let title = "Run Python on the kept files";
    tool(RUN_SANDBOX_CODE, title, ABOUT_RUN_SANDBOX_CODE, hints).with_schemas(
        workspace_schemas::run_sandbox_code(offer),
        schemas::execution_result(),
    )
}

fn validate_code(offer: &Offer) -> Tool {
    tool(
        VALIDATE_CODE,
        "Read code without running it",
        ABOUT_VALIDATE_CODE,
        reads(),
    )
    .with_schemas(check_schemas::validate_code(offer), check_schemas::validation())
}

fn data(offer: &Offer) -> Vec<Tool> {
    use check_schemas as of;
    vec![
        tool(
            VALIDATE_JSON,
            "Hold JSON against a schema",
            ABOUT_VALIDATE_JSON,
            reads(),
        )
        .with_schemas(of::validate_json(offer), of::json_report()),
        tool(VALIDATE_CSV, "Check a table", ABOUT_VALIDATE_CSV, reads())
            .with_schemas(of::validate_csv(offer), of::csv_report()),
    ]
}

fn files(offer: &Offer) -> Vec<Tool> {
    use workspace_schemas as of;
    vec![
        tool(
            PUT_FILE,
            "Write a file",
            ABOUT_PUT_FILE,
            changes().destructive(true),
        )
        .with_schemas(of::put_file(offer), of::file_put()),
        tool(GET_FILE, "Read a file", ABOUT_GET_FILE, reads())
            .with_schemas(of::get_file(offer), of::file_got()),
        tool(LIST_FILES, "List files", ABOUT_LIST_FILES, reads())
            .with_schemas(of::list_files(offer), of::files()),
    ]
}

fn snapshots(offer: &Offer) -> Vec<Tool> {
    use workspace_schemas as of;
    let adds = changes().idempotent(false);
    let replaces = changes().destructive(true);
    vec![
        tool(
            CREATE_STATE_SNAPSHOT,
            "Save a workspace",
            ABOUT_CREATE_SNAPSHOT,
            adds,
        )
        .with_schemas(of::create_snapshot(offer), of::snapshot_made()),
        tool(
            RESTORE_STATE_SNAPSHOT,
            "Put a workspace back",
            ABOUT_RESTORE_SNAPSHOT,
            replaces.clone(),
        )
        .with_schemas(of::restore_snapshot(offer), of::snapshot_restored()),
        tool(
            LIST_STATE_SNAPSHOTS,
            "List saved workspaces",
            ABOUT_LIST_SNAPSHOTS,
            reads(),
        )
        .with_schemas(schemas::nothing(offer), of::snapshots()),
        tool(
            DELETE_STATE_SNAPSHOT,
            "Forget a saved workspace",
            ABOUT_DELETE_SNAPSHOT,
            replaces,
        )
        .with_schemas(of::delete_snapshot(offer), of::snapshot_deleted()),
        tool(DIFF_WORKSPACE, "Tell what has changed", ABOUT_DIFF, reads())
            .with_schemas(of::diff(offer), of::difference()),
    ]
}

fn install_package(offer: &Offer) -> Tool {
    // The same again changes nothing; the first time reaches an index.
    let hints = changes().open_world(true);
    tool(INSTALL_PACKAGE, "Install packages", ABOUT_INSTALL, hints).with_schemas(
        package_schemas::install_package(offer),
        package_schemas::installed(),
    )
}

fn list_runtimes(offer: &Offer) -> Tool {
    tool(LIST_RUNTIMES, "List languages", ABOUT_LIST_RUNTIMES, reads())
        .with_schemas(schemas::nothing(offer), schemas::runtimes())
}

fn sandbox_info(offer: &Offer) -> Tool {
    tool(
        GET_SANDBOX_INFO,
        "Describe the sandbox",
        ABOUT_SANDBOX_INFO,
        reads(),
    )
    .with_schemas(schemas::nothing(offer), schemas::sandbox_info())
}

fn reads() -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false)
}

fn tool(name: &'static str, title: &str, about: &'static str, hints: ToolAnnotations) -> Tool {
    Tool::new(name, about, Map::new())
        .with_title(title)
        .with_annotations(hints)
}

/// Both schemas of a tool at once.
trait WithSchemas {
    fn with_schemas(self, input: Value, output: Value) -> Self;
}

impl WithSchemas for Tool {
    fn with_schemas(mut self, input: Value, output: Value) -> Self {
        let object = |schema: Value| {
            Arc::new(if let Value::Object(object) = schema {
                object
            } else {
                Map::new()
            })
        };
        self.input_schema = object(input);
        self.with_raw_output_schema(object(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mcp::execute_code::tests::offer, settings::Namespaces};

    #[test]
    fn the_list_of_tools_is_golden() {
        let text = serde_json::to_string_pretty(&list(&offer())).unwrap() + "\n";
        crate::golden::compare("tools-list.json", &text);
    }

    #[test]
    fn every_tool_is_described_hinted_and_closed() {
        for tool in list(&offer()) {
            assert!(
                tool.description.as_ref().is_some_and(|about| about.len() > 100),
                "{}",
                tool.name
            );
            let hints = tool.annotations.as_ref().unwrap();
            assert!(
                hints.read_only_hint.is_some()
                    && hints.open_world_hint
                        == Some([INSTALL_PACKAGE, REQUEST_EGRESS].contains(&tool.name.as_ref())),
                "{}",
                tool.name
            );
            assert_eq!(
                tool.input_schema["additionalProperties"],
                Value::Bool(false),
                "{}",
                tool.name
            );
            assert_eq!(
                tool.output_schema.as_ref().unwrap()["additionalProperties"],
                Value::Bool(false),
                "{}",
                tool.name
            );
            assert!(
                !serde_json::to_string(&tool).unwrap().contains("\"format\""),
                "{}",
                tool.name
            );
        }
    }

    #[test]
    fn a_fixed_namespace_is_not_offered() {
        let fixed = Offer {
            namespaces: Namespaces::Fixed,
            ..offer()
        };
        for (free, fixed) in list(&offer()).iter().zip(list(&fixed)) {
            assert!(
                free.input_schema["properties"].get("namespace").is_some(),
                "{}",
                free.name
            );
            assert!(
                fixed.input_schema["properties"].get("namespace").is_none(),
                "{}",
                fixed.name
            );
        }
    }
}
