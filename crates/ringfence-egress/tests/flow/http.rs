//! Plain HTTP: each request is checked and rewritten on its own, and forwarded as it arrives.

use crate::{
    servers::{self, request, serve},
    world::{End, PUBLIC, TestClient, World, assert_answer, get, in_time, within},
};
use ringfence_egress::EgressEvent;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

/// Returns a world with this rule, the requests that its server receives, and a connection to that server.
async fn connected(rule: &'static str) -> (World, servers::Received, TestClient) {
    let world = World::with_api(&[rule]).await;
    let received = servers::http(PUBLIC, 80);
    let conn = world.connect("api.test", 80).await;
    (world, received, conn)
}

#[test]
fn request_is_rewritten_and_answered() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        let received = servers::http(PUBLIC, 80);
        let answer = world.answer("api.test", 80, "GET http://API.test/a?b=c HTTP/1.1\r\nHost: API.TEST:80\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nX-Kept: 2\r\n\r\n").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("/a?b=c"),
            "{answer}"
        );
        assert_eq!(
            received.heads(),
            ["GET /a?b=c HTTP/1.1\r\nHost: api.test\r\nX-Kept: 2\r\n\r\n"]
        );
        let events = world.events.lock().expect("not poisoned").clone();
        assert!(events.iter().any(|what| matches!(what,
            EgressEvent::Request { method, name, path, status: Some(200), .. }
            if method == "GET" && name == "api.test" && path == "/a")));
        assert_eq!(world.report().reached[0].requests, 1);
    });
}

#[test]
fn requests_share_one_connection_on_both_sides() {
    within(async {
        let (world, received, mut conn) = connected("api.test:80").await;
        for number in 0..5 {
            conn.get(&format!("/{number}")).await;
            conn.read_until(&format!("\r\n\r\n/{number}")).await;
        }
        let report = world.report();
        assert_eq!(
            (report.reached[0].connections, report.reached[0].requests),
            (1, 5)
        );
        assert_eq!(received.lines().len(), 5);
    });
}

/// claim: [NET-5]
#[test]
fn pipelined_request_for_another_host_is_refused_alone() {
    within(async {
        let (world, received, mut conn) = connected("api.test:80").await;
        conn.send("GET /1 HTTP/1.1\r\nHost: api.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /3 HTTP/1.1\r\nHost: api.test\r\n\r\n")
            .await;
        let (answers, end) = conn.read_to_end().await;
        let answers = String::from_utf8(answers).expect("text");
        assert_eq!(end, End::Closed);
        assert_answer(&answers, "200 OK", "HTTP/1.1 403 Forbidden");
        assert!(
            answers.contains("egress.host: a request over the connection to api.test:80 is for evil.test")
        );
        assert_eq!(received.lines(), ["GET /1 HTTP/1.1"]);
        assert_eq!(world.denied()[0].0, "egress.host");
    });
}

/// claim: [NET-5]
#[test]
fn ambiguous_http_reaches_no_server() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        let received = servers::http(PUBLIC, 80);
        let smuggled = "GET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n";
        for request in [
            format!(
                "POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
            format!(
                "POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n{smuggled}"
            ),
            format!("POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: xchunked\r\n\r\n{smuggled}"),
            "GET / HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: api.test\r\nX: a\r\n b\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\nHost: api.test\n\n".to_owned(),
            "GET / HTTP/1.1\r\nHost : api.test\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET http://user@api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: user@api.test\r\n\r\n".to_owned(),
            "TRACE / HTTP/1.1\r\nHost: api.test\r\n\r\n".to_owned(),
            "CONNECT api.test:80 HTTP/1.1\r\nHost: api.test\r\n\r\n".to_owned(),
            "SSH-2.0-OpenSSH_9.9\r\n".to_owned(),
        ] {
            let answer = world.answer("api.test", 80, &request).await;
            assert!(
                answer.starts_with("HTTP/1.1 400 Bad Request"),
                "{request}: {answer}"
            );
            assert!(!answer.contains("/smuggled"), "{request}: {answer}");
            assert_eq!(world.denial().await.rule, "egress.http", "{request}");
        }
        let mut conn = world.connect("api.test", 80).await;
        let large = "a".repeat(70_000);
        conn.try_send(format!("GET / HTTP/1.1\r\nHost: api.test\r\nX: {large}\r\n\r\n"))
            .await;
        let answer = conn.read_text().await;
        assert_answer(&answer, "4", "");
        assert_eq!(received.lines(), Vec::<String>::new());
    });
}

#[test]
fn chunk_extension_aborts_its_request() {
    within(async {
        let (world, received, mut conn) = connected("api.test:80").await;
        conn.send("POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n").await;
        let answer = conn.read_text().await;
        assert!(!answer.contains("200 OK"), "{answer}");
        assert_eq!(
            received.lines(),
            Vec::<String>::new(),
            "no whole request has arrived"
        );
        world.is_denied("egress.http", "").await;
    });
}

#[test]
fn host_without_a_rule_is_refused_with_a_text() {
    within(async {
        let world = World::with(&["api.test:80", "other.test:8080"]).await;
        world.resolves("other.test", &[PUBLIC]);
        let answer = world
            .answer("other.test", 80, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
            .await;
        assert_answer(&answer, "403 Forbidden", "");
        assert!(
            answer.contains("egress.port: ") && answer.contains("other.test:80"),
            "{answer}"
        );
        assert_eq!(world.denied()[0].0, "egress.port");
        assert!(world.looked_up().is_empty(), "no name was looked up");
    });
}

#[test]
fn methods_and_paths_are_checked_for_each_request() {
    within(async {
        let (world, received, mut conn) = connected("GET api.test:80/v1").await;
        conn.get("/v1/a").await;
        conn.read_until("\r\n\r\n/v1/a").await;
        let answer = conn
            .answer("POST /v1/a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert_answer(&answer, "403", "egress.request");
        for target in ["/v2", "/v1/../v2", "/v1/%2e%2e/v2", "/v1x"] {
            let answer = world.answer("api.test", 80, get(target)).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{target}: {answer}");
        }
        assert_eq!(received.lines(), ["GET /v1/a HTTP/1.1"]);
    });
}

#[test]
fn plain_http_on_another_port_is_inspected_if_rules_need_it() {
    within(async {
        let world = World::with_api(&["GET api.test:8080/v1"]).await;
        let received = servers::http(PUBLIC, 8080);
        let mut conn = world.connect("api.test", 8080).await;
        conn.send("GET /v1 HTTP/1.1\r\nHost: api.test:8080\r\n\r\n").await;
        conn.read_until("\r\n\r\n/v1").await;
        conn.send("DELETE /v1 HTTP/1.1\r\nHost: api.test:8080\r\n\r\n")
            .await;
        assert!(conn.read_text().await.starts_with("HTTP/1.1 403"));
        assert_eq!(
            received.heads(),
            ["GET /v1 HTTP/1.1\r\nHost: api.test:8080\r\n\r\n"]
        );
    });
}

#[test]
fn chunked_body_arrives_chunked() {
    within(async {
        let (_world, received, mut conn) = connected("api.test:80").await;
        conn.send("POST /up HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        conn.send("3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n").await;
        conn.read_until("\r\n\r\n/up").await;
        let head = received.heads().remove(0).to_ascii_lowercase();
        assert!(
            head.contains("transfer-encoding: chunked") && !head.contains("content-length"),
            "{head}"
        );
        let body = String::from_utf8(received.bodies().remove(0)).expect("text");
        assert!(
            body.contains("abc") && body.contains("defg") && body.ends_with("0\r\n\r\n"),
            "{body}"
        );
    });
}

#[test]
fn client_that_expects_100_continue_gets_it() {
    within(async {
        let (_world, received, mut conn) = connected("api.test:80").await;
        conn.send("PUT /up HTTP/1.1\r\nHost: api.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
            .await;
        assert_eq!(conn.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        conn.send("abcd").await;
        conn.read_until("\r\n\r\n/up").await;
        assert_eq!(received.bodies(), [b"abcd"]);
    });
}

#[test]
fn http_1_0_client_is_answered_and_closed() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        let received = servers::http(PUBLIC, 80);
        let answer = world.answer("api.test", 80, "GET /old HTTP/1.0\r\n\r\n").await;
        assert!(
            answer.starts_with("HTTP/1.0 200 OK") && answer.ends_with("/old"),
            "{answer}"
        );
        assert_eq!(received.heads(), ["GET /old HTTP/1.1\r\nHost: api.test\r\n\r\n"]);
    });
}

#[test]
fn half_closed_client_is_answered() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        servers::http(PUBLIC, 80);
        let mut conn = world.connect("api.test", 80).await;
        conn.get("/half").await;
        conn.shut_down().await;
        assert!(conn.read_text().await.ends_with("/half"));
    });
}

#[test]
fn streamed_answer_arrives_piece_by_piece() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        let (send, receive) = tokio::sync::mpsc::channel::<()>(1);
        let receive = std::sync::Arc::new(tokio::sync::Mutex::new(receive));
        serve(PUBLIC, 80, move |mut stream| {
            let receive = receive.clone();
            async move {
                request(&mut stream).await.expect("a request");
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
                    .await
                    .expect("sent");
                receive.lock().await.recv().await.expect("signalled");
                stream.write_all(b"data: 2\n\n").await.expect("sent");
            }
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.get("/events").await;
        conn.read_until("data: 1\n\n").await;
        send.send(()).await.expect("signalled");
        conn.read_until("data: 2\n\n").await;
        assert_eq!(conn.read_until("\r\n0\r\n\r\n").await, "\r\n0\r\n\r\n");
    });
}

#[test]
fn answers_without_body_or_length_end_correctly() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        serve(PUBLIC, 80, |mut stream| async move {
            while let Some((head, _)) = request(&mut stream).await {
                let answer = match head.split(' ').nth(1) {
                    Some("/head") => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
                    Some("/none") => "HTTP/1.1 204 No Content\r\n\r\n",
                    Some("/same") => "HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n",
                    Some("/early") => {
                        "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                    }
                    _ => {
                        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end").await);
                        return;
                    }
                };
                stream.write_all(answer.as_bytes()).await.expect("sent");
            }
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.send("HEAD /head HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
        let head = conn.read_until("\r\n\r\n").await.to_lowercase();
        assert!(head.contains("content-length: 1234"), "{head}");
        for (path, end) in [
            ("/none", "204 No Content\r\n\r\n"),
            ("/same", "\r\n\r\n"),
            ("/early", "\r\n\r\nok"),
        ] {
            conn.get(path).await;
            conn.read_until(end).await;
        }
        conn.get("/close").await;
        conn.read_until("until the end\r\n0\r\n\r\n").await;
    });
}

#[test]
fn connection_closed_by_the_server_is_replaced() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        servers::answer_once(PUBLIC, 80, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let mut conn = world.connect("api.test", 80).await;
        for number in 0..3 {
            conn.send(format!(
                "POST /{number} HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\n\r\nab"
            ))
            .await;
            conn.read_until("\r\n\r\nok").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let report = world.report();
        assert_eq!(
            (report.reached[0].connections, report.reached[0].requests),
            (3, 3)
        );
    });
}

#[test]
fn truncated_answer_stays_truncated() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        let (cut, is_cut) = watch::channel(false);
        serve(PUBLIC, 80, move |mut stream| {
            let mut is_cut = is_cut.clone();
            async move {
                request(&mut stream).await.expect("a request");
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
                    .await
                    .expect("sent");
                // Not before the program has read this part: bytes that are not sent on yet are lost with the
                // connection.
                is_cut.wait_for(|cut| *cut).await.expect("cut");
            }
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.get("/").await;
        conn.read_until("abc").await;
        cut.send_replace(true);
        let rest = conn.read_text().await;
        assert!(!rest.ends_with("0\r\n\r\n"), "{rest}");
    });
}

#[test]
fn websocket_is_opened_and_not_inspected() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        serve(PUBLIC, 80, |mut stream| async move {
            let (head, _) = request(&mut stream).await.expect("a request");
            let lower = head.to_ascii_lowercase();
            assert!(
                lower.contains("upgrade: websocket") && lower.contains("connection: upgrade"),
                "{head}"
            );
            stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n\x81\x02hi")
                .await
                .expect("sent");
            let mut frame = [0; 4];
            stream.read_exact(&mut frame).await.expect("received");
            stream.write_all(&frame).await.expect("sent");
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.send("GET /ws HTTP/1.1\r\nHost: api.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n")
            .await;
        let head = conn.read_until("\r\n\r\n").await;
        assert_answer(&head, "101", "x\r\n");
        assert_eq!(conn.read_exact(4).await, b"\x81\x02hi");
        conn.send(b"\0\n\r\xff").await;
        assert_eq!(conn.read_to_end().await, (b"\0\n\r\xff".to_vec(), End::Closed));
    });
}

#[test]
fn websocket_is_refused_where_rules_depend_on_requests() {
    within(async {
        let world = World::with_api(&["GET api.test:80/ws"]).await;
        let answer = world
            .answer(
                "api.test",
                80,
                "GET /ws HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )
            .await;
        assert_answer(&answer, "403", "a WebSocket cannot be inspected");
    });
}

#[test]
fn unrequested_protocol_switch_is_refused() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        serve(PUBLIC, 80, |mut stream| async move {
            request(&mut stream).await.expect("a request");
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nbytes";
            stream.write_all(answer).await.expect("sent");
        });
        let answer = world.answer("api.test", 80, get("/")).await;
        assert_answer(&answer, "502", "");
    });
}

#[test]
fn unreachable_server_is_answered_with_502_and_reason() {
    within(async {
        let world = World::with(&["api.test:80", "nowhere.test:80"]).await;
        world.resolves("api.test", &["93.184.216.99"]);
        for (name, why) in [
            ("api.test", "no route to it"),
            ("nowhere.test", "does not resolve"),
        ] {
            let answer = world
                .answer(name, 80, format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"))
                .await;
            assert_answer(&answer, "502", why);
            assert_eq!(world.denied()[0].0, "egress.unreachable");
        }
    });
}

#[test]
fn refused_upload_still_gets_the_answer() {
    within(async {
        let world = World::with_api(&["GET api.test:80"]).await;
        let mut conn = world.connect("api.test", 80).await;
        conn.send(format!(
            "PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: {}\r\n\r\n",
            512 * 1024
        ))
        .await;
        conn.try_send(vec![b'a'; 512 * 1024]).await;
        let answer = conn.read_text().await;
        assert_answer(&answer, "403", "egress.request");
    });
}

#[test]
fn request_in_progress_is_cut_when_rules_forbid_it() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        serve(PUBLIC, 80, |mut stream| async move {
            request(&mut stream).await.expect("a request");
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
                .await
                .expect("sent");
            drop(stream.read_u8().await);
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.get("/v1").await;
        conn.read_until("begin").await;
        world.set_rules(&["GET api.test:80/v1"]);
        let more = tokio::time::timeout(Duration::from_millis(200), conn.0.read_u8()).await;
        assert!(more.is_err(), "these rules still allow it");
        world.set_rules(&["GET api.test:80/v2"]);
        in_time(conn.read_to_end()).await;
        world.is_denied("egress.request", "").await;
    });
}
