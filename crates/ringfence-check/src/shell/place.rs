//! Where a path leads, as far as its text tells.

use crate::unknown::UNKNOWN;

/// From the most to the least that is lost with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// `/`, `/*`
    Root,
    /// `/etc`, `/usr/lib`, `/home/*`
    System,
    /// `~`, `$HOME/*`
    Home,
    /// `..`, `../*`
    Above,
    /// `.`, `*`
    Here,
    /// Below one of the system's directories.
    BelowSystem,
    /// Below a home.
    BelowHome,
    /// `build`, `/tmp/x`
    Elsewhere,
    /// Nothing is known of it.
    Unknown,
}

#[rustfmt::skip]
const SYSTEM: &[&str] = &[
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root", "run",
    "sbin", "srv", "sys", "usr", "var", "Users", "Library", "Applications", "System",
];
#[rustfmt::skip]
const SYSTEM_BELOW: &[&str] = &[
    "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "usr/share", "usr/local", "var/lib", "lib/modules", "var/log",
    "var/spool", "etc/ssh", "etc/ssl", "boot/efi",
];

impl Location {
    /// Is it the system, a part of it, a whole home, or what is above the working directory that goes with it.
    pub(super) fn loses_much(self) -> bool {
        matches!(self, Self::Root | Self::System | Self::Home | Self::Above)
    }
}

/// Of a path in a program of another language.
pub(crate) fn loses_much(path: &str) -> bool {
    of(path, None).loses_much()
}

/// Of a path, seen from a directory; none: from wherever the script is.
pub(super) fn of(path: &str, from: Option<&str>) -> Location {
    let absolute = path.starts_with(['/', '~']);
    let joined = match from {
        Some(from) if !absolute => format!("{from}/{path}"),
        _ => path.to_owned(),
    };
    let tilde = joined.starts_with('~');
    let rooted = joined.starts_with('/');
    let mut above = 0_usize;
    let mut names: Vec<&str> = Vec::new();
    for name in joined.split('/') {
        match name {
            "" | "." => {}
            ".." if names.is_empty() && !rooted => above += 1,
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    // `dir/*` is the directory, as far as loss goes.
    while names.last().is_some_and(|name| is_everything(name)) {
        names.pop();
    }
    if joined.starts_with(UNKNOWN) {
        return Location::Unknown;
    }
    match (rooted, tilde) {
        (true, _) => below_root(&names),
        (_, true) => match names.as_slice() {
            [] => Location::Above,
            [_] => Location::Home,
            _ => Location::BelowHome,
        },
        _ if above > 0 && names.is_empty() => Location::Above,
        _ if names.is_empty() => Location::Here,
        _ => Location::Elsewhere,
    }
}

fn below_root(names: &[&str]) -> Location {
    match names {
        [] => Location::Root,
        [name] if name.contains(UNKNOWN) => Location::Unknown,
        [name] if SYSTEM.contains(name) => Location::System,
        // `/b*`, `/?tc`
        [name] if name.contains(['*', '?', '[']) => Location::System,
        ["home" | "Users", _] | ["root"] => Location::Home,
        ["home" | "Users" | "root", ..] => Location::BelowHome,
        [first, second] if SYSTEM_BELOW.contains(&format!("{first}/{second}").as_str()) => Location::System,
        ["tmp", ..] | ["dev", "shm", ..] | ["var", "tmp", ..] => Location::Elsewhere,
        [first, ..] if SYSTEM.contains(first) => Location::BelowSystem,
        _ => Location::Elsewhere,
    }
}

/// `*`, `.*`, `?*`, `.[!.]*`: every name there.
fn is_everything(name: &str) -> bool {
    name.contains('*') && name.chars().all(|c| "*?.[]!^".contains(c))
}

/// A disk, or memory; not `/dev/null`, terminals and the like.
pub(super) fn is_disk(path: &str) -> bool {
    const DISKS: &[&str] = &[
        "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "mapper/", "md", "dm-", "loop", "sr",
        "mtd", "mem", "kmem", "port", "nbd", "block/",
    ];
    let Some(name) = path.strip_prefix("/dev/") else {
        return false;
    };
    DISKS.iter().any(|disk| name.starts_with(disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expect: Location) {
        assert_eq!(of(path, None), expect, "{path}");
    }

    #[test]
    fn a_path_is_judged_by_where_it_leads() {
        for path in ["/", "//", "/*", "/./", "/etc/..", "/.*", "/usr/../*"] {
            check(path, Location::Root);
        }
        for path in [
            "/etc",
            "/etc/",
            "/etc/*",
            "/home/*",
            "/usr/lib",
            "/b*",
            "/var/lib/",
        ] {
            check(path, Location::System);
        }
        for path in ["~", "~/", "~/*", "/home/alice", "~root"] {
            check(path, Location::Home);
        }
        for path in ["..", "../", "../*", "../../", "build/../..", "~/.."] {
            check(path, Location::Above);
        }
        for path in [".", "./", "*", "./*", "./.*"] {
            check(path, Location::Here);
        }
        for path in [
            "build",
            "./build/*",
            "*.o",
            "/tmp/x",
            "/tmp",
            "../sibling",
            "/workspace/x",
        ] {
            check(path, Location::Elsewhere);
        }
        check("/etc/nginx/conf", Location::BelowSystem);
        check("~/.cache", Location::BelowHome);
        check("\u{FFFD}/x", Location::Unknown);
        assert_eq!(of("*", Some("/")), Location::Root);
        assert_eq!(of("lib", Some("/usr")), Location::System);
    }

    #[test]
    fn roots_are_known_however_they_are_written() {
        for path in [
            "/",
            "//",
            "/.",
            "/*",
            "/usr",
            "/usr/",
            "/usr/lib",
            "~",
            "~/",
            "..",
            "../..",
            "/home",
            "/home/alice",
        ] {
            assert!(loses_much(path), "{path}");
        }
        for path in [
            "",
            ".",
            "a",
            "usr",
            "/workspace",
            "/tmp",
            "/tmp/x",
            "../a",
            "~/a",
            "/usr/share/x",
            "build/",
        ] {
            assert!(!loses_much(path), "{path}");
        }
    }

    #[test]
    fn disks_are_not_terminals() {
        for path in ["/dev/sda", "/dev/nvme0n1p1", "/dev/mapper/root", "/dev/mem"] {
            assert!(is_disk(path), "{path}");
        }
        for path in [
            "/dev/null",
            "/dev/tty",
            "/dev/stderr",
            "/dev/shm/x",
            "/dev/tcp/a/1",
            "disk",
            "/dev/fd/3",
        ] {
            assert!(!is_disk(path), "{path}");
        }
    }
}
