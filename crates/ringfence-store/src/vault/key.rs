//! The key of a vault's file: the bytes of a key file, or derived from a passphrase by Argon2id.

use super::{error::VaultError, place, value::SecretValue};
use crate::whole_file::{FileError, IfExists};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use data_encoding::HEXLOWER_PERMISSIVE;
use std::{
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use zeroize::{Zeroize, Zeroizing};

pub(super) const KEY_BYTES: usize = 32;
pub(super) const SALT_BYTES: usize = 16;
const HEX_BYTES: usize = 2 * KEY_BYTES;

#[derive(Clone, Debug)]
pub enum FileKey {
    /// A file of 32 bytes, or of 64 hexadecimal digits with an optional newline, no symbolic link, and of mode 0600 or
    /// less. It is created if both it and the vault are missing.
    KeyFile(PathBuf),
    /// A passphrase. The key is derived once, when the vault is opened.
    Passphrase(Arc<SecretValue>),
}

/// A key in one heap buffer, which is wiped on drop.
pub(super) struct Key(Box<Zeroizing<[u8; KEY_BYTES]>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Derivation {
    None,
    /// RFC 9106.
    Argon2id {
        cost: Cost,
        salt: [u8; SALT_BYTES],
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) memory_kib: u32,
    pub(super) passes: u32,
    pub(super) lanes: u32,
}

impl Cost {
    /// The second recommendation of RFC 9106, section 4, for environments where 2 GiB are too much.
    pub(super) const RECOMMENDED: Self = Self {
        memory_kib: 64 << 10,
        passes: 3,
        lanes: 4,
    };
    /// Maximum cost that a file can ask for: a file is untrusted until it is decrypted.
    const MAX: Self = Self {
        memory_kib: 256 << 10,
        passes: 10,
        lanes: 16,
    };

    /// Returns None if a file asks for more than the maximum, or for parameters that Argon2 does not allow.
    pub(super) fn bounded(memory_kib: u32, passes: u32, lanes: u32) -> Option<Self> {
        let max = Self::MAX;
        let within = memory_kib <= max.memory_kib && passes <= max.passes && lanes <= max.lanes;
        let cost = Self {
            memory_kib,
            passes,
            lanes,
        };
        (within && cost.params().is_ok()).then_some(cost)
    }

    fn params(self) -> argon2::Result<Params> {
        Params::new(self.memory_kib, self.passes, self.lanes, Some(KEY_BYTES))
    }
}

impl Key {
    fn zero() -> Self {
        Self(Box::new(Zeroizing::new([0; KEY_BYTES])))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Derives a key from a passphrase. Argon2's memory is wiped, because the key can be computed from it.
    pub(super) fn derive(phrase: &SecretValue, salt: &[u8; SALT_BYTES], cost: Cost) -> argon2::Result<Self> {
        let params = cost.params()?;
        let mut memory = Vec::new();
        let reserved = memory.try_reserve_exact(params.block_count());
        reserved.map_err(|_| argon2::Error::OutOfMemory)?;
        memory.resize(params.block_count(), Block::new());
        let mut key = Self::zero();
        let (phrase, out) = (phrase.expose().as_bytes(), key.0.as_mut_slice());
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let derived = argon2.hash_password_into_with_memory(phrase, salt, out, &mut memory);
        memory.zeroize();
        derived.map(|()| key)
    }

    pub(super) fn load(path: &Path, if_missing: IfMissing) -> Result<Self, VaultError> {
        let refused = |why: &str| VaultError::Key {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let file = match place::open(path) {
            Ok(opened) => opened,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound if if_missing == IfMissing::Create => return Self::make(path),
                io::ErrorKind::NotFound => {
                    let why = "it is missing, and the vault cannot be opened without it";
                    return Err(refused(why));
                }
                io::ErrorKind::Other => return Err(refused(&error.to_string())),
                _ => return Err(FileError::at("open the key", path)(error).into()),
            },
        };
        let metadata = file.metadata();
        let metadata = metadata.map_err(FileError::at("look at the key", path))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(refused("others may read or write it; chmod it to 0600"));
        }
        // More capacity than is read, so that the buffer never moves and leaves a copy.
        let mut text = Zeroizing::new(Vec::with_capacity(4 * HEX_BYTES));
        // One byte more than the longest key file, to detect a longer one.
        let read = file.take(HEX_BYTES as u64 + 2).read_to_end(&mut text);
        read.map_err(FileError::at("read the key", path))?;
        Self::parse(&text).ok_or_else(|| refused("it is neither 32 bytes nor 64 hexadecimal digits"))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut key = Self::zero();
        if let Ok(bytes) = <&[u8; KEY_BYTES]>::try_from(text) {
            key.0.copy_from_slice(bytes);
            return Some(key);
        }
        let digits = text.strip_suffix(b"\n").unwrap_or(text);
        if digits.len() != HEX_BYTES {
            return None;
        }
        let decoded = HEXLOWER_PERMISSIVE.decode_mut(digits, key.0.as_mut_slice());
        decoded.is_ok().then_some(key)
    }

    /// Creates a key file. If two processes do it at once, one succeeds and both use its key.
    fn make(path: &Path) -> Result<Self, VaultError> {
        place::clean(path)?;
        let mut key = Self::zero();
        place::random(key.0.as_mut_slice()).map_err(FileError::at("draw the key of", path))?;
        let mut text = Zeroizing::new([b'\n'; HEX_BYTES + 1]);
        HEXLOWER_PERMISSIVE.encode_mut(key.bytes(), &mut text[..HEX_BYTES]);
        match place::put(path, text.as_slice(), IfExists::Fail) {
            Err(VaultError::File(FileError { error, .. }))
                if error.kind() == io::ErrorKind::AlreadyExists =>
            {
                Self::load(path, IfMissing::Refuse)
            }
            made => made.map(|_| key),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfMissing {
    /// A missing key file is created: there is no vault either.
    Create,
    Refuse,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::tests::fixture::{Directory, cheap, value};
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    fn write(path: &Path, bytes: &[u8], mode: u32) {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        match Key::load(path, IfMissing::Refuse) {
            Err(VaultError::Key { why, .. }) => why.to_owned(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was taken"),
        }
    }

    #[test]
    fn key_file_has_32_bytes_or_64_hex_digits() {
        let check = |text: &[u8], good: bool| assert_eq!(Key::parse(text).is_some(), good, "{text:?}");
        check(&[0xff; 32], true);
        check(&[b'a'; 64], true);
        check(&[&[b'F'; 64][..], b"\n"].concat(), true);
        check(&[b'g'; 64], false);
        check(&[&[b'a'; 64][..], b"\n\n"].concat(), false);
        check(&[&[b'a'; 64][..], b" "].concat(), false);
        check(&[&[b'a'; 63][..], b"\n"].concat(), false);
        check(&[b'+'; 64], false);
        check(&[b'a'; 66], false);
        check(&[0; 31], false);
        check(&[0; 33], false);
        check(b"", false);
        let mixed = "00ff10aB".repeat(8);
        let expect = [0x00, 0xff, 0x10, 0xab].repeat(8);
        assert_eq!(Key::parse(mixed.as_bytes()).unwrap().bytes()[..], expect);
    }

    #[test]
    fn key_file_is_created_once_with_mode_0600() {
        let directory = Directory::new();
        let path = directory.path("key");
        let refused = refusal(&path);
        assert!(refused.contains("missing") && !path.exists());
        let made = Key::load(&path, IfMissing::Create).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        for if_missing in [IfMissing::Create, IfMissing::Refuse] {
            assert_eq!(Key::load(&path, if_missing).unwrap().bytes(), made.bytes());
        }
        assert_ne!(made.bytes(), &[0; KEY_BYTES]);
        assert_eq!(directory.names(), ["key"]);
    }

    #[test]
    fn key_file_accessible_to_others_is_refused() {
        let directory = Directory::new();
        let path = directory.path("key");
        for mode in [0o604, 0o640, 0o602, 0o620, 0o644, 0o777, 0o601] {
            write(&path, &[7; 32], mode);
            assert!(refusal(&path).contains("chmod"), "{mode:o}");
        }
        for mode in [0o600, 0o400] {
            write(&path, &[7; 32], 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(Key::load(&path, IfMissing::Refuse).is_ok(), "{mode:o}");
        }
        symlink(&path, directory.path("link")).unwrap();
        assert!(refusal(&directory.path("link")).contains("symbolic"));
        fs::create_dir(directory.path("directory")).unwrap();
        assert!(refusal(&directory.path("directory")).contains("regular"));
        rustix::fs::mkfifoat(rustix::fs::CWD, directory.path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(
            refusal(&directory.path("pipe")).contains("regular"),
            "and there is no wait for a writer"
        );
        write(&directory.path("long"), &[b'a'; 1 << 16], 0o600);
        assert!(refusal(&directory.path("long")).contains("digits"));
    }

    #[test]
    fn derived_key_depends_on_passphrase_salt_and_cost() {
        let derive = |passphrase: &str, salt: u8, cost: Cost| {
            *Key::derive(&value(passphrase), &[salt; SALT_BYTES], cost)
                .unwrap()
                .bytes()
        };
        let one = derive("words", 1, cheap());
        assert_eq!(derive("words", 1, cheap()), one);
        assert_ne!(derive("Words", 1, cheap()), one);
        assert_ne!(derive("words", 2, cheap()), one);
        assert_ne!(derive("words", 1, Cost::bounded(8, 2, 1).unwrap()), one);
    }
}
