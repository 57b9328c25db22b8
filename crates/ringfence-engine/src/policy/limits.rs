//! The limits of a request: its own values, or the defaults of its namespace, within the caps.

use crate::{error::Result, settings::PolicySettings};
use ringfence_types::{Limits, LimitsRequest, RequestError};

pub(super) const MEBIBYTE: u64 = 1 << 20;
const LEAST: Limits = Limits {
    memory_bytes: 16 * MEBIBYTE,
    cpu_millicores: 10,
    timeout_ms: 100,
    processes: 1,
    output_bytes: 0,
    disk_bytes: MEBIBYTE,
};

/// Limits of a namespace that differ from the operator's.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnLimits {
    /// Defaults for a request that names no limits.
    pub(crate) defaults: LimitsRequest,
    /// Caps, if they have been narrowed.
    pub(crate) caps: Option<Limits>,
}

/// A private disk takes at most half of the memory: raises the memory for a requested disk if no memory is requested.
pub(super) fn raise_memory(limits: &mut Limits, caps: &Limits, asked: &LimitsRequest) -> Result<()> {
    let needed = limits.disk_bytes.saturating_mul(2);
    if asked.max_disk_mb.is_none() || asked.max_ram_mb.is_some() || needed <= limits.memory_bytes {
        return Ok(());
    }
    if needed > caps.memory_bytes {
        let bounds = [LEAST.disk_bytes, caps.private_disk_bytes()].map(mebibytes);
        return Err(RequestError {
            hint:
                "Ask for a value within: a private disk takes at most half of the memory that you may have."
                    .to_owned(),
            ..outside("max_disk_mb", mebibytes(limits.disk_bytes), bounds)
        });
    }
    limits.memory_bytes = needed;
    Ok(())
}

/// Returns the limits of a namespace with its caps narrowed; they never exceed the current ones.
pub(crate) fn narrow(policy: &PolicySettings, own: &OwnLimits, request: &LimitsRequest) -> Result<OwnLimits> {
    let (_, now) = limits_of(policy, own);
    Ok(OwnLimits {
        caps: Some(limits(&now, &now, request)?),
        ..own.clone()
    })
}

/// Returns the limits of a namespace with new defaults within its caps. Defaults that are not named stay.
pub(crate) fn set_defaults(
    policy: &PolicySettings,
    own: &OwnLimits,
    request: &LimitsRequest,
) -> Result<OwnLimits> {
    let (usual, caps) = limits_of(policy, own);
    limits(&usual, &caps, request)?;
    let before = &own.defaults;
    Ok(OwnLimits {
        defaults: LimitsRequest {
            max_ram_mb: request.max_ram_mb.or(before.max_ram_mb),
            max_cpu_cores: request.max_cpu_cores.or(before.max_cpu_cores),
            timeout_ms: request.timeout_ms.or(before.timeout_ms),
            max_processes: request.max_processes.or(before.max_processes),
            max_output_bytes: request.max_output_bytes.or(before.max_output_bytes),
            max_disk_mb: request.max_disk_mb.or(before.max_disk_mb),
        },
        ..own.clone()
    })
}

/// Returns the default limits and the caps of a namespace.
pub(crate) fn limits_of(policy: &PolicySettings, own: &OwnLimits) -> (Limits, Limits) {
    let caps = match &own.caps {
        None => policy.caps.clone(),
        Some(most) => most.least(&policy.caps),
    };
    (overlaid(&policy.defaults, &own.defaults).least(&caps), caps)
}

/// Returns the limits of a request and its caps: those of the namespace, and of the caller.
pub(super) fn limits_for(
    caller: Option<&Limits>,
    usual: &Limits,
    most: &Limits,
    asked: &LimitsRequest,
) -> Result<(Limits, Limits)> {
    let granted = limits(usual, most, asked)?;
    let Some(caller) = caller else {
        return Ok((granted, most.clone()));
    };
    if LEAST.least(caller) != LEAST {
        return Err(RequestError::denied(
            "a limit of this principal is below the least that a program may have.",
            "Have the operator raise it (`ringfence token create`, `http.oauth_principals`).",
        ));
    }
    limits(caller, caller, asked).map_err(|above| {
        RequestError::denied(
            above.message,
            "Ask for a value within; the upper bound is this principal's (`ringfence token create`).",
        )
    })?;
    Ok((granted.least(caller), most.least(caller)))
}

/// Refuses caps of a caller that no program could have.
pub fn check_caps(caps: &LimitsRequest) -> Result<()> {
    let all = LimitsRequest::default().caps();
    limits(&all, &all, caps).map(drop)
}

/// Refuses a session that was made with larger limits than this caller may have. Each call has its own time and output.
pub(crate) fn check_session(session: &Limits, caller: Option<&Limits>) -> Result<()> {
    let most = caller.map(|caller| Limits {
        timeout_ms: session.timeout_ms,
        output_bytes: session.output_bytes,
        ..caller.clone()
    });
    if most.is_none_or(|most| session.least(&most) == *session) {
        return Ok(());
    }
    Err(RequestError::denied(
        "the session was made with larger limits than this principal may have.",
        "Make a session of your own with create_session.",
    ))
}

/// Returns a limit in the unit of its argument.
type Bound = fn(&Limits) -> f64;

pub(super) fn limits(defaults: &Limits, caps: &Limits, asked: &LimitsRequest) -> Result<Limits> {
    let rows: [(&str, Option<f64>, Bound); 6] = [
        ("max_ram_mb", asked.max_ram_mb.map(number), |of| {
            mebibytes(of.memory_bytes)
        }),
        ("max_disk_mb", asked.max_disk_mb.map(number), |of| {
            mebibytes(of.disk_bytes)
        }),
        ("max_processes", asked.max_processes.map(f64::from), |of| {
            f64::from(of.processes)
        }),
        ("max_output_bytes", asked.max_output_bytes.map(number), |of| {
            number(of.output_bytes)
        }),
        ("max_cpu_cores", asked.max_cpu_cores, |of| {
            f64::from(of.cpu_millicores) / 1000.0
        }),
        ("timeout_seconds", asked.timeout_ms.map(seconds), |of| {
            seconds(of.timeout_ms)
        }),
    ];
    for (argument, asked, bound) in rows {
        let (least, most) = (bound(&LEAST), bound(caps));
        if let Some(value) = asked.filter(|value| !(least..=most).contains(value)) {
            return Err(outside(argument, value, [least, most]));
        }
    }
    Ok(overlaid(defaults, asked))
}

/// Returns the requested limits, which have been checked, completed by the defaults.
fn overlaid(defaults: &Limits, asked: &LimitsRequest) -> Limits {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within 10..=u32"
    )]
    let millicores = |cores: f64| (cores * 1000.0).round() as u32;
    Limits {
        memory_bytes: asked
            .max_ram_mb
            .map_or(defaults.memory_bytes, |mib| mib * MEBIBYTE),
        cpu_millicores: asked.max_cpu_cores.map_or(defaults.cpu_millicores, millicores),
        timeout_ms: asked.timeout_ms.unwrap_or(defaults.timeout_ms),
        processes: asked.max_processes.unwrap_or(defaults.processes),
        output_bytes: asked.max_output_bytes.unwrap_or(defaults.output_bytes),
        disk_bytes: asked
            .max_disk_mb
            .map_or(defaults.disk_bytes, |mib| mib * MEBIBYTE),
    }
}

fn outside(argument: &str, value: f64, [least, most]: [f64; 2]) -> RequestError {
    RequestError::invalid(
        format!("{argument} = {value} is outside {least}..={most}."),
        "Ask for a value within; the upper bound is the operator's `caps`.",
    )
}

fn mebibytes(bytes: u64) -> f64 {
    number(bytes / MEBIBYTE)
}

fn seconds(milliseconds: u64) -> f64 {
    number(milliseconds) / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_may_be_as_many_as_the_cap() {
        let caps = Limits {
            cpu_millicores: 2007,
            ..LimitsRequest::default().caps()
        };
        let check = |cores, expect: Option<u32>| {
            let asked = LimitsRequest {
                max_cpu_cores: Some(cores),
                ..LimitsRequest::default()
            };
            let granted = limits(&caps, &caps, &asked).ok();
            assert_eq!(granted.map(|granted| granted.cpu_millicores), expect, "{cores}");
        };
        check(0.01, Some(10));
        // 2007.0000000000002 thousandths.
        check(2.007, Some(2007));
        check(2.0071, None);
        check(0.009, None);
    }
}
