//! The local Linux jail: a pure `plan`, an ordered `enter`, the child's wire protocol and the host probe. No async.
//!
//! ```text
//! server ──► helper ──► supervisor (one per run) ──► pid 1 (ours) ──► the program
//!            helper.rs  supervise.rs                 init.rs, enter/
//! ```
#![forbid(unsafe_code)]

mod birth;
pub mod cgroup;
pub mod client;
pub mod doctor;
mod enter;
mod forked;
pub mod harvest;
pub mod helper;
pub mod host;
mod init;
mod layout;
pub mod plan;
mod sample;
pub mod seccomp;
mod spec;
mod supervise;
mod sweep;
mod tree;
pub mod wire;

pub use host::Host;
pub use layout::Layout;
pub use plan::{Claim, Plan, PlanError};
pub use spec::{ClaimSpec, JailSpec, Part, Program, Run};
pub use sweep::{RUNS, sweep};

/// Hides the memory and the environment of this process from others of its user, and forbids its core dumps.
pub fn hide_memory() -> std::io::Result<()> {
    ringfence_sys::process::refuse_dumps()
}
