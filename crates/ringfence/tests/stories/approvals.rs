//! A model asks for a host, and a person answers: in the client's dialogue, at the command line, or not at all.

mod attacks;
mod stateless;

use crate::client::*;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

fn serve(timeout_seconds: &str) -> Command {
    serve_with(&format!(
        "approvals: {{timeout_seconds: {timeout_seconds}}}\nwarm: {{ready: 0}}\n"
    ))
}

/// A server whose client can ask its user.
fn with_dialogue(timeout_seconds: &str) -> Server {
    Server::able_to(json!({"elicitation": {}}), serve(timeout_seconds))
}

fn without_dialogue(timeout_seconds: &str) -> Server {
    Server::of(serve(timeout_seconds))
}

impl Server {
    /// Calls `request_egress` and does not wait.
    fn wants(&mut self, domain: &str) -> u64 {
        let wish = json!({"domain": domain, "reason": "to read its documentation"});
        self.send_call("request_egress", wish)
    }
}

fn accept(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

/// What waits, as the command says it; nothing while no server listens.
fn pending() -> Vec<Value> {
    let said = json_of(&said(&["approvals", "list", "--json"]));
    let requests = said["servers"][0]["requests"].as_array();
    requests.cloned().unwrap_or_default()
}

fn one_pending() -> Value {
    let mut one = Value::Null;
    eventually(|| {
        one = pending().pop().unwrap_or_default();
        !one.is_null()
    });
    one
}

/// Answers the one that waits, at the command line.
#[track_caller]
fn decide(answer: &str) -> Value {
    let request = one_pending();
    answered(&[answer, text_of(&request["id"])]);
    request
}

/// What `ringfence approvals` prints that must succeed.
#[track_caller]
fn answered(words: &[&str]) -> String {
    told(&[&["approvals"], words].concat())
}

/// A server's question in the client's dialogue, taken back.
#[track_caller]
fn is_taken_back(server: &mut Server, dialogue: &Value) {
    let taken_back = server.hear("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], dialogue["id"], "{taken_back}");
}

/// What is shown of a request.
fn lines_of(request: &Value) -> String {
    let lines: Vec<&str> = list_of(&request["lines"]).iter().map(text_of).collect();
    lines.join("\n")
}

fn records(action: &str) -> Vec<Value> {
    list_of(&told_json(&["audit", "list", "--action", action])["records"]).to_vec()
}

#[test]
fn a_person_whom_the_client_asks_says_yes_or_no_and_the_call_says_so() {
    let mut server = with_dialogue("60");
    let id = server.wants("API.example.com:443");
    let dialogue = server.hear("elicitation/create");
    let message = text_of(&dialogue["params"]["message"]);
    let waiting = one_pending();
    assert_eq!(message, lines_of(&waiting));
    assert_contains(message, ["\n  host: api.example.com\n  ports: 443\n"]);
    assert!(message.contains("\"to read its documentation\""), "{message}");
    let offered = &dialogue["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(offered, &json!(["deny", "once", "namespace"]));
    server.reply(&dialogue, accept("namespace"));
    let answer = server.result(id);
    answer.shows(json!({"approved": true, "scope": "namespace", "domain": "API.example.com:443"}));
    assert_eq!(answer["decided_by"], "a person, asked by mcp story 1");
    assert!(answer["expires_at"].is_string(), "{answer}");
    assert_eq!(
        server.facts("inspect_state", json!({}))["approved"],
        json!(["api.example.com:443"])
    );
    // It is not asked again.
    let again = server.facts("request_egress", json!({"domain": "api.example.com:443"}));
    assert_eq!(again["approved"], true, "{again}");
    let decided = records("approval.decided");
    assert_eq!(decided.len(), 1);
    decided[0].shows(json!({"details.what": "api.example.com:443"}));
    assert_eq!(records("approval.requested").len(), 2);
    // Who declines, closes the dialogue or answers something else has said no.
    let noes = [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        accept("deny"),
        accept("everything"),
        json!({"action": "accept"}),
    ];
    for (number, no) in noes.into_iter().enumerate() {
        let id = server.wants(&format!("h{number}.example.com"));
        let dialogue = server.hear("elicitation/create");
        server.reply(&dialogue, no);
        let answer = server.result(id);
        answer.shows(json!({"approved": false, "scope": null}));
    }
    let lately = server.facts("request_egress", json!({"domain": "h0.example.com"}));
    assert_eq!(lately["approved"], false);
    lately.says("decided_by", ["a moment ago"]);
}

#[test]
fn a_session_can_have_a_host_for_itself_until_it_ends() {
    let mut server = with_dialogue("60");
    let session = server.create(json!({"language": "shell"}));
    let ask = |domain: &str| json!({"domain": domain, "session_id": session});
    let id = server.send_call("request_egress", ask("a.example.com"));
    let dialogue = server.hear("elicitation/create");
    let offered = &dialogue["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(offered, &json!(["deny", "once", "session", "namespace"]));
    server.reply(&dialogue, accept("session"));
    let answer = server.result(id);
    answer.shows(json!({"approved": true, "scope": "session"}));
    // A session that ends takes the question with it.
    let id = server.send_call("request_egress", ask("b.example.com"));
    server.hear("elicitation/create");
    let ended = server.send_call("terminate_session", json!({"session_id": session}));
    // Either may be answered first.
    let (denied, before) = server.await_answer(id);
    let denied = &denied["result"]["structuredContent"];
    assert_eq!(denied["approved"], false, "{denied}");
    if !before.iter().any(|message| message["id"] == json!(ended)) {
        server.result(ended);
    }
    server.refuses("request_egress", ask("c.example.com"), "session_ended");
}

/// claim: [APR-3]
#[test]
fn a_dialogue_that_nobody_answers_is_taken_back_and_a_denial() {
    let mut server = with_dialogue("1");
    let begun = Instant::now();
    let id = server.wants("slow.example.com");
    let dialogue = server.hear("elicitation/create");
    is_taken_back(&mut server, &dialogue);
    let answer = server.result(id);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(answer["approved"], false, "{answer}");
    answer.says("decided_by", ["its time was up"]);
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
    let id = server.wants("a.example.com");
    let dialogue = server.hear("elicitation/create");
    assert_eq!(pending().len(), 1);
    server.cancel(id);
    is_taken_back(&mut server, &dialogue);
    eventually(|| pending().is_empty());
    eventually(|| records("approval.decided").len() == 1);
    assert_eq!(records("approval.decided")[0]["details"]["why"], "gone");
    // It was withdrawn and not denied: it may be asked again.
    let id = server.wants("a.example.com");
    let dialogue = server.hear("elicitation/create");
    server.reply(&dialogue, accept("once"));
    assert_eq!(server.result(id)["approved"], true);
}

#[test]
fn a_call_that_waits_no_longer_leaves_its_question_and_the_next_one_has_the_answer() {
    let mut server = with_dialogue("60");
    let now = |domain: &str| json!({"domain": domain, "wait_seconds": 0});
    let id = server.send_call("request_egress", now("a.example.com"));
    let (answer, before) = server.await_answer(id);
    let facts = &answer["result"]["structuredContent"];
    facts.shows(json!({"pending": true, "approved": false}));
    let text = text_of(&answer["result"]["content"][0]["text"]);
    let name = text_of(&one_pending()["id"]).to_owned();
    assert_contains(text, ["next: call request_egress again", &name]);
    // The dialogue stays open, and who asks again meanwhile opens no other.
    let opened = |message: &Value| message["method"] == "elicitation/create";
    let asked = before.into_iter().find(opened);
    let dialogue = asked.unwrap_or_else(|| server.hear("elicitation/create"));
    let again = server.send_call("request_egress", now("a.example.com"));
    let (again, between) = server.await_answer(again);
    assert_eq!(again["result"]["structuredContent"]["pending"], true, "{again}");
    assert!(!between.iter().any(opened), "{between:?}");
    assert_eq!(one_pending()["id"], name);
    server.reply(&dialogue, accept("namespace"));
    eventually(|| pending().is_empty());
    let given = server.facts("request_egress", now("a.example.com"));
    given.shows(json!({"pending": false, "approved": true}));
    // At the command line, too; and what its client has left is asked no more.
    drop(server);
    let mut server = without_dialogue("60");
    server.facts("request_egress", now("b.example.com"));
    decide("deny");
    eventually(|| pending().is_empty());
    let denied = server.facts("request_egress", now("b.example.com"));
    denied.shows(json!({"pending": false, "approved": false}));
    let wish = json!({"domain": "c.example.com", "wait_seconds": 51});
    server.refuses("request_egress", wish, "invalid_argument");
    server.facts("request_egress", now("d.example.com"));
    server.leaves();
}

/// claim: [APR-4]
#[test]
fn the_first_of_two_channels_counts_and_the_other_is_told() {
    let mut server = with_dialogue("60");
    let id = server.wants("a.example.com");
    let dialogue = server.hear("elicitation/create");
    let request = decide("approve");
    is_taken_back(&mut server, &dialogue);
    let answer = server.result(id);
    answer.shows(json!({"approved": true, "decided_by": "cli"}));
    refused(&["approvals", "deny", text_of(&request["id"])], 125);

    let id = server.wants("b.example.com");
    let dialogue = server.hear("elicitation/create");
    let seen = one_pending();
    server.reply(&dialogue, json!({"action": "decline"}));
    assert_eq!(server.result(id)["approved"], false);
    let late = json!({"id": seen["id"], "digest": "0".repeat(64), "answer": {"approve": "once"}});
    let late = server.control("approvals.decide", &late);
    assert_eq!(late["error"]["code"], "conflict", "{late}");
    late.says("error.message", ["decided already"]);
}

#[test]
fn where_the_client_cannot_ask_the_operator_does_at_the_command_line() {
    let mut server = without_dialogue("60");
    let mut ask = json!({"name": "request_egress", "arguments": {"domain": "docs.example.com"}});
    ask["_meta"] = json!({"progressToken": "t"});
    let id = server.send("tools/call", ask);
    let progress = server.hear("notifications/progress");
    let request = one_pending();
    let name = text_of(&request["id"]);
    let hint = format!("ringfence approvals approve {name}");
    progress.says("params.message", [&hint]);
    assert_contains(answered(&["list"]), ["host: docs.example.com", name]);
    for (wish, why) in [
        (["--for", "2h"], "max_namespace_minutes"),
        (["--scope", "session"], "cannot be approved for the session"),
    ] {
        let refused = said(&[&["approvals", "approve", name], &wish[..]].concat());
        assert!(!refused.status.success(), "{refused:?}");
        assert_contains(stderr_of(&refused), [why]);
    }
    let text = answered(&["approve", name, "--for", "30m"]);
    assert_contains(
        text,
        ["host: docs.example.com", "approved for the namespace until"],
    );
    let answer = server.result(id);
    answer.shows(json!({"approved": true, "scope": "namespace"}));
    assert_eq!(answered(&["list"]), "no requests are waiting\n");

    let id = server.wants("other.example.com");
    let name = text_of(&one_pending()["id"]).to_owned();
    let denied = told_json(&["approvals", "deny", &name]);
    denied.shows(json!({"approved": false, "request.what": "other.example.com"}));
    assert_eq!(server.result(id)["approved"], false);
    assert_contains(
        refused(&["approvals", "approve", "00000000"], 125),
        ["no request of this name"],
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
    let id = server.wants("a.example.com");
    let asked = next();
    asked.shows(json!({"pid": server.child.id(), "news.asked.what": "a.example.com"}));
    let id_of = decide("approve")["id"].clone();
    assert_eq!(asked["news"]["asked"]["id"], id_of, "{asked}");
    next()["news"]["decided"].shows(json!({"approved": true, "id": id_of}));
    assert_eq!(server.result(id)["approved"], true);
    watch.kill().unwrap();
    watch.wait().unwrap();
    // A server that stops has denied what still waits.
    server.wants("b.example.com");
    one_pending();
    server.leaves();
}

#[test]
fn nobody_is_asked_what_the_configuration_has_answered_or_what_an_answer_would_not_change() {
    let mut command = serve("60");
    command.env("RINGFENCE_EGRESS_ALLOW", "*.example.com; other=only.example.org");
    let mut server = Server::of(command);
    let given = server.facts("request_egress", json!({"domain": "api.example.com"}));
    let expect =
        json!({"approved": true, "scope": "namespace", "decided_by": "the operator's configuration"});
    given.shows(expect);
    assert_eq!(records("approval.requested")[0]["outcome"], "ok");
    // What it gives to others, or on other ports, is asked for.
    for domain in ["only.example.org", "api.example.com:8443"] {
        let id = server.wants(domain);
        decide("deny");
        assert_eq!(server.result(id)["approved"], false, "{domain}");
    }
    drop(server);
    let mut command = serve("60");
    command.env("RINGFENCE_FLOOR", "landlock");
    let mut server = Server::of(command);
    let wish = json!({"domain": "api.example.com"});
    server.refuses("request_egress", wish, "unsupported_argument");
}

/// `ringfence egress` until it has its answer.
fn asking(words: &[&str]) -> Child {
    start(&mut ringfence(&[&["egress"], words].concat()))
}

fn answer_of(asking: Child) -> (Option<i32>, String, String) {
    let done = asking.wait_with_output().unwrap();
    (done.status.code(), stdout_of(&done), stderr_of(&done))
}

#[test]
fn the_command_line_asks_for_a_host_and_waits_for_the_answer() {
    let (code, _, text) = answer_of(asking(&["docs.example.com"]));
    assert!(code == Some(125) && text.contains("no server runs"), "{text}");
    let mut server = without_dialogue("60");
    assert_eq!(server.execute("shell", "true")["success"], true);
    let first = asking(&["docs.example.com", "--reason", "to read"]);
    let request = one_pending();
    let expect = json!({"what": "docs.example.com", "caller": "cli", "reason": "to read"});
    request.shows(expect);
    let name = text_of(&request["id"]);
    answered(&["approve", name, "--for", "30m"]);
    let (code, said, told_meanwhile) = answer_of(first);
    assert_eq!(code, Some(0));
    assert!(
        said.starts_with("docs.example.com: approved for the namespace until"),
        "{said}"
    );
    assert_contains(&told_meanwhile, [&format!("approvals approve {name}")]);
    assert_eq!(
        server.facts("inspect_state", json!({}))["approved"],
        json!(["docs.example.com"])
    );
    // A no has an exit code of its own, and the document says the same.
    let second = asking(&["other.example.com:8443", "--json"]);
    decide("deny");
    let (code, said, _) = answer_of(second);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, Some(1), "{said}");
    let expect = json!({"domain": "other.example.com:8443", "approved": false, "decided_by": "cli", "pid": server.child.id()});
    said.shows(expect);
    let (code, said, _) = answer_of(asking(&["*", "--json"]));
    assert!(code == Some(2) && said.contains("is not one host"), "{said}");
    // Whoever goes away takes the question back.
    let mut third = asking(&["third.example.com"]);
    one_pending();
    third.kill().unwrap();
    third.wait().unwrap();
    eventually(|| pending().is_empty());
}

/// An answer within this time after its question is not one.
const TOO_SOON: Duration = Duration::from_millis(400);
/// Time to read the question.
const READING: Duration = Duration::from_millis(600);

#[test]
fn a_person_who_watches_is_asked_about_one_request_after_the_other() {
    let mut server = without_dialogue("60");
    // An answer that needs the engine: its socket is there.
    assert_eq!(server.execute("shell", "true")["success"], true);
    let mut watcher = Terminal::new(ringfence(&["approvals", "watch"]).env("NO_COLOR", "1"));
    watcher.sees("Ctrl-C ends this");
    let first = server.wants("a.example.com");
    let shown = watcher.sees("N: no] ");
    assert_contains(&shown, ["host: a.example.com"]);
    assert_lacks(&shown, ["for the session"]);
    let second = server.wants("b.example.com");
    eventually(|| pending().len() == 2);
    std::thread::sleep(READING);
    // Two lines at once: the second was typed before its question was there.
    watcher.types(b"y\ny\n");
    let shown = watcher.sees("N: no] ");
    assert_contains(&shown, ["approved (once), by cli", "host: b.example.com"]);
    assert_eq!(server.result(first)["approved"], true);
    std::thread::sleep(READING);
    assert_eq!(pending().len(), 1, "nobody has answered that");
    watcher.types(b"what\n");
    watcher.sees("N: no] ");
    std::thread::sleep(READING);
    watcher.types(b"\n");
    watcher.sees("denied, by cli");
    assert_eq!(server.result(second)["approved"], false);

    // One that is decided elsewhere is asked no more, and what is typed then answers nothing.
    let third = server.wants("c.example.com");
    watcher.sees("N: no] ");
    decide("deny");
    watcher.sees("is denied by cli");
    assert_eq!(server.result(third)["approved"], false);
    watcher.types(b"y\n");
    let fourth = typed_too_soon(&mut server, &mut watcher);
    std::thread::sleep(READING);
    watcher.types(b"a\n");
    watcher.sees("approved for the namespace until");
    assert_eq!(server.result(fourth)["scope"], "namespace");
}

/// A request that waits still, because its answer was typed too soon: the first that met a machine quick enough.
fn typed_too_soon(server: &mut Server, watcher: &mut Terminal) -> u64 {
    for number in 0..50 {
        let begun = Instant::now();
        let id = server.wants(&format!("d{number}.example.com"));
        watcher.sees("N: no] ");
        watcher.types(b"a\n");
        if begun.elapsed() < TOO_SOON {
            watcher.sees("N: no] ");
            assert_eq!(pending().len(), 1, "it was typed too soon");
            return id;
        }
        server.cancel(id);
        eventually(|| pending().is_empty());
    }
    panic!("a question is never shown in time");
}
