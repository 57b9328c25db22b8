//! Caps of one principal, below those of the server.

use ringfence_types::{Limits, LimitsRequest, RequestError};
use std::fmt::Display;

/// Returns the requested limits, within the caps: a request above a cap is refused, a default above it is lowered.
pub(super) fn within(
    caps: &LimitsRequest,
    requested: LimitsRequest,
    defaults: &Limits,
) -> Result<LimitsRequest, RequestError> {
    let defaults = in_words(defaults);
    macro_rules! each {
        ($($limit:ident),+) => {
            LimitsRequest { $($limit: one(stringify!($limit), caps.$limit, requested.$limit, defaults.$limit)?),+ }
        };
    }
    Ok(each!(
        max_ram_mb,
        max_cpu_cores,
        timeout_ms,
        max_processes,
        max_output_bytes,
        max_disk_mb
    ))
}

fn one<N: PartialOrd + Copy + Display>(
    name: &str,
    cap: Option<N>,
    requested: Option<N>,
    default: Option<N>,
) -> Result<Option<N>, RequestError> {
    match (cap, requested) {
        (Some(cap), Some(requested)) if requested > cap => Err(RequestError::denied(
            format!("{name} = {requested} is more than the {cap} of this principal."),
            format!("Ask for at most {cap}; the operator sets it with `ringfence token create`."),
        )),
        (Some(cap), None) if default.is_some_and(|default| default > cap) => Ok(Some(cap)),
        (_, requested) => Ok(requested),
    }
}

pub(super) fn lowered(limits: &Limits, caps: &LimitsRequest) -> Limits {
    let mib = |mebibytes: u64| mebibytes.saturating_mul(1 << 20);
    let least = |limit: u64, cap: Option<u64>| limit.min(cap.unwrap_or(u64::MAX));
    Limits {
        memory_bytes: least(limits.memory_bytes, caps.max_ram_mb.map(mib)),
        cpu_millicores: limits
            .cpu_millicores
            .min(caps.max_cpu_cores.map_or(u32::MAX, millicores)),
        timeout_ms: least(limits.timeout_ms, caps.timeout_ms),
        processes: limits
            .processes
            .min(caps.max_processes.unwrap_or(limits.processes)),
        output_bytes: least(limits.output_bytes, caps.max_output_bytes),
        disk_bytes: least(limits.disk_bytes, caps.max_disk_mb.map(mib)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float that is no number of cores becomes the nearest that is"
)]
fn millicores(cores: f64) -> u32 {
    (cores * 1000.0) as u32
}

fn in_words(limits: &Limits) -> LimitsRequest {
    LimitsRequest {
        max_ram_mb: Some(limits.memory_bytes >> 20),
        max_cpu_cores: Some(f64::from(limits.cpu_millicores) / 1000.0),
        timeout_ms: Some(limits.timeout_ms),
        max_processes: Some(limits.processes),
        max_output_bytes: Some(limits.output_bytes),
        max_disk_mb: Some(limits.disk_bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;
    use ringfence_types::ErrorCode;

    #[test]
    fn principal_caps_bound_requests_and_defaults() {
        let defaults = settings::default_config().unwrap().engine.policy.defaults;
        let caps = LimitsRequest {
            max_ram_mb: Some(256),
            max_cpu_cores: Some(0.5),
            timeout_ms: Some(600_000),
            ..LimitsRequest::default()
        };
        let silent = within(&caps, LimitsRequest::default(), &defaults).unwrap();
        assert_eq!((silent.max_ram_mb, silent.max_cpu_cores), (Some(256), Some(0.5)));
        assert_eq!(
            (silent.timeout_ms, silent.max_processes),
            (None, None),
            "the defaults are lower"
        );
        let less = LimitsRequest {
            max_ram_mb: Some(64),
            max_processes: Some(1000),
            ..LimitsRequest::default()
        };
        let less = within(&caps, less, &defaults).unwrap();
        assert_eq!((less.max_ram_mb, less.max_processes), (Some(64), Some(1000)));
        let more = LimitsRequest {
            max_ram_mb: Some(257),
            ..LimitsRequest::default()
        };
        let refused = within(&caps, more, &defaults).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied);
        assert_eq!(
            within(&LimitsRequest::default(), less.clone(), &defaults),
            Ok(less)
        );
        let lowered = lowered(&defaults, &caps);
        assert_eq!((lowered.memory_bytes, lowered.cpu_millicores), (256 << 20, 500));
        assert_eq!((lowered.timeout_ms, lowered.processes), (60_000, 64));
    }
}
