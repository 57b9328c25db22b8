//! Where a path leads, as far as its text tells.

use crate::{lists::LISTS, unknown::UNKNOWN};

/// What is lost with much else: the system, a part of it, a whole home, or what is above the working directory that
/// goes with it.
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
}

/// Of a path in a program of another language.
pub(crate) fn loses_much(path: &str) -> bool {
    of(path, None).is_some()
}

/// Of a path, seen from a directory, or else from wherever the script is; none: less is lost, or it is not known.
pub(super) fn of(path: &str, from: Option<&str>) -> Option<Location> {
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
    // `dir/*` is the directory, as far as loss goes, and so are `.*`, `?*`, `.[!.]*`.
    let is_everything = |name: &&str| name.contains('*') && name.chars().all(|c| "*?.[]!^".contains(c));
    while names.last().is_some_and(is_everything) {
        names.pop();
    }
    match names.as_slice() {
        _ if joined.starts_with(UNKNOWN) => None,
        names if rooted => below_root(names),
        [] if tilde || above > 0 => Some(Location::Above),
        [_] if tilde => Some(Location::Home),
        _ => None,
    }
}

fn below_root(names: &[&str]) -> Option<Location> {
    match names {
        [] => Some(Location::Root),
        ["home" | "Users", _] => Some(Location::Home),
        [name] if name.contains(UNKNOWN) => None,
        // `/b*`, `/?tc`
        [name] if LISTS.system_directories.contains(name) || name.contains(['*', '?', '[']) => {
            Some(Location::System)
        }
        [first, second] if LISTS.system_below.contains(&format!("{first}/{second}").as_str()) => {
            Some(Location::System)
        }
        _ => None,
    }
}

/// A disk, or memory; not `/dev/null`, terminals and the like.
pub(super) fn is_disk(path: &str) -> bool {
    let name = path.strip_prefix("/dev/");
    name.is_some_and(|name| LISTS.disks.iter().any(|disk| name.starts_with(disk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_judged_by_where_it_leads() {
        use Location::{Above, Home, Root, System};
        for (paths, expect) in [
            ("/ // /* /./ /etc/.. /.* /usr/../*", Some(Root)),
            (
                "/usr /usr/ /etc /etc/ /etc/* /home/* /home /usr/lib /b* /var/lib/",
                Some(System),
            ),
            ("~ ~/ ~/* /home/alice ~root", Some(Home)),
            (".. ../ ../* ../../ build/../.. ~/..", Some(Above)),
            (
                ". ./ * ./* ./.* a usr build/ build ./build/* *.o /tmp/x /tmp",
                None,
            ),
            (
                "../sibling /workspace /workspace/x /etc/nginx/conf ~/.cache \u{FFFD}/x /usr/share/x",
                None,
            ),
        ] {
            for path in paths.split(' ') {
                assert_eq!(of(path, None), expect, "{path}");
            }
        }
        assert_eq!(of("", None), None);
        assert_eq!(of("*", Some("/")), Some(Root));
        assert_eq!(of("lib", Some("/usr")), Some(System));
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
