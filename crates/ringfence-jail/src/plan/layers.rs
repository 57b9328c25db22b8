//! The layers of a plan as a result reports them: which are active, and by what means.

use super::{Claim, Identity, Plan};
use crate::{Host, cgroup::Parent};
use ringfence_types::{Isolation, LayerState, Tier};
use std::collections::BTreeMap;

impl Plan {
    pub fn isolation(&self, claim: &Claim, host: &Host) -> Isolation {
        let full = self.tier == Tier::Full;
        let mut layers = BTreeMap::new();
        let mut layer = |name: &str, active: bool, detail: String| {
            layers.insert(name.to_owned(), LayerState { active, detail });
        };
        let only_full = |detail: &str| if full { detail } else { "not in this tier" }.to_owned();
        layer("user_namespace", full, only_full(&self.identity.describe()));
        let mounts = only_full("own root, runtime read-only, nothing else of the host");
        layer("mount_namespace", full, mounts);
        layer("pid_namespace", full, only_full("own, pid 1 is ours"));
        layer("network_namespace", full, only_full(Self::network(claim)));
        layer("ipc_namespace", full, only_full("own"));
        layer("uts_namespace", full, only_full("own"));
        layer("cgroup_namespace", full, only_full("own"));
        for (name, detail) in self.weakened() {
            layer(name, false, detail.to_owned());
        }
        let time = match self.time_namespace {
            true => "own, clocks start at zero".to_owned(),
            false => only_full("not in this kernel"),
        };
        layer("time_namespace", self.time_namespace, time);
        layer("landlock", true, format!("abi {}", host.landlock));
        let shared = self.shared.is_some() || claim.workspace.is_some();
        let network = match (full, shared) {
            (false, _) => ", no sockets",
            (true, true) => ", no unix sockets, no set-id bits",
            (true, false) => "",
        };
        layer("seccomp", true, format!("allowlist{network}"));
        layer("capabilities", true, "none, bounding set empty".to_owned());
        layer("no_new_privileges", true, "set".to_owned());
        let (mib, processes) = (claim.limits.memory_bytes >> 20, claim.limits.processes);
        let by = self.mechanism("sampling the tree");
        layer("memory", true, format!("{mib} MiB by {by}"));
        let by = self.mechanism(if full {
            "user namespace count"
        } else {
            "count of the user"
        });
        layer("processes", true, format!("{processes} by {by}"));
        layer("cpu", true, self.cpu(claim));
        layer("disk", true, self.disk(claim));
        layer("wall_time", true, format!("{} ms", claim.limits.timeout_ms));
        let limits = "core, cpu, file size, open files, locked memory, stack";
        layer("resource_limits", true, limits.to_owned());
        Isolation::new(self.tier, layers)
    }

    fn weakened(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let (full, refused) = (self.tier == Tier::Full, self.refused);
        let host_name = ("host_name", "the host's: sethostname is refused here");
        let root = ("pivot_root", "the root is a chroot: pivot_root is refused here");
        let layers = [(refused.host_name, host_name), (refused.pivot_root, root)].into_iter();
        layers.filter_map(move |(is_refused, layer)| (full && is_refused).then_some(layer))
    }

    fn network(claim: &Claim) -> &'static str {
        match claim.egress {
            Some(_) => "own, egress as the rules allow",
            None => "own, loopback only",
        }
    }

    fn mechanism(&self, without: &str) -> String {
        match self.cgroups {
            Parent::None { .. } => without.to_owned(),
            _ => self.cgroups.describe().to_owned(),
        }
    }

    fn cpu(&self, claim: &Claim) -> String {
        let cores = f64::from(claim.limits.cpu_millicores) / 1000.0;
        match claim.processors {
            Some(whole) => format!("{whole} whole processor(s) by affinity"),
            None if self.cgroups.shares_processors() => {
                format!("{cores} cores by {}", self.cgroups.describe())
            }
            None => "all processors of the host".to_owned(),
        }
    }

    fn disk(&self, claim: &Claim) -> String {
        let limits = &claim.limits;
        match self.tier {
            Tier::Full | Tier::Gvisor | Tier::Container => {
                let mib = limits.private_disk_bytes() >> 20;
                format!("{mib} MiB in memory, by the file system")
            }
            Tier::Landlock => format!("{} MiB, by sampling", limits.disk_bytes >> 20),
        }
    }
}

impl Identity {
    fn describe(self) -> String {
        match self {
            Self::Own { base } => format!("own uid of the host, from {base}"),
            Self::Server { uid, .. } => format!("uid {uid} of the server"),
        }
    }
}
