//! Data that outlives a request, through the command line: limits, the audit record and artifacts, with and without a
//! running server.

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

/// Runs the command with this standard input.
pub(super) fn run_with_input(arguments: &[&str], input: &str) -> Output {
    run_with_stdin(ringfence(arguments), input)
}

/// A server that has answered a call, and can therefore be reached by commands.
pub(super) fn reachable_server() -> Server {
    reachable_server_with(&[])
}

pub(super) fn reachable_server_with(arguments: &[&str]) -> Server {
    let mut server = Server::start_with(arguments);
    assert_eq!(server.execute("shell", "echo up")["stdout"], "up\n");
    server
}

#[test]
fn commands_that_need_a_server_fail_without_one() {
    for arguments in [
        &["stats"][..],
        &["queue", "status"],
        &["inspect"],
        &["limits"],
        &["vault", "list"],
        &["vault", "delete", "KEY"],
        &["vault", "add", "KEY"],
    ] {
        let stderr = cli_error(arguments, 125);
        assert_contains(&stderr, ["no server runs", "ringfence serve"]);
        let document = json_of(&ringfence(&[arguments, &["--json"]].concat()).output().unwrap());
        assert_eq!(document["error"]["code"], "not_found");
    }
    assert!(cli_error(&["audit", "verify"], 125).contains("no audit record"));
    assert!(cli_stdout(&["artifacts"]).contains("no execution of default"));
    assert!(!state_dir().exists(), "a query created the state directory");
}

#[test]
fn stats_queue_inspect_and_limits_commands_reach_the_server() {
    let mut server = reachable_server();
    let arguments = json!({"max_ram_mb": 1024, "max_processes": 9});
    let set = server.facts("set_resource_limits", arguments);
    set.assert_fields(json!({"limits.defaults.max_ram_mb": 1024, "limits.caps.max_ram_mb": 8192}));
    let more = json!({"language": "shell", "code": "true", "memory_limit": "2g"});
    let result = server.call("execute_code", more);
    assert_ne!(result["isError"], true, "{result}");
    let told_all = cli_json(&["limits", "--timeout", "2.5"]);
    let defaults = &told_all["limits"]["defaults"];
    defaults.assert_fields(json!({"max_processes": 9, "timeout_seconds": 2.5}));
    let shown = ["--processes: 9 (at most 1024)", "--ram-mb: 1024 (at most 8192)"];
    assert_contains(cli_stdout(&["limits"]), shown);
    cli_error(&["limits", "--processes", "1025"], 2);
    cli_error(&["limits", "--restore", "--processes", "5"], 2);
    assert!(cli_stdout(&["limits", "--restore"]).contains("--processes: 64 (at most 1024)"));
    let id = server.send_run(json!({"language": "shell", "code": "sleep 130.1416"}));
    eventually(|| {
        let state = cli_json(&["inspect"]);
        state["servers"][0]["running"][0]["language"] == "shell"
    });
    let stats = cli_json(&["stats"]);
    stats.assert_fields(json!({"servers.0.pid": server.child.id(), "servers.0.queue.running": 1}));
    assert_eq!(cli_json(&["queue", "status"])["servers"][0]["running"], 1);
    assert!(cli_stdout(&["queue", "status"]).starts_with("running 1 of "));
    assert!(cli_stdout(&["stats"]).contains("vault: memory"));
    assert!(cli_stdout(&["inspect"]).contains("1 running"));
    assert!(cli_error(&["inspect", "--namespace", "../x"], 2).contains("a namespace is"));
    server.cancel(id);
}

#[test]
fn queries_reach_all_servers_and_vault_add_needs_a_server_pid() {
    let (first, second) = (reachable_server(), reachable_server());
    let (one, other) = (first.child.id().to_string(), second.child.id().to_string());
    assert_eq!(list_of(&cli_json(&["stats"])["servers"]).len(), 2);
    let of_one = cli_json(&["stats", "--server", &one]);
    of_one.assert_fields(json!({"servers.0.pid": first.child.id(), "servers.1": null}));
    let output = run_with_input(&["vault", "add", "TOKEN"], SECRET);
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2));
    assert_contains(&stderr, [&one, &other, "--server PID"]);
    let added = run_with_input(&["vault", "add", "TOKEN", "--server", &other], SECRET);
    assert!(added.status.success(), "{added:?}");
    assert!(cli_stdout(&["vault", "list", "--server", &other]).starts_with("TOKEN"));
    let of_one = cli_stdout(&["vault", "list", "--server", &one]);
    assert_eq!(of_one, "default has no secrets\n");
    assert!(cli_error(&["stats", "--server", "1"], 125).contains("process number 1"));
    // both servers write one record
    drop(first);
    drop(second);
    assert!(cli_stdout(&["audit", "verify"]).starts_with("intact"));
}

#[test]
fn control_socket_is_private_and_removed_with_its_server() {
    let mut server = reachable_server();
    let socket = server.socket();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    server.shut_down();
    assert!(!socket.exists());
    // a killed server leaves its socket, which the next command removes
    let mut killed = reachable_server();
    let socket = killed.socket();
    killed.kill();
    assert!(socket.exists());
    assert!(cli_error(&["stats"], 125).contains("no server runs"));
    assert!(!socket.exists());
}

/// The server takes the peer's user from the kernel.
/// claim: [REC-7]
#[test]
fn another_user_is_refused_despite_open_permissions() {
    let server = reachable_server();
    let socket = server.socket();
    let files = TempDir::new("other-user");
    set_mode(&files.0, 0o755);
    // Under a short name, below directories that all users may enter.
    let name = files.0.join("sock");
    fs::hard_link(&socket, &name).unwrap_or_else(|_| {
        // A symlink where it is on another file system.
        std::os::unix::fs::symlink(&socket, &name).unwrap();
    });
    set_mode(&socket, 0o666);
    set_mode(socket.parent().unwrap(), 0o755);
    let code = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({:?})\ns.sendall(b'{}\\n')\nprint(s.makefile().read())",
        name.display().to_string(),
        r#"{"method":"stats"}"#
    );
    let ask =
        |command: &mut Command| both_streams_of(&command.args(["-c", &code]).env_clear().output().unwrap());
    let own = ask(&mut Command::new("/usr/bin/python3"));
    assert!(own.contains("\"ok\""), "the control: {own}");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("not root: cannot try another user");
        return;
    }
    let answer = ask(&mut as_nobody("/usr/bin/python3"));
    assert_contains(&answer, ["policy_denied"]);
    assert_lacks(&answer, ["\"ok\""]);
}

/// Sends these bytes to the control socket, and reads a line or until the server closes the connection.
fn send_raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.connect();
    // The server closes the connection after too many bytes.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(std::net::Shutdown::Write));
    let mut answer = String::new();
    drop(BufReader::new(stream).read_line(&mut answer));
    answer
}

#[test]
fn malformed_control_requests_are_refused() {
    let server = reachable_server();
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
        let answer = send_raw(&server, bytes);
        // Two lines that arrive separately are one request and a second line that is never read.
        let is_first_of_two = bytes.len() == 38 && answer.contains("\"ok\"");
        assert!(
            answer.contains("invalid_argument") || answer.is_empty() || is_first_of_two,
            "{:?}: {answer}",
            &bytes[..bytes.len().min(40)]
        );
    }
    assert!(send_raw(&server, b"{\"method\":\"stats\"}\n").starts_with("{\"ok\":"));
    // Silent clients are disconnected, and block no others.
    let mut silent: Vec<UnixStream> = (0..40).map(|_| server.connect()).collect();
    assert_contains(cli_stdout(&["stats"]), ["vault: memory"]);
    let mut first = silent.swap_remove(0);
    first.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn audit_list_filters_records() {
    let mut server = reachable_server();
    let failed = server.execute("shell", "exit 3");
    let id = text_of(&failed["execution_id"]).to_owned();
    let listed = |arguments: &[&str]| {
        let document = cli_json(&[&["audit", "list"], arguments].concat());
        list_of(&document["records"]).to_vec()
    };
    let of_execution = Value::from(listed(&["--execution", &id]));
    assert_eq!(
        texts_of(&of_execution, "action"),
        ["execution.failed", "execution.started"]
    );
    assert_eq!(listed(&["--outcome", "failed"]).len(), 1);
    let newest = listed(&["--limit", "1"]);
    assert_eq!(newest.len(), 1);
    let before = newest[0]["seq"].to_string();
    let next = listed(&["--limit", "1", "--before", &before]);
    let seq = |records: &[Value]| records[0]["seq"].as_u64().unwrap();
    assert_eq!(seq(&next), seq(&newest) - 1);
    assert!(cli_stdout(&["audit", "list", "--limit", "1"]).contains("older: --before "));
    assert_eq!(listed(&["--action", "execution."]).len(), 4);
    assert_eq!(listed(&["--namespace", "nobody"]).len(), 0);
    assert_eq!(listed(&["--since", "2100-01-01"]).len(), 0);
    assert!(listed(&["--since", "1h"]).len() >= 5);
    assert!(cli_stdout(&["audit", "list"]).contains(&id));
    for (arguments, status, part) in [
        (["--action", "execution.begun"], 2, "not an action of the record"),
        (["--outcome", "maybe"], 2, "known are ok"),
        (["--since", "soon"], 2, "is not a time"),
        (["--limit", "0"], 2, "not in"),
    ] {
        let stderr = cli_error(&[&["audit", "list"], arguments.as_slice()].concat(), status);
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    let closed = cli_json(&["audit", "archive"]);
    assert!(text_of(&closed["segment"]).ends_with(".jsonl.zst"), "{closed}");
}

#[test]
fn audit_list_reads_an_in_memory_record_from_its_server() {
    let files = TempDir::new("memory-audit");
    let config = files.file("config.yaml", "audit:\n  store: memory\n");
    let _server = reachable_server_with(&["--config", &config]);
    let records = cli_json(&["audit", "list", "--config", &config, "--action", "server."]);
    assert_eq!(records["records"][0]["action"], "server.started");
    assert!(cli_error(&["audit", "verify", "--config", &config], 125).contains("in a server's memory"));
    assert!(cli_error(&["audit", "export", "--config", &config], 125).contains("in a server's memory"));
}

#[test]
fn audit_export_writes_whole_lines_and_never_overwrites() {
    assert!(run_code("shell", "true", &[]).status.success());
    let count = cli_json(&["audit", "verify"])["records"].as_u64().unwrap();
    let lines = |text: &str| -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let exported = lines(&cli_stdout(&["audit", "export"]));
    assert_eq!(exported.len() as u64, count);
    exported[0].assert_fields(json!({"seq": 1, "action": "audit.began"}));
    let events = lines(&cli_stdout(&["audit", "export", "--format", "ocsf"]));
    assert_eq!(events[0]["metadata"]["version"], "1.3.0");
    assert!(cli_stdout(&["audit", "export", "--since", "2100-01-01"]).is_empty());
    let files = TempDir::new("export");
    let file = files.path("record.jsonl");
    cli_stdout(&["audit", "export", "--output", &file]);
    assert_eq!(lines(&fs::read_to_string(&file).unwrap()), exported);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert!(cli_error(&["audit", "export", "--output", &file], 2).contains("exists"));
}

/// Runs three programs, and returns the database of their audit record.
fn record_some_runs() -> PathBuf {
    for _ in 0..3 {
        assert!(run_code("shell", "true", &[]).status.success());
    }
    let database = state_dir().join("record/audit.db");
    // The tests change the database file, so its log must be empty.
    checkpointed(&database);
    database
}

/// A connection to the database after its log was emptied into it.
fn checkpointed(database: &Path) -> Connection {
    let connection = Connection::open(database).unwrap();
    connection
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    connection
}

/// Replaces the database file and removes its log.
fn replace_database(database: &Path, content: &[u8]) {
    fs::write(database, content).unwrap();
    drop(fs::remove_file(database.with_extension("db-wal")));
    drop(fs::remove_file(database.with_extension("db-shm")));
}

/// claim: [REC-3]
#[test]
fn audit_verify_names_the_tampered_record() {
    let database = record_some_runs();
    let good = fs::read(&database).unwrap();
    let stdout = cli_stdout(&["audit", "verify"]);
    assert!(stdout.starts_with("intact: "), "{stdout}");
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
            "record 8: the head says it was written, but it is missing",
        ),
    ] {
        replace_database(&database, &good);
        let connection = checkpointed(&database);
        assert_eq!(cli_json(&["audit", "verify"])["ok"], true, "{what}: the control");
        let changed = connection.execute_batch(sql);
        changed.unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(connection);
        let verdict = cli_failure_stdout(&["audit", "verify"]);
        assert!(verdict.contains(named), "{what}: {verdict}");
        let document = json_of(&ringfence(&["audit", "verify", "--json"]).output().unwrap());
        assert_eq!(document["ok"], false);
        let record = format!("record {}:", document["bad"]["seq"]);
        assert!(named.starts_with(&record), "{what}: {document}");
    }
}

/// An older copy of the whole record is detected only with a later head noted elsewhere.
/// claim: [REC-5]
#[test]
fn rolled_back_record_lacks_the_expected_head() {
    let database = record_some_runs();
    let good = fs::read(&database).unwrap();
    let stdout = cli_stdout(&["audit", "verify"]);
    let head = stdout
        .lines()
        .find_map(|line| line.strip_prefix("head "))
        .unwrap();
    record_some_runs();
    let later = text_of(&cli_json(&["audit", "verify"])["head"]).to_owned();
    cli_stdout(&["audit", "verify", "--head", head]);
    replace_database(&database, &good);
    cli_stdout(&["audit", "verify", "--head", head]);
    let verdict = cli_failure_stdout(&["audit", "verify", "--head", &later]);
    assert_contains(verdict, ["the expected head is not in the chain"]);
    assert!(cli_error(&["audit", "verify", "--head", "7"], 2).contains("SEQ:HASH"));
}

#[test]
fn record_signed_by_another_key_fails_verification() {
    record_some_runs();
    let (files, elsewhere) = (TempDir::new("keys"), TempDir::new("keys-state"));
    let own = files.file("own.pem", &cli_stdout(&["audit", "key"]));
    cli_stdout(&["audit", "verify", "--key", &own]);
    let there = |arguments: &[&str]| {
        let mut command = ringfence(arguments);
        command.env("RINGFENCE_STATE_DIR", elsewhere.0.join("state"));
        command
    };
    assert!(
        run_with_stdin(there(&["run", "-", "-l", "shell"]), "true")
            .status
            .success()
    );
    let foreign = files.file(
        "foreign.pem",
        &stdout_of(&run_successfully(there(&["audit", "key"]))),
    );
    let verdict = cli_failure_stdout(&["audit", "verify", "--key", &foreign]);
    assert_contains(verdict, ["record 1: it is not signed with this key"]);
    let key = state_dir().join("record/signing.key");
    let secret = key.display().to_string();
    assert!(cli_error(&["audit", "verify", "--key", &secret], 2).contains("not an Ed25519 public key"));
    fs::remove_file(&key).unwrap();
    assert!(cli_error(&["audit", "verify"], 125).contains("no signing key"));
    assert!(!key.exists(), "a verification created a key");
    cli_stdout(&["audit", "verify", "--key", &own]);
}

#[test]
fn artifacts_are_listed_copied_out_and_verified() {
    let code = "mkdir -p sub; echo one > sub/a.txt; printf two > b.txt; echo x > .hidden";
    let stderr = stderr_of(&run_code("shell", code, &[]));
    let listed = cli_json(&["artifacts"]);
    let id = text_of(&listed["executions"][0]["execution_id"]).to_owned();
    let get = format!("(get them with `ringfence artifacts {id} --out DIR`)");
    assert_contains(&stderr, ["artifacts: ", &get]);
    let copied_to = TempDir::new("artifacts-copied");
    let copied = run_code(
        "shell",
        "echo one > a.txt",
        &["--artifacts", &copied_to.path("new")],
    );
    assert_lacks(stderr_of(&copied), ["artifacts: "]);
    assert!(cli_stdout(&["artifacts", &id]).contains("sub/a.txt"));
    assert_eq!(cli_json(&["artifacts", &id])["execution_id"], json!(id));
    let files = TempDir::new("artifacts-out");
    let out = files.path("new");
    let copied = cli_error(&["artifacts", &id, "--out", &out], 1);
    assert!(copied.contains(".hidden was not copied"), "{copied}");
    let at = |name: &str| files.0.join("new").join(name);
    assert_eq!(fs::read_to_string(at("sub/a.txt")).unwrap(), "one\n");
    assert!(!at(".hidden").exists());
    // existing files are not replaced
    fs::write(at("b.txt"), "mine").unwrap();
    cli_error(&["artifacts", &id, "--out", &out, "--json"], 1);
    assert_eq!(fs::read_to_string(at("b.txt")).unwrap(), "mine");
    let [a, b] = ["sub/a.txt", "b.txt"].map(|name| at(name).display().to_string());
    assert!(cli_stdout(&["verify", &a, "--execution", &id]).contains("signed as sub/a.txt"));
    assert!(cli_failure_stdout(&["verify", &b, "--execution", &id]).contains("NO MATCH"));
    let verified = cli_json(&["verify", &a, "--execution", &id]);
    let digest = text_of(&verified["sha256"]);
    assert!(cli_stdout(&["verify", &a, &digest.to_uppercase()]).starts_with("match"));
    assert!(cli_failure_stdout(&["verify", &b, digest]).contains("sha256"));
    cli_error(&["verify", &b, "123"], 2);
    cli_error(&["verify", &b], 2);
    for other in [
        ["artifacts", &id, "--namespace", "other"],
        ["artifacts", "../../x", "--namespace", "default"],
    ] {
        cli_error(&other, 125);
    }
}

/// claim: [ART-1]
#[test]
fn artifact_changed_on_disk_is_not_copied_out() {
    let done = run_json("shell", "echo one > a.txt", &[]);
    let id = text_of(&done["execution_id"]);
    let digest = text_of(&done["artifacts"][0]["sha256"]);
    let artifacts = state_dir().join("record/artifacts");
    let blob = artifacts.join("blobs").join(&digest[..2]).join(digest);
    set_mode(&blob, 0o600);
    fs::write(&blob, "two\n").unwrap();
    let files = TempDir::new("artifacts-changed");
    let out = files.0.display().to_string();
    assert!(cli_error(&["artifacts", id, "--out", &out], 1).contains("is not what was signed"));
    assert!(!files.0.join("a.txt").exists());
    // a changed manifest is not accepted either
    let manifest = artifacts.join(format!("executions/{id}.json"));
    let text = fs::read_to_string(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    fs::write(&manifest, text.replace("a.txt", "b.txt")).unwrap();
    cli_error(&["artifacts", id], 125);
    cli_error(&["verify", "/etc/hostname", "--execution", id], 125);
}

/// claim: [REC-7]
#[test]
fn sandboxed_program_cannot_reach_the_control_socket() {
    let mut server = reachable_server();
    let socket = server.socket();
    let control = send_raw(&server, b"{\"method\":\"stats\"}\n");
    assert!(control.starts_with("{\"ok\":"), "{control}");
    let directory = socket.parent().unwrap().display().to_string();
    let name = socket.file_name().unwrap().to_str().unwrap().to_owned();
    let code = format!(
        "import os, socket\ntry:\n    os.chdir({directory:?})\n    s = socket.socket(socket.AF_UNIX)\n    s.connect({name:?})\n    \
         print('REACHED')\nexcept OSError as error:\n    print(type(error).__name__)"
    );
    assert_eq!(server.execute("python", &code)["stdout"], "FileNotFoundError\n");
    // Not even the operator can share the directory, or a parent of it, with a program.
    for path in [directory.as_str(), directory.rsplit_once('/').unwrap().0] {
        let output = run_code("python", "print('RAN')", &["--workspace", &format!("{path}:ro")]);
        assert!(
            output.stdout.is_empty() && output.status.code() == Some(125),
            "{output:?}"
        );
    }
}
