//! Tries every layer on this host and says what is missing and the smallest change that gives it.

use ringfence_types::Tier;
use serde::Serialize;

/// One layer, tried.
#[derive(Clone, Debug, Serialize)]
pub struct LayerReport {
    /// Layer name as in results.
    pub layer: &'static str,
    /// Did it work.
    pub present: bool,
    /// Does the `full` tier refuse to run without it (else it has a weaker stand-in, named in `detail`).
    pub required: bool,
    /// Version or mechanism, or what failed and with which errno.
    pub detail: String,
    /// The smallest change that gives it.
    pub fix: Option<String>,
}

/// All layers, in the order in which they are raised, and the strongest tier this host gives.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// Layers.
    pub layers: Vec<LayerReport>,
    /// Strongest tier, if any.
    pub tier: Option<Tier>,
}

/// Tries everything. Must be called in the single-threaded start of the binary.
pub fn examine() -> HostReport {
    unimplemented!()
}
