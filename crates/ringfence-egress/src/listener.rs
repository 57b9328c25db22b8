//! Serves the listeners that were opened inside a sandbox. The local address of an accepted connection shows its
//! destination.

use crate::{
    Destination, Host, RefusalRule, Rules,
    connection::{Connection, check_connection},
    forward::{by_proxy, carry},
    refusal::Refusal,
    sandbox::{Permit, SandboxEgress},
    token_bucket::TokenBucket,
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

/// Wait after an accept that failed; it doubles with each further failure, up to the longest.
pub(crate) const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Connections that a listener accepts at once, also that of names, and how many a second after that; others wait in
/// the kernel. Each costs this
/// process about as much as the sandbox, and does not count against the sandbox's share of the processors.
const WELCOMES_BURST: u32 = 500;
const WELCOMES_PER_SECOND: u32 = 500;
/// Between two attempts to accept.
const BREATH: Duration = Duration::from_millis(10);

/// Serves one listener until the lease is closed, and then ends its connections.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    sandbox: Arc<SandboxEgress>,
    mut closing: watch::Receiver<()>,
    connection: impl Fn(TcpStream) -> Option<F>,
) {
    let mut connections = JoinSet::new();
    let mut pause = PAUSE_FIRST;
    let mut pace = TokenBucket::new(WELCOMES_BURST, WELCOMES_PER_SECOND);
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
                connection(stream).map(|connection| connections.spawn(connection));
            }
            Err(error) => pause = recover(&sandbox, &error, pause).await,
        }
    }
    connections.shutdown().await;
}

/// Waits; an accept that fails once for want of descriptors fails a million times a second.
pub(crate) async fn recover(sandbox: &SandboxEgress, error: &io::Error, pause: Duration) -> Duration {
    if pause == PAUSE_FIRST {
        tracing::warn!(namespace = %sandbox.owner().namespace, %error, "a connection could not be accepted");
    }
    sleep(pause).await;
    (pause * 2).min(PAUSE_MAX)
}

/// A connection for as long as it may last, unless there are too many. `meant`: the address inside the sandbox at which
/// it was accepted; none if that is the proxy's.
pub(crate) fn admit(
    sandbox: &Arc<SandboxEgress>,
    stream: TcpStream,
    meant: Option<SocketAddr>,
) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
    match sandbox.permit() {
        Ok(permit) => Some(welcome(sandbox.clone(), stream, meant, permit)),
        Err(full) => {
            sandbox.refuse(&full);
            reset(&stream);
            None
        }
    }
}

async fn welcome(
    sandbox: Arc<SandboxEgress>,
    stream: TcpStream,
    address: Option<SocketAddr>,
    permit: Permit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    let connection = Connection::new(sandbox.clone());
    match address.map(|address| meant(&sandbox, address)) {
        None => {
            connection
                .run(by_proxy(connection.clone(), Client::new(stream)))
                .await
        }
        Some(Ok(to)) => {
            connection
                .run(carry(connection.clone(), Client::new(stream), to, None))
                .await
        }
        Some(Err(refusal)) => {
            sandbox.refuse(&refusal);
            reset(&stream);
        }
    }
    drop(permit);
}

/// Whom a connection to this address of the sandbox's is for: the name that the address means, or an address of a
/// network that the operator's rules name.
fn meant(sandbox: &SandboxEgress, address: SocketAddr) -> Result<Destination, Refusal> {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    if let IpAddr::V4(ip) = ip
        && let Some(name) = sandbox.name_of(ip)
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
    if ip.is_unspecified() || (ip.is_loopback() && !names_loopback(&sandbox.rules_now(), ip, port)) {
        let what =
            format!("{to} is inside the sandbox, and the port there is taken for connections to the outside");
        return Err(Refusal::of(RefusalRule::Address, &to, what, "connect by name"));
    }
    check_connection(&sandbox.rules_now(), &to).map(|_| to)
}

/// Whether a rule names this address of the host's loopback, and not only a network that also contains it.
fn names_loopback(rules: &Rules, ip: IpAddr, port: u16) -> bool {
    rules.iter().any(|rule| {
        let is_loopback =
            |network: IpNet| network.network().is_loopback() && network.broadcast().is_loopback();
        rule.network().is_some_and(is_loopback) && rule.reaches_address(ip, port)
    })
}
