//! What a host does to a directory while a program works above it in an overlay. The program's version of a file was
//! made from what it saw, so a commit would undo the host's work without a word.

use super::{Bounds, Changes, EntryKind, Node, Risk, TreeError, walk};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    os::fd::BorrowedFd,
};

/// On a change whose path is not what it was when the program began.
pub const CHANGED_MEANWHILE: Risk = Risk {
    rule: "host.changed_meanwhile",
    what: "The host has changed it since the program began; a commit writes over that.",
};

/// How everything below a directory lay at one moment. Of each path and of what was there a digest of eight bytes is
/// kept, under a secret key: a session may hold this for days.
pub struct LowerState {
    key: RandomState,
    marks: HashMap<u64, u64>,
}

impl LowerState {
    /// Now. Errors: those of [`walk`](super::walk).
    pub fn of(lower: BorrowedFd<'_>, bounds: Bounds) -> Result<Self, TreeError> {
        let mut seen = Self {
            key: RandomState::new(),
            marks: HashMap::new(),
        };
        for entry in walk(lower, bounds)? {
            let path = seen.key.hash_one(&entry.path);
            let mark = seen.mark(&Node::from(entry));
            seen.marks.insert(path, mark);
        }
        Ok(seen)
    }

    /// Puts [`CHANGED_MEANWHILE`] on each change of something that is not what it was: another file, none any more,
    /// or one where nothing was.
    pub fn flag(&self, changes: &mut Changes) {
        for change in &mut changes.list {
            let then = self.marks.get(&self.key.hash_one(&change.path)).copied();
            if then != change.old.as_ref().map(|now| self.mark(now)) {
                change.risks.push(CHANGED_MEANWHILE);
            }
        }
    }

    /// After a commit: what it has written is no change of the host's.
    pub fn look_again(&mut self, lower: BorrowedFd<'_>, committed: &Changes) -> Result<(), TreeError> {
        for change in &committed.list {
            let path = self.key.hash_one(&change.path);
            match walk::one(lower, &change.path) {
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

    /// Of a directory its mode alone: its times change with what is in it, and that is told by itself.
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
        shown: &crate::tree::as_it_is,
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
    fn what_the_host_did_meanwhile_to_what_a_program_changed_is_flagged_and_nothing_else_is() {
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
        // The same length, and the time put back: only the time that nobody can set tells.
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
        // What was committed is the host's and the program's alike; what changes after that is a conflict again.
        let changes = overlay::read(upper.root(), lower.root(), WALK, COMPARE).unwrap();
        overlay::commit(upper.root(), lower.root(), &changes).unwrap();
        seen.look_again(lower.root(), &changes).unwrap();
        fs::write(upper.path("edited"), "more\n").unwrap();
        fs::write(upper.path("own"), "more\n").unwrap();
        assert_eq!(conflicts(&seen, &upper, &lower), Vec::<String>::new());
        fs::write(lower.path("own"), "the host's\n").unwrap();
        assert_eq!(conflicts(&seen, &upper, &lower), ["own"]);
    }
}
