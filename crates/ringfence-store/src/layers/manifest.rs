//! What a layer holds and what a set of requirements has become, each a signed text: a line with the signature in base64
//! (Ed25519, over a label and all that follows), then JSON.

use super::LayerError;
use crate::{Signer, signer};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{fmt::Write as _, fs::File, io::Read, path::Path};

const LABEL: &[u8] = b"ringfence packages v1\0";
/// The longest signed text: 200,000 entries of some 300 bytes.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// One thing in a layer, by its path below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Entry {
    Directory {
        path: String,
    },
    File {
        path: String,
        size: u64,
        executable: bool,
        sha256: String,
    },
    /// Below the layer in any case.
    Link {
        path: String,
        target: String,
    },
}

impl Entry {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Directory { path } | Self::File { path, .. } | Self::Link { path, .. } => path,
        }
    }
}

/// All of a layer, by path.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) entries: Vec<Entry>,
}

impl Manifest {
    /// The digest of all that it says, which is the layer's name.
    pub(super) fn name(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"ringfence layer v1\0");
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        for entry in &self.entries {
            match entry {
                Entry::Directory { path } => ["d", path].map(&mut field),
                Entry::Link { path, target } => {
                    field("l");
                    [path.as_str(), target].map(&mut field)
                }
                Entry::File {
                    path,
                    size,
                    executable,
                    sha256,
                } => {
                    field(if *executable { "x" } else { "f" });
                    field(&size.to_string());
                    [path.as_str(), sha256].map(&mut field)
                }
            };
        }
        hex(&hash.finalize())
    }

    pub(super) fn bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry {
            Entry::File { size, .. } => *size,
            Entry::Directory { .. } | Entry::Link { .. } => 0,
        };
        self.entries.iter().map(size).sum()
    }
}

/// One package as it was downloaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Of the archive that was downloaded, in hexadecimal; npm's registries tell SHA-512 instead.
    pub sha256: Option<String>,
    /// The same as the registry says it (`sha512-...`).
    pub integrity: Option<String>,
}

/// What a set of requirements has become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolved {
    /// Whose it is: of another set, this text would be somebody's forgery.
    pub(super) set: String,
    pub(super) layer: String,
    pub(super) packages: Vec<Package>,
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let written = write!(text, "{byte:02x}");
        debug_assert!(written.is_ok());
        text
    })
}

pub(super) fn signed<T: Serialize>(signer: &Signer, what: &T) -> Result<Vec<u8>, LayerError> {
    let json = serde_json::to_vec(what).map_err(|error| LayerError::Refused(error.to_string()))?;
    let signature = BASE64.encode(signer.sign(&[LABEL, &json].concat()));
    Ok([signature.as_bytes(), b"\n", &json].concat())
}

/// Reads a signed text; `None`: there is none.
pub(super) fn read<T: DeserializeOwned>(signer: &Signer, path: &Path) -> Result<Option<T>, LayerError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(LayerError::io("open", path))?,
    };
    let mut text = Vec::new();
    file.take(TEXT_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(LayerError::io("read", path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let damaged = |what: &str| LayerError::damaged(&name, what);
    let end = text
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(|| damaged("it has no signature"))?;
    let (signature, json) = (&text[..end], &text[end + 1..]);
    let signature = BASE64
        .decode(signature)
        .map_err(|_| damaged("it has no signature"))?;
    if !signer::verify(&signer.public_key(), &[LABEL, json].concat(), &signature) {
        return Err(damaged("the signature is not over this text"));
    }
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|error| damaged(&error.to_string()))
}
