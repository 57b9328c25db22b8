//! Classifies paths by their text.

use crate::{lists::LISTS, unknown::UNKNOWN};

/// A location whose removal loses much: the system, a part of it, a whole home, or a directory above the working one.
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

/// True if the removal of a path, in a program of another language, loses much.
pub(crate) fn loses_much(path: &str) -> bool {
    of(path, None).is_some()
}

/// Returns the location of a path, relative to `from` if given; `None` if its removal loses less or it is not known.
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
    // Removing `dir/*` loses as much as removing `dir`, and so do `.*`, `?*`, `.[!.]*`.
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

/// True for a disk or memory device; not for `/dev/null`, terminals and the like.
pub(super) fn is_disk(path: &str) -> bool {
    let name = path.strip_prefix("/dev/");
    name.is_some_and(|name| LISTS.disks.iter().any(|disk| name.starts_with(disk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_location_is_classified() {
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
    fn terminals_are_not_disks() {
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
