//! An agent looks after the machine: by rules, and by a person's word where there is no rule.

use crate::client::*;
use std::{fs, os::unix::net::UnixListener, path::Path, process::Command};

/// Of the namespace `default`, in the vault of every server here.
const SECRET: &str = "K3y_of-the-st0ry";
const PEM: &str = "-----BEGIN KEY-----\nK3yIIEvQIBADANBgk\nK3yiG9w0BAQEFAASC\n-----END KEY-----";

/// A server with host access, a directory that it opens, and rules for `env` and `touch` none.
fn served(directory: &TempDir) -> Server {
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
    Server::of(command)
}

/// Whose own directories no other user writes.
fn directory(name: &str) -> TempDir {
    let directory = TempDir::new(name);
    set_mode(&directory.0, 0o755);
    directory
}

fn approve(words: &[&str]) -> Value {
    let listed = || json_of(&said(&["approvals", "list", "--json"]))["servers"][0]["requests"][0].clone();
    eventually(|| listed().is_object());
    let waiting = listed();
    told(&[&["approvals", "approve", text_of(&waiting["id"])], words].concat());
    waiting
}

/// Asks for a program, which a person approves: what the person was asked.
fn approved(server: &mut Server, wish: Value, words: &[&str]) -> Value {
    let id = server.send_call("request_host_access", wish);
    let question = approve(words);
    assert_eq!(server.result(id)["approved"], true);
    question
}

fn in_directory(directory: &TempDir, command: &str) -> Value {
    json!({"command": command, "directory": directory.0.join("work")})
}

/// claim: [HOST-4]
#[test]
fn a_command_that_a_person_approves_once_runs_once() {
    let directory = directory("host-once");
    let mut server = served(&directory);
    let work = directory.0.join("work");
    let wanted = in_directory(&directory, "tee counted");
    // `tee` has no rule; what it leaves says how often it has run.
    let refused = server.refuses("host_exec", wanted.clone(), "policy_denied");
    refused.says("hint", ["request_host_access"]);
    assert!(!work.join("counted").exists());
    let mut asked = wanted.clone();
    asked["pattern"] = asked["command"].take();
    asked.as_object_mut().unwrap().remove("command");
    asked["reason"] = json!("to count");
    let id = server.send_call("request_host_access", asked.clone());
    let question = approve(&[]);
    question.shows(json!({"kind": "host", "what": "tee counted", "scopes": ["once"]}));
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
    decided.shows(json!({"approved": true, "scope": "once", "pending": false}));
    let ran = server.succeeds("host_exec", wanted.clone());
    ran.shows(json!({"exit_code": 0}));
    ran.says("approved_by", ["cli"]);
    assert!(work.join("counted").exists());
    fs::remove_file(work.join("counted")).unwrap();
    server.refuses("host_exec", wanted, "policy_denied");
    assert!(!work.join("counted").exists(), "it has run twice");
    let records = server.records("host.executed");
    let outcomes: Vec<&str> = records.iter().map(|record| text_of(&record["outcome"])).collect();
    assert_eq!(outcomes, ["denied", "ok", "pending", "denied"], "{records:?}");
}

/// claim: [HOST-4]
#[test]
fn an_approval_is_for_exactly_what_was_shown() {
    let directory = directory("host-exact");
    let mut server = served(&directory);
    let wish = json!({"pattern": "id -u 'a b'"});
    let question = approved(&mut server, wish, &["--for", "10m"]);
    question.shows(json!({"what": "id -u \"a b\"", "scopes": ["once", "namespace"]}));
    // Other words, a directory, or another namespace are other commands.
    for other in [
        json!({"command": "id -u a b"}),
        json!({"command": "id -u 'a b' c"}),
        json!({"command": "id -u 'a b'", "directory": directory.0.join("work")}),
        json!({"command": "id -u 'a b'", "namespace": "other"}),
    ] {
        server.refuses("host_exec", other, "policy_denied");
    }
    // This one may run as often as it likes, for the time: `id` knows no such user.
    for _ in 0..2 {
        server
            .facts("host_exec", json!({"command": "id -u 'a b'"}))
            .shows(json!({"exit_code": 1, "success": false}));
    }
    // What is never run is not asked about, and what a rule lets run needs no question.
    for (pattern, code) in [
        ("rm -rf /", "policy_denied"),
        ("env sudo id", "policy_denied"),
        ("id", "invalid_argument"),
    ] {
        server.refuses("request_host_access", json!({"pattern": pattern}), code);
    }
    server.refuses("host_exec", json!({"command": "id; id"}), "invalid_argument");
}

/// A try with other content uses the approval up; the control is the run of what was approved.
/// claim: [HOST-4]
#[test]
fn an_approval_is_used_up_by_a_try_with_another_file() {
    let directory = directory("host-content");
    let mut server = served(&directory);
    let file = directory.0.join("work/script");
    fs::write(&file, "one\n").unwrap();
    let approved = |server: &mut Server| {
        let asked = json!({"pattern": "sort --key=1 script", "directory": directory.0.join("work")});
        let question = approved(server, asked, &[]);
        assert_contains(question["lines"].to_string(), ["script: SHA-256"]);
    };
    let wanted = in_directory(&directory, "sort --key=1 script");
    approved(&mut server);
    server
        .succeeds("host_exec", wanted.clone())
        .shows(json!({"stdout": "one\n"}));
    approved(&mut server);
    fs::write(&file, "two\n").unwrap();
    server.refuses("host_exec", wanted.clone(), "policy_denied");
    fs::write(&file, "one\n").unwrap();
    server.refuses("host_exec", wanted, "policy_denied");
}

/// claim: [HOST-7]
#[test]
fn the_host_is_off_until_the_operator_turns_it_on() {
    let mut server = Server::start();
    let listed = server.ask("tools/list", json!({}));
    let names = texts_of(&listed["result"]["tools"], "name");
    assert!(names.contains(&"execute_code"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("host")), "{names:?}");
    drop(server);
    let refused = said(&["serve", "--toolsets", "host"]);
    assert!(!refused.status.success());
    assert_contains(stderr_of(&refused), ["host.enabled"]);
    let mut server = Server::with_env([("SANDBOXMCP_HOST_ACCESS", "on")]);
    server
        .succeeds("host_exec", json!({"command": "uname"}))
        .shows(json!({"exit_code": 0, "success": true, "stdout": "Linux\n", "rule": "uname"}));
}

#[test]
fn an_agent_uses_files_of_the_host_and_a_person_takes_a_write_back() {
    let directory = directory("host-files");
    let mut server = served(&directory);
    let path = directory.0.join("work/app.conf");
    fs::write(&path, "port = 1\n").unwrap();
    let at = |path: &Path| json!({"path": path});
    server
        .succeeds("host_file_read", at(&path))
        .shows(json!({"content": "port = 1\n"}));
    let listed = server.succeeds("host_file_list", at(path.parent().unwrap()));
    listed["entries"][0].shows(json!({"name": "app.conf", "kind": "file", "size_bytes": 9}));
    server.refuses("host_file_read", at(Path::new("/etc/passwd")), "policy_denied");
    let preview = server.succeeds(
        "host_file_write",
        json!({"path": path, "content": "port = 2\n", "preview": true}),
    );
    preview.says("diff", ["-port = 1\n+port = 2\n"]);
    preview.shows(json!({"written": false, "undo_id": null}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "port = 1\n");
    let written = server.succeeds("host_file_write", json!({"path": path, "content": "port = 2\n"}));
    assert_eq!(fs::read_to_string(&path).unwrap(), "port = 2\n");
    let copied = server.succeeds(
        "host_file_copy",
        json!({"source": path, "destination": "conf/app.conf"}),
    );
    copied.shows(json!({"destination": "conf/app.conf", "size_bytes": 9}));
    server
        .succeeds("get_file", json!({"path": "conf/app.conf"}))
        .shows(json!({"text": "port = 2\n"}));
    // By the person, with the same rules.
    let config = state_dir().join("config.yaml").display().to_string();
    told(&["host", "undo", text_of(&written["undo_id"]), "--config", &config]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "port = 1\n");
    let checked = denied(&["host", "check", "--config", &config, "git", "log", "--output=x"]);
    assert_contains(checked, ["approval"]);
    assert_eq!(told(&["host", "exec", "--config", &config, "uname"]), "Linux\n");
    let off = succeeded(ringfence(&["host", "check", "uname"]));
    assert_contains(stderr_of(&off), ["access to the host is off"]);
    assert_eq!(
        stderr_of(&said(&["host", "check", "--config", &config, "uname"])),
        ""
    );
}

/// The same file in a namespace without the secret is the control.
/// claim: [HOST-8]
#[test]
fn a_secret_that_a_file_or_a_command_of_the_host_repeats_is_redacted() {
    let directory = directory("host-secret");
    let mut server = served(&directory);
    let path = directory.0.join("work/app.conf");
    fs::write(&path, format!("password = {SECRET}\nport = 1\n")).unwrap();
    let shown = "password = ***REDACTED***\nport = 1\n";
    for (namespace, expect) in [
        ("team-b", fs::read_to_string(&path).unwrap()),
        ("default", shown.to_owned()),
    ] {
        let wanted = json!({"path": path, "namespace": namespace});
        let read = server.succeeds("host_file_read", wanted);
        read.shows(json!({"content": expect}));
        let wanted = json!({"command": format!("cat {}", path.display()), "namespace": namespace});
        let ran = server.succeeds("host_exec", wanted);
        ran.shows(json!({"stdout": expect}));
    }
    // A difference shows some of the lines around a change, each behind a mark.
    fs::write(&path, format!("{PEM}\nport = 1\n")).unwrap();
    for namespace in ["team-b", "default"] {
        let content = format!("{PEM}\nport = 2\n");
        let wanted = json!({"path": path, "content": content, "preview": true, "namespace": namespace});
        let shown = server.succeeds("host_file_write", wanted).to_string();
        assert!(shown.contains("+port = 2"), "{shown}");
        assert_eq!(shown.contains("K3y"), namespace == "team-b", "{shown}");
    }
}

/// `docker restart web`, where there is Docker's command: asked for, approved in a terminal, sent to the daemon once.
#[test]
fn docker_restarts_a_container_once() {
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
    let mut server = Server::of(serve_with(&format!(
        "host: {{enabled: true, rules: {rules}}}\nwarm: {{ready: 0}}\n"
    )));
    let wanted = json!({"command": "docker restart web"});
    server.refuses("host_exec", wanted.clone(), "policy_denied");
    let wish = json!({"pattern": "docker restart web", "reason": "it hangs"});
    approved(&mut server, wish, &[]);
    let ran = server.succeeds("host_exec", wanted.clone());
    ran.shows(json!({"exit_code": 0, "stdout": "web\n"}));
    server.refuses("host_exec", wanted, "policy_denied");
    let requests = directory.read("seen");
    let is_restart = |line: &&str| line.starts_with("POST") && line.contains("/containers/web/restart");
    let restarts = requests.lines().filter(is_restart);
    assert_eq!(restarts.count(), 1, "{requests}");
}

/// Answers as Docker's daemon does that has restarted a container, and writes down what it was asked.
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
fn what_can_be_had_is_listed_and_doctor_knows_the_walls() {
    let directory = directory("host-list");
    let mut server = served(&directory);
    let list = server.succeeds("list_host_access", json!({}));
    let rules = texts_of(&list["rules"], "rule");
    assert!(
        rules.contains(&"git-status") && rules.contains(&"id"),
        "{rules:?}"
    );
    list.shows(json!({"directories.0.access": ["read", "list", "write"], "missing_walls": []}));
    let mut doctor: Command = ringfence(&["doctor", "--json"]);
    doctor.env("SANDBOXMCP_HOST_ACCESS", "on");
    let told = json_of(&doctor.output().unwrap());
    assert_eq!(told["host_walls_missing"], json!([]), "{told}");
}
