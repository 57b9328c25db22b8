//! A vault in a file that several processes share. Readers take no lock, because the file is replaced atomically; a
//! writer holds a lock from reading to writing.

use super::{
    contents::Contents,
    error::{Damage, VaultError},
    key::{Cost, Derivation, FileKey, IfMissing, Key, SALT_BYTES},
    place,
    seal::{self, Header, SEALED_BYTES_MAX},
};
use crate::{
    tree::Stamp,
    whole_file::{FileError, FileLock, IfExists},
};
use rustix::fs::Stat;
use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

pub(super) struct SealedFile {
    path: PathBuf,
    lock_path: PathBuf,
    key: Key,
    derivation: Derivation,
}

/// The file when read or written; kept open, so that its inode number is not reused and a replacement always differs.
pub(super) struct SeenFile {
    held: fs::File,
    version: FileVersion,
}

/// The stamp and the size of a file; a change of the file changes one of them.
type FileVersion = (Stamp, i64);

impl SealedFile {
    /// Opens the vault, or creates an empty one if it is missing. `cost` is that of a passphrase for a new one.
    pub(super) fn open(
        path: &Path,
        key: FileKey,
        cost: Cost,
    ) -> Result<(Self, Contents, SeenFile), VaultError> {
        let path = place::absolute(path)?;
        let mut lock_path = path.clone();
        lock_path.as_mut_os_string().push(".lock");
        let _alone = place::lock(&lock_path, place::LOCK_TIMEOUT)?;
        place::clean(&path)?;
        let found = match read(&path) {
            Err(VaultError::File(FileError { error, .. })) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let made = found.as_ref().map(|(_, header, _)| header.derivation);
        let (key, derivation) = unlock(&path, key, made, cost)?;
        let sealed = Self {
            path,
            lock_path,
            key,
            derivation,
        };
        let (contents, seen) = match found {
            Some((file, header, seen)) => (sealed.unseal(file, &header)?, seen),
            None => {
                let contents = Contents::default();
                let seen = sealed.put(&contents, IfExists::Fail)?;
                (contents, seen)
            }
        };
        Ok((sealed, contents, seen))
    }

    /// The lock of a writer, held from reading until the change is written.
    pub(super) fn lock(&self) -> Result<FileLock, VaultError> {
        place::lock(&self.lock_path, place::LOCK_TIMEOUT)
    }

    pub(super) fn is(&self, seen: &SeenFile) -> Result<bool, VaultError> {
        let stat = rustix::fs::lstat(&self.path).map_err(FileError::at("look at", &self.path))?;
        Ok(version(&stat) == seen.version)
    }

    pub(super) fn read(&self) -> Result<(Contents, SeenFile), VaultError> {
        let (file, header, seen) = read(&self.path)?;
        Ok((self.unseal(file, &header)?, seen))
    }

    /// Replaces the file. The caller holds the lock.
    pub(super) fn write(&self, contents: &Contents) -> Result<SeenFile, VaultError> {
        self.put(contents, IfExists::Replace)
    }

    fn unseal(&self, file: Zeroizing<Vec<u8>>, header: &Header) -> Result<Contents, VaultError> {
        if header.derivation != self.derivation {
            return Err(VaultError::OtherKey {
                path: self.path.clone(),
                why: "was created again by another process since it was opened; open it again",
            });
        }
        seal::open(file, header, &self.key).map_err(|damage| damaged(&self.path, damage))
    }

    fn put(&self, contents: &Contents, if_exists: IfExists) -> Result<SeenFile, VaultError> {
        let file =
            seal::seal(contents, &self.key, self.derivation).map_err(FileError::at("seal", &self.path))?;
        let held = place::put(&self.path, &file, if_exists)?;
        seen(held, &self.path)
    }
}

fn version(stat: &Stat) -> FileVersion {
    (Stamp::of(stat), stat.st_size)
}

fn seen(held: fs::File, path: &Path) -> Result<SeenFile, VaultError> {
    let stat = rustix::fs::fstat(&held).map_err(FileError::at("look at", path))?;
    let version = version(&stat);
    Ok(SeenFile { held, version })
}

/// Returns the key of a vault with the derivation `made`, or the key of a new vault.
fn unlock(
    path: &Path,
    key: FileKey,
    made: Option<Derivation>,
    cost: Cost,
) -> Result<(Key, Derivation), VaultError> {
    let other = |why| VaultError::OtherKey {
        path: path.to_owned(),
        why,
    };
    match (key, made) {
        (FileKey::KeyFile(_), Some(Derivation::Argon2id { .. })) => {
            Err(other("was made with a passphrase, and a key file is given"))
        }
        (FileKey::Passphrase(_), Some(Derivation::None)) => {
            Err(other("was made with a key file, and a passphrase is given"))
        }
        (FileKey::KeyFile(key), made) => {
            let if_missing = made.map_or(IfMissing::Create, |_| IfMissing::Refuse);
            let key = place::absolute(&key)?;
            if key == path {
                let (path, why) = (key, "it is the vault itself".to_owned());
                return Err(VaultError::Key { path, why });
            }
            Ok((Key::load(&key, if_missing)?, Derivation::None))
        }
        (FileKey::Passphrase(passphrase), made) => {
            let mut salt = [0; SALT_BYTES];
            let cost = match made {
                Some(Derivation::Argon2id { cost, salt: known }) => {
                    salt = known;
                    cost
                }
                _ => {
                    let drawn = place::random(&mut salt);
                    drawn.map_err(FileError::at("draw a salt for", path))?;
                    cost
                }
            };
            let key = Key::derive(&passphrase, &salt, cost).map_err(|error| VaultError::Derivation {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
            Ok((key, Derivation::Argon2id { cost, salt }))
        }
    }
}

fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Header, SeenFile), VaultError> {
    // Attributes are read before the bytes, so that a change in between is detected the next time.
    let seen = seen(place::open(path).map_err(FileError::at("open", path))?, path)?;
    let bytes_max = SEALED_BYTES_MAX as u64;
    let mut file = Zeroizing::new(Vec::new());
    let read = (&seen.held).take(bytes_max + 1).read_to_end(&mut file);
    read.map_err(FileError::at("read", path))?;
    if file.len() as u64 > bytes_max {
        return Err(damaged(path, Damage::TooLong));
    }
    let header = Header::read(&file).map_err(|damage| damaged(path, damage))?;
    Ok((file, header, seen))
}

fn damaged(path: &Path, damage: Damage) -> VaultError {
    let path = path.to_owned();
    VaultError::Damaged { path, damage }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::{
        contents::StoredSecret,
        tests::fixture::{Directory, cheap, key, namespace, passphrase, value},
    };
    use std::os::unix::fs::symlink;

    fn open(directory: &Directory, key: FileKey) -> Result<(SealedFile, Contents, SeenFile), VaultError> {
        SealedFile::open(&directory.path("vault"), key, cheap())
    }

    fn damage(opened: Result<(SealedFile, Contents, SeenFile), VaultError>) -> Damage {
        match opened.err() {
            Some(VaultError::Damaged { path, damage }) => {
                assert!(path.ends_with("vault"));
                damage
            }
            other => panic!("{other:?}"),
        }
    }

    /// Writes a vault with one secret and returns its bytes.
    fn small(directory: &Directory, file_key: FileKey) -> Vec<u8> {
        let (sealed, mut contents, _) = open(directory, file_key).unwrap();
        let secret = StoredSecret {
            value: value("canary").into(),
            created_unix_ms: Some(1),
            expires_unix_ms: None,
        };
        contents.put(&namespace("a"), &key("K"), secret).unwrap();
        sealed.write(&contents).unwrap();
        fs::read(directory.path("vault")).unwrap()
    }

    fn has_canary(contents: &Contents) -> bool {
        let secret = contents.get(&namespace("a"), &key("K"));
        contents.len() == 1 && secret.is_some_and(|secret| secret.value.expose() == "canary")
    }

    /// claim: [SEC-5]
    #[test]
    fn vault_with_changed_missing_or_added_byte_is_refused() {
        let directory = Directory::new();
        let vault_path = directory.path("vault");
        let good = small(&directory, directory.key_file());
        assert!(!good.windows(6).any(|window| window == b"canary"));
        let refuses = |bytes: &[u8], what: &str| {
            fs::write(&vault_path, bytes).unwrap();
            damage(
                open(&directory, directory.key_file()).map_err(|error| match error {
                    VaultError::OtherKey { path, .. } => damaged(&path, Damage::Derivation),
                    other => other,
                }),
            );
            assert_eq!(
                fs::read(&vault_path).unwrap(),
                bytes,
                "{what}: it is left as it is"
            );
        };
        for end in 0..good.len() {
            refuses(&good[..end], &format!("cut at {end}"));
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                refuses(&bytes, &format!("bit {bit} of {at}"));
            }
        }
        refuses(&[&good[..], b"\0"].concat(), "one byte added");
        refuses(&[&good[..], &good[..]].concat(), "twice");
        fs::write(&vault_path, &good).unwrap();
        assert!(has_canary(&open(&directory, directory.key_file()).unwrap().1));
    }

    #[test]
    fn changed_cost_or_salt_of_passphrase_vault_is_refused() {
        let directory = Directory::new();
        let vault_path = directory.path("vault");
        let good = small(&directory, passphrase("words"));
        for at in 12..64 {
            // A large change of the cost would already be refused as out of bounds.
            let bit = if (12..24).contains(&at) { 1 } else { 0x80 };
            let mut bytes = good.clone();
            bytes[at] ^= bit;
            fs::write(&vault_path, &bytes).unwrap();
            let damage = damage(open(&directory, passphrase("words")));
            assert!(
                matches!(damage, Damage::Seal | Damage::Derivation),
                "{at}: {damage:?}"
            );
        }
        fs::write(&vault_path, &good).unwrap();
        assert_eq!(damage(open(&directory, passphrase("Words"))), Damage::Seal);
        assert!(has_canary(&open(&directory, passphrase("words")).unwrap().1));
    }

    #[test]
    fn oversized_vault_file_is_not_read_to_its_end() {
        let directory = Directory::new();
        let endless = fs::File::create(directory.path("vault")).unwrap();
        endless.set_len(1 << 40).unwrap();
        assert_eq!(damage(open(&directory, directory.key_file())), Damage::TooLong);
    }

    /// claim: [SEC-5]
    #[test]
    fn crash_at_any_byte_of_write_leaves_old_vault() {
        let directory = Directory::new();
        let vault_path = directory.path("vault");
        let good = small(&directory, directory.key_file());
        let beside = directory.path("vault.0123456789abcdef.new");
        for end in 0..=good.len() {
            fs::write(&beside, &good[..end]).unwrap();
            assert!(
                has_canary(&open(&directory, directory.key_file()).unwrap().1),
                "{end}"
            );
            assert_eq!(
                directory.names(),
                ["key", "vault", "vault.lock", "vault.lock.next"]
            );
        }
        // A crash during creation: the file is linked into place, and its temporary name still exists.
        fs::hard_link(&vault_path, &beside).unwrap();
        assert!(has_canary(&open(&directory, directory.key_file()).unwrap().1));
        assert_eq!(fs::read(&vault_path).unwrap(), good);
    }

    #[test]
    fn crash_between_key_and_vault_creation_is_recovered() {
        let directory = Directory::new();
        fs::write(directory.path("key.0123456789abcdef.new"), "half a key").unwrap();
        drop(open(&directory, directory.key_file()).unwrap());
        assert_eq!(
            directory.names(),
            ["key", "vault", "vault.lock", "vault.lock.next"]
        );
        let made = fs::read(directory.path("key")).unwrap();
        fs::remove_file(directory.path("vault")).unwrap();
        small(&directory, directory.key_file());
        assert_eq!(
            fs::read(directory.path("key")).unwrap(),
            made,
            "a key is never made twice"
        );
    }

    #[test]
    fn wrong_key_is_reported_and_changes_nothing() {
        let directory = Directory::new();
        let good = small(&directory, directory.key_file());
        let other = Directory::new();
        small(&other, other.key_file());
        assert_eq!(damage(open(&directory, other.key_file())), Damage::Seal);
        assert!(matches!(
            open(&directory, passphrase("words")).err(),
            Some(VaultError::OtherKey { .. })
        ));
        fs::remove_file(directory.path("key")).unwrap();
        assert!(matches!(
            open(&directory, directory.key_file()).err(),
            Some(VaultError::Key { .. })
        ));
        assert_eq!(directory.names(), ["vault", "vault.lock", "vault.lock.next"]);
        assert_eq!(fs::read(directory.path("vault")).unwrap(), good);
        let words = Directory::new();
        small(&words, passphrase("words"));
        let mixed = open(&words, words.key_file()).err();
        assert!(matches!(mixed, Some(VaultError::OtherKey { .. })));
        assert_eq!(words.names(), ["vault", "vault.lock", "vault.lock.next"]);
    }

    #[test]
    fn symlink_fifo_and_own_key_are_refused_as_vault() {
        let directory = Directory::new();
        let (real, vault_path) = (directory.path("real"), directory.path("vault"));
        fs::write(&real, "x").unwrap();
        symlink(&real, &vault_path).unwrap();
        let error = open(&directory, directory.key_file()).err().unwrap();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        fs::remove_file(&vault_path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &vault_path, rustix::fs::Mode::RUSR).unwrap();
        let error = open(&directory, directory.key_file()).err().unwrap();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        fs::remove_file(&vault_path).unwrap();
        let own = open(&directory, FileKey::KeyFile(vault_path.clone())).err();
        assert!(matches!(own, Some(VaultError::Key { .. })) && !vault_path.exists());
        // Another path of the same file does not replace the key that was just written there.
        symlink(directory.path(""), directory.path("alias")).unwrap();
        assert!(open(&directory, FileKey::KeyFile(directory.path("alias/vault"))).is_err());
        assert_eq!(fs::read(&vault_path).unwrap().len(), 65);
    }
}
