//! The egress of a sandbox: sockets that are opened in its network namespace and passed to the server, which answers
//! DNS queries and accepts connections on them. The namespace has no device but its loopback, to which the addresses
//! that stand for names are delivered. A sandbox without network access has the same sockets: its attempts are refused
//! at once, and reported by host and port.

use crate::kept_files::{KeptFiles, number};
use ringfence_sys::network::{self, Routing, RuleAction, RuleSelector};
use serde::{Deserialize, Serialize};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
};

/// The address of the DNS server and the proxy; `/etc/resolv.conf` of every sandbox names it.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The addresses that stand for names: a range reserved for tests of network devices (RFC 2544), routed nowhere.
pub const SYNTHETIC: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
pub const PROXY_PORT: u16 = 3128;
/// Maximum ports in one [`EgressSpec`].
pub const PORTS_MAX: usize = 16;

const DNS_PORT: u16 = 53;
/// The ports at which connections are accepted in every sandbox.
pub const PORTS_READY: [u16; 2] = [80, 443];
/// Sockets of every sandbox: three services, the observer, and the listeners of [`PORTS_READY`].
pub(crate) const SOCKETS_READY: u8 = 6;
const BACKLOG: u16 = 128;
/// Buffer for attempts at ports without a listener, until the server reads them.
const ATTEMPTS_BYTES: usize = 64 << 10;

/// Additions of a claim to the sockets of every sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressSpec {
    /// Ports at which connections are accepted beside [`PORTS_READY`].
    pub ports: Vec<u16>,
    /// Networks (address and prefix length) that programs may address by number; connections there are accepted, too.
    pub networks: Vec<(IpAddr, u8)>,
}

/// The sockets, in the order in which they are passed; those of [`PORTS_READY`] and [`EgressSpec::ports`] are last.
#[derive(Debug)]
pub struct EgressSockets {
    pub dns_udp: OwnedFd,
    pub dns_tcp: OwnedFd,
    pub proxy: OwnedFd,
    /// A raw socket: the first segments of connections to other ports.
    pub attempts: OwnedFd,
    pub ports: Vec<(u16, OwnedFd)>,
}

impl EgressSockets {
    /// Takes the descriptors that came with [`crate::wire::Event::Running`]. `None` if their number is wrong.
    pub fn from_descriptors(
        spec: &EgressSpec,
        descriptors: impl IntoIterator<Item = OwnedFd>,
    ) -> Option<Self> {
        let mut next = descriptors.into_iter();
        let (dns_udp, dns_tcp) = (next.next()?, next.next()?);
        let (proxy, attempts) = (next.next()?, next.next()?);
        let listeners: Vec<OwnedFd> = next.collect();
        let ports = PORTS_READY.iter().chain(&spec.ports).copied();
        (listeners.len() == PORTS_READY.len() + spec.ports.len()).then(|| Self {
            dns_udp,
            dns_tcp,
            proxy,
            attempts,
            ports: ports.zip(listeners).collect(),
        })
    }
}

/// Opens the sockets of a claim. Called in the sandbox's network namespace, with all capabilities there.
pub(crate) fn open_claimed(spec: &EgressSpec) -> io::Result<Vec<OwnedFd>> {
    let routing = Routing::open()?;
    for (address, prefix) in &spec.networks {
        routing.add_local_route(*address, *prefix)?;
        if let IpAddr::V4(address) = address {
            routing.add_rule(NAMED, RuleSelector::To(*address, *prefix), RuleAction::Local)?;
        }
    }
    listeners(&routing, &spec.ports)
}

/// Opens the sockets of every sandbox, in their order. Called in its network namespace, with all capabilities there.
pub(crate) fn open_default() -> io::Result<Vec<OwnedFd>> {
    let routing = Routing::open()?;
    routing.add_local_route(SYNTHETIC.0.into(), SYNTHETIC.1)?;
    route_by_protocol(&routing)?;
    let at = |port| SocketAddr::from((GATEWAY, port));
    let mut sockets = vec![
        network::bind_datagram(at(DNS_PORT))?,
        network::listen(at(DNS_PORT), BACKLOG)?,
        network::listen(at(PROXY_PORT), BACKLOG)?,
        network::capture_connection_attempts(GATEWAY, &PORTS_READY, ATTEMPTS_BYTES)?,
    ];
    sockets.extend(listeners(&routing, &PORTS_READY)?);
    Ok(sockets)
}

/// Priorities of the routing rules: addresses that can be reached, then ports that have listeners, then all TCP.
const NAMED: u32 = 1;
const LISTENED: u32 = 2;
const REST: u32 = 3;

/// Delivers TCP to every IPv4 address to this namespace itself, which has no listener for it: the connection is refused
/// at once, and the observer sees its destination. Other protocols have no route, so that the sender gets an error at
/// once; with the local routes alone a datagram would be lost silently. On a port that has a listener, TCP to an
/// address that stands for no name has no route either: it would appear to be connected.
fn route_by_protocol(routing: &Routing) -> io::Result<()> {
    let named = |packets| routing.add_rule(NAMED, packets, RuleAction::Local);
    if !named(RuleSelector::To(Ipv4Addr::LOCALHOST, 8))? {
        return Ok(());
    }
    named(RuleSelector::To(GATEWAY, 32))?;
    named(RuleSelector::TcpTo(SYNTHETIC.0, SYNTHETIC.1))?;
    routing.add_rule(REST, RuleSelector::Tcp, RuleAction::Local)?;
    routing.remove_first_local_rule()?;
    routing.add_local_route(Ipv4Addr::UNSPECIFIED.into(), 0)
}

fn listeners(routing: &Routing, ports: &[u16]) -> io::Result<Vec<OwnedFd>> {
    let at = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listen = |port: &u16| {
        routing.add_rule(LISTENED, RuleSelector::TcpPort(*port), RuleAction::Unreachable)?;
        network::listen(at(*port), BACKLOG)
    };
    ports.iter().map(listen).collect()
}

/// Counts the packets for which the network namespace of pid 1 had no route (RFC 4293, `ipSystemStatsOutNoRoutes`):
/// datagrams, IPv6, and connections by number to a port that has a listener. The sender gets an error at once.
pub(crate) fn unrouted(proc: &OwnedFd, kept: &KeptFiles) -> u64 {
    let read = |name| kept.read(proc.as_fd(), name).unwrap_or_default();
    let old = column(&read("1/net/snmp"), "Ip:", "OutNoRoutes");
    let new = number(&read("1/net/snmp6"), "Ip6OutNoRoutes ");
    old.saturating_add(new.unwrap_or(0))
}

/// Returns a value of a table whose first line with this label names the columns, and whose second has the values.
fn column(table: &str, label: &str, name: &str) -> u64 {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(label));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let found = pairs.find(|(known, _)| *known == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let old = "Ip: Forwarding OutNoRoutes X\nIp: 2 7 1\nTcp: OutNoRoutes\nTcp: 9\n";
        assert_eq!(column(old, "Ip:", "OutNoRoutes"), 7);
        assert_eq!(column("", "Ip:", "OutNoRoutes"), 0);
        assert_eq!(column("Ip: OutNoRoutes\n", "Ip:", "OutNoRoutes"), 0);
        let new = "Ip6InReceives \t1\nIp6OutNoRoutes                  \t3\n";
        assert_eq!(number(new, "Ip6OutNoRoutes "), Some(3));
        assert_eq!(number(new, "Ip6Out "), None);
    }

    #[test]
    fn wrong_number_of_sockets_is_refused() {
        let spec = EgressSpec {
            ports: vec![8080],
            networks: Vec::new(),
        };
        let some = |count: usize| (0..count).map(|_| io::pipe().unwrap().0.into());
        let sockets = EgressSockets::from_descriptors(&spec, some(7)).unwrap();
        let ports: Vec<u16> = sockets.ports.iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, [80, 443, 8080]);
        assert!(EgressSockets::from_descriptors(&spec, some(6)).is_none());
        assert!(EgressSockets::from_descriptors(&spec, some(8)).is_none());
    }
}
