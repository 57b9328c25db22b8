//! Connections and questions for names that come out of a container. The agent says where each was meant to go; what
//! takes it decides what becomes of it.

use crate::frame::ListenerKind;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

/// Addresses of names in a container begin here. All of 127/8 is the loopback device's, whatever rights there are.
pub const NAMES_FROM: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 0);
/// What the container's resolver is told: where the agent answers.
pub(crate) const RESOLVER: &str = "nameserver 127.18.0.1\n";
/// Arrivals that were not taken yet.
const WAITING_MAX: usize = 64;

#[derive(Debug)]
pub enum Arrival {
    Connection {
        kind: ListenerKind,
        /// The address inside at which it was accepted.
        meant: SocketAddr,
        stream: TcpStream,
    },
    Question {
        query: Vec<u8>,
        answer: oneshot::Sender<Option<Vec<u8>>>,
    },
}

/// What comes out of one container; dropped, nothing does.
pub type Arrivals = mpsc::Receiver<Arrival>;

pub(crate) fn arrivals() -> (mpsc::Sender<Arrival>, Arrivals) {
    mpsc::channel(WAITING_MAX)
}

/// Two ends of a connection of this host's loopback: the one for what serves it, and ours. A stranger who finds the
/// listener in between is turned away by its address.
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
