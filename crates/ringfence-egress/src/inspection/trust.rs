//! The certificate authorities that TLS to the outside trusts: those of the host, and those that the operator adds.
//! They are read once for a server.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{ClientConfig, RootCertStore, crypto::CryptoProvider, pki_types::CertificateDer};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const PEM_LINE: usize = 64;

pub struct Trust {
    roots: Arc<RootCertStore>,
    /// The certificates as a file.
    pem: String,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("this host has no certificates of authorities")]
    None,
    #[error("the certificates of this host's authorities cannot be read: {0}")]
    Unreadable(String),
    #[error("{path} has no certificates of authorities: {why}", path = .0.display(), why = .1)]
    File(PathBuf, String),
    /// The library does not speak the versions that it is asked for.
    #[error("{0}")]
    Versions(rustls::Error),
}

impl Trust {
    /// Reads them; takes some milliseconds.
    ///
    /// # Errors
    /// There are none.
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
                return Err(failed("none in it can be used"));
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
        // What every later configuration does, so that it cannot fail then.
        trust.client(Vec::new()).map_err(TrustError::Versions)?;
        Ok(Arc::new(trust))
    }

    /// Adds those that can be used, and says how many.
    fn add(&mut self, roots: &mut RootCertStore, certificates: Vec<CertificateDer<'static>>) -> usize {
        let mut added = 0;
        for certificate in certificates {
            // The host's store may hold what no library of today reads; it is not trusted.
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

    /// The certificates, as programs read them.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// For one connection to the outside, which speaks one of these protocols.
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
