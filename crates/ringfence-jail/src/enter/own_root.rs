//! The steps of the `full` tier: namespaces, an identity and a root of its own.

use super::{Handed, own_clocks, own_host, take_identity};
use crate::{
    Plan, Program,
    failure::{StepResult, step},
    plan::{
        self, Tree,
        root::{self, ProcEntries},
    },
};
use ringfence_sys::{
    file::{self, Kind},
    mount::{self, Attributes, Reach},
    process::{self, NamespaceKind},
};
use std::{
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// A kernel has some sixty.
const PROC_ENTRIES_MAX: usize = 1024;

const READ_ONLY: Attributes = Attributes {
    read_only: true,
    no_devices: true,
    no_exec: false,
};
const READ_WRITE: Attributes = Attributes {
    read_only: false,
    no_devices: true,
    no_exec: false,
};

pub(super) fn enter(plan: &Plan, handed: &Handed) -> StepResult<OwnRoot> {
    step("private mounts", mount::make_root_private())?;
    step("cgroup namespace", process::unshare(&[NamespaceKind::Cgroup]))?;
    if plan.time_namespace {
        step("time namespace", own_clocks(handed.proc.as_fd()))?;
    }
    // Before the identity changes: below a home directory only its owner can open the interpreter's tree.
    let trees = open_trees(plan, handed)?;
    take_identity(plan, handed)?;
    let Built { code, layers } = build_root(plan, &trees)?;
    match plan.refused.pivot_root {
        true => step("chroot", mount::change_root_to_current_directory())?,
        false => step("pivot_root", mount::pivot_to_current_directory())?,
    }
    let sockets = own_host(plan, handed.proc.as_fd())?;
    let disk = step("pick the root", mount::pick_current_directory())?;
    Ok(OwnRoot {
        code,
        disk,
        layers,
        sockets,
    })
}

pub(super) struct OwnRoot {
    /// The code directory, writable through this descriptor alone; a worker has none.
    pub(super) code: Option<OwnedFd>,
    /// By which the supervisor sizes the disk.
    pub(super) disk: OwnedFd,
    pub(super) layers: Option<OwnedFd>,
    pub(super) sockets: Vec<OwnedFd>,
}

/// Descriptors to what has no name any more once the root is built.
#[derive(Default)]
struct Built {
    code: Option<OwnedFd>,
    layers: Option<OwnedFd>,
}

fn open_trees(plan: &Plan, handed: &Handed) -> StepResult<Vec<OwnedFd>> {
    let open = |(number, tree): (usize, &Tree)| {
        let name = || format!("open tree {}", tree.source.display());
        let opened = match handed.mapped_trees.iter().find(|(mapped, _)| *mapped == number) {
            Some((_, mapped)) => step(name(), mapped.try_clone())?,
            None => step(name(), clone_tree(plan, tree))?,
        };
        let attributes = Attributes {
            read_only: !tree.writable,
            no_devices: !tree.devices,
            no_exec: false,
        };
        let restricted = mount::restrict(opened.as_fd(), attributes, Reach::AllBelow);
        step(name(), restricted)?;
        Ok(opened)
    };
    plan.trees.iter().enumerate().map(open).collect()
}

pub(crate) fn clone_tree(plan: &Plan, tree: &Tree) -> io::Result<OwnedFd> {
    match plan.shared_at(&tree.source) {
        Some(shared) => mount::clone_tree(shared.again()?.as_fd(), Path::new("")),
        None => mount::clone_tree(file::current_directory(), &tree.source),
    }
}

fn build_root(plan: &Plan, trees: &[OwnedFd]) -> StepResult<Built> {
    let mut steps = plan.root.iter();
    let Some(plan::Step::Root { bytes, files }) = steps.next() else {
        return Err(crate::wire::Failure {
            step: "plan".into(),
            errno: 0,
            detail: "no root in the plan".into(),
        });
    };
    let (size, inodes) = (bytes.to_string(), files.to_string());
    let options = [
        ("size", Some(size.as_str())),
        ("nr_inodes", Some(inodes.as_str())),
        ("mode", Some("0755")),
    ];
    let root = step("root tmpfs", mount::new_filesystem("tmpfs", &options, READ_WRITE))?;
    // Anywhere will do: the mount is reached through its descriptor until pivot_root.
    let attached = mount::attach(root.as_fd(), file::current_directory(), Path::new("/"));
    step("attach root", attached)?;
    step("enter root", process::change_directory_to(root.as_fd()))?;
    file::set_umask(0);
    let mut built = Built::default();
    for action in steps {
        if *action == plan::Step::SealRoot && !matches!(plan.program, Program::Worker { .. }) {
            let place = inside(&plan.layout.code);
            let cloned = mount::clone_tree(root.as_fd(), place);
            built.code = Some(step("keep code writable", cloned)?);
        }
        if let plan::Step::Layers { number, path } = action {
            let attached = attach_beneath(trees, *number, root.as_fd(), path);
            built.layers = Some(step(format!("layers {}", path.display()), attached)?);
        }
        perform(action, root.as_fd(), trees)?;
    }
    Ok(built)
}

fn perform(action: &plan::Step, root: BorrowedFd<'_>, trees: &[OwnedFd]) -> StepResult<()> {
    use plan::Step as Action;
    let name = |what: &str, path: &Path| format!("{what} {}", path.display());
    match action {
        Action::Root { .. } | Action::Layers { .. } => Ok(()),
        Action::Directory { path, mode } => {
            let made = file::make_directory(root, inside(path), *mode);
            step(name("directory", path), made)
        }
        Action::Link { path, target } => {
            let made = file::make_link(root, inside(path), target);
            step(name("link", path), made)
        }
        Action::Text { path, content } => {
            let written = file::make_file(root, inside(path), 0o444)
                .and_then(|mut file| file.write_all(content.as_bytes()));
            step(name("file", path), written)
        }
        Action::Tree { number, path } => step(name("attach", path), attach(trees, *number, root, path)),
        Action::Overlay { lower, path } => step(name("overlay", path), overlay(trees, *lower, root, path)),
        Action::Writable { path } => step(name("writable", path), keep_writable(root, path)),
        Action::SealRoot => step("seal root", mount::restrict(root, READ_ONLY, Reach::ThisMount)),
        Action::Pts => step("devpts", pseudo_terminals(root)),
        Action::Proc { shown } => match shown {
            ProcEntries::Nothing => step("proc", own_proc(root, &[("subset", Some("pid"))])),
            ProcEntries::All => step("proc", own_proc(root, &[])),
            ProcEntries::Only(names) => {
                step("proc", own_proc(root, &[]))?;
                step("mask proc", mask_proc(root, names))
            }
        },
    }
}

/// Relative to the new root, which is the working directory.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn attach(trees: &[OwnedFd], number: usize, root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let tree = trees.get(number);
    let tree = tree.ok_or_else(|| io::Error::other("no such tree"))?;
    mount::attach(tree.as_fd(), root, inside(path))
}

/// Attaches a tree that the next mount at its place covers. What is returned leads to it all the same.
fn attach_beneath(
    trees: &[OwnedFd],
    number: usize,
    root: BorrowedFd<'_>,
    path: &Path,
) -> io::Result<OwnedFd> {
    attach(trees, number, root, path)?;
    file::open_directory(root, inside(path))
}

fn keep_writable(root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let same = mount::clone_tree(root, inside(path))?;
    mount::attach(same.as_fd(), root, inside(path))
}

/// The lower tree is attached only while the overlay opens it.
fn overlay(trees: &[OwnedFd], lower: usize, root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let place = inside(Path::new(root::OVERLAY_LOWER));
    attach(trees, lower, root, place)?;
    let options = [
        ("lowerdir", place.to_str()),
        ("upperdir", inside(Path::new(root::UPPER)).to_str()),
        ("workdir", inside(Path::new(root::OVERLAY_WORK)).to_str()),
        ("userxattr", None),
    ];
    let made = mount::new_filesystem("overlay", &options, READ_WRITE)?;
    mount::detach(place)?;
    mount::attach(made.as_fd(), root, inside(path))
}

fn pseudo_terminals(root: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = Attributes {
        read_only: false,
        no_devices: false,
        no_exec: true,
    };
    let options = [
        ("newinstance", None),
        ("ptmxmode", Some("0666")),
        ("mode", Some("0620")),
        // The kernel has some thousands for everybody.
        ("max", Some("16")),
    ];
    let made = mount::new_filesystem("devpts", &options, attributes)?;
    mount::attach(made.as_fd(), root, Path::new("dev/pts"))
}

fn own_proc(root: BorrowedFd<'_>, options: &[(&str, Option<&str>)]) -> io::Result<()> {
    let attributes = Attributes {
        read_only: true,
        no_devices: true,
        no_exec: true,
    };
    let made = mount::new_filesystem("proc", options, attributes)?;
    mount::attach(made.as_fd(), root, Path::new("proc"))
}

/// Hides every name that is neither a process nor shown: directories behind an empty one, files behind `/dev/null`.
fn mask_proc(root: BorrowedFd<'_>, shown: &[String]) -> io::Result<()> {
    let proc = file::open_listing(root, Path::new("proc"))?;
    for (name, kind) in file::list_kinds(proc.as_fd(), PROC_ENTRIES_MAX)? {
        let bytes = name.as_os_str().as_encoded_bytes();
        let is_process = bytes.iter().all(u8::is_ascii_digit);
        if is_process || shown.iter().any(|shown| shown.as_bytes() == bytes) {
            continue;
        }
        let behind = match kind {
            Kind::Directory => inside(Path::new(root::EMPTY)),
            _ => Path::new("dev/null"),
        };
        mount::bind(behind, &Path::new("proc").join(&name))?;
    }
    // How many files, inodes and names the whole host has.
    mount::bind(inside(Path::new(root::EMPTY)), Path::new("proc/sys/fs"))
}
