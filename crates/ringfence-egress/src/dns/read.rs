//! Strict parsing of queries: exactly one question, nothing before it and nothing after it but EDNS. The counts in the
//! header are checked against small numbers before a parser relies on them.

use crate::name::{HostName, NAME_BYTES_MAX, NameError};
use hickory_proto::{
    op::{Edns, Message, Metadata, Query},
    serialize::binary::{BinDecodable, BinDecoder},
};
use std::fmt::Write;

const HEADER_BYTES: usize = 12;
/// Maximum size of a query. A name, a header and the options that clients send fit into a tenth of it.
const QUERY_BYTES_MAX: usize = 4096;

const FORMAT_ERROR: u8 = 1;
const NOT_IMPLEMENTED: u8 = 4;

pub(super) struct Question {
    pub(super) metadata: Metadata,
    pub(super) query: Query,
    pub(super) edns: Option<Edns>,
}

pub(super) enum Rejected {
    Ignored,
    /// The header of an error response.
    Error([u8; HEADER_BYTES]),
}

pub(super) fn question(bytes: &[u8]) -> Result<Question, Rejected> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(Rejected::Ignored);
    };
    // Responses are ignored: two servers that answer responses would never stop.
    if header[2] & 0x80 != 0 {
        return Err(Rejected::Ignored);
    }
    if header[2] & 0x78 != 0 {
        return Err(error(header, NOT_IMPLEMENTED));
    }
    read(header, bytes).ok_or_else(|| error(header, FORMAT_ERROR))
}

fn read(header: &[u8; HEADER_BYTES], bytes: &[u8]) -> Option<Question> {
    let [_, _, _, _, counts @ ..] = header;
    // One question, no answer, no authority, and at most one additional record (EDNS); a query is not truncated either.
    let plain = matches!(counts, [0, 1, 0, 0, 0, 0, 0, 0 | 1]) && header[2] & 0b10 == 0;
    if !plain || bytes.len() > QUERY_BYTES_MAX || !is_spelled_out(&bytes[HEADER_BYTES..]) {
        return None;
    }
    let mut decoder = BinDecoder::new(bytes);
    let message = Message::read(&mut decoder).ok()?;
    if !decoder.is_empty() || !message.additionals.is_empty() || message.signature.is_some() {
        return None;
    }
    Some(Question {
        metadata: message.metadata,
        query: message.queries.into_iter().next()?,
        edns: message.edns,
    })
}

/// True if a name is labels to its end, uncompressed: nothing before the question is there for a pointer to refer to.
fn is_spelled_out(mut bytes: &[u8]) -> bool {
    while let Some((length, rest)) = bytes.split_first() {
        match usize::from(*length) {
            0 => return true,
            length @ 1..=63 if rest.len() > length => bytes = &rest[length..],
            _ => return false,
        }
    }
    false
}

/// Returns a response header with the id, the opcode and the RD flag of a query, and a response code.
fn error(header: &[u8; HEADER_BYTES], code: u8) -> Rejected {
    let [high, low, flags, ..] = *header;
    let mut answer = [0; HEADER_BYTES];
    answer[..4].copy_from_slice(&[high, low, 0x80 | (flags & 0x79), 0x80 | code]);
    Rejected::Error(answer)
}

impl Question {
    /// Returns the name if it is a host name. A dot inside a label is an error, since it would make two labels of one.
    pub(super) fn host(&self) -> Result<HostName, NameError> {
        let mut text = String::new();
        for label in self.query.name().iter() {
            let label =
                std::str::from_utf8(label).map_err(|_| NameError::Character(char::REPLACEMENT_CHARACTER))?;
            if label.contains('.') {
                return Err(NameError::Character('.'));
            }
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(label);
        }
        HostName::from_ascii(&text)
    }

    /// Returns the name as it was queried, with everything escaped that a terminal or a log could interpret.
    pub(super) fn escaped(&self) -> String {
        if let Ok(name) = self.host() {
            return name.to_string();
        }
        let mut text = String::new();
        for (index, label) in self.query.name().iter().enumerate() {
            if index > 0 {
                text.push('.');
            }
            for byte in label {
                match byte {
                    b'.' | b'\\' => text.extend(['\\', char::from(*byte)]),
                    0x21..=0x7e => text.push(char::from(*byte)),
                    // writing to a string cannot fail
                    _ => _ = write!(text, "\\{byte:03}"),
                }
            }
        }
        if text.is_empty() {
            text.push('.');
        }
        if text.len() > NAME_BYTES_MAX {
            text.truncate(NAME_BYTES_MAX);
            text.push('…');
        }
        text
    }
}
