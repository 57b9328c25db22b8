//! Serves the engine's counters at `GET /metrics`, as OpenMetrics text. The text names no namespace and no program, so
//! it needs no authentication; the operator chooses the address.

use crate::settings::refusal;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use ringfence_engine::Engine;
use ringfence_types::RequestError;
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Further connections wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of the request line with all headers; hyper accepts no smaller limit.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Pause after a connection could not be accepted, which happens when descriptors have run out.
const RECOVERY: Duration = Duration::from_secs(1);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Binds the address; an error stops the server before it starts.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, RequestError> {
    let socket = TcpListener::bind(address).await.map_err(|error| {
        refusal(
            format!("metrics cannot be served at {address}: {error}."),
            "Choose an address of this host and a free port (`metrics.listen`, --metrics-listen), or `off`.",
        )
    })?;
    let address = socket.local_addr().unwrap_or(address);
    tracing::info!(%address, "metrics are answered");
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "metrics are readable by everyone who reaches this address: it is not a loopback address");
    }
    Ok(socket)
}

pub(crate) async fn serve(socket: TcpListener, engine: Engine) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = permits.clone().acquire_owned().await {
        match socket.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(handle_connection(stream, engine.clone(), permit))),
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics was not accepted");
                tokio::time::sleep(RECOVERY).await;
            }
        }
    }
}

async fn handle_connection(stream: TcpStream, engine: Engine, _permit: OwnedSemaphorePermit) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), || engine.metrics());
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for metrics was broken"),
        Err(_) => tracing::debug!("a request for metrics took too long"),
    }
}

fn answer(method: &Method, path: &str, metrics: impl FnOnce() -> String) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (path, method) {
        ("/metrics", &Method::GET | &Method::HEAD) => (StatusCode::OK, OPEN_METRICS, metrics()),
        ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "Use GET.\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, PLAIN, "There is /metrics.\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::ErrorCode;

    #[test]
    fn only_get_and_head_of_metrics_are_answered() {
        let check = |method: Method, path: &str, status: u16| {
            let answer = answer(&method, path, String::new);
            assert_eq!(answer.status().as_u16(), status, "{method} {path}");
            assert_eq!(answer.headers().contains_key(ALLOW), status == 405);
        };
        check(Method::GET, "/metrics", 200);
        check(Method::HEAD, "/metrics", 200);
        check(Method::POST, "/metrics", 405);
        check(Method::GET, "/", 404);
        check(Method::GET, "/metrics/", 404);
        check(Method::GET, "//metrics", 404);
        check(Method::POST, "/metrics/../metrics", 404);
    }

    #[tokio::test]
    async fn error_of_a_used_address_names_the_address() {
        let first = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(address).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidConfiguration);
        assert!(error.message.contains(&address.to_string()), "{error}");
    }
}
