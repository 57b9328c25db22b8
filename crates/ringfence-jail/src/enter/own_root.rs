//! The steps of the `full` tier: namespaces, an identity and a root of its own.

use super::{Handles, Inherited, new_time_namespace, set_up_host_name_and_network, take_identity};
use crate::{
    Plan, Program,
    failure::{Failure, StepResult, step},
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

/// A kernel has about sixty.
const PROC_ENTRIES_MAX: usize = 1024;

pub(crate) const READ_ONLY: Attributes = Attributes {
    read_only: true,
    no_devices: true,
    no_exec: false,
};
const READ_WRITE: Attributes = Attributes {
    read_only: false,
    no_devices: true,
    no_exec: false,
};

pub(super) fn enter(plan: &Plan, inherited: &Inherited) -> StepResult<Built> {
    step("private mounts", mount::make_root_private())?;
    step("cgroup namespace", process::unshare(&[NamespaceKind::Cgroup]))?;
    if plan.time_namespace {
        step("time namespace", new_time_namespace(inherited.proc.as_fd()))?;
    }
    let mut built = match plan.root.is_empty() {
        true => {
            take_identity(plan, inherited)?;
            Built::default()
        }
        false => change_root(plan, inherited)?,
    };
    let sockets = set_up_host_name_and_network(plan, inherited.proc.as_fd())?;
    let of_sandboxes = match plan.program {
        Program::Template { .. } => Some(keep_root_for_sandboxes(inherited)?),
        _ => None,
    };
    if !plan.upon.is_empty() {
        built = build_upon(plan)?;
    }
    built.handles.mount = of_sandboxes;
    built.handles.sockets = sockets;
    Ok(built)
}

/// Descriptors to objects that no longer have a path once the root is built.
#[derive(Default)]
pub(super) struct Built {
    /// The code directory, writable only through this descriptor; `None` for a worker.
    pub(super) code: Option<OwnedFd>,
    pub(super) handles: Handles,
}

fn change_root(plan: &Plan, inherited: &Inherited) -> StepResult<Built> {
    // Opened before the identity changes: below a home directory only its owner can open the interpreter's tree.
    let trees = open_trees(plan, inherited)?;
    take_identity(plan, inherited)?;
    let built = build_root(plan, &trees)?;
    match plan.refused.pivot_root {
        true => step("chroot", mount::change_root_to_current_directory())?,
        false => step("pivot_root", mount::pivot_to_current_directory())?,
    }
    Ok(built)
}

/// Keeps the root of a template for its sandboxes, and continues in a copy. Nothing can be written in the root that
/// they copy, even if the template mounts something writable for itself.
fn keep_root_for_sandboxes(inherited: &Inherited) -> StepResult<OwnedFd> {
    let opened = file::open_namespace(inherited.proc.as_fd(), Path::new("self/ns/mnt"));
    let kept = step("open namespace mnt", opened)?;
    step("mounts of its own", process::unshare(&[NamespaceKind::Mount]))?;
    Ok(kept)
}

fn open_trees(plan: &Plan, inherited: &Inherited) -> StepResult<Vec<OwnedFd>> {
    let open = |(number, tree): (usize, &Tree)| {
        let name = || format!("open tree {}", tree.source.display());
        let opened = match inherited.mapped_trees.iter().find(|(at, _)| *at == number) {
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
        Some(shared) => mount::clone_tree(shared.reopen()?.as_fd(), Path::new("")),
        None => mount::clone_tree(file::current_directory(), &tree.source),
    }
}

fn new_tmpfs(bytes: u64, files: u64) -> io::Result<OwnedFd> {
    let (size, inodes) = (bytes.to_string(), files.to_string());
    let options = [
        ("size", Some(size.as_str())),
        ("nr_inodes", Some(inodes.as_str())),
        ("mode", Some("0755")),
    ];
    mount::new_filesystem("tmpfs", &options, READ_WRITE)
}

#[derive(Clone, Copy)]
struct Site<'a> {
    root: BorrowedFd<'a>,
    /// The file system in which directories and files are made: the root, or the scratch upon it.
    made: BorrowedFd<'a>,
    trees: &'a [OwnedFd],
}

fn build_root(plan: &Plan, trees: &[OwnedFd]) -> StepResult<Built> {
    let mut steps = plan.root.iter();
    let Some(plan::Step::Root { bytes, files }) = steps.next() else {
        return Err(Failure::other("plan", "no root in the plan"));
    };
    let root = step("root tmpfs", new_tmpfs(*bytes, *files))?;
    // Any place will do: the mount is reached through its descriptor until pivot_root.
    let attached = mount::attach(root.as_fd(), file::current_directory(), Path::new("/"));
    step("attach root", attached)?;
    step("enter root", process::change_directory_to(root.as_fd()))?;
    let site = Site {
        root: root.as_fd(),
        made: root.as_fd(),
        trees,
    };
    build(plan, steps, site)
}

/// Mounts a sandbox's own parts upon an existing root that it shares with others.
fn build_upon(plan: &Plan) -> StepResult<Built> {
    let mut steps = plan.upon.iter();
    let Some(plan::Step::Scratch { bytes, files, path }) = steps.next() else {
        return Err(Failure::other("plan", "no scratch in the plan"));
    };
    step("enter root", process::change_directory(Path::new("/")))?;
    let root = file::open_directory(file::current_directory(), Path::new("/"));
    let root = step("open root", root)?;
    // Cloned before they are covered.
    let trees: StepResult<Vec<OwnedFd>> = trees_of_root(plan)
        .map(|path| {
            let cloned = mount::clone_tree(root.as_fd(), inside(path));
            step(format!("open tree {}", path.display()), cloned)
        })
        .collect();
    let scratch = step("scratch tmpfs", new_tmpfs(*bytes, *files))?;
    let attached = mount::attach(scratch.as_fd(), root.as_fd(), inside(path));
    step("attach scratch", attached)?;
    let site = Site {
        root: root.as_fd(),
        made: scratch.as_fd(),
        trees: &trees?,
    };
    let built = build(plan, steps, site)?;
    for (number, path) in trees_of_root(plan).enumerate() {
        step(format!("attach {}", path.display()), attach(number, site, path))?;
    }
    Ok(built)
}

fn trees_of_root(plan: &Plan) -> impl Iterator<Item = &Path> {
    plan.upon.iter().filter_map(|step| match step {
        plan::Step::TreeOfRoot(path) => Some(path.as_path()),
        _ => None,
    })
}

fn build<'a>(plan: &Plan, steps: impl Iterator<Item = &'a plan::Step>, site: Site<'_>) -> StepResult<Built> {
    use plan::Step as Action;
    file::set_umask(0); // files and directories get exactly the mode given
    let mut built = Built::default();
    for action in steps {
        let seals_code = match action {
            Action::SealRoot => !matches!(plan.program, Program::Worker { .. }),
            Action::Sealed(path) => *path == plan.layout.code,
            _ => false,
        };
        if seals_code {
            let cloned = mount::clone_tree(site.made, inside(&plan.layout.code));
            built.code = Some(step("keep code writable", cloned)?);
        }
        let layers = match action {
            Action::Layers { number, path } => attach(*number, site, path).map(|()| Some(path)),
            Action::LayersOfRoot(path) => Ok(Some(path)),
            _ => Ok(None),
        };
        if let Some(path) = step("layers", layers)? {
            // The descriptor still leads there when the next mount has covered it.
            let opened = file::open_directory(site.root, inside(path));
            built.handles.layers = Some(step("layers", opened)?);
        }
        perform(action, site)?;
    }
    built.handles.disk = Some(step("pick the disk", mount::pick(site.made))?);
    Ok(built)
}

fn perform(action: &plan::Step, site: Site<'_>) -> StepResult<()> {
    use plan::Step as Action;
    let name = |what: &str, path: &Path| format!("{what} {}", path.display());
    let Site { root, made, .. } = site;
    match action {
        // The caller performs these, before or after.
        Action::Root { .. }
        | Action::Scratch { .. }
        | Action::TreeOfRoot(_)
        | Action::Layers { .. }
        | Action::LayersOfRoot(_) => Ok(()),
        Action::Directory { path, mode } => {
            let made = file::make_directory(made, inside(path), *mode);
            step(name("directory", path), made)
        }
        Action::Link { path, target } => {
            let made = file::make_link(made, inside(path), target);
            step(name("link", path), made)
        }
        Action::Text { path, content } => {
            let written = file::make_file(made, inside(path), 0o444)
                .and_then(|mut file| file.write_all(content.as_bytes()));
            step(name("file", path), written)
        }
        Action::Tree { number, path } => step(name("attach", path), attach(*number, site, path)),
        Action::Overlay { lower, path } => step(name("overlay", path), overlay(*lower, site, path)),
        Action::Writable(path) => step(name("writable", path), expose(site, path, None)),
        Action::Sealed(path) => step(name("sealed", path), expose(site, path, Some(READ_ONLY))),
        Action::SealRoot => step("seal root", mount::restrict(root, READ_ONLY, Reach::ThisMount)),
        Action::Pts => step("devpts", pseudo_terminals(root)),
        Action::Proc(shown) => match shown {
            ProcEntries::Nothing => step("proc", own_proc(root, &[("subset", Some("pid"))])),
            ProcEntries::All => step("proc", own_proc(root, &[])),
            ProcEntries::Only(names) => {
                step("proc", own_proc(root, &[]))?;
                step("mask proc", mask_proc(root, names))
            }
        },
    }
}

/// Returns the path relative to the root, which is the working directory.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn attach(number: usize, site: Site<'_>, path: &Path) -> io::Result<()> {
    let tree = site.trees.get(number);
    let tree = tree.ok_or_else(|| io::Error::other("no such tree"))?;
    mount::attach(tree.as_fd(), site.root, inside(path))
}

/// Mounts what was made at this path upon the same path of the root.
fn expose(site: Site<'_>, path: &Path, restricted: Option<Attributes>) -> io::Result<()> {
    let same = mount::clone_tree(site.made, inside(path))?;
    if let Some(attributes) = restricted {
        mount::restrict(same.as_fd(), attributes, Reach::ThisMount)?;
    }
    mount::attach(same.as_fd(), site.root, inside(path))
}

/// Mounts an overlay. The lower tree is attached only while the overlay opens it.
fn overlay(lower: usize, site: Site<'_>, path: &Path) -> io::Result<()> {
    let place = inside(Path::new(root::OVERLAY_LOWER));
    attach(lower, site, place)?;
    let options = [
        ("lowerdir", place.to_str()),
        ("upperdir", inside(Path::new(root::UPPER)).to_str()),
        ("workdir", inside(Path::new(root::OVERLAY_WORK)).to_str()),
        ("userxattr", None),
    ];
    let made = mount::new_filesystem("overlay", &options, READ_WRITE)?;
    mount::detach(place)?;
    mount::attach(made.as_fd(), site.root, inside(path))
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
        // The kernel has a few thousand for the whole host.
        ("max", Some("16")),
    ];
    let made = mount::new_filesystem("devpts", &options, attributes)?;
    mount::attach(made.as_fd(), root, Path::new("dev/pts"))
}

fn own_proc(root: BorrowedFd<'_>, options: &[(&str, Option<&str>)]) -> io::Result<()> {
    let attributes = Attributes {
        no_exec: true,
        ..READ_ONLY
    };
    let made = mount::new_filesystem("proc", options, attributes)?;
    mount::attach(made.as_fd(), root, Path::new("proc"))
}

/// Hides every name that is neither a process nor listed: directories behind an empty one, files behind `/dev/null`.
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
    // proc/sys/fs shows how many files, inodes and names the whole host has.
    mount::bind(inside(Path::new(root::EMPTY)), Path::new("proc/sys/fs"))
}
