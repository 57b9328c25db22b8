//! The difference of two trees, for review before a commit or a restore.

use super::{
    Bounds, EntryKind, Node, TreeError, beneath,
    risks::{self, Facts, Risk},
    walk::walk,
};
use crate::digest::{self, to_hex};
use ringfence_types::unified_diff;
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::Read,
    os::{fd::BorrowedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time for all texts: the difference in progress then shows its rest as all old and all new, later ones nothing.
const TEXT_TIME: Duration = Duration::from_secs(3);
/// Time for a whole comparison, which may read gigabytes.
const TIME_MAX: Duration = Duration::from_secs(120);
/// First bytes of a file that are enough to recognize a program.
const HEAD_BYTES: usize = 64;
/// Shown instead of a difference.
const BINARY: &str = "binary content differs\n";
const TOO_LARGE: &str = "content differs; it is too long to show\n";
const REDACTED: &str = "content differs only in redacted parts\n";
/// Shown when the differences before have used up the space or the time.
const NOT_SHOWN: &str = "content differs; there are too many differences to show\n";

/// One of two trees: a live one, or a description of one with a function that opens its files.
pub struct Side<'a> {
    pub nodes: BTreeMap<PathBuf, Node>,
    pub open: Box<OpenContent<'a>>,
}

pub type OpenContent<'a> = dyn Fn(&Path) -> Result<Box<dyn Read>, TreeError> + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    /// Both sides have the path, with a different content, mode, target or kind.
    Changed,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Change {
    pub path: PathBuf,
    pub kind: ChangeKind,
    pub old: Option<Node>,
    pub new: Option<Node>,
    /// A unified diff, or why it is not shown; None for unchanged content. Untrusted: may contain control characters.
    pub diff: Option<String>,
    /// True if `diff` is incomplete, for lack of space or time.
    pub cut: bool,
    pub risks: Vec<Risk>,
}

/// All differences of two trees, in the order of paths.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub list: Vec<Change>,
}

#[derive(Clone, Copy)]
pub struct CompareBounds<'a> {
    /// Total bytes read of all files; more is an error.
    pub read_bytes: u64,
    /// Maximum size of a file whose text is compared.
    pub text_bytes: u64,
    /// Total bytes of differences shown, for changes with a risk that are not deletions and again for all others, so
    /// that plain files leave space for one that the host may run. The rest is named but not shown.
    pub diff_bytes: usize,
    /// Redacts a whole text before it is compared: a secret of several lines would not be found in the lines of a diff.
    pub redact: &'a Redact<'a>,
}

pub type Redact<'a> = dyn Fn(&str) -> Cow<'_, str> + 'a;

pub fn unredacted(text: &str) -> Cow<'_, str> {
    text.into()
}

impl Changes {
    /// A digest of the paths, kinds, modes, contents and targets of both sides, 64 hexadecimal digits. A commit reads
    /// the changes again, and proceeds only if the token is that of the changes shown.
    pub fn token(&self) -> String {
        let mut hash = Sha256::new();
        for change in &self.list {
            let path = change.path.as_os_str().as_bytes();
            hash.update((path.len() as u64).to_le_bytes());
            hash.update(path);
            for node in [&change.old, &change.new] {
                update(&mut hash, node.as_ref());
            }
        }
        to_hex(&hash.finalize())
    }
}

fn update(hash: &mut Sha256, node: Option<&Node>) {
    let Some(node) = node else {
        hash.update([0]);
        return;
    };
    let (kind, target): (u8, &[u8]) = match &node.kind {
        EntryKind::File => (1, b""),
        EntryKind::Directory => (2, b""),
        EntryKind::Link(target) => (3, target.as_os_str().as_bytes()),
        EntryKind::Whiteout | EntryKind::Other => (4, b""),
    };
    hash.update([kind]);
    hash.update(node.mode.to_le_bytes());
    hash.update((target.len() as u64).to_le_bytes());
    hash.update(target);
    hash.update(node.sha256.unwrap_or_default());
}

impl<'a> Side<'a> {
    /// A directory that a program writes. A file with a second hard link counts as special: that may be outside.
    pub fn live(root: BorrowedFd<'a>, bounds: Bounds) -> Result<Self, TreeError> {
        let entries = walk(root, bounds)?;
        Ok(Self {
            nodes: entries.into_iter().map(Node::of_program).collect(),
            open: Box::new(move |path| Ok(Box::new(beneath::open_file(root, path)?))),
        })
    }

    /// A directory of the host, where files may have several hard links.
    pub fn host(root: BorrowedFd<'a>, bounds: Bounds) -> Result<Self, TreeError> {
        let entries = walk(root, bounds)?.into_iter();
        let nodes = entries.map(|entry| (entry.path.clone(), Node::from(entry)));
        Ok(Self {
            nodes: nodes.collect(),
            open: Box::new(move |path| Ok(Box::new(beneath::open_regular(root, path)?.0))),
        })
    }

    pub fn empty() -> Self {
        Self {
            nodes: BTreeMap::new(),
            open: Box::new(|path| Err(TreeError::NotFound(path.to_owned()))),
        }
    }

    /// Reads a file's content once, so that the text shown is the text hashed even if a program writes meanwhile.
    fn read(&self, path: &Path, node: &Node, text_bytes: u64, left: &mut u64) -> Result<Content, TreeError> {
        if node.kind != EntryKind::File {
            return Ok(Content::default());
        }
        let failed = || TreeError::io("read", path);
        let most = *left;
        let mut counted = (self.open)(path)?.take(most.saturating_add(1));
        let mut bytes = Vec::new();
        let mut start = (&mut counted).take(text_bytes.saturating_add(1));
        start.read_to_end(&mut bytes).map_err(failed())?;
        let whole = bytes.len() as u64 <= text_bytes;
        let hashed = digest::of(bytes.as_slice().chain(&mut counted));
        let sha256 = hashed.map_err(failed())?.sha256;
        let unread = counted.limit().checked_sub(1);
        *left = unread.ok_or_else(|| TreeError::too_large(path, most))?;
        if node.sha256.is_some_and(|known| known != sha256) {
            let what = "its content is not what it is said to be";
            return Err(TreeError::refused(path, what));
        }
        let mut state = State::Whole;
        if !whole {
            bytes.truncate(HEAD_BYTES);
            state = State::Cut;
        }
        let sha256 = Some(sha256);
        Ok(Content { bytes, state, sha256 })
    }
}

/// Compares two trees. Errors: `TooLarge` over `read_bytes`, `TooSlow`, `Refused` for a content that does not have its
/// known digest, and the errors of opening and reading the sides' files.
pub fn compare(old: &Side<'_>, new: &Side<'_>, bounds: CompareBounds<'_>) -> Result<Changes, TreeError> {
    let bare = risks::bare_repositories(&new.nodes);
    let mut comparison = Comparison {
        old,
        new,
        bounds,
        bare,
        read_left: bounds.read_bytes,
        plain_left: bounds.diff_bytes,
        risky_left: bounds.diff_bytes,
        text_deadline: Instant::now() + TEXT_TIME,
        deadline: Instant::now() + TIME_MAX,
    };
    let paths: BTreeSet<&PathBuf> = old.nodes.keys().chain(new.nodes.keys()).collect();
    let mut list = Vec::new();
    for path in paths {
        list.extend(comparison.compare_path(path)?);
    }
    Ok(Changes { list })
}

struct Comparison<'a, 's> {
    old: &'a Side<'s>,
    new: &'a Side<'s>,
    bounds: CompareBounds<'a>,
    bare: BTreeSet<PathBuf>,
    read_left: u64,
    plain_left: usize,
    risky_left: usize,
    text_deadline: Instant,
    deadline: Instant,
}

impl Comparison<'_, '_> {
    fn compare_path(&mut self, path: &Path) -> Result<Option<Change>, TreeError> {
        if Instant::now() >= self.deadline {
            let (path, time_max) = (path.to_owned(), TIME_MAX);
            return Err(TreeError::TooSlow { path, time_max });
        }
        let of = |side: &Side<'_>| side.nodes.get(path).cloned();
        let (mut old, mut new) = (of(self.old), of(self.new));
        if let (Some(old), Some(new)) = (&old, &new)
            && old.stamp.is_some()
            && (old.stamp, &old.kind) == (new.stamp, &new.kind)
        {
            return Ok(None);
        }
        // With a known digest, unchanged content need not be read.
        let unknown = |node: &&Node| node.sha256.is_none();
        let mut old_content = self.content(self.old, path, old.as_ref().filter(unknown))?;
        let mut new_content = self.content(self.new, path, new.as_ref().filter(unknown))?;
        for (node, content) in [(&mut old, &old_content), (&mut new, &new_content)] {
            if let Some(node) = node {
                node.sha256 = node.sha256.or(content.sha256);
            }
        }
        let kind = match (&old, &new) {
            (Some(old), Some(new)) if same(old, new) => return Ok(None),
            (Some(_), Some(_)) => ChangeKind::Changed,
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
        };
        if old_content.state == State::Unread {
            old_content = match &old {
                // Too large to be shown: its digest is enough, and it may have gigabytes.
                Some(node) if node.size > self.bounds.text_bytes => Content {
                    state: State::Cut,
                    sha256: node.sha256,
                    ..Content::default()
                },
                old => self.content(self.old, path, old.as_ref())?,
            };
        }
        if new_content.state == State::Unread {
            new_content = self.content(self.new, path, new.as_ref())?;
        }
        let risks = risks::of(&Facts {
            path,
            old: old.as_ref(),
            new: new.as_ref(),
            new_head: &new_content.bytes,
            bare: &self.bare,
        });
        let is_risky = new.is_some() && !risks.is_empty();
        let (diff, cut) = if old_content.sha256 == new_content.sha256 {
            (None, false)
        } else {
            let left = match is_risky {
                true => &mut self.risky_left,
                false => &mut self.plain_left,
            };
            let contents = [&old_content, &new_content];
            let (diff, cut) = diff(path, contents, self.bounds.redact, self.text_deadline, left);
            (Some(diff), cut)
        };
        Ok(Some(Change {
            path: path.to_owned(),
            kind,
            old,
            new,
            diff,
            cut,
            risks,
        }))
    }

    fn content(&mut self, side: &Side<'_>, path: &Path, node: Option<&Node>) -> Result<Content, TreeError> {
        match node {
            Some(node) => side.read(path, node, self.bounds.text_bytes, &mut self.read_left),
            None => Ok(Content::default()),
        }
    }
}

/// Returns the difference and whether it is cut, for lack of space or time.
fn diff(
    path: &Path,
    [old, new]: [&Content; 2],
    redact: &Redact<'_>,
    deadline: Instant,
    left: &mut usize,
) -> (String, bool) {
    let sides = match (old.text(), new.text()) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(why), _) | (_, Err(why)) => return (why.to_owned(), false),
    };
    // Redaction takes the whole of both texts, so it is not begun without space or time.
    if *left == 0 || Instant::now() >= deadline {
        return (NOT_SHOWN.to_owned(), true);
    }
    let name = |side: &str, text: Option<&str>| match text {
        // Escaped, so that a name with a line break does not look like two lines.
        Some(_) => format!("{side}/{}", path.to_string_lossy().escape_debug()),
        None => "/dev/null".to_owned(),
    };
    let names = [name("a", sides.0), name("b", sides.1)];
    let texts = [sides.0, sides.1].map(|text| redact(text.unwrap_or_default()));
    if texts[0] == texts[1] && sides.0.is_some() && sides.1.is_some() {
        return (REDACTED.to_owned(), false);
    }
    let names = names.each_ref().map(String::as_str);
    let (diff, cut) = unified_diff(names, texts.each_ref().map(AsRef::as_ref), deadline, *left);
    *left = left.saturating_sub(diff.len());
    (diff, cut)
}

/// The content of a file, as far as it was read.
#[derive(Default)]
struct Content {
    /// All bytes, or only the first if the state is `Cut`.
    bytes: Vec<u8>,
    state: State,
    sha256: Option<[u8; 32]>,
}

#[derive(Default, PartialEq, Eq)]
enum State {
    /// There is no file, or it was not read.
    #[default]
    Unread,
    Whole,
    Cut,
}

impl Content {
    /// Returns None if there is no file on this side, and an error if the content cannot be shown.
    fn text(&self) -> Result<Option<&str>, &'static str> {
        match self.state {
            State::Unread => Ok(None),
            State::Cut => Err(TOO_LARGE),
            State::Whole if self.bytes.contains(&0) => Err(BINARY),
            State::Whole => str::from_utf8(&self.bytes).map(Some).map_err(|_| BINARY),
        }
    }
}

/// Compares two nodes: times do not count, and neither do the modes of links and special files.
fn same(old: &Node, new: &Node) -> bool {
    let modes = old.mode == new.mode || matches!(old.kind, EntryKind::Link(_) | EntryKind::Other);
    old.kind == new.kind && modes && old.sha256 == new.sha256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Timestamp, tests::fixture::Scratch};
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    const WALK: Bounds = Bounds {
        entries: 1000,
        depth: 16,
    };
    const BOUNDS: CompareBounds<'static> = CompareBounds {
        read_bytes: 1 << 20,
        text_bytes: 100,
        diff_bytes: 1000,
        redact: &unredacted,
    };

    fn between(old: &Scratch, new: &Scratch) -> Vec<Change> {
        let (old, new) = (
            Side::live(old.root(), WALK).unwrap(),
            Side::live(new.root(), WALK).unwrap(),
        );
        compare(&old, &new, BOUNDS).unwrap().list
    }

    fn said(changes: &[Change]) -> Vec<String> {
        let one = |change: &Change| format!("{:?} {}", change.kind, change.path.display());
        changes.iter().map(one).collect()
    }

    #[test]
    fn file_name_cannot_forge_diff_header() {
        let content = |text: &str| Content {
            bytes: text.into(),
            state: State::Whole,
            sha256: None,
        };
        let deadline = Instant::now() + TEXT_TIME;
        let path = Path::new("d/f\n.txt");
        let shown = |old: Content| diff(path, [&old, &content("a\n")], &unredacted, deadline, &mut 1000).0;
        assert_eq!(
            shown(content("b\n")),
            "--- a/d/f\\n.txt\n+++ b/d/f\\n.txt\n@@ -1 +1 @@\n-b\n+a\n"
        );
        assert!(shown(Content::default()).starts_with("--- /dev/null\n+++ b/"));
    }

    #[test]
    fn redacted_text_is_absent_from_diff() {
        const KEY: &str = "key0\nkey1\nkey2\nkey3\nkey4\nkey5\nkey6\nkey7\nkey8\n";
        fn without_key(text: &str) -> Cow<'_, str> {
            text.replace(KEY, "*\n").into()
        }
        let content = |text: String| Content {
            bytes: text.into(),
            state: State::Whole,
            sha256: None,
        };
        let between = |old: &str, new: &str| {
            let sides = [format!("{KEY}{old}"), format!("{KEY}{new}")].map(content);
            let deadline = Instant::now() + TEXT_TIME;
            [without_key, unredacted]
                .map(|redact| diff(Path::new("f"), sides.each_ref(), &redact, deadline, &mut 1000).0)
        };
        let [shown, all] = between("one\n", "two\n");
        assert!(all.contains("key8"), "the control: {all}");
        assert_eq!(shown, "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n *\n-one\n+two\n");
        assert_eq!(between("x", "x")[0], REDACTED);
    }

    #[test]
    fn comparison_covers_content_mode_target_and_kind_but_not_time() {
        let (old, new) = (Scratch::new(), Scratch::new());
        for scratch in [&old, &new] {
            fs::create_dir(scratch.path("same")).unwrap();
            fs::write(scratch.path("same/file"), "same").unwrap();
            fs::write(scratch.path("content"), "one\n").unwrap();
            fs::write(scratch.path("mode"), "text").unwrap();
            fs::write(scratch.path("binary"), [0, 1]).unwrap();
            fs::write(scratch.path("long"), "x".repeat(101)).unwrap();
            symlink("same", scratch.path("link")).unwrap();
        }
        assert!(between(&old, &new).is_empty());
        fs::write(new.path("content"), "two\n").unwrap();
        fs::set_permissions(new.path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(new.path("binary"), [0, 2]).unwrap();
        fs::write(new.path("long"), "y".repeat(101)).unwrap();
        fs::remove_file(new.path("link")).unwrap();
        symlink("/etc", new.path("link")).unwrap();
        fs::write(old.path("gone"), "bye\n").unwrap();
        fs::create_dir(new.path("kind")).unwrap();
        fs::write(old.path("kind"), "file").unwrap();
        let changes = between(&old, &new);
        assert_eq!(
            said(&changes),
            [
                "Changed binary",
                "Changed content",
                "Deleted gone",
                "Changed kind",
                "Changed link",
                "Changed long",
                "Changed mode"
            ]
        );
        let diff = |index: usize| changes[index].diff.as_deref();
        assert_eq!(diff(0), Some(BINARY));
        assert_eq!(
            diff(1),
            Some("--- a/content\n+++ b/content\n@@ -1 +1 @@\n-one\n+two\n")
        );
        assert!(diff(2).unwrap().contains("-bye"));
        assert_eq!((diff(4), diff(6)), (None, None));
        assert_eq!(diff(5), Some(TOO_LARGE));
        assert_eq!(changes[4].risks[0].rule, "link.outside");
        assert_eq!(changes[6].risks[0].rule, "executable");
    }

    #[test]
    fn described_side_is_compared_by_digest_and_checked() {
        let scratch = Scratch::new();
        fs::write(scratch.path("same"), "same").unwrap();
        fs::write(scratch.path("other"), "new").unwrap();
        let node = |content: &str| Node {
            kind: EntryKind::File,
            mode: 0o644,
            size: content.len() as u64,
            mtime: Timestamp(0, 0),
            sha256: Some(Sha256::digest(content).into()),
            stamp: None,
        };
        let mut described = Side {
            nodes: [("same".into(), node("same")), ("other".into(), node("old"))].into(),
            open: Box::new(|path| match path.to_str() {
                Some("other") => Ok(Box::new(&b"old"[..])),
                _ => panic!("{path:?} did not change and is not read"),
            }),
        };
        let live = Side::live(scratch.root(), WALK).unwrap();
        let changes = compare(&described, &live, BOUNDS).unwrap();
        assert_eq!(said(&changes.list), ["Changed other"]);
        assert!(changes.list[0].diff.as_ref().unwrap().contains("-old"));
        described.open = Box::new(|_| Ok(Box::new(&b"forged"[..])));
        assert!(matches!(
            compare(&described, &live, BOUNDS),
            Err(TreeError::Refused { .. })
        ));
    }

    #[test]
    fn large_file_of_described_side_is_not_read() {
        let scratch = Scratch::new();
        fs::write(scratch.path("changed"), "new").unwrap();
        let node = || Node {
            kind: EntryKind::File,
            mode: 0o644,
            size: 4 << 30,
            mtime: Timestamp(0, 0),
            sha256: Some([7; 32]),
            stamp: None,
        };
        let described = Side {
            nodes: [("changed".into(), node()), ("gone".into(), node())].into(),
            open: Box::new(|path| panic!("{path:?} is read")),
        };
        let live = Side::live(scratch.root(), WALK).unwrap();
        let changes = compare(&described, &live, BOUNDS).unwrap().list;
        assert_eq!(said(&changes), ["Changed changed", "Deleted gone"]);
        let is_too_large = |change: &Change| change.diff.as_deref() == Some(TOO_LARGE);
        assert!(changes.iter().all(is_too_large), "{changes:?}");
    }

    #[test]
    fn bounds_are_enforced_and_token_identifies_changes() {
        let (old, new) = (Scratch::new(), Scratch::new());
        for number in 0..40 {
            fs::write(new.path(format!("{number:02}")), format!("{}\n", "x".repeat(90))).unwrap();
        }
        let sides = || {
            (
                Side::live(old.root(), WALK).unwrap(),
                Side::live(new.root(), WALK).unwrap(),
            )
        };
        let (before, after) = sides();
        let changes = compare(&before, &after, BOUNDS).unwrap();
        let shown: usize = changes
            .list
            .iter()
            .filter_map(|change| change.diff.as_ref())
            .map(String::len)
            .sum();
        assert!(shown < 5000, "{shown}");
        assert!(changes.list[39].diff.as_deref() == Some(NOT_SHOWN));
        let few = CompareBounds {
            read_bytes: 1000,
            ..BOUNDS
        };
        assert!(matches!(
            compare(&before, &after, few),
            Err(TreeError::TooLarge { .. })
        ));
        assert_eq!(compare(&before, &after, BOUNDS).unwrap().token(), changes.token());
        fs::write(new.path("39"), "other").unwrap();
        let (before, after) = sides();
        assert_ne!(compare(&before, &after, BOUNDS).unwrap().token(), changes.token());
    }

    #[test]
    fn risky_changes_have_their_own_diff_space_and_are_marked_when_cut() {
        let (old, new) = (Scratch::new(), Scratch::new());
        for number in 0..40 {
            fs::write(new.path(format!("!{number:02}")), "x".repeat(90)).unwrap();
            fs::write(old.path(format!("{number:02}.mk")), "x".repeat(90)).unwrap();
        }
        fs::write(new.path("Makefile"), "all: ; evil\n").unwrap();
        let changes = between(&old, &new);
        let find = |changes: &[Change], name: &str| {
            let found = changes.iter().find(|change| change.path == Path::new(name));
            let found = found.unwrap();
            (found.diff.clone().unwrap(), found.cut)
        };
        assert!(
            find(&changes, "!39").1,
            "the control: there is no room for plain files"
        );
        assert!(find(&changes, "39.mk").1, "nor for what is deleted");
        let (diff, cut) = find(&changes, "Makefile");
        assert!(diff.contains("+all: ; evil") && !cut, "{diff}");
        fs::write(new.path(".envrc"), "a\n".repeat(50)).unwrap();
        for number in 0..12 {
            fs::write(
                new.path(format!("{number:02}.sh")),
                format!("#!/bin/sh\n{}", "x".repeat(80)),
            )
            .unwrap();
        }
        let changes = between(&old, &new);
        assert!(!find(&changes, ".envrc").1);
        assert_eq!(find(&changes, "Makefile"), (NOT_SHOWN.to_owned(), true));
    }

    #[test]
    fn hard_linked_file_is_special_and_not_read() {
        let (old, new) = (Scratch::new(), Scratch::new());
        fs::write(new.outside("canary"), "canary").unwrap();
        fs::hard_link(new.outside("canary"), new.path("x")).unwrap();
        let changes = between(&old, &new);
        assert_eq!(changes[0].new.as_ref().unwrap().kind, EntryKind::Other);
        assert_eq!(
            (changes[0].diff.as_deref(), changes[0].risks[0].rule),
            (None, "special")
        );
    }
}
