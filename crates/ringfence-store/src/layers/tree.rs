//! A directory that an installer has left, copied into a layer, and a layer held against its manifest. Nothing is
//! followed: neither on the way in, where the names are a stranger's, nor later.

use super::{
    LayerError,
    manifest::{Entry, Manifest, hex},
};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

/// The most entries of a layer.
const ENTRIES_MAX: usize = 200_000;
/// Directories inside each other.
const DEPTH_MAX: usize = 64;
const CHUNK_BYTES: usize = 256 << 10;
const DIRECTORY_MODE: u32 = 0o755;

/// What a file looks like from outside: it changes when the file does, and nobody can set it.
pub(super) type Stamp = (u64, i64, i64, u64, u32);

fn stamp(stat: &Stat) -> Stamp {
    (
        u64::try_from(stat.st_size).unwrap_or(0),
        stat.st_ctime,
        i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
        stat.st_ino,
        stat.st_mode,
    )
}

/// One entry of a walk.
struct Seen {
    path: String,
    name: PathBuf,
    kind: FileType,
    stat: Stat,
}

/// The entries of one directory by name; every one counts against `left`.
fn list(directory: BorrowedFd<'_>, below: &str, left: &mut usize) -> Result<Vec<Seen>, LayerError> {
    let failed = |error: io::Error| LayerError::io("list", below)(error);
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory).map_err(|error| failed(error.into()))? {
        let entry = entry.map_err(|error| failed(error.into()))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        *left = left
            .checked_sub(1)
            .ok_or_else(|| LayerError::Refused(format!("more than {ENTRIES_MAX} files")))?;
        let text = name
            .to_str()
            .map_err(|_| LayerError::Refused(format!("a name below {below:?} is not UTF-8")))?;
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| failed(error.into()))?;
        entries.push(Seen {
            path: if below.is_empty() {
                text.to_owned()
            } else {
                format!("{below}/{text}")
            },
            name: PathBuf::from(text),
            kind: FileType::from_raw_mode(stat.st_mode),
            stat,
        });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn open(base: BorrowedFd<'_>, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(base, name, flags, Mode::empty(), inside)?)
}

fn open_directory(base: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    open(base, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Copies what lies in `from` into the new directory `to`, at most `bytes_max` of content.
pub(super) fn take_in(from: BorrowedFd<'_>, to: &Path, bytes_max: u64) -> Result<Manifest, LayerError> {
    std::fs::create_dir(to).map_err(LayerError::io("make", to))?;
    let target = open_directory(rustix::fs::CWD, to).or_else(|_| File::open(to).map(OwnedFd::from));
    let target = target.map_err(LayerError::io("open", to))?;
    let from = open_directory(from, Path::new(".")).map_err(LayerError::io("open", "."))?;
    let mut copy = Copy {
        entries: Vec::new(),
        left: ENTRIES_MAX,
        bytes_left: bytes_max,
        bytes_max,
    };
    copy.directory(&from, &target, "", 0)?;
    copy.entries.sort_by(|one, other| one.path().cmp(other.path()));
    Ok(Manifest {
        entries: copy.entries,
    })
}

struct Copy {
    entries: Vec<Entry>,
    left: usize,
    bytes_left: u64,
    bytes_max: u64,
}

impl Copy {
    fn directory(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        below: &str,
        depth: usize,
    ) -> Result<(), LayerError> {
        if depth > DEPTH_MAX {
            return Err(LayerError::Refused(format!(
                "more than {DEPTH_MAX} directories inside each other"
            )));
        }
        rustix::fs::fchmod(to, Mode::from_raw_mode(DIRECTORY_MODE))
            .map_err(|error| LayerError::io("close to writers", below)(error.into()))?;
        for seen in list(from.as_fd(), below, &mut self.left)? {
            let failed = |step| LayerError::io(step, &seen.path);
            match seen.kind {
                FileType::Directory => {
                    rustix::fs::mkdirat(to, &seen.name, Mode::from_raw_mode(DIRECTORY_MODE))
                        .map_err(|error| failed("make")(error.into()))?;
                    let inner = open_directory(from.as_fd(), &seen.name).map_err(failed("open"))?;
                    let made = open_directory(to.as_fd(), &seen.name).map_err(failed("open"))?;
                    self.entries.push(Entry::Directory {
                        path: seen.path.clone(),
                    });
                    self.directory(&inner, &made, &seen.path, depth + 1)?;
                }
                FileType::RegularFile => self.file(from, to, &seen)?,
                FileType::Symlink => self.link(from, to, &seen)?,
                _ => {
                    return Err(LayerError::Refused(format!(
                        "{:?} is neither file nor directory",
                        seen.path
                    )));
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, seen: &Seen) -> Result<(), LayerError> {
        let failed = |error: io::Error| LayerError::io("copy", &seen.path)(error);
        let source: File = open(from.as_fd(), &seen.name, OFlags::RDONLY | OFlags::NONBLOCK)
            .map_err(failed)?
            .into();
        let executable = seen.stat.st_mode & 0o111 != 0;
        let mode = if executable { 0o755 } else { 0o644 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to, &seen.name, flags, Mode::from_raw_mode(mode));
        let mut target = File::from(target.map_err(|error| failed(error.into()))?);
        let mut source = source.take(self.bytes_left.saturating_add(1));
        let (size, sha256) = copy_hashed(&mut source, &mut target).map_err(failed)?;
        self.bytes_left = self.bytes_left.checked_sub(size).ok_or(LayerError::TooLarge {
            bytes_max: self.bytes_max,
        })?;
        // Whatever the umask has left of it.
        rustix::fs::fchmod(&target, Mode::from_raw_mode(mode)).map_err(|error| failed(error.into()))?;
        self.entries.push(Entry::File {
            path: seen.path.clone(),
            size,
            executable,
            sha256,
        });
        Ok(())
    }

    fn link(&mut self, from: &OwnedFd, to: &OwnedFd, seen: &Seen) -> Result<(), LayerError> {
        let target = read_link(from.as_fd(), seen)?;
        if !stays_below(&seen.path, &target) {
            return Err(LayerError::Refused(format!("the link {:?} leads out", seen.path)));
        }
        rustix::fs::symlinkat(target.as_str(), to, &seen.name)
            .map_err(|error| LayerError::io("link", &seen.path)(error.into()))?;
        self.entries.push(Entry::Link {
            path: seen.path.clone(),
            target,
        });
        Ok(())
    }
}

fn read_link(directory: BorrowedFd<'_>, seen: &Seen) -> Result<String, LayerError> {
    let target = rustix::fs::readlinkat(directory, &seen.name, Vec::new())
        .map_err(|error| LayerError::io("read", &seen.path)(error.into()))?;
    target
        .into_string()
        .map_err(|_| LayerError::Refused(format!("the link {:?} is not UTF-8", seen.path)))
}

/// Does a relative link at `path` lead to something below the layer, by its letters.
fn stays_below(path: &str, target: &str) -> bool {
    let mut depth = path.matches('/').count();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

fn copy_hashed(source: &mut impl Read, target: &mut impl Write) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut size = 0;
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            return Ok((size, hex(&hash.finalize())));
        }
        hash.update(&buffer[..count]);
        target.write_all(&buffer[..count])?;
        size += count as u64;
    }
}

/// Reads every byte of the layer `name` at `path` and holds it against the manifest.
pub(super) fn check(name: &str, path: &Path, manifest: &Manifest) -> Result<(), LayerError> {
    let mut entries = Vec::new();
    walk(name, path, &mut |directory, seen| {
        entries.push(match seen.kind {
            FileType::Directory => Entry::Directory {
                path: seen.path.clone(),
            },
            FileType::RegularFile => {
                let mut file: File = open(directory, &seen.name, OFlags::RDONLY | OFlags::NONBLOCK)
                    .map_err(LayerError::io("open", &seen.path))?
                    .into();
                let (size, sha256) =
                    copy_hashed(&mut file, &mut io::sink()).map_err(LayerError::io("read", &seen.path))?;
                Entry::File {
                    path: seen.path.clone(),
                    size,
                    executable: seen.stat.st_mode & 0o111 != 0,
                    sha256,
                }
            }
            FileType::Symlink => Entry::Link {
                target: read_link(directory, seen)?,
                path: seen.path.clone(),
            },
            _ => {
                return Err(LayerError::damaged(
                    name,
                    format!("{:?} was not there", seen.path),
                ));
            }
        });
        Ok(())
    })?;
    entries.sort_by(|one, other| one.path().cmp(other.path()));
    let differ = entries
        .iter()
        .zip(&manifest.entries)
        .find(|(now, then)| now != then);
    match differ {
        Some((now, _)) => Err(LayerError::damaged(name, format!("{:?} has changed", now.path()))),
        None if entries.len() != manifest.entries.len() => {
            Err(LayerError::damaged(name, "files have been added or removed"))
        }
        None => Ok(()),
    }
}

/// The stamps of everything in a layer, as one digest: equal, nothing has been touched.
pub(super) fn stamps(name: &str, path: &Path) -> Result<[u8; 32], LayerError> {
    let mut hash = Sha256::new();
    walk(name, path, &mut |_, seen| {
        let (size, seconds, nanoseconds, inode, mode) = stamp(&seen.stat);
        hash.update(seen.path.as_bytes());
        hash.update([0]);
        hash.update(size.to_be_bytes());
        hash.update(seconds.to_be_bytes());
        hash.update(nanoseconds.to_be_bytes());
        hash.update(inode.to_be_bytes());
        hash.update(mode.to_be_bytes());
        Ok(())
    })?;
    Ok(hash.finalize().into())
}

type Visit<'a> = dyn FnMut(BorrowedFd<'_>, &Seen) -> Result<(), LayerError> + 'a;

fn walk(name: &str, path: &Path, visit: &mut Visit<'_>) -> Result<(), LayerError> {
    let root = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LayerError::damaged(name, "it is gone"));
        }
        opened => opened.map_err(LayerError::io("open", path))?,
    };
    let mut left = ENTRIES_MAX;
    walk_below(root.as_fd(), "", 0, &mut left, visit)
}

fn walk_below(
    directory: BorrowedFd<'_>,
    below: &str,
    depth: usize,
    left: &mut usize,
    visit: &mut Visit<'_>,
) -> Result<(), LayerError> {
    if depth > DEPTH_MAX {
        return Err(LayerError::Refused(format!(
            "more than {DEPTH_MAX} directories inside each other"
        )));
    }
    for seen in list(directory, below, left)? {
        visit(directory, &seen)?;
        if seen.kind == FileType::Directory {
            let inner = open_directory(directory, &seen.name).map_err(LayerError::io("open", &seen.path))?;
            walk_below(inner.as_fd(), &seen.path, depth + 1, left, visit)?;
        }
    }
    Ok(())
}
