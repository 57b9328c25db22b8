//! Mounts as descriptors (the mount API of Linux 5.2 and later): a tree is opened, given its attributes, and only then
//! attached, so that no half-protected mount is ever visible.

use crate::done;
use rustix::mount::{
    self, FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// What a mount forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub read_only: bool,
    pub no_devices: bool,
    pub no_exec: bool,
}

/// `struct mount_attr` of `mount_setattr(2)`, size version 0.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

impl Attributes {
    fn flags(self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID;
        flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.read_only);
        flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, self.no_devices);
        flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, self.no_exec);
        flags
    }
}

/// A detached copy of the tree at `path` with everything mounted below it (`open_tree`); an empty path means
/// `directory` itself. Recursive, because a non-recursive copy of a tree with locked mounts is refused in a user
/// namespace.
pub fn clone_tree(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(mount::open_tree(directory, path, flags)?)
}

/// A new, detached file system of this kind. `options` are `key=value`, or a bare flag. Never set-user-id.
pub fn new_filesystem(
    kind: &str,
    options: &[(&str, Option<&str>)],
    attributes: Attributes,
) -> io::Result<OwnedFd> {
    let context = mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => mount::fsconfig_set_string(context.as_fd(), *key, *value)?,
            None => mount::fsconfig_set_flag(context.as_fd(), *key)?,
        }
    }
    mount::fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(mount::fsmount(context.as_fd(), flags, attributes.flags())?)
}

/// How far a change of attributes goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Mounts below stay as they are.
    ThisMount,
    /// Every mount of the tree.
    AllBelow,
}

/// Adds attributes to a mount, and to those below it as `reach` says. Never removes one.
pub fn restrict(mount: BorrowedFd<'_>, attributes: Attributes, reach: Reach) -> io::Result<()> {
    let attributes = MountAttr {
        attr_set: attributes.flags().bits().into(),
        ..MountAttr::default()
    };
    set_attributes(mount, &attributes, reach)
}

/// Makes a detached mount show ids through the mapping of `user_namespace` (`MOUNT_ATTR_IDMAP`).
pub fn map_ids(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().unsigned_abs());
    let attributes = MountAttr {
        attr_set: MOUNT_ATTR_IDMAP,
        userns_fd,
        ..MountAttr::default()
    };
    set_attributes(mount, &attributes, Reach::ThisMount)
}

/// Cuts a detached tree off from mount events of the tree that it was copied from, both ways.
pub fn make_private(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MountAttr {
        propagation: libc::MS_PRIVATE,
        ..MountAttr::default()
    };
    set_attributes(mount, &attributes, Reach::AllBelow)
}

fn set_attributes(mount: BorrowedFd<'_>, attributes: &MountAttr, reach: Reach) -> io::Result<()> {
    let flags = match reach {
        Reach::ThisMount => libc::AT_EMPTY_PATH,
        Reach::AllBelow => libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
    };
    // SAFETY: `mount` is a live descriptor (BorrowedFd), the path is a NUL-terminated constant, and `attributes` is a
    // live struct of the size given, laid out as mount_setattr(2) says; the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    };
    done(result)
}

/// A handle by which the file system of a mount, given by its root, can be given other options later.
pub fn pick(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    Ok(mount::fspick(mount, "", flags)?)
}

/// Gives a picked file system other options. The caller needs its capabilities over the file system's user namespace.
pub fn reconfigure(picked: BorrowedFd<'_>, options: &[(&str, &str)]) -> io::Result<()> {
    for (key, value) in options {
        mount::fsconfig_set_string(picked, *key, *value)?;
    }
    Ok(mount::fsconfig_reconfigure(picked)?)
}

/// Shows what is at `source` at `target` too (a classic bind mount, in one call).
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(mount::mount_bind(source, target)?)
}

/// Attaches a detached mount at `path` below `directory`. No symlink at the end of `path` is followed.
pub fn attach(mount: BorrowedFd<'_>, directory: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    Ok(mount::move_mount(
        mount,
        "",
        directory,
        path,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?)
}

/// Makes the current directory the root and lets go of the old one (`pivot_root(".", ".")`, see pivot_root(2)).
pub fn pivot_to_current_directory() -> io::Result<()> {
    rustix::process::pivot_root(".", ".")?;
    mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// The same where pivot_root(2) is refused and the current directory is the root of the mount upon `/`. The old root
/// stays below it, where no path leads.
pub fn change_root_to_current_directory() -> io::Result<()> {
    rustix::process::chroot(".")?;
    Ok(rustix::process::chdir("/")?)
}

/// Takes a mount out of the tree; open descriptors below it stay valid.
pub fn detach(path: &Path) -> io::Result<()> {
    Ok(mount::unmount(path, UnmountFlags::DETACH)?)
}

/// Cuts the tree at `/` off from mount events of the parent namespace, both ways.
pub fn make_root_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount::mount_change("/", flags)?)
}
