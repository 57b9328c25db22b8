//! Former contents of written files, kept for a while: a bounded store in the server's state directory, readable by its
//! user only. The caller of the store does not keep contents that hold a secret.

use ringfence_types::RequestError;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const ENTRIES_MAX: usize = 100;
const BYTES_MAX: u64 = 16 << 20;
const ENTRY_BYTES_MAX: u64 = 10 << 20;

/// A write that can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    pub path: PathBuf,
    /// Former content. `None`: the file did not exist.
    pub before: Option<Vec<u8>>,
    pub after: Vec<u8>,
}

#[derive(Debug)]
pub struct UndoStore {
    directory: PathBuf,
    writing: Mutex<()>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredUndo {
    namespace: String,
    undo: Undo,
}

impl UndoStore {
    /// Returns the store below the state directory; the directory is made by the first `keep`.
    pub fn below(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.join("host-undo"),
            writing: Mutex::new(()),
        }
    }

    /// Keeps an entry; its id is `random` in eight hexadecimal digits. Over a limit, the namespace's oldest is removed.
    pub fn keep(&self, namespace: &str, undo: &Undo, random: u32) -> Result<String, RequestError> {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("{random:08x}");
        let kept = StoredUndo {
            namespace: namespace.to_owned(),
            undo: undo.clone(),
        };
        let directory = self.directory.join(namespace);
        write(&directory, &id, &kept).map_err(|error| fault(&error))?;
        prune(&directory).map_err(|error| fault(&error))?;
        Ok(id)
    }

    pub fn find(&self, namespace: &str, id: &str) -> Result<Undo, RequestError> {
        let unknown = || {
            RequestError::not_found(
                "there is no such change to take back.",
                "The last hundred are kept; each write says how it is taken back.",
            )
        };
        if id.len() != 8 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let mut bytes = Vec::new();
        let opened = fs::File::open(self.directory.join(namespace).join(id)).map_err(|_| unknown())?;
        io::Read::read_to_end(&mut io::Read::take(opened, ENTRY_BYTES_MAX), &mut bytes)
            .map_err(|error| fault(&error))?;
        let kept: StoredUndo = serde_json::from_slice(&bytes).map_err(|_| unknown())?;
        (kept.namespace == namespace)
            .then_some(kept.undo)
            .ok_or_else(unknown)
    }

    /// Removes an entry after its write was undone.
    pub fn forget(&self, namespace: &str, id: &str) {
        // An error is ignored: the store stays bounded.
        drop(fs::remove_file(self.directory.join(namespace).join(id)));
    }
}

fn write(directory: &Path, id: &str, kept: &StoredUndo) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let bytes = serde_json::to_vec(kept)?;
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(directory.join(id))?;
    file.write_all(&bytes)?;
    file.sync_all()
}

fn prune(directory: &Path) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        entries.push((found.modified()?, found.len(), entry.path()));
    }
    entries.sort();
    let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
    let mut count = entries.len();
    for (_, size, path) in entries {
        if count <= ENTRIES_MAX && bytes <= BYTES_MAX {
            break;
        }
        match fs::remove_file(path) {
            // Another process of the server may have removed it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        (count, bytes) = (count - 1, bytes - size);
    }
    Ok(())
}

fn fault(error: &io::Error) -> RequestError {
    RequestError::store_fault(
        format!("what the file was before cannot be kept: {error}."),
        "Give the state directory room.",
    )
}
