//! The names of snapshots.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a snapshot: a UUID of version 7, so that names sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotId(uuid::Uuid);

impl SnapshotId {
    pub(super) fn new() -> Self {
        Self(uuid::Uuid::now_v7())
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl std::str::FromStr for SnapshotId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = uuid::Uuid::try_parse(text).ok().map(Self);
        // One spelling only: the id is a file's name.
        let plain = parsed.filter(|id| id.to_string() == text);
        plain.ok_or_else(|| "a snapshot's id is a UUID in lower case with hyphens".to_owned())
    }
}

impl TryFrom<String> for SnapshotId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SnapshotId> for String {
    fn from(id: SnapshotId) -> Self {
        id.to_string()
    }
}
