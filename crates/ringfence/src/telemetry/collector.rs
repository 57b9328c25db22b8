//! The way to a collector: OTLP over HTTP, protobuf, one connection for each batch. A collector that is down costs a
//! batch and, once in a minute at most, a line in the log; nothing waits for it but the thread that sends.

use crate::{
    lock::lock,
    outgoing::{Destination, said},
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

/// For one batch, from the name of the host to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A collector says no more than which part it did not take.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Between two lines of the log about a collector that takes nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// A collector; clones share what is known of its trouble.
#[derive(Clone)]
pub(super) struct Collector {
    destination: Arc<Destination>,
    /// Before `/v1/traces`; empty or without a slash at its end.
    base: String,
    /// The threads that send have none of their own.
    runtime: Handle,
    trouble: Arc<Mutex<Trouble>>,
}

#[derive(Default)]
struct Trouble {
    told: Option<Instant>,
    lost: u64,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({})", self.base)
    }
}

impl Collector {
    /// Sends from the caller's runtime.
    pub(super) fn at(address: &Uri) -> Result<Self, String> {
        Ok(Self {
            destination: Arc::new(Destination::host(address)?),
            base: address.path().trim_end_matches('/').to_owned(),
            runtime: Handle::current(),
            trouble: Arc::default(),
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
            // What it took it took, whatever it says of that.
            Ok(_) | Err(_) => Ok(()),
        });
        taken.map_err(|why| {
            if let Some(lost) = self.note_trouble(Instant::now()) {
                tracing::warn!(
                    why,
                    lost,
                    "the collector does not take telemetry; runs go on without it"
                );
            }
            OTelSdkError::InternalFailure(why)
        })
    }

    /// How many batches were lost since the last line, when it is time for another.
    fn note_trouble(&self, now: Instant) -> Option<u64> {
        let mut trouble = lock(&self.trouble);
        trouble.lost += 1;
        if trouble
            .told
            .is_some_and(|told| now.duration_since(told) < SILENCE)
        {
            return None;
        }
        trouble.told = Some(now);
        Some(std::mem::take(&mut trouble.lost))
    }

    async fn post(&self, path: &str, batch: Vec<u8>) -> Result<Bytes, String> {
        let path = format!("{}{path}", self.base);
        let exchange = exchange(self.destination.clone(), path, batch);
        // The clock is the runtime's, too.
        let posted = self
            .runtime
            .spawn(async { tokio::time::timeout(PATIENCE, exchange).await });
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
        .map_err(said)?;
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

    /// A collector that reads a request and says this.
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
    async fn what_a_collector_answers_is_read_and_bounded() {
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
    async fn a_collector_that_says_nothing_is_not_waited_for() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", socket.local_addr().unwrap());
        let silent = Collector::at(&address.parse().unwrap()).unwrap();
        let error = silent.post("/v1/traces", Vec::new()).await.unwrap_err();
        assert!(error.contains("in time"), "{error}");
    }

    #[tokio::test]
    async fn trouble_is_told_once_in_a_minute_with_what_was_lost() {
        let collector = Collector::at(&Uri::from_static("http://127.0.0.1:1")).unwrap();
        let begun = Instant::now();
        assert_eq!(collector.note_trouble(begun), Some(1));
        assert_eq!(collector.note_trouble(begun + SILENCE / 2), None);
        assert_eq!(collector.note_trouble(begun + SILENCE), Some(2));
    }
}
