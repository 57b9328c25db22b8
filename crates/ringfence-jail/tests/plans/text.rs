//! A plan as text: one line per step, so that a changed mount is a one-line difference in a golden file.

use ringfence_jail::{
    Claim, HostWorkspace, Plan,
    plan::{Identity, ProcEntries, Step, Tree},
};
use std::fmt;

pub struct PlanText<'a>(pub &'a Plan);

impl fmt::Display for PlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(plan) = self;
        writeln!(f, "tier {}", plan.tier)?;
        match plan.identity {
            Identity::Own { base } => writeln!(f, "identity inside 1000, outside {base} + supervisor")?,
            Identity::Server { uid, gid } => writeln!(f, "identity inside 1000, outside {uid}:{gid}")?,
        }
        writeln!(f, "time namespace {}", plan.time_namespace)?;
        for step in &plan.root {
            writeln!(f, "root {}", RootStep(step, &plan.trees))?;
        }
        for step in &plan.upon {
            writeln!(f, "upon root {}", RootStep(step, &plan.trees))?;
        }
        for (path, right) in &plan.landlock {
            writeln!(f, "landlock {right:?} {}", path.display())?;
        }
        let unix = match plan.shared {
            Some(_) => ", no unix sockets, no set-id bits",
            None => "",
        };
        writeln!(f, "seccomp {:?}{unix}", plan.seccomp)?;
        for (limit, value) in &plan.rlimits {
            writeln!(f, "rlimit {limit:?} {value}")?;
        }
        writeln!(f, "cgroups {:?}", plan.cgroups)?;
        writeln!(f, "limits {:?}", plan.limits)?;
        writeln!(f, "changes {}", plan.changes.display())?;
        if let Some(quota) = plan.shared.as_ref().and_then(HostWorkspace::quota) {
            writeln!(f, "quota {quota:?}")?;
        }
        writeln!(f, "program {:?}", plan.program)
    }
}

pub struct ClaimText<'a>(pub &'a Claim);

impl fmt::Display for ClaimText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(claim) = self;
        for (name, part) in &claim.code {
            writeln!(f, "code {name} {} bytes", part.length)?;
        }
        for (path, part) in &claim.files {
            writeln!(f, "file {path} {} bytes", part.length)?;
        }
        for (limit, value) in &claim.rlimits {
            writeln!(f, "rlimit {limit:?} {value}")?;
        }
        writeln!(f, "limits {:?}", claim.limits)?;
        writeln!(f, "processors {:?}", claim.processors)?;
        if let Some(workspace) = &claim.workspace {
            let (path, mode) = (workspace.directory.path.display(), workspace.mode);
            writeln!(f, "workspace {path} {mode:?}, quota {:?}", workspace.quota)?;
        }
        if let Some(layer) = &claim.layer {
            writeln!(f, "layer {}", layer.as_str())?;
        }
        if let Some(egress) = &claim.egress {
            writeln!(f, "egress at {:?}, and to {:?}", egress.ports, egress.networks)?;
        }
        writeln!(f, "grace {} ms", claim.grace_ms)?;
        writeln!(f, "run {:?}", claim.run)
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
            Step::LayersOfRoot(path) => write!(f, "layers {} of the root, covered", path.display()),
            Step::TreeOfRoot(path) => write!(f, "tree {} of the root", path.display()),
            Step::Scratch { bytes, files, path } => {
                let path = path.display();
                write!(f, "tmpfs {path} {bytes} bytes, {files} files, nosuid nodev")
            }
            Step::Sealed(path) => write!(f, "sealed {}", path.display()),
            Step::Writable(path) => write!(f, "writable {}", path.display()),
            Step::SealRoot => f.write_str("seal"),
            Step::Pts => f.write_str("devpts /dev/pts"),
            Step::Proc(shown) => {
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
