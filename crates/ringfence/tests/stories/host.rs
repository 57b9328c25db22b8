//! Host access of an agent: by rules, and by a person's approval where no rule applies.

use crate::client::*;
use std::{fs, os::unix::net::UnixListener, path::Path, process::Command};

/// A secret of the namespace `default` in the vault of every server here.
const SECRET: &str = "K3y_of-the-st0ry";
const PEM: &str = "-----BEGIN KEY-----\nK3yIIEvQIBADANBgk\nK3yiG9w0BAQEFAASC\n-----END KEY-----";

/// A server with host access, one opened directory, and a rule for `id`.
fn serve_host(directory: &TempDir) -> Server {
    fs::create_dir_all(directory.0.join("work")).unwrap();
    let opened = directory.path("work");
    let rules = format!(
        "directories:\n  - {{path: {opened}, access: [read, list, write]}}\nprograms:\n  - program: id\n    why: says who\n    approvals: lasting\n    forms:\n      - rule: id\n        match: [id]\n        refuse: [id -u]\n"
    );
    let rules = directory.file("host.yaml", &rules);
    set_mode(&rules, 0o600);
    let mut command = serve_with(&format!(
        "host:\n  enabled: true\n  rules: {rules}\nwarm:\n  ready: 0\nvault:\n  store: env\n"
    ));
    command.env("RINGFENCE_SECRET_DEFAULT_TOKEN", SECRET);
    command.env("RINGFENCE_SECRET_DEFAULT_PEM", PEM);
    Server::from_command(command)
}

/// A temporary directory that no other user can write.
fn directory(name: &str) -> TempDir {
    let directory = TempDir::new(name);
    set_mode(&directory.0, 0o755);
    directory
}

fn approve(arguments: &[&str]) -> Value {
    let listed = || json_of(&run_cli(&["approvals", "list", "--json"]))["servers"][0]["requests"][0].clone();
    eventually(|| listed().is_object());
    let waiting = listed();
    cli_stdout(&[&["approvals", "approve", text_of(&waiting["id"])], arguments].concat());
    waiting
}

/// Requests a program, which a person approves; returns the request shown to the person.
fn approved(server: &mut Server, request: Value, arguments: &[&str]) -> Value {
    let id = server.send_call("request_host_access", request);
    let question = approve(arguments);
    assert_eq!(server.result(id)["approved"], true);
    question
}

fn in_directory(directory: &TempDir, command: &str) -> Value {
    json!({"command": command, "directory": directory.0.join("work")})
}

/// claim: [HOST-4]
#[test]
fn command_approved_once_runs_once() {
    let directory = directory("host-once");
    let mut server = serve_host(&directory);
    let work = directory.0.join("work");
    let command = in_directory(&directory, "tee counted");
    // `tee` has no rule; the file that it creates shows that it has run.
    let refused = server.call_error("host_exec", command.clone(), "policy_denied");
    refused.assert_text("hint", ["request_host_access"]);
    assert!(!work.join("counted").exists());
    let mut request = command.clone();
    request["pattern"] = request["command"].take();
    request.as_object_mut().unwrap().remove("command");
    request["reason"] = json!("to count");
    let id = server.send_call("request_host_access", request.clone());
    let question = approve(&[]);
    question.assert_fields(json!({"kind": "host", "what": "tee counted", "scopes": ["once"]}));
    let lines: Vec<&str> = list_of(&question["lines"]).iter().map(text_of).collect();
    assert_contains(
        lines.join("\n"),
        [
            "command: tee counted",
            "program: \"/usr/bin/tee\"",
            "no rule: no rule is about the program tee",
            "network: none",
            "one run only",
        ],
    );
    let decided = server.result(id);
    decided.assert_fields(json!({"approved": true, "scope": "once", "pending": false}));
    let ran = server.call_ok("host_exec", command.clone());
    ran.assert_fields(json!({"exit_code": 0}));
    ran.assert_text("approved_by", ["cli"]);
    assert!(work.join("counted").exists());
    fs::remove_file(work.join("counted")).unwrap();
    server.call_error("host_exec", command, "policy_denied");
    assert!(!work.join("counted").exists(), "it has run twice");
    let records = server.audit_records("host.executed");
    let outcomes: Vec<&str> = records.iter().map(|record| text_of(&record["outcome"])).collect();
    assert_eq!(outcomes, ["denied", "ok", "pending", "denied"], "{records:?}");
}

/// claim: [HOST-4]
#[test]
fn approval_covers_exactly_the_command_shown() {
    let directory = directory("host-exact");
    let mut server = serve_host(&directory);
    let arguments = json!({"pattern": "id -u 'a b'"});
    let question = approved(&mut server, arguments, &["--for", "10m"]);
    question.assert_fields(json!({"what": "id -u \"a b\"", "scopes": ["once", "namespace"]}));
    // Other arguments, a directory or another namespace need their own approval.
    for other in [
        json!({"command": "id -u a b"}),
        json!({"command": "id -u 'a b' c"}),
        json!({"command": "id -u 'a b'", "directory": directory.0.join("work")}),
        json!({"command": "id -u 'a b'", "namespace": "other"}),
    ] {
        server.call_error("host_exec", other, "policy_denied");
    }
    // Within its time the approved command may run repeatedly; it exits with 1, as there is no such user.
    for _ in 0..2 {
        server
            .facts("host_exec", json!({"command": "id -u 'a b'"}))
            .assert_fields(json!({"exit_code": 1, "success": false}));
    }
    // Commands that are never allowed, and commands that a rule allows, cannot be requested.
    for (pattern, code) in [
        ("rm -rf /", "policy_denied"),
        ("env sudo id", "policy_denied"),
        ("id", "invalid_argument"),
    ] {
        server.call_error("request_host_access", json!({"pattern": pattern}), code);
    }
    server.call_error("host_exec", json!({"command": "id; id"}), "invalid_argument");
}

/// An attempt with other file content uses up the approval; the control is a run of the approved content.
/// claim: [HOST-4]
#[test]
fn approval_is_used_up_by_an_attempt_with_changed_file_content() {
    let directory = directory("host-content");
    let mut server = serve_host(&directory);
    let file = directory.0.join("work/script");
    fs::write(&file, "one\n").unwrap();
    let approved = |server: &mut Server| {
        let arguments = json!({"pattern": "sort --key=1 script", "directory": directory.0.join("work")});
        let question = approved(server, arguments, &[]);
        assert_contains(question["lines"].to_string(), ["script: SHA-256"]);
    };
    let command = in_directory(&directory, "sort --key=1 script");
    approved(&mut server);
    server
        .call_ok("host_exec", command.clone())
        .assert_fields(json!({"stdout": "one\n"}));
    approved(&mut server);
    fs::write(&file, "two\n").unwrap();
    server.call_error("host_exec", command.clone(), "policy_denied");
    fs::write(&file, "one\n").unwrap();
    server.call_error("host_exec", command, "policy_denied");
}

/// claim: [REC-6]
#[test]
fn refused_host_commands_are_on_record() {
    let files = directory("host-refused");
    let mut server = serve_host(&files);
    for timeout in [0, 301] {
        let arguments = json!({"command": "id", "timeout": timeout});
        server.call_error("host_exec", arguments, "invalid_argument");
    }
    let records = server.audit_records("host.executed");
    assert_eq!(records.len(), 2, "{records:?}");
    for record in &records {
        record.assert_fields(
            json!({"outcome": "denied", "details.command": "id", "details.code": "invalid_argument"}),
        );
    }
}

/// claim: [HOST-7]
#[test]
fn host_access_is_off_until_the_operator_enables_it() {
    let mut server = Server::start();
    let listed = server.rpc("tools/list", json!({}));
    let names = texts_of(&listed["result"]["tools"], "name");
    assert!(names.contains(&"execute_code"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("host")), "{names:?}");
    drop(server);
    let refused = run_cli(&["serve", "--toolsets", "host"]);
    assert!(!refused.status.success());
    assert_contains(stderr_of(&refused), ["host.enabled"]);
    let mut server = Server::with_env([("SANDBOXMCP_HOST_ACCESS", "on")]);
    server
        .call_ok("host_exec", json!({"command": "uname"}))
        .assert_fields(json!({"exit_code": 0, "success": true, "stdout": "Linux\n", "rule": "uname"}));
}

#[test]
fn host_files_are_read_written_copied_and_a_write_is_undone() {
    let directory = directory("host-files");
    let mut server = serve_host(&directory);
    let path = directory.0.join("work/app.conf");
    fs::write(&path, "port = 1\n").unwrap();
    let at = |path: &Path| json!({"path": path});
    server
        .call_ok("host_file_read", at(&path))
        .assert_fields(json!({"content": "port = 1\n"}));
    let listed = server.call_ok("host_file_list", at(path.parent().unwrap()));
    listed["entries"][0].assert_fields(json!({"name": "app.conf", "kind": "file", "size_bytes": 9}));
    server.call_error("host_file_read", at(Path::new("/etc/passwd")), "policy_denied");
    let preview = server.call_ok(
        "host_file_write",
        json!({"path": path, "content": "port = 2\n", "preview": true}),
    );
    preview.assert_text("diff", ["-port = 1\n+port = 2\n"]);
    preview.assert_fields(json!({"written": false, "undo_id": null}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "port = 1\n");
    let written = server.call_ok("host_file_write", json!({"path": path, "content": "port = 2\n"}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "port = 2\n");
    let copied = server.call_ok(
        "host_file_copy",
        json!({"source": path, "destination": "conf/app.conf"}),
    );
    copied.assert_fields(json!({"destination": "conf/app.conf", "size_bytes": 9}));
    server
        .call_ok("get_file", json!({"path": "conf/app.conf"}))
        .assert_fields(json!({"text": "port = 2\n"}));
    // The operator undoes the write with the same rules.
    let config = state_dir().join("config.yaml").display().to_string();
    cli_stdout(&["host", "undo", text_of(&written["undo_id"]), "--config", &config]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "port = 1\n");
    let checked = cli_failure_stdout(&["host", "check", "--config", &config, "git", "log", "--output=x"]);
    assert_contains(checked, ["approval"]);
    assert_eq!(
        cli_stdout(&["host", "exec", "--config", &config, "uname"]),
        "Linux\n"
    );
    let off = run_successfully(ringfence(&["host", "check", "uname"]));
    assert_contains(stderr_of(&off), ["access to the host is off"]);
    assert_eq!(
        stderr_of(&run_cli(&["host", "check", "--config", &config, "uname"])),
        ""
    );
}

#[test]
fn denied_command_in_the_background_does_not_ask_at_the_terminal() {
    let directory = directory("host-background");
    let server = serve_host(&directory);
    let config = state_dir().join("config.yaml").display().to_string();
    let command = ringfence(&["host", "exec", "--config", &config, "tee", "file"]);
    // The control: in the foreground it asks.
    Terminal::new(&command).read_until("run it once? [y/N] ");
    let job = wrap_command(
        &["sh", "-mc", r#""$0" "$@" & wait $!; echo "ended: $?" >&2"#],
        &command,
    );
    let shown = Terminal::new(&job).read_until("ended: 125");
    assert_lacks(shown, ["run it once?"]);
    drop(server);
}

#[test]
fn bytes_of_host_files_and_commands_reach_a_pipe_unchanged() {
    let directory = directory("host-bytes");
    let server = serve_host(&directory);
    let path = directory.0.join("work/blob");
    let blob = b"\x1b[2Ja\r\n\xff\0 without a newline";
    fs::write(&path, blob).unwrap();
    let (path, config) = (path.display().to_string(), state_dir().join("config.yaml"));
    let config = config.display().to_string();
    for arguments in [&["read", &path][..], &["exec", "cat", &path]] {
        let line = [&["host", arguments[0], "--config", &config], &arguments[1..]].concat();
        assert_eq!(run_successfully(ringfence(&line)).stdout, blob, "{line:?}");
    }
    drop(server);
}

/// The control: the same file in a namespace without the secret.
/// claim: [HOST-8]
#[test]
fn secret_in_host_file_or_command_output_is_redacted() {
    let directory = directory("host-secret");
    let mut server = serve_host(&directory);
    let path = directory.0.join("work/app.conf");
    fs::write(&path, format!("password = {SECRET}\nport = 1\n")).unwrap();
    let shown = "password = ***REDACTED***\nport = 1\n";
    for (namespace, expect) in [
        ("team-b", fs::read_to_string(&path).unwrap()),
        ("default", shown.to_owned()),
    ] {
        let arguments = json!({"path": path, "namespace": namespace});
        let read = server.call_ok("host_file_read", arguments);
        read.assert_fields(json!({"content": expect}));
        let arguments = json!({"command": format!("cat {}", path.display()), "namespace": namespace});
        let ran = server.call_ok("host_exec", arguments);
        ran.assert_fields(json!({"stdout": expect}));
    }
    // A diff shows lines around a change, each after a marker.
    fs::write(&path, format!("{PEM}\nport = 1\n")).unwrap();
    for namespace in ["team-b", "default"] {
        let content = format!("{PEM}\nport = 2\n");
        let arguments = json!({"path": path, "content": content, "preview": true, "namespace": namespace});
        let shown = server.call_ok("host_file_write", arguments).to_string();
        assert!(shown.contains("+port = 2"), "{shown}");
        assert_eq!(shown.contains("K3y"), namespace == "team-b", "{shown}");
    }
}

/// `docker restart web` is requested, approved on the command line and sent to the daemon once, if Docker's command is
/// installed.
#[test]
fn approved_docker_restart_runs_once() {
    let docker = Path::new("/usr/local/bin/docker").exists() || Path::new("/usr/bin/docker").exists();
    if !docker || !is_root() {
        println!("not applicable: Docker's command is not here, or the test is not root");
        return;
    }
    let directory = directory("host-docker");
    let socket = directory.0.join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let log = directory.0.join("seen");
    std::thread::spawn(move || daemon(&listener, &log));
    let rules = directory.file(
        "docker.yaml",
        &format!(
            "programs:\n  - program: docker\n    why: asks\n    before: [--config, /nonexistent, --host, 'unix://{0}']\n    effect: {{socket: {0}, user: root}}\n    forms:\n      - rule: ps\n        words: [ps]\n        match: [docker ps]\n        refuse: [docker restart web]\n",
            socket.display()
        ),
    );
    let mut server = Server::from_command(serve_with(&format!(
        "host: {{enabled: true, rules: {rules}}}\nwarm: {{ready: 0}}\n"
    )));
    let command = json!({"command": "docker restart web"});
    server.call_error("host_exec", command.clone(), "policy_denied");
    let arguments = json!({"pattern": "docker restart web", "reason": "it hangs"});
    approved(&mut server, arguments, &[]);
    let ran = server.call_ok("host_exec", command.clone());
    ran.assert_fields(json!({"exit_code": 0, "stdout": "web\n"}));
    server.call_error("host_exec", command, "policy_denied");
    let requests = directory.read("seen");
    let is_restart = |line: &&str| line.starts_with("POST") && line.contains("/containers/web/restart");
    let restarts = requests.lines().filter(is_restart);
    assert_eq!(restarts.count(), 1, "{requests}");
}

/// Answers like Docker's daemon after the restart of a container, and appends each request line to the log.
fn daemon(listener: &UnixListener, log: &Path) {
    use std::io::{BufRead, BufReader, Write};
    for stream in listener.incoming() {
        let (stream, log) = (stream.unwrap(), log.to_owned());
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut stream = stream;
            loop {
                let mut first = String::new();
                if reader.read_line(&mut first).unwrap_or(0) == 0 {
                    return;
                }
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    line.clear();
                }
                let mut file = fs::File::options().create(true).append(true).open(&log).unwrap();
                file.write_all(first.as_bytes()).unwrap();
                let answer = match first.contains("_ping") {
                    true => "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK",
                    false => "HTTP/1.1 204 No Content\r\n\r\n",
                };
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
}

#[test]
fn host_rules_are_listed_and_no_wall_is_missing() {
    let directory = directory("host-list");
    let mut server = serve_host(&directory);
    let list = server.call_ok("list_host_access", json!({}));
    let rules = texts_of(&list["rules"], "rule");
    assert!(
        rules.contains(&"git-status") && rules.contains(&"id"),
        "{rules:?}"
    );
    list.assert_fields(json!({"directories.0.access": ["read", "list", "write"], "missing_walls": []}));
    let mut doctor: Command = ringfence(&["doctor", "--json"]);
    doctor.env("SANDBOXMCP_HOST_ACCESS", "on");
    let document = json_of(&doctor.output().unwrap());
    assert_eq!(document["host_walls_missing"], json!([]), "{document}");
}
