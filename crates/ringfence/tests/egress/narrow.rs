//! `allowed_domains` of a call in a session: it narrows the hosts of that call, and the session keeps all of its hosts.

use super::World;
use crate::client::*;

/// claim: [NET-7]
#[test]
fn allowed_domains_narrow_one_call_and_not_its_session() {
    let Some(world) = World::enter() else { return };
    let mut server = world.serve([("RINGFENCE_EGRESS_ALLOW", "good.test;other.test;other.test:8080")]);
    let session = server.create_session(json!({"language": "python"}));
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
    let left = |world: &World, word: &str| world.contacts().iter().any(|contact| contact.contains(word));
    // The call reaches the host that it names and no other host of the session.
    let done = call(&fetch("good.test"), json!(["good.test"]));
    assert_eq!(done["result"], "hello from good.test\n", "{done}");
    world.contacts();
    let held = "import socket\nheld = socket.create_connection(('other.test', 8080), timeout=10)\nheld.send(b'GET /')";
    assert_eq!(call(held, Value::Null)["result"], 5);
    world.contacts();
    let done = call(&fetch("other.test"), json!(["good.test"]));
    assert_eq!(done["success"], false, "{done}");
    assert!(
        texts_of(&done["denials"], "rule").contains(&"egress.name"),
        "{done}"
    );
    assert!(!left(&world, "other.test"), "nothing has left");
    // A connection that an earlier call left open to another host was cut.
    let cut = "held.settimeout(10)\ntry:\n    gone = held.recv(1) == b''\nexcept ConnectionError:\n    gone = True\ngone";
    assert_eq!(call(cut, Value::Null)["result"], true);
    assert_eq!(call("1", json!([]))["result"], 1);
    let done = call(&fetch("good.test"), json!([]));
    assert_eq!(done["success"], false, "an empty list allows no host: {done}");
    // A call that names a host the session lacks is refused, and none of its code runs.
    for lacking in ["evil.test", "good.test:8443", "*"] {
        let refused = call("ran = True", json!(["good.test", lacking]));
        assert_eq!(refused["code"], "policy_denied", "{refused}");
        refused.assert_text("message", ["this session"]);
    }
    assert_eq!(call("'ran' in globals()", Value::Null)["result"], false);
    // Afterwards, the session reaches all of its hosts again.
    let done = call(&fetch("other.test"), Value::Null);
    assert_eq!(done["result"], "hello from other.test\n", "{done}");
}
