//! Clients that do not read their answers.

use crate::client::*;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

const FILE_BYTES: usize = 8 << 20;
/// Requests for the file, half of them in one protocol session and half of revision 2026-07-28.
const REQUESTS: usize = 40;

fn read_file(client: &HttpClient, uri: &Value, number: usize) -> TcpStream {
    let mut params = json!({"uri": uri});
    let mut headers = vec![("MCP-Protocol-Version", "2025-11-25")];
    let mut client = client.clone();
    if number % 2 == 1 {
        client.session = None;
        params["_meta"] = stateless_meta(json!({}));
        headers = vec![
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "resources/read"),
            ("Mcp-Name", text_of(uri)),
        ];
    }
    let message = json!({"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": params});
    client.send_post(&headers, &message)
}

/// claim: [HTTP-11]
#[test]
fn large_answers_of_a_principal_take_bounded_memory_and_all_arrive() {
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    let code =
        format!("import os; os.mkdir('output'); open('output/large.txt', 'w').write('x' * {FILE_BYTES})");
    let ran = client.run(json!({"code": code}));
    let uri = ran["artifacts"][0]["uri"].clone();
    let pid = server.child.id();
    let before = proc_status_kib(pid, "VmRSS");
    let streams: Vec<TcpStream> = (0..REQUESTS)
        .map(|number| read_file(&client, &uri, number))
        .collect();
    let begun = |stream: &&TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        // The head comes at once; a part of the answer does not.
        matches!(stream.peek(&mut vec![0; 4096]), Ok(4096))
    };
    eventually(|| streams.iter().filter(begun).count() == 4);
    let reading = streams.into_iter().map(|mut stream| {
        std::thread::spawn(move || {
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer.iter().filter(|byte| **byte == b'x').count()
        })
    });
    for reader in reading.collect::<Vec<_>>() {
        assert!(reader.join().unwrap() >= FILE_BYTES);
    }
    let taken = proc_status_kib(pid, "VmHWM") - before;
    println!("{REQUESTS} answers of {FILE_BYTES} bytes: {taken} KiB");
    assert!(taken << 10 < (REQUESTS / 2 * FILE_BYTES) as u64, "{taken} KiB");
}

/// claim: [HTTP-11]
#[test]
fn calls_that_go_on_without_their_connection_count_as_requests() {
    const REQUESTS_MAX: usize = 512;
    const THREADS: usize = 16;
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    let program = json!({"language": "shell", "code": "sleep 547.93", "background": true});
    let execution = client.run(program)["execution_id"].clone();
    let begin = |number: usize| {
        let wait = json!({"execution_id": execution, "wait_seconds": 25});
        let params = json!({"name": "get_execution", "arguments": wait});
        let call =
            json!({"jsonrpc": "2.0", "id": format!("c{number}"), "method": "tools/call", "params": params});
        let mut stream = client.send_post(&[], &call);
        // The call has begun when the head of its answer comes.
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200", "{number}");
    };
    std::thread::scope(|threads| {
        for first in 0..THREADS {
            let begin = &begin;
            threads.spawn(move || (first..REQUESTS_MAX).step_by(THREADS).for_each(begin));
        }
    });
    let busy = client.rpc_reply("ping", json!({}));
    assert_eq!(busy.status, 429, "{busy:?}");
    cli_stdout(&["cancel", text_of(&execution)]);
    eventually(|| client.rpc_reply("ping", json!({})).status == 200);
}

#[test]
fn slow_large_bodies_do_not_delay_small_requests() {
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Accept: application/json, text/event-stream\r\nContent-Length: 1000000\r\n\r\n{";
    let slow = [(); 8].map(|()| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
    let begun = Instant::now();
    for _ in 0..10 {
        assert!(client.rpc("ping", json!({}))["result"].is_object());
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(slow);
}

#[test]
fn json_that_is_not_a_message_is_answered_under_its_id() {
    let server = HttpServer::start(&[]);
    let client = server.initialized_client();
    for (message, id, code) in [
        (json!({"jsonrpc": "2.0", "id": 7, "method": 7}), json!(7), -32600),
        (
            json!({"jsonrpc": "2.0", "id": "x", "method": "ping", "params": []}),
            json!("x"),
            -32602,
        ),
        (json!({"jsonrpc": "2.0", "id": 8, "params": {}}), json!(8), -32600),
        (
            json!({"jsonrpc": "2.0", "id": {}, "method": "ping"}),
            Value::Null,
            -32600,
        ),
        (json!([]), Value::Null, -32600),
    ] {
        let reply = client.post(&[], &message);
        assert_eq!(reply.status, 400, "{reply:?}");
        let answer = &reply.messages()[0];
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&id, &json!(code)),
            "{reply:?}"
        );
    }
}
