//! What the settings of `sessions` and `results` mean.

use super::{Setting, bounded, keys::Effective, words::Seconds};
use ringfence_engine::{ResultSettings, SessionSettings};
use std::time::Duration;

pub(super) fn meant(settings: &Effective) -> SessionSettings {
    let time = |setting: &Setting<Seconds>| Duration::from_millis(setting.value.thousandths());
    SessionSettings {
        max: bounded(settings.sessions_max.value.get()),
        per_namespace: bounded(settings.sessions_per_namespace.value.get()),
        idle: time(&settings.sessions_idle_seconds).min(time(&settings.sessions_idle_seconds_max)),
        idle_max: time(&settings.sessions_idle_seconds_max),
        age: time(&settings.sessions_age_seconds),
    }
}

pub(super) fn results(settings: &Effective) -> ResultSettings {
    ResultSettings {
        keep: Duration::from_secs(60 * settings.results_keep_minutes.value.get()),
        bytes_max: bounded(settings.results_memory_mb.value.get() << 20),
    }
}
