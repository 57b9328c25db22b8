//! Measures the audit record on the disk of a directory: `cargo run --release --example audit -- DIRECTORY`.

use ringfence_store::{
    Signer,
    audit::{Action, Audit, Durability, Entry, Outcome, Storage, verify},
};
use serde_json::{Map, Value, json};
use std::{
    error::Error,
    fs,
    io::Write,
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    thread,
    time::Instant,
};

const ALONE: usize = 3_000;
const THREADS: usize = 4;
/// Of one thread; less with Durability::Power would measure the same.
const TOGETHER: usize = 10_000;
/// Entries that one thread has on their way: together they stay below the queue's limit.
const ON_THEIR_WAY: usize = 200;

fn entry(number: usize) -> Entry {
    Entry {
        action: Action::ExecutionCompleted,
        outcome: Outcome::Ok,
        namespace: "default".to_owned(),
        execution_id: Some(format!("0198c5b2-0000-7000-8000-{number:012x}")),
        caller: "stdio".to_owned(),
        details: Map::from_iter([
            ("language".to_owned(), Value::from("python")),
            ("duration_ms".to_owned(), Value::from(number)),
        ]),
    }
}

/// From handing in to the callback, in microseconds, one after the other.
fn alone(audit: &Audit) -> Result<Vec<f64>, Box<dyn Error>> {
    let (tell, told) = mpsc::channel();
    let mut spans_us = Vec::with_capacity(ALONE);
    for number in 0..ALONE {
        let (entry, tell) = (entry(number), tell.clone());
        let since = Instant::now();
        audit.append(entry, move |result| {
            let span_us = since.elapsed().as_secs_f64() * 1e6;
            if tell.send(result.map(|_| span_us)).is_err() {
                eprintln!("the measurement has ended");
            }
        });
        spans_us.push(told.recv()??);
    }
    spans_us.sort_by(f64::total_cmp);
    Ok(spans_us)
}

/// Appends per second of four threads.
fn together(audit: &Audit) -> f64 {
    let since = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| flood(audit));
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let appended = (THREADS * TOGETHER) as f64;
    appended / since.elapsed().as_secs_f64()
}

fn flood(audit: &Audit) {
    let gate = Arc::new((Mutex::new(0usize), Condvar::new()));
    let wait_below = |most: usize| {
        let on_their_way = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
        let below = gate.1.wait_while(on_their_way, |count| *count > most);
        below.unwrap_or_else(PoisonError::into_inner)
    };
    for number in 0..TOGETHER {
        *wait_below(ON_THEIR_WAY - 1) += 1;
        let gate = gate.clone();
        audit.append(entry(number), move |result| {
            if let Err(error) = result {
                eprintln!("{error}");
            }
            *gate.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            gate.1.notify_one();
        });
    }
    drop(wait_below(0));
}

fn measure(directory: &Path, durability: Durability) -> Result<Value, Box<dyn Error>> {
    let path = directory.join("audit.db");
    let signer = Signer::in_memory()?;
    let key = signer.public_key();
    let place = Storage::File(path.clone());
    let audit = Audit::open(place, durability, signer, "bench".to_owned())?;
    let spans_us = alone(&audit)?;
    let per_second = together(&audit);
    drop(audit);
    let since = Instant::now();
    let verdict = verify(&path, Some(&key), None, &mut |_, _| {})?;
    if let Some(bad) = verdict.bad {
        return Err(bad.to_string().into());
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let verified_per_second = verdict.records as f64 / since.elapsed().as_secs_f64();
    Ok(json!({
        "alone_p50_us": spans_us[ALONE / 2].round(),
        "alone_p99_us": spans_us[ALONE * 99 / 100].round(),
        "alone_max_us": spans_us[ALONE - 1].round(),
        "appends_per_s": per_second.round(),
        "verified_per_s": verified_per_second.round(),
        "records": verdict.records,
        "bytes": fs::metadata(&path)?.len(),
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("which directory?")?;
    let mut figures = Map::new();
    for (name, durability) in [("process", Durability::Process), ("power", Durability::Power)] {
        let inside = Path::new(&directory).join(format!("ringfence-audit-bench-{}", std::process::id()));
        fs::create_dir(&inside)?;
        let measured = measure(&inside, durability);
        fs::remove_dir_all(&inside)?;
        figures.insert(name.to_owned(), measured?);
    }
    writeln!(std::io::stdout(), "{:#}", Value::Object(figures))?;
    Ok(())
}
