//! The destination of a request, and how the request is written anew. The connection, the target and `Host` must all
//! name the same destination.

use crate::{
    Destination, RefusalRule,
    refusal::{Refusal, shown},
};
use hyper::{
    HeaderMap, Method, Uri, Version,
    header::{self, HeaderName, HeaderValue},
    http::request::Parts,
};

#[derive(Clone, Debug)]
pub(crate) enum ProxyMode {
    /// The program has opened a connection to this destination.
    Transparent(Destination),
    /// Inside TLS to this destination, which ends here.
    Inspected(Destination),
    /// The program speaks to a proxy: each request has its own destination.
    Explicit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) to: Destination,
    /// A tunnel instead of an answer.
    pub(crate) means: Means,
    /// Path and query, as they will be sent.
    pub(crate) target: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Answer,
    WebSocket,
    Tunnel,
}

/// What belongs to one connection and not to the message (RFC 9110, section 7.6.1), with what programs made of it.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What `Connection` cannot be used to take away.
const OF_THE_MESSAGE: [HeaderName; 3] = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

pub(crate) fn read(mode: &ProxyMode, request: &Parts) -> Result<Wanted, Refusal> {
    if request.method == Method::TRACE {
        return Err(malformed_request("TRACE is not passed on"));
    }
    for name in named_by_connection(&request.headers) {
        if OF_THE_MESSAGE.contains(&name) {
            return Err(malformed_request(&format!("its Connection header names {name}")));
        }
    }
    let to = destination(mode, request)?;
    host(request, &to)?;
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(Wanted {
        means: means(request),
        target: path.to_owned(),
        to,
    })
}

/// By the connection and the target, which have to agree.
fn destination(mode: &ProxyMode, request: &Parts) -> Result<Destination, Refusal> {
    let authority = request.uri.authority().map(|authority| authority.as_str());
    let scheme = request.uri.scheme_str();
    let read = |text: &str, port| {
        Destination::read(text, port)
            .map_err(|error| malformed_request(&format!("its target `{}` {error}", shown(text.as_bytes()))))
    };
    match (mode, authority) {
        (ProxyMode::Explicit, Some(authority)) if request.method == Method::CONNECT => read(authority, None),
        (ProxyMode::Explicit, Some(authority)) => match scheme {
            Some("http") => read(authority, Some(80)),
            _ => Err(malformed_request(
                "its target is not http://, and TLS goes through CONNECT",
            )),
        },
        (ProxyMode::Explicit, None) => Err(malformed_request(
            "its target names no host, as one to a proxy does",
        )),
        (ProxyMode::Transparent(_) | ProxyMode::Inspected(_), _) if request.method == Method::CONNECT => {
            Err(malformed_request("CONNECT is for the proxy"))
        }
        (ProxyMode::Transparent(to) | ProxyMode::Inspected(to), None) => Ok(to.clone()),
        (ProxyMode::Transparent(to), Some(authority)) if scheme == Some("http") => {
            agreed(to, authority, read(authority, Some(80))?)
        }
        (ProxyMode::Inspected(to), Some(authority)) if scheme == Some("https") => {
            agreed(to, authority, read(authority, Some(443))?)
        }
        (ProxyMode::Transparent(to) | ProxyMode::Inspected(to), Some(authority)) => {
            Err(mismatch(to, authority))
        }
    }
}

/// What the target names has to be the connection's other end.
fn agreed(to: &Destination, authority: &str, written: Destination) -> Result<Destination, Refusal> {
    if written == *to {
        Ok(written)
    } else {
        Err(mismatch(to, authority))
    }
}

/// Where there is a `Host`, it has to say the same; how many there are was looked at before.
fn host(request: &Parts, to: &Destination) -> Result<(), Refusal> {
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let text = match (hosts.next(), hosts.next()) {
        (None, _) if request.version == Version::HTTP_10 => return Ok(()),
        // There the target has it.
        (None, _) if request.version == Version::HTTP_2 && request.uri.authority().is_some() => return Ok(()),
        (Some(host), None) => host.as_bytes(),
        _ => return Err(malformed_request("it does not have exactly one Host")),
    };
    let written = std::str::from_utf8(text)
        .ok()
        .map(|text| Destination::read(text, Some(to.port)));
    match written {
        Some(Ok(host)) if host == *to => Ok(()),
        Some(Ok(_)) => Err(mismatch(to, &shown(text))),
        Some(Err(error)) => Err(malformed_request(&format!("its Host `{}` {error}", shown(text)))),
        None => Err(malformed_request(&format!("its Host is `{}`", shown(text)))),
    }
}

fn means(request: &Parts) -> Means {
    if request.method == Method::CONNECT {
        return Means::Tunnel;
    }
    let upgrade = request.headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    let websocket = upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
    let named = named_by_connection(&request.headers).any(|name| name == header::UPGRADE);
    if websocket && named && request.method == Method::GET && request.version == Version::HTTP_11 {
        Means::WebSocket
    } else {
        Means::Answer
    }
}

/// Makes of a request from the sandbox the one that is sent: to that host, that path, and nothing of the old
/// connection. `own_port` is the one that its scheme has where none is written.
pub(crate) fn rewrite(request: &mut Parts, wanted: &Wanted, own_port: u16) -> Result<(), Refusal> {
    let no_header = |_| malformed_request("its host cannot be written into a header");
    let chunked = request.headers.contains_key(header::TRANSFER_ENCODING);
    strip(&mut request.headers);
    // The library answers it by itself as soon as the body is asked for.
    request.headers.remove(header::EXPECT);
    let host = HeaderValue::from_str(&wanted.to.authority(own_port)).map_err(no_header)?;
    request.headers.insert(header::HOST, host);
    if chunked {
        request
            .headers
            .insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if wanted.means == Means::WebSocket {
        ask_for_websocket(&mut request.headers);
    }
    request.version = Version::HTTP_11;
    request.uri = wanted
        .target
        .parse::<Uri>()
        .map_err(|_| malformed_request("its target cannot be written again"))?;
    Ok(())
}

/// Rewrites a request for HTTP/2, whose target says everything.
pub(crate) fn rewrite_for_http2(request: &mut Parts, wanted: &Wanted) -> Result<(), Refusal> {
    let takes_trailers = request.headers.get(header::TE).is_some_and(|te| te == "trailers");
    strip(&mut request.headers);
    request.headers.remove(header::EXPECT);
    request.headers.remove(header::HOST);
    if takes_trailers {
        request
            .headers
            .insert(header::TE, HeaderValue::from_static("trailers"));
    }
    request.version = Version::HTTP_2;
    request.uri = Uri::builder()
        .scheme("https")
        .authority(wanted.to.authority(443))
        .path_and_query(wanted.target.as_str())
        .build()
        .map_err(|_| malformed_request("its target cannot be written again"))?;
    Ok(())
}

/// The two headers by which both ends agree on a WebSocket.
pub(crate) fn ask_for_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Takes away what belongs to the connection a message came over.
pub(crate) fn strip(headers: &mut HeaderMap) {
    strip_named(headers);
    for name in &OF_THE_CONNECTION {
        headers.remove(name);
    }
}

/// Takes away what `Connection` names, and that itself: what is written into the message after this stays there.
pub(crate) fn strip_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = named_by_connection(headers)
        .filter(|name| !OF_THE_MESSAGE.contains(name))
        .collect();
    for name in named.iter().chain([&header::CONNECTION]) {
        headers.remove(name);
    }
}

/// Headers by which some servers take another method or path than those of the request line.
const OVERRIDES: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// Refuses a request that may mean another method or path than it says, where rules are about those.
pub(crate) fn refuse_overrides(to: &Destination, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(name) = OVERRIDES.into_iter().find(|name| headers.contains_key(name)) else {
        return Ok(());
    };
    let what = format!("{to}: its rules name methods or paths, and {name} may name another");
    let hint = format!("Send the method and the path that are meant, without {name}.");
    Err(Refusal::of(RefusalRule::Request, to, what, &hint))
}

/// Whether an answer's body is as it seems once its chunks are joined.
pub(crate) fn is_plainly_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    codings.all(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

pub(crate) fn malformed_request(why: &str) -> Refusal {
    Refusal::plain(RefusalRule::Http, format!("a request was refused: {why}"), "")
}

fn mismatch(to: &Destination, written: &str) -> Refusal {
    let what = format!(
        "a request over the connection to {to} is for {}",
        shown(written.as_bytes())
    );
    Refusal::of(
        RefusalRule::Host,
        to,
        what,
        "connect to the host that the request is for",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn transparent() -> ProxyMode {
        ProxyMode::Transparent(Destination::read("api.test:80", None).expect("a destination"))
    }

    fn parts(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn everything_that_says_who_is_meant_has_to_agree() {
        let rule = |mode: &ProxyMode, method: &str, target: &str, headers: &[(&str, &str)]| {
            read(mode, &parts(method, target, headers))
                .err()
                .map(|refusal| refusal.rule)
        };
        let (http, host) = (Some(RefusalRule::Http), Some(RefusalRule::Host));
        for (method, target, headers, expect) in [
            ("GET", "/", &[("host", "api.test")][..], None),
            ("GET", "/", &[("host", "API.test.:80")], None),
            ("GET", "http://api.test/a", &[("host", "api.test")], None),
            ("GET", "/", &[("host", "evil.test")], host),
            ("GET", "/", &[("host", "api.test:8080")], host),
            ("GET", "/", &[], http),
            ("GET", "/", &[("host", "api.test"), ("host", "api.test")], http),
            ("GET", "/", &[("host", "a@api.test")], http),
            ("GET", "/", &[("host", "api.test, evil.test")], http),
            ("GET", "http://evil.test/", &[("host", "api.test")], host),
            ("GET", "http://api.test/", &[("host", "evil.test")], host),
            ("GET", "http://u@api.test/", &[("host", "api.test")], http),
            ("GET", "https://api.test:80/", &[("host", "api.test")], host),
            ("CONNECT", "api.test:80", &[("host", "api.test")], http),
            ("TRACE", "/", &[("host", "api.test")], http),
            (
                "GET",
                "/",
                &[("host", "api.test"), ("connection", "close, host")],
                http,
            ),
            (
                "GET",
                "/",
                &[("host", "api.test"), ("connection", "Content-Length")],
                http,
            ),
        ] {
            assert_eq!(
                rule(&transparent(), method, target, headers),
                expect,
                "{method} {target} {headers:?}"
            );
        }
    }

    #[test]
    fn a_proxy_is_told_the_host_in_the_target() {
        let read = |method: &str, target: &str, host: &str| {
            read(&ProxyMode::Explicit, &parts(method, target, &[("host", host)]))
                .map(|wanted| wanted.to.to_string())
        };
        assert_eq!(
            read("GET", "http://api.test/a", "api.test"),
            Ok("api.test:80".to_owned())
        );
        assert_eq!(
            read("GET", "http://api.test:8080/a", "api.test:8080"),
            Ok("api.test:8080".to_owned())
        );
        assert_eq!(
            read("CONNECT", "api.test:443", "api.test:443"),
            Ok("api.test:443".to_owned())
        );
        for (method, target, host) in [
            ("GET", "/a", "api.test"),
            ("GET", "https://api.test/", "api.test"),
            ("GET", "ftp://api.test/", "api.test"),
            ("GET", "http://u:p@api.test/", "api.test"),
            ("GET", "http://api.test/", "evil.test"),
            ("CONNECT", "api.test", "api.test"),
            ("CONNECT", "u@api.test:443", "api.test:443"),
            ("CONNECT", "api.test:443", "evil.test:443"),
            ("CONNECT", "api.test:0", "api.test:0"),
        ] {
            assert!(read(method, target, host).is_err(), "{method} {target} {host}");
        }
    }

    #[test]
    fn nothing_of_the_old_connection_is_in_the_new_request() {
        let mut request = parts(
            "POST",
            "http://API.test/a?b=c",
            &[
                ("host", "API.TEST:80"),
                ("connection", "close, X-Secret-Hop"),
                ("x-secret-hop", "1"),
                ("keep-alive", "5"),
                ("proxy-authorization", "Basic abc"),
                ("te", "trailers"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("transfer-encoding", "chunked"),
                ("accept", "*/*"),
            ],
        );
        let wanted = read(&transparent(), &request).expect("well");
        rewrite(&mut request, &wanted, 80).expect("written");
        let mut kept: Vec<&str> = request.headers.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["accept", "host", "transfer-encoding"]);
        assert_eq!(request.headers["host"], "api.test");
        assert_eq!(request.uri, "/a?b=c");
    }

    #[test]
    fn a_header_that_names_another_method_or_path_is_refused() {
        let to = Destination::read("api.test:80", None).expect("a destination");
        for name in [
            "X-HTTP-Method-Override",
            "x-method-override",
            "X-Original-URL",
            "X-Rewrite-URL",
        ] {
            let request = parts("GET", "/v1", &[("host", "api.test"), (name, "DELETE")]);
            let refusal = refuse_overrides(&to, &request.headers).expect_err(name);
            assert_eq!(refusal.rule, RefusalRule::Request);
        }
        let plain = parts("GET", "/v1", &[("host", "api.test"), ("x-original-host", "a")]);
        assert_eq!(refuse_overrides(&to, &plain.headers), Ok(()));
    }

    #[test]
    fn an_answer_that_is_packed_on_its_way_is_noticed() {
        for (coding, expect) in [
            ("chunked", true),
            ("Chunked", true),
            ("gzip, chunked", false),
            ("gzip", false),
        ] {
            let answer = parts("GET", "/", &[("transfer-encoding", coding)]);
            assert_eq!(is_plainly_coded(&answer.headers), expect, "{coding}");
        }
        assert!(is_plainly_coded(&HeaderMap::new()));
    }

    #[test]
    fn a_websocket_is_asked_for_in_one_way_only() {
        let means = |method: &str, headers: &[(&str, &str)]| {
            let headers = [&[("host", "api.test")], headers].concat();
            read(&transparent(), &parts(method, "/", &headers))
                .expect("well")
                .means
        };
        assert_eq!(
            means("GET", &[("connection", "Upgrade"), ("upgrade", "WebSocket")]),
            Means::WebSocket
        );
        assert_eq!(means("GET", &[("upgrade", "websocket")]), Means::Answer);
        assert_eq!(
            means("POST", &[("connection", "upgrade"), ("upgrade", "websocket")]),
            Means::Answer
        );
        assert_eq!(
            means("GET", &[("connection", "upgrade"), ("upgrade", "h2c")]),
            Means::Answer
        );
    }
}
