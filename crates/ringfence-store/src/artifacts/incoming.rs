//! A content on its way into the store: hashed and counted as it is written, then put in place under its digest.

use super::{
    ArtifactError,
    draft::{Draft, Pin},
    layout::to_hex,
    tally::Tally,
};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

const READ_BYTES: usize = 64 << 10;

/// Being written; dropped, it was never there.
#[derive(Debug)]
pub struct Incoming {
    draft: Draft,
    tally: Arc<Mutex<Tally>>,
    hash: Sha256,
    size_bytes: u64,
    bytes_max: u64,
    whole: bool,
}

/// A content that the store has. While this or a clone of it lives, up to an hour, no sweep removes it.
#[derive(Clone, Debug)]
pub struct Content {
    /// Of all bytes.
    pub sha256: [u8; 32],
    /// How many.
    pub size_bytes: u64,
    /// Held for its drop.
    pin: Option<Arc<Pin>>,
}

impl Incoming {
    pub(super) fn new(draft: Draft, tally: Arc<Mutex<Tally>>) -> Self {
        Self {
            draft,
            tally,
            hash: Sha256::new(),
            size_bytes: 0,
            bytes_max: u64::MAX,
            whole: true,
        }
    }

    /// Refuses the write that would make it longer than this.
    #[must_use]
    pub fn bounded(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Puts the content in place. The same content, if it is there and intact, is kept. After a failed write:
    /// [`ArtifactError::Incomplete`].
    pub fn finish(self) -> Result<Content, ArtifactError> {
        let Self {
            draft,
            hash,
            size_bytes,
            ..
        } = self;
        if !self.whole {
            return Err(ArtifactError::Incomplete);
        }
        let mut content = Content::unpinned(hash.finalize().into(), size_bytes);
        let hex = to_hex(&content.sha256);
        let layout = draft.layout();
        let failed = |error| layout.failed("put into", "blobs", error);
        // Its pin's time is the file's time.
        draft.file().set_modified(SystemTime::now()).map_err(failed)?;
        let lock = layout.lock_shared()?;
        let fan = layout.fan(&hex).map_err(failed)?;
        match draft.link_to(fan.as_fd(), &hex) {
            Ok(()) => {
                let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.add(size_bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let kept = layout.open_blob(&hex)?.map(|mut file| keep(&content, &mut file));
                if !kept.transpose().map_err(failed)?.unwrap_or(false) {
                    draft.replace(fan.as_fd(), &hex).map_err(failed)?;
                }
            }
            Err(error) => return Err(failed(error)),
        }
        let pin = Pin::new(layout, fan.as_fd(), &hex).map_err(failed)?;
        drop(lock);
        content.pin = Some(Arc::new(pin));
        Ok(content)
    }
}

/// Is the content in this file; then its time is now, which is its new pin's time too.
fn keep(content: &Content, file: &mut File) -> io::Result<bool> {
    let intact = content.is_in(file)?;
    if intact {
        file.set_modified(SystemTime::now())?;
    }
    Ok(intact)
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let longer = self.size_bytes.saturating_add(bytes.len() as u64);
        if longer > self.bytes_max {
            self.whole = false;
            let what = format!("an artifact of more than {} bytes", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let written = self.draft.file().write(bytes);
        match &written {
            Ok(count) => {
                self.hash.update(&bytes[..*count]);
                self.size_bytes += *count as u64;
            }
            Err(error) => self.whole &= error.kind() == io::ErrorKind::Interrupted,
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Content {
    pub(super) fn unpinned(sha256: [u8; 32], size_bytes: u64) -> Self {
        Self {
            sha256,
            size_bytes,
            pin: None,
        }
    }

    /// Are the bytes of this file the content; leaves it at its beginning.
    pub(super) fn is_in(&self, file: &mut File) -> io::Result<bool> {
        if file.metadata()?.len() != self.size_bytes {
            return Ok(false);
        }
        let (sha256, size_bytes) = hash(&mut *file)?;
        file.rewind()?;
        Ok(sha256 == self.sha256 && size_bytes == self.size_bytes)
    }
}

/// Digest and size of all that this reader gives.
pub(super) fn hash(mut reader: impl Read) -> io::Result<([u8; 32], u64)> {
    let (mut hash, mut size_bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((hash.finalize().into(), size_bytes)),
            Ok(count) => {
                hash.update(&buffer[..count]);
                size_bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
