//! Set-up of the network namespace of this process: its loopback, routes of the kind `local`, and sockets that are
//! handed out of it.

use crate::{
    done,
    seccomp::{AND, JUMP_EQUAL, LOAD_WORD, Line, RETURN, line},
};
use rustix::net::{
    self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// Brings up `lo`, so that programs can talk to themselves.
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
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is; the socket is live.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    done(result)
}

/// Packets over IPv4 that a rule of routing is for; see ip-rule(8).
#[derive(Clone, Copy, Debug)]
pub enum Packets {
    /// Those to a network, of every protocol.
    To(Ipv4Addr, u8),
    TcpTo(Ipv4Addr, u8),
    TcpPort(u16),
    Tcp,
}

/// What a rule of routing does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// They go where the local routes say; without such a route the next rule decides.
    Local,
    /// They have no route.
    None,
}

/// The routing of this network namespace, over one socket of rtnetlink(7).
#[derive(Debug)]
pub struct Routing(OwnedFd);

impl Routing {
    /// Opens the socket; it stays with the namespace that it was opened in.
    pub fn open() -> io::Result<Self> {
        // Without a protocol it is NETLINK_ROUTE.
        socket(AddressFamily::NETLINK, SocketType::RAW, None).map(Self)
    }

    /// Delivers packets for these addresses to this machine itself: `ip route add local ADDRESS/PREFIX dev lo`. A route
    /// that is there already is no error.
    pub fn add_local_route(&self, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.ask(&route_message(address, prefix))
    }

    /// Adds a rule of routing; lower priorities are asked first. False: this kernel has one list of routes, without
    /// rules.
    pub fn add_rule(&self, priority: u32, packets: Packets, route: Route) -> io::Result<bool> {
        match self.ask(&rule_message(priority, packets, route)) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Removes the first rule that asks the local routes: the one that every network namespace begins with.
    pub fn remove_first_local_rule(&self) -> io::Result<()> {
        let body = rule_body(0, Route::Local);
        self.ask(&message(libc::RTM_DELRULE, 0, &body, &[]))
    }

    /// One message to the kernel, and its answer.
    fn ask(&self, message: &[u8]) -> io::Result<()> {
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

/// An `RTM_NEWRULE` with its `fib_rule_hdr` (linux/fib_rules.h) and the attributes that say for which packets it is.
fn rule_message(priority: u32, packets: Packets, route: Route) -> Vec<u8> {
    // Their numbers in linux/fib_rules.h.
    const DESTINATION: u16 = 1;
    const PRIORITY: u16 = 6;
    const PROTOCOL: u16 = 22;
    const DESTINATION_PORTS: u16 = 24;
    let tcp = (PROTOCOL, vec![6]);
    let to = |address: Ipv4Addr| (DESTINATION, address.octets().to_vec());
    let (prefix, mut attributes) = match packets {
        Packets::To(address, prefix) => (prefix, vec![to(address)]),
        Packets::TcpTo(address, prefix) => (prefix, vec![to(address), tcp]),
        Packets::TcpPort(port) => {
            let range = [port.to_ne_bytes(), port.to_ne_bytes()].concat();
            (0, vec![tcp, (DESTINATION_PORTS, range)])
        }
        Packets::Tcp => (0, vec![tcp]),
    };
    attributes.push((PRIORITY, priority.to_ne_bytes().to_vec()));
    message(libc::RTM_NEWRULE, NEW, &rule_body(prefix, route), &attributes)
}

fn rule_body(prefix: u8, route: Route) -> [u8; 12] {
    let (table, action) = match route {
        Route::Local => (libc::RT_TABLE_LOCAL, 1), // FR_ACT_TO_TBL
        Route::None => (libc::RT_TABLE_UNSPEC, 7), // FR_ACT_UNREACHABLE
    };
    let family = u8::try_from(libc::AF_INET).unwrap_or(0);
    [family, prefix, 0, 0, table, 0, 0, action, 0, 0, 0, 0]
}

const HEADER_BYTES: usize = 16;
/// `lo` is the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// An `RTM_NEWROUTE` with its `rtmsg` and the attributes destination and device; see rtnetlink(7).
fn route_message(address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let body = [
        u8::try_from(family).unwrap_or(0),
        prefix,
        0, // of the source: any
        0, // type of service
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
        0, // flags, of four bytes
        0,
        0,
        0,
    ];
    let device = (libc::RTA_OIF, LOOPBACK_INDEX.to_ne_bytes().to_vec());
    message(libc::RTM_NEWROUTE, NEW, &body, &[(libc::RTA_DST, octets), device])
}

/// Flags of a message that makes something.
const NEW: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

/// A message of rtnetlink(7): its header, its body, and attributes.
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
    message.extend([0; 8]); // sequence and port: one question, one answer
    message.extend(rest);
    message
}

/// A socket that takes connections at this address. Another of ours may take those at the same port of all addresses.
pub fn listen(address: SocketAddr, backlog: u16) -> io::Result<OwnedFd> {
    let listener = socket(family(address), SocketType::STREAM, None)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    net::bind(&listener, &address)?;
    net::listen(&listener, i32::from(backlog))?;
    Ok(listener)
}

/// A socket that receives datagrams at this address.
pub fn receive_at(address: SocketAddr) -> io::Result<OwnedFd> {
    let receiver = socket(family(address), SocketType::DGRAM, None)?;
    net::bind(&receiver, &address)?;
    Ok(receiver)
}

/// A raw socket that is given the first segment of each TCP connection over IPv4 that anybody in this namespace begins,
/// except within 127.0.0.0/8, to `own`, and to these ports. What does not fit into `buffer_bytes` is lost.
pub fn observe_attempts(own: Ipv4Addr, but: &[u16], buffer_bytes: usize) -> io::Result<OwnedFd> {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP))?;
    sockopt::set_socket_recv_buffer_size(&raw, buffer_bytes)?;
    attach_filter(raw.as_fd(), &attempts(own, but)?)?;
    Ok(raw)
}

/// Bytes of a segment that are kept: the longest header of IP and the ports of TCP.
const KEPT_BYTES: u32 = 64;

/// Classic BPF over an IPv4 packet; see `Documentation/networking/filter.rst`.
fn attempts(own: Ipv4Addr, but: &[u16]) -> io::Result<Vec<Line>> {
    let too_many = || io::Error::from(io::ErrorKind::InvalidInput);
    // Jumps have one byte.
    let ports = u8::try_from(but.len())
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
        line(LOAD_WORD, 0, 0, 16), // destination
        line(JUMP_EQUAL, ports + 8, 0, own.to_bits()),
        line(AND, 0, 0, NETWORK),
        line(JUMP_EQUAL, ports + 6, 0, LOOPBACK),
        line(HEADER_TO_X, 0, 0, 0),
        line(LOAD_BYTE_AT_X, 0, 0, 13), // flags
        line(AND, 0, 0, SYN_AND_ACK),
        line(JUMP_EQUAL, 0, ports + 2, SYN),
        line(LOAD_HALF_AT_X, 0, 0, 2), // destination port
    ];
    for (number, port) in (0_u8..).zip(but) {
        filter.push(line(JUMP_EQUAL, ports - number, 0, u32::from(*port)));
    }
    filter.extend([line(RETURN, 0, 0, KEPT_BYTES), line(RETURN, 0, 0, 0)]);
    Ok(filter)
}

fn attach_filter(socket: BorrowedFd<'_>, filter: &[Line]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let length = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
    // SAFETY: SO_ATTACH_FILTER reads a sock_fprog of `length` bytes and the instructions that it points to, which live
    // until the call returns and are not written by it; the socket is live.
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
