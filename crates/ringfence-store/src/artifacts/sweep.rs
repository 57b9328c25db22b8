//! Retention: executions that are older go, and where there is too much the oldest of the namespace that has most;
//! then the contents that no manifest names any more. Where the clock has jumped (`clock`), nothing is too old; and
//! what is dated after the present is not old either.
//!
//! Signatures are not checked here: who can write into the directory can delete in it. A manifest that cannot be
//! parsed names nothing; it goes by the time of its file. One that cannot be *read* stops the sweep before it removes
//! anything.

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

/// What was not touched for so long in `incoming` was left by a crash.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Another process added or swept at this moment, so nothing was done; try again later.
    pub busy: bool,
    pub executions: u64,
    pub blobs: u64,
    /// Bytes freed, in whole blocks.
    pub bytes: u64,
    /// Bytes that stay, in whole blocks.
    pub held_bytes: u64,
}

struct Blob {
    disk_bytes: u64,
    named: u64,
    pinned: bool,
}

struct Execution {
    file_name: String,
    created: SystemTime,
    disk_bytes: u64,
}

/// What the executions of one namespace take, and they, oldest first.
#[derive(Default)]
struct NamespaceUse {
    bytes: u64,
    executions: VecDeque<(u64, Execution)>,
}

impl NamespaceUse {
    /// The highest loses next: the one that has most, of equals the one with the oldest.
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
    let named = blobs.values().filter(|blob| blob.named > 0);
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
        let most = || namespaces.iter_mut().max_by_key(|of| of.rank())?.pop();
        let beyond = || (held > retention.bytes).then(most).flatten();
        let Some(execution) = old.next().or_else(beyond) else {
            break;
        };
        held = held.saturating_sub(remove_execution(layout, &execution, &mut blobs)?);
        swept.executions += 1;
        swept.bytes += execution.disk_bytes;
    }
    remove_unnamed(layout, &mut blobs, &mut swept)?;
    let pinned = blobs.values().filter(|blob| blob.named == 0);
    swept.held_bytes = held + pinned.map(|blob| blob.disk_bytes).sum::<u64>();
    layout.write_count(&lock, swept.held_bytes)?;
    Ok(swept)
}

/// The files that `incoming` holds, by inode number, once the leftovers are removed. Not by their number of links: a
/// backup by hard links must not keep a content for ever.
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
        named: 0,
        pinned: pins.contains(&stat.st_ino),
    };
    let listed = layout.blobs.list()?.into_iter();
    Ok(listed.map(|(sha256, stat)| (sha256, blob(stat))).collect())
}

/// All manifests, oldest first; counts what they name.
fn list_executions(layout: &ArtifactsDir, blobs: &mut Blobs) -> Result<Vec<Execution>, ArtifactError> {
    let files = layout.executions.files()?;
    let mut executions = Vec::with_capacity(files.len());
    for (file_name, stat) in files {
        if !file_name.ends_with(".json") {
            continue;
        }
        let made = visit(layout, &file_name, blobs, |blob| blob.named += 1)?;
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

/// Of a content that several executions name, each has its part.
fn by_namespace(
    layout: &ArtifactsDir,
    executions: Vec<Execution>,
    blobs: &mut Blobs,
) -> Result<Vec<NamespaceUse>, ArtifactError> {
    let mut namespaces = HashMap::<_, NamespaceUse>::new();
    for execution in executions {
        let mut bytes = execution.disk_bytes;
        let made = visit(layout, &execution.file_name, blobs, |blob| {
            bytes += blob.disk_bytes / blob.named.max(1);
        })?;
        // Damaged manifests are of no namespace.
        let namespace = made.map(|(namespace, _)| namespace).unwrap_or_default();
        let of = namespaces.entry(namespace).or_default();
        of.bytes += bytes;
        of.executions.push_back((bytes, execution));
    }
    Ok(namespaces.into_values().collect())
}

/// As much of a manifest as a sweep must know, of any version.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    created_unix_ms: u64,
    #[serde(borrow)]
    artifacts: Vec<OutlineItem<'a>>,
}

#[derive(Deserialize)]
struct OutlineItem<'a> {
    #[serde(borrow)]
    sha256: Cow<'a, str>,
}

/// Calls `each` for every content that the manifest names, and tells whose it is and when it was made. Read again for
/// each use: kept in memory, the names of 10,000 executions could be a gigabyte.
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
    let Ok(outline) = serde_json::from_slice::<Outline<'_>>(&text) else {
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

/// The manifest goes before its contents, so that a crash leaves no manifest without them. Returns how much less is
/// named now.
fn remove_execution(
    layout: &ArtifactsDir,
    execution: &Execution,
    blobs: &mut Blobs,
) -> Result<u64, ArtifactError> {
    let mut less = execution.disk_bytes;
    visit(layout, &execution.file_name, blobs, |blob| {
        if blob.named == 1 {
            less += blob.disk_bytes;
        }
        // Saturating: a file that a stranger's hand changed since the count is no reason to panic.
        blob.named = blob.named.saturating_sub(1);
    })?;
    layout.executions.remove(&execution.file_name)?;
    Ok(less)
}

fn remove_unnamed(layout: &ArtifactsDir, blobs: &mut Blobs, swept: &mut Swept) -> Result<(), FileError> {
    let unnamed = blobs.extract_if(|_, blob| blob.named == 0 && !blob.pinned);
    for (sha256, blob) in unnamed {
        layout.blobs.remove(&sha256)?;
        swept.blobs += 1;
        swept.bytes += blob.disk_bytes;
    }
    Ok(())
}
