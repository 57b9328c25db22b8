//! The first bytes of a connection, from a program that tries to disguise its destination. The verdict must not depend
//! on later bytes, nor on the boundaries of records.

use ringfence_egress::{ClientHello, HELLO_BYTES_MAX, HELLO_RECORDS_MAX, Progress};

const RECORD_HEADER_BYTES: usize = 5;

/// One input.
pub fn run(bytes: &[u8]) {
    let verdict = ClientHello::read(bytes);
    for end in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = ClientHello::read(&bytes[..end]);
        assert!(
            part == Progress::More || part == verdict,
            "{end}: {part:?} {verdict:?}"
        );
    }
    let longer = ClientHello::read(&[bytes, b"\x17\x03\x03\0\x01\0"].concat());
    match verdict {
        Progress::More => {
            let most = HELLO_BYTES_MAX + HELLO_RECORDS_MAX * RECORD_HEADER_BYTES;
            assert!(
                bytes.len() <= most,
                "still incomplete after {} bytes",
                bytes.len()
            );
        }
        Progress::Hello(hello) => {
            assert_eq!(longer, Progress::Hello(hello.clone()));
            let taken = &bytes[..hello.bytes];
            assert_eq!(ClientHello::read(taken), Progress::Hello(hello.clone()));
            assert!(
                hello.identity().is_ok()
                    == matches!((&hello.server_name, hello.has_ech), (Some(Ok(_)), false))
            );
            match ClientHello::read(&split_after_first_byte(taken)) {
                Progress::Hello(again) => {
                    assert_eq!(again.identity(), hello.identity());
                    assert_eq!(again.alpn, hello.alpn);
                }
                other => panic!("{other:?}"),
            }
        }
        verdict => assert_eq!(longer, verdict),
    }
}

/// Splits the same message into other records: one with the first byte, and one with the rest.
fn split_after_first_byte(mut stream: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let (data, rest) = rest.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
        message.extend_from_slice(data);
        stream = rest;
    }
    let (first, rest) = message.split_at(1);
    let length = u16::try_from(rest.len()).expect("a hello is short").to_be_bytes();
    [&[22, 3, 1, 0, 1], first, &[22, 3, 3], &length, rest].concat()
}
