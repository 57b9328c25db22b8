//! The signed list of a namespace's snapshots. A manifest counts only when the list names it with its digest, so that
//! none can be slipped in, exchanged or left out; only an older list with its own files can be put back, which a host
//! alone cannot see.

use super::{SnapshotError, SnapshotId, Source, layout::NamespaceDir, sealed::Seal};
use crate::{Signer, whole_file::Taken};
use ringfence_types::Namespace;
use serde::{Deserialize, Serialize};

const NAME: &str = "list";
const LABEL: &[u8] = b"ringfence snapshots v1\0";
const LIST_BYTES_MAX: u64 = 16 << 20;

/// One snapshot, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedSnapshot {
    pub id: SnapshotId,
    pub description: String,
    pub created_unix_ms: u64,
    pub source: Source,
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

/// Says that there has been a list.
const BEGUN: &str = "list.begun";

/// What is signed.
pub(super) fn read(place: &NamespaceDir, public_key: &[u8; 32]) -> Result<List, SnapshotError> {
    let damaged = |what: &str| SnapshotError::damaged(format!("the list of snapshots {what}"));
    let Some(sealed) = place.root.read(NAME, LIST_BYTES_MAX)? else {
        // Only where there never was one is it empty: else a collection would take all that the lost list named.
        return match place.root.stat(BEGUN)? {
            None => Ok(List::new()),
            Some(_) => Err(damaged("is missing")),
        };
    };
    let text = seal(&place.namespace)
        .open(public_key, &sealed, LIST_BYTES_MAX)
        .map_err(damaged)?;
    serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))
}

pub(super) fn write(place: &NamespaceDir, signer: &Signer, list: &List) -> Result<(), SnapshotError> {
    let text = serde_json::to_vec(list).map_err(|error| SnapshotError::Refused(error.to_string()))?;
    let sealed = seal(&place.namespace).close(signer, &text)?;
    place.root.write(NAME, &sealed, Taken::Replaced)?;
    if place.root.stat(BEGUN)?.is_none() {
        place.root.write(BEGUN, b"", Taken::Replaced)?;
    }
    Ok(())
}

fn seal(namespace: &Namespace) -> Seal<'_> {
    Seal {
        label: LABEL,
        namespace,
        name: NAME,
    }
}
