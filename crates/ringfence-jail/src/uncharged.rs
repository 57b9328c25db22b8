//! Memory of the kernel that no memory cgroup counts: what waits in the queues of a sandbox's netlink sockets, and, by
//! cgroup version 1 without its limit for sockets, of its UDP sockets. Nothing bounds the number of sockets but that of
//! open files, so the supervisor looks.

use ringfence_sys::file;
use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

/// A sandbox may hold this part of its memory limit uncharged.
pub(crate) const PART: u64 = 4;
/// Between two looks, where there are sockets enough to hold more, and where these would have to be made first: a
/// session that waits for its next call is looked at seldom.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
const INTERVAL_OF_FEW: Duration = Duration::from_millis(100);
/// What a socket's queue can hold: twice net.core.rmem_default, as socket(7) counts, and the message that is over it.
const QUEUE_BYTES_MAX: u64 = 512 << 10;
/// A list of more sockets than fit here is longer than any limit allows.
const LIST_BYTES_MAX: u64 = 8 << 20;

pub(crate) struct Look {
    /// The sandbox holds more than its part.
    pub(crate) is_over: bool,
    pub(crate) next: Duration,
}

/// By the `/proc` of a sandbox.
pub(crate) fn look(proc: &OwnedFd, memory_bytes: u64) -> Look {
    let part = memory_bytes / PART;
    if sockets(proc).saturating_mul(QUEUE_BYTES_MAX) <= part {
        return Look {
            is_over: false,
            next: INTERVAL_OF_FEW,
        };
    }
    let netlink = list(proc, "netlink").map(|list| bytes(&list, &netlink_queue));
    let datagrams = ["udp", "udp6"].map(|name| list(proc, name).map(|list| bytes(&list, &udp_queue)));
    let all = datagrams.into_iter().chain([netlink]);
    // What is too long to be read is too much.
    let all = all.map(|bytes| bytes.unwrap_or(u64::MAX));
    Look {
        is_over: all.fold(0, u64::saturating_add) > part,
        next: INTERVAL,
    }
}

/// Sockets of the sandbox's own network namespace, with those that are in no descriptor table because they are under
/// way in a message (`SCM_RIGHTS`).
pub(crate) fn sockets(proc: &OwnedFd) -> u64 {
    let counts = file::read_small(proc.as_fd(), Path::new("1/net/sockstat"), 4 << 10).unwrap_or_default();
    let used = counts
        .lines()
        .find_map(|line| line.strip_prefix("sockets: used "));
    used.and_then(|used| used.trim().parse().ok()).unwrap_or(0)
}

/// None: it does not fit. One that a kernel does not have is empty.
fn list(proc: &OwnedFd, name: &str) -> Option<String> {
    let path = Path::new("1/net").join(name);
    let list = file::read_small(proc.as_fd(), &path, LIST_BYTES_MAX).unwrap_or_default();
    ((list.len() as u64) < LIST_BYTES_MAX).then_some(list)
}

fn bytes(list: &str, queue: &dyn Fn(&str) -> Option<u64>) -> u64 {
    list.lines()
        .skip(1)
        .filter_map(queue)
        .fold(0, u64::saturating_add)
}

/// `sk Eth Pid Groups Rmem Wmem ...`, in decimal digits (net/netlink/af_netlink.c).
fn netlink_queue(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip(4);
    let (received, sent): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(received.saturating_add(sent))
}

/// `sl local_address rem_address st tx_queue:rx_queue ...`, in hexadecimal digits (proc_net_udp).
fn udp_queue(line: &str) -> Option<u64> {
    let (sent, received) = line.split_whitespace().nth(4)?.split_once(':')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(sent)?.saturating_add(number(received)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_as_the_kernel_writes_them() {
        let netlink = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                       0000000000000000 0   0          00000000 0        0        0     2        0        1\n\
                       0000000000000000 0   4711       00000000 212992   768      0     2        0        7\n";
        assert_eq!(bytes(netlink, &netlink_queue), 213_760);
        let udp = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                   12: 0100007F:0035 00000000:0000 07 00000010:00034000 00:00000000 00000000     0\n";
        assert_eq!(bytes(udp, &udp_queue), 0x34010);
        assert_eq!(bytes("sk\nnonsense\n\n", &netlink_queue), 0);
    }

    /// This process's own network namespace: more sockets raise the count, and one alone is never over.
    #[test]
    fn sockets_are_counted() {
        let proc = file::open_directory(file::current_directory(), Path::new("/proc")).unwrap();
        let status = file::read_small(proc.as_fd(), Path::new("1/net/sockstat"), 4 << 10);
        assert!(status.is_ok(), "{status:?}");
        let _held: Vec<_> = (0..64)
            .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        assert!(sockets(&proc) >= 64);
        let seldom = look(&proc, u64::MAX);
        assert!(!seldom.is_over && seldom.next == INTERVAL_OF_FEW);
        let often = look(&proc, PART << 20);
        assert!(!often.is_over && often.next == INTERVAL, "empty queues");
    }
}
