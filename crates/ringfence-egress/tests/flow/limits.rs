//! Limits of connections, bytes and time: a connection over a limit is cut, and the denial says why.

use crate::{
    servers::{self, echo, request, serve},
    tls::hello,
    world::{End, PUBLIC, TestClient, World, assert_answer, get, within},
};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// Sends one byte every 50 ms until the other end closes.
async fn drip(conn: &mut TestClient, bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        if conn.0.write_all(&[*byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// claim: [NET-8]
#[test]
fn slow_hello_or_head_is_cut() {
    within(async {
        let world = World::limited(&["api.test:443", "api.test:80", "api.test:8443"], |limits| {
            limits.hello = Duration::from_millis(500)
        })
        .await;
        echo(PUBLIC, 8443);
        let head = format!("GET / HTTP/1.1\r\nHost: api.test\r\nX: {}", "a".repeat(10_000));
        let long = [hello("api.test")[..40].to_vec(), vec![0; 10_000]].concat();
        for (port, bytes) in [(443, &long[..]), (8443, &long), (80, head.as_bytes())] {
            let mut conn = world.connect("api.test", port).await;
            let began = Instant::now();
            drip(&mut conn, bytes).await;
            assert!(began.elapsed() < Duration::from_secs(5), "{port}");
            world.is_denied("egress.limit", "longer than 0.5 s").await;
        }
        let mut conn = world.proxy().await;
        drip(
            &mut conn,
            b"CONNECT api.test:443 HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        )
        .await;
        world.is_denied("egress.limit", "").await;
    });
}

#[test]
fn silent_connection_is_closed_without_a_denial() {
    within(async {
        let world = World::limited(&["api.test:443", "api.test:80"], |limits| {
            limits.hello = Duration::from_millis(300)
        })
        .await;
        for port in [443, 80] {
            let mut conn = world.connect("api.test", port).await;
            assert_eq!(conn.read_to_end().await.0, b"");
        }
        assert!(world.denied().is_empty());
    });
}

#[test]
fn idle_tunnel_is_cut() {
    within(async {
        let world = World::limited(&["api.test:5432"], |limits| {
            limits.idle = Duration::from_millis(500)
        })
        .await;
        echo(PUBLIC, 5432);
        let mut conn = world.connect("api.test", 5432).await;
        for _ in 0..8 {
            conn.check_echo("a").await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(conn.read_to_end().await, (Vec::new(), End::Reset));
        world
            .is_denied("egress.limit", "nothing has moved on it for 0.5 s")
            .await;
    });
}

#[test]
fn busy_connection_is_cut_at_its_time_limit() {
    within(async {
        let world = World::limited(&["api.test:5432", "api.test:80"], |limits| {
            limits.connection_time = Duration::from_millis(800)
        })
        .await;
        echo(PUBLIC, 5432);
        let mut conn = world.connect("api.test", 5432).await;
        drip(&mut conn, b"a").await;
        world.is_denied("egress.limit", "it has lasted 0.8 s").await;
        // A body that arrives byte by byte keeps a connection busy, too.
        servers::http(PUBLIC, 80);
        let mut conn = world.connect("api.test", 80).await;
        conn.send("PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 100000\r\n\r\n")
            .await;
        drip(&mut conn, b"a").await;
        world.is_denied("egress.limit", "it has lasted 0.8 s").await;
    });
}

#[test]
fn missing_answer_times_out() {
    within(async {
        let world = World::limited(&["api.test:80"], |limits| {
            limits.idle = Duration::from_millis(500)
        })
        .await;
        serve(PUBLIC, 80, |mut stream| async move {
            request(&mut stream).await.expect("a request");
            std::future::pending::<()>().await;
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.get("/").await;
        let began = Instant::now();
        conn.read_to_end().await;
        assert!(began.elapsed() < Duration::from_secs(5));
        world.is_denied("egress.limit", "").await;
    });
}

/// claim: [NET-8]
#[test]
fn connections_of_a_sandbox_are_limited() {
    within(async {
        let world = World::limited(&["api.test:5432"], |limits| limits.connections = 3).await;
        echo(PUBLIC, 5432);
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(world.echoed("api.test", 5432, "a").await);
        }
        assert_eq!(world.probe("api.test", 5432).await, (Vec::new(), End::Reset));
        world
            .is_denied("egress.limit", "more than 3 connections of this sandbox")
            .await;
        drop(clients.pop());
        for _ in 0..100 {
            if world.is_served("api.test", 5432).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("a freed permit is not reused");
    });
}

/// claim: [NET-8]
#[test]
fn connections_of_a_namespace_are_limited() {
    within(async {
        let world = World::limited(&["api.test:5432"], |limits| limits.connections_per_namespace = 1).await;
        echo(PUBLIC, 5432);
        let _talk = world.echoed("api.test", 5432, "a").await;
        assert_eq!(world.probe("api.test", 5432).await.1, End::Reset);
        world
            .is_denied("egress.limit", "more than 1 connections of this namespace")
            .await;
    });
}

/// claim: [NET-8]
#[test]
fn sent_bytes_of_a_sandbox_are_limited() {
    within(async {
        let world = World::limited(&["api.test:5432", "api.test:80"], |limits| {
            limits.bytes_out = 100_000
        })
        .await;
        echo(PUBLIC, 5432);
        let mut conn = world.connect("api.test", 5432).await;
        conn.try_send(vec![b'a'; 200_000]).await;
        let (received, end) = conn.read_to_end().await;
        assert!(
            received.len() <= 100_000 && end == End::Reset,
            "{} {end:?}",
            received.len()
        );
        world
            .is_denied("egress.limit", "more than 100000 bytes sent")
            .await;
        let answer = world.answer("api.test", 80, get("/")).await;
        assert_answer(&answer, "403", "egress.limit");
    });
}

#[test]
fn answer_over_the_byte_limit_is_cut() {
    within(async {
        let world = World::limited(&["api.test:80"], |limits| limits.bytes_in = 100_000).await;
        serve(PUBLIC, 80, |mut stream| async move {
            request(&mut stream).await.expect("a request");
            drop(
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    .await,
            );
            drop(stream.write_all(&[b'a'; 1_000_000]).await);
        });
        let mut conn = world.connect("api.test", 80).await;
        conn.get("/").await;
        let (received, _) = conn.read_to_end().await;
        assert!(received.len() < 150_000, "{}", received.len());
        world
            .is_denied("egress.limit", "more than 100000 bytes received")
            .await;
    });
}
