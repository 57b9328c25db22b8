//! A vault in a file that several processes share. Readers take the file as it is, for it is replaced whole; a
//! writer holds a lock from reading to writing.

use super::{
    contents::Contents,
    error::{Damage, VaultError},
    key::{Absent, Cost, Derivation, FileKey, Key, SALT_BYTES},
    place,
    seal::{self, Header, SEALED_BYTES_MAX},
};
use crate::{
    tree::Stamp,
    whole_file::{FileError, FileLock, Taken},
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

/// The file as it was when it was read or written. It is held open: while it is, no other file gets its inode number,
/// so a file that was put in its place never looks like it.
pub(super) struct SeenFile {
    held: fs::File,
    version: FileVersion,
}

/// Some of it changes when the file does; the second is its size.
type FileVersion = (Stamp, i64);

impl SealedFile {
    /// Opens the vault, or makes an empty one if it is missing. `cost` is what a new one's passphrase takes.
    pub(super) fn open(
        path: &Path,
        key: FileKey,
        cost: Cost,
    ) -> Result<(Self, Contents, SeenFile), VaultError> {
        let path = place::absolute(path)?;
        let mut lock_path = path.clone();
        lock_path.as_mut_os_string().push(".lock");
        let _alone = place::lock(&lock_path, place::LOCK_PATIENCE)?;
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
                let seen = sealed.put(&contents, Taken::Refused)?;
                (contents, seen)
            }
        };
        Ok((sealed, contents, seen))
    }

    /// Held from reading what will be changed until the change is written.
    pub(super) fn lock(&self) -> Result<FileLock, VaultError> {
        place::lock(&self.lock_path, place::LOCK_PATIENCE)
    }

    pub(super) fn is(&self, seen: &SeenFile) -> Result<bool, VaultError> {
        let stat = rustix::fs::lstat(&self.path).map_err(FileError::at("look at", &self.path))?;
        Ok(version(&stat) == seen.version)
    }

    pub(super) fn read(&self) -> Result<(Contents, SeenFile), VaultError> {
        let (file, header, seen) = read(&self.path)?;
        Ok((self.unseal(file, &header)?, seen))
    }

    /// The caller holds the lock.
    pub(super) fn write(&self, contents: &Contents) -> Result<SeenFile, VaultError> {
        self.put(contents, Taken::Replaced)
    }

    fn unseal(&self, file: Zeroizing<Vec<u8>>, header: &Header) -> Result<Contents, VaultError> {
        if header.derivation != self.derivation {
            return Err(VaultError::OtherKey {
                path: self.path.clone(),
                why: "was made anew by another process since it was opened; open it again",
            });
        }
        seal::open(file, header, &self.key).map_err(|damage| damaged(&self.path, damage))
    }

    fn put(&self, contents: &Contents, taken: Taken) -> Result<SeenFile, VaultError> {
        let file =
            seal::seal(contents, &self.key, self.derivation).map_err(FileError::at("seal", &self.path))?;
        let held = place::put(&self.path, &file, taken)?;
        seen(held, &self.path)
    }
}

fn version(stat: &Stat) -> FileVersion {
    (Stamp::of(stat), stat.st_size)
}

fn seen(file: fs::File, path: &Path) -> Result<SeenFile, VaultError> {
    let stat = rustix::fs::fstat(&file).map_err(FileError::at("look at", path))?;
    Ok(SeenFile {
        held: file,
        version: version(&stat),
    })
}

/// The key of a vault that was `made` so, or of one that is to be made.
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
            let absent = made.map_or(Absent::Made, |_| Absent::Refused);
            let key = place::absolute(&key)?;
            if key == path {
                let (path, why) = (key, "it is the vault itself".to_owned());
                return Err(VaultError::Key { path, why });
            }
            Ok((Key::load(&key, absent)?, Derivation::None))
        }
        (FileKey::Passphrase(words), made) => {
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
            let key = Key::derive(&words, &salt, cost).map_err(|error| VaultError::Derivation {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
            Ok((key, Derivation::Argon2id { cost, salt }))
        }
    }
}

fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Header, SeenFile), VaultError> {
    // looked at before the bytes are read: what changes between shows as a change the next time
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
    VaultError::Damaged {
        path: path.to_owned(),
        damage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::{
        contents::Kept,
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

    /// A vault of one secret; its bytes.
    fn small(directory: &Directory, file_key: FileKey) -> Vec<u8> {
        let (sealed, mut contents, _) = open(directory, file_key).unwrap();
        let kept = Kept {
            value: value("canary").into(),
            created_unix_ms: Some(1),
            expires_unix_ms: None,
        };
        contents.put(&namespace("a"), &key("K"), kept).unwrap();
        sealed.write(&contents).unwrap();
        fs::read(directory.path("vault")).unwrap()
    }

    fn holds_the_canary(contents: &Contents) -> bool {
        let kept = contents.get(&namespace("a"), &key("K"));
        contents.len() == 1 && kept.is_some_and(|kept| kept.value.expose() == "canary")
    }

    /// claim: [SEC-5]
    #[test]
    fn no_byte_can_be_changed_cut_or_added() {
        let directory = Directory::new();
        let place = directory.path("vault");
        let good = small(&directory, directory.key_file());
        assert!(!good.windows(6).any(|window| window == b"canary"));
        let refuses = |bytes: &[u8], what: &str| {
            fs::write(&place, bytes).unwrap();
            damage(
                open(&directory, directory.key_file()).map_err(|error| match error {
                    VaultError::OtherKey { path, .. } => damaged(&path, Damage::Derivation),
                    other => other,
                }),
            );
            assert_eq!(fs::read(&place).unwrap(), bytes, "{what}: it is left as it is");
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
        refuses(&[&good[..], b"\0"].concat(), "one more");
        refuses(&[&good[..], &good[..]].concat(), "twice");
        fs::write(&place, &good).unwrap();
        assert!(holds_the_canary(
            &open(&directory, directory.key_file()).unwrap().1
        ));
    }

    #[test]
    fn a_vault_of_a_passphrase_holds_its_cost_and_salt_under_the_seal() {
        let directory = Directory::new();
        let place = directory.path("vault");
        let good = small(&directory, passphrase("words"));
        for at in 12..64 {
            // the cost's upper bytes would be refused for their size
            let bit = if (12..24).contains(&at) { 1 } else { 0x80 };
            let mut bytes = good.clone();
            bytes[at] ^= bit;
            fs::write(&place, &bytes).unwrap();
            let damage = damage(open(&directory, passphrase("words")));
            assert!(
                matches!(damage, Damage::Seal | Damage::Derivation),
                "{at}: {damage:?}"
            );
        }
        fs::write(&place, &good).unwrap();
        assert_eq!(damage(open(&directory, passphrase("Words"))), Damage::Seal);
        assert!(holds_the_canary(
            &open(&directory, passphrase("words")).unwrap().1
        ));
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let directory = Directory::new();
        let endless = fs::File::create(directory.path("vault")).unwrap();
        endless.set_len(1 << 40).unwrap();
        assert_eq!(damage(open(&directory, directory.key_file())), Damage::TooLong);
    }

    /// claim: [SEC-5]
    #[test]
    fn a_crash_at_any_byte_of_a_write_leaves_the_old_vault() {
        let directory = Directory::new();
        let place = directory.path("vault");
        let good = small(&directory, directory.key_file());
        let beside = directory.path("vault.0123456789abcdef.new");
        for end in 0..=good.len() {
            fs::write(&beside, &good[..end]).unwrap();
            assert!(
                holds_the_canary(&open(&directory, directory.key_file()).unwrap().1),
                "{end}"
            );
            assert_eq!(directory.names(), ["key", "vault", "vault.lock"]);
        }
        // and in the middle of making it: linked and still beside
        fs::hard_link(&place, &beside).unwrap();
        assert!(holds_the_canary(
            &open(&directory, directory.key_file()).unwrap().1
        ));
        assert_eq!(fs::read(&place).unwrap(), good);
    }

    #[test]
    fn a_crash_between_key_and_vault_is_made_good() {
        let directory = Directory::new();
        fs::write(directory.path("key.0123456789abcdef.new"), "half a key").unwrap();
        drop(open(&directory, directory.key_file()).unwrap());
        assert_eq!(directory.names(), ["key", "vault", "vault.lock"]);
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
    fn a_wrong_key_is_told_and_nothing_is_made_or_changed() {
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
        assert_eq!(directory.names(), ["vault", "vault.lock"]);
        assert_eq!(fs::read(directory.path("vault")).unwrap(), good);
        let words = Directory::new();
        small(&words, passphrase("words"));
        let mixed = open(&words, words.key_file()).err();
        assert!(matches!(mixed, Some(VaultError::OtherKey { .. })));
        assert_eq!(words.names(), ["vault", "vault.lock"]);
    }

    #[test]
    fn a_vault_is_no_link_no_pipe_and_not_its_own_key() {
        let directory = Directory::new();
        let (real, place) = (directory.path("real"), directory.path("vault"));
        fs::write(&real, "x").unwrap();
        symlink(&real, &place).unwrap();
        let error = open(&directory, directory.key_file()).err().unwrap();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        fs::remove_file(&place).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &place, rustix::fs::Mode::RUSR).unwrap();
        let error = open(&directory, directory.key_file()).err().unwrap();
        assert!(error.to_string().contains("no regular file"), "{error}");
        fs::remove_file(&place).unwrap();
        let own = open(&directory, FileKey::KeyFile(place.clone())).err();
        assert!(matches!(own, Some(VaultError::Key { .. })) && !place.exists());
        // a second name of the same place does not replace the key that was just made there
        symlink(directory.path(""), directory.path("alias")).unwrap();
        assert!(open(&directory, FileKey::KeyFile(directory.path("alias/vault"))).is_err());
        assert_eq!(fs::read(&place).unwrap().len(), 65);
    }
}
