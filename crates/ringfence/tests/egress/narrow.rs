//! One call of a session that names its hosts: it has these of the session's, and the session has all of them afterwards.

use super::World;
use crate::client::*;

/// claim: [NET-7]
#[test]
fn one_call_of_a_session_is_narrowed_and_the_session_is_not() {
    let Some(world) = World::apart() else { return };
    let mut server = world.serve([("RINGFENCE_EGRESS_ALLOW", "good.test;other.test;other.test:8080")]);
    let session = server.create(json!({"language": "python"}));
    let mut call = |code: &str, only: Value| {
        let mut arguments = json!({"code": code, "session_id": session});
        if !only.is_null() {
            arguments["allowed_domains"] = only;
        }
        server.run(arguments)
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
    assert!(
        texts_of(&done["denials"], "rule").contains(&"egress.name"),
        "{done}"
    );
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
        refused.says("message", ["this session"]);
    }
    assert_eq!(call("'ran' in globals()", Value::Null)["result"], false);
    // Afterwards the session has what it had.
    let done = call(&fetch("other.test"), Value::Null);
    assert_eq!(done["result"], "hello from other.test\n", "{done}");
}
