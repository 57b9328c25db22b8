//! A model asks for a host, and a person answers: in the client's dialogue, at the command line, or not at all.

mod attacks;
mod stateless;

use crate::client::{Server, binary, ringfence, state_dir, within};
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn serve(timeout_seconds: &str) -> Command {
    let mut command = ringfence(&["serve"]);
    command
        .env("RINGFENCE_APPROVALS_TIMEOUT_SECONDS", timeout_seconds)
        .env("RINGFENCE_WARM_READY", "0")
        .stderr(Stdio::null());
    command
}

/// A server whose client can ask its user.
fn with_dialogue(timeout_seconds: &str) -> Server {
    Server::able_to(json!({"elicitation": {}}), serve(timeout_seconds))
}

fn without_dialogue(timeout_seconds: &str) -> Server {
    Server::of(serve(timeout_seconds))
}

fn egress(domain: &str) -> Value {
    json!({"name": "request_egress", "arguments": {"domain": domain, "reason": "to read its documentation"}})
}

impl Server {
    fn answered(&mut self, id: u64) -> Value {
        self.await_answer(id).0["result"]["structuredContent"].clone()
    }
}

fn accept(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

/// What waits, as the command says it.
fn pending() -> Vec<Value> {
    let output = ringfence(&["approvals", "list", "--json"]).output().unwrap();
    let said: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    said["servers"][0]["requests"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn one_pending() -> Value {
    let mut one = Value::Null;
    assert!(within(PATIENCE, || {
        one = pending().pop().unwrap_or_default();
        !one.is_null()
    }));
    one
}

fn told(words: &[&str]) -> (Option<i32>, String) {
    let output = ringfence(&[&["approvals"], words].concat()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// One request over the control socket.
fn asked(server: &Server, request: &Value) -> Value {
    let socket = state_dir().join(format!("control/{}.sock", server.child.id()));
    let mut stream = UnixStream::connect(socket).unwrap();
    // The method is first in every request.
    let (method, params) = (&request["method"], &request["params"]);
    writeln!(stream, r#"{{"method":{method},"params":{params}}}"#).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn records(action: &str) -> Vec<Value> {
    let output = ringfence(&["audit", "list", "--action", action, "--json"])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said["records"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn a_person_whom_the_client_asks_says_yes_and_the_call_says_so() {
    let mut server = with_dialogue("60");
    let id = server.send("tools/call", egress("API.example.com:443"));
    let dialogue = server.hear("elicitation/create");
    let message = dialogue["params"]["message"].as_str().unwrap();
    let waiting = one_pending();
    let lines: Vec<&str> = waiting["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(message, lines.join("\n"));
    assert!(
        message.contains("\n  host: api.example.com\n  ports: 443\n"),
        "{message}"
    );
    assert!(message.contains("\"to read its documentation\""), "{message}");
    let offered = &dialogue["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(offered, &json!(["deny", "once", "namespace"]));
    server.reply(&dialogue, accept("namespace"));
    let answer = server.answered(id);
    assert_eq!(answer["approved"], true, "{answer}");
    assert_eq!(
        (&answer["scope"], &answer["domain"]),
        (&json!("namespace"), &json!("API.example.com:443"))
    );
    assert_eq!(answer["decided_by"], "a person, asked by mcp story 1");
    assert!(answer["expires_at"].is_string(), "{answer}");
    let state = server.facts("inspect_state", json!({}));
    assert_eq!(state["approved"], json!(["api.example.com:443"]));
    // It is not asked again.
    let again = server.facts("request_egress", json!({"domain": "api.example.com:443"}));
    assert_eq!(again["approved"], true, "{again}");
    let decided = records("approval.decided");
    assert_eq!(decided.len(), 1);
    assert_eq!(
        decided[0]["details"]["what"], "api.example.com:443",
        "{decided:?}"
    );
    assert_eq!(records("approval.requested").len(), 2);
}

#[test]
fn a_person_who_declines_or_closes_the_dialogue_has_said_no() {
    let mut server = with_dialogue("60");
    let noes = [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        accept("deny"),
        accept("everything"),
        json!({"action": "accept"}),
    ];
    for (number, no) in noes.into_iter().enumerate() {
        let id = server.send("tools/call", egress(&format!("h{number}.example.com")));
        let dialogue = server.hear("elicitation/create");
        server.reply(&dialogue, no);
        let answer = server.answered(id);
        assert_eq!(
            (&answer["approved"], &answer["scope"]),
            (&json!(false), &Value::Null),
            "{answer}"
        );
    }
    let lately = server.facts("request_egress", json!({"domain": "h0.example.com"}));
    assert_eq!(lately["approved"], false);
    assert!(
        lately["decided_by"].as_str().unwrap().contains("a moment ago"),
        "{lately}"
    );
}

#[test]
fn a_session_can_have_a_host_for_itself_until_it_ends() {
    let mut server = with_dialogue("60");
    let session = server.facts("create_session", json!({"language": "shell"}))["session_id"].clone();
    let ask =
        json!({"name": "request_egress", "arguments": {"domain": "a.example.com", "session_id": session}});
    let id = server.send("tools/call", ask);
    let dialogue = server.hear("elicitation/create");
    let offered = &dialogue["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(offered, &json!(["deny", "once", "session", "namespace"]));
    server.reply(&dialogue, accept("session"));
    let answer = server.answered(id);
    assert_eq!(
        (&answer["approved"], &answer["scope"]),
        (&json!(true), &json!("session")),
        "{answer}"
    );
    // A session that ends takes the question with it.
    let ask =
        json!({"name": "request_egress", "arguments": {"domain": "b.example.com", "session_id": session}});
    let id = server.send("tools/call", ask);
    server.hear("elicitation/create");
    let ended = server.send(
        "tools/call",
        json!({"name": "terminate_session", "arguments": {"session_id": session}}),
    );
    // Either may be answered first.
    let (denied, before) = server.await_answer(id);
    let denied = &denied["result"]["structuredContent"];
    assert_eq!(denied["approved"], false, "{denied}");
    if !before.iter().any(|message| message["id"] == json!(ended)) {
        server.answered(ended);
    }
    let gone = server.facts(
        "request_egress",
        json!({"domain": "c.example.com", "session_id": session}),
    );
    assert_eq!(gone["code"], "session_ended", "{gone}");
}

/// claim: [APR-3]
#[test]
fn a_dialogue_that_nobody_answers_is_taken_back_and_a_denial() {
    let mut server = with_dialogue("1");
    let begun = Instant::now();
    let id = server.send("tools/call", egress("slow.example.com"));
    let dialogue = server.hear("elicitation/create");
    let taken_back = server.hear("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"], "{taken_back}");
    let answer = server.answered(id);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(answer["approved"], false, "{answer}");
    assert!(
        answer["decided_by"].as_str().unwrap().contains("its time was up"),
        "{answer}"
    );
    // Who answers after that has answered nothing.
    server.reply(&dialogue, accept("namespace"));
    assert_eq!(server.facts("inspect_state", json!({}))["approved"], json!([]));
    let decided = records("approval.decided");
    assert_eq!(
        (decided.len(), &decided[0]["details"]["why"]),
        (1, &json!("timeout"))
    );
}

#[test]
fn a_call_that_is_cancelled_takes_its_question_with_it() {
    let mut server = with_dialogue("60");
    let id = server.send("tools/call", egress("a.example.com"));
    let dialogue = server.hear("elicitation/create");
    assert_eq!(pending().len(), 1);
    server.tell("notifications/cancelled", json!({"requestId": id}));
    let taken_back = server.hear("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"], "{taken_back}");
    assert!(within(PATIENCE, || pending().is_empty()));
    assert!(within(PATIENCE, || records("approval.decided").len() == 1));
    assert_eq!(records("approval.decided")[0]["details"]["why"], "gone");
    // It was withdrawn and not denied: it may be asked again.
    let id = server.send("tools/call", egress("a.example.com"));
    let dialogue = server.hear("elicitation/create");
    server.reply(&dialogue, accept("once"));
    assert_eq!(server.answered(id)["approved"], true);
}

#[test]
fn a_call_that_waits_no_longer_leaves_its_question_and_the_next_one_has_the_answer() {
    let mut server = with_dialogue("60");
    let now = |domain: &str| json!({"domain": domain, "wait_seconds": 0});
    let id = server.send(
        "tools/call",
        json!({"name": "request_egress", "arguments": now("a.example.com")}),
    );
    let (answer, before) = server.await_answer(id);
    let facts = &answer["result"]["structuredContent"];
    assert_eq!(
        (&facts["pending"], &facts["approved"]),
        (&json!(true), &json!(false)),
        "{answer}"
    );
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let name = one_pending()["id"].as_str().unwrap().to_owned();
    assert!(
        text.contains("next: call request_egress again") && text.contains(&name),
        "{text}"
    );
    // The dialogue stays open, and who asks again meanwhile opens no other.
    let asked = before
        .into_iter()
        .find(|message| message["method"] == "elicitation/create");
    let dialogue = asked.unwrap_or_else(|| server.hear("elicitation/create"));
    let again = server.send(
        "tools/call",
        json!({"name": "request_egress", "arguments": now("a.example.com")}),
    );
    let (again, between) = server.await_answer(again);
    assert_eq!(again["result"]["structuredContent"]["pending"], true, "{again}");
    let opened = |message: &Value| message["method"] == "elicitation/create";
    assert!(!between.iter().any(opened), "{between:?}");
    assert_eq!(one_pending()["id"], name);
    server.reply(&dialogue, accept("namespace"));
    assert!(within(PATIENCE, || pending().is_empty()));
    let given = server.facts("request_egress", now("a.example.com"));
    assert_eq!(
        (&given["pending"], &given["approved"]),
        (&json!(false), &json!(true)),
        "{given}"
    );
    // At the command line, too; and what its client has left is asked no more.
    drop(server);
    let mut server = without_dialogue("60");
    server.facts("request_egress", now("b.example.com"));
    let (code, text) = told(&["deny", one_pending()["id"].as_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    assert!(within(PATIENCE, || pending().is_empty()));
    let denied = server.facts("request_egress", now("b.example.com"));
    assert_eq!(
        (&denied["pending"], &denied["approved"]),
        (&json!(false), &json!(false)),
        "{denied}"
    );
    let long = server.facts(
        "request_egress",
        json!({"domain": "c.example.com", "wait_seconds": 51}),
    );
    assert_eq!(long["code"], "invalid_argument", "{long}");
    server.facts("request_egress", now("d.example.com"));
    server.hang_up();
    assert!(server.ended_within(PATIENCE));
}

/// claim: [APR-4]
#[test]
fn the_first_of_two_channels_counts_and_the_other_is_told() {
    let mut server = with_dialogue("60");
    let id = server.send("tools/call", egress("a.example.com"));
    let dialogue = server.hear("elicitation/create");
    let name = one_pending()["id"].as_str().unwrap().to_owned();
    let (code, text) = told(&["approve", &name]);
    assert_eq!(code, Some(0), "{text}");
    let taken_back = server.hear("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"]);
    let answer = server.answered(id);
    assert_eq!(
        (&answer["approved"], &answer["decided_by"]),
        (&json!(true), &json!("cli")),
        "{answer}"
    );
    let (code, text) = told(&["deny", &name]);
    assert_eq!(code, Some(125), "{text}");

    let id = server.send("tools/call", egress("b.example.com"));
    let dialogue = server.hear("elicitation/create");
    let seen = one_pending();
    server.reply(&dialogue, json!({"action": "decline"}));
    assert_eq!(server.answered(id)["approved"], false);
    let late = json!({"method": "approvals.decide", "params": {
        "id": seen["id"], "digest": "0".repeat(64), "answer": {"approve": "once"},
    }});
    let late = asked(&server, &late);
    assert_eq!(late["error"]["code"], "conflict", "{late}");
    assert!(
        late["error"]["message"]
            .as_str()
            .unwrap()
            .contains("decided already"),
        "{late}"
    );
}

#[test]
fn where_the_client_cannot_ask_the_operator_does_at_the_command_line() {
    let mut server = without_dialogue("60");
    let mut ask = egress("docs.example.com");
    ask["_meta"] = json!({"progressToken": "t"});
    let id = server.send("tools/call", ask);
    let progress = server.hear("notifications/progress");
    let request = one_pending();
    let name = request["id"].as_str().unwrap();
    let hint = format!("ringfence approvals approve {name}");
    assert!(
        progress["params"]["message"].as_str().unwrap().contains(&hint),
        "{progress}"
    );
    let (code, text) = told(&["list"]);
    assert!(
        code == Some(0) && text.contains("host: docs.example.com") && text.contains(name),
        "{text}"
    );
    let (_, refused) = told(&["approve", name, "--for", "2h"]);
    assert!(refused.contains("max_namespace_minutes"), "{refused}");
    let (_, refused) = told(&["approve", name, "--scope", "session"]);
    assert!(refused.contains("not asked for a session"), "{refused}");
    let (code, text) = told(&["approve", name, "--for", "30m"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("host: docs.example.com") && text.contains("approved for the namespace until"),
        "{text}"
    );
    let answer = server.answered(id);
    assert_eq!(
        (&answer["approved"], &answer["scope"]),
        (&json!(true), &json!("namespace")),
        "{answer}"
    );
    let (code, text) = told(&["list"]);
    assert_eq!((code, text.as_str()), (Some(0), "no requests are waiting\n"));

    let id = server.send("tools/call", egress("other.example.com"));
    let name = one_pending()["id"].as_str().unwrap().to_owned();
    let (code, text) = told(&["deny", &name, "--json"]);
    let said: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &said["approved"]), (Some(0), &json!(false)), "{text}");
    assert_eq!(said["request"]["what"], "other.example.com");
    assert_eq!(server.answered(id)["approved"], false);
    let (code, text) = told(&["approve", "00000000"]);
    assert!(
        code == Some(125) && text.contains("no request of this name"),
        "{text}"
    );
}

#[test]
fn whoever_watches_is_told_of_each_request_and_of_its_end_also_of_servers_that_start_later() {
    let mut watch = ringfence(&["approvals", "watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let mut server = without_dialogue("60");
    let id = server.send("tools/call", egress("a.example.com"));
    let asked = next();
    assert_eq!(asked["pid"], server.child.id(), "{asked}");
    let request = &asked["news"]["asked"];
    assert_eq!(request["what"], "a.example.com", "{asked}");
    let (code, text) = told(&["approve", request["id"].as_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    let decided = next();
    assert_eq!(decided["news"]["decided"]["approved"], true, "{decided}");
    assert_eq!(decided["news"]["decided"]["id"], request["id"], "{decided}");
    assert_eq!(server.answered(id)["approved"], true);
    watch.kill().unwrap();
    watch.wait().unwrap();
    // A server that stops has denied what still waits.
    server.send("tools/call", egress("b.example.com"));
    one_pending();
    server.hang_up();
    assert!(server.ended_within(PATIENCE));
}

#[test]
fn nobody_is_asked_what_the_configuration_has_answered_or_what_an_answer_would_not_change() {
    let mut command = serve("60");
    command.env("RINGFENCE_EGRESS_ALLOW", "*.example.com; other=only.example.org");
    let mut server = Server::of(command);
    let given = server.facts("request_egress", json!({"domain": "api.example.com"}));
    assert_eq!(
        (&given["approved"], &given["scope"], &given["decided_by"]),
        (
            &json!(true),
            &json!("namespace"),
            &json!("the operator's configuration")
        ),
        "{given}"
    );
    assert_eq!(records("approval.requested")[0]["outcome"], "ok");
    // What it gives to others, or on other ports, is asked for.
    for domain in ["only.example.org", "api.example.com:8443"] {
        let id = server.send("tools/call", egress(domain));
        let (code, text) = told(&["deny", one_pending()["id"].as_str().unwrap()]);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(server.answered(id)["approved"], false, "{domain}");
    }
    drop(server);
    let mut command = serve("60");
    command.env("RINGFENCE_FLOOR", "landlock");
    let mut server = Server::of(command);
    let refused = server.facts("request_egress", json!({"domain": "api.example.com"}));
    assert_eq!(refused["code"], "unsupported_argument", "{refused}");
}

/// `ringfence egress` until it has its answer.
fn asking(words: &[&str]) -> Child {
    let mut command = ringfence(&[&["egress"], words].concat());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn answer_of(asking: Child) -> (Option<i32>, String, String) {
    let done = asking.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn the_command_line_asks_for_a_host_and_waits_for_the_answer() {
    let (code, _, text) = answer_of(asking(&["docs.example.com"]));
    assert!(code == Some(125) && text.contains("no server runs"), "{text}");
    let mut server = without_dialogue("60");
    assert_eq!(server.execute("shell", "true")["success"], true);
    let first = asking(&["docs.example.com", "--reason", "to read"]);
    let request = one_pending();
    assert_eq!(
        (&request["what"], &request["caller"], &request["reason"]),
        (&json!("docs.example.com"), &json!("cli"), &json!("to read"))
    );
    let name = request["id"].as_str().unwrap();
    assert_eq!(told(&["approve", name, "--for", "30m"]).0, Some(0));
    let (code, said, told_meanwhile) = answer_of(first);
    assert_eq!(code, Some(0));
    assert!(
        said.starts_with("docs.example.com: approved for the namespace until"),
        "{said}"
    );
    assert!(
        told_meanwhile.contains(&format!("approvals approve {name}")),
        "{told_meanwhile}"
    );
    assert_eq!(
        server.facts("inspect_state", json!({}))["approved"],
        json!(["docs.example.com"])
    );
    // A no has an exit code of its own, and the document says the same.
    let second = asking(&["other.example.com:8443", "--json"]);
    let name = one_pending()["id"].as_str().unwrap().to_owned();
    assert_eq!(told(&["deny", &name]).0, Some(0));
    let (code, said, _) = answer_of(second);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(
        (
            &said["domain"],
            &said["approved"],
            &said["decided_by"],
            &said["pid"]
        ),
        (
            &json!("other.example.com:8443"),
            &json!(false),
            &json!("cli"),
            &json!(server.child.id())
        )
    );
    let (code, said, _) = answer_of(asking(&["*", "--json"]));
    assert!(code == Some(2) && said.contains("is not one host"), "{said}");
    // Whoever goes away takes the question back.
    let mut third = asking(&["third.example.com"]);
    one_pending();
    third.kill().unwrap();
    third.wait().unwrap();
    assert!(within(PATIENCE, || pending().is_empty()));
}

/// `ringfence approvals watch` before somebody who can type.
struct Watcher {
    child: Child,
    keyboard: File,
    told: String,
}

impl Watcher {
    fn new() -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let terminal = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        // A process in the background of its terminal is not asked.
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(binary())
            .args(["approvals", "watch"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("NO_COLOR", "1")
            .env("RINGFENCE_STATE_DIR", state_dir());
        let child = command
            .stdin(terminal.try_clone().unwrap())
            .stdout(Stdio::null())
            .stderr(terminal)
            .spawn();
        Self {
            child: child.unwrap(),
            keyboard: File::from(controller),
            told: String::new(),
        }
    }

    /// Reads until this stands there; what came before is forgotten.
    fn sees(&mut self, text: &str) -> String {
        let mut chunk = [0; 4096];
        while !self.told.contains(text) {
            let count = self.keyboard.read(&mut chunk).unwrap();
            self.told += &String::from_utf8_lossy(&chunk[..count]);
        }
        let end = self.told.find(text).unwrap() + text.len();
        self.told.drain(..end).collect()
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Ctrl-C, as who watches ends it; where tests were started so that it is ignored, by force.
        drop(self.keyboard.write_all(b"\x03"));
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Time to read the question: an answer that comes sooner is none.
const READING: Duration = Duration::from_millis(600);

#[test]
fn a_person_who_watches_is_asked_about_one_request_after_the_other() {
    let mut server = without_dialogue("60");
    // An answer that needs the engine: its socket is there.
    assert_eq!(server.execute("shell", "true")["success"], true);
    let mut watcher = Watcher::new();
    watcher.sees("Ctrl-C ends this");
    let first = server.send("tools/call", egress("a.example.com"));
    let shown = watcher.sees("N: no] ");
    assert!(
        shown.contains("host: a.example.com") && !shown.contains("for the session"),
        "{shown}"
    );
    let second = server.send("tools/call", egress("b.example.com"));
    assert!(within(PATIENCE, || pending().len() == 2));
    std::thread::sleep(READING);
    // Two lines at once: the second was typed before its question was there.
    watcher.types("y\ny\n");
    let shown = watcher.sees("N: no] ");
    assert!(
        shown.contains("approved (once), by cli") && shown.contains("host: b.example.com"),
        "{shown}"
    );
    assert_eq!(server.answered(first)["approved"], true);
    std::thread::sleep(READING);
    assert_eq!(pending().len(), 1, "nobody has answered that");
    watcher.types("what\n");
    watcher.sees("N: no] ");
    std::thread::sleep(READING);
    watcher.types("\n");
    watcher.sees("denied, by cli");
    assert_eq!(server.answered(second)["approved"], false);

    // One that is decided elsewhere is asked no more, and what is typed then answers nothing.
    let third = server.send("tools/call", egress("c.example.com"));
    watcher.sees("N: no] ");
    let (code, text) = told(&["deny", one_pending()["id"].as_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    watcher.sees("is denied by cli");
    assert_eq!(server.answered(third)["approved"], false);
    watcher.types("y\n");
    let fourth = server.send("tools/call", egress("d.example.com"));
    watcher.sees("N: no] ");
    watcher.types("a\n");
    watcher.sees("N: no] ");
    assert_eq!(pending().len(), 1, "it was typed too soon");
    std::thread::sleep(READING);
    watcher.types("a\n");
    watcher.sees("approved for the namespace until");
    assert_eq!(server.answered(fourth)["scope"], "namespace");
}
