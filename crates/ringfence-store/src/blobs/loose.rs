//! Contents as files named by their SHA-256, and pins, which keep a content until something names it.
//!
//! ```text
//! blobs/ab/<64 hex>     contents, mode 0400; `ab` are the first two digits
//! incoming/<32 hex>     what is being written, and pins: second links to contents that nothing names yet
//! ```

use crate::{
    digest::{self, Hashed, from_hex, to_hex},
    whole_file::{Directory, FileError, random_hex},
};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, Seek, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::SystemTime,
};

#[derive(Debug)]
pub(crate) struct LooseBlobs {
    blobs: Directory,
    pub(crate) incoming: Directory,
}

/// A content being written. Dropped, it is gone; after a crash it is swept.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) file: File,
    pin: Pin,
}

/// A link in `incoming`, removed when this is dropped.
#[derive(Debug)]
struct Pin {
    blobs: Arc<LooseBlobs>,
    name: String,
}

/// A content in the store. While this or a clone of it lives, up to an hour, no sweep removes it.
#[derive(Clone, Debug)]
pub struct Content {
    pub sha256: [u8; 32],
    pub size_bytes: u64,
    pin: Option<Arc<Pin>>,
}

impl LooseBlobs {
    pub(crate) fn open(root: &Directory) -> Result<Self, FileError> {
        Ok(Self {
            blobs: root.subdirectory("blobs")?,
            incoming: root.subdirectory("incoming")?,
        })
    }

    pub(crate) fn draft(self: &Arc<Self>) -> Result<Draft, FileError> {
        let pin = Pin::unlinked(self).map_err(self.incoming.failed("name a file in", ""))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.incoming, &pin.name, flags, Mode::RUSR);
        let file = file.map_err(self.incoming.failed("make", &pin.name))?.into();
        Ok(Draft { file, pin })
    }

    /// Puts what was written in place and pins it. The same content, if it is there and intact, is kept: then the
    /// second result is false. No sweep may run meanwhile.
    pub(crate) fn put(self: &Arc<Self>, draft: Draft, hashed: Hashed) -> Result<(Content, bool), FileError> {
        let hex = to_hex(&hashed.sha256);
        let fan = self.blobs.subdirectory(fan_name(&hex))?;
        let mut content = Content::unpinned(hashed.sha256, hashed.bytes);
        let put = || -> io::Result<(Pin, bool)> {
            // A pin's time is the file's time.
            draft.file.set_modified(SystemTime::now())?;
            match draft.link_to(fan.as_fd(), &hex) {
                Ok(()) => return Ok((draft.pin, true)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            match self.find(&hex).map_err(|error| error.error)? {
                Some(file) if content.is_in(&file)? => {
                    file.set_modified(SystemTime::now())?;
                    let pin = Pin::unlinked(self)?;
                    rustix::fs::linkat(&fan, &hex, &self.incoming, &pin.name, AtFlags::empty())?;
                    Ok((pin, false))
                }
                _ => {
                    draft.replace(fan.as_fd(), &hex)?;
                    Ok((draft.pin, false))
                }
            }
        };
        let (pin, is_new) = put().map_err(fan.failed("put in place", &hex))?;
        content.pin = Some(Arc::new(pin));
        Ok((content, is_new))
    }

    /// The content of this digest, if it is a regular file.
    pub(crate) fn find(&self, hex: &str) -> Result<Option<File>, FileError> {
        match self.blobs.find(fan_name(hex))? {
            Some(fan) => fan.open(hex, OFlags::RDONLY),
            None => Ok(None),
        }
    }

    /// Whether the content is there, and of its size.
    pub(crate) fn has(&self, content: &Content) -> Result<bool, FileError> {
        let file = self.find(&to_hex(&content.sha256))?;
        let metadata = file.and_then(|file| file.metadata().ok());
        Ok(metadata.is_some_and(|metadata| metadata.len() == content.size_bytes))
    }

    pub(crate) fn list(&self) -> Result<HashMap<[u8; 32], Stat>, FileError> {
        let mut found = HashMap::new();
        for name in self.blobs.names()?.iter().filter(|name| name.len() == 2) {
            let Some(fan) = self.blobs.find(name)? else {
                continue;
            };
            let files = fan.files()?.into_iter();
            found.extend(files.filter_map(|(name, stat)| Some((from_hex(&name)?, stat))));
        }
        Ok(found)
    }

    pub(crate) fn remove(&self, sha256: &[u8; 32]) -> Result<(), FileError> {
        let hex = to_hex(sha256);
        match self.blobs.find(fan_name(&hex))? {
            Some(fan) => fan.remove(&hex),
            None => Ok(()),
        }
    }
}

impl Draft {
    /// One more name; `AlreadyExists` when it is taken.
    pub(crate) fn link_to(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let Pin { blobs, name: own } = &self.pin;
        let (incoming, flags) = (&blobs.incoming, AtFlags::empty());
        Ok(rustix::fs::linkat(incoming, own, directory, name, flags)?)
    }

    fn replace(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let beside = Pin::unlinked(&self.pin.blobs)?;
        self.link_to(beside.blobs.incoming.as_fd(), &beside.name)?;
        let incoming = &beside.blobs.incoming;
        Ok(rustix::fs::renameat(incoming, &beside.name, directory, name)?)
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pin {
    /// The name alone; nothing lies there yet.
    fn unlinked(blobs: &Arc<LooseBlobs>) -> io::Result<Self> {
        let (blobs, name) = (Arc::clone(blobs), random_hex::<16>()?);
        Ok(Self { blobs, name })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = self.blobs.incoming.remove(&self.name) {
            tracing::warn!(%error, "a pin of the artifact store stays until a sweep");
        }
    }
}

impl Content {
    pub(crate) fn unpinned(sha256: [u8; 32], size_bytes: u64) -> Self {
        Self {
            sha256,
            size_bytes,
            pin: None,
        }
    }

    /// Whether the bytes of this file are the content; leaves it at its beginning.
    pub(crate) fn is_in(&self, mut file: &File) -> io::Result<bool> {
        if file.metadata()?.len() != self.size_bytes {
            return Ok(false);
        }
        let hashed = digest::of(file)?;
        file.rewind()?;
        Ok(hashed.sha256 == self.sha256 && hashed.bytes == self.size_bytes)
    }
}

fn fan_name(hex: &str) -> &str {
    hex.get(..2).unwrap_or(hex)
}
