//! Sessions through the tools: what stays between calls, how calls take turns, how a session ends, what it cannot do.

mod attacks;
mod commands;
mod ends;
mod secrets;
mod state;
mod turns;
mod values;

use crate::client::{Server, binary, ringfence, state_dir, within};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

/// How long anything may take that is not a limit's own time.
const PATIENCE: Duration = Duration::from_secs(20);
pub const NOBODY: u32 = 65534;

impl Server {
    /// Makes a session; its id.
    fn create(&mut self, wish: Value) -> String {
        let made = self.facts("create_session", wish);
        assert_eq!(made["success"], true, "{made}");
        made["session_id"].as_str().unwrap().to_owned()
    }

    /// A call of a session.
    fn eval(&mut self, id: &str, code: &str) -> Value {
        self.eval_with(id, code, json!({}))
    }

    fn eval_with(&mut self, id: &str, code: &str, more: Value) -> Value {
        self.facts("execute_code", arguments(id, code, more))
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

    fn interrupt(&mut self, id: &str) -> Value {
        self.facts("interrupt_session", json!({"session_id": id}))
    }

    fn answer(&mut self, request: u64) -> Value {
        self.await_answer(request).0["result"]["structuredContent"].clone()
    }

    fn end(&mut self, id: &str) -> Value {
        self.facts("terminate_session", json!({"session_id": id}))
    }

    /// What `list_sessions` says of it; null: it is not there.
    fn listed(&mut self, id: &str) -> Value {
        let listed = self.facts("list_sessions", json!({}));
        let sessions = listed["sessions"].as_array().unwrap();
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

    fn records(&mut self, action: &str) -> Vec<Value> {
        let found = self.facts(
            "audit_execution",
            json!({"action": action, "detail": true, "limit": 50}),
        );
        found["records"].as_array().unwrap().clone()
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
    assert_eq!(
        (&said["success"], &said["result"]),
        (&json!(true), value),
        "{said}"
    );
}

/// A server of this configuration, YAML.
pub fn serving(config: &str) -> Server {
    Server::of(serve(config))
}

fn serve(config: &str) -> Command {
    fs::create_dir_all(state_dir()).unwrap();
    let path = state_dir().join("config.yaml");
    fs::write(&path, config).unwrap();
    let mut command = ringfence(&["serve", "--config"]);
    command.arg(path).stderr(Stdio::null());
    command
}

/// Every kind of server that sessions are the same on: as whoever tests and, where that is root, as an ordinary user; with
/// sandboxes that stand ready and without.
fn on_each_kind(mut story: impl FnMut(&mut Server, &str)) {
    for config in ["", "warm: {ready: 0}\n"] {
        story(&mut serving(config), config);
        if let Some(nobody) = Nobody::new(config) {
            story(&mut nobody.serve(), &format!("nobody {config}"));
        }
    }
}

/// A place where uid 65534 runs a server: it cannot look into the directory of the build.
pub struct Nobody(pub PathBuf);

impl Nobody {
    /// None, and says so, where whoever tests is not root.
    pub fn new(config: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
            assert!(!required.contains("root"), "RINGFENCE_REQUIRE asks for root");
            eprintln!("not root: not told as uid {NOBODY}");
            return None;
        }
        let own = state_dir();
        let own = own.file_name().unwrap().to_string_lossy();
        let place = std::env::temp_dir().join(format!("ringfence-session-{own}"));
        drop(fs::remove_dir_all(&place));
        fs::create_dir_all(&place).unwrap();
        fs::copy(binary(), place.join("ringfence")).unwrap();
        fs::write(place.join("config.yaml"), config).unwrap();
        std::os::unix::fs::chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self(place))
    }

    pub fn serve(&self) -> Server {
        let user = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"])
            .arg(self.0.join("ringfence"))
            .args(["serve", "--config"])
            .arg(self.0.join("config.yaml"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent")
            .env("RINGFENCE_STATE_DIR", self.0.join("state"))
            .stderr(Stdio::null());
        Server::of(command)
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
