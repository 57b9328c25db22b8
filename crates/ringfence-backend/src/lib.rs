//! Sandboxes of a container engine (Docker or Podman, with `runc` or gVisor's `runsc`), with the interface of the
//! jail's: the same connection to a supervisor, the same orders and events, the same pipes. A user of a sandbox does
//! not see what has created it.
//!
//! ```text
//! engine ──orders──► supervise.rs ──frames, over the container's attached stdin and stdout──► agent/, pid 1 inside
//! ```
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an inner crate: a name that says it all has no comment"
)]

mod container;
mod egress;
mod engine;
mod error;
#[expect(dead_code, reason = "the other half is the agent's")]
mod frame;
mod image;
mod layers;
mod run_directory;
mod stream;
mod supervise;

pub use container::ContainerSpec;
pub use egress::{Arrival, Arrivals, NAMES_FROM};
pub use engine::{ContainerEngine, ContainerSettings, EngineFacts, ImageFacts, Runner};
pub use error::{ENGINE_STEP, EngineError};
pub use frame::ListenerKind;
pub use run_directory::User;
