//! The files of a workspace.

use super::{Object, operation, response};
use ringfence_types::SessionId;
use schemars::JsonSchema;
use serde::Deserialize;

/// Write one file into the namespace's workspace (see workspace of execute_code), or a session's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutFile {
    pub(crate) path: Option<String>,
    pub(crate) text: Option<String>,
    /// Instead of text.
    pub(crate) base64: Option<String>,
    /// base64 is a tar to unpack at path.
    pub(crate) archive: Option<bool>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(PutFile => Put, "put_file", "Write a file", Sessions, Replaces);

response!(Put {
    path: String,
    files: u64,
    size_bytes: u64,
    sha256: String
});

/// Replace a text that is once in a file of the namespace's workspace, or a session's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    pub(crate) path: String,
    pub(crate) old: String,
    pub(crate) new: String,
    /// Everywhere.
    pub(crate) all: Option<bool>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(EditFile => Edited, "edit_file", "Edit a file", Sessions, Runs);

response!(Edited {
    replaced: u64,
    sha256: String
});

/// Read one file of up to 4 MiB from the namespace's workspace, or a session's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetFile {
    pub(crate) path: Option<String>,
    /// A directory, as tar.
    pub(crate) archive: Option<bool>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(GetFile => Got, "get_file", "Read a file", Sessions, Reads);

response!(Got {
    path: String,
    size_bytes: u64,
    sha256: String,
    mode: Option<String>,
    modified_unix_ms: Option<i64>,
    text: Option<String>,
    base64: Option<String>,
    left_out: Vec<String>,
    left_out_count: u64,
});

/// List the files of the namespace's workspace, or a session's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    /// A directory.
    pub(crate) path: Option<String>,
    #[schemars(with = "Option<String>")]
    pub(crate) session_id: Option<SessionId>,
}
operation!(ListFiles => Files, "list_files", "List files", Sessions, Reads);

response!(Files { files: Vec<Object> });
