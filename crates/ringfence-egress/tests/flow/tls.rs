//! TLS: the host of the handshake has to be the host of the connection; nothing else passes where only TLS does.

use crate::{
    servers::echo,
    world::{End, PUBLIC, TestClient, World, in_time, within},
};
use tokio::io::AsyncReadExt;

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
            use tokio::io::AsyncWriteExt;
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
