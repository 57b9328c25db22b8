//! Metrics, as the operator's monitoring reads them (OpenMetrics) and as the tools report them.

use crate::{events::Ended, sync::lock};
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry, Unit},
};
use ringfence_egress::EgressEvent;
use ringfence_types::{ErrorCode, ExecutionResult, ExitKind, Language};
use serde::Serialize;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// Maximum samples from which percentiles are computed.
const DURATIONS_MAX: usize = 1000;
/// Bytes: from an empty shell to the usual maximum.
const MEMORY_BUCKETS: [f64; 9] = [8e6, 16e6, 32e6, 64e6, 128e6, 256e6, 512e6, 1e9, 4e9];
/// Seconds: from a warm shell to the longest usual wait.
const BUCKETS: [f64; 13] = [
    0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
];

type Label<Value = &'static str> = (&'static str, Value);
type Counters<const LABELS: usize> = Family<[Label; LABELS], Counter>;
type Histograms<Value> = Family<[Label<Value>; 1], Histogram, fn() -> Histogram>;
type Seconds = Counter<f64, AtomicU64>;

#[derive(Default)]
struct RecentSamples {
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

pub(crate) struct Metrics {
    registry: Registry,
    started: Instant,
    executions: Counters<2>,
    refusals: Counters<1>,
    durations: Histograms<&'static str>,
    memory: Histograms<&'static str>,
    calls: Family<[Label<String>; 2], Counter>,
    call_durations: Histograms<String>,
    phases: Family<[Label; 1], Seconds>,
    limits: Counters<1>,
    output: Counters<1>,
    cpu: Seconds,
    redactions: Counter,
    artifacts: Counter,
    connections: Counter,
    connections_denied: Counters<1>,
    egress: Counters<1>,
    pub(crate) running: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) sessions: Gauge,
    pub(crate) artifact_bytes: Gauge,
    pub(crate) not_recorded: Gauge,
    ready: Family<[Label; 1], Gauge>,
    recent: Mutex<RecentSamples>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// Since the engine started.
    pub uptime_seconds: f64,
    /// Runs that have ended, by language and outcome.
    pub executions: BTreeMap<String, BTreeMap<String, u64>>,
    /// Requests that were refused, by code.
    pub refusals: BTreeMap<String, u64>,
    /// Runs that exceeded a limit, by limit.
    pub limits_exceeded: BTreeMap<String, u64>,
    /// Durations in milliseconds of the last thousand runs of each language.
    pub duration_ms: BTreeMap<String, Percentiles>,
    /// Peak memory of each of these runs, in bytes.
    pub memory_peak_bytes: BTreeMap<String, Percentiles>,
    pub tools: BTreeMap<String, ToolCounts>,
    /// Processor time of all programs.
    pub cpu_seconds: f64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Secrets removed from results.
    pub redactions: u64,
    pub artifacts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// Answered, even if a program failed.
    Answered,
    /// Ended with an error of the server.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ToolCounts {
    pub calls: u64,
    /// Calls that were refused or failed. A program that fails does not count.
    pub errors: u64,
    /// Durations in milliseconds of the last thousand calls.
    pub duration_ms: Percentiles,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub count: usize,
    pub p50: f64,
    pub p90: f64,
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

pub(crate) fn outcome(result: &ExecutionResult) -> &'static str {
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

const LIMITS: [&str; 7] = ["timeout", "memory", "disk", "cpu", "file_size", "locks", "other"];

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn in_seconds<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn in_bytes<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

fn histograms<Value>(each: fn() -> Histogram) -> Histograms<Value>
where
    [Label<Value>; 1]: Clone + Eq + std::hash::Hash,
{
    Family::new_with_constructor(each)
}

impl Metrics {
    /// Registers all metrics. The backend counts `stuck`.
    pub(crate) fn new(stuck: &Counter) -> Self {
        let mut registry = Registry::with_prefix("ringfence");
        let all = &mut registry;
        let help = "Sandboxes that did not end although they were killed";
        all.register("sandboxes_stuck", help, stuck.clone());
        let durations = || Histogram::new(BUCKETS);
        let sizes = || Histogram::new(MEMORY_BUCKETS);
        let from_acceptance = "From acceptance to result";
        let from_call = "From a tool's call to its answer";
        let kinds_denied = "Destinations denied to programs, each kind once per run";
        let peak_memory = "Peak memory of a run";
        let traffic = "Sent and received by programs";
        Self {
            started: Instant::now(),
            executions: add(all, "executions", "Runs that have ended"),
            refusals: add(all, "refusals", "Requests that were refused"),
            limits: add(all, "limits_exceeded", "Runs that exceeded a limit"),
            redactions: add(all, "redactions", "Secrets removed from results"),
            artifacts: add(all, "artifacts", "Files that programs have left"),
            connections: add(all, "egress_connections", "Connections that programs have opened"),
            connections_denied: add(all, "egress_denied", kinds_denied),
            running: add(all, "running", "Running programs"),
            waiting: add(all, "waiting", "Waiting requests"),
            ready: add(all, "ready", "Ready sandboxes"),
            not_recorded: add(all, "not_recorded", "Actions that could not be audited"),
            durations: in_seconds(all, "execution_duration", from_acceptance, histograms(durations)),
            calls: add(all, "tool_calls", "Calls of tools"),
            call_durations: in_seconds(all, "tool_duration", from_call, histograms(durations)),
            memory: in_bytes(all, "memory_peak", peak_memory, histograms(sizes)),
            phases: in_seconds(all, "phase", "Time of executions by phase", Family::default()),
            cpu: in_seconds(all, "cpu", "Processor time of programs", Seconds::default()),
            output: in_bytes(all, "output", "Written by programs", Family::default()),
            egress: in_bytes(all, "egress", traffic, Family::default()),
            sessions: add(all, "sessions", "Live sessions"),
            artifact_bytes: in_bytes(
                all,
                "artifacts_kept",
                "Size of the artifacts kept",
                Gauge::default(),
            ),
            recent: Mutex::default(),
            registry,
        }
    }

    pub(crate) fn count_egress(&self, event: &EgressEvent) {
        match event {
            EgressEvent::Connected(_) => {
                self.connections.inc();
            }
            EgressEvent::Denied(refusal) => {
                let denied = [("rule", refusal.rule.as_str())];
                self.connections_denied.get_or_create(&denied).inc();
            }
            EgressEvent::Closed {
                bytes_out, bytes_in, ..
            } => {
                for (direction, bytes) in [("out", bytes_out), ("in", bytes_in)] {
                    self.egress
                        .get_or_create(&[("direction", direction)])
                        .inc_by(*bytes);
                }
            }
            EgressEvent::Request { .. } | EgressEvent::Untold { .. } => {}
        }
    }

    pub(crate) fn count_result(&self, result: &ExecutionResult) {
        let execution = [
            ("language", result.language.as_str()),
            ("outcome", outcome(result)),
        ];
        self.executions.get_or_create(&execution).inc();
        if let Some(limit) = &result.exit.limit {
            let known = LIMITS.into_iter().find(|known| *known == limit.as_str());
            let of = [("limit", known.unwrap_or("other"))];
            self.limits.get_or_create(&of).inc();
        }
        for (stream, bytes) in [("stdout", result.stdout_bytes), ("stderr", result.stderr_bytes)] {
            self.output.get_or_create(&[("stream", stream)]).inc_by(bytes);
        }
        self.artifacts.inc_by(result.artifacts.len() as u64);
    }

    pub(crate) fn count_redactions(&self, found: u64) {
        self.redactions.inc_by(found);
    }

    /// Counts a request that has ended, after a run or by a refusal.
    pub(crate) fn count_end(&self, ended: &Ended) {
        if let Some(code) = ended.refused {
            self.refusals.get_or_create(&[("code", code)]).inc();
            return;
        }
        let language = ended.language.as_str();
        let of = [("language", language)];
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
            self.phases.get_or_create(&[("phase", phase)]).inc_by(ms / 1000.0);
        }
        let usage = &ended.resource_usage;
        self.cpu
            .inc_by((usage.cpu_user_ms + usage.cpu_system_ms) / 1000.0);
        let mut recent = lock(&self.recent);
        push(recent.durations.entry(language).or_default(), ended.duration_ms);
        #[expect(clippy::cast_precision_loss, reason = "for statistics")]
        let peak = usage.max_rss_bytes as f64;
        push(recent.memory.entry(language).or_default(), peak);
        self.memory.get_or_create(&of).observe(peak);
    }

    pub(crate) fn count_call(&self, tool: &str, end: CallEnd, took: Duration) {
        let outcome = if end == CallEnd::Refused { "error" } else { "ok" };
        let tool = tool.to_owned();
        let call = [("tool", tool.clone()), ("outcome", outcome.to_owned())];
        self.calls.get_or_create(&call).inc();
        let of = [("tool", tool.clone())];
        self.call_durations.get_or_create(&of).observe(took.as_secs_f64());
        let mut recent = lock(&self.recent);
        let counted = recent.tools.entry(tool).or_default();
        counted.calls += 1;
        counted.errors += u64::from(end == CallEnd::Refused);
        push(&mut counted.durations, took.as_secs_f64() * 1000.0);
    }

    /// Returns the OpenMetrics text, after setting the gauges to the present values and the numbers of ready sandboxes.
    pub(crate) fn text(
        &self,
        present: &[(&Gauge, u64)],
        ready: impl IntoIterator<Item = (Language, usize)>,
    ) -> String {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for (gauge, count) in present {
            gauge.set(number(*count));
        }
        for (language, ready) in ready {
            let of = [("language", language.as_str())];
            self.ready.get_or_create(&of).set(number(ready as u64));
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
                let labels = [("language", language), ("outcome", outcome)];
                if let Some(count) = self.executions.get(&labels) {
                    let of_language = executions.entry(language.to_owned()).or_default();
                    of_language.insert(outcome.to_owned(), count.get());
                }
            }
        }
        let counted = |family: &Counters<1>, label, values: &[&'static str]| {
            let count =
                |value: &&'static str| Some(((*value).to_owned(), family.get(&[(label, *value)])?.get()));
            values.iter().filter_map(count).collect::<BTreeMap<_, _>>()
        };
        let written = |stream| self.output.get_or_create(&[("stream", stream)]).get();
        let recent = lock(&self.recent);
        let of_languages = |samples: &BTreeMap<&'static str, VecDeque<f64>>| {
            let samples = samples.iter();
            let percentiles = samples.map(|(language, sample)| ((*language).to_owned(), percentiles(sample)));
            percentiles.collect()
        };
        let tools = recent.tools.iter().map(|(name, tool)| {
            let counts = ToolCounts {
                calls: tool.calls,
                errors: tool.errors,
                duration_ms: percentiles(&tool.durations),
            };
            (name.clone(), counts)
        });
        Counts {
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            executions,
            refusals: counted(&self.refusals, "code", ErrorCode::WORDS),
            limits_exceeded: counted(&self.limits, "limit", &LIMITS),
            duration_ms: of_languages(&recent.durations),
            memory_peak_bytes: of_languages(&recent.memory),
            tools: tools.collect(),
            cpu_seconds: self.cpu.get(),
            stdout_bytes: written("stdout"),
            stderr_bytes: written("stderr"),
            redactions: self.redactions.get(),
            artifacts: self.artifacts.get(),
        }
    }
}

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
    fn percentiles_cover_the_last_thousand_runs() {
        let metrics = Metrics::new(&Counter::default());
        for number in 0..2000 {
            metrics.count_end(&ended(f64::from(number), None));
        }
        let python = metrics.counts().duration_ms["python"];
        assert_eq!((python.count, python.p50, python.p99), (1000, 1499.0, 1989.0));
    }

    #[test]
    fn counts_are_exported_as_openmetrics() {
        let stuck = Counter::default();
        let metrics = Metrics::new(&stuck);
        stuck.inc();
        metrics.count_call("list_files", CallEnd::Answered, Duration::from_millis(2));
        metrics.count_call("list_files", CallEnd::Refused, Duration::from_millis(4));
        let of_tool = metrics.counts().tools["list_files"];
        assert_eq!(
            (of_tool.calls, of_tool.errors, of_tool.duration_ms.p50),
            (2, 1, 2.0)
        );
        metrics.count_end(&ended(2.5, None));
        metrics.count_end(&ended(0.0, Some("busy")));
        let text = metrics.text(&[(&metrics.running, 3)], [(Language::Shell, 2)]);
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
