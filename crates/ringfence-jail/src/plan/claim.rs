//! A request's claim on a sandbox: its limits in the kernel's units, and which bytes go where.

use super::Rlimit;
use crate::{ClaimSpec, EgressSpec, Host, HostWorkspace, LayerName, Part, spec::Run};
use ringfence_types::Limits;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use zeroize::Zeroize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The code file's name, and its bytes in the payload.
    pub code: Vec<(String, Part)>,
    pub files: Vec<(PathBuf, Part)>,
    pub run: Run,
    pub workspace: Option<HostWorkspace>,
    pub layer: Option<LayerName>,
    pub egress: Option<EgressSpec>,
    /// Limits for the cgroup, the sampler, the disk and the clock.
    pub limits: Limits,
    /// Processes and threads of the server's user that may be added elsewhere while it runs. They count where a sandbox
    /// has no user namespace.
    pub others: u64,
    pub rlimits: Vec<(Rlimit, u64)>,
    /// Run on so many processors, where no cgroup shares out time.
    pub processors: Option<usize>,
    pub grace_ms: u64,
}

impl Claim {
    /// Wipes what may be secret, once it is pid 1's or the program's; what is still needed then are the limits.
    pub(crate) fn forget_environment(&mut self) {
        if let Run::Exec { environment, .. } = &mut self.run {
            environment.zeroize();
        }
    }
}

/// Makes the claim. Pure: the same spec and host give the same claim.
pub fn claim(spec: ClaimSpec, host: &Host) -> Claim {
    let files = spec.files.into_iter();
    Claim {
        code: spec.code,
        files: files
            .map(|(path, part)| (PathBuf::from(path.as_str()), part))
            .collect(),
        run: spec.run,
        workspace: spec.workspace,
        layer: spec.layer,
        egress: spec.egress,
        others: 0,
        rlimits: rlimits(&spec.limits),
        processors: processors(&spec.limits, host),
        limits: spec.limits,
        grace_ms: spec.grace_ms,
    }
}

fn rlimits(limits: &Limits) -> Vec<(Rlimit, u64)> {
    let cpu_seconds = limits.timeout_ms.div_ceil(1000) * u64::from(limits.cpu_millicores.div_ceil(1000)) + 1;
    vec![
        (Rlimit::Cpu, cpu_seconds),
        (Rlimit::FileSize, limits.disk_bytes),
        // Not before: the kernel counts descriptors that are under way by user, against the limit of the sender.
        (Rlimit::OpenFiles, 1024),
        // pid 1 counts
        (Rlimit::Processes, u64::from(limits.processes) + 1),
    ]
}

/// Without a cgroup that shares out processor time, whole processors are the only share the kernel enforces.
fn processors(limits: &Limits, host: &Host) -> Option<usize> {
    let shared_out = host.cgroups.shares_processors();
    let whole = usize::try_from(limits.cpu_millicores.div_ceil(1000)).unwrap_or(1);
    let whole = whole.max(1);
    (!shared_out && whole < host.processors).then_some(whole)
}
