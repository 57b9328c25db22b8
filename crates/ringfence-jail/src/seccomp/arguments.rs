//! Rules on arguments. A filter sees numbers, never what a pointer points to; calls whose arguments are behind one
//! (`clone3`, `sched_setattr`) are refused as a whole. All tests check the half of an argument that the kernel reads.

use super::{Profile, table::Call};
use ringfence_sys::seccomp::{Rule, Test};

/// A use of an allowed call that is refused.
#[derive(Debug)]
pub struct Refusal {
    pub call: Call,
    /// Refused if all of these hold.
    pub tests: Vec<Test>,
    /// The tests in words; empty: any use.
    pub when: &'static str,
    pub why: &'static str,
}

impl Refusal {
    fn new(call: Call, tests: Vec<Test>, when: &'static str, why: &'static str) -> Self {
        Self {
            call,
            tests,
            when,
            why,
        }
    }

    pub(super) fn rule(self) -> Rule {
        Rule {
            number: self.call.1,
            tests: self.tests,
        }
    }
}

/// Allowed values of an argument, with one reason.
#[derive(Debug)]
pub struct Choice {
    pub why: &'static str,
    pub values: &'static [(&'static str, u32)],
}

macro_rules! choice {
    ($why:literal: $($value:ident $(= $number:literal)?)*) => {
        Choice { why: $why, values: &[$((stringify!($value), choice!(@ $value $($number)?))),*] }
    };
    (@ $value:ident) => { libc::$value as u32 };
    (@ $value:ident $number:literal) => { $number };
}

macro_rules! call {
    ($call:ident) => {
        (stringify!($call), libc::$call)
    };
}

/// Requests of ioctl(2). The rest reaches drivers; `TIOCSTI` and `TIOCLINUX` insert terminal input, `TIOCSETD` loads
/// line disciplines, and they are not here.
#[rustfmt::skip]
pub const IOCTLS: &[Choice] = &[
    choice!("terminal settings: isatty, stty, readline, pagers":
        TCGETS TCSETS TCSETSW TCSETSF TCGETS2 TCSETS2 TCSETSW2 TCSETSF2 TCGETA TCSETA TCSETAW TCSETAF),
    choice!("flow of a terminal: tcsendbreak, tcflow, tcflush, tcdrain":
        TCSBRK TCSBRKP TCXONC TCFLSH TIOCOUTQ TIOCEXCL TIOCNXCL TIOCGEXCL),
    choice!("control of a terminal: job control, setsid, pexpect":
        TIOCSCTTY TIOCNOTTY TIOCGPGRP TIOCSPGRP TIOCGSID),
    choice!("size of a terminal: ls, progress bars, editors":
        TIOCGWINSZ TIOCSWINSZ),
    choice!("making pseudo-terminals: openpty, script, tmux":
        TIOCGPTN TIOCSPTLCK TIOCGPTLCK TIOCGPTPEER TIOCPKT),
    choice!("descriptors: event loops, Python, libuv":
        FIONREAD FIONBIO FIOASYNC FIOCLEX FIONCLEX FIOQSIZE SIOCATMARK = 0x8905),
    choice!("files: cp --reflink, lsattr":
        FICLONE FICLONERANGE FS_IOC_GETFLAGS),
    choice!("network interfaces, reading: getifaddrs, uuid.getnode, psutil":
        SIOCGIFCONF SIOCGIFNAME SIOCGIFINDEX SIOCGIFFLAGS SIOCGIFADDR SIOCGIFNETMASK SIOCGIFBRDADDR SIOCGIFDSTADDR
        SIOCGIFMTU SIOCGIFTXQLEN SIOCGIFHWADDR),
];

/// Operations of prctl(2). The numbers without a name in `libc` are those of linux/prctl.h.
#[rustfmt::skip]
pub const PRCTLS: &[Choice] = &[
    choice!("names of threads and of memory: pthread_setname_np, Node, Android's allocator":
        PR_SET_NAME PR_GET_NAME PR_SET_VMA),
    choice!("children: supervisors, test runners":
        PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER),
    choice!("dumps and debuggers of oneself, which cannot reach further: ssh-agent, crash handlers":
        PR_SET_DUMPABLE PR_GET_DUMPABLE PR_SET_PTRACER),
    choice!("giving up rights: sandboxes in the sandbox":
        PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS PR_SET_SECCOMP PR_GET_SECCOMP PR_SET_MDWE PR_GET_MDWE = 66),
    choice!("capabilities, of which there are none to raise: libcap, setpriv":
        PR_CAPBSET_READ PR_CAPBSET_DROP PR_CAP_AMBIENT PR_GET_SECUREBITS PR_GET_KEEPCAPS PR_SET_KEEPCAPS),
    choice!("timers and pages of oneself: event loops, databases, Go":
        PR_SET_TIMERSLACK PR_GET_TIMERSLACK PR_GET_TIMING PR_SET_THP_DISABLE PR_GET_THP_DISABLE),
    choice!("facts about oneself: allocators, the loader":
        PR_GET_TID_ADDRESS PR_GET_AUXV = 0x4155_5856),
    choice!("speculation of oneself: browsers, Java":
        PR_GET_SPECULATION_CTRL PR_SET_SPECULATION_CTRL),
    choice!("vector lengths on aarch64: the C library":
        PR_SVE_SET_VL = 50 PR_SVE_GET_VL = 51 PR_SME_SET_VL = 63 PR_SME_GET_VL = 64),
    choice!("signed and tagged pointers on aarch64: the C library, allocators":
        PR_PAC_RESET_KEYS = 54 PR_SET_TAGGED_ADDR_CTRL = 55 PR_GET_TAGGED_ADDR_CTRL = 56 PR_PAC_SET_ENABLED_KEYS = 60
        PR_PAC_GET_ENABLED_KEYS = 61),
    choice!("shadow stacks on aarch64: the C library":
        PR_GET_SHADOW_STACK_STATUS = 74 PR_SET_SHADOW_STACK_STATUS = 75 PR_LOCK_SHADOW_STACK_STATUS = 76),
];

/// `CLONE_NEW*` of clone(2). `CLONE_NEWTIME` is not a flag of this call: its bit belongs to the exit signal.
pub(super) const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
/// Scheduling policies that never preempt others, because they are not realtime.
pub(super) const NON_REALTIME_POLICIES: [i32; 3] = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
const SOCK_PACKET: i32 = 10;
const IOPRIO_WHO_PROCESS: u32 = 1;
const SECCOMP_FLAG_NEW_LISTENER: u32 = 8;
const CLOSE_RANGE_UNSHARE: u32 = 2;
const MFD_HUGETLB: u32 = 4;
/// `MAP_SHARED` (and `MAP_SHARED_VALIDATE`) with `MAP_ANONYMOUS`.
const SHARED_ANONYMOUS: u32 = 0x21;
/// The sampler counts a visible piece of shared memory as this much, because more cannot hide behind it.
const SHARED_ANONYMOUS_BYTES_MAX: u64 = 1 << 20;

/// The 32 bits of a C `int` that the kernel reads.
fn word(number: i32) -> u32 {
    u32::from_ne_bytes(number.to_ne_bytes())
}

fn bits(argument: u8, mask: u32) -> Test {
    Test::MaskIs(argument, mask, mask)
}

fn none_of(argument: u8, choices: &[Choice]) -> Vec<Test> {
    let values = choices.iter().flat_map(|choice| choice.values);
    values.map(|(_, value)| Test::IsNot(argument, *value)).collect()
}

pub(super) fn refused(profile: Profile) -> Vec<Refusal> {
    let mut all: Vec<Refusal> = namespaces().collect();
    all.push(siblings());
    all.extend(unlisted());
    all.extend(kernel_interfaces());
    all.extend(socket_options());
    all.extend(descriptors());
    all.extend(devices());
    all.extend(other_processes(profile));
    if profile.is_servers_user() {
        all.extend(attributes());
    }
    all
}

/// A child of the caller's parent, such as the template: pid 1 of a sandbox cannot end before that waits for it.
fn siblings() -> Refusal {
    Refusal {
        call: call!(SYS_clone),
        tests: vec![bits(0, word(libc::CLONE_PARENT))],
        when: "with CLONE_PARENT",
        why: "makes a child of the caller's parent, outside of the sandbox, which does not wait for it",
    }
}

fn namespaces() -> impl Iterator<Item = Refusal> {
    NAMESPACE_FLAGS.into_iter().map(|flag| Refusal {
        call: call!(SYS_clone),
        tests: vec![bits(0, word(flag))],
        when: "with a CLONE_NEW* flag",
        why: "makes a namespace",
    })
}

/// Calls with one argument that has to be on a list.
fn unlisted() -> [Refusal; 4] {
    let policies = NON_REALTIME_POLICIES.map(word).into_iter();
    let policies = policies.flat_map(|policy| [policy, policy | SCHED_RESET_ON_FORK]);
    [
        Refusal {
            call: call!(SYS_ioctl),
            tests: none_of(1, IOCTLS),
            when: "any other request",
            why: "reaches drivers, or inserts terminal input",
        },
        Refusal {
            call: call!(SYS_prctl),
            tests: none_of(0, PRCTLS),
            when: "any other operation",
            why: "affects more than the caller, or is not needed",
        },
        Refusal {
            call: call!(SYS_personality),
            tests: vec![Test::IsNot(0, 0), Test::IsNot(0, u32::MAX)],
            when: "other than 0 and the query",
            why: "switches off address randomisation and checks",
        },
        Refusal {
            call: call!(SYS_sched_setscheduler),
            tests: policies.map(|policy| Test::IsNot(1, policy)).collect(),
            when: "other than normal, batch, idle",
            why: "realtime displaces every other program",
        },
    ]
}

fn kernel_interfaces() -> [Refusal; 2] {
    let (filter, listener) = (libc::SECCOMP_SET_MODE_FILTER, SECCOMP_FLAG_NEW_LISTENER);
    let (level, option) = (word(libc::IPPROTO_TCP), word(libc::TCP_ULP));
    [
        Refusal {
            call: call!(SYS_seccomp),
            tests: vec![Test::Is(0, filter), bits(1, listener)],
            when: "a filter with a listener",
            why: "a listener answers calls in place of the kernel",
        },
        Refusal {
            call: call!(SYS_setsockopt),
            tests: vec![Test::Is(1, level), Test::Is(2, option)],
            when: "TCP_ULP",
            why: "puts protocols of the kernel on top of TCP; TLS libraries do without",
        },
    ]
}

/// Kernel memory of sockets that no limit counts. The numbers: linux/tcp.h, linux/in6.h, linux/udp.h and
/// asm-generic/socket.h.
fn socket_options() -> impl Iterator<Item = Refusal> {
    const FILTERS: &str =
        "SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF";
    const KEYS: &str = "TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY";
    const LABELS: &str = "IPV6_FLOWLABEL_MGR";
    const TUNNELS: &str = "puts IPsec and tunnels of the kernel behind a socket";
    const GROUPS: &str = "IPV6_2292PKTOPTIONS, IPV6_ADD_MEMBERSHIP, IPV6_JOIN_ANYCAST, MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP, MCAST_MSFILTER";
    let level = |level: i32, options: &'static [u32], when, why| {
        let tests = move |option: &u32| vec![Test::Is(1, word(level)), Test::Is(2, *option)];
        let refusal = move |option| Refusal::new(call!(SYS_setsockopt), tests(option), when, why);
        options.iter().map(refusal)
    };
    let filters = level(libc::SOL_SOCKET, &[26, 50, 51, 52], FILTERS, SHARED_CODE);
    let keys = level(
        libc::IPPROTO_TCP,
        &[14, 32, 38],
        KEYS,
        "for routers, and unlimited in number",
    );
    let groups = level(
        libc::IPPROTO_IPV6,
        &[6, 20, 27, 42, 46, 48],
        GROUPS,
        "of any size, or unlimited in number",
    );
    let labels = level(
        libc::IPPROTO_IPV6,
        &[32],
        LABELS,
        "one table of 4,096 for all of the host",
    );
    let tunnels = [libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE].into_iter();
    let tunnels = tunnels.flat_map(move |level_of_udp| level(level_of_udp, &[100], "UDP_ENCAP", TUNNELS));
    filters.chain(keys).chain(groups).chain(labels).chain(tunnels)
}

const SHARED_CODE: &str =
    "the memory for compiled filters is shared by all programs of the host (net.core.bpf_jit_limit)";

/// Answered with success, and not made: settings for speed or for safety, without which programs continue.
pub(super) fn no_op_uses() -> Vec<Refusal> {
    const BUFFERS: &str = "queues of sockets that no limit of the sandbox counts";
    const DUMPS: &str = "at a limit other than 1 the kernel starts the host's program for core dumps";
    let buffer = |option| {
        let tests = vec![Test::Is(1, word(libc::SOL_SOCKET)), Test::Is(2, word(option))];
        Refusal::new(call!(SYS_setsockopt), tests, "SO_SNDBUF, SO_RCVBUF", BUFFERS)
    };
    let dumps = |call, tests| Refusal::new(call, tests, "of RLIMIT_CORE", DUMPS);
    let core = libc::RLIMIT_CORE;
    vec![
        buffer(libc::SO_SNDBUF),
        buffer(libc::SO_RCVBUF),
        dumps(call!(SYS_setrlimit), vec![Test::Is(0, core)]),
        dumps(call!(SYS_prlimit64), vec![Test::Is(1, core), Test::Above(2, 0)]),
    ]
}

/// Answered EINVAL, as by a kernel without filters.
pub fn own_filters() -> Vec<Refusal> {
    let (filter, mode) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_MODE_FILTER);
    let refusal = |call, tests| Refusal::new(call, tests, "a filter of the program's own", SHARED_CODE);
    vec![
        refusal(call!(SYS_seccomp), vec![Test::Is(0, filter)]),
        refusal(
            call!(SYS_prctl),
            vec![Test::Is(0, word(libc::PR_SET_SECCOMP)), Test::Is(1, mode)],
        ),
    ]
}

/// Calls that would hide open files or locks from their count, or block the owners of files.
fn descriptors() -> [Refusal; 8] {
    const F_SETDELEG: i32 = 1040;
    const F_SET_RW_HINT: i32 = 1036;
    const F_SET_FILE_RW_HINT: i32 = 1038;
    const HINTS: &str = "is kept with the file, also behind a read-only mount, for other sandboxes to read";
    const LEASES: &str = "other processes that open the file, on the host too, wait for the holder";
    const NOTES: &str = "reports what others do in a directory that is the host's too";
    const OWN_TABLE: &str = "a thread with its own descriptor table, which no sample of the tree finds";
    let fcntl = |command, when, why| {
        let tests = vec![Test::Is(1, word(command))];
        Refusal::new(call!(SYS_fcntl), tests, when, why)
    };
    [
        Refusal {
            call: call!(SYS_close_range),
            tests: vec![bits(2, CLOSE_RANGE_UNSHARE)],
            when: "CLOSE_RANGE_UNSHARE",
            why: OWN_TABLE,
        },
        Refusal {
            call: call!(SYS_clone),
            tests: vec![
                bits(0, word(libc::CLONE_THREAD)),
                Test::MaskIs(0, word(libc::CLONE_FILES), 0),
            ],
            when: "a thread without CLONE_FILES",
            why: OWN_TABLE,
        },
        Refusal {
            call: call!(SYS_clone),
            tests: vec![
                bits(0, word(libc::CLONE_FILES)),
                Test::MaskIs(0, word(libc::CLONE_THREAD), 0),
            ],
            when: "a process with CLONE_FILES",
            why: "a descriptor table of several processes, whose record locks belong to all of them",
        },
        fcntl(libc::F_SETLEASE, "F_SETLEASE", LEASES),
        fcntl(F_SETDELEG, "F_SETDELEG", LEASES),
        fcntl(F_SET_RW_HINT, "F_SET_RW_HINT", HINTS),
        fcntl(F_SET_FILE_RW_HINT, "F_SET_FILE_RW_HINT", HINTS),
        fcntl(libc::F_NOTIFY, "F_NOTIFY", NOTES),
    ]
}

/// Answered EPERM where a program may write a directory of the host: a file with these bits, left there by a server
/// that is root, would run as root for every user who starts it.
pub(super) fn set_id_bits() -> Vec<Refusal> {
    // Without one of these flags, open(2) ignores its mode.
    let makes = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
    let modes: &[((&'static str, i64), u8)] = &[
        (call!(SYS_fchmod), 1),
        (call!(SYS_fchmodat), 2),
        (("SYS_fchmodat2", 452), 2),
        (call!(SYS_mkdirat), 2),
        (call!(SYS_mknodat), 2),
        #[cfg(target_arch = "x86_64")]
        (call!(SYS_chmod), 1),
        #[cfg(target_arch = "x86_64")]
        (call!(SYS_creat), 1),
        #[cfg(target_arch = "x86_64")]
        (call!(SYS_mkdir), 1),
        #[cfg(target_arch = "x86_64")]
        (call!(SYS_mknod), 1),
    ];
    let opens: &[((&'static str, i64), u8)] = &[
        (call!(SYS_openat), 3),
        #[cfg(target_arch = "x86_64")]
        (call!(SYS_open), 2),
    ];
    let why = "left in a directory of the host, the file would run with its owner's privileges";
    let refusal = |call, tests| Refusal::new(call, tests, "a mode with set-user-id or set-group-id", why);
    let mut all = Vec::new();
    for bit in [libc::S_ISUID, libc::S_ISGID] {
        let plain = modes
            .iter()
            .map(|(call, mode)| refusal(*call, vec![bits(*mode, bit)]));
        all.extend(plain);
        for flag in makes.map(word) {
            let opening = opens
                .iter()
                .map(|(call, mode)| refusal(*call, vec![bits(mode - 1, flag), bits(*mode, bit)]));
            all.extend(opening);
        }
    }
    all
}

fn devices() -> impl Iterator<Item = Refusal> {
    let refusal = |call, mode, device| {
        let tests = vec![Test::MaskIs(mode, libc::S_IFMT, device)];
        Refusal::new(call, tests, "a device", "gives access to a driver")
    };
    [libc::S_IFCHR, libc::S_IFBLK]
        .into_iter()
        .flat_map(move |device| {
            [
                refusal(call!(SYS_mknodat), 2, device),
                #[cfg(target_arch = "x86_64")]
                refusal(call!(SYS_mknod), 1, device),
            ]
        })
}

/// Limits and priorities of other processes: pid 1, and, without a pid namespace, all others of the user.
fn other_processes(profile: Profile) -> [Refusal; 6] {
    type Other = fn(u8) -> Test;
    let (other, pid, why): (Other, _, _) = match profile {
        Profile::Landlock { .. } => (
            |argument| Test::IsNot(argument, 0),
            "of a pid other than 0",
            "no pid namespace keeps it from the user's other processes",
        ),
        _ => (
            |argument| Test::Is(argument, 1),
            "of pid 1",
            "pid 1 keeps the sandbox, and belongs to the same user",
        ),
    };
    let refusal = |call, test, when| Refusal::new(call, vec![test], when, why);
    [
        refusal(call!(SYS_prlimit64), other(0), pid),
        refusal(
            call!(SYS_setpriority),
            Test::IsNot(0, libc::PRIO_PROCESS),
            "of a group or user",
        ),
        refusal(call!(SYS_setpriority), other(1), pid),
        refusal(
            call!(SYS_ioprio_set),
            Test::IsNot(0, IOPRIO_WHO_PROCESS),
            "of a group or user",
        ),
        refusal(call!(SYS_ioprio_set), other(1), pid),
        refusal(call!(SYS_sched_setscheduler), other(0), pid),
    ]
}

/// Calls that Landlock does not guard, and that the server's user may make on every file of the server. By descriptor
/// too, since a file that may only be read can be opened. What remains is `futimens` to the present time (`touch`).
fn attributes() -> Vec<Refusal> {
    let calls: &[(&'static str, i64)] = &[
        call!(SYS_fchmod),
        call!(SYS_fchmodat),
        ("SYS_fchmodat2", 452),
        call!(SYS_fchown),
        call!(SYS_fchownat),
        call!(SYS_setxattr),
        call!(SYS_lsetxattr),
        call!(SYS_fsetxattr),
        call!(SYS_removexattr),
        call!(SYS_lremovexattr),
        call!(SYS_fremovexattr),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_chmod),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_chown),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_lchown),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_utime),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_utimes),
        #[cfg(target_arch = "x86_64")]
        call!(SYS_futimesat),
    ];
    let why = "Landlock does not guard modes, owners, times and attributes: every file of the server's user would be open to it";
    let refusal = |call, tests, when| Refusal::new(call, tests, when, why);
    let all = calls.iter().map(|call| refusal(*call, Vec::new(), ""));
    let times = [(1, "by path"), (2, "other than the present")];
    let times =
        times.map(|(argument, when)| refusal(call!(SYS_utimensat), vec![Test::Above(argument, 0)], when));
    all.chain(times).collect()
}

/// Answered EOPNOTSUPP where a directory of the host is shown that the program may only read: a lock that it held there
/// would block the host's programs. Record locks (`fcntl`) that exclude others need a file that is open for writing.
pub(super) fn locks() -> Vec<Refusal> {
    let why = "a lock on a file of the host that may only be read";
    vec![Refusal::new(call!(SYS_flock), Vec::new(), "", why)]
}

/// Answered EOPNOTSUPP where the disk limit of a directory of the host is measured, as by a file system that cannot
/// reserve space: `posix_fallocate` of glibc writes instead, that of musl fails.
pub(super) fn uncounted_space() -> Vec<Refusal> {
    let freeing = word(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_COLLAPSE_RANGE);
    let reserved = "the kernel does not count it as written by the program";
    let tests = vec![Test::MaskIs(1, freeing, 0)];
    let kept = "a rule keeps a deleted file, where no measurement finds it";
    vec![
        Refusal::new(call!(SYS_fallocate), tests, "unless it frees space", reserved),
        Refusal::new(call!(SYS_landlock_create_ruleset), Vec::new(), "", kept),
        Refusal::new(call!(SYS_landlock_add_rule), Vec::new(), "", kept),
    ]
}

/// Answered EAFNOSUPPORT.
pub(super) fn families(profile: Profile) -> Vec<Refusal> {
    let [unix, inet, inet6, netlink] =
        [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(word);
    let mut all = vec![Refusal {
        call: call!(SYS_socketpair),
        tests: vec![Test::IsNot(0, unix)],
        when: "other than AF_UNIX",
        why: "no other family has pairs",
    }];
    let mut refuse = |tests, when, why| all.push(Refusal::new(call!(SYS_socket), tests, when, why));
    if let Profile::Landlock { .. } = profile {
        refuse(
            Vec::new(),
            "",
            "no network namespace: every socket would be the host's",
        );
        all.push(datagram_pairs());
        return all;
    }
    refuse(
        [unix, inet, inet6, netlink]
            .map(|family| Test::IsNot(0, family))
            .into(),
        "other than AF_UNIX, AF_INET, AF_INET6, AF_NETLINK",
        "families that ordinary programs do without, and kernel exploits do not: AF_ALG, AF_VSOCK, AF_PACKET, ...",
    );
    refuse(
        vec![Test::Is(0, netlink), Test::IsNot(2, word(libc::NETLINK_ROUTE))],
        "AF_NETLINK, other than NETLINK_ROUTE",
        "only routing is queried, by getifaddrs; the others reach into the kernel: audit, netfilter, xfrm, ...",
    );
    for family in [inet, inet6] {
        let protocols =
            [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP].map(|protocol| Test::IsNot(2, word(protocol)));
        refuse(
            [Test::Is(0, family)].into_iter().chain(protocols).collect(),
            "AF_INET, AF_INET6, other than TCP and UDP",
            "ICMP, SCTP, UDP-Lite, MPTCP: bypass the egress rules",
        );
        for kind in [
            libc::SOCK_RAW,
            libc::SOCK_RDM,
            libc::SOCK_SEQPACKET,
            libc::SOCK_DCCP,
            SOCK_PACKET,
        ] {
            refuse(
                vec![Test::Is(0, family), Test::MaskIs(1, 0xf, word(kind))],
                "AF_INET, AF_INET6, other than streams and datagrams",
                "raw packets: bypass the egress rules",
            );
        }
    }
    all
}

/// Answered EAFNOSUPPORT where a directory of the host is shown: a socket in it leads to a program of the host, and no
/// mount flag nor (before ABI 9) Landlock guards connecting to it.
pub(super) fn unix_sockets() -> Vec<Refusal> {
    let named = Refusal {
        call: call!(SYS_socket),
        tests: vec![Test::Is(0, word(libc::AF_UNIX))],
        when: "AF_UNIX",
        why: "a socket file in the host's directory leads outside",
    };
    vec![named, datagram_pairs()]
}

/// Unlike the others, a socket of a datagram pair can send to any address afterwards.
fn datagram_pairs() -> Refusal {
    Refusal {
        call: call!(SYS_socketpair),
        tests: vec![Test::MaskIs(1, 0xf, word(libc::SOCK_DGRAM))],
        when: "SOCK_DGRAM",
        why: "a datagram can be addressed to a socket file of the host",
    }
}

/// Commands of fcntl(2) for locks that belong to an open file. A program asks by the first if there are any.
pub(super) const LOCKS_OF_FILES: [i32; 3] = [libc::F_OFD_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW];

const HUGE: &str = "the host's reserve of huge pages, which no limit of ours counts";

/// Refused as by a kernel that does not know the flag or command: Chromium asks for all flags at once, and relies on
/// this answer; programs that lock open files fall back to record locks.
pub(super) fn unknown_flags(profile: Profile) -> Vec<Refusal> {
    let why = "locks without number that belong to no process, which would show them";
    let of_file = |command| {
        let tests = vec![Test::Is(1, word(command))];
        Refusal::new(
            call!(SYS_fcntl),
            tests,
            "F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW",
            why,
        )
    };
    let mut all = Vec::from(LOCKS_OF_FILES.map(of_file));
    if profile.memory_cgroup() {
        let tests = vec![bits(1, MFD_HUGETLB)];
        all.push(Refusal::new(call!(SYS_memfd_create), tests, "MFD_HUGETLB", HUGE));
    }
    all
}

pub(super) fn uncounted_memory(profile: Profile) -> Vec<Refusal> {
    let of_pages = vec![bits(3, word(libc::MAP_HUGETLB))];
    let of_segments = vec![bits(2, word(libc::SHM_HUGETLB))];
    let of_shared = vec![
        bits(3, SHARED_ANONYMOUS),
        Test::Above(1, SHARED_ANONYMOUS_BYTES_MAX),
    ];
    vec![
        Refusal::new(call!(SYS_mmap), of_pages, "MAP_HUGETLB", HUGE),
        match profile.memory_cgroup() {
            true => Refusal::new(call!(SYS_shmget), of_segments, "SHM_HUGETLB", HUGE),
            false => Refusal {
                call: call!(SYS_mmap),
                tests: of_shared,
                when: "MAP_SHARED | MAP_ANONYMOUS, over 1 MiB",
                why: "its pages hide from a sample of the tree when they are unmapped",
            },
        },
    ]
}
