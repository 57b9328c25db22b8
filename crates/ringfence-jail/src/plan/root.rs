//! The root that a program of the tier `full` sees: one small file system in memory, the system's and the interpreter's
//! trees mounted read-only upon it, and nothing else of the host, not even a name.

use super::{Identity, Tree};
use crate::{
    Host, HostWorkspace, JailSpec, PACKAGES, Program,
    egress::GATEWAY,
    host::{Node, SystemPath},
    quota::files_max,
};
use ringfence_types::WorkspaceMode;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// One step of building the root. Paths are absolute, as the program will see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The root itself: a tmpfs of this size, of which workspace, /tmp, home and /dev/shm are directories.
    Root {
        bytes: u64,
        files: u64,
    },
    Directory {
        path: PathBuf,
        mode: u32,
    },
    Link {
        path: PathBuf,
        target: String,
    },
    Text {
        path: PathBuf,
        content: String,
    },
    /// Attaches a tree of `Plan::trees`, by number.
    Tree {
        number: usize,
        path: PathBuf,
    },
    /// An overlay: a host directory is the lower layer, a directory of the root the upper one, which gets the writes.
    Overlay {
        lower: usize,
        path: PathBuf,
    },
    /// Attaches a tree of `Plan::trees` where no process inside reaches it: the next mount there covers it.
    Layers {
        number: usize,
        path: PathBuf,
    },
    /// The tree of layers that the root has already, before something covers it.
    LayersOfRoot(PathBuf),
    /// Attaches again what the root has there, and the scratch covers.
    TreeOfRoot(PathBuf),
    /// A tmpfs of this size upon a root that is read-only. Directories, links and texts that follow are made in it, and
    /// are visible only where one of its directories is mounted at the same place of the root.
    Scratch {
        bytes: u64,
        files: u64,
        path: PathBuf,
    },
    /// Keeps this directory writable when the root becomes read-only, or mounts that of the scratch.
    Writable(PathBuf),
    /// Mounts this directory of the scratch, read-only.
    Sealed(PathBuf),
    SealRoot,
    Pts,
    /// `/proc` of its own pid namespace, read-only.
    Proc(ProcEntries),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcEntries {
    Nothing,
    /// These names; everything else is masked.
    Only(Vec<String>),
    /// For a template: the kernel allows a sandbox its own `/proc` only if a whole one is visible
    /// (`mount_too_revealing`).
    All,
}

/// Names in `/proc` that ordinary programs read and that reveal nothing of other processes. Everything else is masked,
/// so that a file that a later kernel adds is hidden until it is added here.
const PROC_VISIBLE: [&str; 12] = [
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "mounts",
    "net",
    "self",
    "stat",
    "sys",
    "thread-self",
    "uptime",
    "version",
];

/// An empty read-only directory of the root, used to hide others.
pub(crate) const EMPTY: &str = "/run";
/// The upper directory of an overlay, with what the program writes (seen from inside as a read-only directory).
pub(crate) const UPPER: &str = "/.overlay/upper";
pub(crate) const OVERLAY_WORK: &str = "/.overlay/work";
pub(crate) const OVERLAY_LOWER: &str = "/.overlay/lower";

const TOO_BROAD: &[&str] = &[
    "/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/srv",
    "/sys", "/tmp", "/var",
];

/// True if showing this directory would show files of users.
pub(super) fn too_broad(path: &Path) -> bool {
    let is_home = path.parent() == Some(Path::new("/home"));
    !path.is_absolute() || is_home || TOO_BROAD.iter().any(|broad| path == Path::new(broad))
}

#[derive(Default)]
pub(super) struct Steps {
    pub(super) trees: Vec<Tree>,
    pub(super) root: Vec<Step>,
    pub(super) upon: Vec<Step>,
}

pub(super) fn build(spec: &JailSpec, host: &Host, identity: Identity) -> Steps {
    if spec.program == Program::Forked {
        return Steps {
            upon: upon(spec),
            ..Steps::default()
        };
    }
    let mut root = Root::default();
    root.steps.push(Step::Root {
        bytes: spec.limits.private_disk_bytes(),
        files: files_max(spec.limits.private_disk_bytes()),
    });
    if matches!(spec.program, Program::Worker { .. }) {
        root.directory(Path::new("/proc"), 0o555);
        root.steps.push(Step::SealRoot);
        root.steps.push(Step::Proc(ProcEntries::Nothing));
        return root.into_steps();
    }
    root.etc(host);
    root.system(spec, host);
    root.devices(host);
    if matches!(spec.program, Program::Template { .. }) {
        // Nothing in it can be written, since its sandboxes have it, too.
        root.mount_points(spec);
        root.packages(spec);
        root.steps.push(Step::SealRoot);
        root.proc(ProcEntries::All);
        return Steps {
            upon: upon(spec),
            ..root.into_steps()
        };
    }
    root.steps.push(Step::Pts);
    root.own_directories(spec);
    root.var();
    root.workspace(spec, identity);
    root.packages(spec);
    root.steps.push(Step::SealRoot);
    root.proc(visible_proc_entries());
    root.into_steps()
}

/// Returns the steps for what a template and each of its sandboxes have for themselves: a tmpfs with their writable
/// directories, terminals, and, except in the template, `/proc`, and a place for a layer that covers all layers.
fn upon(spec: &JailSpec) -> Vec<Step> {
    let mut scratch = Root::default();
    let bytes = spec.limits.private_disk_bytes();
    scratch.steps.push(Step::Scratch {
        bytes,
        files: files_max(bytes),
        path: spec.layout.workspace.clone(),
    });
    scratch.own_directories(spec);
    scratch.seal(&spec.layout.code);
    let mut own = vec![Step::Pts];
    if spec.program == Program::Forked {
        if spec.layers.is_some() {
            let path = PathBuf::from(PACKAGES);
            scratch.steps.push(Step::LayersOfRoot(path.clone()));
            scratch.layer_mount_point(&path);
            scratch.seal(&path);
        }
        own.push(Step::Proc(visible_proc_entries()));
    }
    let path = spec.layout.workspace.clone();
    scratch.directory(&path, 0o755);
    // The last directory of the scratch, since it covers the scratch itself.
    scratch.steps.push(Step::Writable(path));
    scratch.uncover_interpreter(spec);
    scratch.steps.extend(own);
    scratch.steps
}

fn visible_proc_entries() -> ProcEntries {
    ProcEntries::Only(PROC_VISIBLE.map(str::to_owned).into())
}

#[derive(Default)]
struct Root {
    trees: Vec<Tree>,
    /// The number of the tree of package layers, where `/proc` will cover it.
    layers: Option<usize>,
    steps: Vec<Step>,
    made: BTreeSet<PathBuf>,
}

impl Root {
    fn into_steps(self) -> Steps {
        Steps {
            trees: self.trees,
            root: self.steps,
            upon: Vec::new(),
        }
    }

    fn seal(&mut self, path: &Path) {
        self.steps.push(Step::Sealed(path.to_owned()));
    }

    /// Attaches the trees of an interpreter again that lie below a directory that is covered.
    fn uncover_interpreter(&mut self, spec: &JailSpec) {
        let layout = &spec.layout;
        let private = private_directories(spec).map(|(path, _)| path);
        let covered = [layout.workspace.as_path(), &layout.code]
            .into_iter()
            .chain(private);
        let covered: Vec<&Path> = covered.collect();
        let is_covered = |path: &Path| covered.iter().any(|covered| path.starts_with(covered));
        let mut trees: Vec<&PathBuf> = spec.trees.iter().filter(|tree| is_covered(tree)).collect();
        trees.sort(); // an outer tree before those inside it, which come with it
        trees.dedup_by(|inner, outer| inner.starts_with(&**outer));
        for path in &trees {
            self.directory(path, 0o755);
            self.steps.push(Step::TreeOfRoot(path.to_path_buf()));
        }
        let links = spec.links.iter().filter(|(path, _)| is_covered(path));
        for (path, target) in links.filter(|(path, _)| !trees.iter().any(|tree| path.starts_with(tree))) {
            self.link(path, target);
        }
    }

    /// Makes the directory and all above it that are not there yet.
    fn directory(&mut self, path: &Path, mode: u32) {
        if path == Path::new("/") || self.made.contains(path) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.directory(parent, 0o755);
        }
        self.made.insert(path.to_owned());
        let path = path.to_owned();
        self.steps.push(Step::Directory { path, mode });
    }

    fn link(&mut self, path: &Path, target: &str) {
        if self.made.insert(path.to_owned()) {
            if let Some(parent) = path.parent() {
                self.directory(parent, 0o755);
            }
            let (path, target) = (path.to_owned(), target.to_owned());
            self.steps.push(Step::Link { path, target });
        }
    }

    fn text(&mut self, path: &str, content: &str) {
        self.directory(Path::new(path).parent().unwrap_or(Path::new("/")), 0o755);
        let (path, content) = (path.into(), content.to_owned());
        self.steps.push(Step::Text { path, content });
    }

    fn read_only_tree(&mut self, path: &Path, node: Node) {
        self.mount_point(path, node);
        self.attach(Tree::read_only(path.to_owned()), path);
    }

    /// Makes the mount point of a tree, unless it lies inside a tree, where it is there already.
    fn mount_point(&mut self, path: &Path, node: Node) {
        if self.trees.iter().any(|tree| path.starts_with(&tree.source)) {
            return;
        }
        match node {
            Node::Directory => self.directory(path, 0o755),
            Node::File => self.text(&path.display().to_string(), ""),
        }
    }

    fn attach(&mut self, tree: Tree, path: &Path) {
        self.trees.push(tree);
        let (number, path) = (self.trees.len() - 1, path.to_owned());
        self.steps.push(Step::Tree { number, path });
    }

    /// Adds `/etc`: a few generated files and a few public things of the host.
    fn etc(&mut self, host: &Host) {
        self.directory(Path::new(EMPTY), 0o755);
        self.text("/etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
        self.text("/etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n");
        self.text("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n");
        self.text("/etc/hostname", "sandbox\n");
        // Git refuses to commit without an identity.
        self.text(
            "/etc/gitconfig",
            "[user]\n\tname = sandbox\n\temail = sandbox@localhost\n",
        );
        self.text(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        );
        // In every sandbox, since a claim may add egress.
        let resolver = format!("nameserver {GATEWAY}\noptions timeout:5 attempts:2\n");
        self.text("/etc/resolv.conf", &resolver);
        self.text(
            "/etc/protocols",
            "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6 41 IPv6\n",
        );
        self.text("/etc/services", "ftp 21/tcp\nssh 22/tcp\nsmtp 25/tcp\ndomain 53/tcp\ndomain 53/udp\nhttp 80/tcp\npop3 110/tcp\nimap2 143/tcp\nhttps 443/tcp\nhttps 443/udp\n");
        self.link(Path::new("/etc/mtab"), "/proc/self/mounts");
        self.link(Path::new("/etc/os-release"), "../usr/lib/os-release");
        for path in &host.etc {
            match path {
                SystemPath::Tree { path, node } => self.read_only_tree(path, *node),
                // a link out of /usr would dangle
                SystemPath::Link(path, target) if target.contains("usr/share") => self.link(path, target),
                SystemPath::Link(..) => {}
            }
        }
    }

    fn system(&mut self, spec: &JailSpec, host: &Host) {
        for path in &host.system {
            match path {
                SystemPath::Tree { path, node } => self.read_only_tree(path, *node),
                SystemPath::Link(path, target) => self.link(path, target),
            }
        }
        let mut trees = spec.trees.clone();
        trees.sort(); // an outer tree before the one inside it
        trees.dedup();
        for path in &trees {
            self.read_only_tree(path, Node::Directory);
        }
        for (path, target) in &spec.links {
            if !self.trees.iter().any(|tree| path.starts_with(&tree.source)) {
                self.link(path, target);
            }
        }
    }

    fn devices(&mut self, host: &Host) {
        for name in &host.devices {
            let path = Path::new("/dev").join(name);
            self.mount_point(&path, Node::File);
            // No resident set shows shared mappings of /dev/zero; /dev/full reads as zeros, too, and cannot be mapped.
            let counted = !matches!(host.cgroups, crate::cgroup::Parent::None { .. });
            let source = match *name {
                "zero" if !counted => "/dev/full".into(),
                _ => path.clone(),
            };
            // This makes the node read-only, with its times, and not the device.
            let tree = Tree {
                devices: true,
                ..Tree::read_only(source)
            };
            self.attach(tree, &path);
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            self.link(&Path::new("/dev").join(name), target);
        }
        self.directory(Path::new("/dev/pts"), 0o755);
    }

    fn var(&mut self) {
        self.directory(Path::new("/var"), 0o755);
        self.link(Path::new("/var/tmp"), "/tmp");
    }

    /// Makes the mount points of what comes upon this root.
    fn mount_points(&mut self, spec: &JailSpec) {
        for (path, _) in private_directories(spec) {
            self.directory(path, 0o755);
        }
        self.directory(&spec.layout.code, 0o755);
        self.directory(&spec.layout.workspace, 0o755);
        self.var();
    }

    fn own_directories(&mut self, spec: &JailSpec) {
        self.directory(&spec.layout.code, 0o755);
        // Node.js looks for packages beside the code; they are in the workspace.
        let packages = spec.layout.workspace.join("node_modules");
        let beside_code = spec.layout.code.join("node_modules");
        self.link(&beside_code, &packages.display().to_string());
        for (path, mode) in private_directories(spec) {
            self.directory(path, mode);
            self.steps.push(Step::Writable(path.to_owned()));
        }
    }

    fn workspace(&mut self, spec: &JailSpec, identity: Identity) {
        let path = &spec.layout.workspace;
        self.directory(path, 0o755);
        let Some(HostWorkspace { directory, mode, .. }) = &spec.host_workspace else {
            self.steps.push(Step::Writable(path.clone()));
            return;
        };
        let tree = Tree {
            writable: *mode == WorkspaceMode::Rw,
            map_owner: matches!(identity, Identity::Own { .. }),
            ..Tree::read_only(directory.path.clone())
        };
        if *mode == WorkspaceMode::Overlay {
            for part in [UPPER, OVERLAY_WORK, OVERLAY_LOWER] {
                self.directory(Path::new(part), 0o755);
            }
            self.trees.push(tree);
            let (lower, path) = (self.trees.len() - 1, path.clone());
            self.steps.push(Step::Overlay { lower, path });
        } else {
            self.attach(tree, path);
        }
    }

    /// Adds the mount point of a layer, whose directories are there before any layer is, so that an interpreter that
    /// looks for modules sees them change. That of Node.js is not: npm takes the parent of a `node_modules` for its
    /// project. A template has all layers, from which the sandboxes that are made from it take theirs.
    fn packages(&mut self, spec: &JailSpec) {
        let Some(layers) = &spec.layers else { return };
        let path = PathBuf::from(PACKAGES);
        self.layer_mount_point(&path);
        let modules = path.join("node_modules").display().to_string();
        self.link(Path::new("/node_modules"), &modules);
        let tree = Tree::read_only(layers.clone());
        if matches!(spec.program, Program::Template { .. }) {
            self.attach(tree, &path);
        } else {
            self.trees.push(tree);
            self.layers = Some(self.trees.len() - 1);
        }
    }

    fn layer_mount_point(&mut self, path: &Path) {
        for part in ["python", "bin"] {
            self.directory(&path.join(part), 0o755);
        }
    }

    fn proc(&mut self, shown: ProcEntries) {
        // made before the root is sealed
        let (path, mode) = (PathBuf::from("/proc"), 0o555);
        let directory = Step::Directory { path, mode };
        self.steps.insert(self.steps.len() - 1, directory);
        if let Some(number) = self.layers {
            let path = PathBuf::from("/proc");
            self.steps.push(Step::Layers { number, path });
        }
        self.steps.push(Step::Proc(shown));
    }
}

/// Directories that the program may write, with their modes; except the workspace, which may belong to the host.
fn private_directories(spec: &JailSpec) -> [(&Path, u32); 4] {
    [
        (spec.layout.tmp.as_path(), 0o1777),
        (&spec.layout.home, 0o700),
        (&spec.layout.output, 0o755),
        (Path::new("/dev/shm"), 0o1777),
    ]
}
