//! Connections that no rule allows while approval can be asked for: they are held, and continue or end by the decision.

use crate::{
    servers::{self, echo},
    tls::{ALERT, hello},
    world::{End, GATEWAY, PUBLIC, TestClient, World, WorldOptions, assert_answer, in_time, probe, within},
};
use ringfence_egress::{ApprovalFuture, ApprovalHook, Destination, Limits, NotApproved};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{io::AsyncReadExt, sync::watch, time::timeout};

/// An approval hook that decides when the test says so.
struct TestApprover {
    requested: watch::Sender<Vec<String>>,
    decision: watch::Sender<Option<Result<(), NotApproved>>>,
    is_open: AtomicBool,
}

impl TestApprover {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            requested: watch::Sender::new(Vec::new()),
            decision: watch::Sender::new(None),
            is_open: AtomicBool::new(true),
        })
    }

    /// Waits for this number of requests for approval.
    async fn wait_for_requests(&self, count: usize) -> Vec<String> {
        let mut requested = self.requested.subscribe();
        let received = in_time(requested.wait_for(|requested| requested.len() >= count)).await;
        received.expect("the hook exists").clone()
    }

    /// Opens a TLS connection that is held, and asserts that it is the first request for approval.
    async fn hold(&self, world: &World, name: &str) -> TestClient {
        let mut conn = world.connect(name, 443).await;
        conn.send(hello(name)).await;
        assert_eq!(self.wait_for_requests(1).await, [format!("{name}:443")]);
        conn
    }

    fn requests(&self) -> Vec<String> {
        self.requested.borrow().clone()
    }

    fn deny(&self) {
        let no = NotApproved("asked, and denied by a person".to_owned());
        self.decision.send_replace(Some(Err(no)));
    }

    fn approve(&self) {
        self.decision.send_replace(Some(Ok(())));
    }
}

impl ApprovalHook for TestApprover {
    fn is_available(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    fn ask(&self, to: Destination) -> ApprovalFuture {
        self.requested
            .send_modify(|requested| requested.push(to.to_string()));
        let mut decision = self.decision.subscribe();
        Box::pin(async move {
            let decided = decision.wait_for(Option::is_some).await;
            decided.expect("the hook exists").clone().expect("decided")
        })
    }
}

async fn world() -> (Arc<TestApprover>, World) {
    world_with(|_| ()).await
}

async fn world_with(limits: impl FnOnce(&mut Limits)) -> (Arc<TestApprover>, World) {
    let approver = TestApprover::new();
    let options = WorldOptions::rules(&["api.test:8443"]).approval(approver.clone());
    let world = options.limits(limits).world().await;
    world.resolves("new.test", &[PUBLIC]);
    world.resolves("api.test", &[PUBLIC]);
    (approver, world)
}

/// The first bytes of a client, which an echo server returns.
fn tls() -> Vec<u8> {
    hello("new.test")
}

/// claim: [APR-8]
#[test]
fn connection_is_held_until_the_rules_allow_it() {
    within(async {
        let (approver, world) = world().await;
        echo(PUBLIC, 443);
        let mut conn = approver.hold(&world, "new.test").await;
        let early = timeout(Duration::from_millis(300), conn.0.read_u8()).await;
        assert!(early.is_err(), "nothing passes before the answer: {early:?}");
        assert!(world.looked_up().is_empty(), "the name is not resolved outside");
        world.set_rules(&["api.test:8443", "new.test:443"]);
        approver.approve();
        assert_eq!(conn.read_exact(tls().len()).await, tls(), "the same connection");
        assert!(world.denied().is_empty());
        let names = world.looked_up();
        assert!(!names.is_empty() && names.iter().all(|name| name == "new.test"));
    });
}

#[test]
fn rule_change_releases_a_held_connection() {
    within(async {
        let (approver, world) = world().await;
        echo(PUBLIC, 443);
        let mut conn = approver.hold(&world, "new.test").await;
        world.set_rules(&["new.test"]);
        assert_eq!(conn.read_exact(tls().len()).await, tls());
    });
}

/// claim: [APR-8]
#[test]
fn connection_not_approved_is_denied_with_the_reason() {
    within(async {
        let (approver, world) = world().await;
        let (tls, plain) = (echo(PUBLIC, 443), echo(PUBLIC, 80));
        let mut conn = approver.hold(&world, "new.test").await;
        approver.deny();
        assert_eq!(conn.read_to_end().await.0, ALERT);
        let denial = world.denial().await;
        assert_eq!(
            (denial.rule.as_str(), denial.what.as_str()),
            (
                "egress.name",
                "No network access to new.test:443; asked, and denied by a person"
            )
        );
        // Plain HTTP carries the reason to the program.
        let received = world
            .answer("new.test", 80, "GET / HTTP/1.1\r\nHost: new.test\r\n\r\n")
            .await;
        assert_answer(&received, "403", "denied by a person");
        assert!(world.looked_up().is_empty());
        assert_eq!((tls.count(), plain.count()), (0, 0));
    });
}

#[test]
fn approval_without_a_rule_allows_nothing() {
    within(async {
        let (approver, world) = world().await;
        echo(PUBLIC, 443);
        approver.approve();
        assert_eq!(world.probe("new.test", 443).await.0, ALERT);
        assert!(world.looked_up().is_empty());
    });
}

#[test]
fn requests_and_tunnels_are_held() {
    within(async {
        let (approver, world) = world().await;
        let _requests = servers::http(PUBLIC, 80);
        echo(PUBLIC, 443);
        let mut transparent = world.connect("new.test", 80).await;
        transparent
            .send("GET / HTTP/1.1\r\nHost: new.test\r\nConnection: close\r\n\r\n")
            .await;
        approver.wait_for_requests(1).await;
        let mut by_proxy = world.proxy().await;
        by_proxy
            .send("GET http://new.test/ HTTP/1.1\r\nHost: new.test\r\nConnection: close\r\n\r\n")
            .await;
        approver.wait_for_requests(2).await;
        let mut tunnel = world.tunnel("new.test:443").await;
        assert_eq!(
            approver.wait_for_requests(3).await,
            ["new.test:80", "new.test:80", "new.test:443"]
        );
        world.set_rules(&["new.test"]);
        approver.approve();
        for conn in [&mut transparent, &mut by_proxy] {
            let received = conn.read_text().await;
            assert_answer(&received, "200", "");
        }
        tunnel.read_until("\r\n\r\n").await;
        tunnel.check_echo(tls()).await;
    });
}

#[test]
fn approval_is_asked_for_ports_with_a_listener_only() {
    within(async {
        let (approver, world) = world().await;
        echo(PUBLIC, 443);
        let mut conn = approver.hold(&world, "api.test").await;
        approver.deny();
        conn.read_to_end().await;
        world.is_denied("egress.port", "").await;
        assert_eq!(world.probe("api.test", 9999).await, (Vec::new(), End::Reset));
        assert_eq!(approver.requests().len(), 1);
    });
}

/// claim: [APR-8]
#[test]
fn approval_is_not_asked_for_addresses_and_private_names() {
    within(async {
        let (approver, world) = world().await;
        for name in [
            "metadata.google.internal",
            "metadata",
            "printer.local",
            "x.localdomain",
        ] {
            assert!(world.lookup(name).await.is_ok(), "{name}");
        }
        let targets = [
            "93.184.216.34:443",
            "169.254.169.254:80",
            "127.0.0.1:443",
            "[::1]:443",
            "metadata.google.internal:80",
            "localhost:443",
        ];
        for target in targets {
            let mut conn = world.tunnel(target).await;
            let received = conn.read_text().await;
            assert!(received.starts_with("HTTP/1.1 403"), "{target}: {received}");
        }
        probe((GATEWAY, 443)).await;
        assert!(approver.requests().is_empty(), "{:?}", approver.requests());
        // Positive control: approval is asked for a public name.
        let _talk = world.tunnel("new.test:443").await;
        approver.wait_for_requests(1).await;
    });
}

#[test]
fn approved_name_with_a_private_address_is_refused() {
    within(async {
        let (approver, world) = world().await;
        world.resolves("cloud.test", &["169.254.169.254"]);
        let mut conn = approver.hold(&world, "cloud.test").await;
        world.set_rules(&["cloud.test"]);
        approver.approve();
        conn.read_to_end().await;
        world.is_denied("egress.address", "").await;
    });
}

/// claim: [APR-8]
#[test]
fn held_connections_and_asked_names_are_limited() {
    within(async {
        let (approver, world) = world().await;
        let address = world.lookup("new.test").await.expect("an address");
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(TestClient::to((address, 443)).await);
        }
        approver.wait_for_requests(16).await;
        assert_eq!(probe((address, 443)).await.0, ALERT);
        world.is_denied("egress.name", "too many connections wait").await;
        // Connections that end make room.
        drop(held);
        approver.deny();
        let random = |number: usize| format!("{number:02}x9kq7zvb3mw8tj5hrd2ncfy.evil.test");
        let mut admitted = 0;
        for number in 0..40 {
            admitted += usize::from(world.lookup(&random(number)).await.is_ok());
        }
        assert_eq!(admitted, 16, "names that look random, below one domain");
        let mut admitted = 0;
        for number in 0..150 {
            admitted += usize::from(world.lookup(&format!("a.d{number}.test")).await.is_ok());
        }
        assert_eq!(admitted, 128 - 17, "names of all kinds");
        assert!(
            world.lookup("api.test").await.is_ok(),
            "names that rules allow still have room"
        );
        assert!(world.looked_up().is_empty());
    });
}

#[test]
fn names_from_the_proxy_count_as_looked_up() {
    within(async {
        let (approver, world) = world().await;
        approver.deny();
        for number in 0..20 {
            let target = format!("{number:02}x9kq7zvb3mw8tj5hrd2ncfy.evil.test:443");
            let mut conn = world.tunnel(&target).await;
            conn.read_text().await;
        }
        assert_eq!(approver.requests().len(), 16);
    });
}

#[test]
fn held_connection_is_not_idle() {
    within(async {
        let (approver, world) = world_with(|limits| limits.idle = Duration::from_millis(300)).await;
        echo(PUBLIC, 443);
        let mut conn = approver.hold(&world, "new.test").await;
        let cut = timeout(Duration::from_millis(1500), conn.0.read_u8()).await;
        assert!(cut.is_err(), "{cut:?}");
        world.set_rules(&["new.test"]);
        approver.approve();
        assert_eq!(conn.read_exact(tls().len()).await, tls());
    });
}

#[test]
fn connection_is_denied_when_approval_is_unavailable() {
    within(async {
        let (approver, world) = world().await;
        let address = world.lookup("new.test").await.expect("an address");
        approver.is_open.store(false, Ordering::Relaxed);
        assert!(world.lookup("other.test").await.is_ok());
        assert_eq!(probe((address, 443)).await.0, ALERT);
        assert!(approver.requests().is_empty());
        world.is_denied("egress.name", "").await;
    });
}
