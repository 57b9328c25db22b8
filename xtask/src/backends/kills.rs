//! Runs while the server, containers and the engine are killed: no answer is wrong, and nothing is left.

use super::{BACKENDS, engine::Engine, server::Server};
use crate::{command::capture, workspace::Workspace};
use serde_json::{Value, json};
use std::{fs, thread::sleep, time::Duration};

/// Between kills.
const EACH: usize = 25;
/// How long the next start has for what the last one left.
const SWEEPS: u32 = 150;

pub fn run(workspace: &Workspace, mut engine: Engine, runs: usize) -> Result<(), String> {
    let binary = workspace.binary();
    let state = engine
        .directory
        .join(format!("state-kills-{}", std::process::id()));
    // Somebody else's, which has to stay.
    let stranger = stranger(&engine)?;
    let mut server = Server::with_state(&binary, &engine, &[], state.clone())?;
    let (mut right, mut refused, mut kills) = (0, 0, 0);
    for backend in BACKENDS {
        for number in 0..runs {
            if number % EACH == EACH - 1 {
                kills += 1;
                match (number / EACH) % 3 {
                    0 => {
                        drop(server.begin("execute_code", &sleeping(backend)));
                        sleep(Duration::from_millis(700));
                        server.kill();
                        server = Server::with_state(&binary, &engine, &[], state.clone())?;
                    }
                    1 => {
                        for container in engine.containers() {
                            if container != stranger[..container.len()] {
                                drop(capture(engine.docker(&["kill", &container])));
                            }
                        }
                    }
                    _ => {
                        engine.kill()?;
                        drop(capture(engine.docker(&["start", &stranger])));
                    }
                }
            }
            let code = format!("print({number} * 2)");
            match judge(&server.run(backend, "python", &code)?, number) {
                Answer::Right => right += 1,
                Answer::Refused => refused += 1,
                Answer::Wrong(seen) => return Err(format!("{backend}, run {number}: {seen}")),
            }
        }
    }
    drop(server);
    // One more start sweeps what the last kill may have left.
    let server = Server::with_state(&binary, &engine, &[], state.clone())?;
    server.run("docker", "python", "1")?;
    drop(server);
    // The stranger's stays.
    for _ in 0..SWEEPS {
        if engine.there()? <= 1 {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    let left = engine.there()?.saturating_sub(1);
    let is_there = engine
        .containers()
        .iter()
        .any(|id| stranger.starts_with(id.as_str()));
    let directories = fs::read_dir(state.join("runs")).map_or(0, |entries| entries.count());
    drop(capture(engine.docker(&["rm", "-f", &stranger])));
    println!("{right} right, {refused} refused or ended by a kill, 0 wrong, in {kills} kills");
    println!(
        "containers left: {left}; directories left: {directories}; a stranger's container: {}",
        if is_there { "there" } else { "GONE" }
    );
    match (left, directories, is_there) {
        (0, 0, true) => Ok(()),
        _ => Err("something is left, or a stranger's is gone".to_owned()),
    }
}

enum Answer {
    Right,
    Refused,
    Wrong(Value),
}

/// A run that a kill has met may end, with its cause, or be refused with a code; it may not have another answer.
fn judge(result: &Value, number: usize) -> Answer {
    if result["stdout"] == json!(format!("{}\n", number * 2)) && result["success"] == true {
        return Answer::Right;
    }
    let is_refused = result["code"].is_string() && result["hint"].is_string();
    let is_ended = result["success"] == false && result["exit"]["kind"] == "signal";
    if is_refused || is_ended {
        Answer::Refused
    } else {
        Answer::Wrong(result.clone())
    }
}

fn sleeping(backend: &str) -> Value {
    json!({"code": "import time\ntime.sleep(30)", "backend": backend, "validate": "off"})
}

/// A container that is not ours.
fn stranger(engine: &Engine) -> Result<String, String> {
    let words = [
        "run",
        "-d",
        "--network=none",
        "--restart=always",
        super::engine::IMAGE,
        "sleep",
        "100000",
    ];
    let id = capture(engine.docker(&words))?;
    Ok(id.trim().to_owned())
}
