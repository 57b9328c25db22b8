//! An OAuth resource server: validates access tokens (RFC 7519, RFC 9068), maps them to principals, and gives metadata
//! and challenges to clients without one (RFC 9728, RFC 6750). Nothing here is taken from a request's `Host`.

use super::{
    jwks::{IssuerKey, Jwks},
    principal::{Denied, Identity, OAUTH, PartialScope, Principal},
    signature,
};
use crate::settings::{CLAIM_PLACEHOLDER, ClaimRule, OAuthSettings, SettingValue as _, Toolset, refusal};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header, errors::ErrorKind};
use ringfence_store::tokens::PrincipalRole;
use ringfence_types::{Namespace, RequestError};
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};

const CALL: &str = "ringfence:call";
/// Prefix of the scope of a single toolset; `ringfence:call` and `ringfence:operate` include all of them.
const TOOLSET: &str = "ringfence:";
/// Includes `ringfence:call`.
const OPERATE: &str = "ringfence:operate";
const LEEWAY_SECONDS: u64 = 10;
const METADATA: &str = "/.well-known/oauth-protected-resource";
/// Claims that only an ID token has.
const ID_TOKEN_CLAIMS: [&str; 3] = ["nonce", "at_hash", "c_hash"];
const SCOPES_SHOWN_MAX: usize = 10;

pub(super) struct OAuth {
    resource: String,
    public_url: String,
    issuer: String,
    rules: Vec<ClaimRule>,
    jwks: Jwks,
}

impl OAuth {
    pub(super) fn new(settings: OAuthSettings) -> Result<Self, RequestError> {
        signature::install();
        let refused = |reason: String| {
            refusal(
                format!("OAuth: {reason}."),
                "See `http.public_url` and `http.oauth_jwks_url`.",
            )
        };
        let public_url = settings.public_url.trim_end_matches('/').to_owned();
        if public_url.splitn(4, '/').count() > 3 {
            return Err(refused("`http.public_url` has a path".to_owned()));
        }
        Ok(Self {
            resource: format!("{public_url}/mcp"),
            public_url,
            issuer: settings.issuer,
            rules: settings.principals,
            jwks: Jwks::of(&settings.jwks_url).map_err(refused)?,
        })
    }

    pub(super) async fn identify(&self, token: &str) -> Result<Identity, Denied> {
        let claims = self.claims(token).await.ok_or(Denied::Invalid)?;
        let scopes = scopes(&claims);
        let has = |wanted: &str| scopes.iter().any(|scope| scope == wanted);
        let of_scope = |scope: &String| Toolset::read(scope.strip_prefix(TOOLSET)?).ok();
        let toolsets: Vec<Toolset> = scopes.iter().filter_map(of_scope).collect();
        let (role, is_partial) = match (has(OPERATE), has(CALL)) {
            (true, _) => (PrincipalRole::Operator, false),
            (false, true) => (PrincipalRole::Caller, false),
            (false, false) if toolsets.is_empty() => {
                let (held, wanted) = (scopes, CALL.to_owned());
                return Err(Denied::Scope { held, wanted });
            }
            (false, false) => (PrincipalRole::Caller, true),
        };
        let found = self.rules.iter().find_map(|rule| match_rule(rule, &claims, role));
        let principal = found.unwrap_or(Err(Denied::Unknown))?;
        let expires = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
        let expires = Duration::try_from_secs_f64(expires).unwrap_or_default();
        let until = expires + Duration::from_secs(LEEWAY_SECONDS);
        Ok(Identity {
            principal: principal.into(),
            expires_unix_ms: Some(u64::try_from(until.as_millis()).unwrap_or(u64::MAX)),
            scope: is_partial.then_some(PartialScope {
                toolsets,
                held: scopes,
            }),
        })
    }

    /// Returns the claims of a currently valid access token of this issuer for this resource.
    async fn claims(&self, token: &str) -> Option<Map<String, Value>> {
        let header = decode_header(token).ok()?;
        let is_access_token = header.typ.as_deref().is_none_or(|kind| {
            ["at+jwt", "application/at+jwt", "jwt"]
                .iter()
                .any(|known| kind.eq_ignore_ascii_case(known))
        });
        if !is_access_token || header.crit.is_some() || !signature::ALGORITHMS.contains(&header.alg) {
            return None;
        }
        let id = header.kid.as_deref()?;
        let known = self.jwks.key(id).await?;
        let claims = match self.verify(token, header.alg, &known) {
            Ok(claims) => claims,
            Err(ErrorKind::InvalidSignature) => {
                let now = self.jwks.refreshed_key(id).await?;
                self.verify(token, header.alg, &now).ok()?
            }
            Err(_) => return None,
        };
        let is_id_token = ID_TOKEN_CLAIMS.iter().any(|claim| claims.contains_key(*claim))
            || claims.get("token_use").is_some_and(|kind| kind == "id");
        (!is_id_token).then_some(claims)
    }

    fn verify(
        &self,
        token: &str,
        algorithm: Algorithm,
        key: &IssuerKey,
    ) -> Result<Map<String, Value>, ErrorKind> {
        if !key.is_for(algorithm) {
            return Err(ErrorKind::InvalidAlgorithm);
        }
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.resource]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let verified = decode::<Map<String, Value>>(token, &key.key, &validation);
        verified
            .map(|token| token.claims)
            .map_err(|error| error.into_kind())
    }

    /// Returns the protected resource metadata (RFC 9728), for the well-known paths.
    pub(super) fn metadata(&self, path: &str) -> Option<String> {
        let is_metadata = path == METADATA || path.strip_prefix(METADATA) == Some("/mcp");
        is_metadata.then(|| {
            let facts = json!({
                "resource": self.resource,
                "authorization_servers": [self.issuer],
                "scopes_supported": [CALL, OPERATE],
                "bearer_methods_supported": ["header"],
                "resource_name": "Ringfence",
            });
            facts.to_string()
        })
    }

    pub(super) fn challenge(&self) -> String {
        format!(
            r#", resource_metadata="{}{METADATA}/mcp", scope="{CALL}""#,
            self.public_url
        )
    }

    /// For insufficient scopes: lists the token's and the one that it needs, because clients request exactly these.
    pub(super) fn scope_challenge(&self, held: &[String], wanted: &str) -> String {
        let is_scope = |scope: &&String| {
            let is_part = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            !scope.is_empty()
                && scope.len() <= 128
                && scope.bytes().all(is_part)
                && **scope != "offline_access"
        };
        let held = held.iter().filter(is_scope).take(SCOPES_SHOWN_MAX);
        let wanted: Vec<&str> = held.map(String::as_str).chain([wanted]).collect();
        format!(
            r#"Bearer error="insufficient_scope", scope="{}", resource_metadata="{}{METADATA}/mcp""#,
            wanted.join(" "),
            self.public_url
        )
    }
}

pub(super) fn scope_of(toolset: Toolset) -> String {
    format!("{TOOLSET}{}", toolset.json().as_str().unwrap_or_default())
}

/// Reads the scopes from `scope` (RFC 8693), or from `scp`, which other issuers use.
fn scopes(claims: &Map<String, Value>) -> Vec<String> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match claims.get("scope").or_else(|| claims.get("scp")) {
        Some(Value::String(text)) => words(text),
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).flat_map(words).collect(),
        _ => Vec::new(),
    }
}

/// Returns a claim's values as text. None: a value has no text form, such as an object or a nested array.
fn texts(claim: &Value) -> Option<Vec<String>> {
    match claim {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(vec![text.clone()]),
        Value::Number(_) | Value::Bool(_) => Some(vec![claim.to_string()]),
        Value::Array(items) if items.iter().any(Value::is_array) => None,
        Value::Array(items) => items
            .iter()
            .map(texts)
            .collect::<Option<_>>()
            .map(|all: Vec<_>| all.concat()),
        Value::Object(_) => None,
    }
}

/// Applies a rule to the claims. None: the rule does not match. An error: the rule is about a claim of the token, but
/// the claim's value cannot be used; later rules, which may grant more, are not tried.
fn match_rule(
    rule: &ClaimRule,
    claims: &Map<String, Value>,
    role: PrincipalRole,
) -> Option<Result<Principal, Denied>> {
    let Some(values) = texts(claims.get(&rule.claim)?) else {
        return Some(Err(Denied::Unknown));
    };
    let value = match &rule.value {
        Some(value) => values.contains(value).then_some(value)?,
        None if values.len() > 1 && rule.uses_claim_value() => return Some(Err(Denied::Unknown)),
        None => values.first()?,
    };
    Some(principal(rule, value, role).ok_or(Denied::Unknown))
}

/// Builds the principal of a rule. None: a name made from the claim's value is invalid.
fn principal(rule: &ClaimRule, claimed: &str, role: PrincipalRole) -> Option<Principal> {
    let named = |text: &String| Namespace::try_from(text.replace(CLAIM_PLACEHOLDER, claimed)).ok();
    let namespaces: Option<Vec<Namespace>> = match &rule.namespaces {
        Some(names) => Some(names.iter().map(named).collect::<Option<_>>()?),
        None => None,
    };
    Some(Principal {
        name: Arc::from(format!("{OAUTH}{}", named(&rule.name)?)),
        namespaces: namespaces.map(Arc::from),
        toolsets: (!rule.toolsets.is_empty()).then(|| rule.toolsets.clone()),
        rate_per_minute: rule.rate_per_minute,
        detach_after_ms: rule.detach_after_ms,
        limits: rule.limits.clone(),
        role,
        token: None,
    })
}

#[cfg(test)]
#[path = "oauth_tests.rs"]
mod tests;
