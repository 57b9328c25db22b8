//! The tools: names, descriptions that tell a model when to use which, and hints for the client.

use super::{Offer, schemas};
use crate::settings::Toolset;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(super) const EXECUTE_CODE: &str = "execute_code";
pub(super) const LIST_RUNTIMES: &str = "list_runtimes";
pub(super) const GET_SANDBOX_INFO: &str = "get_sandbox_info";

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

/// The tools of the toolsets that the operator offers.
pub(super) fn list(offer: &Offer) -> Vec<Tool> {
    offer
        .toolsets
        .iter()
        .flat_map(|toolset| match toolset {
            Toolset::Execute => [execute_code(offer), list_runtimes(offer), sandbox_info(offer)],
        })
        .collect()
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
