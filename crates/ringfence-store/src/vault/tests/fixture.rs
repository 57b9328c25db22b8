//! Helpers for tests of the vault: a temporary directory, and short constructors of names and values.

pub(in crate::vault) use crate::tests::namespace;
use crate::{
    tests::TestDir,
    vault::{
        SecretValue, Vault, VaultError,
        key::{Cost, FileKey},
    },
};
use ringfence_types::EnvName;
use std::{fs, path::PathBuf, sync::Arc};

impl Vault {
    /// Every value of every namespace.
    pub(in crate::vault) fn values(&self) -> Result<Vec<Arc<SecretValue>>, VaultError> {
        Ok(self.current()?.values().collect())
    }

    pub(in crate::vault) fn generation(&self) -> u64 {
        self.current().unwrap().generation
    }
}

pub(in crate::vault) struct Directory(TestDir);

impl Directory {
    pub(in crate::vault) fn new() -> Self {
        Self(TestDir::new())
    }

    pub(in crate::vault) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(in crate::vault) fn names(&self) -> Vec<String> {
        let listing = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = listing
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(in crate::vault) fn key_file(&self) -> FileKey {
        FileKey::KeyFile(self.path("key"))
    }
}

/// The minimum cost of Argon2.
pub(in crate::vault) fn cheap() -> Cost {
    Cost::bounded(8, 1, 1).unwrap()
}

pub(in crate::vault) fn passphrase(words: &str) -> FileKey {
    FileKey::Passphrase(value(words).into())
}

pub(in crate::vault) fn value(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned()).unwrap()
}

pub(in crate::vault) fn key(text: &str) -> EnvName {
    EnvName::try_from(text.to_owned()).unwrap()
}
