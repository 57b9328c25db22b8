//! Connection attempts to ports without a listener. The kernel refuses them at once, so a raw socket keeps the first
//! segment of each, and the report says which rule was missing.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::OwnedFd,
};

/// Maximum segments read in one call.
const SEGMENTS_MAX: usize = 256;
/// The longest IPv4 header, and the part of the TCP header that is read.
const HEAD_BYTES: usize = 60 + 20;
const PROTOCOL_TCP: u8 = 6;
const FLAGS: usize = 13;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

#[derive(Debug)]
pub(crate) struct Observer {
    /// A raw socket, in the one type of the standard library that reads datagrams of any kind.
    socket: UdpSocket,
}

impl Observer {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// Destinations of connection attempts since the last call, each once; more than [`SEGMENTS_MAX`] wait for the
    /// next.
    pub(crate) fn attempts(&self) -> BTreeSet<(Ipv4Addr, u16)> {
        let mut attempts = BTreeSet::new();
        let mut segment = [0; HEAD_BYTES];
        for _ in 0..SEGMENTS_MAX {
            match self.socket.recv(&mut segment) {
                Ok(bytes) => attempts.extend(first_segment(&segment[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        attempts
    }
}

/// Returns the destination of an IPv4 packet that begins a TCP connection; `None` for other packets.
fn first_segment(packet: &[u8]) -> Option<(Ipv4Addr, u16)> {
    let first = *packet.first()?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff;
    if first >> 4 != 4 || header_bytes < 20 || fragment != 0 || *packet.get(9)? != PROTOCOL_TCP {
        return None;
    }
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    let tcp = packet.get(header_bytes..)?;
    let port = u16::from_be_bytes([*tcp.get(2)?, *tcp.get(3)?]);
    let begins = *tcp.get(FLAGS)? & (SYN | ACK) == SYN;
    begins.then_some((address.into(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[9] = PROTOCOL_TCP;
        packet[16..20].copy_from_slice(&[198, 18, 1, 7]);
        packet[22..24].copy_from_slice(&5432_u16.to_be_bytes());
        packet[20 + FLAGS] = flags;
        packet
    }

    #[test]
    fn first_segment_shows_the_destination() {
        assert_eq!(
            first_segment(&packet(SYN)),
            Some((Ipv4Addr::new(198, 18, 1, 7), 5432))
        );
        assert_eq!(first_segment(&packet(SYN | ACK)), None, "an answer");
        assert_eq!(first_segment(&packet(ACK)), None, "a later segment");
        let mut with_options = packet(SYN);
        with_options[0] = 0x46;
        with_options.splice(20..20, [0; 4]);
        assert_eq!(
            first_segment(&with_options),
            Some((Ipv4Addr::new(198, 18, 1, 7), 5432))
        );
        let mut fragment = packet(SYN);
        fragment[7] = 1;
        assert_eq!(first_segment(&fragment), None);
    }

    proptest! {
        #[test]
        fn random_packets_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            let _seen = first_segment(&bytes);
        }
    }
}
