//! TLS with a certificate and a key from files, which SIGHUP reloads; if that fails, the previous ones stay in use.

use crate::settings::{TlsFiles, refusal};
use ringfence_types::RequestError;
use std::{
    os::unix::fs::MetadataExt as _,
    sync::{Arc, PoisonError, RwLock},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// ALPN protocols in order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
const OTHERS: u32 = 0o007;

pub(super) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(super) fn open(files: TlsFiles) -> Result<Self, RequestError> {
        let config = load(&files).map_err(|reason| {
            refusal(
                format!("TLS cannot be set up: {reason}."),
                "Name a certificate chain and its key in PEM (`http.tls_cert`, `http.tls_key`).",
            )
        })?;
        Ok(Self {
            files,
            config: RwLock::new(config),
        })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(config.clone())
    }

    pub(super) async fn reload_on_sighup(self: Arc<Self>) {
        let Ok(mut hangups) = signal(SignalKind::hangup()) else {
            tracing::error!("cannot listen for signals: certificate and key stay");
            return;
        };
        while hangups.recv().await.is_some() {
            match load(&self.files) {
                Ok(config) => {
                    *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                    tracing::info!("certificate and key were read again");
                }
                Err(reason) => tracing::error!(reason, "certificate and key stay as they are"),
            }
        }
    }
}

fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let (cert, key) = (files.cert.display(), files.key.display());
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| format!("{cert}: {error}"))?;
    let metadata = files.key.metadata().map_err(|error| format!("{key}: {error}"))?;
    if metadata.mode() & OTHERS != 0 {
        return Err(format!("everyone may read {key}; chmod it to 0600"));
    }
    let private = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| format!("{key}: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(certificates, private))
        .map_err(|error| format!("{cert} and {key}: {error}"))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}
