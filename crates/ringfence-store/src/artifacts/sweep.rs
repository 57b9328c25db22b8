//! Retention: removes executions over the age limit, then the oldest of the largest namespace while over the size
//! limit, then contents without a manifest. Nothing is removed for its age after a clock jump, or dated in the future.
//!
//! Signatures are not checked: a writer here can also delete. A manifest that cannot be parsed names no contents and
//! has the age of its file; one that cannot be *read* stops the sweep before any execution or content is removed.

use super::{
    ArtifactError, Retention,
    layout::{ArtifactsDir, disk_bytes},
    manifest::MANIFEST_BYTES_MAX,
};
use crate::{
    digest::from_hex,
    whole_file::{FileError, modified, size_of},
};
use rustix::fs::Stat;
use serde::Deserialize;
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, SystemTime},
};

/// A file in `incoming` unchanged for this long was left by a crash.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Another process or thread held the lock, so nothing was done; try again later.
    pub busy: bool,
    pub executions: u64,
    pub blobs: u64,
    /// Bytes freed, in whole blocks, as are those that remain (`held_bytes`).
    pub bytes: u64,
    pub held_bytes: u64,
}

struct Blob {
    disk_bytes: u64,
    references: u64,
    pinned: bool,
}

struct Execution {
    file_name: String,
    created: SystemTime,
    disk_bytes: u64,
}

/// The executions of one namespace, oldest first, and their size.
#[derive(Default)]
struct NamespaceUsage {
    bytes: u64,
    executions: VecDeque<(u64, Execution)>,
}

impl NamespaceUsage {
    /// Order of removal, highest first: the largest namespace; among equals, the one with the oldest execution.
    fn rank(&self) -> (u64, Option<Reverse<SystemTime>>) {
        let oldest = self.executions.front().map(|(_, execution)| execution.created);
        (self.bytes, oldest.map(Reverse))
    }

    fn pop(&mut self) -> Option<Execution> {
        let (bytes, execution) = self.executions.pop_front()?;
        self.bytes -= bytes;
        Some(execution)
    }
}

type Blobs = HashMap<[u8; 32], Blob>;

pub(super) fn sweep(
    layout: &ArtifactsDir,
    retention: Retention,
    now: Option<SystemTime>,
) -> Result<Swept, ArtifactError> {
    let Some(lock) = layout.lock_alone()? else {
        return Ok(Swept {
            busy: true,
            ..Swept::default()
        });
    };
    let age = |of: SystemTime| {
        now.and_then(|now| now.duration_since(of).ok())
            .unwrap_or_default()
    };
    let pins = list_pins(layout, age)?;
    let mut blobs = list_blobs(layout, &pins)?;
    let mut executions = list_executions(layout, &mut blobs)?;

    // Pinned contents that no manifest names are not counted: no removal of executions would free them.
    let named = blobs.values().filter(|blob| blob.references > 0);
    let mut held: u64 = named.map(|blob| blob.disk_bytes).sum();
    held += executions.iter().map(|one| one.disk_bytes).sum::<u64>();
    let mut swept = Swept::default();
    let old = executions.partition_point(|execution| age(execution.created) > retention.age);
    let rest = executions.split_off(old);
    let mut namespaces = match held > retention.bytes {
        true => by_namespace(layout, rest, &mut blobs)?,
        false => Vec::new(),
    };
    let mut old = executions.into_iter();
    loop {
        let from_largest = || namespaces.iter_mut().max_by_key(|of| of.rank())?.pop();
        let over_size = || (held > retention.bytes).then(from_largest).flatten();
        let Some(execution) = old.next().or_else(over_size) else {
            break;
        };
        held = held.saturating_sub(remove_execution(layout, &execution, &mut blobs)?);
        swept.executions += 1;
        swept.bytes += execution.disk_bytes;
    }
    remove_unreferenced(layout, &mut blobs, &mut swept)?;
    let pinned = blobs.values().filter(|blob| blob.references == 0);
    swept.held_bytes = held + pinned.map(|blob| blob.disk_bytes).sum::<u64>();
    layout.write_count(&lock, swept.held_bytes)?;
    Ok(swept)
}

/// Removes leftovers; returns the inodes of the other pins. Link counts would let a backup by hard links keep contents.
fn list_pins(layout: &ArtifactsDir, age: impl Fn(SystemTime) -> Duration) -> Result<HashSet<u64>, FileError> {
    let incoming = &layout.blobs.incoming;
    let mut pins = HashSet::new();
    for (name, stat) in incoming.files()? {
        if age(modified(&stat)) > LEFTOVER_AGE {
            incoming.remove(&name)?;
        } else {
            pins.insert(stat.st_ino);
        }
    }
    Ok(pins)
}

fn list_blobs(layout: &ArtifactsDir, pins: &HashSet<u64>) -> Result<Blobs, FileError> {
    let blob = |stat: Stat| Blob {
        disk_bytes: disk_bytes(size_of(&stat)),
        references: 0,
        pinned: pins.contains(&stat.st_ino),
    };
    let listed = layout.blobs.list()?.into_iter();
    Ok(listed.map(|(sha256, stat)| (sha256, blob(stat))).collect())
}

/// Lists all manifests, oldest first, and counts the references to each blob.
fn list_executions(layout: &ArtifactsDir, blobs: &mut Blobs) -> Result<Vec<Execution>, ArtifactError> {
    let files = layout.executions.files()?;
    let mut executions = Vec::with_capacity(files.len());
    for (file_name, stat) in files {
        if !file_name.ends_with(".json") {
            continue;
        }
        let made = visit(layout, &file_name, blobs, |blob| blob.references += 1)?;
        let created = made.and_then(|(_, created)| created);
        executions.push(Execution {
            created: created.unwrap_or_else(|| modified(&stat)),
            disk_bytes: disk_bytes(size_of(&stat)),
            file_name,
        });
    }
    executions.sort_by(|a, b| (a.created, &a.file_name).cmp(&(b.created, &b.file_name)));
    Ok(executions)
}

/// Groups executions by namespace. A content that several executions name is divided among them.
fn by_namespace(
    layout: &ArtifactsDir,
    executions: Vec<Execution>,
    blobs: &mut Blobs,
) -> Result<Vec<NamespaceUsage>, ArtifactError> {
    let mut namespaces = HashMap::<_, NamespaceUsage>::new();
    for execution in executions {
        let mut bytes = execution.disk_bytes;
        let made = visit(layout, &execution.file_name, blobs, |blob| {
            bytes += blob.disk_bytes / blob.references.max(1);
        })?;
        let namespace = made.map(|(namespace, _)| namespace).unwrap_or_default();
        let of = namespaces.entry(namespace).or_default();
        of.bytes += bytes;
        of.executions.push_back((bytes, execution));
    }
    Ok(namespaces.into_values().collect())
}

/// The part of a manifest that a sweep needs, for any version.
#[derive(Deserialize)]
struct ManifestOutline<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    created_unix_ms: u64,
    #[serde(borrow)]
    artifacts: Vec<ManifestOutlineItem<'a>>,
}

#[derive(Deserialize)]
struct ManifestOutlineItem<'a> {
    #[serde(borrow)]
    sha256: Cow<'a, str>,
}

/// Calls `each` for every blob of the manifest; returns its namespace and creation time, or `None` if it is damaged.
/// Manifests are read again for each use: the names of 10,000 executions could take a gigabyte of memory.
fn visit(
    layout: &ArtifactsDir,
    file_name: &str,
    blobs: &mut Blobs,
    mut each: impl FnMut(&mut Blob),
) -> Result<Option<(String, Option<SystemTime>)>, ArtifactError> {
    let text = layout.read_manifest(file_name)?.unwrap_or_default();
    if text.len() > MANIFEST_BYTES_MAX {
        return Ok(None);
    }
    let Ok(outline) = serde_json::from_slice::<ManifestOutline<'_>>(&text) else {
        tracing::warn!(file_name, "a damaged manifest in the artifact store");
        return Ok(None);
    };
    for item in outline.artifacts {
        if let Some(blob) = from_hex(&item.sha256).and_then(|digest| blobs.get_mut(&digest)) {
            each(blob);
        }
    }
    let created = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(outline.created_unix_ms));
    Ok(Some((outline.namespace.into_owned(), created)))
}

/// Removes the manifest before its contents, so that a crash leaves no manifest without them. Returns the bytes of the
/// manifest and of the blobs that no manifest names any more.
fn remove_execution(
    layout: &ArtifactsDir,
    execution: &Execution,
    blobs: &mut Blobs,
) -> Result<u64, ArtifactError> {
    let mut freed = execution.disk_bytes;
    visit(layout, &execution.file_name, blobs, |blob| {
        if blob.references == 1 {
            freed += blob.disk_bytes;
        }
        // Saturating: a file that was edited since the count must not cause a panic.
        blob.references = blob.references.saturating_sub(1);
    })?;
    layout.executions.remove(&execution.file_name)?;
    Ok(freed)
}

fn remove_unreferenced(layout: &ArtifactsDir, blobs: &mut Blobs, swept: &mut Swept) -> Result<(), FileError> {
    let unreferenced = blobs.extract_if(|_, blob| blob.references == 0 && !blob.pinned);
    for (sha256, blob) in unreferenced {
        layout.blobs.remove(&sha256)?;
        swept.blobs += 1;
        swept.bytes += blob.disk_bytes;
    }
    Ok(())
}
