//! The destination of a request, and its rewriting. The connection, the target and `Host` must all name the same
//! destination.

use crate::{
    Destination, RefusalRule,
    refusal::{Refusal, escaped},
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
    /// Inside TLS to this destination, which is terminated here.
    Inspected(Destination),
    /// The program speaks to the proxy: each request has its own destination.
    Explicit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedRequest {
    pub(crate) to: Destination,
    pub(crate) kind: RequestKind,
    /// Path and query, as they are sent.
    pub(crate) target: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Plain,
    WebSocket,
    Tunnel,
}

/// Headers of one connection and not of the message (RFC 9110, section 7.6.1), with those that programs have added.
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

/// Headers that `Connection` must not remove.
const OF_THE_MESSAGE: [HeaderName; 3] = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

pub(crate) fn read(mode: &ProxyMode, request: &Parts) -> Result<ParsedRequest, Refusal> {
    if request.method == Method::TRACE {
        return Err(malformed_request("TRACE is not forwarded"));
    }
    for name in named_by_connection(&request.headers) {
        if OF_THE_MESSAGE.contains(&name) {
            return Err(malformed_request(&format!("its Connection header names {name}")));
        }
    }
    let to = destination(mode, request)?;
    host(request, &to)?;
    // As displayed, it begins with `/` even if the target was `http://host?query`.
    let target = request.uri.path_and_query().map(ToString::to_string);
    Ok(ParsedRequest {
        kind: kind(request),
        target: target.unwrap_or_else(|| "/".to_owned()),
        to,
    })
}

/// Returns the destination by the connection and the target, which have to agree.
fn destination(mode: &ProxyMode, request: &Parts) -> Result<Destination, Refusal> {
    let authority = request.uri.authority().map(|authority| authority.as_str());
    let scheme = request.uri.scheme_str();
    let read = |text: &str, port| {
        Destination::read(text, port)
            .map_err(|error| malformed_request(&format!("its target `{}` {error}", escaped(text.as_bytes()))))
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
            "its target names no host, as a request to a proxy has to",
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

fn agreed(to: &Destination, authority: &str, written: Destination) -> Result<Destination, Refusal> {
    if written == *to {
        Ok(written)
    } else {
        Err(mismatch(to, authority))
    }
}

/// Checks that the one `Host` names the destination. HTTP/1.0 may omit it, and HTTP/2 if the target has an authority.
fn host(request: &Parts, to: &Destination) -> Result<(), Refusal> {
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let text = match (hosts.next(), hosts.next()) {
        (None, _) if request.version == Version::HTTP_10 => return Ok(()),
        // In HTTP/2 the target has it.
        (None, _) if request.version == Version::HTTP_2 && request.uri.authority().is_some() => return Ok(()),
        (Some(host), None) => host.as_bytes(),
        _ => return Err(malformed_request("it does not have exactly one Host")),
    };
    let written = std::str::from_utf8(text)
        .ok()
        .map(|text| Destination::read(text, Some(to.port)));
    let shown = escaped(text);
    match written {
        Some(Ok(host)) if host == *to => Ok(()),
        Some(Ok(_)) => Err(mismatch(to, &shown)),
        Some(Err(error)) => Err(malformed_request(&format!("its Host `{shown}` {error}"))),
        None => Err(malformed_request(&format!("its Host is `{shown}`"))),
    }
}

fn kind(request: &Parts) -> RequestKind {
    if request.method == Method::CONNECT {
        return RequestKind::Tunnel;
    }
    let upgrade = request.headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    let websocket = upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
    let named = named_by_connection(&request.headers).any(|name| name == header::UPGRADE);
    if websocket && named && request.method == Method::GET && request.version == Version::HTTP_11 {
        RequestKind::WebSocket
    } else {
        RequestKind::Plain
    }
}

/// Rewrites a request from the sandbox: for that host and path, without anything of the old connection. `default_port`
/// is the port of its scheme.
pub(crate) fn rewrite(request: &mut Parts, parsed: &ParsedRequest, default_port: u16) -> Result<(), Refusal> {
    let no_header = |_| malformed_request("its host cannot be written into a header");
    let chunked = request.headers.contains_key(header::TRANSFER_ENCODING);
    strip(&mut request.headers);
    // The library answers it by itself as soon as the body is read.
    request.headers.remove(header::EXPECT);
    let host = HeaderValue::from_str(&parsed.to.authority(default_port)).map_err(no_header)?;
    request.headers.insert(header::HOST, host);
    if chunked {
        request
            .headers
            .insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if parsed.kind == RequestKind::WebSocket {
        set_websocket_headers(&mut request.headers);
    }
    request.version = Version::HTTP_11;
    let target = parsed.target.parse::<Uri>();
    request.uri = target.map_err(|_| malformed_request("its target cannot be rewritten"))?;
    Ok(())
}

/// Rewrites a request for HTTP/2, whose target has scheme, host and path.
pub(crate) fn rewrite_for_http2(request: &mut Parts, parsed: &ParsedRequest) -> Result<(), Refusal> {
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
        .authority(parsed.to.authority(443))
        .path_and_query(parsed.target.as_str())
        .build()
        .map_err(|_| malformed_request("its target cannot be rewritten"))?;
    Ok(())
}

pub(crate) fn set_websocket_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Removes the headers of the connection that a message came over.
pub(crate) fn strip(headers: &mut HeaderMap) {
    strip_named(headers);
    for name in &OF_THE_CONNECTION {
        headers.remove(name);
    }
}

/// Removes what `Connection` names, except [`OF_THE_MESSAGE`], and itself: headers that are written after this stay.
pub(crate) fn strip_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = named_by_connection(headers)
        .filter(|name| !OF_THE_MESSAGE.contains(name))
        .collect();
    for name in named.iter().chain([&header::CONNECTION]) {
        headers.remove(name);
    }
}

/// Headers that make some servers use another method or path than those of the request line.
const OVERRIDES: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// Refuses a request that may be for another method or path than its own, where rules are about those.
pub(crate) fn refuse_overrides(to: &Destination, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(name) = OVERRIDES.into_iter().find(|name| headers.contains_key(name)) else {
        return Ok(());
    };
    let what = format!("{to}: its rules name methods or paths, and {name} may name another one");
    let hint = format!("Send the intended method and path, without {name}.");
    Err(Refusal::of(RefusalRule::Request, to, what, &hint))
}

/// True if an answer has no transfer coding but chunks.
pub(crate) fn has_only_chunked_coding(headers: &HeaderMap) -> bool {
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
        escaped(written.as_bytes())
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
    fn connection_target_and_host_must_agree() {
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
    fn proxy_request_needs_its_host_in_the_target() {
        let read = |method: &str, target: &str, host: &str| {
            read(&ProxyMode::Explicit, &parts(method, target, &[("host", host)]))
                .map(|parsed| parsed.to.to_string())
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
    fn rewritten_request_has_no_hop_by_hop_headers() {
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
        let parsed = read(&transparent(), &request).expect("valid");
        rewrite(&mut request, &parsed, 80).expect("written");
        let mut kept: Vec<&str> = request.headers.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["accept", "host", "transfer-encoding"]);
        assert_eq!(request.headers["host"], "api.test");
        assert_eq!(request.uri, "/a?b=c");
        let bare = parts("GET", "http://api.test?b=c", &[("host", "api.test")]);
        assert_eq!(read(&transparent(), &bare).expect("valid").target, "/?b=c");
    }

    #[test]
    fn method_and_path_override_headers_are_refused() {
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
    fn answer_with_another_transfer_coding_is_detected() {
        for (coding, expect) in [
            ("chunked", true),
            ("Chunked", true),
            ("gzip, chunked", false),
            ("gzip", false),
        ] {
            let answer = parts("GET", "/", &[("transfer-encoding", coding)]);
            assert_eq!(has_only_chunked_coding(&answer.headers), expect, "{coding}");
        }
        assert!(has_only_chunked_coding(&HeaderMap::new()));
    }

    #[test]
    fn websocket_request_has_one_form_only() {
        let kind = |method: &str, headers: &[(&str, &str)]| {
            let headers = [&[("host", "api.test")], headers].concat();
            read(&transparent(), &parts(method, "/", &headers))
                .expect("valid")
                .kind
        };
        assert_eq!(
            kind("GET", &[("connection", "Upgrade"), ("upgrade", "WebSocket")]),
            RequestKind::WebSocket
        );
        assert_eq!(kind("GET", &[("upgrade", "websocket")]), RequestKind::Plain);
        assert_eq!(
            kind("POST", &[("connection", "upgrade"), ("upgrade", "websocket")]),
            RequestKind::Plain
        );
        assert_eq!(
            kind("GET", &[("connection", "upgrade"), ("upgrade", "h2c")]),
            RequestKind::Plain
        );
    }
}
