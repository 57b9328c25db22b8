//! The files that programs left, kept by content (SHA-256), each signed, with one signed manifest per execution.
//!
//! ```text
//! blobs/ab/<64 hex>     contents, mode 0400; `ab` are the first two digits
//! executions/<id>.json  manifests, linked there whole and never changed after
//! incoming/<32 hex>     what is being written, and pins: second links to contents that no manifest names yet
//! lock                  shared by those who add, exclusive for a sweep; its text is what the last sweep counted
//! ```
//!
//! Invariants: a manifest appears after all its blobs; a blob goes only when no manifest names it and it has no pin; a
//! name that a program chose is never part of a path. So a crash leaves either no manifest or a whole one. Nothing is
//! flushed to the device: this holds after `kill -9`, and what a loss of power damages is named
//! [`ArtifactError::Damaged`], not served wrong.

mod error;
mod incoming;
mod layout;
mod listing;
mod manifest;
mod sweep;
#[cfg(test)]
mod sweep_tests;
mod tally;
#[cfg(test)]
mod tests;

pub use crate::blobs::loose::Content;
pub use error::ArtifactError;
pub use incoming::Incoming;
pub use listing::ListedExecution;
pub use manifest::{Manifest, SignedItem, artifact_statement, digest, manifest_statement, verify_manifest};
pub use sweep::Swept;
pub use tally::Retention;

use crate::{Signer, clock, digest::from_hex, whole_file::FileError};
use layout::ArtifactsDir;
use ringfence_types::Namespace;
use std::{
    collections::HashSet,
    fmt, io,
    io::{Read as _, Write as _},
    os::fd::AsFd as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tally::Tally;

/// Artifacts of one execution.
const ITEMS_MAX: usize = 2000;
/// The longest name of an artifact.
pub const NAME_BYTES_MAX: usize = 1024;
const MIME_BYTES_MAX: usize = 255;
const EXECUTION_ID_BYTES_MAX: usize = 64;

/// The store. Any number of threads and processes may have the same directory open.
pub struct ArtifactStore {
    layout: Arc<ArtifactsDir>,
    signer: Signer,
    tally: Arc<Mutex<Tally>>,
}

/// Whose artifacts are published.
#[derive(Clone, Debug)]
pub struct Published {
    /// 1 to 64 letters, digits or `-`; used once.
    pub execution_id: String,
    pub namespace: Namespace,
    /// When; retention counts from here.
    pub time_unix_ms: u64,
}

/// One artifact: a label and a content.
#[derive(Clone, Debug)]
pub struct Item {
    /// Any text of 1 to 1024 bytes. A label, never a path.
    pub name: String,
    /// At most 255 bytes.
    pub mime: String,
    /// What [`Incoming::finish`] gave.
    pub content: Content,
}

impl fmt::Debug for ArtifactStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArtifactStore").field(&self.layout.path()).finish()
    }
}

impl ArtifactStore {
    /// Opens the store, which is made (mode 0700) when there is none. A directory that others may enter is refused.
    pub fn open(directory: PathBuf, signer: Signer, retention: Retention) -> Result<Self, ArtifactError> {
        let layout = ArtifactsDir::open(directory)?;
        let tally = Tally::new(retention, layout.last_count()?);
        Ok(Self {
            layout: Arc::new(layout),
            signer,
            tally: Arc::new(Mutex::new(tally)),
        })
    }

    /// Checks what it has signed.
    pub fn public_key(&self) -> [u8; 32] {
        self.signer.public_key()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file to write the next content into.
    pub fn receive(&self) -> Result<Incoming, ArtifactError> {
        Incoming::new(&self.layout, &self.tally)
    }

    /// Signs the items and their manifest and puts it in place, whole or not at all. Errors: `Refused`, `Taken` when
    /// the execution has a manifest, `Gone` when a content was swept because its pin was older than an hour.
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
        // Listings order by this time. Set under the lock: in `incoming`, an old file is swept.
        let created = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(manifest.created_unix_ms));
        let dated = created.map_or(Ok(()), |created| draft.file().set_modified(created));
        dated.map_err(failed("date"))?;
        match draft.link_to(executions.as_fd(), &file_name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(ArtifactError::Taken(manifest.execution_id));
            }
            Err(error) => return Err(failed("link")(error).into()),
        }
        drop(lock);
        self.tally().add(text.len() as u64);
        // From here on the manifest holds the contents; the pins in `items` go.
        drop(items);
        Ok(manifest)
    }

    /// The manifest, its signature checked. None when there is none and when it is another namespace's, so that no
    /// tenant learns what others have.
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

    /// One artifact in memory: its type and its bytes, checked against the signed digest. More than so many are
    /// refused.
    pub fn read_whole(
        &self,
        execution_id: &str,
        namespace: &Namespace,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<(String, Vec<u8>)>, ArtifactError> {
        let Some((item, file)) = self.read(execution_id, namespace, name)? else {
            return Ok(None);
        };
        if item.content.size_bytes > bytes_max {
            return Err(ArtifactError::TooLarge { bytes_max });
        }
        let mut bytes = Vec::new();
        let read = io::Read::take(file, bytes_max).read_to_end(&mut bytes);
        read.map_err(FileError::at("read", self.layout.path()))?;
        Ok(Some((item.mime, bytes)))
    }

    /// Takes back what was published; its contents go with the next sweep. True: there was something.
    pub fn withdraw(&self, execution_id: &str) -> Result<bool, ArtifactError> {
        check_execution_id(execution_id)?;
        let _lock = self.layout.lock_shared()?;
        let (executions, name) = (&self.layout.executions, layout::manifest_name(execution_id));
        let is_there = executions.stat(&name)?.is_some();
        executions.remove(&name)?;
        Ok(is_there)
    }

    /// One artifact, its bytes checked against the signed digest before any is given. None as for [`Self::manifest`],
    /// and when the execution has no artifact of this name.
    pub fn read(
        &self,
        execution_id: &str,
        namespace: &Namespace,
        name: &str,
    ) -> Result<Option<(Item, std::fs::File)>, ArtifactError> {
        // No sweep comes between the manifest and its blob.
        let lock = self.layout.lock_shared()?;
        let Some(manifest) = self.manifest(execution_id, namespace)? else {
            return Ok(None);
        };
        let Some(signed) = manifest.artifacts.into_iter().find(|item| item.name == name) else {
            return Ok(None);
        };
        let damaged = |what: &str| ArtifactError::Damaged {
            execution_id: execution_id.to_owned(),
            what: format!("the content {}: {what}", signed.sha256),
        };
        let sha256 = from_hex(&signed.sha256).ok_or_else(|| damaged("is no digest"))?;
        let content = Content::unpinned(sha256, signed.size_bytes);
        let blob = self.layout.blobs.find(&signed.sha256)?;
        drop(lock);
        let file = blob.ok_or_else(|| damaged("is no file here"))?;
        let intact = content.is_in(&file);
        if !intact.map_err(FileError::at("read", self.layout.path()))? {
            return Err(damaged("is not what was signed"));
        }
        let item = Item {
            name: signed.name,
            mime: signed.mime,
            content,
        };
        Ok(Some((item, file)))
    }

    /// Executions of a namespace, newest first; at most `limit` and at most 1000. Damaged ones are logged and left out.
    pub fn executions(
        &self,
        namespace: &Namespace,
        limit: usize,
    ) -> Result<Vec<ListedExecution>, ArtifactError> {
        listing::list(&self.layout, namespace, limit, |manifest, execution_id| {
            self.check(manifest, execution_id)
        })
    }

    /// Removes what is older or beyond, oldest executions first, then contents that no manifest names, then what a
    /// crash left in `incoming` an hour ago. When another process adds or sweeps at this moment, nothing is done and
    /// [`Swept::busy`] says so.
    pub fn sweep(&self) -> Result<Swept, ArtifactError> {
        let now = SystemTime::now();
        self.sweep_with(clock::for_retention(&clock::beside(self.layout.path()), now))
    }

    #[cfg(test)]
    fn sweep_at(&self, now: SystemTime) -> Result<Swept, ArtifactError> {
        self.sweep_with(Some(now))
    }

    /// None: the age of things is unknown.
    fn sweep_with(&self, now: Option<SystemTime>) -> Result<Swept, ArtifactError> {
        let retention = self.tally().retention();
        let swept = sweep::sweep(&self.layout, retention, now)?;
        if !swept.busy {
            self.tally().swept(retention, self.layout.last_count()?);
        }
        Ok(swept)
    }

    /// Is it time: by the clock (an eighth of the retention's age, at most an hour after the last sweep of any
    /// process), or because this process added a sixteenth of the bytes and they are too many.
    pub fn sweep_is_due(&self) -> bool {
        // A count that cannot be read is one more reason to count.
        let last = self.layout.last_count().unwrap_or_default();
        self.tally().is_due(last, SystemTime::now())
    }

    /// From the next sweep on.
    pub fn set_retention(&self, retention: Retention) {
        self.tally().set_retention(retention);
    }

    /// About what the store takes on the disk, in whole blocks of 4 KiB: the last count and what this process added.
    pub fn bytes(&self) -> u64 {
        self.tally().bytes()
    }
}

fn check_execution_id(execution_id: &str) -> Result<(), ArtifactError> {
    let plain = execution_id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if plain && (1..=EXECUTION_ID_BYTES_MAX).contains(&execution_id.len()) {
        return Ok(());
    }
    Err(ArtifactError::Refused(format!(
        "an execution's id is 1 to {EXECUTION_ID_BYTES_MAX} letters, digits or `-`"
    )))
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
