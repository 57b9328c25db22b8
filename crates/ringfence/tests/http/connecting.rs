//! `ringfence connect`: clients on pipes that share one server.

use super::principals::token;
use crate::client::*;
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

fn connect(words: &[&str]) -> Command {
    let mut command = ringfence(&["connect"]);
    command.args(words).stderr(Stdio::null());
    command
}

fn server_at(listen: &str) -> HttpServer {
    HttpServer::of(ringfence(&["serve", "--transport", "http", "--listen", listen]))
}

fn socket(scratch: &TempDir) -> String {
    format!("unix:{}", scratch.file("d/x", "").replace("d/x", "d/http.sock"))
}

#[test]
fn clients_share_the_sessions_and_the_record_of_one_server() {
    let scratch = TempDir::new("connect");
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut first = Server::of(connect(&[&place]));
    let mut second = Server::of(connect(&[&place]));
    let session = first.create(json!({}));
    first.succeeds(
        "execute_code",
        json!({"session_id": session, "code": "word = 'kept'"}),
    );
    let done = second.succeeds(
        "execute_code",
        json!({"session_id": session, "code": "print(word)"}),
    );
    assert_eq!(done["stdout"], "kept\n");
    let records = second.records("execution.completed");
    assert!(
        records
            .iter()
            .all(|record| text_of(&record["caller"]).starts_with("principal (socket), mcp story")),
        "{records:?}"
    );
    let code = "import time\nfor n in range(3):\n    print('tick', n, flush=True)\n    time.sleep(0.3)";
    let id = first.send_watched(json!({"code": code}));
    let (answer, before) = first.await_answer(id);
    answer.shows(json!({"result.structuredContent.stdout": "tick 0\ntick 1\ntick 2\n"}));
    assert!(!before.is_empty(), "progress comes through");
    let id = first.send_run(json!({"language": "shell", "code": "sleep 264.575"}));
    eventually(|| !processes_with("264.575").is_empty());
    first.cancel(id);
    eventually(|| processes_with("264.575").is_empty());
    second.leaves();
    assert_eq!(first.execute("shell", "echo alive")["stdout"], "alive\n");
}

#[test]
fn a_token_of_a_file_is_brought_along_and_one_that_others_read_is_not() {
    let scratch = TempDir::new("connect-token");
    let file = scratch.file("token", &token(&["team"]));
    let server = server_at("127.0.0.1:0");
    let url = format!("http://{}", server.place);
    let refused = said(&["connect", &url, "--token-file", &file]);
    assert!(
        !refused.status.success() && stderr_of(&refused).contains("everyone may read it"),
        "{refused:?}"
    );
    set_mode(&file, 0o600);
    let mut client = Server::of(connect(&[&url, "--token-file", &file]));
    let facts = client.succeeds("inspect_state", json!({}));
    assert_eq!(facts["namespace"], "team");
    let mut without = Server::silent(connect(&[&url]));
    let answer = without.ask("initialize", hello("story", json!({})));
    assert!(text_of(&answer["error"]["message"]).contains("401"), "{answer}");
    let nowhere = said(&["connect", "http://127.0.0.1:9"]);
    assert!(
        stderr_of(&nowhere).contains("there is no server to connect to"),
        "{nowhere:?}"
    );
}

/// claim: [HTTP-10]
#[test]
fn a_token_and_a_socket_of_another_user_are_not_used() {
    if !is_root() {
        return;
    }
    let scratch = TempDir::new("connect-foreign");
    let file = scratch.file("token", "rft_x");
    for (mode, owner) in [(0o600, NOBODY), (0o620, 0), (0o604, 0)] {
        set_mode(&file, mode);
        std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
        let refused = said(&["connect", "http://127.0.0.1:9", "--token-file", &file]);
        assert_contains(stderr_of(&refused), ["the token in"]);
    }
    let place = std::env::temp_dir().join(format!("ringfence-foreign-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(NOBODY), None).unwrap();
    let path = place.join("http.sock").display().to_string();
    // Answers whoever asks as a server would.
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nprint('up', flush=True)\nc, _ = s.accept()\nprint(len(c.recv(9)), flush=True)";
    let mut foreign = as_nobody("python3");
    foreign.args(["-c", script, &path]).stdout(Stdio::piped());
    let mut foreign = foreign.spawn().unwrap();
    let mut said_there = BufReader::new(foreign.stdout.take().unwrap()).lines();
    assert_eq!(said_there.next().unwrap().unwrap(), "up");
    let refused = said(&["connect", &format!("unix:{path}")]);
    assert_contains(stderr_of(&refused), ["is of the user 65534"]);
    assert_eq!(said_there.next().unwrap().unwrap(), "0", "it was sent nothing");
    foreign.wait().unwrap();
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_client_goes_on_when_its_server_has_been_started_again() {
    let scratch = TempDir::new("connect-again");
    let place = socket(&scratch);
    let mut server = server_at(&place);
    let mut client = Server::of(connect(&[&place]));
    assert_eq!(client.execute("shell", "echo one")["stdout"], "one\n");
    signal(server.child.id(), Signal::TERM);
    assert!(server.ends_within(Duration::from_secs(30)).is_some());
    let answer = client.ask("ping", json!({}));
    assert!(answer["error"].is_object(), "{answer}");
    let _again = server_at(&place);
    assert_eq!(client.execute("shell", "echo two")["stdout"], "two\n");
}

#[test]
fn requests_that_are_complete_in_themselves_pass_too() {
    let scratch = TempDir::new("connect-stateless");
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut client = Server::silent(connect(&[&place]));
    let meta = stateless(json!({}));
    let call = |code: &str| json!({"name": "execute_code", "arguments": {"language": "shell", "code": code}, "_meta": meta});
    let answer = client.ask("tools/call", call("echo stateless"));
    answer.shows(json!({"result.structuredContent.stdout": "stateless\n"}));
    let id = client.send("tools/call", call("sleep 244.949"));
    eventually(|| !processes_with("244.949").is_empty());
    client.cancel(id);
    eventually(|| processes_with("244.949").is_empty());
}

#[test]
fn a_call_that_the_server_ends_without_an_answer_is_answered_as_failed() {
    let scratch = TempDir::new("connect-revoked");
    let file = scratch.file("token", &token(&["team"]));
    set_mode(&file, 0o600);
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut client = Server::of(connect(&[&place, "--token-file", &file]));
    let call = client.send_run(json!({"code": "sleep 150.4142", "language": "shell"}));
    eventually(|| !processes_with("150.4142").is_empty());
    told(&["token", "revoke", "team"]);
    let answer = loop {
        let message = client.receive();
        if message["id"] == json!(call) {
            break message;
        }
    };
    assert!(
        answer["error"]["message"].is_string() || answer["result"]["isError"] == true,
        "{answer}"
    );
    eventually(|| processes_with("150.4142").is_empty());
}
