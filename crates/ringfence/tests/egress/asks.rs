//! A program connects to a host that no rule allows, and a person is asked while its connection waits: in the command line, in
//! the client's dialogue, or not at all.

use super::{World, client::Server};
use serde_json::{Value, json};
use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// One connection, and what is heard over it.
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

fn begin(server: &mut Server, arguments: Value) -> u64 {
    server.send(
        "tools/call",
        json!({"name": "execute_code", "arguments": arguments}),
    )
}

fn result(server: &mut Server, id: u64) -> Value {
    server.await_answer(id).0["result"]["structuredContent"].clone()
}

fn said(world: &World, words: &[&str]) -> Value {
    let output = world.ringfence(words).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn pending(world: &World) -> Vec<Value> {
    let listed = said(world, &["approvals", "list", "--json"]);
    let servers = listed["servers"].as_array().cloned().unwrap_or_default();
    let requests = servers.iter().filter_map(|server| server["requests"].as_array());
    requests.flatten().cloned().collect()
}

fn one_pending(world: &World) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(one) = pending(world).pop() {
            return one;
        }
        assert!(Instant::now() < end, "nobody was asked");
    }
}

/// The operator at another terminal.
fn answer(world: &World, words: &[&str]) -> Value {
    let request = one_pending(world);
    let id = request["id"].as_str().unwrap();
    let words = [&["approvals", words[0], id], &words[1..]].concat();
    let done = world.ringfence(&words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    request
}

fn records(world: &World, action: &str) -> Vec<Value> {
    let said = said(world, &["audit", "list", "--action", action, "--json"]);
    said["records"].as_array().cloned().unwrap()
}

/// The only denial of a result.
fn denial(result: &Value) -> (String, String) {
    let denials = result["denials"].as_array().unwrap();
    assert_eq!(denials.len(), 1, "{result}");
    let word = |name: &str| denials[0][name].as_str().unwrap().to_owned();
    (word("rule"), word("what"))
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn an_approval_in_the_command_line_continues_the_same_connection() {
    let world = World::new("asks");
    let mut server = Server::of(serve(&world, "60"));
    let id = begin(&mut server, json!({"code": TLS}));
    let request = one_pending(&world);
    assert_eq!(world.heard(), [""; 0], "nothing has left the machine yet");
    assert_eq!(request["what"], "good.test:443", "{request}");
    assert_eq!(request["scopes"], json!(["once", "namespace"]));
    let lines = request["lines"].to_string();
    assert!(
        lines.contains("tries to reach a host") && lines.contains("denied after 60 s"),
        "{lines}"
    );
    answer(&world, &["approve"]);
    let done = result(&mut server, id);
    assert_eq!(done["result"], "hello from good.test", "{done}");
    assert_eq!(done["denials"], json!([]));
    assert_eq!(request["execution_id"], done["execution_id"]);
    let heard = world.heard();
    let (names, rest): (Vec<&String>, Vec<&String>) =
        heard.iter().partition(|heard| heard.starts_with("dns "));
    assert!(names.iter().all(|name| *name == "dns good.test"), "{heard:?}");
    assert_eq!(
        rest,
        ["tcp 93.184.216.34:443", "GET / HTTP/1.1 of good.test"],
        "one connection"
    );
    let decided = records(&world, "approval.decided");
    assert_eq!(decided.len(), 1);
    assert_eq!(decided[0]["execution_id"], done["execution_id"]);
    assert_eq!(decided[0]["details"]["scope"], "once");
    // It was for that run: the next is asked about again.
    let id = begin(&mut server, json!({"code": TLS}));
    answer(&world, &["deny"]);
    let done = result(&mut server, id);
    assert_eq!(
        denial(&done),
        (
            "egress.name".to_owned(),
            "No network access to good.test:443; asked, and denied by cli".to_owned()
        )
    );
    // Nobody is asked again what was denied a moment ago.
    let id = begin(&mut server, json!({"code": TLS}));
    let done = result(&mut server, id);
    assert!(denial(&done).1.contains("denied a moment ago"), "{done}");
    assert_eq!(world.heard(), [""; 0]);
    println!("\n| asked by a program | approved in the CLI | the same connection | hello from good.test | |");
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn without_an_answer_it_is_denied_and_a_call_that_is_gone_takes_its_question_along() {
    let world = World::new("expired");
    let mut server = Server::of(serve(&world, "1"));
    let id = begin(&mut server, json!({"code": TLS}));
    let done = result(&mut server, id);
    let (rule, what) = denial(&done);
    assert_eq!(rule, "egress.name");
    assert!(
        what.ends_with("asked, and nobody has answered within 1 s"),
        "{what}"
    );
    assert_eq!(
        records(&world, "approval.decided")[0]["details"]["why"],
        "timeout"
    );
    drop(server);
    let mut server = Server::of(serve(&world, "60"));
    let id = begin(&mut server, json!({"code": TLS}));
    one_pending(&world);
    server.tell("notifications/cancelled", json!({"requestId": id}));
    let end = Instant::now() + PATIENCE;
    while !pending(&world).is_empty() {
        assert!(Instant::now() < end, "it still waits");
    }
    drop(server);
    let whys: Vec<Value> = records(&world, "approval.decided")
        .iter()
        .map(|record| record["details"]["why"].clone())
        .collect();
    assert!(whys.contains(&json!("gone")), "{whys:?}");
    assert_eq!(world.heard(), [""; 0]);
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn a_program_that_tries_everything_asks_a_few_times() {
    let world = World::new("everything");
    let mut server = Server::of(serve(&world, "2"));
    let flood = "import socket, threading\nnames = [f'd{n}.test' for n in range(400)] + ['good.test'] * 20\ndef one(name):\n    try:\n        s = socket.create_connection((name, 443), timeout=5)\n        s.recv(1)\n    except OSError:\n        pass\nwhile names:\n    some, names = names[:40], names[40:]\n    threads = [threading.Thread(target=one, args=(name,)) for name in some]\n    [t.start() for t in threads]\n    [t.join() for t in threads]\n'done'";
    let id = begin(&mut server, json!({"code": flood, "timeout_seconds": 60}));
    // Meanwhile no more wait than a person can look at.
    let first = one_pending(&world);
    assert!(pending(&world).len() <= 4);
    let done = result(&mut server, id);
    assert_eq!(done["result"], "done", "{done}");
    let asked = records(&world, "approval.requested");
    assert!((1..=8).contains(&asked.len()), "{}: {first}", asked.len());
    assert_eq!(world.heard(), [""; 0], "no name was asked for outside");
    let denials = done["denials"].as_array().unwrap();
    let has = |words: &str| {
        denials
            .iter()
            .any(|denial| denial["what"].as_str().unwrap().contains(words))
    };
    assert!(has("has asked 8 times") || has("wait already"), "{done}");
    println!(
        "\n| flood | 420 connections to 401 hosts | {} questions | nothing left | |",
        asked.len()
    );
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn an_approval_makes_no_address_reachable_that_is_not_public() {
    let world = World::new("inside");
    let mut server = Server::of(serve(&world, "30"));
    let code = "import urllib.request\nurllib.request.urlopen('http://NAME/', timeout=40).read().decode()";
    for (name, leaves) in [
        ("metadata.test", "dns metadata.test"),
        ("sneaky.test", "dns sneaky.test"),
    ] {
        let id = begin(&mut server, json!({"code": code.replace("NAME", name)}));
        let asked = answer(&world, &["approve"]);
        assert_eq!(asked["what"], format!("{name}:80"));
        let done = result(&mut server, id);
        assert_eq!(denial(&done).0, "egress.address", "{done}");
        let heard = world.heard();
        assert!(
            !heard.is_empty() && heard.iter().all(|heard| heard == leaves),
            "{heard:?}"
        );
    }
    // Of names and addresses that no answer would change nobody is asked.
    let before = records(&world, "approval.requested").len();
    for host in [
        "metadata.google.internal",
        "169.254.169.254",
        "10.7.7.7",
        "93.184.216.34",
    ] {
        let id = begin(&mut server, json!({"code": code.replace("NAME", host)}));
        let done = result(&mut server, id);
        assert_eq!(done["success"], false, "{host}: {done}");
        assert!(!done["denials"].as_array().unwrap().is_empty(), "{host}: {done}");
    }
    let by_proxy = "import urllib.request\nproxy = urllib.request.ProxyHandler({'http': 'http://198.18.0.1:3128'})\nurllib.request.build_opener(proxy).open('http://169.254.169.254/', timeout=40).read()";
    let id = begin(&mut server, json!({"code": by_proxy}));
    assert_eq!(result(&mut server, id)["success"], false);
    assert_eq!(records(&world, "approval.requested").len(), before);
    assert_eq!(world.heard(), [""; 0]);
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn whoever_denies_or_narrows_is_not_asked() {
    let world = World::new("deny");
    // As it is where nobody has set anything.
    let mut server = Server::of(world.ringfence(&["serve"]));
    let id = begin(&mut server, json!({"code": TLS}));
    assert_eq!(denial(&result(&mut server, id)).0, "egress.name");
    drop(server);
    let mut command = world.ringfence(&["serve"]);
    command.env("RINGFENCE_EGRESS_ALLOW", "other.test");
    let mut server = Server::of(command);
    let id = begin(&mut server, json!({"code": TLS}));
    let (rule, what) = denial(&result(&mut server, id));
    assert_eq!(rule, "egress.name");
    assert!(what.starts_with("No network access to good.test:443"), "{what}");
    drop(server);
    // With `ask`, a call that has named its hosts has given up the others.
    let mut command = serve(&world, "30");
    command.env("RINGFENCE_EGRESS_ALLOW", "other.test");
    let mut server = Server::of(command);
    for only in [json!([]), json!(["other.test"])] {
        let id = begin(&mut server, json!({"code": TLS, "allowed_domains": only}));
        assert_eq!(result(&mut server, id)["success"], false);
    }
    assert_eq!(records(&world, "approval.requested"), [Value::Null; 0]);
    assert_eq!(world.heard(), [""; 0]);
    // A name that holds a secret of the program's is shown to nobody.
    drop(server);
    let mut command = serve(&world, "30");
    command
        .env("RINGFENCE_VAULT_STORE", "env")
        .env("RINGFENCE_SECRET_DEFAULT_TOKEN", "Tok3nOfTheStory9x");
    let mut server = Server::of(command);
    let code = "import os, socket\ns = socket.create_connection((os.environ['TOKEN'] + '.good.test', 443), timeout=40)\ns.recv(1)";
    let id = begin(&mut server, json!({"code": code, "secrets": ["TOKEN"]}));
    let done = result(&mut server, id);
    let denials = done["denials"].as_array().unwrap();
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
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn a_session_has_what_was_approved_for_it_and_asks_in_its_calls_alone() {
    let world = World::new("session-asks");
    let mut server = Server::of(serve(&world, "30"));
    let made = server.call("create_session", json!({"language": "python"}));
    let session = made["structuredContent"]["session_id"].clone();
    let call = |code: &str| json!({"code": code, "session_id": session});
    // Once is for that call.
    let id = begin(&mut server, call(TLS));
    let request = answer(&world, &["approve"]);
    assert_eq!(request["scopes"], json!(["once", "session", "namespace"]));
    assert_eq!(request["session_id"], session);
    assert_eq!(result(&mut server, id)["result"], "hello from good.test");
    let id = begin(&mut server, call(TLS));
    answer(&world, &["approve", "--scope", "session"]);
    assert_eq!(result(&mut server, id)["result"], "hello from good.test");
    let id = begin(&mut server, call(TLS));
    assert_eq!(
        result(&mut server, id)["result"],
        "hello from good.test",
        "it has that now"
    );
    assert_eq!(records(&world, "approval.requested").len(), 2);
    world.heard();
    // What goes on between two calls asks nobody.
    let later = "import socket, threading, time\nseen = []\ngo = threading.Event()\ndef run():\n    go.wait()\n    while not seen or seen[-1] != 'refused':\n        try:\n            connection = socket.create_connection(('other.test', 443), timeout=1)\n            seen.append('refused' if connection.recv(1) == b'\\x15' else 'reached')\n        except OSError as error:\n            seen.append(type(error).__name__)\n        time.sleep(0.05)\nthreading.Thread(target=run, daemon=True).start()\nthreading.Timer(0.5, go.set).start()";
    let id = begin(&mut server, call(later));
    assert_eq!(result(&mut server, id)["success"], true);
    let end = Instant::now() + PATIENCE;
    loop {
        let id = begin(
            &mut server,
            json!({"code": "seen[-1:] == ['refused']", "session_id": session}),
        );
        if result(&mut server, id)["result"] == true {
            break;
        }
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(world.heard(), [""; 0]);
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn the_client_whose_call_waits_asks_its_user() {
    let world = World::new("dialogue");
    let mut server = Server::able_to(json!({"elicitation": {}}), serve(&world, "60"));
    let id = begin(&mut server, json!({"code": TLS}));
    let dialogue = server.hear("elicitation/create");
    let message = dialogue["params"]["message"].as_str().unwrap();
    assert!(message.contains("host: good.test\n  ports: 443"), "{message}");
    let yes = json!({"action": "accept", "content": {"decision": "once"}});
    server.reply(&dialogue, yes);
    let done = result(&mut server, id);
    assert_eq!(done["result"], "hello from good.test", "{done}");
    // Decided elsewhere, it is taken back.
    let id = begin(&mut server, json!({"code": TLS}));
    let dialogue = server.hear("elicitation/create");
    answer(&world, &["approve"]);
    let taken_back = server.hear("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"]);
    assert_eq!(result(&mut server, id)["result"], "hello from good.test");
    // So it is when the program does not wait for it.
    let impatient = "import os, socket, time\nwaits = socket.create_connection(('other.test', 443), timeout=40)\nwhile not os.path.exists('go'):\n    time.sleep(0.02)";
    let id = begin(&mut server, json!({"code": impatient, "workspace": "namespace"}));
    let dialogue = server.hear("elicitation/create");
    let go = json!({"name": "put_file", "arguments": {"path": "go", "text": ""}});
    server.send("tools/call", go);
    let taken_back = server.hear("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"]);
    assert_eq!(result(&mut server, id)["success"], true);
    let id = begin(&mut server, json!({"code": TLS}));
    let dialogue = server.hear("elicitation/create");
    server.reply(&dialogue, json!({"action": "decline"}));
    let done = result(&mut server, id);
    assert!(
        denial(&done).1.contains("denied by a person, asked by mcp"),
        "{done}"
    );
}

#[test]
#[ignore = "runs in a network namespace of its own, where another test starts it"]
fn a_run_of_the_command_line_is_answered_at_another_terminal() {
    let world = World::new("run-asks");
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
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    for words in [&[][..], &["--allow", "other.test"]] {
        let running = run(words);
        let request = answer(&world, &["approve"]);
        let done = running.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(
            String::from_utf8_lossy(&done.stdout),
            "hello from good.test\n",
            "{done:?}"
        );
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        let hint = format!("ringfence approvals approve {}", request["id"].as_str().unwrap());
        assert!(told.contains("good.test:443") && told.contains(&hint), "{told}");
    }
    let running = run(&[]);
    answer(&world, &["deny"]);
    let done = running.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        !done.status.success() && told.contains("denied by cli"),
        "{done:?}"
    );
}
