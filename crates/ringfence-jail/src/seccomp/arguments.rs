//! Rules that look at arguments. A filter sees numbers, never what a pointer leads to; what hides behind a pointer
//! (`clone3`) is refused as a whole.

use ringfence_sys::seccomp::{Rule, Test};

/// `CLONE_NEW*` of clone(2).
const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Terminals, non-blocking modes, file flags, interface names: what C libraries ask for. Everything else speaks to
/// drivers. `TIOCSTI` and `TIOCLINUX`, which type into a terminal, are not here.
const IOCTLS: &[u64] = &[
    libc::TCGETS, libc::TCSETS, libc::TCSETSW, libc::TCSETSF, libc::TCGETA, libc::TCSETA, libc::TCSETAW, libc::TCSETAF,
    libc::TCSBRK, libc::TCXONC, libc::TCFLSH, libc::TCSBRKP, libc::TIOCEXCL, libc::TIOCNXCL, libc::TIOCSCTTY,
    libc::TIOCNOTTY, libc::TIOCGPGRP, libc::TIOCSPGRP, libc::TIOCGSID, libc::TIOCOUTQ, libc::TIOCGWINSZ, libc::TIOCSWINSZ,
    libc::TIOCPKT, libc::TIOCGPTN, libc::TIOCSPTLCK, libc::TIOCGPTPEER, libc::TIOCGPTLCK, libc::TCGETS2, libc::TCSETS2,
    libc::TCSETSW2, libc::TCSETSF2, libc::FIONREAD, libc::FIONBIO, libc::FIOASYNC, libc::FIOCLEX, libc::FIONCLEX,
    libc::FICLONE, libc::FICLONERANGE, libc::FS_IOC_GETFLAGS, libc::SIOCGIFCONF, libc::SIOCGIFNAME, libc::SIOCGIFFLAGS,
    libc::SIOCGIFADDR, libc::SIOCGIFNETMASK, libc::SIOCGIFMTU, libc::SIOCGIFINDEX, libc::SIOCGIFHWADDR,
    0x5460, // FIOQSIZE
    0x8905, // SIOCATMARK
];

/// Operations of prctl(2) that concern the caller alone.
const PRCTLS: &[i32] = &[
    libc::PR_SET_PDEATHSIG, libc::PR_GET_PDEATHSIG, libc::PR_GET_DUMPABLE, libc::PR_SET_DUMPABLE, libc::PR_GET_KEEPCAPS,
    libc::PR_SET_KEEPCAPS, libc::PR_GET_TIMING, libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_GET_SECCOMP,
    libc::PR_SET_SECCOMP, libc::PR_CAPBSET_READ, libc::PR_CAPBSET_DROP, libc::PR_GET_SECUREBITS, libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK, libc::PR_SET_CHILD_SUBREAPER, libc::PR_GET_CHILD_SUBREAPER, libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS, libc::PR_GET_TID_ADDRESS, libc::PR_SET_THP_DISABLE, libc::PR_GET_THP_DISABLE,
    libc::PR_CAP_AMBIENT, libc::PR_GET_SPECULATION_CTRL, libc::PR_SET_SPECULATION_CTRL, libc::PR_SET_VMA,
    libc::PR_SET_PTRACER,
    54, 55, 56, 60, 61, // PAC, tagged addresses (aarch64)
    50, 51, 63, 64,     // SVE, SME vector lengths (aarch64)
    65, 66,             // memory-deny-write-execute: a program may tighten itself
    0x4155_5856,        // PR_GET_AUXV
];

const SOCK_PACKET: i32 = 10;
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_FLAG_NEW_LISTENER: u32 = 8;
const SHARED_ANONYMOUS: u32 = 0x21; // MAP_SHARED (and MAP_SHARED_VALIDATE) with MAP_ANONYMOUS
/// The sampler counts a visible piece of shared memory as this much, because more cannot hide behind it.
const SHARED_ANONYMOUS_BYTES_MAX: u64 = 1 << 20;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the kernel reads 32 bits of these")]
fn word(number: impl Into<i128>) -> u32 {
    number.into() as u32
}

/// Answered "not permitted".
pub(super) fn refused() -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut refuse = |number: i64, tests: Vec<Test>| rules.push(Rule { number, tests });
    for flag in NAMESPACE_FLAGS {
        refuse(libc::SYS_clone, vec![Test::MaskIs(0, word(flag), word(flag))]);
    }
    refuse(libc::SYS_ioctl, IOCTLS.iter().map(|request| Test::IsNot(1, word(*request))).collect());
    refuse(libc::SYS_prctl, PRCTLS.iter().map(|operation| Test::IsNot(0, word(*operation))).collect());
    // Only asking, and the ordinary personality: others switch off address randomisation and checks.
    refuse(libc::SYS_personality, vec![Test::IsNot(0, 0), Test::IsNot(0, u32::MAX)]);
    refuse(
        libc::SYS_seccomp,
        vec![Test::Is(0, SECCOMP_SET_MODE_FILTER), Test::MaskIs(1, SECCOMP_FLAG_NEW_LISTENER, SECCOMP_FLAG_NEW_LISTENER)],
    );
    for policy in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE] {
        refuse(libc::SYS_sched_setscheduler, vec![Test::MaskIs(1, 0xff, word(policy))]);
    }
    for device in [libc::S_IFCHR, libc::S_IFBLK] {
        refuse(libc::SYS_mknodat, vec![Test::MaskIs(2, libc::S_IFMT, device)]);
        #[cfg(target_arch = "x86_64")]
        refuse(libc::SYS_mknod, vec![Test::MaskIs(1, libc::S_IFMT, device)]);
    }
    rules
}

/// Answered "address family not supported".
pub(super) fn sockets(network: bool) -> Vec<Rule> {
    let (unix, inet, inet6, netlink) =
        (word(libc::AF_UNIX), word(libc::AF_INET), word(libc::AF_INET6), word(libc::AF_NETLINK));
    let mut rules = vec![Rule { number: libc::SYS_socketpair, tests: vec![Test::IsNot(0, unix)] }];
    let mut refuse = |tests: Vec<Test>| rules.push(Rule { number: libc::SYS_socket, tests });
    if !network {
        refuse(Vec::new());
        return rules;
    }
    refuse([unix, inet, inet6, netlink].map(|family| Test::IsNot(0, family)).into());
    // getifaddrs(3) asks the routing family; the others (audit, netfilter, xfrm, generic) reach into the kernel.
    refuse(vec![Test::Is(0, netlink), Test::IsNot(2, word(libc::NETLINK_ROUTE))]);
    for family in [inet, inet6] {
        // streams and datagrams by TCP and UDP: no ICMP, SCTP, UDP-Lite, MPTCP, no raw packets
        let protocols = [0, word(libc::IPPROTO_TCP), word(libc::IPPROTO_UDP)].map(|protocol| Test::IsNot(2, protocol));
        refuse(std::iter::once(Test::Is(0, family)).chain(protocols).collect());
        for kind in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP, SOCK_PACKET] {
            refuse(vec![Test::Is(0, family), Test::MaskIs(1, 0xf, word(kind))]);
        }
    }
    rules
}

/// Answered "out of memory" where no cgroup counts it: large shared anonymous mappings, whose pages can be hidden by
/// unmapping them.
pub(super) fn uncounted_memory() -> Vec<Rule> {
    let tests = vec![Test::MaskIs(3, SHARED_ANONYMOUS, SHARED_ANONYMOUS), Test::Above(1, SHARED_ANONYMOUS_BYTES_MAX)];
    vec![Rule { number: libc::SYS_mmap, tests }]
}
