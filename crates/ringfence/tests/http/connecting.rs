//! `ringfence connect`: stdio clients that share one HTTP server.

use super::principals::token;
use crate::client::*;
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

fn connect(words: &[&str]) -> Command {
    let mut command = ringfence(&["connect"]);
    command.args(words).stderr(Stdio::null());
    command
}

fn server_at(listen: &str) -> HttpServer {
    HttpServer::from_command(ringfence(&["serve", "--transport", "http", "--listen", listen]))
}

fn socket(scratch: &TempDir) -> String {
    format!("unix:{}", scratch.file("d/x", "").replace("d/x", "d/http.sock"))
}

#[test]
fn clients_share_the_sessions_and_the_record_of_one_server() {
    let scratch = TempDir::new("connect");
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut first = Server::from_command(connect(&[&place]));
    let mut second = Server::from_command(connect(&[&place]));
    let session = first.create_session(json!({}));
    first.call_ok(
        "execute_code",
        json!({"session_id": session, "code": "word = 'kept'"}),
    );
    let done = second.call_ok(
        "execute_code",
        json!({"session_id": session, "code": "print(word)"}),
    );
    assert_eq!(done["stdout"], "kept\n");
    let records = second.audit_records("execution.completed");
    assert!(
        records
            .iter()
            .all(|record| text_of(&record["caller"]).starts_with("principal (socket), mcp story")),
        "{records:?}"
    );
    let code = "import time\nfor n in range(3):\n    print('tick', n, flush=True)\n    time.sleep(0.3)";
    let id = first.send_run_with_progress(json!({"code": code}));
    let (answer, before) = first.await_response(id);
    answer.assert_fields(json!({"result.structuredContent.stdout": "tick 0\ntick 1\ntick 2\n"}));
    assert!(!before.is_empty(), "progress comes through");
    let id = first.send_run(json!({"language": "shell", "code": "sleep 264.575"}));
    eventually(|| !processes_with("264.575").is_empty());
    first.cancel(id);
    eventually(|| processes_with("264.575").is_empty());
    second.shut_down();
    assert_eq!(first.execute("shell", "echo alive")["stdout"], "alive\n");
}

#[test]
fn a_token_file_is_used_unless_others_can_read_it() {
    let scratch = TempDir::new("connect-token");
    let file = scratch.file("token", &token(&["team"]));
    let server = server_at("127.0.0.1:0");
    let url = format!("http://{}", server.address);
    let refused = run_cli(&["connect", &url, "--token-file", &file]);
    assert!(
        !refused.status.success() && stderr_of(&refused).contains("everyone may read it"),
        "{refused:?}"
    );
    set_mode(&file, 0o600);
    let mut client = Server::from_command(connect(&[&url, "--token-file", &file]));
    let facts = client.call_ok("inspect_state", json!({}));
    assert_eq!(facts["namespace"], "team");
    let mut without = Server::without_handshake(connect(&[&url]));
    let answer = without.rpc("initialize", initialize_params("story", json!({})));
    assert!(text_of(&answer["error"]["message"]).contains("401"), "{answer}");
    let nowhere = run_cli(&["connect", "http://127.0.0.1:9"]);
    assert!(
        stderr_of(&nowhere).contains("no server can be reached"),
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
        let refused = run_cli(&["connect", "http://127.0.0.1:9", "--token-file", &file]);
        assert_contains(stderr_of(&refused), ["the token in"]);
    }
    let place = std::env::temp_dir().join(format!("ringfence-foreign-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(NOBODY), None).unwrap();
    let path = place.join("http.sock").display().to_string();
    // A server of another user, which accepts one connection and prints how many bytes it received.
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nprint('up', flush=True)\nc, _ = s.accept()\nprint(len(c.recv(9)), flush=True)";
    let mut foreign = as_nobody("python3");
    foreign.args(["-c", script, &path]).stdout(Stdio::piped());
    let mut foreign = foreign.spawn().unwrap();
    let mut said_there = BufReader::new(foreign.stdout.take().unwrap()).lines();
    assert_eq!(said_there.next().unwrap().unwrap(), "up");
    let refused = run_cli(&["connect", &format!("unix:{path}")]);
    assert_contains(stderr_of(&refused), ["is of the user 65534"]);
    assert_eq!(said_there.next().unwrap().unwrap(), "0", "it was sent nothing");
    foreign.wait().unwrap();
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_client_continues_after_its_server_is_restarted() {
    let scratch = TempDir::new("connect-again");
    let place = socket(&scratch);
    let mut server = server_at(&place);
    let mut client = Server::from_command(connect(&[&place]));
    assert_eq!(client.execute("shell", "echo one")["stdout"], "one\n");
    signal(server.child.id(), Signal::TERM);
    assert!(server.wait_exit(Duration::from_secs(30)).is_some());
    let answer = client.rpc("ping", json!({}));
    assert!(answer["error"].is_object(), "{answer}");
    let _again = server_at(&place);
    assert_eq!(client.execute("shell", "echo two")["stdout"], "two\n");
}

/// A server whose sessions the test can invalidate: plain JSON, one request per connection.
#[derive(Default)]
struct FakeServer {
    session: u32,
    /// True if it gives no session and knows none.
    is_stateless: bool,
    /// Number of `initialize` requests that it still refuses, each once it has answered `waiting` others with 404.
    refusals: u32,
    waiting: u32,
    /// Number of `notifications/initialized` that it still refuses.
    lost_notifications: u32,
    unknown: u32,
    attempts: u32,
    /// The protocol revision in the header of the last request.
    revision: String,
}

impl FakeServer {
    fn start() -> (Arc<Mutex<Self>>, String) {
        let server = Arc::new(Mutex::new(Self::default()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                std::thread::spawn(move || Self::answer(&shared, stream));
            }
        });
        (server, url)
    }

    fn answer(shared: &Mutex<Self>, stream: TcpStream) {
        let mut reader = BufReader::new(&stream);
        let (mut head, mut body) = (String::new(), Vec::new());
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|count| count > 0) {}
        let header = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        let length = header("content-length").parse().unwrap_or(0);
        reader.take(length).read_to_end(&mut body).unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_refused_later = || {
            let server = shared.lock().unwrap();
            message["method"] == "initialize" && server.refusals > 0 && server.unknown < server.waiting
        };
        while is_refused_later() {
            std::thread::yield_now();
        }
        let mut server = shared.lock().unwrap();
        let session = match server.is_stateless {
            true => String::new(),
            false => server.session.to_string(),
        };
        let is_known = header("mcp-session-id") == session;
        server.attempts += u32::from(message["method"] == "initialize");
        let (status, answer) = match message["method"].as_str().unwrap_or_default() {
            _ if head.starts_with("GET /healthz") => (200, json!({})),
            _ if head.starts_with("GET") => (405, json!({})),
            "initialize" if server.refusals > 0 => {
                server.refusals -= 1;
                (503, json!({}))
            }
            "initialize" => {
                server.session += 1;
                (200, json!({"protocolVersion": "2025-06-18"}))
            }
            _ if !is_known => {
                server.unknown += 1;
                (404, json!({}))
            }
            "notifications/initialized" if server.lost_notifications > 0 => {
                server.lost_notifications -= 1;
                (503, json!({}))
            }
            _ => {
                server.revision = header("mcp-protocol-version");
                (200, json!({}))
            }
        };
        let answer = match status {
            200 => json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}),
            _ => json!({"error": {"message": "refused"}}),
        };
        let answer = answer.to_string();
        let session = match server.is_stateless {
            true => String::new(),
            false => format!("mcp-session-id: {}\r\n", server.session),
        };
        drop(server);
        let written = write!(
            &stream,
            "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\n{session}\
             content-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        );
        drop(written); // the client may have disconnected
    }
}

#[test]
fn concurrent_requests_on_a_lost_session_begin_one_new_session() {
    let (server, url) = FakeServer::start();
    let mut client = Server::without_handshake(connect(&[&url]));
    client.rpc("initialize", json!({}));
    for lost in [10, 20] {
        server.lock().unwrap().session = lost;
        let ids: Vec<_> = (0..16).map(|_| client.send("ping", json!({}))).collect();
        for id in ids {
            let (answer, _) = client.await_response(id);
            assert!(answer["result"].is_object(), "{answer}");
        }
        assert_eq!(server.lock().unwrap().session, lost + 1);
    }
}

#[test]
fn a_failed_session_restart_is_retried_at_the_next_request() {
    let (server, url) = FakeServer::start();
    let mut client = Server::without_handshake(connect(&[&url]));
    client.rpc("initialize", json!({}));
    {
        let mut server = server.lock().unwrap();
        (server.session, server.refusals) = (10, 1);
    }
    let refused = client.rpc("ping", json!({}));
    assert!(text_of(&refused["error"]["message"]).contains("503"), "{refused}");
    let answer = client.rpc("ping", json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(server.lock().unwrap().session, 11);
}

#[test]
fn concurrent_requests_share_the_error_of_a_failed_session_restart() {
    let (server, url) = FakeServer::start();
    let mut client = Server::without_handshake(connect(&[&url]));
    client.rpc("initialize", json!({}));
    {
        let mut server = server.lock().unwrap();
        (server.session, server.refusals, server.waiting) = (10, 100, 16);
    }
    let ids: Vec<_> = (0..16).map(|_| client.send("ping", json!({}))).collect();
    for id in ids {
        let (answer, _) = client.await_response(id);
        let message = text_of(&answer["error"]["message"]);
        assert!(message.contains("503") && message.contains("refused"), "{answer}");
    }
    assert_eq!(
        server.lock().unwrap().attempts,
        2,
        "the first session, and one attempt"
    );
}

#[test]
fn a_session_without_its_initialized_notification_is_begun_again() {
    let (server, url) = FakeServer::start();
    let mut client = Server::without_handshake(connect(&[&url]));
    client.rpc("initialize", json!({}));
    {
        let mut server = server.lock().unwrap();
        (server.session, server.lost_notifications) = (10, 1);
    }
    let refused = client.rpc("ping", json!({}));
    assert!(text_of(&refused["error"]["message"]).contains("503"), "{refused}");
    let answer = client.rpc("ping", json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(server.lock().unwrap().session, 12);
}

#[test]
fn a_server_that_has_become_stateless_is_sent_no_session() {
    let (server, url) = FakeServer::start();
    let mut client = Server::without_handshake(connect(&[&url]));
    client.rpc("initialize", json!({}));
    server.lock().unwrap().is_stateless = true;
    for _ in 0..2 {
        let answer = client.rpc("ping", json!({}));
        assert!(answer["result"].is_object(), "{answer}");
    }
    assert_eq!(server.lock().unwrap().attempts, 2);
}

#[test]
fn the_revision_of_a_plain_json_answer_is_sent_in_later_requests() {
    let (server, url) = FakeServer::start();
    let mut client = Server::without_handshake(connect(&[&url]));
    client.rpc("initialize", json!({}));
    client.rpc("ping", json!({}));
    assert_eq!(server.lock().unwrap().revision, "2025-06-18");
}

#[test]
fn stateless_requests_are_forwarded() {
    let scratch = TempDir::new("connect-stateless");
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut client = Server::without_handshake(connect(&[&place]));
    let meta = stateless_meta(json!({}));
    let call = |code: &str| json!({"name": "execute_code", "arguments": {"language": "shell", "code": code}, "_meta": meta});
    let answer = client.rpc("tools/call", call("echo stateless"));
    answer.assert_fields(json!({"result.structuredContent.stdout": "stateless\n"}));
    let id = client.send("tools/call", call("sleep 244.949"));
    eventually(|| !processes_with("244.949").is_empty());
    client.cancel(id);
    eventually(|| processes_with("244.949").is_empty());
}

#[test]
fn an_open_id_is_refused_and_a_cancelled_one_is_free() {
    let scratch = TempDir::new("connect-ids");
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut client = Server::from_command(connect(&[&place]));
    let id = client.send_run(json!({"code": "sleep 271.828", "language": "shell"}));
    eventually(|| !processes_with("271.828").is_empty());
    let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    client.write(&ping);
    let refused = client.receive();
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(refused.get("id"), None, "{refused}");
    client.cancel(id);
    client.write(&ping);
    assert_eq!(
        client.receive(),
        json!({"jsonrpc": "2.0", "id": id, "result": {}})
    );
    eventually(|| processes_with("271.828").is_empty());
}

#[test]
fn a_call_ended_by_the_server_without_an_answer_is_answered_as_failed() {
    let scratch = TempDir::new("connect-revoked");
    let file = scratch.file("token", &token(&["team"]));
    set_mode(&file, 0o600);
    let place = socket(&scratch);
    let _server = server_at(&place);
    let mut client = Server::from_command(connect(&[&place, "--token-file", &file]));
    let call = client.send_run(json!({"code": "sleep 150.4142", "language": "shell"}));
    eventually(|| !processes_with("150.4142").is_empty());
    cli_stdout(&["token", "revoke", "team"]);
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
