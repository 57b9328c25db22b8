//! What has become of a workspace: against a snapshot of it, told with the text of what changed and with what the host
//! may later run.

use crate::record::hex;
use ringfence_redact::Redactor;
use ringfence_store::tree::{
    Bounds, CHANGED_MEANWHILE, Change, ChangeKind, CompareBounds, DEPTH_MAX, EntryKind, Node, Risk, as_it_is,
};
use serde::Serialize;

/// Entries of each side.
pub(crate) const WALK: Bounds = Bounds {
    entries: 200_000,
    depth: DEPTH_MAX,
};
/// How much is read, and how much of it is shown.
pub(crate) const COMPARE: CompareBounds<'static> = CompareBounds {
    read_bytes: 4 << 30,
    text_bytes: 1 << 20,
    diff_bytes: 512 << 10,
    shown: &as_it_is,
};
/// Paths that are told of those with a risk, and of those without: the second never crowd out the first.
const TOLD_MAX: usize = 2_000;

#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub base: Base,
    /// Only the workspace has it.
    pub added: Vec<Changed>,
    /// Both have it, with another content, mode, target or kind.
    pub changed: Vec<Changed>,
    /// Only the base has it.
    pub deleted: Vec<Changed>,
    /// Those among them that the host, too, has changed since the program began.
    pub conflicts: Vec<String>,
    pub truncated: bool,
}

/// What a workspace is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Option<String>")]
pub enum Base {
    /// There is no snapshot of it: everything counts as added. `null`.
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
    /// Below the workspace; what is no UTF-8 in it is U+FFFD.
    pub path: String,
    pub before: Option<Lay>,
    pub after: Option<Lay>,
    /// Unified, or one line that says why it is missing.
    pub diff: Option<String>,
    /// Why it deserves a second look.
    pub risks: Vec<Risk>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Lay {
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    pub size_bytes: u64,
    /// Permissions, as 0644.
    pub mode: String,
    /// The digest of a file, where it is known.
    pub sha256: Option<String>,
    pub target: Option<String>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.deleted.is_empty()
    }

    /// The differences of what was compared, without secrets. What has a risk comes first.
    pub(crate) fn of(base: Base, changes: &[Change], redactor: &Redactor) -> Self {
        let (risky, plain): (Vec<_>, Vec<_>) = changes.iter().partition(|change| !change.risks.is_empty());
        let told = |kind: ChangeKind| {
            let told = risky.iter().take(TOLD_MAX).chain(plain.iter().take(TOLD_MAX));
            told.filter(|change| change.kind == kind)
                .map(|change| Changed::of(change, redactor))
                .collect()
        };
        let conflicts = risky
            .iter()
            .take(TOLD_MAX)
            .filter(|change| change.risks.contains(&CHANGED_MEANWHILE));
        Self {
            base,
            conflicts: conflicts.map(|change| path_of(change, redactor)).collect(),
            added: told(ChangeKind::Added),
            changed: told(ChangeKind::Changed),
            deleted: told(ChangeKind::Deleted),
            truncated: risky.len().max(plain.len()) > TOLD_MAX,
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

/// What an entry is, in a word for callers.
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
    fn no_number_of_plain_files_hides_one_that_the_host_may_run() {
        let plain = |count: usize| (0..count).map(|number| added(format!("!/{number}"), None));
        let hook = || added(".git/hooks/pre-commit".to_owned(), Some("git_hook"));
        let told = |changes: Vec<Change>| Difference::of(Base::Nothing, &changes, &Redactor::none());
        let many = told(plain(TOLD_MAX + 1).chain([hook()]).collect());
        assert_eq!(many.added[0].path, ".git/hooks/pre-commit");
        assert!(many.truncated && many.added.len() == TOLD_MAX + 1);
        assert!(!told(plain(TOLD_MAX).chain([hook()]).collect()).truncated);
        let hooks = (0..=TOLD_MAX).map(|number| added(number.to_string(), Some("git_hook")));
        assert!(told(hooks.collect()).truncated, "risks have a limit of their own");
    }
}
