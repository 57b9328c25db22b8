//! A full and a read-only state directory: nothing runs unrecorded, no result is returned unrecorded, and everything
//! works again when there is space.

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

/// A file system of 2 MiB in a mount namespace of its own, which exists as long as the process `holder`.
struct SmallDisk {
    holder: Child,
    directory: TempDir,
}

impl SmallDisk {
    /// Mounts it; `None` without root.
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
        State::with_wrapper(
            &["nsenter", &namespace],
            self.here().join("state"),
            self.directory.0.join("state"),
        )
        // The file system is smaller than the space that stays free by default.
        .with("RINGFENCE_DISK_FREE_MB", "0")
    }

    /// The path of the file system from outside the namespace.
    fn here(&self) -> PathBuf {
        let inside = self.directory.0.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(inside)
    }

    /// Returns a copy of the files that its servers wrote, because SQLite resolves the symlinks of a path itself, and
    /// cannot resolve the magic links of /proc.
    fn copy(&self) -> State {
        let copy = self.directory.0.join("copy");
        drop(fs::remove_dir_all(&copy));
        let (from, to) = (self.here().join("state/record"), copy.join("record"));
        fs::create_dir_all(&to).unwrap();
        for name in ["audit.db", "audit.db-wal", "audit.db-shm", "signing.key"] {
            // A log exists after the first write.
            if from.join(name).exists() {
                fs::copy(from.join(name), to.join(name)).unwrap();
            }
        }
        State::with_wrapper(&[], copy.clone(), copy)
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
    refused.assert_text("hint", ["room"]);
}

/// claim: [REC-1]
#[test]
fn every_call_is_refused_while_the_disk_is_full() {
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
    // Reading calls are refused, too.
    assert_unavailable(&agent.facts("sandbox_stats", json!({})));
    assert_unavailable(&agent.run(json!({"colour": "red"})));
    assert_eq!(
        disk.copy().records().len(),
        before,
        "nothing started that cannot be recorded"
    );
    disk.make_room();
    assert_eq!(execute(&mut agent)["stdout"], "the-canary\n");
    let ended = agent.close();
    assert!(ended.status.success());
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(said.matches("the-canary").count() % 2, 0, "{said}");
    let verdict = disk.copy().assert_verifies();
    assert_eq!((verdict.breaks.len(), verdict.records), (0, before as u64 + 3));
}

/// claim: [REC-1]
#[test]
fn no_program_runs_if_its_start_cannot_be_recorded() {
    let Some(disk) = SmallDisk::make("canary") else {
        return;
    };
    // Only the record is on the small disk: another store would run out of space first.
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
fn a_result_is_withheld_if_its_end_cannot_be_recorded() {
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
    // That server was not killed, but the next one still closes the run that it left open.
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
fn a_run_allowed_to_go_unrecorded_is_marked_in_its_result() {
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
    let ended = agent.close();
    assert!(String::from_utf8_lossy(&ended.log).contains("NOT ON RECORD"));
    disk.copy().assert_verifies();
}

/// claim: [REC-1]
#[test]
fn a_server_does_not_start_on_a_read_only_state_directory() {
    let Some(disk) = SmallDisk::make("read-only") else {
        return;
    };
    let state = disk.state();
    let mut agent = state.serve();
    execute(&mut agent);
    assert!(agent.close().status.success());
    let before = disk.copy().records().len();
    disk.remount("ro");
    let ended = Agent::refused(state.command(&["serve"]));
    let said = String::from_utf8_lossy(&ended.log).into_owned();
    assert_contains(&said, ["hint", "cannot be written"]);
    disk.remount("rw");
    assert_eq!(disk.copy().records().len(), before);
    let mut agent = state.serve();
    assert_eq!(execute(&mut agent)["stdout"], "the-canary\n");
    drop(agent.close());
    assert_eq!(disk.copy().assert_verifies().breaks, Vec::<u64>::new());
}

#[test]
fn a_server_does_not_start_if_others_can_enter_its_record_directory() {
    let state = State::new("open");
    fs::create_dir_all(state.record()).unwrap();
    set_mode(state.record(), 0o755);
    let ended = Agent::refused(state.command(&["serve"]));
    assert!(String::from_utf8_lossy(&ended.log).contains("chmod it to 0700"));
    assert!(!state.database().exists());
}
