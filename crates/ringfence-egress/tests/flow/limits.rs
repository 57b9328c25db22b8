//! Bounds: on connections, bytes and time. Whoever is slow, many, or greedy is cut, and told why.

use crate::{
    servers::{self, echo, request, serve},
    tls::hello,
    world::{End, PUBLIC, Talk, World, assert_answer, get, within},
};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// One byte every so often, for as long as anybody listens.
async fn drip(talk: &mut Talk, bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        if talk.0.write_all(&[*byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// claim: [NET-8]
#[test]
fn a_hello_or_a_head_that_comes_byte_by_byte_is_cut() {
    within(async {
        let world = World::limited(&["api.test:443", "api.test:80", "api.test:8443"], |limits| {
            limits.hello = Duration::from_millis(500)
        })
        .await;
        echo(PUBLIC, 8443);
        let head = format!("GET / HTTP/1.1\r\nHost: api.test\r\nX: {}", "a".repeat(10_000));
        let long = [hello("api.test")[..40].to_vec(), vec![0; 10_000]].concat();
        for (port, bytes) in [(443, &long[..]), (8443, &long), (80, head.as_bytes())] {
            let mut talk = world.connect("api.test", port).await;
            let began = Instant::now();
            drip(&mut talk, bytes).await;
            assert!(began.elapsed() < Duration::from_secs(5), "{port}");
            world.is_denied("egress.limit", "longer than 0.5 s").await;
        }
        let mut talk = world.proxy().await;
        drip(
            &mut talk,
            b"CONNECT api.test:443 HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        )
        .await;
        world.is_denied("egress.limit", "").await;
    });
}

#[test]
fn a_connection_that_says_nothing_is_closed_and_not_told_of() {
    within(async {
        let world = World::limited(&["api.test:443", "api.test:80"], |limits| {
            limits.hello = Duration::from_millis(300)
        })
        .await;
        for port in [443, 80] {
            let mut talk = world.connect("api.test", port).await;
            assert_eq!(talk.hear_all().await.0, b"");
        }
        assert!(world.denied().is_empty());
    });
}

#[test]
fn a_tunnel_on_which_nothing_moves_is_cut() {
    within(async {
        let world = World::limited(&["api.test:5432"], |limits| {
            limits.idle = Duration::from_millis(500)
        })
        .await;
        echo(PUBLIC, 5432);
        let mut talk = world.connect("api.test", 5432).await;
        for _ in 0..8 {
            talk.is_echoed("a").await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(talk.hear_all().await, (Vec::new(), End::Reset));
        world
            .is_denied("egress.limit", "nothing has moved on it for 0.5 s")
            .await;
    });
}

#[test]
fn a_connection_lasts_only_so_long_however_busy_it_is() {
    within(async {
        let world = World::limited(&["api.test:5432", "api.test:80"], |limits| {
            limits.connection_time = Duration::from_millis(800)
        })
        .await;
        echo(PUBLIC, 5432);
        let mut talk = world.connect("api.test", 5432).await;
        drip(&mut talk, b"a").await;
        world.is_denied("egress.limit", "it has lasted 0.8 s").await;
        // A body that comes byte by byte is busy, too.
        servers::http(PUBLIC, 80);
        let mut talk = world.connect("api.test", 80).await;
        talk.say("PUT / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 100000\r\n\r\n")
            .await;
        drip(&mut talk, b"a").await;
        world.is_denied("egress.limit", "it has lasted 0.8 s").await;
    });
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_forever() {
    within(async {
        let world = World::limited(&["api.test:80"], |limits| {
            limits.idle = Duration::from_millis(500)
        })
        .await;
        serve(PUBLIC, 80, |mut stream| async move {
            request(&mut stream).await.expect("a request");
            std::future::pending::<()>().await;
        });
        let mut talk = world.connect("api.test", 80).await;
        talk.get("/").await;
        let began = Instant::now();
        talk.hear_all().await;
        assert!(began.elapsed() < Duration::from_secs(5));
        world.is_denied("egress.limit", "").await;
    });
}

/// claim: [NET-8]
#[test]
fn a_sandbox_has_so_many_connections_at_once() {
    within(async {
        let world = World::limited(&["api.test:5432"], |limits| limits.connections = 3).await;
        echo(PUBLIC, 5432);
        let mut talks = Vec::new();
        for _ in 0..3 {
            talks.push(world.echoed("api.test", 5432, "a").await);
        }
        assert_eq!(world.hear_of("api.test", 5432).await, (Vec::new(), End::Reset));
        world
            .is_denied("egress.limit", "more than 3 connections of this sandbox")
            .await;
        drop(talks.pop());
        for _ in 0..100 {
            if world.is_served("api.test", 5432).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("a seat that was freed is not given again");
    });
}

/// claim: [NET-8]
#[test]
fn a_namespace_has_so_many_connections_at_once() {
    within(async {
        let world = World::limited(&["api.test:5432"], |limits| limits.connections_per_namespace = 1).await;
        echo(PUBLIC, 5432);
        let _talk = world.echoed("api.test", 5432, "a").await;
        assert_eq!(world.hear_of("api.test", 5432).await.1, End::Reset);
        world
            .is_denied("egress.limit", "more than 1 connections of this namespace")
            .await;
    });
}

/// claim: [NET-8]
#[test]
fn a_sandbox_moves_so_many_bytes_and_no_more() {
    within(async {
        let world = World::limited(&["api.test:5432", "api.test:80"], |limits| {
            limits.bytes_out = 100_000
        })
        .await;
        echo(PUBLIC, 5432);
        let mut talk = world.connect("api.test", 5432).await;
        talk.try_say(vec![b'a'; 200_000]).await;
        let (heard, end) = talk.hear_all().await;
        assert!(
            heard.len() <= 100_000 && end == End::Reset,
            "{} {end:?}",
            heard.len()
        );
        world
            .is_denied("egress.limit", "more than 100000 bytes sent")
            .await;
        let answer = world.answer("api.test", 80, get("/")).await;
        assert_answer(&answer, "403", "egress.limit");
    });
}

#[test]
fn an_answer_that_is_too_large_for_the_sandbox_is_cut() {
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
        let mut talk = world.connect("api.test", 80).await;
        talk.get("/").await;
        let (heard, _) = talk.hear_all().await;
        assert!(heard.len() < 150_000, "{}", heard.len());
        world
            .is_denied("egress.limit", "more than 100000 bytes received")
            .await;
    });
}
