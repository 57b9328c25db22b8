//! Request states: a client of revision 2026-07-28 returns its user's answer with a sealed text that names the request.
//! It is valid once, until it expires, for the question that it was issued for; anything else is refused with one and
//! the same error. The request itself never leaves the server.

use crate::lock::lock;
use ring::rand::{SystemRandom, generate};
use ringfence_engine::Waiting;
use ringfence_types::{ErrorCode, RequestError};
use rmcp::model::{RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io,
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const OPEN_MAX: usize = 128;
const SEALED_BYTES_MAX: usize = 4 << 10;
/// Time after the expiry of a request in which a late client still learns the decision.
const GRACE: Duration = Duration::from_secs(60);
const KEY_BYTES: usize = 32;

pub(super) struct RequestStates {
    codec: RequestStateCodec,
    open: Mutex<HashMap<String, Open>>,
}

struct Open {
    waiting: Waiting,
    until: Instant,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    pledge: String,
    request: String,
    digest: String,
}

impl RequestStates {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            codec: RequestStateCodec::try_new(random()?).map_err(io::Error::other)?,
            open: Mutex::default(),
        })
    }

    /// Keeps the waiting request until its client returns this text with the same `bound` data. Fails for a request
    /// that was decided already.
    pub(super) fn issue(&self, waiting: Waiting, bound: &[u8]) -> Result<String, RequestError> {
        let fault = |error: &dyn std::fmt::Display| {
            RequestError::fault(
                format!("a request's state could not be sealed: {error}."),
                "Report this.",
            )
        };
        let request = waiting.request().ok_or_else(|| fault(&"it has no request"))?;
        let pledge = random().map_err(|error| fault(&error))?;
        let sealed = Sealed {
            pledge: ringfence_store::to_hex(&pledge),
            request: request.id.clone(),
            digest: request.digest(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let lasts = Duration::from_millis(request.expires_unix_ms).saturating_sub(now) + GRACE;
        let options = SealOptions::new().associated_data(bound).ttl(lasts);
        let text = self.codec.seal_json_with(&sealed, &options);
        let text = text.map_err(|error| fault(&error))?;
        let mut open = lock(&self.open);
        let now = Instant::now();
        open.retain(|_, one| now < one.until);
        if open.len() >= OPEN_MAX {
            // `waiting` is dropped, which withdraws the request.
            return Err(RequestError::new(
                ErrorCode::Busy,
                format!("{OPEN_MAX} requests wait for the client to come back."),
                "Bring the answers to those.",
            ));
        }
        let until = now + lasts;
        open.insert(sealed.pledge, Open { waiting, until });
        Ok(text)
    }

    /// Returns the waiting request, once.
    pub(super) fn redeem(&self, sealed: &str, bound: &[u8]) -> Result<Waiting, RequestError> {
        let refused = || {
            RequestError::invalid(
                "the request state was not given by this server for this question, or it was used, or it has expired.",
                "Call the tool again without it.",
            )
        };
        if sealed.len() > SEALED_BYTES_MAX {
            return Err(refused());
        }
        let opened = self.codec.open_json_with::<Sealed>(sealed, bound);
        let opened = opened.map_err(|error| {
            tracing::warn!(%error, "a request state was refused");
            refused()
        })?;
        let open = lock(&self.open).remove(&opened.pledge);
        let Open { waiting, .. } = open.ok_or_else(|| {
            tracing::warn!(
                request = opened.request,
                "a request state came back a second time, or too late"
            );
            refused()
        })?;
        let is_same = waiting
            .request()
            .is_some_and(|request| request.id == opened.request && request.digest() == opened.digest);
        if is_same { Ok(waiting) } else { Err(refused()) }
    }
}

fn random() -> io::Result<[u8; KEY_BYTES]> {
    generate(&SystemRandom::new())
        .map(|random| random.expose())
        .map_err(|_| io::Error::other("there are no random bytes"))
}
