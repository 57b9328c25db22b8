//! Times the artifact store in a directory that must not exist yet, and removes it: publishing one artifact of 10 KiB,
//! then a sweep, a list and an opening with 5,000 executions. `target/release/examples/time_artifacts DIRECTORY`
#![expect(clippy::print_stdout, reason = "its standard output is its result")]

use ringfence_store::{
    Signer,
    artifacts::{ArtifactStore, Item, Published, Retention},
};
use ringfence_types::Namespace;
use std::{
    error::Error,
    fs,
    io::Write,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

const EXECUTIONS: u32 = 5000;
const RETENTION: Retention = Retention {
    age: Duration::from_secs(30 * 24 * 3600),
    bytes: 1 << 30,
};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err("one argument: a directory to make".into());
    };
    fs::create_dir(&directory)?;
    let place = directory.join("store");
    let store = ArtifactStore::open(place.clone(), Signer::in_memory()?, RETENTION)?;
    let mut times = Vec::new();
    for number in 0..EXECUTIONS {
        let begun = Instant::now();
        publish(&store, number)?;
        times.push(begun.elapsed());
    }
    times.sort();
    println!(
        "publish: p50 {:?}, p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );

    let begun = Instant::now();
    let swept = store.sweep()?;
    println!(
        "sweep that removes nothing: {:?}, {} bytes held",
        begun.elapsed(),
        swept.held_bytes
    );
    let begun = Instant::now();
    let listed = store.executions(&Namespace::default_name(), 20)?;
    println!("list of {}: {:?}", listed.len(), begun.elapsed());
    let begun = Instant::now();
    let found = store.read("e-1", &Namespace::default_name(), "out")?;
    println!("read of one, found {}: {:?}", found.is_some(), begun.elapsed());
    let begun = Instant::now();
    ArtifactStore::open(place, Signer::in_memory()?, RETENTION)?;
    println!("opening: {:?}", begun.elapsed());
    store.set_retention(Retention {
        bytes: swept.held_bytes / 2,
        ..RETENTION
    });
    let begun = Instant::now();
    let swept = store.sweep()?;
    println!("sweep that removes {}: {:?}", swept.executions, begun.elapsed());
    Ok(fs::remove_dir_all(directory)?)
}

fn publish(store: &ArtifactStore, number: u32) -> Result<(), Box<dyn Error>> {
    let mut bytes = vec![7; 10 << 10];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    let mut incoming = store.receive()?;
    incoming.write_all(&bytes)?;
    let item = Item {
        name: "out".to_owned(),
        mime: "application/octet-stream".to_owned(),
        content: incoming.finish()?,
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let published = Published {
        execution_id: format!("e-{number}"),
        namespace: Namespace::default_name(),
        time_unix_ms: u64::try_from(now.as_millis())?,
    };
    store.publish(published, vec![item])?;
    Ok(())
}
