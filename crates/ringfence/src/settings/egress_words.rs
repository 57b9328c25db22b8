//! Values of the settings `egress.*`, `web.*` and `packages.hosts`.

use super::words::{SettingValue, choice};
use ringfence_engine::{
    EgressRule, HostRule, HostRuleError, IndexHost, PlaceError, SearchProvider, SecretBinding, SecretRule,
};
use ringfence_types::Namespace;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

const DNS_PORT: u16 = 53;

choice! {
    enum OnDeniedSetting {
        Deny = "deny",
        Ask = "ask",
    }
}

/// `example.com`, or `team-a=example.com` for one namespace; `team-*=…` for those with this prefix.
impl SettingValue for EgressRule {
    const SEPARATOR: char = ';';

    fn read(text: &str) -> Result<Self, String> {
        let (namespace, rule) = match text.split_once('=') {
            Some((before, rule)) if is_namespace(before) => (before, rule.trim_start()),
            _ => ("*", text),
        };
        Ok(Self {
            namespace: namespace.to_owned(),
            rule: read_rule(rule)?,
        })
    }
    fn json(&self) -> Value {
        let Self { namespace, rule } = self;
        match namespace.as_str() {
            "*" => json!(rule.to_string()),
            namespace => json!(format!("{namespace}={rule}")),
        }
    }
}

/// True for a namespace or a prefix with `*`. No rule has an `=` after a host alone, and none begins with a path.
fn is_namespace(text: &str) -> bool {
    let beginning = text.strip_suffix('*').unwrap_or(text);
    text == "*" || Namespace::try_from(beginning.to_owned()).is_ok()
}

fn read_rule(text: &str) -> Result<HostRule, String> {
    text.parse().map_err(|error: HostRuleError| {
        format!("`{}` is no rule: {error}; {}", text.escape_debug(), error.hint())
    })
}

/// `NAMESPACE/KEY=HOST`, and the place of the secret in a request to the host.
impl SettingValue for SecretBinding {
    const SEPARATOR: char = ';';

    fn read(text: &str) -> Result<Self, String> {
        let (secret, place) = text
            .split_once('=')
            .ok_or_else(|| format!("`{}` is not NAMESPACE/KEY=HOST", text.escape_debug()))?;
        let of = SecretRule::read(secret.trim_end())?;
        let place = place
            .parse()
            .map_err(|error: PlaceError| format!("{error}; {}", error.hint()))?;
        Ok(Self { of, place })
    }
    fn json(&self) -> Value {
        let Self { of, place } = self;
        json!(format!("{}/{}={place}", of.namespace, of.key))
    }
}

/// A service whose addresses may be private: `db.internal:5432`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrivateHost(pub(crate) HostRule);

impl SettingValue for PrivateHost {
    const SEPARATOR: char = ';';

    fn read(text: &str) -> Result<Self, String> {
        let rule = read_rule(text)?;
        if rule.is_network() {
            return Err(format!(
                "`{text}` is an address: name it in `egress.allow`; only names belong here"
            ));
        }
        Ok(Self(rule))
    }
    fn json(&self) -> Value {
        json!(self.0.to_string())
    }
}

/// A DNS resolver: `9.9.9.9`, `127.0.0.1:5353`, `[::1]:53`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolver(pub(crate) SocketAddr);

impl SettingValue for Resolver {
    fn read(text: &str) -> Result<Self, String> {
        let address = text
            .parse::<IpAddr>()
            .map(|address| SocketAddr::from((address, DNS_PORT)));
        let found = address.or_else(|_| text.parse());
        found.map(Self).map_err(|_| {
            format!(
                "`{}` is not an address, with or without a port",
                text.escape_debug()
            )
        })
    }
    fn json(&self) -> Value {
        json!(self.0.to_string())
    }
    fn schema() -> Value {
        json!({"type": "string", "maxLength": 64})
    }
}

/// `auto`: the hosts of the index that pip and npm are configured for; or a host by name.
impl SettingValue for IndexHost {
    const SEPARATOR: char = ';';

    fn read(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Configured,
            host => Self::Named(read_rule(host)?),
        })
    }
    fn json(&self) -> Value {
        match self {
            Self::Configured => json!("auto"),
            Self::Named(rule) => json!(rule.to_string()),
        }
    }
}

/// `searxng=https://search.example.com/`, `brave key BRAVE_KEY`, `duckduckgo`.
impl SettingValue for SearchProvider {
    const SEPARATOR: char = ';';

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }
    fn json(&self) -> Value {
        json!(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn egress_rule_applies_to_all_or_some_namespaces() {
        let check = |text: &str, namespace: &str, rule: &str| {
            let read = EgressRule::read(text).unwrap();
            assert_eq!(
                (read.namespace.as_str(), read.rule.to_string().as_str()),
                (namespace, rule),
                "{text}"
            );
        };
        check("example.com", "*", "example.com");
        check("team-a=example.com:8443", "team-a", "example.com:8443");
        check("team-*=*.example.com", "team-*", "*.example.com");
        check("*=10.0.0.0/8:5432", "*", "10.0.0.0/8:5432");
        check("GET api.test/a=b", "*", "GET api.test/a=b");
        for text in [
            "",
            "=",
            "a=",
            "https://example.com",
            "a b c",
            "team-a=team-b=example.com",
        ] {
            assert!(EgressRule::read(text).is_err(), "{text}");
        }
        assert_eq!(EgressRule::read("a=b.test").unwrap().json(), json!("a=b.test"));
    }

    #[test]
    fn search_provider_requires_its_url_and_key() {
        let check = |text: &str, expect: &str| {
            let read = SearchProvider::read(text).unwrap();
            assert_eq!(read.json(), json!(expect), "{text}");
            assert_eq!(SearchProvider::read(expect).unwrap(), read);
        };
        check("duckduckgo", "duckduckgo");
        check("brave key BRAVE_KEY", "brave key BRAVE_KEY");
        check("searxng=http://127.0.0.1:8888", "searxng=http://127.0.0.1:8888/");
        check(
            "tavily=https://proxy.test/ key T",
            "tavily=https://proxy.test/ key T",
        );
        for text in [
            "",
            "google",
            "searxng",
            "brave",
            "duckduckgo key X",
            "searxng=file:///x",
            "mojeek=http://u:p@x/ key K",
        ] {
            assert!(SearchProvider::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn resolver_is_an_ip_address_and_private_host_is_a_name() {
        let read = |text: &str| Resolver::read(text).map(|resolver| resolver.0.to_string());
        assert_eq!(read("9.9.9.9").unwrap(), "9.9.9.9:53");
        assert_eq!(read("127.0.0.1:5353").unwrap(), "127.0.0.1:5353");
        assert_eq!(read("::1").unwrap(), "[::1]:53");
        assert!(read("dns.test").is_err());
        assert!(PrivateHost::read("10.0.0.1:80").is_err());
        assert!(PrivateHost::read("db.internal:5432").is_ok());
    }
}
