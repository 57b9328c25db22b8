//! Sessions through the tools: what stays between calls, how calls take turns, how a session ends, what it cannot do.

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
    /// [`Caller::eval`] with more arguments.
    fn eval_with(&mut self, id: &str, code: &str, more: Value) -> Value {
        self.run(arguments(id, code, more))
    }

    /// A call that says that it has begun and does not end: in the shortest time, of some, in which this machine begins
    /// it. It is answered soon after that time.
    fn runs_out_of_time(&mut self, id: &str, code: &str) -> Value {
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

    /// The same without waiting; the request's id.
    fn begin(&mut self, id: &str, code: &str, more: Value) -> u64 {
        let arguments = arguments(id, code, more);
        let params = json!({"name": "execute_code", "arguments": arguments, "_meta": {"progressToken": id}});
        self.send("tools/call", params)
    }

    /// The same, until it has said `begun`.
    fn begun(&mut self, id: &str, code: &str) -> u64 {
        let request = self.begin(id, code, json!({"timeout_seconds": 100}));
        loop {
            let message = self.receive();
            assert_ne!(message["id"], json!(request), "it has not begun: {message}");
            let told = message["params"]["message"].as_str();
            if message["params"]["progressToken"] == id && told.is_some_and(|told| told.contains("begun")) {
                return request;
            }
        }
    }

    fn end(&mut self, id: &str) -> Value {
        self.facts("terminate_session", json!({"session_id": id}))
    }

    /// What `list_sessions` says of it; null: it is not there.
    fn listed(&mut self, id: &str) -> Value {
        let listed = self.facts("list_sessions", json!({}));
        let sessions = list_of(&listed["sessions"]);
        let found = sessions.iter().find(|session| session["session_id"] == id);
        found.cloned().unwrap_or(Value::Null)
    }

    /// Waits until the file is in the session's workspace, by which what runs between calls tells how far it has come.
    fn await_file(&mut self, id: &str, path: &str) {
        let has = |server: &mut Self| {
            let listed = server.facts("list_files", json!({"session_id": id}));
            listed["files"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|file| file["path"] == path)
        };
        assert!(within(PATIENCE, || has(self)), "{path} does not come");
    }
}

fn arguments(id: &str, code: &str, more: Value) -> Value {
    let mut arguments = more;
    arguments["session_id"] = json!(id);
    arguments["code"] = json!(code);
    arguments
}

/// What was answered to this request.
fn of(answers: &[(u64, Value)], request: u64) -> &Value {
    let found = answers.iter().find(|(id, _)| *id == request);
    &found.unwrap().1
}

/// A value that a call has given.
#[track_caller]
fn gives(said: &Value, value: &Value) {
    said.shows(json!({"success": true, "result": value}));
}

/// Every kind of server that sessions are the same on: as whoever tests and, where that is root, as an ordinary user; with
/// sandboxes that stand ready and without.
fn on_each_kind(mut story: impl FnMut(&mut Server, &str)) {
    for config in ["", "warm: {ready: 0}\n"] {
        story(&mut Server::with(config), config);
        if let Some(nobody) = Nobody::new(config) {
            story(&mut nobody.serve(), &format!("nobody {config}"));
        }
    }
}
