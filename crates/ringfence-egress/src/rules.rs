//! All rules of a sandbox, asked together: whether a name may be known, a connection opened, a request passed on. Each
//! refusal says which part of the question no rule covers, so that the answer to it can be the smallest one.

use crate::{
    name::HostName,
    rule::{Rule, RuleError},
};
use ipnet::IpNet;
use std::{collections::BTreeSet, fmt, net::IpAddr};

/// So many rules a sandbox has at most.
pub const RULES_MAX: usize = 256;

/// The rules of a sandbox, each once. Without any, nothing is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// Why texts or rules are not a sandbox's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesError {
    /// More than [`RULES_MAX`].
    TooMany,
    /// One of them is no rule.
    Rule {
        /// The text, as it was written.
        text: String,
        /// What is wrong with it.
        error: RuleError,
    },
}

/// What is known before anything was asked over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rule allows it, whatever is said over it.
    Open,
    /// Each request has to be read, and held against [`Rules::request`].
    ByRequest,
    /// No rule allows it.
    Denied(Why),
}

/// The part of a question that no rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No rule is about this name.
    Name,
    /// Rules are about this name, on other ports.
    Port {
        /// Those ports.
        allowed: Vec<u16>,
    },
    /// Rules are about this name and port, with other methods.
    Method {
        /// Those methods.
        allowed: Vec<String>,
    },
    /// Rules are about this name, port and method, below other paths.
    Path {
        /// Those paths.
        allowed: Vec<String>,
    },
    /// No rule is about this address and port.
    Address,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "there are more than {RULES_MAX} rules"),
            Self::Rule { text, error } => write!(f, "`{}` is no rule: {error}", text.escape_debug()),
        }
    }
}

impl std::error::Error for RulesError {}

impl RulesError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::TooMany => "say with a wildcard what many names have in common".to_owned(),
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

    /// Reads rules as people write them.
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

    /// Whether there is nothing that can be reached.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules, in the order in which they were given.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.0.iter()
    }

    /// Whether a name may be known at all.
    pub fn names_reached(&self, name: &HostName) -> bool {
        self.iter().any(|rule| rule.reaches_name(name))
    }

    /// Every port that some rule is about.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.iter().flat_map(Rule::ports).copied().collect()
    }

    /// The addresses that some rule is about.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.iter().filter_map(Rule::network)
    }

    /// Whether a connection may be opened, before anything was said over it.
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

    /// Whether a request may be passed on. `target` is the path with the query, as it is sent.
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

    /// Whether the operator's rules name an address, by itself or by its network. Only rules about networks are asked:
    /// that an address is public is for [`ringfence_types::Reach`] to say, and does not make a rule.
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

    /// Whether everything that `rule` allows is allowed by these: each of its ports and methods by one of them.
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
    /// One word for results and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Port { .. } => "port",
            Self::Method { .. } => "method",
            Self::Path { .. } => "path",
            Self::Address => "address",
        }
    }

    /// What would allow it, for who asked and for whoever decides.
    pub fn hint(&self, name: impl fmt::Display, port: u16) -> String {
        const WHERE: &str = "to `allowed_domains`, or have the operator add it to `egress.allow`.";
        match self {
            Self::Name | Self::Port { .. } => format!("Add `{name}:{port}` {WHERE}"),
            Self::Method { .. } => {
                format!("Add a rule that begins with the method, as `GET {name}:{port}` does, {WHERE}")
            }
            Self::Path { .. } => {
                format!("Add a rule that ends with the path, as `{name}:{port}/path` does, {WHERE}")
            }
            Self::Address => format!(
                "`{name}` leads to an address that is not public: have the operator add that address or its network \
                 with port {port}, as in `10.0.0.0/8:{port}`, to `egress.allow`."
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
