//! The vocabulary: a command line that is run, and a server that is spoken to in plain JSON-RPC.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

pub fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_ringfence"))
}

thread_local! {
    /// Each test runs in a thread of its own, and with it goes what its servers and commands have kept.
    static STATE: State = State::new();
}

struct State(PathBuf);

impl State {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("state-{}-{number}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The state directory of this test's servers and commands.
pub fn state_dir() -> PathBuf {
    STATE.with(|state| state.0.clone())
}

/// `ringfence` with these words, an environment of nothing but a path, and this test's state directory.
pub fn ringfence(words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("RINGFENCE_STATE_DIR", state_dir())
        .stdin(Stdio::null());
    command
}

/// Runs code through `ringfence run -` and gives what it said.
pub fn run_code(language: &str, code: &str, words: &[&str]) -> Output {
    let mut command = ringfence(&["run", "-", "--language", language]);
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A refusal may come before the code is read.
    match child.stdin.take().unwrap().write_all(code.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => panic!("{error}"),
        _ => {}
    }
    child.wait_with_output().unwrap()
}

/// The same with `--json`, as data.
pub fn run_json(language: &str, code: &str, words: &[&str]) -> Value {
    let output = run_code(language, code, &[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Puts the facts of a refusal where those of an answer are, for stories that read either. In truth they are in `_meta`
/// alone: clients hold structured content against the tool's output schema, and drop a refusal that has any.
pub fn show_refusal(message: &mut Value) {
    if let Some(result) = message.get_mut("result")
        && result["isError"] == true
    {
        assert_eq!(result.get("structuredContent"), None, "{result}");
        let facts = result["_meta"]["io.ringfence/error"].clone();
        assert!(
            facts["code"].is_string() && facts["message"].is_string(),
            "{result}"
        );
        result["structuredContent"] = facts;
    }
}

/// A directory that goes away.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringfence-story-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A server that says nothing for so long while a test waits for it has failed.
const SILENCE: Timespec = Timespec {
    tv_sec: 120,
    tv_nsec: 0,
};

/// A server on pipes, after the handshake.
pub struct Server {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Messages that were passed over on the way to another.
    unread: VecDeque<Value>,
    next: u64,
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
        let mut command = ringfence(&["serve"]);
        command.env("RINGFENCE_TEXT_MAX", "1048576").stderr(Stdio::null());
        Self::of(command)
    }

    /// Of a command line that serves.
    pub fn of(command: Command) -> Self {
        Self::able_to(json!({}), command)
    }

    /// The same for a client with these capabilities.
    pub fn able_to(capabilities: Value, command: Command) -> Self {
        let mut server = Self::silent(command);
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "story", "version": "1"}});
        let answer = server.ask("initialize", hello);
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
        }
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
        stdin.flush().unwrap();
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
            let ready = poll(&mut output, Some(&SILENCE)).unwrap();
            assert_eq!(
                ready, 1,
                "nothing for {} s; unread: {:?}",
                SILENCE.tv_sec, self.unread
            );
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let mut message: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        show_refusal(&mut message);
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.await_answer(id).0
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// What a tool says, as facts.
    pub fn facts(&mut self, tool: &str, arguments: Value) -> Value {
        facts_of(&self.call(tool, arguments))
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
                answers.push((id, facts_of(&message["result"])));
            }
        }
        answers
    }

    /// `execute_code` with a program of this language: its structured result.
    pub fn execute(&mut self, language: &str, code: &str) -> Value {
        self.call("execute_code", json!({"language": language, "code": code}))["structuredContent"].clone()
    }

    /// Hangs up, as a client that vanishes does.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end, at most so long.
    pub fn ended_within(&mut self, patience: Duration) -> bool {
        within(patience, || self.child.try_wait().unwrap().is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stdin = None;
        if !self.ended_within(Duration::from_secs(5)) {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// How often a condition is looked at: what is waited for needs the processors more.
const LOOK: Duration = Duration::from_millis(2);

/// Does it become true in time.
pub fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// Processes whose command line holds this word.
pub fn processes_with(word: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
            .is_ok_and(|line| contains(&line, word))
    };
    pids.filter(|pid| *pid != own).filter(holds).collect()
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

/// Every process below this one.
pub fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect();
    children
        .iter()
        .flat_map(|child| descendants(*child))
        .chain(children.iter().copied())
        .collect()
}

/// What an answer says for programs: of a refusal its code, message and hint.
pub fn facts_of(result: &Value) -> Value {
    let refusal = &result["_meta"]["io.ringfence/error"];
    if refusal.is_null() {
        &result["structuredContent"]
    } else {
        refusal
    }
    .clone()
}
