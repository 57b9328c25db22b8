//! Contents as files named by their SHA-256, and pins, which keep a content until something names it.
//!
//! ```text
//! blobs/ab/<64 hex>     contents, mode 0400; `ab` are the first two digits
//! incoming/<32 hex>     files being written, and pins: hard links to contents that nothing names yet
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

/// A content being written. It is removed on drop, or by a sweep after a crash.
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

/// A content in the store. If it is pinned, no sweep removes it while this or a clone exists, for up to an hour.
#[derive(Clone, Debug)]
pub struct Content {
    pub sha256: [u8; 32],
    pub size_bytes: u64,
    pin: Option<Arc<Pin>>,
}

impl LooseBlobs {
    pub(crate) fn open(root: &Directory) -> Result<Self, FileError> {
        let (blobs, incoming) = (root.subdirectory("blobs")?, root.subdirectory("incoming")?);
        Ok(Self { blobs, incoming })
    }

    pub(crate) fn draft(self: &Arc<Self>) -> Result<Draft, FileError> {
        let pin = Pin::unlinked(self).map_err(self.incoming.failed("name a file in", ""))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.incoming, &pin.name, flags, Mode::RUSR);
        let file = file.map_err(self.incoming.failed("make", &pin.name))?.into();
        Ok(Draft { file, pin })
    }

    /// Moves a draft into place and pins it. If an intact copy of the content is there, that copy is kept. The second
    /// result is true if there was no file of this digest. The caller must keep sweeps out.
    pub(crate) fn put(self: &Arc<Self>, draft: Draft, hashed: Hashed) -> Result<(Content, bool), FileError> {
        let hex = to_hex(&hashed.sha256);
        let fan = self.blobs.subdirectory(fan_name(&hex))?;
        let mut content = Content::unpinned(hashed.sha256, hashed.bytes);
        let put = || -> io::Result<(Pin, bool)> {
            // The age of a pin is that of the file it links to.
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

    /// Opens the content of this digest, if it is a regular file.
    pub(crate) fn find(&self, hex: &str) -> Result<Option<File>, FileError> {
        match self.blobs.find(fan_name(hex))? {
            Some(fan) => fan.open(hex, OFlags::RDONLY),
            None => Ok(None),
        }
    }

    /// Returns true if the content is there and has its size.
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
    /// Adds a hard link; fails with `AlreadyExists` if the name is taken.
    pub(crate) fn link_to(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let Pin { blobs, name: own } = &self.pin;
        let (incoming, flags) = (&blobs.incoming, AtFlags::empty());
        Ok(rustix::fs::linkat(incoming, own, directory, name, flags)?)
    }

    fn replace(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let temporary = Pin::unlinked(&self.pin.blobs)?;
        self.link_to(temporary.blobs.incoming.as_fd(), &temporary.name)?;
        let incoming = &temporary.blobs.incoming;
        Ok(rustix::fs::renameat(incoming, &temporary.name, directory, name)?)
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
    /// Chooses a name; no file has it yet.
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

    /// Returns true if the file holds exactly this content; leaves the file at its beginning.
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
