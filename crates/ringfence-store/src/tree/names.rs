//! The names in an archive: plain paths of text, all different even on a file system that ignores case.

use ringfence_types::WorkspacePath;
use std::{
    collections::{HashMap, hash_map::Entry},
    path::{Path, PathBuf},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    File,
    Directory,
    /// A directory that only occurs in the path of another entry.
    Implied,
}

/// The names so far, and the directories in their paths.
pub(super) struct Names {
    /// By case-folded name: the name as written, and its role.
    seen: HashMap<String, (String, Role)>,
    max: usize,
}

impl Names {
    pub(super) fn new(max: usize) -> Self {
        let seen = HashMap::new();
        Self { seen, max }
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.seen.len() > self.max
    }

    /// Adds a name. Returns its path, or the reason why it is refused.
    pub(super) fn admit(&mut self, name: &[u8], role: Role) -> Result<PathBuf, &'static str> {
        let text = plain(name, role)?;
        for (end, _) in text.match_indices('/') {
            self.add(&text[..end], Role::Implied)?;
        }
        self.add(text, role)?;
        Ok(Path::new(text).to_owned())
    }

    fn add(&mut self, written: &str, role: Role) -> Result<(), &'static str> {
        // Letters with several lower-case forms have the same upper-case form.
        let seen = match self.seen.entry(written.to_uppercase().to_lowercase()) {
            Entry::Vacant(free) => {
                free.insert((written.to_owned(), role));
                return Ok(());
            }
            Entry::Occupied(seen) => seen.into_mut(),
        };
        if seen.0 != written {
            return Err("another entry's name differs by case only");
        }
        match (seen.1, role) {
            (Role::File, Role::File) | (Role::Directory, Role::Directory) => {
                Err("another entry has the same name")
            }
            (Role::File, _) | (_, Role::File) => Err("it is a file and a directory"),
            (_, Role::Implied) => Ok(()),
            (Role::Implied, Role::Directory) => {
                seen.1 = role;
                Ok(())
            }
        }
    }
}

fn plain(name: &[u8], role: Role) -> Result<&str, &'static str> {
    let text = str::from_utf8(name).map_err(|_| "its name is not UTF-8")?;
    let text = match role {
        Role::Directory => text.strip_suffix('/').unwrap_or(text),
        Role::File | Role::Implied => text,
    };
    if text.starts_with('/') {
        return Err("its name is absolute");
    }
    if text.contains('\\') {
        return Err("its name contains a backslash");
    }
    if text.chars().any(char::is_control) {
        return Err("its name contains a control character");
    }
    if matches!(text.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic()) {
        return Err("its name begins with a drive letter");
    }
    WorkspacePath::try_from(text.to_owned())
        .map(|_| text)
        .map_err(|_| "its name is empty, too long or too deep, or has an empty, `.` or `..` part")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_plain_paths_are_refused() {
        let long = format!("{}/x", "d/".repeat(40));
        let bad: [&[u8]; 18] = [
            b"",
            b".",
            b"./a",
            b"a/./b",
            b"..",
            b"../a",
            b"a/../../b",
            b"/etc/passwd",
            b"/workspace/a",
            b"C:/x",
            b"c:x",
            b"a\\b",
            b"..\\x",
            b"a\0b",
            b"a\nb",
            b"\xff",
            b"a//b",
            long.as_bytes(),
        ];
        for name in bad {
            let mut names = Names::new(100);
            assert!(names.admit(name, Role::File).is_err(), "{name:?}");
        }
        assert!(Names::new(9).admit(b"a/", Role::File).is_err());
        assert!(Names::new(9).admit(b"a//", Role::Directory).is_err());
        assert_eq!(Names::new(9).admit(b"a/b/", Role::Directory), Ok("a/b".into()));
        assert_eq!(
            Names::new(9).admit("ä b/…".as_bytes(), Role::File),
            Ok("ä b/…".into())
        );
    }

    #[test]
    fn names_equal_when_case_folded_are_refused() {
        let pair = |first: (&str, Role), second: (&str, Role)| {
            let mut names = Names::new(9);
            names.admit(first.0.as_bytes(), first.1).unwrap();
            names.admit(second.0.as_bytes(), second.1).is_ok()
        };
        use Role::{Directory, File};
        assert!(pair(("a/b", File), ("a/c", File)));
        assert!(pair(("a/b", File), ("a/", Directory)));
        assert!(pair(("a", Directory), ("a/b", File)));
        for (first, second) in [
            (("a", File), ("a", File)),
            (("a", Directory), ("a/", Directory)),
            (("a", File), ("A", File)),
            (("a/x", File), ("A/y", File)),
            (("\u{17f}", File), ("s", File)),
            (("straße", File), ("STRASSE", File)),
            (("a", File), ("a/b", File)),
            (("a/b", File), ("a", File)),
        ] {
            assert!(!pair(first, second), "{:?} {:?}", first.0, second.0);
        }
    }
}
