//! Limits of the disk space that programs use: below the state directory, for each namespace, and left free for others.
//! Counted at the start, and again when it seems used up; in between, the file system's usage bounds the growth.

use crate::{
    error::Result,
    sandbox::Sandboxes,
    settings::DiskPolicy,
    store::{blocking, fault},
    sync::lock,
};
use ringfence_jail::{Count, Known, Space};
use ringfence_store::snapshots::SnapshotStore;
use ringfence_types::{ErrorCode, Namespace, RequestError};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::AsFd,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Age after which the count of a workspace is outdated.
const KNOWN_MAX: Duration = Duration::from_secs(600);
/// Age after which the state directory may be counted again.
const COUNT_AGAIN: Duration = Duration::from_secs(60);

pub(crate) struct Disk {
    counted: Mutex<Counted>,
    /// The count of each namespace's workspace when its last run ended, with the time of the count.
    known: Mutex<HashMap<Namespace, (Count, Instant)>>,
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) sandboxes: Arc<Sandboxes>,
}

#[derive(Default)]
struct Counted {
    /// None: not counted yet (only [`Disk::begin`] starts it, in a server), or the last count failed.
    count: Option<Count>,
    at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    bytes: u64,
    by: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Free,
    Total,
    Namespace,
}

impl Disk {
    pub(crate) fn new(snapshots: Arc<SnapshotStore>, sandboxes: Arc<Sandboxes>) -> Self {
        Self {
            counted: Mutex::default(),
            known: Mutex::default(),
            snapshots,
            sandboxes,
        }
    }

    pub(crate) fn remember(&self, namespace: &Namespace, count: Count) {
        lock(&self.known).insert(namespace.clone(), (count, Instant::now()));
    }

    fn last_known(&self, namespace: &Namespace) -> Option<Count> {
        let known = lock(&self.known).get(namespace).copied();
        known
            .filter(|(_, at)| at.elapsed() < KNOWN_MAX)
            .map(|(count, _)| count)
    }

    fn space(&self) -> io::Result<Space> {
        Space::of(File::open(&self.sandboxes.state_dir)?.as_fd())
    }

    /// Counts the state directory. Blocking: stats every file.
    fn count(&self) {
        let count = File::open(&self.sandboxes.state_dir).and_then(|directory| Count::of(directory.as_fd()));
        if let Err(error) = &count {
            tracing::warn!(%error, "the state directory cannot be counted");
        }
        let mut counted = lock(&self.counted);
        counted.count = count.ok();
        counted.at = Some(Instant::now());
    }

    /// Returns true if it is time to count again, to one caller only.
    fn claim_recount(&self) -> bool {
        let mut counted = lock(&self.counted);
        let is_due = counted.count.is_some() && counted.at.is_some_and(|at| at.elapsed() > COUNT_AGAIN);
        if is_due {
            counted.at = None;
        }
        is_due
    }

    pub(crate) fn begin(self: &Arc<Self>) {
        let disk = self.clone();
        tokio::task::spawn_blocking(move || disk.count());
    }

    /// Returns the known usage of a namespace's workspace. With a limit used up, a run may only remove files.
    pub(crate) async fn known(self: &Arc<Self>, namespace: &Namespace) -> Result<Known> {
        let (space, left) = self.left(namespace).await?;
        let available = match left.bytes {
            0 => 0,
            _ => space
                .free
                .saturating_sub(self.sandboxes.policy.current().disk.free),
        };
        Ok(Known {
            count: self.last_known(namespace),
            filled_max: Some(space.used.saturating_add(available)),
        })
    }

    /// Refuses a run if less than half of `disk.free_mb` is free: runs leave files; the rest is for the audit record.
    pub(crate) fn check_floor(&self) -> Result<()> {
        let policy = self.sandboxes.policy.current().disk;
        // A missing directory is reported by the record.
        if self.space().is_ok_and(|space| space.free < policy.free / 2) {
            let refusal = refusal(Bound::Free, &policy);
            return Err(RequestError {
                message: format!("{} Nothing runs with less than half of that.", refusal.message),
                ..refusal
            });
        }
        Ok(())
    }

    /// Refuses writes from outside if a limit is used up.
    pub(crate) async fn check(self: &Arc<Self>, namespace: &Namespace) -> Result<()> {
        let (_, left) = self.left(namespace).await?;
        if left.bytes > 0 {
            return Ok(());
        }
        Err(refusal(left.by, &self.sandboxes.policy.current().disk))
    }

    async fn left(self: &Arc<Self>, namespace: &Namespace) -> Result<(Space, Left)> {
        let (own, of) = (self.clone(), namespace.clone());
        let measured = blocking(move || {
            let snapshots = own.snapshots.stored_bytes(&of).unwrap_or_default();
            (own.space(), snapshots)
        });
        let (space, snapshots) = measured.await?;
        let space =
            space.map_err(|error| fault(format!("the state directory cannot be inspected: {error}")))?;
        let workspace = self.last_known(namespace).map_or(0, |known| known.bytes());
        let total = lock(&self.counted)
            .count
            .map_or(0, |count| count.bytes_at_most(space));
        let left = least(
            &self.sandboxes.policy.current().disk,
            space,
            total,
            workspace + snapshots,
        );
        if left.by == Bound::Total && left.bytes == 0 && self.claim_recount() {
            self.begin();
        }
        Ok((space, left))
    }
}

fn refusal(by: Bound, policy: &DiskPolicy) -> RequestError {
    let (own, total, free) = (policy.of_namespace >> 20, policy.total >> 20, policy.free >> 20);
    let (code, message, hint) = match by {
        Bound::Namespace => (
            ErrorCode::PolicyDenied,
            format!(
                "the workspace and the snapshots of this namespace have {own} MiB, the most that they may have."
            ),
            "Remove files (a run may), delete snapshots, or have the operator raise `disk.namespace_mb`.",
        ),
        Bound::Total => (
            ErrorCode::StoreFault,
            format!("the server keeps {total} MiB on its disk, the most that it may."),
            "The operator removes workspaces and snapshots, or raises `disk.total_mb`.",
        ),
        Bound::Free => (
            ErrorCode::StoreFault,
            format!("the disk of the server is full: less than {free} MiB are free."),
            "The operator makes room on the file system of the state directory, or lowers `disk.free_mb`.",
        ),
    };
    RequestError::new(code, message, hint)
}

fn least(policy: &DiskPolicy, space: Space, total: u64, of_namespace: u64) -> Left {
    let bounds = [
        (policy.of_namespace.saturating_sub(of_namespace), Bound::Namespace),
        (policy.total.saturating_sub(total), Bound::Total),
        (space.free.saturating_sub(policy.free), Bound::Free),
    ];
    let least = bounds.into_iter().min_by_key(|(bytes, _)| *bytes);
    let (bytes, by) = least.unwrap_or((0, Bound::Free));
    Left { bytes, by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tightest_bound_applies_and_is_named() {
        let policy = DiskPolicy {
            total: 100,
            of_namespace: 50,
            free: 10,
        };
        let check = |free: u64, total: u64, own: u64, bytes: u64, by: Bound| {
            let space = Space { used: 7, free };
            assert_eq!(least(&policy, space, total, own), Left { bytes, by });
        };
        check(1000, 20, 10, 40, Bound::Namespace);
        check(1000, 90, 10, 10, Bound::Total);
        check(12, 20, 10, 2, Bound::Free);
        check(5, 20, 10, 0, Bound::Free);
        check(1000, 120, 60, 0, Bound::Namespace);
        let code = |by| refusal(by, &policy).code;
        assert_eq!(code(Bound::Namespace), ErrorCode::PolicyDenied);
        assert_eq!(
            [code(Bound::Total), code(Bound::Free)],
            [ErrorCode::StoreFault; 2]
        );
    }
}
