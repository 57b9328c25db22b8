//! The encoding of contents before they are sealed. Not JSON: a parser that unescapes leaves copies of secrets in
//! buffers that are not wiped. Here a value is copied directly from one buffer to the other.
//!
//! The number of secrets (`u32`, little endian like all numbers here), then for each: namespace (`u16` length, text),
//! key (the same), created and expires (`u64`, Unix ms; all ones for None), value (`u32` length, text). They are in
//! strictly ascending order of namespace and key, so that the encoding is unique.

use super::{
    contents::{Contents, StoredSecret},
    error::{BYTES_MAX, SECRETS_MAX},
    value::SecretValue,
};
use ringfence_types::{EnvName, Namespace};
use std::sync::Arc;

const NONE_MS: u64 = u64::MAX;
const NUMBER_BYTES: usize = 4;
/// The numbers of one secret: two short lengths, two times, one long length.
const FRAME_BYTES: usize = 2 + 2 + 8 + 8 + 4;
/// The longest names: 64 bytes of a namespace, 256 of a key.
const NAMES_BYTES_MAX: usize = 64 + 256;

pub(super) const ENCODED_BYTES_MAX: usize =
    NUMBER_BYTES + SECRETS_MAX * (FRAME_BYTES + NAMES_BYTES_MAX) + BYTES_MAX;

pub(super) fn encoded_len(contents: &Contents) -> usize {
    let one = |(namespace, key, secret): (&Namespace, &EnvName, &StoredSecret)| {
        FRAME_BYTES + namespace.as_str().len() + key.as_str().len() + secret.value.len()
    };
    NUMBER_BYTES + contents.each().map(one).sum::<usize>()
}

/// Appends the contents, whose limits are far below those of the length fields. The buffer must have the capacity for
/// them: growing it would leave a copy behind.
pub(super) fn write(contents: &Contents, buffer: &mut Vec<u8>) {
    debug_assert!(buffer.capacity() - buffer.len() >= encoded_len(contents));
    let number = u32::try_from(contents.len()).unwrap_or(u32::MAX);
    buffer.extend_from_slice(&number.to_le_bytes());
    for (namespace, key, secret) in contents.each() {
        for name in [namespace.as_str(), key.as_str()] {
            let bytes = u16::try_from(name.len()).unwrap_or(u16::MAX);
            buffer.extend_from_slice(&bytes.to_le_bytes());
            buffer.extend_from_slice(name.as_bytes());
        }
        for time in [secret.created_unix_ms, secret.expires_unix_ms] {
            buffer.extend_from_slice(&time.unwrap_or(NONE_MS).to_le_bytes());
        }
        let bytes = u32::try_from(secret.value.len()).unwrap_or(u32::MAX);
        buffer.extend_from_slice(&bytes.to_le_bytes());
        buffer.extend_from_slice(secret.value.expose().as_bytes());
    }
}

/// Reads contents; None if any byte differs from what [`write`] would write.
pub(super) fn read(bytes: &[u8]) -> Option<Contents> {
    let mut reader = ByteReader(bytes);
    let mut contents = Contents::default();
    let mut before: Option<(Namespace, EnvName)> = None;
    for _ in 0..reader.u32()? {
        let namespace = Namespace::try_from(reader.name()?).ok()?;
        let key = EnvName::try_from(reader.name()?).ok()?;
        let secret = StoredSecret {
            created_unix_ms: reader.time()?,
            expires_unix_ms: reader.time()?,
            value: Arc::new(reader.value()?),
        };
        contents.put(&namespace, &key, secret).ok()?;
        let id = Some((namespace, key));
        if id <= before {
            return None;
        }
        before = id;
    }
    reader.0.is_empty().then_some(contents)
}

pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        self.take(BYTES)?.try_into().ok()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn time(&mut self) -> Option<Option<u64>> {
        let time = self.array().map(u64::from_le_bytes)?;
        Some((time != NONE_MS).then_some(time))
    }

    fn text(&mut self, bytes: usize) -> Option<&'a str> {
        str::from_utf8(self.take(bytes)?).ok()
    }

    fn name(&mut self) -> Option<String> {
        let bytes = self.array().map(u16::from_le_bytes)?;
        self.text(bytes.into()).map(str::to_owned)
    }

    fn value(&mut self) -> Option<SecretValue> {
        let bytes = usize::try_from(self.u32()?).ok()?;
        // One allocation of the exact length, which the value then owns.
        SecretValue::new(self.text(bytes)?.to_owned()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(secrets: &[(&str, &str, &str, Option<u64>)]) -> Contents {
        let mut contents = Contents::default();
        for (namespace, key, text, expires_unix_ms) in secrets {
            let secret = StoredSecret {
                value: SecretValue::new((*text).to_owned()).unwrap().into(),
                created_unix_ms: Some(5),
                expires_unix_ms: *expires_unix_ms,
            };
            let namespace = Namespace::try_from((*namespace).to_owned()).unwrap();
            contents
                .put(&namespace, &EnvName::try_from((*key).to_owned()).unwrap(), secret)
                .unwrap();
        }
        contents
    }

    fn written(contents: &Contents) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(encoded_len(contents));
        let address = buffer.as_ptr();
        write(contents, &mut buffer);
        assert_eq!((buffer.len(), buffer.as_ptr()), (encoded_len(contents), address));
        buffer
    }

    #[test]
    fn contents_round_trip_through_encoding() {
        let some = [
            ("a", "K", "first", None),
            ("a", "L", "ж\n", Some(7)),
            ("b.c", "K", "x", Some(u64::MAX - 1)),
        ];
        for secrets in [&some[..0], &some[..1], &some[..]] {
            let bytes = written(&contents(secrets));
            let again = read(&bytes).unwrap();
            assert_eq!(written(&again), bytes);
            let found: Vec<_> = again
                .each()
                .map(|(namespace, key, secret)| {
                    (
                        namespace.as_str(),
                        key.as_str(),
                        secret.value.expose(),
                        secret.expires_unix_ms,
                    )
                })
                .collect();
            assert_eq!(found, secrets);
        }
    }

    #[test]
    fn decoded_contents_encode_to_same_bytes() {
        let good = written(&contents(&[
            ("a", "K", "first", None),
            ("a", "L", "second", Some(7)),
            ("b", "K", "x", None),
        ]));
        for end in 0..good.len() {
            assert!(read(&good[..end]).is_none(), "{end}");
        }
        assert!(read(&[&good[..], &[0]].concat()).is_none());
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = byte;
                if let Some(contents) = read(&bytes) {
                    assert_eq!(written(&contents), bytes, "{at} {byte}");
                }
            }
        }
    }

    #[test]
    fn false_length_allocates_nothing() {
        assert!(read(&u32::MAX.to_le_bytes()).is_none());
        let mut bytes = written(&contents(&[("a", "K", "x", None)]));
        let length_at = bytes.len() - 5;
        bytes[length_at..length_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&bytes).is_none());
    }
}
