//! Operations of every MCP client, over pipes or HTTP: calls of tools, with their results as JSON.

use super::{Facts, PATIENCE, eventually, list_of, text_of};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Instant;

pub trait McpClient {
    /// Sends a request and returns the response message.
    fn rpc(&mut self, method: &str, params: Value) -> Value;

    /// Calls a tool and returns the `result` of the response.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.rpc("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// Calls a tool and returns its structured content, or the code, message and hint of its error.
    fn facts(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).facts()
    }

    /// The structured content of a call that must succeed.
    #[track_caller]
    fn call_ok(&mut self, tool: &str, arguments: Value) -> Value {
        let facts = self.facts(tool, arguments);
        assert_eq!(facts["success"], true, "{tool}: {facts}");
        facts
    }

    /// The error of a call that must fail with this code.
    #[track_caller]
    fn call_error(&mut self, tool: &str, arguments: Value, code: &str) -> Value {
        let request = arguments.to_string();
        let facts = self.facts(tool, arguments);
        assert_eq!(facts["code"], code, "{tool} {request}: {facts}");
        facts
    }

    /// Calls `execute_code`.
    fn run(&mut self, arguments: Value) -> Value {
        self.facts("execute_code", arguments)
    }

    /// Runs a program in this language.
    fn execute(&mut self, language: &str, code: &str) -> Value {
        self.run(json!({"language": language, "code": code}))
    }

    /// Runs a shell program in the namespace workspace.
    fn execute_in_workspace(&mut self, code: &str) -> Value {
        self.run(json!({"language": "shell", "code": code, "workspace": "namespace"}))
    }

    /// Creates a session and returns its id.
    #[track_caller]
    fn create_session(&mut self, options: Value) -> String {
        text_of(&self.call_ok("create_session", options)["session_id"]).to_owned()
    }

    /// Runs code in a session.
    fn eval(&mut self, session: impl Serialize, code: &str) -> Value {
        self.run(json!({"session_id": session, "code": code}))
    }

    fn get_execution(&mut self, id: impl Serialize) -> Value {
        self.facts("get_execution", json!({"execution_id": id}))
    }

    /// Polls `get_execution` until the execution has ended; fails after [`PATIENCE`].
    #[track_caller]
    fn await_execution(&mut self, id: impl Serialize) -> Value {
        let arguments = json!({"execution_id": id, "wait_seconds": 25});
        let deadline = Instant::now() + PATIENCE;
        loop {
            let facts = self.facts("get_execution", arguments.clone());
            if facts["running"] != true {
                return facts;
            }
            assert!(Instant::now() < deadline, "it has not ended: {facts}");
        }
    }

    /// The execution that started last.
    fn latest_execution(&mut self) -> Value {
        self.facts("list_executions", json!({}))["executions"][0].clone()
    }

    fn cancel_execution(&mut self, id: impl Serialize) -> Value {
        self.facts("cancel_execution", json!({"execution_id": id}))
    }

    fn interrupt(&mut self, session: impl Serialize) -> Value {
        self.facts("interrupt_session", json!({"session_id": session}))
    }

    /// Audit records with this action, newest first.
    fn audit_records(&mut self, action: &str) -> Vec<Value> {
        let query = json!({"action": action, "detail": true, "limit": 50});
        list_of(&self.facts("audit_execution", query)["records"]).to_vec()
    }

    /// Reads the resource at this URI.
    fn read_resource(&mut self, uri: impl Serialize) -> Value {
        self.rpc("resources/read", json!({"uri": uri}))
    }

    /// Gets a prompt with these arguments.
    fn get_prompt(&mut self, name: &str, arguments: Value) -> Value {
        self.rpc("prompts/get", json!({"name": name, "arguments": arguments}))
    }

    fn runtimes(&mut self) -> Vec<Value> {
        list_of(&self.facts("list_runtimes", json!({}))["runtimes"]).to_vec()
    }

    /// Waits until a sandbox for this language is warm.
    fn wait_until_warm(&mut self, language: &str) {
        let is_warm = |runtime: &Value| runtime["language"] == language && runtime["warm"] == true;
        eventually(|| self.runtimes().iter().any(is_warm));
    }
}
