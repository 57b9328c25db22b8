//! What makes a sandbox.

use crate::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The makers of sandboxes.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Native, Self::Docker, Self::Gvisor];

    /// The name in requests, results and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
            Self::Gvisor => "gvisor",
        }
    }

    /// The tier of its sandboxes; `native` is the one of native sandboxes here.
    pub fn tier(self, native: Tier) -> Tier {
        match self {
            Self::Native => native,
            Self::Docker => Tier::Container,
            Self::Gvisor => Tier::Gvisor,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Backend {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|backend| backend.as_str() == text);
        known.ok_or_else(|| {
            format!(
                "`{}` is not a backend; known: native, docker, gvisor",
                text.escape_default()
            )
        })
    }
}
