//! The first message of TLS, which says in the clear who is meant. It is read whole or not at all: where a parser that
//! skips what it does not expect sees one name, a server that reads on may see another.
//!
//! Encrypted Client Hello is refused ([`NoIdentity::Encrypted`]). Behind an outer name that a rule allows it can carry
//! an inner name that no observer can read, and servers of many names decrypt it whatever the outer name is. What
//! browsers send to keep the extension usable (GREASE) looks the same by design, so it is refused, too. Where TLS ends
//! in Ringfence the extension can be ignored, since no server reads the inner hello.

mod records;

use crate::name::{HostName, NameError};
use records::gather;
use std::collections::BTreeSet;

/// The longest hello. Real ones have 200 bytes to 2 KiB.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// In so many records a hello comes at most; clients that split it on purpose use a handful.
pub const HELLO_RECORDS_MAX: usize = 64;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// Encrypted Client Hello, its drafts, and the encrypted SNI that came before those.
const ENCRYPTED: [u16; 8] = [0xfe0d, 0xfe0c, 0xfe0b, 0xfe0a, 0xfe09, 0xfe08, 0xff02, 0xffce];

/// What the first bytes of a connection are, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Hello(ClientHello),
    NotTls,
    /// It begins as TLS and is not, or is it in a way that no client has.
    Malformed(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The name of the server (RFC 6066); an error if what is there is no host's name.
    pub server_name: Option<Result<HostName, NameError>>,
    /// The protocols that the client speaks, the preferred first (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// Whether another hello may be hidden in it.
    pub has_ech: bool,
    /// Bytes of the connection that are the hello, with the headers of its records.
    pub bytes: usize,
}

/// Why a hello does not say who is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    #[error("the ClientHello names no server (SNI)")]
    Absent,
    #[error("the server's name in the ClientHello {0}")]
    Name(NameError),
    /// Another may be hidden in it.
    #[error("the ClientHello has an encrypted one in it (ECH)")]
    Encrypted,
}

impl ClientHello {
    /// Reads the first bytes of a connection; with more of them, again from the first.
    pub fn read(bytes: &[u8]) -> Progress {
        let hello = |(body, bytes): (Vec<u8>, usize)| body_of(&body, bytes).map_err(Progress::Malformed);
        gather(bytes)
            .and_then(hello)
            .map_or_else(|other| other, Progress::Hello)
    }

    /// The one name that is meant, for a connection whose bytes are passed on.
    pub fn identity(&self) -> Result<&HostName, NoIdentity> {
        match self.has_ech {
            true => Err(NoIdentity::Encrypted),
            false => self.name_in_clear(),
        }
    }

    /// The name that stands in clear, where the handshake may hide another one or only look so.
    pub fn name_in_clear(&self) -> Result<&HostName, NoIdentity> {
        match &self.server_name {
            None => Err(NoIdentity::Absent),
            Some(Err(error)) => Err(NoIdentity::Name(*error)),
            Some(Ok(name)) => Ok(name),
        }
    }
}

type Read<T> = Result<T, &'static str>;

/// The message without its header (RFC 8446, 4.1.2; the same since SSL 3).
fn body_of(body: &[u8], bytes: usize) -> Read<ClientHello> {
    let mut body = Bytes(body);
    let [major, _] = body.array("a version that is cut")?;
    if major != 3 {
        return Err("a version that is not TLS");
    }
    let _random: [u8; 32] = body.array("a random value that is cut")?;
    if body.vector8("a session that is cut")?.len() > 32 {
        return Err("a session of more than 32 bytes");
    }
    let ciphers = body.vector16("ciphers that are cut")?;
    if ciphers.is_empty() || ciphers.len() % 2 != 0 {
        return Err("ciphers that are none");
    }
    if body.vector8("compression that is cut")?.is_empty() {
        return Err("no way of compression");
    }
    let mut hello = ClientHello {
        server_name: None,
        alpn: Vec::new(),
        has_ech: false,
        bytes,
    };
    // Before TLS 1.2 there need not be any, nor their length.
    if body.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Bytes(body.vector16("extensions that are cut")?);
    if !body.is_empty() {
        return Err("bytes behind the extensions");
    }
    let mut seen = BTreeSet::new();
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(extensions.array("an extension that is cut")?);
        let data = extensions.vector16("an extension that is cut")?;
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

/// A list of names of which there is one, and it is a host's.
fn server_name(data: &[u8]) -> Read<Result<HostName, NameError>> {
    const CUT: &str = "a server's name that is cut";
    let mut data = Bytes(data);
    let mut list = Bytes(data.vector16(CUT)?);
    if !data.is_empty() {
        return Err("bytes behind the server's name");
    }
    let [kind] = list.array(CUT)?;
    if kind != 0 {
        return Err("a server's name that is not a host's");
    }
    let name = list.vector16(CUT)?;
    if !list.is_empty() {
        return Err("more than one server's name");
    }
    let text = str::from_utf8(name).map_err(|_| NameError::Character(char::REPLACEMENT_CHARACTER));
    Ok(text.and_then(HostName::from_ascii))
}

fn protocols(data: &[u8]) -> Read<Vec<Vec<u8>>> {
    const CUT: &str = "protocols that are cut";
    let mut data = Bytes(data);
    let mut list = Bytes(data.vector16(CUT)?);
    if !data.is_empty() {
        return Err("bytes behind the protocols");
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
        return Err("protocols that are none");
    }
    Ok(protocols)
}

/// What is left of a message; each step takes from its front or says what is missing.
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
