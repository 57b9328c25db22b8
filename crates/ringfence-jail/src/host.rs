//! Facts about this host that a plan depends on; reading them is cheap (well below a millisecond) and changes nothing.

use crate::{Refused, cgroup};
use ringfence_sys::{file, identity, landlock};
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Facts that `plan::build` reads. Plain data, so that a plan can be built for a host that is not this one.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    pub user: (u32, u32),
    pub own_uids: bool,
    pub landlock: i32,
    /// Calls that a filter refuses and that a sandbox can do without.
    pub refused: Refused,
    pub time_namespaces: bool,
    pub system: Vec<SystemPath>,
    pub etc: Vec<SystemPath>,
    pub devices: Vec<&'static str>,
    pub processors: usize,
    pub cgroups: cgroup::Parent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Node {
    Directory,
    File,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum SystemPath {
    Tree { path: PathBuf, node: Node },
    Link(PathBuf, String),
}

const SYSTEM_PATHS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The links with which Debian selects implementations, the configuration of fonts, the linker's cache, the time zone,
/// and the public certificate authorities (Debian, Fedora, Alpine and SUSE paths; never the private keys beside them).
const ETC_PATHS: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates/extracted",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// Device nodes that every program may expect (from the list of the OCI runtime specification).
const DEVICES: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];

/// First of the host uids that sandboxes of a root server get; the pid of the supervisor is added, which is unique
/// while the sandbox lives. The range lies above those of systemd (UIDS-GIDS.md) and of any distribution's users.
pub const UID_BASE: u32 = 1_900_000_000;

impl Host {
    /// Inspects this host. `cgroups` is found, and prepared, before the first process of ours is started.
    pub fn inspect(cgroups: cgroup::Parent, refused: Refused) -> Self {
        let user = identity::effective_ids();
        let find_all = |paths: &[&str]| paths.iter().filter_map(|path| find(Path::new(path))).collect();
        let exists = |name: &&str| Path::new("/dev").join(name).exists();
        let devices = DEVICES.iter().copied().filter(exists);
        Self {
            user,
            own_uids: user.0 == 0 && may_map_any_uid() && ids_are_mapped("/proc/self/uid_map"),
            landlock: if refused.landlock {
                0
            } else {
                landlock::version().unwrap_or(0)
            },
            refused,
            time_namespaces: Path::new("/proc/self/ns/time").exists(),
            system: find_all(SYSTEM_PATHS),
            etc: find_all(ETC_PATHS),
            devices: devices.collect(),
            processors: file::processors(),
            cgroups,
        }
    }

    pub fn landlock_version(&self) -> io::Result<i32> {
        match (self.landlock, self.refused.landlock) {
            (0, true) => Err(io::Error::other("ended by a filter")),
            (0, false) => landlock::version(),
            (version, _) => Ok(version),
        }
    }
}

/// `CAP_SETGID` (6), `CAP_SETUID` (7) and `CAP_SYS_ADMIN` (21).
fn may_map_any_uid() -> bool {
    let needed = [6, 7, identity::CAP_SYS_ADMIN];
    needed.into_iter().all(identity::has_capability)
}

/// True if this map (`first outside count` per line) covers our range of ids.
fn ids_are_mapped(map: &str) -> bool {
    let Ok(text) = fs::read_to_string(map) else {
        return false;
    };
    text.lines().any(|line| {
        let words = line.split_whitespace();
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let [first, _, count, ..] = numbers[..] else {
            return false;
        };
        let end = u64::from(UID_BASE) + (4 << 20); // PID_MAX_LIMIT, threads.h
        first <= u64::from(UID_BASE) && end <= first + count
    })
}

fn find(path: &Path) -> Option<SystemPath> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if !kind.is_symlink() {
        let node = if kind.is_dir() {
            Node::Directory
        } else {
            Node::File
        };
        let path = path.to_owned();
        return Some(SystemPath::Tree { path, node });
    }
    let target = fs::read_link(path).ok()?.to_str()?.to_owned();
    Some(SystemPath::Link(path.to_owned(), target))
}
