//! The signed statements, byte by byte, so that they can be verified with SHA-256 and Ed25519 (RFC 8032) alone.
//!
//! A statement is a line of ASCII that ends in a NUL, then fields. A field is its length (8 bytes, big-endian) and its
//! bytes; a number is a field of 8 bytes, big-endian. Digests are 64 lower-case hexadecimal digits, signatures and the
//! public key are base64 (RFC 4648, padded), and both go into a statement as that text.

use super::{ArtifactError, Item, Published};
use crate::{
    Signer,
    digest::{self, to_hex},
    signer,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ringfence_types::Namespace;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};

pub(super) const MANIFEST_BYTES_MAX: usize = 16 << 20;

const ARTIFACT_LABEL: &[u8] = b"ringfence artifact v1\0";
const MANIFEST_LABEL: &[u8] = b"ringfence manifest v1\0";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub execution_id: String,
    pub namespace: Namespace,
    pub created_unix_ms: u64,
    pub artifacts: Vec<SignedItem>,
    pub public_key: String,
    /// Signature over [`manifest_statement`], base64.
    pub signature: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedItem {
    /// A label that a program chose: check it before making a path of it.
    pub name: String,
    pub mime: String,
    pub size_bytes: u64,
    /// SHA-256 of the content, 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// Signature over [`artifact_statement`], base64.
    pub signature: String,
}

impl Manifest {
    pub(super) fn sign(signer: &Signer, published: Published, items: &[Item]) -> Self {
        let sign = |statement: Vec<u8>| BASE64.encode(signer.sign(&statement));
        let signed = |item: &Item| {
            let (size_bytes, sha256) = (item.content.size_bytes, to_hex(&item.content.sha256));
            let statement = artifact_statement(&published.execution_id, &item.name, size_bytes, &sha256);
            SignedItem {
                name: item.name.clone(),
                mime: item.mime.clone(),
                size_bytes,
                sha256,
                signature: sign(statement),
            }
        };
        let mut manifest = Self {
            artifacts: items.iter().map(signed).collect(),
            execution_id: published.execution_id,
            namespace: published.namespace,
            created_unix_ms: published.time_unix_ms,
            public_key: BASE64.encode(signer.public_key()),
            signature: String::new(),
        };
        manifest.signature = sign(manifest_statement(&manifest));
        manifest
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>, ArtifactError> {
        let text = serde_json::to_vec(self).map_err(|error| ArtifactError::Refused(error.to_string()))?;
        if text.len() > MANIFEST_BYTES_MAX {
            let what = format!("a manifest of more than {MANIFEST_BYTES_MAX} bytes");
            return Err(ArtifactError::Refused(what));
        }
        Ok(text)
    }

    pub(super) fn from_json(text: &[u8]) -> Result<Self, String> {
        if text.len() > MANIFEST_BYTES_MAX {
            return Err("the manifest is too long".to_owned());
        }
        serde_json::from_slice(text).map_err(|error| format!("the manifest: {error}"))
    }

    /// Checks the manifest's own signature, which covers everything in it, including the artifacts' signatures.
    pub(super) fn check_signature(&self, public_key: &[u8; 32]) -> Result<(), String> {
        if self.public_key != BASE64.encode(public_key) {
            return Err("the manifest names another key".to_owned());
        }
        is_signed(public_key, &manifest_statement(self), &self.signature)
            .then_some(())
            .ok_or_else(|| "the manifest's signature is not over this manifest".to_owned())
    }
}

/// Returns the bytes that are signed for one artifact: the label `ringfence artifact v1` and a NUL, then the fields
/// execution id, name, size in bytes (a number), SHA-256 (hexadecimal).
pub fn artifact_statement(execution_id: &str, name: &str, size_bytes: u64, sha256: &str) -> Vec<u8> {
    let size = size_bytes.to_be_bytes();
    let fields = [execution_id.as_bytes(), name.as_bytes(), &size, sha256.as_bytes()];
    signer::statement(ARTIFACT_LABEL, fields)
}

/// Fields of a manifest's statement, after `ringfence manifest v1` and a NUL: execution id, namespace, time (a number),
/// public key, count of artifacts (a number); for each name, media type, size (a number), SHA-256, signature.
pub fn manifest_statement(manifest: &Manifest) -> Vec<u8> {
    let (time, count) = (manifest.created_unix_ms, manifest.artifacts.len() as u64);
    let mut fields = vec![
        manifest.execution_id.as_bytes().to_vec(),
        manifest.namespace.as_str().into(),
        time.to_be_bytes().into(),
        manifest.public_key.as_str().into(),
        count.to_be_bytes().into(),
    ];
    for item in &manifest.artifacts {
        fields.extend([&item.name, &item.mime].map(|text| text.as_bytes().to_vec()));
        fields.push(item.size_bytes.to_be_bytes().into());
        fields.extend([&item.sha256, &item.signature].map(|text| text.as_bytes().to_vec()));
    }
    signer::statement(MANIFEST_LABEL, fields)
}

/// Verifies the manifest's signature and each artifact's with this key. Without one, the key that the manifest names is
/// used: that detects damage but not forgery, since anyone can sign with a key of their own.
pub fn verify_manifest(manifest: &Manifest, public_key: Option<&[u8; 32]>) -> Result<(), String> {
    let named = BASE64.decode(&manifest.public_key).ok();
    let named: Option<[u8; 32]> = named.and_then(|bytes| bytes.try_into().ok());
    let Some(public_key) = public_key.copied().or(named) else {
        return Err("the manifest's public key is not valid".to_owned());
    };
    manifest.check_signature(&public_key)?;
    for item in &manifest.artifacts {
        let statement = artifact_statement(&manifest.execution_id, &item.name, item.size_bytes, &item.sha256);
        if !is_signed(&public_key, &statement, &item.signature) {
            let name = &item.name;
            return Err(format!("the signature of {name:?} is not over this artifact"));
        }
    }
    Ok(())
}

fn is_signed(public_key: &[u8; 32], statement: &[u8], signature: &str) -> bool {
    let signature = BASE64.decode(signature).unwrap_or_default();
    signer::verify(public_key, statement, &signature)
}

/// Returns the SHA-256 in hexadecimal and the size of everything that the reader returns.
pub fn digest(reader: impl Read) -> io::Result<(String, u64)> {
    let hashed = digest::of(reader)?;
    Ok((to_hex(&hashed.sha256), hashed.bytes))
}
