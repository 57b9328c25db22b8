//! Serves a sandbox whose network is elsewhere: its connections are accepted there and handed over with their original
//! destination address. From there on they are handled like all others.

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
    /// A connection, with its original destination inside the sandbox.
    Connection(SocketAddr, TcpStream),
    Names(TcpStream),
    /// A datagram to the name server, and the channel for its answer.
    Question(Vec<u8>, oneshot::Sender<Option<Vec<u8>>>),
}

/// Serves until the lease is closed, and then ends the connections.
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
            // No more can arrive; open connections continue until the lease is closed.
            drop(closing.changed().await);
            break;
        };
        used.send_replace(true);
        let (stream, original_dst) = match arrived {
            Forwarded::Question(query, answer) => {
                // The receiver may be gone with its sandbox.
                drop(answer.send(names.answer(&query, Transport::Udp)));
                continue;
            }
            Forwarded::Names(stream) => {
                connections.spawn(names.clone().serve_connection(stream));
                continue;
            }
            Forwarded::Proxy(stream) => (stream, None),
            Forwarded::Connection(original_dst, stream) => (stream, Some(original_dst)),
        };
        admit(&sandbox, stream, original_dst).map(|connection| connections.spawn(connection));
    }
    connections.shutdown().await;
}
