//! The same tables as a profile for container engines (the `linux.seccomp` of OCI, in Docker's format). Allowed
//! arguments are listed; an engine's rules cannot express "all but".

use super::{
    Profile, allowed,
    arguments::{IOCTLS, LOCKS_OF_FILES, NAMESPACE_FLAGS, NON_REALTIME_POLICIES, PRCTLS},
    table,
};
use ringfence_sys::seccomp::{EINVAL, ENOSYS, EPERM};
use serde_json::{Value, json};
use std::{ops::Range, sync::LazyLock};

const BY_ARGUMENT: [&str; 10] = [
    "clone",
    "fcntl",
    "socket",
    "socketpair",
    "ioctl",
    "prctl",
    "personality",
    "sched_setscheduler",
    "seccomp",
    "setsockopt",
];

pub fn container_profile() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| profile().to_string());
    &TEXT
}

fn profile() -> Value {
    let plain: Vec<&str> = allowed(Profile::Full { memory_cgroup: true })
        .flat_map(|group| group.calls)
        .map(|(name, _)| name.trim_start_matches("SYS_"))
        .filter(|name| !BY_ARGUMENT.contains(name))
        .collect();
    let names = |groups: &'static [table::CallGroup]| -> Vec<&str> {
        let calls = groups.iter().flat_map(|group| group.calls);
        calls.map(|(name, _)| name.trim_start_matches("SYS_")).collect()
    };
    let mut rules = vec![
        json!({"names": plain, "action": "SCMP_ACT_ALLOW"}),
        json!({"names": names(table::REFUSED), "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM}),
        json!({"names": names(table::NO_OP), "action": "SCMP_ACT_ERRNO", "errnoRet": 0}),
        // Older engines have no other default error, and libraries take EPERM for the final answer.
        json!({"names": names(table::ABSENT), "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}),
    ];
    let namespaces = NAMESPACE_FLAGS.into_iter().fold(0, |all, flag| all | flag);
    // A thread shares its descriptor table, a process does not.
    let thread = libc::CLONE_THREAD | libc::CLONE_FILES;
    for chosen in [0, thread] {
        let flags =
            json!({"index": 0, "value": namespaces | thread, "valueTwo": chosen, "op": "SCMP_CMP_MASKED_EQ"});
        rules.push(allow("clone", &[flags]));
    }
    let commands = FCNTLS.into_iter().flat_map(blocks);
    rules.extend(commands.map(|block| allow("fcntl", &[within(1, block)])));
    for command in LOCKS_OF_FILES {
        let is_it = equal(1, i64::from(command));
        rules.push(
            json!({"names": ["fcntl"], "action": "SCMP_ACT_ERRNO", "errnoRet": EINVAL, "args": [is_it]}),
        );
    }
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        rules.push(allow("socket", &[equal(0, i64::from(family))]));
    }
    // For reading routes and addresses.
    rules.push(allow(
        "socket",
        &[equal(0, i64::from(libc::AF_NETLINK)), equal(2, 0)],
    ));
    rules.push(allow("socketpair", &[equal(0, i64::from(libc::AF_UNIX))]));
    for (call, choices) in [("ioctl", IOCTLS), ("prctl", PRCTLS)] {
        let at = if call == "ioctl" { 1 } else { 0 };
        let values = choices.iter().flat_map(|choice| choice.values);
        // A program may install no filter of its own.
        let values = values.filter(|(name, _)| *name != "PR_SET_SECCOMP");
        rules.extend(values.map(|(_, value)| allow(call, &[equal(at, i64::from(*value))])));
    }
    for persona in [0, 0xffff_ffff] {
        rules.push(allow("personality", &[equal(0, persona)]));
    }
    for scheduler in NON_REALTIME_POLICIES {
        rules.push(allow("sched_setscheduler", &[equal(1, i64::from(scheduler))]));
    }
    for level in [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_IPV6] {
        rules.push(allow("setsockopt", &[equal(1, i64::from(level))]));
    }
    for (level, options) in [
        (libc::SOL_SOCKET, &SOCKET_OPTIONS[..]),
        (libc::IPPROTO_UDP, &UDP_OPTIONS),
    ] {
        let level = equal(1, i64::from(level));
        let options = options.iter().cloned().flat_map(blocks);
        rules.extend(options.map(|block| allow("setsockopt", &[level.clone(), within(2, block)])));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "architectures": [architecture()],
        "syscalls": rules,
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "SCMP_ARCH_AARCH64",
        _ => "SCMP_ARCH_X86_64",
    }
}

fn allow(name: &str, arguments: &[Value]) -> Value {
    json!({"names": [name], "action": "SCMP_ACT_ALLOW", "args": arguments})
}

fn equal(index: u32, value: i64) -> Value {
    json!({"index": index, "value": value, "op": "SCMP_CMP_EQ"})
}

/// All but SO_ATTACH_FILTER (26), _BPF (50), _REUSEPORT_CBPF and _EBPF (51, 52): all share the memory for filters.
const SOCKET_OPTIONS: [Range<u64>; 3] = [0..26, 27..50, 53..128];

/// All but UDP_ENCAP (100).
const UDP_OPTIONS: [Range<u64>; 2] = [0..100, 101..128];

/// Commands of fcntl(2): all but locks of open files (36 to 38), leases and delegations (1024, 1040), notices (1026),
/// and hints that are kept with a file (1036, 1038).
const FCNTLS: [Range<u64>; 5] = [0..36, 1025..1026, 1027..1036, 1037..1038, 1039..1040];

/// An aligned block of values, whose size is a power of two: a mask can express it. An engine compares 64 bits, of
/// which the kernel reads 32, so that "greater than" would let through values with upper bits set.
#[derive(Clone, Copy)]
struct Block {
    first: u64,
    size: u64,
}

fn blocks(range: Range<u64>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut first = range.start;
    while first < range.end {
        let most = 1 << (range.end - first).ilog2();
        let size = match first {
            0 => most,
            first => most.min(1 << first.trailing_zeros()),
        };
        blocks.push(Block { first, size });
        first += size;
    }
    blocks
}

fn within(index: u32, block: Block) -> Value {
    json!({"index": index, "value": !(block.size - 1), "valueTwo": block.first, "op": "SCMP_CMP_MASKED_EQ"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_refused_natively_are_not_allowed_in_containers() {
        let profile = profile();
        let rules = profile["syscalls"].as_array().unwrap();
        let is_allowed = |name: &str| {
            rules.iter().any(|rule| {
                let names = rule["names"].as_array().unwrap();
                rule["action"] == "SCMP_ACT_ALLOW" && names.iter().any(|known| known == name)
            })
        };
        assert!(is_allowed("read") && is_allowed("clone") && is_allowed("execve"));
        for name in [
            "bpf",
            "keyctl",
            "io_uring_setup",
            "userfaultfd",
            "unshare",
            "mount",
            "clone3",
            "ptrace",
        ] {
            assert!(!is_allowed(name), "{name}");
        }
        assert_eq!(profile["defaultErrnoRet"], ENOSYS);
    }

    #[test]
    fn only_listed_options_and_commands_are_allowed() {
        let check = |ranges: &[Range<u64>], refused: &[u64]| {
            let blocks: Vec<Block> = ranges.iter().cloned().flat_map(blocks).collect();
            let is_in = |value: u64, block: &Block| value & !(block.size - 1) == block.first;
            let is_allowed = |value: u64| blocks.iter().any(|block| is_in(value, block));
            let end = ranges.last().unwrap().end;
            for value in 0..2 * end {
                let expect = value < end && !refused.contains(&value);
                assert_eq!(is_allowed(value), expect, "{value}");
                assert!(!is_allowed(value | 1 << 32), "{value} with a bit above");
            }
        };
        check(&SOCKET_OPTIONS, &[26, 50, 51, 52]);
        check(&UDP_OPTIONS, &[100]);
        let commands: Vec<u64> = (36..1025).chain([1026, 1036, 1038]).collect();
        check(&FCNTLS, &commands);
    }
}
