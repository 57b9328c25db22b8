//! The reach of an address: public, private or special, by the registries. It is checked before each dial for a
//! sandbox, so that a name never leads into the operator's own network.
//!
//! Sources: the special-purpose address registries of IANA for IPv4 and IPv6 (RFC 6890), RFC 4291 for what IPv6
//! reserves, and the documents of the clouds for their metadata services.

use crate::closed_words;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of network that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// The public Internet, the only reach that needs no permission of the operator.
    Public,
    /// The machine itself.
    Loopback,
    /// A private network: RFC 1918, unique local, and their deprecated predecessors.
    Private,
    /// The link: reached without a router.
    LinkLocal,
    /// Between a provider and its customers (RFC 6598).
    Shared,
    /// A cloud's service that issues credentials or controls the machine.
    Metadata,
    /// Several recipients at once.
    Multicast,
    /// Documentation, benchmarks, tunnels whose end cannot be seen, and addresses that were never assigned.
    Reserved,
}

/// Metadata services, which are inside other networks; looked up first.
const METADATA_V4: [Ipv4Addr; 8] = [
    Ipv4Addr::new(169, 254, 169, 254), // AWS, Google, Azure, DigitalOcean, OpenStack and others
    Ipv4Addr::new(169, 254, 170, 2),   // AWS: tasks of ECS
    Ipv4Addr::new(169, 254, 170, 23),  // AWS: pods of EKS
    Ipv4Addr::new(169, 254, 42, 42),   // Scaleway
    Ipv4Addr::new(169, 254, 0, 23),    // Tencent
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
    Ipv4Addr::new(168, 63, 129, 16),   // Azure: the virtual machine's host, at an address that looks public
];

const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // AWS
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),  // AWS: pods of EKS
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),   // Scaleway
];

/// Network, prefix length, reach. No two overlap.
const V4: [(Ipv4Addr, u32, Reach); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, Reach::Reserved),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Reach::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Reach::Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Reach::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Reach::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Reach::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reach::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Reach::Reserved),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Reach::Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Reach::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Reach::Reserved),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Reach::Reserved),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Reach::Reserved),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Reach::Multicast),
    // with the limited broadcast
    (Ipv4Addr::new(240, 0, 0, 0), 4, Reach::Reserved),
];

/// The first match counts; addresses that contain an IPv4 address are judged before ([`embedded_ipv4`]).
const V6: [(Ipv6Addr, u32, Reach); 11] = [
    (Ipv6Addr::LOCALHOST, 128, Reach::Loopback),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Reach::Private),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Reach::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Reach::LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Reach::Private),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Reach::Multicast),
    // Protocol assignments, including Teredo (2001::/32): the end of such a tunnel cannot be seen.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Reach::Reserved),
    (
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        32,
        Reach::Reserved,
    ),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Reach::Reserved),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, Reach::Reserved),
    // All that was ever assigned for the public Internet.
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Reach::Public),
];

impl Reach {
    /// Returns the reach of an address; an IPv4 address inside an IPv6 one is judged as itself.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

closed_words!(Reach: Public = "public", Loopback = "loopback", Private = "private", LinkLocal = "link-local",
    Shared = "shared", Metadata = "metadata", Multicast = "multicast", Reserved = "reserved");

fn of_v4(address: Ipv4Addr) -> Reach {
    if METADATA_V4.contains(&address) {
        return Reach::Metadata;
    }
    let holds =
        |network: Ipv4Addr, length: u32| (address.to_bits() ^ network.to_bits()) >> (32 - length) == 0;
    let found = V4.iter().find(|(network, length, _)| holds(*network, *length));
    found.map_or(Reach::Public, |(_, _, reach)| *reach)
}

fn of_v6(address: Ipv6Addr) -> Reach {
    if METADATA_V6.contains(&address) {
        return Reach::Metadata;
    }
    if let Some(reach) = embedded_ipv4(address) {
        return reach;
    }
    let holds =
        |network: Ipv6Addr, length: u32| (address.to_bits() ^ network.to_bits()) >> (128 - length) == 0;
    let found = V6.iter().find(|(network, length, _)| holds(*network, *length));
    found.map_or(Reach::Reserved, |(_, _, reach)| *reach)
}

/// Returns the reach of an address that is a notation of an IPv4 address or a tunnel to one.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Reach> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let last = of_v4(join(g, h));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(last),
        // IPv4-compatible: deprecated, so never public; `::` and `::1` are themselves.
        [0, 0, 0, 0, 0, 0] if (g, h) != (0, 0) && (g, h) != (0, 1) => Some(match last {
            Reach::Public => Reach::Reserved,
            other => other,
        }),
        [0x2002, ..] => Some(of_v4(join(b, c))),
        _ => None,
    }
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, expect: Reach) {
        assert_eq!(Reach::of(address.parse().unwrap()), expect, "{address}");
    }

    #[test]
    fn ipv4_is_judged_by_the_registry() {
        use Reach::*;
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.1.1.1",
        ] {
            check(public, Public);
        }
        for public in [
            "169.253.1.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.169.0.0",
            "198.17.255.255",
        ] {
            check(public, Public);
        }
        for public in ["198.20.0.0", "223.255.255.255", "128.0.0.1", "168.63.129.17"] {
            check(public, Public);
        }
        check("0.0.0.0", Reserved);
        check("0.1.2.3", Reserved);
        check("10.0.0.0", Private);
        check("10.255.255.255", Private);
        check("100.64.0.0", Shared);
        check("100.127.255.255", Shared);
        check("127.0.0.1", Loopback);
        check("127.255.255.254", Loopback);
        check("169.254.0.1", LinkLocal);
        check("172.16.0.0", Private);
        check("172.31.255.255", Private);
        check("192.0.0.8", Reserved);
        check("192.0.2.1", Reserved);
        check("192.88.99.1", Reserved);
        check("192.168.255.255", Private);
        check("198.18.0.1", Reserved);
        check("198.19.255.255", Reserved);
        check("198.51.100.7", Reserved);
        check("203.0.113.7", Reserved);
        check("224.0.0.251", Multicast);
        check("239.255.255.250", Multicast);
        check("240.0.0.1", Reserved);
        check("255.255.255.255", Reserved);
    }

    #[test]
    fn metadata_services_are_found_in_every_notation() {
        for address in METADATA_V4 {
            check(&address.to_string(), Reach::Metadata);
            check(&format!("::ffff:{address}"), Reach::Metadata);
            check(&format!("64:ff9b::{address}"), Reach::Metadata);
        }
        for address in METADATA_V6 {
            check(&address.to_string(), Reach::Metadata);
        }
        check("2002:a9fe:a9fe::1", Reach::Metadata);
    }

    #[test]
    fn ipv6_is_judged_by_the_registry() {
        use Reach::*;
        check("2606:4700:4700::1111", Public);
        check("2a00:1450:4001::1", Public);
        check("2001:200::1", Public);
        check("2620:4f:8000::1", Public);
        check("::", Reserved);
        check("::1", Loopback);
        check("::2", Reserved);
        check("64:ff9b:1::1", Private);
        check("64:ff9b:2::1", Reserved);
        check("100::1", Reserved);
        check("1fff::1", Reserved);
        check("2001::1", Reserved);
        check("2001:0:4136:e378:8000:63bf:3fff:fdd2", Reserved);
        check("2001:2::1", Reserved);
        check("2001:20::1", Reserved);
        check("2001:db8::1", Reserved);
        check("3fff::1", Reserved);
        check("3fff:fff::1", Reserved);
        check("3fff:1000::1", Public);
        check("4000::1", Reserved);
        check("5f00::1", Reserved);
        check("fc00::1", Private);
        check("fdff::1", Private);
        check("fe80::1", LinkLocal);
        check("febf::1", LinkLocal);
        check("fec0::1", Private);
        check("ff02::fb", Multicast);
    }

    #[test]
    fn embedded_ipv4_address_is_judged_as_itself() {
        use Reach::*;
        check("::ffff:1.1.1.1", Public);
        check("::ffff:127.0.0.1", Loopback);
        check("::ffff:10.0.0.1", Private);
        check("::ffff:0:127.0.0.1", Reserved);
        check("::127.0.0.1", Loopback);
        check("::1.1.1.1", Reserved);
        check("64:ff9b::8.8.8.8", Public);
        check("64:ff9b::192.168.0.1", Private);
        check("2002:0808:0808::1", Public);
        check("2002:7f00:0001::", Loopback);
        check("2002:c0a8:0101::1", Private);
    }
}
