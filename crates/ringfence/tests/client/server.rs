//! A server on pipes, spoken to in plain JSON-RPC.

use super::host::PATIENCE;
use super::{Caller, Facts, ringfence, serve_with, show_refusal, state_dir, within};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// A server that says nothing for so long while a test waits for it has failed.
const SILENCE: Duration = Duration::from_secs(120);

/// A server on pipes, after the handshake.
pub struct Server {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Messages that were passed over on the way to another.
    unread: VecDeque<Value>,
    next: u64,
    /// A server that is gone reads nothing, and that is no failure here.
    may_be_gone: bool,
}

/// What a client of this name says at first.
pub fn hello(name: &str, capabilities: Value) -> Value {
    let about = json!({"name": name, "version": "1"});
    json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": about})
}

/// The token of a request whose progress is watched; nothing like the id of the request.
pub fn progress_token(id: u64) -> String {
    format!("p{id}")
}

impl Caller for Server {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.await_answer(id).0
    }
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(words: &[&str]) -> Self {
        let mut command = ringfence(&["serve"]);
        command.args(words).stderr(Stdio::null());
        Self::of(command)
    }

    /// Whose structured results have all that is kept of the streams.
    pub fn telling_all() -> Self {
        Self::with_env([("RINGFENCE_TEXT_MAX", "1048576")])
    }

    /// With this configuration, YAML.
    pub fn with(yaml: &str) -> Self {
        Self::of(serve_with(yaml))
    }

    /// With these variables.
    pub fn with_env<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let mut command = ringfence(&["serve"]);
        command.envs(variables).stderr(Stdio::null());
        Self::of(command)
    }

    /// Of a command line that serves.
    pub fn of(command: Command) -> Self {
        Self::able_to(json!({}), command)
    }

    /// The same for a client with these capabilities.
    pub fn able_to(capabilities: Value, command: Command) -> Self {
        let mut server = Self::silent(command);
        let answer = server.ask("initialize", hello("story", capabilities));
        assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence");
        server.tell("notifications/initialized", json!({}));
        server
    }

    /// The same without the handshake.
    pub fn silent(mut command: Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self {
            child,
            stdin,
            stdout,
            unread: VecDeque::new(),
            next: 1,
            may_be_gone: false,
        }
    }

    /// The same for who reads what it says elsewhere, and writes to it although it may be gone.
    pub fn unheard(command: Command) -> (Self, File) {
        let mut server = Self::silent(command);
        server.may_be_gone = true;
        let stdout = server.stdout.get_ref().as_fd().try_clone_to_owned();
        (server, File::from(stdout.unwrap()))
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        match writeln!(stdin, "{message}").and_then(|()| stdin.flush()) {
            Err(error) if self.may_be_gone && error.kind() == ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
    }

    pub fn tell(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Answers a request of the server's.
    pub fn reply(&mut self, request: &Value, result: Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Sends a request and does not wait; its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next message, whatever it is.
    pub fn receive(&mut self) -> Value {
        self.unread.pop_front().unwrap_or_else(|| self.read())
    }

    /// The next message of this method. Others that come before it are kept: between a call's result and what its
    /// dialogues say there is no order.
    pub fn hear(&mut self, method: &str) -> Value {
        self.first(|message| message["method"] == method)
    }

    /// The answer to a request, and the notifications before it. Answers to other requests are kept.
    pub fn await_answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        // The server's own requests have numbers, too.
        let is_answer = |message: &Value| message.get("method").is_none();
        let answer = self.first(|message| is_answer(message) && message["id"] == json!(id));
        let (kept, before) = self.unread.drain(..).partition(is_answer);
        self.unread = kept;
        (answer, Vec::from(before))
    }

    /// The first message that is wanted; what is passed over on the way to it is unread.
    fn first(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&is_wanted) {
            return self.unread.remove(at).unwrap();
        }
        loop {
            let message = self.read();
            if is_wanted(&message) {
                return message;
            }
            self.unread.push_back(message);
        }
    }

    /// One line, which must be protocol.
    fn read(&mut self) -> Value {
        if self.stdout.buffer().is_empty() {
            let mut output = [PollFd::new(self.stdout.get_ref(), PollFlags::IN)];
            let patience = Timespec::try_from(SILENCE).unwrap();
            let ready = poll(&mut output, Some(&patience)).unwrap();
            assert_eq!(ready, 1, "nothing for {SILENCE:?}; unread: {:?}", self.unread);
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let mut message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        show_refusal(&mut message);
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    /// Calls a tool and does not wait; the request's id.
    pub fn send_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Runs a program and does not wait; the request's id.
    pub fn send_run(&mut self, arguments: Value) -> u64 {
        self.send_call("execute_code", arguments)
    }

    /// The same, whose output comes as progress.
    pub fn send_watched(&mut self, arguments: Value) -> u64 {
        let token = json!({"progressToken": progress_token(self.next)});
        let params = json!({"name": "execute_code", "arguments": arguments, "_meta": token});
        self.send("tools/call", params)
    }

    /// The facts of the answer to a call.
    pub fn result(&mut self, id: u64) -> Value {
        self.await_answer(id).0["result"].facts()
    }

    /// Takes a request back.
    pub fn cancel(&mut self, id: u64) {
        self.tell("notifications/cancelled", json!({"requestId": id}));
    }

    /// The answers to several requests, each with its id, as they came.
    pub fn await_all(&mut self, ids: &[u64]) -> Vec<(u64, Value)> {
        let mut answers = Vec::new();
        while answers.len() < ids.len() {
            let message = self.receive();
            if message.get("method").is_some() {
                continue;
            }
            if let Some(id) = message["id"].as_u64().filter(|id| ids.contains(id)) {
                answers.push((id, message["result"].facts()));
            }
        }
        answers
    }

    pub fn socket(&self) -> PathBuf {
        state_dir().join(format!("control/{}.sock", self.child.id()))
    }

    /// Another client of its control socket, whose name may be longer than an address.
    pub fn connect(&self) -> UnixStream {
        let socket = self.socket();
        let directory = File::open(socket.parent().unwrap()).unwrap();
        let name = socket.file_name().unwrap().display();
        UnixStream::connect(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())).unwrap()
    }

    /// What the control socket answers. The method is first in every request.
    pub fn control(&self, method: &str, params: &Value) -> Value {
        let mut stream = self.connect();
        writeln!(stream, r#"{{"method":"{method}","params":{params}}}"#).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Hangs up, as a client that vanishes does.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Hangs up, and sees it end.
    #[track_caller]
    pub fn leaves(&mut self) {
        self.leaves_within(PATIENCE);
    }

    #[track_caller]
    pub fn leaves_within(&mut self, patience: Duration) {
        self.hang_up();
        assert!(
            self.has_ended_within(patience),
            "it has not ended in {patience:?}"
        );
    }

    fn has_ended_within(&mut self, patience: Duration) -> bool {
        within(patience, || self.child.try_wait().unwrap().is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stdin = None;
        if !self.has_ended_within(Duration::from_secs(5)) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}
