//! Spans that a collector gets, kept in memory by an exporter of these tests; a collector that does not respond.

use super::*;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use ringfence_types::{Language, Phases, ResourceUsage};

/// An exporter that keeps the spans.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

fn ended(exit: Option<ExitKind>, refused: Option<&'static str>) -> Ended {
    Ended {
        language: Language::Python,
        exit,
        exit_code: exit.map(|_| 3),
        refused,
        duration_ms: 30.0,
        phases: Phases {
            queued_ms: 1.0,
            start_ms: 2.0,
            run_ms: 20.0,
            finish_ms: 4.0,
        },
        resource_usage: ResourceUsage::default(),
    }
}

fn event(kind: EventKind) -> Event {
    Event {
        number: 1,
        time_ms: 1_000_000,
        namespace: "team".to_owned(),
        execution_id: Some("id".to_owned()),
        kind,
    }
}

/// The spans of one event, in the order in which they end.
fn spans(kind: EventKind) -> Vec<SpanData> {
    let kept = Kept::default();
    let traces = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_simple_exporter(kept.clone())
        .build();
    let points = SdkMeterProvider::builder().build();
    let event = event(kind);
    Instruments::new(&traces, &points).record(&event, 0);
    let spans = kept.0.lock().unwrap();
    spans.clone()
}

fn since_ms(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[test]
fn execution_is_a_span_and_its_phases_are_consecutive_child_spans() {
    let spans = spans(EventKind::ExecutionCompleted(ended(Some(ExitKind::Code), None)));
    let times: Vec<(&str, u128, u128)> = spans
        .iter()
        .map(|span| {
            (
                span.name.as_ref(),
                since_ms(span.start_time),
                since_ms(span.end_time),
            )
        })
        .collect();
    assert_eq!(
        times,
        [
            ("queued", 999_970, 999_971),
            ("start", 999_971, 999_973),
            ("run", 999_973, 999_993),
            ("finish", 999_993, 999_997),
            ("execution", 999_970, 1_000_000),
        ]
    );
    let (whole, phases) = spans.split_last().unwrap();
    for phase in phases {
        assert_eq!(phase.parent_span_id, whole.span_context.span_id());
        assert_eq!(phase.span_context.trace_id(), whole.span_context.trace_id());
    }
    assert_eq!(whole.status, Status::Unset);
    let attribute = |name: &str| {
        let found = whole.attributes.iter().find(|pair| pair.key.as_str() == name);
        found.map(|pair| pair.value.to_string())
    };
    for (name, value) in [
        ("ringfence.execution_id", "id"),
        ("ringfence.namespace", "team"),
        ("ringfence.language", "python"),
        ("ringfence.exit", "code"),
        ("ringfence.exit_code", "3"),
    ] {
        assert_eq!(attribute(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(attribute("ringfence.refused"), None);
}

#[test]
fn failed_execution_has_an_error_status_in_fixed_words() {
    let check = |kind: EventKind, expect: &'static str| {
        let spans = spans(kind);
        assert_eq!(spans.last().unwrap().status, Status::error(expect));
    };
    check(
        EventKind::ExecutionFailed(ended(Some(ExitKind::Code), None)),
        "code",
    );
    check(
        EventKind::ExecutionFailed(ended(Some(ExitKind::OutOfMemory), None)),
        "out_of_memory",
    );
    check(
        EventKind::ExecutionTimeout(ended(Some(ExitKind::Timeout), None)),
        "timeout",
    );
    check(EventKind::ExecutionFailed(ended(None, Some("busy"))), "busy");
}

#[test]
fn refused_execution_has_only_the_phases_it_reached() {
    let mut refused = ended(None, Some("policy_denied"));
    refused.phases = Phases {
        queued_ms: 5.0,
        ..Phases::default()
    };
    let spans = spans(EventKind::ExecutionFailed(refused));
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["queued", "execution"]);
}

#[test]
fn invalid_durations_yield_no_span_that_ends_before_it_begins() {
    for ms in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        let mut odd = ended(Some(ExitKind::Code), None);
        odd.phases.run_ms = ms;
        odd.duration_ms = ms;
        for span in spans(EventKind::ExecutionCompleted(odd)) {
            assert!(span.start_time <= span.end_time, "{span:?}");
        }
    }
}

#[tokio::test]
async fn silent_collector_delays_no_execution_and_shutdown_only_up_to_the_limit() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let telemetry = Telemetry::begin(&address.parse().unwrap()).unwrap();
    let event = event(EventKind::ExecutionCompleted(ended(Some(ExitKind::Code), None)));
    let begun = std::time::Instant::now();
    // Five spans each: three times the queue.
    for _ in 0..SPANS_WAITING_MAX * 3 / 5 {
        telemetry.instruments.record(&event, 0);
    }
    let noted = begun.elapsed();
    telemetry.finish().await;
    let finished = begun.elapsed() - noted;
    assert!(noted < Duration::from_secs(5), "{noted:?}");
    assert!(
        finished < SHUTDOWN_TIMEOUT + Duration::from_millis(500),
        "{finished:?}"
    );
}
