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

/// Start of the validity before now: clocks of programs may be slow.
const VALID_BEFORE: Duration = Duration::from_secs(24 * 60 * 60);
/// End of the validity after now: longer than any sandbox lives.
const VALID_AFTER: Duration = Duration::from_secs(90 * 24 * 60 * 60);
const CERTIFICATES_MAX: usize = 256;

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// The key of all host certificates: a reader of the traffic of one host reads that of all.
    key: KeyPair,
    issued: Mutex<HashMap<HostName, CertificateDer<'static>>>,
}

impl Authority {
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let mut params = with_validity(CertificateParams::default());
        params.distinguished_name = common_name("Ringfence, of one sandbox");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
            key: KeyPair::generate()?,
            issued: Mutex::default(),
        })
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

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
        // Each configuration serves one connection, so sessions are not resumed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn certificate(&self, name: &HostName) -> Result<CertificateDer<'static>, rcgen::Error> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(certificate) = issued.get(name) {
            return Ok(certificate.clone());
        }
        let mut params = with_validity(CertificateParams::new(vec![name.as_str().to_owned()])?);
        params.distinguished_name = common_name("Ringfence, for a host");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?.der().clone();
        if issued.len() == CERTIFICATES_MAX {
            issued.clear();
        }
        issued.insert(name.clone(), certificate.clone());
        Ok(certificate)
    }
}

fn with_validity(mut params: CertificateParams) -> CertificateParams {
    let now = SystemTime::now();
    params.not_before = (now - VALID_BEFORE).into();
    params.not_after = (now + VALID_AFTER).into();
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
