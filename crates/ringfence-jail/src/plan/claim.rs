//! A request's claim on a sandbox: its limits in the kernel's units, and where its bytes go.

use super::Rlimit;
use crate::{EgressSpec, Host, HostWorkspace, LayerName, Part, spec::Run};
use ringfence_types::{Limits, WorkspacePath};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Names and bytes of files that the program can read and not write: its code, and the files beside it.
    pub code: Vec<(String, Part)>,
    pub files: Vec<(WorkspacePath, Part)>,
    pub run: Run,
    /// A directory of the host that becomes the workspace (tier `full`), read-only or writable.
    pub workspace: Option<HostWorkspace>,
    pub layer: Option<LayerName>,
    pub egress: Option<EgressSpec>,
    /// Limits for the cgroup, the sampler, the disk and the clock.
    pub limits: Limits,
    /// Threads that the server's user may add elsewhere while it runs; they count where there is no user namespace.
    pub others: u64,
    pub rlimits: Vec<(Rlimit, u64)>,
    /// The number of processors to run on, where no cgroup limits processor time.
    pub processors: Option<usize>,
    pub grace_ms: u64,
}

impl Claim {
    /// Wipes the environment, which may be secret, once pid 1 or the program has it; only the limits are needed then.
    pub(crate) fn wipe_environment(&mut self) {
        if let Run::Exec { environment, .. } = &mut self.run {
            environment.zeroize();
        }
    }
}

/// Makes the claim of a program that gets nothing but limits. Pure: the same limits and host give the same claim.
pub fn claim(run: Run, limits: Limits, host: &Host) -> Claim {
    Claim {
        code: Vec::new(),
        files: Vec::new(),
        run,
        workspace: None,
        layer: None,
        egress: None,
        others: 0,
        rlimits: rlimits(&limits),
        processors: processors(&limits, host),
        limits,
        grace_ms: 0,
    }
}

fn rlimits(limits: &Limits) -> Vec<(Rlimit, u64)> {
    let cpu_seconds = limits.timeout_ms.div_ceil(1000) * u64::from(limits.cpu_millicores.div_ceil(1000)) + 1;
    vec![
        (Rlimit::Cpu, cpu_seconds),
        (Rlimit::FileSize, limits.disk_bytes),
        // Not before: the kernel counts in-flight descriptors by user, against the limit of the sender.
        (Rlimit::OpenFiles, 1024),
        // pid 1 counts
        (Rlimit::Processes, u64::from(limits.processes) + 1),
    ]
}

/// Without a cgroup that limits processor time, whole processors are the only share that the kernel enforces.
fn processors(limits: &Limits, host: &Host) -> Option<usize> {
    let shared_out = host.cgroups.shares_processors();
    let whole = usize::try_from(limits.cpu_millicores.div_ceil(1000)).unwrap_or(1);
    let whole = whole.max(1);
    (!shared_out && whole < host.processors).then_some(whole)
}
