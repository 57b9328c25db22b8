//! The certificate authority of one sandbox: it signs only for the hosts whose TLS is inspected there. Its key is made
//! with the sandbox, exists only in this process, and is dropped with the sandbox.

use crate::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::NoServerSessionStorage,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// Clocks of programs may be behind.
const VALID_BEFORE: Duration = Duration::from_secs(24 * 60 * 60);
/// Longer than any sandbox lives.
const VALID_AFTER: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Certificates that are kept to be used again.
const KEPT_MAX: usize = 256;

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// The key of all its hosts: who reads the traffic of one reads that of all.
    key: KeyPair,
    made: Mutex<HashMap<HostName, CertificateDer<'static>>>,
}

impl Authority {
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let mut params = dated(CertificateParams::default());
        params.distinguished_name = named("Ringfence, of one sandbox");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
            key: KeyPair::generate()?,
            made: Mutex::default(),
        })
    }

    /// Its certificate, as programs read it.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    /// For a connection that speaks as `name`.
    pub(super) fn server(
        &self,
        provider: Arc<CryptoProvider>,
        name: &HostName,
        protocol: Option<Vec<u8>>,
    ) -> Result<ServerConfig, String> {
        let chain = vec![self.certificate(name).map_err(|error| error.to_string())?];
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(str::to_owned)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = protocol.into_iter().collect();
        // It serves one connection.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn certificate(&self, name: &HostName) -> Result<CertificateDer<'static>, rcgen::Error> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(certificate) = made.get(name) {
            return Ok(certificate.clone());
        }
        let mut params = dated(CertificateParams::new(vec![name.as_str().to_owned()])?);
        params.distinguished_name = named("Ringfence, for a host");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?.der().clone();
        if made.len() == KEPT_MAX {
            made.clear();
        }
        made.insert(name.clone(), certificate.clone());
        Ok(certificate)
    }
}

fn dated(mut params: CertificateParams) -> CertificateParams {
    let now = SystemTime::now();
    params.not_before = (now - VALID_BEFORE).into();
    params.not_after = (now + VALID_AFTER).into();
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
