//! Names and addresses: DNS answers, dialled addresses, and the destination of an address inside the sandbox.

use crate::{
    servers::{echo, serve},
    tls::ALERT,
    world::{
        End, GATEWAY, PRIVATE, PUBLIC, PUBLIC_TOO, TestClient, World, WorldOptions, listen, lookup, probe,
        within,
    },
};
use std::{net::Ipv4Addr, time::Duration};
use tokio::io::AsyncWriteExt;

/// claim: [NET-4]
#[test]
fn name_without_a_rule_is_refused_and_not_looked_up() {
    within(async {
        let world = World::with(&["api.test:443"]).await;
        world.resolves("evil.test", &[PUBLIC]);
        let address = lookup("evil.test").await.expect("an address");
        assert!(lookup("secret-data.evil.test").await.is_ok());
        assert_eq!(probe((address, 443)).await.0, ALERT);
        assert_eq!(probe((address, 5432)).await.1, End::Reset);
        let denials: Vec<(String, String)> = world
            .report()
            .denials
            .into_iter()
            .map(|denial| (denial.what, denial.hint))
            .collect();
        let call = |host: &str| format!("Call `request_egress {{domain: \"{host}\"}}`.");
        for (what, hint) in [
            ("No network access to evil.test:443", call("evil.test")),
            ("No network access to evil.test:5432", call("evil.test:5432")),
            (
                "No network access to secret-data.evil.test",
                call("secret-data.evil.test"),
            ),
        ] {
            assert!(denials.contains(&(what.to_owned(), hint)), "{what}: {denials:?}");
        }
        assert_eq!(denials.len(), 3, "{denials:?}");
        assert!(lookup("api.test").await.is_ok());
        assert!(
            world.looked_up().is_empty(),
            "an allowed name is resolved only when it is dialled"
        );
    });
}

#[test]
fn refused_connections_are_merged_and_get_the_reason() {
    within(async {
        let world = World::with(&["api.test:443", "api.test:80"]).await;
        let address = lookup("evil.test").await.expect("an address");
        for _ in 0..20 {
            assert_eq!(probe((address, 443)).await, (ALERT.to_vec(), End::Closed));
        }
        assert_eq!(
            world.report().denials[0].what,
            "No network access to evil.test:443 (20 times)"
        );
        for _ in 0..20 {
            let mut conn = TestClient::to((address, 80)).await;
            conn.send("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
            assert!(conn.read_text().await.starts_with("HTTP/1.1 403"));
        }
        assert_eq!(
            world.report().denials[0].what,
            "No network access to evil.test:80 (20 times)"
        );
    });
}

#[test]
fn dns_is_served_over_tcp() {
    within(async {
        let _world = World::with(&["api.test:443"]).await;
        let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03api\x04test\x00\x00\x01\x00\x01";
        let mut conn = TestClient::to((GATEWAY, 53)).await;
        for _ in 0..2 {
            conn.send([&[0, 26], &query[..]].concat()).await;
            let length = conn.read_exact(2).await;
            let answer = conn
                .read_exact(usize::from(u16::from_be_bytes([length[0], length[1]])))
                .await;
            assert_eq!(answer[..2], [0x12, 0x34]);
            assert_eq!(answer[6..8], [0, 1], "one answer");
        }
        conn.send([0xff, 0xff]).await;
        assert_eq!(
            conn.read_to_end().await.0,
            b"",
            "a query of this length is refused"
        );
    });
}

#[test]
fn dns_queries_over_the_rate_limit_are_denied() {
    within(async {
        let world = World::with(&["api.test:443"]).await;
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0")
            .await
            .expect("a socket");
        let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03api\x04test\x00\x00\x01\x00\x01";
        for number in 0..1000 {
            socket.send_to(query, (GATEWAY, 53)).await.expect("sent");
            if number % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        world.is_denied("egress.limit", "100 names a second").await;
    });
}

/// claim: [NET-6]
#[test]
fn checked_address_is_the_one_that_is_dialled() {
    within(async {
        let world = World::with(&["api.test:5432"]).await;
        echo(PUBLIC, 5432);
        let inside = serve(PRIVATE, 5432, |mut stream| async move {
            drop(stream.write_all(b"secret").await);
        });
        // First a public address, then a private one; then all of them together.
        world.resolves_in_turn("api.test", &[&[PUBLIC], &[PRIVATE]]);
        world.echoed("api.test", 5432, "hello").await;
        assert_eq!(world.probe("api.test", 5432).await, (Vec::new(), End::Reset));
        world.is_denied("egress.address", "private").await;
        world.resolves("api.test", &[PRIVATE, "127.0.0.1", PUBLIC, "169.254.169.254"]);
        world.echoed("api.test", 5432, "hello").await;
        assert_eq!(world.report().reached[0].end.address.to_string(), PUBLIC);
        assert_eq!(inside.count(), 0);
    });
}

/// claim: [NET-6]
#[test]
fn names_with_non_public_addresses_are_refused() {
    within(async {
        let world = World::with(&["api.test:5432"]).await;
        for address in [
            "127.0.0.1",
            "10.0.0.5",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "224.0.0.1",
            "::1",
            "::ffff:10.0.0.5",
            "fd00:ec2::254",
            "64:ff9b::a00:5",
        ] {
            world.resolves("api.test", &[address]);
            assert_eq!(
                world.probe("api.test", 5432).await,
                (Vec::new(), End::Reset),
                "{address}"
            );
            assert_eq!(world.denial().await.rule, "egress.address", "{address}");
        }
    });
}

#[test]
fn service_named_by_operator_may_be_private_on_its_port() {
    within(async {
        let world = WorldOptions::rules(&["db.test:5432", "db.test:5433"])
            .private(&["db.test:5432"])
            .world()
            .await;
        world.resolves("db.test", &[PRIVATE]);
        echo(PRIVATE, 5432);
        let other = echo(PRIVATE, 5433);
        world.echoed("db.test", 5432, "hello").await;
        assert_eq!(world.probe("db.test", 5433).await.1, End::Reset);
        world.is_denied("egress.address", "").await;
        assert_eq!(other.count(), 0);
    });
}

#[test]
fn next_address_is_tried_if_one_does_not_answer() {
    within(async {
        let world = World::with(&["api.test:5432"]).await;
        world.resolves("api.test", &["93.184.216.99", PUBLIC_TOO, PUBLIC]);
        echo(PUBLIC_TOO, 5432);
        world.echoed("api.test", 5432, "hello").await;
        assert_eq!(world.report().reached[0].end.address.to_string(), PUBLIC_TOO);
    });
}

#[test]
fn address_without_a_name_is_refused() {
    within(async {
        let world = World::with(&["api.test:5432"]).await;
        for address in ["198.18.77.77", "127.0.0.1", PUBLIC] {
            let address: Ipv4Addr = address.parse().expect("an address");
            assert_eq!(
                probe((address, 5432)).await,
                (Vec::new(), End::Reset),
                "{address}"
            );
            world.is_denied("egress.address", &address.to_string()).await;
        }
    });
}

#[test]
fn address_in_an_allowed_network_is_reached() {
    within(async {
        let world = World::with(&["10.0.0.0/8:5432"]).await;
        // In a sandbox the network is routed to its own loopback, as here, and the server is elsewhere.
        let connections = echo(PRIVATE, 5432);
        let mut conn = TestClient::to((PRIVATE.parse().expect("an address"), 5432)).await;
        conn.check_echo("hello").await;
        assert_eq!(connections.count(), 1);
        assert_eq!(probe((Ipv4Addr::LOCALHOST, 5432)).await.1, End::Reset);
        assert!(world.denial().await.what.contains("inside the sandbox"));
    });
}

#[test]
fn ports_added_later_are_served() {
    within(async {
        let world = World::with_api(&["api.test:443"]).await;
        echo(PUBLIC, 5432);
        world.set_rules(&["api.test:443", "api.test:5432"]);
        world
            .lease
            .add_ports(vec![(5432, listen(Ipv4Addr::UNSPECIFIED, 5432))])
            .expect("served");
        assert_eq!(world.lease.ports().into_iter().collect::<Vec<_>>(), [443, 5432]);
        world.echoed("api.test", 5432, "hello").await;
    });
}

#[test]
fn port_without_a_listener_is_reported_with_the_name() {
    within(async {
        let world = World::with(&["api.test:443"]).await;
        let address = world.lookup("api.test").await.expect("an address");
        for _ in 0..2 {
            assert_eq!(
                probe((address, 5432)).await,
                (Vec::new(), End::Reset),
                "the kernel has refused it"
            );
        }
        assert_eq!(
            probe((Ipv4Addr::LOCALHOST, 9999)).await.1,
            End::Reset,
            "a loopback port of the program is not reported"
        );
        let denials = world.report().denials;
        assert_eq!(denials.len(), 1, "{denials:?}");
        assert_eq!(denials[0].rule, "egress.port");
        assert!(
            denials[0]
                .what
                .starts_with("No network access to api.test:5432: ")
                && denials[0].hint.contains("\"api.test:5432\"")
        );
        assert!(world.report().denials.is_empty(), "it is reported once");
    });
}

#[test]
fn name_with_removed_rule_is_not_reached_by_its_address() {
    within(async {
        let world = World::with_api(&["api.test:5432", "other.test:5432"]).await;
        let connections = echo(PUBLIC, 5432);
        let address = world.lookup("api.test").await.expect("an address");
        world.set_rules(&["other.test:5432"]);
        assert_eq!(probe((address, 5432)).await, (Vec::new(), End::Reset));
        world.is_denied("egress.name", "").await;
        assert_eq!(connections.count(), 0);
    });
}
