//! Values of the settings about storage, priorities and telemetry: each is read from text, checked, and written back.

use super::words::{SettingValue, choice, optional, text};
use hyper::Uri;
use ringfence_engine::SecretRule;
use ringfence_types::{Namespace, Priority, nearest::suggestion};
use serde_json::{Value, json};
use std::net::SocketAddr;

choice! {
    enum AuditStore {
        Sqlite = "sqlite",
        Memory = "memory",
    }
}

choice! {
    enum VaultStore {
        Memory = "memory",
        Environment = "env",
        File = "file",
    }
}

choice! {
    enum VaultKey {
        File = "file",
        Passphrase = "passphrase",
    }
}

/// True for a name, or a prefix of one followed by `*`: `team-*`.
pub(super) fn is_pattern(text: &str, is_part: impl Fn(char) -> bool) -> bool {
    let plain = text.strip_suffix('*').unwrap_or(text);
    (plain.len() < text.len() || !plain.is_empty()) && text.len() <= 128 && plain.chars().all(is_part)
}

/// `NAMESPACE/KEY`; either may be a prefix followed by `*`.
impl SettingValue for SecretRule {
    fn read(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not NAMESPACE/KEY; either may end with `*`");
        let (namespace, key) = text.split_once('/').ok_or_else(refused)?;
        let of_namespace = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let of_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if is_pattern(namespace, of_namespace) && is_pattern(key, of_key) {
            let (namespace, key) = (namespace.to_owned(), key.to_owned());
            Ok(Self { namespace, key })
        } else {
            Err(refused())
        }
    }
    fn json(&self) -> Value {
        json!(format!("{}/{}", self.namespace, self.key))
    }
    fn schema() -> Value {
        json!({"type": "string", "pattern": r"^[A-Za-z0-9_.-]*\*?/[A-Za-z0-9_]*\*?$"})
    }
}

text! {
    /// The name of a package, or a prefix followed by `*`.
    PackagePattern,
    |text| is_pattern(text, |c| c.is_ascii_alphanumeric() || "._-@/~".contains(c)),
    |text| format!("`{text}` is not the name of a package, which may end with `*`"),
    {"type": "string", "maxLength": 128, "pattern": r"^[A-Za-z0-9._@/~-]*\*?$"}
}

/// `NAMESPACE=high`.
pub(crate) type NamespacePriority = (Namespace, Priority);

impl SettingValue for NamespacePriority {
    fn read(text: &str) -> Result<Self, String> {
        let (namespace, priority) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not NAMESPACE=low, =normal or =high"))?;
        let word = priority.parse().map_err(|_| {
            let near = suggestion(priority, Priority::WORDS.iter().copied());
            format!("`{priority}` is not low, normal or high.{near}")
        })?;
        Ok((Namespace::try_from(namespace.to_owned())?, word))
    }
    fn json(&self) -> Value {
        json!(format!("{}={}", self.0, self.1))
    }
    fn schema() -> Value {
        json!({"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}=(low|normal|high)$"})
    }
}

impl SettingValue for SocketAddr {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("`{text}` is not ADDRESS:PORT, as 127.0.0.1:9464, nor `off`"))
    }
    fn json(&self) -> Value {
        json!(self.to_string())
    }
}

optional! {
    /// Address at which metrics are served, or `off`.
    Listen(SocketAddr), "off", {"type": "string"}
}

text! {
    /// An http URL without a query; a collector on this host can forward over TLS.
    CollectorUrl,
    |text| text.len() <= 2048 && text.parse().is_ok_and(|uri: Uri| is_collector(&uri)),
    |text| format!(
        "`{text}` is not a URL as http://127.0.0.1:4318, nor `off`; TLS is for a collector on this host to speak"
    ),
    {"type": "string"}
}

optional! {
    /// Address of an OpenTelemetry collector (OTLP over HTTP): `http://HOST[:PORT][/PATH]`, or `off`.
    Endpoint(CollectorUrl), "off", {"type": "string", "pattern": "^(off$|http://)"}
}

fn is_collector(uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else {
        return false;
    };
    let has_port = authority.as_str().len() > authority.host().len();
    uri.scheme_str() == Some("http")
        && uri.query().is_none()
        && !authority.host().is_empty()
        && !authority.as_str().contains('@')
        && has_port == authority.port_u16().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_patterns_are_a_namespace_and_a_key() {
        let check = |text: &str, good: bool| assert_eq!(SecretRule::read(text).is_ok(), good, "{text:?}");
        check("*/*", true);
        check("team-*/API_*", true);
        check("default/OPENAI_API_KEY", true);
        check("default", false);
        check("/KEY", false);
        check("default/", false);
        check("a*b/KEY", false);
        check("a/b/c", false);
        assert_eq!(SecretRule::read("team-*/K").unwrap().json(), json!("team-*/K"));
    }

    #[test]
    fn priorities_addresses_and_endpoints_are_read_and_written_alike() {
        fn same<T: SettingValue>(text: &str) {
            assert_eq!(T::read(text).map(|word| word.json()), Ok(json!(text)), "{text}");
        }
        same::<NamespacePriority>("team-a=high");
        same::<Listen>("127.0.0.1:9464");
        same::<Listen>("[::1]:9464");
        same::<Listen>("off");
        same::<Endpoint>("http://127.0.0.1:4318/v1");
        same::<Endpoint>("off");
        for text in ["", "9464", "localhost:9464", "127.0.0.1"] {
            assert!(Listen::read(text).is_err(), "{text:?}");
        }
        same::<Endpoint>("http://[::1]:4318/otlp/");
        for text in [
            "",
            "/v1",
            "https://collector",
            "http://",
            "http://:4318",
            "http://user@host",
            "http://collector?token=x",
            "ftp://x",
            "http://x:y",
        ] {
            assert!(Endpoint::read(text).is_err(), "{text:?}");
        }
        assert!(NamespacePriority::read("a=urgent").is_err());
        assert!(NamespacePriority::read("../x=low").is_err());
    }
}
