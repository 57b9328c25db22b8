//! Mounts as descriptors (the mount API of Linux 5.2 and later). A tree is opened, given its attributes and only then
//! attached, so that a mount is never visible without its protection.

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

/// Restrictions of a mount. Set-user-id bits are always ignored (`nosuid`).
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

/// Makes a detached copy of the tree at `path` with everything mounted below it (`open_tree`); an empty path means
/// `directory` itself. Recursive, because a non-recursive copy of a tree with locked mounts is refused in a user
/// namespace.
pub fn clone_tree(directory: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(mount::open_tree(directory, path, flags)?)
}

/// Creates a detached file system of this kind. Each option is `key=value` or a bare flag. Always `nosuid`.
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

/// Scope of a change of attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    ThisMount,
    AllBelow,
}

/// Adds attributes to a mount and, as `reach` says, to the mounts below it. Never removes an attribute.
pub fn restrict(mount: BorrowedFd<'_>, attributes: Attributes, reach: Reach) -> io::Result<()> {
    let attributes = MountAttr {
        attr_set: attributes.flags().bits().into(),
        ..MountAttr::default()
    };
    set_attributes(mount, &attributes, reach)
}

/// Maps the ids of a detached mount through `user_namespace` (`MOUNT_ATTR_IDMAP`).
pub fn map_ids(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().unsigned_abs());
    let attributes = MountAttr {
        attr_set: MOUNT_ATTR_IDMAP,
        userns_fd,
        ..MountAttr::default()
    };
    set_attributes(mount, &attributes, Reach::ThisMount)
}

/// Stops mount events from propagating between a detached tree and the tree that it was copied from, both ways.
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
    // SAFETY: `mount` is an open descriptor (BorrowedFd), the path is a NUL-terminated constant, and `attributes` is a
    // live struct of the given size, laid out as mount_setattr(2) says (repr(C)); the kernel only reads it.
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

/// Opens a handle for reconfiguring a file system later; `mount` is the root of one of its mounts.
pub fn pick(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    Ok(mount::fspick(mount, "", flags)?)
}

/// Changes the options of a picked file system. The caller needs its capabilities in that file system's user namespace.
pub fn reconfigure(picked: BorrowedFd<'_>, options: &[(&str, &str)]) -> io::Result<()> {
    for (key, value) in options {
        mount::fsconfig_set_string(picked, *key, *value)?;
    }
    Ok(mount::fsconfig_reconfigure(picked)?)
}

/// Bind-mounts `source` at `target`, in one call of mount(2).
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(mount::mount_bind(source, target)?)
}

/// Attaches a detached mount at `path` below `directory`. A symlink at the end of `path` is not followed.
pub fn attach(mount: BorrowedFd<'_>, directory: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    Ok(mount::move_mount(
        mount,
        "",
        directory,
        path,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?)
}

/// Makes the current directory the root and unmounts the old root (`pivot_root(".", ".")`, see pivot_root(2)).
pub fn pivot_to_current_directory() -> io::Result<()> {
    rustix::process::pivot_root(".", ".")?;
    mount::unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Replaces [`pivot_to_current_directory`] where pivot_root(2) is refused and the current directory is the root of the
/// mount on top of `/`. The old root stays mounted below it, where no path leads.
pub fn change_root_to_current_directory() -> io::Result<()> {
    rustix::process::chroot(".")?;
    Ok(rustix::process::chdir("/")?)
}

/// Unmounts lazily (`MNT_DETACH`); open descriptors below the mount stay valid.
pub fn detach(path: &Path) -> io::Result<()> {
    Ok(mount::unmount(path, UnmountFlags::DETACH)?)
}

/// Stops mount events from propagating between the tree at `/` and the parent namespace, both ways.
pub fn make_root_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount::mount_change("/", flags)?)
}
