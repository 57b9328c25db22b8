//! What is done to the network namespace that this process is in: its loopback, routes of the kind `local`, and sockets
//! that are handed out of it.

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use std::{
    io,
    net::{IpAddr, SocketAddr},
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
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Delivers packets for these addresses to this machine itself: `ip route add local ADDRESS/PREFIX dev lo`. A route that
/// is there already is no error.
pub fn add_local_route(address: IpAddr, prefix: u8) -> io::Result<()> {
    // Without a protocol it is NETLINK_ROUTE.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    rustix::net::send(&socket, &route_message(address, prefix), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
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

const HEADER_BYTES: usize = 16;
/// `lo` is the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// An `RTM_NEWROUTE` with its `rtmsg` and the attributes destination and device; see rtnetlink(7).
fn route_message(address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut body = vec![
        u8::try_from(family).unwrap_or(0),
        prefix,
        0, // of the source: any
        0, // type of service
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    body.extend(0_u32.to_ne_bytes());
    for (kind, value) in [
        (libc::RTA_DST, octets),
        (libc::RTA_OIF, LOOPBACK_INDEX.to_ne_bytes().to_vec()),
    ] {
        body.extend(u16::try_from(value.len() + 4).unwrap_or(0).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(0);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend(u16::try_from(flags).unwrap_or(0).to_ne_bytes());
    message.extend([0; 8]); // sequence and port: one question, one answer
    message.extend(body);
    message
}

/// A socket that takes connections at this address. Another of ours may take those at the same port of all addresses.
pub fn listen(address: SocketAddr, backlog: u16) -> io::Result<OwnedFd> {
    let listener = socket(family(address), SocketType::STREAM, None)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, i32::from(backlog))?;
    Ok(listener)
}

/// A socket that receives datagrams at this address.
pub fn receive_at(address: SocketAddr) -> io::Result<OwnedFd> {
    let receiver = socket(family(address), SocketType::DGRAM, None)?;
    rustix::net::bind(&receiver, &address)?;
    Ok(receiver)
}

/// A raw socket that is given the first segment of each TCP connection that anybody begins to an address of this
/// namespace below `prefix` (of so many bits), but not to one of these ports. What does not fit into `buffer_bytes` is lost.
pub fn observe_attempts(
    network: (std::net::Ipv4Addr, u8),
    but: &[u16],
    buffer_bytes: usize,
) -> io::Result<OwnedFd> {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP))?;
    sockopt::set_socket_recv_buffer_size(&raw, buffer_bytes)?;
    attach_filter(raw.as_fd(), &attempts(network, but)?)?;
    // What came between the two is not of the kind that was asked for.
    let mut scratch = [0; 1];
    while rustix::net::recv(&raw, &mut scratch[..], RecvFlags::DONTWAIT).is_ok() {}
    Ok(raw)
}

/// Bytes of a segment that are kept: the longest header of IP and the ports of TCP.
const KEPT_BYTES: u32 = 64;

/// Classic BPF over an IPv4 packet; see `Documentation/networking/filter.rst`.
fn attempts((network, prefix): (std::net::Ipv4Addr, u8), but: &[u16]) -> io::Result<Vec<libc::sock_filter>> {
    let too_many = || io::Error::from(io::ErrorKind::InvalidInput);
    // Jumps have one byte.
    let ports = u8::try_from(but.len())
        .ok()
        .filter(|count| *count < 200)
        .ok_or_else(too_many)?;
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    };
    const LOAD_WORD: u32 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const AND: u32 = 0x54; // BPF_ALU | BPF_AND | BPF_K
    const IF_EQUAL: u32 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const HEADER_TO_X: u32 = 0xb1; // BPF_LDX | BPF_B | BPF_MSH
    const LOAD_BYTE_AT_X: u32 = 0x50; // BPF_LD | BPF_B | BPF_IND
    const LOAD_HALF_AT_X: u32 = 0x48; // BPF_LD | BPF_H | BPF_IND
    const RETURN: u32 = 0x06;
    const SYN_AND_ACK: u32 = 0x12;
    const SYN: u32 = 0x02;
    let mut filter = vec![
        op(LOAD_WORD, 0, 0, 16), // destination
        op(AND, 0, 0, mask),
        op(IF_EQUAL, 0, ports + 6, u32::from(network) & mask),
        op(HEADER_TO_X, 0, 0, 0),
        op(LOAD_BYTE_AT_X, 0, 0, 13), // flags
        op(AND, 0, 0, SYN_AND_ACK),
        op(IF_EQUAL, 0, ports + 2, SYN),
        op(LOAD_HALF_AT_X, 0, 0, 2), // destination port
    ];
    for (number, port) in (0_u8..).zip(but) {
        filter.push(op(IF_EQUAL, ports - number, 0, u32::from(*port)));
    }
    filter.extend([op(RETURN, 0, 0, KEPT_BYTES), op(RETURN, 0, 0, 0)]);
    Ok(filter)
}

fn attach_filter(socket: BorrowedFd<'_>, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: filter.as_ptr().cast_mut(),
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
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        protocol,
    )?)
}
