//! Retention: executions that are older or beyond go, oldest first, then the contents that nobody names any more.
//!
//! Signatures are not checked here: who can write into the directory can delete in it. A manifest that cannot be parsed
//! names nothing; it goes by the time of its file. One that cannot be *read* stops the sweep before it removes anything.

use super::{
    ArtifactError, Retention,
    layout::{
        Layout, Lock, absent, disk_bytes, hex_digest, open_directory, plain_files, size_of, to_hex, unlink,
    },
    manifest::MANIFEST_BYTES_MAX,
    tally::apart,
};
use rustix::fs::{Dir, Stat};
use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    io,
    os::fd::AsFd,
    time::{Duration, SystemTime},
};

/// What nobody touched for so long in `incoming` was left by a crash.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Somebody added or swept at this moment, so nothing was done; try again later.
    pub busy: bool,
    /// Executions removed.
    pub executions: u64,
    /// Contents removed.
    pub blobs: u64,
    /// Bytes freed, in whole blocks.
    pub bytes: u64,
    /// Bytes that stay, in whole blocks.
    pub held_bytes: u64,
}

/// A content on the disk.
struct Blob {
    disk_bytes: u64,
    /// How often manifests name it.
    named: u64,
    pinned: bool,
}

/// A manifest on the disk.
struct Execution {
    file_name: String,
    age: Duration,
    disk_bytes: u64,
}

type Blobs = HashMap<[u8; 32], Blob>;

pub(super) fn sweep(layout: &Layout, retention: Retention, now: SystemTime) -> Result<Swept, ArtifactError> {
    let Some(lock) = layout.lock_alone()? else {
        return Ok(Swept {
            busy: true,
            ..Swept::default()
        });
    };
    let pins = list_pins(layout, now).map_err(|error| layout.failed("sweep", "incoming", error))?;
    let mut blobs = list_blobs(layout, &pins).map_err(|error| layout.failed("list", "blobs", error))?;
    let executions = list_executions(layout, &mut blobs, now)?;

    // Pinned contents that no manifest names are not counted: no removal of executions would free them.
    let named = blobs.values().filter(|blob| blob.named > 0);
    let mut held: u64 = named.map(|blob| blob.disk_bytes).sum();
    held += executions.iter().map(|one| one.disk_bytes).sum::<u64>();
    let mut swept = Swept::default();
    for execution in executions {
        if execution.age <= retention.age && held <= retention.bytes {
            break;
        }
        held = held.saturating_sub(remove_execution(layout, &execution, &mut blobs)?);
        swept.executions += 1;
        swept.bytes += execution.disk_bytes;
    }
    remove_unnamed(layout, &mut blobs, &mut swept).map_err(|error| layout.failed("sweep", "blobs", error))?;
    let pinned = blobs.values().filter(|blob| blob.named == 0);
    swept.held_bytes = held + pinned.map(|blob| blob.disk_bytes).sum::<u64>();
    finish(layout, &lock, swept)
}

fn finish(layout: &Layout, lock: &Lock, swept: Swept) -> Result<Swept, ArtifactError> {
    let written = lock.write_count(swept.held_bytes);
    written.map_err(|error| layout.failed("write", "lock", error))?;
    Ok(swept)
}

/// The files that `incoming` holds, by inode number, once the leftovers are removed. Not by their number of links: a
/// backup by hard links must not keep a content for ever.
fn list_pins(layout: &Layout, now: SystemTime) -> io::Result<HashSet<u64>> {
    let mut pins = HashSet::new();
    for (name, stat) in plain_files(layout.incoming.as_fd())? {
        if apart(modified(&stat), now) > LEFTOVER_AGE {
            unlink(layout.incoming.as_fd(), &name)?;
        } else {
            pins.insert(stat.st_ino);
        }
    }
    Ok(pins)
}

fn list_blobs(layout: &Layout, pins: &HashSet<u64>) -> io::Result<Blobs> {
    let mut blobs = Blobs::new();
    for entry in Dir::read_from(&layout.blobs)? {
        let entry = entry?;
        let name = entry.file_name().to_str().unwrap_or_default();
        if name.len() != 2 || name == ".." {
            continue;
        }
        let Some(fan) = absent(open_directory(layout.blobs.as_fd(), name))? else {
            continue;
        };
        for (name, stat) in plain_files(fan.as_fd())? {
            let Some(digest) = hex_digest(&name) else { continue };
            let blob = Blob {
                disk_bytes: disk_bytes(size_of(&stat)),
                named: 0,
                pinned: pins.contains(&stat.st_ino),
            };
            blobs.insert(digest, blob);
        }
    }
    Ok(blobs)
}

/// All manifests, oldest first; counts what they name.
fn list_executions(
    layout: &Layout,
    blobs: &mut Blobs,
    now: SystemTime,
) -> Result<Vec<Execution>, ArtifactError> {
    let files = plain_files(layout.executions.as_fd());
    let files = files.map_err(|error| layout.failed("list", "executions", error))?;
    let mut executions = Vec::with_capacity(files.len());
    for (file_name, stat) in files {
        if !file_name.ends_with(".json") {
            continue;
        }
        let created = visit(layout, &file_name, blobs, |blob| blob.named += 1)?;
        executions.push(Execution {
            age: apart(created.unwrap_or_else(|| modified(&stat)), now),
            disk_bytes: disk_bytes(size_of(&stat)),
            file_name,
        });
    }
    executions.sort_by(|a, b| b.age.cmp(&a.age).then_with(|| a.file_name.cmp(&b.file_name)));
    Ok(executions)
}

/// As much of a manifest as a sweep must know, of any version.
#[derive(Deserialize)]
struct Outline<'a> {
    created_unix_ms: u64,
    #[serde(borrow)]
    artifacts: Vec<OutlineItem<'a>>,
}

#[derive(Deserialize)]
struct OutlineItem<'a> {
    #[serde(borrow)]
    sha256: Cow<'a, str>,
}

/// Calls `each` for every content that the manifest names, and tells when it was made. Read again for each use: kept in
/// memory, the names of 10,000 executions could be a gigabyte.
fn visit(
    layout: &Layout,
    file_name: &str,
    blobs: &mut Blobs,
    mut each: impl FnMut(&mut Blob),
) -> Result<Option<SystemTime>, ArtifactError> {
    let text = layout.read_manifest(file_name)?.unwrap_or_default();
    if text.len() > MANIFEST_BYTES_MAX {
        return Ok(None);
    }
    let Ok(outline) = serde_json::from_slice::<Outline<'_>>(&text) else {
        tracing::warn!(file_name, "a damaged manifest in the artifact store");
        return Ok(None);
    };
    for item in outline.artifacts {
        if let Some(blob) = hex_digest(&item.sha256).and_then(|digest| blobs.get_mut(&digest)) {
            each(blob);
        }
    }
    Ok(SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(outline.created_unix_ms)))
}

/// The manifest goes before its contents, so that a crash leaves no manifest without them. Returns how much less is
/// named now.
fn remove_execution(layout: &Layout, execution: &Execution, blobs: &mut Blobs) -> Result<u64, ArtifactError> {
    let mut less = execution.disk_bytes;
    visit(layout, &execution.file_name, blobs, |blob| {
        if blob.named == 1 {
            less += blob.disk_bytes;
        }
        // Saturating: a file that a stranger's hand changed since the count is no reason to panic.
        blob.named = blob.named.saturating_sub(1);
    })?;
    unlink(layout.executions.as_fd(), &execution.file_name)
        .map_err(|error| layout.failed("remove", "executions", error))?;
    Ok(less)
}

fn remove_unnamed(layout: &Layout, blobs: &mut Blobs, swept: &mut Swept) -> io::Result<()> {
    let unnamed = blobs.extract_if(|_, blob| blob.named == 0 && !blob.pinned);
    for (digest, blob) in unnamed {
        let hex = to_hex(&digest);
        unlink(layout.fan(&hex)?.as_fd(), &hex)?;
        swept.blobs += 1;
        swept.bytes += blob.disk_bytes;
    }
    Ok(())
}

fn modified(stat: &Stat) -> SystemTime {
    let from_epoch = Duration::from_secs(stat.st_mtime.unsigned_abs());
    let time = if stat.st_mtime < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(from_epoch)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(from_epoch)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}
