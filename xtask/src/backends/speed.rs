//! Times of each backend, beside what the engine takes for the same image, in one run.

use super::{
    BACKENDS,
    engine::{Engine, IMAGE},
    server::Server,
};
use crate::{command::capture, stats::Samples, workspace::Workspace};
use serde_json::json;
use std::{
    thread::{scope, sleep},
    time::{Duration, Instant},
};

const PRINT: &str = "print(1)";
/// Requests that are open at once where throughput is measured.
const OPEN: usize = 4;
/// How long a container may take to stand ready again.
const READY: Duration = Duration::from_secs(30);

/// What a median has to keep to, in milliseconds.
const DOCKER_COLD_OVER_RUN: f64 = 50.0;
const WARM: [(&str, f64); 2] = [("docker", 40.0), ("gvisor", 100.0)];

/// What missed its target, in words.
type Missed = Vec<String>;

pub fn measure(workspace: &Workspace, engine: &Engine, runs: usize) -> Result<(), String> {
    println!("{:44} {:>9} {:>9} {:>9}", "what, in ms", "p50", "p95", "max");
    let mut plain = Vec::new();
    for (name, runtime) in [("docker run", "runc"), ("docker run --runtime=runsc", "runsc")] {
        plain.push(row(name, times(runs, || plainly(engine, runtime))?)?);
    }
    let mut missed = cold(workspace, engine, runs, plain[0])?;
    missed.extend(warm(workspace, engine, runs)?);
    println!("\nruns in a second, {OPEN} at once");
    for (name, runtime) in [("docker run", "runc"), ("docker run --runtime=runsc", "runsc")] {
        let run = || plainly(engine, runtime);
        rate(name, runs, || {
            scope(|at_once| {
                let all: Vec<_> = (0..OPEN).map(|_| at_once.spawn(run)).collect();
                all.into_iter()
                    .try_for_each(|one| one.join().map_err(|_| "a run has panicked".to_owned())?)
            })
        })?;
    }
    let server = Server::start(&workspace.binary(), engine, &[])?;
    for backend in BACKENDS {
        printed(&server, backend)?;
        rate(backend, runs, || {
            let begun: Result<Vec<u64>, String> = (0..OPEN).map(|_| begin(&server, backend)).collect();
            for _ in begun? {
                let answer = server.next()?;
                if answer["structuredContent"]["stdout"] != "1\n" {
                    return Err(answer.to_string());
                }
            }
            Ok(())
        })?;
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("past its target: {}", missed.join("; "))),
    }
}

/// The engine's own, with the same walls as far as its words go.
fn plainly(engine: &Engine, runtime: &str) -> Result<(), String> {
    let words = ["run", "--rm", "--network=none", "--runtime", runtime, IMAGE];
    let said = capture(engine.docker(&[&words[..], &["python3", "-c", PRINT]].concat()))?;
    match said.as_str() {
        "1\n" => Ok(()),
        said => Err(format!("docker run says {said:?}")),
    }
}

fn cold(workspace: &Workspace, engine: &Engine, runs: usize, plain: f64) -> Result<Missed, String> {
    let server = Server::start(&workspace.binary(), engine, &[("RINGFENCE_WARM_READY", "0")])?;
    let mut missed = Missed::new();
    for backend in BACKENDS {
        printed(&server, backend)?;
        let median = row(
            &format!("{backend}, cold"),
            times(runs, || printed(&server, backend))?,
        )?;
        if backend == "docker" && median > plain + DOCKER_COLD_OVER_RUN {
            missed.push(format!(
                "docker, cold: {median:.1} ms, docker run {plain:.1} ms + {DOCKER_COLD_OVER_RUN} ms"
            ));
        }
    }
    Ok(missed)
}

/// One after the other, each when a container stands ready; and calls of a session.
fn warm(workspace: &Workspace, engine: &Engine, runs: usize) -> Result<Missed, String> {
    let server = Server::start(&workspace.binary(), engine, &[])?;
    let mut missed = Missed::new();
    for backend in BACKENDS {
        printed(&server, backend)?;
        let mut all = Vec::new();
        for _ in 0..runs {
            ready(&server, backend)?;
            all.extend(times(1, || printed(&server, backend))?);
        }
        let median = row(&format!("{backend}, warm"), all)?;
        let most = WARM.iter().find(|(name, _)| *name == backend);
        if let Some((_, most)) = most.filter(|(_, most)| median > *most) {
            missed.push(format!("{backend}, warm: {median:.1} ms, at most {most} ms"));
        }
        let made = server.call(
            "create_session",
            &json!({"language": "python", "backend": backend}),
        )?;
        let call = json!({"code": "1 + 1", "session_id": made["session_id"], "validate": "off"});
        let evaluated = || match server.call("execute_code", &call)? {
            said if said["result"] == 2 => Ok(()),
            said => Err(said.to_string()),
        };
        row(&format!("{backend}, call of a session"), times(runs, evaluated)?)?;
        server.call("terminate_session", &json!({"session_id": made["session_id"]}))?;
    }
    Ok(missed)
}

fn begin(server: &Server, backend: &str) -> Result<u64, String> {
    server.begin(
        "execute_code",
        &json!({"code": PRINT, "backend": backend, "validate": "off"}),
    )
}

fn printed(server: &Server, backend: &str) -> Result<(), String> {
    let result = server.run(backend, "python", PRINT)?;
    if result["stdout"] == "1\n" && result["backend"] == backend {
        Ok(())
    } else {
        Err(result.to_string())
    }
}

/// Until a container waits; native sandboxes do as soon as one is asked for.
fn ready(server: &Server, backend: &str) -> Result<(), String> {
    let begun = Instant::now();
    while backend != "native" && begun.elapsed() < READY {
        let stats = server.call("list_runtimes", &json!({}))?;
        let mut python = stats["runtimes"].as_array().into_iter().flatten();
        let python = python.find(|one| one["language"] == "python");
        let waiting = python.and_then(|one| one["containers_ready"][backend].as_u64());
        if waiting.is_some_and(|waiting| waiting >= 1) {
            return Ok(());
        }
        sleep(Duration::from_millis(20));
    }
    match backend {
        "native" => Ok(()),
        _ => Err(format!("no container of {backend} stands ready")),
    }
}

fn times(runs: usize, mut what: impl FnMut() -> Result<(), String>) -> Result<Vec<f64>, String> {
    let mut all = Vec::new();
    for _ in 0..runs {
        let begun = Instant::now();
        what()?;
        all.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(all)
}

/// Prints a row; its median.
fn row(name: &str, times: Vec<f64>) -> Result<f64, String> {
    let times = Samples::new(times).ok_or("--runs: at least one")?;
    let [median, late, most] = [50, 95, 100].map(|percent| times.percentile(percent));
    println!("{name:44} {median:>9.1} {late:>9.1} {most:>9.1}");
    Ok(median)
}

fn rate(name: &str, runs: usize, mut four: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let (rounds, begun) = (runs.div_ceil(OPEN), Instant::now());
    for _ in 0..rounds {
        four()?;
    }
    let rate = (rounds * OPEN) as f64 / begun.elapsed().as_secs_f64();
    println!("{name:44} {rate:>9.1}");
    Ok(())
}
