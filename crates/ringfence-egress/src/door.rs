//! The doors of a sandbox: listeners that were opened inside it and are served out here. What they accept says by its own
//! address whom it is for.

use crate::{
    Destination, Host, RefusalRule, Rules,
    border::{Border, Seat},
    connection::{by_proxy, carry},
    course::{Course, opened},
    pace::Pace,
    refusal::Refusal,
    tunnel::reset,
    wire::Client,
};
use ipnet::IpNet;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};

/// After an accept that failed so long is waited, and twice as long after the next, up to the longest.
pub(crate) const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// So many connections are welcomed at once, and so many a second after that; others wait in the kernel. Each costs this
/// process about what it costs the sandbox, whose share of the processors it does not count against.
const WELCOMES_BURST: u32 = 500;
const WELCOMES_PER_SECOND: u32 = 500;
/// Until it is looked again whether there is one left.
const BREATH: Duration = Duration::from_millis(10);

/// What a door is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Programs that want a proxy.
    Proxy,
    /// Connections to the addresses that names were answered with.
    Port,
}

/// Serves one door until the lease is closed, and then sees to it that nothing of it is left.
pub(crate) async fn serve(
    door: Door,
    listener: TcpListener,
    border: Arc<Border>,
    mut closing: watch::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    let mut pause = PAUSE_FIRST;
    let mut pace = Pace::new(WELCOMES_BURST, WELCOMES_PER_SECOND);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = closing.changed() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = PAUSE_FIRST;
                while !pace.allows() {
                    sleep(BREATH).await;
                }
                match border.seat() {
                    Ok(seat) => drop(connections.spawn(welcome(door, stream, border.clone(), seat))),
                    Err(full) => {
                        border.refuse(&full);
                        reset(&stream);
                    }
                }
            }
            Err(error) => {
                pause = recover(&border, &error, pause).await;
            }
        }
    }
    connections.shutdown().await;
}

/// Waits; an accept that fails once for want of descriptors fails a million times a second.
pub(crate) async fn recover(border: &Border, error: &io::Error, pause: Duration) -> Duration {
    if pause == PAUSE_FIRST {
        tracing::warn!(namespace = %border.who().namespace, %error, "a connection could not be accepted");
    }
    sleep(pause).await;
    (pause * 2).min(PAUSE_MAX)
}

/// One connection, for as long as it may last.
async fn welcome(door: Door, stream: TcpStream, border: Arc<Border>, seat: Seat) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    let course = Course::new(border.clone());
    match door {
        Door::Proxy => course.run(by_proxy(course.clone(), Client::new(stream))).await,
        Door::Port => match stream.local_addr().map(|address| meant(&border, address)) {
            Ok(Ok(to)) => {
                course
                    .run(carry(course.clone(), Client::new(stream), to, None))
                    .await
            }
            Ok(Err(refusal)) => {
                border.refuse(&refusal);
                reset(&stream);
            }
            Err(error) => tracing::debug!(%error, "a connection was gone before it was looked at"),
        },
    }
    drop(seat);
}

/// Whom a connection to this address of the sandbox's is for: the name that the address means, or an address of a network
/// that the operator's rules name.
fn meant(border: &Border, address: SocketAddr) -> Result<Destination, Refusal> {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    if let IpAddr::V4(ip) = ip
        && let Some(name) = border.name_of(ip)
    {
        return Ok(Destination {
            host: Host::Name(name),
            port,
        });
    }
    let to = Destination {
        host: Host::Address(ip),
        port,
    };
    // The listener hears the sandbox's own loopback too. The host's is meant where a rule is about nothing else.
    if ip.is_unspecified() || (ip.is_loopback() && !names_loopback(&border.rules_now(), ip, port)) {
        let what =
            format!("{to} is inside the sandbox, and the port there is taken for connections to the outside");
        return Err(Refusal::of(RefusalRule::Address, &to, what, "connect by name"));
    }
    opened(&border.rules_now(), &to).map(|_| to)
}

/// Does a rule name this address of the host's loopback, and not only a network that has it, too.
fn names_loopback(rules: &Rules, ip: IpAddr, port: u16) -> bool {
    rules.iter().any(|rule| {
        let is_loopback =
            |network: IpNet| network.network().is_loopback() && network.broadcast().is_loopback();
        rule.network().is_some_and(is_loopback) && rule.reaches_address(ip, port)
    })
}
