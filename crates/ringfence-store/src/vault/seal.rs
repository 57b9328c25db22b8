//! The format of a vault's file: contents sealed under a key. Pure except for random numbers.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `RINGVALT` |
//! | 2 | version, 1 (numbers are little endian) |
//! | 2 | derivation of the key: 0 none, 1 Argon2id |
//! | 12 | Argon2id: memory in KiB, passes and lanes |
//! | 16 | Argon2id: salt |
//! | 24 | nonce, new for every write |
//! | 8 | length of the whole file |
//! | .. | contents ([`encoding`]) under XChaCha20-Poly1305, the header as associated data |
//! | 16 | tag |

use super::{
    contents::Contents,
    encoding::{self, ByteReader, ENCODED_BYTES_MAX},
    error::Damage,
    key::{Cost, Derivation, Key, SALT_BYTES},
};
use chacha20poly1305::{
    KeyInit, Tag, XChaCha20Poly1305, XNonce,
    aead::{self, AeadInOut},
};
use std::io;
use zeroize::Zeroizing;

const MAGIC: &[u8; 8] = b"RINGVALT";
const VERSION: u16 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const HEADER_BYTES: usize = 8 + 2 + 2 + 12 + SALT_BYTES + NONCE_BYTES + 8;

pub(super) const SEALED_BYTES_MAX: usize = HEADER_BYTES + ENCODED_BYTES_MAX + TAG_BYTES;

/// The header of a file, not trusted before the file is decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) derivation: Derivation,
    nonce: [u8; NONCE_BYTES],
}

/// Returns the bytes of a file. The contents are encrypted in place.
pub(super) fn seal(contents: &Contents, key: &Key, derivation: Derivation) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let file_bytes = HEADER_BYTES + encoding::encoded_len(contents) + TAG_BYTES;
    let mut file = Zeroizing::new(Vec::with_capacity(file_bytes));
    Header { derivation, nonce }.write(file_bytes, &mut file);
    encoding::write(contents, &mut file);
    let (header, text) = file.split_at_mut(HEADER_BYTES);
    let tag = cipher(key)
        .encrypt_inout_detached(&XNonce::from(nonce), header, text.into())
        .map_err(|aead::Error| io::Error::other("the cipher refused"))?;
    file.extend_from_slice(&tag);
    Ok(file)
}

/// Decrypts a file with this header in place and returns its contents.
pub(super) fn open(mut file: Zeroizing<Vec<u8>>, header: &Header, key: &Key) -> Result<Contents, Damage> {
    let text_end = file.len().checked_sub(TAG_BYTES).ok_or(Damage::Seal)?;
    let (front, tag) = file.split_at_mut(text_end);
    let (associated, text) = front.split_at_mut_checked(HEADER_BYTES).ok_or(Damage::Seal)?;
    let tag = Tag::try_from(&*tag).map_err(|_| Damage::Seal)?;
    cipher(key)
        .decrypt_inout_detached(&header.nonce.into(), associated, text.into(), &tag)
        .map_err(|aead::Error| Damage::Seal)?;
    encoding::read(text).ok_or(Damage::Contents)
}

/// Returns the cipher, which wipes its copy of the key when it is dropped.
fn cipher(key: &Key) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.bytes().into())
}

impl Header {
    fn write(&self, file_bytes: usize, buffer: &mut Vec<u8>) {
        let (kind, cost, salt) = match self.derivation {
            Derivation::None => (0_u16, [0; 3], [0; SALT_BYTES]),
            Derivation::Argon2id { cost, salt } => (1, [cost.memory_kib, cost.passes, cost.lanes], salt),
        };
        buffer.extend_from_slice(MAGIC);
        buffer.extend_from_slice(&VERSION.to_le_bytes());
        buffer.extend_from_slice(&kind.to_le_bytes());
        for number in cost {
            buffer.extend_from_slice(&number.to_le_bytes());
        }
        buffer.extend_from_slice(&salt);
        buffer.extend_from_slice(&self.nonce);
        buffer.extend_from_slice(&(file_bytes as u64).to_le_bytes());
    }

    /// Checks everything that can be checked without a key.
    pub(super) fn read(file: &[u8]) -> Result<Self, Damage> {
        if !file.starts_with(MAGIC) {
            return Err(Damage::Magic);
        }
        let found = file.len() as u64;
        let short = Damage::Length {
            expected: (HEADER_BYTES + TAG_BYTES) as u64,
            found,
        };
        let mut reader = ByteReader(&file[MAGIC.len()..]);
        let version = u16::from_le_bytes(reader.array().ok_or(short)?);
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let kind = u16::from_le_bytes(reader.array().ok_or(short)?);
        let mut cost = [0; 3];
        for number in &mut cost {
            *number = reader.u32().ok_or(short)?;
        }
        let salt = reader.array().ok_or(short)?;
        let nonce = reader.array().ok_or(short)?;
        let expected = u64::from_le_bytes(reader.array().ok_or(short)?);
        if reader.0.len() < TAG_BYTES {
            return Err(short);
        }
        if expected != found {
            return Err(Damage::Length { expected, found });
        }
        let [memory_kib, passes, lanes] = cost;
        let derivation = match kind {
            0 => Derivation::None,
            1 => Derivation::Argon2id {
                cost: Cost::bounded(memory_kib, passes, lanes).ok_or(Damage::Derivation)?,
                salt,
            },
            _ => return Err(Damage::Derivation),
        };
        Ok(Self { derivation, nonce })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::value::SecretValue;

    fn key(words: &str) -> Key {
        let cost = Cost::bounded(8, 1, 1).unwrap();
        Key::derive(
            &SecretValue::new(words.to_owned()).unwrap(),
            &[1; SALT_BYTES],
            cost,
        )
        .unwrap()
    }

    fn header_with(at: usize, bytes: &[u8]) -> Result<Header, Damage> {
        let mut file = seal(&Contents::default(), &key("k"), Derivation::None).unwrap();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        Header::read(&file)
    }

    #[test]
    fn sealing_twice_gives_different_bytes() {
        let seal = || seal(&Contents::default(), &key("k"), Derivation::None).unwrap();
        let (first, second) = (seal(), seal());
        assert_ne!(first[HEADER_BYTES..], second[HEADER_BYTES..]);
        let header = Header::read(&first).unwrap();
        assert!(open(first.clone(), &header, &key("k")).is_ok());
        assert_eq!(open(first, &header, &key("other")).err(), Some(Damage::Seal));
        assert_eq!(
            open(second, &header, &key("k")).err(),
            Some(Damage::Seal),
            "the nonce of another"
        );
    }

    #[test]
    fn excessive_derivation_cost_in_header_is_refused() {
        let asks = |memory_kib: u32, passes: u32, lanes: u32| {
            let cost = [memory_kib, passes, lanes].map(u32::to_le_bytes).concat();
            header_with(10, &[&1_u16.to_le_bytes()[..], &cost].concat()).err()
        };
        assert_eq!(asks(64 << 10, 3, 4), None);
        assert_eq!(asks(256 << 10, 10, 16), None);
        assert_eq!(asks(1 << 30, 3, 4), Some(Damage::Derivation), "1 TiB");
        assert_eq!(asks((256 << 10) + 1, 3, 4), Some(Damage::Derivation));
        assert_eq!(asks(64 << 10, 11, 4), Some(Damage::Derivation));
        assert_eq!(asks(64 << 10, 3, 17), Some(Damage::Derivation));
        assert_eq!(asks(64 << 10, 0, 4), Some(Damage::Derivation));
        assert_eq!(asks(64 << 10, 3, 0), Some(Damage::Derivation));
        assert_eq!(
            asks(31, 3, 4),
            Some(Damage::Derivation),
            "too little for its lanes"
        );
        assert_eq!(asks(u32::MAX, u32::MAX, u32::MAX), Some(Damage::Derivation));
    }

    #[test]
    fn damaged_header_gives_specific_error() {
        assert_eq!(header_with(0, b"ringvalt").err(), Some(Damage::Magic));
        assert_eq!(
            header_with(8, &2_u16.to_le_bytes()).err(),
            Some(Damage::Version(2))
        );
        assert_eq!(
            header_with(10, &2_u16.to_le_bytes()).err(),
            Some(Damage::Derivation)
        );
        assert!(matches!(
            header_with(64, &u64::MAX.to_le_bytes()),
            Err(Damage::Length {
                expected: u64::MAX,
                ..
            })
        ));
        assert!(header_with(0, MAGIC).is_ok());
    }
}
