//! All rules of a sandbox together, which decide if a name may be known, a connection opened, and a request forwarded.
//! Each refusal names the part that no rule covers, so that the smallest change can be suggested.

use crate::{
    name::HostName,
    rule::{DEFAULT_PORTS, Pattern, Rule, RuleError},
};
use ipnet::IpNet;
use std::{collections::BTreeSet, fmt, net::IpAddr};

pub const RULES_MAX: usize = 256;

/// The rules of a sandbox, each once. Without any, nothing is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// Reason why texts or rules are not a sandbox's rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error("there are more than {} rules", RULES_MAX)]
    TooMany,
    #[error("`{}` is no rule: {error}", .text.escape_debug())]
    Rule { text: String, error: RuleError },
}

/// The decision on a connection before its first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rule allows it without conditions on requests.
    Open,
    /// Each request has to be read, and checked by [`Rules::request`].
    ByRequest,
    Denied(Why),
}

/// The part of a connection or a request that no rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No rule is about this name.
    Name,
    /// Rules are about this name, on other ports.
    Port { allowed: Vec<u16> },
    /// Rules are about this name and port, with other methods.
    Method { allowed: Vec<String> },
    /// Rules are about this name, port and method, below other paths.
    Path { allowed: Vec<String> },
    /// No rule is about this address and port.
    Address,
}

impl RulesError {
    pub fn hint(&self) -> String {
        match self {
            Self::TooMany => "use a wildcard for names with a common domain".to_owned(),
            Self::Rule { error, .. } => error.hint(),
        }
    }
}

impl Rules {
    /// Takes up to [`RULES_MAX`] rules; the same rule twice counts once.
    pub fn new(rules: Vec<Rule>) -> Result<Self, RulesError> {
        let mut kept = Self::default();
        rules.into_iter().try_for_each(|rule| kept.add(rule))?;
        Ok(kept)
    }

    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, RulesError> {
        let mut kept = Self::default();
        for text in texts {
            let text = text.as_ref();
            let rule = text.parse().map_err(|error| RulesError::Rule {
                text: text.to_owned(),
                error,
            })?;
            kept.add(rule)?;
        }
        Ok(kept)
    }

    fn add(&mut self, rule: Rule) -> Result<(), RulesError> {
        if self.0.contains(&rule) {
            return Ok(());
        }
        if self.0.len() == RULES_MAX {
            return Err(RulesError::TooMany);
        }
        self.0.push(rule);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.0.iter()
    }

    /// True if a rule other than `*` is about this name and port.
    pub(crate) fn names_explicitly(&self, name: &HostName, port: u16) -> bool {
        self.0
            .iter()
            .any(|rule| *rule.host() != Pattern::Any && rule.reaches(name, port))
    }

    /// True if a rule is about this name, on any port.
    pub fn names_reached(&self, name: &HostName) -> bool {
        self.iter().any(|rule| rule.reaches_name(name))
    }

    pub fn ports(&self) -> BTreeSet<u16> {
        self.iter().flat_map(Rule::ports).copied().collect()
    }

    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.iter().filter_map(Rule::network)
    }

    /// Decides about a connection before its first bytes.
    pub fn verdict(&self, name: &HostName, port: u16) -> Verdict {
        let mut reaching = self.iter().filter(|rule| rule.reaches(name, port)).peekable();
        if reaching.peek().is_none() {
            return Verdict::Denied(self.why_not(name));
        }
        if reaching.any(|rule| !rule.needs_request()) {
            Verdict::Open
        } else {
            Verdict::ByRequest
        }
    }

    /// Checks a request. `target` is the path with the query, as it is sent.
    pub fn request(&self, name: &HostName, port: u16, method: &str, target: &str) -> Result<(), Why> {
        let reaching: Vec<&Rule> = self.iter().filter(|rule| rule.reaches(name, port)).collect();
        if reaching.is_empty() {
            return Err(self.why_not(name));
        }
        if reaching
            .iter()
            .any(|rule| rule.permits(name, port, method, target))
        {
            return Ok(());
        }
        let of_method = reaching.iter().filter(|rule| rule.permits_method(method));
        let paths: BTreeSet<&str> = of_method.filter_map(|rule| rule.path()).collect();
        if !paths.is_empty() {
            return Err(Why::Path {
                allowed: paths.into_iter().map(str::to_owned).collect(),
            });
        }
        let methods: BTreeSet<&String> = reaching.iter().flat_map(|rule| rule.methods()).collect();
        Err(Why::Method {
            allowed: methods.into_iter().cloned().collect(),
        })
    }

    /// Checks that the operator's rules name an address, alone or by its network. Only rules about networks count:
    /// [`ringfence_types::Reach`] decides if an address is public, and a public address is not a rule.
    pub fn address(&self, address: IpAddr, port: u16) -> Result<(), Why> {
        if self.iter().any(|rule| rule.reaches_address(address, port)) {
            return Ok(());
        }
        let network = |rule: &&Rule| {
            rule.ports()
                .iter()
                .any(|port| rule.reaches_address(address, *port))
        };
        match ports_of(self.iter().filter(network)) {
            allowed if allowed.is_empty() => Err(Why::Address),
            allowed => Err(Why::Port { allowed }),
        }
    }

    /// True if everything that `rule` allows is allowed by these rules: each of its ports and methods by one of them.
    pub fn cover(&self, rule: &Rule) -> bool {
        rule.parts()
            .all(|part| self.iter().any(|wider| part.is_within(wider)))
    }

    fn why_not(&self, name: &HostName) -> Why {
        match ports_of(self.iter().filter(|rule| rule.reaches_name(name))) {
            allowed if allowed.is_empty() => Why::Name,
            allowed => Why::Port { allowed },
        }
    }
}

fn ports_of<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<u16> {
    let ports: BTreeSet<u16> = rules.flat_map(Rule::ports).copied().collect();
    ports.into_iter().collect()
}

impl Why {
    pub fn hint(&self, name: impl fmt::Display, port: u16) -> String {
        let host = if DEFAULT_PORTS.contains(&port) {
            name.to_string()
        } else {
            format!("{name}:{port}")
        };
        match self {
            Self::Name | Self::Port { .. } => format!("Call `request_egress {{domain: \"{host}\"}}`."),
            Self::Method { .. } => format!(
                "A rule with the method is missing, as `GET {name}:{port}`: add it to `allowed_domains`, or have the \
                 operator add it to `egress.allow`."
            ),
            Self::Path { .. } => format!(
                "A rule with the path is missing, as `{name}:{port}/path`: add it to `allowed_domains`, or have the \
                 operator add it to `egress.allow`."
            ),
            Self::Address => format!(
                "`{name}` resolves to an address that is not public: have the operator add `{name}:{port}` to \
                 `egress.private`, or that address or its network, as in `10.0.0.0/8:{port}`, to `egress.allow`."
            ),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let only = |f: &mut fmt::Formatter<'_>, what: &str, allowed: &[String]| match allowed {
            [] => write!(f, "no rule allows the {what}"),
            allowed => write!(f, "no rule allows the {what}; allowed: {}", allowed.join(", ")),
        };
        match self {
            Self::Name => only(f, "name", &[]),
            Self::Port { allowed } => {
                let ports: Vec<String> = allowed.iter().map(u16::to_string).collect();
                only(f, "port", &ports)
            }
            Self::Method { allowed } => only(f, "method", allowed),
            Self::Path { allowed } => only(f, "path", allowed),
            Self::Address => only(f, "address", &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn rules(texts: &[&str]) -> Rules {
        Rules::parse(texts).unwrap()
    }

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn number_of_rules_is_limited_and_duplicates_count_once() {
        let many = |count: usize| Rules::parse((0..count).map(|i| format!("a{i}.example")));
        assert_eq!(many(256).unwrap().iter().count(), 256);
        assert_eq!(many(257), Err(RulesError::TooMany));
        assert_eq!(Rules::parse(vec!["a.example"; 1000]).unwrap().iter().count(), 1);
        assert!(Rules::default().is_empty());
        let error = Rules::parse(["a.example", "http://b"]).unwrap_err();
        assert_eq!(error.to_string(), "`http://b` is no rule: a rule is not a URL");
        assert_eq!(error.hint(), "write `b:80`");
    }

    #[test]
    fn rules_are_combined() {
        let rules = rules(&[
            "a.example:22",
            "GET a.example/v1",
            "PUT a.example/v2",
            "10.0.0.0/8:5432",
        ]);
        let a = name("a.example");
        assert!(rules.names_reached(&a) && !rules.names_reached(&name("b.example")));
        assert_eq!(rules.ports().into_iter().collect::<Vec<_>>(), [22, 80, 443, 5432]);
        assert_eq!(rules.networks().count(), 1);
        assert_eq!(rules.verdict(&a, 22), Verdict::Open);
        assert_eq!(rules.verdict(&a, 443), Verdict::ByRequest);
        assert_eq!(
            rules.verdict(&a, 21),
            Verdict::Denied(Why::Port {
                allowed: vec![22, 80, 443]
            })
        );
        assert_eq!(rules.request(&a, 22, "anything", ""), Ok(()));
        assert_eq!(rules.request(&a, 443, "GET", "/v1"), Ok(()));
        let path = |text: &str| {
            Err(Why::Path {
                allowed: vec![text.to_owned()],
            })
        };
        assert_eq!(rules.request(&a, 443, "GET", "/v2"), path("/v1"));
        assert_eq!(rules.request(&a, 443, "PUT", "/v1"), path("/v2"));
        let methods = vec!["GET".to_owned(), "PUT".to_owned()];
        assert_eq!(
            rules.request(&a, 443, "POST", "/v1"),
            Err(Why::Method { allowed: methods })
        );
        assert_eq!(
            rules.request(&name("b.example"), 443, "GET", "/v1"),
            Err(Why::Name)
        );
    }

    #[test]
    fn rule_without_conditions_overrides_one_with_conditions() {
        let rules = rules(&["GET *.example/v1", "a.example"]);
        assert_eq!(rules.verdict(&name("a.example"), 443), Verdict::Open);
        assert_eq!(rules.verdict(&name("b.example"), 443), Verdict::ByRequest);
    }

    #[test]
    fn address_is_allowed_only_by_a_rule_for_its_network() {
        let rules = rules(&["*", "10.0.0.0/8:5432", "169.254.169.254:80", "[fd00::]/8"]);
        let check = |address: &str, port, expect: Result<(), Why>| {
            assert_eq!(rules.address(address.parse().unwrap(), port), expect, "{address}");
        };
        check("10.0.0.1", 5432, Ok(()));
        check("::ffff:10.0.0.1", 5432, Ok(()));
        check("10.0.0.1", 5433, Err(Why::Port { allowed: vec![5432] }));
        check("1.1.1.1", 443, Err(Why::Address));
        check("169.254.169.254", 80, Ok(()));
        check("169.254.169.254", 443, Err(Why::Port { allowed: vec![80] }));
        check("fd00::1", 443, Ok(()));
        // Loopback, also in IPv6, needs a rule for nothing else.
        for address in [
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
        ] {
            let all = self::rules(&["0.0.0.0/0", "[::]/0"]);
            assert_eq!(
                all.address(address.parse().unwrap(), 443),
                Err(Why::Address),
                "{address}"
            );
        }
        // AWS, by IPv6: inside the network, and not allowed by it
        check("fd00:ec2::254", 443, Err(Why::Address));
        assert_eq!(
            Rules::default().address(Ipv4Addr::LOCALHOST.into(), 80),
            Err(Why::Address)
        );
        assert_eq!(
            Rules::default().address(Ipv6Addr::LOCALHOST.into(), 80),
            Err(Why::Address)
        );
    }

    #[test]
    fn rules_cover_a_rule_port_by_port_and_method_by_method() {
        let rules = rules(&[
            "a.example:80",
            "a.example:443",
            "GET *.example",
            "HEAD *.example:443",
        ]);
        let covers = |text: &str| rules.cover(&text.parse().unwrap());
        assert!(covers("a.example"));
        assert!(covers("PUT a.example/x"));
        assert!(covers("GET,HEAD b.example:443"));
        assert!(!covers("GET,HEAD b.example"));
        assert!(!covers("a.example:22"));
        assert!(!covers("b.example"));
        assert!(!Rules::default().cover(&"a.example".parse().unwrap()));
    }

    #[test]
    fn refusal_suggests_the_smallest_rule_that_allows_it() {
        let check = |why: Why, message: &str, hint: &str| {
            assert_eq!(why.to_string(), message);
            assert!(
                why.hint(name("a.example"), 8443).contains(hint),
                "{}",
                why.hint("a.example", 8443)
            );
        };
        check(
            Why::Name,
            "no rule allows the name",
            "Call `request_egress {domain: \"a.example:8443\"}`.",
        );
        check(
            Why::Port {
                allowed: vec![80, 443],
            },
            "no rule allows the port; allowed: 80, 443",
            "{domain: \"a.example:8443\"}",
        );
        let words = |word: &str| vec![word.to_owned()];
        check(
            Why::Method {
                allowed: words("GET"),
            },
            "no rule allows the method; allowed: GET",
            "GET a.example:8443",
        );
        check(
            Why::Path {
                allowed: words("/v1"),
            },
            "no rule allows the path; allowed: /v1",
            "a.example:8443/path",
        );
        check(Why::Address, "no rule allows the address", "`10.0.0.0/8:8443`");
    }

    /// Returns the answer of one rule to one query, in the words of the document's table.
    fn answer(rule: &str, query: &str) -> String {
        let Ok(rules) = Rules::parse([rule]) else {
            return "not a rule".to_owned();
        };
        let (method, query) = match query.split_once(' ') {
            Some((method, query)) => (Some(method), query),
            None => (None, query),
        };
        let (authority, target) = match query.find('/') {
            Some(at) => query.split_at(at),
            None => (query, "/"),
        };
        let (host, port) = authority.rsplit_once(':').unwrap();
        let port = port.parse().unwrap();
        let denied = |why: Why| {
            let word = match why {
                Why::Name => "name",
                Why::Port { .. } => "port",
                Why::Method { .. } => "method",
                Why::Path { .. } => "path",
                Why::Address => "address",
            };
            format!("no: {word}")
        };
        if let Ok(address) = host.trim_matches(['[', ']']).parse() {
            return rules
                .address(address, port)
                .map_or_else(denied, |()| "yes".to_owned());
        }
        let Ok(name) = host.parse::<HostName>() else {
            return "not a name".to_owned();
        };
        if let Some(method) = method {
            return rules
                .request(&name, port, method, target)
                .map_or_else(denied, |()| "yes".to_owned());
        }
        match rules.verdict(&name, port) {
            Verdict::Open => "yes".to_owned(),
            Verdict::ByRequest => "by request".to_owned(),
            Verdict::Denied(why) => denied(why),
        }
    }

    #[test]
    fn table_in_the_documentation_is_correct() {
        let document = include_str!("../../../docs/egress.md");
        let (_, table) = document
            .split_once("| rule | asked | answer |\n|---|---|---|\n")
            .unwrap();
        let quoted = |cell: &str| cell.split('`').nth(1).unwrap_or_default().to_owned();
        let mut rows = 0;
        for line in table.lines().take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [rule, query, expect] = cells[..] else {
                panic!("{line}");
            };
            assert_eq!(answer(&quoted(rule), &quoted(query)), expect, "{line}");
            if expect == "not a rule" && query.starts_with("(write `") {
                let error = Rules::parse([quoted(rule)]).unwrap_err();
                assert!(quoted(query).parse::<Rule>().is_ok(), "{line}");
                assert!(error.hint().contains(&quoted(query)), "{line}: {}", error.hint());
            }
            rows += 1;
        }
        assert!(rows > 100, "{rows}");
    }
}
