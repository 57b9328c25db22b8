//! Values of the settings about the HTTP server.

use super::words::{HostPath, SettingValue, Toolset, choice, optional, text};
use crate::time::{self, DETACH_SECONDS_MAX};
use hyper::Uri;
use ringfence_engine::check_caps;
use ringfence_types::{LimitsRequest, Namespace};
use serde_json::{Value, json};
use std::{fmt, net::SocketAddr, num::NonZeroU32, path::PathBuf};

/// Maximum length of a socket's path (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;
const UNIX: &str = "unix:";

choice! {
    enum HttpAuthentication {
        Auto = "auto",
        Required = "required",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpListen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for HttpListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl SettingValue for HttpListen {
    fn read(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return match path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES_MAX {
                true if !path.contains('\0') => Ok(Self::Unix(path.into())),
                _ => Err(format!(
                    "the path of a socket must be absolute and have at most {SOCKET_PATH_BYTES_MAX} bytes"
                )),
            };
        }
        let address = text.parse().map(Self::Tcp);
        address.map_err(|_| format!("`{text}` is not ADDRESS:PORT, as 127.0.0.1:8000, nor unix:PATH"))
    }
    fn json(&self) -> Value {
        json!(self.to_string())
    }
    fn schema() -> Value {
        json!({"type": "string"})
    }
}

text! {
    /// The value of a Host header: a name or an address, with or without a port.
    HostName,
    |text| text.len() <= 255 && !text.contains('@') && hyper::http::uri::Authority::try_from(text).is_ok(),
    |text| format!("`{text}` is not HOST or HOST:PORT"),
    {"type": "string", "maxLength": 255}
}

optional! {
    PathOrOff(HostPath), "off", {"type": "string", "pattern": "^(off$|/|~/)"}
}

text! {
    /// An https URL, or an http URL of this host, as written.
    PlainUrl,
    |text| text.len() <= 2048 && !text.contains('#') && text.parse().is_ok_and(|uri: Uri| is_plain(&uri)),
    |text| format!("`{text}` is not a URL of https (http on this host alone) without a query, nor `off`"),
    {"type": "string"}
}

fn is_plain(uri: &Uri) -> bool {
    let is_local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let authority = uri.authority().map(|authority| authority.as_str());
    authority.is_some_and(|authority| !authority.contains('@'))
        && (uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && is_local))
        && uri.query().is_none()
}

optional! {
    HttpUrl(PlainUrl), "off", {"type": "string", "pattern": "^(off$|https?://)"}
}

/// The principal of an access token: `CLAIM=VALUE: NAME NAMESPACE,... [TOOLSET,...] [LIMIT=NUMBER ...]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimRule {
    /// The rule as written, with single spaces.
    text: String,
    pub(crate) claim: String,
    pub(crate) value: Option<String>,
    /// With `{}` for the claim's value.
    pub(crate) name: String,
    /// With `{}` for the claim's value; none: all.
    pub(crate) namespaces: Option<Vec<String>>,
    /// Empty: those of the server.
    pub(crate) toolsets: Vec<Toolset>,
    pub(crate) rate_per_minute: Option<NonZeroU32>,
    pub(crate) detach_after_ms: Option<u64>,
    pub(crate) limits: LimitsRequest,
}

const LIMITS: [&str; 8] = [
    "rate",
    "detach_after",
    "ram_mb",
    "cpus",
    "timeout",
    "processes",
    "output_bytes",
    "disk_mb",
];

impl ClaimRule {
    /// True if a name contains the claim's value, which then has to be a single one.
    pub(crate) fn uses_claim_value(&self) -> bool {
        let names = self.namespaces.iter().flatten().chain([&self.name]);
        names.into_iter().any(|name| name.contains(CLAIM_PLACEHOLDER))
    }

    /// Sets a limit. False: the name is not a limit, the limit is set already, or the value is invalid.
    fn limit(&mut self, name: &str, text: &str) -> bool {
        let whole = text.parse::<u64>().ok();
        let seconds = text.parse::<f64>().ok();
        let detach_after =
            seconds.and_then(|seconds| time::milliseconds_or_zero(seconds, DETACH_SECONDS_MAX));
        let timeout = seconds.and_then(|seconds| time::milliseconds(seconds, 1e9));
        let of_32_bits = whole.and_then(|whole| u32::try_from(whole).ok());
        let limits = &mut self.limits;
        match name {
            "rate" => put(&mut self.rate_per_minute, of_32_bits.and_then(NonZeroU32::new)),
            "detach_after" => put(&mut self.detach_after_ms, detach_after),
            "ram_mb" => put(&mut limits.max_ram_mb, whole),
            "cpus" => put(
                &mut limits.max_cpu_cores,
                text.parse()
                    .ok()
                    .filter(|cores: &f64| cores.is_finite() && *cores > 0.0),
            ),
            "timeout" => put(&mut limits.timeout_ms, timeout),
            "processes" => put(&mut limits.max_processes, of_32_bits),
            "output_bytes" => put(&mut limits.max_output_bytes, whole),
            "disk_mb" => put(&mut limits.max_disk_mb, whole),
            _ => false,
        }
    }
}

fn put<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let is_good = slot.is_none() && value.is_some();
    *slot = value;
    is_good
}

const ANY: &str = "*";
pub(crate) const CLAIM_PLACEHOLDER: &str = "{}";

impl SettingValue for ClaimRule {
    const SEPARATOR: char = ';';

    fn read(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is not CLAIM=VALUE: NAME NAMESPACE,... [TOOLSET,...] [LIMIT=NUMBER ...]; VALUE may be `*`, a \
                 name `{{}}`, and LIMIT one of {}",
                LIMITS.join(", ")
            )
        };
        let (condition, principal) = text.split_once(": ").ok_or_else(refused)?;
        let (claim, value) = condition.trim().split_once('=').ok_or_else(refused)?;
        let mut words = principal.split_whitespace();
        let (name, namespaces) = words.next().zip(words.next()).ok_or_else(refused)?;
        let (limits, others): (Vec<&str>, Vec<&str>) = words.partition(|word| word.contains('='));
        let mut others = others.into_iter();
        let toolsets = others
            .next()
            .map(|names| names.split(',').map(Toolset::read).collect());
        let is_name = |name: &str| Namespace::try_from(name.replace(CLAIM_PLACEHOLDER, "x")).is_ok();
        let namespaces: Option<Vec<String>> =
            (namespaces != ANY).then(|| namespaces.split(',').map(str::to_owned).collect());
        let names = namespaces.iter().flatten().map(String::as_str);
        let are_good = is_name(name) && names.into_iter().all(is_name) && others.next().is_none();
        if !are_good || claim.is_empty() || value.is_empty() {
            return Err(refused());
        }
        let mut rule = Self {
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            claim: claim.to_owned(),
            value: (value != ANY).then(|| value.to_owned()),
            name: name.to_owned(),
            namespaces,
            toolsets: toolsets.transpose()?.unwrap_or_default(),
            rate_per_minute: None,
            detach_after_ms: None,
            limits: LimitsRequest::default(),
        };
        let read = |limit: &&str| {
            limit
                .split_once('=')
                .is_some_and(|(name, text)| rule.limit(name, text))
        };
        if !limits.iter().all(read) {
            return Err(refused());
        }
        let checked = check_caps(&rule.limits);
        checked.map_err(|error| format!("`{text}`: {}", error.message.trim_end_matches('.')))?;
        Ok(rule)
    }
    fn json(&self) -> Value {
        json!(self.text)
    }
    fn schema() -> Value {
        json!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_is_an_ip_and_port_or_a_unix_path() {
        let check = |text: &str, good: bool| {
            let read = HttpListen::read(text);
            assert_eq!(read.is_ok(), good, "{text}");
            assert!(read.is_err() || read.unwrap().to_string() == text, "{text}");
        };
        check("127.0.0.1:8000", true);
        check("[::1]:80", true);
        check("0.0.0.0:0", true);
        check("unix:/run/ringfence.sock", true);
        check("unix:ringfence.sock", false);
        check(&format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX)), false);
        check("localhost:8000", false);
        check("8000", false);
        check("", false);
    }

    #[test]
    fn allowed_host_is_a_host_header_value() {
        for (text, good) in [
            ("mcp.example.com", true),
            ("mcp.example.com:8443", true),
            ("[::1]:80", true),
            ("https://mcp.example.com", false),
            ("a@b", false),
            ("a b", false),
            ("", false),
        ] {
            assert_eq!(HostName::read(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn urls_are_https_or_local_http() {
        for (text, good) in [
            ("off", true),
            ("https://mcp.example.com", true),
            ("https://idp.example.com/tenant/", true),
            ("http://127.0.0.1:8080/jwks", true),
            ("http://idp.example.com", false),
            ("https://user@idp.example.com", false),
            ("https://idp.example.com/?x", false),
            ("https://idp.example.com/#x", false),
            ("idp.example.com", false),
            ("", false),
        ] {
            assert_eq!(HttpUrl::read(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn claim_rule_round_trips_and_malformed_ones_are_refused() {
        for text in [
            "tenant=*: {} {}",
            "sub=a=b: a team-a,shared execute,sessions",
            "client_id=x: x *",
            "client_id=x: x * rate=600 detach_after=0 ram_mb=256 cpus=0.5 timeout=1.5 processes=8",
            "tenant=*: {} {} execute output_bytes=1000 disk_mb=64",
        ] {
            assert_eq!(
                ClaimRule::read(text).map(|rule| rule.json()),
                Ok(json!(text)),
                "{text}"
            );
        }
        for text in [
            "",
            "tenant: a b",
            "tenant=*: a",
            "tenant=*: ../a b",
            "=a: b c",
            "a=: b c",
            "a=b: c d exekute",
            "a=b: c d execute e",
            "a=b: c d rate=0",
            "a=b: c d rate=1 rate=1",
            "a=b: c d speed=1",
            "a=b: c d ram_mb=15",
            "a=b: c d processes=0",
            "a=b: c d cpus=0.001",
            "a=b: c d cpus=-1",
            "a=b: c d cpus=nan",
            "a=b: c d timeout=x",
            "a=b: c d timeout=0.0004",
            "a=b: c d detach_after=0.0004",
            "a=b: c d detach_after=86401",
            "a=b: c d detach_after=nan",
        ] {
            assert!(ClaimRule::read(text).is_err(), "{text}");
        }
    }
}
