//! In which directories of the host files are read, listed and written, and how a path of a caller's becomes an open
//! file: below one of them, by one resolution that follows no link, and never by its path again.

use crate::{secret_places, words::escaped};
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
    /// What may be done in a directory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Access {
        /// Files are read, and copied into a workspace; commands may work here.
        Read = "read",
        List = "list",
        Write = "write",
    }
}

/// A rule as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectoryText {
    pub(crate) path: PathBuf,
    pub(crate) access: Vec<Access>,
    #[serde(default = "everybody")]
    pub(crate) namespaces: Vec<String>,
}

fn everybody() -> Vec<String> {
    vec!["*".to_owned()]
}

/// A directory that callers may use, opened once.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Where it was when it was opened, without links.
    pub path: PathBuf,
    pub access: Vec<Access>,
    /// Whose programs: names, or a beginning followed by `*`.
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
            return Err("the root of all files is no directory to let callers into".to_owned());
        }
        if let Some(place) = secret_places::in_path(&path) {
            return Err(format!("{} is a place of secrets (`{place}`)", path.display()));
        }
        let handle = file::open_listing_unlinked(&path).map_err(failed)?;
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

    /// Opens what a path below means.
    fn resolve(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, RequestError> {
        let way = match below.as_os_str().is_empty() {
            true => Path::new("."),
            false => below,
        };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat2(&*self.handle, way, flags, Mode::empty(), how)
            .map_err(|error| unopened(&self.path.join(below), error))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Directories {
    all: Vec<Directory>,
    /// What the server keeps, or is decided by, and from which access on it is closed to every caller: `Read` or
    /// `Write`.
    guarded: Vec<(PathBuf, Access)>,
}

impl Directories {
    pub fn iter(&self) -> impl Iterator<Item = &Directory> {
        self.all.iter()
    }

    pub(crate) fn push(&mut self, directory: Directory) {
        self.all.push(directory);
    }

    /// Closes a file, or everything below a directory, to this access of every caller, by each way that leads there.
    pub(crate) fn guard(&mut self, path: &Path, from: Access) {
        let ways = file::ways(path).into_iter();
        self.guarded.extend(ways.map(|way| (way, from)));
    }

    fn guarded(&self, access: Access) -> impl Iterator<Item = &Path> {
        let is_closed = move |from: &Access| *from != Access::Write || access == Access::Write;
        let closed = self.guarded.iter().filter(move |(_, from)| is_closed(from));
        closed.map(|(path, _)| path.as_path())
    }

    /// Whether a guarded file or directory is this one, by whatever name.
    fn refuse_guarded(&self, path: &Path, stat: &Stat, access: Access) -> Result<(), RequestError> {
        match self.guarded(access).any(|guarded| is_at(guarded, stat)) {
            true => Err(own(path)),
            false => Ok(()),
        }
    }

    /// What of the guarded lies in a path of a rule's effect, or around it.
    pub(crate) fn guarded_in(&self, path: &Path, access: Access) -> Option<&Path> {
        let (ways, stat) = (file::ways(path), rustix::fs::stat(path).ok());
        let mut guarded = self.guarded(access);
        guarded.find(|guarded| {
            let mut above = guarded.ancestors();
            let lies = |way: &PathBuf| guarded.starts_with(way) || way.starts_with(guarded);
            ways.iter().any(lies) || stat.is_some_and(|stat| above.any(|above| is_at(above, &stat)))
        })
    }

    /// The rule that is about a path and gives this access: one of those with the longest path, whatever a wider rule
    /// gives.
    pub(crate) fn rule_of(&self, path: &Path, namespace: &str, access: Access) -> Option<&Directory> {
        let length = |directory: &Directory| directory.path.components().count();
        let about = || {
            self.all
                .iter()
                .filter(|directory| path.starts_with(&directory.path))
        };
        let longest = about().map(length).max()?;
        about().find(|directory| length(directory) == longest && directory.allows(namespace, access))
    }

    /// What in a directory, or around it, is closed to this access of a command that has all of it.
    pub(crate) fn closed_below(&self, open: &OpenFile, namespace: &str, access: Access) -> Option<&Path> {
        let is_in = |path: &&Path| {
            path.starts_with(&open.path)
                || open.path.starts_with(path)
                || path.ancestors().any(|above| is_at(above, &open.stat))
        };
        let narrower = self.all.iter().map(|directory| directory.path.as_path());
        let narrower = narrower
            .filter(|path| path.starts_with(&open.path) && self.rule_of(path, namespace, access).is_none());
        self.guarded(access).filter(is_in).chain(narrower).next()
    }
}

fn is_at(path: &Path, stat: &Stat) -> bool {
    let found = rustix::fs::stat(path);
    found.is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino))
}

fn own(path: &Path) -> RequestError {
    let what = "decides what is allowed here, or is the server's own";
    denied(path, what, "No rule opens it.")
}

pub(crate) fn unopened(path: &Path, error: rustix::io::Errno) -> RequestError {
    use rustix::io::Errno;
    match error {
        Errno::LOOP => denied(path, "leads through a link", WHERE_IT_IS),
        Errno::XDEV => {
            let hint = "Name a path below a directory that is listed.";
            denied(path, "leaves its directory", hint)
        }
        Errno::NOENT | Errno::NOTDIR => RequestError::not_found(
            format!("{} is not there.", shown(path)),
            "List the directory above it.",
        ),
        error => {
            let error = std::io::Error::from(error);
            denied(path, &format!("cannot be opened: {error}"), RIGHT_TO_IT)
        }
    }
}

const WHERE_IT_IS: &str = "Name the file where it really is.";
const PLAIN_ONLY: &str = "Only plain files and directories are opened.";
pub(crate) const RIGHT_TO_IT: &str = "The server's user needs the right to it.";

/// Refuses a path, which the sentence begins with.
pub(crate) fn denied(path: &Path, what: &str, hint: &str) -> RequestError {
    RequestError::denied(format!("{} {what}.", shown(path)), hint)
}

/// The same where the caller can write it otherwise.
pub(crate) fn invalid(path: &Path, what: &str, hint: &str) -> RequestError {
    RequestError::invalid(format!("{} {what}.", shown(path)), hint)
}

pub(crate) fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// A file or directory that was admitted, held open.
#[derive(Debug)]
pub struct OpenFile {
    /// Where it was when it was opened, without links.
    pub path: PathBuf,
    pub(crate) handle: OwnedFd,
    pub(crate) stat: Stat,
}

impl OpenFile {
    pub(crate) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }
}

/// The directory above a file that is to be written, held open, and the file's name in it.
#[derive(Debug)]
pub(crate) struct OpenParent {
    pub(crate) path: PathBuf,
    pub(crate) directory: OwnedFd,
    pub(crate) name: std::ffi::OsString,
}

/// Finds the rule for a path of a caller's and opens what it means, to look at only.
pub(crate) fn open(
    directories: &Directories,
    namespace: &str,
    path: &Path,
    access: Access,
) -> Result<OpenFile, RequestError> {
    let (directory, below) = admit(directories, namespace, path, access)?;
    let handle = directory.resolve(&below, OFlags::PATH)?;
    // Without the slash that an empty rest would leave.
    let path: PathBuf = directory.path.join(&below).components().collect();
    let stat = rustix::fs::fstat(&handle).map_err(|error| unopened(&path, error))?;
    check(&path, &stat)?;
    directories.refuse_guarded(&path, &stat, access)?;
    refuse_foreign(&path, handle.as_fd())?;
    Ok(OpenFile { path, handle, stat })
}

/// The same for a file that is to be written, which need not be there.
pub(crate) fn open_parent(
    directories: &Directories,
    namespace: &str,
    path: &Path,
) -> Result<OpenParent, RequestError> {
    let (directory, below) = admit(directories, namespace, path, Access::Write)?;
    let (Some(parent), Some(name)) = (below.parent(), below.file_name().map(OsStr::to_owned)) else {
        return Err(denied(path, "is a directory", "Name a file."));
    };
    let opened = directory.resolve(parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
    refuse_foreign(&directory.path, opened.as_fd())?;
    let path = directory.path.join(&below);
    if let Some(stat) = look(opened.as_fd(), &name).map_err(|error| unopened(&path, error))? {
        directories.refuse_guarded(&path, &stat, Access::Write)?;
    }
    Ok(OpenParent {
        path,
        directory: opened,
        name,
    })
}

/// The rule with the longest path counts, and the places of secrets after that.
fn admit<'a>(
    directories: &'a Directories,
    namespace: &str,
    path: &Path,
    access: Access,
) -> Result<(&'a Directory, PathBuf), RequestError> {
    let strange = |part: Component<'_>| matches!(part, Component::ParentDir | Component::Prefix(_));
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.len() > PATH_BYTES_MAX
        || bytes.contains(&0)
        || !path.is_absolute()
        || path.components().any(strange)
    {
        let what = "is not an absolute path without `..`";
        return Err(invalid(path, what, "Write the path from `/`."));
    }
    let written = path;
    let path: PathBuf = written.components().collect();
    let Some(directory) = directories.rule_of(&path, namespace, access) else {
        let (access, shown) = (access.as_str(), shown(written));
        return Err(RequestError::denied(
            format!("no directory rule lets this namespace {access} {shown}."),
            "`list_host_access` has the directories; the operator adds one to `directories` of the host rules.",
        ));
    };
    if directories
        .guarded(access)
        .any(|guarded| path.starts_with(guarded))
    {
        return Err(own(&path));
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

/// Only plain files with one name, and directories.
pub(crate) fn check(path: &Path, stat: &Stat) -> Result<(), RequestError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(()),
        FileType::RegularFile if stat.st_nlink == 1 => Ok(()),
        FileType::RegularFile => {
            let what = "has another name (a hard link), which may be anywhere";
            Err(denied(path, what, "Copy the file."))
        }
        FileType::Symlink => Err(denied(path, "is a link", WHERE_IT_IS)),
        _ => Err(denied(path, "is a device, a FIFO or a socket", PLAIN_ONLY)),
    }
}

fn refuse_foreign(path: &Path, open: BorrowedFd<'_>) -> Result<(), RequestError> {
    match is_of_the_kernel(open).map_err(|error| unopened(path, error))? {
        true => Err(denied(path, "is the kernel's, not a file", PLAIN_ONLY)),
        false => Ok(()),
    }
}

/// File systems of the kernel may be mounted anywhere (statfs(2)).
pub(crate) fn is_of_the_kernel(open: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    const OF_THE_KERNEL: [i64; 8] = [
        0x9fa0,      // proc
        0x6265_6572, // sysfs
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x6377_7366, // cgroup 2 is 0x63677270, cgroup 1 0x27e0eb
        0x6367_7270,
        0x0027_e0eb,
        0x7363_6673, // securityfs
    ];
    Ok(OF_THE_KERNEL.contains(&(rustix::fs::fstatfs(open)?.f_type as i64)))
}

/// What stands directly in a directory under this name, without following a link; none: nothing does.
pub(crate) fn look(directory: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, rustix::io::Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
