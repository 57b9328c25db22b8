//! The rules on arguments, each with uses that are allowed and uses that are not. The live tests try the same on the
//! kernel.

use crate::{
    ALL, FULL, FULL_UNCOUNTED, LANDLOCK, LANDLOCK_UNCOUNTED,
    machine::{self, Answer, Call, plain},
};
use ringfence_jail::seccomp::Profile;

pub const ALLOW: Answer = Answer::Allow;
pub const EPERM: Answer = Answer::Errno(libc::EPERM);
const EINVAL: Answer = Answer::Errno(libc::EINVAL);
const ENOMEM: Answer = Answer::Errno(libc::ENOMEM);
const ENOSYS: Answer = Answer::Errno(libc::ENOSYS);
/// Success, and the call is not made.
const NO_OP: Answer = Answer::Errno(0);
const FAMILY: Answer = Answer::Errno(libc::EAFNOSUPPORT);

/// A use of a call, and the answer of the first profile.
#[derive(Clone)]
pub struct Case {
    pub text: String,
    pub call: Call,
    pub expect: Answer,
}

macro_rules! case {
    ($call:ident($($argument:expr),*) $expect:expr) => {
        case(
            &stringify!($call($($argument),*)).replace("libc::", "")[4..],
            libc::$call,
            &[$(i64::from($argument)),*],
            $expect,
        )
    };
}

fn case(text: &str, number: i64, given: &[i64], expect: Answer) -> Case {
    let mut call = plain(number);
    for (argument, value) in call.arguments.iter_mut().zip(given) {
        *argument = u64::from_ne_bytes(value.to_ne_bytes());
    }
    Case {
        text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        call,
        expect,
    }
}

const MPTCP: i32 = 262;
const NETLINK_GENERIC: i32 = 16;
const TYPE_FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
const RESET_ON_FORK: i32 = 0x4000_0000;
const FILTER: u32 = libc::SECCOMP_SET_MODE_FILTER;
const SHARED: i32 = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const TIOCSTI: i64 = 0x5412;
const TIOCLINUX: i64 = 0x541c;
const TIOCSETD: i64 = 0x5423;
const UPPER: i64 = 0x7fff_ffff << 32;

fn namespaces() -> Vec<Case> {
    const THREAD: i64 = 0x003d_0f00; // the flags of pthread_create
    const NEWTIME: i64 = 0x80;
    vec![
        case!(SYS_clone(libc::SIGCHLD) ALLOW),
        case!(SYS_clone(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) ALLOW),
        case!(SYS_clone(THREAD) ALLOW),
        case!(SYS_clone(NEWTIME) ALLOW), // a bit of the exit signal: not a flag of this call
        case!(SYS_clone(libc::CLONE_NEWUSER | libc::SIGCHLD) EPERM),
        case!(SYS_clone(libc::CLONE_NEWNS) EPERM),
        case!(SYS_clone(libc::CLONE_NEWPID) EPERM),
        case!(SYS_clone(libc::CLONE_NEWNET) EPERM),
        case!(SYS_clone(libc::CLONE_NEWIPC) EPERM),
        case!(SYS_clone(libc::CLONE_NEWUTS) EPERM),
        case!(SYS_clone(libc::CLONE_NEWCGROUP) EPERM),
        case!(SYS_clone(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_VM) EPERM),
        case!(SYS_clone(UPPER | i64::from(libc::CLONE_NEWUSER)) EPERM),
        case!(SYS_clone(libc::CLONE_PARENT | libc::SIGCHLD) EPERM),
        case!(SYS_clone(UPPER | i64::from(libc::CLONE_PARENT)) EPERM),
        case!(SYS_clone(libc::CLONE_FILES | libc::SIGCHLD) EPERM),
        case!(SYS_clone(libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD) EPERM),
        case!(SYS_clone(libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) EPERM),
        case!(SYS_clone3(0, 0) ENOSYS),
        case!(SYS_unshare(0) EPERM),
    ]
}

fn sockets() -> Vec<Case> {
    vec![
        case!(SYS_socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) ALLOW),
        case!(SYS_socket(libc::AF_UNIX, libc::SOCK_DGRAM | TYPE_FLAGS, 0) ALLOW),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_STREAM | TYPE_FLAGS, libc::IPPROTO_TCP) ALLOW),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_STREAM, 0) ALLOW),
        case!(SYS_socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP) ALLOW),
        case!(SYS_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE) ALLOW),
        case!(SYS_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_XFRM) FAMILY),
        case!(SYS_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER) FAMILY),
        case!(SYS_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT) FAMILY),
        case!(SYS_socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_GENERIC) FAMILY),
        case!(SYS_socket(libc::AF_UNSPEC, libc::SOCK_STREAM, 0) FAMILY),
        case!(SYS_socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0) FAMILY),
        case!(SYS_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0) FAMILY),
        case!(SYS_socket(libc::AF_PACKET, libc::SOCK_RAW, 0) FAMILY),
        case!(SYS_socket(libc::AF_KEY, libc::SOCK_RAW, 2) FAMILY),
        case!(SYS_socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1) FAMILY),
        case!(SYS_socket(libc::AF_CAN, libc::SOCK_RAW, 1) FAMILY),
        case!(SYS_socket(libc::AF_TIPC, libc::SOCK_STREAM, 0) FAMILY),
        case!(SYS_socket(libc::AF_RDS, libc::SOCK_SEQPACKET, 0) FAMILY),
        case!(SYS_socket(libc::AF_XDP, libc::SOCK_RAW, 0) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP) FAMILY),
        case!(SYS_socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_STREAM, MPTCP) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_RAW, 0) FAMILY),
        case!(SYS_socket(libc::AF_INET, libc::SOCK_RAW | TYPE_FLAGS, libc::IPPROTO_TCP) FAMILY),
        case!(SYS_socket(libc::AF_INET6, libc::SOCK_SEQPACKET, 0) FAMILY),
        case!(SYS_socket(UPPER | i64::from(libc::AF_ALG), libc::SOCK_SEQPACKET, 0) FAMILY),
        case!(SYS_socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, 0) ALLOW),
        case!(SYS_socketpair(libc::AF_TIPC, libc::SOCK_STREAM, 0, 0) FAMILY),
        case!(SYS_setsockopt(0, libc::SOL_SOCKET, libc::SO_REUSEADDR) ALLOW),
        case!(SYS_setsockopt(0, libc::IPPROTO_TCP, libc::TCP_NODELAY) ALLOW),
        case!(SYS_setsockopt(0, libc::SOL_SOCKET, libc::TCP_ULP) ALLOW),
        case!(SYS_setsockopt(0, libc::IPPROTO_TCP, libc::TCP_ULP) EPERM),
    ]
}

fn socket_options() -> Vec<Case> {
    const REUSEPORT_CBPF: i32 = 51;
    const REUSEPORT_EBPF: i32 = 52;
    vec![
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, libc::SO_REUSEADDR) ALLOW),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, libc::SO_SNDBUF) NO_OP),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, libc::SO_RCVBUF) NO_OP),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) EPERM),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, libc::SO_ATTACH_BPF) EPERM),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, REUSEPORT_CBPF) EPERM),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, REUSEPORT_EBPF) EPERM),
        case!(SYS_setsockopt(3, libc::SOL_SOCKET, libc::SO_DETACH_FILTER) ALLOW),
        case!(SYS_setsockopt(3, libc::IPPROTO_TCP, libc::TCP_NODELAY) ALLOW),
        case!(SYS_setsockopt(3, libc::IPPROTO_TCP, libc::TCP_MD5SIG) EPERM),
        case!(SYS_setsockopt(3, libc::IPPROTO_TCP, 32) EPERM), // TCP_MD5SIG_EXT
        case!(SYS_setsockopt(3, libc::IPPROTO_TCP, 38) EPERM), // TCP_AO_ADD_KEY
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) ALLOW),
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP) EPERM),
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, 6) EPERM), // IPV6_2292PKTOPTIONS
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, 32) EPERM), // IPV6_FLOWLABEL_MGR
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, 27) EPERM), // IPV6_JOIN_ANYCAST
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, 42) EPERM), // MCAST_JOIN_GROUP
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, 46) EPERM), // MCAST_JOIN_SOURCE_GROUP
        case!(SYS_setsockopt(3, libc::IPPROTO_IPV6, 48) EPERM), // MCAST_MSFILTER
        case!(SYS_setsockopt(3, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP) ALLOW), // the kernel bounds them
        case!(SYS_setsockopt(3, libc::IPPROTO_UDP, libc::UDP_SEGMENT) ALLOW),
        case!(SYS_setsockopt(3, libc::IPPROTO_UDP, libc::UDP_ENCAP) EPERM),
        case!(SYS_setsockopt(3, libc::IPPROTO_UDPLITE, libc::UDP_ENCAP) EPERM),
    ]
}

fn locks_and_hints() -> Vec<Case> {
    vec![
        case!(SYS_fcntl(3, libc::F_SETLK) ALLOW),
        case!(SYS_fcntl(3, libc::F_SETLKW) ALLOW),
        case!(SYS_fcntl(3, libc::F_OFD_GETLK) EINVAL),
        case!(SYS_fcntl(3, libc::F_OFD_SETLK) EINVAL),
        case!(SYS_fcntl(3, libc::F_OFD_SETLKW) EINVAL),
        case!(SYS_fcntl(3, libc::F_DUPFD_CLOEXEC) ALLOW),
        case!(SYS_fcntl(3, libc::F_SETLEASE) EPERM),
        case!(SYS_fcntl(3, 1040) EPERM), // F_SETDELEG
        case!(SYS_fcntl(3, UPPER | 1040) EPERM),
    ]
}

fn core_dumps() -> Vec<Case> {
    vec![
        case!(SYS_prlimit64(0, libc::RLIMIT_CORE, 0) ALLOW), // a query
        case!(SYS_prlimit64(0, libc::RLIMIT_CORE, 1_i64 << 40) NO_OP),
        case!(SYS_prlimit64(0, libc::RLIMIT_NOFILE, 1_i64 << 40) ALLOW),
        case!(SYS_setrlimit(libc::RLIMIT_CORE, 4711) NO_OP),
        case!(SYS_setrlimit(libc::RLIMIT_NOFILE, 4711) ALLOW),
    ]
}

fn terminals_and_devices() -> Vec<Case> {
    let request = |name: &str, request: i64, expect| {
        case(
            &format!("ioctl(0, {name})"),
            libc::SYS_ioctl,
            &[0, request],
            expect,
        )
    };
    let known = |name: &str, number: libc::Ioctl| request(name, i64::try_from(number).unwrap(), ALLOW);
    vec![
        known("TCGETS", libc::TCGETS),
        known("TCSETSW", libc::TCSETSW),
        known("TIOCGWINSZ", libc::TIOCGWINSZ),
        known("TIOCSCTTY", libc::TIOCSCTTY),
        known("TIOCGPTN", libc::TIOCGPTN),
        known("TIOCSPTLCK", libc::TIOCSPTLCK),
        known("FIONREAD", libc::FIONREAD),
        known("FIOCLEX", libc::FIOCLEX),
        known("FICLONE", libc::FICLONE),
        known("SIOCGIFHWADDR", libc::SIOCGIFHWADDR),
        request("TIOCSTI", TIOCSTI, EPERM),
        request("TIOCSTI, upper bits set", UPPER | TIOCSTI, EPERM),
        request("TIOCSTI, sign extended", -0x1_0000_0000 | TIOCSTI, EPERM),
        request("TIOCLINUX", TIOCLINUX, EPERM),
        request("TIOCLINUX, upper bits set", UPPER | TIOCLINUX, EPERM),
        request("TIOCSETD", TIOCSETD, EPERM),
        request("TIOCCONS", 0x541d, EPERM),
        request("SIOCSIFFLAGS", 0x8914, EPERM),
        request("SIOCETHTOOL", 0x8946, EPERM),
        request("FS_IOC_SETFLAGS", 0x4008_6602, EPERM),
        request("NS_GET_USERNS", 0xb701, EPERM),
        request("BLKRRPART", 0x125f, EPERM),
        case!(SYS_mknodat(0, 0, libc::S_IFIFO | 0o600) ALLOW),
        case!(SYS_mknodat(0, 0, libc::S_IFREG | 0o600) ALLOW),
        case!(SYS_mknodat(0, 0, 0o600) ALLOW),
        case!(SYS_mknodat(0, 0, libc::S_IFSOCK) ALLOW),
        case!(SYS_mknodat(0, 0, libc::S_IFCHR | 0o666) EPERM),
        case!(SYS_mknodat(0, 0, libc::S_IFBLK | 0o660) EPERM),
        #[cfg(target_arch = "x86_64")]
        case!(SYS_mknod(0, libc::S_IFIFO | 0o600) ALLOW),
        #[cfg(target_arch = "x86_64")]
        case!(SYS_mknod(0, libc::S_IFCHR | 0o666) EPERM),
        #[cfg(target_arch = "x86_64")]
        case!(SYS_mknod(0, libc::S_IFBLK) EPERM),
    ]
}

fn oneself() -> Vec<Case> {
    vec![
        case!(SYS_prctl(libc::PR_SET_NAME) ALLOW),
        case!(SYS_prctl(libc::PR_SET_NO_NEW_PRIVS) ALLOW),
        case!(SYS_prctl(libc::PR_SET_SECCOMP) ALLOW),
        case!(SYS_prctl(libc::PR_SET_VMA) ALLOW),
        case!(SYS_prctl(libc::PR_SET_CHILD_SUBREAPER) ALLOW),
        case!(SYS_prctl(libc::PR_CAPBSET_READ) ALLOW),
        case!(SYS_prctl(libc::PR_SET_MM) EPERM),
        case!(SYS_prctl(libc::PR_SET_SECUREBITS) EPERM),
        case!(SYS_prctl(libc::PR_MCE_KILL) EPERM),
        case!(SYS_prctl(libc::PR_TASK_PERF_EVENTS_DISABLE) EPERM),
        case!(SYS_prctl(0) EPERM),
        case!(SYS_prctl(UPPER | i64::from(libc::PR_SET_MM)) EPERM),
        case!(SYS_personality(0) ALLOW),
        case!(SYS_personality(0xffff_ffff_u32) ALLOW),
        case!(SYS_personality(-1) ALLOW),
        case!(SYS_personality(libc::ADDR_NO_RANDOMIZE) EPERM),
        case!(SYS_personality(libc::READ_IMPLIES_EXEC) EPERM),
        case!(SYS_personality(8) EPERM),
        case!(SYS_seccomp(libc::SECCOMP_SET_MODE_STRICT, 0) ALLOW),
        case!(SYS_seccomp(FILTER, 0) ALLOW),
        case!(SYS_seccomp(FILTER, 1) ALLOW),
        case!(SYS_seccomp(FILTER, 8) EPERM),
        case!(SYS_seccomp(FILTER, 8 | 16 | 32) EPERM),
        case!(SYS_seccomp(UPPER | i64::from(FILTER), UPPER | 8) EPERM),
        case!(SYS_sched_setscheduler(0, libc::SCHED_OTHER) ALLOW),
        case!(SYS_sched_setscheduler(0, libc::SCHED_BATCH) ALLOW),
        case!(SYS_sched_setscheduler(0, libc::SCHED_IDLE | RESET_ON_FORK) ALLOW),
        case!(SYS_sched_setscheduler(0, libc::SCHED_FIFO) EPERM),
        case!(SYS_sched_setscheduler(0, libc::SCHED_RR | RESET_ON_FORK) EPERM),
        case!(SYS_sched_setscheduler(0, libc::SCHED_DEADLINE) EPERM),
        case!(SYS_sched_setscheduler(0, 7) EPERM), // SCHED_EXT
        case!(SYS_sched_setaffinity(0, 0, 0) EPERM),
        case!(SYS_setpriority(libc::PRIO_PROCESS as i32, 0, 19) ALLOW),
    ]
}

fn memory() -> Vec<Case> {
    vec![
        case!(SYS_mmap(0, 4096, 3, PRIVATE) ALLOW),
        case!(SYS_mmap(0, 1_i64 << 32, 3, PRIVATE | libc::MAP_NORESERVE) ALLOW),
        case!(SYS_mmap(0, 1 << 30, 1, libc::MAP_SHARED) ALLOW),
        case!(SYS_mmap(0, 1 << 20, 3, SHARED) ALLOW),
        case!(SYS_mmap(0, 1 << 30, 3, SHARED) ALLOW),
        case!(SYS_mmap(0, 1 << 21, 3, PRIVATE | libc::MAP_HUGETLB) ENOMEM),
        case!(SYS_mmap(0, 1 << 21, 3, PRIVATE | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB) ENOMEM),
        case!(SYS_mmap(0, 1 << 21, 3, UPPER | i64::from(PRIVATE | libc::MAP_HUGETLB)) ENOMEM),
        case!(SYS_memfd_create(0, 3) ALLOW),
        case!(SYS_memfd_create(0, 4) EINVAL),
        case!(SYS_shmget(0, 4096, libc::IPC_CREAT | 0o600) ALLOW),
        case!(SYS_shmget(0, 1 << 21, libc::IPC_CREAT | libc::SHM_HUGETLB) ENOMEM),
        case!(SYS_semget(0, 32_000, 0o600) ALLOW),
        case!(SYS_mq_open(0, 0) ENOSYS),
    ]
}

/// Pid 1 is guarded in every tier; a tier without namespaces must also refuse the rest.
fn others() -> Vec<Case> {
    vec![
        case!(SYS_prlimit64(1, 7) EPERM),
        case!(SYS_prlimit64(UPPER | 1, 7) EPERM),
        case!(SYS_setpriority(libc::PRIO_PROCESS as i32, 1, 19) EPERM),
        case!(SYS_setpriority(libc::PRIO_PGRP as i32, 0, 19) EPERM),
        case!(SYS_setpriority(libc::PRIO_USER as i32, 0, 19) EPERM),
        case!(SYS_ioprio_set(1, 1, 0) EPERM),
        case!(SYS_ioprio_set(2, 0, 0) EPERM),
        case!(SYS_ioprio_set(3, 0, 0) EPERM),
        case!(SYS_sched_setscheduler(1, libc::SCHED_IDLE) EPERM),
        case!(SYS_prlimit64(0, 7) ALLOW),
        case!(SYS_prlimit64(4711, 7) ALLOW),
        case!(SYS_setpriority(libc::PRIO_PROCESS as i32, 4711, 19) ALLOW),
        case!(SYS_ioprio_set(1, 0, 0) ALLOW),
        case!(SYS_ioprio_set(1, 4711, 0) ALLOW),
        case!(SYS_sched_setscheduler(4711, libc::SCHED_IDLE) ALLOW),
    ]
}

pub fn cases() -> Vec<Case> {
    [
        namespaces(),
        sockets(),
        socket_options(),
        locks_and_hints(),
        core_dumps(),
        terminals_and_devices(),
        oneself(),
        memory(),
        others(),
    ]
    .concat()
}

#[test]
fn each_use_gets_the_expected_answer() {
    for case in cases() {
        assert_eq!(machine::answer(FULL, case.call), case.expect, "{}", case.text);
    }
}

/// The kernel reads these arguments as 32-bit numbers; the upper half must not change an answer.
#[test]
fn upper_halves_of_arguments_are_ignored() {
    for profile in ALL {
        for case in cases() {
            for upper in [1, 0x8000_0000, 0xffff_ffff_u64] {
                let mut call = case.call;
                for (at, argument) in call.arguments.iter_mut().enumerate() {
                    // arguments that the kernel reads whole: the length of a mapping, the pointer to a limit
                    if ![(libc::SYS_mmap, 1), (libc::SYS_prlimit64, 2)].contains(&(call.number, at)) {
                        *argument = *argument & 0xffff_ffff | upper << 32;
                    }
                }
                let plain_answer = machine::answer(profile, case.call);
                assert_eq!(
                    machine::answer(profile, call),
                    plain_answer,
                    "{} under {upper:#x}",
                    case.text
                );
            }
        }
    }
}

fn check(profiles: &[Profile], table: &[(Case, Answer)]) {
    for (profile, (case, expect)) in profiles
        .iter()
        .flat_map(|p| table.iter().map(move |row| (p, row)))
    {
        assert_eq!(
            machine::answer(*profile, case.call),
            *expect,
            "{profile:?}: {}",
            case.text
        );
    }
}

#[test]
fn uncounted_memory_is_refused_without_a_memory_cgroup() {
    let length = |length: i64| case("mmap", libc::SYS_mmap, &[0, length, 3, i64::from(SHARED)], ALLOW);
    let table = [
        (case!(SYS_memfd_create(0, 0) ALLOW), ENOSYS),
        (case!(SYS_shmget(0, 4096, 0o600) ALLOW), ENOSYS),
        (case!(SYS_semget(0, 32_000, 0o600) ALLOW), ENOSYS),
        (case!(SYS_msgget(0, 0o600) ALLOW), ENOSYS),
        (case!(SYS_memfd_secret(0) ALLOW), EPERM),
        (length(1 << 20), ALLOW),
        (length((1 << 20) + 1), ENOMEM),
        (length(1 << 32), ENOMEM),
        (length(-1), ENOMEM),
        (case!(SYS_mmap(0, 1 << 30, 3, PRIVATE) ALLOW), ALLOW),
        (case!(SYS_mmap(0, 1 << 30, 1, libc::MAP_SHARED) ALLOW), ALLOW),
        (
            case!(SYS_mmap(0, 1 << 30, 3, libc::MAP_SHARED_VALIDATE | libc::MAP_ANONYMOUS) ALLOW),
            ENOMEM,
        ),
    ];
    check(&[FULL_UNCOUNTED, LANDLOCK_UNCOUNTED], &table);
}

#[test]
fn landlock_tier_refuses_sockets_ipc_and_changes_to_other_processes() {
    let table = [
        (
            case!(SYS_socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) ALLOW),
            FAMILY,
        ),
        (
            case!(SYS_socket(libc::AF_INET, libc::SOCK_STREAM, 0) ALLOW),
            FAMILY,
        ),
        (
            case!(SYS_socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) ALLOW),
            FAMILY,
        ),
        (
            case!(SYS_socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, 0) ALLOW),
            ALLOW,
        ),
        (case!(SYS_shmget(0, 4096, 0o600) ALLOW), ENOSYS),
        (case!(SYS_semget(0, 1, 0o600) ALLOW), ENOSYS),
        (case!(SYS_msgget(0, 0o600) ALLOW), ENOSYS),
        (case!(SYS_mq_open(0, 0) ENOSYS), ENOSYS),
        (case!(SYS_prlimit64(0, 7) ALLOW), ALLOW),
        (case!(SYS_prlimit64(4711, 7) ALLOW), EPERM),
        (case!(SYS_setpriority(0, 0, 19) ALLOW), ALLOW),
        (case!(SYS_setpriority(0, 4711, 19) ALLOW), EPERM),
        (case!(SYS_setpriority(2, 0, 19) ALLOW), EPERM),
        (case!(SYS_ioprio_set(1, 0, 0) ALLOW), ALLOW),
        (case!(SYS_ioprio_set(1, 4711, 0) ALLOW), EPERM),
        (case!(SYS_ioprio_set(3, 0, 0) ALLOW), EPERM),
        (case!(SYS_sched_setscheduler(0, libc::SCHED_IDLE) ALLOW), ALLOW),
        (case!(SYS_sched_setscheduler(4711, libc::SCHED_IDLE) ALLOW), EPERM),
    ];
    check(&[LANDLOCK, LANDLOCK_UNCOUNTED], &table);
}

/// claim: [FS-10]
#[test]
fn landlock_tier_refuses_metadata_changes_by_the_servers_user() {
    let calls = [
        (case!(SYS_fchmod(0, 0o644) ALLOW), EPERM),
        (case!(SYS_fchmodat(0, 0, 0o644) ALLOW), EPERM),
        (case("fchmodat2", 452, &[0, 0, 0o644], ALLOW), EPERM),
        (case!(SYS_fchown(0, 0, 0) ALLOW), EPERM),
        (case!(SYS_fchownat(0, 0, 0, 0) ALLOW), EPERM),
        (case!(SYS_fsetxattr(0, 0, 0, 0) ALLOW), EPERM),
        (case!(SYS_setxattr(0, 0, 0, 0) ALLOW), EPERM),
        (case!(SYS_lremovexattr(0, 0) ALLOW), EPERM),
        (case!(SYS_utimensat(0, 1, 0, 0) ALLOW), EPERM),
        (case!(SYS_utimensat(0, 1_i64 << 32, 0, 0) ALLOW), EPERM),
        (case!(SYS_utimensat(0, 0, 1_i64 << 32, 0) ALLOW), EPERM),
        #[cfg(target_arch = "x86_64")]
        (case!(SYS_chmod(0, 0o644) ALLOW), EPERM),
        #[cfg(target_arch = "x86_64")]
        (case!(SYS_lchown(0, 0, 0) ALLOW), EPERM),
        #[cfg(target_arch = "x86_64")]
        (case!(SYS_futimesat(0, 0, 0) ALLOW), EPERM),
    ];
    check(&[LANDLOCK], &calls);
    // `touch` of an open file.
    check(&[LANDLOCK], &[(case!(SYS_utimensat(0, 0, 0, 0) ALLOW), ALLOW)]);
    // In a sandbox with a user of its own, the modes of others' files guard them.
    let allowed = calls.map(|(case, _)| (case, ALLOW));
    check(&[LANDLOCK_UNCOUNTED, FULL, FULL_UNCOUNTED], &allowed);
}
