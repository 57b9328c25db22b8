//! The keys of the issuer of access tokens (JWKS). They are fetched when a token names an unknown key or its signature
//! does not match, at most once in ten seconds; known keys stay valid while the issuer cannot be reached.

use crate::outgoing::{Destination, error_text};
use http_body_util::Full;
use hyper::{Request, Uri, header::ACCEPT};
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{Jwk, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

/// Maximum time of a fetch, name resolution included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const BETWEEN_FETCHES: Duration = Duration::from_secs(10);
const BYTES_MAX: usize = 256 << 10;
const KEYS_MAX: usize = 100;

pub(super) struct Jwks {
    issuer: Destination,
    uri: Uri,
    keys: RwLock<HashMap<String, Arc<IssuerKey>>>,
    /// Start of the last fetch; locked during a fetch.
    last_fetch: Mutex<Option<Instant>>,
}

pub(super) struct IssuerKey {
    pub(super) key: DecodingKey,
    /// The algorithm that the key is for, if the issuer names one.
    algorithm: Option<String>,
}

impl IssuerKey {
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        let named = format!("{algorithm:?}");
        self.key.family() == algorithm.family() && self.algorithm.as_ref().is_none_or(|own| *own == named)
    }
}

impl Jwks {
    pub(super) fn of(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("`{url}` is not a URL"))?;
        Ok(Self {
            issuer: Destination::host(&uri)?,
            uri,
            keys: RwLock::default(),
            last_fetch: Mutex::default(),
        })
    }

    fn known(&self, id: &str) -> Option<Arc<IssuerKey>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(id).cloned()
    }

    pub(super) async fn key(&self, id: &str) -> Option<Arc<IssuerKey>> {
        match self.known(id) {
            None => self.refreshed_key(id).await,
            known => known,
        }
    }

    /// Fetches the keys first, unless they were fetched less than ten seconds ago: an issuer may reuse an id.
    pub(super) async fn refreshed_key(&self, id: &str) -> Option<Arc<IssuerKey>> {
        let mut last_fetch = self.last_fetch.lock().await;
        if last_fetch.is_none_or(|begun| begun.elapsed() >= BETWEEN_FETCHES) {
            *last_fetch = Some(Instant::now());
            match timeout(FETCH_TIMEOUT, self.fetch()).await {
                Ok(Ok(keys)) => *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys,
                Ok(Err(reason)) => tracing::warn!(
                    reason,
                    "the issuer's keys were not fetched; known keys stay valid"
                ),
                Err(_) => tracing::warn!("the issuer's keys did not come in time; known keys stay valid"),
            }
        }
        drop(last_fetch);
        self.known(id)
    }

    /// Does not follow redirects: the keys are where the operator says.
    async fn fetch(&self) -> Result<HashMap<String, Arc<IssuerKey>>, String> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path).header(ACCEPT, "application/json");
        let request = request.body(Full::default()).map_err(error_text)?;
        let exchange = self.issuer.send(request).await?;
        read(&exchange.success(BYTES_MAX).await?)
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// Parses a key set; keys without an id, of unsupported kinds or not for signatures are skipped.
fn read(bytes: &[u8]) -> Result<HashMap<String, Arc<IssuerKey>>, String> {
    let set: KeySet = serde_json::from_slice(bytes).map_err(|_| "it is not a key set")?;
    let key = |value: Value| {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let id = jwk.common.key_id.clone().filter(|_| is_for_signatures)?;
        let key = IssuerKey {
            key: DecodingKey::from_jwk(&jwk).ok()?,
            algorithm: jwk.common.key_algorithm.map(|algorithm| algorithm.to_string()),
        };
        Some((id, Arc::new(key)))
    };
    Ok(set.keys.into_iter().take(KEYS_MAX).filter_map(key).collect())
}
