//! The section `calls`: how long a call waits for its program, and what becomes of that when its caller does not.

use super::{
    Setting,
    keys::{Effective, Origin},
    refusal,
    words::{OnHangUp, SettingValue},
};
use ringfence_types::RequestError;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// None: a call waits for the end of its program, however long that takes.
    pub(crate) detach_after: Option<Duration>,
    pub(crate) on_cancel: OnHangUp,
    pub(crate) on_disconnect: OnHangUp,
    /// Whether a result is there for a later call; if not, no call is detached.
    pub(crate) keep_results: bool,
}

impl Calls {
    /// Where no result is kept, a default gives way, and a value that was set is refused.
    pub(super) fn of(settings: &Effective) -> Result<Self, RequestError> {
        let memory = &settings.results_memory_mb;
        let keep_results = memory.get() > 0;
        let after = &settings.calls_detach_after_seconds;
        let (on_cancel, on_disconnect) = (&settings.calls_on_cancel, &settings.calls_on_disconnect);
        if !keep_results {
            let detaching = [
                set("detach_after_seconds", after, |seconds| seconds.get() > 0.0),
                set("on_cancel", on_cancel, |word| *word == OnHangUp::Detach),
                set("on_disconnect", on_disconnect, |word| *word == OnHangUp::Detach),
            ];
            if let Some(said) = detaching.into_iter().flatten().next() {
                return Err(refusal(
                    format!(
                        "{said} needs results that are kept, and results.memory_mb = 0 ({}).",
                        memory.origin
                    ),
                    "Raise results.memory_mb, or leave the other one out.",
                ));
            }
        }
        Ok(Self {
            detach_after: span(after.get()).filter(|_| keep_results),
            on_cancel: on_cancel.value,
            on_disconnect: on_disconnect.value,
            keep_results,
        })
    }
}

/// 0: never.
pub(crate) fn span(seconds: f64) -> Option<Duration> {
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
}

/// How a refusal names a setting that was set and wants a call detached.
fn set<T: SettingValue>(name: &str, setting: &Setting<T>, detaches: impl Fn(&T) -> bool) -> Option<String> {
    let is_set = setting.origin != Origin::Default && detaches(&setting.value);
    is_set.then(|| format!("calls.{name} = {} ({})", setting.json(), setting.origin))
}
