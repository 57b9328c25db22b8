//! A content on its way into the store: hashed and counted as it is written, then put in place under its digest.

use super::{ArtifactError, layout::ArtifactsDir, tally::Tally};
use crate::{
    blobs::loose::{Content, Draft},
    digest::Hashing,
};
use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// A content being written; dropped, it is gone.
#[derive(Debug)]
pub struct Incoming {
    draft: Hashing<Draft>,
    layout: Arc<ArtifactsDir>,
    tally: Arc<Mutex<Tally>>,
    bytes_max: u64,
    whole: bool,
}

impl Incoming {
    pub(super) fn new(layout: &Arc<ArtifactsDir>, tally: &Arc<Mutex<Tally>>) -> Result<Self, ArtifactError> {
        Ok(Self {
            draft: Hashing::new(layout.blobs.draft()?),
            layout: Arc::clone(layout),
            tally: Arc::clone(tally),
            bytes_max: u64::MAX,
            whole: true,
        })
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
        if !self.whole {
            return Err(ArtifactError::Incomplete);
        }
        let (draft, hashed) = self.draft.finish();
        let _lock = self.layout.lock_shared()?;
        let (content, is_new) = self.layout.blobs.put(draft, hashed)?;
        if is_new {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.add(content.size_bytes);
        }
        Ok(content)
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let longer = self.draft.bytes().saturating_add(bytes.len() as u64);
        if longer > self.bytes_max {
            self.whole = false;
            let what = format!("an artifact of more than {} bytes", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let written = self.draft.write(bytes);
        if let Err(error) = &written {
            self.whole &= error.kind() == io::ErrorKind::Interrupted;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
