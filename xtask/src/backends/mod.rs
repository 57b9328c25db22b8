//! One conformance suite for all backends: what a program sees of its sandbox, whichever backend made it. It starts a
//! separate container engine, with gVisor's ptrace platform; its image is made with `debootstrap` and kept in
//! `~/.cache/ringfence-test`. Requires root, and `apt-get install docker.io runsc debootstrap`.

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
use cases::{CASES, Case, Verdict};
use engine::Engine;
use server::Server;
use std::{collections::BTreeMap, sync::Arc};
use web::Tls;

/// Runs of a benchmark by default.
pub const RUNS: usize = 20;

/// Backends, in the order of the matrix.
pub const BACKENDS: [&str; 3] = ["native", "docker", "gvisor"];

/// Extent of the suite.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Cases that CI runs.
    Short,
    Whole,
}

/// Runs the cases whose name contains `part`, and prints the matrix. With [`Tries::Two`], a case whose program did not
/// run because the engine had no time is judged a second time; the matrix marks it if it then passes. Any other failure
/// counts.
pub fn run(workspace: &Workspace, part: &str, extent: Extent) -> Result<Tally, String> {
    let mut engine = Engine::start(workspace)?;
    engine.tls = Some(Arc::new(Tls::start(&workspace.root, &engine.directory)?));
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
    let left = engine.remaining_containers()?;
    println!("{counts:?}; containers left: {left}");
    let count = |word: &str| counts.get(word).copied().unwrap_or(0);
    match (count(FAILED), count(HELD) + count(RETRIED), left) {
        (0, 0, _) => Err("no case was run".to_owned()),
        (0, passed, 0) => Ok(Tally {
            passed: passed as u64,
            failed: 0,
            retried: count(RETRIED) as u64,
        }),
        (failed, _, left) => Err(format!(
            "{failed} case(s) failed, {left} container(s) left\n{}",
            notes.join("\n")
        )),
    }
}

const HELD: &str = "held";
const RETRIED: &str = "2nd try";
const FAILED: &str = "FAILED";

fn judge_twice(case: &Case, server: &Server, backend: &str, tries: Tries) -> (&'static str, Option<String>) {
    let (word, why) = judge(case, server, backend);
    let was_not_run = why
        .as_ref()
        .is_some_and(|why| why.contains("runtime_unavailable"));
    if tries == Tries::Two && word == FAILED && was_not_run && judge(case, server, backend).0 == HELD {
        return (RETRIED, why);
    }
    (word, why)
}

fn judge(case: &Case, server: &Server, backend: &str) -> (&'static str, Option<String>) {
    if let Some((_, why)) = case.not_in.iter().find(|(other, _)| *other == backend) {
        return ("n.a.", Some((*why).to_owned()));
    }
    match (case.judge)(server, backend) {
        Ok(Verdict::Held) => (HELD, None),
        Ok(Verdict::Unavailable(why)) => ("n.a.", Some(why)),
        Err(why) => (FAILED, Some(why)),
    }
}

/// Measures each backend, beside the engine itself, in one run.
pub fn bench(workspace: &Workspace, runs: usize) -> Result<(), String> {
    let engine = Engine::start(workspace)?;
    speed::measure(workspace, &engine, runs)
}

/// Runs programs while the server, containers and the engine are killed: as many as the variable says, else
/// [`kills::RUNS`].
pub fn kill(workspace: &Workspace) -> Result<(), String> {
    let runs = match std::env::var(kills::RUNS_VARIABLE) {
        Ok(runs) => crate::number(&runs)?,
        Err(_) => kills::RUNS,
    };
    kills::run(workspace, Engine::start(workspace)?, runs)
}

/// Tests an engine that hangs, is gone or is full, and containers that are not ours.
pub fn fault(workspace: &Workspace, part: &str) -> Result<(), String> {
    faults::run(workspace, &mut Engine::start(workspace)?, part)
}

/// Tests `docker restart web` for an agent: with the real engine and client, the official client of the protocol, and
/// an answer in a terminal.
pub fn restart(workspace: &Workspace) -> (Tally, Result<(), String>) {
    let story = || {
        let engine = Engine::start(workspace)?;
        // SIGKILL is the only signal that ends a pid 1 without a handler.
        engine.start_foreign(&["--name=web", "--stop-signal=KILL"])?;
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
