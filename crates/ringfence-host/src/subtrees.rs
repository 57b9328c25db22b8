//! Where files lie in their file systems, regardless of the mount points that show them (proc_pid_mountinfo(5)).

use rustix::fs::{AtFlags, StatxFlags, statx};
use std::{
    ffi::OsString,
    fs, io,
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

/// A file, or a directory with all below it.
pub(crate) struct Subtree {
    /// `None`: the mount is not listed, like that of a chroot's root, and the path is relative to an unknown directory.
    device: Option<Vec<u8>>,
    path: PathBuf,
}

impl Subtree {
    pub(crate) fn holds(&self, inner: &Self) -> bool {
        match (&self.device, &inner.device) {
            (None, Some(_)) => inner.path.ancestors().any(|above| above.ends_with(&self.path)),
            (Some(_), None) => {
                let mut above = inner.path.ancestors().filter(|above| *above != Path::new(""));
                above.any(|above| self.path.ends_with(above))
            }
            (device, other) => device == other && inner.path.starts_with(&self.path),
        }
    }
}

struct MountPoint {
    id: u64,
    device: Vec<u8>,
    root: PathBuf,
    path: PathBuf,
}

pub(crate) struct Mounts(Vec<MountPoint>);

impl Mounts {
    pub(crate) fn read() -> io::Result<Self> {
        let text = fs::read("/proc/self/mountinfo")?;
        let mounts = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            Some(MountPoint {
                id: str::from_utf8(fields.next()?).ok()?.parse().ok()?,
                device: fields.nth(1)?.to_vec(),
                root: unescaped(fields.next()?),
                path: unescaped(fields.next()?),
            })
        });
        Ok(Self(mounts.collect()))
    }

    /// Returns the subtree of a path, whose mount is that of `name` in the directory `open`; without a name, of `open`.
    /// A file that does not exist has the mount of the nearest directory above it.
    pub(crate) fn subtree(&self, path: &Path, open: impl AsFd, name: &Path) -> Option<Subtree> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        let found = |at| statx(&open, at, flags, StatxFlags::MNT_ID).ok();
        let id = name.ancestors().find_map(found)?.stx_mnt_id;
        let Some(mount) = self.0.iter().find(|mount| mount.id == id) else {
            let path = path.strip_prefix("/").unwrap_or(path).to_owned();
            return Some(Subtree { device: None, path });
        };
        Some(Subtree {
            device: Some(mount.device.clone()),
            path: mount.root.join(path.strip_prefix(&mount.path).ok()?),
        })
    }

    /// Returns the subtree of a path, and those of the file systems mounted below it.
    pub(crate) fn shown_by(&self, path: &Path) -> Vec<Subtree> {
        let mounted = self.0.iter().filter(|mount| mount.path.starts_with(path));
        let mounted = mounted.map(|mount| Subtree {
            device: Some(mount.device.clone()),
            path: mount.root.clone(),
        });
        mounted.chain(self.subtree(path, rustix::fs::CWD, path)).collect()
    }
}

/// Decodes `\ooo`, as which the kernel writes white space and backslashes.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = rest.get(1..4).filter(|_| byte == b'\\');
        let coded = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(coded.unwrap_or(byte));
        rest = coded.map_or(tail, |_| &rest[4..]);
    }
    OsString::from_vec(bytes).into()
}
