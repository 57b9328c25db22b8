//! Rules that change while something lives: an approval opens a host for a session.

use super::{World, client::Server};
use serde_json::{Value, json};

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn an_approval_opens_a_host_for_a_session() {
    let world = World::new("live");
    let mut server = Server::of(world.ringfence(&["serve"]));
    let session =
        server.call("create_session", json!({"language": "python"}))["structuredContent"]["session_id"]
            .as_str()
            .unwrap()
            .to_owned();
    let code =
        "import urllib.request\nurllib.request.urlopen('http://good.test/', timeout=10).read().decode()";
    let fetched = |server: &mut Server| -> Value {
        server.call("execute_code", json!({"code": code, "session_id": session}))["structuredContent"].clone()
    };
    let before = fetched(&mut server);
    assert_eq!(before["denials"][0]["rule"], "egress.no_route", "{before}");
    assert!(world.heard().is_empty());
    let approver = approve(&world);
    let asked = server.call(
        "request_egress",
        json!({"domain": "good.test", "reason": "the story", "session_id": session}),
    );
    assert_eq!(asked["structuredContent"]["approved"], true, "{asked}");
    approver.join().unwrap();
    let after = fetched(&mut server);
    assert_eq!(after["result"], "hello from good.test\n", "{after}");
    let heard = world.heard();
    let (names, rest): (Vec<&String>, Vec<&String>) =
        heard.iter().partition(|heard| heard.starts_with("dns "));
    assert!(names.iter().all(|name| *name == "dns good.test"), "{heard:?}");
    assert_eq!(rest, ["tcp 93.184.216.34:80", "GET / HTTP/1.1 of good.test"]);
    let other = server.call("execute_code", json!({"code": code}))["structuredContent"].clone();
    assert_eq!(
        other["success"], false,
        "what is the session's is nobody else's: {other}"
    );
    assert!(world.heard().is_empty());
    println!("| session | approved | {} | | |", after["result"]);
}

/// The operator at another terminal: takes the first request that waits, and says yes for the session.
fn approve(world: &World) -> std::thread::JoinHandle<()> {
    let command = |words: &[&str]| world.ringfence(words);
    let (mut list, mut yes) = (
        command(&["approvals", "list", "--json"]),
        command(&["approvals", "approve"]),
    );
    std::thread::spawn(move || {
        for _ in 0..100 {
            let listed = list.output().unwrap();
            let found: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
            if let Some(id) = find_id(&found) {
                let done = yes.args([&id, "--scope", "session"]).output().unwrap();
                assert!(done.status.success(), "{done:?}");
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("nothing was asked");
    })
}

fn find_id(found: &Value) -> Option<String> {
    match found {
        Value::Object(fields) => fields
            .get("id")
            .or(fields.get("request_id"))
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| fields.values().find_map(find_id)),
        Value::Array(items) => items.iter().find_map(find_id),
        _ => None,
    }
}
