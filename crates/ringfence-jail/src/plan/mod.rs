//! The plan of one sandbox: every mount, identity, limit and rule, decided before anything is done. `build` and `claim`
//! are pure, so a plan can be printed, compared with a golden file, and reasoned about without a kernel.

mod claim;
mod layers;
pub(crate) mod root;

use crate::{
    Host, HostWorkspace, JailSpec, Layout, Pinned, Program, Refused, Written, cgroup,
    host::{SystemPath, UID_BASE},
    seccomp,
};
use ringfence_types::{Limits, Tier, WorkspaceMode};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub use claim::{Claim, claim};
pub use root::{ProcEntries, Step};

/// Everything that `enter` and `supervise` do, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub tier: Tier,
    pub layout: Layout,
    pub identity: Identity,
    /// Trees of the host, opened before the identity changes.
    pub trees: Vec<Tree>,
    pub root: Vec<Step>,
    /// Steps upon the root of a template, which stays as it is and of which each of its sandboxes has a copy.
    pub upon: Vec<Step>,
    pub time_namespace: bool,
    /// Steps that are left out, or done differently, because a filter refuses them.
    pub refused: Refused,
    pub landlock: Vec<(PathBuf, PathRight)>,
    pub seccomp: seccomp::Profile,
    /// A directory of the host that is shown. Sockets with names are refused then, because of those in it, and set-id
    /// bits, because of the programs that are left in it.
    pub shared: Option<HostWorkspace>,
    /// Resource limits (setrlimit(2)) that are the same for every claim.
    pub rlimits: Vec<(Rlimit, u64)>,
    pub cgroups: cgroup::Parent,
    pub limits: Limits,
    /// Directory behind the workspace whose files are the sandbox's output: the workspace itself, or an upper layer.
    pub changes: PathBuf,
    pub program: Program,
}

impl Plan {
    /// The plan of a sandbox whose walls another program raises: only tier, directories and program are known.
    pub fn made_elsewhere(tier: Tier, program: Program, limits: Limits) -> Self {
        let layout = Layout::own_root();
        Self {
            tier,
            changes: layout.workspace.clone(),
            layout,
            identity: Identity::Server { uid: 0, gid: 0 },
            trees: Vec::new(),
            root: Vec::new(),
            upon: Vec::new(),
            time_namespace: false,
            refused: Refused::default(),
            landlock: Vec::new(),
            seccomp: seccomp::Profile::Full { memory_cgroup: true },
            shared: None,
            rlimits: Vec::new(),
            cgroups: cgroup::Parent::None {
                reason: String::new(),
            },
            limits,
            program,
        }
    }

    /// Returns the directory of the host that is shown, if it is at this path.
    pub(crate) fn shared_at(&self, path: &Path) -> Option<&Pinned> {
        let shared = self.shared.as_ref().map(|shared| &shared.directory);
        shared.filter(|shared| shared.path == path)
    }

    /// Returns how it is shown; an overlay is written like any other.
    pub(crate) fn shared_mode(&self) -> Option<WorkspaceMode> {
        self.shared.as_ref().map(|shared| match shared.mode {
            WorkspaceMode::Ro => WorkspaceMode::Ro,
            WorkspaceMode::Rw | WorkspaceMode::Overlay => WorkspaceMode::Rw,
        })
    }

    /// True if a claim may add packages and ports, which a child of its supervisor attaches.
    pub(crate) fn is_bound_late(&self) -> bool {
        let takes_claims = matches!(
            self.program,
            Program::Claimed | Program::Ahead { .. } | Program::Forked
        );
        self.tier == Tier::Full && takes_claims
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// A uid and gid of its own: `base` + pid of the supervisor.
    Own {
        base: u32,
    },
    Server {
        uid: u32,
        gid: u32,
    },
}

pub const INSIDE_ID: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    pub source: PathBuf,
    pub writable: bool,
    /// True if its device nodes are usable (only for the nodes themselves).
    pub devices: bool,
    /// Maps the owner of its files to the sandbox's user (a workspace, if the server is root).
    pub map_owner: bool,
}

impl Tree {
    fn read_only(source: PathBuf) -> Self {
        Self {
            source,
            writable: false,
            devices: false,
            map_owner: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathRight {
    Read,
    Write,
    Keep,
    Device,
}

/// Resource limits of the program (setrlimit(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rlimit {
    Core,
    Cpu,
    FileSize,
    LockedMemory,
    MessageQueue,
    Nice,
    OpenFiles,
    PendingSignals,
    Processes,
    RealtimePriority,
    Stack,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("this host has no {layer}")]
    MissingLayer { layer: &'static str },
    #[error("{} holds more than an interpreter and is not shown to programs", .path.display())]
    TreeTooBroad { path: PathBuf },
}

/// Builds the plan. Pure: the same spec and host give the same plan.
pub fn build(spec: JailSpec, host: &Host) -> Result<Plan, PlanError> {
    if host.landlock == 0 {
        return Err(PlanError::MissingLayer { layer: "landlock" });
    }
    if let Some(path) = spec.trees.iter().find(|path| root::too_broad(path)) {
        return Err(PlanError::TreeTooBroad { path: path.clone() });
    }
    let identity = identity(host);
    let memory_cgroup = !matches!(host.cgroups, cgroup::Parent::None { .. });
    let full = spec.tier == Tier::Full;
    let root::Steps { trees, root, upon } = match full {
        true => root::build(&spec, host, identity),
        false => root::Steps::default(),
    };
    let shared = spec.host_workspace.as_ref();
    let changes = match shared.map(|shared| shared.mode) {
        Some(WorkspaceMode::Overlay) => PathBuf::from(root::UPPER),
        _ => spec.layout.workspace.clone(),
    };
    Ok(Plan {
        tier: spec.tier,
        identity,
        trees,
        root,
        upon,
        time_namespace: full && host.time_namespaces,
        refused: host.refused,
        landlock: landlock(&spec, host),
        seccomp: match spec.program {
            _ if !full => seccomp::Profile::Landlock {
                memory_cgroup,
                servers_user: matches!(identity, Identity::Server { .. }),
            },
            Program::Template { .. } => seccomp::Profile::Template { memory_cgroup },
            Program::Forked => seccomp::Profile::Init { memory_cgroup },
            _ => seccomp::Profile::Full { memory_cgroup },
        },
        shared: spec.host_workspace,
        rlimits: RLIMITS.to_vec(),
        cgroups: host.cgroups.clone(),
        limits: spec.limits,
        changes,
        program: spec.program,
        layout: spec.layout,
    })
}

fn identity(host: &Host) -> Identity {
    let (uid, gid) = host.user;
    match host.own_uids {
        true => Identity::Own { base: UID_BASE },
        false => Identity::Server { uid, gid },
    }
}

fn landlock(spec: &JailSpec, host: &Host) -> Vec<(PathBuf, PathRight)> {
    let shared = spec.host_workspace.as_ref();
    let read_only = shared.is_some_and(|shared| shared.mode == WorkspaceMode::Ro);
    let right = |path: &Path| match spec.written {
        _ if read_only && path == spec.layout.workspace => PathRight::Read,
        Written::MayRun => PathRight::Write,
        Written::NeverRuns => PathRight::Keep,
    };
    let writable = spec.layout.writable().map(|path| (path.to_owned(), right(path)));
    if spec.tier == Tier::Full {
        if matches!(spec.program, Program::Worker { .. }) {
            return vec![("/".into(), PathRight::Read)];
        }
        let fixed = [
            ("/", PathRight::Read),
            ("/dev", PathRight::Device),
            ("/dev/shm", right(Path::new("/dev/shm"))),
        ];
        let fixed = fixed.map(|(path, right)| (path.into(), right));
        let written = writable
            .into_iter()
            .filter(|(_, right)| *right != PathRight::Read);
        return fixed.into_iter().chain(written).collect();
    }
    let system = host.system.iter().chain(&host.etc).filter_map(|path| match path {
        SystemPath::Tree { path, .. } => Some((path.clone(), PathRight::Read)),
        SystemPath::Link(..) => None,
    });
    let device = |name| (PathBuf::from("/dev").join(name), PathRight::Device);
    let devices = host.devices.iter().map(device);
    let trees = spec.trees.iter().map(|path| (path.clone(), PathRight::Read));
    let proc = [
        ("/proc".into(), PathRight::Read),
        (spec.layout.code.clone(), PathRight::Read),
    ];
    let read = system.chain(devices).chain(trees).chain(proc);
    read.chain(writable).collect()
}

const RLIMITS: [(Rlimit, u64); 7] = [
    // 1, not 0: a core_pattern that is a pipe ignores 0 and honours 1 (core(5)); no file is that small
    (Rlimit::Core, 1),
    (Rlimit::LockedMemory, 8 << 20),
    (Rlimit::MessageQueue, 819_200),
    (Rlimit::Nice, 0),
    (Rlimit::PendingSignals, 1024),
    (Rlimit::RealtimePriority, 0),
    (Rlimit::Stack, 8 << 20),
];
