//! Facts about this host that a plan depends on. Reading them is cheap (well below a millisecond) and changes nothing;
//! whether a layer really works is the doctor's question.

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
    /// Effective user and group of the server.
    pub user: (u32, u32),
    /// May every sandbox have a host uid of its own.
    pub own_uids: bool,
    /// Landlock version; 0: none.
    pub landlock: i32,
    /// What a filter refuses that a sandbox can do without.
    pub refused: Refused,
    /// Does the kernel have time namespaces.
    pub time_namespaces: bool,
    /// The system's directories at `/`.
    pub system: Vec<SystemPath>,
    /// The few things of `/etc` that programs need, where they exist.
    pub etc: Vec<SystemPath>,
    /// Device nodes that exist.
    pub devices: Vec<&'static str>,
    /// Processors.
    pub processors: usize,
    /// Where cgroups can be made.
    pub cgroups: cgroup::Parent,
}

/// What the place of a mount has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Node {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

impl Node {
    fn of(kind: fs::FileType) -> Self {
        if kind.is_dir() {
            Self::Directory
        } else {
            Self::File
        }
    }
}

/// A path of the host and what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum SystemPath {
    /// Something to show, read-only.
    Tree {
        /// Path.
        path: PathBuf,
        /// What it is.
        node: Node,
    },
    /// A symbolic link to make again.
    Link(PathBuf, String),
}

const SYSTEM_PATHS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Links by which Debian chooses between implementations, where fonts are, the linker's cache, the time zone, and the
/// public certificate authorities (Debian, Fedora, Alpine and SUSE places; never the private keys beside them).
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

/// Device nodes that every program may expect (the list of the OCI runtime specification).
const DEVICES: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];

/// First of the host uids that sandboxes of a root server get; pid of the supervisor is added, which is unique while
/// the sandbox lives. The range lies above those of systemd (UIDS-GIDS.md) and of any distribution's users.
pub const UID_BASE: u32 = 1_900_000_000;

impl Host {
    /// Looks around. `cgroups` is found, and prepared, before the first process of ours is started.
    pub fn inspect(cgroups: cgroup::Parent, refused: Refused) -> Self {
        let user = identity::effective_ids();
        Self {
            user,
            own_uids: user.0 == 0 && may_map_any_uid() && ids_are_mapped("/proc/self/uid_map"),
            landlock: match refused.landlock {
                true => 0,
                false => landlock::version().unwrap_or(0),
            },
            refused,
            time_namespaces: Path::new("/proc/self/ns/time").exists(),
            system: SYSTEM_PATHS
                .iter()
                .filter_map(|path| look(Path::new(path)))
                .collect(),
            etc: ETC_PATHS
                .iter()
                .filter_map(|path| look(Path::new(path)))
                .collect(),
            devices: DEVICES
                .iter()
                .copied()
                .filter(|name| Path::new("/dev").join(name).exists())
                .collect(),
            processors: file::processors(),
            cgroups,
        }
    }
}

impl Host {
    /// The version of Landlock, or why it is missing.
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
    [6, 7, identity::CAP_SYS_ADMIN]
        .into_iter()
        .all(identity::has_capability)
}

/// Does this map (`first outside count` per line) cover our range of ids.
fn ids_are_mapped(map: &str) -> bool {
    let Ok(text) = fs::read_to_string(map) else {
        return false;
    };
    text.lines().any(|line| {
        let mut numbers = line
            .split_whitespace()
            .map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let (Some(first), Some(count)) = (first, count) else {
            return false;
        };
        let end = u64::from(UID_BASE) + (4 << 20); // PID_MAX_LIMIT, threads.h
        first <= u64::from(UID_BASE) && end <= first + count
    })
}

fn look(path: &Path) -> Option<SystemPath> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if !kind.is_symlink() {
        return Some(SystemPath::Tree {
            path: path.to_owned(),
            node: Node::of(kind),
        });
    }
    let target = fs::read_link(path).ok()?.to_str()?.to_owned();
    Some(SystemPath::Link(path.to_owned(), target))
}
