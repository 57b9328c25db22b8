//! Attacks in ready sandboxes of a server.

use crate::client::*;
use serde_json::Map;

/// Runs Python in a ready sandbox and returns the fields of the answer as text.
pub fn execute(server: &mut Server, code: &str, environment: Map<String, Value>, flags: &[String]) -> String {
    server.wait_until_warm("python");
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
    server.run(arguments).to_string()
}
