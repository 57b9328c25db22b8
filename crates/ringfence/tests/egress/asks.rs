//! Approval of egress while a connection waits: a program connects to a host that no rule allows, and a person decides
//! in the command line or in the client's dialogue.

use super::World;
use crate::client::*;
use std::process::{Command, Stdio};

/// Python that opens one TLS connection and returns the last line of the response.
const TLS: &str = "import socket, ssl\nraw = socket.create_connection(('good.test', 443), timeout=40)\ntls = ssl._create_unverified_context().wrap_socket(raw, server_hostname='good.test')\ntls.sendall(b'GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n')\ndata = b''\nwhile b'hello' not in data:\n    data += tls.recv(4096)\ndata.decode().splitlines()[-1]";

fn serve(world: &World, seconds: &str) -> Command {
    let mut command = world.ringfence(&["serve"]);
    command
        .env("RINGFENCE_EGRESS_ON_DENIED", "ask")
        .env("RINGFENCE_EGRESS_ASK_SECONDS", seconds)
        .env("RINGFENCE_WARM_READY", "0")
        .stderr(Stdio::null());
    command
}

fn records(world: &World, action: &str) -> Vec<Value> {
    let said = json_of(&world.run(&["audit", "list", "--action", action, "--json"], []));
    list_of(&said["records"]).to_vec()
}

/// The only denial of a result.
fn denial(result: &Value) -> (String, String) {
    let denials = list_of(&result["denials"]);
    assert_eq!(denials.len(), 1, "{result}");
    let word = |name: &str| denials[0][name].as_str().unwrap().to_owned();
    (word("rule"), word("what"))
}

/// claim: [APR-8]
#[test]
fn a_connection_held_for_approval_continues_after_the_cli_approves() {
    let Some(world) = World::enter() else { return };
    let mut server = Server::from_command(serve(&world, "60"));
    let id = server.send_run(json!({"code": TLS}));
    let request = world.one_pending();
    assert_eq!(world.contacts(), [""; 0], "nothing has left the machine yet");
    request.assert_fields(json!({"what": "good.test:443", "scopes": ["once", "namespace"]}));
    let lines = request["lines"].to_string();
    assert_contains(&lines, ["tries to reach a host", "denied after 60 s"]);
    world.answer(&["approve"]);
    let done = server.result(id);
    done.assert_fields(json!({"result": "hello from good.test", "denials": []}));
    assert_eq!(request["execution_id"], done["execution_id"]);
    let contacts = world.contacts();
    let (names, rest): (Vec<&String>, Vec<&String>) =
        contacts.iter().partition(|contact| contact.starts_with("dns "));
    assert!(names.iter().all(|name| *name == "dns good.test"), "{contacts:?}");
    assert_eq!(
        rest,
        ["tcp 93.184.216.34:443", "GET / HTTP/1.1 of good.test"],
        "one connection"
    );
    let decided = records(&world, "approval.decided");
    assert_eq!(decided.len(), 1);
    decided[0].assert_fields(json!({"execution_id": done["execution_id"], "details.scope": "once"}));
    // The approval was for that run; the next run needs a new one.
    let id = server.send_run(json!({"code": TLS}));
    world.answer(&["deny"]);
    let done = server.result(id);
    assert_eq!(
        denial(&done),
        (
            "egress.name".to_owned(),
            "No network access to good.test:443; asked, and denied by cli".to_owned()
        )
    );
    // A host that was denied a moment ago causes no second request.
    let done = server.run(json!({"code": TLS}));
    assert!(denial(&done).1.contains("denied a moment ago"), "{done}");
    assert_eq!(world.contacts(), [""; 0]);
    println!("\n| asked by a program | approved in the CLI | the same connection | hello from good.test | |");
}

/// claim: [APR-8]
#[test]
fn an_unanswered_approval_request_of_a_program_denies_the_connection() {
    let Some(world) = World::enter() else { return };
    let mut server = Server::from_command(serve(&world, "1"));
    let done = server.run(json!({"code": TLS}));
    let (rule, what) = denial(&done);
    assert_eq!(rule, "egress.name");
    assert!(what.ends_with("asked, and not answered within 1 s"), "{what}");
    assert_eq!(
        records(&world, "approval.decided")[0]["details"]["why"],
        "timeout"
    );
    drop(server);
    let mut server = Server::from_command(serve(&world, "60"));
    let id = server.send_run(json!({"code": TLS}));
    world.one_pending();
    server.cancel(id);
    eventually(|| world.pending().is_empty());
    drop(server);
    let whys: Vec<Value> = records(&world, "approval.decided")
        .iter()
        .map(|record| record["details"]["why"].clone())
        .collect();
    assert!(whys.contains(&json!("gone")), "{whys:?}");
    assert_eq!(world.contacts(), [""; 0]);
}

/// claim: [APR-8]
#[test]
fn a_program_cannot_flood_a_person_with_approval_requests() {
    let Some(world) = World::enter() else { return };
    let mut server = Server::from_command(serve(&world, "2"));
    let flood = "import socket, threading\nnames = [f'd{n}.test' for n in range(400)] + ['good.test'] * 20\ndef one(name):\n    try:\n        s = socket.create_connection((name, 443), timeout=5)\n        s.recv(1)\n    except OSError:\n        pass\nwhile names:\n    some, names = names[:40], names[40:]\n    threads = [threading.Thread(target=one, args=(name,)) for name in some]\n    [t.start() for t in threads]\n    [t.join() for t in threads]\n'done'";
    let id = server.send_run(json!({"code": flood, "timeout_seconds": 60}));
    // At most four requests wait at a time.
    let first = world.one_pending();
    assert!(world.pending().len() <= 4);
    let done = server.result(id);
    assert_eq!(done["result"], "done", "{done}");
    let asked = records(&world, "approval.requested");
    assert!((1..=8).contains(&asked.len()), "{}: {first}", asked.len());
    assert_eq!(world.contacts(), [""; 0], "no DNS query left the sandbox");
    let denials = list_of(&done["denials"]);
    let has = |words: &str| {
        denials
            .iter()
            .any(|denial| text_of(&denial["what"]).contains(words))
    };
    assert!(has("has asked 8 times") || has("wait already"), "{done}");
    println!(
        "\n| flood | 420 connections to 401 hosts | {} questions | nothing left | |",
        asked.len()
    );
}

/// claim: [APR-8]
#[test]
fn approving_a_host_opens_no_private_or_metadata_address() {
    let Some(world) = World::enter() else { return };
    let mut server = Server::from_command(serve(&world, "30"));
    let code = "import urllib.request\nurllib.request.urlopen('http://NAME/', timeout=40).read().decode()";
    for (name, leaves) in [
        ("metadata.test", "dns metadata.test"),
        ("sneaky.test", "dns sneaky.test"),
    ] {
        let id = server.send_run(json!({"code": code.replace("NAME", name)}));
        let asked = world.answer(&["approve"]);
        assert_eq!(asked["what"], format!("{name}:80"));
        let done = server.result(id);
        assert_eq!(denial(&done).0, "egress.address", "{done}");
        let contacts = world.contacts();
        assert!(
            !contacts.is_empty() && contacts.iter().all(|contact| contact == leaves),
            "{contacts:?}"
        );
    }
    // There is no request for names and addresses that stay denied after any answer.
    let before = records(&world, "approval.requested").len();
    for host in [
        "metadata.google.internal",
        "169.254.169.254",
        "10.7.7.7",
        "93.184.216.34",
    ] {
        let done = server.run(json!({"code": code.replace("NAME", host)}));
        assert_eq!(done["success"], false, "{host}: {done}");
        assert!(!list_of(&done["denials"]).is_empty(), "{host}: {done}");
    }
    let by_proxy = "import urllib.request\nproxy = urllib.request.ProxyHandler({'http': 'http://198.18.0.1:3128'})\nurllib.request.build_opener(proxy).open('http://169.254.169.254/', timeout=40).read()";
    assert_eq!(server.run(json!({"code": by_proxy}))["success"], false);
    assert_eq!(records(&world, "approval.requested").len(), before);
    assert_eq!(world.contacts(), [""; 0]);
}

/// claim: [APR-8]
#[test]
fn egress_approval_is_not_requested_by_default_or_for_hosts_the_call_excludes() {
    let Some(world) = World::enter() else { return };
    // With the default settings.
    let mut server = Server::from_command(world.ringfence(&["serve"]));
    let id = server.send_run(json!({"code": TLS}));
    assert_eq!(denial(&server.result(id)).0, "egress.name");
    drop(server);
    let mut command = world.ringfence(&["serve"]);
    command.env("RINGFENCE_EGRESS_ALLOW", "other.test");
    let mut server = Server::from_command(command);
    let id = server.send_run(json!({"code": TLS}));
    let (rule, what) = denial(&server.result(id));
    assert_eq!(rule, "egress.name");
    assert!(what.starts_with("No network access to good.test:443"), "{what}");
    drop(server);
    // With `ask`, a call with `allowed_domains` causes no requests for other hosts.
    let mut command = serve(&world, "30");
    command.env("RINGFENCE_EGRESS_ALLOW", "other.test");
    let mut server = Server::from_command(command);
    for only in [json!([]), json!(["other.test"])] {
        assert_eq!(
            server.run(json!({"code": TLS, "allowed_domains": only}))["success"],
            false
        );
    }
    assert_eq!(records(&world, "approval.requested"), [Value::Null; 0]);
    assert_eq!(world.contacts(), [""; 0]);
    // A name that contains a secret of the program is not shown to a person.
    drop(server);
    let mut command = serve(&world, "30");
    command
        .env("RINGFENCE_VAULT_STORE", "env")
        .env("RINGFENCE_SECRET_DEFAULT_TOKEN", "Tok3nOfTheStory9x");
    let mut server = Server::from_command(command);
    let code = "import os, socket\ns = socket.create_connection((os.environ['TOKEN'] + '.good.test', 443), timeout=40)\ns.recv(1)";
    let done = server.run(json!({"code": code, "secrets": ["TOKEN"]}));
    let denials = list_of(&done["denials"]);
    assert!(!denials.is_empty(), "{done}");
    assert!(
        denials.iter().all(|denial| denial["rule"] == "egress.name"),
        "{done}"
    );
    assert!(
        !done.to_string().to_lowercase().contains("tok3nofthestory9x"),
        "{done}"
    );
    assert_eq!(records(&world, "approval.requested"), [Value::Null; 0]);
}

#[test]
fn egress_approvals_of_a_session_are_requested_only_during_its_calls() {
    let Some(world) = World::enter() else { return };
    let mut server = Server::from_command(serve(&world, "30"));
    let session = server.create_session(json!({"language": "python"}));
    let call = |code: &str| json!({"code": code, "session_id": session});
    // `once` is valid for that call only.
    let id = server.send_run(call(TLS));
    let request = world.answer(&["approve"]);
    request.assert_fields(json!({"scopes": ["once", "session", "namespace"], "session_id": session}));
    assert_eq!(server.result(id)["result"], "hello from good.test");
    let id = server.send_run(call(TLS));
    world.answer(&["approve", "--scope", "session"]);
    assert_eq!(server.result(id)["result"], "hello from good.test");
    let id = server.send_run(call(TLS));
    assert_eq!(
        server.result(id)["result"],
        "hello from good.test",
        "it has that now"
    );
    assert_eq!(records(&world, "approval.requested").len(), 2);
    world.contacts();
    // Connections between two calls cause no request.
    let later = "import socket, threading, time\nseen = []\ngo = threading.Event()\ndef run():\n    go.wait()\n    while not seen or seen[-1] != 'refused':\n        try:\n            connection = socket.create_connection(('other.test', 443), timeout=1)\n            seen.append('refused' if connection.recv(1) == b'\\x15' else 'reached')\n        except OSError as error:\n            seen.append(type(error).__name__)\n        time.sleep(0.05)\nthreading.Thread(target=run, daemon=True).start()\nthreading.Timer(0.5, go.set).start()";
    let id = server.send_run(call(later));
    assert_eq!(server.result(id)["success"], true);
    let seen = call("seen[-1:] == ['refused']");
    eventually(|| server.run(seen.clone())["result"] == true);
    assert_eq!(world.contacts(), [""; 0]);
}

#[test]
fn egress_approval_is_elicited_from_the_client_that_runs_the_program() {
    let Some(world) = World::enter() else { return };
    let mut server = Server::with_capabilities(json!({"elicitation": {}}), serve(&world, "60"));
    let id = server.send_run(json!({"code": TLS}));
    let dialogue = server.receive_method("elicitation/create");
    let message = text_of(&dialogue["params"]["message"]);
    assert!(message.contains("host: good.test\n  ports: 443"), "{message}");
    let yes = json!({"action": "accept", "content": {"decision": "once"}});
    server.reply(&dialogue, yes);
    let done = server.result(id);
    assert_eq!(done["result"], "hello from good.test", "{done}");
    // The dialogue is cancelled when the request is decided elsewhere.
    let id = server.send_run(json!({"code": TLS}));
    let dialogue = server.receive_method("elicitation/create");
    world.answer(&["approve"]);
    let taken_back = server.receive_method("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"]);
    assert_eq!(server.result(id)["result"], "hello from good.test");
    // It is also cancelled when the program ends without waiting for the answer.
    let impatient = "import os, socket, time\nwaits = socket.create_connection(('other.test', 443), timeout=40)\nwhile not os.path.exists('go'):\n    time.sleep(0.02)";
    let id = server.send_run(json!({"code": impatient, "workspace": "namespace"}));
    let dialogue = server.receive_method("elicitation/create");
    server.send_call("put_file", json!({"path": "go", "text": ""}));
    let taken_back = server.receive_method("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"]);
    assert_eq!(server.result(id)["success"], true);
    let id = server.send_run(json!({"code": TLS}));
    let dialogue = server.receive_method("elicitation/create");
    server.reply(&dialogue, json!({"action": "decline"}));
    let done = server.result(id);
    assert!(
        denial(&done).1.contains("denied by a person, asked by mcp"),
        "{done}"
    );
}

#[test]
fn egress_approval_of_a_cli_run_is_given_in_another_terminal() {
    let Some(world) = World::enter() else { return };
    let script = world.directory.join("script.py");
    std::fs::write(
        &script,
        format!(
            "{}\nprint(data.decode().splitlines()[-1])",
            TLS.replace("\ndata.decode().splitlines()[-1]", "")
        ),
    )
    .unwrap();
    let run = |words: &[&str]| {
        let mut command = world.ringfence(&[&["run"], words, &[script.to_str().unwrap()]].concat());
        command
            .env("RINGFENCE_EGRESS_ON_DENIED", "ask")
            .env("RINGFENCE_EGRESS_ASK_SECONDS", "30")
            .stdin(Stdio::null());
        spawn_piped(&mut command)
    };
    for words in [&[][..], &["--allow", "other.test"]] {
        let running = run(words);
        let request = world.answer(&["approve"]);
        let done = running.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(stdout_of(&done), "hello from good.test\n", "{done:?}");
        let stderr = stderr_of(&done);
        let hint = format!("ringfence approvals approve {}", text_of(&request["id"]));
        assert_contains(&stderr, ["good.test:443", &hint]);
    }
    let running = run(&[]);
    world.answer(&["deny"]);
    let done = running.wait_with_output().unwrap();
    let stderr = stderr_of(&done);
    assert!(
        !done.status.success() && stderr.contains("denied by cli"),
        "{done:?}"
    );
}
