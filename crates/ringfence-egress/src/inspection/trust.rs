//! The certificate authorities trusted for TLS to the outside: those of the host, and those that the operator adds. A
//! server reads them once.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{ClientConfig, RootCertStore, crypto::CryptoProvider, pki_types::CertificateDer};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const PEM_LINE: usize = 64;

pub struct Trust {
    roots: Arc<RootCertStore>,
    pem: String,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("this host has no certificate authorities")]
    None,
    #[error("this host's certificate authorities cannot be read: {0}")]
    Unreadable(String),
    #[error("{path} has no certificate authorities: {why}", path = .0.display(), why = .1)]
    File(PathBuf, String),
    /// The TLS library does not support the requested versions.
    #[error("{0}")]
    Versions(rustls::Error),
}

impl Trust {
    /// Reads the certificates, in some milliseconds. Fails if `added` has no usable one, or without it the host.
    pub fn read(added: Option<&Path>) -> Result<Arc<Self>, TrustError> {
        let mut trust = Self {
            roots: Arc::new(RootCertStore::empty()),
            pem: String::new(),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        };
        let mut roots = RootCertStore::empty();
        if let Some(path) = added {
            let found = rustls_native_certs::load_certs_from_paths(Some(path), None);
            let failed = |why: &str| TrustError::File(path.to_owned(), why.to_owned());
            if let Some(error) = found.errors.first() {
                return Err(failed(&error.to_string()));
            }
            if trust.add(&mut roots, found.certs) == 0 {
                return Err(failed("none of its certificates is usable"));
            }
        }
        let own = rustls_native_certs::load_native_certs();
        let error = own
            .errors
            .first()
            .map(|error| TrustError::Unreadable(error.to_string()));
        if trust.add(&mut roots, own.certs) == 0 && added.is_none() {
            return Err(error.unwrap_or(TrustError::None));
        }
        trust.roots = Arc::new(roots);
        // Every later configuration is made in the same way, so that it cannot fail then.
        trust.client(Vec::new()).map_err(TrustError::Versions)?;
        Ok(Arc::new(trust))
    }

    /// Adds the usable certificates and returns their number.
    fn add(&mut self, roots: &mut RootCertStore, certificates: Vec<CertificateDer<'static>>) -> usize {
        let mut added = 0;
        for certificate in certificates {
            // The host's store may hold certificates that today's libraries reject; they are not trusted.
            if roots.add(certificate.clone()).is_ok() {
                self.pem.push_str(&pem(&certificate));
                added += 1;
            }
        }
        added
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the TLS configuration of a connection to the outside that offers these protocols (ALPN).
    pub fn client(&self, protocols: Vec<Vec<u8>>) -> Result<ClientConfig, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(self.provider())
            .with_protocol_versions(rustls::ALL_VERSIONS)?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols;
        Ok(config)
    }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let coded = STANDARD.encode(certificate);
    let mut text = String::with_capacity(coded.len() + coded.len() / PEM_LINE + 64);
    text.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = coded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(PEM_LINE));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}
