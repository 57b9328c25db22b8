//! A file that is written beside its place and put there whole.

use super::{TreeError, beneath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use std::{
    ffi::OsStr,
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// A new file under a name of its own; dropped, it is gone.
pub(super) struct Draft {
    directory: OwnedFd,
    /// Gone once it is in place.
    name: Option<String>,
    file: File,
    path: PathBuf,
}

impl Draft {
    /// In this directory; `path` is where it is meant to go, for errors.
    pub(super) fn new(directory: OwnedFd, path: &Path) -> Result<Self, TreeError> {
        let name = own_name().map_err(TreeError::io("name a draft for", path))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(TreeError::of("create", path))?;
        let draft = Self {
            directory,
            name: Some(name),
            file: file.into(),
            path: path.to_owned(),
        };
        beneath::give_like(draft.file.as_fd(), draft.directory.as_fd())
            .map_err(TreeError::of("give away", path))?;
        Ok(draft)
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts it under this name, in place of a regular file or of nothing.
    pub(super) fn place(
        mut self,
        name: &OsStr,
        mode: u32,
        mtime: Option<(i64, u32)>,
    ) -> Result<(), TreeError> {
        let path = &self.path;
        let set = Mode::from_raw_mode(mode);
        rustix::fs::fchmod(&self.file, set).map_err(TreeError::of("set the mode of", path))?;
        if let Some(mtime) = mtime {
            let times = timestamps(mtime);
            rustix::fs::futimens(&self.file, &times).map_err(TreeError::of("date", path))?;
        }
        refuse_other_than_file(&self.directory, name, path)?;
        if let Some(own) = &self.name {
            rustix::fs::renameat(&self.directory, own.as_str(), &self.directory, name)
                .map_err(TreeError::of("put in place", path))?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = rustix::fs::unlinkat(&self.directory, name.as_str(), AtFlags::empty())
        {
            tracing::warn!(%error, "a draft in a workspace was not removed");
        }
    }
}

/// The last change of content; the last access is left.
pub(super) fn timestamps(mtime: (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime.0,
            tv_nsec: mtime.1.into(),
        },
    }
}

/// A name that nobody can guess and so nobody can be in the way of.
pub(super) fn own_name() -> std::io::Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    Ok(format!(".ringfence-{:016x}", u64::from_ne_bytes(random)))
}

/// Has it the form of one.
pub(super) fn is_own_name(name: &str) -> bool {
    let digits = name.strip_prefix(".ringfence-");
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn refuse_other_than_file(directory: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), TreeError> {
    let there = beneath::look(directory.as_fd(), name).map_err(TreeError::of("look at", path))?;
    let what = match there {
        None => return Ok(()),
        Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            "what is there is no regular file"
        }
        Some(stat) if stat.st_nlink > 1 => "the file has more than one name (hard link)",
        Some(_) => return Ok(()),
    };
    Err(TreeError::Refused {
        path: path.to_owned(),
        what,
    })
}
