//! How strong a sandbox is, in words that stand in every result.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// The named strengths, from strong to weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Every layer: namespaces, own root, no network, Landlock, seccomp, no capabilities, limits.
    Full,
    /// No user namespaces on the host: Landlock, seccomp and limits only. The operator has to ask for it.
    Landlock,
}

impl Tier {
    /// The name in results and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Landlock => "landlock",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "full" => Ok(Self::Full),
            "landlock" => Ok(Self::Landlock),
            other => Err(format!("`{other}` is not a tier; known: full, landlock")),
        }
    }
}

/// One wall: is it up, and by what means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// False only for a layer that this tier does without.
    pub active: bool,
    /// The mechanism and its version or size: "abi 7", "cgroup v1, 512 MiB".
    pub detail: String,
}

/// The tier of one run and each of its layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Named strength.
    pub tier: Tier,
    /// Layer name to state, every layer that exists.
    pub layers: BTreeMap<String, LayerState>,
}
