//! The filters as compiled: their golden table, their rules on arguments, the words that they read, and, in a live
//! process, a comparison with the kernel.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test starts programs, reads its environment, and fails by panicking"
)]

mod arguments;
mod describe;
#[cfg(target_arch = "x86_64")]
mod golden;
mod live;
mod machine;
mod shape;
mod whole;

use ringfence_jail::seccomp::Profile;

const FULL: Profile = Profile::Full { memory_cgroup: true };
const FULL_UNCOUNTED: Profile = Profile::Full { memory_cgroup: false };
const LANDLOCK: Profile = Profile::Landlock {
    memory_cgroup: true,
    servers_user: true,
};
const LANDLOCK_UNCOUNTED: Profile = Profile::Landlock {
    memory_cgroup: false,
    servers_user: false,
};
const ALL: [Profile; 4] = [FULL, FULL_UNCOUNTED, LANDLOCK, LANDLOCK_UNCOUNTED];
