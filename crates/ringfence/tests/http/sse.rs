//! The HTTP+SSE transport of revision 2024-11-05.

use super::principals::token;
use crate::client::*;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead as _, BufReader},
    net::TcpStream,
    time::Duration,
};

/// An open event stream, and the address to which its client posts.
struct Stream {
    lines: BufReader<TcpStream>,
    client: HttpClient,
    address: String,
}

impl Stream {
    fn open(client: HttpClient) -> Self {
        let mut opened = Self {
            lines: BufReader::new(client.open("/sse")),
            client,
            address: String::new(),
        };
        opened.address = opened.next_data();
        opened
    }

    fn next_data(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "the stream has ended"
            );
            if let Some(data) = line.strip_prefix("data: ") {
                return data.trim_end().to_owned();
            }
        }
    }

    fn post(&self, message: &Value) -> u16 {
        let headers = [("Content-Type", "application/json")];
        let reply = self
            .client
            .request("POST", &self.address, &headers, &message.to_string());
        reply.status
    }

    fn initialize(&mut self) {
        let hello = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        let answer = self.rpc("initialize", hello);
        answer.assert_fields(json!({"result.protocolVersion": "2024-11-05"}));
        assert_eq!(
            self.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
            202
        );
    }
}

impl McpClient for Stream {
    fn rpc(&mut self, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        assert_eq!(self.post(&message), 202);
        loop {
            let message: Value = serde_json::from_str(&self.next_data()).unwrap();
            if message["id"] == method {
                return message;
            }
        }
    }
}

#[test]
fn an_sse_client_calls_over_its_stream_and_its_program_ends_with_it() {
    let (own, other) = (token(&["own"]), token(&["other"]));
    let words = ["serve", "--transport", "sse", "--listen", "127.0.0.1:0"];
    let server = HttpServer::from_command(ringfence(&words));
    let mut client = server.client();
    assert_eq!(client.get("/sse").status, 401);
    client.token = Some(own.clone());
    let mut stream = Stream::open(client.clone());
    stream.initialize();
    assert_eq!(stream.run(json!({"code": "print(6 * 7)"}))["stdout"], "42\n");
    let thief = server.client_with(&other);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let post = |client: &HttpClient, address: &str| client.request("POST", address, &[], &ping).status;
    assert_eq!(post(&client, &stream.address), 202, "the control");
    assert_eq!(post(&thief, &stream.address), 404, "the session of another");
    assert_eq!(post(&client, "/messages?sessionId=0"), 404);
    let evil = [("Host", "evil.example")];
    assert_eq!(client.request("POST", &stream.address, &evil, &ping).status, 403);
    let endless =
        json!({"name": "execute_code", "arguments": {"language": "shell", "code": "sleep 547.722"}});
    let message = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": endless});
    assert_eq!(stream.post(&message), 202);
    eventually(|| !processes_with("547.722").is_empty());
    let address = stream.address.clone();
    drop(stream);
    assert_processes_end("547.722");
    eventually(|| post(&client, &address) == 404);
    client.initialize();
    assert!(
        client.rpc("ping", json!({}))["result"].is_object(),
        "/mcp is there, too"
    );
    let mut stream = Stream::open(client);
    stream.initialize();
    cli_stdout(&["token", "revoke", "own"]);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stream.lines, &mut rest).unwrap();
}

#[test]
fn open_requests_of_an_sse_session_are_bounded_and_a_stopping_server_answers_them() {
    const OPEN_MAX: usize = 32;
    let words = ["serve", "--transport", "sse", "--listen", "127.0.0.1:0"];
    let mut server = HttpServer::from_command(ringfence(&words));
    let client = server.client_with(&token(&["own"]));
    let mut stream = Stream::open(client);
    stream.initialize();
    let program = json!({"language": "shell", "code": "sleep 3; echo done", "background": true});
    let begun = stream.run(program);
    let execution = begun["execution_id"].clone();
    assert!(execution.is_string(), "{begun}");
    let message = |id: usize| {
        let call =
            json!({"name": "get_execution", "arguments": {"execution_id": execution, "wait_seconds": 20}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call})
    };
    for id in 0..OPEN_MAX {
        assert_eq!(stream.post(&message(id)), 202);
    }
    let headers = [("Content-Type", "application/json")];
    let more = message(OPEN_MAX).to_string();
    let busy = stream.client.request("POST", &stream.address, &headers, &more);
    assert_eq!(busy.status, 429, "{busy:?}");
    assert!(busy.body.contains(r#""code":"busy""#), "{busy:?}");
    assert_eq!(stream.post(&message(0)), 400, "an id that is open");
    let pid = Pid::from_child(&server.child);
    kill_process(pid, Signal::TERM).unwrap();
    let mut left: Vec<usize> = (0..OPEN_MAX).collect();
    while !left.is_empty() {
        let answer: Value = serde_json::from_str(&stream.next_data()).unwrap();
        let Some(id) = answer["id"].as_u64() else {
            continue;
        };
        assert!(answer["result"].is_object(), "{answer}");
        left.retain(|one| *one as u64 != id);
    }
    assert!(
        server
            .wait_exit(Duration::from_secs(60))
            .is_some_and(|end| end.success())
    );
}

#[test]
fn the_sse_transport_is_off_by_default() {
    let server = HttpServer::start(&[]);
    assert_eq!(server.client().get("/sse").status, 404);
    assert_eq!(
        server
            .client()
            .request("POST", "/messages?sessionId=0", &[], "{}")
            .status,
        404
    );
}
