//! One rule of who may be reached: `[METHODS ]HOST[:PORT][/PATH]`. A rule that could be meant in two ways is refused
//! with the words that say one of them; `docs/egress.md` has the table of what each form reaches.

use crate::{
    name::{HostName, NameError},
    path::{PathError, PathPrefix},
};
use ipnet::IpNet;
use ringfence_types::Reach;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The longest rule, as it is written.
pub const RULE_BYTES_MAX: usize = 1024;
/// What a rule without a port means.
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];
const METHODS_MAX: usize = 16;
const METHOD_BYTES_MAX: usize = 20;

/// Who a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// `example.com`: this name.
    Exact(HostName),
    /// `*.example.com`: every name below it, at any depth, and not the name itself.
    Below(HostName),
    /// `*`: every name, and no address.
    Any,
    /// `10.0.0.0/8`, `10.0.0.5`, `[2001:db8::]/32`: addresses, whatever name leads there.
    Network(IpNet),
}

/// What may be reached, and what may be asked there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Sorted, each once; empty means every method.
    methods: Vec<String>,
    host: Pattern,
    port: Option<u16>,
    path: Option<PathPrefix>,
}

/// Why a text is no rule, with the part of it that is wrong; [`RuleError::hint`] says what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// Nothing.
    Empty,
    /// More than [`RULE_BYTES_MAX`].
    Length,
    /// A blank or a control character.
    Character(char),
    /// A URL, and the rule that says the same.
    Url {
        /// What to write.
        write: String,
    },
    /// Not a method, or too many.
    Method(String),
    /// A host that is no name.
    Name {
        /// The host, as it was written.
        text: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// `*` in a place where it means nothing.
    Wildcard(String),
    /// `localhost`, which is the sandbox itself.
    Local(String),
    /// Not a number from 1 to 65535 without zeros before it.
    Port(String),
    /// A path that is none.
    Path {
        /// The path, as it was written.
        text: String,
        /// What is wrong with it.
        error: PathError,
    },
    /// An address or a network that is written in another way than the one that is understood.
    Network {
        /// What is wrong.
        text: String,
        /// What to write.
        write: String,
    },
    /// A method or a path beside a network: a connection to a number has no name to hold requests against.
    NetworkRequest(String),
}

impl RuleError {
    /// What to write instead.
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
            Self::Local(_) => "give the service a name of its own outside, and write that".to_owned(),
            Self::Port(_) => "write one port from 1 to 65535, or none for 80 and 443".to_owned(),
            Self::Path { .. } => "write a plain path that requests begin with, as in `/v1/`".to_owned(),
            Self::NetworkRequest(_) => "write the network and a port alone, as in `10.0.0.0/8:5432`".to_owned(),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a rule is not empty"),
            Self::Length => write!(f, "a rule has at most {RULE_BYTES_MAX} bytes"),
            Self::Character(c) => write!(f, "{c:?} has no place there"),
            Self::Url { .. } => f.write_str("a rule is not a URL"),
            Self::Method(word) => write!(f, "`{}` are not methods of HTTP", word.escape_debug()),
            Self::Name { text, error } => write!(f, "`{}` {error}", text.escape_debug()),
            Self::Wildcard(text) => write!(
                f,
                "`{}` has a `*` elsewhere than before the first dot",
                text.escape_debug()
            ),
            Self::Local(text) => write!(f, "`{text}` is the sandbox itself"),
            Self::Port(text) => write!(f, "`{}` is not a port", text.escape_debug()),
            Self::Path { text, error } => write!(f, "`{}` {error}", text.escape_debug()),
            Self::Network { text, .. } => {
                write!(f, "`{}` is not how a network is written", text.escape_debug())
            }
            Self::NetworkRequest(text) => {
                write!(f, "`{}` beside a network says nothing", text.escape_debug())
            }
        }
    }
}

impl std::error::Error for RuleError {}

impl Pattern {
    /// Whether a name is meant. `localhost` never is: it is the sandbox itself.
    pub fn reaches(&self, name: &HostName) -> bool {
        !name.is_local()
            && match self {
                Self::Exact(exact) => exact == name,
                Self::Below(apex) => name.is_below(apex),
                Self::Any => true,
                Self::Network(_) => false,
            }
    }

    fn is_within(&self, wider: &Self) -> bool {
        match (self, wider) {
            (Self::Exact(name), _) => wider.reaches(name),
            (Self::Below(apex), Self::Below(wide)) => apex == wide || apex.is_below(wide),
            (Self::Below(_) | Self::Any, Self::Any) => true,
            (Self::Network(narrow), Self::Network(wide)) => {
                narrow == wide || (wide.contains(narrow) && !is_metadata(narrow))
            }
            _ => false,
        }
    }
}

/// One address that hands out credentials: only a rule that names it alone reaches it.
fn is_metadata(network: &IpNet) -> bool {
    network.prefix_len() == network.max_prefix_len() && Reach::of(network.addr()) == Reach::Metadata
}

impl Rule {
    /// Whether it is about addresses rather than names.
    pub fn is_network(&self) -> bool {
        self.network().is_some()
    }

    /// The addresses that it is about.
    pub fn network(&self) -> Option<IpNet> {
        match self.host {
            Pattern::Network(network) => Some(network),
            _ => None,
        }
    }

    /// The ports that it is about.
    pub fn ports(&self) -> &[u16] {
        match &self.port {
            Some(port) => std::slice::from_ref(port),
            None => &DEFAULT_PORTS,
        }
    }

    /// Who it is about.
    pub fn host(&self) -> &Pattern {
        &self.host
    }

    /// The methods that it is restricted to, sorted; none if it says nothing about methods.
    pub fn methods(&self) -> &[String] {
        &self.methods
    }

    /// The path below which it permits requests.
    pub fn path(&self) -> Option<&str> {
        self.path.as_ref().map(PathPrefix::as_str)
    }

    /// Whether a name is meant, on whatever port.
    pub fn reaches_name(&self, name: &HostName) -> bool {
        self.host.reaches(name)
    }

    /// Whether a name is meant on this port.
    pub fn reaches(&self, name: &HostName, port: u16) -> bool {
        self.ports().contains(&port) && self.reaches_name(name)
    }

    /// Whether an address is meant on this port. An address that hands out credentials is meant only by a rule that
    /// names it alone; a network that happens to hold it is not enough.
    pub fn reaches_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        let single = IpNet::from(address);
        let meant =
            |network: IpNet| network == single || (network.contains(&address) && !is_metadata(&single));
        self.ports().contains(&port) && self.network().is_some_and(meant)
    }

    /// Whether it depends on what is asked, so that the connection has to be one that can be read.
    pub fn needs_request(&self) -> bool {
        !self.methods.is_empty() || self.path.is_some()
    }

    /// Whether a request is allowed. `target` is the path with the query (`/v1?q`), as it is sent.
    pub fn permits(&self, name: &HostName, port: u16, method: &str, target: &str) -> bool {
        self.reaches(name, port)
            && self.permits_method(method)
            && self.path.as_ref().is_none_or(|path| path.permits(target))
    }

    pub(crate) fn permits_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|allowed| allowed == method)
    }

    /// Whether everything that it allows is allowed by `wider` alone.
    pub fn is_within(&self, wider: &Self) -> bool {
        let methods = match (self.methods.as_slice(), wider.methods.as_slice()) {
            (_, []) => true,
            ([], _) => false,
            (narrow, wide) => narrow.iter().all(|method| wide.contains(method)),
        };
        let path = match (&self.path, &wider.path) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(narrow), Some(wide)) => wide.contains(narrow),
        };
        let ports = self.ports().iter().all(|port| wider.ports().contains(port));
        methods && path && ports && self.host.is_within(&wider.host)
    }

    /// The rule for each of its ports, and for each of its methods if it has any: what can be held against other rules
    /// one by one.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Self> {
        let methods: Vec<Vec<String>> = match self.methods.as_slice() {
            [] => vec![Vec::new()],
            methods => methods.iter().map(|method| vec![method.clone()]).collect(),
        };
        let of_port = move |port: u16| {
            let part = move |methods: &Vec<String>| Self {
                methods: methods.clone(),
                port: Some(port),
                ..self.clone()
            };
            methods.iter().map(part).collect::<Vec<_>>()
        };
        self.ports().iter().copied().flat_map(of_port)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(apex) => write!(f, "*.{apex}"),
            Self::Any => f.write_str("*"),
            Self::Network(IpNet::V4(network)) if network.prefix_len() == 32 => {
                write!(f, "{}", network.addr())
            }
            Self::Network(IpNet::V4(network)) => write!(f, "{network}"),
            Self::Network(IpNet::V6(network)) if network.prefix_len() == 128 => {
                write!(f, "[{}]", network.addr())
            }
            Self::Network(IpNet::V6(network)) => write!(f, "[{}]/{}", network.addr(), network.prefix_len()),
        }
    }
}

/// The canonical form: it parses to an equal rule.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join(","))?;
        }
        write!(f, "{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(self.path().unwrap_or_default())
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
        Ok(rule)
    }
}

/// The rule that says what a URL says, for the hint.
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
            // that one asks for a tunnel, and what goes through is judged by itself
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

/// A rule about names.
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
    let plain =
        text.starts_with(|c: char| matches!(c, '1'..='9')) && text.bytes().all(|c| c.is_ascii_digit());
    match text.parse() {
        Ok(port) if plain => Ok(port),
        _ => Err(RuleError::Port(text.to_owned())),
    }
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

/// An address or a network with its port, if the text begins as one does.
fn network(text: &str) -> Result<Option<(IpNet, Option<u16>)>, RuleError> {
    let (address, rest): (IpAddr, &str) = if let Some(inner) = text.strip_prefix('[') {
        let address = inner.split_once(']').and_then(|(inner, rest)| {
            let address: Ipv6Addr = inner.parse().ok()?;
            Some((IpAddr::V6(address), rest))
        });
        address.ok_or_else(|| not_written_so(text, "[2001:db8::]/32"))?
    } else {
        let bare = text.split('/').next().unwrap_or(text);
        if let Ok(address) = bare.parse::<Ipv6Addr>() {
            return Err(not_written_so(
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
        None => return Err(not_written_so(text, &Pattern::Network(single).to_string())),
        Some("0") => 0,
        Some(digits) => match number(digits).map(u8::try_from) {
            Ok(Ok(length)) => length,
            _ => return Err(RuleError::NetworkRequest(prefix.to_owned())),
        },
    };
    let Ok(network) = IpNet::new(address, length) else {
        return Err(not_written_so(text, &Pattern::Network(single).to_string()));
    };
    one_way_of_writing(text, network).map(|network| Some((network, port)))
}

/// No bits behind the prefix, and no IPv4 address dressed as IPv6.
fn one_way_of_writing(text: &str, network: IpNet) -> Result<IpNet, RuleError> {
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
    if better == network {
        Ok(network)
    } else {
        Err(not_written_so(text, &Pattern::Network(better).to_string()))
    }
}

fn not_written_so(text: &str, write: &str) -> RuleError {
    RuleError::Network {
        text: text.to_owned(),
        write: write.to_owned(),
    }
}
