//! The resource usage of a sandbox.

use super::Sandbox;
use crate::{
    cgroup::{Cgroup, Counted},
    egress,
    quota::Watch,
    sample, tree,
    wire::{Handle, Usage},
};
use ringfence_sys::resource;
use std::os::fd::AsFd;

impl Sandbox<'_> {
    /// Returns the usage of the tree so far, by the cgroup, or by what can be read of its processes.
    pub(super) fn used(&mut self) -> Usage {
        let counted = self.cgroup.as_ref().map(Cgroup::counted).unwrap_or_default();
        if counted.cpu.is_none()
            && let Some(proc) = self.descriptors.get(&Handle::Proc)
        {
            let (user, system) = sample::cpu(proc, &tree::processes(proc, self.plan.tier));
            // The time of processes that ended without a parent that waited for them is lost; the maximum is kept.
            self.usage.user = self.usage.user.max(user);
            self.usage.system = self.usage.system.max(system);
        }
        self.count_unrouted();
        let own_disk = self.own_disk.as_mut().map(Watch::account);
        self.usage_of(counted, own_disk)
    }

    /// Updates the count of unrouted packets, which the kernel keeps in the network namespace of pid 1 while it lives.
    pub(super) fn count_unrouted(&mut self) {
        if let Some(proc) = self
            .descriptors
            .get(&Handle::Proc)
            .filter(|_| self.plan.is_bound_late())
        {
            self.unrouted = self.unrouted.max(egress::unrouted(proc, &self.kept));
        }
    }

    /// Combines what was counted and what was sampled; of memory, the highest. `own_disk`: the bytes of a private disk
    /// that is a directory of the host.
    pub(super) fn usage_of(&self, counted: Counted, own_disk: Option<u64>) -> Usage {
        let (cpu_user, cpu_system) = counted.cpu.unwrap_or((self.usage.user, self.usage.system));
        let in_memory = || {
            let disk = self.descriptors.get(&Handle::Output);
            let disk = disk.filter(|_| self.plan.layout.host_directory.is_none());
            Some(resource::space_used(disk?.as_fd()).ok()?.0)
        };
        let disk = own_disk.or_else(in_memory).unwrap_or(0);
        Usage {
            cpu_user,
            cpu_system,
            memory_peak_bytes: counted
                .memory_peak_bytes
                .max(self.peak.memory_bytes)
                .max(self.usage.max_rss_bytes),
            processes_peak: counted
                .processes_peak
                .or((self.peak.processes > 0).then_some(self.peak.processes)),
            disk_bytes: disk + self.quota.as_ref().map_or(0, Watch::bytes),
            workspace: self.quota.as_ref().map(Watch::count),
            unrouted: self.unrouted,
        }
    }
}
