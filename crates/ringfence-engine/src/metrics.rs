//! What is counted, as the operator's monitoring reads it (OpenMetrics) and as the tools tell it.

use crate::events::Ended;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use ringfence_egress::EgressEvent;
use ringfence_types::{ExecutionResult, ExitKind, Language};
use serde::Serialize;
use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write as _},
    sync::{Mutex, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// Durations that percentiles are made of.
const DURATIONS_MAX: usize = 1000;
/// Bytes: from an empty shell to the most that is usual.
const MEMORY_BUCKETS: [f64; 9] = [8e6, 16e6, 32e6, 64e6, 128e6, 256e6, 512e6, 1e9, 4e9];
/// Seconds: from a warm shell to the longest that anybody waits.
const BUCKETS: [f64; 13] = [
    0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
];

/// A word as a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct LabelText(&'static str);

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.0)
    }
}

macro_rules! labels {
    ($($name:ident { $($label:ident),+ })+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
        struct $name { $($label: LabelText),+ }
    )+};
}
labels! {
    Execution { language, outcome }
    OfLanguage { language }
    Refusal { code }
    Phase { phase }
    Limit { limit }
    OfStream { stream }
    Denied { rule }
    Direction { direction }
}

/// A tool, of which a front end knows the names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTool {
    tool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    tool: String,
    outcome: LabelText,
}

/// The last of each kind.
#[derive(Default)]
struct Lately {
    durations: BTreeMap<&'static str, VecDeque<f64>>,
    memory: BTreeMap<&'static str, VecDeque<f64>>,
    tools: BTreeMap<String, Tool>,
}

#[derive(Default)]
struct Tool {
    calls: u64,
    errors: u64,
    durations: VecDeque<f64>,
}

fn push(sample: &mut VecDeque<f64>, value: f64) {
    if sample.len() == DURATIONS_MAX {
        sample.pop_front();
    }
    sample.push_back(value);
}

type Seconds = Counter<f64, AtomicU64>;

/// Everything that one engine counts.
pub(crate) struct Metrics {
    registry: Registry,
    begun: Instant,
    executions: Family<Execution, Counter>,
    refusals: Family<Refusal, Counter>,
    durations: Family<OfLanguage, Histogram, fn() -> Histogram>,
    memory: Family<OfLanguage, Histogram, fn() -> Histogram>,
    calls: Family<Call, Counter>,
    call_durations: Family<OfTool, Histogram, fn() -> Histogram>,
    phases: Family<Phase, Seconds>,
    limits: Family<Limit, Counter>,
    output: Family<OfStream, Counter>,
    cpu: Seconds,
    redactions: Counter,
    artifacts: Counter,
    connections: Counter,
    connections_denied: Family<Denied, Counter>,
    egress: Family<Direction, Counter>,
    gauges: Gauges,
    lately: Mutex<Lately>,
}

/// What is looked up when somebody asks.
#[derive(Clone, Default)]
struct Gauges {
    running: Gauge,
    waiting: Gauge,
    sessions: Gauge,
    artifact_bytes: Gauge,
    not_recorded: Gauge,
    ready: Family<OfLanguage, Gauge>,
}

/// The present state of what the gauges show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Present {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) sessions: usize,
    pub(crate) artifact_bytes: u64,
    pub(crate) not_recorded: u64,
    pub(crate) ready: Vec<(Language, usize)>,
}

/// The same counts, as a tool tells them.
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// Since the engine started.
    pub uptime_seconds: f64,
    /// Runs that have ended, by language and outcome.
    pub executions: BTreeMap<String, BTreeMap<String, u64>>,
    /// Requests that were refused, by code.
    pub refusals: BTreeMap<String, u64>,
    /// Runs that passed a limit, by limit.
    pub limits_exceeded: BTreeMap<String, u64>,
    /// Milliseconds of the last thousand runs of each language.
    pub duration_ms: BTreeMap<String, Percentiles>,
    /// Most memory that each of these took, in bytes.
    pub memory_peak_bytes: BTreeMap<String, Percentiles>,
    /// Calls of tools.
    pub tools: BTreeMap<String, ToolCounts>,
    /// Processor time of all programs.
    pub cpu_seconds: f64,
    /// Bytes that programs have written.
    pub stdout_bytes: u64,
    /// Bytes that programs have written.
    pub stderr_bytes: u64,
    /// Secrets that were taken out of what left.
    pub redactions: u64,
    /// Files that programs have left.
    pub artifacts: u64,
}

/// How a call of a tool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// Also where a program failed.
    Answered,
    /// With an error of ours.
    Refused,
}

/// Calls of one tool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ToolCounts {
    /// All.
    pub calls: u64,
    /// Those that were refused or failed, of which a program that fails is none.
    pub errors: u64,
    /// Milliseconds of the last thousand.
    pub duration_ms: Percentiles,
}

/// Of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many there are.
    pub count: usize,
    /// Half are below.
    pub p50: f64,
    /// Nine of ten are.
    pub p90: f64,
    /// 99 of 100 are.
    pub p99: f64,
}

const OUTCOMES: [&str; 7] = [
    "completed",
    "failed",
    "signal",
    "timeout",
    "out_of_memory",
    "limit",
    "cancelled",
];

fn outcome(result: &ExecutionResult) -> &'static str {
    match result.exit.kind {
        ExitKind::Code if result.success => OUTCOMES[0],
        ExitKind::Code => OUTCOMES[1],
        ExitKind::Signal => OUTCOMES[2],
        ExitKind::Timeout => OUTCOMES[3],
        ExitKind::OutOfMemory => OUTCOMES[4],
        ExitKind::Limit => OUTCOMES[5],
        ExitKind::Cancelled => OUTCOMES[6],
    }
}

fn limit_name(limit: &str) -> &'static str {
    const LIMITS: [&str; 5] = ["timeout", "memory", "disk", "cpu", "file_size"];
    LIMITS
        .into_iter()
        .find(|known| *known == limit)
        .unwrap_or("other")
}

impl Metrics {
    /// `stuck`: the backend counts them.
    pub(crate) fn new(stuck: &Counter) -> Self {
        let mut meters = Self {
            registry: Registry::with_prefix("ringfence"),
            begun: Instant::now(),
            executions: Family::default(),
            refusals: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            memory: Family::new_with_constructor(|| Histogram::new(MEMORY_BUCKETS)),
            calls: Family::default(),
            call_durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            phases: Family::default(),
            limits: Family::default(),
            output: Family::default(),
            cpu: Seconds::default(),
            redactions: Counter::default(),
            artifacts: Counter::default(),
            connections: Counter::default(),
            connections_denied: Family::default(),
            egress: Family::default(),
            gauges: Gauges::default(),
            lately: Mutex::default(),
        };
        let help = "Sandboxes that did not end though they were killed";
        meters.registry.register("sandboxes_stuck", help, stuck.clone());
        meters.registered()
    }

    fn registered(mut self) -> Self {
        let (registry, gauges) = (&mut self.registry, &self.gauges);
        registry.register("executions", "Runs that have ended", self.executions.clone());
        registry.register("refusals", "Requests that were refused", self.refusals.clone());
        registry.register("limits_exceeded", "Runs that passed a limit", self.limits.clone());
        registry.register(
            "redactions",
            "Secrets taken out of what left",
            self.redactions.clone(),
        );
        registry.register(
            "artifacts",
            "Files that programs have left",
            self.artifacts.clone(),
        );
        registry.register(
            "egress_connections",
            "Connections that programs have opened",
            self.connections.clone(),
        );
        registry.register(
            "egress_denied",
            "What programs were refused of others, each kind once in a run",
            self.connections_denied.clone(),
        );
        registry.register("running", "Programs that run", gauges.running.clone());
        registry.register("waiting", "Requests that wait", gauges.waiting.clone());
        registry.register("ready", "Sandboxes that stand ready", gauges.ready.clone());
        registry.register(
            "not_recorded",
            "Actions that are not on the audit record",
            gauges.not_recorded.clone(),
        );
        let seconds = || Unit::Seconds;
        registry.register_with_unit(
            "execution_duration",
            "From acceptance to result",
            seconds(),
            self.durations.clone(),
        );
        registry.register("tool_calls", "Calls of tools", self.calls.clone());
        registry.register_with_unit(
            "tool_duration",
            "From a tool's call to its answer",
            seconds(),
            self.call_durations.clone(),
        );
        registry.register_with_unit(
            "memory_peak",
            "Most memory that a run took",
            Unit::Bytes,
            self.memory.clone(),
        );
        registry.register_with_unit("phase", "Where that time went", seconds(), self.phases.clone());
        registry.register_with_unit("cpu", "Processor time of programs", seconds(), self.cpu.clone());
        registry.register_with_unit("output", "Written by programs", Unit::Bytes, self.output.clone());
        registry.register_with_unit(
            "egress",
            "Sent and received by programs",
            Unit::Bytes,
            self.egress.clone(),
        );
        registry.register("sessions", "Sessions that live", gauges.sessions.clone());
        registry.register_with_unit(
            "artifacts_kept",
            "Size of the artifacts kept",
            Unit::Bytes,
            gauges.artifact_bytes.clone(),
        );
        self
    }

    /// What goes out of sandboxes.
    pub(crate) fn count_egress(&self, happened: &EgressEvent) {
        match happened {
            EgressEvent::Connected { .. } => {
                self.connections.inc();
            }
            EgressEvent::Denied { rule, .. } => {
                let rule = LabelText(rule.as_str());
                self.connections_denied.get_or_create(&Denied { rule }).inc();
            }
            EgressEvent::Closed {
                bytes_out, bytes_in, ..
            } => {
                for (direction, bytes) in [("out", bytes_out), ("in", bytes_in)] {
                    let direction = LabelText(direction);
                    self.egress.get_or_create(&Direction { direction }).inc_by(*bytes);
                }
            }
            EgressEvent::Request { .. } | EgressEvent::Untold { .. } => {}
        }
    }

    /// A run that has ended, one way or another.
    pub(crate) fn count_result(&self, result: &ExecutionResult) {
        let language = LabelText(result.language.as_str());
        let execution = Execution {
            language,
            outcome: LabelText(outcome(result)),
        };
        self.executions.get_or_create(&execution).inc();
        if let Some(limit) = &result.exit.limit {
            let limit = LabelText(limit_name(limit));
            self.limits.get_or_create(&Limit { limit }).inc();
        }
        for (stream, bytes) in [("stdout", result.stdout_bytes), ("stderr", result.stderr_bytes)] {
            let stream = LabelText(stream);
            self.output.get_or_create(&OfStream { stream }).inc_by(bytes);
        }
        self.artifacts.inc_by(result.artifacts.len() as u64);
    }

    pub(crate) fn count_redactions(&self, found: u64) {
        self.redactions.inc_by(found);
    }

    /// A request that has ended, run or refused.
    pub(crate) fn count_end(&self, ended: &Ended) {
        if let Some(code) = ended.refused {
            self.refusals
                .get_or_create(&Refusal {
                    code: LabelText(code),
                })
                .inc();
            return;
        }
        let language = ended.language.as_str();
        let of = OfLanguage {
            language: LabelText(language),
        };
        self.durations
            .get_or_create(&of)
            .observe(ended.duration_ms / 1000.0);
        let phases = &ended.phases;
        for (phase, ms) in [
            ("queued", phases.queued_ms),
            ("start", phases.start_ms),
            ("run", phases.run_ms),
            ("finish", phases.finish_ms),
        ] {
            let phase = LabelText(phase);
            self.phases.get_or_create(&Phase { phase }).inc_by(ms / 1000.0);
        }
        let usage = &ended.resource_usage;
        self.cpu
            .inc_by((usage.cpu_user_ms + usage.cpu_system_ms) / 1000.0);
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        push(lately.durations.entry(language).or_default(), ended.duration_ms);
        #[expect(clippy::cast_precision_loss, reason = "for statistics")]
        let peak = usage.max_rss_bytes as f64;
        push(lately.memory.entry(language).or_default(), peak);
        self.memory.get_or_create(&of).observe(peak);
    }

    /// A call of a tool that was answered.
    pub(crate) fn count_call(&self, tool: &str, end: CallEnd, took: Duration) {
        let outcome = LabelText(if end == CallEnd::Refused { "error" } else { "ok" });
        let tool = tool.to_owned();
        let call = Call {
            tool: tool.clone(),
            outcome,
        };
        self.calls.get_or_create(&call).inc();
        let of = OfTool { tool: tool.clone() };
        self.call_durations.get_or_create(&of).observe(took.as_secs_f64());
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = lately.tools.entry(tool).or_default();
        counted.calls += 1;
        counted.errors += u64::from(end == CallEnd::Refused);
        push(&mut counted.durations, took.as_secs_f64() * 1000.0);
    }

    /// OpenMetrics text.
    pub(crate) fn text(&self, present: &Present) -> String {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let gauges = &self.gauges;
        gauges.running.set(number(present.running as u64));
        gauges.waiting.set(number(present.waiting as u64));
        gauges.sessions.set(number(present.sessions as u64));
        gauges.artifact_bytes.set(number(present.artifact_bytes));
        gauges.not_recorded.set(number(present.not_recorded));
        for (language, ready) in &present.ready {
            let language = LabelText(language.as_str());
            gauges
                .ready
                .get_or_create(&OfLanguage { language })
                .set(number(*ready as u64));
        }
        let mut text = String::new();
        // Writing into a String does not fail.
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("the metrics cannot be written");
        }
        text
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut executions: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for language in Language::NAMES.map(|(_, language)| language.as_str()) {
            for outcome in OUTCOMES {
                let labels = Execution {
                    language: LabelText(language),
                    outcome: LabelText(outcome),
                };
                if let Some(count) = self.executions.get(&labels) {
                    let of_language = executions.entry(language.to_owned()).or_default();
                    of_language.insert(outcome.to_owned(), count.get());
                }
            }
        }
        let refusals = ringfence_types::ErrorCode::ALL.map(ringfence_types::ErrorCode::as_str);
        let refusals = refusals.into_iter().filter_map(|code| {
            let count = self
                .refusals
                .get(&Refusal {
                    code: LabelText(code),
                })?
                .get();
            Some((code.to_owned(), count))
        });
        let limits = ["timeout", "memory", "disk", "cpu", "file_size", "other"];
        let limits = limits.into_iter().filter_map(|limit| {
            let count = self
                .limits
                .get(&Limit {
                    limit: LabelText(limit),
                })?
                .get();
            Some((limit.to_owned(), count))
        });
        let written = |stream| {
            self.output
                .get_or_create(&OfStream {
                    stream: LabelText(stream),
                })
                .get()
        };
        let lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let of_languages = |samples: &BTreeMap<&'static str, VecDeque<f64>>| {
            let samples = samples.iter();
            let shown = samples.map(|(language, sample)| ((*language).to_owned(), percentiles(sample)));
            shown.collect()
        };
        let tools = lately.tools.iter().map(|(name, tool)| {
            let counts = ToolCounts {
                calls: tool.calls,
                errors: tool.errors,
                duration_ms: percentiles(&tool.durations),
            };
            (name.clone(), counts)
        });
        Counts {
            uptime_seconds: self.begun.elapsed().as_secs_f64(),
            executions,
            refusals: refusals.collect(),
            limits_exceeded: limits.collect(),
            duration_ms: of_languages(&lately.durations),
            memory_peak_bytes: of_languages(&lately.memory),
            tools: tools.collect(),
            cpu_seconds: self.cpu.get(),
            stdout_bytes: written("stdout"),
            stderr_bytes: written("stderr"),
            redactions: self.redactions.get(),
            artifacts: self.artifacts.get(),
        }
    }
}

/// By the nearest rank.
fn percentiles(sample: &VecDeque<f64>) -> Percentiles {
    let mut sorted: Vec<f64> = sample.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(rank).copied().unwrap_or_default()
    };
    Percentiles {
        count: sorted.len(),
        p50: at(50),
        p90: at(90),
        p99: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::{Phases, ResourceUsage};

    fn ended(duration_ms: f64, refused: Option<&'static str>) -> Ended {
        Ended {
            language: Language::Python,
            exit: None,
            exit_code: None,
            refused,
            duration_ms,
            phases: Phases::default(),
            resource_usage: ResourceUsage::default(),
        }
    }

    #[test]
    fn percentiles_are_of_the_last_thousand() {
        let meters = Metrics::new(&Counter::default());
        for number in 0..2000 {
            meters.count_end(&ended(f64::from(number), None));
        }
        let python = meters.counts().duration_ms["python"];
        assert_eq!((python.count, python.p50, python.p99), (1000, 1499.0, 1989.0));
    }

    #[test]
    fn what_is_counted_can_be_scraped() {
        let stuck = Counter::default();
        let meters = Metrics::new(&stuck);
        stuck.inc();
        meters.count_call("list_files", CallEnd::Answered, Duration::from_millis(2));
        meters.count_call("list_files", CallEnd::Refused, Duration::from_millis(4));
        let of_tool = meters.counts().tools["list_files"];
        assert_eq!(
            (of_tool.calls, of_tool.errors, of_tool.duration_ms.p50),
            (2, 1, 2.0)
        );
        meters.count_end(&ended(2.5, None));
        meters.count_end(&ended(0.0, Some("busy")));
        let present = Present {
            running: 3,
            ready: vec![(Language::Shell, 2)],
            ..Present::default()
        };
        let text = meters.text(&present);
        for line in [
            "ringfence_refusals_total{code=\"busy\"} 1\n",
            "ringfence_running 3\n",
            "ringfence_sandboxes_stuck_total 1\n",
            "ringfence_tool_calls_total{tool=\"list_files\",outcome=\"error\"} 1\n",
            "ringfence_tool_duration_seconds_count{tool=\"list_files\"} 2\n",
            "ringfence_memory_peak_bytes_count{language=\"python\"} 1\n",
            "ringfence_ready{language=\"shell\"} 2\n",
            "ringfence_execution_duration_seconds_bucket{le=\"0.003\",language=\"python\"} 1\n",
            "ringfence_execution_duration_seconds_count{language=\"python\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
