//! The keys of the issuer of access tokens. They are fetched when a token names one that is not known, and not more
//! often than once in ten seconds; those that are known stay good while the issuer cannot be reached.

use crate::outgoing::{Destination, said};
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

/// From the name of the host to the end of the keys.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_FETCHES: Duration = Duration::from_secs(10);
const BYTES_MAX: usize = 256 << 10;
const KEYS_MAX: usize = 100;

pub(super) struct Jwks {
    issuer: Destination,
    uri: Uri,
    keys: RwLock<HashMap<String, Arc<IssuerKey>>>,
    /// When they were asked for last; held while they are.
    asked: Mutex<Option<Instant>>,
}

pub(super) struct IssuerKey {
    pub(super) key: DecodingKey,
    /// The one that it is for, where the issuer says so.
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
            asked: Mutex::default(),
        })
    }

    fn known(&self, id: &str) -> Option<Arc<IssuerKey>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(id).cloned()
    }

    /// The key with this id, which may have to be fetched.
    pub(super) async fn key(&self, id: &str) -> Option<Arc<IssuerKey>> {
        match self.known(id) {
            None => self.key_now(id).await,
            known => known,
        }
    }

    /// The same as the issuer has it now, where it has not been asked just before: an issuer may give an id twice.
    pub(super) async fn key_now(&self, id: &str) -> Option<Arc<IssuerKey>> {
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|asked| asked.elapsed() >= BETWEEN_FETCHES) {
            *asked = Some(Instant::now());
            match timeout(PATIENCE, self.fetch()).await {
                Ok(Ok(keys)) => *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys,
                Ok(Err(reason)) => tracing::warn!(
                    reason,
                    "the issuer's keys were not fetched; those known stay good"
                ),
                Err(_) => tracing::warn!("the issuer's keys did not come in time; those known stay good"),
            }
        }
        drop(asked);
        self.known(id)
    }

    /// A redirection is no answer: the keys are where the operator says.
    async fn fetch(&self) -> Result<HashMap<String, Arc<IssuerKey>>, String> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path).header(ACCEPT, "application/json");
        let request = request.body(Full::default()).map_err(said)?;
        let exchange = self.issuer.send(request).await?;
        read(&exchange.success(BYTES_MAX).await?)
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// Keys of other kinds, and those that are not for signatures, are passed over.
fn read(bytes: &[u8]) -> Result<HashMap<String, Arc<IssuerKey>>, String> {
    let set: KeySet = serde_json::from_slice(bytes).map_err(|_| "it is no set of keys")?;
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
