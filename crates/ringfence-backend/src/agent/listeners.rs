//! The network of a program: the container's own loopback, where this agent forwards DNS queries and accepts
//! connections. Each connection goes to the server with its destination address; the server decides about it.

use crate::{
    Failure,
    calls::Polled,
    frame::{Kind, ListenerKind},
    stream::Streams,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
};

/// Address of the resolver and the proxy. All of 127/8 belongs to the loopback device and needs no privilege.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);
const DNS_PORT: u16 = 53;
const PROXY_PORT: u16 = 3128;
const PORTS_READY: [u16; 2] = [80, 443];
/// Maximum number of pending queries; a new one replaces the oldest.
const QUERIES_MAX: usize = 256;
const QUERY_BYTES_MAX: usize = 4096;

pub struct Listeners {
    resolver: UdpSocket,
    pending: Vec<Option<SocketAddr>>,
    next: usize,
    listeners: Vec<(ListenerKind, TcpListener)>,
}

impl Listeners {
    pub fn open() -> Result<Self, Failure> {
        let resolver = UdpSocket::bind((GATEWAY, DNS_PORT)).map_err(Failure::at("listen for DNS queries"))?;
        resolver
            .set_nonblocking(true)
            .map_err(Failure::at("listen for DNS queries"))?;
        let mut listeners = Self {
            resolver,
            pending: vec![None; QUERIES_MAX],
            next: 0,
            listeners: Vec::new(),
        };
        listeners.add(ListenerKind::Names, GATEWAY, DNS_PORT)?;
        listeners.add(ListenerKind::Proxy, GATEWAY, PROXY_PORT)?;
        for port in PORTS_READY {
            listeners.listen(port)?;
        }
        Ok(listeners)
    }

    pub fn listen(&mut self, port: u16) -> Result<(), Failure> {
        self.add(ListenerKind::Transparent, Ipv4Addr::UNSPECIFIED, port)
    }

    fn add(&mut self, kind: ListenerKind, address: Ipv4Addr, port: u16) -> Result<(), Failure> {
        let at = || Failure::at(format!("listen at port {port}"));
        let listener = TcpListener::bind((address, port)).map_err(at())?;
        listener.set_nonblocking(true).map_err(at())?;
        self.listeners.push((kind, listener));
        Ok(())
    }

    /// Returns the pollfd of the resolver and then of each listener.
    pub fn waits(&self, has_room: bool) -> Vec<Polled> {
        let resolver = Polled::new(&self.resolver, true, false);
        let listeners = self
            .listeners
            .iter()
            .map(|(_, listener)| Polled::new(listener, has_room, false));
        std::iter::once(resolver).chain(listeners).collect()
    }

    /// Receives queries and connections and returns their frames; `waits` is from [`Self::waits`].
    pub fn serve(&mut self, waits: &[Polled], streams: &mut Streams) -> Vec<(Kind, u32, Vec<u8>)> {
        let mut frames = Vec::new();
        let Some((resolver, listeners)) = waits.split_first() else {
            return frames;
        };
        if resolver.can_read() {
            frames.extend(self.receive_query());
        }
        for ((kind, listener), wait) in self.listeners.iter().zip(listeners) {
            if wait.can_read() {
                frames.extend(accept(*kind, listener, streams).ok().flatten());
            }
        }
        frames
    }

    fn receive_query(&mut self) -> Option<(Kind, u32, Vec<u8>)> {
        let mut query = vec![0; QUERY_BYTES_MAX];
        let (bytes, from) = self.resolver.recv_from(&mut query).ok()?;
        query.truncate(bytes);
        let number = self.next;
        self.pending[number] = Some(from);
        self.next = (number + 1) % QUERIES_MAX;
        Some((Kind::Query, u32::try_from(number).ok()?, query))
    }

    pub fn answer(&mut self, number: u32, answer: &[u8]) {
        let pending = self.pending.get_mut(number as usize).and_then(Option::take);
        if let (Some(to), false) = (pending, answer.is_empty()) {
            // The process that has sent the query may be gone.
            drop(self.resolver.send_to(answer, to));
        }
    }
}

fn accept(
    kind: ListenerKind,
    listener: &TcpListener,
    streams: &mut Streams,
) -> io::Result<Option<(Kind, u32, Vec<u8>)>> {
    let (connection, _) = listener.accept()?;
    let destination = connection.local_addr()?;
    let IpAddr::V4(address) = destination.ip() else {
        return Ok(None);
    };
    let number = streams.add(connection)?;
    let mut payload = vec![kind as u8];
    payload.extend(destination.port().to_le_bytes());
    payload.extend(address.octets());
    Ok(Some((Kind::Open, number, payload)))
}
