//! Serves a sandbox whose network is elsewhere: what comes out of it was accepted there, and is handed over with the
//! address that was meant. From here on it is a connection like any other.

use crate::{dns::Transport, dns_server::DnsServer, listener::admit, sandbox::SandboxEgress};
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

#[derive(Debug)]
pub enum Forwarded {
    Proxy(TcpStream),
    /// To an address that stands for a name.
    Connection(SocketAddr, TcpStream),
    Names(TcpStream),
    /// A datagram to the name server, and where its answer goes.
    Question(Vec<u8>, oneshot::Sender<Option<Vec<u8>>>),
}

/// Until the lease is closed, or nothing more can come; then the connections end.
pub(crate) async fn serve(
    mut arrivals: mpsc::Receiver<Forwarded>,
    sandbox: Arc<SandboxEgress>,
    mut closing: watch::Receiver<()>,
    used: watch::Sender<bool>,
) {
    let names = DnsServer::new(sandbox.clone());
    let mut connections = JoinSet::new();
    loop {
        let arrived = tokio::select! {
            arrived = arrivals.recv() => arrived,
            Some(_) = connections.join_next() => continue,
            _ = closing.changed() => break,
        };
        let Some(arrived) = arrived else {
            // Those that are open go on until the lease is closed.
            drop(closing.changed().await);
            break;
        };
        used.send_replace(true);
        let (stream, meant) = match arrived {
            Forwarded::Question(query, answer) => {
                // Its sandbox may be gone.
                drop(answer.send(names.answer(&query, Transport::Udp)));
                continue;
            }
            Forwarded::Names(stream) => {
                connections.spawn(names.clone().serve_connection(stream));
                continue;
            }
            Forwarded::Proxy(stream) => (stream, None),
            Forwarded::Connection(meant, stream) => (stream, Some(meant)),
        };
        admit(&sandbox, stream, meant).map(|connection| connections.spawn(connection));
    }
    connections.shutdown().await;
}
