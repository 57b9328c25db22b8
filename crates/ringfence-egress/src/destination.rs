//! The destination of a connection as a program writes it: `host:port`, and nothing that two parsers could read
//! differently. Unusual spellings of addresses, zones, user names and second ports are refused before any rule is
//! checked.

use crate::HostName;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

pub(crate) const HTTP_PORT: u16 = 80;
/// The port that accepts only TLS.
pub(crate) const TLS_PORT: u16 = 443;
/// Maximum length of the text; no host and port are longer.
const TEXT_BYTES_MAX: usize = 300;

/// The other end of a connection: a name, or a literal address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Name(HostName),
    /// A literal address, which only the operator's rules for networks allow.
    Address(IpAddr),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    pub host: Host,
    pub port: u16,
}

/// Reason why a text is not a destination. `Display` completes a sentence that begins with the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    #[error("is empty, or longer than any host's name")]
    Length,
    #[error("has a user name before the host")]
    UserInfo,
    #[error("contains a character that is in no host or port")]
    Character,
    #[error("has no host that all programs read alike")]
    Host,
    #[error("has no port from 1 to 65535 where one should be")]
    Port,
    #[error("has no port")]
    NoPort,
}

impl Destination {
    /// Reads `host:port` or `[v6]:port`; the port may be missing if `port` gives a default.
    pub fn read(text: &str, port: Option<u16>) -> Result<Self, DestinationError> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(DestinationError::Length);
        }
        if text.contains('@') {
            return Err(DestinationError::UserInfo);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        if !text.chars().all(plain) {
            return Err(DestinationError::Character);
        }
        let (host, rest) = split(text)?;
        let port = match rest {
            Some(digits) => port_of(digits).ok_or(DestinationError::Port)?,
            None => port.ok_or(DestinationError::NoPort)?,
        };
        Ok(Self { host, port })
    }

    /// Returns the form for a `Host` header: without the port if it is the default of the scheme.
    pub(crate) fn authority(&self, default_port: u16) -> String {
        if self.port == default_port {
            self.host.bracketed()
        } else {
            self.to_string()
        }
    }
}

impl Host {
    /// Returns the form before a port: an IPv6 address is in brackets.
    fn bracketed(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(address)) => format!("[{address}]"),
            other => other.to_string(),
        }
    }

    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(to, "{name}"),
            Self::Address(address) => write!(to, "{address}"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.host.bracketed(), self.port)
    }
}

fn split(text: &str) -> Result<(Host, Option<&str>), DestinationError> {
    if let Some(inside) = text.strip_prefix('[') {
        let (address, after) = inside.split_once(']').ok_or(DestinationError::Host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| DestinationError::Host)?;
        let port = match after {
            "" => None,
            after => Some(after.strip_prefix(':').ok_or(DestinationError::Host)?),
        };
        return Ok((Host::Address(address.into()), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host = match host.parse::<Ipv4Addr>() {
        Ok(address) => Host::Address(address.into()),
        Err(_) => Host::Name(HostName::from_ascii(host).map_err(|_| DestinationError::Host)?),
    };
    Ok((host, port))
}

/// Reads a port from 1 to 65535, in decimal digits without leading zeros.
pub(crate) fn port_of(digits: &str) -> Option<u16> {
    let is_plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_one_host_and_one_port() {
        for (text, port, expect) in [
            ("api.test:443", None, "api.test:443"),
            ("API.Test.:443", None, "api.test:443"),
            ("api.test", Some(80), "api.test:80"),
            ("10.0.0.5:8080", None, "10.0.0.5:8080"),
            ("[2606:4700::1]:443", None, "[2606:4700::1]:443"),
            ("[2606:4700::1]", Some(80), "[2606:4700::1]:80"),
        ] {
            let read = Destination::read(text, port).expect(text);
            assert_eq!(read.to_string(), expect, "{text}");
        }
    }

    #[test]
    fn ambiguous_destination_is_refused() {
        for (text, expect) in [
            ("", DestinationError::Length),
            (":443", DestinationError::Host),
            ("api.test", DestinationError::NoPort),
            ("api.test:", DestinationError::Port),
            ("api.test:0", DestinationError::Port),
            ("api.test:00443", DestinationError::Port),
            ("api.test:65536", DestinationError::Port),
            ("api.test:+443", DestinationError::Character),
            ("api.test:443:1", DestinationError::Port),
            ("allowed@evil.test:443", DestinationError::UserInfo),
            ("api.test\r\nHost: evil.test:443", DestinationError::Character),
            ("api .test:443", DestinationError::Character),
            ("::ffff:1.2.3.4%x.allowed.test:443", DestinationError::Character),
            ("[::ffff:1.2.3.4%25eth0]:443", DestinationError::Character),
            ("[::1]443", DestinationError::Host),
            ("[::1:443", DestinationError::Host),
            ("::1:443", DestinationError::Host),
            ("127.1:443", DestinationError::Host),
            ("2130706433:443", DestinationError::Host),
            ("0x7f000001:443", DestinationError::Host),
            ("0177.0.0.1:443", DestinationError::Host),
            ("api..test:443", DestinationError::Host),
            ("xn--a:443", DestinationError::Host),
        ] {
            assert_eq!(Destination::read(text, None), Err(expect), "{text:?}");
        }
        let long = format!("{}:443", "a".repeat(300));
        assert_eq!(Destination::read(&long, None), Err(DestinationError::Length));
    }

    #[test]
    fn host_header_omits_the_default_port() {
        let authority = |text: &str| Destination::read(text, None).expect(text).authority(80);
        assert_eq!(authority("api.test:80"), "api.test");
        assert_eq!(authority("api.test:8080"), "api.test:8080");
        assert_eq!(authority("[2606:4700::1]:80"), "[2606:4700::1]");
        assert_eq!(authority("api.test:443"), "api.test:443");
        let inside = Destination::read("api.test:443", None).expect("a destination");
        assert_eq!(inside.authority(443), "api.test");
    }
}
