//! The largest limits of one principal, below those of the server.

use ringfence_types::{Limits, LimitsRequest, RequestError};
use std::fmt::Display;

/// What is asked for, with the principal's largest where the usual is more.
pub(super) fn within(
    caps: &LimitsRequest,
    wanted: LimitsRequest,
    usual: &Limits,
) -> Result<LimitsRequest, RequestError> {
    let usual = in_words(usual);
    macro_rules! each {
        ($($limit:ident),+) => {
            LimitsRequest { $($limit: one(stringify!($limit), caps.$limit, wanted.$limit, usual.$limit)?),+ }
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
    wanted: Option<N>,
    usual: Option<N>,
) -> Result<Option<N>, RequestError> {
    match (cap, wanted) {
        (Some(cap), Some(wanted)) if wanted > cap => Err(RequestError::denied(
            format!("{name} = {wanted} is more than the {cap} of this principal."),
            format!("Ask for at most {cap}; the operator sets it with `ringfence token create`."),
        )),
        (Some(cap), None) if usual.is_some_and(|usual| usual > cap) => Ok(Some(cap)),
        (_, wanted) => Ok(wanted),
    }
}

/// These limits, none of them above the principal's largest.
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
    fn a_principal_has_no_more_than_its_largest_limits_whether_it_asks_or_not() {
        let usual = settings::usual().unwrap().engine.policy.defaults;
        let caps = LimitsRequest {
            max_ram_mb: Some(256),
            max_cpu_cores: Some(0.5),
            timeout_ms: Some(600_000),
            ..LimitsRequest::default()
        };
        let silent = within(&caps, LimitsRequest::default(), &usual).unwrap();
        assert_eq!((silent.max_ram_mb, silent.max_cpu_cores), (Some(256), Some(0.5)));
        assert_eq!(
            (silent.timeout_ms, silent.max_processes),
            (None, None),
            "the usual is less"
        );
        let less = LimitsRequest {
            max_ram_mb: Some(64),
            max_processes: Some(1000),
            ..LimitsRequest::default()
        };
        let less = within(&caps, less, &usual).unwrap();
        assert_eq!((less.max_ram_mb, less.max_processes), (Some(64), Some(1000)));
        let more = LimitsRequest {
            max_ram_mb: Some(257),
            ..LimitsRequest::default()
        };
        let refused = within(&caps, more, &usual).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PolicyDenied);
        assert_eq!(within(&LimitsRequest::default(), less.clone(), &usual), Ok(less));
        let lowered = lowered(&usual, &caps);
        assert_eq!((lowered.memory_bytes, lowered.cpu_millicores), (256 << 20, 500));
        assert_eq!((lowered.timeout_ms, lowered.processes), (60_000, 64));
    }
}
