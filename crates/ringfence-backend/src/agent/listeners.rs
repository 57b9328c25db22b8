//! What a program finds of the network: the container's own loopback, where this agent answers names and accepts
//! connections. Each connection goes to the server with the address that was meant; the server decides.

use crate::{
    Failure,
    calls::Wait,
    frame::{Kind, ListenerKind},
    stream::Streams,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
};

/// Where names are answered and a proxy listens. All of 127/8 is the loopback device's, and needs no right.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);
const DNS_PORT: u16 = 53;
const PROXY_PORT: u16 = 3128;
const PORTS_READY: [u16; 2] = [80, 443];
/// Questions that have no answer yet; an older one is forgotten.
const QUESTIONS: usize = 256;
const QUERY_BYTES_MAX: usize = 4096;

pub struct Listeners {
    questions: UdpSocket,
    asked: Vec<Option<SocketAddr>>,
    next: usize,
    listeners: Vec<(ListenerKind, TcpListener)>,
}

impl Listeners {
    pub fn open() -> Result<Self, Failure> {
        let questions = UdpSocket::bind((GATEWAY, DNS_PORT)).map_err(Failure::at("listen for questions"))?;
        questions
            .set_nonblocking(true)
            .map_err(Failure::at("listen for questions"))?;
        let mut listeners = Self {
            questions,
            asked: vec![None; QUESTIONS],
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

    /// Of the questions, then of the listeners.
    pub fn waits(&self, has_room: bool) -> Vec<Wait> {
        let questions = Wait::new(&self.questions, true, false);
        let listeners = self
            .listeners
            .iter()
            .map(|(_, listener)| Wait::new(listener, has_room, false));
        std::iter::once(questions).chain(listeners).collect()
    }

    /// What came in, as frames; the waits are those of [`Self::waits`].
    pub fn serve(&mut self, waits: &[Wait], streams: &mut Streams) -> Vec<(Kind, u32, Vec<u8>)> {
        let mut frames = Vec::new();
        let Some((questions, listeners)) = waits.split_first() else {
            return frames;
        };
        if questions.can_read() {
            frames.extend(self.question());
        }
        for ((kind, listener), wait) in self.listeners.iter().zip(listeners) {
            if wait.can_read() {
                frames.extend(accept(*kind, listener, streams).ok().flatten());
            }
        }
        frames
    }

    fn question(&mut self) -> Option<(Kind, u32, Vec<u8>)> {
        let mut query = vec![0; QUERY_BYTES_MAX];
        let (bytes, from) = self.questions.recv_from(&mut query).ok()?;
        query.truncate(bytes);
        let number = self.next;
        self.asked[number] = Some(from);
        self.next = (number + 1) % QUESTIONS;
        Some((Kind::Query, u32::try_from(number).ok()?, query))
    }

    pub fn answer(&mut self, number: u32, answer: &[u8]) {
        let asked = self.asked.get_mut(number as usize).and_then(Option::take);
        if let (Some(to), false) = (asked, answer.is_empty()) {
            // It may be gone.
            drop(self.questions.send_to(answer, to));
        }
    }
}

fn accept(
    kind: ListenerKind,
    listener: &TcpListener,
    streams: &mut Streams,
) -> io::Result<Option<(Kind, u32, Vec<u8>)>> {
    let (connection, _) = listener.accept()?;
    let meant = connection.local_addr()?;
    let IpAddr::V4(address) = meant.ip() else {
        return Ok(None);
    };
    let number = streams.add(connection)?;
    let mut payload = vec![kind as u8];
    payload.extend(meant.port().to_le_bytes());
    payload.extend(address.octets());
    Ok(Some((Kind::Open, number, payload)))
}
