//! A file that belongs to nobody until it is linked to its place, and pins, which keep a content until a manifest names
//! it.

use super::{
    ArtifactError,
    layout::{Layout, to_hex, unlink},
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
};

/// Being written. Dropped, it is gone; so it is after a crash, if the file system knows files without a name.
#[derive(Debug)]
pub(super) struct Draft {
    file: File,
    /// Only where files must have one.
    name: Option<Pin>,
    layout: Arc<Layout>,
}

/// A link in `incoming`, removed when this is dropped.
#[derive(Debug)]
pub(super) struct Pin {
    layout: Arc<Layout>,
    name: String,
}

impl Draft {
    pub(super) fn new(layout: &Arc<Layout>) -> Result<Self, ArtifactError> {
        let incoming = layout.incoming.as_fd();
        let made = if layout.nameless {
            nameless(incoming).map(|file| (file, None))
        } else {
            random_name().and_then(|name| {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(incoming, &name, flags, Mode::from_raw_mode(0o400))?;
                let layout = Arc::clone(layout);
                Ok((File::from(file), Some(Pin { layout, name })))
            })
        };
        let (file, name) = made.map_err(|error| layout.failed("create", "incoming", error))?;
        Ok(Self {
            file,
            name,
            layout: Arc::clone(layout),
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// One more name; `AlreadyExists` when somebody has it.
    pub(super) fn link_to(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        match &self.name {
            None => link_nameless(&self.file, directory, name),
            Some(own) => {
                let incoming = self.layout.incoming.as_fd();
                Ok(rustix::fs::linkat(
                    incoming,
                    &own.name,
                    directory,
                    name,
                    AtFlags::empty(),
                )?)
            }
        }
    }

    /// Takes the place of what has this name.
    pub(super) fn replace(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let incoming = self.layout.incoming.as_fd();
        let beside = random_name()?;
        self.link_to(incoming, &beside)?;
        let renamed = rustix::fs::renameat(incoming, &beside, directory, name);
        if renamed.is_err() {
            rustix::fs::unlinkat(incoming, &beside, AtFlags::empty())?;
        }
        Ok(renamed?)
    }
}

impl Pin {
    /// Pins the content of this name.
    pub(super) fn new(layout: &Arc<Layout>, directory: BorrowedFd<'_>, hex: &str) -> io::Result<Self> {
        let name = random_name()?;
        rustix::fs::linkat(directory, hex, &layout.incoming, &name, AtFlags::empty())?;
        Ok(Self {
            layout: Arc::clone(layout),
            name,
        })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = unlink(self.layout.incoming.as_fd(), &self.name) {
            tracing::warn!(%error, name = self.name, "a pin of the artifact store stays until a sweep");
        }
    }
}

/// Tries it once: not every file system has them, and linking one needs /proc.
pub(super) fn nameless_works(incoming: BorrowedFd<'_>) -> io::Result<bool> {
    let name = random_name()?;
    let linked = nameless(incoming).and_then(|file| link_nameless(&file, incoming, &name));
    if linked.is_ok() {
        rustix::fs::unlinkat(incoming, &name, AtFlags::empty())?;
    }
    Ok(linked.is_ok())
}

fn nameless(directory: BorrowedFd<'_>) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, ".", flags, Mode::from_raw_mode(0o400))?;
    Ok(File::from(file))
}

/// By way of /proc, as open(2) says: `AT_EMPTY_PATH` asks for a capability.
fn link_nameless(file: &File, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(
        CWD,
        own,
        directory,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}

fn random_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(to_hex(&bytes))
}
