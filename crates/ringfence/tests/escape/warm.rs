//! A server whose sandboxes stand ready, and attacks that go into them.

use serde_json::{Map, Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// How long it may take until a sandbox stands ready.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    /// From a command that is the binary's, as whoever shall run it.
    pub fn start(mut command: Command) -> Self {
        command
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut server = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            next: 0,
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "escape", "version": "1"}});
        server.ask("initialize", &hello);
        server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    /// Runs Python in a sandbox that stands ready, and gives the whole answer as text.
    pub fn execute(&mut self, code: &str, environment: Map<String, Value>, flags: &[String]) -> String {
        self.wait_until_ready();
        let mut arguments = json!({"code": code, "env": environment, "timeout_seconds": 20});
        for pair in flags.chunks(2) {
            let (name, value) = (pair[0].as_str(), pair[1].as_str());
            match name {
                "--timeout" => arguments["timeout_seconds"] = value.parse::<f64>().unwrap().into(),
                "--memory" => arguments["memory_limit"] = value.into(),
                "--processes" => {
                    arguments["resource_limits"]["max_processes"] = value.parse::<u64>().unwrap().into();
                }
                "--disk" => {
                    let mebibytes = value.trim_end_matches('m').parse::<u64>().unwrap();
                    arguments["resource_limits"]["max_disk_mb"] = mebibytes.into();
                }
                "--env" => {
                    let (name, value) = value.split_once('=').unwrap();
                    arguments["env"][name] = value.into();
                }
                other => panic!("no argument for {other}"),
            }
        }
        self.call("execute_code", &arguments).to_string()
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let listed = self.call("list_runtimes", &json!({}));
            let python = listed["runtimes"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|r| r["language"] == "python");
            if python.is_some_and(|python| python["warm"] == true) {
                return;
            }
            assert!(Instant::now() < deadline, "no sandbox stands ready: {listed}");
            std::thread::yield_now();
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        answer["result"]["structuredContent"].clone()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.stdout.read_line(&mut line).unwrap() > 0,
                "the server has ended"
            );
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
