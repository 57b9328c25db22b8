//! Parses rules. An error names the part that is wrong and says what to write instead, since most errors are habits
//! from elsewhere: a URL, `.example.com`, a port's name.

use super::{Pattern, RULE_BYTES_MAX, Rule};
use crate::{
    destination::port_of,
    name::{HostName, NameError},
    path::{PathError, PathPrefix},
};
use ipnet::IpNet;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

const METHODS_MAX: usize = 16;
const METHOD_BYTES_MAX: usize = 20;

/// Reason why a text is not a rule, with the part of it that is wrong; [`RuleError::hint`] says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule is not empty")]
    Empty,
    #[error("a rule has at most {} bytes", RULE_BYTES_MAX)]
    Length,
    /// A blank or a control character.
    #[error("{0:?} is not allowed there")]
    Character(char),
    /// `write` is the equivalent rule.
    #[error("a rule is not a URL")]
    Url { write: String },
    /// One of them is not a method, or there are too many.
    #[error("`{}` are not methods of HTTP", .0.escape_debug())]
    Method(String),
    #[error("`{}` {error}", .text.escape_debug())]
    Name { text: String, error: NameError },
    #[error("`{}` has a `*` elsewhere than before the first dot", .0.escape_debug())]
    Wildcard(String),
    #[error("`{0}` is the sandbox itself")]
    Local(String),
    /// Not a number from 1 to 65535, or with leading zeros.
    #[error("`{}` is not a port", .0.escape_debug())]
    Port(String),
    #[error("`{}` {error}", .text.escape_debug())]
    Path { text: String, error: PathError },
    /// An address or a network that is not in canonical spelling.
    #[error("`{}` is not the canonical form of a network", .text.escape_debug())]
    Network { text: String, write: String },
    /// The kernel takes it for loopback.
    #[error("`{}` is not the address of a host", .0.escape_debug())]
    Unspecified(String),
    /// A method or a path beside a network: a connection to an address has no name to check requests against.
    #[error("`{}` is not allowed beside a network", .0.escape_debug())]
    NetworkRequest(String),
}

impl RuleError {
    pub fn hint(&self) -> String {
        match self {
            Self::Empty | Self::Character(_) | Self::Wildcard(_) => {
                "write a name (`example.com`), all below it (`*.example.com`) or a network (`10.0.0.0/8:5432`)"
                    .to_owned()
            }
            Self::Length => "shorten the path".to_owned(),
            Self::Url { write } | Self::Network { write, .. } => format!("write `{write}`"),
            Self::Method(_) => format!(
                "write up to {METHODS_MAX} methods in capitals with commas between them, as in `GET,HEAD example.com`"
            ),
            Self::Name { error, .. } => match error {
                NameError::Address => "write an address as four decimal numbers or, in brackets, as IPv6".to_owned(),
                NameError::Deviation(_) => "write that label as an A-label (`xn--...`)".to_owned(),
                NameError::Label => "for all names below one, write `*.example.com`".to_owned(),
                _ => "write the name as it is registered".to_owned(),
            },
            Self::Local(_) | Self::Unspecified(_) => {
                "write the address for a service of this host, as `127.0.0.1:8080`, or give the service a name outside"
                    .to_owned()
            }
            Self::Port(_) => "write one port from 1 to 65535, or none for 80 and 443".to_owned(),
            Self::Path { .. } => "write a plain path that requests begin with, as in `/v1/`".to_owned(),
            Self::NetworkRequest(_) => "write the network and a port alone, as in `10.0.0.0/8:5432`".to_owned(),
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.len() > RULE_BYTES_MAX {
            return Err(RuleError::Length);
        }
        let (words, rest) = match text.split_once(' ') {
            Some((words, rest)) => (Some(words), rest),
            None => (None, text),
        };
        if let Some(c) = rest.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(RuleError::Character(c));
        }
        if rest.is_empty() {
            return Err(RuleError::Empty);
        }
        if let Some((scheme, url)) = rest.split_once("://") {
            return Err(url_error(words, scheme, url));
        }
        let methods = words.map(methods).transpose()?.unwrap_or_default();
        let rule = match network(rest)? {
            Some((network, port)) => Self {
                methods,
                host: Pattern::Network(network),
                port,
                path: None,
            },
            None => named(methods, rest)?,
        };
        if rule.is_network() && rule.needs_request() {
            return Err(RuleError::NetworkRequest(words.unwrap_or_default().to_owned()));
        }
        // An internationalised name is longer in canonical form, which has to be a rule, too.
        if rule.to_string().len() > RULE_BYTES_MAX {
            return Err(RuleError::Length);
        }
        Ok(rule)
    }
}

/// Returns the rule that is equivalent to a URL, for the hint.
fn url_error(words: Option<&str>, scheme: &str, url: &str) -> RuleError {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = match url.find('/') {
        Some(at) => url.split_at(at),
        None => (url, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = match scheme {
        _ if has_port => "",
        "http" | "ws" => ":80",
        _ => ":443",
    };
    let path = if path == "/" { "" } else { path };
    let words = words.map(|words| format!("{words} ")).unwrap_or_default();
    RuleError::Url {
        write: format!("{words}{host}{port}{path}"),
    }
}

fn methods(words: &str) -> Result<Vec<String>, RuleError> {
    let is_method = |word: &str| {
        (1..=METHOD_BYTES_MAX).contains(&word.len())
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|c| c.is_ascii_uppercase() || c == b'-')
            // CONNECT asks for a tunnel, whose traffic is checked on its own
            && word != "CONNECT"
    };
    let mut methods: Vec<String> = words
        .split(',')
        .take(METHODS_MAX + 1)
        .map(str::to_owned)
        .collect();
    if methods.len() > METHODS_MAX || !methods.iter().all(|word| is_method(word)) {
        return Err(RuleError::Method(words.to_owned()));
    }
    methods.sort();
    methods.dedup();
    Ok(methods)
}

fn named(methods: Vec<String>, text: &str) -> Result<Rule, RuleError> {
    let (authority, path) = match text.find('/') {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(number(port)?)),
        None => (authority, None),
    };
    let path = path.map(|text| {
        PathPrefix::parse(text).map_err(|error| RuleError::Path {
            text: text.to_owned(),
            error,
        })
    });
    Ok(Rule {
        methods,
        host: pattern(host)?,
        port,
        path: path.transpose()?,
    })
}

fn number(text: &str) -> Result<u16, RuleError> {
    port_of(text).ok_or_else(|| RuleError::Port(text.to_owned()))
}

fn pattern(text: &str) -> Result<Pattern, RuleError> {
    if text == "*" {
        return Ok(Pattern::Any);
    }
    let (below, bare) = match text.strip_prefix("*.") {
        Some(apex) => (true, apex),
        None => (false, text),
    };
    if bare.contains('*') {
        return Err(RuleError::Wildcard(text.to_owned()));
    }
    let name: HostName = bare.parse().map_err(|error| RuleError::Name {
        text: text.to_owned(),
        error,
    })?;
    if name.is_local() {
        return Err(RuleError::Local(text.to_owned()));
    }
    Ok(if below {
        Pattern::Below(name)
    } else {
        Pattern::Exact(name)
    })
}

/// Reads an address or a network with its port, if the text begins as one does.
fn network(text: &str) -> Result<Option<(IpNet, Option<u16>)>, RuleError> {
    let (address, rest): (IpAddr, &str) = if let Some(inner) = text.strip_prefix('[') {
        let address = inner.split_once(']').and_then(|(inner, rest)| {
            let address: Ipv6Addr = inner.parse().ok()?;
            Some((IpAddr::V6(address), rest))
        });
        address.ok_or_else(|| not_canonical(text, "[2001:db8::]/32"))?
    } else {
        let bare = text.split('/').next().unwrap_or(text);
        if let Ok(address) = bare.parse::<Ipv6Addr>() {
            return Err(not_canonical(
                text,
                &format!("[{address}]{}", &text[bare.len()..]),
            ));
        }
        let end = text.find(['/', ':']).unwrap_or(text.len());
        match text[..end].parse::<Ipv4Addr>() {
            Ok(address) => (IpAddr::V4(address), &text[end..]),
            Err(_) => return Ok(None),
        }
    };
    let (prefix, port) = match rest.split_once(':') {
        Some((prefix, port)) => (prefix, Some(number(port)?)),
        None => (rest, None),
    };
    let single = IpNet::from(address);
    let length = match prefix.strip_prefix('/') {
        None if prefix.is_empty() => single.max_prefix_len(),
        None => return Err(not_canonical(text, &Pattern::Network(single).to_string())),
        Some("0") => 0,
        Some(digits) => match number(digits).map(u8::try_from) {
            Ok(Ok(length)) => length,
            _ => return Err(RuleError::NetworkRequest(prefix.to_owned())),
        },
    };
    let Ok(network) = IpNet::new(address, length) else {
        return Err(not_canonical(text, &Pattern::Network(single).to_string()));
    };
    check_canonical(text, network).map(|network| Some((network, port)))
}

/// Checks the canonical spelling: no bits behind the prefix, and no IPv4 address mapped to IPv6.
fn check_canonical(text: &str, network: IpNet) -> Result<IpNet, RuleError> {
    let bare = network.trunc();
    let mapped = match bare {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => {
            v6.addr().to_ipv4_mapped().map(|v4| (v4, v6.prefix_len() - 96))
        }
        _ => None,
    };
    let better = match mapped {
        Some((v4, length)) => IpNet::new(IpAddr::V4(v4), length).unwrap_or(bare),
        None => bare,
    };
    if better.addr().is_unspecified() && better.prefix_len() == better.max_prefix_len() {
        return Err(RuleError::Unspecified(text.to_owned()));
    }
    if better == network {
        Ok(network)
    } else {
        Err(not_canonical(text, &Pattern::Network(better).to_string()))
    }
}

fn not_canonical(text: &str, write: &str) -> RuleError {
    RuleError::Network {
        text: text.to_owned(),
        write: write.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, message: &str, hint: &str) {
        let error = text.parse::<Rule>().expect_err(text);
        assert_eq!(error.to_string(), message);
        assert!(error.hint().contains(hint), "{text}: {}", error.hint());
    }

    #[test]
    fn invalid_rule_has_a_hint() {
        let long = format!("a.com/{}", "x".repeat(1020));
        check("", "a rule is not empty", "example.com");
        check(&long, "a rule has at most 1024 bytes", "shorten");
        let longer = format!("ü.com/{}", "x".repeat(1016));
        check(&longer, "a rule has at most 1024 bytes", "shorten");
        check("GET  a.com", "' ' is not allowed there", "example.com");
        check("GET a.com\r\nX: y", "'\\r' is not allowed there", "");
        check("GET ", "a rule is not empty", "");
        check(
            "GET,,HEAD a.com",
            "`GET,,HEAD` are not methods of HTTP",
            "`GET,HEAD example.com`",
        );
        check("get a.com", "`get` are not methods of HTTP", "capitals");
        check("CONNECT a.com", "`CONNECT` are not methods of HTTP", "");
        check("a.com:0443", "`0443` is not a port", "65535");
        check("a.com:+443", "`+443` is not a port", "");
        check("a.com:", "`` is not a port", "");
        check("a.com/v1?x", "`/v1?x` has a query or a fragment", "`/v1/`");
        check("a.com/ü", "`/ü` can be read in more than one way", "");
    }

    #[test]
    fn hint_for_a_url_has_the_equivalent_rule() {
        let check = |text, hint| check(text, "a rule is not a URL", hint);
        check("https://a.com/", "`a.com:443`");
        check("http://a.com", "`a.com:80`");
        check("GET https://u:p@a.com:8443/v1/x?q#f", "`GET a.com:8443/v1/x`");
        check("https://[2001:db8::1]/", "`[2001:db8::1]:443`");
    }

    #[test]
    fn invalid_host_has_a_reason() {
        const LABEL: &str = "has a label that is empty or longer than 63 bytes";
        const STAR: &str = "has a `*` elsewhere than before the first dot";
        const ADDRESS: &str = "is an address, or what some programs take for one";
        let check = |host: &str, message: &str, hint: &str| check(host, &format!("`{host}` {message}"), hint);
        check(".a.com", LABEL, "`*.example.com`");
        check("*a.com", STAR, "`*.example.com`");
        check("a.*.com", STAR, "");
        check("*.localhost", "is the sandbox itself", "outside");
        check("127.1", ADDRESS, "four decimal");
        check("*.0.0.1", ADDRESS, "");
        check(
            "straße.de",
            "contains 'ß', which not all programs treat alike",
            "xn--",
        );
        check("u@a.com", "contains '@', which no host name does", "");
    }

    #[test]
    fn network_in_another_spelling_is_refused_with_the_canonical_one() {
        let network = |text: &str, hint: &str| {
            let message = format!("`{text}` is not the canonical form of a network");
            check(text, &message, hint);
        };
        network("10.0.0.5/8", "`10.0.0.0/8`");
        network("10.0.0.0/33", "`10.0.0.0`");
        network("2001:db8::/32", "`[2001:db8::]/32`");
        network("[::1", "`[2001:db8::]/32`");
        network("[::1%eth0]", "");
        network("[::1]x", "`[::1]`");
        network("[::ffff:10.0.0.0]/104:1", "`10.0.0.0/8`");
        for text in ["0.0.0.0", "0.0.0.0/32:80", "[::]", "[::ffff:0.0.0.0]"] {
            check(
                text,
                &format!("`{text}` is not the address of a host"),
                "`127.0.0.1:8080`",
            );
        }
        let request = |text: &str, part: &str| {
            let message = format!("`{part}` is not allowed beside a network");
            check(text, &message, "`10.0.0.0/8:5432`");
        };
        request("10.0.0.0/08", "/08");
        request("10.0.0.0/v1", "/v1");
        request("GET 10.0.0.0/8", "GET");
    }
}
