//! Sockets, sessions, bounds and shutdown of the server.

use super::spawn_sleep;
use crate::client::*;
use rustix::process::Signal;
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const PRINT: &str = "print(6 * 7)";

#[test]
fn one_endpoint_serves_both_protocol_eras() {
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    let listed = client.rpc("tools/list", json!({}))["result"]["tools"].clone();
    assert!(texts_of(&listed, "name").contains(&"execute_code"));
    assert_eq!(client.run(json!({"code": PRINT}))["stdout"], "42\n");
    let hello = client.send_initialize(&json!({})).messages()[0]["result"]["capabilities"].clone();
    for name in ["resources", "prompts"] {
        // ContextForge reads `{}` as "not supported".
        assert_eq!(hello[name]["listChanged"], false, "{hello}");
    }
    let discovered = client.rpc_stateless("server/discover", json!({}));
    let versions = discovered["result"]["supportedVersions"].to_string();
    assert_contains(versions, ["2026-07-28"]);
    let params = json!({"name": "execute_code", "arguments": {"code": PRINT}});
    let answer = client.rpc_stateless("tools/call", params);
    answer.assert_fields(json!({"result.structuredContent.stdout": "42\n"}));
    let other = client.rpc_stateless("tools/list", json!({}));
    assert_eq!(
        texts_of(&other["result"]["tools"], "name"),
        texts_of(&listed, "name")
    );
}

#[test]
fn an_id_is_refused_while_its_request_is_open_and_then_free() {
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    for _ in 0..200 {
        // A copy of the client sends the same id again.
        assert!(client.clone().rpc("ping", json!({}))["result"].is_object());
        let listed = client.clone().rpc_stateless("tools/list", json!({}));
        assert!(listed["result"]["tools"].is_array(), "{listed}");
    }
    let ping = json!({"jsonrpc": "2.0", "id": "same", "method": "ping"});
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "same"}});
    for number in 0..50 {
        let code = format!("sleep 1000; : {number}");
        let arguments = json!({"code": code, "language": "shell", "detach_after_seconds": 0});
        let params = json!({"name": "execute_code", "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params});
        let caller = client.clone();
        let calling = std::thread::spawn(move || caller.post(&[], &call));
        eventually(|| {
            let listed = client.facts("list_executions", json!({}))["executions"].clone();
            let is_this = |one: &Value| one["first_line"] == code && one["verdict"] == "running";
            list_of(&listed).iter().any(is_this)
        });
        let refused = client.post(&[], &ping).messages().remove(0);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert_eq!(refused.get("id"), None, "{refused}");
        assert_eq!(client.post(&[], &cancel).status, 202);
        let free = client.post(&[], &ping).messages().remove(0);
        assert_eq!(free, json!({"jsonrpc": "2.0", "id": "same", "result": {}}));
        assert_eq!(
            calling.join().unwrap().messages(),
            Vec::<Value>::new(),
            "it was cancelled"
        );
    }
}

#[test]
fn a_unix_socket_serves_like_a_port_and_is_removed_at_the_end() {
    let scratch = TempDir::new("socket");
    let path = scratch.file("http.sock.d/x", "").replace("/x", "/http.sock");
    let listen = format!("unix:{path}");
    let command = ringfence(&["serve", "--transport", "http", "--listen", &listen]);
    let mut server = HttpServer::from_command(command);
    assert_eq!(server.address, listen);
    let mut client = server.initialized_client();
    assert_eq!(client.run(json!({"code": PRINT}))["stdout"], "42\n");
    signal(server.child.id(), Signal::TERM);
    let status = server.wait_exit(Duration::from_secs(10)).unwrap();
    assert!(
        status.success() && !std::path::Path::new(&path).exists(),
        "{status}"
    );
}

#[test]
fn health_is_reported_at_once_and_readiness_after_the_first_sandbox() {
    let server = HttpServer::start(&[]);
    assert_eq!(server.client().get("/healthz").status, 200);
    eventually(|| server.ready());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.client().request("POST", path, &[], "x").status, 405);
    }
    assert_eq!(server.client().get("/").status, 404);
    assert_eq!(server.client().get("/mcp/").status, 404);
}

/// claim: [HTTP-1]
#[test]
fn listening_beyond_this_host_needs_authentication() {
    let words = ["serve", "--transport", "http", "--listen", "0.0.0.0:0"];
    let refused = run_cli(&words);
    assert!(!refused.status.success());
    assert_contains(
        stderr_of(&refused),
        ["without authentication is refused", "ringfence token create NAME"],
    );
    let mut command = ringfence(&words);
    command.env("SANDBOX_API_TOKEN", "0123456789abcdef0123456789abcdef");
    let server = HttpServer::from_command(command);
    let port = server.address.rsplit(':').next().unwrap();
    let mut client = server.client();
    client.address = format!("127.0.0.1:{port}");
    assert_eq!(client.send_initialize(&json!({})).status, 401);
    client.token = Some("0123456789abcdef0123456789abcdef".to_owned());
    client.initialize();
    assert_eq!(client.run(json!({"code": PRINT}))["stdout"], "42\n");
}

/// claim: [HTTP-2]
#[test]
fn requests_with_a_foreign_host_or_origin_are_refused() {
    let server = HttpServer::start(&["--allowed-host", "box.example:8443"]);
    let client = server.client();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}}});
    let status = |headers: &[(&str, &str)]| client.post(headers, &body).status;
    for host in [
        "localhost",
        "localhost:1",
        "127.0.0.1:8000",
        "[::1]:8000",
        "box.example:8443",
    ] {
        assert_eq!(status(&[("Host", host)]), 200, "the control: {host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8000",
        "box.example",
        "10.0.0.1",
    ] {
        assert_eq!(status(&[("Host", host)]), 403, "{host}");
    }
    for host in ["", "a b", "@"] {
        assert_eq!(status(&[("Host", host)]), 400, "{host:?}");
    }
    for origin in [
        "http://localhost:3000",
        "https://127.0.0.1",
        "https://box.example:8443",
    ] {
        assert_eq!(status(&[("Origin", origin)]), 200, "the control: {origin}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "x",
        "https://box.example",
        "file://",
    ] {
        assert_eq!(status(&[("Origin", origin)]), 403, "{origin}");
    }
}

/// claim: [HTTP-2]
#[test]
fn host_and_origin_are_checked_before_the_token_and_the_body() {
    let server = HttpServer::with_env([("RINGFENCE_HTTP_AUTHENTICATION", "required")]);
    let client = server.client();
    let unfinished = |headers: &str| {
        let begun = Instant::now();
        // The body is never sent.
        let head =
            format!("POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: 1000\r\n{headers}\r\n\r\n");
        let reply = client.raw(head.as_bytes());
        assert!(begun.elapsed() < Duration::from_secs(30), "{headers}");
        (reply.status, reply.body)
    };
    let (status, body) = unfinished("Host: localhost");
    assert_eq!(status, 401, "the control: {body}");
    let (status, body) = unfinished("Host: evil.example");
    assert_eq!(status, 403, "{body}");
    assert_contains(body, ["http.allowed_hosts"]);
    assert_eq!(
        unfinished("Host: localhost\r\nOrigin: http://evil.example").0,
        403
    );
    assert_eq!(unfinished("Host: localhost\r\nHost: localhost").0, 400);
}

#[test]
fn requests_too_large_or_too_deep_are_refused_and_the_server_continues() {
    let server = HttpServer::with_env([("RINGFENCE_HTTP_BODY_MB", "1")]);
    let mut client = server.initialized_client();
    let code = "#".repeat(2 << 20);
    let large = client.rpc_reply(
        "tools/call",
        json!({"name": "execute_code", "arguments": {"code": code}}),
    );
    assert_eq!(large.status, 413, "{large:?}");
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let promised = client.raw(format!("{head}Content-Length: 1000000000\r\n\r\n").as_bytes());
    assert_eq!(promised.status, 413, "{promised:?}");
    // A body of another type is not waited for.
    let other = head.replace("application/json\r\n", "text/plain\r\n");
    let refused = client.raw(format!("{other}Content-Length: 9\r\n\r\n").as_bytes());
    assert_eq!(refused.status, 415, "{refused:?}");
    let chunk = "x".repeat(64 << 10);
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    for _ in 0..40 {
        chunked += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    assert_eq!(client.raw(chunked.as_bytes()).status, 413);
    let wide = client.request("GET", "/healthz", &[("x", &"y".repeat(64 << 10))], "");
    assert_eq!(wide.status, 431, "{wide:?}");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let usual = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let answer = client.request("POST", "/mcp", &usual, &deep);
    assert!((400..500).contains(&answer.status), "{answer:?}");
    for smuggled in [
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\nhello",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n",
    ] {
        let answer = client.raw(smuggled.as_bytes());
        assert_eq!(answer.status, 400, "{smuggled:?}: {answer:?}");
    }
    assert_eq!(client.run(json!({"code": PRINT}))["stdout"], "42\n");
}

#[test]
fn a_connection_with_no_or_half_a_request_head_is_closed() {
    let server = HttpServer::start(&[]);
    let begun = Instant::now();
    let mut streams: Vec<TcpStream> = [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost:",
    ]
    .into_iter()
    .map(|beginning| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(beginning.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    })
    .collect();
    for stream in &mut streams {
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
        assert!(begun.elapsed() < Duration::from_secs(20), "{rest:?}");
    }
}

#[test]
fn protocol_sessions_are_bounded_in_number_and_in_idle_time() {
    let server = HttpServer::with_env([
        ("RINGFENCE_HTTP_SESSIONS", "2"),
        ("RINGFENCE_HTTP_SESSION_IDLE_SECONDS", "3"),
    ]);
    let [mut first, mut second] = [0; 2].map(|_| server.initialized_client());
    assert!(first.rpc("ping", json!({}))["result"].is_object());
    let mut third = server.initialized_client();
    assert_eq!(
        second.rpc_reply("ping", json!({})).status,
        404,
        "the one unused for longest"
    );
    assert!(first.rpc("ping", json!({}))["result"].is_object());
    // A call that takes longer than the idle time keeps its session.
    let slow = first.execute("shell", "sleep 5; echo done");
    assert_eq!(slow["stdout"], "done\n", "{slow}");
    assert_eq!(third.rpc_reply("ping", json!({})).status, 404, "it was idle");
}

#[test]
fn a_deleted_session_is_gone() {
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    let gone = client.delete();
    assert_eq!(gone.status, 204, "{gone:?}");
    assert_eq!(client.rpc_reply("ping", json!({})).status, 404);
}

#[test]
fn the_program_of_a_deleted_session_ends_at_once() {
    let server = HttpServer::start(&[]);
    let client = server.initialized_client();
    let running = spawn_sleep(&client, "316.227");
    let begun = Instant::now();
    let gone = client.delete();
    assert_eq!(gone.status, 204, "{gone:?}");
    assert_processes_end("316.227");
    assert_took_at_most(begun.elapsed(), Duration::from_secs(3));
    drop(running.join().unwrap());
}

/// claim: [HTTP-7]
#[test]
fn a_stopping_server_finishes_its_calls_and_accepts_no_more() {
    let mut server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    let mut late = server.initialized_client();
    let running = std::thread::spawn(move || client.execute("shell", "sleep 4.1421; echo done"));
    eventually(|| !processes_with("4.1421").is_empty());
    signal(server.child.id(), Signal::TERM);
    server.await_log("stopping as soon as the calls in progress have ended");
    let refused = late.run(json!({"code": PRINT}));
    assert_eq!(refused["code"], "busy", "{refused}");
    assert_eq!(late.get("/readyz").status, 503);
    assert_eq!(running.join().unwrap()["stdout"], "done\n");
    let status = server.wait_exit(Duration::from_secs(10)).unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn calls_longer_than_the_drain_time_are_cut_off() {
    let mut server = HttpServer::with_env([("RINGFENCE_HTTP_DRAIN_SECONDS", "1")]);
    let client = server.initialized_client();
    let running = spawn_sleep(&client, "173.205");
    signal(server.child.id(), Signal::TERM);
    let begun = Instant::now();
    assert!(server.wait_exit(Duration::from_secs(10)).is_some());
    assert!(begun.elapsed() >= Duration::from_millis(900));
    drop(running.join().unwrap());
    assert_processes_end("173.205");
}

#[test]
fn http_2_is_served_on_the_same_port() {
    use http_body_util::{BodyExt as _, Empty};
    use hyper::{Request, body::Bytes};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let server = HttpServer::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let text = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(&server.address).await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        let driver = tokio::spawn(connection);
        let request = Request::get(format!("http://{}/healthz", server.address)).body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        assert_eq!(answer.version(), hyper::Version::HTTP_2);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        driver.abort();
        String::from_utf8(body.to_vec()).unwrap()
    });
    assert_eq!(text, "ok\n");
}

#[test]
fn events_of_a_session_are_sent_while_its_stream_is_open() {
    let server = HttpServer::start(&[]);
    let mut client = server.initialized_client();
    assert!(client.rpc("logging/setLevel", json!({"level": "info"}))["result"].is_object());
    let mut events = client.open_events();
    let done = client.run(json!({"code": PRINT}));
    events.read_until("execution.completed");
    events.read_until(text_of(&done["execution_id"]));
}

#[test]
fn sockets_of_a_service_manager_are_used_and_not_inherited_by_children() {
    use std::os::{fd::AsRawFd as _, unix::net::UnixListener};
    let scratch = TempDir::new("activated");
    let path = scratch.file("d/x", "").replace("d/x", "d/http.sock");
    let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = UnixListener::bind(&path).unwrap();
    let place = network.local_addr().unwrap().to_string();
    // Descriptors above the numbers that the server receives.
    let network = rustix::io::fcntl_dupfd_cloexec(&network, 20).unwrap();
    let socket = rustix::io::fcntl_dupfd_cloexec(&socket, 20).unwrap();
    rustix::io::fcntl_setfd(&network, rustix::io::FdFlags::empty()).unwrap();
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
    let (first, second) = (network.as_raw_fd(), socket.as_raw_fd());
    let script = format!(
        "exec 3<&{first} 4<&{second} {first}<&- {second}<&-; LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" \"$@\""
    );
    let inner = ringfence(&["serve", "--transport", "http"]);
    let server = HttpServer::from_command(wrap_command(&["bash", "-c", &script], &inner));
    assert_eq!(server.address, place);
    let mut client = server.initialized_client();
    let done = client.execute("shell", "ls /proc/self/fd; env");
    let said = text_of(&done["stdout"]);
    assert!(!said.contains("LISTEN_"), "{said}");
    let mut local = server.client();
    local.address = format!("unix:{path}");
    local.initialize();
    assert_eq!(local.run(json!({"code": PRINT}))["stdout"], "42\n");
    let has_socket = |pid: u32| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let inode = rustix::fs::fstat(&network).unwrap().st_ino;
        let name = format!("socket:[{inode}]");
        links
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|link| link.to_string_lossy() == name)
    };
    assert!(has_socket(server.child.id()), "the control");
    for pid in descendants(server.child.id()) {
        assert!(!has_socket(pid), "{pid} has it");
    }
    drop(server);
    let mut other = wrap_command(
        &["bash", "-c", &script],
        &ringfence(&["serve", "--transport", "http", "--listen", &place]),
    );
    let refused = other.output().unwrap();
    assert_contains(stderr_of(&refused), ["the service manager gives sockets"]);
}
