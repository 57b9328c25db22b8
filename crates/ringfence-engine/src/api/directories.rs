//! Workspace directories as tar archives: untrusted incoming; outgoing redacted file by file, so that they stay valid.

use super::files::WorkspaceAccess;
use crate::{error::Result, record::hex, store::fault, workspace_error, workspaces::Use};
use ringfence_store::{
    FileError,
    audit::Action,
    tree::{
        self, Bounds, DEPTH_MAX, PackLimits, TreeError,
        archive::{self, ArchiveError, Limits},
    },
};
use ringfence_types::{RequestError, WorkspacePath};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const LIMITS: Limits = Limits {
    entries: 10_000,
    bytes: 256 << 20,
};
/// Minimum disk usage of a file or a directory, where the server enforces the limit of a disk.
const ENTRY_BYTES: u64 = 4096;
/// Maximum names of omitted entries in an answer.
const LEFT_OUT_MAX: usize = 20;

#[derive(Clone, Debug)]
pub struct DirectoryPut {
    /// Relative to the workspace; `.` is the workspace itself.
    pub path: String,
    pub files: usize,
    /// Total bytes of the files.
    pub size_bytes: u64,
    /// SHA-256 of the archive as received, lower-case hex.
    pub sha256: String,
}

#[derive(Clone, Debug)]
pub struct DirectoryGot {
    pub path: String,
    /// Files and directories in the archive.
    pub entries: usize,
    /// SHA-256 of the archive, lower-case hex.
    pub sha256: String,
    /// The first twenty omitted: links, special files, hard-linked files, names that are not text or contain a secret.
    pub left_out: Vec<String>,
    pub left_out_count: usize,
    pub tar: Vec<u8>,
}

impl WorkspaceAccess<'_> {
    /// Unpacks a tar archive, plain or gzipped, below a directory of a workspace: completely or not at all.
    pub async fn put_directory(
        &self,
        below: Option<WorkspacePath>,
        archive: Vec<u8>,
    ) -> Result<DirectoryPut> {
        let digest = hex(&Sha256::digest(&archive));
        let path = rendered(below.as_ref());
        let details = json!({"path": path, "archive": true, "bytes": archive.len(), "sha256": digest});
        let put = self.with(Use::Write, move |opened| {
            let _alone = opened.lock_for_writing().map_err(fault)?;
            let left = opened.quota.left(opened.root());
            let limits = within(left.map_err(workspace_error::of_tree)?);
            archive::unpack(opened.root(), below.as_ref(), archive.as_slice(), limits).map_err(refusal)
        });
        let files = |done: &archive::Unpacked, details: &mut Value| details["files"] = json!(done.files);
        let done = self.change(Action::FilePut, details, put, files).await?;
        Ok(DirectoryPut {
            path,
            files: done.files,
            size_bytes: done.bytes,
            sha256: digest,
        })
    }

    /// Packs a directory of a workspace as a tar archive, without the secrets that its workspace's programs could have:
    /// in the content of a file, a mark replaces a secret; a file with a secret in its name is omitted. At most 64 MiB.
    pub async fn get_directory(&self, below: Option<WorkspacePath>) -> Result<DirectoryGot> {
        let bytes_max = self.bytes_max;
        let details = json!({"path": rendered(below.as_ref()), "archive": true});
        let limits = PackLimits {
            walk: Bounds {
                entries: LIMITS.entries,
                depth: DEPTH_MAX,
            },
            bytes: bytes_max.min(LIMITS.bytes),
        };
        let got = self.with(Use::Read, move |opened| {
            let mut tar = Bounded {
                bytes: Vec::new(),
                bytes_max,
            };
            let packed = tree::pack(opened.root(), below.as_ref(), &mut tar, limits, |bytes| {
                opened.redactor.bytes(bytes)
            });
            let packed = packed.map_err(refusal)?;
            let left_out = packed.skipped.iter().take(LEFT_OUT_MAX);
            Ok(DirectoryGot {
                path: opened.redactor.text(&rendered(below.as_ref())).into_owned(),
                entries: packed.entries,
                sha256: hex(&Sha256::digest(&tar.bytes)),
                left_out: left_out
                    .map(|path| opened.redactor.text(&path.to_string_lossy()).into_owned())
                    .collect(),
                left_out_count: packed.skipped.len(),
                tar: tar.bytes,
            })
        });
        self.read(details, got).await
    }
}

/// A buffer with a maximum, which also bounds the headers: with many small files, they are the larger part.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: u64,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.bytes_max {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Divides the available bytes: at most half for the entries themselves, the rest for their contents.
fn within(available: u64) -> Limits {
    let entries = usize::try_from(available / 2 / ENTRY_BYTES).unwrap_or(usize::MAX);
    let entries = entries.min(LIMITS.entries);
    Limits {
        entries,
        bytes: LIMITS.bytes.min(available - entries as u64 * ENTRY_BYTES),
    }
}

fn rendered(below: Option<&WorkspacePath>) -> String {
    below.map_or_else(|| ".".to_owned(), ToString::to_string)
}

fn refusal(error: ArchiveError) -> RequestError {
    let message = format!("{error}.");
    let hint = match error {
        ArchiveError::Tree(TreeError::Io(FileError { error, .. }))
            if error.kind() == std::io::ErrorKind::FileTooLarge =>
        {
            return RequestError::invalid(
                "the directory is larger than one answer can be.",
                "Name a directory further down, or single files.",
            );
        }
        ArchiveError::Tree(TreeError::NotFound(path)) => {
            let hint = "`list_files` names what is there; of a file leave `archive` out.";
            return RequestError::not_found(format!("there is no directory {path:?}."), hint);
        }
        ArchiveError::Tree(error) => return workspace_error::of_tree(error),
        ArchiveError::Malformed(_) => "Send a whole tar archive, plain or in gzip.",
        ArchiveError::Entry { .. } => {
            "Pack plain files and directories only, each once, with names as data/in.csv: no links, no `..`, no leading `/`."
        }
        ArchiveError::TooMany { .. } | ArchiveError::TooLarge { .. } => {
            "Send it in pieces, or remove something. The limit is the workspace's: `limits.disk_mb`, and of a session's own no more than half of its memory."
        }
    };
    RequestError::invalid(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_limits_fit_the_space_left_with_all_entries() {
        for available in [0, 1, 4096, 8192, 1 << 20, 100 << 20, 1 << 40] {
            let limits = within(available);
            assert!(
                limits.bytes + limits.entries as u64 * ENTRY_BYTES <= available,
                "{available}"
            );
        }
        assert_eq!(within(0).entries, 0);
        let ample = within(1 << 40);
        assert_eq!((ample.entries, ample.bytes), (LIMITS.entries, LIMITS.bytes));
    }
}
