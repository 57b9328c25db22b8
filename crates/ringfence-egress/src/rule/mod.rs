//! One rule of egress: `[METHODS ]HOST[:PORT][/PATH]`. A rule that could be read in two ways is refused with a hint
//! that has only one meaning; `docs/egress.md` has the table of what each form reaches.

mod text;

pub use text::RuleError;

use crate::{name::HostName, path::PathPrefix};
use ipnet::IpNet;
use ringfence_types::Reach;
use std::{fmt, net::IpAddr};

/// Maximum length of a rule, as it is written and in canonical form.
pub const RULE_BYTES_MAX: usize = 1024;
pub const DEFAULT_PORTS: [u16; 2] = [80, 443];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// `example.com`: this name.
    Exact(HostName),
    /// `*.example.com`: every name below it, at any depth, and not the name itself.
    Below(HostName),
    /// `*`: every name, and no address.
    Any,
    /// `10.0.0.0/8`, `10.0.0.5`, `[2001:db8::]/32`: addresses, under any name.
    Network(IpNet),
}

/// A host that may be reached, and the requests that may be sent there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Sorted, each once; empty means every method.
    methods: Vec<String>,
    host: Pattern,
    port: Option<u16>,
    path: Option<PathPrefix>,
}

impl Pattern {
    /// True if the pattern is for this name. It never is for `localhost`, which is the sandbox itself.
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
            (Self::Network(narrow), Self::Network(wide)) => includes(wide, narrow),
            _ => false,
        }
    }
}

/// True if a rule for `wide` is also one for `narrow`: loopback needs a rule for loopback alone, and a single address
/// that hands out credentials a rule for exactly that address.
fn includes(wide: &IpNet, narrow: &IpNet) -> bool {
    let is = |network: &IpNet, reach| {
        Reach::of(network.network()) == reach && Reach::of(network.broadcast()) == reach
    };
    let is_single = narrow.prefix_len() == narrow.max_prefix_len();
    narrow == wide
        || (wide.contains(narrow)
            && !(is_single && is(narrow, Reach::Metadata))
            && (is(wide, Reach::Loopback) || !is(narrow, Reach::Loopback)))
}

impl Rule {
    pub fn is_network(&self) -> bool {
        self.network().is_some()
    }

    pub fn network(&self) -> Option<IpNet> {
        match self.host {
            Pattern::Network(network) => Some(network),
            _ => None,
        }
    }

    pub fn ports(&self) -> &[u16] {
        match &self.port {
            Some(port) => std::slice::from_ref(port),
            None => &DEFAULT_PORTS,
        }
    }

    pub(crate) fn on_port(self, port: u16) -> Self {
        Self {
            port: Some(port),
            ..self
        }
    }

    pub fn host(&self) -> &Pattern {
        &self.host
    }

    /// The methods that it is restricted to, sorted; empty if it allows every method.
    pub fn methods(&self) -> &[String] {
        &self.methods
    }

    pub fn path(&self) -> Option<&str> {
        self.path.as_ref().map(PathPrefix::as_str)
    }

    /// True if the rule is for this name, on any port.
    pub fn reaches_name(&self, name: &HostName) -> bool {
        self.host.reaches(name)
    }

    pub fn reaches(&self, name: &HostName, port: u16) -> bool {
        self.ports().contains(&port) && self.reaches_name(name)
    }

    /// True if the rule is for this address and port. No rule is for `0.0.0.0` or `::`, which the kernel takes for
    /// loopback.
    pub fn reaches_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        let reaches = |network: IpNet| includes(&network, &address.into());
        self.ports().contains(&port) && !address.is_unspecified() && self.network().is_some_and(reaches)
    }

    /// True if the rule depends on the request, so that the connection has to be inspected.
    pub fn needs_request(&self) -> bool {
        !self.methods.is_empty() || self.path.is_some()
    }

    /// True if a request is allowed. `target` is the path with the query (`/v1?q`), as it is sent.
    pub fn permits(&self, name: &HostName, port: u16, method: &str, target: &str) -> bool {
        self.reaches(name, port)
            && self.permits_method(method)
            && self.path.as_ref().is_none_or(|path| path.permits(target))
    }

    pub(crate) fn permits_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|allowed| allowed == method)
    }

    /// True if everything that it allows is allowed by `wider` alone.
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

    /// Splits the rule by port, and by method if it has any: each part can be compared with other rules one by one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn rule_has_one_canonical_form() {
        let check = |text: &str, expect: &str| {
            let read = rule(text);
            assert_eq!(read.to_string(), expect, "{text}");
            assert_eq!(rule(expect), read, "{text}");
        };
        check("Example.COM.", "example.com");
        check("*.Bücher.example", "*.xn--bcher-kva.example");
        check("*", "*");
        check("*:22", "*:22");
        check("example.com:80", "example.com:80");
        check(
            "HEAD,GET,HEAD example.com/%76%31/./x",
            "GET,HEAD example.com/v1/x",
        );
        check("M-SEARCH example.com/", "M-SEARCH example.com/");
        check("GET *:8443/v1/", "GET *:8443/v1/");
        check("10.0.0.5/32:53", "10.0.0.5:53");
        check("10.0.0.0/8", "10.0.0.0/8");
        check("0.0.0.0/0", "0.0.0.0/0");
        check("[2001:DB8:0::]/32:443", "[2001:db8::]/32:443");
        check("[2001:db8::1]/128", "[2001:db8::1]");
        check("[::]/0", "[::]/0");
    }

    #[test]
    fn rule_is_within_another_only_as_a_whole() {
        let check = |narrow: &str, wide: &str, expect: bool| {
            assert_eq!(
                rule(narrow).is_within(&rule(wide)),
                expect,
                "{narrow} within {wide}"
            );
        };
        for text in [
            "a.com",
            "*.a.com:22",
            "*",
            "GET a.com/v1",
            "10.0.0.0/8",
            "169.254.169.254:80",
        ] {
            check(text, text, true);
        }
        check("a.com", "*", true);
        check("x.a.com", "*.a.com", true);
        check("a.com", "*.a.com", false);
        check("*.x.a.com", "*.a.com", true);
        check("*.a.com", "*.x.a.com", false);
        check("*.a.com", "a.com", false);
        check("*", "*.a.com", false);
        check("a.com:443", "a.com", true);
        check("a.com", "a.com:443", false);
        check("a.com:22", "a.com", false);
        check("GET a.com", "a.com", true);
        check("a.com", "GET a.com", false);
        check("GET a.com", "GET,HEAD a.com", true);
        check("GET,PUT a.com", "GET,HEAD a.com", false);
        check("a.com/v1", "a.com", true);
        check("a.com", "a.com/", false);
        check("a.com/v1/x", "a.com/v1", true);
        check("a.com/v1/", "a.com/v1", true);
        check("a.com/v1", "a.com/v1/", false);
        check("a.com/v10", "a.com/v1", false);
        check("10.1.0.0/16", "10.0.0.0/8", true);
        check("10.0.0.0/8", "10.1.0.0/16", false);
        check("10.0.0.0/8", "*", false);
        check("a.com", "0.0.0.0/0", false);
        check("[::]/0", "0.0.0.0/0", false);
        check("169.254.169.254", "169.254.0.0/16", false);
        check("127.0.0.1", "127.0.0.0/8", true);
        check("127.0.0.0/8", "0.0.0.0/0", false);
        check("[::1]", "[::]/0", false);
    }

    /// Rules as people write them, mostly valid ones.
    fn texts() -> impl Strategy<Value = String> {
        let host = "(\\*|\\*\\.)?[a-c]{1,2}(\\.[a-c-]{1,3}){0,2}|\\*|10\\.[0-2]\\.0\\.0(/(8|16|32))?|\\[::[1-3]?\\](/64)?";
        (
            "((GET|PUT|POST)(,GET|,HEAD){0,2} )?",
            host,
            "(:(80|443|[0-9]{1,6}))?",
            "(/[a-b%2/.]{0,6})?",
        )
            .prop_map(|(methods, host, port, path)| format!("{methods}{host}{port}{path}"))
    }

    proptest! {
        #[test]
        fn printed_rule_parses_to_an_equal_rule(text in texts()) {
            if let Ok(rule) = text.parse::<Rule>() {
                prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
            }
        }

        #[test]
        fn wider_rule_allows_everything_that_a_rule_within_it_allows(
            narrow in texts(),
            wide in texts(),
            host in "[a-c]{1,2}(\\.[a-c]{1,2}){0,2}",
            port in prop::sample::select(vec![80, 443, 22]),
            method in prop::sample::select(vec!["GET", "PUT", "HEAD", "get"]),
            target in "/[a-b%2/.]{0,6}",
        ) {
            if let (Ok(narrow), Ok(wide), Ok(name)) = (narrow.parse::<Rule>(), wide.parse::<Rule>(), host.parse())
                && narrow.is_within(&wide)
            {
                prop_assert!(!narrow.reaches(&name, port) || wide.reaches(&name, port));
                prop_assert!(!narrow.permits(&name, port, method, &target) || wide.permits(&name, port, method, &target));
            }
        }

        #[test]
        fn random_text_is_a_rule_or_an_error_with_a_hint(text in "\\PC{0,60}") {
            match text.parse::<Rule>() {
                Ok(rule) => prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule)),
                Err(error) => prop_assert!(!error.to_string().is_empty() && !error.hint().is_empty()),
            }
        }
    }
}
