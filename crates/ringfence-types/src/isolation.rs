//! The strength of a sandbox, as every result reports it.

use crate::closed_words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The named strengths, from strong to weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Every layer: namespaces, own root, no network, Landlock, seccomp, no capabilities, limits.
    Full,
    /// A container with its own kernel for system calls (gVisor).
    Gvisor,
    /// A container of a container engine: namespaces, seccomp, no capabilities, limits; no Landlock, and the engine's
    /// daemon behind it.
    Container,
    /// No user namespaces on the host: Landlock, seccomp and limits only. The operator has to enable it.
    Landlock,
}

impl Tier {
    /// True if its sandboxes have a network namespace, without which there is no egress.
    pub fn has_network(self) -> bool {
        self != Self::Landlock
    }

    /// Returns the tier of native sandboxes if this is the lowest accepted tier: `landlock` must be set by name.
    pub fn native(self) -> Self {
        match self {
            Self::Landlock => Self::Landlock,
            Self::Full | Self::Gvisor | Self::Container => Self::Full,
        }
    }
}

closed_words!(Tier: Full = "full", Gvisor = "gvisor", Container = "container", Landlock = "landlock");

/// The state of one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayerState {
    /// False only for a layer that this tier lacks.
    pub active: bool,
    /// The mechanism and its version or size: "abi 7", "cgroup v1, 512 MiB".
    pub detail: String,
}

/// The tier of one run and its layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Name of the strength.
    pub tier: Tier,
    /// Names of the layers that this run lacked.
    pub inactive: Vec<String>,
    /// State of every layer that exists, by name. A front end may omit them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<String, LayerState>,
}

impl Isolation {
    /// Creates it from the state of every layer.
    pub fn new(tier: Tier, layers: BTreeMap<String, LayerState>) -> Self {
        let inactive = layers.iter().filter(|(_, state)| !state.active);
        Self {
            tier,
            inactive: inactive.map(|(name, _)| name.clone()).collect(),
            layers,
        }
    }
}
