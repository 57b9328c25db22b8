//! A client on a server's pipes that keeps every byte of the server's output and waits at most a minute for an answer.

use crate::client::*;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    ops::{Deref, DerefMut},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

pub struct Agent {
    server: Server,
    lines: Receiver<Vec<u8>>,
    log: Receiver<Vec<u8>>,
    stdout: Vec<u8>,
    messages: Vec<Value>,
    answers: BTreeMap<u64, Value>,
}

/// The exit status of a server, and its whole output.
pub struct Ended {
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub log: Vec<u8>,
    /// Answers by the id of their request, without a line that was cut off.
    pub answers: BTreeMap<u64, Value>,
}

impl Agent {
    /// Starts the server and sends nothing.
    pub fn start(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        let (mut server, stdout) = Server::with_raw_stdout(command);
        let (sender, lines) = channel();
        let mut stdout = BufReader::new(stdout);
        thread::spawn(move || {
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let mut stderr = server.child.stderr.take().unwrap();
        let (whole, log) = channel();
        thread::spawn(move || {
            let mut log = Vec::new();
            stderr.read_to_end(&mut log).unwrap();
            drop(whole.send(log));
        });
        Self {
            server,
            lines,
            log,
            stdout: Vec::new(),
            messages: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    /// Starts a server that must fail by itself, with its input still open.
    pub fn refused(command: Command) -> Ended {
        let ended = Self::start(command).end();
        assert!(!ended.status.success());
        ended
    }

    /// Initializes the connection and waits for the answer.
    pub fn initialize(mut self) -> Self {
        let hello = self.send_initialize();
        let answer = self.wait_for(hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence");
        self
    }

    /// Sends the handshake without waiting for the answer.
    pub fn send_initialize(&mut self) -> u64 {
        let id = self.send("initialize", initialize_params("record", json!({})));
        self.notify("notifications/initialized", json!({}));
        id
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a program without waiting; its output is also sent as progress.
    pub fn send_run(&mut self, arguments: Value) -> u64 {
        self.send_run_with_progress(arguments)
    }

    /// Reads until the condition holds; returns false if the server ends or the time is up first.
    pub fn read_until(&mut self, patience: Duration, mut condition: impl FnMut(&Self) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        while !condition(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                return false;
            };
            self.take(&line);
        }
        true
    }

    fn take(&mut self, line: &[u8]) {
        self.stdout.extend_from_slice(line);
        // Only the last line of a killed server may be cut off.
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else {
            assert!(
                !line.ends_with(b"\n"),
                "not a protocol message: {}",
                String::from_utf8_lossy(line)
            );
            return;
        };
        expose_error(&mut message);
        assert_eq!(message["jsonrpc"], "2.0");
        if let Some(id) = message["id"].as_u64() {
            let twice = self.answers.insert(id, message.clone());
            assert!(twice.is_none(), "request {id} was answered twice");
        }
        self.messages.push(message);
    }

    pub fn wait_for(&mut self, id: u64) -> Value {
        let came = self.read_until(PATIENCE, |agent| agent.answers.contains_key(&id));
        assert!(came, "request {id} has no answer: {:?}", self.messages.last());
        self.answers[&id].clone()
    }

    /// Waits for the answer to a call and returns its structured content.
    pub fn result(&mut self, id: u64) -> Value {
        self.wait_for(id)["result"]["structuredContent"].clone()
    }

    /// Waits for a progress or log message with these words.
    #[track_caller]
    pub fn await_message(&mut self, words: &str) {
        let arrived = |agent: &Self| {
            let mut messages = agent.messages.iter();
            messages.any(|message| message["params"]["message"].to_string().contains(words))
        };
        assert!(
            self.read_until(PATIENCE, arrived),
            "{words}: {:?}",
            self.messages.last()
        );
    }

    pub fn has_answer(&self, id: u64) -> bool {
        self.answers.contains_key(&id)
    }

    pub fn answer_count(&self) -> usize {
        self.answers.len()
    }

    /// All messages from the server.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// Closes the server's input and waits for its end.
    pub fn close(mut self) -> Ended {
        self.close_stdin();
        self.end()
    }

    /// Makes one call and closes: unlike the handshake, a call waits for the record.
    pub fn call_and_close(mut self) {
        self.call("sandbox_stats", json!({}));
        assert!(self.close().status.success());
    }

    /// Sends SIGKILL, and returns the output up to then.
    pub fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.end()
    }

    /// Waits for the end. Standard error closes with the last process that inherited it, helper and supervisors
    /// included.
    fn end(mut self) -> Ended {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.take(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the server does not end"),
            }
        }
        let status = self.child.wait().unwrap();
        let log = self.log.recv_timeout(PATIENCE);
        Ended {
            status,
            stdout: std::mem::take(&mut self.stdout),
            log: log.unwrap_or_else(|_| panic!("a process of the server outlives it")),
            answers: std::mem::take(&mut self.answers),
        }
    }
}

impl McpClient for Agent {
    fn rpc(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.wait_for(id)
    }

    fn run(&mut self, arguments: Value) -> Value {
        let id = self.send_run(arguments);
        self.result(id)
    }
}

impl Deref for Agent {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
