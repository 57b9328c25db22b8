//! One conformance suite over all backends: what a program sees of its sandbox, whoever made it. A container engine of its
//! own is started, with gVisor by the ptrace platform; its images are made from `debootstrap` and kept in
//! `~/.cache/ringfence-test`. Needs root, and `apt-get install docker.io runsc debootstrap`.

mod cases;
mod engine;
mod faults;
pub mod image;
mod kills;
mod server;
mod speed;
mod web;

use crate::{
    command::{command, count_tests},
    mcp_client,
    programs::Tries,
    tally::Tally,
    workspace::Workspace,
};
use cases::{CASES, Case, Held};
use engine::Engine;
use server::Server;
use std::{collections::BTreeMap, sync::Arc};
use web::Tls;

/// Of a benchmark that names no other number.
pub const RUNS: usize = 20;

/// In the order of the matrix.
pub const BACKENDS: [&str; 3] = ["native", "docker", "gvisor"];

/// How much of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What CI runs.
    Short,
    Whole,
}

/// Runs the cases whose name holds `part`, and prints the matrix. A case for which the engine had no time, and so ran no
/// program, is judged once more, as [`Tries`] says; where it holds then, that is said. Any other failure is one.
pub fn run(workspace: &Workspace, part: &str, extent: Extent) -> Result<Tally, String> {
    let mut engine = Engine::start(workspace)?;
    engine.tls = Some(Arc::new(Tls::begin(&workspace.root, &engine.directory)?));
    let server = Server::start(&workspace.binary(), &engine, &[])?;
    println!(
        "{:58} {:>10} {:>10} {:>10}",
        "case", BACKENDS[0], BACKENDS[1], BACKENDS[2]
    );
    let (mut counts, mut notes) = (BTreeMap::<&str, usize>::new(), Vec::new());
    for case in CASES.iter().filter(|case| case.name.contains(part)) {
        if extent == Extent::Short && !case.is_short {
            continue;
        }
        let row: Vec<&str> = BACKENDS
            .iter()
            .map(|backend| {
                let (word, note) = judge_twice(case, &server, backend, workspace.tries);
                *counts.entry(word).or_default() += 1;
                notes.extend(note.map(|note| format!("{backend}: {}: {note}", case.name)));
                word
            })
            .collect();
        println!("{:58} {:>10} {:>10} {:>10}", case.name, row[0], row[1], row[2]);
    }
    println!();
    for note in &notes {
        println!("{note}");
    }
    drop(server);
    let left = engine.left()?;
    println!("{counts:?}; containers left: {left}");
    let count = |word: &str| counts.get(word).copied().unwrap_or(0);
    match (count(FAILED), count(HELD) + count(SECOND), left) {
        (0, 0, _) => Err("no case was run".to_owned()),
        (0, passed, 0) => Ok(Tally {
            passed: passed as u64,
            failed: 0,
            second: count(SECOND) as u64,
        }),
        (failed, _, left) => Err(format!(
            "{failed} case(s) failed, {left} container(s) left\n{}",
            notes.join("\n")
        )),
    }
}

const HELD: &str = "held";
const SECOND: &str = "2nd try";
const FAILED: &str = "FAILED";

fn judge_twice(case: &Case, server: &Server, backend: &str, tries: Tries) -> (&'static str, Option<String>) {
    let (word, why) = judge(case, server, backend);
    let was_not_run = why
        .as_ref()
        .is_some_and(|why| why.contains("runtime_unavailable"));
    if tries == Tries::Two && word == FAILED && was_not_run && judge(case, server, backend).0 == HELD {
        return (SECOND, why);
    }
    (word, why)
}

fn judge(case: &Case, server: &Server, backend: &str) -> (&'static str, Option<String>) {
    if let Some((_, why)) = case.not_in.iter().find(|(other, _)| *other == backend) {
        return ("n.a.", Some((*why).to_owned()));
    }
    match (case.judge)(server, backend) {
        Ok(Held::Yes) => (HELD, None),
        Ok(Held::NotHere(why)) => ("n.a.", Some(why)),
        Err(why) => (FAILED, Some(why)),
    }
}

/// Times, beside the engine's own, in one run.
pub fn bench(workspace: &Workspace, runs: usize) -> Result<(), String> {
    let engine = Engine::start(workspace)?;
    speed::measure(workspace, &engine, runs)
}

/// Runs under kills of the server, of containers and of the engine; as many as the variable says, else a few.
pub fn kill(workspace: &Workspace) -> Result<(), String> {
    let runs = match std::env::var(kills::RUNS_VARIABLE) {
        Ok(runs) => crate::number(&runs)?,
        Err(_) => kills::RUNS,
    };
    kills::run(workspace, Engine::start(workspace)?, runs)
}

/// An engine that hangs, is gone or full, and containers that are not ours.
pub fn fault(workspace: &Workspace, part: &str) -> Result<(), String> {
    faults::run(workspace, &mut Engine::start(workspace)?, part)
}

/// `docker restart web` for an agent: the real engine and client, the official client of the protocol, a person's answer
/// in a terminal.
pub fn restart(workspace: &Workspace) -> (Tally, Result<(), String>) {
    let story = || {
        let engine = Engine::start(workspace)?;
        // A program that is pid 1 ends by no signal that it does not handle, but by this one.
        engine.stranger(&["--name=web", "--stop-signal=KILL"])?;
        let python = mcp_client::environment(workspace, "2.3")?;
        let mut story = command(python, [workspace.root.join("tests/mcp_client/restarting.py")]);
        story.arg("--server").arg(workspace.binary());
        story.arg("--socket").arg(engine.socket());
        story.env("PYTHONDONTWRITEBYTECODE", "1");
        Ok((engine, story))
    };
    match story() {
        Ok((_engine, story)) => count_tests(story),
        Err(reason) => (Tally::default(), Err(reason)),
    }
}
