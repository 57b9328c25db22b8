//! One request and its answer over one connection: HTTP/1.1, with or without TLS. Nothing is decoded here.

use crate::{Dial, DialError, Stream, Target};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{HOST, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

/// The `User-Agent` header.
pub(crate) const AGENT: &str = concat!("Ringfence/", env!("CARGO_PKG_VERSION"));
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

pub(crate) struct Exchange {
    pub(crate) to: Target,
    pub(crate) method: &'static str,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Vec<u8>,
    /// Maximum bytes of the answer's body on the wire.
    pub(crate) wire_bytes_max: usize,
    pub(crate) until: Instant,
}

/// An answer, whole or cut at the limit.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// True if the body was longer than the limit.
    pub(crate) is_cut: bool,
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    #[error("{0}")]
    Refused(DialError),
    /// The certificate or the handshake failed.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// It is not HTTP, or it ended too early.
    #[error("its answer is not complete HTTP: {0}")]
    Http(String),
    #[error("it took too long")]
    TimedOut,
}

impl Exchange {
    pub(crate) async fn run(self, dial: &dyn Dial, tls: &Arc<ClientConfig>) -> Result<Answer, ExchangeError> {
        let until = self.until;
        timeout_at(until, self.perform(dial, tls))
            .await
            .unwrap_or(Err(ExchangeError::TimedOut))
    }

    async fn perform(self, dial: &dyn Dial, tls: &Arc<ClientConfig>) -> Result<Answer, ExchangeError> {
        let stream = dial
            .connect(&self.to, self.method)
            .await
            .map_err(ExchangeError::Refused)?;
        let stream = match self.to.is_tls() {
            true => secured(&self.to, stream, tls).await?,
            false => stream,
        };
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(http)?;
        let request = self.request()?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(http)?;
            let (head, body) = answer.into_parts();
            let (body, is_cut) = collect(body, self.wire_bytes_max).await?;
            Ok(Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
                is_cut,
            })
        };
        tokio::pin!(connection, exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // The connection may end before its last bytes are read.
            _ = &mut connection => exchange.await,
        }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.to.path_and_query())
            .header(HOST, self.to.host_header());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(self.body.clone()));
        request
            .body(body)
            .map_err(|error| ExchangeError::Http(error.to_string()))
    }
}

async fn secured(
    to: &Target,
    stream: Box<dyn Stream>,
    tls: &Arc<ClientConfig>,
) -> Result<Box<dyn Stream>, ExchangeError> {
    let name = to.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|error| ExchangeError::Tls(error.to_string()))?;
    let secured = TlsConnector::from(tls.clone()).connect(name, stream).await;
    let secured = secured.map_err(|error| ExchangeError::Tls(error.to_string()))?;
    Ok(Box::new(secured))
}

/// Returns up to `bytes_max` bytes. True: there were more.
async fn collect(mut body: Incoming, bytes_max: usize) -> Result<(Vec<u8>, bool), ExchangeError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(http)?.into_data() else {
            continue;
        };
        let room = bytes_max - bytes.len();
        if data.len() > room {
            bytes.extend_from_slice(&data[..room]);
            return Ok((bytes, true));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, false))
}

fn http(error: hyper::Error) -> ExchangeError {
    ExchangeError::Http(error.to_string())
}
