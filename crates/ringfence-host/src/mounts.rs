//! The files that exist for a command: its own root with what its rule names, or the host's mounts, read-only.

use crate::spec::{Grant, Handed, Mount, Source, Spec, Step, step};
use ringfence_sys::{
    file,
    mount::{self, Attributes, Reach},
    process,
};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

fn attributes(grant: Grant) -> Attributes {
    Attributes {
        read_only: grant != Grant::Keep,
        no_devices: grant != Grant::Device,
        no_exec: grant != Grant::Run,
    }
}

pub(crate) fn build(handed: &Handed) -> Step<()> {
    let spec = &handed.spec;
    step("private mounts", mount::make_root_private())?;
    if spec.host_view {
        return host_view(spec);
    }
    // All trees are opened before anything covers them.
    let mut trees: Vec<(&Mount, OwnedFd)> = Vec::new();
    let mut sorted: Vec<&Mount> = spec.mounts.iter().collect();
    // Writable mounts come first at each depth, so that a read-only mount of the same target does not replace them.
    sorted.sort_by_key(|mount| (mount.target.components().count(), mount.grant != Grant::Keep));
    for one in sorted {
        if !is_link(one) && !is_covered(one, &trees) {
            trees.push((
                one,
                step(&format!("open {}", one.target.display()), open_tree(handed, one))?,
            ));
        }
    }
    let options = [
        ("size", Some("1m")),
        ("nr_inodes", Some("4096")),
        ("mode", Some("0755")),
    ];
    let writable = Attributes {
        read_only: false,
        no_devices: true,
        no_exec: true,
    };
    let root = step("root", mount::new_filesystem("tmpfs", &options, writable))?;
    step(
        "attach root",
        mount::attach(root.as_fd(), file::current_directory(), Path::new("/")),
    )?;
    step("enter root", process::change_directory_to(root.as_fd()))?;
    file::set_umask(0o022);
    let links = spec.mounts.iter().filter(|one| is_link(one));
    let links: BTreeSet<&Path> = links.map(|one| one.target.as_path()).collect();
    for path in links {
        let target = step("link", fs::read_link(path))?;
        let made = file::make_link(root.as_fd(), below(path), &target.to_string_lossy());
        step("link", made)?;
    }
    // Every mount point is made before the first tree is attached: a tree may hold the files of other users, and a
    // path through it may lead anywhere.
    for (number, (one, tree)) in trees.iter().enumerate() {
        let name = format!("mount point {}", one.target.display());
        if !step(&name, is_in_system_tree(one, &trees[..number]))? {
            step(&name, make_mount_point(&root, one, tree))?;
        }
    }
    for (one, tree) in &trees {
        let attached = mount::attach(tree.as_fd(), root.as_fd(), below(&one.target));
        step(&format!("mount {}", one.target.display()), attached)?;
    }
    if spec.own_proc {
        step(
            "proc",
            file::make_directory_beneath(root.as_fd(), Path::new("proc")),
        )?;
        step("proc", own_proc(&root))?;
    }
    let sealed = Attributes {
        read_only: true,
        ..writable
    };
    step(
        "read-only root",
        mount::restrict(root.as_fd(), sealed, Reach::ThisMount),
    )?;
    step("pivot_root", mount::pivot_to_current_directory())?;
    step(
        "directory",
        process::change_directory(&spec.directory).or_else(|_| process::change_directory(Path::new("/"))),
    )
}

fn own_proc(root: &OwnedFd) -> io::Result<()> {
    let attributes = Attributes {
        read_only: true,
        no_devices: true,
        no_exec: true,
    };
    let proc = mount::new_filesystem("proc", &[("hidepid", Some("invisible"))], attributes)?;
    mount::attach(proc.as_fd(), root.as_fd(), Path::new("proc"))
}

/// Makes all mounts of the host read-only.
fn host_view(spec: &Spec) -> Step<()> {
    let root = step(
        "root",
        file::open_directory(file::current_directory(), Path::new("/")),
    )?;
    let read_only = Attributes {
        read_only: true,
        no_devices: false,
        no_exec: false,
    };
    step(
        "read-only mounts",
        mount::restrict(root.as_fd(), read_only, Reach::AllBelow),
    )?;
    if spec.own_proc {
        step("proc", own_proc(&root))?;
    }
    step("directory", process::change_directory(&spec.directory))
}

/// True for a path of the system that is a link on this host (`/bin` to `usr/bin`).
fn is_link(one: &Mount) -> bool {
    let Source::Path(path) = &one.source else {
        return false;
    };
    one.target == *path
        && path.components().count() == 2
        && fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// True if an opened tree already shows the mount, so that it is left out.
fn is_covered(one: &Mount, trees: &[(&Mount, OwnedFd)]) -> bool {
    let shows = |other: &Mount| {
        let more = matches!((other.grant, one.grant), (Grant::Run | Grant::Keep, Grant::View));
        one.target.starts_with(&other.target) && (other.grant == one.grant || more)
    };
    // A mount from a descriptor must show that very file, and each target is mounted once.
    let is_same = |other: &Mount| one.target == other.target;
    trees.iter().any(|(other, _)| match one.source {
        Source::Path(_) => shows(other),
        // An operand inside the directory of the call is seen there.
        Source::Descriptor(_) => {
            is_same(other) || (matches!(other.source, Source::Descriptor(_)) && shows(other))
        }
    })
}

/// True if the target lies in a tree of the system, which only root can change. Fails if it lies in any other tree.
fn is_in_system_tree(one: &Mount, before: &[(&Mount, OwnedFd)]) -> io::Result<bool> {
    let mut holds = false;
    for (other, _) in before {
        if one.target.starts_with(&other.target) {
            let is_system = matches!(other.source, Source::Path(_)) && other.grant == Grant::Run;
            if !is_system {
                return Err(io::Error::other("one of the paths lies in another"));
            }
            holds = true;
        }
    }
    Ok(holds)
}

fn open_tree(handed: &Handed, one: &Mount) -> io::Result<OwnedFd> {
    let tree = match &one.source {
        Source::Path(path) => mount::clone_tree(file::current_directory(), path)?,
        Source::Descriptor(number) => {
            let open = handed.descriptors.get(*number);
            let open = open.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
            mount::clone_tree(reopen(open, &one.target)?.as_fd(), Path::new(""))?
        }
    };
    mount::restrict(tree.as_fd(), attributes(one.grant), Reach::AllBelow)?;
    Ok(tree)
}

/// Opens the same file in this mount namespace, since one of another cannot be mounted. Refuses a path to another file.
fn reopen(open: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), how)?;
    match file::identity(found.as_fd())? == file::identity(open.as_fd())? {
        true => Ok(found),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Makes the mount point of a tree, unless it exists.
fn make_mount_point(root: &OwnedFd, one: &Mount, tree: &OwnedFd) -> io::Result<()> {
    let target = below(&one.target);
    let is_there = |path: &Path| {
        fs::symlink_metadata(
            Path::new("/proc/self/fd")
                .join(root.as_raw_fd().to_string())
                .join(path),
        )
        .is_ok()
    };
    if is_there(target) {
        return Ok(());
    }
    let mut above = PathBuf::new();
    for part in target.parent().into_iter().flat_map(Path::components) {
        above.push(part);
        if !is_there(&above) {
            file::make_directory(root.as_fd(), &above, 0o755)?;
        }
    }
    let opened = format!("/proc/self/fd/{}", tree.as_raw_fd());
    match fs::metadata(opened)?.is_dir() {
        true => file::make_directory(root.as_fd(), target, 0o755),
        false => file::make_file(root.as_fd(), target, 0o444).map(drop),
    }
}
