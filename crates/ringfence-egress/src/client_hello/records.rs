//! Reassembly of a ClientHello from its records. Each byte is checked in order and once, so that the verdict does not
//! depend on how the client, or a machine in between, has cut the stream.

use super::{HELLO_BYTES_MAX, HELLO_RECORDS_MAX, Progress};

const RECORD_HEADER_BYTES: usize = 5;
const RECORD_BYTES_MAX: usize = 1 << 14;
const MESSAGE_HEADER_BYTES: usize = 4;

const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION: u8 = 23;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// The random value of a ServerHello that asks for a second ClientHello (HelloRetryRequest; RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// True if the first bytes of a server ask for a second ClientHello; `None` if more bytes decide.
pub(crate) fn asks_again(bytes: &[u8]) -> Option<bool> {
    // The random value follows a version of two bytes.
    const RANDOM: usize = RECORD_HEADER_BYTES + MESSAGE_HEADER_BYTES + 2;
    // A warning may come first.
    let bytes = match bytes {
        [ALERT, _, _, 0, 2, 1, _, rest @ ..] => rest,
        [ALERT, ..] if bytes.len() < RECORD_HEADER_BYTES + 2 => return None,
        _ => bytes,
    };
    let is = |at: usize, kind: u8| bytes.get(at).is_none_or(|byte| *byte == kind);
    let random = bytes.get(RANDOM..).unwrap_or_default();
    let may = is(0, HANDSHAKE)
        && is(RECORD_HEADER_BYTES, SERVER_HELLO)
        && random.iter().zip(RETRY).all(|(byte, retry)| *byte == retry);
    (!may || random.len() >= RETRY.len()).then_some(may)
}

/// Returns the length of a record that may precede a second ClientHello: a change of ciphers, an alert, early data;
/// the length of its header until that is complete. `None` for other bytes.
pub(crate) fn other_record(bytes: &[u8]) -> Option<usize> {
    match *bytes {
        [CHANGE_CIPHER | ALERT | APPLICATION, _, _, high, low, ..] => {
            Some(RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low])))
        }
        [CHANGE_CIPHER | ALERT | APPLICATION, ..] => Some(RECORD_HEADER_BYTES),
        _ => None,
    }
}

/// Returns the message without its header, and the number of bytes of the stream that it took.
pub(super) fn reassemble(bytes: &[u8]) -> Result<(Vec<u8>, usize), Progress> {
    check_beginning(bytes)?;
    let mut message: Vec<u8> = Vec::new();
    let mut rest = bytes;
    for _ in 0..HELLO_RECORDS_MAX {
        let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err(Progress::More);
        };
        let length = length_of(header).map_err(Progress::Malformed)?;
        let ends = message.len() + length;
        message.extend_from_slice(&after[..length.min(after.len())]);
        match message_length(&message).map_err(Progress::Malformed)? {
            // Nothing may follow in the record: some servers would read it under the same keys as the hello.
            Some(message_length) if ends > message_length => {
                return Err(Progress::Malformed("bytes after the hello in its record"));
            }
            _ if after.len() < length => return Err(Progress::More),
            Some(message_length) if ends == message_length => {
                message.drain(..MESSAGE_HEADER_BYTES);
                return Ok((message, bytes.len() - (after.len() - length)));
            }
            _ => rest = &after[length..],
        }
    }
    Err(Progress::Malformed("a hello in more than 64 records"))
}

/// Checks that a connection begins as TLS does. Some servers continue to read after a wrong record version, so that is
/// refused rather than taken for another protocol.
fn check_beginning(bytes: &[u8]) -> Result<(), Progress> {
    let &[first, ref rest @ ..] = bytes else {
        return Err(Progress::More);
    };
    match (first, rest) {
        (HANDSHAKE, [3, ..]) => return Ok(()),
        (HANDSHAKE, [major, _, _, _, CLIENT_HELLO, ..]) if *major < 16 => {
            return Err(Progress::Malformed("a record whose version is not TLS"));
        }
        (CHANGE_CIPHER | ALERT | APPLICATION, [3, 0..=4, high, low, ..]) => {
            let length = u16::from_be_bytes([*high, *low]);
            let is_record = match first {
                CHANGE_CIPHER => length == 1,
                ALERT => length == 2,
                _ => usize::from(length) <= RECORD_BYTES_MAX + 256,
            };
            return Err(match is_record {
                true => Progress::Malformed("a record before the hello"),
                false => Progress::NotTls,
            });
        }
        // Two bytes of length with the highest bit set, the message's type, and a version.
        (0x80.., [_, CLIENT_HELLO, 0, 2, ..] | [_, CLIENT_HELLO, 3, _, ..]) => {
            return Err(Progress::Malformed("an SSL 2 hello"));
        }
        _ => {}
    }
    let may_become = match first {
        HANDSHAKE => rest.len() < 5 && rest.first().is_none_or(|major| *major < 16),
        CHANGE_CIPHER | ALERT | APPLICATION => matches!(rest, [] | [3] | [3, 0..=4] | [3, 0..=4, _]),
        0x80.. => matches!(rest, [] | [_] | [_, CLIENT_HELLO] | [_, CLIENT_HELLO, 0 | 3]),
        _ => false,
    };
    Err(match may_become {
        true => Progress::More,
        false => Progress::NotTls,
    })
}

fn length_of(header: &[u8; RECORD_HEADER_BYTES]) -> Result<usize, &'static str> {
    let [kind, major, _, high, low] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    match (kind, major, length) {
        (HANDSHAKE, 3, 1..=RECORD_BYTES_MAX) => Ok(length),
        (HANDSHAKE, 3, 0) => Err("an empty record"),
        (HANDSHAKE, 3, _) => Err("a record that is too long"),
        (HANDSHAKE, _, _) => Err("a record whose version is not TLS"),
        _ => Err("another record inside the hello"),
    }
}

/// Returns the length of the message with its header, as soon as it is known.
fn message_length(message: &[u8]) -> Result<Option<usize>, &'static str> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err("a handshake that does not begin with a ClientHello");
    }
    let &[_, high, middle, low, ..] = message else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, high, middle, low]);
    match usize::try_from(length) {
        Ok(length) if length <= HELLO_BYTES_MAX - MESSAGE_HEADER_BYTES => {
            Ok(Some(MESSAGE_HEADER_BYTES + length))
        }
        _ => Err("a hello that is too long"),
    }
}
