//! Events and counters.

use crate::{events::Bus, metrics::Metrics};
use std::sync::Arc;

/// Events and counters of one engine; clones share them.
#[derive(Clone)]
pub(crate) struct Telemetry {
    pub(crate) bus: Bus,
    pub(crate) metrics: Arc<Metrics>,
}
