//! Secrets bound to hosts. The program sees only a placeholder; Ringfence replaces it with the secret in requests to
//! the secret's hosts, in the one header or parameter that it belongs in. Other values of that header or parameter are
//! removed, so that a program cannot use another identity at those hosts either.

use crate::{
    Destination, Host, Pattern, Rule, RuleError,
    destination::{HTTP_PORT, TLS_PORT},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    HeaderMap,
    header::{self, HeaderName, HeaderValue},
};
use std::{borrow::Cow, collections::HashSet, fmt, pin::Pin, str::FromStr};
use url::form_urlencoded;
use zeroize::Zeroizing;

/// Mark of the value in a template.
const VALUE: &str = "{}";
const NAME_BYTES_MAX: usize = 128;
const TEMPLATE_BYTES_MAX: usize = 1024;
const PLACEHOLDER_PREFIX: &str = "ringfence_secret_";

/// Headers that route or frame a message, or belong to one connection. No secret can be written there.
const NOT_FOR_SECRETS: [HeaderName; 10] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A place where a secret may be sent: `HOST[:PORT] [header NAME[: TEMPLATE] | query NAME[=]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlace {
    host: Rule,
    slot: Slot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    /// In a header: instead of the placeholder that a program writes there, or always, within this template.
    Header {
        name: HeaderName,
        template: Option<String>,
    },
    /// In a query parameter: instead of the placeholder, or always.
    Query { name: String, when: When },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    IfPresent,
    Always,
}

/// Reason why a text is not a place for a secret; [`PlaceError::hint`] says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error("{0}")]
    Host(RuleError),
    /// Not a name alone: a network, every name, methods, or a path.
    #[error("`{}` is not the name of a host", .0.escape_debug())]
    NotAName(String),
    #[error("`{}` is plain HTTP", .0.escape_debug())]
    Plain(String),
    /// Neither a header nor a parameter, or one that cannot hold a secret.
    #[error("`{}` is not a place for a secret", .0.escape_debug())]
    Slot(String),
    /// No `{}`, more than one, too long, or not the printable ASCII of a header.
    #[error("`{}` does not have the value exactly once", .0.escape_debug())]
    Template(String),
}

impl PlaceError {
    pub fn hint(&self) -> String {
        match self {
            Self::Host(error) => error.hint(),
            Self::NotAName(_) => {
                "write a host by name, as in `api.example.com` or `*.example.com:8443`".to_owned()
            }
            Self::Plain(_) => {
                "a secret is sent only over TLS: omit the port, or write the port of TLS".to_owned()
            }
            Self::Slot(_) => {
                "write `header NAME`, `header NAME: TEXT {}`, `query NAME` or `query NAME=`".to_owned()
            }
            Self::Template(_) => {
                "write the header's text with `{}` where the value belongs, as in `Bearer {}`".to_owned()
            }
        }
    }
}

impl FromStr for SecretPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (host, slot) = match text.trim().split_once(' ') {
            Some((host, slot)) => (host, slot.trim()),
            None => (text.trim(), "header authorization"),
        };
        let rule: Rule = host.parse().map_err(PlaceError::Host)?;
        if rule.is_network() || *rule.host() == Pattern::Any || rule.needs_request() {
            return Err(PlaceError::NotAName(host.to_owned()));
        }
        let host = match rule.ports() {
            [HTTP_PORT] => return Err(PlaceError::Plain(host.to_owned())),
            [_] => rule,
            _ => rule.on_port(TLS_PORT),
        };
        Ok(Self {
            host,
            slot: slot_of(slot)?,
        })
    }
}

fn slot_of(text: &str) -> Result<Slot, PlaceError> {
    let wrong = || PlaceError::Slot(text.to_owned());
    let (kind, rest) = text.split_once(' ').ok_or_else(wrong)?;
    let rest = rest.trim();
    match kind {
        "header" => {
            let (name, template) = match rest.split_once(':') {
                Some((name, template)) => (name, Some(template_of(template.trim())?)),
                None => (rest, None),
            };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            if NOT_FOR_SECRETS.contains(&name) {
                return Err(wrong());
            }
            Ok(Slot::Header { name, template })
        }
        "query" => {
            let (name, when) = match rest.strip_suffix('=') {
                Some(name) => (name, When::Always),
                None => (rest, When::IfPresent),
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
            if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
                return Err(wrong());
            }
            Ok(Slot::Query {
                name: name.to_owned(),
                when,
            })
        }
        _ => Err(wrong()),
    }
}

fn template_of(text: &str) -> Result<String, PlaceError> {
    let is_text = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_text && text.len() <= TEMPLATE_BYTES_MAX && text.matches(VALUE).count() == 1 {
        Ok(text.to_owned())
    } else {
        Err(PlaceError::Template(text.to_owned()))
    }
}

/// The canonical form: it parses to an equal place.
impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.host)?;
        match &self.slot {
            Slot::Header { name, template: None } => write!(f, "header {name}"),
            Slot::Header {
                name,
                template: Some(template),
            } => write!(f, "header {name}: {template}"),
            Slot::Query {
                name,
                when: When::IfPresent,
            } => write!(f, "query {name}"),
            Slot::Query {
                name,
                when: When::Always,
            } => write!(f, "query {name}="),
        }
    }
}

impl SecretPlace {
    /// True if the place is for requests to `to`: by name and port, never by address.
    fn is_for(&self, to: &Destination) -> bool {
        match &to.host {
            Host::Name(name) => self.host.reaches(name, to.port),
            Host::Address(_) => false,
        }
    }
}

/// A secret, its placeholder, and the places where the placeholder is replaced.
pub struct BoundSecret {
    name: String,
    placeholder: String,
    value: Zeroizing<String>,
    places: Vec<SecretPlace>,
    places_now: Box<dyn Fn() -> PlacesFuture + Send + Sync>,
}

/// The places where a secret may be sent at present: none once it or its binding is removed.
pub type PlacesFuture = Pin<Box<dyn Future<Output = Vec<SecretPlace>> + Send>>;

impl BoundSecret {
    /// Creates a secret with a new, unique placeholder; fails if the system provides no randomness. `places_now` tells
    /// the places where the value may still be sent; it is called for each request to a host of `places`.
    pub fn new(
        name: &str,
        value: &str,
        places: Vec<SecretPlace>,
        places_now: impl Fn() -> PlacesFuture + Send + Sync + 'static,
    ) -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        Ok(Self {
            name: name.to_owned(),
            placeholder: format!("{PLACEHOLDER_PREFIX}{:032x}", u128::from_be_bytes(random)),
            value: Zeroizing::new(value.to_owned()),
            places,
            places_now: Box::new(places_now),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    pub(crate) fn belongs_to(&self, to: &Destination) -> bool {
        self.places.iter().any(|place| place.is_for(to))
    }
}

/// Reason why a secret cannot be written into a request, with its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unwritable {
    /// It has bytes that no header may have.
    Bytes(String),
    /// It was replaced or removed, or may no longer be sent there.
    Outdated(String),
}

/// Writes secrets into a request for `to`, and removes all other values from their places. `target` is path and query.
/// Returns the names of the secrets that the request now has.
pub(crate) async fn fill(
    secrets: &[BoundSecret],
    to: &Destination,
    headers: &mut HeaderMap,
    target: &mut String,
) -> Result<Vec<String>, Unwritable> {
    let mut slots: Vec<(&Slot, &BoundSecret)> = Vec::new();
    let mut outdated = Vec::new();
    for secret in secrets.iter().filter(|secret| secret.belongs_to(to)) {
        let now = (secret.places_now)().await;
        let now: Vec<&Slot> = slots_for(&now, to).collect();
        if !slots_for(&secret.places, to).all(|slot| now.contains(&slot)) {
            outdated.push(&secret.name);
        }
        slots.extend(slots_for(&secret.places, to).map(|slot| (slot, secret)));
    }
    let mut filled = Vec::new();
    fill_headers(&slots, headers, &mut filled)?;
    fill_query(&slots, target, &mut filled);
    filled.sort();
    filled.dedup();
    match filled.iter().find(|name| outdated.contains(name)) {
        Some(name) => Err(Unwritable::Outdated(name.clone())),
        None => Ok(filled),
    }
}

fn slots_for<'a>(places: &'a [SecretPlace], to: &'a Destination) -> impl Iterator<Item = &'a Slot> {
    places
        .iter()
        .filter(|place| place.is_for(to))
        .map(|place| &place.slot)
}

fn fill_headers(
    slots: &[(&Slot, &BoundSecret)],
    headers: &mut HeaderMap,
    filled: &mut Vec<String>,
) -> Result<(), Unwritable> {
    let slots = slots.iter().filter_map(|(slot, secret)| match slot {
        Slot::Header { name, template } => Some((name, template.as_deref(), *secret)),
        Slot::Query { .. } => None,
    });
    let mut write = |text: Zeroizing<String>, secret: &BoundSecret| {
        let value = HeaderValue::from_bytes(text.as_bytes());
        let mut value = value.map_err(|_| Unwritable::Bytes(secret.name.clone()))?;
        // HTTP/2 must not index it in a header table.
        value.set_sensitive(true);
        filled.push(secret.name.clone());
        Ok(value)
    };
    let names: HashSet<&HeaderName> = slots.clone().map(|(name, ..)| name).collect();
    for name in names {
        let given: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
        headers.remove(name);
        let of_name = slots.clone().filter(|(of, ..)| *of == name);
        for mut value in given {
            let mut has_secret = false;
            for (_, _, secret) in of_name.clone().filter(|(_, template, _)| template.is_none()) {
                if let Some(text) = replaced(&value, secret) {
                    value = write(text, secret)?;
                    has_secret = true;
                }
            }
            if has_secret {
                headers.append(name, value);
            }
        }
        for (_, template, secret) in of_name {
            if let Some(template) = template {
                let text = Zeroizing::new(template.replace(VALUE, secret.value()));
                headers.append(name, write(text, secret)?);
            }
        }
    }
    Ok(())
}

/// Returns a header's value with the secret for its placeholder, also within `Basic`; `None` if that is not there.
fn replaced(value: &HeaderValue, secret: &BoundSecret) -> Option<Zeroizing<String>> {
    let text = str::from_utf8(value.as_bytes()).ok()?;
    if text.contains(&secret.placeholder) {
        return Some(Zeroizing::new(text.replace(&secret.placeholder, secret.value())));
    }
    let (scheme, coded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = Zeroizing::new(String::from_utf8(STANDARD.decode(coded.trim()).ok()?).ok()?);
    let plain = plain
        .contains(&secret.placeholder)
        .then(|| plain.replace(&secret.placeholder, secret.value()));
    let plain = Zeroizing::new(plain?);
    Some(Zeroizing::new(format!(
        "{scheme} {}",
        STANDARD.encode(plain.as_bytes())
    )))
}

fn fill_query(slots: &[(&Slot, &BoundSecret)], target: &mut String, filled: &mut Vec<String>) {
    let slots: Vec<(&str, When, &BoundSecret)> = slots
        .iter()
        .filter_map(|(slot, secret)| match slot {
            Slot::Query { name, when } => Some((name.as_str(), *when, *secret)),
            Slot::Header { .. } => None,
        })
        .collect();
    if slots.is_empty() {
        return;
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, query),
        None => (target.as_str(), ""),
    };
    let mut pairs: Vec<Cow<'_, str>> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        // Decoded as the server will decode it.
        let read = form_urlencoded::parse(pair.as_bytes()).next();
        let (name, value) = read.unwrap_or_default();
        if !slots.iter().any(|(slot, _, _)| *slot == name) {
            pairs.push(Cow::Borrowed(pair));
            continue;
        }
        let replacement = slots.iter().find(|(slot, when, secret)| {
            *slot == name && *when == When::IfPresent && secret.placeholder == value
        });
        if let Some((slot, _, secret)) = replacement {
            pairs.push(Cow::Owned(pair_of(slot, secret)));
            filled.push(secret.name.clone());
        }
    }
    for (slot, _, secret) in slots.iter().filter(|(_, when, _)| *when == When::Always) {
        pairs.push(Cow::Owned(pair_of(slot, secret)));
        filled.push(secret.name.clone());
    }
    let query = pairs.join("&");
    *target = if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    };
}

fn pair_of(name: &str, secret: &BoundSecret) -> String {
    form_urlencoded::Serializer::new(String::new())
        .append_pair(name, secret.value())
        .finish()
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
