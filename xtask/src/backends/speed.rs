//! Times of each backend, beside what the engine takes for the same image in the same run.

use super::{
    BACKENDS,
    engine::{Engine, IMAGE},
    server::Server,
};
use crate::{command::capture, workspace::Workspace};
use serde_json::json;
use std::time::Instant;

const PRINT: &str = "print(1)";

pub fn measure(workspace: &Workspace, engine: &Engine, runs: usize) -> Result<(), String> {
    println!("{:44} {:>9} {:>9} {:>9}", "what, in ms", "p50", "p95", "max");
    for (name, runtime) in [("docker run", "runc"), ("docker run --runtime=runsc", "runsc")] {
        let words = [
            "run",
            "--rm",
            "--network=none",
            "--runtime",
            runtime,
            IMAGE,
            "python3",
            "-c",
            PRINT,
        ];
        row(name, &times(runs, || capture(engine.docker(&words)).map(drop))?);
    }
    let cold = Server::start(&workspace.binary(), engine, &[("RINGFENCE_WARM_READY", "0")])?;
    for backend in BACKENDS {
        let print = || printed(&cold, backend);
        print()?;
        row(&format!("{backend}, cold"), &times(runs, print)?);
    }
    drop(cold);
    let warm = Server::start(&workspace.binary(), engine, &[])?;
    for backend in BACKENDS {
        printed(&warm, backend)?;
        // One after the other, each when a container stands ready again.
        let mut all = Vec::new();
        for _ in 0..runs {
            ready(&warm, backend)?;
            all.extend(times(1, || printed(&warm, backend))?);
        }
        row(&format!("{backend}, warm"), &all);
        let made = warm.call(
            "create_session",
            &json!({"language": "python", "backend": backend}),
        )?;
        let call = json!({"code": "1 + 1", "session_id": made["session_id"], "validate": "off"});
        row(
            &format!("{backend}, call of a session"),
            &times(runs, || warm.call("execute_code", &call).map(drop))?,
        );
        let begun = Instant::now();
        let ids: Result<Vec<u64>, String> =
            (0..4 * runs.div_ceil(4)).map(|_| begin(&warm, backend)).collect();
        let ids = ids?;
        let count = ids.len();
        for _ in ids {
            warm.next()?;
        }
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        println!(
            "{:44} {rate:>9.1} runs a second",
            format!("{backend}, all at once")
        );
    }
    Ok(())
}

fn begin(server: &Server, backend: &str) -> Result<u64, String> {
    server.begin(
        "execute_code",
        &json!({"code": PRINT, "backend": backend, "validate": "off"}),
    )
}

fn printed(server: &Server, backend: &str) -> Result<(), String> {
    let result = server.run(backend, "python", PRINT)?;
    if result["stdout"] == "1\n" {
        Ok(())
    } else {
        Err(result.to_string())
    }
}

/// Until as many containers wait as there should.
fn ready(server: &Server, backend: &str) -> Result<(), String> {
    for _ in 0..200 {
        let stats = server.call("list_runtimes", &json!({}))?;
        let python = stats["runtimes"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["language"] == "python");
        let ready = python.map(|one| one["containers_ready"][backend].as_u64().unwrap_or(2));
        if ready.is_some_and(|ready| ready >= 1) {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(format!("no container of {backend} stands ready"))
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

fn row(name: &str, times: &[f64]) {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{name:44} {:>9.1} {:>9.1} {:>9.1}", at(50), at(95), at(100));
}
