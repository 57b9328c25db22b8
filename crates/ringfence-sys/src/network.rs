//! Setup of this process's network namespace: loopback, local routes, routing rules, and sockets that are passed out.

use crate::{
    done,
    seccomp::{AND, Instruction, JUMP_EQUAL, LOAD_WORD, RETURN, bpf},
};
use rustix::net::{
    self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// Brings up `lo`, so that programs of this namespace can connect to each other.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0),
        },
    };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = i8::try_from(*byte).unwrap_or(0) as libc::c_char;
    }
    // SAFETY: SIOCSIFFLAGS reads an ifreq; `request` is one and lives until the call returns. `socket` is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    done(result)
}

/// Selector of a routing rule for IPv4 packets; see ip-rule(8).
#[derive(Clone, Copy, Debug)]
pub enum RuleSelector {
    /// Packets of any protocol to a network: its address and prefix length.
    To(Ipv4Addr, u8),
    TcpTo(Ipv4Addr, u8),
    TcpPort(u16),
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Looks up the destination in the local table; without a matching route the next rule decides.
    Local,
    Unreachable,
}

/// Routing tables and rules of this network namespace, through one rtnetlink(7) socket.
#[derive(Debug)]
pub struct Routing(OwnedFd);

impl Routing {
    /// Opens the socket; it belongs to the namespace in which it was opened.
    pub fn open() -> io::Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        socket(AddressFamily::NETLINK, SocketType::RAW, None).map(Self)
    }

    /// Delivers packets for these addresses locally: `ip route add local ADDRESS/PREFIX dev lo`. It may exist already.
    pub fn add_local_route(&self, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.request(&route_message(address, prefix))
    }

    /// Adds a routing rule; a lower priority is evaluated first. False: this kernel has one table and no routing rules.
    pub fn add_rule(&self, priority: u32, selector: RuleSelector, action: RuleAction) -> io::Result<bool> {
        match self.request(&rule_message(priority, selector, action)) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Removes the first rule that looks up the local table: every network namespace starts with one.
    pub fn remove_first_local_rule(&self) -> io::Result<()> {
        let body = rule_body(0, RuleAction::Local);
        self.request(&message(libc::RTM_DELRULE, 0, &body, &[]))
    }

    /// Sends one message to the kernel and returns the error in its reply. `EEXIST` is not an error.
    fn request(&self, message: &[u8]) -> io::Result<()> {
        net::send(&self.0, message, SendFlags::empty())?;
        let mut answer = [0; 256];
        let (_, length) = net::recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        // nlmsghdr (16 bytes), then nlmsgerr, which begins with the error number, negated; see netlink(7).
        let errno = answer
            .get(HEADER_BYTES..HEADER_BYTES + 4)
            .filter(|_| length >= HEADER_BYTES + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_ne_bytes);
        match errno {
            Some(errno) if errno == 0 || -errno == libc::EEXIST => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
            None => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }
}

/// Builds an `RTM_NEWRULE` with its `fib_rule_hdr` (linux/fib_rules.h) and the attributes of its selector.
fn rule_message(priority: u32, selector: RuleSelector, action: RuleAction) -> Vec<u8> {
    // `FRA_*` of linux/fib_rules.h.
    const DESTINATION: u16 = 1;
    const PRIORITY: u16 = 6;
    const PROTOCOL: u16 = 22;
    const DESTINATION_PORTS: u16 = 24;
    let tcp = (PROTOCOL, vec![6]);
    let to = |address: Ipv4Addr| (DESTINATION, address.octets().to_vec());
    let (prefix, mut attributes) = match selector {
        RuleSelector::To(address, prefix) => (prefix, vec![to(address)]),
        RuleSelector::TcpTo(address, prefix) => (prefix, vec![to(address), tcp]),
        RuleSelector::TcpPort(port) => {
            let range = [port.to_ne_bytes(), port.to_ne_bytes()].concat();
            (0, vec![tcp, (DESTINATION_PORTS, range)])
        }
        RuleSelector::Tcp => (0, vec![tcp]),
    };
    attributes.push((PRIORITY, priority.to_ne_bytes().to_vec()));
    message(libc::RTM_NEWRULE, NEW, &rule_body(prefix, action), &attributes)
}

fn rule_body(prefix: u8, action: RuleAction) -> [u8; 12] {
    let (table, action) = match action {
        RuleAction::Local => (libc::RT_TABLE_LOCAL, 1), // FR_ACT_TO_TBL
        RuleAction::Unreachable => (libc::RT_TABLE_UNSPEC, 7), // FR_ACT_UNREACHABLE
    };
    let family = u8::try_from(libc::AF_INET).unwrap_or(0);
    [family, prefix, 0, 0, table, 0, 0, action, 0, 0, 0, 0]
}

const HEADER_BYTES: usize = 16;
/// `lo` is the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Builds an `RTM_NEWROUTE` with its `rtmsg` and the attributes destination and device; see rtnetlink(7).
fn route_message(address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let body = [
        u8::try_from(family).unwrap_or(0),
        prefix,
        0, // prefix length of the source: any
        0, // type of service
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
        0, // flags: four bytes
        0,
        0,
        0,
    ];
    let device = (libc::RTA_OIF, LOOPBACK_INDEX.to_ne_bytes().to_vec());
    message(libc::RTM_NEWROUTE, NEW, &body, &[(libc::RTA_DST, octets), device])
}

const NEW: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

/// Builds an rtnetlink(7) message: header, body and attributes.
fn message(kind: u16, flags: i32, body: &[u8], attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags;
    let mut rest = body.to_vec();
    for (kind, value) in attributes {
        rest.extend(u16::try_from(value.len() + 4).unwrap_or(0).to_ne_bytes());
        rest.extend(kind.to_ne_bytes());
        rest.extend(value);
        rest.resize(rest.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(HEADER_BYTES + rest.len()).unwrap_or(0);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(u16::try_from(flags).unwrap_or(0).to_ne_bytes());
    message.extend([0; 8]); // sequence and port: one request at a time
    message.extend(rest);
    message
}

/// Opens a listening socket. Another of ours may listen at the same port of all addresses (`SO_REUSEPORT`).
pub fn listen(address: SocketAddr, backlog: u16) -> io::Result<OwnedFd> {
    let listener = socket(family(address), SocketType::STREAM, None)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    net::bind(&listener, &address)?;
    net::listen(&listener, i32::from(backlog))?;
    Ok(listener)
}

pub fn bind_datagram(address: SocketAddr) -> io::Result<OwnedFd> {
    let receiver = socket(family(address), SocketType::DGRAM, None)?;
    net::bind(&receiver, &address)?;
    Ok(receiver)
}

/// Opens a raw socket that receives the first segment of each TCP connection over IPv4 that this namespace opens, but
/// not to 127.0.0.0/8, to `own` or to `ports`. Segments that do not fit into `buffer_bytes` are lost.
pub fn capture_connection_attempts(own: Ipv4Addr, ports: &[u16], buffer_bytes: usize) -> io::Result<OwnedFd> {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP))?;
    sockopt::set_socket_recv_buffer_size(&raw, buffer_bytes)?;
    attach_filter(raw.as_fd(), &connection_attempts(own, ports)?)?;
    Ok(raw)
}

/// Bytes kept of a segment: the longest IP header and the TCP ports.
const KEPT_BYTES: u32 = 64;

/// Builds the classic BPF filter over an IPv4 packet; see `Documentation/networking/filter.rst`.
fn connection_attempts(own: Ipv4Addr, excluded_ports: &[u16]) -> io::Result<Vec<Instruction>> {
    let too_many = || io::Error::from(io::ErrorKind::InvalidInput);
    // A jump offset is one byte.
    let ports = u8::try_from(excluded_ports.len())
        .ok()
        .filter(|count| *count < 200)
        .ok_or_else(too_many)?;
    const HEADER_TO_X: u16 = 0xb1; // BPF_LDX | BPF_B | BPF_MSH
    const LOAD_BYTE_AT_X: u16 = 0x50; // BPF_LD | BPF_B | BPF_IND
    const LOAD_HALF_AT_X: u16 = 0x48; // BPF_LD | BPF_H | BPF_IND
    const SYN_AND_ACK: u32 = 0x12;
    const SYN: u32 = 0x02;
    const NETWORK: u32 = 0xff00_0000;
    const LOOPBACK: u32 = 127 << 24;
    let mut filter = vec![
        bpf(LOAD_WORD, 0, 0, 16), // destination
        bpf(JUMP_EQUAL, ports + 8, 0, own.to_bits()),
        bpf(AND, 0, 0, NETWORK),
        bpf(JUMP_EQUAL, ports + 6, 0, LOOPBACK),
        bpf(HEADER_TO_X, 0, 0, 0),
        bpf(LOAD_BYTE_AT_X, 0, 0, 13), // flags
        bpf(AND, 0, 0, SYN_AND_ACK),
        bpf(JUMP_EQUAL, 0, ports + 2, SYN),
        bpf(LOAD_HALF_AT_X, 0, 0, 2), // destination port
    ];
    for (number, port) in (0_u8..).zip(excluded_ports) {
        filter.push(bpf(JUMP_EQUAL, ports - number, 0, u32::from(*port)));
    }
    filter.extend([bpf(RETURN, 0, 0, KEPT_BYTES), bpf(RETURN, 0, 0, 0)]);
    Ok(filter)
}

fn attach_filter(socket: BorrowedFd<'_>, filter: &[Instruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let length = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
    // SAFETY: SO_ATTACH_FILTER reads a sock_fprog of `length` bytes and the instructions that it points to; both live
    // until the call returns and are not written by it. The socket is open (BorrowedFd).
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    done(result)
}

fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    Ok(net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}
