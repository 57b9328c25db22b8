//! The limits of a request: its own values, or the defaults of its namespace, within the caps.

use crate::{error::Result, settings::PolicySettings};
use ringfence_types::{Limits, LimitsRequest, RequestError};
use std::ops::RangeInclusive;

pub(super) const MEBIBYTE: u64 = 1 << 20;
const MEMORY_MIB_MIN: u64 = 16;
const DISK_MIB_MIN: u64 = 1;
const TIMEOUT_MS_MIN: u64 = 100;
const CPU_MILLICORES_MIN: u32 = 10;
const PROCESSES_MIN: u32 = 1;
const LEAST: Limits = Limits {
    memory_bytes: MEMORY_MIB_MIN * MEBIBYTE,
    cpu_millicores: CPU_MILLICORES_MIN,
    timeout_ms: TIMEOUT_MS_MIN,
    processes: PROCESSES_MIN,
    output_bytes: 0,
    disk_bytes: DISK_MIB_MIN * MEBIBYTE,
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
        let most = caps.private_disk_bytes() / MEBIBYTE;
        return Err(RequestError {
            hint:
                "Ask for a value within: a private disk takes at most half of the memory that you may have."
                    .to_owned(),
            ..outside("max_disk_mb", limits.disk_bytes / MEBIBYTE, DISK_MIB_MIN, most)
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

pub(super) fn limits(defaults: &Limits, caps: &Limits, asked: &LimitsRequest) -> Result<Limits> {
    let mebibytes = |bytes| bytes / MEBIBYTE;
    check_within(
        "max_ram_mb",
        asked.max_ram_mb,
        MEMORY_MIB_MIN..=mebibytes(caps.memory_bytes),
    )?;
    check_within(
        "max_disk_mb",
        asked.max_disk_mb,
        DISK_MIB_MIN..=mebibytes(caps.disk_bytes),
    )?;
    check_within(
        "max_processes",
        asked.max_processes,
        PROCESSES_MIN..=caps.processes,
    )?;
    check_within("max_output_bytes", asked.max_output_bytes, 0..=caps.output_bytes)?;
    if let Some(cores) = asked.max_cpu_cores {
        millicores(cores, caps.cpu_millicores)?;
    }
    match asked.timeout_ms {
        Some(timeout_ms) if timeout_ms < TIMEOUT_MS_MIN || timeout_ms > caps.timeout_ms => Err(outside(
            "timeout_seconds",
            seconds(timeout_ms),
            seconds(TIMEOUT_MS_MIN),
            seconds(caps.timeout_ms),
        )),
        _ => Ok(overlaid(defaults, asked)),
    }
}

/// Returns the requested limits, completed by the defaults.
fn overlaid(defaults: &Limits, asked: &LimitsRequest) -> Limits {
    let cores = asked.max_cpu_cores.map(|cores| millicores(cores, u32::MAX));
    Limits {
        memory_bytes: asked
            .max_ram_mb
            .map_or(defaults.memory_bytes, |mib| mib * MEBIBYTE),
        cpu_millicores: cores.and_then(Result::ok).unwrap_or(defaults.cpu_millicores),
        timeout_ms: asked.timeout_ms.unwrap_or(defaults.timeout_ms),
        processes: asked.max_processes.unwrap_or(defaults.processes),
        output_bytes: asked.max_output_bytes.unwrap_or(defaults.output_bytes),
        disk_bytes: asked
            .max_disk_mb
            .map_or(defaults.disk_bytes, |mib| mib * MEBIBYTE),
    }
}

fn check_within<N: PartialOrd + std::fmt::Display + Copy>(
    name: &str,
    asked: Option<N>,
    bounds: RangeInclusive<N>,
) -> Result<()> {
    match asked {
        Some(value) if !bounds.contains(&value) => Err(outside(name, value, *bounds.start(), *bounds.end())),
        _ => Ok(()),
    }
}

fn outside<N: std::fmt::Display>(name: &str, value: N, least: N, most: N) -> RequestError {
    RequestError::invalid(
        format!("{name} = {value} is outside {least}..={most}."),
        "Ask for a value within; the upper bound is the operator's `caps`.",
    )
}

#[expect(clippy::cast_precision_loss, reason = "for a message")]
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn millicores(cores: f64, most: u32) -> Result<u32> {
    let millicores = cores * 1000.0;
    let cores_max = f64::from(most) / 1000.0;
    let in_range = millicores >= f64::from(CPU_MILLICORES_MIN) && millicores <= f64::from(most);
    if !in_range {
        return Err(RequestError::invalid(
            format!("max_cpu_cores = {cores} is outside 0.01..={cores_max}."),
            "Ask for a share of the processors that the operator allows.",
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within 10..=u32"
    )]
    Ok(millicores.round() as u32)
}
