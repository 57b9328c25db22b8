//! Connections and DNS queries from a container. The agent reports their destinations, the receiver decides about them.

use crate::frame::ListenerKind;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

/// First address of names in a container. All of 127/8 belongs to the loopback device, with and without privileges.
pub const NAMES_FROM: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 0);
/// The container's resolv.conf, with the address at which the agent answers.
pub(crate) const RESOLVER: &str = "nameserver 127.18.0.1\n";
/// Maximum number of arrivals that are not received yet.
const ARRIVALS_MAX: usize = 64;

#[derive(Debug)]
pub enum Arrival {
    Connection {
        kind: ListenerKind,
        /// The address in the container at which it was accepted.
        destination: SocketAddr,
        stream: TcpStream,
    },
    Question {
        query: Vec<u8>,
        answer: oneshot::Sender<Option<Vec<u8>>>,
    },
}

/// Connections and queries from one container; if dropped, they are refused.
pub type Arrivals = mpsc::Receiver<Arrival>;

pub(crate) fn arrivals() -> (mpsc::Sender<Arrival>, Arrivals) {
    mpsc::channel(ARRIVALS_MAX)
}

/// Opens a loopback connection: the end to serve, and ours. Connections of other processes are dropped by address.
pub(crate) async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let ours = TcpStream::connect(listener.local_addr()?).await?;
    let own = ours.local_addr()?;
    loop {
        let (theirs, from) = listener.accept().await?;
        if from == own {
            theirs.set_nodelay(true)?;
            ours.set_nodelay(true)?;
            return Ok((theirs, ours));
        }
    }
}
