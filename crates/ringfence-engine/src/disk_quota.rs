//! The quota of a workspace for writes from outside. What the server writes into a sandbox's memory is charged to the
//! server, and what it writes beside a program to that: so it is refused beforehand, and ends no session at a limit.

use crate::error::Result;
use ringfence_jail::files_max;
use ringfence_store::tree::{self, Bounds, TreeEntry, TreeError};
use ringfence_types::{Limits, RequestError, WorkspacePath, WorkspaceSource};
use std::{
    collections::{HashMap, HashSet},
    os::fd::BorrowedFd,
    path::Path,
};

/// Limits of the walk that adds up the usage of a workspace.
const COUNT_BOUNDS: Bounds = Bounds {
    entries: 1 << 20,
    depth: 256,
};
const BLOCK: u64 = 512;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskUse {
    bytes: u64,
    entries: usize,
}

impl DiskUse {
    pub(crate) fn of(root: BorrowedFd<'_>) -> Result<Self, TreeError> {
        Ok(Self::by(&tree::walk(root, COUNT_BOUNDS)?))
    }

    fn by(entries: &[TreeEntry]) -> Self {
        Self {
            bytes: entries.iter().map(|entry| entry.blocks * BLOCK).sum(),
            entries: entries.len(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Disk,
    /// Half of the sandbox's memory, in which a private workspace is.
    Memory,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskQuota {
    bytes_max: u64,
    by: By,
    /// Usage by files that were in a directory of the host before and do not count.
    before: DiskUse,
    /// True: the bytes of a replaced file count as freed. In a directory of the host they do not.
    credits_replaced: bool,
}

impl DiskQuota {
    /// Returns the quota of a workspace. `before` is what a directory of the host already contained.
    pub(crate) fn of(source: &WorkspaceSource, limits: &Limits, before: DiskUse) -> Self {
        let half = limits.memory_bytes / 2;
        let (bytes_max, by) = match source {
            WorkspaceSource::Private if half < limits.disk_bytes => (half, By::Memory),
            _ => (limits.disk_bytes, By::Disk),
        };
        Self {
            bytes_max,
            by,
            before,
            credits_replaced: !matches!(source, WorkspaceSource::Host { .. }),
        }
    }

    /// Refuses files that exceed the quota. Files that they replace count as freed, unless `credits_replaced` is false;
    /// files that free at least as many bytes as they need are accepted however full the workspace is.
    pub(crate) fn check(self, root: BorrowedFd<'_>, files: &[(&WorkspacePath, u64)]) -> Result<()> {
        let entries = tree::walk(root, COUNT_BOUNDS).map_err(crate::workspace_error::of_tree)?;
        let current = DiskUse::by(&entries);
        let incoming_paths: HashSet<&Path> = files.iter().map(|(path, _)| Path::new(path.as_str())).collect();
        let mut replaced: HashMap<&Path, u64> = entries
            .iter()
            .filter(|entry| incoming_paths.contains(entry.path.as_path()))
            .map(|entry| (entry.path.as_path(), entry.blocks * BLOCK))
            .collect();
        let (mut incoming, mut freed, mut made) = (0_u64, 0, 0);
        for (path, bytes) in files {
            let path = Path::new(path.as_str());
            incoming = incoming.saturating_add(*bytes);
            match replaced.remove(path) {
                Some(bytes) if self.credits_replaced => freed += bytes,
                Some(_) => {}
                None => made += path.components().count(),
            }
        }
        let used = current.bytes.saturating_sub(self.before.bytes + freed);
        if incoming > freed && used.saturating_add(incoming) > self.bytes_max {
            return Err(self.refusal(&format!("{incoming} bytes more")));
        }
        let used = current.entries.saturating_sub(self.before.entries);
        let entries_max = files_max(self.bytes_max);
        if made > 0 && (used + made) as u64 > entries_max {
            let what = format!("more than {entries_max} files and directories");
            return Err(self.refusal(&what));
        }
        Ok(())
    }

    /// Refuses a snapshot that exceeds the quota even in an empty workspace.
    pub(crate) fn check_alone(self, bytes: u64) -> Result<()> {
        if bytes <= self.bytes_max {
            return Ok(());
        }
        Err(self.refusal(&format!("the snapshot's {bytes} bytes")))
    }

    pub(crate) fn left(self, root: BorrowedFd<'_>) -> Result<u64, TreeError> {
        let used = DiskUse::of(root)?.bytes.saturating_sub(self.before.bytes);
        Ok(self.bytes_max.saturating_sub(used))
    }

    fn refusal(self, what: &str) -> RequestError {
        let (limit, hint) = match self.by {
            By::Disk => (
                "its disk may have",
                "Remove something, use smaller pieces, or have the operator raise limits.disk_mb.",
            ),
            By::Memory => (
                "half of the session's memory, in which it lies, is",
                "Remove something, or make a session with more memory (`max_ram_mb`).",
            ),
        };
        let bytes_max = self.bytes_max;
        let message = format!("the workspace has no room for {what}: {limit} {bytes_max} bytes.");
        RequestError::denied(message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::WorkspaceMode;
    use std::{
        fs::{self, File},
        os::fd::AsFd,
    };

    fn limits(memory_bytes: u64, disk_bytes: u64) -> Limits {
        Limits {
            memory_bytes,
            cpu_millicores: 1000,
            timeout_ms: 1000,
            processes: 1,
            output_bytes: 1,
            disk_bytes,
        }
    }

    #[test]
    fn replaced_file_frees_its_bytes_and_every_new_path_counts() {
        let root = std::env::temp_dir().join(format!("ringfence-room-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("large"), vec![7; 3 << 20]).unwrap();
        let open = File::open(&root).unwrap();
        let quota_of = |source: &WorkspaceSource, most| {
            DiskQuota::of(source, &limits(100 << 20, most), DiskUse::default())
        };
        let fits = |path: &str, bytes, most| {
            let path = WorkspacePath::try_from(path.to_owned()).unwrap();
            let checked = quota_of(&WorkspaceSource::Namespace, most).check(open.as_fd(), &[(&path, bytes)]);
            checked.is_ok()
        };
        let full = 2 << 20;
        assert!(!fits("other", 1, full));
        assert!(!fits("large", 4 << 20, full));
        assert!(fits("large", 2 << 20, full));
        assert!(fits("large", (2 << 20) + 1, full));
        assert!(fits("other", 1 << 20, 5 << 20));
        for number in 0..files_max(5 << 20) - 2 {
            fs::write(root.join(number.to_string()), "").unwrap();
        }
        assert!(fits("last", 1, 5 << 20));
        assert!(!fits("in/one", 1, 5 << 20));
        assert!(fits("0", 1, 5 << 20));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn private_workspace_has_half_the_memory_and_a_host_directory_counts_only_additions() {
        let root = std::env::temp_dir().join(format!("ringfence-room-kinds-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("old"), vec![7; 3 << 20]).unwrap();
        let open = File::open(&root).unwrap();
        let before = DiskUse::of(open.as_fd()).unwrap();
        let host = WorkspaceSource::Host {
            directory: root.clone(),
            mode: WorkspaceMode::Rw,
        };
        let check = |source: &WorkspaceSource, path: &str, bytes: u64| {
            let path = WorkspacePath::try_from(path.to_owned()).unwrap();
            DiskQuota::of(source, &limits(8 << 20, 6 << 20), before).check(open.as_fd(), &[(&path, bytes)])
        };
        let private = |bytes| {
            let path = WorkspacePath::try_from("new".to_owned()).unwrap();
            let quota = DiskQuota::of(
                &WorkspaceSource::Private,
                &limits(8 << 20, 6 << 20),
                DiskUse::default(),
            );
            quota.check(open.as_fd(), &[(&path, bytes)])
        };
        assert!(private(1 << 19).is_ok());
        let refused = private(2 << 20).unwrap_err();
        assert!(
            refused.to_string().contains("half of the session's memory"),
            "{refused}"
        );
        assert!(
            check(&host, "new", 6 << 20).is_ok(),
            "earlier files are not counted"
        );
        assert!(check(&host, "new", (6 << 20) + 1).is_err());
        assert!(
            check(&host, "old", (6 << 20) + 1).is_err(),
            "old and new file exist at once"
        );
        let quota = DiskQuota::of(
            &WorkspaceSource::Namespace,
            &limits(8 << 20, 6 << 20),
            DiskUse::default(),
        );
        assert!(quota.check_alone(6 << 20).is_ok() && quota.check_alone((6 << 20) + 1).is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
