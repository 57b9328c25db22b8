//! A server of this build over standard input and output, and a client of it.

use super::{
    engine::{Engine, IMAGE},
    kills::RUNS_VARIABLE,
    web,
};
use crate::command::command;
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// Time limit of one answer.
const TIMEOUT: Duration = Duration::from_secs(90);

pub struct Server {
    child: RefCell<Child>,
    input: RefCell<ChildStdin>,
    /// Messages of the server, one for each line.
    output: mpsc::Receiver<Value>,
    last_id: Cell<u64>,
    /// Answers that came before the caller waited for them.
    early: RefCell<HashMap<u64, Value>>,
    /// Port of the web server that programs may reach as [`web::NAME`].
    pub web: Option<u16>,
    /// TLS host of the engine.
    pub tls: Option<Arc<web::Tls>>,
}

impl Server {
    pub fn start(binary: &Path, engine: &Engine, variables: &[(&str, &str)]) -> Result<Self, String> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let state = engine
            .directory
            .join(format!("state-{}-{number}", std::process::id()));
        Self::with_state(binary, engine, variables, state)
    }

    pub fn with_state(
        binary: &Path,
        engine: &Engine,
        variables: &[(&str, &str)],
        state: PathBuf,
    ) -> Result<Self, String> {
        let mut serve = command(binary, ["serve"]);
        let socket = engine.socket().display().to_string();
        // The variable is for this program; a server rejects unknown variables.
        serve.env_remove(RUNS_VARIABLE);
        serve.env("RINGFENCE_STATE_DIR", &state);
        serve
            .env("RINGFENCE_CONTAINERS_ENABLED", "true")
            .env("RINGFENCE_FLOOR", "container");
        serve
            .env("RINGFENCE_CONTAINERS_SOCKET", socket)
            .env("RINGFENCE_CONTAINERS_PULL", "false");
        for language in ["PYTHON", "NODE", "SHELL"] {
            serve.env(format!("RINGFENCE_CONTAINERS_IMAGE_{language}"), IMAGE);
        }
        let servers = web::start().ok();
        if let Some(servers) = &servers {
            let rule = format!("{}:{}", web::NAME, servers.web_port);
            let (mut allowed, mut private) = (rule.clone(), rule);
            if let Some(tls) = &engine.tls {
                allowed += &tls.allowed();
                private += &tls.private();
                serve.envs(tls.variables());
            }
            serve
                .env("RINGFENCE_EGRESS_ALLOW", &allowed)
                .env("RINGFENCE_EGRESS_PRIVATE", &private);
            serve.env(
                "RINGFENCE_EGRESS_RESOLVERS",
                format!("127.0.0.1:{}", servers.dns_port),
            );
        }
        serve.envs(variables.iter().copied());
        let log = std::fs::File::create(engine.directory.join("server.log"));
        serve.stderr(log.map_err(|error| error.to_string())?);
        let mut server = Self::spawn(serve)?;
        server.tls = engine.tls.clone();
        server.web = servers.as_ref().map(|servers| servers.web_port);
        Ok(server)
    }

    /// Starts a command that speaks the protocol on its standard input and output, and initializes the session.
    pub fn spawn(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let server = Self {
            input: RefCell::new(input.ok_or("no input")?),
            output: read(output.ok_or("no output")?),
            child: RefCell::new(child),
            last_id: Cell::new(0),
            early: RefCell::default(),
            tls: None,
            web: None,
        };
        let client = json!({"name": "backends", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        server.request("initialize", &hello)?;
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    fn send(&self, message: &Value) -> Result<(), String> {
        let mut input = self.input.borrow_mut();
        let written = writeln!(input, "{message}").and_then(|()| input.flush());
        written.map_err(|error| format!("the server is gone: {error}"))
    }

    /// Sends a request without waiting for its answer.
    pub fn send_call(&self, tool: &str, arguments: &Value) -> Result<u64, String> {
        self.send_request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    fn send_request(&self, method: &str, parameters: &Value) -> Result<u64, String> {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}))?;
        Ok(id)
    }

    /// Returns the result of the next answer, to any request.
    pub fn next_result(&self) -> Result<Value, String> {
        self.next_message(|message| message.get("id").is_some())
            .map(|message| message["result"].clone())
    }

    /// Returns the next message that `is_wanted` accepts; others are dropped.
    fn next_message(&self, is_wanted: impl Fn(&Value) -> bool) -> Result<Value, String> {
        loop {
            match self.output.recv_timeout(TIMEOUT) {
                Ok(message) if is_wanted(&message) => return Ok(message),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("no answer within {} s", TIMEOUT.as_secs()));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err("the server is gone".to_owned()),
            }
        }
    }

    /// Waits for the result of a request. Other answers that come first are kept.
    pub fn answer(&self, id: u64) -> Result<Value, String> {
        let mut early = self.early.borrow_mut();
        let message = match early.remove(&id) {
            Some(message) => message,
            None => loop {
                let message = self.next_message(|message| message.get("id").is_some())?;
                match message["id"].as_u64() {
                    Some(other) if other != id => drop(early.insert(other, message)),
                    _ => break message,
                }
            },
        };
        match message.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(message["result"].clone()),
        }
    }

    fn request(&self, method: &str, parameters: &Value) -> Result<Value, String> {
        let id = self.send_request(method, parameters)?;
        self.answer(id)
    }

    /// Calls a tool and returns the structured content of its answer, or of its refusal.
    pub fn call(&self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let id = self.send_call(tool, arguments)?;
        self.result(id)
    }

    pub fn result(&self, id: u64) -> Result<Value, String> {
        let answer = self.answer(id)?;
        let refusal = &answer["_meta"]["io.ringfence/error"];
        let content = answer
            .get("structuredContent")
            .or(Some(refusal).filter(|it| it.is_object()));
        Ok(content.cloned().unwrap_or(answer))
    }

    /// Runs a program on a backend.
    pub fn run(&self, backend: &str, language: &str, code: &str) -> Result<Value, String> {
        self.run_with(backend, language, code, json!({}))
    }

    pub fn run_with(&self, backend: &str, language: &str, code: &str, more: Value) -> Result<Value, String> {
        let mut arguments =
            json!({"code": code, "language": language, "backend": backend, "validate": "off"});
        for (name, value) in more.as_object().into_iter().flatten() {
            arguments[name.as_str()] = value.clone();
        }
        self.call("execute_code", &arguments)
    }

    /// Asks the server to end, and waits for that.
    pub fn end(&self) {
        let mut child = self.child.borrow_mut();
        if let Ok(None) = child.try_wait() {
            drop(crate::command::show(command("kill", [child.id().to_string()])));
        }
        drop(child.wait());
    }

    pub fn kill(&self) {
        let mut child = self.child.borrow_mut();
        drop(child.kill());
        drop(child.wait());
    }
}

/// Reads messages until the server ends or prints a line that is not a message.
fn read(output: ChildStdout) -> mpsc::Receiver<Value> {
    let (to, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let Ok(message) = serde_json::from_str(&line) else {
                return;
            };
            if to.send(message).is_err() {
                return;
            }
        }
    });
    messages
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has to end here, so that the engine can be checked for remaining containers afterwards.
        self.end();
    }
}
