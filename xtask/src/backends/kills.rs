//! Runs programs while the server, containers and the engine are killed: no answer is wrong, and nothing remains.

use super::{BACKENDS, engine::Engine, server::Server};
use crate::{command::capture, workspace::Workspace};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

/// Runs of each backend, unless the variable sets another number.
pub const RUNS: usize = 12;
pub const RUNS_VARIABLE: &str = "RINGFENCE_KILLED_RUNS";
/// Kills of one backend if there are many runs.
const KILLS: usize = 20;
/// Time limit for the start of a program, and for the removal of containers and directories at the end.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Answers that one kill may cost: that of the running program, and those of containers that were ready.
const REFUSED_BY_ONE: usize = 3;

/// Targets of kills, in turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Containers,
    Engine,
}

const VICTIMS: [Victim; 3] = [Victim::Server, Victim::Containers, Victim::Engine];

struct Kills<'a> {
    workspace: &'a Workspace,
    engine: Engine,
    state: PathBuf,
    /// A container that is not ours and has to survive.
    foreign: String,
    server: Server,
    correct: usize,
    refused: usize,
    kills: usize,
}

pub fn run(workspace: &Workspace, engine: Engine, runs: usize) -> Result<(), String> {
    let state = engine
        .directory
        .join(format!("state-kills-{}", std::process::id()));
    let foreign = engine.start_foreign(&["--restart=always"])?;
    let server = Server::with_state(&workspace.binary(), &engine, &[], state.clone())?;
    let mut kills = Kills {
        workspace,
        engine,
        state,
        foreign,
        server,
        correct: 0,
        refused: 0,
        kills: 0,
    };
    for backend in BACKENDS {
        kills.backend(backend, runs)?;
    }
    kills.finish()
}

impl Kills<'_> {
    fn backend(&mut self, backend: &str, runs: usize) -> Result<(), String> {
        let each = (runs / KILLS).max(RUNS / VICTIMS.len());
        let (correct, kills) = (self.correct, self.kills);
        for number in 0..runs {
            if number % each == each - 1 {
                self.kill(VICTIMS[(number / each) % VICTIMS.len()], backend)?;
            }
            let code = format!("print({number} * 2)");
            match judge(&self.server.run(backend, "python", &code)?, number) {
                Answer::Correct => self.correct += 1,
                Answer::Refused => self.refused += 1,
                Answer::Wrong(seen) => return Err(format!("{backend}, run {number}: {seen}")),
            }
        }
        let refused = runs - (self.correct - correct);
        let most = match backend {
            "native" => 0,
            _ => REFUSED_BY_ONE * (self.kills - kills),
        };
        println!("{backend}: {runs} runs, {refused} refused or ended by a kill");
        match refused <= most {
            true => Ok(()),
            false => Err(format!("{backend}: {refused} of {runs} refused; at most {most}")),
        }
    }

    /// Kills the victim while a program runs.
    fn kill(&mut self, victim: Victim, backend: &str) -> Result<(), String> {
        self.kills += 1;
        let run = self.start_program(backend)?;
        match victim {
            Victim::Server => {
                self.server.kill();
                let (binary, state) = (self.workspace.binary(), self.state.clone());
                self.server = Server::with_state(&binary, &self.engine, &[], state)?;
                return Ok(());
            }
            Victim::Containers => {
                for container in self.engine.running_containers() {
                    if !self.foreign.starts_with(&container) {
                        // A container may have ended meanwhile.
                        drop(capture(self.engine.docker(&["kill", &container])));
                    }
                }
            }
            Victim::Engine => {
                self.engine.kill_and_restart()?;
                drop(capture(self.engine.docker(&["start", &self.foreign])));
            }
        }
        self.check_killed(&run, backend)
    }

    /// Starts a program that runs until it is killed, and returns its execution id.
    fn start_program(&self, backend: &str) -> Result<Value, String> {
        let code = "import time\nprint('begun', flush=True)\ntime.sleep(600)";
        let more = json!({"background": true, "timeout_seconds": 120});
        let run = self.server.run_with(backend, "python", code, more)?["execution_id"].clone();
        let begun = Instant::now();
        loop {
            let seen = self.server.call("get_execution", &json!({"execution_id": run}))?;
            if seen.to_string().contains("begun\\n") {
                return Ok(run);
            }
            if begun.elapsed() > TIMEOUT || seen["code"].is_string() {
                return Err(format!("{backend}: the program has not started: {seen}"));
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Checks that a container's program has ended by the kill, and that a native one still runs.
    fn check_killed(&self, run: &Value, backend: &str) -> Result<(), String> {
        let wait = |seconds: u64| {
            let wanted = json!({"execution_id": run, "wait_seconds": seconds});
            self.server.call("get_execution", &wanted)
        };
        if backend != "native" {
            let seen = wait(25)?;
            let is_ended = seen["exit"]["kind"] == "signal" || seen["code"].is_string();
            return match seen["success"] != true && is_ended {
                true => Ok(()),
                false => Err(format!("{backend}: a killed container's program: {seen}")),
            };
        }
        let seen = wait(0)?;
        self.server
            .call("cancel_execution", &json!({"execution_id": run}))?;
        let ended = wait(25)?;
        match seen["exit"].is_null() && ended["exit"]["kind"] == "cancelled" {
            true => Ok(()),
            false => Err(format!("a native program was ended by a kill: {seen}, {ended}")),
        }
    }

    /// Ends the last server, and checks that nothing remains. What the engine had no time to remove until the server's
    /// end is left to the next server.
    fn finish(self) -> Result<(), String> {
        let Self { server, engine, .. } = &self;
        server.end();
        let mut remains = self.wait_until(Remains::is_nothing)?;
        if !remains.is_nothing() {
            println!("left by a server that ended: {remains:?}");
            let next = Server::with_state(&self.workspace.binary(), engine, &[], self.state.clone())?;
            self.wait_until(|remains| remains.containers == 0)?;
            next.end();
            remains = self.wait_until(Remains::is_nothing)?;
        }
        drop(capture(engine.docker(&["rm", "-f", &self.foreign])));
        println!(
            "{} correct, {} refused or ended by a kill, 0 wrong, in {} kills",
            self.correct, self.refused, self.kills
        );
        match remains.is_nothing() {
            true => Ok(()),
            false => Err(format!("{remains:?}")),
        }
    }

    /// Waits for the condition, at most [`TIMEOUT`], and returns what was seen last.
    fn wait_until(&self, is_met: impl Fn(&Remains) -> bool) -> Result<Remains, String> {
        let begun = Instant::now();
        loop {
            let remains = Remains {
                containers: self.engine.container_count()?.saturating_sub(1),
                directories: fs::read_dir(self.state.join("runs")).map_or(0, |entries| entries.count()),
                is_foreign_running: (self.engine.running_containers().iter())
                    .any(|id| self.foreign.starts_with(id)),
            };
            if is_met(&remains) || begun.elapsed() > TIMEOUT {
                return Ok(remains);
            }
            sleep(Duration::from_millis(200));
        }
    }
}

/// What is there after the end of a server.
#[derive(Debug)]
struct Remains {
    containers: usize,
    directories: usize,
    is_foreign_running: bool,
}

impl Remains {
    fn is_nothing(&self) -> bool {
        (self.containers, self.directories) == (0, 0) && self.is_foreign_running
    }
}

enum Answer {
    Correct,
    Refused,
    Wrong(Value),
}

/// Judges an answer. A run that was hit by a kill may end by a signal, or be refused with a code and a hint; any other
/// answer is wrong.
fn judge(result: &Value, number: usize) -> Answer {
    if result["stdout"] == json!(format!("{}\n", number * 2)) && result["success"] == true {
        return Answer::Correct;
    }
    let is_refused = result["code"].is_string() && result["hint"].is_string();
    let is_ended = result["success"] == false && result["exit"]["kind"] == "signal";
    if is_refused || is_ended {
        Answer::Refused
    } else {
        Answer::Wrong(result.clone())
    }
}
