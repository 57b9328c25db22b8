//! Times of each backend, beside those of the engine with the same image, in one run.

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
/// Concurrent requests of the throughput measurement.
const OPEN: usize = 4;
/// Time limit for the next container to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of medians, in milliseconds.
const DOCKER_COLD_OVER_RUN: f64 = 50.0;
const WARM: [(&str, f64); 2] = [("docker", 40.0), ("gvisor", 100.0)];

/// Descriptions of missed targets.
type Missed = Vec<String>;

pub fn measure(workspace: &Workspace, engine: &Engine, runs: usize) -> Result<(), String> {
    println!("{:44} {:>9} {:>9} {:>9}", "milliseconds", "p50", "p95", "max");
    let mut plain = Vec::new();
    for (name, runtime) in [("docker run", "runc"), ("docker run --runtime=runsc", "runsc")] {
        plain.push(row(name, times(runs, || docker_run(engine, runtime))?)?);
    }
    let mut missed = cold(workspace, engine, runs, plain[0])?;
    missed.extend(warm(workspace, engine, runs)?);
    println!("\nruns per second, {OPEN} at once");
    for (name, runtime) in [("docker run", "runc"), ("docker run --runtime=runsc", "runsc")] {
        let run = || docker_run(engine, runtime);
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
        run_print(&server, backend)?;
        rate(backend, runs, || {
            let begun: Result<Vec<u64>, String> = (0..OPEN).map(|_| send_run(&server, backend)).collect();
            for _ in begun? {
                let answer = server.next_result()?;
                if answer["structuredContent"]["stdout"] != "1\n" {
                    return Err(answer.to_string());
                }
            }
            Ok(())
        })?;
    }
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("over the limit: {}", missed.join("; "))),
    }
}

/// Runs the program with the engine alone.
fn docker_run(engine: &Engine, runtime: &str) -> Result<(), String> {
    let words = ["run", "--rm", "--network=none", "--runtime", runtime, IMAGE];
    let output = capture(engine.docker(&[&words[..], &["python3", "-c", PRINT]].concat()))?;
    match output.as_str() {
        "1\n" => Ok(()),
        output => Err(format!("docker run printed {output:?}")),
    }
}

fn cold(workspace: &Workspace, engine: &Engine, runs: usize, plain: f64) -> Result<Missed, String> {
    let server = Server::start(&workspace.binary(), engine, &[("RINGFENCE_WARM_READY", "0")])?;
    let mut missed = Missed::new();
    for backend in BACKENDS {
        run_print(&server, backend)?;
        let median = row(
            &format!("{backend}, cold"),
            times(runs, || run_print(&server, backend))?,
        )?;
        if backend == "docker" && median > plain + DOCKER_COLD_OVER_RUN {
            missed.push(format!(
                "docker, cold: {median:.1} ms, at most docker run {plain:.1} ms + {DOCKER_COLD_OVER_RUN} ms"
            ));
        }
    }
    Ok(missed)
}

/// Measures runs one after the other, each when a container is ready; and calls of a session.
fn warm(workspace: &Workspace, engine: &Engine, runs: usize) -> Result<Missed, String> {
    let server = Server::start(&workspace.binary(), engine, &[])?;
    let mut missed = Missed::new();
    for backend in BACKENDS {
        run_print(&server, backend)?;
        let mut all = Vec::new();
        for _ in 0..runs {
            wait_until_ready(&server, backend)?;
            all.extend(times(1, || run_print(&server, backend))?);
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
        let evaluate = || match server.call("execute_code", &call)? {
            answer if answer["result"] == 2 => Ok(()),
            answer => Err(answer.to_string()),
        };
        row(&format!("{backend}, call of a session"), times(runs, evaluate)?)?;
        server.call("terminate_session", &json!({"session_id": made["session_id"]}))?;
    }
    Ok(missed)
}

fn send_run(server: &Server, backend: &str) -> Result<u64, String> {
    server.send_call(
        "execute_code",
        &json!({"code": PRINT, "backend": backend, "validate": "off"}),
    )
}

fn run_print(server: &Server, backend: &str) -> Result<(), String> {
    let result = server.run(backend, "python", PRINT)?;
    if result["stdout"] == "1\n" && result["backend"] == backend {
        Ok(())
    } else {
        Err(result.to_string())
    }
}

/// Waits until a container of the backend is ready. Native sandboxes need no wait.
fn wait_until_ready(server: &Server, backend: &str) -> Result<(), String> {
    let begun = Instant::now();
    while backend != "native" && begun.elapsed() < READY_TIMEOUT {
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
        _ => Err(format!("{backend}: no container is ready")),
    }
}

fn times(runs: usize, mut run: impl FnMut() -> Result<(), String>) -> Result<Vec<f64>, String> {
    let mut all = Vec::new();
    for _ in 0..runs {
        let begun = Instant::now();
        run()?;
        all.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(all)
}

/// Prints a row and returns the median.
fn row(name: &str, times: Vec<f64>) -> Result<f64, String> {
    let times = Samples::new(times).ok_or("--runs must be at least 1")?;
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
