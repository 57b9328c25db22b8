//! Changes that the host makes to a directory while a program works above it in an overlay. The program's version of a
//! file is based on the earlier state, so a commit would silently undo the host's changes.

use super::{Bounds, Changes, EntryKind, Node, Risk, TreeError, walk};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    os::fd::BorrowedFd,
};

/// The risk of a change to a path that the host has changed since the program began.
pub const CHANGED_MEANWHILE: Risk = Risk {
    rule: "host.changed_meanwhile",
    what: "The host has changed it since the program began; a commit writes over that.",
};

/// The state of everything below a directory at one moment: for each path, a digest of the path and one of its node, of
/// eight bytes each, under a secret key. A session may hold this for days.
pub struct LowerState {
    key: RandomState,
    marks: HashMap<u64, u64>,
}

impl LowerState {
    /// Records the present state. Errors: those of [`walk`](super::walk).
    pub fn of(lower: BorrowedFd<'_>, bounds: Bounds) -> Result<Self, TreeError> {
        let (key, marks) = (RandomState::new(), HashMap::new());
        let mut seen = Self { key, marks };
        for entry in walk(lower, bounds)? {
            let path = seen.key.hash_one(&entry.path);
            let mark = seen.mark(&Node::from(entry));
            seen.marks.insert(path, mark);
        }
        Ok(seen)
    }

    /// Adds [`CHANGED_MEANWHILE`] to each change whose path is no longer as recorded: changed, removed or created.
    pub fn flag(&self, changes: &mut Changes) {
        for change in &mut changes.list {
            let then = self.marks.get(&self.key.hash_one(&change.path)).copied();
            if then != change.old.as_ref().map(|now| self.mark(now)) {
                change.risks.push(CHANGED_MEANWHILE);
            }
        }
    }

    /// Records the paths of a commit again: its own writes are not changes of the host.
    pub fn record_committed(&mut self, lower: BorrowedFd<'_>, committed: &Changes) -> Result<(), TreeError> {
        for change in &committed.list {
            let path = self.key.hash_one(&change.path);
            match walk::entry_at(lower, &change.path) {
                Ok(entry) => {
                    let mark = self.mark(&Node::from(entry));
                    self.marks.insert(path, mark);
                }
                Err(TreeError::NotFound(_)) => {
                    self.marks.remove(&path);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// For a directory the mode alone: its times change with its entries, which have marks of their own.
    fn mark(&self, node: &Node) -> u64 {
        match node.kind {
            EntryKind::Directory => self.key.hash_one(node.mode),
            _ => self.key.hash_one((node.mode, node.size, node.stamp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CompareBounds, overlay, tests::fixture::Scratch},
        *,
    };
    use std::fs;

    const WALK: Bounds = Bounds {
        entries: 100,
        depth: 8,
    };
    const COMPARE: CompareBounds<'static> = CompareBounds {
        read_bytes: 1 << 20,
        text_bytes: 1 << 10,
        diff_bytes: 1 << 10,
        redact: &crate::tree::unredacted,
    };

    fn conflicts(seen: &LowerState, upper: &Scratch, lower: &Scratch) -> Vec<String> {
        let mut changes = overlay::read(upper.root(), lower.root(), WALK, COMPARE).unwrap();
        seen.flag(&mut changes);
        let flagged = changes
            .list
            .iter()
            .filter(|change| change.risks.contains(&CHANGED_MEANWHILE));
        flagged
            .map(|change| change.path.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn only_changes_conflicting_with_host_edits_are_flagged() {
        let (lower, upper) = (Scratch::new(), Scratch::new());
        fs::create_dir(lower.path("d")).unwrap();
        for name in ["edited", "removed", "kept", "d/inside"] {
            fs::write(lower.path(name), "old\n").unwrap();
        }
        let mut seen = LowerState::of(lower.root(), WALK).unwrap();
        fs::create_dir(upper.path("d")).unwrap();
        for name in ["edited", "removed", "new", "own", "kept", "d/inside"] {
            fs::write(upper.path(name), "the program's\n").unwrap();
        }
        assert_eq!(conflicts(&seen, &upper, &lower), Vec::<String>::new());
        // The same length and the old mtime: only the ctime, which cannot be set, differs.
        let before = fs::metadata(lower.path("edited")).unwrap().modified().unwrap();
        fs::write(lower.path("edited"), "new\n").unwrap();
        let edited = fs::File::options()
            .write(true)
            .open(lower.path("edited"))
            .unwrap();
        edited.set_modified(before).unwrap();
        fs::remove_file(lower.path("removed")).unwrap();
        fs::write(lower.path("new"), "the host's\n").unwrap();
        fs::write(lower.path("untouched"), "the host's\n").unwrap();
        fs::write(lower.path("d/other"), "the host's\n").unwrap();
        assert_eq!(conflicts(&seen, &upper, &lower), ["edited", "new", "removed"]);
        // After the commit both sides are the same; a later change by the host is a conflict again.
        let changes = overlay::read(upper.root(), lower.root(), WALK, COMPARE).unwrap();
        overlay::commit(upper.root(), lower.root(), &changes).unwrap();
        seen.record_committed(lower.root(), &changes).unwrap();
        fs::write(upper.path("edited"), "more\n").unwrap();
        fs::write(upper.path("own"), "more\n").unwrap();
        assert_eq!(conflicts(&seen, &upper, &lower), Vec::<String>::new());
        fs::write(lower.path("own"), "the host's\n").unwrap();
        assert_eq!(conflicts(&seen, &upper, &lower), ["own"]);
    }
}
