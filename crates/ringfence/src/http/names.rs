//! Allowed `Host` and `Origin` values. A host name that a web page has made resolve to this server (DNS rebinding) is
//! refused before anything else of the request is examined, its body included.

use hyper::{
    HeaderMap, Uri,
    header::{HOST, HeaderValue, ORIGIN},
    http::uri::Authority,
};

const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Hosts that clients may use as `Host`, and whose pages may call (`Origin`).
pub(super) struct AllowedNames(Vec<AllowedName>);

struct AllowedName {
    host: String,
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameRefused {
    /// The request has no valid host, or more than one `Host` header.
    Malformed,
    Host,
    Origin,
}

impl AllowedNames {
    pub(super) fn new(own: &[String]) -> Self {
        let read = |text: &str| Authority::try_from(text).ok();
        let all = LOCAL.into_iter().chain(own.iter().map(String::as_str));
        let allowed = |authority: Authority| AllowedName {
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16(),
        };
        Self(all.filter_map(read).map(allowed).collect())
    }

    /// Checks `Host`, the host in the request target (HTTP/2, HTTP/1.1) and each `Origin`: all present must be allowed.
    pub(super) fn check(&self, address: &Uri, headers: &HeaderMap) -> Result<(), NameRefused> {
        let hosts = headers.get_all(HOST).iter().map(authority);
        let hosts: Option<Vec<Authority>> = hosts.chain(address.authority().cloned().map(plain)).collect();
        match hosts.as_deref() {
            None | Some([]) => return Err(NameRefused::Malformed),
            Some(_) if headers.get_all(HOST).iter().count() > 1 => return Err(NameRefused::Malformed),
            Some(hosts) if !hosts.iter().all(|host| self.allows(host, host.port_u16())) => {
                return Err(NameRefused::Host);
            }
            Some(_) => {}
        }
        let is_allowed = |origin: &HeaderValue| self.allows_origin(origin).unwrap_or(false);
        match headers.get_all(ORIGIN).iter().all(is_allowed) {
            true if headers.contains_key(ORIGIN) || !is_of_another_site(headers) => Ok(()),
            _ => Err(NameRefused::Origin),
        }
    }

    /// An origin is a scheme, a host and a port, which defaults to that of the scheme (RFC 6454).
    fn allows_origin(&self, origin: &HeaderValue) -> Option<bool> {
        let (scheme, host) = origin.to_str().ok()?.split_once("://")?;
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let host = plain(Authority::try_from(host).ok()?)?;
        Some(self.allows(&host, host.port_u16().or(Some(default_port))))
    }

    fn allows(&self, named: &Authority, port: Option<u16>) -> bool {
        let is_same = |allowed: &AllowedName| {
            allowed.host.eq_ignore_ascii_case(named.host())
                && (allowed.port.is_none() || allowed.port == port)
        };
        self.0.iter().any(is_same)
    }
}

/// True for a request from another site: browsers say so also without `Origin`, as for images (Fetch Metadata, W3C).
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    !headers.get_all("sec-fetch-site").iter().all(is_own)
}

fn authority(value: &HeaderValue) -> Option<Authority> {
    plain(Authority::try_from(value.as_bytes()).ok()?)
}

/// Rejects an authority with user information or an invalid port.
fn plain(authority: Authority) -> Option<Authority> {
    let has_more = authority.as_str().len() > authority.host().len();
    let is_good = has_more == authority.port_u16().is_some() && !authority.as_str().contains('@');
    is_good.then_some(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn host_is_allowed_by_name_and_port_and_must_be_unambiguous() {
        let names = AllowedNames::new(&["box.example:8443".to_owned(), "mcp.example".to_owned()]);
        let check = |address: &str, pairs: &[(&str, &str)], expect: Result<(), NameRefused>| {
            let found = names.check(&address.parse().unwrap(), &headers(pairs));
            assert_eq!(found, expect, "{address} {pairs:?}");
        };
        for host in [
            "localhost",
            "LOCALHOST:1",
            "[::1]:80",
            "box.example:8443",
            "mcp.example",
            "Mcp.Example:1",
        ] {
            check("/mcp", &[("host", host)], Ok(()));
        }
        for host in [
            "evil.example",
            "box.example",
            "box.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::2]",
        ] {
            check("/mcp", &[("host", host)], Err(NameRefused::Host));
        }
        for host in ["", "a b", "@", "evil@localhost", "localhost:99999", "localhost:"] {
            let found = names.check(&"/mcp".parse().unwrap(), &headers(&[("host", host)]));
            assert!(matches!(found, Err(NameRefused::Malformed)), "{host}: {found:?}");
        }
        check("/mcp", &[], Err(NameRefused::Malformed));
        check(
            "/mcp",
            &[("host", "localhost"), ("host", "localhost")],
            Err(NameRefused::Malformed),
        );
        check("http://localhost:8000/mcp", &[], Ok(()));
        check(
            "http://evil.example/mcp",
            &[("host", "localhost")],
            Err(NameRefused::Host),
        );
        check(
            "http://localhost/mcp",
            &[("host", "evil.example")],
            Err(NameRefused::Host),
        );
    }

    #[test]
    fn origin_is_allowed_by_its_host_and_port() {
        let names = AllowedNames::new(&["box.example:8443".to_owned(), "tls.example:443".to_owned()]);
        let check = |origins: &[&str], expect: Result<(), NameRefused>| {
            let mut pairs = vec![("host", "localhost")];
            pairs.extend(origins.iter().map(|origin| ("origin", *origin)));
            let found = names.check(&"/mcp".parse().unwrap(), &headers(&pairs));
            assert_eq!(found, expect, "{origins:?}");
        };
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "https://box.example:8443",
            "https://tls.example",
        ] {
            check(&[origin], Ok(()));
        }
        for origin in [
            "null",
            "x",
            "file://",
            "http://evil.example",
            "https://box.example",
            "http://tls.example",
            "ftp://localhost",
            "http://a@localhost",
            "http://localhost/x",
        ] {
            check(&[origin], Err(NameRefused::Origin));
        }
        check(
            &["http://localhost", "http://evil.example"],
            Err(NameRefused::Origin),
        );
    }

    #[test]
    fn cross_site_request_without_an_origin_is_refused() {
        let names = AllowedNames::new(&[]);
        let check = |pairs: &[(&str, &str)]| {
            let pairs = [&[("host", "localhost")], pairs].concat();
            names.check(&"/mcp".parse().unwrap(), &headers(&pairs))
        };
        for site in ["same-origin", "none"] {
            assert_eq!(check(&[("sec-fetch-site", site)]), Ok(()), "{site}");
        }
        for site in ["cross-site", "same-site", "", "None"] {
            assert_eq!(
                check(&[("sec-fetch-site", site)]),
                Err(NameRefused::Origin),
                "{site}"
            );
            let origin = ("origin", "http://localhost:3000");
            assert_eq!(check(&[("sec-fetch-site", site), origin]), Ok(()), "{site}");
        }
    }
}
