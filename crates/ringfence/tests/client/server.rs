//! A server on pipes, with a client that speaks plain JSON-RPC.

use super::host::PATIENCE;
use super::{Facts, McpClient, becomes_true_within, expose_error, ringfence, serve_with, state_dir};
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

/// Maximum wait for a message of the server.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// A server on pipes, after the handshake.
pub struct Server {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Messages read while waiting for another.
    unread: VecDeque<Value>,
    next: u64,
    /// If true, writing to a server that has ended is not a failure.
    may_be_gone: bool,
}

/// Parameters of `initialize` for a client with this name.
pub fn initialize_params(name: &str, capabilities: Value) -> Value {
    let about = json!({"name": name, "version": "1"});
    json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": about})
}

/// The progress token of a request; distinct from the request's id.
pub fn progress_token(id: u64) -> String {
    format!("p{id}")
}

impl McpClient for Server {
    fn rpc(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.await_response(id).0
    }
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        let mut command = ringfence(&["serve"]);
        command.args(arguments).stderr(Stdio::null());
        Self::from_command(command)
    }

    /// A server whose structured results contain all retained output.
    pub fn with_full_output() -> Self {
        Self::with_env([("RINGFENCE_TEXT_MAX", "1048576")])
    }

    /// A server with this YAML configuration.
    pub fn with_config(yaml: &str) -> Self {
        Self::from_command(serve_with(yaml))
    }

    /// A server with these environment variables.
    pub fn with_env<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let mut command = ringfence(&["serve"]);
        command.envs(variables).stderr(Stdio::null());
        Self::from_command(command)
    }

    /// Starts this command, which must serve on its pipes, and performs the handshake.
    pub fn from_command(command: Command) -> Self {
        Self::with_capabilities(json!({}), command)
    }

    /// [`Server::from_command`] for a client with these capabilities.
    pub fn with_capabilities(capabilities: Value, command: Command) -> Self {
        let mut server = Self::without_handshake(command);
        let answer = server.rpc("initialize", initialize_params("story", capabilities));
        assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence");
        server.notify("notifications/initialized", json!({}));
        server
    }

    /// [`Server::from_command`] without the handshake.
    pub fn without_handshake(mut command: Command) -> Self {
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

    /// [`Server::without_handshake`] with the server's standard output for the caller to read. Writing to the server is
    /// not a failure after it has ended.
    pub fn with_raw_stdout(command: Command) -> (Self, File) {
        let mut server = Self::without_handshake(command);
        server.may_be_gone = true;
        let stdout = server.stdout.get_ref().as_fd().try_clone_to_owned();
        (server, File::from(stdout.unwrap()))
    }

    pub fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        match writeln!(stdin, "{message}").and_then(|()| stdin.flush()) {
            Err(error) if self.may_be_gone && error.kind() == ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Responds to a request from the server.
    pub fn reply(&mut self, request: &Value, result: Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Sends a request and returns its id without waiting.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next message of any kind.
    pub fn receive(&mut self) -> Value {
        self.unread.pop_front().unwrap_or_else(|| self.read())
    }

    /// The next message with this method. Earlier messages are kept: the result of a call and the requests of its
    /// dialogues arrive in any order.
    pub fn receive_method(&mut self, method: &str) -> Value {
        self.first(|message| message["method"] == method)
    }

    /// The response to a request, and the notifications received before it. Responses to other requests are kept.
    pub fn await_response(&mut self, id: u64) -> (Value, Vec<Value>) {
        // Requests from the server have numeric ids, too.
        let is_response = |message: &Value| message.get("method").is_none();
        let answer = self.first(|message| is_response(message) && message["id"] == json!(id));
        let (kept, before) = self.unread.drain(..).partition(is_response);
        self.unread = kept;
        (answer, Vec::from(before))
    }

    /// The first message that matches; messages read before it stay in `unread`.
    fn first(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&matches) {
            return self.unread.remove(at).unwrap();
        }
        loop {
            let message = self.read();
            if matches(&message) {
                return message;
            }
            self.unread.push_back(message);
        }
    }

    /// Reads one line, which must be a JSON-RPC message.
    fn read(&mut self) -> Value {
        if self.stdout.buffer().is_empty() {
            let mut output = [PollFd::new(self.stdout.get_ref(), PollFlags::IN)];
            let timeout = Timespec::try_from(RECEIVE_TIMEOUT).unwrap();
            let ready = poll(&mut output, Some(&timeout)).unwrap();
            assert_eq!(
                ready, 1,
                "nothing for {RECEIVE_TIMEOUT:?}; unread: {:?}",
                self.unread
            );
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let mut message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        expose_error(&mut message);
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    /// Sends a tool call and returns the request's id without waiting.
    pub fn send_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.send("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Sends an `execute_code` call and returns the request's id without waiting.
    pub fn send_run(&mut self, arguments: Value) -> u64 {
        self.send_call("execute_code", arguments)
    }

    /// [`Server::send_run`] with a progress token, so that output arrives as progress notifications.
    pub fn send_run_with_progress(&mut self, arguments: Value) -> u64 {
        let token = json!({"progressToken": progress_token(self.next)});
        let params = json!({"name": "execute_code", "arguments": arguments, "_meta": token});
        self.send("tools/call", params)
    }

    /// Waits for the response to a call and returns the structured content or the error of its result.
    pub fn result(&mut self, id: u64) -> Value {
        self.await_response(id).0["result"].facts()
    }

    /// Cancels a request.
    pub fn cancel(&mut self, id: u64) {
        self.notify("notifications/cancelled", json!({"requestId": id}));
    }

    /// The results of several calls, each with its request's id, in order of arrival. Other messages are dropped.
    pub fn await_responses(&mut self, ids: &[u64]) -> Vec<(u64, Value)> {
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

    /// Connects to the control socket, through `/proc/self/fd`: its path may be too long for a socket address.
    pub fn connect(&self) -> UnixStream {
        let socket = self.socket();
        let directory = File::open(socket.parent().unwrap()).unwrap();
        let name = socket.file_name().unwrap().display();
        UnixStream::connect(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())).unwrap()
    }

    /// Sends a request to the control socket and returns the response. The method is the first field of every request.
    pub fn control(&self, method: &str, params: &Value) -> Value {
        let mut stream = self.connect();
        writeln!(stream, r#"{{"method":"{method}","params":{params}}}"#).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Sends SIGKILL and waits.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes the server's standard input, as a client that vanishes does.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes the server's standard input, and asserts that it exits.
    #[track_caller]
    pub fn shut_down(&mut self) {
        self.shut_down_within(PATIENCE);
    }

    #[track_caller]
    pub fn shut_down_within(&mut self, timeout: Duration) {
        self.close_stdin();
        assert!(self.exits_within(timeout), "not ended within {timeout:?}");
    }

    fn exits_within(&mut self, timeout: Duration) -> bool {
        becomes_true_within(timeout, || self.child.try_wait().unwrap().is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stdin = None;
        if !self.exits_within(Duration::from_secs(5)) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}
