//! Decoding of `Content-Encoding` with a limit on the output. At most two codings, because more would be a bomb.

use std::io::{self, Read};

const CODINGS_MAX: usize = 2;
/// Base-2 logarithm of the maximum window size of a zstd frame, as in browsers (RFC 9659).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
const BROTLI_BUFFER_BYTES: usize = 4096;

/// The reason why a body is not decoded; the text follows "the body".
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodingError {
    #[error("has more than {CODINGS_MAX} codings")]
    TooMany,
    #[error("has the coding `{0}`, which is not known here")]
    Unknown(String),
    #[error("is more than {0} bytes unpacked")]
    TooLarge(usize),
    #[error("cannot be unpacked: {0}")]
    Broken(io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Whole,
    /// The rest was over a limit, or did not arrive.
    Part,
}

/// Removes the codings of a body.
pub(crate) fn decode(
    coding: &str,
    body: &[u8],
    bytes_max: usize,
    arrived: Arrived,
) -> Result<Vec<u8>, CodingError> {
    let names = coding.split(',').map(|name| name.trim().to_ascii_lowercase());
    let names: Vec<String> = names
        .filter(|name| !name.is_empty() && name != "identity")
        .collect();
    if names.len() > CODINGS_MAX {
        return Err(CodingError::TooMany);
    }
    let mut body = body.to_vec();
    // The coding applied last is removed first.
    for name in names.iter().rev() {
        body = decode_one(name, &body, bytes_max, arrived)?;
    }
    match body.len() > bytes_max {
        true => Err(CodingError::TooLarge(bytes_max)),
        false => Ok(body),
    }
}

fn decode_one(name: &str, body: &[u8], bytes_max: usize, arrived: Arrived) -> Result<Vec<u8>, CodingError> {
    match name {
        "gzip" | "x-gzip" => bounded(flate2::read::MultiGzDecoder::new(body), bytes_max, arrived),
        // Servers send deflate with and without a zlib header.
        "deflate" if body.first().is_some_and(|byte| byte & 0x0f == 8) => {
            bounded(flate2::read::ZlibDecoder::new(body), bytes_max, arrived)
        }
        "deflate" => bounded(flate2::read::DeflateDecoder::new(body), bytes_max, arrived),
        "br" => bounded(
            brotli_decompressor::Decompressor::new(body, BROTLI_BUFFER_BYTES),
            bytes_max,
            arrived,
        ),
        "zstd" => {
            let mut decoder = zstd::Decoder::new(body).map_err(CodingError::Broken)?;
            decoder
                .window_log_max(ZSTD_WINDOW_LOG_MAX)
                .map_err(CodingError::Broken)?;
            bounded(decoder, bytes_max, arrived)
        }
        other => Err(CodingError::Unknown(other.chars().take(32).collect())),
    }
}

/// Reads everything; an error as soon as it is over the limit. A truncated body is read up to its end.
fn bounded(mut from: impl Read, bytes_max: usize, arrived: Arrived) -> Result<Vec<u8>, CodingError> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) if bytes.len() + read > bytes_max => return Err(CodingError::TooLarge(bytes_max)),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if arrived == Arrived::Part => return Ok(bytes),
            Err(error) => return Err(CodingError::Broken(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn content_codings_are_decoded_in_reverse_order() {
        let text = b"a page that says something ".repeat(50);
        let check = |coding: &str, body: &[u8]| {
            assert_eq!(
                decode(coding, body, 1 << 20, Arrived::Whole).unwrap(),
                text,
                "{coding}"
            );
        };
        check("", &text);
        check("identity", &text);
        check("GZIP", &gzip(&text));
        check("gzip, gzip", &gzip(&gzip(&text)));
        let zstd = zstd::encode_all(text.as_slice(), 3).unwrap();
        check("zstd", &zstd);
        check("zstd, gzip", &gzip(&zstd));
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&text).unwrap();
        check("deflate", &zlib.finish().unwrap());
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(&text).unwrap();
        check("deflate", &raw.finish().unwrap());
        // Uncompressed meta-block of three bytes, then the empty last one (RFC 7932, section 9.2).
        let brotli = [0x0b, 0x01, 0x80, b'a', b'b', b'c', 0x03];
        assert_eq!(decode("br", &brotli, 1 << 20, Arrived::Whole).unwrap(), b"abc");
    }

    #[test]
    fn decompression_bomb_is_refused_at_the_limit() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 128 << 10);
        assert!(matches!(
            decode("gzip", &bomb, 1 << 20, Arrived::Whole),
            Err(CodingError::TooLarge(_))
        ));
        let twice = gzip(&bomb);
        assert!(matches!(
            decode("gzip, gzip", &twice, 1 << 20, Arrived::Whole),
            Err(CodingError::TooLarge(_))
        ));
        let thrice = decode("gzip, gzip, gzip", &gzip(&twice), 1 << 20, Arrived::Whole);
        assert!(matches!(thrice, Err(CodingError::TooMany)));
        assert!(matches!(
            decode("compress", b"x", 10, Arrived::Whole),
            Err(CodingError::Unknown(_))
        ));
        assert!(matches!(
            decode("gzip", b"no gzip", 10, Arrived::Whole),
            Err(CodingError::Broken(_))
        ));
    }

    #[test]
    fn truncated_body_is_decoded_up_to_the_cut() {
        let text: Vec<u8> = (0..200_000_u32)
            .flat_map(|number| number.to_string().into_bytes())
            .collect();
        let packed = gzip(&text);
        let cut = &packed[..packed.len() / 2];
        assert!(matches!(
            decode("gzip", cut, 1 << 24, Arrived::Whole),
            Err(CodingError::Broken(_))
        ));
        let beginning = decode("gzip", cut, 1 << 24, Arrived::Part).unwrap();
        assert!(beginning.len() > 1000 && text.starts_with(&beginning));
    }
}
