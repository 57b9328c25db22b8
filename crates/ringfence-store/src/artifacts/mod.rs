//! Files that programs produced, stored by content (SHA-256), each signed, with one signed manifest per execution.
//!
//! ```text
//! blobs/ab/<64 hex>     contents, mode 0400; `ab` are the first two digits
//! executions/<id>.json  manifests, linked into place whole and never changed
//! incoming/<32 hex>     files being written, and pins: hard links to contents that no manifest names yet
//! lock                  shared for reading and adding, exclusive for a sweep; its text is the last sweep's count
//! added                 bytes that ended processes have added since then
//! ```
//!
//! Invariants: a manifest appears after all its blobs; a blob is removed only if no manifest names it and it has no
//! pin; a name that a program chose is never part of a path. A crash therefore leaves either no manifest or a whole
//! one. Nothing is flushed to the device: this holds after `kill -9`, and damage by a power loss is reported as
//! [`ArtifactError::Damaged`], not served as content.

mod layout;
mod manifest;
mod sweep;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;

pub use crate::blobs::loose::Content;
pub use layout::Retention;
pub use manifest::{Manifest, SignedItem, artifact_statement, digest, manifest_statement, verify_manifest};
pub use sweep::Swept;

use crate::{
    Signer,
    blobs::loose::Draft,
    clock,
    digest::{Hashing, from_hex},
    whole_file::{FileError, is_plain_id},
};
use layout::ArtifactsDir;
use ringfence_types::Namespace;
use std::{
    cmp::Reverse,
    collections::HashSet,
    io::{self, Read as _, Write},
    os::fd::AsFd as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

const ITEMS_MAX: usize = 2000;
pub const NAME_BYTES_MAX: usize = 1024;
const MIME_BYTES_MAX: usize = 255;
const LISTED_MAX: usize = 1000;

/// The store. Any number of threads and processes may have the same directory open.
#[derive(Debug)]
pub struct ArtifactStore {
    layout: Arc<ArtifactsDir>,
    signer: Signer,
}

/// A failed operation. None loses anything that was in the store.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("the artifact store: {0}")]
    Io(#[from] FileError),
    #[error("refused: {0}")]
    Refused(String),
    #[error("the execution {0} has its artifacts already")]
    Taken(String),
    /// The content must be added again.
    #[error("the content of {0:?} is no longer in the store")]
    Gone(String),
    #[error("the artifact was not written to its end")]
    Incomplete,
    #[error("the artifact has more than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    /// The stored manifest or content is not what was signed.
    #[error("the artifacts of {execution_id} are damaged: {what}")]
    Damaged { execution_id: String, what: String },
}

#[derive(Clone, Debug)]
pub struct Published {
    /// 1 to 64 letters, digits or `-`; used once.
    pub execution_id: String,
    pub namespace: Namespace,
    /// The time from which retention counts.
    pub time_unix_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Item {
    /// 1 to 1024 bytes. A label, never a path.
    pub name: String,
    pub mime: String,
    /// The result of [`Incoming::finish`].
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExecution {
    pub execution_id: String,
    pub created_unix_ms: u64,
    pub artifacts: usize,
    pub size_bytes: u64,
}

impl ListedExecution {
    fn of(manifest: Manifest) -> Self {
        let sizes = manifest.artifacts.iter().map(|item| item.size_bytes);
        Self {
            artifacts: manifest.artifacts.len(),
            size_bytes: sizes.fold(0, u64::saturating_add),
            execution_id: manifest.execution_id,
            created_unix_ms: manifest.created_unix_ms,
        }
    }
}

impl ArtifactStore {
    /// Opens the store, creating it (mode 0700) if it is missing. Refuses a directory that others may enter.
    pub fn open(directory: PathBuf, signer: Signer, retention: Retention) -> Result<Self, ArtifactError> {
        let layout = Arc::new(ArtifactsDir::open(directory, retention)?);
        Ok(Self { layout, signer })
    }

    pub fn public_key(&self) -> [u8; 32] {
        self.signer.public_key()
    }

    pub fn receive(&self) -> Result<Incoming, ArtifactError> {
        Ok(Incoming {
            draft: Hashing::new(self.layout.blobs.draft()?),
            layout: Arc::clone(&self.layout),
            complete: true,
        })
    }

    /// Signs the items and their manifest, and publishes the manifest whole or not at all. Errors: `Refused`; `Taken`
    /// if the execution already has a manifest; `Gone` if a content was swept because its pin was older than an hour.
    pub fn publish(&self, published: Published, items: Vec<Item>) -> Result<Manifest, ArtifactError> {
        check_execution_id(&published.execution_id)?;
        check_items(&items)?;
        let manifest = Manifest::sign(&self.signer, published, &items);
        let text = manifest.to_json()?;
        let executions = &self.layout.executions;
        let file_name = layout::manifest_name(&manifest.execution_id);
        let failed = |step| executions.failed(step, &file_name);
        let mut draft = self.layout.blobs.draft()?;
        draft.write_all(&text).map_err(failed("write"))?;

        let lock = self.layout.lock_shared()?;
        for item in &items {
            if !self.layout.blobs.has(&item.content)? {
                return Err(ArtifactError::Gone(item.name.clone()));
            }
        }
        // Listings are sorted by this time. Set under the lock, because a sweep removes old files from `incoming`.
        let created = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(manifest.created_unix_ms));
        let dated = created.map_or(Ok(()), |created| draft.file.set_modified(created));
        dated.map_err(failed("date"))?;
        match draft.link_to(executions.as_fd(), &file_name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(ArtifactError::Taken(manifest.execution_id));
            }
            Err(error) => return Err(failed("link")(error).into()),
        }
        drop(lock);
        self.layout.tally().add(text.len() as u64);
        // The manifest now keeps the contents; the pins in `items` are removed.
        drop(items);
        Ok(manifest)
    }

    /// Returns the manifest, its signature checked. `None` if missing or another namespace's: tenants learn nothing.
    pub fn manifest(
        &self,
        execution_id: &str,
        namespace: &Namespace,
    ) -> Result<Option<Manifest>, ArtifactError> {
        check_execution_id(execution_id)?;
        let Some(text) = self.layout.read_manifest(&layout::manifest_name(execution_id))? else {
            return Ok(None);
        };
        let damaged = |what: String| ArtifactError::Damaged {
            execution_id: execution_id.to_owned(),
            what,
        };
        let manifest = Manifest::from_json(&text).map_err(damaged)?;
        if manifest.namespace != *namespace {
            return Ok(None);
        }
        self.check(&manifest, execution_id).map_err(damaged)?;
        Ok(Some(manifest))
    }

    fn check(&self, manifest: &Manifest, execution_id: &str) -> Result<(), String> {
        if manifest.execution_id != execution_id {
            return Err("the manifest is another execution's".to_owned());
        }
        manifest.check_signature(&self.signer.public_key())
    }

    /// Reads one artifact, checked against the signed digest: media type and bytes. Over `bytes_max`: `TooLarge`.
    pub fn read_whole(
        &self,
        execution_id: &str,
        namespace: &Namespace,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<(String, Vec<u8>)>, ArtifactError> {
        let Some((item, file)) = self.read_within(execution_id, namespace, name, bytes_max)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read = io::Read::take(file, bytes_max).read_to_end(&mut bytes);
        read.map_err(FileError::at("read", &self.layout.root.path))?;
        Ok(Some((item.mime, bytes)))
    }

    /// Removes a manifest; the next sweep removes contents that no other names. Returns true if there was one.
    pub fn withdraw(&self, execution_id: &str) -> Result<bool, ArtifactError> {
        check_execution_id(execution_id)?;
        let _lock = self.layout.lock_shared()?;
        let (executions, name) = (&self.layout.executions, layout::manifest_name(execution_id));
        let is_there = executions.stat(&name)?.is_some();
        executions.remove(&name)?;
        Ok(is_there)
    }

    /// Opens an artifact, all bytes checked against the digest. `None` as for [`Self::manifest`] and an unknown name.
    pub fn read(
        &self,
        execution_id: &str,
        namespace: &Namespace,
        name: &str,
    ) -> Result<Option<(Item, std::fs::File)>, ArtifactError> {
        self.read_within(execution_id, namespace, name, u64::MAX)
    }

    fn read_within(
        &self,
        execution_id: &str,
        namespace: &Namespace,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<(Item, std::fs::File)>, ArtifactError> {
        // Keeps sweeps out between reading the manifest and opening the blob.
        let lock = self.layout.lock_shared()?;
        let Some(manifest) = self.manifest(execution_id, namespace)? else {
            return Ok(None);
        };
        let Some(signed) = manifest.artifacts.into_iter().find(|item| item.name == name) else {
            return Ok(None);
        };
        if signed.size_bytes > bytes_max {
            return Err(ArtifactError::TooLarge { bytes_max });
        }
        let damaged = |what: &str| ArtifactError::Damaged {
            execution_id: execution_id.to_owned(),
            what: format!("the content {}: {what}", signed.sha256),
        };
        let sha256 = from_hex(&signed.sha256).ok_or_else(|| damaged("is not a digest"))?;
        let content = Content::unpinned(sha256, signed.size_bytes);
        let blob = self.layout.blobs.find(&signed.sha256)?;
        drop(lock);
        let file = blob.ok_or_else(|| damaged("is not a file here"))?;
        let intact = content.is_in(&file);
        if !intact.map_err(FileError::at("read", &self.layout.root.path))? {
            return Err(damaged("is not what was signed"));
        }
        let (name, mime) = (signed.name, signed.mime);
        Ok(Some((Item { name, mime, content }, file)))
    }

    /// Lists a namespace's executions, newest first, at most `limit` and 1000. Damaged ones are logged and left out.
    pub fn executions(
        &self,
        namespace: &Namespace,
        limit: usize,
    ) -> Result<Vec<ListedExecution>, ArtifactError> {
        let limit = limit.min(LISTED_MAX);
        let mut files = self.layout.executions.files()?;
        files.sort_by_key(|(_, stat)| Reverse((stat.st_mtime, stat.st_mtime_nsec)));
        let mut listed = Vec::new();
        for (file_name, _) in &files {
            if listed.len() >= limit {
                break;
            }
            let Some(execution_id) = file_name.strip_suffix(".json") else {
                continue;
            };
            // `None`: a sweep has removed it since.
            let Some(text) = self.layout.read_manifest(file_name)? else {
                continue;
            };
            let checked = Manifest::from_json(&text).and_then(|manifest| {
                let is_own = manifest.namespace == *namespace;
                is_own.then(|| self.check(&manifest, execution_id)).transpose()?;
                Ok(is_own.then(|| ListedExecution::of(manifest)))
            });
            match checked {
                Ok(of_namespace) => listed.extend(of_namespace),
                Err(what) => tracing::warn!(execution_id, what, "a damaged manifest is left out of a list"),
            }
        }
        listed.sort_by_key(|one| Reverse(one.created_unix_ms));
        Ok(listed)
    }

    /// Removes executions over the limits of age and size, contents that no manifest names, and files that a crash left
    /// in `incoming` over an hour ago. If another process or thread holds the lock, only sets [`Swept::busy`].
    pub fn sweep(&self) -> Result<Swept, ArtifactError> {
        let now = SystemTime::now();
        self.sweep_with(clock::for_retention(&self.layout.root.path, now))
    }

    /// `None`: the time is unknown, and nothing is removed for its age.
    fn sweep_with(&self, now: Option<SystemTime>) -> Result<Swept, ArtifactError> {
        let retention = self.layout.tally().retention();
        let swept = sweep::sweep(&self.layout, retention, now)?;
        if !swept.busy {
            self.layout.tally().swept(retention, self.layout.last_count()?);
        }
        Ok(swept)
    }

    /// True an eighth of the retention age (1 s to 1 h) after the last sweep of any process; if the last count exceeds
    /// a new size limit; if the store is over its limit and over 1/16 of that was added since then; or without a count.
    pub fn sweep_is_due(&self) -> bool {
        let last = self.layout.last_count().unwrap_or_default();
        self.layout.tally().is_due(last, SystemTime::now())
    }

    /// True if this process has added something since the last sweep.
    pub fn has_added(&self) -> bool {
        self.layout.tally().added > 0
    }

    /// Notes, at the end of a process, what it has added: a sweep is due for many small ones as for a large one.
    pub fn note_added(&self) -> Result<(), ArtifactError> {
        Ok(self.layout.note_added()?)
    }

    pub fn set_retention(&self, retention: Retention) {
        self.layout.tally().set_retention(retention);
    }

    /// Returns the approximate size on disk, in blocks of 4 KiB: the last count plus what was added since.
    pub fn bytes(&self) -> u64 {
        self.layout.tally().bytes()
    }
}

/// A content being added to the store: hashed and counted as it is written, then moved into place under its digest.
#[derive(Debug)]
pub struct Incoming {
    draft: Hashing<Draft>,
    layout: Arc<ArtifactsDir>,
    complete: bool,
}

impl Incoming {
    /// Moves the content into place; an intact copy there is kept. After a failed write: [`ArtifactError::Incomplete`].
    pub fn finish(self) -> Result<Content, ArtifactError> {
        if !self.complete {
            return Err(ArtifactError::Incomplete);
        }
        let (draft, hashed) = self.draft.finish();
        let _lock = self.layout.lock_shared()?;
        let (content, is_new) = self.layout.blobs.put(draft, hashed)?;
        if is_new {
            self.layout.tally().add(content.size_bytes);
        }
        Ok(content)
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.draft.write(bytes);
        if let Err(error) = &written {
            self.complete &= error.kind() == io::ErrorKind::Interrupted;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check_execution_id(execution_id: &str) -> Result<(), ArtifactError> {
    if is_plain_id(execution_id) {
        return Ok(());
    }
    let what = "an execution's id is 1 to 64 letters, digits or `-`";
    Err(ArtifactError::Refused(what.to_owned()))
}

fn check_items(items: &[Item]) -> Result<(), ArtifactError> {
    let refused = |what: String| Err(ArtifactError::Refused(what));
    if items.len() > ITEMS_MAX {
        return refused(format!("{} artifacts; {ITEMS_MAX} are the most", items.len()));
    }
    let mut names = HashSet::new();
    for Item { name, mime, .. } in items {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return refused(format!("an artifact's name has 1 to {NAME_BYTES_MAX} bytes"));
        }
        if mime.len() > MIME_BYTES_MAX {
            return refused(format!("a media type has at most {MIME_BYTES_MAX} bytes"));
        }
        if !names.insert(name) {
            return refused(format!("two artifacts have the name {name:?}"));
        }
    }
    Ok(())
}
