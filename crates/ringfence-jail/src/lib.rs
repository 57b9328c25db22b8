//! The local Linux jail: a pure `plan`, an ordered `enter`, the child's wire protocol and the host probe. No async.
//!
//! ```text
//! server ──► helper ──► supervisor (one per run) ──► pid 1 (ours) ──► the program
//!            helper.rs  supervise.rs                 init.rs, enter/
//! ```
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an inner crate: a name that says it all has no comment"
)]

mod attach;
mod birth;
pub mod cgroup;
pub mod client;
mod deadline;
pub mod doctor;
mod egress;
mod enter;
mod environment;
mod export_directory;
mod failure;
mod forked;
pub mod harvest;
pub mod helper;
pub mod host;
mod identity_map;
mod init;
mod kept_files;
mod layer;
mod layout;
mod pinned;
pub mod plan;
mod quota;
mod record_locks;
mod refused;
mod sample;
pub mod seccomp;
mod spec;
mod supervise;
mod sweep;
mod tree;
mod uncharged;
mod visit;
pub mod wire;
pub mod worker;

pub use egress::{EgressSockets, EgressSpec, GATEWAY, PORTS_MAX, PORTS_READY, PROXY_PORT, SYNTHETIC};
pub use export_directory::ExportDirectory;
pub use host::Host;
pub use layer::{LayerName, PACKAGES};
pub use layout::Layout;
pub use pinned::Pinned;
pub use plan::{Claim, Plan, PlanError};
pub use quota::{Count, Known, Quota, Space, files_max};
pub use refused::Refused;
pub use ringfence_sys::{
    file::{fill_standard_descriptors, remove_tree},
    process::{refuse_dumps as hide_memory, thread_count},
};
pub use sample::directory_bytes;
pub use spec::{Forker, HostWorkspace, JailSpec, Part, Program, Run, Written};
pub use sweep::{RUNS, sweep};
pub use tree::kill_descendants;

/// Takes over a descriptor that this process inherited; no program that it executes gets it.
pub fn inherited_descriptor(number: i32) -> std::io::Result<std::os::fd::OwnedFd> {
    let inherited = ringfence_sys::file::inherited(number)?;
    ringfence_sys::process::close_on_exec(&inherited)?;
    Ok(inherited)
}
