//! The internet of a test, and what it has heard.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

pub struct World {
    heard: Arc<Mutex<Vec<Value>>>,
    hosts: Child,
    /// Where its certificate and the server's state are.
    pub directory: std::path::PathBuf,
}

impl World {
    /// In the network namespace that this process is in.
    pub fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("ringfence-egress-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/egress/internet.py");
        let mut hosts = Command::new("python3")
            .arg(script)
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(hosts.stdout.take().unwrap()).lines();
        let heard: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (is_ready, ready) = mpsc::channel();
        let kept = heard.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let said: Value = serde_json::from_str(&line).unwrap();
                if said["ready"] == true {
                    is_ready.send(()).unwrap();
                } else {
                    kept.lock().unwrap().push(said);
                }
            }
        });
        ready.recv_timeout(Duration::from_secs(30)).unwrap();
        Self {
            heard,
            hosts,
            directory,
        }
    }

    /// What was heard since the last time: names that were asked for, and addresses that were reached.
    pub fn heard(&self) -> Vec<String> {
        let said = std::mem::take(&mut *self.heard.lock().unwrap());
        let word = |one: Value| match (&one["dns"], &one["tcp"], &one["request"]) {
            (Value::String(name), ..) => format!("dns {name}"),
            (_, Value::String(address), _) => format!("tcp {address}:{}", one["port"]),
            (.., Value::String(line)) => format!("{line} of {}", one["host"].as_str().unwrap_or_default()),
            _ => one.to_string(),
        };
        said.into_iter().map(word).collect()
    }

    /// Ringfence, told of this internet and of nothing else.
    pub fn ringfence(&self, words: &[&str]) -> Command {
        let mut command = super::client::ringfence(words);
        command
            .env("RINGFENCE_EGRESS_RESOLVERS", "127.0.0.1:5353")
            .env("RINGFENCE_STATE_DIR", self.directory.join("state"));
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.hosts.stdin.take());
        drop(self.hosts.kill());
        drop(self.hosts.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}
