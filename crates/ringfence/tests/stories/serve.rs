//! `ringfence serve` over pipes.

use crate::client::*;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

#[test]
fn wrong_arguments_are_refused_with_code_and_hint() {
    let mut server = Server::start();
    for (arguments, code) in [
        (json!({"code": "1", "langauge": "python"}), "unknown_argument"),
        (json!({"code": "1", "session_id": "x"}), "invalid_argument"),
        (json!({"code": "1", "packages": ["--x"]}), "invalid_argument"),
        (json!({"code": ""}), "invalid_argument"),
        (json!({"code": "1", "timeout_seconds": 1e9}), "invalid_argument"),
        (
            json!({"code": "1", "resource_limits": {"max_ram_mb": 1_u64 << 40}}),
            "invalid_argument",
        ),
        (
            json!({"code": "1", "files": [{"path": "../x", "text": ""}]}),
            "invalid_argument",
        ),
    ] {
        let result = server.call("execute_code", arguments.clone());
        assert_eq!(result["isError"], true, "{arguments}");
        assert_eq!(result["structuredContent"]["code"], code, "{arguments}: {result}");
        assert!(!text_of(&result["structuredContent"]["hint"]).is_empty());
    }
    assert_eq!(server.execute("shell", "echo alive")["stdout"], "alive\n");
}

#[test]
fn output_arrives_as_progress_while_the_program_runs() {
    let mut server = Server::start();
    let code = "import time\nfor n in range(3):\n    print('tick', n)\n    time.sleep(0.3)";
    let id = server.send_run_with_progress(json!({"code": code}));
    let (answer, before) = server.await_response(id);
    let chunks = before.iter().filter_map(|n| n["params"]["message"].as_str());
    assert_contains(chunks.collect::<String>(), ["tick 0", "tick 2"]);
    assert!(before.len() >= 2, "{before:?}");
    answer.assert_fields(json!({"result.structuredContent.stdout": "tick 0\ntick 1\ntick 2\n"}));
}

#[test]
fn cancelled_request_kills_its_process_tree_within_a_second() {
    let mut server = Server::start();
    assert_within_a_second(|| {
        let id = start_sleep(&mut server, "141.4142");
        server.cancel(id);
        assert_processes_end("141.4142")
    });
    assert_eq!(server.execute("shell", "echo alive")["stdout"], "alive\n");
}

/// Starts a program that sleeps this long, and returns its request's id.
fn start_sleep(server: &mut Server, seconds: &str) -> u64 {
    let code = format!("sleep {seconds}");
    let id = server.send_run(json!({"language": "shell", "code": code}));
    eventually(|| !processes_with(seconds).is_empty());
    id
}

/// claim: [PROC-6]
#[test]
fn disconnect_ends_the_server_and_its_programs() {
    assert_within_a_second(|| {
        let mut server = Server::start();
        start_sleep(&mut server, "117.3205");
        let begun = Instant::now();
        server.shut_down();
        assert_took_at_most(begun.elapsed(), Duration::from_secs(2));
        assert_processes_end("117.3205")
    });
}

/// claim: [PROC-6]
#[test]
fn no_program_survives_a_killed_server() {
    assert_within_a_second(|| {
        let mut server = Server::start();
        start_sleep(&mut server, "122.3606");
        server.kill();
        assert_processes_end("122.3606")
    });
}

#[test]
fn first_response_does_not_wait_for_the_first_sandbox() {
    // A sandbox that never becomes ready: its interpreter sleeps.
    let scratch = TempDir::new("asleep");
    let asleep = scratch.file("python3", "#!/bin/sh\nexec sleep 1000\n");
    fs::set_permissions(&asleep, PermissionsExt::from_mode(0o755)).unwrap();
    let begun = Instant::now();
    drop(Server::with_env([("RINGFENCE_RUNTIMES_PYTHON", &asleep)]));
    assert_took_at_most(begun.elapsed(), Duration::from_millis(500));
}

#[test]
fn server_without_inspection_tools_has_no_inspection_resources() {
    let mut open = Server::start();
    let mut closed = Server::start_with(&["--toolsets", "execute"]);
    for uri in ["sandbox://audit", "sandbox://logs", "sandbox://status"] {
        let read = |server: &mut Server| server.read_resource(uri);
        assert!(read(&mut open)["result"]["contents"].is_array(), "{uri}");
        assert!(read(&mut closed)["error"].is_object(), "{uri}");
    }
    let left = closed.execute("shell", "echo words > a.txt");
    let uri = &left["artifacts"][0]["uri"];
    let read = closed.read_resource(uri);
    let expect = json!({"result.contents.0.text": "words\n"});
    assert_fields_of("the artifact", &read, expect);
}

#[test]
fn small_program_has_a_small_response_and_empty_lists_are_accepted() {
    let mut server = Server::start();
    let params = json!({"name": "execute_code", "arguments": {"code": "print(1)"}});
    let answer = server.rpc("tools/call", params);
    let result = &answer["result"]["structuredContent"];
    result.assert_fields(json!({"stdout": "1\n", "validation.verdict": "pass"}));
    let bytes = answer.to_string().len();
    assert!(bytes <= 900, "{bytes} bytes: {answer}");
    let done = server.run(json!({"code": "1 + 1", "allowed_domains": [], "packages": [], "secrets": []}));
    assert_eq!(done["result"], 2, "{done}");
}

#[test]
fn output_events_are_sent_at_level_debug_only() {
    let mut server = Server::start();
    for (level, is_sent) in [("debug", true), ("info", false), ("debug", true)] {
        server.rpc("logging/setLevel", json!({"level": level}));
        let arguments = json!({"language": "shell", "code": "echo hello"});
        let run = server.send_run(arguments);
        let (_, mut notifications) = server.await_response(run);
        let is = |message: &Value, event: &str| message["params"]["data"]["event"] == event;
        while !notifications
            .iter()
            .any(|message| is(message, "execution.completed"))
        {
            notifications.push(server.receive());
        }
        let output = notifications
            .iter()
            .find(|message| is(message, "execution.output"));
        let text = output.map(|message| &message["params"]["data"]["text"]);
        assert_eq!(
            text,
            is_sent.then_some(&json!("hello\n")),
            "{level}: {notifications:?}"
        );
    }
}

/// claim: [HTTP-11]
#[test]
fn client_that_does_not_read_is_not_read_and_gets_all_answers_later() {
    const REQUESTS: u64 = 6000;
    let (mut server, stdout) = Server::with_raw_stdout(ringfence(&["serve"]));
    let pid = server.child.id();
    let (sent, progress) = std::sync::mpsc::channel();
    let writing = std::thread::spawn(move || {
        server.send("initialize", initialize_params("story", json!({})));
        server.notify("notifications/initialized", json!({}));
        for _ in 0..REQUESTS {
            server.send("tools/list", json!({}));
            sent.send(()).unwrap();
        }
        server
    });
    // Until everything has been taken, or nothing more is.
    while progress.recv_timeout(Duration::from_secs(3)).is_ok() {}
    let answers = BufReader::new(stdout).lines().map(Result::unwrap);
    let mut answers = answers.take(usize::try_from(REQUESTS).unwrap() + 1);
    assert!(answers.all(|line| line.contains(r#""result""#)));
    let _server = writing.join().unwrap();
    let peak = proc_status_kib(pid, "VmHWM");
    println!("{REQUESTS} requests: {peak} KiB");
    assert!(peak < 300 << 10, "{peak} KiB");
}
