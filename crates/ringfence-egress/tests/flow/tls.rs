//! TLS: the host of the handshake has to be the host of the connection; nothing else passes where only TLS does.

use crate::{
    servers::{echo, serve},
    world::{End, PUBLIC, TestClient, World, in_time, within},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The alert `access_denied` on the wire.
pub const ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 0x31];
const SERVER_NAME: u16 = 0;
const PADDING: u16 = 21;
const ECH: u16 = 0xfe0d;

/// A ClientHello in one record.
pub fn hello(name: &str) -> Vec<u8> {
    record(&message(&[(SERVER_NAME, sni(name))]))
}

fn sni(name: &str) -> Vec<u8> {
    let name = [&[0], &length(name.len())[..], name.as_bytes()].concat();
    [&length(name.len()), &name[..]].concat()
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("short").to_be_bytes()
}

fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    let mut list = Vec::new();
    for (kind, bytes) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(length(bytes.len()));
        list.extend(bytes);
    }
    body.extend(length(list.len()));
    body.extend(list);
    let [high, low] = length(body.len());
    [&[1, 0, high, low], &body[..]].concat()
}

fn record(bytes: &[u8]) -> Vec<u8> {
    [&[0x16, 3, 1], &length(bytes.len())[..], bytes].concat()
}

async fn world() -> World {
    let world = World::with_api(&["api.test:443", "api.test:8443", "other.test:443"]).await;
    world.resolves("other.test", &[PUBLIC]);
    world
}

#[test]
fn tls_for_the_host_of_the_connection_passes_unchanged() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let mut conn = world.connect("api.test", 443).await;
        let bytes = [hello("api.test"), b"\x17\x03\x03\x00\x03abc".to_vec()].concat();
        conn.check_echo(&bytes).await;
        conn.shut_down().await;
        assert_eq!(conn.read_to_end().await, (Vec::new(), End::Closed));
        assert!(world.denied().is_empty());
    });
}

#[test]
fn fragmented_hello_passes_unchanged() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let message = message(&[(PADDING, vec![0; 3000]), (SERVER_NAME, sni("API.test"))]);
        let bytes: Vec<u8> = message.chunks(700).flat_map(record).collect();
        let mut conn = world.connect("api.test", 443).await;
        conn.0.set_nodelay(true).expect("at once");
        for piece in bytes.chunks(1000) {
            conn.send(piece).await;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(conn.read_exact(bytes.len()).await, bytes);
    });
}

/// claim: [NET-5]
#[test]
fn tls_for_another_host_gets_an_alert_and_reaches_no_server() {
    within(async {
        let world = world().await;
        let connections = echo(PUBLIC, 443);
        let nobody = record(&message(&[]));
        let address = record(&message(&[(SERVER_NAME, sni("93.184.216.34"))]));
        let hidden = record(&message(&[(SERVER_NAME, sni("api.test")), (ECH, vec![0; 40])]));
        let split: Vec<u8> = message(&[(SERVER_NAME, sni("evil.test"))])
            .chunks(20)
            .flat_map(record)
            .collect();
        for (bytes, rule) in [
            (hello("evil.test"), "egress.sni"),
            (hello("other.test"), "egress.sni"),
            (hello("api.test.evil.test"), "egress.sni"),
            (split, "egress.sni"),
            (nobody, "egress.sni"),
            (address, "egress.sni"),
            (hidden, "egress.ech"),
        ] {
            let mut conn = world.connect("api.test", 443).await;
            conn.send(&bytes).await;
            assert_eq!(conn.read_to_end().await, (ALERT.to_vec(), End::Closed), "{rule}");
            assert_eq!(world.denied()[0].0, rule);
        }
        assert_eq!(connections.count(), 0);
        assert!(world.looked_up().is_empty(), "no name was looked up");
    });
}

/// claim: [NET-5]
#[test]
fn other_protocols_are_refused_on_the_tls_port() {
    within(async {
        let world = world().await;
        let connections = echo(PUBLIC, 443);
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.9\r\n"[..],
            b"*1\r\n$4\r\nPING\r\n",
            b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
            b"\0",
        ] {
            let mut conn = world.connect("api.test", 443).await;
            conn.send(bytes).await;
            assert_eq!(conn.read_to_end().await, (Vec::new(), End::Reset), "{bytes:?}");
            assert_eq!(world.denied()[0].0, "egress.not_tls");
        }
        let mut malformed = hello("api.test");
        malformed[9] = 9;
        let mut conn = world.connect("api.test", 443).await;
        conn.send(&malformed).await;
        assert_eq!(conn.read_to_end().await.0, ALERT);
        assert_eq!(world.denied()[0].0, "egress.not_tls");
        assert_eq!(connections.count(), 0);
    });
}

#[test]
fn tls_on_any_port_must_be_for_the_host_of_the_connection() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 8443);
        world.echoed("api.test", 8443, hello("api.test")).await;
        let mut conn = world.connect("api.test", 8443).await;
        conn.send(hello("evil.test")).await;
        assert_eq!(conn.read_to_end().await, (ALERT.to_vec(), End::Closed));
        assert_eq!(world.denied()[0].0, "egress.sni");
        world
            .echoed("api.test", 8443, "not TLS, and not on its port")
            .await;
    });
}

/// Answers each connection's first bytes with a request for another ClientHello (HelloRetryRequest), and then echoes.
fn retry(address: &str, port: u16) -> Vec<u8> {
    let random = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c";
    let pairs = (0..random.len()).step_by(2).map(|at| &random[at..at + 2]);
    let random: Vec<u8> = pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hex"))
        .collect();
    let retry = record(&[&[2, 0, 0, 40, 3, 3], &random[..], &[0, 0x13, 1, 0, 0, 0]].concat());
    // On one port a warning comes first.
    let warning: &[u8] = if port == 443 {
        b""
    } else {
        b"\x15\x03\x03\x00\x02\x01\x70"
    };
    let retry = [warning, &retry].concat();
    let answer = retry.clone();
    serve(address, port, move |mut stream| {
        let answer = answer.clone();
        async move {
            let mut first = vec![0; hello("api.test").len()];
            stream.read_exact(&mut first).await.expect("a hello");
            stream.write_all(&answer).await.expect("sent");
            let (mut from, mut to) = stream.split();
            drop(tokio::io::copy(&mut from, &mut to).await);
        }
    });
    retry
}

/// claim: [NET-5]
#[test]
fn second_hello_must_be_for_the_host_of_the_connection() {
    within(async {
        let world = world().await;
        for port in [443, 8443] {
            let retry = retry(PUBLIC, port);
            // Ciphers, an alert and early data may be before it.
            let before = b"\x14\x03\x03\x00\x01\x01\x15\x03\x03\x00\x02\x01\x5a\x17\x03\x03\x00\x03abc";
            for (second, together) in [("api.test", false), ("evil.test", false), ("other.test", true)] {
                let second_hello = [&before[..], &hello(second)].concat();
                let mut conn = world.connect("api.test", port).await;
                if together {
                    conn.send([hello("api.test"), second_hello.clone()].concat())
                        .await;
                    assert_eq!(conn.read_exact(retry.len()).await, retry);
                } else {
                    conn.send(hello("api.test")).await;
                    assert_eq!(conn.read_exact(retry.len()).await, retry);
                    conn.send(&second_hello).await;
                }
                if second == "api.test" {
                    assert_eq!(conn.read_exact(second_hello.len()).await, second_hello);
                    conn.check_echo("the rest").await;
                } else {
                    let (received, _) = conn.read_to_end().await;
                    assert!(received.ends_with(ALERT), "{received:?}");
                    assert!(
                        !received
                            .windows(second.len())
                            .any(|bytes| bytes == second.as_bytes()),
                        "{second}"
                    );
                    assert_eq!(world.denial().await.rule, "egress.sni");
                }
            }
        }
    });
}

#[test]
fn end_of_a_client_is_passed_on_before_the_server_answers() {
    within(async {
        let world = world().await;
        serve(PUBLIC, 443, |mut stream| async move {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.expect("a hello");
            stream.write_all(b"bye").await.expect("sent");
        });
        let mut conn = world.connect("api.test", 443).await;
        conn.send(hello("api.test")).await;
        conn.shut_down().await;
        assert_eq!(conn.read_to_end().await, (b"bye".to_vec(), End::Closed));
    });
}

#[test]
fn tls_on_the_http_port_is_checked_as_tls() {
    within(async {
        let world = World::with_api(&["api.test:80"]).await;
        echo(PUBLIC, 80);
        world.echoed("api.test", 80, hello("api.test")).await;
        let mut conn = world.connect("api.test", 80).await;
        conn.send(hello("evil.test")).await;
        assert_eq!(conn.read_to_end().await.0, ALERT);
    });
}

#[test]
fn tls_that_cannot_be_inspected_is_refused_with_the_reason() {
    within(async {
        let world = World::with_api(&["GET api.test:443/v1", "GET api.test:8080"]).await;
        for port in [443, 8080] {
            let mut conn = world.connect("api.test", port).await;
            conn.send(hello("api.test")).await;
            assert_eq!(conn.read_to_end().await.0, ALERT);
            let denial = world.denial().await;
            assert_eq!(denial.rule, "egress.request");
            assert!(
                denial.what.contains("cannot be inspected in this sandbox"),
                "{denial:?}"
            );
        }
    });
}

/// claim: [NET-7]
#[test]
fn tunnel_is_cut_only_when_rules_no_longer_allow_it() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let mut conn = world.connect("api.test", 443).await;
        let mut other = world.connect("other.test", 443).await;
        for (conn, name) in [(&mut conn, "api.test"), (&mut other, "other.test")] {
            conn.check_echo(hello(name)).await;
        }
        world.set_rules(&["api.test:443", "new.test:443"]);
        assert_eq!(in_time(other.read_to_end()).await, (Vec::new(), End::Reset));
        let denial = world.denial().await;
        assert_eq!(
            (denial.rule.as_str(), denial.hint.contains("other.test")),
            ("egress.name", true)
        );
        conn.check_echo("still here").await;
        world.set_rules(&["GET api.test:443/v1"]);
        assert_eq!(in_time(conn.read_to_end()).await, (Vec::new(), End::Reset));
        world.is_denied("egress.request", "").await;
    });
}

#[test]
fn closing_the_lease_cuts_connections_and_reports_them() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let bytes = hello("api.test");
        let mut conn = world.echoed("api.test", 443, &bytes).await;
        let events = world.events.clone();
        let traffic = in_time(world.lease.close()).await;
        assert_eq!(traffic.reached[0].bytes_in, bytes.len() as u64);
        assert_eq!(in_time(conn.read_to_end()).await.1, End::Reset);
        let events = events.lock().expect("not poisoned").clone();
        assert!(
            events
                .iter()
                .any(|what| matches!(what, ringfence_egress::EgressEvent::Closed { bytes_out: 1.., .. }))
        );
    });
}

#[test]
fn dropping_the_lease_cuts_connections() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let mut conn = world.echoed("api.test", 443, hello("api.test")).await;
        drop(world);
        assert!(in_time(conn.0.read_u8()).await.is_err());
        assert!(
            tokio::net::TcpStream::connect(("198.18.0.1", 3128))
                .await
                .is_err(),
            "the sockets are gone"
        );
    });
}

#[test]
fn sixty_four_mebibytes_are_echoed_unchanged() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let TestClient(stream) = world.echoed("api.test", 443, hello("api.test")).await;
        const BYTES: usize = 64 * 1024 * 1024;
        let (mut from, mut to) = stream.into_split();
        let pattern = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
        let sent = tokio::spawn(async move {
            for piece in (0..BYTES).step_by(1 << 16) {
                let bytes: Vec<u8> = (piece..piece + (1 << 16)).map(pattern).collect();
                to.write_all(&bytes).await.expect("sent");
            }
            to.shutdown().await.expect("finished");
        });
        let mut at = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let bytes = in_time(from.read(&mut buffer)).await.expect("received");
            if bytes == 0 {
                break;
            }
            for byte in &buffer[..bytes] {
                assert_eq!(*byte, pattern(at), "at {at}");
                at += 1;
            }
        }
        assert_eq!(at, BYTES);
        sent.await.expect("all of it");
        let report = world.report();
        assert!(report.reached[0].bytes_out > BYTES as u64 && report.reached[0].bytes_in > BYTES as u64);
    });
}
