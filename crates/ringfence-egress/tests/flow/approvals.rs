//! Connections that no rule allows while somebody can be asked: they are held, and go on or end as it is decided.

use crate::{
    servers::{self, echo},
    tls::{ALERT, hello},
    world::{DOOR, End, PUBLIC, Talk, World, WorldOptions, assert_answer, hear_of, patiently, within},
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

/// Who is asked, and answers when the story says so.
struct Person {
    asked: watch::Sender<Vec<String>>,
    says: watch::Sender<Option<Result<(), NotApproved>>>,
    listens: AtomicBool,
}

impl Person {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: watch::Sender::new(Vec::new()),
            says: watch::Sender::new(None),
            listens: AtomicBool::new(true),
        })
    }

    /// Until so many were asked about.
    async fn hears_of(&self, count: usize) -> Vec<String> {
        let mut asked = self.asked.subscribe();
        let heard = patiently(asked.wait_for(|asked| asked.len() >= count)).await;
        heard.expect("the person is here").clone()
    }

    /// A TLS connection that waits, the first thing that the person hears of.
    async fn holds(&self, world: &World, name: &str) -> Talk {
        let mut talk = world.connect(name, 443).await;
        talk.say(hello(name)).await;
        assert_eq!(self.hears_of(1).await, [format!("{name}:443")]);
        talk
    }

    fn heard(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }

    fn says_no(&self) {
        let no = NotApproved("asked, and denied by somebody".to_owned());
        self.says.send_replace(Some(Err(no)));
    }

    fn says_yes(&self) {
        self.says.send_replace(Some(Ok(())));
    }
}

impl ApprovalHook for Person {
    fn are_open(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    fn ask(&self, to: Destination) -> ApprovalFuture {
        self.asked.send_modify(|asked| asked.push(to.to_string()));
        let mut says = self.says.subscribe();
        Box::pin(async move {
            let said = says.wait_for(Option::is_some).await;
            said.expect("the person is here").clone().expect("said")
        })
    }
}

async fn world() -> (Arc<Person>, World) {
    world_with(|_| ()).await
}

async fn world_with(limits: impl FnOnce(&mut Limits)) -> (Arc<Person>, World) {
    let person = Person::new();
    let wish = WorldOptions::rules(&["api.test:8443"]).asks(person.clone());
    let world = wish.limits(limits).world().await;
    world.resolves("new.test", &[PUBLIC]);
    world.resolves("api.test", &[PUBLIC]);
    (person, world)
}

/// What a client says first, and what it hears of a host that answers.
fn tls() -> Vec<u8> {
    hello("new.test")
}

/// claim: [APR-8]
#[test]
fn a_connection_is_held_and_goes_on_when_the_rules_allow_it() {
    within(async {
        let (person, world) = world().await;
        echo(PUBLIC, 443);
        let mut talk = person.holds(&world, "new.test").await;
        let early = timeout(Duration::from_millis(300), talk.0.read_u8()).await;
        assert!(early.is_err(), "nothing passes before the answer: {early:?}");
        assert!(world.looked_up().is_empty(), "nor is the name asked for outside");
        world.set_rules(&["api.test:8443", "new.test:443"]);
        person.says_yes();
        assert_eq!(talk.hear(tls().len()).await, tls(), "the same connection");
        assert!(world.denied().is_empty());
        let names = world.looked_up();
        assert!(!names.is_empty() && names.iter().all(|name| name == "new.test"));
    });
}

#[test]
fn whoever_changes_the_rules_ends_the_wait() {
    within(async {
        let (person, world) = world().await;
        echo(PUBLIC, 443);
        let mut talk = person.holds(&world, "new.test").await;
        world.set_rules(&["new.test"]);
        assert_eq!(talk.hear(tls().len()).await, tls());
    });
}

/// claim: [APR-8]
#[test]
fn what_is_not_approved_is_denied_as_ever_and_says_that_it_was_asked() {
    within(async {
        let (person, world) = world().await;
        let (tls, plain) = (echo(PUBLIC, 443), echo(PUBLIC, 80));
        let mut talk = person.holds(&world, "new.test").await;
        person.says_no();
        assert_eq!(talk.hear_all().await.0, ALERT);
        let denial = world.denial().await;
        assert_eq!(
            (denial.rule.as_str(), denial.what.as_str()),
            (
                "egress.name",
                "No network access to new.test:443; asked, and denied by somebody"
            )
        );
        // In plain HTTP the program is told.
        let heard = world
            .answer("new.test", 80, "GET / HTTP/1.1\r\nHost: new.test\r\n\r\n")
            .await;
        assert_answer(&heard, "403", "denied by somebody");
        assert!(world.looked_up().is_empty());
        assert_eq!((tls.count(), plain.count()), (0, 0));
    });
}

#[test]
fn a_yes_without_a_rule_lets_nothing_through() {
    within(async {
        let (person, world) = world().await;
        echo(PUBLIC, 443);
        person.says_yes();
        assert_eq!(world.hear_of("new.test", 443).await.0, ALERT);
        assert!(world.looked_up().is_empty());
    });
}

#[test]
fn requests_and_tunnels_are_held_as_connections_are() {
    within(async {
        let (person, world) = world().await;
        let _heard = servers::http(PUBLIC, 80);
        echo(PUBLIC, 443);
        let mut straight = world.connect("new.test", 80).await;
        straight
            .say("GET / HTTP/1.1\r\nHost: new.test\r\nConnection: close\r\n\r\n")
            .await;
        person.hears_of(1).await;
        let mut by_proxy = world.proxy().await;
        by_proxy
            .say("GET http://new.test/ HTTP/1.1\r\nHost: new.test\r\nConnection: close\r\n\r\n")
            .await;
        person.hears_of(2).await;
        let mut tunnel = world.tunnel("new.test:443").await;
        assert_eq!(
            person.hears_of(3).await,
            ["new.test:80", "new.test:80", "new.test:443"]
        );
        world.set_rules(&["new.test"]);
        person.says_yes();
        for talk in [&mut straight, &mut by_proxy] {
            let heard = talk.hear_text().await;
            assert_answer(&heard, "200", "");
        }
        tunnel.hear_until("\r\n\r\n").await;
        tunnel.is_echoed(tls()).await;
    });
}

#[test]
fn a_port_that_rules_do_not_name_is_asked_about_and_one_that_nobody_listens_at_is_not() {
    within(async {
        let (person, world) = world().await;
        echo(PUBLIC, 443);
        let mut talk = person.holds(&world, "api.test").await;
        person.says_no();
        talk.hear_all().await;
        world.is_denied("egress.port", "").await;
        assert_eq!(world.hear_of("api.test", 9999).await, (Vec::new(), End::Reset));
        assert_eq!(person.heard().len(), 1);
    });
}

/// claim: [APR-8]
#[test]
fn nobody_is_asked_about_addresses_nor_about_names_of_networks_of_ones_own() {
    within(async {
        let (person, world) = world().await;
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
            let mut talk = world.tunnel(target).await;
            let heard = talk.hear_text().await;
            assert!(heard.starts_with("HTTP/1.1 403"), "{target}: {heard}");
        }
        hear_of((DOOR, 443)).await;
        assert!(person.heard().is_empty(), "{:?}", person.heard());
        // The control: of a name somebody is asked.
        let _talk = world.tunnel("new.test:443").await;
        person.hears_of(1).await;
    });
}

#[test]
fn a_name_that_turns_out_to_lead_inside_is_refused_all_the_same() {
    within(async {
        let (person, world) = world().await;
        world.resolves("cloud.test", &["169.254.169.254"]);
        let mut talk = person.holds(&world, "cloud.test").await;
        world.set_rules(&["cloud.test"]);
        person.says_yes();
        talk.hear_all().await;
        world.is_denied("egress.address", "").await;
    });
}

/// claim: [APR-8]
#[test]
fn so_many_connections_wait_and_so_many_names_are_looked_up() {
    within(async {
        let (person, world) = world().await;
        let address = world.lookup("new.test").await.expect("an address");
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(Talk::to((address, 443)).await);
        }
        person.hears_of(16).await;
        assert_eq!(hear_of((address, 443)).await.0, ALERT);
        world.is_denied("egress.name", "too many connections wait").await;
        // Those who go away make room.
        drop(held);
        person.says_no();
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
            "what rules allow has its room"
        );
        assert!(world.looked_up().is_empty());
    });
}

#[test]
fn a_name_that_came_by_the_proxy_counts_as_one_that_was_looked_up() {
    within(async {
        let (person, world) = world().await;
        person.says_no();
        for number in 0..20 {
            let target = format!("{number:02}x9kq7zvb3mw8tj5hrd2ncfy.evil.test:443");
            let mut talk = world.tunnel(&target).await;
            talk.hear_text().await;
        }
        assert_eq!(person.heard().len(), 16);
    });
}

#[test]
fn a_connection_is_not_idle_while_it_waits() {
    within(async {
        let (person, world) = world_with(|limits| limits.idle = Duration::from_millis(300)).await;
        echo(PUBLIC, 443);
        let mut talk = person.holds(&world, "new.test").await;
        let cut = timeout(Duration::from_millis(1500), talk.0.read_u8()).await;
        assert!(cut.is_err(), "{cut:?}");
        world.set_rules(&["new.test"]);
        person.says_yes();
        assert_eq!(talk.hear(tls().len()).await, tls());
    });
}

#[test]
fn when_nobody_can_be_asked_any_more_it_is_as_if_nobody_ever_could() {
    within(async {
        let (person, world) = world().await;
        let address = world.lookup("new.test").await.expect("an address");
        person.listens.store(false, Ordering::Relaxed);
        assert!(world.lookup("other.test").await.is_ok());
        assert_eq!(hear_of((address, 443)).await.0, ALERT);
        assert!(person.heard().is_empty());
        world.is_denied("egress.name", "").await;
    });
}
