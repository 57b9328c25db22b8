//! Small files of the kernel that are read repeatedly and kept open.

use ringfence_sys::file;
use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    path::Path,
};

const BYTES_MAX: usize = 8 << 10;

/// Returns the number after a label at the beginning of a line.
pub(crate) fn number(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Files below one directory, each opened at its first read and kept open.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles(RefCell<HashMap<&'static str, File>>);

impl KeptFiles {
    /// Reads a short file of a cgroup or of `/proc`, which the kernel generates anew at each read from its beginning.
    pub(crate) fn read(&self, directory: BorrowedFd<'_>, path: &'static str) -> io::Result<String> {
        let mut kept = self.0.borrow_mut();
        let file = match kept.entry(path) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(file::open_to_read(directory, Path::new(path))?),
        };
        let mut text = [0; BYTES_MAX];
        let length = file.read_at(&mut text, 0)?;
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }
}
