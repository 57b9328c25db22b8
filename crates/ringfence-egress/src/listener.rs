//! Serves the listeners that were opened inside a sandbox. The local address of an accepted connection shows its
//! destination.

use crate::{
    Destination, Host, RefusalRule,
    connection::{Connection, check_connection},
    forward,
    refusal::Refusal,
    sandbox::{Permit, SandboxEgress},
    token_bucket::TokenBucket,
    tunnel::reset,
    wire::Client,
};
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

/// Pause after a failed accept; it doubles with each further failure, up to [`PAUSE_MAX`].
pub(crate) const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Maximum connections that a listener, also for names, accepts at once, and per second after that; more wait in the
/// kernel. Each costs this process about as much as the sandbox, and does not count against its share of the
/// processors.
const ACCEPTS_BURST: u32 = 500;
const ACCEPTS_PER_SECOND: u32 = 500;
/// Pause between two checks of that rate limit.
const RATE_CHECK_PAUSE: Duration = Duration::from_millis(10);

/// Serves one listener until the lease is closed, and then ends its connections.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    sandbox: Arc<SandboxEgress>,
    mut closing: watch::Receiver<()>,
    connection: impl Fn(TcpStream) -> Option<F>,
) {
    let mut connections = JoinSet::new();
    let mut pause = PAUSE_FIRST;
    let mut rate_limit = TokenBucket::new(ACCEPTS_BURST, ACCEPTS_PER_SECOND);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = closing.changed() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                pause = PAUSE_FIRST;
                while !rate_limit.allows() {
                    sleep(RATE_CHECK_PAUSE).await;
                }
                connection(stream).map(|connection| connections.spawn(connection));
            }
            Err(error) => pause = recover(&sandbox, &error, pause).await,
        }
    }
    connections.shutdown().await;
}

/// Pauses after a failed accept and returns the next pause: without descriptors, accept fails a million times a second.
pub(crate) async fn recover(sandbox: &SandboxEgress, error: &io::Error, pause: Duration) -> Duration {
    if pause == PAUSE_FIRST {
        tracing::warn!(namespace = %sandbox.owner().namespace, %error, "a connection could not be accepted");
    }
    sleep(pause).await;
    (pause * 2).min(PAUSE_MAX)
}

/// Returns the task of a connection, unless there are too many connections. `original_dst` is the address inside the
/// sandbox at which it was accepted; `None` for a connection to the proxy.
pub(crate) fn admit(
    sandbox: &Arc<SandboxEgress>,
    stream: TcpStream,
    original_dst: Option<SocketAddr>,
) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
    match sandbox.permit() {
        Ok(permit) => Some(serve_connection(sandbox.clone(), stream, original_dst, permit)),
        Err(full) => {
            sandbox.refuse(&full);
            reset(&stream);
            None
        }
    }
}

async fn serve_connection(
    sandbox: Arc<SandboxEgress>,
    stream: TcpStream,
    original_dst: Option<SocketAddr>,
    permit: Permit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let connection = Connection::new(sandbox.clone());
    match original_dst.map(|address| destination_of(&sandbox, address)) {
        None => {
            connection
                .run(forward::serve_proxy(connection.clone(), Client::new(stream)))
                .await
        }
        Some(Ok(to)) => {
            connection
                .run(forward::serve(connection.clone(), Client::new(stream), to, None))
                .await
        }
        Some(Err(refusal)) => {
            sandbox.refuse(&refusal);
            reset(&stream);
        }
    }
    drop(permit);
}

/// Returns the destination of a connection to this address inside the sandbox: the name that it is assigned to, or the
/// address itself if the operator's rules name its network.
fn destination_of(sandbox: &SandboxEgress, address: SocketAddr) -> Result<Destination, Refusal> {
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
    // The listener also accepts connections to the sandbox's own loopback.
    if ip.is_unspecified() || (ip.is_loopback() && sandbox.rules_now().address(ip, port).is_err()) {
        let what =
            format!("{to} is inside the sandbox, where the port is reserved for connections to the outside");
        return Err(Refusal::of(RefusalRule::Address, &to, what, "connect by name"));
    }
    check_connection(&sandbox.rules_now(), &to).map(|_| to)
}
