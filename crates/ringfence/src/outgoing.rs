//! HTTP requests that this program sends: for the keys of an issuer, to a running server, and to a telemetry collector.
//! Each has its own connection, and redirects are not followed.

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{HOST, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use std::{path::PathBuf, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::AbortHandle,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider, pki_types::ServerName},
};

pub(crate) struct Destination {
    address: Address,
    pub(crate) authority: HeaderValue,
    tls: TlsConnector,
}

enum Address {
    Socket(PathBuf),
    Host { name: String, port: u16, is_tls: bool },
}

/// A response and its connection, which ends when this is dropped.
pub(crate) struct Exchange {
    pub(crate) answer: Response<Incoming>,
    driver: AbortHandle,
}

impl Exchange {
    pub(crate) async fn body(&mut self, bytes_max: usize) -> Result<Bytes, String> {
        let body = Limited::new(self.answer.body_mut(), bytes_max);
        Ok(body.collect().await.map_err(error_text)?.to_bytes())
    }

    pub(crate) async fn success(mut self, bytes_max: usize) -> Result<Bytes, String> {
        match self.answer.status().is_success() {
            true => self.body(bytes_max).await,
            false => Err(format!("it answered {}", self.answer.status())),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Destination {
    pub(crate) fn socket(path: PathBuf) -> Result<Self, String> {
        Self::at(Address::Socket(path), "localhost")
    }

    pub(crate) fn host(uri: &Uri) -> Result<Self, String> {
        let authority = uri.authority().ok_or("there is no host in the URL")?;
        let is_tls = uri.scheme_str() == Some("https");
        let address = Address::Host {
            name: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            is_tls,
        };
        Self::at(address, authority.as_str())
    }

    fn at(address: Address, authority: &str) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if matches!(address, Address::Host { is_tls: true, .. }) {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(error_text)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address,
            authority: HeaderValue::from_str(authority).map_err(error_text)?,
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Exchange, String> {
        match &self.address {
            Address::Socket(path) => {
                let stream = UnixStream::connect(path).await.map_err(error_text)?;
                check_peer(&stream)?;
                self.exchange(stream, request).await
            }
            Address::Host { name, port, is_tls } => {
                let address = (name.as_str(), *port);
                let stream = TcpStream::connect(address).await.map_err(error_text)?;
                stream.set_nodelay(true).map_err(error_text)?;
                if !is_tls {
                    return self.exchange(stream, request).await;
                }
                let server = ServerName::try_from(name.clone()).map_err(error_text)?;
                let stream = self.tls.connect(server, stream).await.map_err(error_text)?;
                self.exchange(stream, request).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Exchange, String> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(error_text)?;
        let driver = tokio::spawn(connection).abort_handle();
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("ringfence/", env!("CARGO_PKG_VERSION"))),
        );
        let answer = sender.send_request(request).await;
        match answer {
            Ok(answer) => Ok(Exchange { answer, driver }),
            Err(error) => {
                driver.abort();
                Err(error_text(error))
            }
        }
    }
}

pub(crate) fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Accepts only a server of this user or of root: anyone may have put a socket there, to receive programs and tokens.
fn check_peer(stream: &UnixStream) -> Result<(), String> {
    let peer = stream.peer_cred().map_err(error_text)?.uid();
    match peer == 0 || peer == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(format!(
            "the server at the socket is of the user {peer}, who is neither you nor root"
        )),
    }
}
