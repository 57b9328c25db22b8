//! The hosts that an installer may reach: only those of the index that the operator has configured for pip or npm.

use crate::{
    error::Result,
    settings::{IndexHost, PackageSources},
};
use ringfence_egress::{Rule, Rules};
use ringfence_types::{Language, RequestError};
use std::collections::BTreeSet;
use url::{Host, Url};

const PYPI: &str = "https://pypi.org/simple";
/// The host of the files that [`PYPI`] links to.
const PYPI_FILES: &str = "https://files.pythonhosted.org";
const NPM: &str = "https://registry.npmjs.org";

pub(super) fn rules(language: Language, sources: &PackageSources, wanted: &[IndexHost]) -> Result<Rules> {
    let mut rules = Vec::new();
    for host in wanted {
        match host {
            IndexHost::Configured => rules.extend(configured(language, sources)),
            IndexHost::Named(rule) => rules.push(rule.clone()),
        }
    }
    Rules::new(rules)
        .map_err(|error| RequestError::invalid(format!("packages.hosts: {error}."), error.hint()))
}

fn configured(language: Language, sources: &PackageSources) -> Vec<Rule> {
    let mut urls = match language.runs_as() {
        Language::Node => registries(sources),
        _ => indexes(sources),
    };
    // With a proxy, the installer reaches the proxy, and hosts that `no_proxy` may name.
    urls.extend(proxies(language, sources));
    let rules: BTreeSet<String> = urls.iter().filter_map(|url| rule_of(url)).collect();
    rules.iter().filter_map(|rule| rule.parse().ok()).collect()
}

fn indexes(sources: &PackageSources) -> Vec<String> {
    let conf = |wanted: &'static str| {
        let lines = sources.pip.iter().filter(move |(name, _)| name == wanted);
        lines.flat_map(|(_, value)| value.split_whitespace().map(str::to_owned))
    };
    if conf("no-index").any(|value| ["1", "true", "yes", "on"].contains(&value.to_ascii_lowercase().as_str()))
    {
        return conf("find-links").collect();
    }
    let mut urls: Vec<String> = conf("index-url").collect();
    if urls.is_empty() {
        urls.push(PYPI.to_owned());
    }
    urls.extend(conf("extra-index-url").chain(conf("find-links")));
    let is_pypi = |url: &String| Url::parse(url).is_ok_and(|url| url.host_str() == Some("pypi.org"));
    if urls.iter().any(is_pypi) {
        urls.push(PYPI_FILES.to_owned());
    }
    urls
}

fn registries(sources: &PackageSources) -> Vec<String> {
    let own = sources.npm.iter().filter(|(name, _)| name == "registry");
    let mut urls: Vec<String> = own.map(|(_, value)| value.to_string()).collect();
    if urls.is_empty() {
        urls.push(NPM.to_owned());
    }
    let scoped = sources.npm.iter().filter(|(name, _)| name.ends_with(":registry"));
    urls.extend(scoped.map(|(_, value)| value.to_string()));
    urls
}

fn proxies(language: Language, sources: &PackageSources) -> Vec<String> {
    let own = match language.runs_as() {
        Language::Node => &sources.npm,
        _ => &sources.pip,
    };
    let own = own
        .iter()
        .filter(|(name, _)| ["proxy", "https-proxy"].contains(&name.as_str()));
    let usual = sources
        .proxies
        .iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("no_proxy"));
    own.chain(usual)
        .map(|(_, value)| match value.contains("://") {
            true => value.to_string(),
            false => format!("http://{}", value.as_str()),
        })
        .collect()
}

/// Returns the rule for an http or https URL with a host: `https://user@host:8443/path` becomes `host:8443`.
fn rule_of(url: &str) -> Option<String> {
    let url = Url::parse(url)
        .ok()
        .filter(|url| ["http", "https"].contains(&url.scheme()))?;
    let port = url.port_or_known_default()?;
    Some(match url.host()? {
        Host::Ipv6(address) => format!("[{address}]:{port}"),
        // In the sandbox, /etc/hosts maps it to this address.
        Host::Domain("localhost") => format!("127.0.0.1:{port}"),
        host => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zeroize::Zeroizing;

    fn lines(lines: &[(&str, &str)]) -> Vec<(String, Zeroizing<String>)> {
        let line = |(name, value): &(&str, &str)| ((*name).to_owned(), Zeroizing::new((*value).to_owned()));
        lines.iter().map(line).collect()
    }

    #[test]
    fn installer_reaches_only_the_configured_index() {
        let check = |language: Language,
                     pip: &[(&str, &str)],
                     npm: &[(&str, &str)],
                     proxies: &[(&str, &str)],
                     expect: &[&str]| {
            let sources = PackageSources {
                pip: lines(pip),
                npm: lines(npm),
                proxies: lines(proxies),
                ..PackageSources::default()
            };
            let rules = rules(language, &sources, &[IndexHost::Configured]).unwrap();
            let shown: Vec<String> = rules.iter().map(ToString::to_string).collect();
            assert_eq!(shown, expect, "{pip:?} {npm:?}");
        };
        let python = Language::Python;
        check(
            python,
            &[],
            &[],
            &[],
            &["files.pythonhosted.org:443", "pypi.org:443"],
        );
        let own = "https://user:secret@devpi.corp.test:8443/root/simple";
        check(python, &[("index-url", own)], &[], &[], &["devpi.corp.test:8443"]);
        let local = [
            ("index-url", "http://localhost:3141/simple"),
            ("find-links", "/opt/wheels"),
        ];
        check(python, &local, &[], &[], &["127.0.0.1:3141"]);
        let extra = [("extra-index-url", "https://a.test/x https://[2001:db8::1]/y")];
        let expect = [
            "[2001:db8::1]:443",
            "a.test:443",
            "files.pythonhosted.org:443",
            "pypi.org:443",
        ];
        check(python, &extra, &[], &[], &expect);
        let none = [("no-index", "true"), ("index-url", "https://a.test")];
        check(python, &none, &[], &[], &[]);
        check(
            Language::Typescript,
            &[("index-url", own)],
            &[],
            &[],
            &["registry.npmjs.org:443"],
        );
        let scoped = [
            ("registry", "https://npm.test/"),
            ("@a:registry", "https://b.test:4873"),
        ];
        check(
            Language::Node,
            &[],
            &scoped,
            &[],
            &["b.test:4873", "npm.test:443"],
        );
        let proxy = [("https_proxy", "proxy.test:3128"), ("no_proxy", "a.test")];
        check(
            python,
            &[("index-url", own)],
            &[],
            &proxy,
            &["devpi.corp.test:8443", "proxy.test:3128"],
        );
    }
}
