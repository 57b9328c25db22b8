//! Kernel memory of sockets that no memory cgroup counts: queues of netlink and datagram sockets, data that waits for
//! accept(2) or in an error queue of TCP, options. A sandbox's network namespace bounds what one socket holds of it,
//! and only the limit of open files bounds the number of sockets, so the supervisor checks.

use crate::kept_files::{KeptFiles, number};
use ringfence_sys::file;
use std::{
    fs,
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::OnceLock,
    time::Duration,
};

/// A sandbox may hold its memory limit, divided by this, uncharged.
pub(crate) const LIMIT_DIVISOR: u64 = 4;
/// Between two checks, if there are sockets enough to hold more, and if there are not: an idle session is checked
/// seldom.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
const INTERVAL_OF_FEW: Duration = Duration::from_millis(100);
/// The settings of a sandbox's network namespace (ip-sysctl, `/proc/sys/net`): the most that a TCP socket receives
/// before it is read, that it sends, that waits for one accept(2), and of one socket's options, which kernels before
/// 6.8 bound for the whole host.
pub(crate) const SETTINGS: [(&str, &str); 4] = [
    ("ipv4/tcp_rmem", "4096 65536 65536"),
    ("ipv4/tcp_wmem", "4096 65536 212992"),
    ("core/somaxconn", "128"),
    (OPTIONS, "10240"),
];
pub(crate) const OPTIONS: &str = "core/optmem_max";
const COUNTS: &str = "1/net/sockstat";
const USED: &str = "sockets: used ";
const RECEIVED_BYTES_MAX: u64 = 64 << 10;
const OPTION_BYTES_MAX: u64 = 10 << 10;
/// Stands for an unknown number: any size times this is over any limit, without overflow.
const SOCKETS_TOO_MANY: u64 = 1 << 32;
/// A list of more sockets than fit here is longer than any limit allows.
const LIST_BYTES_MAX: u64 = 8 << 20;

pub(crate) struct SocketCheck {
    /// The sandbox holds more than it may.
    pub(crate) is_over: bool,
    pub(crate) next: Duration,
}

/// Checks the sockets of a sandbox by its `/proc`. Most checks find few sockets, in a file that is kept open.
pub(crate) fn check(proc: &OwnedFd, kept: &KeptFiles, memory_bytes: u64) -> SocketCheck {
    let part = memory_bytes / LIMIT_DIVISOR;
    let sockets = match kept.read(proc.as_fd(), COUNTS) {
        Ok(text) => number(&text, USED).unwrap_or(0),
        Err(error) if is_gone(&error) => 0,
        Err(_) => SOCKETS_TOO_MANY,
    };
    if sockets.saturating_mul(OPTION_BYTES_MAX + queue_bytes_max()) <= part {
        return SocketCheck {
            is_over: false,
            next: INTERVAL_OF_FEW,
        };
    }
    let tcp = count(proc, "sockstat", "TCP: inuse ") + count(proc, "sockstat6", "TCP6: inuse ");
    let bounded = sockets * OPTION_BYTES_MAX + tcp * RECEIVED_BYTES_MAX;
    let netlink = bytes(read(proc, "netlink").as_deref(), &netlink_queue);
    let datagrams = ["udp", "udp6"].map(|name| bytes(read(proc, name).as_deref(), &udp_queue));
    let queues = datagrams.into_iter().fold(netlink, u64::saturating_add);
    SocketCheck {
        is_over: bounded.saturating_add(queues) > part,
        next: INTERVAL,
    }
}

/// The most that another queue holds: twice the host's net.core.rmem_default (socket(7)), and the message over it.
fn queue_bytes_max() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let default = fs::read_to_string("/proc/sys/net/core/rmem_default");
        let default = default.ok().and_then(|bytes| bytes.trim().parse().ok());
        // If the kernel does not say, all are checked.
        default.map_or(u64::MAX, |bytes: u64| {
            bytes.saturating_mul(2).saturating_add(64 << 10)
        })
    })
}

/// Counts the sockets of the network namespace, also those in flight (`SCM_RIGHTS`), or waiting for accept(2).
pub(crate) fn sockets(proc: &OwnedFd) -> u64 {
    count(proc, "sockstat", USED)
}

fn count(proc: &OwnedFd, name: &str, label: &str) -> u64 {
    let counts = read(proc, name);
    counts.map_or(SOCKETS_TOO_MANY, |counts| number(&counts, label).unwrap_or(0))
}

/// Reads a list. One that a kernel does not have is empty, and so is that of a sandbox that has ended. `None` if it
/// does not fit, or the kernel does not give it; an unknown list counts as too much.
fn read(proc: &OwnedFd, name: &str) -> Option<String> {
    let path = Path::new("1/net").join(name);
    match file::read_small(proc.as_fd(), &path, LIST_BYTES_MAX) {
        Ok(list) if (list.len() as u64) < LIST_BYTES_MAX => Some(list),
        Err(error) if is_gone(&error) => Some(String::new()),
        Ok(_) | Err(_) => None,
    }
}

fn is_gone(error: &io::Error) -> bool {
    /// No such process (errno(3)).
    const ESRCH: i32 = 3;
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

fn bytes(list: Option<&str>, queue: &dyn Fn(&str) -> Option<u64>) -> u64 {
    let Some(list) = list else { return u64::MAX };
    let lines = list.lines().skip(1);
    lines.filter_map(queue).fold(0, u64::saturating_add)
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
    fn queue_sizes_are_parsed_from_the_kernel_format() {
        let netlink = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                       0000000000000000 0   0          00000000 0        0        0     2        0        1\n\
                       0000000000000000 0   4711       00000000 212992   768      0     2        0        7\n";
        let sum = |list: &str, queue| bytes(Some(list), queue);
        assert_eq!(sum(netlink, &netlink_queue), 213_760);
        let udp = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                   12: 0100007F:0035 00000000:0000 07 00000010:00034000 00:00000000 00000000     0\n";
        assert_eq!(sum(udp, &udp_queue), 0x34010);
        assert_eq!(sum("sk\nnonsense\n\n", &netlink_queue), 0);
        assert_eq!(bytes(None, &udp_queue), u64::MAX);
    }

    /// In this process's own network namespace: more sockets raise the count, and none alone is over a large limit.
    #[test]
    fn sockets_are_counted() {
        let proc = file::open_directory(file::current_directory(), Path::new("/proc")).unwrap();
        let status = file::read_small(proc.as_fd(), Path::new("1/net/sockstat"), 4 << 10);
        assert!(status.is_ok(), "{status:?}");
        let _held: Vec<_> = (0..64)
            .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        assert!(sockets(&proc) >= 64);
        let seldom = check(&proc, &KeptFiles::default(), u64::MAX);
        assert!(!seldom.is_over && seldom.next == INTERVAL_OF_FEW);
        let kept = KeptFiles::default();
        let bound = sockets(&proc) * (OPTION_BYTES_MAX + RECEIVED_BYTES_MAX);
        let often = check(&proc, &kept, LIMIT_DIVISOR * bound);
        assert!(!often.is_over && often.next == INTERVAL, "empty queues");
        assert!(
            check(&proc, &kept, LIMIT_DIVISOR << 10).is_over,
            "options alone may be more"
        );
        let _more: Vec<_> = (0..64)
            .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let before = bound / (OPTION_BYTES_MAX + RECEIVED_BYTES_MAX);
        let now = number(&kept.read(proc.as_fd(), COUNTS).unwrap(), USED).unwrap();
        assert!(
            now >= before + 32,
            "{now} where {before} were: what is kept open tells anew"
        );
    }
}
