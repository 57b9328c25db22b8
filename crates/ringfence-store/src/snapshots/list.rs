//! The signed list of a namespace's snapshots. A manifest counts only when the list names it with its digest, so that
//! none can be slipped in, exchanged or left out; only an older list with its own files can be put back, which a host
//! alone cannot see.

use super::{
    SnapshotError, SnapshotId, Source,
    layout::{Place, read_whole, write_whole},
    sealed::Seal,
};
use crate::Signer;
use ringfence_types::Namespace;
use serde::{Deserialize, Serialize};
use std::{io, os::fd::AsFd};

const NAME: &str = "list";
const LABEL: &[u8] = b"ringfence snapshots v1\0";
const LIST_BYTES_MAX: u64 = 16 << 20;

/// One snapshot, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedSnapshot {
    /// Its name.
    pub id: SnapshotId,
    /// The caller's words.
    pub description: String,
    /// When.
    pub created_unix_ms: u64,
    /// Whose workspace it was.
    pub source: Source,
    /// Regular files.
    pub files: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Of all files, holes included.
    pub bytes: u64,
    /// BLAKE3 of the manifest's file.
    pub(super) digest: String,
}

/// Oldest first.
pub(super) type List = Vec<ListedSnapshot>;

/// What is signed.
pub(super) fn read(
    place: &Place,
    namespace: &Namespace,
    public_key: &[u8; 32],
) -> Result<List, SnapshotError> {
    let sealed = match read_whole(place.root.as_fd(), NAME, LIST_BYTES_MAX) {
        Ok(sealed) => sealed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(place),
        Err(error) => return Err(SnapshotError::std("read", place.path().join(NAME))(error)),
    };
    let damaged = |what: &str| SnapshotError::damaged(format!("the list of snapshots {what}"));
    let text = seal(namespace)
        .open(public_key, &sealed, LIST_BYTES_MAX)
        .map_err(damaged)?;
    serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))
}

/// No list is the empty list only where there never was one: else a collection would take all that the lost list named.
fn missing(place: &Place) -> Result<List, SnapshotError> {
    match rustix::fs::statat(&place.root, BEGUN, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => Ok(List::new()),
        Ok(_) => Err(SnapshotError::damaged("the list of snapshots is missing")),
        Err(error) => Err(SnapshotError::io("look at", place.path().join(BEGUN))(error)),
    }
}

/// Says that there has been a list.
const BEGUN: &str = "list.begun";

pub(super) fn write(
    place: &Place,
    namespace: &Namespace,
    signer: &Signer,
    list: &List,
) -> Result<(), SnapshotError> {
    let text = serde_json::to_vec(list).map_err(|error| SnapshotError::Refused(error.to_string()))?;
    let sealed = seal(namespace).close(signer, &text)?;
    let failed = || SnapshotError::std("write", place.path().join(NAME));
    write_whole(place.root.as_fd(), NAME, &sealed).map_err(failed())?;
    match rustix::fs::statat(&place.root, BEGUN, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(()),
        Err(_) => write_whole(place.root.as_fd(), BEGUN, b"").map_err(failed()),
    }
}

fn seal(namespace: &Namespace) -> Seal<'_> {
    Seal {
        label: LABEL,
        namespace,
        name: NAME,
    }
}
