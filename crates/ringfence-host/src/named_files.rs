//! The files that a command's words name. Their content is part of what a person approves, so each file is resolved as
//! the command will resolve it, and a command for which the two could differ is refused.

use crate::{
    directories::{is_kernel_filesystem, open_error},
    spec::Mount,
    wall::{Command, SYSTEM},
    words::escaped,
};
use ringfence_types::RequestError;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd},
    path::{Component, Path},
};

const FILES_MAX: usize = 16;
/// Maximum bytes of all named files together.
const BYTES_MAX: u64 = 64 << 20;
/// Characters that may precede or follow a name in a word, including in a line for a shell.
const SEPARATORS: &[char] = &[
    '=', ':', ',', '@', ' ', '\n', ';', '|', '&', '<', '>', '(', ')', '"', '\'',
];

impl Command {
    /// Binds the command to the present content of the files that these words name. It must be the same at the start.
    pub fn bind_files(&mut self, words: &[String]) -> Result<(), RequestError> {
        words.clone_into(&mut self.words);
        self.files = self.digests()?;
        Ok(())
    }

    /// Refuses to start if the content of a bound file has changed.
    pub(crate) fn check_files(&self) -> Result<(), RequestError> {
        match self.digests()? == self.files {
            true => Ok(()),
            false => Err(RequestError::denied(
                "a file that the command names has changed since it was approved.",
                "Ask again with `request_host_access`.",
            )),
        }
    }

    fn digests(&self) -> Result<Vec<String>, RequestError> {
        let mut named = BTreeMap::new();
        for name in self.words.iter().flat_map(|word| candidate_names(word)) {
            if let Some(file) = self.open_named(name)? {
                named.insert(name, file);
            }
            if named.len() > FILES_MAX {
                return Err(refusal(format!("names more than {FILES_MAX} files")));
            }
        }
        let mut left = BYTES_MAX;
        let digest = |(name, file): (&str, File)| {
            let unread = |error| refusal(format!("names {}, which cannot be read: {error}", escaped(name)));
            let (digest, read) = digest_of(file.take(left + 1)).map_err(unread)?;
            let more = || refusal(format!("names files of more than {} MiB", BYTES_MAX >> 20));
            left = left.checked_sub(read).ok_or_else(more)?;
            Ok(format!("{name}: SHA-256 {digest}"))
        };
        named.into_iter().map(digest).collect()
    }

    /// Opens the regular file that a name means to the command. `None`: the name means no such file.
    fn open_named(&self, name: &str) -> Result<Option<File>, RequestError> {
        let path = self.spec.directory.join(name);
        let failed = |error| open_error(&path, error);
        let (plain, unlinked) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_SYMLINKS);
        let of_directory = self.directory.as_ref();
        let below = of_directory.and_then(|open| Some((open, path.strip_prefix(&open.path).ok()?)));
        let opened = match below {
            Some((open, rest)) => {
                let rest = Path::new(".").join(rest);
                let how = unlinked | ResolveFlags::BENEATH;
                openat2(&open.handle, rest, plain | OFlags::NOFOLLOW, Mode::empty(), how)
            }
            None if path.components().any(|part| part == Component::ParentDir) => Err(Errno::XDEV),
            // Process ids mean other processes to the command.
            None if path.starts_with("/proc") && path.components().count() > 3 => Err(Errno::LOOP),
            // Links are followed here: only root can change them.
            None if is_in_system(&path) => openat2(CWD, &path, plain, Mode::empty(), ResolveFlags::empty()),
            None if !self.is_visible(&path) => return Ok(None),
            None => openat2(CWD, &path, plain | OFlags::NOFOLLOW, Mode::empty(), unlinked),
        };
        let handle = match opened {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::NAMETOOLONG) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&handle).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Err(failed(Errno::LOOP)),
            FileType::RegularFile if !is_kernel_filesystem(handle.as_fd()).map_err(failed)? => {
                let opened = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()));
                let errno = |error: io::Error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                opened.map(Some).map_err(errno)
            }
            _ => Ok(None),
        }
    }

    /// True if a path outside of the directory may exist for the command. In its own root only its operands and the
    /// paths that its rule names exist, together with the targets of links among them.
    fn is_visible(&self, path: &Path) -> bool {
        let (spec, shows) = (&self.spec, |mount: &Mount| path.starts_with(&mount.target));
        !spec.namespaces || spec.host_view || spec.mounts.iter().any(shows)
    }
}

/// Returns the digest in hexadecimal, and the number of bytes read.
fn digest_of(mut file: impl Read) -> io::Result<(String, u64)> {
    let (mut digest, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => {
                digest.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
    let digest = digest.finalize();
    Ok((digest.iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}

fn is_in_system(path: &Path) -> bool {
    SYSTEM.iter().any(|tree| path.starts_with(tree))
}

/// Returns the word, its parts between separators, and the rest of the word after each separator, or after each
/// character of a short option.
fn candidate_names(word: &str) -> impl Iterator<Item = &str> {
    let is_short = word.starts_with('-') && !word.starts_with("--");
    let ends = move |(_, c): &(usize, char)| is_short || SEPARATORS.contains(c);
    let rests = word.char_indices().filter(ends);
    let rests = rests.map(|(at, c)| &word[at + c.len_utf8()..]);
    std::iter::once(word).chain(rests).chain(word.split(SEPARATORS))
}

fn refusal(what: String) -> RequestError {
    RequestError::denied(
        format!("the command {what}: an approval is for what the files hold that a command names."),
        "Name fewer files, or smaller ones.",
    )
}
