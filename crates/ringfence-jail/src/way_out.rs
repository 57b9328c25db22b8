//! The way out of a sandbox: sockets that are opened in its network namespace and handed to the server, which answers
//! names and accepts connections on them. The namespace has no device but its loopback; what is sent to the addresses that
//! stand for names is delivered there. A place that is claimed without a way out has none of this.

use crate::{
    enter::step,
    visit,
    wire::{Door, Failure},
};
use ringfence_sys::{channel, file, network};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// Where names are answered; `/etc/resolv.conf` of every sandbox says so.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The addresses that stand for names: those set aside for tests of network devices (RFC 2544), routed nowhere.
pub const SYNTHETIC: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// Where the proxy listens, at [`GATEWAY`], for programs that ask for one.
pub const PROXY_PORT: u16 = 3128;
/// The most ports at which one sandbox's connections are accepted.
pub const PORTS_MAX: usize = 16;

const DNS_PORT: u16 = 53;
/// Connections that wait to be accepted.
const BACKLOG: u16 = 128;
/// Attempts at ports that nobody listens at, until somebody asks for them.
const ATTEMPTS_BYTES: usize = 64 << 10;

/// What a claim brings of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayOut {
    /// At which connections are accepted.
    pub ports: Vec<u16>,
    /// Addresses that programs may name by number; connections to them are accepted as well.
    pub networks: Vec<(IpAddr, u8)>,
}

/// Has the sandbox a way out already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// No: everything is opened.
    First,
    /// Yes: the listeners that are named are opened beside what there is.
    More,
}

/// The sockets, in the order in which they are handed on: those of [`WayOut::ports`] come last.
#[derive(Debug)]
pub struct WayOutSockets {
    /// Datagrams with questions for names.
    pub dns_udp: OwnedFd,
    /// Connections with such.
    pub dns_tcp: OwnedFd,
    /// Connections of programs that use a proxy.
    pub proxy: OwnedFd,
    /// Raw: the first segments of connections to other ports.
    pub attempts: OwnedFd,
    /// Listeners, each with its port.
    pub ports: Vec<(u16, OwnedFd)>,
}

impl WayOutSockets {
    /// Of what came beside [`crate::wire::Event::Running`]; none: not as many as there should be.
    pub fn from_descriptors(way: &WayOut, descriptors: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut next = descriptors.into_iter();
        let (dns_udp, dns_tcp) = (next.next()?, next.next()?);
        let (proxy, attempts) = (next.next()?, next.next()?);
        let listeners: Vec<OwnedFd> = next.collect();
        (listeners.len() == way.ports.len()).then(|| Self {
            dns_udp,
            dns_tcp,
            proxy,
            attempts,
            ports: way.ports.iter().copied().zip(listeners).collect(),
        })
    }
}

/// What the supervisor needs to open one.
#[derive(Debug)]
pub(crate) struct Gate {
    user: OwnedFd,
    net: OwnedFd,
}

impl Gate {
    /// From the doors of a place. They stay for whoever else goes through them.
    pub(crate) fn of(doors: &HashMap<Door, OwnedFd>) -> Result<Option<Self>, Failure> {
        let Some((user, net)) = doors.get(&Door::User).zip(doors.get(&Door::Net)) else {
            return Ok(None);
        };
        let kept = |door: &OwnedFd| step("doors of the way out", door.try_clone());
        Ok(Some(Self {
            user: kept(user)?,
            net: kept(net)?,
        }))
    }

    /// Opens the whole way.
    pub(crate) fn open(gate: Option<&Self>, way: &WayOut) -> Result<Vec<OwnedFd>, Failure> {
        Self::within(gate, way, || {
            network::add_local_route(SYNTHETIC.0.into(), SYNTHETIC.1)?;
            let at = |port| SocketAddr::from((GATEWAY, port));
            let mut sockets = vec![
                network::receive_at(at(DNS_PORT))?,
                network::listen(at(DNS_PORT), BACKLOG)?,
                network::listen(at(PROXY_PORT), BACKLOG)?,
                network::observe_attempts(SYNTHETIC, &known_ports(way), ATTEMPTS_BYTES)?,
            ];
            sockets.extend(listeners(way)?);
            Ok(sockets)
        })
    }

    /// Opens more of a way that is open.
    pub(crate) fn widen(gate: Option<&Self>, more: &WayOut) -> Result<Vec<OwnedFd>, Failure> {
        Self::within(gate, more, || listeners(more))
    }

    fn within(
        gate: Option<&Self>,
        way: &WayOut,
        open: impl FnOnce() -> io::Result<Vec<OwnedFd>>,
    ) -> Result<Vec<OwnedFd>, Failure> {
        let opened = match gate {
            None => Err(io::Error::other("this place has no network of its own")),
            Some(_) if way.ports.len() > PORTS_MAX => Err(io::Error::from_raw_os_error(libc::E2BIG)),
            Some(gate) => gate.hand_out(way, open),
        };
        step("open the way out", opened)
    }

    /// Who is sent in opens the sockets and passes them back.
    fn hand_out(
        &self,
        way: &WayOut,
        open: impl FnOnce() -> io::Result<Vec<OwnedFd>>,
    ) -> io::Result<Vec<OwnedFd>> {
        let (link, theirs) = channel::pair()?;
        visit::send_in([&self.user, &self.net], || {
            for (address, prefix) in &way.networks {
                network::add_local_route(*address, *prefix)?;
            }
            let sockets = open()?;
            let handed: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            channel::send(theirs.as_fd(), b"way out", &handed)
        })?;
        drop(theirs);
        let (_, sockets) = channel::receive(link.as_fd(), &mut [0; 16])?;
        Ok(sockets)
    }
}

fn listeners(way: &WayOut) -> io::Result<Vec<OwnedFd>> {
    let at = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    way.ports
        .iter()
        .map(|port| network::listen(at(*port), BACKLOG))
        .collect()
}

/// Of which an attempt is a connection.
fn known_ports(way: &WayOut) -> Vec<u16> {
    [&way.ports[..], &[DNS_PORT, PROXY_PORT]].concat()
}

/// The most of a table of counters that is read.
const COUNTERS_BYTES_MAX: u64 = 64 << 10;

/// Packets for which the network namespace of pid 1 had no route, so far, by the kernel's counters (RFC 4293,
/// `ipSystemStatsOutNoRoutes`). Whoever tries to reach an address by number is told so at once, and counted here.
pub(crate) fn unrouted(proc: &OwnedFd) -> u64 {
    let read =
        |name: &str| file::read_small(proc.as_fd(), Path::new(name), COUNTERS_BYTES_MAX).unwrap_or_default();
    let old = column(&read("1/net/snmp"), "Ip:", "OutNoRoutes");
    let new = line(&read("1/net/snmp6"), "Ip6OutNoRoutes");
    old.saturating_add(new)
}

/// Of a table whose first line with this label names the columns, and whose second has the values.
fn column(table: &str, label: &str, name: &str) -> u64 {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(label));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let found = names
        .split_whitespace()
        .zip(values.split_whitespace())
        .find(|(known, _)| *known == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

fn line(table: &str, name: &str) -> u64 {
    let mut lines = table.lines().map(|line| line.split_whitespace());
    let found = lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()).flatten());
    found.and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let old = "Ip: Forwarding OutNoRoutes X\nIp: 2 7 1\nTcp: OutNoRoutes\nTcp: 9\n";
        assert_eq!(column(old, "Ip:", "OutNoRoutes"), 7);
        assert_eq!(column("", "Ip:", "OutNoRoutes"), 0);
        assert_eq!(column("Ip: OutNoRoutes\n", "Ip:", "OutNoRoutes"), 0);
        let new = "Ip6InReceives \t1\nIp6OutNoRoutes                  \t3\n";
        assert_eq!(line(new, "Ip6OutNoRoutes"), 3);
        assert_eq!(line(new, "Ip6Out"), 0);
    }

    #[test]
    fn sockets_are_told_apart_by_their_number() {
        let way = WayOut {
            ports: vec![80, 443],
            networks: Vec::new(),
        };
        let some = |count: usize| (0..count).map(|_| io::pipe().unwrap().0.into());
        let sockets = WayOutSockets::from_descriptors(&way, some(6)).unwrap();
        let ports: Vec<u16> = sockets.ports.iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, [80, 443]);
        assert!(WayOutSockets::from_descriptors(&way, some(5)).is_none());
        assert!(WayOutSockets::from_descriptors(&way, some(7)).is_none());
    }
}
