//! A state directory without room, and one that cannot be written: nothing runs unrecorded, nothing leaves unrecorded, and
//! with room everything goes on.

use super::{
    agent::Agent,
    state::{State, words},
};
use crate::client::*;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// A file system of two mebibytes, in a mount namespace of its own: it goes away with the process that holds it.
struct SmallDisk {
    holder: Child,
    directory: TempDir,
}

impl SmallDisk {
    /// None: not here, and nobody asks for it.
    fn make(test: &str) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let directory = TempDir::new(&format!("record-disk-{test}"));
        let script = "mount -t tmpfs -o size=2m,mode=700 small \"$0\" && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(&directory.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Some(Self { holder, directory })
    }

    fn state(&self) -> State {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        State::behind(
            &["nsenter", &namespace],
            self.here().join("state"),
            self.directory.0.join("state"),
        )
        // The whole of it is smaller than what stays free by default.
        .with("RINGFENCE_DISK_FREE_MB", "0")
    }

    /// As it is reached from outside the namespace.
    fn here(&self) -> PathBuf {
        let inside = self.directory.0.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(inside)
    }

    /// A copy of what its servers wrote: SQLite resolves links of a path itself, and those of /proc are no ordinary ones.
    fn copy(&self) -> State {
        let copy = self.directory.0.join("copy");
        drop(fs::remove_dir_all(&copy));
        let (from, to) = (self.here().join("state/record"), copy.join("record"));
        fs::create_dir_all(&to).unwrap();
        for name in ["audit.db", "audit.db-wal", "audit.db-shm", "signing.key"] {
            // A log is there once something was written.
            if from.join(name).exists() {
                fs::copy(from.join(name), to.join(name)).unwrap();
            }
        }
        State::behind(&[], copy.clone(), copy)
    }

    fn fill(&self) {
        let mut ballast = File::create(self.here().join("ballast")).unwrap();
        let full = loop {
            if let Err(error) = ballast.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    fn make_room(&self) {
        fs::remove_file(self.here().join("ballast")).unwrap();
    }

    fn remount(&self, how: &str) {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        let mut command = Command::new("nsenter");
        command
            .args([&namespace, "mount", "-o", &format!("remount,{how}")])
            .arg(&self.directory.0);
        assert!(command.status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

const HELLO: &str = "print('the-canary')";

fn execute(agent: &mut Agent) -> Value {
    agent.run(json!({"code": HELLO}))
}

fn assert_unavailable(refused: &Value) {
    assert_eq!(refused["code"], "audit_unavailable", "{refused}");
    let message = text_of(&refused["message"]);
    assert!(message.contains("disk is full"), "{message}");
    refused.says("hint", ["room"]);
}

/// claim: [REC-1]
#[test]
fn a_full_disk_refuses_every_call_until_there_is_room() {
    let Some(disk) = SmallDisk::make("full") else {
        return;
    };
    let state = disk.state();
    let mut agent = state.serve();
    assert_eq!(execute(&mut agent)["stdout"], "the-canary\n");
    let before = disk.copy().records().len();
    disk.fill();
    for _ in 0..3 {
        assert_unavailable(&execute(&mut agent));
    }
    // Looking is a call, too.
    assert_unavailable(&agent.facts("sandbox_stats", json!({})));
    assert_unavailable(&agent.run(json!({"colour": "red"})));
    assert_eq!(
        disk.copy().records().len(),
        before,
        "nothing began that cannot be told"
    );
    disk.make_room();
    assert_eq!(execute(&mut agent)["stdout"], "the-canary\n");
    let ended = agent.leave();
    assert!(ended.status.success());
    let said = String::from_utf8_lossy(&ended.said);
    assert_eq!(said.matches("the-canary").count() % 2, 0, "{said}");
    let verdict = disk.copy().assert_verifies();
    assert_eq!((verdict.breaks.len(), verdict.records), (0, before as u64 + 3));
}

/// claim: [REC-1]
#[test]
fn nothing_runs_where_its_beginning_cannot_be_told() {
    let Some(disk) = SmallDisk::make("canary") else {
        return;
    };
    // The record alone is on it: another store would be the first to need room.
    let stores = TempDir::new("record-canary-stores");
    let record = disk.directory.0.join("audit.db");
    let state = disk
        .state()
        .with("RINGFENCE_STATE_DIR", stores.0.join("state").to_str().unwrap())
        .with("RINGFENCE_AUDIT_PATH", record.to_str().unwrap());
    let workspace = TempDir::new("record-canary");
    let script = TempDir::new("record-canary-script");
    let file = script.file("a.sh", "echo ran >> canary");
    let mounted = format!("{}:rw", workspace.0.display());
    let mut run = state.command(&["run", &file, "--workspace", &mounted, "--json"]);
    let canary = || fs::read_to_string(workspace.0.join("canary")).unwrap_or_default();
    let first = run.output().unwrap();
    assert_eq!(
        (canary().as_str(), first.status.code()),
        ("ran\n", Some(0)),
        "{first:?}"
    );
    disk.fill();
    let refused = run.output().unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert_unavailable(&json_of(&refused)["error"]);
    assert_eq!(canary(), "ran\n", "it has not run");
    disk.make_room();
    assert_eq!(run.output().unwrap().status.code(), Some(0));
    assert_eq!(canary(), "ran\nran\n");
    assert!(state.command(&["audit", "verify"]).status().unwrap().success());
}

/// claim: [REC-1]
#[test]
fn a_result_whose_end_cannot_be_told_does_not_leave() {
    let Some(disk) = SmallDisk::make("result") else {
        return;
    };
    let state = disk.state();
    let workspace = TempDir::new("record-result");
    let script = TempDir::new("record-result-script");
    let file = script.file(
        "a.sh",
        "touch begun; until [ -e go ]; do sleep 0.01; done; echo the-canary",
    );
    let mounted = format!("{}:rw", workspace.0.display());
    let waiting = || {
        drop(fs::remove_file(workspace.0.join("begun")));
        drop(fs::remove_file(workspace.0.join("go")));
        let child = state
            .command(&["run", &file, "--workspace", &mounted, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually(|| workspace.0.join("begun").exists());
        child
    };
    let go = || fs::write(workspace.0.join("go"), "").unwrap();
    let child = waiting();
    go();
    let output = child.wait_with_output().unwrap();
    assert!(stdout_of(&output).contains("the-canary"));
    let child = waiting();
    disk.fill();
    go();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = format!("{output:?}");
    assert_contains(&said, ["audit_unavailable"]);
    assert_lacks(&said, ["the-canary"]);
    disk.make_room();
    disk.copy().assert_verifies();
    let begun = disk.copy().records().last().map(words);
    assert_eq!(
        begun.as_deref(),
        Some("execution.started pending"),
        "a beginning without an end"
    );
    // Nobody killed that server. The next one knows all the same that it left something open.
    let child = waiting();
    go();
    assert!(child.wait_with_output().unwrap().status.success());
    let records = disk.copy().records();
    let lost = records
        .iter()
        .filter(|record| words(record) == "execution.failed lost");
    assert_eq!(lost.count(), 1);
}

/// claim: [REC-1]
#[test]
fn a_run_that_may_go_unrecorded_says_so_in_its_result() {
    let Some(disk) = SmallDisk::make("warn") else {
        return;
    };
    let state = disk.state().with("RINGFENCE_AUDIT_ON_FAILURE", "warn");
    let mut agent = state.serve();
    let rules = |result: &Value| -> Vec<String> {
        assert_eq!(result["stdout"], "the-canary\n", "{result}");
        let events = result["security_events"].as_array();
        events
            .into_iter()
            .flatten()
            .map(|event| text_of(&event["rule"]).to_owned())
            .collect()
    };
    assert!(rules(&execute(&mut agent)).is_empty());
    disk.fill();
    assert_eq!(rules(&execute(&mut agent)), ["audit.not_recorded"]);
    let stats = agent.facts("sandbox_stats", json!({}));
    assert!(stats["not_recorded"].as_u64().unwrap() >= 2, "{stats}");
    disk.make_room();
    assert!(rules(&execute(&mut agent)).is_empty());
    let ended = agent.leave();
    assert!(String::from_utf8_lossy(&ended.log).contains("NOT ON RECORD"));
    disk.copy().assert_verifies();
}

/// claim: [REC-1]
#[test]
fn a_directory_that_cannot_be_written_refuses_to_serve() {
    let Some(disk) = SmallDisk::make("read-only") else {
        return;
    };
    let state = disk.state();
    let mut agent = state.serve();
    execute(&mut agent);
    assert!(agent.leave().status.success());
    let before = disk.copy().records().len();
    disk.remount("ro");
    let ended = Agent::refused(state.command(&["serve"]));
    let said = String::from_utf8_lossy(&ended.log).into_owned();
    assert_contains(&said, ["hint", "cannot be written"]);
    disk.remount("rw");
    assert_eq!(disk.copy().records().len(), before);
    let mut agent = state.serve();
    assert_eq!(execute(&mut agent)["stdout"], "the-canary\n");
    drop(agent.leave());
    assert_eq!(disk.copy().assert_verifies().breaks, Vec::<u64>::new());
}

#[test]
fn a_directory_that_others_may_enter_refuses_to_serve() {
    let state = State::new("open");
    fs::create_dir_all(state.record()).unwrap();
    set_mode(state.record(), 0o755);
    let ended = Agent::refused(state.command(&["serve"]));
    assert!(String::from_utf8_lossy(&ended.log).contains("chmod it to 0700"));
    assert!(!state.database().exists());
}
