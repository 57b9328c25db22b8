//! The tools: names, descriptions that tell a model when to use which, and hints for the client.

use super::{Offer, schemas};
use crate::settings::Toolset;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(super) const EXECUTE_CODE: &str = "execute_code";
pub(super) const LIST_RUNTIMES: &str = "list_runtimes";
pub(super) const GET_SANDBOX_INFO: &str = "get_sandbox_info";
pub(super) const GET_ARTIFACTS: &str = "get_artifacts";
pub(super) const SET_RESOURCE_LIMITS: &str = "set_resource_limits";
pub(super) const SANDBOX_STATS: &str = "sandbox_stats";
pub(super) const GET_SANDBOX_METRICS: &str = "get_sandbox_metrics";
pub(super) const INSPECT_STATE: &str = "inspect_state";
pub(super) const AUDIT_EXECUTION: &str = "audit_execution";
pub(super) const VAULT_LIST: &str = "vault_list";
pub(super) const VAULT_DELETE: &str = "vault_delete";

const ALL: [&str; 11] = [
    EXECUTE_CODE,
    LIST_RUNTIMES,
    GET_SANDBOX_INFO,
    GET_ARTIFACTS,
    SET_RESOURCE_LIMITS,
    SANDBOX_STATS,
    GET_SANDBOX_METRICS,
    INSPECT_STATE,
    AUDIT_EXECUTION,
    VAULT_LIST,
    VAULT_DELETE,
];

const ABOUT_EXECUTE_CODE: &str = "Run a complete program in Python, JavaScript or TypeScript (Node.js) or bash, in a \
    fresh sandbox that the Linux kernel enforces. Use it to calculate, to transform data, to try code out, to make files. \
    There is no network, nothing of the host is visible, and nothing is kept between calls: send input as `files` or \
    `stdin`, and write results to stdout or to files in the working directory (/workspace) or in $RINGFENCE_OUTPUT_DIR; \
    files come back as artifacts. In Python the value of the last expression comes back as `result`. A program that fails \
    or runs out of time or memory is a result with success = false, its output so far, and the reason in `exit` or \
    `error`.";
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

/// The name of a tool, for good.
pub(super) fn name(text: &str) -> Option<&'static str> {
    ALL.into_iter().find(|name| *name == text)
}

/// The tools of the toolsets that the operator offers.
pub(super) fn list(offer: &Offer) -> Vec<Tool> {
    let of_toolset = |toolset: &Toolset| match toolset {
        Toolset::Execute => vec![execute_code(offer), list_runtimes(offer), sandbox_info(offer)],
        Toolset::Observe => observe(offer),
        Toolset::Vault => vault(offer),
    };
    offer.toolsets.iter().flat_map(of_toolset).collect()
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
                hints.read_only_hint.is_some() && hints.open_world_hint == Some(false),
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
