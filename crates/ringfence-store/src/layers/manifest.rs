//! The contents of a layer and the layer of a set of requirements, each as a signed text: a line with the signature in
//! base64 (Ed25519, over a label and all that follows), then JSON.

use super::LayerError;
use crate::{FileError, Signer, digest::to_hex, signer, whole_file};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use rustix::{
    fs::{CWD, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{io::Read, path::Path};

const LABEL: &[u8] = b"ringfence packages v1\0";
/// Maximum length of a signed text: 200,000 entries of about 300 bytes.
const TEXT_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum LayerEntry {
    Directory {
        path: String,
    },
    File {
        path: String,
        size: u64,
        executable: bool,
        sha256: String,
    },
    /// A link whose text leads to a target inside the layer.
    Link {
        path: String,
        target: String,
    },
}

impl LayerEntry {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Directory { path } | Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayerManifest {
    pub(super) entries: Vec<LayerEntry>,
}

impl LayerManifest {
    pub(super) fn of(mut entries: Vec<LayerEntry>) -> Self {
        entries.sort_by(|one, other| one.path().cmp(other.path()));
        Self { entries }
    }

    /// Returns the layer's name: the digest of all entries.
    pub(super) fn name(&self) -> String {
        let fields = self.entries.iter().flat_map(|entry| match entry {
            LayerEntry::Directory { path } => vec!["d".into(), path.clone()],
            LayerEntry::Link { path, target } => vec!["l".into(), path.clone(), target.clone()],
            LayerEntry::File {
                path,
                size,
                executable,
                sha256,
            } => {
                let kind = if *executable { "x" } else { "f" };
                vec![kind.into(), size.to_string(), path.clone(), sha256.clone()]
            }
        });
        let statement = signer::statement(b"ringfence layer v1\0", fields);
        to_hex(&Sha256::digest(statement))
    }

    pub(super) fn bytes(&self) -> u64 {
        let size = |entry: &LayerEntry| match entry {
            LayerEntry::File { size, .. } => *size,
            LayerEntry::Directory { .. } | LayerEntry::Link { .. } => 0,
        };
        self.entries.iter().map(size).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// SHA-256 of the downloaded archive, in hexadecimal; npm registries give SHA-512 instead.
    pub sha256: Option<String>,
    /// The digest as the registry writes it (`sha512-...`).
    pub integrity: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolved {
    /// The set, so that this text cannot pass as the record of another set.
    pub(super) set: String,
    pub(super) layer: String,
    pub(super) packages: Vec<Package>,
}

pub(super) fn signed<T: Serialize>(signer: &Signer, what: &T) -> Result<Vec<u8>, LayerError> {
    let json = serde_json::to_vec(what).map_err(|error| LayerError::Refused(error.to_string()))?;
    let signature = BASE64.encode(signer.sign(&[LABEL, &json].concat()));
    Ok([signature.as_bytes(), b"\n", &json].concat())
}

pub(super) fn read<T: DeserializeOwned>(signer: &Signer, path: &Path) -> Result<Option<T>, LayerError> {
    let file = match whole_file::open_regular(CWD, path, OFlags::RDONLY) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(FileError::at("open", path))?,
    };
    let mut text = Vec::new();
    let read = file.take(TEXT_BYTES_MAX).read_to_end(&mut text);
    read.map_err(FileError::at("read", path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let damaged = |what: &str| LayerError::damaged(&name, what);
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let (signature, json) = (parts.next().unwrap_or_default(), parts.next());
    let (Ok(signature), Some(json)) = (BASE64.decode(signature), json) else {
        return Err(damaged("it has no signature"));
    };
    if !signer::verify(&signer.public_key(), &[LABEL, json].concat(), &signature) {
        return Err(damaged("the signature is not over this text"));
    }
    serde_json::from_slice(json).map_err(|error| damaged(&error.to_string()))
}
