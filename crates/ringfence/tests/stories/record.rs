//! What outlives a request, by way of the command line: limits, the audit record and the files that programs left,
//! with a server that runs and without one.

use crate::client::*;
use rusqlite::Connection;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

pub(super) const SECRET: &str = "correct-horse-battery-staple";

/// The command with this on its standard input.
pub(super) fn fed(words: &[&str], input: &str) -> Output {
    feed(ringfence(words), input)
}

/// A server that has answered, and can therefore be reached.
pub(super) fn ready() -> Server {
    ready_with(&[])
}

pub(super) fn ready_with(words: &[&str]) -> Server {
    let mut server = Server::start_with(words);
    assert_eq!(server.execute("shell", "echo up")["stdout"], "up\n");
    server
}

#[test]
fn without_a_server_the_commands_that_need_one_say_so() {
    for words in [
        &["stats"][..],
        &["queue", "status"],
        &["inspect"],
        &["limits"],
        &["vault", "list"],
        &["vault", "delete", "KEY"],
        &["vault", "add", "KEY"],
    ] {
        let said = refused(words, 125);
        assert_contains(&said, ["no server runs", "ringfence serve"]);
        let document = json_of(&ringfence(&[words, &["--json"]].concat()).output().unwrap());
        assert_eq!(document["error"]["code"], "not_found");
    }
    assert!(refused(&["audit", "verify"], 125).contains("no audit record"));
    assert!(told(&["artifacts"]).contains("no execution of default"));
    assert!(!state_dir().exists(), "looking made something");
}

#[test]
fn a_server_tells_of_its_queue_and_state_and_the_limits_of_a_namespace_are_set_and_given_back() {
    let mut server = ready();
    let asked = json!({"max_ram_mb": 1024, "max_processes": 9});
    let set = server.facts("set_resource_limits", asked);
    set.shows(json!({"limits.defaults.max_ram_mb": 1024, "limits.caps.max_ram_mb": 8192}));
    let more = json!({"language": "shell", "code": "true", "memory_limit": "2g"});
    let result = server.call("execute_code", more);
    assert_ne!(result["isError"], true, "{result}");
    let told_all = told_json(&["limits", "--timeout", "2.5"]);
    let defaults = &told_all["limits"]["defaults"];
    defaults.shows(json!({"max_processes": 9, "timeout_seconds": 2.5}));
    let shown = ["--processes: 9 (at most 1024)", "--ram-mb: 1024 (at most 8192)"];
    assert_contains(told(&["limits"]), shown);
    refused(&["limits", "--processes", "1025"], 2);
    refused(&["limits", "--restore", "--processes", "5"], 2);
    assert!(told(&["limits", "--restore"]).contains("--processes: 64 (at most 1024)"));
    let id = server.send_run(json!({"language": "shell", "code": "sleep 130.1416"}));
    eventually(|| {
        let state = told_json(&["inspect"]);
        state["servers"][0]["running"][0]["language"] == "shell"
    });
    let stats = told_json(&["stats"]);
    stats.shows(json!({"servers.0.pid": server.child.id(), "servers.0.queue.running": 1}));
    assert_eq!(told_json(&["queue", "status"])["servers"][0]["running"], 1);
    assert!(told(&["queue", "status"]).starts_with("running 1 of "));
    assert!(told(&["stats"]).contains("vault: memory"));
    assert!(told(&["inspect"]).contains("1 running"));
    assert!(refused(&["inspect", "--namespace", "../x"], 2).contains("a namespace is"));
    server.cancel(id);
}

#[test]
fn of_two_servers_all_are_asked_and_one_is_meant() {
    let (first, second) = (ready(), ready());
    let (one, other) = (first.child.id().to_string(), second.child.id().to_string());
    assert_eq!(list_of(&told_json(&["stats"])["servers"]).len(), 2);
    let of_one = told_json(&["stats", "--server", &one]);
    of_one.shows(json!({"servers.0.pid": first.child.id(), "servers.1": null}));
    let output = fed(&["vault", "add", "TOKEN"], SECRET);
    let said = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2));
    assert_contains(&said, [&one, &other, "--server PID"]);
    let added = fed(&["vault", "add", "TOKEN", "--server", &other], SECRET);
    assert!(added.status.success(), "{added:?}");
    assert!(told(&["vault", "list", "--server", &other]).starts_with("TOKEN"));
    let of_one = told(&["vault", "list", "--server", &one]);
    assert_eq!(of_one, "default has no secrets\n");
    assert!(refused(&["stats", "--server", "1"], 125).contains("process number 1"));
    // one record of both
    drop(first);
    drop(second);
    assert!(told(&["audit", "verify"]).starts_with("intact"));
}

#[test]
fn the_socket_is_this_users_alone_and_goes_with_its_server() {
    let mut server = ready();
    let socket = server.socket();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    server.leaves();
    assert!(!socket.exists());
    // one that was killed leaves its socket, which the next who looks removes
    let mut killed = ready();
    let socket = killed.socket();
    killed.kill();
    assert!(socket.exists());
    assert!(refused(&["stats"], 125).contains("no server runs"));
    assert!(!socket.exists());
}

/// The kernel says who is at the other end.
/// claim: [REC-7]
#[test]
fn another_user_is_refused_even_with_every_door_open() {
    let server = ready();
    let socket = server.socket();
    let files = TempDir::new("other-user");
    set_mode(&files.0, 0o755);
    // By a short name, below directories that all may enter.
    let name = files.0.join("sock");
    fs::hard_link(&socket, &name).unwrap_or_else(|_| {
        // On another file system.
        std::os::unix::fs::symlink(&socket, &name).unwrap();
    });
    set_mode(&socket, 0o666);
    set_mode(socket.parent().unwrap(), 0o755);
    let code = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({:?})\ns.sendall(b'{}\\n')\nprint(s.makefile().read())",
        name.display().to_string(),
        r#"{"method":"stats"}"#
    );
    let ask = |command: &mut Command| all_of(&command.args(["-c", &code]).env_clear().output().unwrap());
    let own = ask(&mut Command::new("/usr/bin/python3"));
    assert!(own.contains("\"ok\""), "the control: {own}");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("not root: no other user can be tried");
        return;
    }
    let answer = ask(&mut as_nobody("/usr/bin/python3"));
    assert_contains(&answer, ["policy_denied"]);
    assert_lacks(&answer, ["\"ok\""]);
}

/// Sends these bytes and reads a line, or until the server hangs up.
fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect();
    // A server that has heard enough hangs up.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(std::net::Shutdown::Write));
    let mut answer = String::new();
    drop(BufReader::new(stream).read_line(&mut answer));
    answer
}

#[test]
fn bytes_that_are_no_request_are_refused_and_harm_nobody() {
    let server = ready();
    let long = [b"{\"method\":\"".as_slice(), &vec![b'a'; 2 << 20], b"\"}\n"].concat();
    let deep = [
        b"{\"method\":\"inspect\",\"params\":".as_slice(),
        &vec![b'['; 500_000],
        b"\n",
    ]
    .concat();
    for bytes in [
        b"\n".as_slice(),
        b"{}\n",
        b"\xff\xfe\n",
        b"{\"method\":\"stats\"}",
        b"{\"method\":\"stats\"}\n{\"method\":\"stats\"}\n",
        &long,
        &deep,
    ] {
        let answer = raw(&server, bytes);
        // Two lines that come apart are one request and something that nobody reads.
        let is_first_of_two = bytes.len() == 38 && answer.contains("\"ok\"");
        assert!(
            answer.contains("invalid_argument") || answer.is_empty() || is_first_of_two,
            "{:?}: {answer}",
            &bytes[..bytes.len().min(40)]
        );
    }
    assert!(raw(&server, b"{\"method\":\"stats\"}\n").starts_with("{\"ok\":"));
    // Silent clients are hung up on, and keep no one out.
    let mut silent: Vec<UnixStream> = (0..40).map(|_| server.connect()).collect();
    assert_contains(told(&["stats"]), ["vault: memory"]);
    let mut first = silent.swap_remove(0);
    first.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn records_are_listed_by_what_they_are() {
    let mut server = ready();
    let failed = server.execute("shell", "exit 3");
    let id = text_of(&failed["execution_id"]).to_owned();
    let seen = |words: &[&str]| {
        let document = told_json(&[&["audit", "list"], words].concat());
        list_of(&document["records"]).to_vec()
    };
    let of_execution = Value::from(seen(&["--execution", &id]));
    assert_eq!(
        texts_of(&of_execution, "action"),
        ["execution.failed", "execution.started"]
    );
    assert_eq!(seen(&["--outcome", "failed"]).len(), 1);
    let newest = seen(&["--limit", "1"]);
    assert_eq!(newest.len(), 1);
    let before = newest[0]["seq"].to_string();
    let next = seen(&["--limit", "1", "--before", &before]);
    let seq = |records: &[Value]| records[0]["seq"].as_u64().unwrap();
    assert_eq!(seq(&next), seq(&newest) - 1);
    assert!(told(&["audit", "list", "--limit", "1"]).contains("older: --before "));
    assert_eq!(seen(&["--action", "execution."]).len(), 4);
    assert_eq!(seen(&["--namespace", "nobody"]).len(), 0);
    assert_eq!(seen(&["--since", "2100-01-01"]).len(), 0);
    assert!(seen(&["--since", "1h"]).len() >= 5);
    assert!(told(&["audit", "list"]).contains(&id));
    for (words, status, part) in [
        (["--action", "execution.begun"], 2, "no action of the record"),
        (["--outcome", "maybe"], 2, "known are ok"),
        (["--since", "soon"], 2, "no time"),
        (["--limit", "0"], 2, "not in"),
    ] {
        let said = refused(&[&["audit", "list"], words.as_slice()].concat(), status);
        assert!(said.contains(part), "{words:?}: {said}");
    }
    let closed = told_json(&["audit", "archive"]);
    assert!(text_of(&closed["segment"]).ends_with(".jsonl.zst"), "{closed}");
}

#[test]
fn a_record_in_memory_is_asked_of_its_server() {
    let files = TempDir::new("memory-audit");
    let config = files.file("config.yaml", "audit:\n  store: memory\n");
    let _server = ready_with(&["--config", &config]);
    let records = told_json(&["audit", "list", "--config", &config, "--action", "server."]);
    assert_eq!(records["records"][0]["action"], "server.started");
    assert!(refused(&["audit", "verify", "--config", &config], 125).contains("in a server's memory"));
    assert!(refused(&["audit", "export", "--config", &config], 125).contains("in a server's memory"));
}

#[test]
fn an_export_is_whole_lines_and_replaces_nothing() {
    assert!(run_code("shell", "true", &[]).status.success());
    let count = told_json(&["audit", "verify"])["records"].as_u64().unwrap();
    let lines = |text: &str| -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let exported = lines(&told(&["audit", "export"]));
    assert_eq!(exported.len() as u64, count);
    exported[0].shows(json!({"seq": 1, "action": "audit.began"}));
    let events = lines(&told(&["audit", "export", "--format", "ocsf"]));
    assert_eq!(events[0]["metadata"]["version"], "1.3.0");
    assert!(told(&["audit", "export", "--since", "2100-01-01"]).is_empty());
    let files = TempDir::new("export");
    let file = files.path("record.jsonl");
    told(&["audit", "export", "--output", &file]);
    assert_eq!(lines(&fs::read_to_string(&file).unwrap()), exported);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert!(refused(&["audit", "export", "--output", &file], 2).contains("exists"));
}

/// A record of a few runs, closed.
fn some_runs() -> PathBuf {
    for _ in 0..3 {
        assert!(run_code("shell", "true", &[]).status.success());
    }
    let database = state_dir().join("record/audit.db");
    // Tests change the database's file.
    checkpointed(&database);
    database
}

/// A connection to a database whose log is empty.
fn checkpointed(database: &Path) -> Connection {
    let connection = Connection::open(database).unwrap();
    connection
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    connection
}

/// Puts another file in the place of a database.
fn put_back(database: &Path, content: &[u8]) {
    fs::write(database, content).unwrap();
    drop(fs::remove_file(database.with_extension("db-wal")));
    drop(fs::remove_file(database.with_extension("db-shm")));
}

/// claim: [REC-3]
#[test]
fn a_record_that_was_tampered_with_is_named() {
    let database = some_runs();
    let good = fs::read(&database).unwrap();
    let said = told(&["audit", "verify"]);
    assert!(said.starts_with("intact: "), "{said}");
    let copy = "INSERT INTO record SELECT seq + 1, time_us, server_id, action, outcome, namespace, execution_id, caller, details, \
        prev_hash, hash, signature FROM record WHERE seq = 5";
    for (what, sql, named) in [
        (
            "edit",
            "UPDATE record SET caller = 'other' WHERE seq = 6",
            "record 6: its contents were edited",
        ),
        (
            "delete",
            "DELETE FROM record WHERE seq = 5",
            "record 5: it is missing",
        ),
        (
            "insert",
            &format!(
                "UPDATE record SET seq = -seq WHERE seq > 5; UPDATE record SET seq = 1 - seq WHERE seq < 0; {copy}"
            ),
            "record 6: its contents were edited",
        ),
        (
            "reorder",
            "UPDATE record SET seq = -1 WHERE seq = 5; UPDATE record SET seq = 5 WHERE seq = 6; UPDATE record SET seq = 6 WHERE seq = -1",
            "record 5: its contents were edited",
        ),
        (
            "truncate",
            "DELETE FROM record WHERE seq > 7",
            "record 8: the head says it was written, and it is gone",
        ),
    ] {
        put_back(&database, &good);
        let connection = checkpointed(&database);
        assert_eq!(told_json(&["audit", "verify"])["ok"], true, "{what}: the control");
        let changed = connection.execute_batch(sql);
        changed.unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(connection);
        let named_so = denied(&["audit", "verify"]);
        assert!(named_so.contains(named), "{what}: {named_so}");
        let document = json_of(&ringfence(&["audit", "verify", "--json"]).output().unwrap());
        assert_eq!(document["ok"], false);
        let record = format!("record {}:", document["bad"]["seq"]);
        assert!(named.starts_with(&record), "{what}: {document}");
    }
}

/// A whole older copy is only seen by who noted a later head.
/// claim: [REC-5]
#[test]
fn a_record_that_was_set_back_does_not_hold_the_head_that_was_noted() {
    let database = some_runs();
    let good = fs::read(&database).unwrap();
    let said = told(&["audit", "verify"]);
    let head = said.lines().find_map(|line| line.strip_prefix("head ")).unwrap();
    some_runs();
    let later = text_of(&told_json(&["audit", "verify"])["head"]).to_owned();
    told(&["audit", "verify", "--head", head]);
    put_back(&database, &good);
    told(&["audit", "verify", "--head", head]);
    let verdict = denied(&["audit", "verify", "--head", &later]);
    assert_contains(verdict, ["the expected head is not in the chain"]);
    assert!(refused(&["audit", "verify", "--head", "7"], 2).contains("SEQ:HASH"));
}

#[test]
fn a_record_that_another_key_signed_is_not_good() {
    some_runs();
    let (files, elsewhere) = (TempDir::new("keys"), TempDir::new("keys-state"));
    let own = files.file("own.pem", &told(&["audit", "key"]));
    told(&["audit", "verify", "--key", &own]);
    let there = |words: &[&str]| {
        let mut command = ringfence(words);
        command.env("RINGFENCE_STATE_DIR", elsewhere.0.join("state"));
        command
    };
    assert!(feed(there(&["run", "-", "-l", "shell"]), "true").status.success());
    let foreign = files.file("foreign.pem", &stdout_of(&succeeded(there(&["audit", "key"]))));
    let verdict = denied(&["audit", "verify", "--key", &foreign]);
    assert_contains(verdict, ["record 1: it is not signed with this key"]);
    let key = state_dir().join("record/signing.key");
    let secret = key.display().to_string();
    assert!(refused(&["audit", "verify", "--key", &secret], 2).contains("no Ed25519 public key"));
    fs::remove_file(&key).unwrap();
    assert!(refused(&["audit", "verify"], 125).contains("no signing key"));
    assert!(!key.exists(), "looking made a key");
    told(&["audit", "verify", "--key", &own]);
}

#[test]
fn what_a_run_left_is_listed_copied_out_and_verified() {
    let code = "mkdir -p sub; echo one > sub/a.txt; printf two > b.txt; echo x > .hidden";
    let said = stderr_of(&run_code("shell", code, &[]));
    let listed = told_json(&["artifacts"]);
    let id = text_of(&listed["executions"][0]["execution_id"]).to_owned();
    assert_contains(&said, [&format!("`ringfence artifacts {id} --out DIR`")]);
    assert!(told(&["artifacts", &id]).contains("sub/a.txt"));
    assert_eq!(told_json(&["artifacts", &id])["execution_id"], json!(id));
    let files = TempDir::new("artifacts-out");
    let out = files.path("new");
    let copied = refused(&["artifacts", &id, "--out", &out], 1);
    assert!(copied.contains(".hidden was not copied"), "{copied}");
    let at = |name: &str| files.0.join("new").join(name);
    assert_eq!(fs::read_to_string(at("sub/a.txt")).unwrap(), "one\n");
    assert!(!at(".hidden").exists());
    // nothing is replaced
    fs::write(at("b.txt"), "mine").unwrap();
    refused(&["artifacts", &id, "--out", &out, "--json"], 1);
    assert_eq!(fs::read_to_string(at("b.txt")).unwrap(), "mine");
    let [a, b] = ["sub/a.txt", "b.txt"].map(|name| at(name).display().to_string());
    assert!(told(&["verify", &a, "--execution", &id]).contains("signed as sub/a.txt"));
    assert!(denied(&["verify", &b, "--execution", &id]).contains("NO MATCH"));
    let verified = told_json(&["verify", &a, "--execution", &id]);
    let digest = text_of(&verified["sha256"]);
    assert!(told(&["verify", &a, &digest.to_uppercase()]).starts_with("match"));
    assert!(denied(&["verify", &b, digest]).contains("sha256"));
    refused(&["verify", &b, "123"], 2);
    refused(&["verify", &b], 2);
    for other in [
        ["artifacts", &id, "--namespace", "other"],
        ["artifacts", "../../x", "--namespace", "default"],
    ] {
        refused(&other, 125);
    }
}

/// claim: [ART-1]
#[test]
fn a_content_that_was_changed_on_the_disk_is_not_given_out() {
    let done = run_json("shell", "echo one > a.txt", &[]);
    let id = text_of(&done["execution_id"]);
    let digest = text_of(&done["artifacts"][0]["sha256"]);
    let artifacts = state_dir().join("record/artifacts");
    let blob = artifacts.join("blobs").join(&digest[..2]).join(digest);
    set_mode(&blob, 0o600);
    fs::write(&blob, "two\n").unwrap();
    let files = TempDir::new("artifacts-changed");
    let out = files.0.display().to_string();
    assert!(refused(&["artifacts", id, "--out", &out], 1).contains("is not what was signed"));
    assert!(!files.0.join("a.txt").exists());
    // nor a manifest
    let manifest = artifacts.join(format!("executions/{id}.json"));
    let text = fs::read_to_string(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    fs::write(&manifest, text.replace("a.txt", "b.txt")).unwrap();
    refused(&["artifacts", id], 125);
    refused(&["verify", "/etc/hostname", "--execution", id], 125);
}

/// claim: [REC-7]
#[test]
fn no_program_in_a_sandbox_reaches_the_socket() {
    let mut server = ready();
    let socket = server.socket();
    let control = raw(&server, b"{\"method\":\"stats\"}\n");
    assert!(control.starts_with("{\"ok\":"), "{control}");
    let directory = socket.parent().unwrap().display().to_string();
    let name = socket.file_name().unwrap().to_str().unwrap().to_owned();
    let code = format!(
        "import os, socket\ntry:\n    os.chdir({directory:?})\n    s = socket.socket(socket.AF_UNIX)\n    s.connect({name:?})\n    \
         print('REACHED')\nexcept OSError as error:\n    print(type(error).__name__)"
    );
    assert_eq!(server.execute("python", &code)["stdout"], "FileNotFoundError\n");
    // Not even the operator can show a program the directory, nor one that it lies in.
    for path in [directory.as_str(), directory.rsplit_once('/').unwrap().0] {
        let output = run_code("python", "print('RAN')", &["--workspace", &format!("{path}:ro")]);
        assert!(
            output.stdout.is_empty() && output.status.code() == Some(125),
            "{output:?}"
        );
    }
}
