//! One call of a session that names its hosts: it has these of the session's, and the session has all of them afterwards.

use super::{World, client::Server};
use serde_json::{Value, json};

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn a_call_has_the_hosts_that_it_names_of_those_that_its_session_has() {
    let world = World::new("narrow");
    let mut command = world.ringfence(&["serve"]);
    command.env("RINGFENCE_EGRESS_ALLOW", "good.test;other.test;other.test:8080");
    let mut server = Server::of(command);
    let made = server.call("create_session", json!({"language": "python"}));
    let session = made["structuredContent"]["session_id"].clone();
    let mut call = |code: &str, only: Value| {
        let mut arguments = json!({"code": code, "session_id": session});
        if !only.is_null() {
            arguments["allowed_domains"] = only;
        }
        server.call("execute_code", arguments)["structuredContent"].clone()
    };
    let fetch = |name: &str| {
        format!("import urllib.request\nurllib.request.urlopen('http://{name}/', timeout=10).read().decode()")
    };
    let left = |world: &World, word: &str| world.heard().iter().any(|heard| heard.contains(word));
    // Of what a call names it has that, and nothing else of the session's.
    let done = call(&fetch("good.test"), json!(["good.test"]));
    assert_eq!(done["result"], "hello from good.test\n", "{done}");
    world.heard();
    let held = "import socket\nheld = socket.create_connection(('other.test', 8080), timeout=10)\nheld.send(b'GET /')";
    assert_eq!(call(held, Value::Null)["result"], 5);
    world.heard();
    let done = call(&fetch("other.test"), json!(["good.test"]));
    assert_eq!(done["success"], false, "{done}");
    let rules: Vec<&Value> = done["denials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|denial| &denial["rule"])
        .collect();
    assert!(rules.iter().any(|rule| **rule == "egress.name"), "{done}");
    assert!(!left(&world, "other.test"), "nothing has left");
    // What an earlier call left open to another host was cut.
    let cut = "held.settimeout(10)\ntry:\n    gone = held.recv(1) == b''\nexcept ConnectionError:\n    gone = True\ngone";
    assert_eq!(call(cut, Value::Null)["result"], true);
    assert_eq!(call("1", json!([]))["result"], 1);
    let done = call(&fetch("good.test"), json!([]));
    assert_eq!(done["success"], false, "an empty list is nobody: {done}");
    // A host that the session lacks is no call's, and nothing of that runs.
    for lacking in ["evil.test", "good.test:8443", "*"] {
        let refused = call("ran = True", json!(["good.test", lacking]));
        assert_eq!(refused["code"], "policy_denied", "{refused}");
        assert!(
            refused["message"].as_str().unwrap().contains("this session"),
            "{refused}"
        );
    }
    assert_eq!(call("'ran' in globals()", Value::Null)["result"], false);
    // Afterwards the session has what it had.
    let done = call(&fetch("other.test"), Value::Null);
    assert_eq!(done["result"], "hello from other.test\n", "{done}");
}
