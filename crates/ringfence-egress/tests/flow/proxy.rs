//! Programs that use a proxy: the same identity and the same rules as for those that use none.

use crate::{
    servers::{self, echo},
    tls::hello,
    world::{End, PUBLIC, PUBLIC_TOO, World, assert_answer, within},
};

async fn world() -> World {
    World::with_api(&["api.test:443", "api.test:80", "api.test:5432", "*.wild.test:80"]).await
}

#[test]
fn connect_opens_a_tunnel_to_an_allowed_host() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        let mut conn = world.proxy().await;
        conn.send("CONNECT API.test:443 HTTP/1.1\r\nHost: API.test:443\r\nUser-Agent: a\r\n\r\n")
            .await;
        let head = conn.read_until("\r\n\r\n").await;
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && !head.to_lowercase().contains("content-length"),
            "{head}"
        );
        let bytes = hello("api.test");
        conn.check_echo(&bytes).await;
        assert_eq!(world.report().reached[0].connections, 1);
    });
}

/// claim: [NET-5]
#[test]
fn bytes_in_a_tunnel_must_agree_with_its_host() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 443);
        for (bytes, rule) in [
            (hello("evil.test"), "egress.sni"),
            (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "egress.not_tls"),
            (
                b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n".to_vec(),
                "egress.not_tls",
            ),
        ] {
            let mut conn = world.proxy().await;
            // Bytes sent together with the request are checked as later ones are.
            conn.send(
                [
                    b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n",
                    &bytes[..],
                ]
                .concat(),
            )
            .await;
            conn.read_until("\r\n\r\n").await;
            let (received, _) = conn.read_to_end().await;
            assert!(received.is_empty() || received[0] == 0x15, "{received:?}");
            world.is_denied(rule, "").await;
        }
    });
}

#[test]
fn connect_reaches_only_ports_that_rules_name() {
    within(async {
        let world = world().await;
        echo(PUBLIC, 5432);
        let mut conn = world.proxy().await;
        conn.send("CONNECT api.test:5432 HTTP/1.0\r\n\r\n").await;
        assert!(conn.read_until("\r\n\r\n").await.contains(" 200 "));
        conn.check_echo("hello").await;
        for port in [22, 25, 53, 3306, 6379] {
            let mut conn = world.tunnel(&format!("api.test:{port}")).await;
            let answer = conn.read_text().await;
            assert_answer(&answer, "403 Forbidden", "egress.port");
            assert!(
                answer.contains(&format!("\"api.test:{port}\"")),
                "the hint: {answer}"
            );
            world.is_denied("egress.port", "").await;
        }
    });
}

/// claim: [NET-4]
#[test]
fn ambiguous_hosts_are_refused_before_rules_are_checked() {
    within(async {
        let world = world().await;
        for host in [
            "api.test",
            "api.test:0",
            "api.test:65536",
            "api.test:443:1",
            ":443",
            "",
            "allowed@evil.test:443",
            "evil.test%00.api.test:443",
            "::ffff:1.2.3.4%x.api.test:443",
            "[::ffff:1.2.3.4%25x]:443",
            "127.1:443",
            "0x7f.0.0.1:443",
            "api.test:443\r\nX-A: b",
            "api .test:443",
            "api.test:443/path",
            "\u{430}pi.test:443",
        ] {
            let mut conn = world.proxy().await;
            let answer = conn
                .answer(format!("CONNECT {host} HTTP/1.1\r\nHost: api.test:443\r\n\r\n"))
                .await;
            assert!(
                answer.starts_with("HTTP/1.1 400 Bad Request"),
                "{host:?}: {answer}"
            );
            assert_eq!(world.denial().await.rule, "egress.http", "{host:?}");
        }
        let mut conn = world.proxy().await;
        let long = "a".repeat(300);
        conn.send(format!("CONNECT {long}.test:443 HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        assert!(conn.read_text().await.starts_with("HTTP/1.1 400"));
        assert!(world.looked_up().is_empty());
    });
}

#[test]
fn addresses_are_reached_only_by_network_rules() {
    within(async {
        let world = World::with(&["93.184.216.34/32:5432", "api.test:5432"]).await;
        echo(PUBLIC, 5432);
        let mut conn = world.tunnel(&format!("{PUBLIC}:5432")).await;
        assert!(conn.read_until("\r\n\r\n").await.contains(" 200 "));
        conn.check_echo("hello").await;
        for (host, rule) in [
            (format!("{PUBLIC_TOO}:5432"), "egress.address"),
            ("169.254.169.254:80".to_owned(), "egress.address"),
            ("[::1]:5432".to_owned(), "egress.address"),
            (format!("{PUBLIC}:22"), "egress.port"),
        ] {
            let mut conn = world.tunnel(&host).await;
            let answer = conn.read_text().await;
            assert_answer(&answer, "403", rule);
        }
    });
}

/// claim: [NET-6]
#[test]
fn loopback_of_the_host_needs_a_rule_for_loopback_alone() {
    within(async {
        let world = World::with(&["0.0.0.0/0:5432", "[::]/0:5432", "*:5432", "127.0.0.2:5433"]).await;
        let connections = echo("0.0.0.0", 5432);
        echo("127.0.0.2", 5433);
        for (name, address) in [
            ("loop.test", "127.0.0.1"),
            ("none.test", "0.0.0.0"),
            ("six.test", "::"),
        ] {
            world.resolves(name, &[address]);
        }
        for host in [
            "127.0.0.1",
            "0.0.0.0",
            "[::]",
            "[::1]",
            "[::ffff:0.0.0.0]",
            "loop.test",
            "none.test",
            "six.test",
        ] {
            let mut conn = world.tunnel(&format!("{host}:5432")).await;
            let answer = conn.read_text().await;
            assert_answer(&answer, "403", "egress.address");
        }
        assert_eq!(connections.count(), 0);
        let mut conn = world.tunnel("127.0.0.2:5433").await;
        assert!(conn.read_until("\r\n\r\n").await.contains(" 200 "));
        conn.check_echo("hello").await;
    });
}

#[test]
fn requests_to_the_proxy_are_checked_one_by_one() {
    within(async {
        let world = World::with_api(&["api.test:80", "other.test:8080"]).await;
        world.resolves("other.test", &[PUBLIC_TOO]);
        let (received, received_too) = (servers::http(PUBLIC, 80), servers::http(PUBLIC_TOO, 8080));
        let mut conn = world.proxy().await;
        conn.send("GET http://api.test/1 HTTP/1.1\r\nHost: api.test\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic YTpi\r\n\r\n")
            .await;
        conn.read_until("\r\n\r\n/1").await;
        conn.send("GET http://other.test:8080/2 HTTP/1.1\r\nHost: other.test:8080\r\n\r\n")
            .await;
        conn.read_until("\r\n\r\n/2").await;
        conn.send("GET http://evil.test/3 HTTP/1.1\r\nHost: evil.test\r\n\r\n")
            .await;
        let (answer, end) = conn.read_to_end().await;
        let answer = String::from_utf8(answer).expect("text");
        assert_answer(&answer, "403", "egress.name");
        assert_eq!(end, End::Closed);
        assert_eq!(received.heads(), ["GET /1 HTTP/1.1\r\nHost: api.test\r\n\r\n"]);
        assert_eq!(
            received_too.heads(),
            ["GET /2 HTTP/1.1\r\nHost: other.test:8080\r\n\r\n"]
        );
    });
}

#[test]
fn proxy_request_with_two_hosts_is_refused() {
    within(async {
        let world = world().await;
        let received = servers::http(PUBLIC, 80);
        for (request, status) in [
            ("GET http://api.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
            ("GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "403"),
            ("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", "400"),
            ("GET https://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "400"),
            ("GET http://a@api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "400"),
            ("GET ftp://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", "400"),
        ] {
            let mut conn = world.proxy().await;
            let answer = conn.answer(request).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{request}: {answer}"
            );
        }
        assert!(received.heads().is_empty());
    });
}

#[test]
fn unresolved_name_is_refused_before_the_tunnel() {
    within(async {
        let world = World::with(&["gone.test:443"]).await;
        let mut conn = world.tunnel("gone.test:443").await;
        let answer = conn.read_text().await;
        assert_answer(&answer, "502", "does not resolve");
    });
}

#[test]
fn names_below_a_wildcard_are_limited_in_the_proxy() {
    within(async {
        let world = world().await;
        let mut refused = 0;
        for number in 0..100 {
            let mut conn = world.proxy().await;
            let answer = conn
                .answer(format!(
                    "GET http://n{number}.wild.test/ HTTP/1.1\r\nHost: n{number}.wild.test\r\n\r\n"
                ))
                .await;
            refused += usize::from(answer.contains("egress.limit"));
        }
        assert_eq!(refused, 100 - ringfence_egress::BELOW_MAX);
        let names: std::collections::BTreeSet<String> = world.looked_up().into_iter().collect();
        assert_eq!(
            names.len(),
            ringfence_egress::BELOW_MAX,
            "the others were not looked up"
        );
    });
}
