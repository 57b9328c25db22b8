//! Sessions through the tools: state between calls, order of calls, ends of a session, and attacks.

mod attacks;
mod commands;
mod ends;
mod secrets;
mod state;
mod turns;
mod values;

use crate::client::*;
use std::time::{Duration, Instant};

impl Server {
    /// [`McpClient::eval`] with more arguments.
    fn eval_with(&mut self, id: &str, code: &str, more: Value) -> Value {
        self.run(arguments(id, code, more))
    }

    /// Runs code that prints `begun` and does not end, until its timeout: the shortest of several within which this
    /// machine starts the code. Asserts that the answer follows soon after the timeout.
    fn run_until_timeout(&mut self, id: &str, code: &str) -> Value {
        for seconds in [0.4, 2.0, 10.0] {
            let begun = Instant::now();
            let late = self.eval_with(id, code, json!({"timeout_seconds": seconds}));
            assert_took_at_most(begun.elapsed(), Duration::from_secs_f64(seconds + 5.6));
            if text_of(&late["stdout"]).starts_with("begun\n") {
                return late;
            }
        }
        panic!("{code} does not begin");
    }

    /// [`Server::eval_with`] without waiting; returns the request's id.
    fn send_eval(&mut self, id: &str, code: &str, more: Value) -> u64 {
        let arguments = arguments(id, code, more);
        let params = json!({"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": id}});
        self.send("tools/call", params)
    }

    /// Sends a call, and waits until its program has printed `begun`; returns the request's id.
    fn send_eval_until_begun(&mut self, id: &str, code: &str) -> u64 {
        let request = self.send_eval(id, code, json!({"timeout_seconds": 100}));
        loop {
            let message = self.receive();
            assert_ne!(message["id"], json!(request), "it has not begun: {message}");
            let output = message["params"]["message"].as_str();
            if message["params"]["progressToken"] == id
                && output.is_some_and(|output| output.contains("begun"))
            {
                return request;
            }
        }
    }

    fn terminate(&mut self, id: &str) -> Value {
        self.facts("terminate_session", json!({"session_id": id}))
    }

    /// The session's entry in `list_sessions`; null if it is not listed.
    fn listed(&mut self, id: &str) -> Value {
        let listed = self.facts("list_sessions", json!({}));
        let sessions = list_of(&listed["sessions"]);
        let found = sessions.iter().find(|session| session["session_id"] == id);
        found.cloned().unwrap_or(Value::Null)
    }

    /// Waits for a file in the session's workspace, by which a program between calls reports its progress.
    fn await_file(&mut self, id: &str, path: &str) {
        let is_listed = |server: &mut Self| {
            let listed = server.facts("list_files", json!({"session_id": id}));
            listed["files"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|file| file["path"] == path)
        };
        assert!(
            becomes_true_within(PATIENCE, || is_listed(self)),
            "{path} does not appear"
        );
    }
}

fn arguments(id: &str, code: &str, more: Value) -> Value {
    let mut arguments = more;
    arguments["session_id"] = json!(id);
    arguments["code"] = json!(code);
    arguments
}

/// The answer to this request.
fn answer_to(answers: &[(u64, Value)], request: u64) -> &Value {
    let found = answers.iter().find(|(id, _)| *id == request);
    &found.unwrap().1
}

/// Asserts that a call succeeded with this value.
#[track_caller]
fn assert_result(answer: &Value, value: &Value) {
    answer.assert_fields(json!({"success": true, "result": value}));
}

/// Runs the story on every kind of server, with and without warm sandboxes: as the test's user and, if that is root,
/// also as an ordinary user.
fn on_each_kind(mut story: impl FnMut(&mut Server, &str)) {
    for config in ["", "warm: {ready: 0}\n"] {
        story(&mut Server::with_config(config), config);
        if let Some(nobody) = Nobody::new(config) {
            story(&mut nobody.serve(), &format!("nobody {config}"));
        }
    }
}
