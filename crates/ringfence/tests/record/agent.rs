//! The other end of a server's pipes, which keeps every byte that the server lets out and waits for no answer longer than
//! a minute.

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
    said: Vec<u8>,
    messages: Vec<Value>,
    answers: BTreeMap<u64, Value>,
}

/// How a server ended, and all that it let out.
pub struct Ended {
    pub status: ExitStatus,
    /// Its standard output.
    pub said: Vec<u8>,
    /// Its standard error.
    pub log: Vec<u8>,
    /// Answers by the id of their request; of a line that was cut there is none.
    pub answers: BTreeMap<u64, Value>,
}

impl Agent {
    /// Starts the server, without a word to it.
    pub fn start(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        let (mut server, stdout) = Server::unheard(command);
        let (told, lines) = channel();
        let mut stdout = BufReader::new(stdout);
        thread::spawn(move || {
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                if told.send(std::mem::take(&mut line)).is_err() {
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
            said: Vec::new(),
            messages: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    /// A server that ends by itself, although nobody has hung up.
    pub fn refused(command: Command) -> Ended {
        let ended = Self::start(command).end();
        assert!(!ended.status.success());
        ended
    }

    /// The handshake, whose answer is waited for.
    pub fn greet(mut self) -> Self {
        let hello = self.send_hello();
        let answer = self.wait_for(hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence");
        self
    }

    /// The same without waiting.
    pub fn send_hello(&mut self) -> u64 {
        let id = self.send("initialize", hello("record", json!({})));
        self.tell("notifications/initialized", json!({}));
        id
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a program and does not wait. Its output comes as progress, too.
    pub fn send_run(&mut self, arguments: Value) -> u64 {
        self.send_watched(arguments)
    }

    /// Reads until the condition holds; false: the server or the time is at its end.
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
        self.said.extend_from_slice(line);
        // Only the last line of a server that was killed may be cut.
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else {
            assert!(
                !line.ends_with(b"\n"),
                "no protocol: {}",
                String::from_utf8_lossy(line)
            );
            return;
        };
        show_refusal(&mut message);
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

    /// The facts of the answer to a call.
    pub fn result(&mut self, id: u64) -> Value {
        self.wait_for(id)["result"]["structuredContent"].clone()
    }

    /// Waits until one of its messages says so.
    #[track_caller]
    pub fn hears(&mut self, words: &str) {
        let heard = |agent: &Self| {
            let mut messages = agent.messages.iter();
            messages.any(|message| message["params"]["message"].to_string().contains(words))
        };
        assert!(
            self.read_until(PATIENCE, heard),
            "{words}: {:?}",
            self.messages.last()
        );
    }

    pub fn has_answer(&self, id: u64) -> bool {
        self.answers.contains_key(&id)
    }

    pub fn answered(&self) -> usize {
        self.answers.len()
    }

    /// Everything that it was sent.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// Hangs up, and waits for the end.
    pub fn leave(mut self) -> Ended {
        self.hang_up();
        self.end()
    }

    /// The greeting does not wait for the record; a call does.
    pub fn call_and_leave(mut self) {
        self.call("sandbox_stats", json!({}));
        assert!(self.leave().status.success());
    }

    /// `kill -9`, and what had left before.
    pub fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.end()
    }

    /// Standard error ends with the last process that was born with it: helper and supervisors too.
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
            said: std::mem::take(&mut self.said),
            log: log.unwrap_or_else(|_| panic!("a process of the server outlives it")),
            answers: std::mem::take(&mut self.answers),
        }
    }
}

impl Caller for Agent {
    fn ask(&mut self, method: &str, params: Value) -> Value {
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
