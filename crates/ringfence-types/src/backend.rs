//! The backends that create sandboxes.

use crate::{Tier, closed_words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backend that creates sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Ringfence itself, by the kernel's own walls.
    Native,
    /// A container engine: Docker's, or Podman's by its socket.
    Docker,
    /// The same engine, with gVisor as the container's kernel.
    Gvisor,
}

impl Backend {
    /// Returns the tier of its sandboxes; `native` is the tier of native sandboxes on this host.
    pub fn tier(self, native: Tier) -> Tier {
        match self {
            Self::Native => native,
            Self::Docker => Tier::Container,
            Self::Gvisor => Tier::Gvisor,
        }
    }
}

closed_words!(Backend: Native = "native", Docker = "docker", Gvisor = "gvisor");
