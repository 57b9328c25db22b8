//! The first message of TLS (ClientHello), which names the server in the clear. It is read whole or not at all: a
//! parser that skips unexpected parts can see one name where a server sees another.
//!
//! Encrypted Client Hello is refused for programs ([`NoIdentity::Encrypted`]): behind an outer name that a rule allows
//! it can carry an inner name that no observer can read, and servers of many names decrypt it for any outer name.
//! GREASE, which keeps the extension usable, looks the same by design and is refused, too. For the web tools, whose
//! browser always sends it, the name in clear counts; where Ringfence terminates TLS, no server reads the inner hello.

mod records;

use crate::name::{HostName, NameError};
use records::reassemble;
pub(crate) use records::{asks_again, other_record};
use std::collections::BTreeSet;

/// Maximum length of a hello. Real ones have 200 bytes to 2 KiB.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Maximum records of a hello; clients that split it on purpose use a handful.
pub const HELLO_RECORDS_MAX: usize = 64;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// Encrypted Client Hello, its drafts, and the encrypted SNI that came before those.
const ENCRYPTED: [u16; 8] = [0xfe0d, 0xfe0c, 0xfe0b, 0xfe0a, 0xfe09, 0xfe08, 0xff02, 0xffce];

/// The kind of a connection's first bytes, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Hello(ClientHello),
    NotTls,
    /// It begins as TLS and is not, or is TLS in a form that no client sends.
    Malformed(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The name of the server (RFC 6066); an error if it is not a host name.
    pub server_name: Option<Result<HostName, NameError>>,
    /// The protocols that the client speaks, the preferred first (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// True if another hello may be hidden in it.
    pub has_ech: bool,
    /// Bytes of the connection that are the hello, with the headers of its records.
    pub bytes: usize,
}

/// Reason why a hello identifies no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    #[error("the ClientHello names no server (SNI)")]
    Absent,
    #[error("the server name in the ClientHello {0}")]
    Name(NameError),
    #[error("the ClientHello contains an encrypted one (ECH)")]
    Encrypted,
}

impl ClientHello {
    /// Reads the first bytes of a connection; with more bytes, again from the first.
    pub fn read(bytes: &[u8]) -> Progress {
        let hello = |(body, bytes): (Vec<u8>, usize)| parse_body(&body, bytes).map_err(Progress::Malformed);
        reassemble(bytes)
            .and_then(hello)
            .map_or_else(|other| other, Progress::Hello)
    }

    /// Returns the one name that the hello is for; an error if another may be hidden in it.
    pub fn identity(&self) -> Result<&HostName, NoIdentity> {
        match self.has_ech {
            true => Err(NoIdentity::Encrypted),
            false => self.name_in_clear(),
        }
    }

    /// Returns the name in clear, even if the handshake may hide another one or only seems to.
    pub fn name_in_clear(&self) -> Result<&HostName, NoIdentity> {
        match &self.server_name {
            None => Err(NoIdentity::Absent),
            Some(Err(error)) => Err(NoIdentity::Name(*error)),
            Some(Ok(name)) => Ok(name),
        }
    }
}

type Read<T> = Result<T, &'static str>;

/// Reads a message without its header (RFC 8446, 4.1.2; the same since SSL 3).
fn parse_body(body: &[u8], bytes: usize) -> Read<ClientHello> {
    let mut body = Bytes(body);
    let [major, _] = body.array("a truncated version")?;
    if major != 3 {
        return Err("a version that is not TLS");
    }
    let _random: [u8; 32] = body.array("a truncated random value")?;
    if body.vector8("a truncated session id")?.len() > 32 {
        return Err("a session id of more than 32 bytes");
    }
    let ciphers = body.vector16("a truncated cipher list")?;
    if ciphers.is_empty() || ciphers.len() % 2 != 0 {
        return Err("an invalid cipher list");
    }
    if body.vector8("truncated compression methods")?.is_empty() {
        return Err("no compression method");
    }
    let mut hello = ClientHello {
        server_name: None,
        alpn: Vec::new(),
        has_ech: false,
        bytes,
    };
    // Before TLS 1.3 the extensions, and their length, may be missing.
    if body.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Bytes(body.vector16("a truncated list of extensions")?);
    if !body.is_empty() {
        return Err("bytes after the extensions");
    }
    let mut seen = BTreeSet::new();
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(extensions.array("a truncated extension")?);
        let data = extensions.vector16("a truncated extension")?;
        if !seen.insert(kind) {
            return Err("the same extension twice");
        }
        match kind {
            SERVER_NAME => hello.server_name = Some(server_name(data)?),
            ALPN => hello.alpn = protocols(data)?,
            _ if ENCRYPTED.contains(&kind) => hello.has_ech = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// Reads a list of names, which has to be exactly one host name.
fn server_name(data: &[u8]) -> Read<Result<HostName, NameError>> {
    const CUT: &str = "a truncated server name";
    let mut data = Bytes(data);
    let mut list = Bytes(data.vector16(CUT)?);
    if !data.is_empty() {
        return Err("bytes after the server name");
    }
    let [kind] = list.array(CUT)?;
    if kind != 0 {
        return Err("a server name that is not a host name");
    }
    let name = list.vector16(CUT)?;
    if !list.is_empty() {
        return Err("more than one server name");
    }
    let text = str::from_utf8(name).map_err(|_| NameError::Character(char::REPLACEMENT_CHARACTER));
    Ok(text.and_then(HostName::from_ascii))
}

fn protocols(data: &[u8]) -> Read<Vec<Vec<u8>>> {
    const CUT: &str = "a truncated list of protocols";
    let mut data = Bytes(data);
    let mut list = Bytes(data.vector16(CUT)?);
    if !data.is_empty() {
        return Err("bytes after the protocols");
    }
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let protocol = list.vector8(CUT)?;
        if protocol.is_empty() {
            return Err("a protocol without a name");
        }
        protocols.push(protocol.to_vec());
    }
    if protocols.is_empty() {
        return Err("an empty list of protocols");
    }
    Ok(protocols)
}

/// The rest of a message; each method takes from its front, or returns `cut` as the error.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self, cut: &'static str) -> Read<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(cut)?;
        self.0 = rest;
        Ok(*array)
    }

    fn take(&mut self, length: usize, cut: &'static str) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn vector8(&mut self, cut: &'static str) -> Read<&'a [u8]> {
        let [length] = self.array(cut)?;
        self.take(usize::from(length), cut)
    }

    fn vector16(&mut self, cut: &'static str) -> Read<&'a [u8]> {
        let length = u16::from_be_bytes(self.array(cut)?);
        self.take(usize::from(length), cut)
    }
}

#[cfg(test)]
mod tests;
