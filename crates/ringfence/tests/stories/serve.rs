//! `ringfence serve` over pipes.

use crate::client::*;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

#[test]
fn wrong_arguments_are_refused_by_name() {
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
fn output_comes_as_progress_while_the_program_runs() {
    let mut server = Server::start();
    let code = "import time\nfor n in range(3):\n    print('tick', n)\n    time.sleep(0.3)";
    let id = server.send_watched(json!({"code": code}));
    let (answer, before) = server.await_answer(id);
    let told = before.iter().filter_map(|n| n["params"]["message"].as_str());
    assert_contains(told.collect::<String>(), ["tick 0", "tick 2"]);
    assert!(before.len() >= 2, "{before:?}");
    answer.shows(json!({"result.structuredContent.stdout": "tick 0\ntick 1\ntick 2\n"}));
}

#[test]
fn a_cancelled_request_kills_its_tree_within_a_second() {
    let mut server = Server::start();
    assert_within_a_second(|| {
        let id = sleeps(&mut server, "141.4142");
        server.cancel(id);
        assert_gone("141.4142")
    });
    assert_eq!(server.execute("shell", "echo alive")["stdout"], "alive\n");
}

/// A call whose program sleeps for so long.
fn sleeps(server: &mut Server, seconds: &str) -> u64 {
    let code = format!("sleep {seconds}");
    let id = server.send_run(json!({"language": "shell", "code": code}));
    eventually(|| !processes_with(seconds).is_empty());
    id
}

/// claim: [PROC-6]
#[test]
fn a_client_that_vanishes_takes_everything_with_it() {
    assert_within_a_second(|| {
        let mut server = Server::start();
        sleeps(&mut server, "117.3205");
        let begun = Instant::now();
        server.leaves();
        assert_took_at_most(begun.elapsed(), Duration::from_secs(2));
        assert_gone("117.3205")
    });
}

/// claim: [PROC-6]
#[test]
fn nothing_survives_a_killed_server() {
    assert_within_a_second(|| {
        let mut server = Server::start();
        sleeps(&mut server, "122.3606");
        server.kill();
        assert_gone("122.3606")
    });
}

#[test]
fn the_first_answer_does_not_wait_for_the_first_sandbox() {
    // One that never stands: its interpreter sleeps.
    let scratch = TempDir::new("asleep");
    let asleep = scratch.file("python3", "#!/bin/sh\nexec sleep 1000\n");
    fs::set_permissions(&asleep, PermissionsExt::from_mode(0o755)).unwrap();
    let begun = Instant::now();
    drop(Server::with_env([("RINGFENCE_RUNTIMES_PYTHON", &asleep)]));
    assert_took_at_most(begun.elapsed(), Duration::from_millis(500));
}

#[test]
fn a_server_that_offers_no_tools_to_look_around_has_no_such_resources() {
    let mut open = Server::start();
    let mut closed = Server::start_with(&["--toolsets", "execute"]);
    for uri in ["sandbox://audit", "sandbox://logs", "sandbox://status"] {
        let read = |server: &mut Server| server.read(uri);
        assert!(read(&mut open)["result"]["contents"].is_array(), "{uri}");
        assert!(read(&mut closed)["error"].is_object(), "{uri}");
    }
    let left = closed.execute("shell", "echo words > a.txt");
    let uri = &left["artifacts"][0]["uri"];
    let read = closed.read(uri);
    let expect = json!({"result.contents.0.text": "words\n"});
    assert_facts_of("part of an answer", &read, expect);
}

#[test]
fn the_answer_to_a_small_program_is_small_and_an_empty_list_asks_for_nothing() {
    let mut server = Server::start();
    let asked = json!({"name": "execute_code", "arguments": {"code": "print(1)"}});
    let answer = server.ask("tools/call", asked);
    let result = &answer["result"]["structuredContent"];
    result.shows(json!({"stdout": "1\n", "validation.verdict": "pass"}));
    let bytes = answer.to_string().len();
    assert!(bytes <= 900, "{bytes} bytes: {answer}");
    let done = server.run(json!({"code": "1 + 1", "allowed_domains": [], "packages": [], "secrets": []}));
    assert_eq!(done["result"], 2, "{done}");
}

#[test]
fn output_is_an_event_at_the_level_debug_and_not_above() {
    let mut server = Server::start();
    for (level, is_heard) in [("debug", true), ("info", false), ("debug", true)] {
        server.ask("logging/setLevel", json!({"level": level}));
        let arguments = json!({"language": "shell", "code": "echo hello"});
        let run = server.send_run(arguments);
        let (_, mut told) = server.await_answer(run);
        let is = |message: &Value, event: &str| message["params"]["data"]["event"] == event;
        while !told.iter().any(|message| is(message, "execution.completed")) {
            told.push(server.receive());
        }
        let output = told.iter().find(|message| is(message, "execution.output"));
        let text = output.map(|message| &message["params"]["data"]["text"]);
        assert_eq!(text, is_heard.then_some(&json!("hello\n")), "{level}: {told:?}");
    }
}
