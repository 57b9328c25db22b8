//! OpenTelemetry: sends a span for each execution with its phases, and metrics, to a collector that the operator names.
//! It subscribes to the engine's events, so that no run waits for it.

mod collector;

use crate::lock::lock;
use collector::{Collector, Points, Spans};
use hyper::Uri;
use opentelemetry::{
    Context, KeyValue,
    metrics::{Counter, Histogram, MeterProvider},
    trace::{SpanBuilder, Status, TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, RandomIdGenerator, Sampler, SdkTracer, SdkTracerProvider,
    },
};
use ringfence_engine::{Ended, Engine, Event, EventKind, Hears, Subscriber};
use ringfence_types::ExitKind;
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Spans queued for the collector; further spans are dropped. An execution has five.
const SPANS_WAITING_MAX: usize = 8192;
const SPANS_IN_BATCH_MAX: usize = 512;
const SPANS_EVERY: Duration = Duration::from_secs(5);
const POINTS_EVERY: Duration = Duration::from_secs(30);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Upper bounds in seconds; a warm run takes a few milliseconds, the longest an hour.
const BOUNDS: [f64; 14] = [
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0, 3600.0,
];
const SCOPE: &str = "ringfence";

pub(crate) struct Telemetry {
    traces: SdkTracerProvider,
    points: SdkMeterProvider,
    instruments: Instruments,
    stop: CancellationToken,
    following: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone)]
struct Instruments {
    tracer: SdkTracer,
    executions: Counter<u64>,
    durations: Histogram<f64>,
    missed: Counter<u64>,
}

impl Telemetry {
    /// Sends from the current runtime. All options are set here, none by the environment. None: the reason is logged.
    pub(crate) fn begin(address: &Uri) -> Option<Arc<Self>> {
        let collector = Collector::at(address)
            .inspect_err(|why| tracing::error!(why, "no telemetry is sent"))
            .ok()?;
        let resource = Resource::builder_empty()
            .with_service_name("ringfence")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(SPANS_WAITING_MAX)
            .with_max_export_batch_size(SPANS_IN_BATCH_MAX)
            .with_scheduled_delay(SPANS_EVERY)
            .build();
        let spans = Spans {
            collector: collector.clone(),
            resource: (&resource).into(),
        };
        let traces = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_id_generator(RandomIdGenerator::default())
            .with_resource(resource.clone())
            .with_span_processor(
                BatchSpanProcessor::builder(spans)
                    .with_batch_config(batches)
                    .build(),
            )
            .build();
        let reader = PeriodicReader::builder(Points(collector)).with_interval(POINTS_EVERY);
        let points = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_reader(reader.build())
            .build();
        Some(Arc::new(Self {
            instruments: Instruments::new(&traces, &points),
            traces,
            points,
            stop: CancellationToken::new(),
            following: Mutex::default(),
        }))
    }

    pub(crate) fn follow(&self, engine: &Engine) {
        let events = engine.subscribe(Hears::AllButOutput);
        let following = follow(events, self.instruments.clone(), self.stop.clone());
        *lock(&self.following) = Some(tokio::spawn(following));
    }

    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        let following = lock(&self.following).take();
        let (traces, points) = (self.traces.clone(), self.points.clone());
        let sent = async {
            if let Some(following) = following {
                drop(following.await);
            }
            // Each provider has a thread that waits for the collector; its shutdown blocks until the thread has ended.
            let traces = tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
            let points = tokio::task::spawn_blocking(move || points.shutdown());
            drop(tokio::join!(traces, points));
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, sent).await.is_err() {
            tracing::warn!("the last telemetry could not be sent in time");
        }
    }
}

async fn follow(mut events: Subscriber, instruments: Instruments, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            event = events.next() => match event {
                Some(event) => instruments.record(&event, events.missed()),
                None => return,
            },
            () = stop.cancelled() => break,
        }
    }
    // Events published before the stop are still sent.
    while let Ok(Some(event)) =
        tokio::time::timeout(Duration::ZERO, tokio::task::unconstrained(events.next())).await
    {
        instruments.record(&event, events.missed());
    }
}

impl Instruments {
    fn new(traces: &SdkTracerProvider, points: &SdkMeterProvider) -> Self {
        let meter = points.meter(SCOPE);
        Self {
            tracer: traces.tracer(SCOPE),
            executions: meter
                .u64_counter("ringfence.executions")
                .with_description("Executions that have ended, refused ones included.")
                .with_unit("{execution}")
                .build(),
            durations: meter
                .f64_histogram("ringfence.execution.duration")
                .with_description("From acceptance to result.")
                .with_unit("s")
                .with_boundaries(BOUNDS.to_vec())
                .build(),
            missed: meter
                .u64_counter("ringfence.events.missed")
                .with_description("Events lost because they came faster than they were processed.")
                .with_unit("{event}")
                .build(),
        }
    }

    fn record(&self, event: &Event, missed: u64) {
        if missed > 0 {
            self.missed.add(missed, &[]);
        }
        let (EventKind::ExecutionCompleted(ended)
        | EventKind::ExecutionFailed(ended)
        | EventKind::ExecutionTimeout(ended)) = &event.kind
        else {
            return;
        };
        let language = KeyValue::new("ringfence.language", ended.language.as_str());
        let outcome = KeyValue::new("ringfence.outcome", outcome(event));
        self.executions.add(1, &[language.clone(), outcome]);
        if ended.refused.is_none() {
            self.durations.record(ended.duration_ms / 1000.0, &[language]);
        }
        self.trace(event, ended);
    }

    /// The phases follow each other from the start; between the last one and the end the audit record is written.
    fn trace(&self, event: &Event, ended: &Ended) {
        let end = UNIX_EPOCH + Duration::from_millis(event.time_ms);
        let begun = end.checked_sub(length(ended.duration_ms)).unwrap_or(end);
        let span = self
            .tracer
            .build_with_context(execution(event, ended, begun), &Context::new());
        let context = Context::new().with_span(span);
        let phases = &ended.phases;
        let mut at = begun;
        for (name, ms) in [
            ("queued", phases.queued_ms),
            ("start", phases.start_ms),
            ("run", phases.run_ms),
            ("finish", phases.finish_ms),
        ] {
            // A refused execution did not reach all phases.
            if ended.refused.is_some() && ms <= 0.0 {
                continue;
            }
            let until = (at + length(ms)).min(end);
            let phase = SpanBuilder::from_name(name).with_start_time(at);
            let mut phase = self.tracer.build_with_context(phase, &context);
            opentelemetry::trace::Span::end_with_timestamp(&mut phase, until);
            at = until;
        }
        let span = context.span();
        if let Some(why) = failure(event, ended) {
            span.set_status(Status::error(why));
        }
        span.end_with_timestamp(end);
    }
}

fn execution(event: &Event, ended: &Ended, begun: SystemTime) -> SpanBuilder {
    let mut attributes = vec![
        KeyValue::new("ringfence.namespace", event.namespace.clone()),
        KeyValue::new("ringfence.language", ended.language.as_str()),
    ];
    let mut add = |name: &'static str, value: Option<opentelemetry::Value>| {
        attributes.extend(value.map(|value| KeyValue::new(name, value)));
    };
    add(
        "ringfence.execution_id",
        event.execution_id.clone().map(Into::into),
    );
    add("ringfence.exit", ended.exit.map(exit).map(Into::into));
    add(
        "ringfence.exit_code",
        ended.exit_code.map(i64::from).map(Into::into),
    );
    add("ringfence.refused", ended.refused.map(Into::into));
    SpanBuilder::from_name("execution")
        .with_start_time(begun)
        .with_attributes(attributes)
}

/// Returns the error status of a failed execution, in Ringfence's own words, never those of a program or a caller.
fn failure(event: &Event, ended: &Ended) -> Option<String> {
    match (&event.kind, ended.exit) {
        (EventKind::ExecutionCompleted(_), _) => None,
        (_, Some(kind)) => Some(exit(kind)),
        (_, None) => Some(ended.refused.unwrap_or("failed").to_owned()),
    }
}

fn outcome(event: &Event) -> &'static str {
    match &event.kind {
        EventKind::ExecutionCompleted(_) => "completed",
        EventKind::ExecutionTimeout(_) => "timeout",
        EventKind::ExecutionFailed(ended) if ended.refused.is_some() => "refused",
        _ => "failed",
    }
}

fn exit(kind: ExitKind) -> String {
    json!(kind).as_str().unwrap_or_default().to_owned()
}

fn length(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()
}

#[cfg(test)]
mod tests;
