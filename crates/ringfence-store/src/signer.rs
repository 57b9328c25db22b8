//! The signing key of this host: Ed25519 (RFC 8032), in a file of mode 0600 that is created once.

use crate::whole_file::{Directory, IfExists};
use ed25519_dalek::{
    Signature, SigningKey, VerifyingKey,
    pkcs8::{
        DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, spki::der::pem::LineEnding,
    },
};
use rustix::fs::{Mode, OFlags};
use std::{
    fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

const KEY_BYTES_MAX: u64 = 16 << 10;

/// A signing key. Clones share it; it is wiped when the last one is dropped. `Debug` shows only the public key.
#[derive(Clone, Debug)]
pub struct Signer {
    key: std::sync::Arc<SigningKey>,
}

#[derive(Debug, thiserror::Error)]
#[error("the signing key {path}: {what}")]
pub struct SignerError {
    path: PathBuf,
    what: String,
}

impl SignerError {
    fn of(path: &Path, error: &io::Error) -> Self {
        let (path, what) = (path.to_owned(), error.to_string());
        Self { path, what }
    }
}

impl Signer {
    /// Generates a key for the lifetime of this process; it is not stored.
    pub fn in_memory() -> io::Result<Self> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut()).map_err(io::Error::other)?;
        let key = SigningKey::from_bytes(&seed).into();
        Ok(Self { key })
    }

    /// Loads the key from this file (PKCS #8, PEM), or creates it. Of two that create it at once, both use the first's.
    pub fn load_or_create(path: &Path) -> Result<Self, SignerError> {
        if let Some(existing) = Self::load_existing(path)? {
            return Ok(existing);
        }
        let made = Self::in_memory().and_then(|made| match made.save(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            saved => saved.map(|()| made),
        });
        made.map_err(|error| SignerError::of(path, &error))
    }

    /// Loads the key from this file. `None` if the file is missing.
    pub fn load_existing(path: &Path) -> Result<Option<Self>, SignerError> {
        match Self::load(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            loaded => loaded.map(Some).map_err(|error| SignerError::of(path, &error)),
        }
    }

    fn load(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other("others may read it; chmod it to 0600"));
        }
        let mut pem = Zeroizing::new(String::new());
        file.take(KEY_BYTES_MAX).read_to_string(&mut pem)?;
        let key = SigningKey::from_pkcs8_pem(&pem)
            .map_err(|_| io::Error::other("it is not an Ed25519 key in PEM"))?;
        Ok(Self { key: key.into() })
    }

    fn save(&self, path: &Path) -> io::Result<()> {
        let pem = self.key.to_pkcs8_pem(LineEnding::LF).map_err(io::Error::other)?;
        let saved = Directory::of_file(path)
            .and_then(|(directory, name)| directory.write(&name, pem.as_bytes(), IfExists::Fail));
        saved.map(drop).map_err(|error| error.error)
    }

    pub fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        use ed25519_dalek::Signer as _;
        self.key.sign(bytes).to_bytes()
    }

    pub fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    pub fn public_key_pem(&self) -> io::Result<String> {
        let pem = self.key.verifying_key().to_public_key_pem(LineEnding::LF);
        pem.map_err(io::Error::other)
    }
}

/// Parses the output of [`Signer::public_key_pem`]. `None` for any other text.
pub fn public_key_of_pem(pem: &str) -> Option<[u8; 32]> {
    let key = VerifyingKey::from_public_key_pem(pem).ok()?;
    Some(key.to_bytes())
}

/// Returns the bytes to sign: a label ending in NUL, then each field as its length (8 bytes, big-endian) and bytes.
pub(crate) fn statement<F: AsRef<[u8]>>(label: &[u8], fields: impl IntoIterator<Item = F>) -> Vec<u8> {
    let mut statement = label.to_vec();
    for field in fields {
        let field = field.as_ref();
        statement.extend((field.len() as u64).to_be_bytes());
        statement.extend(field);
    }
    statement
}

pub fn verify(public_key: &[u8; 32], bytes: &[u8], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) = (
        VerifyingKey::from_bytes(public_key),
        Signature::from_slice(signature),
    ) else {
        return false;
    };
    key.verify_strict(bytes, &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_signer_does_not_contain_its_key() {
        let signer = Signer::in_memory().unwrap();
        let debug = format!("{signer:?} {signer:#?}").replace(char::is_whitespace, "");
        let parts = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        assert!(!debug.contains(&parts(&signer.key.to_bytes()[..4])), "{debug}");
        assert!(
            !debug.contains(&crate::to_hex(&signer.key.to_bytes()[..4])),
            "{debug}"
        );
        assert!(debug.contains("SigningKey"), "the control: {debug}");
    }

    #[test]
    fn key_is_created_once_and_loaded_again() {
        let directory = crate::tests::TestDir::new();
        let path = directory.join("signing.key");
        assert!(Signer::load_existing(&path).unwrap().is_none() && !path.exists());
        let first = Signer::load_or_create(&path).unwrap();
        let again = Signer::load_or_create(&path).unwrap();
        let existing = Signer::load_existing(&path).unwrap().unwrap();
        assert_eq!(existing.public_key(), first.public_key());
        let pem = first.public_key_pem().unwrap();
        assert_eq!(public_key_of_pem(&pem), Some(first.public_key()));
        assert_eq!(public_key_of_pem(&fs::read_to_string(&path).unwrap()), None);
        let signature = first.sign(b"words");
        assert!(verify(&again.public_key(), b"words", &signature));
        assert!(!verify(&again.public_key(), b"other words", &signature));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(
            Signer::load_or_create(&path)
                .unwrap_err()
                .to_string()
                .contains("chmod")
        );
    }
}
