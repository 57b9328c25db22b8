//! Directories of the host in which files are read, listed and written, and the opening of a caller's path: one
//! resolution below one of these directories that follows no link, after which only the open file is used.

use crate::{
    secret_places,
    subtrees::{Mounts, Subtree},
    words::escaped,
};
use ringfence_sys::file;
use ringfence_types::{RequestError, closed_words};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use serde::Deserialize;
use std::{
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

const PATH_BYTES_MAX: usize = 4096;

closed_words! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Access {
        /// Reads files, and copies them into a workspace; commands may have it as their directory.
        Read = "read",
        List = "list",
        Write = "write",
    }
}

/// A directory rule as written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectoryText {
    pub(crate) path: PathBuf,
    pub(crate) access: Vec<Access>,
    #[serde(default = "all_namespaces")]
    pub(crate) namespaces: Vec<String>,
}

fn all_namespaces() -> Vec<String> {
    vec!["*".to_owned()]
}

/// A directory that callers may use, opened once.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Canonical path at the time of opening.
    pub path: PathBuf,
    pub access: Vec<Access>,
    /// Namespaces that the rule is for: names, or a prefix followed by `*`.
    pub namespaces: Vec<String>,
    handle: Arc<OwnedFd>,
}

impl Directory {
    pub(crate) fn open(text: DirectoryText) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", text.path.display());
        if !text.path.is_absolute() {
            return Err(format!("the path {} is relative", text.path.display()));
        }
        let path = text.path.canonicalize().map_err(failed)?;
        if path == Path::new("/") {
            return Err("the root directory `/` cannot be opened to callers".to_owned());
        }
        if let Some(place) = secret_places::in_path(&path) {
            return Err(format!("{} is a place of secrets (`{place}`)", path.display()));
        }
        let handle = file::open_listing_no_symlinks(&path).map_err(failed)?;
        Ok(Self {
            path,
            access: text.access,
            namespaces: text.namespaces,
            handle: Arc::new(handle),
        })
    }

    pub fn allows(&self, namespace: &str, access: Access) -> bool {
        let is_for = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => namespace.starts_with(beginning),
            None => pattern == namespace,
        };
        self.access.contains(&access) && self.namespaces.iter().any(is_for)
    }

    /// Opens a path below this directory, without following links or leaving it.
    fn resolve(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, RequestError> {
        let relative = match below.as_os_str().is_empty() {
            true => Path::new("."),
            false => below,
        };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat2(&*self.handle, relative, flags, Mode::empty(), how)
            .map_err(|error| open_error(&self.path.join(below), error))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Directories {
    all: Vec<Directory>,
    /// Paths of the server's own files and of its settings as they were given, each with the access that is closed to
    /// every caller: `Write`, or `Read` for every access.
    guarded: Vec<(PathBuf, Access)>,
}

impl Directories {
    pub fn iter(&self) -> impl Iterator<Item = &Directory> {
        self.all.iter()
    }

    pub(crate) fn push(&mut self, directory: Directory) {
        self.all.push(directory);
    }

    /// Closes a file, or everything below a directory, to this access of every caller, by each path that leads there.
    pub(crate) fn guard(&mut self, path: PathBuf, from: Access) {
        self.guarded.push((path, from));
    }

    /// Reads the mounts and the links on guarded paths, once for all checks of a request.
    pub(crate) fn mounted(&self) -> Result<Mounted<'_>, RequestError> {
        let mounts = Mounts::read().map_err(|error| {
            RequestError::fault(
                format!("the mounts cannot be read: {error}."),
                "Mount /proc for the server.",
            )
        })?;
        let mut guarded: Vec<Guarded> = Vec::new();
        for &(ref path, from) in &self.guarded {
            for path in file::resolution_paths(path) {
                let is_same = |known: &Guarded| known.path == path && known.from == from;
                if !guarded.iter().any(is_same) {
                    let shown = mounts.shown_by(&path);
                    guarded.push(Guarded { path, from, shown });
                }
            }
        }
        Ok(Mounted {
            guarded,
            directories: self,
            mounts,
        })
    }

    /// Returns a rule for the path that gives this access; only those with the longest path count, not wider ones.
    pub(crate) fn rule_for(&self, path: &Path, namespace: &str, access: Access) -> Option<&Directory> {
        let length = |directory: &Directory| directory.path.components().count();
        let about = || {
            self.all
                .iter()
                .filter(|directory| path.starts_with(&directory.path))
        };
        let longest = about().map(length).max()?;
        about().find(|directory| length(directory) == longest && directory.allows(namespace, access))
    }
}

/// The directories, and where guarded paths lie by the mounts at the time of a request.
pub(crate) struct Mounted<'a> {
    pub(crate) directories: &'a Directories,
    mounts: Mounts,
    guarded: Vec<Guarded>,
}

struct Guarded {
    path: PathBuf,
    from: Access,
    shown: Vec<Subtree>,
}

impl Mounted<'_> {
    fn guarded(&self, access: Access) -> impl Iterator<Item = &Guarded> {
        let is_closed = move |from: Access| from != Access::Write || access == Access::Write;
        self.guarded.iter().filter(move |guarded| is_closed(guarded.from))
    }

    /// Refuses a file or directory that is a guarded one, or lies in one, under any name and through any mount.
    fn refuse_guarded(&self, open: &OpenFile, access: Access) -> Result<(), RequestError> {
        let subtree = self.mounts.subtree(&open.path, &open.handle, Path::new(""));
        let is_closed = |guarded: &Guarded| {
            let holds = |subtree: &Subtree| guarded.shown.iter().any(|own| own.holds(subtree));
            is_same_file(&guarded.path, &open.stat) || subtree.as_ref().is_none_or(holds)
        };
        match self.guarded(access).any(is_closed) {
            true => Err(server_owned(&open.path)),
            false => Ok(()),
        }
    }

    /// Returns a guarded path that contains a path of a rule's effect, or lies in it.
    pub(crate) fn guarded_in(&self, path: &Path, access: Access) -> Option<&Path> {
        let (paths, stat) = (file::resolution_paths(path), rustix::fs::stat(path).ok());
        let shown = paths.iter().flat_map(|path| self.mounts.shown_by(path));
        let shown: Vec<Subtree> = shown.collect();
        let overlaps = |guarded: &&Guarded| {
            let mut above = guarded.path.ancestors();
            let overlaps = |path: &PathBuf| guarded.path.starts_with(path) || path.starts_with(&guarded.path);
            paths.iter().any(overlaps)
                || stat.is_some_and(|stat| above.any(|at| is_same_file(at, &stat)))
                || overlap(&shown, &guarded.shown)
        };
        self.guarded(access)
            .find(overlaps)
            .map(|guarded| guarded.path.as_path())
    }

    /// Returns a path in or around a directory that is closed to this access of a command that has all of it.
    pub(crate) fn closed_below(&self, open: &OpenFile, namespace: &str, access: Access) -> Option<&Path> {
        let shown = self.mounts.shown_by(&open.path);
        let is_in = |guarded: &&Guarded| {
            let path = &guarded.path;
            path.starts_with(&open.path)
                || open.path.starts_with(path)
                || path.ancestors().any(|above| is_same_file(above, &open.stat))
                || overlap(&shown, &guarded.shown)
        };
        let is_closed = |path: &Path| self.directories.rule_for(path, namespace, access).is_none();
        let narrower = self.directories.iter().map(|directory| directory.path.as_path());
        let mut narrower = narrower.filter(|path| path.starts_with(&open.path) && is_closed(path));
        let guarded = self
            .guarded(access)
            .find(is_in)
            .map(|guarded| guarded.path.as_path());
        guarded.or_else(|| narrower.next())
    }
}

fn overlap(some: &[Subtree], others: &[Subtree]) -> bool {
    let overlaps = |one: &Subtree| others.iter().any(|other| one.holds(other) || other.holds(one));
    some.iter().any(overlaps)
}

/// True if both are the same file; a link is not the same as its target.
fn is_same_file(path: &Path, stat: &Stat) -> bool {
    let found = rustix::fs::lstat(path);
    found.is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino))
}

fn server_owned(path: &Path) -> RequestError {
    let what = "decides what is allowed here, or is the server's own";
    denied(path, what, "No rule opens it.")
}

pub(crate) fn open_error(path: &Path, error: rustix::io::Errno) -> RequestError {
    use rustix::io::Errno;
    match error {
        Errno::LOOP => denied(path, "leads through a link", NAME_REAL_PATH),
        Errno::XDEV => {
            let hint = "Name a path below a directory that is listed.";
            denied(path, "leaves its directory", hint)
        }
        Errno::NOENT | Errno::NOTDIR => RequestError::not_found(
            format!("{} is not there.", displayed(path)),
            "List the directory above it.",
        ),
        error => {
            let error = std::io::Error::from(error);
            denied(path, &format!("cannot be opened: {error}"), PERMISSION_NEEDED)
        }
    }
}

const NAME_REAL_PATH: &str = "Name the file where it really is.";
const PLAIN_ONLY: &str = "Only plain files and directories are opened.";
pub(crate) const PERMISSION_NEEDED: &str = "The server's user needs the right to it.";

/// Refuses a path; the message is the path followed by `what`.
pub(crate) fn denied(path: &Path, what: &str, hint: &str) -> RequestError {
    RequestError::denied(format!("{} {what}.", displayed(path)), hint)
}

/// The same for a path that the caller can correct.
pub(crate) fn invalid(path: &Path, what: &str, hint: &str) -> RequestError {
    RequestError::invalid(format!("{} {what}.", displayed(path)), hint)
}

pub(crate) fn displayed(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// An admitted file or directory, held open.
#[derive(Debug)]
pub struct OpenFile {
    /// Canonical path at the time of opening.
    pub path: PathBuf,
    pub(crate) handle: OwnedFd,
    pub(crate) stat: Stat,
}

impl OpenFile {
    pub(crate) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }
}

/// The parent directory of a file to be written, held open, and the file's name in it.
#[derive(Debug)]
pub(crate) struct OpenParent {
    pub(crate) path: PathBuf,
    pub(crate) directory: OwnedFd,
    pub(crate) name: std::ffi::OsString,
    /// `None`: the file does not exist.
    pub(crate) file: Option<OpenFile>,
}

/// Finds the rule for a caller's path and opens the path with `O_PATH`.
pub(crate) fn open(
    directories: &Mounted<'_>,
    namespace: &str,
    path: &Path,
    access: Access,
) -> Result<OpenFile, RequestError> {
    let (directory, below) = admit(directories, namespace, path, access)?;
    let handle = directory.resolve(&below, OFlags::PATH)?;
    // Drops the trailing slash that an empty `below` leaves.
    let path = directory.path.join(&below).components().collect();
    checked(directories, path, handle, access)
}

/// Checks a file or directory that is open.
fn checked(
    directories: &Mounted<'_>,
    path: PathBuf,
    handle: OwnedFd,
    access: Access,
) -> Result<OpenFile, RequestError> {
    let stat = rustix::fs::fstat(&handle).map_err(|error| open_error(&path, error))?;
    check(&path, &stat)?;
    refuse_kernel_filesystem(&path, handle.as_fd())?;
    let open = OpenFile { path, handle, stat };
    directories.refuse_guarded(&open, access)?;
    Ok(open)
}

/// The same for the parent of a file to be written; the file need not exist.
pub(crate) fn open_parent(
    directories: &Mounted<'_>,
    namespace: &str,
    path: &Path,
) -> Result<OpenParent, RequestError> {
    let (directory, below) = admit(directories, namespace, path, Access::Write)?;
    let (Some(parent), Some(name)) = (below.parent(), below.file_name().map(OsStr::to_owned)) else {
        return Err(denied(path, "is a directory", "Name a file."));
    };
    let opened = directory.resolve(parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let above = directory.path.join(parent).components().collect();
    let mut opened = checked(directories, above, opened, Access::Write)?;
    let path = directory.path.join(&below);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(&opened.handle, &name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {
            // The new file will lie in the same mount as its parent.
            opened.path = path.clone();
            directories.refuse_guarded(&opened, Access::Write)?;
            None
        }
        Err(error) => return Err(open_error(&path, error)),
        Ok(handle) => Some(checked(directories, path.clone(), handle, Access::Write)?),
    };
    Ok(OpenParent {
        path,
        directory: opened.handle,
        name,
        file,
    })
}

/// Finds the rule with the longest path, then refuses guarded paths and secret places.
fn admit<'a>(
    directories: &Mounted<'a>,
    namespace: &str,
    path: &Path,
    access: Access,
) -> Result<(&'a Directory, PathBuf), RequestError> {
    let is_refused = |part: Component<'_>| matches!(part, Component::ParentDir | Component::Prefix(_));
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.len() > PATH_BYTES_MAX
        || bytes.contains(&0)
        || !path.is_absolute()
        || path.components().any(is_refused)
    {
        let what = "is not an absolute path without `..`";
        return Err(invalid(path, what, "Write the path from `/`."));
    }
    let written = path;
    let path: PathBuf = written.components().collect();
    let Some(directory) = directories.directories.rule_for(&path, namespace, access) else {
        let (access, displayed) = (access.as_str(), displayed(written));
        return Err(RequestError::denied(
            format!("no directory rule lets this namespace {access} {displayed}."),
            "`list_host_access` has the directories; the operator adds one to `directories` of the host rules.",
        ));
    };
    if directories
        .guarded(access)
        .any(|guarded| path.starts_with(&guarded.path))
    {
        return Err(server_owned(&path));
    }
    if let Some(place) = secret_places::in_path(&path) {
        let what = format!("is a place of secrets (`{}`)", escaped(&place));
        return Err(denied(written, &what, "No rule opens it."));
    }
    let below = path
        .strip_prefix(&directory.path)
        .unwrap_or(Path::new(""))
        .to_owned();
    Ok((directory, below))
}

/// Refuses everything but directories and regular files with one link.
pub(crate) fn check(path: &Path, stat: &Stat) -> Result<(), RequestError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(()),
        FileType::RegularFile if stat.st_nlink == 1 => Ok(()),
        FileType::RegularFile => {
            let what = "has another name (a hard link), which may be anywhere";
            Err(denied(path, what, "Copy the file."))
        }
        FileType::Symlink => Err(denied(path, "is a link", NAME_REAL_PATH)),
        _ => Err(denied(path, "is a device, a FIFO or a socket", PLAIN_ONLY)),
    }
}

fn refuse_kernel_filesystem(path: &Path, open: BorrowedFd<'_>) -> Result<(), RequestError> {
    match is_kernel_filesystem(open).map_err(|error| open_error(path, error))? {
        true => Err(denied(path, "is the kernel's, not a file", PLAIN_ONLY)),
        false => Ok(()),
    }
}

/// True if the file lies in a file system of the kernel, wherever that is mounted (statfs(2)).
pub(crate) fn is_kernel_filesystem(open: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    const KERNEL_MAGICS: [i64; 24] = [
        0x0000_1cd1, // devpts
        0x0000_9fa0, // proc
        0x0027_e0eb, // cgroup 1
        0x0765_5821, // resctrl
        0x1980_0202, // mqueue
        0x4249_4e4d, // binfmt_misc
        0x4341_5d53, // smackfs
        0x5a3c_69f0, // apparmorfs
        0x6165_676c, // pstore
        0x6265_6570, // configfs
        0x6265_6572, // sysfs
        0x6367_7270, // cgroup 2
        0x6462_6720, // debugfs
        0x6573_5543, // fusectl
        0x6759_6969, // rpc_pipefs
        0x6c6f_6f70, // binderfs
        0x6e66_7364, // nfsd
        0x6e73_6673, // nsfs
        0x7363_6673, // securityfs
        0x7472_6163, // tracefs
        0xabba_1974, // xenfs
        0xcafe_4a11, // bpf
        0xde5e_81e4, // efivarfs
        0xf97c_ff8c, // selinuxfs
    ];
    Ok(KERNEL_MAGICS.contains(&(rustix::fs::fstatfs(open)?.f_type as i64)))
}

/// The stat of a directory entry, without following a link. `None`: no such entry.
pub(crate) fn stat_entry(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, rustix::io::Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

    #[test]
    fn kernel_filesystems_are_recognised_at_any_mount_point() {
        #![expect(clippy::disallowed_methods, reason = "reads which checks must not be skipped")]
        let mount = |name: &str| {
            let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            fsmount(
                context.as_fd(),
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::empty(),
            )
        };
        if let Err(error) = mount("tmpfs") {
            let required = std::env::var("RINGFENCE_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|word| word.trim() == "root"),
                "RINGFENCE_REQUIRE asks for root"
            );
            eprintln!("skipped: making these file systems needs CAP_SYS_ADMIN: {error}");
            return;
        }
        let supported = std::fs::read_to_string("/proc/filesystems").unwrap();
        let mut seen = 0;
        for name in [
            "binfmt_misc",
            "bpf",
            "cgroup2",
            "configfs",
            "debugfs",
            "devpts",
            "efivarfs",
            "fusectl",
            "mqueue",
            "proc",
            "pstore",
            "securityfs",
            "selinuxfs",
            "sysfs",
            "tracefs",
        ] {
            let is_known = supported
                .lines()
                .any(|line| line.split_whitespace().last() == Some(name));
            match mount(name) {
                Ok(root) => assert!(is_kernel_filesystem(root.as_fd()).unwrap(), "{name}"),
                Err(error) => {
                    assert!(!is_known || name == "efivarfs", "{name}: {error}");
                    continue;
                }
            }
            seen += 1;
        }
        assert!(seen >= 4, "{seen} of them were made");
        let plain = mount("tmpfs").unwrap();
        assert!(!is_kernel_filesystem(plain.as_fd()).unwrap());
    }
}
