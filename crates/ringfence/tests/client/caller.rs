//! What every client of a server does, over pipes or over HTTP: it calls tools, and reads what they say.

use super::{Facts, PATIENCE, eventually, list_of, text_of};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Instant;

pub trait Caller {
    /// The answer to a request.
    fn ask(&mut self, method: &str, params: Value) -> Value;

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// What a tool says, as facts.
    fn facts(&mut self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).facts()
    }

    /// What a tool says that does what it is asked.
    #[track_caller]
    fn succeeds(&mut self, tool: &str, arguments: Value) -> Value {
        let facts = self.facts(tool, arguments);
        assert_eq!(facts["success"], true, "{tool}: {facts}");
        facts
    }

    /// What a tool says that refuses: this code.
    #[track_caller]
    fn refuses(&mut self, tool: &str, arguments: Value, code: &str) -> Value {
        let asked = arguments.to_string();
        let facts = self.facts(tool, arguments);
        assert_eq!(facts["code"], code, "{tool} {asked}: {facts}");
        facts
    }

    /// What `execute_code` says.
    fn run(&mut self, arguments: Value) -> Value {
        self.facts("execute_code", arguments)
    }

    /// The same of a program of this language.
    fn execute(&mut self, language: &str, code: &str) -> Value {
        self.run(json!({"language": language, "code": code}))
    }

    /// The same of a shell program in the workspace of its namespace.
    fn in_workspace(&mut self, code: &str) -> Value {
        self.run(json!({"language": "shell", "code": code, "workspace": "namespace"}))
    }

    /// Makes a session; its id.
    #[track_caller]
    fn create(&mut self, wish: Value) -> String {
        text_of(&self.succeeds("create_session", wish)["session_id"]).to_owned()
    }

    /// A call of a session.
    fn eval(&mut self, session: impl Serialize, code: &str) -> Value {
        self.run(json!({"session_id": session, "code": code}))
    }

    /// What `get_execution` says.
    fn execution(&mut self, id: impl Serialize) -> Value {
        self.facts("get_execution", json!({"execution_id": id}))
    }

    /// The same when it has ended, which it does in time.
    #[track_caller]
    fn end_of(&mut self, id: impl Serialize) -> Value {
        let asked = json!({"execution_id": id, "wait_seconds": 25});
        let deadline = Instant::now() + PATIENCE;
        loop {
            let facts = self.facts("get_execution", asked.clone());
            if facts["running"] != true {
                return facts;
            }
            assert!(Instant::now() < deadline, "it does not end: {facts}");
        }
    }

    /// The execution that began last.
    fn newest(&mut self) -> Value {
        self.facts("list_executions", json!({}))["executions"][0].clone()
    }

    /// What `cancel_execution` says.
    fn stop(&mut self, id: impl Serialize) -> Value {
        self.facts("cancel_execution", json!({"execution_id": id}))
    }

    fn interrupt(&mut self, session: impl Serialize) -> Value {
        self.facts("interrupt_session", json!({"session_id": session}))
    }

    /// Records of these actions, the newest first.
    fn records(&mut self, action: &str) -> Vec<Value> {
        let asked = json!({"action": action, "detail": true, "limit": 50});
        list_of(&self.facts("audit_execution", asked)["records"]).to_vec()
    }

    /// What is read at an address.
    fn read(&mut self, uri: impl Serialize) -> Value {
        self.ask("resources/read", json!({"uri": uri}))
    }

    /// A prompt, filled.
    fn prompt(&mut self, name: &str, arguments: Value) -> Value {
        self.ask("prompts/get", json!({"name": name, "arguments": arguments}))
    }

    fn runtimes(&mut self) -> Vec<Value> {
        list_of(&self.facts("list_runtimes", json!({}))["runtimes"]).to_vec()
    }

    /// Until a sandbox of this language stands ready.
    fn wait_until_warm(&mut self, language: &str) {
        let is_warm = |runtime: &Value| runtime["language"] == language && runtime["warm"] == true;
        eventually(|| self.runtimes().iter().any(is_warm));
    }
}
