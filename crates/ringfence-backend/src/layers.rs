//! The isolation of a container, as a result reports it.

use crate::engine::{ContainerEngine, EngineFacts, Runner};
use ringfence_types::{Isolation, LayerState, Limits, Tier};
use std::collections::BTreeMap;

impl ContainerEngine {
    /// Returns the tier and the layers of a run in a container with these limits.
    pub fn isolation(&self, facts: &EngineFacts, runner: Runner, limits: &Limits) -> Isolation {
        let mut layers = BTreeMap::new();
        let mut layer = |name: &str, active: bool, detail: &str| {
            let detail = detail.to_owned();
            layers.insert(name.to_owned(), LayerState { active, detail });
        };
        let gvisor = runner == Runner::Gvisor;
        let users = match facts.remaps_users {
            true => "the engine's",
            false => "the engine maps no users: an unprivileged uid of the host",
        };
        layer("user_namespace", facts.remaps_users, users);
        layer(
            "mount_namespace",
            true,
            "the image, read-only; nothing of the host",
        );
        layer("pid_namespace", true, "own, pid 1 is ours");
        layer(
            "network_namespace",
            true,
            "own, loopback only; out of it what the rules allow",
        );
        layer("ipc_namespace", true, "own");
        layer("uts_namespace", true, "own");
        layer("cgroup_namespace", true, "own");
        layer("time_namespace", false, "not in this backend");
        layer("landlock", false, "not in this backend");
        let (filter, detail) = match (gvisor, facts.has_seccomp) {
            (true, _) => (true, "a kernel of its own answers system calls (gVisor)"),
            (false, true) => (true, "allowlist"),
            (false, false) => (false, "the engine has no seccomp"),
        };
        layer("seccomp", filter, detail);
        layer("capabilities", true, "none");
        layer("no_new_privileges", true, "set");
        let cgroups = facts.has_cgroups(runner, self.settings());
        let mib = limits.memory_bytes >> 20;
        let memory = match facts.counts_memory(runner, self.settings()) {
            true => format!("{mib} MiB by cgroup"),
            false => format!("{mib} MiB by sampling the tree, without files in /tmp and /dev/shm"),
        };
        layer("memory", true, &memory);
        let counts = cgroups && facts.limits_processes;
        let processes = match counts {
            true => format!("{} by cgroup", limits.processes),
            false => "the runtime leaves cgroups alone".to_owned(),
        };
        layer("processes", counts, &processes);
        let shares = cgroups && facts.limits_processors;
        let cpu = match shares {
            true => format!("{} cores by cgroup", f64::from(limits.cpu_millicores) / 1000.0),
            false => "all processors of the host".to_owned(),
        };
        layer("cpu", shares, &cpu);
        let disk = limits.disk_bytes >> 20;
        let disk = format!("{disk} MiB, sampled: files without a name are not seen");
        layer("disk", false, &disk);
        layer("wall_time", true, &format!("{} ms", limits.timeout_ms));
        layer(
            "resource_limits",
            true,
            "core, cpu, file size, open files, locked memory, stack",
        );
        Isolation::new(runner.tier(), layers)
    }
}

impl Runner {
    pub fn tier(self) -> Tier {
        match self {
            Self::Kernel => Tier::Container,
            Self::Gvisor => Tier::Gvisor,
        }
    }
}
