//! Egress of running programs and sessions: a host approved for a session, redacted denials, transferred bytes, and
//! floods.

use super::World;
use crate::client::*;

/// claim: [NET-7]
#[test]
fn an_approved_host_is_reachable_from_its_session_only() {
    let Some(world) = World::enter() else { return };
    let mut server = world.serve([]);
    let session = server.create_session(json!({"language": "python"}));
    let code =
        "import urllib.request\nurllib.request.urlopen('http://good.test/', timeout=10).read().decode()";
    let fetched = |server: &mut Server| -> Value { server.eval(&session, code) };
    let before = fetched(&mut server);
    assert_eq!(before["denials"][0]["rule"], "egress.name", "{before}");
    assert!(world.contacts().is_empty());
    let arguments = json!({"domain": "good.test", "reason": "the story", "session_id": session});
    let asked = server.send_call("request_egress", arguments);
    world.answer(&["approve", "--scope", "session"]);
    assert_eq!(server.result(asked)["approved"], true);
    let after = fetched(&mut server);
    assert_eq!(after["result"], "hello from good.test\n", "{after}");
    let contacts = world.contacts();
    let (names, rest): (Vec<&String>, Vec<&String>) =
        contacts.iter().partition(|contact| contact.starts_with("dns "));
    assert!(names.iter().all(|name| *name == "dns good.test"), "{contacts:?}");
    assert_eq!(rest, ["tcp 93.184.216.34:80", "GET / HTTP/1.1 of good.test"]);
    let other = server.run(json!({"code": code}));
    let expect = json!({"success": false});
    assert_fields_of("the approval is for the session only", &other, expect);
    assert!(world.contacts().is_empty());
    // An approval for one run is left by a run that is refused, and used up by one that starts.
    let asked = server.send_call("request_egress", json!({"domain": "good.test"}));
    world.answer(&["approve"]);
    assert_eq!(server.result(asked)["approved"], true);
    server.call_error(
        "execute_code",
        json!({"code": code, "secrets": ["NONE"]}),
        "secret_unavailable",
    );
    let once = server.run(json!({"code": code}));
    assert_eq!(once["result"], "hello from good.test\n", "{once}");
    assert_eq!(server.run(json!({"code": code}))["success"], false);
    // In a session a background program could have used it meanwhile: a call whose egress has begun uses it up.
    let linked = server.eval(&session, "__import__('os').symlink('/tmp', 'd')");
    assert_eq!(linked["success"], true, "{linked}");
    let asked = server.send_call(
        "request_egress",
        json!({"domain": "once.test", "session_id": session}),
    );
    world.answer(&["approve"]);
    assert_eq!(server.result(asked)["approved"], true);
    let files = json!([{"path": "d/x", "text": "x"}]);
    let call = json!({"session_id": session, "code": code, "files": files});
    server.call_error("execute_code", call, "policy_denied");
    let again = code.replace("good.test", "once.test");
    let after = server.eval(&session, &again);
    assert_eq!(after["denials"][0]["rule"], "egress.name", "{after}");
    println!("\n| session | approved | {} | | |", after["result"]);
}

/// claim: [SEC-2]
#[test]
fn secrets_in_requested_urls_are_redacted_in_result_log_and_audit() {
    let Some(world) = World::enter() else { return };
    const SECRET: &str = "Tok3nOfTheStory9x";
    let serve = || {
        world.serve([
            ("RINGFENCE_EGRESS_ALLOW", "*.good.test;good.test"),
            ("RINGFENCE_VAULT_STORE", "env"),
            ("RINGFENCE_SECRET_DEFAULT_TOKEN", SECRET),
        ])
    };
    let code = "import os, urllib.request\nsecret = os.environ['TOKEN']\nfor url in [f'http://{secret}.denied.test/', f'http://{secret}.good.test/', f'http://good.test/{secret}']:\n    try:\n        urllib.request.urlopen(url, timeout=5)\n    except OSError as error:\n        pass\ndel secret, url";
    let output = |server: &mut Server, arguments: Value| -> String {
        let done = server.call("execute_code", arguments);
        let id = done["structuredContent"]["execution_id"].clone();
        let log = server.read_resource("sandbox://logs");
        let record = server.call("audit_execution", json!({"limit": 20, "detail": true}));
        assert!(
            done.to_string().contains("egress.name") && log.to_string().contains("egress.refused"),
            "{done} {log}"
        );
        assert!(record.to_string().contains(id.as_str().unwrap()), "{record}");
        format!("{done} {log} {record}").to_lowercase()
    };
    // The control: a value that is not a secret of the program appears in all three.
    let control = output(&mut serve(), json!({"code": code, "env": {"TOKEN": SECRET}}));
    assert!(control.matches(&SECRET.to_lowercase()).count() > 3, "{control}");
    std::fs::remove_dir_all(world.directory.join("state")).unwrap();
    let redacted = output(&mut serve(), json!({"code": code, "secrets": ["TOKEN"]}));
    assert!(!redacted.contains(&SECRET.to_lowercase()), "{redacted}");
    assert!(redacted.contains("***redacted***"), "{redacted}");
}

#[test]
fn transferred_content_arrives_byte_for_byte() {
    let Some(world) = World::enter() else { return };
    let code = "
import hashlib, random, ssl, urllib.request
content = random.Random(7).randbytes(64 << 20)
context = ssl._create_unverified_context()
for place in ('http://good.test', 'https://good.test'):
    sent = urllib.request.Request(place + '/digest', data=content, method='PUT')
    print(urllib.request.urlopen(sent, timeout=60, context=context).read().decode())
    came = urllib.request.urlopen(place + '/content', timeout=60, context=context)
    print(hashlib.sha256(came.read()).hexdigest())
print(hashlib.sha256(content).hexdigest())
";
    let script = world.directory.join("script.py");
    std::fs::write(&script, code).unwrap();
    let words = ["run", "--allow", "good.test", script.to_str().unwrap()];
    let done = world.ringfence(&words).output().unwrap();
    let said = stdout_of(&done);
    let digests: Vec<&str> = said.lines().collect();
    assert!(
        digests.len() == 5 && digests[0].len() == 64 && digests.iter().all(|digest| *digest == digests[4]),
        "{done:?}"
    );
    println!(
        "\n| 64 MiB, HTTP and TLS, both ways | SHA-256 | {} | | |",
        digests[4]
    );
}

/// claim: [NET-8]
#[test]
fn a_connection_flood_does_not_delay_other_calls() {
    let Some(world) = World::enter() else { return };
    let mut server = world.serve([("RINGFENCE_EGRESS_ALLOW", "good.test")]);
    let one = |server: &mut Server| {
        let begun = std::time::Instant::now();
        let done = server.run(json!({"code": "1 + 1", "allowed_domains": []}));
        assert_eq!(done["result"], 2, "{done}");
        begun.elapsed()
    };
    one(&mut server);
    let flood = "import socket, threading, time\nmade = 0\ndef run():\n    global made\n    end = time.time() + 6\n    while time.time() < end:\n        s = socket.socket()\n        s.settimeout(1)\n        try:\n            s.connect(('198.18.0.1', 3128))\n            made += 1\n        except OSError:\n            pass\n        s.close()\nthreads = [threading.Thread(target=run) for _ in range(8)]\n[t.start() for t in threads]\n[t.join() for t in threads]\nmade";
    let flooding = server.send_run(json!({"code": flood, "timeout_seconds": 20}));
    let slowest = (0..40).map(|_| one(&mut server)).max().unwrap();
    assert!(slowest < std::time::Duration::from_secs(1), "{slowest:?}");
    let (flooded, _) = server.await_response(flooding);
    let made = flooded["result"]["structuredContent"]["result"].as_u64().unwrap();
    assert!(made > 500, "too few connections for a flood: {flooded}");
    println!("\n| flood | {made} connections in 6 s | the slowest other call took {slowest:?} | | |");
}
