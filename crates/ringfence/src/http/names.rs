//! Names by which this server is called, and pages that may call it. A name that a page has made point here (DNS
//! rebinding) is refused before anything else of the request is looked at, its body included.

use hyper::{
    HeaderMap, Uri,
    header::{HOST, HeaderValue, ORIGIN},
    http::uri::Authority,
};

/// At any port.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Hosts by which clients may call, and whose pages may.
pub(super) struct AllowedNames(Vec<AllowedName>);

struct AllowedName {
    host: String,
    /// None: any.
    port: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameRefused {
    /// It does not say by which name it calls, or not in one way.
    Malformed,
    Host,
    Origin,
}

impl AllowedNames {
    /// This host, and those that the operator names.
    pub(super) fn new(own: &[String]) -> Self {
        let read = |text: &str| Authority::try_from(text).ok();
        let all = LOCAL.into_iter().chain(own.iter().map(String::as_str));
        let allowed = |authority: Authority| AllowedName {
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16(),
        };
        Self(all.filter_map(read).map(allowed).collect())
    }

    /// HTTP/2 names the host in its address, where HTTP/1.1 may name one, too: each that is there must be allowed.
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

    /// RFC 6454: scheme, host, and the port of the scheme where none is written.
    fn allows_origin(&self, origin: &HeaderValue) -> Option<bool> {
        let (scheme, host) = origin.to_str().ok()?.split_once("://")?;
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let host = plain(Authority::try_from(host).ok()?)?;
        Some(self.allows(&host, host.port_u16().or(Some(usual))))
    }

    fn allows(&self, named: &Authority, port: Option<u16>) -> bool {
        let is_same = |allowed: &AllowedName| {
            allowed.host.eq_ignore_ascii_case(named.host())
                && (allowed.port.is_none() || allowed.port == port)
        };
        self.0.iter().any(is_same)
    }
}

/// A browser says so also where it sends no Origin, as for a picture (Fetch Metadata Request Headers, W3C).
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    !headers.get_all("sec-fetch-site").iter().all(is_own)
}

fn authority(value: &HeaderValue) -> Option<Authority> {
    plain(Authority::try_from(value.as_bytes()).ok()?)
}

/// Without a user, and with a port that is one.
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
    fn a_host_is_allowed_by_name_and_port_and_said_in_one_way() {
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
    fn a_page_is_allowed_by_the_host_that_it_came_from() {
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
    fn a_browser_that_names_no_origin_must_be_on_a_page_of_this_server() {
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
