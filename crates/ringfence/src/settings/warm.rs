//! What the settings of `warm` mean.

use super::{
    Setting, bounded,
    keys::Effective,
    words::{List, ModuleName},
};
use ringfence_engine::WarmSettings;
use std::time::Duration;

pub(super) fn meant(effective: &Effective) -> WarmSettings {
    let names = |modules: &Setting<List<ModuleName>>| {
        let items = modules.value.items().iter();
        items.map(|module| module.as_str().to_owned()).collect()
    };
    WarmSettings {
        ready: bounded(effective.warm_ready.value.get()),
        ready_max: bounded(effective.warm_ready_max.value.get()),
        memory_bytes: effective.warm_memory_mb.value.get() << 20,
        preload_python: names(&effective.warm_preload_python),
        preload_node: names(&effective.warm_preload_node),
        template_forks: u32::try_from(effective.warm_template_forks.value.get()).unwrap_or(u32::MAX),
        template_age: Duration::from_secs(60 * effective.warm_template_minutes.value.get()),
    }
}
