//! A model requests network access to a host, and a person decides: in the client's dialogue, on the command line, or
//! not at all.

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

/// A server whose client supports elicitation.
fn with_dialogue(timeout_seconds: &str) -> Server {
    Server::with_capabilities(json!({"elicitation": {}}), serve(timeout_seconds))
}

fn without_dialogue(timeout_seconds: &str) -> Server {
    Server::from_command(serve(timeout_seconds))
}

impl Server {
    /// Calls `request_egress` without waiting, and returns the request's id.
    fn send_request_egress(&mut self, domain: &str) -> u64 {
        let arguments = json!({"domain": domain, "reason": "to read its documentation"});
        self.send_call("request_egress", arguments)
    }
}

fn accept(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

/// Waiting requests according to `approvals list`; empty while no server listens.
fn pending() -> Vec<Value> {
    let document = json_of(&run_cli(&["approvals", "list", "--json"]));
    let requests = document["servers"][0]["requests"].as_array();
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

/// Decides the waiting request on the command line.
#[track_caller]
fn decide(answer: &str) -> Value {
    let request = one_pending();
    approvals_stdout(&[answer, text_of(&request["id"])]);
    request
}

/// The standard output of `ringfence approvals`, which must succeed.
#[track_caller]
fn approvals_stdout(arguments: &[&str]) -> String {
    cli_stdout(&[&["approvals"], arguments].concat())
}

/// Asserts that the server cancels its request for this dialogue.
#[track_caller]
fn assert_dialogue_cancelled(server: &mut Server, dialogue: &Value) {
    let cancelled = server.receive_method("notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], dialogue["id"], "{cancelled}");
}

/// The text shown for a request.
fn lines_of(request: &Value) -> String {
    let lines: Vec<&str> = list_of(&request["lines"]).iter().map(text_of).collect();
    lines.join("\n")
}

fn records(action: &str) -> Vec<Value> {
    list_of(&cli_json(&["audit", "list", "--action", action])["records"]).to_vec()
}

#[test]
fn dialogue_answer_is_the_result_of_request_egress() {
    let mut server = with_dialogue("60");
    let id = server.send_request_egress("API.example.com:443");
    let dialogue = server.receive_method("elicitation/create");
    let message = text_of(&dialogue["params"]["message"]);
    let waiting = one_pending();
    assert_eq!(message, lines_of(&waiting));
    assert_contains(message, ["\n  host: api.example.com\n  ports: 443\n"]);
    assert!(message.contains("\"to read its documentation\""), "{message}");
    let offered = &dialogue["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(offered, &json!(["deny", "once", "namespace"]));
    server.reply(&dialogue, accept("namespace"));
    let answer = server.result(id);
    answer.assert_fields(json!({"approved": true, "scope": "namespace", "domain": "API.example.com:443"}));
    assert_eq!(answer["decided_by"], "a person, asked by mcp story 1");
    assert!(answer["expires_at"].is_string(), "{answer}");
    assert_eq!(
        server.facts("inspect_state", json!({}))["approved"],
        json!(["api.example.com:443"])
    );
    // A repeated request is approved without a dialogue.
    let again = server.facts("request_egress", json!({"domain": "api.example.com:443"}));
    assert_eq!(again["approved"], true, "{again}");
    let decided = records("approval.decided");
    assert_eq!(decided.len(), 1);
    decided[0].assert_fields(json!({"details.what": "api.example.com:443"}));
    assert_eq!(records("approval.requested").len(), 2);
    // Declining, closing the dialogue or any other answer is a denial.
    let denials = [
        json!({"action": "decline"}),
        json!({"action": "cancel"}),
        accept("deny"),
        accept("everything"),
        json!({"action": "accept"}),
    ];
    for (number, denial) in denials.into_iter().enumerate() {
        let id = server.send_request_egress(&format!("h{number}.example.com"));
        let dialogue = server.receive_method("elicitation/create");
        server.reply(&dialogue, denial);
        let answer = server.result(id);
        answer.assert_fields(json!({"approved": false, "scope": null}));
    }
    let lately = server.facts("request_egress", json!({"domain": "h0.example.com"}));
    assert_eq!(lately["approved"], false);
    lately.assert_text("decided_by", ["a moment ago"]);
}

#[test]
fn session_scoped_request_is_approved_for_the_session_and_denied_when_it_ends() {
    let mut server = with_dialogue("60");
    let session = server.create_session(json!({"language": "shell"}));
    let arguments = |domain: &str| json!({"domain": domain, "session_id": session});
    let id = server.send_call("request_egress", arguments("a.example.com"));
    let dialogue = server.receive_method("elicitation/create");
    let offered = &dialogue["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(offered, &json!(["deny", "once", "session", "namespace"]));
    server.reply(&dialogue, accept("session"));
    let answer = server.result(id);
    answer.assert_fields(json!({"approved": true, "scope": "session"}));
    // The end of the session denies its request.
    let id = server.send_call("request_egress", arguments("b.example.com"));
    server.receive_method("elicitation/create");
    let ended = server.send_call("terminate_session", json!({"session_id": session}));
    // The two responses arrive in either order.
    let (denied, before) = server.await_response(id);
    let denied = &denied["result"]["structuredContent"];
    assert_eq!(denied["approved"], false, "{denied}");
    if !before.iter().any(|message| message["id"] == json!(ended)) {
        server.result(ended);
    }
    server.call_error("request_egress", arguments("c.example.com"), "session_ended");
}

/// claim: [APR-3]
#[test]
fn unanswered_dialogue_is_cancelled_and_denied() {
    let mut server = with_dialogue("1");
    let begun = Instant::now();
    let id = server.send_request_egress("slow.example.com");
    let dialogue = server.receive_method("elicitation/create");
    assert_dialogue_cancelled(&mut server, &dialogue);
    let answer = server.result(id);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(answer["approved"], false, "{answer}");
    answer.assert_text("decided_by", ["its time was up"]);
    // A later answer has no effect.
    server.reply(&dialogue, accept("namespace"));
    assert_eq!(server.facts("inspect_state", json!({}))["approved"], json!([]));
    let decided = records("approval.decided");
    assert_eq!(
        (decided.len(), &decided[0]["details"]["why"]),
        (1, &json!("timeout"))
    );
}

#[test]
fn cancelled_call_withdraws_its_approval_request() {
    let mut server = with_dialogue("60");
    let id = server.send_request_egress("a.example.com");
    let dialogue = server.receive_method("elicitation/create");
    assert_eq!(pending().len(), 1);
    server.cancel(id);
    assert_dialogue_cancelled(&mut server, &dialogue);
    eventually(|| pending().is_empty());
    eventually(|| records("approval.decided").len() == 1);
    assert_eq!(records("approval.decided")[0]["details"]["why"], "gone");
    // The request was withdrawn, not denied, and can be repeated.
    let id = server.send_request_egress("a.example.com");
    let dialogue = server.receive_method("elicitation/create");
    server.reply(&dialogue, accept("once"));
    assert_eq!(server.result(id)["approved"], true);
}

#[test]
fn pending_request_outlives_its_call_and_a_later_call_gets_the_decision() {
    let mut server = with_dialogue("60");
    let now = |domain: &str| json!({"domain": domain, "wait_seconds": 0});
    let id = server.send_call("request_egress", now("a.example.com"));
    let (answer, before) = server.await_response(id);
    let facts = &answer["result"]["structuredContent"];
    facts.assert_fields(json!({"pending": true, "approved": false}));
    let text = text_of(&answer["result"]["content"][0]["text"]);
    let name = text_of(&one_pending()["id"]).to_owned();
    assert_contains(text, ["next: call request_egress again", &name]);
    // The dialogue stays open, and a repeated request opens no second one.
    let opened = |message: &Value| message["method"] == "elicitation/create";
    let dialogue_before = before.into_iter().find(opened);
    let dialogue = dialogue_before.unwrap_or_else(|| server.receive_method("elicitation/create"));
    let again = server.send_call("request_egress", now("a.example.com"));
    let (again, between) = server.await_response(again);
    assert_eq!(again["result"]["structuredContent"]["pending"], true, "{again}");
    assert!(!between.iter().any(opened), "{between:?}");
    assert_eq!(one_pending()["id"], name);
    server.reply(&dialogue, accept("namespace"));
    eventually(|| pending().is_empty());
    let given = server.facts("request_egress", now("a.example.com"));
    given.assert_fields(json!({"pending": false, "approved": true}));
    // The same on the command line. Requests of a client that has left are withdrawn.
    drop(server);
    let mut server = without_dialogue("60");
    server.facts("request_egress", now("b.example.com"));
    decide("deny");
    eventually(|| pending().is_empty());
    let denied = server.facts("request_egress", now("b.example.com"));
    denied.assert_fields(json!({"pending": false, "approved": false}));
    let arguments = json!({"domain": "c.example.com", "wait_seconds": 51});
    server.call_error("request_egress", arguments, "invalid_argument");
    server.facts("request_egress", now("d.example.com"));
    server.shut_down();
}

/// claim: [APR-4]
#[test]
fn first_decision_of_two_channels_wins_and_the_other_is_notified() {
    let mut server = with_dialogue("60");
    let id = server.send_request_egress("a.example.com");
    let dialogue = server.receive_method("elicitation/create");
    let request = decide("approve");
    assert_dialogue_cancelled(&mut server, &dialogue);
    let answer = server.result(id);
    answer.assert_fields(json!({"approved": true, "decided_by": "cli"}));
    cli_error(&["approvals", "deny", text_of(&request["id"])], 125);

    let id = server.send_request_egress("b.example.com");
    let dialogue = server.receive_method("elicitation/create");
    let seen = one_pending();
    server.reply(&dialogue, json!({"action": "decline"}));
    assert_eq!(server.result(id)["approved"], false);
    let late = json!({"id": seen["id"], "digest": "0".repeat(64), "answer": {"approve": "once"}});
    let late = server.control("approvals.decide", &late);
    assert_eq!(late["error"]["code"], "conflict", "{late}");
    late.assert_text("error.message", ["decided already"]);
}

#[test]
fn operator_decides_on_the_command_line_if_the_client_has_no_elicitation() {
    let mut server = without_dialogue("60");
    let mut params = json!({"name": "request_egress", "arguments": {"domain": "docs.example.com"}});
    params["_meta"] = json!({"progressToken": "t"});
    let id = server.send("tools/call", params);
    let progress = server.receive_method("notifications/progress");
    let request = one_pending();
    let name = text_of(&request["id"]);
    let hint = format!("ringfence approvals approve {name}");
    progress.assert_text("params.message", [&hint]);
    assert_contains(approvals_stdout(&["list"]), ["host: docs.example.com", name]);
    for (options, why) in [
        (["--for", "2h"], "max_namespace_minutes"),
        (["--scope", "session"], "cannot be approved for the session"),
    ] {
        let refused = run_cli(&[&["approvals", "approve", name], &options[..]].concat());
        assert!(!refused.status.success(), "{refused:?}");
        assert_contains(stderr_of(&refused), [why]);
    }
    let text = approvals_stdout(&["approve", name, "--for", "30m"]);
    assert_contains(
        text,
        ["host: docs.example.com", "approved for the namespace until"],
    );
    let answer = server.result(id);
    answer.assert_fields(json!({"approved": true, "scope": "namespace"}));
    assert_eq!(approvals_stdout(&["list"]), "no requests are waiting\n");

    let id = server.send_request_egress("other.example.com");
    let name = text_of(&one_pending()["id"]).to_owned();
    let denied = cli_json(&["approvals", "deny", &name]);
    denied.assert_fields(json!({"approved": false, "request.what": "other.example.com"}));
    assert_eq!(server.result(id)["approved"], false);
    assert_contains(
        cli_error(&["approvals", "approve", "00000000"], 125),
        ["no request of this name"],
    );
}

#[test]
fn approvals_watch_reports_requests_and_decisions_of_servers_started_later() {
    let mut watch = ringfence(&["approvals", "watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let mut server = without_dialogue("60");
    let id = server.send_request_egress("a.example.com");
    let reported = next();
    reported.assert_fields(json!({"pid": server.child.id(), "news.asked.what": "a.example.com"}));
    let id_of = decide("approve")["id"].clone();
    assert_eq!(reported["news"]["asked"]["id"], id_of, "{reported}");
    next()["news"]["decided"].assert_fields(json!({"approved": true, "id": id_of}));
    assert_eq!(server.result(id)["approved"], true);
    watch.kill().unwrap();
    watch.wait().unwrap();
    // A server that stops denies its waiting requests.
    server.send_request_egress("b.example.com");
    one_pending();
    server.shut_down();
}

#[test]
fn approvals_watch_that_a_server_refuses_begins_once_there_is_room() {
    let watch = || {
        let mut command = ringfence(&["approvals", "watch", "--json"]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut server = without_dialogue("60");
    server.send_request_egress("a.example.com");
    one_pending();
    let first_line = |stream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    let mut watching: Vec<Child> = (0..8).map(|_| watch()).collect();
    for child in &mut watching {
        let asked = child.stdout.take().unwrap();
        assert_contains(first_line(asked), ["a.example.com"]);
    }
    let mut refused = watch();
    let error = BufReader::new(refused.stderr.take().unwrap()).lines().next();
    assert_contains(error.unwrap().unwrap(), ["too many commands watch"]);
    watching[0].kill().unwrap();
    let asked = refused.stdout.take().unwrap();
    assert_contains(first_line(asked), ["a.example.com"]);
    for child in watching.iter_mut().chain([&mut refused]) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn no_request_is_queued_if_configuration_or_tier_already_decides() {
    let mut command = serve("60");
    command.env("RINGFENCE_EGRESS_ALLOW", "*.example.com; other=only.example.org");
    let mut server = Server::from_command(command);
    let given = server.facts("request_egress", json!({"domain": "api.example.com"}));
    let expect =
        json!({"approved": true, "scope": "namespace", "decided_by": "the operator's configuration"});
    given.assert_fields(expect);
    assert_eq!(records("approval.requested")[0]["outcome"], "ok");
    // Hosts that are allowed for another namespace or on other ports need approval.
    for domain in ["only.example.org", "api.example.com:8443"] {
        let id = server.send_request_egress(domain);
        decide("deny");
        assert_eq!(server.result(id)["approved"], false, "{domain}");
    }
    drop(server);
    let mut command = serve("60");
    command.env("RINGFENCE_FLOOR", "landlock");
    let mut server = Server::from_command(command);
    let arguments = json!({"domain": "api.example.com"});
    server.call_error("request_egress", arguments, "unsupported_argument");
}

/// Starts `ringfence egress`, which runs until the decision.
fn spawn_egress(arguments: &[&str]) -> Child {
    spawn_piped(&mut ringfence(&[&["egress"], arguments].concat()))
}

/// Exit status, standard output and standard error of a command.
fn output_of(child: Child) -> (Option<i32>, String, String) {
    let done = child.wait_with_output().unwrap();
    (done.status.code(), stdout_of(&done), stderr_of(&done))
}

#[test]
fn egress_command_requests_a_host_and_waits_for_the_decision() {
    let (code, _, text) = output_of(spawn_egress(&["docs.example.com"]));
    assert!(code == Some(125) && text.contains("no server runs"), "{text}");
    let mut server = without_dialogue("60");
    assert_eq!(server.execute("shell", "true")["success"], true);
    let first = spawn_egress(&["docs.example.com", "--reason", "to read"]);
    let request = one_pending();
    let expect = json!({"what": "docs.example.com", "caller": "cli", "reason": "to read"});
    request.assert_fields(expect);
    let name = text_of(&request["id"]);
    approvals_stdout(&["approve", name, "--for", "30m"]);
    let (code, stdout, stderr) = output_of(first);
    assert_eq!(code, Some(0));
    assert!(
        stdout.starts_with("docs.example.com: approved for the namespace until"),
        "{stdout}"
    );
    assert_contains(&stderr, [&format!("approvals approve {name}")]);
    assert_eq!(
        server.facts("inspect_state", json!({}))["approved"],
        json!(["docs.example.com"])
    );
    // A denial exits with 1, and is in the JSON document.
    let second = spawn_egress(&["other.example.com:8443", "--json"]);
    decide("deny");
    let (code, stdout, _) = output_of(second);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, Some(1), "{document}");
    let expect = json!({"domain": "other.example.com:8443", "approved": false, "decided_by": "cli", "pid": server.child.id()});
    document.assert_fields(expect);
    let (code, stdout, _) = output_of(spawn_egress(&["*", "--json"]));
    assert!(code == Some(2) && stdout.contains("is not one host"), "{stdout}");
    // A killed command withdraws its request.
    let mut third = spawn_egress(&["third.example.com"]);
    one_pending();
    third.kill().unwrap();
    third.wait().unwrap();
    eventually(|| pending().is_empty());
}

/// An answer typed within this time after its prompt is ignored.
const TOO_SOON: Duration = Duration::from_millis(400);
/// A wait after a prompt, longer than [`TOO_SOON`].
const READING_TIME: Duration = Duration::from_millis(600);

#[test]
fn approvals_watch_prompts_for_one_request_at_a_time() {
    let mut server = without_dialogue("60");
    // After an answer that needs the engine the control socket exists.
    assert_eq!(server.execute("shell", "true")["success"], true);
    let mut watcher = Terminal::new(ringfence(&["approvals", "watch"]).env("NO_COLOR", "1"));
    watcher.read_until("Ctrl-C ends this");
    let first = server.send_request_egress("a.example.com");
    let shown = watcher.read_until("N: no] ");
    assert_contains(&shown, ["host: a.example.com"]);
    assert_lacks(&shown, ["for the session"]);
    let second = server.send_request_egress("b.example.com");
    eventually(|| pending().len() == 2);
    std::thread::sleep(READING_TIME);
    // Two lines at once: the second is typed before its prompt appears.
    watcher.type_keys(b"y\ny\n");
    let shown = watcher.read_until("N: no] ");
    assert_contains(&shown, ["approved (once), by cli", "host: b.example.com"]);
    assert_eq!(server.result(first)["approved"], true);
    std::thread::sleep(READING_TIME);
    assert_eq!(pending().len(), 1, "the second request is undecided");
    watcher.type_keys(b"what\n");
    watcher.read_until("N: no] ");
    std::thread::sleep(READING_TIME);
    watcher.type_keys(b"\n");
    watcher.read_until("denied, by cli");
    assert_eq!(server.result(second)["approved"], false);

    // The prompt of a request decided elsewhere ends, and a line typed after that has no effect.
    let third = server.send_request_egress("c.example.com");
    watcher.read_until("N: no] ");
    decide("deny");
    watcher.read_until("is denied by cli");
    assert_eq!(server.result(third)["approved"], false);
    watcher.type_keys(b"y\n");
    let fourth = typed_too_soon(&mut server, &mut watcher);
    std::thread::sleep(READING_TIME);
    watcher.type_keys(b"a\n");
    watcher.read_until("approved for the namespace until");
    assert_eq!(server.result(fourth)["scope"], "namespace");
}

#[test]
fn approvals_watch_asks_again_if_the_answer_could_not_be_sent() {
    let mut server = without_dialogue("60");
    assert_eq!(server.execute("shell", "true")["success"], true);
    let mut watcher = Terminal::new(ringfence(&["approvals", "watch"]).env("NO_COLOR", "1"));
    let id = server.send_request_egress("a.example.com");
    watcher.read_until("N: no] ");
    std::thread::sleep(READING_TIME);
    // The command trusts no control sockets that others could replace.
    let control = state_dir().join("control");
    set_mode(&control, 0o777);
    watcher.type_keys(b"y\n");
    let shown = watcher.read_until("N: no] ");
    assert_contains(shown, ["not this user's alone", "host: a.example.com"]);
    set_mode(&control, 0o700);
    std::thread::sleep(READING_TIME);
    watcher.type_keys(b"y\n");
    watcher.read_until("approved (once), by cli");
    assert_eq!(server.result(id)["approved"], true);
}

/// Returns the first request whose answer was typed too soon and which therefore still waits. Repeats, because a slow
/// machine may show the prompt or take the keys too late.
fn typed_too_soon(server: &mut Server, watcher: &mut Terminal) -> u64 {
    for number in 0..50 {
        let begun = Instant::now();
        let id = server.send_request_egress(&format!("d{number}.example.com"));
        watcher.read_until("N: no] ");
        watcher.type_keys(b"a\n");
        if begun.elapsed() < TOO_SOON {
            watcher.read_until("N: no] ");
            assert_eq!(pending().len(), 1, "an answer typed too soon is ignored");
            return id;
        }
        server.cancel(id);
        eventually(|| pending().is_empty());
    }
    panic!("no prompt was answered within {TOO_SOON:?}");
}
