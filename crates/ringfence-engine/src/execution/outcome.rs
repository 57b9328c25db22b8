//! Times and result of an execution, and the details of its closing audit entry.

use crate::{backend::Hold, overlay::HeldChanges, policy::Grant, record, record::Closing, report::Report};
use ringfence_store::audit::{Action, Outcome};
use ringfence_types::{ExecutionResult, ExitKind, Phases};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Maximum artifact digests in an audit entry; the signed manifest has all.
const DIGESTS_MAX: usize = 20;

pub(crate) struct ExecutionOutcome {
    pub(crate) result: ExecutionResult,
    granted: Value,
    /// Hosts that were reached, and refused connections.
    pub(super) reached: Option<Value>,
    /// Number of secrets redacted from the output.
    pub(super) redactions: u64,
    /// Changes to an overlay, to be accepted or discarded.
    pub(crate) changes: Option<HeldChanges>,
    /// Released after the result is handed over.
    pub(crate) hold: Option<Hold>,
}

impl ExecutionOutcome {
    pub(super) fn of(report: Report, grant: &Grant) -> Self {
        let (result, redactions) = report.into_parts();
        Self {
            result,
            granted: record::granted(grant),
            reached: None,
            redactions,
            changes: None,
            hold: None,
        }
    }

    pub(super) fn closing(&self) -> Closing {
        let (action, outcome) = match self.result.exit.kind {
            ExitKind::Timeout => (Action::ExecutionTimeout, Outcome::Failed),
            _ if self.result.success => (Action::ExecutionCompleted, Outcome::Ok),
            _ => (Action::ExecutionFailed, Outcome::Failed),
        };
        Closing {
            action,
            outcome,
            details: self.details(),
        }
    }

    fn details(&self) -> Value {
        let result = &self.result;
        let usage = &result.resource_usage;
        let mut details = json!({
            "exit": result.exit.kind,
            "exit_code": result.exit_code,
            "duration_ms": result.duration_ms,
            "tier": result.isolation.tier,
            "limits": self.granted,
            "cpu_ms": rounded(usage.cpu_user_ms + usage.cpu_system_ms),
            "max_rss_bytes": usage.max_rss_bytes,
            "stdout_bytes": result.stdout_bytes,
            "stderr_bytes": result.stderr_bytes,
        });
        if let Some(limit) = &result.exit.limit {
            details["limit"] = json!(limit);
        }
        if !result.artifacts.is_empty() {
            let digests = result.artifacts.iter().take(DIGESTS_MAX);
            let digests: Vec<&str> = digests.map(|artifact| artifact.sha256.as_str()).collect();
            details["artifacts"] = json!({"count": result.artifacts.len(), "sha256": digests});
        }
        let denials = result.denials.iter().chain(&result.security_events);
        let rules: Vec<&str> = denials.map(|denial| denial.rule.as_str()).collect();
        if !rules.is_empty() {
            details["rules"] = json!(rules);
        }
        if let Some(reached) = &self.reached {
            details["egress"] = reached.clone();
        }
        if self.redactions > 0 {
            details["redacted"] = json!(self.redactions);
        }
        details
    }
}

#[derive(Clone, Copy)]
pub(super) struct PhaseTimer {
    begun: Instant,
    lap: Instant,
    pub(super) phases: Phases,
}

impl PhaseTimer {
    pub(super) fn start() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            lap: now,
            phases: Phases::default(),
        }
    }

    /// Adds the time since the last lap to a phase, and starts the next.
    pub(super) fn lap(&mut self, phase: fn(&mut Phases) -> &mut f64) {
        let now = Instant::now();
        let lap = milliseconds(now.duration_since(self.lap));
        self.lap = now;
        let phase = phase(&mut self.phases);
        *phase = rounded(*phase + lap);
    }

    pub(super) fn total(&self) -> f64 {
        milliseconds(self.begun.elapsed())
    }
}

/// Rounds a sum to the microsecond: 0.1 + 0.2 is not 0.3.
fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "no run takes centuries")]
fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_a_phase_has_no_noise_below_a_microsecond() {
        let mut timer = PhaseTimer::start();
        for _ in 0..1000 {
            timer.lap -= Duration::from_micros(101);
            timer.lap(|phases| &mut phases.start_ms);
            let written = timer.phases.start_ms.to_string();
            let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 3, "{written}");
        }
    }
}
