//! Differences between a workspace and its base, with their texts and risks: files that the host may later run.

use crate::record::hex;
use ringfence_redact::Redactor;
use ringfence_store::tree::{
    self, Bounds, CHANGED_MEANWHILE, Change, ChangeKind, CompareBounds, DEPTH_MAX, EntryKind, Node, Risk,
};
use serde::Serialize;

/// Limits of the walk over each side.
pub(crate) const WALK: Bounds = Bounds {
    entries: 200_000,
    depth: DEPTH_MAX,
};
/// Limits of what is read, and of what is rendered.
pub(crate) const COMPARE: CompareBounds<'static> = CompareBounds {
    read_bytes: 4 << 30,
    text_bytes: 1 << 20,
    diff_bytes: 512 << 10,
    redact: &tree::unredacted,
};
/// Maximum listed paths with a risk, and likewise without: the latter never crowd out the former.
const LISTED_MAX: usize = 2_000;

#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub base: Base,
    /// Entries that only the workspace has.
    pub added: Vec<Changed>,
    /// Entries of both, with different content, mode, target or kind.
    pub changed: Vec<Changed>,
    pub deleted: Vec<Changed>,
    /// Paths among them that the host, too, has changed since the program began.
    pub conflicts: Vec<String>,
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Option<String>")]
pub enum Base {
    /// The workspace has no snapshot: everything counts as added. `null`.
    Nothing,
    Snapshot(String),
    /// The host's directory below an overlay. `directory`.
    Directory,
}

impl From<Base> for Option<String> {
    fn from(base: Base) -> Self {
        match base {
            Base::Nothing => None,
            Base::Snapshot(id) => Some(id),
            Base::Directory => Some("directory".to_owned()),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// Relative to the workspace; bytes that are not UTF-8 become U+FFFD.
    pub path: String,
    pub before: Option<Lay>,
    pub after: Option<Lay>,
    /// A unified diff, or one line with the reason for its absence.
    pub diff: Option<String>,
    /// Reasons for a second look.
    pub risks: Vec<Risk>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Lay {
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    pub size_bytes: u64,
    /// Permissions, as 0644.
    pub mode: String,
    /// The SHA-256 of a file, if known, in lower-case hex.
    pub sha256: Option<String>,
    pub target: Option<String>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.deleted.is_empty()
    }

    /// Lists changes without secrets, those with a risk first.
    pub(crate) fn of(base: Base, changes: &[Change], redactor: &Redactor) -> Self {
        let (risky, plain): (Vec<_>, Vec<_>) = changes.iter().partition(|change| !change.risks.is_empty());
        let listed = |kind: ChangeKind| {
            let all = risky.iter().take(LISTED_MAX).chain(plain.iter().take(LISTED_MAX));
            all.filter(|change| change.kind == kind)
                .map(|change| Changed::of(change, redactor))
                .collect()
        };
        let conflicts = risky
            .iter()
            .take(LISTED_MAX)
            .filter(|change| change.risks.contains(&CHANGED_MEANWHILE));
        Self {
            base,
            conflicts: conflicts.map(|change| path_of(change, redactor)).collect(),
            added: listed(ChangeKind::Added),
            changed: listed(ChangeKind::Changed),
            deleted: listed(ChangeKind::Deleted),
            truncated: risky.len().max(plain.len()) > LISTED_MAX,
        }
    }
}

impl Changed {
    fn of(change: &Change, redactor: &Redactor) -> Self {
        let clean = |text: &str| redactor.text(text).into_owned();
        Self {
            path: path_of(change, redactor),
            before: change.old.as_ref().map(|node| Lay::of(node, redactor)),
            after: change.new.as_ref().map(|node| Lay::of(node, redactor)),
            diff: change.diff.as_deref().map(clean),
            risks: change.risks.clone(),
        }
    }
}

fn path_of(change: &Change, redactor: &Redactor) -> String {
    redactor.text(&change.path.to_string_lossy()).into_owned()
}

pub(crate) fn kind_of(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link(_) => "link",
        EntryKind::Whiteout | EntryKind::Other => "other",
    }
}

impl Lay {
    fn of(node: &Node, redactor: &Redactor) -> Self {
        Self {
            kind: kind_of(&node.kind),
            size_bytes: node.size,
            mode: format!("{:04o}", node.mode),
            sha256: node.sha256.map(|digest| hex(&digest)),
            target: match &node.kind {
                EntryKind::Link(target) => Some(redactor.text(&target.to_string_lossy()).into_owned()),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(path: String, rule: Option<&'static str>) -> Change {
        let risk = |rule| Risk { rule, what: "" };
        Change {
            path: path.into(),
            kind: ChangeKind::Added,
            old: None,
            new: None,
            diff: None,
            cut: false,
            risks: rule.map(risk).into_iter().collect(),
        }
    }

    #[test]
    fn plain_files_never_crowd_out_a_risky_file() {
        let plain = |count: usize| (0..count).map(|number| added(format!("!/{number}"), None));
        let hook = || added(".git/hooks/pre-commit".to_owned(), Some("git_hook"));
        let difference = |changes: Vec<Change>| Difference::of(Base::Nothing, &changes, &Redactor::none());
        let many = difference(plain(LISTED_MAX + 1).chain([hook()]).collect());
        assert_eq!(many.added[0].path, ".git/hooks/pre-commit");
        assert!(many.truncated && many.added.len() == LISTED_MAX + 1);
        assert!(!difference(plain(LISTED_MAX).chain([hook()]).collect()).truncated);
        let hooks = (0..=LISTED_MAX).map(|number| added(number.to_string(), Some("git_hook")));
        assert!(
            difference(hooks.collect()).truncated,
            "risks have their own limit"
        );
    }
}
