//! The client of a collector: OTLP over HTTP, protobuf, one connection for each batch. If the collector is down, the
//! batch is lost and, at most once a minute, a line is logged; only the sending thread waits for it.

use crate::{
    lock::lock,
    outgoing::{Destination, error_text},
};
use http_body_util::Full;
use hyper::{
    Request, Uri,
    body::Bytes,
    header::{CONNECTION, CONTENT_TYPE},
};
use opentelemetry_proto::{
    tonic::collector::{
        metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse},
        trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    },
    transform::{
        common::tonic::ResourceAttributesWithSchema, trace::tonic::group_spans_by_resource_and_scope,
    },
};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
    trace::{SpanData, SpanExporter},
};
use prost::Message;
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// Maximum time to send a batch, from name resolution to the end of the response.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// A response only reports the rejected part of a batch.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A collector; clones share the count of its failures.
#[derive(Clone)]
pub(super) struct Collector {
    destination: Arc<Destination>,
    /// Path before `/v1/traces`; empty, or without a trailing slash.
    base: String,
    /// The runtime for requests: the sending threads have none of their own.
    runtime: Handle,
    failures: Arc<Mutex<Failures>>,
}

#[derive(Default)]
struct Failures {
    logged: Option<Instant>,
    lost: u64,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({})", self.base)
    }
}

impl Collector {
    pub(super) fn at(address: &Uri) -> Result<Self, String> {
        Ok(Self {
            destination: Arc::new(Destination::host(address)?),
            base: address.path().trim_end_matches('/').to_owned(),
            runtime: Handle::current(),
            failures: Arc::default(),
        })
    }

    async fn send<A: Message + Default>(
        &self,
        path: &str,
        batch: Vec<u8>,
        rejected: impl FnOnce(A) -> i64,
    ) -> OTelSdkResult {
        let sent = self.post(path, batch).await;
        let taken = sent.and_then(|answer| match A::decode(answer).map(rejected) {
            Ok(rejected) if rejected > 0 => Err(format!("it rejected {rejected} entries")),
            // The batch was accepted, even if the response cannot be decoded.
            Ok(_) | Err(_) => Ok(()),
        });
        taken.map_err(|why| {
            if let Some(lost) = self.note_failure(Instant::now()) {
                tracing::warn!(
                    why,
                    lost,
                    "the collector does not take telemetry; runs go on without it"
                );
            }
            OTelSdkError::InternalFailure(why)
        })
    }

    /// Counts a failure. Returns the batches lost since the last log line if another line is due.
    fn note_failure(&self, now: Instant) -> Option<u64> {
        let mut failures = lock(&self.failures);
        failures.lost += 1;
        if failures
            .logged
            .is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL)
        {
            return None;
        }
        failures.logged = Some(now);
        Some(std::mem::take(&mut failures.lost))
    }

    async fn post(&self, path: &str, batch: Vec<u8>) -> Result<Bytes, String> {
        let path = format!("{}{path}", self.base);
        let exchange = exchange(self.destination.clone(), path, batch);
        // Spawned, because the timer needs the runtime, too.
        let posted = self
            .runtime
            .spawn(async { tokio::time::timeout(SEND_TIMEOUT, exchange).await });
        match posted.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("it did not answer in time".to_owned()),
            Err(_) => Err("the server is stopping".to_owned()),
        }
    }
}

async fn exchange(destination: Arc<Destination>, path: String, batch: Vec<u8>) -> Result<Bytes, String> {
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONNECTION, "close")
        .body(Full::from(batch))
        .map_err(error_text)?;
    destination.send(request).await?.success(ANSWER_BYTES_MAX).await
}

#[derive(Debug)]
pub(super) struct Spans {
    pub(super) collector: Collector,
    pub(super) resource: ResourceAttributesWithSchema,
}

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let rejected = |answer: ExportTraceServiceResponse| {
            answer.partial_success.map_or(0, |partial| partial.rejected_spans)
        };
        self.collector
            .send("/v1/traces", request.encode_to_vec(), rejected)
            .await
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

pub(super) struct Points(pub(super) Collector);

impl PushMetricExporter for Points {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let request = ExportMetricsServiceRequest::from(metrics);
        let rejected = |answer: ExportMetricsServiceResponse| {
            answer
                .partial_success
                .map_or(0, |partial| partial.rejected_data_points)
        };
        self.0
            .send("/v1/metrics", request.encode_to_vec(), rejected)
            .await
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _patience: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// Starts a collector that reads a request and sends this response.
    async fn answering(answer: &'static [u8]) -> Collector {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", socket.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = socket.accept().await.unwrap();
                let mut head = [0; 1024];
                assert!(stream.read(&mut head).await.unwrap() > 0);
                stream.write_all(answer).await.unwrap();
            }
        });
        Collector::at(&address.parse().unwrap()).unwrap()
    }

    async fn posted(answer: &'static [u8]) -> Result<Bytes, String> {
        answering(answer).await.post("/v1/traces", b"x".to_vec()).await
    }

    #[tokio::test]
    async fn collector_response_is_read_and_bounded() {
        let taken = posted(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        assert_eq!(taken.unwrap(), "ok");
        let refused = posted(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
        assert!(refused.unwrap_err().contains("503"));
        assert!(posted(b"nonsense\r\n\r\n").await.is_err());
        assert!(
            posted(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
                .await
                .is_err()
        );
        let endless = [
            b"HTTP/1.1 200 OK\r\n\r\n".as_slice(),
            &[b'x'; ANSWER_BYTES_MAX + 1],
        ]
        .concat();
        assert!(posted(endless.leak()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn silent_collector_times_out() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", socket.local_addr().unwrap());
        let silent = Collector::at(&address.parse().unwrap()).unwrap();
        let error = silent.post("/v1/traces", Vec::new()).await.unwrap_err();
        assert!(error.contains("in time"), "{error}");
    }

    #[tokio::test]
    async fn failures_are_logged_once_a_minute_with_the_batches_lost() {
        let collector = Collector::at(&Uri::from_static("http://127.0.0.1:1")).unwrap();
        let begun = Instant::now();
        assert_eq!(collector.note_failure(begun), Some(1));
        assert_eq!(collector.note_failure(begun + LOG_INTERVAL / 2), None);
        assert_eq!(collector.note_failure(begun + LOG_INTERVAL), Some(2));
    }
}
