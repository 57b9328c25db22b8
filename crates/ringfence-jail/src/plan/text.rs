//! A plan as text: one line per step, so that a changed mount is a one-line difference in a golden file.

use super::{Claim, Identity, Plan, Step, Tree, root::ProcEntries};
use std::fmt;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tier {}", self.tier)?;
        match self.identity {
            Identity::Own { base } => writeln!(f, "identity inside 1000, outside {base} + supervisor")?,
            Identity::Server { uid, gid } => writeln!(f, "identity inside 1000, outside {uid}:{gid}")?,
        }
        writeln!(f, "time namespace {}", self.time_namespace)?;
        for step in &self.root {
            writeln!(f, "root {}", RootStep(step, &self.trees))?;
        }
        for step in &self.upon {
            writeln!(f, "upon root {}", RootStep(step, &self.trees))?;
        }
        for (path, right) in &self.landlock {
            writeln!(f, "landlock {right:?} {}", path.display())?;
        }
        let unix = match self.shared {
            Some(_) => ", no unix sockets, no set-id bits",
            None => "",
        };
        writeln!(f, "seccomp {:?}{unix}", self.seccomp)?;
        for (limit, value) in &self.rlimits {
            writeln!(f, "rlimit {limit:?} {value}")?;
        }
        writeln!(f, "cgroups {:?}", self.cgroups)?;
        writeln!(f, "limits {:?}", self.limits)?;
        writeln!(f, "changes {}", self.changes.display())?;
        if let Some(quota) = self.quota {
            writeln!(f, "quota {quota:?}")?;
        }
        writeln!(f, "program {:?}", self.program)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, part) in &self.code {
            writeln!(f, "code {name} {} bytes", part.length)?;
        }
        for (path, part) in &self.files {
            writeln!(f, "file {} {} bytes", path.display(), part.length)?;
        }
        for (limit, value) in &self.rlimits {
            writeln!(f, "rlimit {limit:?} {value}")?;
        }
        writeln!(f, "limits {:?}", self.limits)?;
        writeln!(f, "processors {:?}", self.processors)?;
        if let Some(workspace) = &self.workspace {
            let (path, mode) = (workspace.directory.path.display(), workspace.mode);
            writeln!(f, "workspace {path} {mode:?}, quota {:?}", workspace.quota)?;
        }
        if let Some(layer) = &self.layer {
            writeln!(f, "layer {}", layer.as_str())?;
        }
        if let Some(egress) = &self.egress {
            writeln!(f, "egress at {:?}, and to {:?}", egress.ports, egress.networks)?;
        }
        writeln!(f, "grace {} ms", self.grace_ms)?;
        writeln!(f, "run {:?}", self.run)
    }
}

struct RootStep<'a>(&'a Step, &'a [Tree]);

impl fmt::Display for RootStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = |number: &usize| Access(self.1.get(*number));
        match self.0 {
            Step::Root { bytes, files } => write!(f, "tmpfs / {bytes} bytes, {files} files, nosuid nodev"),
            Step::Directory { path, mode } => write!(f, "directory {} {mode:o}", path.display()),
            Step::Link { path, target } => write!(f, "link {} -> {target}", path.display()),
            Step::Text { path, content } => write!(f, "text {} {content:?}", path.display()),
            Step::Tree { number, path } => write!(f, "tree {} {}", path.display(), access(number)),
            Step::Overlay { lower, path } => write!(f, "overlay {} over {}", path.display(), access(lower)),
            Step::Layers { number, path } => {
                write!(f, "layers {} {} covered", path.display(), access(number))
            }
            Step::LayersOfRoot { path } => write!(f, "layers {} of the root, covered", path.display()),
            Step::TreeOfRoot { path } => write!(f, "tree {} of the root", path.display()),
            Step::Scratch { bytes, files, path } => {
                let path = path.display();
                write!(f, "tmpfs {path} {bytes} bytes, {files} files, nosuid nodev")
            }
            Step::Sealed { path } => write!(f, "sealed {}", path.display()),
            Step::Writable { path } => write!(f, "writable {}", path.display()),
            Step::SealRoot => f.write_str("seal"),
            Step::Pts => f.write_str("devpts /dev/pts"),
            Step::Proc { shown } => {
                f.write_str("proc /proc read-only nosuid nodev noexec, ")?;
                match shown {
                    ProcEntries::Nothing => f.write_str("processes only"),
                    ProcEntries::Only(names) => write!(f, "processes and [{}]", names.join(" ")),
                    ProcEntries::All => f.write_str("whole"),
                }
            }
        }
    }
}

struct Access<'a>(Option<&'a Tree>);

impl fmt::Display for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tree) = self.0 else {
            return f.write_str("<no such tree>");
        };
        let access = if tree.writable { "read-write" } else { "read-only" };
        let devices = if tree.devices { "" } else { " nodev" };
        let mapped = if tree.map_owner { " owner mapped" } else { "" };
        let source = tree.source.display();
        write!(f, "from {source} {access} nosuid{devices}{mapped}")
    }
}
